"""Images at another size: nearest and bilinear resizing, and sampling at computed positions.

Only forward definitions. A resize along two axes is one along each: that is cheaper, and its
gradient stays separable.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsatad.errors import ShapeError
from eqsatad.library.extents import agree, extents, per_axis, written
from eqsatad.library.rearrange import at
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Expr, Stage, Tensor


def resize_nearest(x: Tensor, size: Sequence[int], name: str = "resize_nearest") -> Stage:
    """The two spatial axes at ``size``: output u reads ``u * old // new``."""
    *outer, height, width = extents(x, 4)
    rows, columns = per_axis("size", size, 2)
    return ea.compute(
        (*outer, rows, columns),
        lambda n, c, u, v: x[n, c, u * height // rows, v * width // columns],
        name=name,
    )


def resize_bilinear(x: Tensor, size: Sequence[int], name: str = "resize_bilinear") -> Stage:
    """The two spatial axes at ``size``, interpolated with the corners aligned."""
    extents(x, 4)
    rows, columns = per_axis("size", size, 2, least=2)
    return _interpolated(_interpolated(x, 2, rows, f"{name}_rows"), 3, columns, name)


def _interpolated(x: Tensor, axis: int, size: int, name: str) -> Stage:
    shape = extents(x)
    old = shape[axis]
    if not isinstance(old, int) or old < 2:
        raise ShapeError(f"interpolation needs at least 2 known elements, found {written(old)}.")
    steps = size - 1

    def body(*i: Axis) -> Expr:
        # In units of 1/steps of an input element, output u lies at u * (old - 1).
        low = i[axis] * (old - 1) // steps
        left = x[at(i, axis, low)]
        share = ea.cast(i[axis] * (old - 1) % steps, x.dtype) / float(steps)
        right = ea.select(low < old - 1, x[at(i, axis, low + 1)], left)
        return left + share * (right - left)

    return ea.compute(
        [size if n == axis else extent for n, extent in enumerate(shape)], body, name=name
    )


def grid_sample(x: Tensor, places: Tensor, name: str = "grid_sample") -> Stage:
    """``x`` (channels, height, width) at ``places`` (points, 2), interpolated between four pixels.

    The places are rows and columns in pixels, at least 0 and less than the last row and column.
    """
    channels, _, _ = extents(x, 3)
    points, two = extents(places, 2)
    agree("the coordinates of a place", two, 2, places)
    pixel = ea.compute((points, 2), lambda p, n: ea.floor(places[p, n]), name=f"{name}_pixel")
    share = ea.compute((points, 2), lambda p, n: places[p, n] - pixel[p, n], name=f"{name}_share")

    def body(p: Axis, c: Axis) -> Expr:
        row, column = (ea.cast(pixel[p, n], "index") for n in range(2))
        down, right = (share[p, n] for n in range(2))
        upper = x[c, row, column] + right * (x[c, row, column + 1] - x[c, row, column])
        below = x[c, row + 1, column]
        lower = below + right * (x[c, row + 1, column + 1] - below)
        return upper + down * (lower - upper)

    return ea.compute((points, channels), body, name=name)
