"""Claims tried on small values, the smallest first, so that a counterexample is easy to read.

``low(y)`` and ``high(y)`` are tried at ``y`` itself and a little off it, ``extent(k)`` just above
``k`` and a little more. Conditions are tried as soon as their letters have values, so that few
values are tried in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsatad.errors import RefutedRuleError, RuleError
from eqsatad.rules.describe import spelled
from eqsatad.rules.literals import ARITHMETIC, evaluate_literal
from eqsatad.rules.prove_claims import Claim
from eqsatad.rules.rule import AXIS, LITERAL, TERM, TRUTH, Condition, Define, Known, Letter
from eqsatad.terms.nodes import Const
from eqsatad.terms.walk import postorder

TRIALS = 2_000
"""Fillings that meet the conditions, at most."""
STEPS = 60_000
"""Values given to letters on the way, at most."""
SMALL = {
    TERM: (0, 1, -1, 2, -2, 3, 5, -4, 7),
    LITERAL: (1, 2, 3, -1, 4, -2, 6, 0),
    AXIS: (0, 1, 2, 3, 5),
    TRUTH: (False, True),
}

Filling = Mapping[Letter, int]
Answer = Callable[[Known], int | None]


@dataclass(frozen=True)
class Slack:
    """How far ``low`` and ``high`` are off the value, and an extent beyond the axis."""

    below: int
    above: int

    def answer(self, values: Mapping[Any, int]) -> Answer:
        """What `Known` nodes are where the letters have ``values``."""
        off = {"low": -self.below, "high": self.above, "extent": 1 + self.above}

        def known(node: Known) -> int | None:
            value = evaluate_literal(node.args[0], known, values)
            return None if value is None else value + off[node.function]

        return known


SLACKS = (Slack(0, 0), Slack(1, 1), Slack(0, 3), Slack(3, 0))


def trial(claim: Claim, steps: int = STEPS) -> int:
    """How many small fillings meet the conditions; `RuleError` where a conclusion fails."""
    tried = 0
    for filling, slack in _fillings(claim, steps):
        values = settled(claim, filling, slack.answer)
        if values is None:
            continue
        tried += 1
        refuse_if_wrong(claim, values, slack.answer(values))
        if tried == TRIALS:
            break
    if not tried:
        raise RuleError(
            f"rule {claim.name}: no small values meet its conditions, so it was never tested. "
            "Weaken the conditions, or take the row out."
        )
    return tried


def settled(
    claim: Claim, filling: Filling, answer: Callable[[Mapping[Any, int]], Answer]
) -> dict[Letter, int] | None:
    """``filling`` with the named letters; None where a condition does not hold."""
    values = dict(filling)
    for condition in claim.conditions:
        if not _meets(condition, values, answer(values)):
            return None
    return values


def _meets(condition: Condition, values: dict[Letter, int], known: Answer) -> bool:
    """Whether a condition holds; puts down the value that it names."""
    if not isinstance(condition, Define):
        return evaluate_literal(condition, known, values) is True
    value = evaluate_literal(condition.value, known, values)
    if value is None:
        return False
    values[condition.letter] = value
    return True


def refuse_if_wrong(claim: Claim, values: Filling, known: Answer) -> None:
    """Raises the counterexample if ``values``, which meet the conditions, are one."""
    for conclusion in claim.conclusions:
        if evaluate_literal(conclusion.holds, known, values) is False:
            raise RefutedRuleError(counterexample(claim, conclusion.otherwise, values, known))


def counterexample(claim: Claim, why: str, values: Filling, known: Answer) -> str:
    """The message that ``claim`` fails at ``values``, with what its parts are there."""
    parts = [spelled(letter) + f" = {values[letter]}" for letter in sorted(values, key=_order)]
    for node in postorder(*claim.exprs):
        if isinstance(node, Known) and node.function not in ARITHMETIC:
            value = known(node)
            parts += [] if value is None else [f"{spelled(node)} = {value}"]
    lines = [f"rule {claim.name} is wrong: {why}, with {', '.join(parts)}"]
    for label, expr in claim.shown:
        value = evaluate_literal(expr, known, values)
        lines.append(f"  {label}: {spelled(expr)}, which is {value}")
    lines.append("State the condition that excludes this, or take the row out.")
    return "\n".join(lines)


def _order(letter: Letter) -> tuple[bool, str]:
    return letter.kind == LITERAL, letter.name


@dataclass(frozen=True)
class _Search:
    """Letters with the values to try, and after which letter each condition can be tried."""

    letters: Sequence[Letter]
    pools: Sequence[Sequence[int]]
    checks: Sequence[Sequence[Condition]]
    slack: Slack

    def fillings(self, rank: int) -> Iterator[dict[Letter, int] | None]:
        """The fillings whose places in the pools add up to ``rank``; None for each value tried."""
        most = [len(pool) - 1 for pool in self.pools]
        room = [sum(most[n:]) for n in range(len(most) + 1)]
        stack: list[tuple[int, int, dict[Letter, int]]] = [(0, rank, {})]
        while stack:
            depth, left, values = stack.pop()
            if depth == len(self.letters):
                yield values
                continue
            yield None
            for place in range(min(left, most[depth]), max(0, left - room[depth + 1]) - 1, -1):
                tried = {**values, self.letters[depth]: self.pools[depth][place]}
                if all(_meets(c, tried, self.slack.answer(tried)) for c in self.checks[depth]):
                    stack.append((depth + 1, left - place, tried))


def _fillings(claim: Claim, most: int) -> Iterator[tuple[dict[Letter, int], Slack]]:
    letters = claim.letters
    pools = [pool(claim, letter) for letter in letters]
    checks = _checks(claim.conditions, letters)
    loose = any(isinstance(node, Known) for node in postorder(*claim.exprs))
    searches = [_Search(letters, pools, checks, slack) for slack in SLACKS[: None if loose else 1]]
    steps = 0
    for rank in range(sum(len(values) - 1 for values in pools) + 1):
        for search in searches:
            for filling in search.fillings(rank):
                steps += 1
                if filling is not None:
                    yield filling, search.slack
                if steps > most:
                    return


def pool(claim: Claim, letter: Letter) -> tuple[int, ...]:
    """The values to try for ``letter``: small ones, and those around the numbers of the claim."""
    if letter.kind == TRUTH:
        return SMALL[TRUTH]
    numbers = [node.value for node in postorder(*claim.exprs) if isinstance(node, Const)]
    whole = sorted({value for value in numbers if type(value) is int})
    near = [value + step for value in whole for step in (0, 1, -1)]
    if letter.kind == AXIS:
        near = [value for value in near if value >= 0]
    return tuple(dict.fromkeys((*SMALL[letter.kind], *near)))


def _checks(conditions: Sequence[Condition], letters: Sequence[Letter]) -> list[list[Condition]]:
    """For each letter, the conditions that can be tried once it and those before have values."""
    checks: list[list[Condition]] = [[] for _ in letters]
    if not letters:
        return checks
    place = {letter: number for number, letter in enumerate(letters)}
    for condition in conditions:
        expr = condition.value if isinstance(condition, Define) else condition
        used = [place[node] for node in postorder(expr) if isinstance(node, Letter)]
        at = max(used, default=0)
        checks[at].append(condition)
        if isinstance(condition, Define):
            place[condition.letter] = at
    return checks
