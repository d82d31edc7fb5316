"""Division that rounds otherwise than down, as derived forms of floor division.

``truncated_div`` rounds towards 0 as C does; ``euclidean_div`` leaves a remainder that is at least
0, and is 0 where the divisor is 0. They are written out in selects and floors, so that every pass
knows them; `divided` recognises what these functions wrote.
"""

from __future__ import annotations

from eqsatad.terms.coerce import Operand, as_index
from eqsatad.terms.nodes import Apply, Const, Expr, Select
from eqsatad.terms.ops import EQ, FLOORDIV, GE, GT, MUL, NEG, SUB

ZERO = Const(0, "index")


def truncated_div(a: Operand, b: Operand) -> Expr:
    """The quotient ``a / b`` rounded towards 0."""
    a, b = as_index(a, "a quotient"), as_index(b, "a quotient")
    same_sign = (a >= 0).equal(b > 0)
    return Select(same_sign, a // b, -((-a) // b))


def truncated_mod(a: Operand, b: Operand) -> Expr:
    """What `truncated_div` leaves over; it has the sign of ``a``."""
    a, b = as_index(a, "a quotient"), as_index(b, "a quotient")
    return a - b * truncated_div(a, b)


def euclidean_div(a: Operand, b: Operand) -> Expr:
    """The quotient with a remainder of at least 0; 0 where ``b`` is 0."""
    a, b = as_index(a, "a quotient"), as_index(b, "a quotient")
    return Select(b.equal(0), ZERO, Select(b > 0, a // b, -(a // (-b))))


def euclidean_mod(a: Operand, b: Operand) -> Expr:
    """The remainder of `euclidean_div`; 0 where ``b`` is 0."""
    a, b = as_index(a, "a quotient"), as_index(b, "a quotient")
    return Select(b.equal(0), ZERO, a - b * euclidean_div(a, b))


DERIVED = {
    "tdiv": truncated_div,
    "tmod": truncated_mod,
    "ediv": euclidean_div,
    "emod": euclidean_mod,
}


def divided(expr: Expr) -> tuple[str, Expr, Expr] | None:
    """``(name, a, b)`` if ``expr`` is what the function of that name in `DERIVED` writes."""
    match expr:
        case Select(Apply(op, (Apply(least, (a, _)), Apply(above, (b, _)))), _, _) if (
            (op, least, above) == (EQ, GE, GT)
        ):
            names = ["tdiv"]
        case Apply(op, (a, Apply(times, (b, Select())))) if (op, times) == (SUB, MUL):
            names = ["tmod"]
        case Select(Apply(op, (b, _)), _, Select(_, Apply(floor, (a, _)), Apply(minus, _))) if (
            (op, floor, minus) == (EQ, FLOORDIV, NEG)
        ):
            names = ["ediv"]
        case Select(Apply(op, (b, _)), _, Apply(less, (a, _))) if (op, less) == (EQ, SUB):
            names = ["emod"]
        case _:
            return None
    (name,) = names
    return (name, a, b) if DERIVED[name](a, b) is expr else None
