"""Permutations and selections of elements: roll, flip, slice, triangles, blocks, windows, borders.

Only forward definitions, written as index maps. Where the index of a read has several forms, as
at a mirrored border, each form is a read of its own under its condition, so that each has an
inverse of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from eqsatad.errors import ShapeError
from eqsatad.library.convolution import Pads, in_range, windows
from eqsatad.library.extents import (
    Extent,
    agree,
    axis_number,
    extents,
    per_axis,
    spelled,
    written,
)
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Expr, Stage, Tensor


def at(index: Sequence[Expr], axis: int, position: Extent) -> tuple[Extent, ...]:
    """``index`` with ``position`` in the place of ``axis``."""
    return (*index[:axis], position, *index[axis + 1 :])


def roll(x: Tensor, shift: int, axis: int = -1, name: str = "roll") -> Stage:
    """``x`` moved by ``shift`` along ``axis``; what leaves at one end comes in at the other."""
    shape, axis = extents(x), axis_number(x, axis)
    return ea.compute(shape, lambda *i: x[at(i, axis, (i[axis] - shift) % shape[axis])], name=name)


def flip(x: Tensor, axis: int = -1, name: str = "flip") -> Stage:
    """``x`` with ``axis`` reversed."""
    shape, axis = extents(x), axis_number(x, axis)
    return ea.compute(shape, lambda *i: x[at(i, axis, shape[axis] - 1 - i[axis])], name=name)


def strided_slice(
    x: Tensor,
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
    axis: int = 0,
    name: str = "strided_slice",
) -> Stage:
    """``x[start:stop:step]`` along ``axis``, with the meaning that Python gives a slice."""
    shape, axis = extents(x), axis_number(x, axis)
    size = shape[axis]
    if not isinstance(size, int):
        raise ShapeError(f"a slice needs a known extent, found {written(size)} in {spelled(x)}.")
    if step == 0:
        raise ShapeError(f"the step of a slice of {x.name} {spelled(x)} must not be 0.")
    first, last, step = slice(start, stop, step).indices(size)
    count = max(0, ceil((last - first) / step))
    return ea.compute(
        [count if n == axis else extent for n, extent in enumerate(shape)],
        lambda *i: x[at(i, axis, first + i[axis] * step)],
        name=name,
    )


def tril(x: Tensor, offset: int = 0, name: str = "tril") -> Stage:
    """The last two axes on and below the diagonal ``offset``, 0 above."""
    return _masked(x, lambda row, column: column <= row + offset, name)


def triu(x: Tensor, offset: int = 0, name: str = "triu") -> Stage:
    """The last two axes on and above the diagonal ``offset``, 0 below."""
    return _masked(x, lambda row, column: column >= row + offset, name)


def _masked(x: Tensor, where: Callable[[Expr, Expr], Expr], name: str) -> Stage:
    if len(x.shape) < 2:
        raise ShapeError(f"a triangle needs two axes, found {x.name} {spelled(x)}.")
    return ea.compute(extents(x), lambda *i: ea.select(where(*i[-2:]), x[i], 0.0), name=name)


def take_along_axis(
    x: Tensor, indices: Tensor, axis: int = -1, name: str = "take_along_axis"
) -> Stage:
    """``x`` at the integer ``indices`` along ``axis``, one index for each element of the result."""
    shape, axis = extents(x), axis_number(x, axis)
    places = extents(indices, len(shape))
    for n, (have, want) in enumerate(zip(shape, places, strict=True)):
        if n != axis:
            agree(f"the extents of axis {n}", have, want, x, indices)
    return ea.compute(places, lambda *i: x[at(i, axis, ea.cast(indices[i], "index"))], name=name)


def space_to_depth(x: Tensor, factor: int, name: str = "space_to_depth") -> Stage:
    """Squares of pixels laid out as channels; the inverse of `pixel_shuffle`."""
    batch, channels, height, width = extents(x, 4)
    _divides(x, factor, height, width)
    block = factor * factor

    def body(n: Axis, c: Axis, u: Axis, v: Axis) -> Expr:
        row = u * factor + c % block // factor
        return x[n, c // block, row, v * factor + c % factor]

    return ea.compute((batch, channels * block, height // factor, width // factor), body, name=name)


def channel_shuffle(x: Tensor, groups: int, name: str = "channel_shuffle") -> Stage:
    """The channels of ``groups`` groups taken in turn, one of each group."""
    shape = extents(x)
    _divides(x, groups, shape[1])
    depth = shape[1] // groups
    return ea.compute(
        shape, lambda *i: x[at(i, 1, i[1] % groups * depth + i[1] // groups)], name=name
    )


def block_channels(x: Tensor, block: int, name: str = "block_channels") -> Stage:
    """(batch, channels, *space) as (batch, channels / block, *space, block)."""
    batch, channels, *space = extents(x)
    _divides(x, block, channels)
    return ea.compute(
        (batch, channels // block, *space, block),
        lambda n, c, *i: x[n, c * block + i[-1], *i[:-1]],
        name=name,
    )


def window_partition(
    x: Tensor, window: int, shift: int = 0, name: str = "window_partition"
) -> Stage:
    """(batch, height, width, channels) as (batch * windows, window * window, channels).

    The image is first rolled back by ``shift``, as the windows of shifted attention are.
    """
    batch, height, width, channels = extents(x, 4)
    _divides(x, window, height, width)
    rows, columns = height // window, width // window

    def body(n: Axis, p: Axis, c: Axis) -> Expr:
        row = n // columns % rows * window + p // window
        column = n % columns * window + p % window
        if shift:
            row, column = (row + shift) % height, (column + shift) % width
        return x[n // (rows * columns), row, column, c]

    return ea.compute((batch * rows * columns, window * window, channels), body, name=name)


def _divides(x: Tensor, factor: int, *sizes: Extent) -> None:
    if factor < 1 or any(isinstance(size, int) and size % factor for size in sizes):
        raise ShapeError(
            f"{factor} does not divide {', '.join(map(written, sizes))} of {x.name} {spelled(x)}."
        )


def unfold(
    x: Tensor,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    pad: Pads = 0,
    name: str = "unfold",
) -> Stage:
    """(batch, channels, taps, taps, outputs, outputs): what a convolution multiplies weights by."""
    batch, channels, *size = extents(x, 4)
    taps = per_axis("kernel", kernel, 2)
    over = windows(size, taps, stride=stride, pad=pad)

    def body(n: Axis, c: Axis, i: Axis, j: Axis, o: Axis, p: Axis) -> Expr:
        where = [w.position(*place) for w, place in zip(over, ((o, i), (p, j)), strict=True)]
        return ea.select(in_range(where, over), x[n, c, *where], 0.0)

    return ea.compute((batch, channels, *taps, *(w.outputs for w in over)), body, name=name)


def pad_edge(x: Tensor, width: int, axis: int = -1, name: str = "pad_edge") -> Stage:
    """``x`` with its first and last elements along ``axis`` repeated ``width`` times."""
    return _bordered(x, width, axis, lambda j: 0, lambda j, last: last, name)


def pad_reflect(x: Tensor, width: int, axis: int = -1, name: str = "pad_reflect") -> Stage:
    """``x`` mirrored at its first and last elements along ``axis``, which are not repeated."""
    size = extents(x)[axis_number(x, axis)]
    if isinstance(size, int) and width >= size:
        raise ShapeError(f"{written(size)} elements cannot be reflected {width} wide. Pad less.")
    return _bordered(x, width, axis, lambda j: -j, lambda j, last: 2 * last - j, name)


def _bordered(
    x: Tensor,
    width: int,
    axis: int,
    before: Callable[[Expr], Extent],
    after: Callable[[Expr, Extent], Extent],
    name: str,
) -> Stage:
    shape, axis = extents(x), axis_number(x, axis)
    if width < 0:
        raise ShapeError(f"the width of a border must be at least 0, found {width}.")
    size = shape[axis]

    def body(*i: Axis) -> Expr:
        here = i[axis] - width
        end = x[at(i, axis, after(here, size - 1))]
        middle = ea.select(here < size, x[at(i, axis, here)], end)
        return ea.select(here < 0, x[at(i, axis, before(here))], middle)

    return ea.compute(
        [extent + 2 * width if n == axis else extent for n, extent in enumerate(shape)],
        body,
        name=name,
    )
