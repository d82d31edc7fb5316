"""Integer literals of patterns: their value when the letters are known.

Three-valued: a part that is not known makes what needs it not known, so that an interval with an
open end or a letter without a value never decides a condition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from eqsatad.rules.rule import Known, Letter
from eqsatad.terms.nodes import Apply, Const, Expr, Select

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "floordiv": lambda a, b: a // b if b else None,
    "mod": lambda a, b: a % b if b else None,
    "abs": abs,
    "min": min,
    "max": max,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a: not a,
}

DECIDED_BY = {"and": False, "or": True}
"""The value of one part that settles the whole, whatever the other is."""


def inverse_modulo(value: int, modulus: int) -> int | None:
    """The inverse of ``value`` modulo ``modulus``, None when they share a factor."""
    return pow(value, -1, modulus) if math.gcd(value, modulus) == 1 and modulus > 0 else None


ARITHMETIC: dict[str, Callable[..., Any]] = {"gcd": math.gcd, "inverse": inverse_modulo}


def evaluate_literal(
    expr: Expr, known: Callable[[Known], int | None], values: Mapping[Any, Any]
) -> Any:
    """The value of a literal expression or condition; None when a part is not known.

    ``known`` answers `Known` nodes other than arithmetic ones; ``values`` gives the letters.
    """
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Letter):
        return values.get(expr)
    if isinstance(expr, Known) and expr.function not in ARITHMETIC:
        return known(expr)
    if isinstance(expr, Select):
        cond, *branches = (evaluate_literal(child, known, values) for child in expr.children)
        return None if cond is None else branches[0] if cond else branches[1]
    parts = [evaluate_literal(child, known, values) for child in expr.children]
    if isinstance(expr, Known):
        return None if None in parts else ARITHMETIC[expr.function](*parts)
    assert isinstance(expr, Apply), f"no literal: {expr}"
    name = expr.op.name
    if name in DECIDED_BY and DECIDED_BY[name] in parts:
        return DECIDED_BY[name]
    return None if None in parts else OPERATIONS[name](*parts)
