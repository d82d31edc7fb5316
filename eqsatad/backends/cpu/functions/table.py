"""The elementary functions of the CPU backend, each with its error bound.

A bound is in units of the last place, against the exact value and over all finite arguments, on
CPUs that fuse products and sums; on others a quarter of a unit may come on top. Infinities, NaN,
zeros and subnormal numbers come out as in C99, annex F. `tests/test_functions.py` holds every
function to its row, and ``python -m benchmarks.functions`` prints what was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from eqsatad.backends.cpu.code.text import Value
from eqsatad.backends.cpu.functions import circular, exponentials, powers
from eqsatad.terms import ops
from eqsatad.terms.ops import Op

Emit: TypeAlias = Callable[..., Value]


class Function(NamedTuple):
    """What writes a function, and its bounds for float32 and float64."""

    emit: Emit
    float32: float
    float64: float


FUNCTIONS: dict[Op, Function] = {
    ops.EXP: Function(exponentials.exp, 1.5, 1.5),
    ops.EXPM1: Function(exponentials.expm1, 2.5, 2.5),
    ops.LOG: Function(exponentials.log_, 1.5, 1.5),
    ops.LOG1P: Function(exponentials.log1p, 2, 2),
    ops.LOG2: Function(exponentials.log2_, 2.5, 2.5),
    ops.SINH: Function(exponentials.sinh, 2, 2),
    ops.COSH: Function(exponentials.cosh, 2, 2),
    ops.TANH: Function(exponentials.tanh, 2, 2),
    ops.SIGMOID: Function(exponentials.sigmoid, 2, 2.5),
    ops.SOFTPLUS: Function(exponentials.softplus, 2.5, 2.5),
    ops.ERF: Function(exponentials.erf, 2, 2),
    ops.POW: Function(powers.power, 1, 1),
    ops.SIN: Function(circular.sin, 2, 2),
    ops.COS: Function(circular.cos, 2, 2),
    ops.TAN: Function(circular.tan, 4, 4),
    ops.ASIN: Function(circular.asin, 2.5, 2.5),
    ops.ACOS: Function(circular.acos, 2, 2),
    ops.ATAN: Function(circular.atan, 2, 2.5),
    ops.ATAN2: Function(circular.atan2, 2, 2.5),
}
