"""A program made cheaper, and what it took: what was found before, or what `program` finds now.

Only the latter imports the search, which takes longer than everything else where the answer is
known.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from eqsatad.extract.cost import CostModel
from eqsatad.extract.recall import Answer, Recall
from eqsatad.rules.collection import Collection
from eqsatad.rules.growth import Limits
from eqsatad.terms.nodes import Tensor


@dataclass(frozen=True)
class Saturation:
    """What the rules did: matches by rule, rounds, e-graph rows, seconds, and why it stopped."""

    stop_reason: str
    seconds: float
    nodes: int
    rounds: int
    rules: dict[str, int]


@dataclass(frozen=True)
class Simplified:
    """Tensors that are the same as those given, and what it took to find them."""

    outputs: tuple[Tensor, ...]
    saturation: Saturation


UNTOUCHED = Saturation("not asked for", 0.0, 0, 0, {})


def simplest(
    outputs: Sequence[Tensor], rules: Collection, cost: CostModel, limits: Limits
) -> Simplified:
    """The cheapest program for ``outputs`` that the rules reach."""

    def work() -> Answer:
        from eqsatad.extract.program import Simplification

        return Simplification(rules, cost, limits).of(outputs)

    start = time.perf_counter()
    found = Recall.of(rules, cost, limits).solve("program", outputs, work)
    report, seconds = found.report, time.perf_counter() - start
    matches = dict(report.matches)
    spent = Saturation(report.stopped, seconds, report.nodes, report.rounds, matches)
    return Simplified(found.tensors, spent)
