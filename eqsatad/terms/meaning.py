"""The meaning of single operations and dtypes in numpy: one row each.

Floats are worked on in float64 (`WORKING`) and kept in the dtype itself (`STORAGE`); bfloat16 is
kept in float32 arrays that hold bfloat16 values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsatad.terms import ops
from eqsatad.terms.nodes import FLOATS
from eqsatad.terms.ops import Op

Array = NDArray[Any]


def identity_of(name: str, dtype: str) -> Any:
    """The value of an empty reduction: what combining with changes nothing."""
    if name in ("max", "min") and dtype != "bool":
        if dtype in FLOATS:
            return -math.inf if name == "max" else math.inf
        limits = np.iinfo("int32" if dtype == "int32" else "int64")
        return limits.min if name == "max" else limits.max
    return {"sum": 0, "prod": 1, "any": False, "all": True, "max": False, "min": True}[name]


def first_best(name: str, test: Array, values: Array) -> Array:
    """The first position of the largest or smallest value where ``test`` holds, else 0."""
    test, values = np.broadcast_arrays(test, values)
    if not values.shape[-1]:
        return np.zeros(values.shape[:-1], np.int64)
    extreme = np.maximum if name == "argmax" else np.minimum
    kind = "float64" if values.dtype.kind == "f" else str(values.dtype)
    worst = identity_of("max" if name == "argmax" else "min", kind)
    best = extreme.reduce(np.where(test, values, worst), axis=-1, keepdims=True)
    # A NaN is the best there is: it equals nothing, itself included.
    found = test & ((values == best) | (values != values))
    return np.asarray(found.argmax(axis=-1), np.int64)


def bfloat16(array: Array) -> Array:
    """``array`` rounded to the nearest bfloat16, ties to even, as float32."""
    single = array.astype(np.float32)
    bits = single.view(np.uint32)
    nearest = (bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(single), single, nearest.astype(np.uint32).view(np.float32))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return result


def _softplus(x: Array) -> Array:
    result: Array = np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
    return result


def _rsqrt(x: Array) -> Array:
    result: Array = 1.0 / np.sqrt(x)
    return result


STORAGE: dict[str, Any] = {
    **{"float64": np.float64, "float32": np.float32, "float16": np.float16},
    **{"bfloat16": np.float32, "int64": np.int64, "int32": np.int32},
    **{"bool": np.bool_, "index": np.int64},
}
WORKING: dict[str, Any] = STORAGE | dict.fromkeys(FLOATS, np.float64)
REDUCERS: dict[str, np.ufunc] = {
    **{"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum},
    **{"any": np.logical_or, "all": np.logical_and},
}
MEANING: dict[Op, Callable[..., Array]] = {
    **{ops.ADD: np.add, ops.SUB: np.subtract, ops.MUL: np.multiply, ops.NEG: np.negative},
    **{ops.MIN: np.minimum, ops.MAX: np.maximum, ops.ABS: np.abs, ops.SIGN: np.sign},
    **{ops.DIV: np.true_divide, ops.FLOORDIV: np.floor_divide, ops.MOD: np.mod},
    **{ops.POW: np.power, ops.ATAN2: np.arctan2, ops.SQRT: np.sqrt, ops.RSQRT: _rsqrt},
    **{ops.EXP: np.exp, ops.EXPM1: np.expm1, ops.LOG: np.log, ops.LOG1P: np.log1p},
    **{ops.LOG2: np.log2, ops.SIN: np.sin, ops.COS: np.cos, ops.TAN: np.tan},
    **{ops.ASIN: np.arcsin, ops.ACOS: np.arccos, ops.ATAN: np.arctan},
    **{ops.SINH: np.sinh, ops.COSH: np.cosh, ops.TANH: np.tanh},
    **{ops.SIGMOID: _sigmoid, ops.SOFTPLUS: _softplus},
    ops.ERF: np.vectorize(math.erf, otypes=[np.float64]),
    **{ops.FLOOR: np.floor, ops.CEIL: np.ceil, ops.ROUND: np.rint, ops.TRUNC: np.trunc},
    **{ops.EQ: np.equal, ops.NE: np.not_equal, ops.LT: np.less, ops.LE: np.less_equal},
    **{ops.GT: np.greater, ops.GE: np.greater_equal},
    **{ops.AND: np.logical_and, ops.OR: np.logical_or, ops.NOT: np.logical_not},
}
