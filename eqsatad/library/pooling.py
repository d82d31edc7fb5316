"""Pooling over channels-first images, each one stage.

Only forward definitions. A window that reaches over the border takes the elements inside; how an
average counts the rest is `count_include_pad`. Ties of `max_pool` go to the first element.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsatad.errors import ShapeError
from eqsatad.library.convolution import Pads, Window, in_range, read, windows
from eqsatad.library.extents import Extent, extents, per_axis, written
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Expr, Stage, Tensor


def max_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    pad: Pads = 0,
    *,
    name: str = "max_pool",
) -> Stage:
    """The largest element of each window; ``stride`` is the kernel unless given."""
    batch, channels, over, taps = _geometry(x, kernel, stride, pad)

    def body(n: Axis, c: Axis, *out: Axis) -> Expr:
        where = [window.position(o, i) for window, o, i in zip(over, out, taps, strict=True)]
        return ea.max(x[n, c, *where], axis=taps, where=in_range(where, over))

    return ea.compute((batch, channels, *(window.outputs for window in over)), body, name=name)


def avg_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    pad: Pads = 0,
    *,
    count_include_pad: bool = True,
    name: str = "avg_pool",
) -> Stage:
    """The mean of each window; ``stride`` is the kernel unless given."""
    batch, channels, over, taps = _geometry(x, kernel, stride, pad)

    def count(out: Sequence[Expr]) -> Expr:
        if count_include_pad or not any(window.padded for window in over):
            return ea.cast(over[0].taps * over[1].taps, x.dtype)
        height, width = (_overlap(window, o) for window, o in zip(over, out, strict=True))
        return ea.cast(height * width, x.dtype)

    def body(n: Axis, c: Axis, *out: Axis) -> Expr:
        where = [window.position(o, i) for window, o, i in zip(over, out, taps, strict=True)]
        return ea.sum(read(x, (n, c), where, over), axis=taps) / count(out)

    return ea.compute((batch, channels, *(window.outputs for window in over)), body, name=name)


def global_avg_pool(x: Tensor, name: str = "global_avg_pool") -> Stage:
    """The mean over the two spatial axes."""
    batch, channels, height, width = extents(x, 4)
    i, j = ea.reduce_axis((0, height), name="i"), ea.reduce_axis((0, width), name="j")
    scale = 1.0 / ea.cast(height * width, x.dtype)
    return ea.compute(
        (batch, channels), lambda n, c: ea.sum(x[n, c, i, j], axis=(i, j)) * scale, name=name
    )


def adaptive_avg_pool(
    x: Tensor, size: int | Sequence[int], name: str = "adaptive_avg_pool"
) -> Stage:
    """The means of ``size`` windows per axis that cover it: ``i*n//m`` to ``ceil((i+1)*n/m)``."""
    extents(x, 4)
    rows, columns = per_axis("size", size, 2)
    return _adapted(_adapted(x, 2, rows, f"{name}_rows"), 3, columns, name)


def _adapted(x: Tensor, axis: int, size: int, name: str) -> Stage:
    shape = extents(x)
    old = shape[axis]
    if not isinstance(old, int):
        raise ShapeError(f"adaptive pooling needs known extents, found {written(old)}.")
    starts = [i * old // size for i in range(size)]
    ends = [-(-(i + 1) * old // size) for i in range(size)]
    longest = max(end - start for start, end in zip(starts, ends, strict=True))
    k = ea.reduce_axis((0, longest), name="k")

    def body(*i: Axis) -> Expr:
        start = i[axis] * old // size
        end = (i[axis] * old + old + size - 1) // size
        value = x[(*i[:axis], start + k, *i[axis + 1 :])]
        total = ea.sum(value, axis=k, where=start + k < end)
        return total / ea.cast(end - start, x.dtype)

    return ea.compute(
        [size if n == axis else extent for n, extent in enumerate(shape)], body, name=name
    )


def _overlap(window: Window, output: Expr) -> Expr:
    """How many elements of the window lie inside."""
    start = output * window.stride - window.before
    return ea.minimum(start + window.taps, window.size) - ea.maximum(start, 0)


def _geometry(
    x: Tensor, kernel: int | Sequence[int], stride: int | Sequence[int] | None, pad: Pads
) -> tuple[Extent, Extent, tuple[Window, ...], tuple[Expr, ...]]:
    batch, channels, *size = extents(x, 4)
    taps = per_axis("kernel", kernel, 2)
    over = windows(size, taps, stride=taps if stride is None else stride, pad=pad)
    if any(max(window.before, window.after) >= window.taps for window in over):
        raise ShapeError(f"pad must be smaller than the kernel {taps}, found {pad}.")
    axes = tuple(ea.reduce_axis((0, k), name=axis) for k, axis in zip(taps, "ij", strict=True))
    return batch, channels, over, axes
