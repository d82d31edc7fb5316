"""What a call's sizes decide in a kernel for all of them: slices, tiles dealt out, stores past the
caches."""

import numpy as np
import pytest

from benchmarks.kernel_cases import CASES
from benchmarks.symbolic_kernels import symbolic
from eqsatad.backends import build, cpu
from eqsatad.backends.cpu.code.source import Machine, Options, steps_of, write
from eqsatad.backends.cpu.code.text import Module
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.reuse import footprint
from eqsatad.backends.cpu.tiles.tile import Tile
from eqsatad.backends.extents import value
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import For
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Const, Read

MACHINE = Machine(64, 32, caches=Caches(48 << 10, 1 << 20))


def steps(program):
    prepared = cpu.prepare(program, MACHINE)
    return steps_of(prepared, Module(64), Options.of(prepared, MACHINE, exact=False))


def loops_of(name):
    return symbolic(CASES[name]).build("reference").loops


def weight_gradient(sizes):
    """The gradient of a convolution with respect to its kernel, and in float64 by NumPy."""
    n, c, f, h, w = sizes
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, c, h, w)).astype("float32")
    saved = rng.standard_normal((n, f, h, w)).astype("float32")
    wide = np.pad(x.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = np.stack(
        [
            np.einsum("nfij,ncij->fc", saved, wide[:, :, i : i + h, j : j + w])
            for i in range(3)
            for j in range(3)
        ],
        axis=-1,
    ).reshape(f, c, 3, 3)
    return {"X": x, "H": saved}, expected


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", [(3, 64, 67, 40, 33), (9, 70, 64, 5, 7), (1, 64, 64, 2, 2)])
def test_sum_in_slices_of_any_number_is_right(sizes, threads):
    arrays, expected = weight_gradient(sizes)
    kernel = build(loops_of("W1dW"), "cpu", threads=threads)
    (found,) = kernel(**{name: arrays[name] for name in kernel.inputs})
    # Sums of up to 3960 products of size one.
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-3)


def test_sum_over_batch_and_image_is_cut_by_what_fits_a_cache():
    (step,) = (each for each in steps(loops_of("W1dW")) if each.kept is not None)
    sizes = {"n": 8, "c": 64, "f": 64, "h": 28, "w": 28}
    size = step.tile.slices.size
    # A quarter of the second cache, by the bytes of a row of both images.
    assert value(size, sizes) == (1 << 18) // (4 * 64 * (30 + 28))
    # So many that it does not matter that accumulators are put away.
    assert value(size, {**sizes, "w": 4000}) * 4000 >= 96
    assert value(size, {**sizes, "c": 1 << 20, "w": 1}) >= 96


def test_slices_add_up_in_the_order_of_the_sum():
    arrays, _ = weight_gradient((3, 64, 64, 40, 33))
    one, two = (build(loops_of("W1dW"), "cpu", threads=count) for count in (1, 2))
    given = {name: arrays[name] for name in one.inputs}
    np.testing.assert_array_equal(one(**given)[0], two(**given)[0])


def test_sum_over_channels_is_not_cut():
    assert not any(step.kept is not None for step in steps(loops_of("W1dX")))


@pytest.mark.parametrize(("extent", "covered"), [(28, 28), (64, 64), (5, 5), (7, 10), (14, 15)])
def test_tiles_that_are_dealt_out_cover_a_loop_with_one_neighbour_more_or_less(extent, covered):
    rows = Axis("i", Const(extent, "index"))
    loop = For(rows, Const(0, "index"), Const(extent, "index"), (), True)
    tile = Tile((loop,), (), counts={rows: 6}, dealt=rows)
    assert tile.covered(rows, extent) == covered
    assert tile.fewest(rows) == 5


def test_long_loops_of_a_product_are_dealt_out():
    n, k, m = (ea.size(name) for name in "nkm")
    a, b = ea.placeholder((n, k), name="a"), ea.placeholder((k, m), name="b")
    r = ea.reduce_axis((0, k), name="r")
    program = lower([ea.compute((n, m), lambda i, j: ea.sum(a[i, r] * b[r, j], axis=r), name="c")])
    first, *_ = steps(program)
    assert first.tile.dealt is not None
    kernel = build(program, "cpu")
    rng = np.random.default_rng(0)
    for rows in (5, 6, 7, 11, 19, 28):
        left, right = rng.standard_normal((rows, 9)), rng.standard_normal((9, 64))
        (found,) = kernel(left.astype("float32"), right.astype("float32"))
        np.testing.assert_allclose(found, left @ right, rtol=1e-4, atol=1e-4)


def test_array_with_pieces_of_a_line_is_read_by_several_lines_of_each():
    step, *_ = steps(loops_of("W19"))
    assert step.tile.counts[step.tile.lane] > 1


def test_steps_of_which_a_loop_inside_does_nothing_are_not_run():
    """A last column of its own is there only where rows are odd."""
    program = loops_of("W6dX")
    sizes = {size.name: 8 for size in program.sizes}
    odd = {**sizes, "w": 9}

    def idle(given):
        return [value(step.share.stop, given) == 0 for step in steps(program)]

    assert sum(idle(sizes)) > sum(idle(odd))


@pytest.mark.parametrize("width", [3, 16, 31, 32, 33, 57, 128, 131])
def test_lanes_at_the_end_of_a_row_add_up_less(width):
    kernel = build(loops_of("W6dX"), "cpu")
    half = (width + 1) // 2
    rng = np.random.default_rng(0)
    head = rng.standard_normal((2, 3, 4, half)).astype("float32")
    taken = rng.integers(0, 9, head.shape)
    expected = np.zeros((2, 3, 10, 2 * half + 2))
    for (n, c, i, j), place in np.ndenumerate(taken):
        expected[n, c, 2 * i + place // 3, 2 * j + place % 3] += head[n, c, i, j]
    given = {"A": taken.astype("int32"), "H": head}
    (found,) = kernel(**{name: given[name] for name in kernel.inputs}, h=8, w=width)
    np.testing.assert_allclose(found, expected[:, :, 1:9, 1 : width + 1], rtol=1e-6, atol=1e-6)


def test_unknown_stride_is_no_short_one():
    m, n = ea.size("m"), ea.size("n")
    x = ea.placeholder((m, n), name="x")
    i, j = Axis("i", m), Axis("j", n)
    assert footprint(Read(x, (i, j)), {i: 8, j: 1}) == 8 * 64


@pytest.mark.parametrize("shape", [(1025, 1100), (37, 1100), (2300, 600)])
def test_stencil_of_any_size_is_right_where_it_is_stored_past_the_caches(shape):
    kernel = build(loops_of("W15"), "cpu")
    plain = build(loops_of("W15"), "cpu", exact=True)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    x[3, 700 % shape[1]], x[5, 5], x[9, 64] = np.inf, np.nan, -np.inf
    (found,), (expected,) = kernel(x), plain(x)
    # Four neighbours, added up in another order.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_sizes_decide_whether_a_result_is_stored_past_the_caches():
    (rows,) = (step for step in steps(loops_of("W15")) if step.options.large)
    cases = {(2048, 2048): True, (200, 2048): False, (1 << 14, 256): False, (64, 1 << 17): False}
    for (m, n), past in cases.items():
        assert value(rows.guard, {"m": m, "n": n}) is past


def test_long_row_is_stored_past_the_caches_in_pieces():
    n = ea.size("n")
    x = ea.placeholder((n,), name="x")
    program = lower([ea.compute((n,), lambda i: x[i] * 2.0, name="y")])
    assert any(step.options.large for step in steps(program))
    assert "!nontemporal" in write(cpu.prepare(program, MACHINE), MACHINE).text
    kernel = build(program, "cpu")
    for size in ((1 << 20) + 17, 4095):
        given = np.arange(size, dtype="float32")
        np.testing.assert_array_equal(kernel(given)[0], 2 * given)


def test_rows_of_a_running_sum_run_together_where_there_are_several():
    first, second = steps(loops_of("W14"))
    assert set(first.tile.counts.values()) == {4}
    assert set(second.tile.counts.values()) == {1}
    kernel = build(loops_of("W14"), "cpu")
    for rows in (1, 3, 4, 6):
        given = np.random.default_rng(0).standard_normal((rows, 50)).astype("float32")
        expected = np.cumsum(given[:, ::-1].astype("float64"), axis=1)[:, ::-1]
        np.testing.assert_allclose(kernel(given)[0], expected, rtol=1e-4, atol=1e-4)


def test_report_says_what_is_dealt_out_and_cut():
    report = build(loops_of("W1dW"), "cpu").report()
    (run,) = (step.run for step in report.steps if "slices" in step.run)
    assert run.endswith("slices along n and out0")
    assert " or " in run.split(",")[0]
