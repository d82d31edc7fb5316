"""Which tensors a forward program keeps for the backward one that follows it: a minimum cut.

What the backward program reads of the forward one is either kept, at the price of writing it to
memory and reading it back, or worked out again from what is kept; an input is there anyway, and
so is the output. Each stage that does not depend on the head is two nodes of a network: it is
available, and it is worked out again. The minimum cut is the cheapest choice. Under a limit of
bytes each kept byte gets a price, the smallest at which the choice fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eqsatad.extract.cost import CostModel
from eqsatad.extract.flow import Network
from eqsatad.extract.points import Points
from eqsatad.extract.report import ITEM_BYTES
from eqsatad.extract.sites import price, runs, work_sites
from eqsatad.terms.nodes import ARGMAX, ARGMIN, Read, Reduce, Stage, Tensor
from eqsatad.terms.walk import postorder, program, sources

KEPT = 4
"""What keeping an element costs, in stores: it leaves the caches and is fetched again."""

UNIT = 10**9
"""Costs as integers: parts of the unit of a cost model."""

STEPS = 40
"""Halvings of the interval in which the price of a byte is sought."""


@dataclass(frozen=True)
class Cut:
    """Stages that are kept, and those that the backward program works out again, in order.

    ``inlined`` are among the latter: element-wise ones that are cheaper worked out where they
    are read than stored.
    """

    kept: tuple[Stage, ...]
    again: tuple[Stage, ...]
    inlined: tuple[Stage, ...]


class Split:
    """The stages of one program that computes ``output`` and ``results``, a pair at the head."""

    def __init__(
        self, output: Tensor, results: Sequence[Tensor], head: Tensor, model: CostModel
    ) -> None:
        self.output, self.points = output, Points(model)
        order = program([output, *results])
        self.later = _later(order, head)
        self.shared = [t for t in order if isinstance(t, Stage) and t not in self.later]
        # The forward program passes the points of a maximum anyway, wherever it looks for it.
        found = (stage for stage in self.shared if searches(stage))
        self.forward = frozenset[Tensor]((*program([output]), *found))
        self.needed = _needed(results, self.later)
        self.reads = self._reads()
        self.again = {stage: self._again(stage) for stage in self.shared}

    def cut(self, limit: int | None = None) -> Cut:
        """The cheapest choice whose kept tensors take at most ``limit`` bytes."""
        best = self._at(0.0)
        if limit is None or self.bytes(best.kept) <= limit:
            return best
        low, high = 0.0, 1.0
        while self.bytes((best := self._at(high)).kept) > limit:
            low, high = high, high * 1024
        for _ in range(STEPS):
            middle = (low + high) / 2
            found = self._at(middle)
            if self.bytes(found.kept) <= limit:
                best, high = found, middle
            else:
                low = middle
        return self._filled(best, high, limit)

    def _filled(self, best: Cut, byte: float, limit: int) -> Cut:
        """``best`` with more kept, dearest first, as far as it fits and gets cheaper."""
        certain: frozenset[Stage] = frozenset()
        for stage in sorted(best.again, key=self.again.__getitem__, reverse=True):
            if self._bytes(stage) <= limit - self.bytes(best.kept):
                found = self._at(byte, certain | {stage})
                if self.bytes(found.kept) <= limit and self.cost(found) < self.cost(best):
                    best, certain = found, certain | {stage}
        return best

    def cost(self, cut: Cut) -> float:
        """What keeping and working out again cost together."""
        kept = sum(self.keeping(stage) for stage in cut.kept)
        return kept + sum(self.again[stage] for stage in cut.again)

    def bytes(self, kept: Iterable[Stage]) -> int:
        """The memory that ``kept`` takes, at example sizes; the output is there anyway."""
        return sum(self._bytes(stage) for stage in kept)

    def _bytes(self, stage: Stage) -> int:
        if stage is self.output:
            return 0
        return self.points.model.volume(stage.axes) * ITEM_BYTES.get(stage.dtype, 1)

    def _at(self, byte: float, certain: frozenset[Stage] = frozenset()) -> Cut:
        """The cheapest choice where each kept byte costs ``byte``, and ``certain`` are kept."""
        network = Network()
        for stage in self.shared:
            available, again = network.number(("is", stage)), network.number(("again", stage))
            if stage in self.needed or stage in certain:
                network.join(0, available, None)
            keeping = 0.0 if stage in certain else self.keeping(stage, byte)
            network.join(available, again, round(UNIT * keeping))
            network.join(again, 1, None if stage in certain else round(UNIT * self.again[stage]))
            for source in sources(stage):
                if isinstance(source, Stage):
                    network.join(again, network.number(("is", source)), None)
        side = network.source_side()
        recomputed = [stage for stage in self.shared if ("again", stage) in side]
        return Cut(
            tuple(s for s in self.shared if ("is", s) in side and ("again", s) not in side),
            tuple(recomputed),
            tuple(s for s in recomputed if self._spread(s) < self._stored(s)),
        )

    def keeping(self, stage: Stage, byte: float = 0.0) -> float:
        """The price of keeping ``stage``, where each byte costs ``byte`` more."""
        if stage is self.output:
            return 0.0
        model = self.points.model
        return KEPT * model.store * model.volume(stage.axes) + byte * self._bytes(stage)

    def _again(self, stage: Stage) -> float:
        """What it costs that both programs work out ``stage``; one of them does anyway."""
        if stage not in self.forward:
            return 0.0
        return min(self._stored(stage), self._spread(stage))

    def _stored(self, stage: Stage) -> float:
        """The cost of ``stage`` as a tensor of its own."""
        model = self.points.model
        written = model.store if _reduces(stage) else model.store + model.visit
        return self._work(stage) + written * model.volume(stage.axes)

    def _spread(self, stage: Stage) -> float:
        """The cost of working ``stage`` out wherever it is read; infinite for reductions."""
        if _reduces(stage) or stage.scatters:
            return float("inf")
        volume = self.points.model.volume(stage.axes)
        return self._work(stage) * max(1.0, self.reads.get(stage, 0.0) / max(1, volume))

    def _work(self, stage: Stage) -> float:
        model = self.points.model
        return sum(price(site.node, model) * runs(site, self.points) for site in work_sites(stage))

    def _reads(self) -> dict[Tensor, float]:
        """How often the backward program reads an element of each tensor."""
        found: dict[Tensor, float] = {}
        for stage in self.later:
            for site in work_sites(stage):
                if isinstance(site.node, Read):
                    times = runs(site, self.points)
                    found[site.node.tensor] = found.get(site.node.tensor, 0.0) + times
        return found


def searches(stage: Stage) -> bool:
    """Whether ``stage`` holds the positions of maxima or minima."""
    return isinstance(stage.body, Reduce) and stage.body.combiner in (ARGMAX, ARGMIN)


def _reduces(stage: Stage) -> bool:
    return any(isinstance(node, Reduce) for node in postorder(*stage.roots))


def _later(order: Iterable[Tensor], head: Tensor) -> Mapping[Stage, None]:
    """The stages of ``order`` that depend on the head."""
    found: dict[Tensor, None] = {head: None}
    for tensor in order:
        if any(source in found for source in sources(tensor)):
            found[tensor] = None
    return {tensor: None for tensor in found if isinstance(tensor, Stage)}


def _needed(results: Iterable[Tensor], later: Mapping[Stage, None]) -> frozenset[Tensor]:
    """What the backward program reads that does not depend on the head, and such results."""
    read: list[Tensor] = [source for stage in later for source in sources(stage)]
    return frozenset(tensor for tensor in (*read, *results) if tensor not in later)


__all__ = ["Cut", "Split", "searches"]
