"""Rows that could not be run are refused, with their name: patterns, letters and kinds.

What the view of linear forms does not hold can never be matched, so a pattern that asks for it is
an error and not a row that never fires. Whether a row is *right* is for `rules.prove` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from eqsatad.errors import RuleError
from eqsatad.rules.bounds import is_literal, shape
from eqsatad.rules.compile import ENDS, compile_domain, compile_index, guard_parts
from eqsatad.rules.describe import spelled
from eqsatad.rules.index_match import head
from eqsatad.rules.rule import (
    AXIS,
    LITERAL,
    TERM,
    Condition,
    Define,
    DomainRow,
    IndexRow,
    IntervalRow,
    Known,
    Letter,
    Row,
    TermRow,
)
from eqsatad.terms.nodes import Apply, Const, Expr
from eqsatad.terms.ops import ADD, FLOORDIV, MOD
from eqsatad.terms.walk import postorder, substitute


@dataclass(frozen=True)
class Parts:
    """The sums that a row matches and the expressions it makes of what they match."""

    patterns: tuple[Expr, ...]
    results: tuple[Expr, ...]


def well_formed(row: Row) -> None:
    """Raises `RuleError`, with what to do, for a row that could not be run."""
    parts = PARTS[type(row)](row)
    bound = {letter for pattern in parts.patterns for letter in letters(pattern)}
    for condition in row.when:
        _bound(row.name, condition, bound)
        _knowable(row, condition)
        if isinstance(condition, Define):
            _names_integer(row.name, condition, bound)
            bound.add(condition.letter)
    for result in parts.results:
        _bound(row.name, result, bound)
        _knowable(row, result)
    for pattern in parts.patterns if not isinstance(row, TermRow) else ():
        for part in sums(pattern):
            _matchable(row, part)
    if compiled := COMPILED.get(type(row)):
        compiled(row)


def letters(expr: Expr) -> list[Letter]:
    """The letters in ``expr``, in order of first use."""
    return [node for node in postorder(expr) if isinstance(node, Letter)]


def sums(pattern: Expr) -> Iterator[Expr]:
    """``pattern`` and what it divides: each is matched as a sum."""
    yield pattern
    for node in postorder(pattern):
        if isinstance(node, Apply) and node.op in (FLOORDIV, MOD):
            yield node.args[0]


def _index(row: IndexRow) -> Parts:
    if row.before.dtype != row.after.dtype:
        raise RuleError(
            f"rule {row.name}: {spelled(row.before)} is {KINDS[row.before.dtype]} and "
            f"{spelled(row.after)} is {KINDS[row.after.dtype]}. Both sides are of one kind."
        )
    before = _compared(row, row.before) if row.before.dtype == "bool" else row.before
    if row.before.dtype == "index" and not (
        isinstance(before, Apply) and before.op is FLOORDIV and is_literal(before.args[1])
    ):
        raise RuleError(
            f"rule {row.name}: {spelled(before)} is no question that is asked. The left side is "
            "a quotient by a literal, or a comparison."
        )
    return Parts((before,), (row.after,))


def _term(row: TermRow) -> Parts:
    """Both sides of a row of the simplifier; it is matched on normal forms, not on the view."""
    if row.before.dtype != row.after.dtype:
        raise RuleError(
            f"rule {row.name}: {spelled(row.before)} is {KINDS[row.before.dtype]} and "
            f"{spelled(row.after)} is {KINDS[row.after.dtype]}. Both sides are of one kind."
        )
    head(row)
    return Parts((row.before,), (row.after,))


KINDS = {"bool": "a condition", "index": "an index"}


def _interval(row: IntervalRow) -> Parts:
    return Parts((row.pattern,), (row.low, row.high))


def _domain(row: DomainRow) -> Parts:
    if len(row.guards) not in (1, 2):
        raise RuleError(
            f"rule {row.name}: it matches {len(row.guards)} guards. Write a row for one or two."
        )
    for guard in row.guards:
        if row.axis not in letters(guard):
            raise RuleError(
                f"rule {row.name}: axis {row.axis.name} is not in the guard {spelled(guard)}. "
                "Every guard of a row is about its axis."
            )
    results = (row.value, *(row.leaves or ()))
    if row.fresh is not None:
        new: dict[Expr, Expr] = {row.fresh[0]: Const(0, "index")}
        results = (row.fresh[1], *(substitute(result, new) for result in results))
    return Parts(tuple(_compared(row, guard) for guard in row.guards), results)


def _compared(row: Row, guard: Expr) -> Expr:
    """What ``guard`` compares with 0."""
    try:
        return guard_parts(guard)[1]
    except RuleError as error:
        raise RuleError(f"rule {row.name}: {error}") from None


PARTS: dict[type[Any], Callable[[Any], Parts]] = {
    IndexRow: _index,
    TermRow: _term,
    IntervalRow: _interval,
    DomainRow: _domain,
}


COMPILED: dict[type[Any], Callable[[Any], object]] = {
    IndexRow: compile_index,
    DomainRow: compile_domain,
}


def _bound(name: str, part: Condition, bound: set[Letter]) -> None:
    value = part.value if isinstance(part, Define) else part
    free = [letter.name for letter in letters(value) if letter not in bound]
    if free:
        raise RuleError(
            f"rule {name}: letter {', '.join(free)} of {spelled(part)} is bound by nothing. "
            "Let it occur in the pattern, or name it with let(...) before it is used."
        )


KNOWABLE: dict[type[Any], tuple[str, ...]] = {
    IndexRow: ("low", "high"),
    DomainRow: ("low", "high", "extent", "gcd", "inverse"),
}
"""What the view holds for rows of a kind; other kinds work it out themselves."""


def _knowable(row: Row, part: Condition) -> None:
    """Raises for something that a row wants to know and the view never says."""
    allowed = KNOWABLE.get(type(row))
    value = part.value if isinstance(part, Define) else part
    for node in postorder(value) if allowed else ():
        if not isinstance(node, Known):
            continue
        if node.function not in (allowed or ()):
            raise RuleError(
                f"rule {row.name}: {spelled(node)} is not known here. Known are "
                f"{', '.join(allowed or ())}."
            )
        if node.function in ENDS and not _has_range(row, node.args[0]):
            raise RuleError(
                f"rule {row.name}: {spelled(node)} is not known. Ranges are known of letters, and "
                "in domain rows of the sum of what two guards leave."
            )


def _has_range(row: Row, expr: Expr) -> bool:
    if isinstance(expr, Letter):
        return expr.kind != LITERAL
    if not (isinstance(row, DomainRow) and isinstance(expr, Apply) and expr.op is ADD):
        return False
    return all(isinstance(part, Letter) and part.kind == TERM for part in expr.args)


def _names_integer(name: str, condition: Define, bound: set[Letter]) -> None:
    if condition.letter in bound:
        raise RuleError(
            f"rule {name}: {spelled(condition)} names a letter that is bound already. "
            "Compare it with equal(...), or take another letter."
        )
    if condition.letter.kind != LITERAL or not is_literal(condition.value):
        raise RuleError(
            f"rule {name}: let names integers that are known, and {spelled(condition)} is none. "
            "Use low(...), high(...), literals and arithmetic on them."
        )


def _matchable(row: Row, pattern: Expr) -> None:
    """Raises for a sum that can be shared out in more ways than one, or never matches."""
    try:
        cores = [core for _, core in shape(pattern).parts]
    except RuleError as error:
        raise RuleError(f"rule {row.name}: {error}") from None
    for core in cores:
        _addend(row, core)
    scaled = [core for core in cores if isinstance(core, Letter) and core.kind == TERM]
    if len(scaled) > 1 and not isinstance(row, IntervalRow):
        raise RuleError(
            f"rule {row.name}: in {spelled(pattern)} it is open which multiples are which. One "
            "letter of a sum has a coefficient."
        )


def _addend(row: Row, core: Expr) -> None:
    if isinstance(core, Letter):
        if core.kind == AXIS and isinstance(row, IndexRow):
            raise RuleError(
                f"rule {row.name}: index rows have no axes, and {core.name} is one. Take x."
            )
        return
    if not (isinstance(core, Apply) and core.op in (FLOORDIV, MOD) and is_literal(core.args[1])):
        raise RuleError(
            f"rule {row.name}: {spelled(core)} is no part of a pattern. A pattern is a sum of "
            "letters, quotients and remainders by literals, each with a literal coefficient."
        )
    if core.op is MOD and not isinstance(row, DomainRow):
        raise RuleError(
            f"rule {row.name}: remainders are matched in guards of domain rows only. Write "
            f"{spelled(core)} as a difference with a quotient."
        )
