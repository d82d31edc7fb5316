"""Whether rows reach what another row says, each kind in the engine that runs it.

A row is tried on instances: its letters become axes, sums over them, sizes and numbers, or the
leaves of a value. It is *reached* where the other rows alone do on every instance what all rows do.
That is evidence and no proof, and enough to ask whether the row is worth having. Of the rows of the
simplifier nothing is said: it proves what it proposes, so that it needs no row for a small term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import Any

from numpy.random import default_rng

from eqsatad.rules.bounds import Bounds, is_quotient
from eqsatad.rules.catalog import AnyRow
from eqsatad.rules.compile import guard_parts
from eqsatad.rules.domain import Domain
from eqsatad.rules.domains import Domains
from eqsatad.rules.indices import ATLEAST, ZERO, Guard, Indices
from eqsatad.rules.literals import evaluate_literal
from eqsatad.rules.prove_claims import divisors
from eqsatad.rules.reached_values import Reached, united
from eqsatad.rules.rule import (
    AXIS,
    LITERAL,
    Define,
    DomainRow,
    IndexRow,
    IntervalRow,
    Known,
    Letter,
    Row,
    TermRow,
)
from eqsatad.rules.value_rule import ValueRule
from eqsatad.rules.wellformed import letters
from eqsatad.terms.linear import expression, linear
from eqsatad.terms.nodes import Axis, Const, Expr, Size
from eqsatad.terms.walk import postorder, substitute

INSTANCES = {IndexRow: 12, IntervalRow: 400, DomainRow: 16}
DRAWS = 8_000
"""Instances of a row that are tried, and how many are drawn to find them."""

FEWEST = 3
"""With fewer instances than these nothing is said of a row."""

NUMBERS = (1, 2, 3, 4, 6, 12, -1, -2, -3)
EXTENTS = tuple(Const(size, "index") for size in (2, 5, 7))
N = Size("n")

Instance = dict[Expr, Expr]


def reached(row: AnyRow, others: Sequence[AnyRow]) -> Reached | None:
    """How ``others`` reach what ``row`` says, with the rows as far as they are known; else None."""
    if isinstance(row, TermRow):
        return None
    rest = [other for other in others if other is not row]
    if isinstance(row, ValueRule):
        return united(row, [other for other in rest if isinstance(other, ValueRule)])
    own = [other for other in others if isinstance(other, Row)]
    less = [other for other in rest if isinstance(other, Row)]
    results = [SAME[type(row)](row, instance, own, less) for instance in instances(row, own)]
    decided = [result for result in results if result is not None]
    return Reached() if len(decided) >= FEWEST and all(decided) else None


def instances(row: Row, rows: Sequence[Row]) -> Iterator[Instance]:
    """Instances of the letters of ``row`` that meet its conditions, the same in every run."""
    drawn = (_drawn(row, seed) for seed in range(DRAWS))
    ranges = _ranges(tuple(rows))
    met = (found for instance in drawn if (found := _met(row, instance, ranges)) is not None)
    return islice(met, INSTANCES[type(row)])


def _drawn(row: Row, seed: int) -> Instance:
    rng = default_rng(seed)
    named = {condition.letter for condition in row.when if isinstance(condition, Define)}
    found = dict.fromkeys(node for expr in _matched(row) for node in letters(expr))
    return {letter: _meaning(letter, row, rng) for letter in found if letter not in named}


def _matched(row: Row) -> tuple[Expr, ...]:
    """The side of ``row`` that is matched."""
    if isinstance(row, DomainRow):
        return row.guards
    assert isinstance(row, IndexRow | IntervalRow), "these are all the kinds"
    return (row.pattern if isinstance(row, IntervalRow) else row.before,)


def _meaning(letter: Letter, row: Row, rng: Any) -> Expr:
    """What a letter stands for in one instance."""
    if letter.kind == LITERAL:
        return Const(int(rng.choice(NUMBERS)), "index")
    if letter.kind == AXIS:
        extents = (*EXTENTS, Const(12, "index"), N)
        return Axis(letter.name, extents[int(rng.integers(len(extents)))])
    # Intervals are about terms that have axes in common.
    terms = _terms("" if isinstance(row, IntervalRow) else f"_{letter.name}")
    return terms[int(rng.integers(len(terms)))]


@cache
def _terms(suffix: str) -> tuple[Expr, ...]:
    """What a letter for a term may stand for."""
    one, two, three = (Axis(f"i{n}{suffix}", size) for n, size in enumerate(EXTENTS))
    long = Axis(f"j{suffix}", N)
    moved = (one - 2, two - 5, three + 1, two + 12, 3 * two, -three, -3 * two, 6 * three + two)
    return (one, two, three, *moved, N - 1, N - 1 - long)


def _met(row: Row, instance: Instance, ranges: Bounds) -> Instance | None:
    """``instance`` with the integers that conditions name, where all conditions hold."""

    def known(node: Known) -> int | None:
        return ranges.end(linear(substitute(node.args[0], instance)), node.function)

    instance = dict(instance)
    for condition in (*(d > 0 for d in divisors(*_matched(row))), *row.when):
        values = {
            letter: value.value for letter, value in instance.items() if isinstance(value, Const)
        }
        value = condition.value if isinstance(condition, Define) else condition
        found = evaluate_literal(value, known, values)
        if found is None or found is False:
            return None
        if isinstance(condition, Define):
            instance[condition.letter] = Const(found, "index")
    return instance


@lru_cache(maxsize=4)
def _ranges(rows: tuple[Row, ...]) -> Bounds:
    return Bounds([row for row in rows if isinstance(row, IntervalRow)])


@lru_cache(maxsize=4)
def _indices(rows: tuple[Row, ...]) -> Indices:
    return Indices(rows)


def _same_index(
    row: IndexRow, instance: Instance, rows: Sequence[Row], less: Sequence[Row]
) -> bool | None:
    """Whether both sides come to the same without the row; None where they are the same anyway."""
    before, after = (substitute(side, instance) for side in (row.before, row.after))
    if row.before.dtype == "bool":
        return _guards(before, less) == _guards(after, less)
    if linear(before) == linear(after):
        return None
    left, right = _indices(tuple(less)).forms([linear(before), linear(after)])
    return left == right


def _guards(cond: Expr, rows: Sequence[Row]) -> list[Guard] | None:
    if isinstance(cond, Const):
        return [] if cond.value else None
    return _indices(tuple(rows)).guards([_guard(cond)])


def _guard(cond: Expr) -> Guard:
    kind, form = guard_parts(cond)
    return ZERO if kind == "zero" else ATLEAST, linear(form)


def _same_interval(
    row: IntervalRow, instance: Instance, rows: Sequence[Row], less: Sequence[Row]
) -> bool:
    form = linear(substitute(row.pattern, instance))
    return _ranges(tuple(rows)).of(form) == _ranges(tuple(less)).of(form)


def _same_domain(
    row: DomainRow, instance: Instance, rows: Sequence[Row], less: Sequence[Row]
) -> bool | None:
    axis = instance[row.axis]
    assert isinstance(axis, Axis), "the axis of a row stands for an axis"
    domain = Domain((axis,), tuple(_guard(substitute(g, instance)) for g in row.guards))
    none, best, other = (_best(domain, some) for some in ((), rows, less))
    return None if best == none else other <= best


def _best(domain: Domain, rows: Sequence[Row]) -> tuple[int, int, int]:
    """The points of the best candidate, its quotients and its guards."""
    names = {node.name for _, form in domain.guards for node in form.free}
    found = Domains(_indices(tuple(rows))).solve(domain, names)
    if found is None:
        return 0, 0, 0
    inside = [node for _, form in found.guards for node in postorder(expression(form))]
    return found.volume, sum(map(is_quotient, inside)), len(found.guards)


SAME: dict[type[Any], Callable[[Any, Instance, Sequence[Row], Sequence[Row]], bool | None]] = {
    IndexRow: _same_index,
    IntervalRow: _same_interval,
    DomainRow: _same_domain,
}
"""Whether an instance comes out alike without the row; None where it says nothing."""
