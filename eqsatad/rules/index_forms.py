"""The normal form of the simplifier: index expressions and conditions as nested tuples.

A *form* is ``("+", constant, ((atom, coefficient), ...))``; atoms are variables, floors, minima,
selects and opaque operations, in a fixed order. A maximum is a negated minimum, a remainder a
difference, and every comparison is ``("ge", form)`` or ``("eq", form)`` against 0. Tuples, not
`Expr` nodes: a search builds thousands of these, and interning costs more than the arithmetic.
The functions here apply what holds whatever the variables are (`docs/simplifier.md` lists it).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

Node = tuple[Any, ...]
Form = Node
Cond = Node
TRUE: Cond = ("true",)
FALSE: Cond = ("false",)
ZERO: Form = ("+", 0, ())


@lru_cache(maxsize=1 << 16)
def order(node: Node) -> str:
    """What nodes are sorted by: the same in every run."""
    return repr(node)


def make(const: int, terms: dict[Node, int]) -> Form:
    """The form ``const + sum(coefficient * atom)``."""
    kept = [(atom, coef) for atom, coef in terms.items() if coef]
    if len(kept) > 1:
        kept.sort(key=lambda term: order(term[0]))
    return ("+", const, tuple(kept))


def number(value: int) -> Form:
    """The constant form."""
    return ("+", value, ())


def single(atom: Node, coef: int = 1) -> Form:
    """``coef * atom``."""
    return ("+", 0, ((atom, coef),))


def variable(name: str) -> Form:
    """The form of an integer variable."""
    return single(("v", name))


def plus(left: Form, right: Form, factor: int = 1) -> Form:
    """``left + factor * right``."""
    if not right[2]:
        return ("+", left[1] + factor * right[1], left[2])
    terms = dict(left[2])
    for atom, coef in right[2]:
        terms[atom] = terms.get(atom, 0) + factor * coef
    return make(left[1] + factor * right[1], terms)


def minus(left: Form, right: Form) -> Form:
    """``left - right``."""
    return plus(left, right, -1)


def shifted(form: Form, const: int) -> Form:
    """``form + const``."""
    return ("+", form[1] + const, form[2])


def scaled(form: Form, factor: int) -> Form:
    """``factor * form``."""
    if factor == 0:
        return ZERO
    return ("+", form[1] * factor, tuple((atom, coef * factor) for atom, coef in form[2]))


def divided(form: Form, factor: int) -> Form:
    """``form / factor`` where every coefficient and the constant is a multiple of it."""
    return ("+", form[1] // factor, tuple((atom, coef // factor) for atom, coef in form[2]))


def leading(form: Form) -> int:
    """The first coefficient, or the constant."""
    return int(form[2][0][1]) if form[2] else int(form[1])


def content(form: Form) -> int:
    """The greatest common divisor of the coefficients, without the constant."""
    return math.gcd(*(coef for _, coef in form[2]))


def factors(atom: Node) -> tuple[Node, ...]:
    """The factors of a monomial."""
    return atom[1] if atom[0] == "mul" else (atom,)


def monomial(parts: Iterable[Node]) -> Node:
    """The product of atoms as an atom."""
    ordered = tuple(sorted(parts, key=order))
    return ordered[0] if len(ordered) == 1 else ("mul", ordered)


def times(left: Form, right: Form) -> Form:
    """The product, multiplied out."""
    if not left[2]:
        return scaled(right, left[1])
    if not right[2]:
        return scaled(left, right[1])
    total: dict[Node, int] = {}
    for a, c in (*left[2], (None, left[1])):
        for b, d in (*right[2], (None, right[1])):
            if a is not None or b is not None:
                found = [part for one in (a, b) if one is not None for part in factors(one)]
                atom = monomial(found)
                total[atom] = total.get(atom, 0) + c * d
    return make(left[1] * right[1], total)


def floor(form: Form, divisor: int) -> Form:
    """``form // divisor`` for a divisor that is not 0."""
    if divisor < 0:
        form, divisor = scaled(form, -1), -divisor
    if divisor == 1:
        return form
    # What is left of a coefficient keeps its sign and is below the divisor.
    whole = {atom: _towards_zero(coef, divisor) for atom, coef in form[2] if abs(coef) >= divisor}
    rest = tuple(
        (atom, left) for atom, coef in form[2] if (left := coef - divisor * whole.get(atom, 0))
    )
    outside = make(form[1] // divisor, whole)
    if not rest:
        return outside
    return plus(outside, _floor(("+", form[1] % divisor, rest), divisor))


def _towards_zero(number: int, divisor: int) -> int:
    return number // divisor if number >= 0 else -(-number // divisor)


def _floor(form: Form, divisor: int) -> Form:
    """A quotient whose multiples of the divisor are gone."""
    common = math.gcd(content(form), divisor)
    if common > 1:
        inner = ("+", form[1] // common, tuple((a, c // common) for a, c in form[2]))
        return floor(inner, divisor // common)
    if len(form[2]) == 1 and form[2][0][1] == 1 and form[2][0][0][0] == "floor":
        _, inner, under = form[2][0][0]
        return floor(shifted(inner, form[1] * under), under * divisor)
    if leading(form) < 0:
        return scaled(single(("floor", minus(number(divisor - 1), form), divisor)), -1)
    return single(("floor", form, divisor))


def quotient(form: Form, divisor: Form) -> Form:
    """``form // divisor``; undefined where the divisor is 0."""
    if not divisor[2] and divisor[1]:
        return floor(form, divisor[1])
    whole, rest = exact_part(form, divisor)
    if rest == ZERO:
        return whole
    common = math.gcd(content(rest), content(divisor), rest[1], divisor[1])
    if common > 1:
        rest, divisor = divided(rest, common), divided(divisor, common)
    for part in shared_factors(rest, divisor):
        rest, divisor = exact_part(rest, single(part))[0], exact_part(divisor, single(part))[0]
        if not divisor[2]:
            return plus(whole, quotient(rest, divisor))
    return plus(whole, single(("fdiv", rest, divisor)))


def shared_factors(form: Form, divisor: Form) -> list[Node]:
    """The factors, with repetition, of all terms of both; they are not 0 where both are defined."""
    if form[1] or divisor[1] or not form[2]:
        return []
    left = [list(factors(atom)) for atom, _ in (*form[2], *divisor[2])]
    found = []
    for part in list(left[0]):
        if all(part in others for others in left):
            found.append(part)
            for others in left:
                others.remove(part)
    return found


def exact_part(form: Form, divisor: Form) -> tuple[Form, Form]:
    """``(q, r)`` with ``form = q * divisor + r``, as much as divides term by term."""
    if len(divisor[2]) == 1 and divisor[1] == 0:
        return _monomial_part(form, *divisor[2][0])
    if divisor[2]:
        atom, coef = divisor[2][0]
        mine = next((c for a, c in form[2] if a == atom), 0)
        if mine and mine % coef == 0:
            rest = plus(form, divisor, -(mine // coef))
            if len(rest[2]) + bool(rest[1]) < len(form[2]) + bool(form[1]):
                return number(mine // coef), rest
    return ZERO, form


def _monomial_part(form: Form, under: Node, scale: int) -> tuple[Form, Form]:
    whole: dict[Node, int] = {}
    rest: dict[Node, int] = {}
    const = 0
    for atom, coef in form[2]:
        left = _without(factors(atom), factors(under))
        if left is None or coef % scale:
            rest[atom] = coef
        elif left:
            whole[monomial(left)] = coef // scale
        else:
            const += coef // scale
    return make(const, whole), make(form[1], rest)


def _without(parts: tuple[Node, ...], gone: tuple[Node, ...]) -> list[Node] | None:
    left = list(parts)
    for part in gone:
        if part not in left:
            return None
        left.remove(part)
    return left


def truncated(form: Form, divisor: Form) -> Form:
    """The quotient of ``form`` by ``divisor`` rounded towards 0; undefined where that is 0."""
    if not divisor[2] and not form[2] and divisor[1]:
        size = abs(form[1]) // abs(divisor[1])
        return number(size if (form[1] < 0) == (divisor[1] < 0) else -size)
    if form == ZERO:
        return ZERO
    whole, rest = exact_part(form, divisor)
    if rest == ZERO and divisor[2]:
        return whole
    if leading(divisor) < 0:
        return scaled(truncated(form, scaled(divisor, -1)), -1)
    if leading(form) < 0:
        return scaled(truncated(scaled(form, -1), divisor), -1)
    common = math.gcd(content(form), content(divisor), form[1], divisor[1])
    if common > 1:
        form, divisor = divided(form, common), divided(divisor, common)
    for part in shared_factors(form, divisor):
        form, divisor = exact_part(form, single(part))[0], exact_part(divisor, single(part))[0]
    if divisor == number(1):
        return form
    if len(form[2]) == 1 and form[1] == 0 and form[2][0] == (form[2][0][0], 1):
        inner = form[2][0][0]
        if inner[0] == "tdiv" and not inner[2][2] and not divisor[2]:
            return truncated(inner[1], number(inner[2][1] * divisor[1]))
    return single(("tdiv", form, divisor))


def euclidean(form: Form, divisor: Form) -> Form:
    """The quotient that leaves a remainder of at least 0; 0 where the divisor is 0."""
    if divisor[2]:
        return single(("ediv", form, divisor)) if form != ZERO else ZERO
    return floor_by_sign(form, divisor[1])


def floor_by_sign(form: Form, divisor: int) -> Form:
    """The Euclidean quotient by a literal."""
    if divisor == 0:
        return ZERO
    return floor(form, divisor) if divisor > 0 else scaled(floor(form, -divisor), -1)


def euclidean_rest(form: Form, divisor: Form) -> Form:
    """The remainder of `euclidean`; 0 where the divisor is 0."""
    if divisor[2]:
        _, rest = exact_part(form, divisor)
        return single(("emod", rest, divisor)) if rest != ZERO else ZERO
    return minus(form, scaled(euclidean(form, divisor), divisor[1])) if divisor[1] else ZERO


def common_part(forms: list[Form]) -> Form:
    """The terms that all of ``forms`` have, with the smallest coefficient of one sign."""
    shared = dict(forms[0][2])
    for form in forms[1:]:
        mine = dict(form[2])
        shared = {
            atom: min(coef, mine[atom], key=abs)
            for atom, coef in shared.items()
            if atom in mine and (coef > 0) == (mine[atom] > 0)
        }
    return make(0, shared)
