"""A node in the smallest normal form that its surroundings allow, from the inside out.

Each part is simplified where it stands: a branch of a select under its condition, a conjunct
under the others. What the facts decide is dropped: operands of minima that are never the least,
conditions that always hold, digits of a dividend that cannot carry.
"""

from __future__ import annotations

import math

from eqsatad.rules.index_conditions import (
    at_least,
    both,
    is_cond,
    is_zero,
    minimum,
    negation,
    rebuilt,
    select,
)
from eqsatad.rules.index_facts import Facts
from eqsatad.rules.index_forms import (
    FALSE,
    TRUE,
    ZERO,
    Cond,
    Form,
    Node,
    euclidean,
    euclidean_rest,
    exact_part,
    floor,
    make,
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


def narrowed(node: Node, facts: Facts) -> Node:
    """``node`` (a form or a condition) simplified where ``facts`` hold."""
    return _cond(node, facts) if is_cond(node) else _form(node, facts)


def _form(form: Form, facts: Facts) -> Form:
    if not form[2]:
        return form
    low, high = facts.interval(form)
    if low is not None and low == high:
        return number(low)
    total = number(form[1])
    for atom, coef in form[2]:
        total = plus(total, _atom(atom, facts), coef)
    return total


def _atom(atom: Node, facts: Facts) -> Form:
    low, high = facts.interval(single(atom))
    if low is not None and low == high:
        return number(low)
    match atom[0]:
        case "floor":
            return _floor(_form(atom[1], facts), atom[2], facts)
        case "min":
            return _minimum([_form(arg, facts) for arg in atom[1]], facts)
        case "sel":
            return _select(atom, facts)
        case "fdiv" | "tdiv" | "ediv" | "emod":
            return _division(atom[0], _form(atom[1], facts), _form(atom[2], facts), facts)
        case "mul":
            return rebuilt(atom, lambda part: _atom(part, facts))
    return single(atom)


def _floor(form: Form, divisor: int, facts: Facts) -> Form:
    """A quotient with its low digits dropped."""
    result = number(0)
    for atom, coef in (whole := floor(form, divisor))[2]:
        result = plus(result, _dropped(atom, facts) if atom[0] == "floor" else single(atom), coef)
    return shifted(result, whole[1])


def _dropped(atom: Node, facts: Facts) -> Form:
    _, form, divisor = atom
    low, high = facts.interval(form)
    if low is not None and high is not None and low // divisor == high // divisor:
        return number(low // divisor)
    for common in _digits(form, divisor):
        high_part = make(form[1] // common, {a: c // common for a, c in form[2] if c % common == 0})
        rest = make(form[1] % common, {a: c for a, c in form[2] if c % common})
        low, high = facts.interval(rest)
        if low is not None and high is not None and low // common == high // common:
            return floor(shifted(high_part, low // common), divisor // common)
    return _folded(form, divisor, facts)


def _digits(form: Form, divisor: int) -> list[int]:
    """Common factors of the divisor and some of the coefficients, the greatest first."""
    found = {math.gcd(coef, divisor) for _, coef in form[2]}
    found |= {math.gcd(one, other) for one in found for other in found}
    return sorted(found - {1}, reverse=True)


def _folded(form: Form, divisor: int, facts: Facts) -> Form:
    """A quotient whose values at the sample are all one number, or one more than a form."""
    atom = single(("floor", form, divisor))
    values = facts.points.value(atom)
    if len(values) and (values == values[0]).all():
        found = int(values[0])
        if facts.holds(is_zero(shifted(atom, -found))):
            return number(found)
    return atom


def _division(name: str, top: Form, under: Form, facts: Facts) -> Form:
    """A quotient as a floor where the signs are known."""
    build = {"fdiv": quotient, "tdiv": truncated, "ediv": euclidean, "emod": euclidean_rest}[name]
    if not under[2]:
        if name == "tdiv" and under[1] > 0:
            if facts.decide(at_least(top)):
                return _floor(top, under[1], facts)
            if facts.decide(at_least(scaled(top, -1))):
                return scaled(_floor(scaled(top, -1), under[1], facts), -1)
        return build(top, under)
    if name in ("ediv", "emod"):
        if not facts.holds(at_least(shifted(under, -1))):
            return _euclidean(name, top, under, facts)
        whole = _division("fdiv", top, under, facts)
        return whole if name == "ediv" else minus(top, times(whole, under))
    positive = facts.decide(at_least(shifted(under, -1)))
    if name == "tdiv":
        if positive and facts.decide(at_least(top)):
            return _division("fdiv", top, under, facts)
        return build(top, under)
    below = at_least(shifted(minus(under, top), -1))
    if positive and facts.holds(at_least(top)) and facts.holds(below):
        return number(0)
    return _settled(build(top, under), facts)


def _settled(form: Form, facts: Facts) -> Form:
    """``form`` without the atoms of which the range is one value."""
    total = number(form[1])
    for atom, coef in form[2]:
        low, high = facts.interval(single(atom))
        known = low is not None and low == high
        total = plus(total, number(low or 0) if known else single(atom), coef)
    return total


def _euclidean(name: str, top: Form, under: Form, facts: Facts) -> Form:
    """A Euclidean quotient or remainder; multiples of a divisor that is not 0 are taken out."""
    if name == "emod":
        return euclidean_rest(top, under)
    whole, rest = exact_part(top, under)
    if whole == ZERO or facts.decide(is_zero(under)) is not False:
        return euclidean(top, under)
    return plus(whole, euclidean(rest, under))


def _minimum(args: list[Form], facts: Facts) -> Form:
    """A minimum without the operands that another one never exceeds."""
    kept = list(dict.fromkeys(args))
    for arg in list(kept):
        others = [other for other in kept if other is not arg]
        if any(facts.holds(at_least(minus(arg, other))) for other in others):
            kept.remove(arg)
    return minimum(*kept)


def _select(atom: Node, facts: Facts) -> Form:
    _, cond, then, other = atom
    cond = _cond(cond, facts)
    if cond in (TRUE, FALSE):
        return _form(then if cond == TRUE else other, facts)
    yes, no = facts.under(cond), facts.under(negation(cond))
    then, other = _form(then, yes), _form(other, no)
    if yes.same(then, other):
        return other
    if no.same(then, other):
        return then
    return select(cond, then, other)


def _cond(cond: Cond, facts: Facts) -> Cond:
    if cond in (TRUE, FALSE):
        return cond
    decided = facts.decide(cond)
    if decided is not None:
        return TRUE if decided else FALSE
    match cond[0]:
        case "ge" | "eq":
            build = at_least if cond[0] == "ge" else is_zero
            new = build(_form(cond[1], facts))
            return _decided(new, facts) if new != cond else cond
        case "not":
            return negation(_cond(cond[1], facts))
        case "and":
            return _conjuncts(cond, facts)
        case "or":
            return negation(_conjuncts(negation(cond), facts))
    return cond


def _decided(cond: Cond, facts: Facts) -> Cond:
    if cond[0] in ("and", "or"):
        return cond
    decided = facts.decide(cond)
    return cond if decided is None else TRUE if decided else FALSE


def _conjuncts(cond: Cond, facts: Facts) -> Cond:
    """Each conjunct under the others, the dearest first: it is the one to lose."""
    if cond[0] != "and":
        return _cond(cond, facts)
    kept = sorted(cond[1], key=lambda part: (-len(order(part)), order(part)))
    for part in list(kept):
        place = kept.index(part)
        others = kept[:place] + kept[place + 1 :]
        new = _cond(part, facts.under(both(*others)) if others else facts)
        if new == FALSE:
            return FALSE
        kept[place : place + 1] = [] if new == TRUE else [new]
    return both(*kept)
