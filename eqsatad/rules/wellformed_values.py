"""Value rows that could not be run as they read are refused, with their name: letters and kinds.

Whether such a row is *right* is for `rules.prove_values` to say.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsatad.errors import RuleError
from eqsatad.rules.describe import spelled
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
from eqsatad.terms.ops import OPS

NOUNS = {
    VALUE: "a value",
    CONDITION: "a condition",
    AXES: "a set of axes",
    CONSTANT: "a constant letter",
}

PARTS = {
    "add": (VALUE, VALUE),
    "mul": (VALUE, VALUE),
    "div": (VALUE, VALUE),
    "sum": (AXES, VALUE),
    "guard": (CONDITION, VALUE),
    "pick": (CONDITION, VALUE, VALUE),
    "union": (AXES, AXES),
    "extent": (AXES,),
}
"""What the parts of each node of a pattern have to be."""

CONDITIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "absent": ((AXES,), (VALUE, CONDITION)),
    "disjoint": ((AXES,), (AXES,)),
    "single": ((AXES,),),
    "nonzero": ((CONSTANT,),),
    "total": ((VALUE,),),
    "lacks": ((VALUE,), (CONDITION,)),
}
"""What each condition may be about."""


def well_formed_value(row: ValueRule) -> None:
    """Raises `RuleError`, with what to do, for a row that could not be run."""
    for side in (row.before, row.after):
        _kinds(row, side)
    for _, before, after in directions(row):
        _matched(row, before)
        bound = {part.name for part in before.walk() if part.op in NOUNS}
        _bound(row, after, bound, "stands after the arrow and is not matched before it")
        for condition in row.when:
            for letter in condition.letters:
                _bound(row, letter, bound, f"of {condition} is bound by nothing")
    for condition in row.when:
        _condition(row, condition)
    for part in row.after.walk():
        if part.op == "extent" and not _single(row, part.parts[0]):
            raise _refusal(row, f"{spelled(part)} needs the condition single({part.parts[0]})")


def _refusal(row: ValueRule, why: str) -> RuleError:
    return RuleError(f"rule {row.name}: {why}.")


def _kind(part: Pattern) -> str:
    """What ``part`` is; numbers and whatever is worked out are values."""
    if part.op == "union":
        return AXES
    return part.op if part.op in NOUNS else VALUE


def _kinds(row: ValueRule, side: Pattern) -> None:
    """Raises where a part is of another kind than its place wants."""
    for part in side.walk():
        wanted = PARTS.get(part.op, ())
        if part.op == "call":
            if part.name not in OPS or OPS[part.name].arity != len(part.parts):
                raise _refusal(
                    row, f"no function {part.name} takes {len(part.parts)} values; see terms.ops"
                )
            wanted = (VALUE,) * len(part.parts)
        for inner, kind in zip(part.parts, wanted, strict=True):
            found = VALUE if kind == VALUE and _kind(inner) == CONSTANT else _kind(inner)
            if found != kind:
                raise _refusal(
                    row,
                    f"{spelled(inner)} in {spelled(part)} is {NOUNS[found]}, and {NOUNS[kind]} "
                    "is wanted there",
                )


def _matched(row: ValueRule, before: Pattern) -> None:
    """Raises for a side that would match everything, or that splits two sums."""
    if not before.parts:
        raise _refusal(row, f"{spelled(before)} is no operation, and only operations are matched")
    if any(part.op == "extent" for part in before.walk()):
        raise _refusal(row, "an extent cannot be matched")
    if len({part for part in before.walk() if part.op == "union"}) > 1:
        raise _refusal(row, f"{spelled(before)} splits two sums, and one can be split")


def _bound(row: ValueRule, part: Pattern, bound: set[str], why: str) -> None:
    free = [inner.name for inner in part.walk() if inner.op in NOUNS and inner.name not in bound]
    if free:
        raise _refusal(
            row, f"letter {', '.join(dict.fromkeys(free))} {why}; let it occur in the matched side"
        )


def _condition(row: ValueRule, condition: Condition) -> None:
    wanted = CONDITIONS[condition.kind]
    for letter, kinds in zip(condition.letters, wanted, strict=True):
        if letter.op not in kinds:
            nouns = " or ".join(NOUNS[kind] for kind in kinds)
            raise _refusal(
                row, f"{condition} is about {nouns}, and {spelled(letter)} is no letter for that"
            )
    if condition.kind == "single" and condition.letters[0] not in _chosen(row):
        raise _refusal(
            row,
            f"{condition} chooses from the axes of a sum; match the sum over S | "
            f"{spelled(condition.letters[0])}",
        )


def _single(row: ValueRule, axes: Pattern) -> bool:
    """Whether ``axes`` is a letter that the row says is one axis."""
    return any(c.kind == "single" and c.letters == (axes,) for c in row.when)


def _chosen(row: ValueRule) -> Iterator[Pattern]:
    """The second parts of the splits of the matched side: what conditions choose."""
    return (part.parts[1] for part in row.before.walk() if part.op == "union")
