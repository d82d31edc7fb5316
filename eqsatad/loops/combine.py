"""What reductions start from and how they go on, as terms; one row per combiner."""

from __future__ import annotations

from collections.abc import Callable

from eqsatad.terms.nodes import (
    ALL,
    ANY,
    ARGMAX,
    ARGMIN,
    FALSE,
    FLOATS,
    MAXIMUM,
    MINIMUM,
    PROD,
    SUM,
    TRUE,
    Apply,
    Combiner,
    Const,
    Expr,
)
from eqsatad.terms.ops import ADD, AND, MAX, MIN, MUL, OR, Op
from eqsatad.terms.walk import substitute

OPERATIONS: dict[Combiner, Op] = {
    SUM: ADD,
    PROD: MUL,
    MAXIMUM: MAX,
    MINIMUM: MIN,
    ANY: OR,
    ALL: AND,
}
ARGS = (ARGMAX, ARGMIN)


def constant_of(value: float, dtype: str) -> Const:
    """``value`` as a literal of a data dtype."""
    return Const(float(value) if dtype in FLOATS else int(value), dtype)


def _least(dtype: str) -> Const:
    if dtype in FLOATS:
        return Const(float("-inf"), dtype)
    return Const(-(2**31) if dtype == "int32" else -(2**63), dtype)


def _greatest(dtype: str) -> Const:
    if dtype in FLOATS:
        return Const(float("inf"), dtype)
    return Const(2**31 - 1 if dtype == "int32" else 2**63 - 1, dtype)


IDENTITIES: dict[Combiner, Callable[[str], Const]] = {
    SUM: lambda dtype: constant_of(0, dtype),
    PROD: lambda dtype: constant_of(1, dtype),
    MAXIMUM: _least,
    MINIMUM: _greatest,
    ARGMAX: _least,
    ARGMIN: _greatest,
    ANY: lambda dtype: FALSE,
    ALL: lambda dtype: TRUE,
}


def identity(combiner: Combiner, dtype: str) -> Expr:
    """What a reduction over nothing gives; for argmax and argmin, what every value beats."""
    if combiner.identity is not None:
        return combiner.identity
    return IDENTITIES[combiner](dtype)


def combined(combiner: Combiner, left: Expr, right: Expr) -> Expr:
    """``left`` and ``right`` combined."""
    if combiner.result is None:
        return Apply(OPERATIONS[combiner], (left, right))
    assert combiner.left is not None, "a formula has operands"
    assert combiner.right is not None, "a formula has operands"
    return substitute(combiner.result, {combiner.left: left, combiner.right: right})
