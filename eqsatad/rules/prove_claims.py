"""What a row says, as a claim about integers.

Every row becomes ``conditions`` and ``conclusions``: whatever the letters are, where all of the
conditions hold, so does each conclusion. ``low(y)`` is then any integer that is at most ``y``,
since that is all a row may use. Divisors on the side that is matched are positive by the
language; that those on the other side are, the row has to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eqsatad.rules.describe import spelled
from eqsatad.rules.rule import (
    AXIS,
    LITERAL,
    Condition,
    Define,
    DomainRow,
    IndexRow,
    IntervalRow,
    Letter,
    TermRow,
    extent,
)
from eqsatad.rules.wellformed import letters, well_formed
from eqsatad.terms.linear import expression, linear
from eqsatad.terms.nodes import TRUE, Apply, Const, Expr
from eqsatad.terms.ops import FLOORDIV, MOD
from eqsatad.terms.walk import postorder, substitute

CheckedRow = IndexRow | TermRow | IntervalRow | DomainRow


@dataclass(frozen=True)
class Conclusion:
    """``holds``, and in words what is wrong where it does not."""

    otherwise: str
    holds: Expr


@dataclass(frozen=True)
class Claim:
    """``conditions``, in order, imply every one of ``conclusions``.

    ``shown`` holds the expressions that a counterexample prints, with a label each.
    """

    name: str
    conditions: tuple[Condition, ...]
    conclusions: tuple[Conclusion, ...]
    shown: tuple[tuple[str, Expr], ...]

    @property
    def exprs(self) -> list[Expr]:
        """Every expression of the claim."""
        assumed = [c.value if isinstance(c, Define) else c for c in self.conditions]
        return [*assumed, *(conclusion.holds for conclusion in self.conclusions)]

    @property
    def letters(self) -> list[Letter]:
        """The letters that take values, literals first, in order of first use."""
        named = {c.letter for c in self.conditions if isinstance(c, Define)}
        found = [node for node in postorder(*self.exprs) if isinstance(node, Letter)]
        return sorted(
            (letter for letter in found if letter not in named),
            key=lambda letter: letter.kind != LITERAL,
        )


def claim(row: CheckedRow) -> Claim:
    """What ``row`` says; `RuleError` if it says nothing that could be matched or checked."""
    well_formed(row)
    return CLAIMS[type(row)](row)


def _index(row: IndexRow | TermRow) -> Claim:
    conditions = (*_positive(divisors(row.before)), *row.when)
    conclusions = [*_shown_positive(divisors(row.after))]
    if row.before.dtype == "bool":
        conclusions += [
            Conclusion("before holds and after does not", ~row.before | row.after),
            Conclusion("after holds and before does not", row.before | ~row.after),
        ]
    else:
        conclusions.append(Conclusion("before is not after", row.before.equal(row.after)))
    shown = (("before", row.before), ("after", row.after))
    return Claim(row.name, conditions, tuple(conclusions), shown)


def _interval(row: IntervalRow) -> Claim:
    in_range = [letter for letter in letters(row.pattern) if letter.kind == AXIS]
    conditions = (
        *_positive(divisors(row.pattern)),
        *(axis >= 0 for axis in in_range),
        *(axis < extent(axis) for axis in in_range),
        *row.when,
    )
    conclusions = (
        *_shown_positive(divisors(row.low, row.high)),
        Conclusion("the pattern is below its lower end", row.low <= row.pattern),
        Conclusion("the pattern is above its upper end", row.pattern <= row.high),
    )
    shown = (("pattern", row.pattern), ("low", row.low), ("high", row.high))
    return Claim(row.name, conditions, conclusions, shown)


def _domain(row: DomainRow) -> Claim:
    """Each old point has its new point, each new point is an old one, and no two are the same."""
    when = (*_positive(divisors(*row.guards)), *row.when)
    shown = (
        ("axis", row.axis),
        ("value", row.value),
        *((f"guard {number}", guard) for number, guard in enumerate(row.guards, 1)),
        *((f"leaf {number}", leaf) for number, leaf in enumerate(row.leaves or (), 1)),
    )
    conclusions = list(_shown_positive(divisors(row.value, *(row.leaves or ()))))
    if row.value is row.axis:
        conclusions += _replaced_guards(row)
        return Claim(row.name, when, tuple(conclusions), shown)
    conclusions += [*_to_old(row), *_to_new(row)]
    if row.fresh:
        axis, size = row.fresh
        conclusions += [*_shown_positive(divisors(size)), *_apart(row, axis)]
        when = (*when, axis >= 0)
    return Claim(row.name, when, tuple(conclusions), shown)


def _replaced_guards(row: DomainRow) -> Iterator[Conclusion]:
    """A row that keeps its axis trades guards for equivalent ones."""
    before, after = conjoined(row.guards), conjoined(row.leaves or ())
    yield Conclusion("the guards hold and the leaves do not", ~before | after)
    yield Conclusion("the leaves hold and the guards do not", before | ~after)


def _to_old(row: DomainRow) -> Iterator[Conclusion]:
    """A point of the new domain is a point of the old one."""
    if row.leaves is None:
        return  # The guards themselves stay, over the value.
    size = () if row.fresh is None else (row.fresh[0] < row.fresh[1],)
    new = conjoined((*row.leaves, *_in_range(row, row.value), *size))
    for guard in row.guards:
        held = substitute(guard, {row.axis: row.value})
        yield Conclusion("a new point breaks a guard", ~new | held)


def _to_new(row: DomainRow) -> Iterator[Conclusion]:
    """A point of the old domain is the value at one point of the new one."""
    old = conjoined((*row.guards, *_in_range(row, row.axis)))
    witness = _witness(row)
    value = _at(row, row.value, witness)
    yield Conclusion("no new point gives this value of the axis", ~old | value.equal(row.axis))
    for leaf in row.leaves or ():
        yield Conclusion("a leaf excludes an old point", ~old | _at(row, leaf, witness))
    if row.fresh:
        inside = (witness >= 0) & (witness < row.fresh[1])
        yield Conclusion("the new axis is too short for an old point", ~old | inside)


def _apart(row: DomainRow, axis: Letter) -> Iterator[Conclusion]:
    """Different new points give different values: the value moves in equal steps, not of 0."""
    start = _at(row, row.value, Const(0, "index"))
    step = _step(row)
    yield Conclusion(
        f"the value does not move in equal steps with {axis.name}",
        row.value.equal(start + step * axis),
    )
    yield Conclusion(f"the value does not move with {axis.name}", step.differs(0))


def _in_range(row: DomainRow, value: Expr) -> tuple[Expr, Expr]:
    return value >= 0, value < extent(row.axis)


def _at(row: DomainRow, expr: Expr, value: Expr) -> Expr:
    return substitute(expr, {row.fresh[0]: value}) if row.fresh else expr


def _step(row: DomainRow) -> Expr:
    """How far the value moves when the new axis moves from 0 to 1."""
    zero, one = Const(0, "index"), Const(1, "index")
    moved = linear(_at(row, row.value, one)) - linear(_at(row, row.value, zero))
    return expression(moved)


def _witness(row: DomainRow) -> Expr:
    """Where on the new axis the value is the old axis, if it is anywhere: it moves in steps."""
    if row.fresh is None:
        return Const(0, "index")
    distance = row.axis - _at(row, row.value, Const(0, "index"))
    step = _step(row)
    if step is Const(1, "index"):
        return distance
    return -distance if step is Const(-1, "index") else distance // step


def conjoined(conds: Sequence[Expr]) -> Expr:
    """All of ``conds`` at once."""
    result: Expr = TRUE
    for cond in conds:
        result = cond if result is TRUE else result & cond
    return result


def divisors(*exprs: Expr) -> list[Expr]:
    """What is divided by in ``exprs``, less literal numbers above 0."""
    found = [
        node.args[1]
        for node in postorder(*exprs)
        if isinstance(node, Apply) and node.op in (FLOORDIV, MOD)
    ]
    return [d for d in dict.fromkeys(found) if not (isinstance(d, Const) and d.value > 0)]


def _positive(found: Iterable[Expr]) -> list[Expr]:
    return [divisor > 0 for divisor in found]


def _shown_positive(found: Iterable[Expr]) -> list[Conclusion]:
    return [Conclusion(f"it divides by {spelled(d)}, which is not above 0", d > 0) for d in found]


CLAIMS: dict[type[Any], Callable[[Any], Claim]] = {
    IndexRow: _index,
    TermRow: _index,
    IntervalRow: _interval,
    DomainRow: _domain,
}
