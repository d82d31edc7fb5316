"""Extents of tensors as the library reads them: a Python integer where known, else a term.

Everything that checks whether shapes agree goes through here, so the messages read alike. Two
symbolic extents agree when they are the same term; nothing is assumed about their values.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsatad.errors import ShapeError
from eqsatad.terms.nodes import Expr, Tensor
from eqsatad.terms.show import show
from eqsatad.terms.walk import constant

Extent = int | Expr


def extents(x: Tensor, rank: int | None = None) -> tuple[Extent, ...]:
    """The shape of ``x``, checked to have ``rank`` dimensions."""
    if rank is not None and len(x.shape) != rank:
        raise ShapeError(
            f"expected {x.name} to have {rank} dimensions, found {len(x.shape)}: "
            f"{spelled(x)}. Reshape it first."
        )
    return tuple(size if (known := constant(size)) is None else known for size in x.shape)


def spelled(x: Tensor) -> str:
    """The shape of ``x`` as it is written."""
    return f"({', '.join(show(size) for size in x.shape)})"


def agree(what: str, a: Extent, b: Extent, *operands: Tensor) -> None:
    """Raises `ShapeError` unless the two extents are equal."""
    if a is b or (isinstance(a, int) and isinstance(b, int) and a == b):
        return
    shapes = ", ".join(f"{x.name} {spelled(x)}" for x in operands)
    raise ShapeError(f"{what} must agree, found {written(a)} and {written(b)} in {shapes}.")


def written(size: Extent) -> str:
    """An extent as it is written."""
    return str(size) if isinstance(size, int) else show(size)


def axis_number(x: Tensor, axis: int) -> int:
    """``axis`` counted from the front; negative ones count from the back."""
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise ShapeError(
            f"{x.name} {spelled(x)} has no axis {axis}. Give one from {-rank} to {rank - 1}."
        )
    return axis % rank


def per_axis(what: str, value: int | Sequence[int], rank: int, least: int = 1) -> tuple[int, ...]:
    """``value`` once per spatial axis, each at least ``least``."""
    values = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(values) != rank or any(v < least for v in values):
        raise ShapeError(
            f"{what} must be one integer of at least {least}, or {rank} of them; found {value}."
        )
    return values
