"""Rows of the catalog as text, for people: `eqsatad rules` and messages about rows.

Rows of every kind come out as the same few facts, so that a list of them is one table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eqsatad.rules.rule import (
    Define,
    DomainRow,
    IndexRow,
    IntervalRow,
    Known,
    Letter,
    Row,
    TermRow,
    place,
)
from eqsatad.rules.value_rule import Pattern, ValueRule
from eqsatad.terms.nodes import Expr, Var
from eqsatad.terms.show import show
from eqsatad.terms.walk import fold, with_children


def describe(row: Row | ValueRule) -> dict[str, str]:
    """Name, kind, both sides, conditions and exactness of ``row`` as text."""
    kind, sides = KINDS[type(row)]
    before, after = sides(row)
    return {
        "name": row.name,
        "kind": kind,
        "before": before,
        "after": after,
        "when": ", ".join(spelled(condition) for condition in row.when),
        "both ways": "yes" if getattr(row, "both", False) else "no",
        "exact": "yes" if getattr(row, "exact", True) else "no",
        "written": place(row.origin),
    }


def in_a_line(row: Row | ValueRule) -> str:
    """Name, both sides and conditions of ``row`` in one line."""
    facts = describe(row)
    arrow = "<=>" if facts["both ways"] == "yes" else "=>"
    when = f"  if {facts['when']}" if row.when else ""
    return f"{row.name}: {facts['before']} {arrow} {facts['after']}{when}"


def _index(row: IndexRow | TermRow) -> tuple[str, str]:
    return spelled(row.before), spelled(row.after)


def _interval(row: IntervalRow) -> tuple[str, str]:
    return spelled(row.pattern), f"in [{spelled(row.low)}, {spelled(row.high)}]"


def _domain(row: DomainRow) -> tuple[str, str]:
    guards = " and ".join(spelled(guard) for guard in row.guards)
    after = f"{row.axis.name} = {spelled(row.value)}"
    if row.fresh is not None:
        letter, extent = row.fresh
        after += f" over {letter.name} < {spelled(extent)}"
    if row.leaves is not None:
        kept = " and ".join(spelled(leaf) for leaf in row.leaves)
        after += f", leaves {kept or 'no guard'}"
    return f"over {row.axis.name} where {guards}", after


def _value(row: ValueRule) -> tuple[str, str]:
    return _pattern(row.before), _pattern(row.after)


KINDS: dict[type[Any], tuple[str, Callable[[Any], tuple[str, str]]]] = {
    IndexRow: ("index", _index),
    IntervalRow: ("interval", _interval),
    DomainRow: ("domain", _domain),
    TermRow: ("term", _index),
    ValueRule: ("value", _value),
}


def spelled(part: Any) -> str:
    """A pattern or a condition of any kind of row, as it would be written."""
    if isinstance(part, Define):
        return f"{part.letter.name} = {spelled(part.value)}"
    if isinstance(part, Expr):
        return show(fold(part, _named))
    if isinstance(part, Pattern):
        return _pattern(part)
    return f"{part.kind}({', '.join(_pattern(letter) for letter in part.letters)})"


def _named(node: Expr, children: tuple[Expr, ...]) -> Expr:
    """Letters and known integers as variables with their spelling for a name."""
    if isinstance(node, Letter):
        return Var(node.name, node.dtype)
    if isinstance(node, Known):
        return Var(f"{node.function}({', '.join(map(show, children))})", node.dtype)
    return with_children(node, children)


INFIX = {"add": (1, " + "), "mul": (2, " * "), "div": (2, " / "), "union": (1, " | ")}
CALLS = {"sum": "sum", "guard": "guard", "pick": "pick", "extent": "extent"}


def _pattern(part: Pattern, least: int = 0) -> str:
    """A value pattern, in parentheses where it binds less than ``least``; patterns are small."""
    if part.op in INFIX:
        rank, sign = INFIX[part.op]
        left, right = part.parts
        text = f"{_pattern(left, rank)}{sign}{_pattern(right, rank + 1)}"
        return f"({text})" if rank < least else text
    if part.op == "number":
        return f"{part.number:g}"
    if not part.parts:
        return part.name
    called = CALLS.get(part.op, part.name)
    return f"{called}({', '.join(map(_pattern, part.parts))})"
