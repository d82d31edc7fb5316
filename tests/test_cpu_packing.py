"""Where operands and results of sums of products lie: copies, their order, and what they cost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kernel_cases import conv
from eqsatad.backends import build
from eqsatad.backends.access import flat
from eqsatad.backends.blocks import groups
from eqsatad.backends.cpu import prepare
from eqsatad.backends.cpu.code.source import Machine
from eqsatad.backends.cpu.rewrites.packing import packed
from eqsatad.backends.cpu.rewrites.parting import parted
from eqsatad.backends.cpu.rewrites.siblings import joined
from eqsatad.backends.cpu.tiles.tile import chain
from eqsatad.backends.cpu.tiles.turns import turn
from eqsatad.loops.interpret import run
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import For, Store, statements
from eqsatad.terms import builders as ea
from tests.loop_programs import place, reduced
from tests.pages import CLOSED, between_pages

VECTOR = 64
MACHINE = Machine(VECTOR, 32)


def strided(stride, kernel, *, image=(2, 20, 12, 12), filters=24, pad=0):
    """The gradient of a strided convolution with respect to its images."""
    return conv(image, (filters, image[1], kernel, kernel), "X", stride=stride, pad=pad)


def program_of(problem):
    return problem.ours.build("reference").loops


def sums_of(program):
    """The nests of a program that add up, and their stores."""
    for nest in program.nests:
        for statement in nest.body:
            loops, body = chain(statement)
            if any(isinstance(each, For) for each in body) and isinstance(body[-1], Store):
                yield loops, body[-1]


@settings(max_examples=12, deadline=None)
@given(
    image=st.tuples(st.integers(1, 2), st.integers(3, 40), st.integers(5, 20), st.integers(5, 20)),
    filters=st.integers(4, 40),
    options=st.sampled_from([(1, 1, 0), (1, 2, 0), (3, 1, 1), (3, 2, 1), (2, 2, 0), (3, 3, 0)]),
    wrt=st.sampled_from("XW"),
)
def test_gradient_of_a_convolution_is_right_at_every_size(image, filters, options, wrt):
    kernel, stride, pad = options
    weights = (filters, image[1], kernel, kernel)
    problem = conv(image, weights, wrt, stride=stride, pad=pad)
    kernel = problem.ours.build("cpu")
    given_arrays = {name: problem.arrays[name] for name in kernel.inputs}
    (expected,) = problem.numpy(problem.arrays)
    (found,) = kernel(**given_arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("stride", "kernel"), [(1, 1), (1, 3), (2, 1), (2, 3)])
def test_sums_store_vectors_whole(stride, kernel):
    program = packed(program_of(strided(stride, kernel)), VECTOR)
    found = list(sums_of(program))
    assert found
    for loops, store in found:
        place = flat(store.buffer, store.indices)
        assert any(place.coefficient(loop.axis) == 1 for loop in loops)


def test_lanes_of_kept_results_are_whole_vectors():
    program = packed(program_of(strided(1, 3, image=(2, 30, 9, 9), pad=1)), VECTOR)
    kept = [each for each in program.temporaries if "kept" in each.name]
    assert kept
    assert all(each.shape[-1].value % (VECTOR // 4) == 0 for each in kept)


def test_copies_that_differ_in_their_borders_are_one():
    program = packed(program_of(strided(2, 3, pad=1)), VECTOR)
    copies = [each.name for each in program.temporaries if each.name.startswith("H_packed")]
    assert copies == ["H_packed_1"]


def test_phases_and_their_zeros_are_written_together():
    program = prepare(program_of(strided(2, 1)), MACHINE)
    (body,) = [nest.body for nest in program.nests if nest.stage.name == "X_bar"]
    assert len(body) == 1
    assert sum(isinstance(each, Store) for each in statements(body)) == 4
    assert turn(body[0], VECTOR) is not None


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 40)),
    zeros=st.booleans(),
)
def test_copies_across_fill_gaps_of_each_other(sizes, zeros):
    n, a, b = sizes
    x, z = place(n, a, b, name="x"), place(n, a, b, name="z")

    def body(i, k, j):
        other = 0.0 if zeros else z[i, j // 2, k]
        return ea.select(ea.equal(j % 2, 0), x[i, j // 2, k], other)

    program = lower([ea.compute((n, b, 2 * a), body, name="y")])
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(sizes).astype("float32") for _ in program.inputs]
    expected = np.zeros((n, b, 2 * a), "float32")
    expected[..., 0::2] = arrays[0].transpose(0, 2, 1)
    if not zeros:
        expected[..., 1::2] = arrays[1].transpose(0, 2, 1)
    np.testing.assert_array_equal(build(program, "cpu")(*arrays)[0], expected)


@CLOSED
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("sizes", [(5, 21), (16, 16), (37, 40), (24, 6)], ids=str)
@pytest.mark.parametrize("step", [1, 2])
def test_copies_across_store_nothing_beside_what_they_move(step, sizes, at_end):
    """Neither in the gaps that no other store fills, nor beyond the end."""
    a, b = sizes
    x = place(a, b, name="x")

    def body(k, j):
        moved = x[j // step, k]
        return moved if step == 1 else ea.select(ea.equal(j % 2, 0), moved, 0.0)

    program = lower([ea.compute((b, step * a), body, name="y")])
    (nest,) = program.nests
    program = replace(program, nests=(replace(nest, body=nest.body[:1]),))
    assert turn(program.nests[0].body[0], VECTOR) is not None
    array = np.random.default_rng(0).standard_normal(sizes).astype("float32")
    out = between_pages(np.full((b, step * a), 7.0, "float32"), at_end)
    build(program, "cpu")(array, out=[out])
    np.testing.assert_array_equal(out[:, ::step], array.T)
    assert step == 1 or (out[:, 1::2] == 7).all()


def test_longer_loop_of_constants_is_split_to_fit():
    x = place(4, 6, name="x")
    value = lambda i, j: ea.select(  # noqa: E731
        ea.equal(i % 2, 0), ea.select(ea.equal(j % 2, 0), x[i // 2, j // 2], 0.0), 0.0
    )
    program = lower([ea.compute((8, 12), value, name="y")])
    together = joined(program, 4)
    assert len(list(groups(program))) > len(list(groups(together))) == 1
    array = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
    (ours,), (theirs,) = (run(each, {"x": array}).outputs for each in (together, program))
    np.testing.assert_array_equal(ours, theirs)


def test_sum_along_contiguous_elements_goes_innermost():
    y, b = place(40, 50, name="y"), place(40, 30, 50, name="b")
    r, s = reduced(50, "r"), reduced(40, "s")
    total = ea.compute((30,), lambda i: ea.sum(y[s, r] * b[s, i, r], axis=(r, s)), name="total")
    program = packed(lower([total]), VECTOR)
    sums = [each.axis.name for each in statements(program.nests[0].body) if isinstance(each, For)]
    assert sums[-1] == "r"
    assert not program.temporaries
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.standard_normal([e.value for e in t.shape]) for t in program.inputs}
    expected = np.einsum("sr,sir->i", arrays["y"], arrays["b"])
    np.testing.assert_allclose(run(program, arrays).outputs[0], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("same", "apart"), [(False, True), (True, False)])
def test_sums_are_apart_from_loops_that_do_not_read_the_same(same, apart):
    a, b, h, r = (
        place(30, 20, name="a"),
        place(30, 20, name="b"),
        place(20, name="h"),
        reduced(20, "r"),
    )

    def scaled(i, j):
        return (a[i, j] if same else h[j]) * ea.sum(a[i, r] * b[i, r], axis=r)

    program = lower([ea.compute((30, 20), scaled, name="y")])
    found = parted(program)
    assert (len(found.temporaries) == 1) == apart
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.standard_normal([e.value for e in t.shape]) for t in program.inputs}
    (ours,), (theirs,) = (run(each, arrays).outputs for each in (found, program))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_long_sum_for_each_term_of_a_sum_over_two_axes_is_apart():
    a, b, h = place(3, 30, 25, 4, name="a"), place(30, 25, name="b"), place(3, 4, name="h")
    r, s, t, u = reduced(3, "r"), reduced(30, "s"), reduced(25, "t"), reduced(4, "u")
    inner = ea.sum(a[r, s, t, u] * b[s, t], axis=(s, t))
    program = lower([ea.compute((9,), lambda i: ea.sum(h[r, u] * inner, axis=(r, u)), name="y")])
    found = parted(program)
    shapes = [[extent.value for extent in each.shape] for each in found.temporaries]
    assert any(shape[-2:] == [3, 4] for shape in shapes)
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.standard_normal([e.value for e in t.shape]) for t in program.inputs}
    (ours,), (theirs,) = (run(each, arrays).outputs for each in (found, program))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_long_sum_for_each_term_of_a_sum_is_apart():
    a, b, h = place(30, 20, 25, name="a"), place(30, 25, name="b"), place(20, name="h")
    r, s, t = reduced(20, "r"), reduced(30, "s"), reduced(25, "t")
    inner = ea.sum(a[s, r, t] * b[s, t], axis=(s, t))
    program = lower([ea.compute((9,), lambda i: ea.sum(h[r] * inner, axis=r), name="y")])
    found = parted(program)
    assert [len(each.shape) for each in found.temporaries][-1] <= 2
    assert len(found.nests) > len(program.nests)
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.standard_normal([e.value for e in t.shape]) for t in program.inputs}
    (ours,), (theirs,) = (run(each, arrays).outputs for each in (found, program))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_what_is_read_across_several_times_is_copied():
    c, b = place(18, 40, name="c"), place(12, name="b")
    program = lower([ea.compute((40, 12, 18), lambda i, j, k: c[k, i] * b[j], name="y")])
    found = packed(program, VECTOR)
    assert [each.name for each in found.temporaries] == ["c_packed_1"]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in ((18, 40), (12,))]
    expected = np.einsum("ki,j->ijk", *arrays)
    np.testing.assert_allclose(build(program, "cpu")(*arrays)[0], expected, rtol=1e-6)


def test_what_a_strided_weight_gradient_reads_is_copied_with_channels_innermost():
    """No vector finds the image as it lies, but many results share what is read of it."""
    problem = conv((3, 16, 49, 57), (89, 16, 2, 2), "W", stride=2, dilation=2)
    copy, _ = prepare(program_of(problem), MACHINE).temporaries
    assert [extent.value for extent in copy.shape] == [3, 49, 57, 16]


def test_sums_do_not_slide_over_an_image():
    """Vectors along its rows begin anywhere in a line, along its channels they do not."""
    problem = conv((2, 30, 34, 34), (9, 30, 3, 3), "W", dilation=2)
    shapes = [
        [extent.value for extent in each.shape]
        for each in prepare(program_of(problem), MACHINE).temporaries
    ]
    assert [2, 34, 34, 32] in shapes


@pytest.mark.parametrize("across", [True, False])
def test_a_product_of_what_lies_across_is_one_with_a_copy(across):
    """Loaded one by one, each element would come from a line of its own."""
    a = place(2, 21, 5, 40, name="A")
    b = place(40, 5, 21, name="B") if across else place(21, 5, 40, name="B")
    i, j, k = (ea.reduce_axis((0, extent), name=name)
               for name, extent in (("i", 21), ("j", 5), ("k", 40)))  # fmt: skip

    def total(n):
        return ea.sum(a[n, i, j, k] * (b[k, j, i] if across else b[i, j, k]), axis=(i, j, k))

    program = lower([ea.compute((2,), total, name="total")])
    assert bool(packed(program, VECTOR).temporaries) == across
    rng = np.random.default_rng(0)
    shapes = ((2, 21, 5, 40), (40, 5, 21) if across else (21, 5, 40))
    left, right = (rng.standard_normal(shape).astype("float32") for shape in shapes)
    turned = right.transpose(2, 1, 0) if across else right
    expected = (left.astype("float64") * turned).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(build(program)(left, right)[0], expected, rtol=1e-3)


@pytest.mark.parametrize(
    ("rows", "first", "second", "columns", "copied"),
    [(48, 20, 80, 128, True), (48, 20, 12, 128, False), (48, 20, 80, 48, False)],
    ids=["many lines", "few lines", "few results for each"],
)
def test_rows_whose_elements_are_on_lines_of_their_own_are_copied(
    rows, first, second, columns, copied
):
    """The sum that goes innermost steps over more of an image's row than a line."""
    a, b = place(rows, second, first, name="a"), place(first, second, columns, name="b")
    i, j = reduced(first, "i"), reduced(second, "j")
    output = ea.compute(
        (rows, columns), lambda n, m: ea.sum(a[n, j, i] * b[i, j, m], axis=(i, j)), name="y"
    )
    program = lower([output])
    found = packed(program, VECTOR).temporaries
    assert [[each.value for each in copy.shape] for copy in found] == (
        [[first, second, rows]] if copied else []
    )
    rng = np.random.default_rng(0)
    shapes = ((rows, second, first), (first, second, columns))
    left, right = (rng.standard_normal(shape).astype("float32") for shape in shapes)
    expected = np.einsum("nji,ijm->nm", left.astype("float64"), right)
    np.testing.assert_allclose(build(program)(left, right)[0], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("rows", "columns", "copied"),
    [(512, 320, True), (520, 320, False), (512, 160, False)],
    ids=["2 KiB apart", "in other sets", "few results for each"],
)
def test_rows_that_a_sum_finds_in_few_sets_of_a_cache_are_copied(rows, columns, copied):
    a, b, k = place(64, rows, name="a"), place(64, columns, name="b"), reduced(64, "k")
    output = ea.compute((rows, columns), lambda i, j: ea.sum(a[k, i] * b[k, j], k), name="y")
    program = lower([output])
    found = packed(program, VECTOR).temporaries
    shapes = [[extent.value for extent in copy.shape] for copy in found]
    assert shapes == ([[rows, 64]] if copied else [])
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((64, n)).astype("float32") for n in (rows, columns))
    expected = left.T.astype("float64") @ right
    np.testing.assert_allclose(build(program)(left, right)[0], expected, rtol=1e-3, atol=1e-4)


def test_a_small_matrix_is_turned_innermost():
    """Its squares overlap, and the lines of its rows are shared with the next matrix."""
    x = place(20, 6, 17, name="X")
    small = ea.compute((17, 6, 20), lambda i, j, k: x[k, j, i], name="small")
    wide = place(300, 6, 170, name="W")
    large = ea.compute((170, 6, 300), lambda i, j, k: wide[k, j, i], name="large")
    for stage, order in ((small, "jik"), (large, "ijk")):
        tile = turn(lower([stage]).nests[0].body[0], VECTOR)
        assert [loop.axis.name for loop in tile.order] == list(order)


def test_rows_are_copied_with_the_zeros_at_their_ends():
    program = packed(program_of(strided(1, 3, image=(2, 30, 20, 20), pad=1)), VECTOR)
    (copy,) = [nest for nest in program.nests if nest.stage.name == "H_packed_1"]
    lasts = [chain(each)[0][-1].stop.value for each in copy.body]
    assert set(lasts) == {22}


@pytest.mark.parametrize(("stride", "kernel", "pad"), [(1, 3, 1), (2, 1, 0), (2, 3, 1)])
def test_nan_and_infinity_reach_the_same_results_on_every_number_of_threads(stride, kernel, pad):
    problem = strided(stride, kernel, image=(9, 21, 9, 10), pad=pad)
    program = program_of(problem)
    rng = np.random.default_rng(0)
    arrays = []
    for tensor in program.inputs:
        array = rng.standard_normal([extent.value for extent in tensor.shape]).astype("float32")
        flat_array = array.reshape(-1)
        flat_array[rng.integers(0, array.size, 4)] = [np.inf, -np.inf, np.nan, 0.0]
        arrays.append(array)
    (expected,) = build(program, "reference")(*arrays)
    alone, several = (build(program, "cpu", threads=count)(*arrays)[0] for count in (1, 3))
    np.testing.assert_array_equal(alone, several)
    np.testing.assert_allclose(alone, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("stride", [1, 2])
def test_bounds_that_all_rows_of_a_tile_share_stay_instead_of_a_copy(stride):
    problem = conv((2, 24, 13, 13), (48, 24, 3, 3), "W", stride=stride, pad=1)
    program = program_of(problem)
    prepared = prepare(program, MACHINE)
    assert not [each.name for each in prepared.temporaries if each.name.startswith("X")]
    arrays = {each.name: problem.arrays[each.name].copy() for each in program.inputs}
    arrays["H"][0, 1, 0, 0], arrays["X"][1, 2, 12, 3] = np.inf, np.nan
    arrays["X"][0, 0, 5, 12] = -np.inf
    (expected,) = run(program, arrays).outputs
    found = [build(program, "cpu", threads=threads)(**arrays)[0] for threads in (1, 2)]
    np.testing.assert_array_equal(*found)
    # Hundreds of terms of size one, added up in another order than by the interpreter.
    np.testing.assert_allclose(found[0], expected, rtol=2e-4, atol=2e-4)
