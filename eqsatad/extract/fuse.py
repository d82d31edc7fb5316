"""Stages of a finished program that need no loop of their own, put into those that read them.

A stage that one other reads point by point is worked out where it is read: no element is worked
out twice, and none is stored. An element-wise stage without multiplications and calls is worked
out again at every read where the prices say that this is cheaper than storing it. Two kinds of
reductions stay: under a condition on data, which would cut their loops, and running values, which
are cheap as stages only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eqsatad.extract.cost import CostModel
from eqsatad.extract.points import Points
from eqsatad.extract.sites import executed
from eqsatad.grad.scope import works
from eqsatad.rules.copies import inline, retarget
from eqsatad.rules.summands import guarded
from eqsatad.terms.coerce import const
from eqsatad.terms.nodes import MARKER, Apply, Axis, Expr, Read, Reduce, Select, Stage, Tensor
from eqsatad.terms.ops import EQ, FLOORDIV, LT, MOD
from eqsatad.terms.origin import built_at
from eqsatad.terms.presburger import empty
from eqsatad.terms.scopes import Scopes
from eqsatad.terms.walk import (
    conjunction,
    constant,
    map_stage,
    postorder,
    program,
    reads,
    sources,
    substitute,
)

SMALL = 40
"""Nodes of an element-wise stage that may be worked out more than once."""

LARGE = 400
"""Nodes of a stage that nothing more is put into."""


Simplify = Callable[[Sequence[Expr]], list[Expr]]
Decided = dict[tuple[Stage, ...], bool]
"""Whether a stage goes, by what it was, what it is, and its readers."""


def fused(outputs: Sequence[Tensor], cost: CostModel, simplify: Simplify) -> list[Tensor]:
    """``outputs`` with fewer temporaries below them; ``simplify`` is for their indices."""
    before: list[Tensor] = []
    after = list(outputs)
    decided: Decided = {}
    while after != before:
        # What has gone into a reader may let that reader, or its own sources, go further.
        before, after = after, _Fusion(after, cost, simplify, decided).results()
    return after


class _Fusion:
    """One pass over a program, sources first."""

    def __init__(
        self, outputs: Sequence[Tensor], cost: CostModel, simplify: Simplify, decided: Decided
    ) -> None:
        self._outputs = outputs
        self._decided = decided
        self._simplify = simplify
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
                replaced[tensor] = stage = self._with(retarget(tensor, replaced), through)
                if tensor not in wanted and self._decides(tensor, stage):
                    gone.add(tensor)
        return [replaced[output] for output in self._outputs]

    def _decides(self, old: Stage, stage: Stage) -> bool:
        key = (old, stage, *self._readers[old])
        if key not in self._decided:
            self._decided[key] = self._goes(old, stage)
        return self._decided[key]

    def _goes(self, old: Stage, stage: Stage) -> bool:
        """Whether ``stage``, which takes the place of ``old``, is put into its readers."""
        readers = self._readers[old]
        if stage.scatters or any(len(postorder(*reader.roots)) > LARGE for reader in readers):
            return False
        if len(readers) == 1 and self._once(readers[0], old, stage):
            return True
        nodes = postorder(stage.body)
        return len(nodes) <= SMALL and not any(map(works, nodes)) and self._gains(old, stage)

    def _gains(self, old: Stage, stage: Stage) -> bool:
        """Whether working ``stage`` out at every read is cheaper than storing it."""
        model = self._points.model
        saved = self._cost(stage) + model.visit * model.volume(stage.axes)
        for reader in self._readers[old]:
            before = retarget(reader, {old: stage})
            saved -= self._cost(inline(before, [stage])) - self._cost(before)
            if saved <= 0:
                return False
        return True

    def _cost(self, stage: Stage) -> float:
        return executed([stage], self._points)

    def _once(self, reader: Stage, old: Stage, stage: Stage) -> bool:
        """Whether ``reader`` needs no element of ``stage`` twice, nor data to know which.

        Positions other than the axes themselves may cost divisions, so a stage that is read at
        some is put there only if no more of them are left.
        """
        reduces = any(isinstance(node, Reduce) for node in postorder(stage.body))
        site = _site(reader, old, under_data=not reduces)
        if site is None:
            return False
        running = {axis for axis in reader.axes if constant(axis.extent) != 1}
        if running <= set(site.indices) and not any(index.children for index in site.indices):
            return not any(_running(node, stage) for node in postorder(stage.body))
        before = retarget(reader, {old: stage})
        return (
            not reduces
            and _injective(site.indices, reader.axes)
            and _divisions(self._with(before, [stage])) <= _divisions(before)
        )

    def _with(self, stage: Stage, through: Iterable[Tensor]) -> Stage:
        """``stage`` with what is ``through`` in place of the reads of it, indices simplified."""
        joined = inline(stage, through)
        if joined is stage:
            return stage
        joined = map_stage(joined, lambda root: outermost(self._simplify([root])[0]))
        body = Scopes(joined.axes).named(joined.body)
        with built_at(stage.built):
            return Stage(joined.name, joined.axes, body, joined.scatters)


def outermost(root: Expr) -> Expr:
    """``root`` with the conditions of a product around the whole of it."""
    conds, value = guarded(root)
    return Select(conjunction(conds), value, const(0, root.dtype)) if conds else root


def _site(reader: Stage, source: Stage, *, under_data: bool) -> Read | None:
    """The read of ``source``, if there is one and it is outside of sums (and tests of data)."""
    sites = [read for read in reads(*reader.roots) if read.tensor is source]
    if len(sites) != 1 or reader.scatters:
        return None
    inside = any(
        sites[0] in postorder(node)
        for node in postorder(reader.body)
        if isinstance(node, Reduce)
        or (isinstance(node, Select) and not under_data and _tests_data(node.cond))
    )
    return None if inside else sites[0]


def _injective(indices: Sequence[Expr], axes: Sequence[Axis]) -> bool:
    """Whether it is proved that no two points of ``axes`` have the same ``indices``."""
    others = {axis: Axis(f"{axis.name}{MARKER}", axis.extent) for axis in axes}
    same = [Apply(EQ, (index, substitute(index, others))) for index in indices]
    return all(empty((*same, Apply(LT, (axis, other)))) for axis, other in others.items())


def _divisions(stage: Stage) -> int:
    return sum(
        isinstance(node, Apply) and node.dtype == "index" and node.op in (FLOORDIV, MOD)
        for node in postorder(*stage.roots)
    )


def _tests_data(cond: Expr) -> bool:
    return any(isinstance(node, Read) for node in postorder(cond))


def _running(node: Expr, stage: Stage) -> bool:
    """Whether ``node`` is a reduction that an axis of ``stage`` only bounds: it may carry on."""
    if not isinstance(node, Reduce):
        return False
    return bool((node.cond.free - node.body.free) & frozenset(stage.axes))
