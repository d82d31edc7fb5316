"""Stages of a finished program that need no loop of their own, put into those that read them.

A stage that one other reads point by point is worked out where it is read: no element is worked
out twice, and none is stored. An element-wise stage is worked out again at every read where the
prices say that this is cheaper than storing it. A reduction is never put under a condition on
data, which would take the place of its loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eqsatad.extract.cost import CostModel
from eqsatad.extract.points import Points
from eqsatad.extract.sites import executed
from eqsatad.rules.engine import inline, retarget
from eqsatad.terms.nodes import Expr, Read, Reduce, Select, Stage, Tensor
from eqsatad.terms.origin import built_at
from eqsatad.terms.scopes import Scopes
from eqsatad.terms.walk import postorder, program, reads, sources

SMALL = 40
"""Nodes of an element-wise stage that may be worked out more than once."""

LARGE = 400
"""Nodes of a stage that nothing more is put into."""


def fused(outputs: Sequence[Tensor], cost: CostModel) -> list[Tensor]:
    """``outputs`` with fewer temporaries below them."""
    return _Fusion(outputs, cost).results()


class _Fusion:
    """One pass over a program, sources first."""

    def __init__(self, outputs: Sequence[Tensor], cost: CostModel) -> None:
        self._outputs = outputs
        self._order = program(outputs)
        self._points = Points(cost)
        self._readers: dict[Tensor, list[Stage]] = {tensor: [] for tensor in self._order}
        for tensor in self._order:
            for source in sources(tensor):
                assert isinstance(tensor, Stage), "only stages read"
                self._readers[source].append(tensor)

    def results(self) -> list[Tensor]:
        """The outputs of the program with stages put into others."""
        wanted = set(self._outputs)
        replaced: dict[Tensor, Tensor] = {}
        gone: set[Tensor] = set()
        for tensor in self._order:
            replaced[tensor] = tensor
            if isinstance(tensor, Stage):
                through = [replaced[source] for source in sources(tensor) if source in gone]
                replaced[tensor] = stage = _with(retarget(tensor, replaced), through)
                if tensor not in wanted and self._goes(tensor, stage):
                    gone.add(tensor)
        return [replaced[output] for output in self._outputs]

    def _goes(self, old: Stage, stage: Stage) -> bool:
        """Whether ``stage``, which takes the place of ``old``, is put into its readers."""
        readers = self._readers[old]
        if stage.scatters or any(len(postorder(*reader.roots)) > LARGE for reader in readers):
            return False
        if any(isinstance(node, Reduce) for node in postorder(stage.body)):
            return len(readers) == 1 and _point_by_point(readers[0], old)
        return len(postorder(stage.body)) <= SMALL and self._gains(old, stage)

    def _gains(self, old: Stage, stage: Stage) -> bool:
        """Whether working ``stage`` out at every read is cheaper than storing it."""
        model = self._points.model
        saved = self._cost(stage) + model.visit * model.volume(stage.axes)
        for reader in self._readers[old]:
            before = retarget(reader, {old: stage})
            saved -= self._cost(_with(before, [stage])) - self._cost(before)
            if saved <= 0:
                return False
        return True

    def _cost(self, stage: Stage) -> float:
        return executed([stage], self._points)


def _with(stage: Stage, through: Iterable[Tensor]) -> Stage:
    """``stage`` with what is ``through`` in place of the reads of it, under names of its own."""
    joined = inline(stage, through)
    if joined is stage:
        return stage
    with built_at(stage.built):
        return Stage(
            joined.name, joined.axes, Scopes(joined.axes).named(joined.body), joined.scatters
        )


def _point_by_point(reader: Stage, source: Stage) -> bool:
    """Whether ``reader`` needs each element of ``source`` once, whatever the data."""
    sites = [read for read in reads(*reader.roots) if read.tensor is source]
    if len(sites) != 1 or reader.scatters:
        return False
    (site,) = sites
    axes: list[Expr] = [*reader.axes]
    same = len(site.indices) == len(axes) and set(site.indices) == set(axes)
    return same and not any(
        isinstance(node, Reduce) or (isinstance(node, Select) and _tests_data(node.cond))
        for node in postorder(reader.body)
        if isinstance(node, Reduce | Select) and site in postorder(node)
    )


def _tests_data(cond: Expr) -> bool:
    return any(isinstance(node, Read) for node in postorder(cond))
