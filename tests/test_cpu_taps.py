"""Sums over the neighbours of a place, and over all places for a tap, where an image ends."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsatad import differentiate
from eqsatad import library as nn
from eqsatad.backends.cpu import build, prepare
from eqsatad.backends.cpu.code.known import range_of, segments
from eqsatad.backends.cpu.code.points import Place, Point
from eqsatad.backends.cpu.code.source import Machine
from eqsatad.backends.cpu.code.text import Value, number
from eqsatad.backends.cpu.tiles.taps import PART, PRODUCTS, tapped
from eqsatad.loops.nest import For
from eqsatad.terms import builders as ea
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Apply, Axis, Const
from eqsatad.terms.ops import ADD, MAX, MIN, SUB
from tests.loop_programs import INF, arrays_for, conv_weight_gradient, lowered
from tests.pages import CLOSED, between_pages
from tests.test_cpu import MACHINES, check, compiled

AVX512 = Machine(64, 32)


def depthwise(wrt, images, channels, size, kernel, pad, dtype="float32", dilation=1):
    """The gradient of a depthwise convolution for its image or for its kernel."""
    outputs = tuple(s + 2 * pad - dilation * (k - 1) for s, k in zip(size, kernel, strict=True))
    x, h, w = (
        ea.placeholder(shape, name=name, dtype=dtype)
        for name, shape in (
            ("X", (images, channels, *size)),
            ("H", (images, channels, *outputs)),
            ("W", (channels, *kernel)),
        )
    )

    def image(n, c, y, z):
        u, v = (ea.reduce_axis((0, k), name=name) for name, k in zip("uv", kernel, strict=True))
        p, q = y + pad - dilation * u, z + pad - dilation * v
        inside = (p >= 0) & (p < outputs[0]) & (q >= 0) & (q < outputs[1])
        return ea.sum(h[n, c, p, q] * w[c, u, v], axis=(u, v), where=inside)

    def taps(c, u, v):
        n, p, q = (
            ea.reduce_axis((0, k), name=name)
            for name, k in zip("npq", (images, *outputs), strict=True)
        )
        y, z = p + dilation * u - pad, q + dilation * v - pad
        inside = (y >= 0) & (y < size[0]) & (z >= 0) & (z < size[1])
        return ea.sum(h[n, c, p, q] * x[n, c, y, z], axis=(n, p, q), where=inside)

    if wrt == "X":
        return ea.compute(x.shape, image, name="X_bar")
    return ea.compute(w.shape, taps, name="W_bar")


def tiles(output, machine=AVX512):
    (nest,) = prepare(lowered(output), machine).nests
    return [tapped(statement, machine.vector) for statement in nest.body]


@pytest.mark.parametrize("wrt", ["X", "W"])
def test_depthwise_gradient_needs_no_copy(wrt):
    program = prepare(lowered(depthwise(wrt, 2, 3, (20, 56), (3, 3), 1)), AVX512)
    assert program.temporaries == ()
    (tile,) = tiles(depthwise(wrt, 2, 3, (20, 56), (3, 3), 1))
    assert tile is not None
    assert tile.inner == (wrt == "W")


@pytest.mark.parametrize(("width", "vectors"), [(56, 4), (128, 8), (200, PART)])
def test_tile_takes_several_rows_and_as_many_vectors_as_are_not_too_much_code(width, vectors):
    (tile,) = tiles(depthwise("X", 2, 3, (20, width), (3, 3), 1, dilation=2))
    *_, row, lane = (loop.axis for loop in tile.loops)
    assert tile.counts[lane] == vectors
    assert tile.counts[row] > 1
    assert tile.counts[row] * vectors * 9 <= PRODUCTS


def test_long_sums_whose_order_is_kept_are_not_added_up_along_lanes():
    for wrt, found in (("X", True), ("W", False)):
        (nest,) = prepare(lowered(depthwise(wrt, 2, 3, (20, 56), (3, 3), 1)), AVX512).nests
        assert (tapped(nest.body[0], 64, exact=True) is not None) == found


def weighted(combine, step):
    """Neighbours ``step`` apart, weighted by place, and what is left of them by ``combine``."""
    x, w = (ea.placeholder((20, 40 * by), name=name) for name, by in (("x", step), ("w", 1)))
    u = ea.reduce_axis((0, 3), name="u")

    def body(i, j):
        place = step * j + u - 1
        return combine(x[i, place] * w[i, j], axis=u, where=(place >= 0) & (place < 40 * step))

    return ea.compute((20, 40), body, name="y")


@pytest.mark.parametrize(
    ("combine", "step", "found"), [(ea.sum, 1, True), (ea.sum, 2, False), (ea.max, 1, False)]
)
def test_only_sums_of_whole_vectors_are_taps(combine, step, found):
    output = weighted(combine, step)
    assert any(tile is not None for tile in tiles(output)) == found
    arrays = arrays_for(lowered(output))
    check(output, arrays, build(lowered(output))(*arrays))


def test_long_sums_of_every_other_element_are_not_taps():
    x = ea.placeholder((2, 3, 14, 66), name="X", dtype="float32")
    w = ea.placeholder((3, 1, 3, 3), name="W", dtype="float32")
    y = nn.conv2d(x, w, pad=1, stride=2, groups=3)
    program = prepare(differentiate(y, [w]).build("reference").loops, AVX512)
    assert not any(tapped(each, 64) for nest in program.nests for each in nest.body)


def test_taps_that_others_share_are_left_to_copies():
    program = lowered(conv_weight_gradient(2, 16, 16, 20, 3, 1))
    assert prepare(program, AVX512).temporaries


@settings(max_examples=25, deadline=None)
@given(
    wrt=st.sampled_from("XW"),
    height=st.integers(1, 9),
    width=st.integers(1, 150),
    kernel=st.tuples(*[st.sampled_from([1, 2, 3, 5])] * 2),
    pad=st.integers(0, 2),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    machine=st.sampled_from(MACHINES),
)
def test_depthwise_gradient_of_any_shape(wrt, height, width, kernel, pad, dtype, machine):
    size = max(height, kernel[0]), max(width, kernel[1])
    output = depthwise(wrt, 2, 3, size, kernel, pad, dtype)
    arrays = arrays_for(lowered(output))
    result = compiled(lowered(output), machine)(*arrays)
    check(output, arrays, result, terms=2 * size[0] * size[1])


@pytest.mark.parametrize("wrt", ["X", "W"])
def test_depthwise_gradient_of_taps_that_lie_apart(wrt):
    output = depthwise(wrt, 2, 3, (13, 37), (3, 3), 1, dilation=2)
    arrays = arrays_for(lowered(output))
    check(output, arrays, build(lowered(output))(*arrays), terms=1000)


@pytest.mark.parametrize("wrt", ["X", "W"])
def test_depthwise_gradient_with_a_stride(wrt):
    x = ea.placeholder((2, 3, 14, 34), name="X", dtype="float32")
    w = ea.placeholder((3, 1, 3, 3), name="W", dtype="float32")
    y = nn.conv2d(x, w, pad=1, stride=2, groups=3)
    kernel = differentiate(y, [x if wrt == "X" else w]).build("cpu")
    arrays = arrays_for(kernel.loops)
    named = dict(zip(kernel.inputs, arrays, strict=True))
    expected = differentiate(y, [x if wrt == "X" else w]).build("reference")(**named)
    np.testing.assert_allclose(kernel(**named)[0], expected[0], rtol=1e-4, atol=1e-4)


def check_infinities(output, exact):
    """Ones, and infinities in two corners of every input, give what the definition says."""
    program = lowered(output)
    arrays = [np.ones_like(array) for array in arrays_for(program)]
    for array in arrays:
        array[..., 0, 0] = INF
        array[..., -1, -1] = -INF
    named = {tensor.name: a for tensor, a in zip(program.inputs, arrays, strict=True)}
    (expected,) = evaluate([output], named)
    np.testing.assert_array_equal(build(program, exact=exact)(*arrays)[0], expected)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("width", [5, 16, 40, 56, 200])
@pytest.mark.parametrize("wrt", ["X", "W"])
def test_what_is_outside_of_an_image_is_not_multiplied(wrt, width, exact):
    """Zero times infinity would be NaN."""
    output = depthwise(wrt, 1, 2, (6, width), (3, 3), 1)
    check_infinities(output, exact)


def pooled(size, kernel, pad):
    """The gradient of max pooling, of which each window saved the position of what it took."""
    outputs = tuple(s + 2 * pad - k + 1 for s, k in zip(size, kernel, strict=True))
    h = ea.placeholder((1, 2, *outputs), name="H", dtype="float32")
    saved = ea.placeholder(h.shape, name="A", dtype="int32")

    def image(n, c, y, z):
        u, v = (ea.reduce_axis((0, k), name=name) for name, k in zip("uv", kernel, strict=True))
        p, q = y + pad - u, z + pad - v
        inside = (p >= 0) & (p < outputs[0]) & (q >= 0) & (q < outputs[1])
        taken = saved[n, c, p, q].equal(ea.cast(kernel[1] * u + v, "int32"))
        return ea.sum(h[n, c, p, q], axis=(u, v), where=inside & taken)

    return ea.compute((1, 2, *size), image, name="X_bar")


def pooled_arrays(program, kernel):
    """A head with infinities and NaN, and positions."""
    rng = np.random.default_rng(3)
    names = [tensor.name for tensor in program.inputs]
    arrays = dict(zip(names, arrays_for(program), strict=True))
    arrays["A"] = rng.integers(0, kernel[0] * kernel[1], arrays["H"].shape).astype("int32")
    arrays["H"][..., 0, 0], arrays["H"][..., -1, -1] = INF, np.nan
    return [arrays[name] for name in names]


def test_what_a_sum_takes_by_a_condition_is_a_tap_as_well():
    (tile,) = tiles(pooled((20, 47), (3, 3), 1))
    assert tile is not None
    assert tile.columns
    assert {each.read.tensor.name for each in tile.asked} == {"A", "H"}


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (1, 2)])
@pytest.mark.parametrize("size", [(7, 5), (9, 16), (12, 47), (6, 200)])
def test_gradient_of_max_pooling_adds_only_what_was_taken(size, kernel, machine):
    """Adding zero times what was not taken would spread infinity and NaN."""
    output = pooled(size, kernel, 0)
    program = lowered(output)
    arrays = pooled_arrays(program, kernel)
    check(output, arrays, compiled(program, machine)(*arrays))


@CLOSED
@pytest.mark.parametrize(
    "output",
    [depthwise(wrt, 1, 1, (2, 40), (3, 3), 1) for wrt in "XW"] + [pooled((2, 40), (3, 3), 1)],
    ids=["X", "W", "taken"],
)
def test_nothing_outside_of_arrays_is_read(output):
    """Both arrays lie between pages that must not be touched."""
    program = lowered(output)
    arrays = arrays_for(program)
    kernel = build(program)
    expected = kernel(*arrays)[0]
    for at_end in (False, True):
        given = [between_pages(array, at_end) for array in arrays]
        np.testing.assert_array_equal(kernel(*given)[0], expected)


@pytest.mark.parametrize("wrt", ["X", "W"])
def test_results_do_not_depend_on_threads(wrt, monkeypatch, tmp_path):
    monkeypatch.setenv("EQSATAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.ALONE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.AWAKE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.CHUNK", 2_000_000)
    program = lowered(depthwise(wrt, 2, 7, (19, 45), (3, 3), 1))
    arrays = arrays_for(program)
    first, *others = (build(program, threads=threads)(*arrays)[0] for threads in (1, 2, 5))
    assert all(np.array_equal(first, other) for other in others)


def index(value):
    return Const(value, "index")


# max(0, x - 3) .. min(3, x + 2), the taps of a place in a row of five.
ROW = Axis("x", index(5))
TAPS = For(
    Axis("t", index(3)),
    Apply(MAX, (index(0), Apply(SUB, (ROW, index(3))))),
    Apply(MIN, (index(3), Apply(ADD, (ROW, index(2))))),
    (),
)


@pytest.mark.parametrize(
    ("place", "exact"),
    [
        (Place(number(0, "i64")), (0, 2)),
        (Place(number(0, "i64"), delta=2), (0, 3)),
        (Place(number(4, "i64")), (1, 3)),
        (Place(number(0, "i64"), lane=1), None),
        (Place(number(1, "i64"), lane=1), (0, 3)),
        (Place(Value("%i", "i64"), delta=1, room=3), (0, 3)),
        (Place(Value("%i", "i64"), delta=2, room=3), None),
        (Place(Value("%i", "i64")), None),
    ],
    ids=str,
)
def test_range_is_known_where_the_place_is(place, exact):
    assert range_of(TAPS, Point({ROW: place}, lanes=3)).exact == exact


def test_pieces_of_ranges_know_who_takes_part():
    assert list(segments([(1, 9), (0, 9), (0, 8), (4, 4)])) == [
        (0, 1, (1, 2)),
        (1, 8, (0, 1, 2)),
        (8, 9, (0, 1)),
    ]
