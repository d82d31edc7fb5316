"""Rows that may not be worth having: duplicates, what others imply, pairs that undo each other.

These are remarks and no refusals: a row that others imply may be kept because it is quicker. A
file of the catalog says so in a table `KEPT`, by the name of the row, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eqsatad import cache
from eqsatad.rules.catalog import AnyRow, contents
from eqsatad.rules.describe import spelled
from eqsatad.rules.prove import LAYERS
from eqsatad.rules.reached import reached
from eqsatad.rules.rule import Define, DomainRow, IndexRow, IntervalRow, Known, Letter, TermRow
from eqsatad.rules.value_rule import (
    AXES,
    CONDITION,
    CONSTANT,
    VALUE,
    Condition,
    Pattern,
    ValueRule,
    directions,
)
from eqsatad.rules.wellformed import letters
from eqsatad.terms.nodes import Expr, digest
from eqsatad.terms.walk import fold, with_children

DUPLICATES, UNDOES, IMPLIED = "duplicates", "undoes", "is implied by"


@dataclass(frozen=True)
class Remark:
    """``row`` stands so to ``others``: names of rows, or all of them together if there are none.

    What they do, they may do in more ``rounds`` of the e-graph than one.
    """

    row: str
    what: str
    others: tuple[str, ...]
    rounds: int = 1

    def __str__(self) -> str:
        others = ", ".join(self.others) or "the others"
        rounds = f" in {self.rounds} rounds" if self.rounds > 1 else ""
        return f"{self.row} {self.what} {others}{rounds}"


def remarks(
    rows: Sequence[AnyRow], among: Sequence[AnyRow], each: Callable[[], None] = lambda: None
) -> list[Remark]:
    """What is remarkable about ``rows`` as part of the catalog ``among``; calls ``each`` after one.

    The answer is kept on disk by what the rows say.
    """
    key = f"remarks-{digest(cache.code(*LAYERS), contents(tuple(rows)), contents(tuple(among)))}"
    if (kept := cache.fetch(key)) is not None:
        return [Remark(**{**r, "others": tuple(r["others"])}) for r in json.loads(kept)]
    found: list[Remark] = []
    for row in rows:
        found += _remarks(row, among)
        each()
    cache.keep(key, json.dumps([asdict(remark) for remark in found]).encode())
    return found


def _remarks(row: AnyRow, among: Sequence[AnyRow]) -> Iterator[Remark]:
    others = [other for other in among if other is not row and type(other) is type(row)]
    said = set(_said(row, row.when))
    if same := [other.name for other in others if said & set(_said(other, other.when))]:
        yield Remark(row.name, DUPLICATES, tuple(same))
    elif (implied := reached(row, among)) is not None:
        yield Remark(row.name, IMPLIED, implied.rows, implied.rounds)
    back = {parts[::-1] for parts in _said(row)}
    if undone := [other.name for other in others if back & set(_said(other))]:
        yield Remark(row.name, UNDOES, tuple(undone))


def _said(row: AnyRow, when: Sequence[Any] = ()) -> list[tuple[str, ...]]:
    """The directions of ``row`` under the conditions ``when``, whatever the letters are called."""
    return [_spelled(sides, when) for sides in _sides(row)]


def _sides(row: AnyRow) -> list[tuple[Any, ...]]:
    if isinstance(row, ValueRule):
        return [(before, after) for _, before, after in directions(row)]
    if isinstance(row, IntervalRow):
        return [(row.pattern, row.low, row.high)]
    if isinstance(row, DomainRow):
        return [(*row.guards, row.value, *(row.leaves or ()))]
    assert isinstance(row, IndexRow | TermRow), "these are all the kinds"
    return [(row.before, row.after)]


def _spelled(sides: tuple[Any, ...], when: Sequence[Any]) -> tuple[str, ...]:
    """The sides and the conditions with letters named by kind and use; no matter which side is
    the first.
    """
    spellings = [_named(order, sides, when) for order in (sides, sides[::-1])]
    return min(spellings, key=sorted)


def _named(order: tuple[Any, ...], sides: tuple[Any, ...], when: Sequence[Any]) -> tuple[str, ...]:
    names: dict[Any, Any] = {}
    defined = [condition.letter for condition in when if isinstance(condition, Define)]
    for letter in (*(letter for side in order for letter in _letters(side)), *defined):
        names.setdefault(letter, _letter(letter, len(names)))
    conditions = sorted(spelled(_renamed(condition, names)) for condition in when)
    return (*(spelled(_renamed(side, names)) for side in sides), *conditions)


def _letters(part: Any) -> list[Any]:
    if isinstance(part, Expr):
        return letters(part)
    return [inner for inner in part.walk() if inner.op in (VALUE, CONSTANT, CONDITION, AXES)]


def _letter(letter: Any, number: int) -> Any:
    """The letter of that number of the same kind."""
    if isinstance(letter, Letter):
        return Letter(f"{letter.kind}{number}", letter.kind, letter.dtype)
    return Pattern(letter.op, name=f"{letter.op}{number}")


def _renamed(part: Any, names: dict[Any, Any]) -> Any:
    """A side or a condition over other letters."""
    match part:
        case Expr():
            return fold(part, lambda node, children: _renamed_node(node, children, names))
        case Define(letter, value):
            return Define(names[letter], _renamed(value, names))
        case Condition(kind, about):
            return Condition(kind, tuple(_renamed(letter, names) for letter in about))
    if part in names:
        return names[part]
    parts = tuple(_renamed(inner, names) for inner in part.parts)
    return Pattern(part.op, parts, part.name, part.number)


def _renamed_node(node: Expr, children: tuple[Expr, ...], names: dict[Any, Any]) -> Expr:
    if isinstance(node, Known):
        return Known(node.function, children)
    renamed: Expr = names[node] if node in names else with_children(node, children)
    return renamed
