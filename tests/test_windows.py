"""Reads whose place moves unevenly along the lanes of a vector: see `windows` and `windowed`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.backends.cpu.code.tilewriter import written_out
from eqsatad.backends.cpu.runtime.machine import host
from eqsatad.backends.cpu.tiles.windowed import ROWS, windowed
from eqsatad.backends.cpu.tiles.windows import MOST, growth, window
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import Assign, For, statements
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Axis, Const, Read
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import substitute
from tests.pages import CLOSED, between_pages

WIDE = pytest.mark.skipif(host().vector != 64, reason="only vectors of 64 bytes are permuted")
# From one side of an image to another: up and down, nearly equal, rows shorter than a vector,
# of one vector and a bit, and steps so large that a window has several vectors.
SIDES = [(9, 21), (21, 9), (17, 18), (33, 32), (40, 91), (91, 40), (100, 31), (5, 47), (64, 150)]
RESIZES = {"nearest": nn.resize_nearest, "bilinear": nn.resize_bilinear}


def image(rows, columns, dtype):
    x = ea.placeholder((2, 3, rows, columns), name="x", dtype=dtype)
    values = np.random.default_rng(rows * 1000 + columns)
    return x, values.standard_normal((2, 3, rows, columns)).astype(dtype)


def agrees(tensors, arrays, dtype, **options):
    """The results of the CPU backend, which are those of the meaning of ``tensors``."""
    kernel = ea.build(tensors, target="cpu", **options)
    found = kernel(**arrays)
    found = found if isinstance(found, tuple | list) else [found]
    wanted = evaluate(tensors, arrays)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("how", RESIZES)
def test_resized_image_and_its_gradient_are_right(how, sides, dtype):
    old, new = sides
    x, array = image(11, old, dtype)
    y = RESIZES[how](x, (7, new))
    agrees([y], {"x": array}, dtype)
    head = ea.placeholder(y.shape, name="head", dtype=dtype)
    (adjoint,) = ea.differentiate(y, [x], head)
    weights = np.random.default_rng(new).standard_normal((2, 3, 7, new)).astype(dtype)
    agrees([adjoint], {"head": weights}, dtype)


def test_a_short_row_is_a_window_wherever_in_it_the_lanes_are():
    x, axis = ea.placeholder((3, 14), name="x", dtype="float32"), Axis("i", Const(140, "index"))
    found = window(x[1, axis % 14], axis, 16)
    assert found is not None
    assert found.vectors(16) == 1
    # Where loops were joined, a place may leave its row; a longer row would be several vectors.
    assert window(x[0, axis % 15], axis, 16) is None
    assert window(ea.placeholder((3, 17), name="x")[1, axis % 14], axis, 16) is None


@WIDE
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("how", RESIZES)
def test_nothing_is_gathered_one_by_one(how, sides):
    old, new = sides
    x, _ = image(11, old, "float32")
    y = RESIZES[how](x, (7, new))
    head = ea.placeholder(y.shape, name="head")
    for tensors in ([y], list(ea.differentiate(y, [x], head))):
        assert "masked.gather" not in ea.build(tensors, target="cpu").source


@pytest.mark.parametrize("how", RESIZES)
def test_results_do_not_depend_on_the_number_of_threads(how):
    x, _ = image(150, 90, "float32")
    y = RESIZES[how](x, (211, 133))
    head = ea.placeholder(y.shape, name="head")
    tensors = list(ea.differentiate(y, [x], head))
    weights = np.random.default_rng(1).standard_normal((2, 3, 211, 133)).astype("float32")
    one, *others = (
        ea.build(tensors, target="cpu", threads=count)(head=weights) for count in (1, 2, 3)
    )
    for other in others:
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_infinite_neighbour_that_does_not_count_makes_no_nan():
    x, _ = image(3, 44, "float32")
    y = nn.resize_nearest(x, (3, 92))
    head = ea.placeholder(y.shape, name="head")
    (adjoint,) = ea.differentiate(y, [x], head)
    weights = np.ones((2, 3, 3, 92), "float32")
    weights[..., 40] = np.inf
    weights[..., 41] = np.nan
    agrees([adjoint], {"head": weights}, "float32")


def picked(columns, place, count=29):
    """Rows of ``columns`` elements, of each of which ``count`` are taken, at ``place(i)``."""
    x = ea.placeholder((37, columns), name="x")
    return ea.compute((37, count), lambda r, i: x[r, place(i)], name="y")


PLACES = {
    "quotient": lambda i: 3 * i // 7,
    "sum of quotients": lambda i: i + (38 * i + 37) // 103 + i // 5,
    "wide": lambda i: 18 * i // 5,
    "difference": lambda i: 2 * i - 5 * i // 9,
    "clipped": lambda i: ea.minimum(5 * i // 3, 17),
}


@pytest.mark.parametrize("name", PLACES)
def test_growth_is_that_of_every_stretch(name):
    lane = Axis("i", Const(29, "index"))
    place = PLACES[name](lane)
    values = [value_at(place, lane, i) for i in range(120)]
    for steps in (1, 2, 7, 15):
        low, high = growth(place, lane, steps)
        found = [b - a for a, b in zip(values, values[steps:], strict=False)]
        assert low <= min(found)
        assert max(found) <= high


def value_at(place, lane, i):
    (low, high) = interval(substitute(place, {lane: Const(i, "index")}))
    assert low == high
    return low


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(sorted(PLACES)), extra=st.integers(0, 20), count=st.integers(16, 40))
def test_row_of_any_length_is_picked_from(name, extra, count):
    columns = last(name, count) + 1 + extra
    y = picked(columns, PLACES[name], count)
    array = np.random.default_rng(columns).standard_normal((37, columns)).astype("float32")
    agrees([y], {"x": array}, "float32")


def last(name, count):
    """The last place that is taken out of a row."""
    lane = Axis("i", Const(count, "index"))
    return max(value_at(PLACES[name](lane), lane, i) for i in range(count))


@pytest.mark.parametrize("extra", [0, 1, 4])
def test_last_vector_of_a_window_ends_with_a_row_of_one_and_a_bit(extra):
    name, count = "difference", 17
    columns = last(name, count) + 1 + extra
    assert 16 < columns < 32
    array = np.random.default_rng(columns).standard_normal((37, columns)).astype("float32")
    agrees([picked(columns, PLACES[name], count)], {"x": array}, "float32")


@CLOSED
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("count", [16, 17, 29, 33])
@pytest.mark.parametrize("name", PLACES)
def test_nothing_beyond_the_rows_is_read(name, count, at_end):
    columns = last(name, count) + 1
    array = np.random.default_rng(columns).standard_normal((37, columns)).astype("float32")
    agrees([picked(columns, PLACES[name], count)], {"x": between_pages(array, at_end)}, "float32")


@CLOSED
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("how", RESIZES)
def test_gradient_of_a_resize_reads_nothing_beyond_its_head(how, sides, at_end):
    old, new = sides
    x, _ = image(11, old, "float32")
    head = ea.placeholder((2, 3, 7, new), name="head")
    (adjoint,) = ea.differentiate(RESIZES[how](x, (7, new)), [x], head)
    weights = np.random.default_rng(new).standard_normal((2, 3, 7, new)).astype("float32")
    agrees([adjoint], {"head": between_pages(weights, at_end)}, "float32")


@CLOSED
@pytest.mark.parametrize("at_end", [False, True])
def test_row_that_no_lane_wants_may_be_anywhere(at_end):
    """A condition on data says where places are inside; elsewhere they are far outside."""
    x = ea.placeholder((5, 20), name="x")
    row = ea.placeholder((9,), name="row", dtype="int32")
    wanted = ea.placeholder((9, 40), name="wanted")

    def body(i, j):
        there = ea.cast(row[i], "index")
        inside = (there >= 0) & (there < 5) & (wanted[i, j] > 0.0)
        return ea.select(inside, x[there, 3 * j // 7], 0.0)

    y = ea.compute((9, 40), body, name="y")
    rng = np.random.default_rng(5)
    arrays = {
        "x": between_pages(rng.standard_normal((5, 20)).astype("float32"), at_end),
        "row": np.array([0, 4, -300, 2, 4000, 1, -1, 5, 3], "int32"),
        "wanted": rng.standard_normal((9, 40)).astype("float32"),
    }
    agrees([y], arrays, "float32")


def test_places_of_joined_loops_run_on_beyond_a_row():
    """Both outer loops are one, whose places go through all rows as if they were a single one."""
    x = ea.placeholder((5, 4 * 14), name="x")
    y = ea.compute((5, 4, 29), lambda r, q, i: x[r, 14 * q + 3 * i // 7], name="y")
    array = np.random.default_rng(3).standard_normal((5, 4 * 14)).astype("float32")
    agrees([y], {"x": array}, "float32")


def test_comparisons_of_what_is_picked_are_stored_as_booleans():
    x = ea.placeholder((37, 13), name="x")
    y = ea.compute((37, 29), lambda r, i: x[r, 3 * i // 7] > 0.0, name="y")
    array = np.random.default_rng(3).standard_normal((37, 13)).astype("float32")
    np.testing.assert_array_equal(
        ea.build([y], target="cpu")(array)[0], evaluate([y], {"x": array})[0]
    )


def test_window_is_only_for_places_that_move_slowly_and_never_back():
    lane = Axis("i", Const(29, "index"))
    x = ea.placeholder((37, 400), name="x")
    steady = Const(0, "index")

    def found(place):
        return window(Read(x, (steady, place)), lane, 16)

    assert found(3 * lane // 7) is not None
    assert found(2 * lane) is None
    assert found(MOST * 16 * lane // 15 + lane // 2) is None
    assert found(40 - 3 * lane // 7) is None


@WIDE
@pytest.mark.parametrize("rows", [(11, 7), (7, 16)])
def test_vector_of_a_resize_is_run_through_a_block_of_rows(rows):
    """Rows of a tile are those along which no sum gets longer or shorter."""
    old, new = rows
    x, _ = image(old, 44, "float32")
    head = ea.placeholder((2, 3, new, 92), name="head")
    (adjoint,) = ea.differentiate(nn.resize_nearest(x, (new, 92)), [x], head)
    (nest,) = ea.build([adjoint], target="reference").loops.nests
    tiles = [windowed(statement, 64) for statement in nest.body]
    found = [tile for tile in tiles if tile is not None]
    assert found
    assert all(tile.block > 1 and tile.order[-1].axis is tile.lane for tile in found)
    assert all(ROWS in tile.counts.values() and written_out(tile) > 1 for tile in found)
    for tile in found:
        loops = [each for each in statements(tile.body) if isinstance(each, For)]
        uneven = {axis for loop in loops for axis in loop.start.free | loop.stop.free}
        assert uneven
        assert all(axis is tile.lane or axis not in uneven for axis in tile.counts)


@pytest.mark.parametrize("sides", [(44, 92), (102, 196), (59, 121)])
def test_long_axis_is_not_cut_into_short_parts(sides):
    old, new = sides
    x = ea.placeholder((3, old), name="x")
    y = ea.compute((3, new), lambda r, j: x[r, j * old // new], name="y")
    head = ea.placeholder((3, new), name="head")
    (adjoint,) = ea.differentiate(y, [x], head)
    (nest,) = [nest for nest in lower([adjoint]).nests if nest.stage is adjoint]
    assert len(nest.body) <= 2


@WIDE
def test_place_of_a_row_that_is_worked_out_before_it_is_no_obstacle():
    x = ea.placeholder((2, 3, 105, 38), name="x")
    y = nn.resize_nearest(x, (59, 24))
    head = ea.placeholder(y.shape, name="head")
    (adjoint,) = ea.differentiate(y, [x], head)
    (statement,) = lower([adjoint]).nests[0].body
    assert any(isinstance(each, Assign) for each in statements((statement,)))
    tile = windowed(statement, 64)
    assert tile is not None
    assert tile.lanes == 16
    weights = np.random.default_rng(0).standard_normal((2, 3, 59, 24)).astype("float32")
    agrees([adjoint], {"head": weights}, "float32")
