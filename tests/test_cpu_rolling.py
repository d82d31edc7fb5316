"""Sums over neighbouring rows, accumulated while the rows that are read go by."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsatad.backends.cpu import build, prepare
from eqsatad.backends.cpu.code.source import Machine
from eqsatad.backends.cpu.tiles.rolling import rolling
from eqsatad.backends.cpu.tiles.taps import BLOCK, TILES, tapped
from eqsatad.loops.nest import Assign, For
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Apply, Axis, Const, Read, Var
from eqsatad.terms.ops import ADD, MAX, MIN, SUB
from tests.loop_programs import arrays_for, lowered
from tests.pages import CLOSED, between_pages
from tests.test_cpu import MACHINES, check, compiled
from tests.test_cpu_taps import check_infinities, depthwise, pooled, pooled_arrays


def stencil(images, size, kernel, pad, dtype="float32"):
    """A depthwise convolution: what is read lies behind the result as far as the tap."""
    outputs = tuple(s + 2 * pad - k + 1 for s, k in zip(size, kernel, strict=True))
    x = ea.placeholder((images, *size), name="X", dtype=dtype)
    w = ea.placeholder((images, *kernel), name="W", dtype=dtype)

    def body(n, y, z):
        u, v = (ea.reduce_axis((0, k), name=name) for name, k in zip("uv", kernel, strict=True))
        p, q = y + u - pad, z + v - pad
        inside = (p >= 0) & (p < size[0]) & (q >= 0) & (q < size[1])
        return ea.sum(x[n, p, q] * w[n, u, v], axis=(u, v), where=inside)

    return ea.compute((images, *outputs), body, name="Y")


def tile_of(output):
    (nest,) = prepare(lowered(output), Machine(64, 32)).nests
    (tile,) = (tapped(statement, 64) for statement in nest.body)
    return tile


@pytest.mark.parametrize(
    ("output", "reading", "taps"),
    [
        (pooled((20, 47), (3, 3), 1), (-1, 19), [(0, 0), (1, 1), (2, 2)]),
        (pooled((20, 47), (3, 3), 0), (0, 18), [(0, 0), (1, 1), (2, 2)]),
        (depthwise("X", 2, 3, (20, 56), (3, 3), 1), (-1, 19), [(0, 0), (1, 1), (2, 2)]),
        (stencil(2, (20, 56), (3, 3), 1), (1, 21), [(-2, 2), (-1, 1), (0, 0)]),
    ],
    ids=["padded", "pooled", "depthwise", "forward"],
)
def test_rows_that_are_read_go_by(output, reading, taps):
    tile = tile_of(output)
    assert tile.rolling.reading == reading
    assert list(tile.rolling.taps) == taps


def test_taps_that_lie_apart_are_tiles_of_a_few_rows():
    tile = tile_of(depthwise("X", 2, 3, (20, 56), (3, 3), 1, dilation=2))
    assert tile.rolling is None


@pytest.mark.parametrize(
    ("images", "height", "size"),
    [(TILES, 200, 200), (4, 1600, 100), (4, 190, 3 * BLOCK), (1, 7, 7)],
)
def test_tall_images_are_cut_where_they_are_few(images, height, size):
    """So that there is something to do for several threads."""
    tile = tile_of(stencil(images, (height, 40), (3, 3), 1))
    assert tile.counts[tile.rolling.row] == size


ROWS = For(Axis("y", Const(9, "index")), Const(0, "index"), Const(9, "index"), ())
X = ea.placeholder((9, 9), name="X", dtype="float32")


def index(value):
    return Const(value, "index")


def taps(low, high, indices, extent=3):
    """A sum from ``low`` to ``high`` over what is read at ``indices``, all given the axes."""
    y, u = ROWS.axis, Axis("u", index(extent))
    total = Var("sum", "float32")
    update = Assign(total, Apply(ADD, (total, Read(X, indices(y, u)))))
    return For(u, low(y), high(y), (update,))


def begins(y):
    return Apply(MAX, (index(0), Apply(SUB, (y, index(7)))))


def ends(y):
    return Apply(MIN, (index(3), Apply(ADD, (y, index(2)))))


def behind(y, u):
    return Apply(ADD, (Apply(SUB, (y, u)), index(1)))


@pytest.mark.parametrize(
    ("low", "high", "indices", "found"),
    [
        (begins, ends, lambda y, u: (behind(y, u), u), True),
        # What is read depends on the result, or moves the other way.
        (begins, ends, lambda y, u: (behind(y, u), y), False),
        (begins, ends, lambda y, u: (Apply(ADD, (y, u)), u), False),
        # A bound that is not a row, one that says nothing of rows, and one that rises faster.
        (begins, lambda y: Apply(ADD, (y, y)), lambda y, u: (behind(y, u), u), False),
        (lambda y: index(0), lambda y: index(3), lambda y, u: (behind(y, u), u), False),
        # Rows that are outside of the array for some tap.
        (begins, lambda y: Apply(MIN, (index(3), Apply(ADD, (y, index(3))))),
         lambda y, u: (behind(y, u), u), False),
    ],
)  # fmt: skip
def test_only_what_moves_with_the_row_that_is_read_goes_by(low, high, indices, found):
    assert (rolling(ROWS, taps(low, high, indices)) is not None) == found


@settings(max_examples=25, deadline=None)
@given(
    images=st.sampled_from([1, 2, 70]),
    height=st.integers(1, 70),
    width=st.integers(1, 150),
    kernel=st.tuples(*[st.sampled_from([1, 2, 3, 5])] * 2),
    pad=st.integers(0, 2),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    machine=st.sampled_from(MACHINES),
)
def test_stencil_of_any_shape(images, height, width, kernel, pad, dtype, machine):
    size = max(height, kernel[0]), max(width, kernel[1])
    output = stencil(images, size, kernel, pad, dtype)
    arrays = arrays_for(lowered(output))
    check(output, arrays, compiled(lowered(output), machine)(*arrays), terms=50)


@settings(max_examples=25, deadline=None)
@given(
    height=st.integers(1, 70),
    width=st.integers(1, 150),
    kernel=st.tuples(*[st.sampled_from([1, 2, 3, 5])] * 2),
    pad=st.integers(0, 2),
    machine=st.sampled_from(MACHINES),
)
def test_pooling_of_any_shape(height, width, kernel, pad, machine):
    """With infinity and NaN, which only reach what was taken."""
    size = max(height, kernel[0]), max(width, kernel[1])
    output = pooled(size, kernel, min(pad, min(kernel) // 2))
    program = lowered(output)
    arrays = pooled_arrays(program, kernel)
    check(output, arrays, compiled(program, machine)(*arrays))


@CLOSED
@pytest.mark.parametrize("height", [2, 3, 60])
@pytest.mark.parametrize("make", [
    lambda height: stencil(1, (height, 40), (3, 3), 1),
    lambda height: pooled((height, 40), (3, 3), 1),
], ids=["stencil", "pooled"])  # fmt: skip
def test_nothing_outside_of_arrays_is_read(make, height):
    """Arrays lie between pages that must not be touched."""
    program = lowered(make(height))
    arrays = arrays_for(program)
    kernel = build(program)
    expected = kernel(*arrays)[0]
    for at_end in (False, True):
        given = [between_pages(array, at_end) for array in arrays]
        np.testing.assert_array_equal(kernel(*given)[0], expected)


@pytest.mark.parametrize("exact", [False, True])
def test_infinity_beyond_a_border_reaches_nothing(exact):
    check_infinities(stencil(2, (30, 40), (3, 3), 1), exact)
