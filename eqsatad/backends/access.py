"""Accesses to buffers: offsets, and reads that may be made where they are not asked for."""

from __future__ import annotations

from functools import lru_cache

from eqsatad.terms.linear import Linear, linear
from eqsatad.terms.nodes import Apply, Const, Expr, Read, Tensor
from eqsatad.terms.ops import ADD, MUL
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import postorder


@lru_cache(maxsize=65536)
def flat(tensor: Tensor, indices: tuple[Expr, ...]) -> Linear:
    """The row-major offset of ``indices``."""
    offset: Expr = Const(0, "index")
    for extent, index in zip(tensor.shape, indices, strict=True):
        offset = Apply(ADD, (Apply(MUL, (offset, extent)), index))
    return linear(offset)


def harmless(expr: Expr) -> bool:
    """Whether ``expr`` may be worked out where its value is not asked for."""
    return all(safe_read(node) for node in postorder(expr) if isinstance(node, Read))


def safe_read(read: Read) -> bool:
    """Whether a read is in range wherever its axes are."""
    for extent, index in zip(read.tensor.shape, read.indices, strict=True):
        low, high = interval(index)
        if low is None or high is None or low < 0:
            return False
        if not isinstance(extent, Const) or high >= extent.value:
            return False
    return True


def natural(*exprs: Expr) -> bool:
    """Whether none of the index expressions is ever negative."""
    return all((low := interval(expr)[0]) is not None and low >= 0 for expr in exprs)
