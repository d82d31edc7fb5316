"""The normal form of the simplifier: index expressions and conditions as nested tuples.

A *form* is ``("+", constant, ((atom, coefficient), ...))``; atoms are variables, floors, minima,
selects and opaque operations, in a fixed order. A maximum is a negated minimum, a remainder a
difference, and every comparison is ``("ge", form)`` or ``("eq", form)`` against 0. Tuples, not
`Expr` nodes: a search builds thousands of these, and interning costs more than the arithmetic.
The functions here apply what holds whatever the variables are (`docs/simplifier.md` lists it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
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
        (atom, left)
        for atom, coef in form[2]
        if (left := coef - divisor * whole.get(atom, 0))
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
        return single(("ediv", form, divisor))
    return floor_by_sign(form, divisor[1])


def floor_by_sign(form: Form, divisor: int) -> Form:
    """The Euclidean quotient by a literal."""
    if divisor == 0:
        return ZERO
    return floor(form, divisor) if divisor > 0 else scaled(floor(form, -divisor), -1)


def euclidean_rest(form: Form, divisor: Form) -> Form:
    """The remainder of `euclidean`; 0 where the divisor is 0."""
    if divisor[2]:
        return single(("emod", form, divisor))
    return minus(form, scaled(euclidean(form, divisor), divisor[1])) if divisor[1] else ZERO


def minimum(*given: Form) -> Form:
    """The least of ``given``: nested minima flat, what all have in common outside."""
    kept: dict[Node, int] = {}
    for form in _flat(given):
        kept[form[2]] = min(form[1], kept.get(form[2], form[1]))
    forms = [("+", const, terms) for terms, const in kept.items()]
    if len(forms) == 1:
        return forms[0]
    # A plain number comes last, so that what the others have in common never depends on it.
    forms.sort(key=lambda form: (not form[2], order(form[2])))
    outside = common_part(forms)
    inside = [minus(form, outside) for form in forms]
    shift = inside[0][1]
    inside = [shifted(form, -shift) for form in inside]
    outside = shifted(outside, shift)
    factor = math.gcd(*(math.gcd(content(form), form[1]) for form in inside))
    inside = [divided(form, factor) for form in inside]
    return plus(outside, single(("min", tuple(inside))), factor)


def _flat(given: Iterable[Form]) -> Iterator[Form]:
    for form in given:
        inner = next((atom for atom, coef in form[2] if atom[0] == "min" and coef == 1), None)
        if inner is None:
            yield form
        else:
            rest = minus(form, single(inner))
            yield from _flat(plus(arg, rest) for arg in inner[1])


def maximum(*given: Form) -> Form:
    """The greatest of ``given``."""
    return scaled(minimum(*(scaled(form, -1) for form in given)), -1)


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


def absolute(form: Form) -> Form:
    """``max(form, -form)``."""
    return maximum(form, scaled(form, -1))


def select(cond: Cond, then: Form, other: Form) -> Form:
    """``then`` where ``cond`` holds, else ``other``."""
    if cond in (TRUE, FALSE) or then == other:
        return then if cond != FALSE else other
    if cond[0] == "not" or (cond[0] == "ge" and leading(cond[1]) < 0):
        return select(negation(cond), other, then)
    if cond[0] == "or":
        return select(negation(cond), other, then)
    if (extreme := _extreme(cond, then, other)) is not None:
        return extreme
    outside = common_part([then, other])
    if then[1] == other[1]:
        outside = shifted(outside, then[1])
    then, other = minus(then, outside), minus(other, outside)
    factor = math.gcd(content(then), then[1], content(other), other[1])
    if leading(then if then[2] or then[1] else other) < 0:
        factor = -factor
    then, other = divided(then, factor), divided(other, factor)
    return plus(outside, single(("sel", cond, then, other)), factor)


def _extreme(cond: Cond, then: Form, other: Form) -> Form | None:
    """``a if a >= b else b`` is a maximum; the comparison may be strict."""
    if cond[0] != "ge":
        return None
    difference = minus(then, other)
    if minus(cond[1], difference) in (ZERO, number(-1)):
        return maximum(then, other)
    if plus(cond[1], difference) in (ZERO, number(-1)):
        return minimum(then, other)
    return None


def at_least(form: Form) -> Cond:
    """The condition ``form >= 0``."""
    if not form[2]:
        return TRUE if form[1] >= 0 else FALSE
    common = content(form)
    if common > 1:
        form = ("+", form[1] // common, tuple((a, c // common) for a, c in form[2]))
    if len(form[2]) == 1 and form[2][0][0][0] == "floor":
        ((_, inner, divisor), coef) = form[2][0]
        if coef == 1:
            return at_least(shifted(inner, form[1] * divisor))
        return at_least(minus(number(form[1] * divisor + divisor - 1), inner))
    if len(form[2]) == 1 and form[2][0][0][0] == "tdiv" and not form[2][0][0][2][2]:
        ((_, inner, (_, size, _)), coef) = form[2][0]
        # The quotient is at least -c for c <= 0 from -c*size on, else from where it rounds up.
        last = form[1] * size + (size - 1 if form[1] >= 0 else 0)
        return at_least(shifted(scaled(inner, coef), last))
    return ("ge", form)


def is_zero(form: Form) -> Cond:
    """The condition ``form == 0``."""
    if not form[2]:
        return TRUE if form[1] == 0 else FALSE
    common = content(form)
    if form[1] % common:
        return FALSE
    form = divided(form, common)
    return ("eq", scaled(form, -1) if leading(form) < 0 else form)


@lru_cache(maxsize=1 << 14)
def negation(cond: Cond) -> Cond:
    """The condition that holds where ``cond`` does not."""
    match cond[0]:
        case "true":
            return FALSE
        case "false":
            return TRUE
        case "ge":
            return at_least(minus(number(-1), cond[1]))
        case "not":
            return cond[1]  # type: ignore[no-any-return]
        case "and" | "or":
            joined = either if cond[0] == "and" else both
            return joined(*map(negation, cond[1]))
    return ("not", cond)


def both(*conds: Cond) -> Cond:
    """The condition that all of ``conds`` hold."""
    return _joined("and", TRUE, FALSE, conds)


def either(*conds: Cond) -> Cond:
    """The condition that one of ``conds`` holds."""
    return _joined("or", FALSE, TRUE, conds)


def _joined(name: str, neutral: Cond, absorbing: Cond, conds: Iterable[Cond]) -> Cond:
    parts: dict[Cond, None] = {}
    for cond in conds:
        parts.update(dict.fromkeys(cond[1] if cond[0] == name else (cond,)))
    parts.pop(neutral, None)
    if absorbing in parts or any(negation(part) in parts for part in parts):
        return absorbing
    kept = _tightest(name, list(parts))
    if kept is None:
        return absorbing
    if len(kept) < 2:
        return kept[0] if kept else neutral
    return (name, tuple(sorted(kept, key=order)))


def _tightest(name: str, parts: list[Cond]) -> list[Cond] | None:
    """One comparison per form and direction; None where two of them leave nothing open."""
    ends: dict[Node, int] = {}
    rest = [part for part in parts if part[0] != "ge"]
    choose = min if name == "and" else max
    for part in parts:
        if part[0] == "ge":
            _, const, terms = part[1]
            ends[terms] = choose(const, ends.get(terms, const))
    for terms, const in list(ends.items()):
        opposite = tuple((atom, -coef) for atom, coef in terms)
        if terms not in ends or opposite not in ends:
            continue
        gap = const + ends[opposite]
        if gap < 0 if name == "and" else gap >= -1:
            return None
        if gap == 0 if name == "and" else gap == -2:
            # Two half-lines that meet in one point, or leave out one.
            inner = ("+", const if name == "and" else const + 1, terms)
            rest.append(is_zero(inner) if name == "and" else negation(is_zero(inner)))
            del ends[terms], ends[opposite]
    return [*rest, *(("ge", ("+", const, terms)) for terms, const in ends.items())]


def same_truth(left: Cond, right: Cond) -> Cond:
    """The condition that both hold or neither does."""
    return either(both(left, right), both(negation(left), negation(right)))


def choose_cond(cond: Cond, then: Cond, other: Cond) -> Cond:
    """The condition ``then`` where ``cond`` holds, else ``other``."""
    return either(both(cond, then), both(negation(cond), other))


FORMS: dict[str, Callable[..., Node]] = {
    "floor": floor,
    "fdiv": quotient,
    "tdiv": truncated,
    "ediv": euclidean,
    "emod": euclidean_rest,
}
"""What builds an atom of each opaque kind from its two arguments."""


def is_cond(node: Node) -> bool:
    """Whether ``node`` is a condition."""
    return node[0] in ("ge", "eq", "and", "or", "not", "b", "true", "false")


def parts(node: Node) -> tuple[Node, ...]:
    """The nodes directly inside ``node``."""
    match node[0]:
        case "+":
            return tuple(atom for atom, _ in node[2])
        case "min" | "and" | "or" | "mul":
            return node[1]  # type: ignore[no-any-return]
        case "floor" | "ge" | "eq" | "not":
            return (node[1],)
        case "sel" | "fdiv" | "tdiv" | "ediv" | "emod":
            return node[1:]
    return ()


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """``node`` over changed parts: forms and atoms become forms, conditions conditions."""
    match node[0]:
        case "+":
            total: Form = number(node[1])
            for atom, coef in node[2]:
                total = plus(total, change(atom), coef)
            return total
        case "v":
            return single(node)
        case "mul":
            result = number(1)
            for atom in node[1]:
                result = times(result, change(atom))
            return result
        case "floor":
            return floor(change(node[1]), node[2])
        case "min":
            return minimum(*map(change, node[1]))
        case "sel":
            return select(*map(change, node[1:]))
        case "ge":
            return at_least(change(node[1]))
        case "eq":
            return is_zero(change(node[1]))
        case "not":
            return negation(change(node[1]))
        case "and" | "or":
            return (both if node[0] == "and" else either)(*map(change, node[1]))
        case "fdiv" | "tdiv" | "ediv" | "emod":
            return FORMS[node[0]](change(node[1]), change(node[2]))
    return node


def replaced(root: Node, old: Node, new: Node) -> Node:
    """``root`` with ``new`` for every ``old``; for an atom, ``new`` is a form."""
    known: dict[Node, Node] = {old: new}

    def change(node: Node) -> Node:
        if node not in known:
            known[node] = rebuilt(node, change)
        return known[node]

    return change(root)


def inside(root: Node) -> list[Node]:
    """Every node under ``root`` once, the innermost first."""
    seen: dict[Node, None] = {}

    def visit(node: Node) -> None:
        for part in parts(node):
            if part not in seen:
                visit(part)
        seen[node] = None

    visit(root)
    return list(seen)
