"""Minima, selects and conditions of the normal form, and walks over all of it.

A maximum is a negated minimum, a negation is pushed to the comparisons, and comparisons of one
form are merged where they stand together. All of it holds whatever the variables are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from eqsatad.rules.index_forms import (
    FALSE,
    TRUE,
    ZERO,
    Cond,
    Form,
    Node,
    common_part,
    content,
    divided,
    euclidean,
    euclidean_rest,
    floor,
    leading,
    minus,
    number,
    order,
    plus,
    quotient,
    scaled,
    shifted,
    single,
    times,
    truncated,
)


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
    if not then[2] and not other[2]:
        outside = other
    elif then[1] == other[1]:
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
    for atom, coef in form[2]:
        if atom[0] == "floor" and abs(coef) == atom[2] and (found := _multiple(form, atom, coef)):
            return found
    return ("eq", scaled(form, -1) if leading(form) < 0 else form)


def _multiple(form: Form, atom: Node, coef: int) -> Cond | None:
    """``x == m * ((x + r) // m)``, which says that m divides x, as ``x % m == 0``."""
    _, inner, divisor = atom
    rest = minus(form, single(atom, coef))
    number_ = rest if coef < 0 else scaled(rest, -1)
    shift = minus(inner, number_)
    if shift[2] or shift == ZERO:
        return None
    if not 0 <= shift[1] < divisor:
        return FALSE
    return is_zero(minus(number_, scaled(floor(number_, divisor), divisor)))


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
