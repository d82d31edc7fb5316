"""Division that rounds otherwise than down, as derived forms of floor division.

``truncated_div`` rounds towards 0 as C does; ``euclidean_div`` leaves a remainder that is at least
0, and is 0 where the divisor is 0. They are written out in selects and floors, so that every pass
knows them; `divided` recognises what these functions wrote. A literal divisor leaves floors by
positive literals only.
"""

from __future__ import annotations

from eqsatad.terms.coerce import Operand, as_index
from eqsatad.terms.nodes import Apply, Const, Expr, Select
from eqsatad.terms.ops import EQ, GE, LT, MUL, SUB

ZERO = Const(0, "index")


def truncated_div(a: Operand, b: Operand) -> Expr:
    """The quotient ``a / b`` rounded towards 0."""
    a, b = _operands(a, b)
    if not isinstance(b, Const) or b.value == 0:
        return Select((a >= 0).equal(b > 0), a // b, -((-a) // b))
    up, down = a // abs(b.value), (-a) // abs(b.value)
    return Select(a >= 0, up, -down) if b.value > 0 else Select(a >= 0, -up, down)


def truncated_mod(a: Operand, b: Operand) -> Expr:
    """What `truncated_div` leaves over; it has the sign of ``a``."""
    a, b = _operands(a, b)
    return a - b * truncated_div(a, b)


def euclidean_div(a: Operand, b: Operand) -> Expr:
    """The quotient with a remainder of at least 0; 0 where ``b`` is 0."""
    a, b = _operands(a, b)
    if not isinstance(b, Const):
        return Select(b.equal(0), ZERO, Select(b > 0, a // b, -(a // (-b))))
    if b.value > 0:
        return a // b
    return Select(b < 0, -(a // -b.value), ZERO) if b.value else ZERO


def euclidean_mod(a: Operand, b: Operand) -> Expr:
    """The remainder of `euclidean_div`; 0 where ``b`` is 0."""
    a, b = _operands(a, b)
    if not isinstance(b, Const):
        return Select(b.equal(0), ZERO, a - b * euclidean_div(a, b))
    return a % abs(b.value) if b.value else ZERO


def _operands(a: Operand, b: Operand) -> tuple[Expr, Expr]:
    return as_index(a, "a quotient"), as_index(b, "a quotient")


DERIVED = {
    "tdiv": truncated_div,
    "tmod": truncated_mod,
    "ediv": euclidean_div,
    "emod": euclidean_mod,
}


def divided(expr: Expr) -> tuple[str, Expr, Expr] | None:
    """``(name, a, b)`` if ``expr`` is what the function of that name in `DERIVED` writes."""
    for name, a, b in _guesses(expr):
        if DERIVED[name](a, b) is expr:
            return name, a, b
    return None


def _guesses(expr: Expr) -> list[tuple[str, Expr, Expr]]:
    """What ``expr`` could be, from the parts that tell the operands."""
    match expr:
        case Apply(op, (a, Apply(times, (b, Select())))) if (op, times) == (SUB, MUL):
            return [("tmod", a, b)]
        case Select(Apply(op, (Apply(least, (a, _)), Apply(_, (b, _)))), _, _) if (op, least) == (
            EQ,
            GE,
        ):
            return [("tdiv", a, b)]
        case Select(Apply(op, (a, _)), Apply(_, (_, Const(size, "index"))), _) if op is GE:
            return [("tdiv", a, Const(size, "index"))]
        case Select(Apply(op, (a, _)), Apply(_, (Apply(_, (_, Const(size, _))),)), _) if op is GE:
            return [("tdiv", a, Const(-size, "index"))]
        case Select(Apply(op, (Const() as b, _)), Apply(_, (Apply(_, (a, _)),)), _) if op is LT:
            return [("ediv", a, b)]
        case Select(Apply(op, (b, _)), _, Select(_, Apply(_, (a, _)), _)) if op is EQ:
            return [("ediv", a, b)]
        case Select(Apply(op, (b, _)), _, Apply(less, (a, _))) if (op, less) == (EQ, SUB):
            return [("emod", a, b)]
    return []
