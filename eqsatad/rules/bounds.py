"""Interval rows at work: the range of a linear form, from the catalog's interval rows.

An analysis, not a search: every row that matches narrows the interval, and what a row needs to
know about a smaller form is asked the same way. A row is matched with the *leading* term of a
form, quotients before axes before the rest, so that each quotient is either kept whole or opened
once, and no order of the others is tried. Opaque atoms (sizes, reads, minima) get their range
from `terms.ranges`. Ends are kept per form, since a form determines the ranges of its axes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eqsatad.errors import RuleError
from eqsatad.rules.describe import spelled
from eqsatad.rules.literals import evaluate_literal
from eqsatad.rules.rule import AXIS, LITERAL, Condition, Define, IntervalRow, Known, Letter
from eqsatad.rules.work import Work
from eqsatad.terms.linear import Linear, atom, expression, linear
from eqsatad.terms.nodes import Apply, Axis, Const, Expr
from eqsatad.terms.ops import ADD, FLOORDIV, MUL, NEG, SUB
from eqsatad.terms.ranges import interval as opaque_interval
from eqsatad.terms.walk import fold

LOW, HIGH = "low", "high"
TIGHTER: dict[str, Callable[[int, int], int]] = {LOW: max, HIGH: min}
Interval = tuple[int | None, int | None]
Match = dict[Letter, Linear | int]
Addend = tuple[Expr, Expr]
"""A coefficient and what it multiplies."""


class Bounds:
    """The interval analysis of one catalog."""

    def __init__(self, rows: Sequence[IntervalRow]) -> None:
        self._rows = [(row, shape(row.pattern)) for row in rows]
        # By name: forms that a row spoke of, and ends that it narrowed.
        self.matches: Counter[str] = Counter()
        self.narrowed: Counter[str] = Counter()
        self._matches: dict[Linear, list[tuple[IntervalRow, Match]]] = {}
        self._known: dict[tuple[str, Linear], int | None] = {}
        self._asked: set[tuple[str, Linear]] = set()
        self._cut: set[tuple[str, Linear]] = set()

    def of(self, form: Linear) -> Interval:
        """The least and the greatest value of ``form``; None is an end that is not known."""
        return self.end(form, LOW), self.end(form, HIGH)

    def end(self, form: Linear, side: str) -> int | None:
        """The least value of ``form`` if ``side`` is `LOW`, the greatest if it is `HIGH`."""
        if not form.terms:
            return form.const
        found = self._end((side, Linear(0, form.terms)))
        return None if found is None else found + form.const

    def work(self) -> dict[str, Work]:
        """What each row did; its time is that of looking at every form once more.

        All that it asks is known by then, so the time is its own.
        """
        found = {
            row.name: Work(self.matches[row.name], self.narrowed[row.name]) for row, _ in self._rows
        }
        for form in list(self._matches):
            for row, pattern in self._rows:
                start = time.perf_counter()
                for match in self._read(row, pattern, form):
                    self._value(row.low, match)
                    self._value(row.high, match)
                found[row.name].seconds += time.perf_counter() - start
        return found

    def _end(self, question: tuple[str, Linear]) -> int | None:
        if question in self._known:
            return self._known[question]
        if question in self._asked:
            # What is asked again on the way (`1*x` asks for `x`) adds nothing to its own end.
            self._cut.add(question)
            return None
        self._asked.add(question)
        found = self._narrowed(*question)
        self._asked.discard(question)
        self._cut.discard(question)
        # An end that lacks what is still being asked would depend on the order of questions.
        if not self._cut:
            self._known[question] = found
        return found

    def _narrowed(self, side: str, form: Linear) -> int | None:
        best = self._opaque(side, form)
        for row, match in self._matching(form):
            value = self._value(row.low if side == LOW else row.high, match)
            if value is not None:
                closer = value if best is None else TIGHTER[side](best, value)
                self.narrowed[row.name] += closer != best
                best = closer
        return best

    def _matching(self, form: Linear) -> list[tuple[IntervalRow, Match]]:
        """The rows that speak of ``form``, with what their letters stand for."""
        if (known := self._matches.get(form)) is not None:
            return known
        found = [
            (row, match) for row, pattern in self._rows for match in self._read(row, pattern, form)
        ]
        self.matches.update(row.name for row, _ in found)
        if not self._cut:
            self._matches[form] = found
        return found

    def _read(self, row: IntervalRow, pattern: Shape, form: Linear) -> Iterator[Match]:
        """What the letters of ``row`` stand for where it speaks of ``form``."""
        for match in leading_matches(pattern, form):
            if all(self._holds(condition, match) for condition in row.when):
                yield match

    def _opaque(self, side: str, form: Linear) -> int | None:
        """An end of ``1 * atom`` where no row speaks of the atom."""
        (coef, node), *others = form.terms
        if coef != 1 or others or is_quotient(node) or isinstance(node, Axis):
            return None
        lowest, highest = opaque_interval(node)
        return lowest if side == LOW else highest

    def _holds(self, condition: Condition, match: Match) -> bool:
        if not isinstance(condition, Define):
            return bool(self._value(condition, match))
        value = self._value(condition.value, match)
        if value is not None:
            match[condition.letter] = value
        return value is not None

    def _value(self, expr: Expr, match: Match) -> int | None:
        def known(node: Known) -> int | None:
            if node.function not in TIGHTER:
                form = instantiate(node, match)
                return form.const if form is not None and not form.terms else None
            form = instantiate(node.args[0], match)
            return None if form is None else self.end(form, node.function)

        found: int | None = evaluate_literal(expr, known, match)
        return found


def instantiate(pattern: Expr, match: Mapping[Letter, Linear | int]) -> Linear | None:
    """The form that ``pattern`` stands for under ``match``; None if it is no linear form."""
    match pattern:
        case Letter():
            value = match[pattern]
            return Linear(value, ()) if isinstance(value, int) else value
        case Const(value, _):
            return Linear(value, ())
        case Known("extent", (Letter() as axis,)):
            form = match[axis]
            assert isinstance(form, Linear), "an axis letter stands for an axis"
            return extent_of(form)
        case Apply(op, args) if op in FORM_OPERATIONS:
            parts = [instantiate(arg, match) for arg in args]
            known = [part for part in parts if part is not None]
            return FORM_OPERATIONS[op](*known) if len(known) == len(parts) else None
    return None


def extent_of(axis: Linear) -> Linear:
    """The form of the extent of the axis that ``axis`` spells."""
    ((_, node),) = axis.terms
    assert isinstance(node, Axis)
    return linear(node.extent)


def _product(left: Linear, right: Linear) -> Linear | None:
    if left.terms and right.terms:
        return None
    return left.scaled(right.const) if left.terms else right.scaled(left.const)


def _floor(left: Linear, right: Linear) -> Linear | None:
    if right.terms or right.const <= 0:
        return None
    return linear(expression(left) // right.const)


FORM_OPERATIONS: dict[object, Callable[..., Linear | None]] = {
    ADD: lambda left, right: left + right,
    SUB: lambda left, right: left - right,
    NEG: lambda inner: inner.scaled(-1),
    MUL: _product,
    FLOORDIV: _floor,
}


@dataclass(frozen=True)
class Shape:
    """A pattern as a sum: addends that match one term each, and what takes the rest."""

    parts: tuple[Addend, ...]
    rest: Expr | None


@lru_cache(maxsize=4096)
def shape(pattern: Expr) -> Shape:
    """How ``pattern`` is matched; `RuleError` if more than one letter could take the rest."""
    addends = list(_addends(pattern))
    rest = [core for coef, core in addends if _takes_rest(coef, core)]
    if len(rest) > 1:
        names = " and ".join(spelled(core) for core in rest)
        raise RuleError(
            f"in {spelled(pattern)} it is open what {names} are. One letter takes the rest of a "
            "sum; the others need a coefficient, or have to be axes."
        )
    parts = [addend for addend in addends if not _takes_rest(*addend)]
    # Quotients first: they name literals that coefficients are then compared with.
    order = sorted(parts, key=lambda addend: (isinstance(addend[1], Letter), not _is_axis(addend)))
    return Shape(tuple(order), rest[0] if rest else None)


def _is_axis(addend: Addend) -> bool:
    _, core = addend
    return isinstance(core, Letter) and core.kind == AXIS


def _takes_rest(coef: Expr, core: Expr) -> bool:
    """Whether an addend matches whatever the others leave."""
    if isinstance(core, Letter) and core.kind not in (AXIS, LITERAL):
        return isinstance(coef, Const) and coef.value == 1
    return is_literal(core)


def _addends(pattern: Expr) -> Iterator[Addend]:
    match pattern:
        case Apply(op, (left, right)) if op is ADD:
            yield from _addends(left)
            yield from _addends(right)
        case Apply(op, (left, right)) if op is SUB:
            yield from _addends(left)
            yield from map(_negated, _addends(right))
        case Apply(op, (inner,)) if op is NEG:
            yield from map(_negated, _addends(inner))
        case Apply(op, (coef, core)) if op is MUL and is_literal(coef) and not is_literal(core):
            yield coef, core
        case _:
            yield Const(1, "index"), pattern


def _negated(addend: Addend) -> Addend:
    coef, core = addend
    return (Const(-coef.value, "index") if isinstance(coef, Const) else -coef), core


def is_literal(expr: Expr) -> bool:
    """Whether ``expr`` stands for an integer literal."""

    def visit(node: Expr, parts: tuple[bool, ...]) -> bool:
        if isinstance(node, Letter):
            return node.kind == LITERAL
        return isinstance(node, Known | Const) or (bool(parts) and all(parts))

    return fold(expr, visit)


def is_quotient(node: Expr) -> bool:
    """Whether ``node`` is a floor quotient by a literal."""
    return isinstance(node, Apply) and node.op is FLOORDIV and isinstance(node.args[1], Const)


@lru_cache(maxsize=65536)
def depth(node: Expr) -> int:
    """How deep quotients by literals are nested in ``node``."""
    return fold(node, lambda part, below: max(below, default=0) + is_quotient(part))


def leading(form: Linear) -> Expr:
    """The atom that rows look at: the deepest quotient, else an axis, else any."""
    return min(
        (node for _, node in form.terms),
        key=lambda node: (-depth(node) if is_quotient(node) else 0, not isinstance(node, Axis)),
    )


def leading_matches(pattern: Shape, form: Linear) -> Iterator[Match]:
    """The ways in which ``form`` is ``pattern`` with its leading term taken by a part."""
    lead = leading(form)
    for match, left in _taken(pattern.parts, form, lead, {}):
        if not left.coefficient(lead):
            yield from _rest(pattern.rest, left, match)


def _rest(core: Expr | None, form: Linear, match: Match) -> Iterator[Match]:
    """``match`` with what the parts of a pattern leave."""
    if core is None:
        if not form.terms and not form.const:
            yield match
    elif isinstance(core, Letter) and core.kind != LITERAL:
        if core not in match or match[core] == form:
            yield {**match, core: form}
    elif not form.terms:
        yield from _bind_literal(core, form.const, match)


def _taken(
    parts: Sequence[Addend], form: Linear, lead: Expr | None, match: Match
) -> Iterator[tuple[Match, Linear]]:
    """Matches of ``parts`` with terms of ``form``, each with what is left of it.

    Where ``lead`` is still there for the last part, it is the one that part has to take.
    """
    if not parts:
        yield match, form
        return
    (coef, core), *others = parts
    due = lead is not None and not others and bool(form.coefficient(lead))
    for factor, node in form.terms:
        if due and node is not lead:
            continue
        for found in _match_term(coef, core, factor, node, match):
            yield from _taken(others, form.without(node), lead, found)


def _match_term(coef: Expr, core: Expr, factor: int, node: Expr, match: Match) -> Iterator[Match]:
    for found in _bind_literal(coef, factor, match):
        match core:
            case Letter(_, kind):
                form = atom(node)
                if (kind != AXIS or isinstance(node, Axis)) and found.get(core, form) == form:
                    yield {**found, core: form}
            case Apply(op, (inner, divisor)) if op is FLOORDIV and is_quotient(node):
                dividend, modulus = node.children
                assert isinstance(modulus, Const)
                for bound in _bind_term(inner, linear(dividend), found):
                    yield from _bind_literal(divisor, modulus.value, bound)


def _bind_term(pattern: Expr, form: Linear, match: Match) -> Iterator[Match]:
    inner = shape(pattern)
    for found, left in _taken(inner.parts, form, None, match):
        yield from _rest(inner.rest, left, found)


def _bind_literal(pattern: Expr, value: int, match: Match) -> Iterator[Match]:
    """Ways to read ``value`` as the literal ``pattern``; one unknown letter is solved for."""
    match pattern:
        case Letter() if pattern not in match:
            yield {**match, pattern: value}
        case Apply(op, (left, right)) if op is MUL and isinstance(left, Letter) and left in match:
            known = match[left]
            assert isinstance(known, int)
            if known and value % known == 0:
                yield from _bind_literal(right, value // known, match)
        case _:
            if evaluate_literal(pattern, lambda _: None, match) == value:
                yield match
