"""Rows of the catalog for values, and how a row becomes egglog text.

A pattern is written with ordinary operators over letters: ``x y z`` match any value, ``c d``
constants, ``f g h`` conditions, ``S T`` sets of summed axes. ``sum_over(S | T, x)`` matches any
sum and splits its axes: ``T`` is as many of them as the conditions on ``T`` allow (never none),
``S`` is the rest (maybe none). The letters of a row stand for disjoint sets whenever they are
split, so a row cannot lose or repeat an axis.

A part of ``after`` that holds only constants is worked out. Rows without ``exact`` hold over the
reals and may move a result by rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from eqsatad.errors import RuleError
from eqsatad.rules.rule import written_at

VALUE, CONSTANT, CONDITION, AXES = "value", "constant", "condition", "axes"


SYMBOLS = {"add": " + ", "mul": " * ", "div": " / ", "union": " | "}


@dataclass(frozen=True)
class Pattern:
    """A pattern node: ``op`` with parts; a letter has its name and its kind."""

    op: str
    parts: tuple[Pattern, ...] = ()
    name: str = ""
    number: float = 0.0

    def __add__(self, other: Pattern | float) -> Pattern:
        return Pattern("add", (self, pattern(other)))

    def __radd__(self, other: float) -> Pattern:
        return pattern(other) + self

    def __mul__(self, other: Pattern | float) -> Pattern:
        return Pattern("mul", (self, pattern(other)))

    def __rmul__(self, other: float) -> Pattern:
        return pattern(other) * self

    def __truediv__(self, other: Pattern | float) -> Pattern:
        return Pattern("div", (self, pattern(other)))

    def __rtruediv__(self, other: float) -> Pattern:
        return pattern(other) / self

    def __neg__(self) -> Pattern:
        return -1.0 * self

    def __sub__(self, other: Pattern | float) -> Pattern:
        return self + -pattern(other)

    def __or__(self, other: Pattern) -> Pattern:
        return Pattern("union", (self, other))

    def __str__(self) -> str:
        parts = [str(part) for part in self.parts]
        if self.op in SYMBOLS:
            return f"({SYMBOLS[self.op].join(parts)})"
        if self.op == "number":
            return f"{self.number:g}"
        return f"{self.name or self.op}({', '.join(parts)})" if parts else self.name

    def walk(self) -> Iterator[Pattern]:
        """This node and everything below it; patterns are small."""
        yield self
        for part in self.parts:
            yield from part.walk()


def pattern(value: Pattern | float) -> Pattern:
    """``value`` as a pattern."""
    return value if isinstance(value, Pattern) else Pattern("number", number=float(value))


x, y, z = (Pattern(VALUE, name=name) for name in "xyz")
c, d = (Pattern(CONSTANT, name=name) for name in "cd")
f, g, h = (Pattern(CONDITION, name=name) for name in "fgh")
S, T = (Pattern(AXES, name=name) for name in "ST")


def sum_over(axes: Pattern, body: Pattern) -> Pattern:
    """``body`` added up over ``axes``."""
    return Pattern("sum", (axes, body))


def guard(condition: Pattern, value: Pattern | float) -> Pattern:
    """``value`` where ``condition`` holds, else 0; off the condition nothing is evaluated."""
    return Pattern("guard", (condition, pattern(value)))


def pick(condition: Pattern, then: Pattern, other: Pattern | float) -> Pattern:
    """``then`` where ``condition`` holds, else ``other``."""
    return Pattern("pick", (condition, then, pattern(other)))


def call(function: str, *args: Pattern | float) -> Pattern:
    """An elementary function by its name in `terms.ops`."""
    return Pattern("call", tuple(map(pattern, args)), name=function)


def extent(axis: Pattern) -> Pattern:
    """The number of values of ``axis``, as a value."""
    return Pattern("extent", (axis,))


@dataclass(frozen=True)
class Condition:
    """A side condition on what letters matched."""

    kind: str
    letters: tuple[Pattern, ...]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(letter.name for letter in self.letters)})"


def absent(axes: Pattern, term: Pattern) -> Condition:
    """``term`` mentions none of ``axes``."""
    return Condition("absent", (axes, term))


def disjoint(left: Pattern, right: Pattern) -> Condition:
    """The two axis sets share nothing."""
    return Condition("disjoint", (left, right))


def single(axes: Pattern) -> Condition:
    """``axes`` is one axis."""
    return Condition("single", (axes,))


def nonzero(constant: Pattern) -> Condition:
    """``constant`` is not 0."""
    return Condition("nonzero", (constant,))


def total(term: Pattern) -> Condition:
    """``term`` can be evaluated at every point: no read out of range, no division, no log."""
    return Condition("total", (term,))


def lacks(term: Pattern, condition: Pattern) -> Condition:
    """``condition`` mentions an axis that ``term`` does not."""
    return Condition("lacks", (term, condition))


@dataclass(frozen=True, repr=False)
class ValueRule:
    """``before`` may be replaced by ``after`` (and back if ``both``) where all of ``when`` hold.

    ``exact`` says that not a bit of a finite result changes. The ``origin``, ``file:line``, is no
    part of what the row says.
    """

    name: str
    before: Pattern
    after: Pattern
    when: tuple[Condition, ...] = ()
    both: bool = False
    exact: bool = False
    origin: str = field(default="", compare=False, kw_only=True)

    def __str__(self) -> str:
        conditions = ", ".join(map(str, self.when))
        arrow = "<=>" if self.both else "=>"
        return f"{self.name}: {self.before} {arrow} {self.after}" + (
            f"  if {conditions}" if conditions else ""
        )

    __repr__ = __str__


def rewrite(
    name: str, before: Pattern, after: Pattern | float, *when: Condition, exact: bool = False
) -> ValueRule:
    """A row that goes one way."""
    return ValueRule(name, before, pattern(after), when, exact=exact, origin=written_at())


def equal(
    name: str, before: Pattern, after: Pattern | float, *when: Condition, exact: bool = False
) -> ValueRule:
    """A row that goes both ways."""
    origin = written_at()
    return ValueRule(name, before, pattern(after), when, both=True, exact=exact, origin=origin)


def directions(row: ValueRule) -> list[tuple[str, Pattern, Pattern]]:
    """The one-way rules of ``row``: a name and two sides each."""
    forward = (row.name, row.before, row.after)
    return [forward, (f"{row.name}-back", row.after, row.before)] if row.both else [forward]


@dataclass(frozen=True)
class Compiled:
    """One direction of a row in egglog: ``facts`` match ``root``, which is united with ``after``.

    ``subsumed`` is matched no more afterwards, if there is any.
    """

    name: str
    ruleset: str
    facts: str
    after: str
    subsumed: str

    def rule(self, ruleset: str) -> str:
        """The rule as text, in ``ruleset``."""
        forgotten = f" (subsume {self.subsumed})" if self.subsumed else ""
        action = f"(union root {self.after}){forgotten}"
        return f'(rule ({self.facts}) ({action}) :ruleset {ruleset} :name "{self.name}")'


def compiled(row: ValueRule) -> list[Compiled]:
    """The directions of ``row`` for egglog."""
    return [_Compiler(row, before, after).compiled(name) for name, before, after in directions(row)]


def compile_row(row: ValueRule) -> list[str]:
    """The egglog rules of ``row``."""
    return [direction.rule(direction.ruleset) for direction in compiled(row)]


def reorders(row: ValueRule) -> bool:
    """Whether ``row`` only moves parts around; such rows are what makes an e-graph large."""
    before, after = (
        sorted((part.op, part.name, part.number) for part in side.walk())
        for side in (row.before, row.after)
    )
    return before == after and not row.when


ABSENT_FROM = {VALUE: "free", CONDITION: "touched"}
CONSTRUCTORS = {
    "add": "Add", "mul": "Mul", "div": "Div", "sum": "Sum", "guard": "If", "pick": "Pick",
}  # fmt: skip
ARITHMETIC = {"add": "+", "mul": "*", "div": "/"}


class _Compiler:
    """One direction of one row."""

    def __init__(self, row: ValueRule, before: Pattern, after: Pattern) -> None:
        self.row, self.before, self.after = row, before, after
        self.split: Pattern | None = None
        # What collapses is matched no more: x*0 for every x would fill the class of 0.
        self.collapses = not after.parts or self.constant(after) is not None
        self.ruleset = _ruleset(row, self.collapses)
        matched = {part.name for part in before.walk() if part.name}
        if missing := {part.name for part in after.walk() if _letter(part)} - matched:
            raise RuleError(
                f"row {row.name}: {', '.join(sorted(missing))} stands after the arrow and is not "
                "matched before it. Use only letters of the matched side."
            )

    def compiled(self, name: str) -> Compiled:
        """The rule in its parts."""
        facts = [f"(= root {self.match(self.before)})", *self.conditions()]
        subsumed = self.match(self.before) if self.collapses else ""
        return Compiled(name, self.ruleset, " ".join(facts), self.build(self.after), subsumed)

    def match(self, part: Pattern) -> str:
        """The text that matches ``part``; notes which axis set is split."""
        match part.op:
            case "constant":
                return f"(Num {part.name})"
            case "union":
                self.split = part
                return "axes"
            case "extent":
                raise RuleError(f"row {self.row.name}: an extent cannot be matched")
        return self.spell(part, self.match)

    def build(self, part: Pattern) -> str:
        """The text that builds ``part``, with constants worked out."""
        if part.op == "union":
            return f"(| {self.build(part.parts[0])} {self.build(part.parts[1])})"
        if part.op == "extent":
            return "size"
        if folded := self.constant(part):
            return f"(Num {folded})"
        return self.spell(part, self.build)

    def constant(self, part: Pattern) -> str | None:
        """The arithmetic text of a part that holds only constants, else None."""
        if part.op == "number":
            return repr(part.number)
        if part.op == CONSTANT:
            return part.name
        parts = [self.constant(inner) for inner in part.parts]
        if part.op not in ARITHMETIC or None in parts:
            return None
        return f"({ARITHMETIC[part.op]} {' '.join(map(str, parts))})"

    def spell(self, part: Pattern, inner: object) -> str:
        """``part`` as a constructor over its parts."""
        assert callable(inner)
        if part.op in (VALUE, CONDITION, AXES, CONSTANT):
            return part.name
        if part.op == "number":
            return f"(Num {part.number!r})"
        parts = " ".join(inner(child) for child in part.parts)
        if part.op == "call":
            return f'({"Call" if len(part.parts) == 1 else "Call2"} "{part.name}" {parts})'
        return f"({CONSTRUCTORS[part.op]} {parts})"

    def conditions(self) -> list[str]:
        """The facts that express the conditions of the row."""
        facts = []
        left_out = "0"
        for condition in self.row.when:
            first, *rest = condition.letters
            match condition.kind:
                case "absent":
                    known = f"{ABSENT_FROM[rest[0].op]}_{rest[0].name}"
                    facts.append(f"(= {known} ({ABSENT_FROM[rest[0].op]} {rest[0].name}))")
                    if self.split and first == self.split.parts[1]:
                        left_out = f"(| {left_out} {known})"
                    else:
                        facts.append(f"(= 0 (& {first.name} {known}))")
                case "disjoint":
                    facts.append(f"(= 0 (& {first.name} {rest[0].name}))")
                case "nonzero":
                    facts.append(f"(!= {first.name} 0.0)")
                case "total":
                    facts.append(f"(= 0 (need {first.name}))")
                case "lacks":
                    facts.append(f"(= touched_by (touched {rest[0].name}))")
                    facts.append(f"(= free_in (free {first.name}))")
                    facts.append("(!= 0 (& touched_by (^ -1 free_in)))")
        return facts + self.splitting(left_out)

    def splitting(self, left_out: str) -> list[str]:
        """The facts that split the axes of the matched sum in two."""
        if self.split is None:
            return []
        rest, chosen = (part.name for part in self.split.parts)
        facts = [f"(= candidates (& axes (^ -1 {left_out})))", "(!= candidates 0)"]
        if any(condition.kind == "single" for condition in self.row.when):
            facts.append(f"(= {chosen} (& candidates (- 0 candidates)))")
            facts.append(f"(= size (extent {chosen}))")
        else:
            facts.append(f"(= {chosen} candidates)")
        return [*facts, f"(= {rest} (^ axes {chosen}))"]


def _ruleset(row: ValueRule, collapses: bool) -> str:
    """Rows that collapse are run until nothing is left, the others round by round."""
    if collapses:
        return "collapse"
    return "order" if reorders(row) else "algebra"


def _letter(part: Pattern) -> bool:
    return part.op in (VALUE, CONSTANT, CONDITION, AXES)
