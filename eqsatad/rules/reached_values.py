"""Whether value rows reach what another one says, in the e-graph that runs them.

A row is tried on its most general instance: letters become leaves over all axes that they are not
said to be without, which may be no numbers unless they are said to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsatad.errors import RuleError
from eqsatad.rules.algebra import PARTIAL, grow
from eqsatad.rules.growth import Growth, Limits
from eqsatad.rules.value_rule import (
    ARITHMETIC,
    AXES,
    CONDITION,
    CONSTANT,
    CONSTRUCTORS,
    VALUE,
    Pattern,
    ValueRule,
    directions,
)
from eqsatad.rules.values import Encoded

GROWTH = Limits(nodes=4_000, rounds=4, seconds=5.0, isolate=False)
"""How far the e-graph of an instance grows."""

KINDS = (VALUE, CONDITION, AXES, CONSTANT)
ONE_AXIS = 0x5555555555555555
"""The lower of the two axes of each set."""


@dataclass(frozen=True)
class Reached:
    """The rows that reach what another one says, and in how many rounds of the e-graph."""

    rows: tuple[str, ...] = ()
    rounds: int = 1


def united(row: ValueRule, rules: Sequence[ValueRule]) -> Reached | None:
    """How ``rules`` make ``after`` of the ``before`` of ``row``; None if they do not."""
    used: dict[str, None] = {}
    rounds = 0
    for _, before, after in directions(row):
        if (found := _reaching(_Instance(row, before), before, after, rules)) is None:
            return None
        used.update(dict.fromkeys(found.rows))
        rounds = max(rounds, found.rounds)
    return Reached(tuple(used), rounds)


def _reaching(
    instance: _Instance, before: Pattern, after: Pattern, rules: Sequence[ValueRule]
) -> Reached | None:
    """A smallest set of ``rules`` that makes ``after`` from ``before``; None if all do not."""

    def worked(some: Sequence[ValueRule]) -> Growth | None:
        return _grown(instance.text(before), instance.spell(after, worked_out=True), some)

    if (growth := worked(rules)) is None:
        return None
    matched = set(growth.matches)
    needed = [rule for rule in rules if {name for name, _, _ in directions(rule)} & matched]
    if worked(needed) is None:
        needed = list(rules)  # What collapses before the first round is not counted.
    for rule in list(needed):
        fewer = [other for other in needed if other is not rule]
        if worked(fewer) is not None:
            needed = fewer
    return Reached(tuple(rule.name for rule in needed), growth.rounds)


def _grown(start: str, end: str, rules: Sequence[ValueRule]) -> Growth | None:
    """What happened until the term ``end`` was in the e-graph of ``start``; None if it never is."""
    growth = Growth()
    for graph in grow(Encoded(start), rules, GROWTH, growth):
        try:
            graph.execute(f"(check (= $before {end}))")
        except RuleError:
            continue
        return growth
    return None


class _Instance:
    """The most general instance of one direction of a value row: what is not said, is not so."""

    def __init__(self, row: ValueRule, before: Pattern) -> None:
        self.row = row
        found = {part.name: part for part in before.walk() if part.op in KINDS}
        of = {kind: [n for n, part in found.items() if part.op == kind] for kind in KINDS}
        # Two axes for each set and one around; a condition has one more that nothing else has.
        self.sets = {name: 0b11 << 2 * n for n, name in enumerate(of[AXES])}
        for condition in row.when:
            if condition.kind == "single":
                self.sets[condition.letters[0].name] &= ONE_AXIS
        self.around = 1 << 2 * len(self.sets)
        self.leaves = {name: n for n, name in enumerate(of[VALUE])}
        self.guards = {name: 1 << n for n, name in enumerate(of[CONDITION])}
        self.numbers = {name: 1.375 + 1.25 * n for n, name in enumerate(of[CONSTANT])}

    def text(self, before: Pattern) -> str:
        """The side that is matched, and what is known of the letters."""
        total = {c.letters[0].name for c in self.row.when if c.kind == "total"}
        facts = [f"(set (extent {1 << n}) (Num {n + 2}.0))" for n in range(2 * len(self.sets) + 2)]
        for name, number in self.leaves.items():
            leaf = f"(Leaf {number})"
            facts.append(f"(set (free {leaf}) {self.axes_of(name)})")
            facts.append(f"(set (need {leaf}) {0 if name in total else PARTIAL})")
        facts += [
            f"(set (touched {guard}) {self.axes_of(name) | 2 * self.around})"
            for name, guard in self.guards.items()
        ]
        return "\n".join((*facts, f"(let $before {self.spell(before)})"))

    def axes_of(self, name: str) -> int:
        """The axes that a letter depends on: all but those that it is said not to."""
        mask = sum(self.sets.values()) | self.around
        for condition in self.row.when:
            if condition.kind == "absent" and condition.letters[1].name == name:
                mask &= ~self.sets[condition.letters[0].name]
        return mask

    def spell(self, part: Pattern, *, worked_out: bool = False) -> str:
        """``part`` over the instances of its letters, with constants ``worked_out`` or not."""
        number = self.number(part) if worked_out or not part.parts else None
        if number is not None:
            return f"(Num {number!r})"
        if part.op == VALUE:
            return f"(Leaf {self.leaves[part.name]})"
        if part.op in (CONDITION, AXES, "union"):
            return str(self.mask(part))
        parts = " ".join(self.spell(inner, worked_out=worked_out) for inner in part.parts)
        if part.op == "call":
            return f'({"Call" if len(part.parts) == 1 else "Call2"} "{part.name}" {parts})'
        return f"({CONSTRUCTORS[part.op]} {parts})"

    def number(self, part: Pattern) -> float | None:
        """The number that ``part`` is, if it is one."""
        match part.op:
            case "number":
                return part.number
            case "constant":
                return self.numbers[part.name]
            case "extent":
                return self.mask(part.parts[0]).bit_length() + 1.0
        if part.op not in ARITHMETIC:
            return None
        left, right = (self.number(inner) for inner in part.parts)
        if left is None or right is None:
            return None
        return {"add": left + right, "mul": left * right}.get(part.op, left / (right or 1.0))

    def mask(self, part: Pattern) -> int:
        """The bits of a set of axes or of a condition."""
        if part.op == "union":
            return self.mask(part.parts[0]) | self.mask(part.parts[1])
        return self.guards[part.name] if part.op == CONDITION else self.sets[part.name]
