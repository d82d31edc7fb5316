"""Accesses to buffers: offsets, and reads that may be made where they are not asked for."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from eqsatad.terms.linear import Linear, expression, linear
from eqsatad.terms.nodes import Apply, Const, Expr, Read, Tensor
from eqsatad.terms.ops import ADD, FLOORDIV, MOD, MUL
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import postorder


@lru_cache(maxsize=65536)
def flat(tensor: Tensor, indices: tuple[Expr, ...]) -> Linear:
    """The row-major offset of ``indices``."""
    offset: Expr = Const(0, "index")
    for place, (extent, index) in enumerate(zip(tensor.shape, indices, strict=True)):
        offset = _next(offset, extent, index) if place else index
    return linear(offset)


def _next(offset: Expr, extent: Expr, index: Expr) -> Expr:
    """``offset * extent + index``; a quotient with its remainder is what was divided."""
    match offset, index:
        case Apply(above, (whole, by)), Apply(below, (same, divisor)):
            together = (above, below) == (FLOORDIV, MOD) and by is divisor is extent
            if together and whole is same:
                return whole
    return Apply(ADD, (Apply(MUL, (offset, extent)), index))


def harmless(expr: Expr) -> bool:
    """Whether ``expr`` may be worked out where its value is not asked for."""
    return all(safe_read(node) for node in postorder(expr) if isinstance(node, Read))


def safe_read(read: Read) -> bool:
    """Whether a read is inside of its buffer wherever its axes are."""
    sizes = [extent.value for extent in read.tensor.shape if isinstance(extent, Const)]
    if len(sizes) < len(read.tensor.shape):
        return False
    if all(map(_within, read.indices, sizes)):
        return True
    return _within(expression(flat(read.tensor, read.indices)), prod(sizes))


def _within(index: Expr, size: int) -> bool:
    """Whether ``index`` is always one of the first ``size``."""
    low, high = interval(index)
    return low is not None and high is not None and low >= 0 and high < size


def natural(*exprs: Expr) -> bool:
    """Whether none of the index expressions is ever negative."""
    return all((low := interval(expr)[0]) is not None and low >= 0 for expr in exprs)
