"""Scalar operations in the Python source of a nest: how they are written, and what they count as.

Functions are those of `math`; where it raises, numpy says what the value is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from eqsatad.terms import ops
from eqsatad.terms.meaning import MEANING, STORAGE, bfloat16
from eqsatad.terms.nodes import FLOATS, INTEGERS
from eqsatad.terms.ops import Op


def literal(value: Any, dtype: str) -> str:
    """How a constant is written."""
    if dtype in FLOATS:
        rounded = _round(float(value), dtype)
        return repr(rounded) if math.isfinite(rounded) else f"float('{rounded}')"
    return f"({value})" if not isinstance(value, bool) and value < 0 else repr(value)


def _round(value: float, dtype: str) -> float:
    """``value`` as ``dtype`` holds it."""
    if dtype == "float64":
        return value
    if dtype == "bfloat16":
        return float(bfloat16(np.asarray(value)))
    with np.errstate(over="ignore"):
        return float(STORAGE[dtype](value))


def _integer(value: float) -> int:
    """``value`` without its fraction; what is no number gives the least integer."""
    return int(value) if math.isfinite(value) else -(2**63)


def _maximum(a: float, b: float) -> float:
    return a if a > b or a != a else b


def _minimum(a: float, b: float) -> float:
    return a if a < b or a != a else b


def _function(quick: Callable[..., Any], op: Op) -> Callable[..., float]:
    """``quick``; where it refuses, what numpy gives."""

    def call(*args: float) -> float:
        try:
            return float(quick(*args))
        except (ValueError, OverflowError, ZeroDivisionError):
            with np.errstate(all="ignore"):
                return float(MEANING[op](*(np.float64(arg) for arg in args)))

    return call


def _rsqrt(x: float) -> float:
    return 1.0 / math.sqrt(x)


def _sigmoid(x: float) -> float:
    small = math.exp(-abs(x))
    return (1.0 if x >= 0 else small) / (1.0 + small)


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _sign(x: float) -> float:
    return x if x != x else type(x)((x > 0) - (x < 0))


QUICK: dict[Op, Callable[..., Any]] = {
    ops.DIV: operator.truediv,
    ops.POW: math.pow,
    ops.ATAN2: math.atan2,
    ops.SQRT: math.sqrt,
    ops.RSQRT: _rsqrt,
    ops.EXP: math.exp,
    ops.EXPM1: math.expm1,
    ops.LOG: math.log,
    ops.LOG1P: math.log1p,
    ops.LOG2: math.log2,
    ops.SIN: math.sin,
    ops.COS: math.cos,
    ops.TAN: math.tan,
    ops.ASIN: math.asin,
    ops.ACOS: math.acos,
    ops.ATAN: math.atan,
    ops.SINH: math.sinh,
    ops.COSH: math.cosh,
    ops.TANH: math.tanh,
    ops.SIGMOID: _sigmoid,
    ops.SOFTPLUS: _softplus,
    ops.ERF: math.erf,
    ops.FLOOR: math.floor,
    ops.CEIL: math.ceil,
    ops.ROUND: round,
    ops.TRUNC: math.trunc,
}
FUNCTIONS: dict[str, Any] = {
    **{f"_{op.name}": _function(quick, op) for op, quick in QUICK.items()},
    **{"maximum": _maximum, "minimum": _minimum, "sign": _sign, "integer": _integer},
    "rounded": _round,
}
TEMPLATES: dict[Op, str] = {
    **{op: f"({{}} {op.symbol} {{}})" for op in (ops.ADD, ops.SUB, ops.MUL)},
    **{op: f"({{}} {op.symbol} {{}})" for op in (ops.FLOORDIV, ops.MOD)},
    **{op: f"({{}} {op.symbol} {{}})" for op in (ops.EQ, ops.NE, ops.LT, ops.LE, ops.GT, ops.GE)},
    **{op: f"_{op.name}({', '.join(['{}'] * op.arity)})" for op in QUICK},
    **{ops.NEG: "(-{})", ops.ABS: "abs({})", ops.SIGN: "sign({})", ops.NOT: "(not {})"},
    **{ops.MIN: "min({}, {})", ops.MAX: "max({}, {})"},
}
FLOAT_TEMPLATES: dict[Op, str] = {ops.MIN: "minimum({}, {})", ops.MAX: "maximum({}, {})"}
CASTS: dict[str, str] = {
    **{dtype: f"rounded(float({{}}), '{dtype}')" for dtype in FLOATS},
    "float64": "float({})",
    **dict.fromkeys((*INTEGERS, "index"), "integer({})"),
    "bool": "({} != 0)",
}
COSTS: dict[Op, str] = {
    **dict.fromkeys((ops.MUL, *QUICK), "multiplications"),
    **dict.fromkeys((ops.ADD, ops.SUB), "additions"),
    **dict.fromkeys((ops.MIN, ops.MAX), "comparisons"),
    **dict.fromkeys((ops.EQ, ops.NE, ops.LT, ops.LE, ops.GT, ops.GE), "comparisons"),
}


def template(op: Op, dtype: str) -> str:
    """How ``op`` is written, with a place for each operand."""
    if dtype in FLOATS and op in FLOAT_TEMPLATES:
        return FLOAT_TEMPLATES[op]
    return TEMPLATES[op]
