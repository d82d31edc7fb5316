"""What the CPU backend does to programs before it writes code: the result means the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kernel_cases import CASES, max_pool
from eqsatad import differentiate
from eqsatad.backends import build
from eqsatad.backends.blocks import groups
from eqsatad.backends.cpu import Launcher, planned, prepare, written
from eqsatad.backends.cpu.code.source import Machine, write
from eqsatad.backends.cpu.rewrites.inlining import inlined
from eqsatad.backends.cpu.rewrites.layouts import arranged
from eqsatad.backends.cpu.rewrites.packing import packed
from eqsatad.backends.cpu.rewrites.rows import LONG
from eqsatad.backends.cpu.rewrites.siblings import joined
from eqsatad.backends.cpu.runtime.machine import load, named
from eqsatad.backends.cpu.tiles.maps import mapped
from eqsatad.backends.cpu.tiles.scans import scanned
from eqsatad.backends.cpu.tiles.turns import turn
from eqsatad.backends.storage import from_bits, to_bits
from eqsatad.extract.cost import CPU
from eqsatad.library import resize_bilinear
from eqsatad.loops.interpret import run
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import For, statements
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Const
from tests.loop_programs import conv_input_gradient, conv_weight_gradient, lowered

MACHINE = Machine(16, 16)


def drawn(program):
    rng = np.random.default_rng(0)
    return {
        tensor.name: rng.standard_normal([extent.value for extent in tensor.shape]).astype(
            "float32"
        )
        for tensor in program.inputs
    }


@pytest.mark.parametrize("name", CASES)
def test_prepared_program_means_the_same(name):
    case = CASES[name]
    problem = case.make(**case.small)
    program = problem.ours.build("reference").loops
    arrays = {tensor.name: problem.arrays[tensor.name] for tensor in program.inputs}
    expected = run(program, arrays).outputs
    got = run(prepare(program, MACHINE), arrays).outputs
    for ours, theirs in zip(got, expected, strict=True):
        # Sums in another order: a few roundings of float32.
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [conv_input_gradient, conv_weight_gradient])
def test_bounds_of_a_convolution_become_zeros_of_a_copy(make):
    program = lowered(make(2, 8, 8, 9, 3, 1))
    # What comes last works results again that are NaN.
    nests = [nest.body[:1] for nest in packed(program, 16).nests]
    sums = [each for body in nests for each in statements(body)]
    bounds = [bound for loop in sums if isinstance(loop, For) for bound in (loop.start, loop.stop)]
    assert all(isinstance(bound, Const) for bound in bounds)


def test_bounds_that_are_no_border_stay():
    a, b = ea.placeholder((24, 24), name="a"), ea.placeholder((24, 24), name="b")
    k = ea.reduce_axis((0, 24), name="k")
    lower_half = ea.compute(
        (24, 24), lambda i, j: ea.sum(a[i, k] * b[k, j], axis=k, where=k <= i), name="y"
    )
    program = lower([lower_half])
    assert packed(program, 16) == program


def test_cheap_temporary_is_worked_out_where_it_is_read():
    x = ea.placeholder((40,), name="x")
    scaled = ea.compute((40,), lambda i: x[i] * 0.5, name="scaled")
    y = ea.compute((39,), lambda i: scaled[i] - scaled[i + 1], name="y")
    program = lower([y])
    lean = inlined(program)
    assert program.temporaries
    assert not lean.temporaries
    arrays = drawn(program)
    np.testing.assert_array_equal(run(lean, arrays).outputs[0], run(program, arrays).outputs[0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_temporary_that_rounds_stays(dtype):
    x = ea.placeholder((40,), name="x", dtype=dtype)
    scaled = ea.compute((40,), lambda i: x[i] * 0.3, name="scaled")
    y = ea.compute((39,), lambda i: scaled[i] - scaled[i + 1], name="y")
    program = lower([y])
    assert inlined(program).temporaries == program.temporaries
    array = np.random.default_rng(0).standard_normal(40).astype("float32")
    array = array.astype("float16") if dtype == "float16" else from_bits(to_bits(array))
    expected = build(program, "reference")(array)[0]
    for exact in (False, True):
        np.testing.assert_array_equal(build(program, "cpu", exact=exact)(array)[0], expected)


def test_temporary_that_saves_work_stays():
    x, w = ea.placeholder((40,), name="x"), ea.placeholder((30, 40), name="w")
    k = ea.reduce_axis((0, 40), name="k")
    grown = ea.compute((40,), lambda i: ea.exp(x[i]), name="grown")
    scaled = ea.compute((40,), lambda i: x[i] * 0.5, name="scaled")
    y = ea.compute((39,), lambda i: grown[i] - grown[i + 1], name="y")
    z = ea.compute((30,), lambda i: ea.sum(w[i, k] * scaled[k], axis=k), name="z")
    program = lower([y, z])
    assert inlined(program).temporaries == program.temporaries


def test_phases_of_a_gradient_are_one_nest_without_conditions_on_its_axes():
    program = max_pool((1, 2, 8, 8)).ours.build("reference").loops
    pieces = list(groups(joined(program, 4)))
    extents = [
        np.prod(
            [
                each.stop.value
                for each in statements(group)
                if isinstance(each, For) and each.parallel
            ]
        )
        for group in pieces
    ]
    interior = pieces[int(np.argmax(extents))]
    bounds = [
        b for each in statements(interior) if isinstance(each, For) for b in (each.start, each.stop)
    ]
    assert all(isinstance(bound, Const) for bound in bounds)
    assert max(extents) > 0.5 * sum(extents)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    dtype=st.sampled_from(["float32", "float64", "int32", "float16", "bool"]),
)
def test_copy_across_moves_every_element(sizes, dtype):
    n, a, b = sizes
    x = ea.placeholder((n, a, b), name="x", dtype=dtype)
    program = lower([ea.compute((n, b, a), lambda i, j, k: x[i, k, j], name="y")])
    array = (np.random.default_rng(0).standard_normal(sizes) * 9).astype(dtype)
    (got,) = build(program, "cpu")(array)
    np.testing.assert_array_equal(got, array.transpose(0, 2, 1))


def test_only_what_lies_across_is_turned():
    x = ea.placeholder((32, 32), name="x")
    across = ea.compute((32, 32), lambda i, j: x[j, i], name="across")
    along = ea.compute((32, 32), lambda i, j: x[i, j], name="along")
    both = ea.compute((32, 32), lambda i, j: x[j, i] + x[i, j], name="both")
    found = [turn(lower([each]).nests[0].body[0], 64) is not None for each in (across, along, both)]
    assert found == [True, False, False]


def scaled_rows(rows, columns, other):
    """Rows times the sum of their squares, or of the squares of ``other(row, column)``."""
    x = ea.placeholder((rows, columns), name="x")
    k = ea.reduce_axis((0, columns), name="k")
    total = ea.compute((rows,), lambda i: ea.sum(x[i, k] * x[i, k], axis=k), name="total")
    y = ea.compute((rows, columns), lambda i, j: x[i, j] * total[other(i, j)], name="y")
    return lower([y])


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 90), columns=st.integers(1, LONG - 1))
def test_steps_over_the_same_rows_take_turns(rows, columns):
    kernel = build(scaled_rows(rows, columns, lambda i, j: i), "cpu")
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype("float32")
    expected = x * (x * x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(kernel(x)[0], expected, rtol=1e-5)
    assert "train" in kernel.source or rows == 1 or columns < 16


@pytest.mark.parametrize("columns", [2, 5, 8, 15])
def test_rows_shorter_than_a_vector_are_stored_as_one_long_row_instead(columns):
    """Whole vectors gain more than finding a row in the cache, and their ends are in other rows."""
    program = scaled_rows(90, columns, lambda i, j: i)
    avx512 = named("x86-64-v4")
    assert "train" not in written(program, avx512, False)[1].text
    _, stored = planned(program, avx512, False)
    (loop,) = stored.tile.loops
    assert stored.tile.lanes == 16
    assert loop.stop.value == 90 * columns


def test_step_that_reads_other_rows_waits_for_all_of_them():
    kernel = build(scaled_rows(64, 64, lambda i, j: j), "cpu")
    x = np.random.default_rng(0).standard_normal((64, 64)).astype("float32")
    np.testing.assert_allclose(kernel(x)[0], x * (x * x).sum(axis=1), rtol=1e-5)
    assert "train" not in kernel.source


def test_border_along_the_innermost_loop_is_a_whole_vector():
    program = max_pool((1, 2, 64, 64)).ours.build("reference", cost=CPU).loops
    pieces = [
        statement
        for group in groups(joined(program, 64))
        for statement in statements(group)
        if isinstance(statement, For) and statement.parallel and not has_parallel(statement)
    ]
    assert len(pieces) > 1
    assert all(piece.stop.value >= 16 for piece in pieces)


def has_parallel(loop):
    return any(isinstance(each, For) and each.parallel for each in statements(loop.body))


@pytest.mark.parametrize("name", ["W1dX", "W1dW", "W2dX", "W3dX", "W4dW", "W16", "W20dX"])
def test_border_of_a_copy_makes_no_nan_of_an_infinity(name):
    case = CASES[name]
    problem = case.make(**case.full)
    kernel = problem.ours.build("cpu")
    exact = build(kernel.loops, "cpu", exact=True)
    random = np.random.default_rng(0)
    arrays = [problem.arrays[each].copy() for each in kernel.inputs]
    for array in arrays:
        for place in random.integers(array.size, size=3):
            array.reshape(-1)[place] = random.choice([np.inf, -np.inf, np.nan])
    for found, expected in zip(kernel(*arrays), exact(*arrays), strict=True):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 70),
    back=st.booleans(),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_running_sum_is_right_in_both_directions(rows, columns, back, dtype):
    x = ea.placeholder((rows, columns), name="x", dtype=dtype)
    k = ea.reduce_axis((0, columns), name="k")

    def body(i, j):
        inside = k >= j if back else k <= j
        return ea.sum(ea.select(inside, x[i, k], 0.0), axis=k)

    kernel = build(lower([ea.compute((rows, columns), body, name="y")]), "cpu")
    array = np.random.default_rng(0).standard_normal((rows, columns)).astype(dtype)
    turned = array[:, ::-1] if back else array
    expected = turned.cumsum(axis=1, dtype="float64")
    expected = expected[:, ::-1] if back else expected
    # Sums of up to 70 normal numbers.
    np.testing.assert_allclose(kernel(array)[0], expected, rtol=1e-4, atol=1e-4)


def test_running_sum_is_a_tile_of_vectors():
    problem = CASES["W14"].make(x=(8, 64))
    (step,) = groups(problem.ours.build("cpu").loops)
    tile = scanned(step[0], 64)
    assert tile is not None
    assert tile.lanes == 16


def test_temporary_lies_along_the_axis_that_its_readers_run_vectors_along():
    i, j = 32, 48
    a, b = ea.placeholder((i,), name="a"), ea.placeholder((i, j), name="b")
    r = ea.reduce_axis((0, 8), name="r")
    c = ea.placeholder((8, i), name="c")
    across = ea.compute((i, j), lambda u, v: ea.sum(c[r, u] * a[u], axis=r) * a[u], name="across")
    y = ea.compute((j, i), lambda v, u: across[u, v] * c[0, u], name="y")
    program = lower([y, ea.compute((i, j), lambda u, v: b[u, v], name="z")])
    (turned,) = [each for each in arranged(program).temporaries if each.name == "across"]
    assert [extent.value for extent in turned.shape] == [j, i]
    arrays = list(drawn(program).values())
    for found, expected in zip(
        build(program, "cpu")(*arrays), build(program, "reference")(*arrays), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("rows", [91, 42])
def test_what_is_the_same_for_whole_rows_does_not_say_how_temporaries_lie(rows):
    """A gradient of interpolation: weights by row, and columns whose place moves unevenly.

    Where both sides are nearly as long, the rows of a place are short sums.
    """
    x = ea.placeholder((1, 4, 40, 47), name="x", dtype="float32")
    program = differentiate(resize_bilinear(x, (rows, 34)), [x]).loops()
    found = arranged(inlined(program))
    assert {each.name: each.shape for each in found.temporaries} == {
        each.name: each.shape for each in inlined(program).temporaries
    }


def repeated_rows(rows, columns, short):
    a, b = (
        ea.placeholder(shape, name=name, dtype="float32")
        for name, shape in (("a", (columns,)), ("b", (rows, short)))
    )
    return ea.compute((rows, columns, short), lambda i, j, k: a[j] * b[i, k], name="y")


def test_short_rows_that_repeat_are_stored_as_whole_vectors():
    (step,) = groups(lower([repeated_rows(23, 40, 14)]))
    tile = mapped(step[0], 64)
    assert tile is not None
    assert tile.lanes == 16
    assert 8 in tile.counts.values()


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 9), columns=st.integers(1, 40), short=st.integers(1, 20))
def test_short_rows_that_repeat_are_right_at_every_size(rows, columns, short):
    program = lower([repeated_rows(rows, columns, short)])
    arrays = drawn(program)
    (found,) = build(program, "cpu")(**arrays)
    expected = arrays["a"][:, None] * arrays["b"][:, None, :]
    np.testing.assert_array_equal(found, expected)


def test_short_rows_beside_every_other_element_of_two_dimensions_are_right():
    """The loops over both are joined, so that places run on beyond the rows of ``x``."""
    x = ea.placeholder((5, 24), name="x", dtype="float32")
    w = ea.placeholder((7, 14), name="w", dtype="float32")
    program = lower([
        ea.compute((7, 5, 12, 14), lambda n, a, b, k: x[a, 2 * b] * w[n, k], name="y")
    ])  # fmt: skip
    arrays = drawn(program)
    (found,) = build(program, "cpu")(**arrays)
    expected = arrays["x"][None, :, ::2, None] * arrays["w"][:, None, None, :]
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 12), columns=st.integers(1, 70), step=st.integers(1, 3))
def test_stencil_is_right_at_every_size(rows, columns, step):
    x = ea.placeholder((rows + 2, step * columns + 1), name="x")
    y = ea.compute(
        (rows, columns),
        lambda i, j: x[i, step * j] + 2 * x[i + 1, step * j + 1] - x[i + 2, step * j],
        name="y",
    )
    array = np.random.default_rng(0).standard_normal((rows + 2, step * columns + 1))
    array = array.astype("float32")
    expected = array[:-2, :-1:step] + 2 * array[1:-1, 1::step] - array[2:, :-1:step]
    np.testing.assert_allclose(build(lower([y]), "cpu")(array)[0], expected, rtol=1e-5, atol=1e-5)


def test_neighbouring_rows_of_a_stencil_share_their_loads():
    program = CASES["W15"].make(x=(300, 300)).ours.build("reference").loops
    steps = groups(prepare(program, Machine(64, 32)))
    tiles = [tile for step in steps if (tile := mapped(step[0], 64)) is not None]
    assert max(max(tile.counts.values()) for tile in tiles) > 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exponential_is_right_where_no_instruction_scales_by_powers_of_two(dtype):
    x = ea.placeholder((4001,), name="x", dtype=dtype)
    program = lower([ea.compute((4001,), lambda i: ea.exp(x[i]), name="y")])
    source = write(program, Machine(32, 16))
    assert "scalef" not in source.text
    end = 110 if dtype == "float32" else 760
    array = np.append(np.linspace(-end, end, 4000), np.nan).astype(dtype)
    found = np.empty_like(array)
    Launcher(program, load(source.text, source.outside), 1)([array], [found], [])
    with np.errstate(all="ignore"):
        expected = np.exp(array.astype(np.longdouble)).astype(dtype)
    # Two and a half units of the last place; subnormal numbers have fewer places.
    tiny = np.finfo(dtype).smallest_subnormal
    np.testing.assert_allclose(found, expected, rtol=2.5 * np.finfo(dtype).eps, atol=2 * tiny)


def outer_product(rows, columns, images):
    """A sum over ``images`` of products that go over the whole of an image at once."""
    h = ea.placeholder((images, rows), name="h")
    x = ea.placeholder((images, columns, 7, 7), name="x")
    n = ea.reduce_axis((0, images), "n")
    return ea.compute(
        (rows, columns, 7, 7),
        lambda i, j, p, q: ea.sum(h[n, i] * x[n, j, p, q], n),
        name="y",
    )


def test_loops_that_are_joined_are_long_enough_for_vectors():
    program = lower([outer_product(520, 64, 60)])
    assert packed(program, 64).temporaries == ()


def test_vectors_out_of_many_pages_in_turns_are_copied():
    program = lower([outer_product(64, 64, 512)])
    assert packed(program, 64).temporaries
