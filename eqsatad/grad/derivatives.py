"""The derivatives of the scalar operations: one table, one row per operation.

A row is written with the answer available, as terms over four variables: the adjoint of the
result, the operands and the answer. None is no derivative at all, so that nothing is added for
it. The same rows serve backwards (the adjoint goes in) and forwards (a tangent goes in), since
they are linear in the adjoint. Edge values: abs has 0 at 0, sqrt inf at 0, the first operand of
min and max takes all at a tie, and a power has 0 wherever its plain formula says ``0 * inf``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from eqsatad.errors import NotDifferentiableError
from eqsatad.terms import ops
from eqsatad.terms.coerce import const, elementary
from eqsatad.terms.nodes import (
    FLOATS,
    SUM,
    Apply,
    Cast,
    Const,
    Expr,
    Reduce,
    Select,
    Var,
)
from eqsatad.terms.ops import Op
from eqsatad.terms.show import mark
from eqsatad.terms.walk import fold, substitute

Row = tuple[Expr | None, ...]

FLAT = (ops.SIGN, ops.FLOOR, ops.CEIL, ops.ROUND, ops.TRUNC)
VARIABLES = ("adjoint", "x", "y", "answer")


def partials(node: Apply, answer: Expr, adjoint: Expr) -> Row:
    """What ``adjoint`` of ``node`` adds to the adjoint of each operand; ``answer`` is its value."""
    x, y = node.args[0], node.args[-1]
    if node.op is ops.POW:
        return _power(adjoint, x, y, answer)
    variables: list[Expr] = [Var(name, node.dtype) for name in VARIABLES]
    values = dict(zip(variables, (adjoint, x, y, answer), strict=True))
    row = table(node.dtype)[node.op]
    return tuple(None if part is None else substitute(part, values) for part in row)


@lru_cache(maxsize=len(FLOATS))
def table(dtype: str) -> dict[Op, Row]:
    """The rows in ``dtype``, over variables named as in `VARIABLES`; the power has its own."""
    h, x, y, a = (Var(name, dtype) for name in VARIABLES)
    zero = const(0.0, dtype)
    ratio = h / y
    cosine, sine, hyperbolic_cosine, hyperbolic_sine, logistic = (
        elementary(name, x) for name in ("cos", "sin", "cosh", "sinh", "sigmoid")
    )
    arc = h * elementary("rsqrt", (1.0 - x) * (1.0 + x))
    bell = elementary("exp", -(x * x))
    return {
        ops.ADD: (h, h),
        ops.SUB: (h, -h),
        ops.MUL: (h * y, h * x),
        ops.NEG: (-h,),
        ops.DIV: (ratio, -(ratio * a)),
        ops.MIN: (Select(x <= y, h, zero), Select(x > y, h, zero)),
        ops.MAX: (Select(x >= y, h, zero), Select(x < y, h, zero)),
        ops.ABS: (Select(x > 0.0, h, Select(x < 0.0, -h, zero)),),
        ops.SQRT: (h * 0.5 / a,),
        ops.RSQRT: (h * -0.5 * a * a * a,),
        ops.EXP: (h * a,),
        ops.EXPM1: (h * (a + 1.0),),
        ops.LOG: (h / x,),
        ops.LOG1P: (h / (x + 1.0),),
        ops.LOG2: (h * (1.0 / math.log(2.0)) / x,),
        ops.SIN: (h * cosine,),
        ops.COS: (-(h * sine),),
        ops.TAN: (h * (1.0 + a * a),),
        ops.ASIN: (arc,),
        ops.ACOS: (-arc,),
        ops.ATAN: (h / (1.0 + x * x),),
        ops.ATAN2: (h * y / (x * x + y * y), -(h * x / (x * x + y * y))),
        ops.SINH: (h * hyperbolic_cosine,),
        ops.COSH: (h * hyperbolic_sine,),
        ops.TANH: (h * (1.0 - a * a),),
        ops.SIGMOID: (h * a * (1.0 - a),),
        ops.SOFTPLUS: (h * logistic,),
        ops.ERF: (h * (2.0 / math.sqrt(math.pi)) * bell,),
        **dict.fromkeys(FLAT, (None,)),
    }


def _power(h: Expr, x: Expr, y: Expr, answer: Expr) -> Row:
    return _of_base(h, x, y), _of_exponent(h, x, y, answer)


def _of_base(h: Expr, x: Expr, y: Expr) -> Expr | None:
    if not isinstance(y, Const):
        # Where y is 0 the power is 1 whatever x is, and x**(y - 1) may be inf.
        return Select(y.equal(0.0), const(0.0, h.dtype), h * (y * x ** (y - 1.0)))
    if y.value == 0.0:
        return None
    if y.value == 1.0:
        return h
    return h * (y * (x if y.value == 2.0 else x ** (y.value - 1.0)))


def _of_exponent(h: Expr, x: Expr, y: Expr, answer: Expr) -> Expr:
    value = h * (answer * elementary("log", x))
    if isinstance(x, Const) and x.value > 0.0:
        return value
    # 0**y is 0 for every y > 0, so it does not move with y, although log(0) is -inf.
    return Select(x.equal(0.0) & (y >= 0.0), const(0.0, h.dtype), value)


def total(parts: Iterable[Expr]) -> Expr | None:
    """The parts added up in order; None for no part."""
    result: Expr | None = None
    for part in parts:
        result = part if result is None else result + part
    return result


def derivative(expr: Expr, var: Var) -> Expr:
    """The derivative of a scalar expression by ``var``; literal zero where it does not depend."""

    def visit(node: Expr, tangents: tuple[Expr | None, ...]) -> Expr | None:
        if node is var:
            return const(1.0, var.dtype)
        if node.dtype not in FLOATS or all(tangent is None for tangent in tangents):
            return None
        return _tangent(node, tangents, expr)

    result = fold(expr, visit)
    return const(0.0, expr.dtype) if result is None else result


def _tangent(node: Expr, tangents: tuple[Expr | None, ...], whole: Expr) -> Expr | None:
    match node:
        case Apply():
            given = [(n, tangent) for n, tangent in enumerate(tangents) if tangent is not None]
            parts = (partials(node, node, tangent)[n] for n, tangent in given)
            return total(part for part in parts if part is not None)
        case Cast(_, dtype):
            return None if tangents[0] is None else Cast(tangents[0], dtype)
        case Select(cond, _, _):
            zero = const(0.0, node.dtype)
            then, other = (zero if side is None else side for side in tangents[1:])
            return Select(cond, then, other)
        case Reduce(combiner, axes, cond, _) if combiner is SUM:
            return None if tangents[1] is None else Reduce(SUM, axes, cond, tangents[1])
    raise NotDifferentiableError(
        "expected a formula of operations, select and sum, to differentiate it by a variable; "
        f"found\n{mark(whole, node)}\nWrite the marked part with those."
    )
