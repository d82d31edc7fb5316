"""Reductions and running reductions over chosen axes of a tensor.

Only forward definitions. The names follow numpy; ``sum`` and ``max`` of this module take
tensors, those of `terms.builders` take expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsatad.library.extents import axis_number, extents
from eqsatad.library.shapes import total
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Expr, Stage, Tensor

Axes = int | Sequence[int] | None


def sum(x: Tensor, axis: Axes = None, name: str = "sum") -> Stage:
    """The sum over ``axis``, all axes when not given."""
    return _reduce(x, axis, lambda body, axes: ea.sum(body, axis=axes), name)


def mean(x: Tensor, axis: Axes = None, name: str = "mean") -> Stage:
    """The mean over ``axis``, all axes when not given."""
    count = total([extents(x)[n] for n in _numbers(x, axis)])
    scale = 1.0 / ea.cast(count, x.dtype)
    return _reduce(x, axis, lambda body, axes: ea.sum(body, axis=axes) * scale, name)


def max(x: Tensor, axis: Axes = None, name: str = "max") -> Stage:
    """The largest element over ``axis``, all axes when not given."""
    return _reduce(x, axis, lambda body, axes: ea.max(body, axis=axes), name)


def cumsum(x: Tensor, axis: int = -1, name: str = "cumsum") -> Stage:
    """The running sum along ``axis``, each element included."""
    shape, axis = extents(x), axis_number(x, axis)
    k = ea.reduce_axis((0, shape[axis]), name="k")
    return ea.compute(
        shape,
        lambda *i: ea.sum(x[(*i[:axis], k, *i[axis + 1 :])], axis=k, where=k <= i[axis]),
        name=name,
    )


def _numbers(x: Tensor, axis: Axes) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(len(x.shape)))
    chosen = (axis,) if isinstance(axis, int) else axis
    return tuple(sorted({axis_number(x, n) for n in chosen}))


def _reduce(
    x: Tensor, axis: Axes, combine: Callable[[Expr, tuple[Expr, ...]], Expr], name: str
) -> Stage:
    shape, gone = extents(x), _numbers(x, axis)
    over = {n: ea.reduce_axis((0, shape[n]), name=f"k{n}") for n in gone}

    def body(*i: Axis) -> Expr:
        kept = iter(i)
        index = tuple(over[n] if n in over else next(kept) for n in range(len(shape)))
        return combine(x[index], tuple(over.values()))

    return ea.compute([size for n, size in enumerate(shape) if n not in over], body, name=name)
