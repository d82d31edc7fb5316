"""Interval rows at work: the range of a linear form, from the catalog's interval rows.

An analysis, not a search: every row that matches narrows the interval, and what a row needs to
know about a smaller form is asked the same way. Opaque atoms (sizes, reads, minima) get their
range from `terms.ranges`. Results are kept per form, since a form determines its axes' ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eqsatad.rules.literals import evaluate_literal
from eqsatad.rules.rule import AXIS, LITERAL, Condition, Define, IntervalRow, Known, Letter
from eqsatad.terms.linear import Linear, atom, linear
from eqsatad.terms.nodes import Apply, Axis, Const, Expr
from eqsatad.terms.ops import ADD, FLOORDIV, MUL
from eqsatad.terms.ranges import interval as opaque_interval

Interval = tuple[int | None, int | None]
Match = dict[Letter, Linear | int]


class Bounds:
    """The interval analysis of one catalog."""

    def __init__(self, rows: Sequence[IntervalRow]) -> None:
        self._rows = tuple(rows)
        self._known: dict[Linear, Interval] = {}

    def of(self, form: Linear) -> Interval:
        """The least and the greatest value of ``form``; None is an end that is not known."""
        if not form.terms:
            return form.const, form.const
        if (found := self._known.get(form)) is not None:
            return found
        # What is asked again on the way (`1*x` asks for `x`) adds nothing to its own interval.
        self._known[form] = None, None
        self._known[form] = found = self._narrowed(form)
        return found

    def _narrowed(self, form: Linear) -> Interval:
        lowest, highest = self._opaque(form)
        for row in self._rows:
            for match in _matches(row.pattern, form):
                if all(self._holds(condition, match) for condition in row.when):
                    lowest = _tighter(lowest, self._value(row.low, match), max)
                    highest = _tighter(highest, self._value(row.high, match), min)
        return lowest, highest

    def _opaque(self, form: Linear) -> Interval:
        """The interval of ``1 * atom`` where no row speaks of the atom."""
        (coef, node), *others = form.terms
        if coef != 1 or others or form.const or _is_quotient(node) or isinstance(node, Axis):
            return None, None
        return opaque_interval(node)

    def _holds(self, condition: Condition, match: Match) -> bool:
        if isinstance(condition, Define):
            value = self._value(condition.value, match)
            if value is not None:
                match[condition.letter] = value
            return value is not None
        return bool(evaluate_literal(condition, lambda known: self._known_value(known, match), match))

    def _value(self, expr: Expr, match: Match) -> int | None:
        return evaluate_literal(expr, lambda known: self._known_value(known, match), match)

    def _known_value(self, known: Known, match: Match) -> int | None:
        form = instantiate(known.args[0], match)
        if form is None:
            return None
        lowest, highest = self.of(form)
        return lowest if known.function == "low" else highest


def _tighter(old: int | None, new: int | None, choose: object) -> int | None:
    if old is None or new is None:
        return new if old is None else old
    return choose(old, new)  # type: ignore[no-any-return, operator]


def instantiate(pattern: Expr, match: Match) -> Linear | None:
    """The form that ``pattern`` stands for under ``match``; None if an extent is not there."""
    match pattern:
        case Letter():
            value = match[pattern]
            return Linear(value, ()) if isinstance(value, int) else value
        case Const(value, _):
            return Linear(value, ())
        case Known("extent", (axis,)):
            (_, node), = match[axis].terms  # type: ignore[index, union-attr]
            return linear(node.extent)
    parts = [instantiate(child, match) for child in pattern.children]
    if None in parts or not isinstance(pattern, Apply):
        return None
    left, *rest = parts
    if pattern.op.name == "neg":
        return left.scaled(-1)  # type: ignore[union-attr]
    right = rest[0]
    if pattern.op is MUL:
        return right.scaled(left.const) if not left.terms else left.scaled(right.const)  # type: ignore[union-attr]
    if pattern.op is FLOORDIV:
        return Linear(left.const // right.const, ())  # type: ignore[union-attr]
    return left + right if pattern.op is ADD else left - right  # type: ignore[operator]


def _matches(pattern: Expr, form: Linear) -> Iterator[Match]:
    """Every way in which ``form`` is an instance of ``pattern``.

    A scaled letter ``c*x`` takes the first term only: taking the others too gives no tighter
    interval, since intervals of sums do not depend on the order.
    """
    yield from _match_addends(tuple(addends(pattern)), form, {})


def addends(pattern: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The summands of a pattern as (coefficient, core), structured cores first."""
    parts = list(_addends(pattern))
    return iter(sorted(parts, key=lambda part: _plainness(*part)))


def _plainness(coef: Expr, core: Expr) -> int:
    if isinstance(core, Apply):
        return 0
    if isinstance(core, Letter) and core.kind == AXIS:
        return 1
    if isinstance(core, Letter) and core.kind != LITERAL and not _is_one(coef):
        return 2
    return 3


def _is_one(coef: Expr) -> bool:
    return isinstance(coef, Const) and coef.value == 1


def _addends(pattern: Expr) -> Iterator[tuple[Expr, Expr]]:
    one = Const(1, "index")
    match pattern:
        case Apply(op, (left, right)) if op is ADD:
            yield from _addends(left)
            yield from _addends(right)
        case Apply(op, (left, right)) if op.name == "sub":
            yield from _addends(left)
            for coef, core in _addends(right):
                minus = Const(-coef.value, "index") if isinstance(coef, Const) else -coef
                yield minus, core
        case Apply(op, (core,)) if op.name == "neg":
            yield Const(-1, "index"), core
        case Apply(op, (coef, core)) if op is MUL and is_literal(coef) and not is_literal(core):
            yield coef, core
        case _:
            yield one, pattern


def is_literal(expr: Expr) -> bool:
    """Whether ``expr`` stands for an integer literal."""
    if isinstance(expr, Letter):
        return expr.kind == LITERAL
    if isinstance(expr, Known | Const):
        return True
    return bool(expr.children) and all(is_literal(child) for child in expr.children)


def _match_addends(parts: tuple[tuple[Expr, Expr], ...], form: Linear, match: Match) -> Iterator[Match]:
    if not parts:
        if not form.terms and not form.const:
            yield match
        return
    (coef, core), *rest = parts
    if not rest and isinstance(core, Letter) and core.kind != AXIS and _is_one(coef):
        if core.kind != LITERAL or not form.terms:
            yield {**match, core: form if core.kind != LITERAL else form.const}
        return
    for factor, node in form.terms:
        for found in _match_term(coef, core, factor, node, match):
            yield from _match_addends(tuple(rest), form.without(node), found)
        if isinstance(core, Letter) and core.kind not in (AXIS, LITERAL):
            return


def _match_term(coef: Expr, core: Expr, factor: int, node: Expr, match: Match) -> Iterator[Match]:
    for found in _bind_literal(coef, factor, match):
        match core:
            case Letter(_, kind) if kind == AXIS:
                if isinstance(node, Axis):
                    yield {**found, core: atom(node)}
            case Letter():
                yield {**found, core: atom(node)}
            case Apply(op, (inner, divisor)) if op is FLOORDIV and _is_quotient(node):
                dividend, modulus = node.children
                assert isinstance(modulus, Const)
                for bound in _bind_term(inner, linear(dividend), found):
                    yield from _bind_literal(divisor, modulus.value, bound)


def _bind_term(pattern: Expr, form: Linear, match: Match) -> Iterator[Match]:
    if isinstance(pattern, Letter) and pattern in match:
        if match[pattern] == form:
            yield match
        return
    yield from _match_addends(tuple(addends(pattern)), form, match)


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


def _is_quotient(node: Expr) -> bool:
    return isinstance(node, Apply) and node.op is FLOORDIV and isinstance(node.args[1], Const)
