"""Rows of the simplifier matched against normal forms.

A sum in a pattern matches modulo order: its structured parts take a term each, the one plain
letter takes what is left. Minima, maxima and connectives match in every order; a maximum is a
minimum with the opposite sign, and a select is also the one with its condition negated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, reduce

from eqsatad.errors import RuleError
from eqsatad.rules import index_conditions as conds
from eqsatad.rules import index_forms as forms
from eqsatad.rules.bounds import is_literal
from eqsatad.rules.describe import spelled
from eqsatad.rules.index_exchange import NAMES as TREE_NAMES
from eqsatad.rules.index_exchange import NORMAL
from eqsatad.rules.index_facts import Facts
from eqsatad.rules.index_forms import Form, Node
from eqsatad.rules.literals import evaluate_literal
from eqsatad.rules.rule import LITERAL, Define, Known, Letter, TermRow
from eqsatad.terms.nodes import Apply, Const, Expr, Select
from eqsatad.terms.ops import ADD, AND, EQ, FLOORDIV, LE, LT, MAX, MIN, MOD, MUL, NEG, NOT, OR, SUB

Match = dict[Letter, Node]

HEADS = {
    MIN: "min",
    MAX: "min",
    FLOORDIV: "floor",
    MUL: "mul",
    LE: "ge",
    LT: "ge",
    EQ: "eq",
    AND: "and",
    OR: "or",
}


def head(row: TermRow) -> str:
    """The kind of node that a row replaces: an atom, a condition, or a whole sum."""
    before = row.before
    if isinstance(before, Select):
        return "sel"
    if isinstance(before, Apply) and before.op in (ADD, SUB, MOD):
        return "+"
    if not (isinstance(before, Apply) and before.op in HEADS):
        raise RuleError(
            f"rule {row.name}: {spelled(before)} is nothing that rows replace. The left side is a "
            "sum, a quotient, a product, a minimum, a select, a comparison with <, <= or ==, or "
            "made by and, or."
        )
    return HEADS[before.op]


class Rows:
    """Rows of the simplifier, by the kind of node that they replace."""

    def __init__(self, rows: Iterable[TermRow]) -> None:
        self._rows: dict[str, list[TermRow]] = {}
        for row in rows:
            self._rows.setdefault(head(row), []).append(row)

    def rewritten(self, node: Node, facts: Facts) -> Iterator[Node]:
        """What the rows make of ``node``: for an atom or a sum a form, else a condition."""
        for row in self._rows.get(node[0], ()):
            yield from self.made(row, node, facts)

    def made(self, row: TermRow, node: Node, facts: Facts) -> Iterator[Node]:
        """What one of the rows makes of ``node``."""
        for match, sign in _roots(row.before, node):
            if _holds(row, match, facts):
                new = instance(row.after, match)
                if new is not None:
                    yield forms.scaled(new, -1) if sign < 0 else new


def _roots(pattern: Expr, node: Node) -> Iterator[tuple[Match, int]]:
    """Matches of a whole node; an atom may be the pattern with the opposite sign."""
    if node[0] == "+":
        yield from ((match, 1) for match in _form(pattern, node, {}))
    elif pattern.dtype == "bool":
        yield from ((match, 1) for match in _cond(pattern, node, {}))
    else:
        for sign in (1, -1):
            yield from ((match, sign) for match in _core(pattern, sign, node, {}))


def _form(pattern: Expr, form: Form, match: Match) -> Iterator[Match]:
    """Ways to read ``form`` as ``pattern``."""
    yield from _sum(_addends(pattern), form, match)


@lru_cache(maxsize=4096)
def _addends(pattern: Expr) -> tuple[tuple[Expr, Expr], ...]:
    """The terms of a pattern with their coefficients, the structured ones first."""
    found = _signed_addends(pattern, 1)
    return tuple(sorted(found, key=lambda term: isinstance(term[1], Letter | Const)))


def _signed_addends(pattern: Expr, sign: int) -> Iterator[tuple[Expr, Expr]]:
    match pattern:
        case Apply(op, (left, right)) if op in (ADD, SUB):
            yield from _signed_addends(left, sign)
            yield from _signed_addends(right, sign if op is ADD else -sign)
        case Apply(op, (inner,)) if op is NEG:
            yield from _signed_addends(inner, -sign)
        case Apply(op, (left, right)) if op is MOD:
            yield from _signed_addends(left, sign)
            yield Apply(MUL, (Const(-sign, "index"), right)), left // right
        case Apply(op, (coef, core)) if op is MUL and is_literal(coef) and not is_literal(core):
            yield from (
                (_scaled(coef, scale), inner) for scale, inner in _signed_addends(core, sign)
            )
        case _:
            yield Const(sign, "index"), pattern


def _scaled(coef: Expr, scale: Expr) -> Expr:
    if isinstance(scale, Const):
        return coef if scale.value == 1 else Apply(MUL, (scale, coef))
    return Apply(MUL, (coef, scale))


def _sum(parts: Sequence[tuple[Expr, Expr]], form: Form, match: Match) -> Iterator[Match]:
    if not parts:
        if form == forms.ZERO:
            yield match
        return
    (coef, core), *rest = parts
    if isinstance(core, Letter | Const) or is_literal(core):
        yield from _plain(coef, core, rest, form, match)
        return
    for atom, factor in form[2]:
        left = forms.minus(form, forms.single(atom, factor))
        for bound, sign in _factor(coef, factor, match):
            for found in _core(core, sign, atom, bound):
                yield from _sum(rest, left, found)


def _factor(coef: Expr, factor: int, match: Match) -> Iterator[tuple[Match, int]]:
    """Ways to read a coefficient, up to the sign that the core takes."""
    match coef:
        case Const(value, _) if abs(value) == abs(factor):
            yield match, 1 if value == factor else -1
        case Letter():
            if coef not in match:
                yield {**match, coef: forms.number(factor)}, 1
            elif match[coef] == forms.number(factor):
                yield match, 1
        case Apply(op, (Const(scale, _), Letter() as letter)) if op is MUL and letter not in match:
            # c * m with m open: only the sign of the coefficient says which.
            if scale and factor % scale == 0:
                yield {**match, letter: forms.number(factor // scale)}, 1
        case Apply():
            known = evaluate_literal(coef, _nothing, _literals(match))
            if known is not None and abs(known) == abs(factor):
                yield match, 1 if known == factor else -1


def _plain(
    coef: Expr, core: Expr, rest: Sequence[tuple[Expr, Expr]], form: Form, match: Match
) -> Iterator[Match]:
    """A letter or a literal: a known one is subtracted, the last unknown one takes the rest."""
    known = instance(core, match)
    scale = evaluate_literal(coef, _nothing, _literals(match))
    if known is not None and scale is not None:
        yield from _sum(rest, forms.plus(form, known, -scale), match)
        return
    if known is not None:
        open_, times = _open_letter(coef, match), _multiple(form, known)
        if open_ is not None:
            letter, sign = open_
            bound = {**match, letter: forms.number(sign * times)}
            yield from _sum(rest, forms.plus(form, known, -times), bound)
        return
    if len(rest) == 1 and _open_literal(*rest[0], match) and isinstance(core, Letter):
        if scale in (1, -1):
            plain = forms.scaled(forms.shifted(form, -form[1]), scale)
            literal = {core: plain, rest[0][1]: forms.number(form[1])}
            yield {**match, **literal}  # type: ignore[dict-item]  # a literal's core is a letter
        return
    if any(isinstance(other, Letter) and other not in match for _, other in rest):
        # Let the others be bound first, by what they are elsewhere or by their atoms.
        for atom, factor in form[2]:
            if scale is not None and abs(scale) == 1 and isinstance(core, Letter):
                left = forms.minus(form, forms.single(atom, factor))
                yield from _sum(rest, left, {**match, core: forms.single(atom, factor * scale)})
        return
    if rest:
        yield from _sum([*rest, (coef, core)], form, match)
        return
    if isinstance(core, Letter) and scale in (1, -1):
        value = forms.scaled(form, scale)
        if core.kind != LITERAL or not value[2]:
            yield {**match, core: value}
    elif isinstance(core, Letter) and (open_ := _open_letter(coef, match)) is not None:
        letter, sign = open_
        factor = math.gcd(forms.content(form), form[1])
        if factor > 1:
            inner = forms.divided(form, sign * factor)
            yield {**match, letter: forms.number(factor), core: inner}
    elif scale and isinstance(core, Letter) and _divisible(form, scale):
        yield {**match, core: forms.divided(form, scale)}


def _multiple(form: Form, known: Form) -> int:
    """How many times the first term of ``known`` is in ``form``, rounded."""
    if not known[2]:
        return int(form[1] // known[1]) if known[1] else 0
    atom, coef = known[2][0]
    return int(dict(form[2]).get(atom, 0) // coef)


def _open_letter(coef: Expr, match: Match) -> tuple[Letter, int] | None:
    """The unbound letter of a coefficient ``c`` or ``-c``, with its sign."""
    match coef:
        case Letter() if coef not in match:
            return coef, 1
        case Apply(op, (Const(-1, _), Letter() as letter)) if op is MUL and letter not in match:
            return letter, -1
    return None


def _open_literal(coef: Expr, core: Expr, match: Match) -> bool:
    """Whether an addend is a literal letter that is not bound, as it stands."""
    literal = isinstance(core, Letter) and core.kind == LITERAL and core not in match
    return literal and isinstance(coef, Const) and coef.value == 1


def _divisible(form: Form, scale: int) -> bool:
    return form[1] % scale == 0 and all(coef % scale == 0 for _, coef in form[2])


def _core(core: Expr, sign: int, atom: Node, match: Match) -> Iterator[Match]:
    """Ways to read ``sign * atom`` as ``core``."""
    if isinstance(core, Select):
        if atom[0] == "sel":
            yield from _select(core, sign, atom, match)
        return
    if not isinstance(core, Apply) or HEADS.get(core.op) != atom[0]:
        return
    if core.op in (MIN, MAX):
        if (core.op is MIN) == (sign > 0):
            yield from _operands(
                core.args,
                [forms.scaled(arg, sign) for arg in atom[1]],
                conds.minimum if core.op is MIN else conds.maximum,
                _form,
                match,
            )
    elif core.op is FLOORDIV:
        # -(x // m) is (m - 1 - x) // m.
        top = atom[1] if sign > 0 else forms.minus(forms.number(atom[2] - 1), atom[1])
        for found in _form(core.args[0], top, match):
            yield from _literal(core.args[1], atom[2], found)
    elif core.op is MUL:
        atoms = [forms.single(part) for part in atom[1]]
        last = core.args[1]

        def read(pattern: Expr, form: Form, bound: Match) -> Iterator[Match]:
            return _form(pattern, forms.scaled(form, sign) if pattern is last else form, bound)

        yield from _operands(core.args, atoms, _product, read, match)


def _product(*parts: Form) -> Form:
    return reduce(forms.times, parts)


def _select(core: Select, sign: int, atom: Node, match: Match) -> Iterator[Match]:
    _, cond, then, other = atom
    turned = conds.negation(cond), other, then
    for test, yes, no in ((cond, then, other), turned):
        for found in _cond(core.cond, test, match):
            for more in _form(core.then, forms.scaled(yes, sign), found):
                yield from _form(core.other, forms.scaled(no, sign), more)


def _operands(
    patterns: tuple[Expr, ...],
    found: Sequence[Node],
    join: Callable[..., Node],
    read: Callable[[Expr, Node, Match], Iterator[Match]],
    match: Match,
) -> Iterator[Match]:
    """Two patterns against two or more operands, the second taking all that are left."""
    left, right = patterns
    for place, one in enumerate(found):
        others = [*found[:place], *found[place + 1 :]]
        for bound in read(left, one, match):
            yield from read(right, others[0] if len(others) == 1 else join(*others), bound)
        if len(others) > 1:
            for bound in read(right, one, match):
                yield from read(left, join(*others), bound)


def _literal(pattern: Expr, value: int, match: Match) -> Iterator[Match]:
    if isinstance(pattern, Letter) and pattern not in match:
        yield {**match, pattern: forms.number(value)}
    elif evaluate_literal(pattern, _nothing, _literals(match)) == value:
        yield match


def _cond(pattern: Expr, cond: Node, match: Match) -> Iterator[Match]:
    """Ways to read a condition as ``pattern``."""
    if isinstance(pattern, Letter):
        if pattern not in match:
            yield {**match, pattern: cond}
        elif match[pattern] == cond:
            yield match
        return
    assert isinstance(pattern, Apply), f"no condition: {pattern}"
    if pattern.op is NOT:
        yield from _cond(pattern.args[0], conds.negation(cond), match)
    elif HEADS.get(pattern.op) != cond[0]:
        return
    elif pattern.op in (AND, OR):
        join = conds.both if pattern.op is AND else conds.either
        yield from _operands(pattern.args, cond[1], join, _cond, match)
    else:
        left, right = pattern.args
        form = forms.shifted(cond[1], 1) if pattern.op is LT else cond[1]
        yield from _form(right - left, form, match)
        if pattern.op is EQ:
            yield from _form(right - left, forms.scaled(form, -1), match)


def _holds(row: TermRow, match: Match, facts: Facts) -> bool:
    for condition in row.when:
        if isinstance(condition, Define):
            value = evaluate_literal(condition.value, _nothing, _literals(match))
            if value is None:
                return False
            match[condition.letter] = forms.number(value)
        elif is_literal(condition):
            if not evaluate_literal(condition, _nothing, _literals(match)):
                return False
        else:
            claim = instance(condition, match)
            if claim is None or not facts.holds(claim):
                return False
    return True


def _literals(match: Match) -> dict[Letter, int]:
    return {letter: node[1] for letter, node in match.items() if letter.kind == LITERAL}


def _nothing(_: Known) -> None:
    """No intervals here: conditions on terms are proved instead."""


def instance(pattern: Expr, match: Match) -> Node | None:
    """The normal form that ``pattern`` stands for; None where a letter is not bound."""
    match pattern:
        case Letter():
            return match.get(pattern)
        case Const(bool(value), _):
            return forms.TRUE if value else forms.FALSE
        case Const(value, _):
            return forms.number(value)
    parts = [instance(child, match) for child in pattern.children]
    if any(part is None for part in parts):
        return None
    name = "select" if isinstance(pattern, Select) else TREE_NAMES[pattern.op.name]  # type: ignore[attr-defined]
    return NORMAL[name](*parts)
