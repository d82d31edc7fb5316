"""A whole program made cheaper: stage by stage, sources first.

Each stage is read through the copies below it, put on its smallest domains, joined with the
element-wise stages that only it reads, point by point, and then optimised. Results that would
only copy a temporary take its place. Stages that differ in names only are one problem, which is
solved once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from eqsatad.extract.cost import CostModel
from eqsatad.extract.fuse import fused
from eqsatad.extract.known import is_definition, near
from eqsatad.extract.optimise import optimise
from eqsatad.extract.problem import STAGE, Problem
from eqsatad.extract.recall import Answer, Recall
from eqsatad.rules.algebra import Growth, Limits
from eqsatad.rules.catalog import Catalog
from eqsatad.rules.engine import Engine, inline, is_copy, retarget
from eqsatad.rules.value_rule import ValueRule
from eqsatad.terms.nodes import Axis, Expr, Read, Reduce, Stage, Tensor
from eqsatad.terms.origin import built_at
from eqsatad.terms.scopes import Scopes
from eqsatad.terms.walk import postorder, program, reads, sources


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


class Simplification:
    """One simplification of one program with the rows of ``catalog``."""

    def __init__(self, catalog: Catalog, cost: CostModel, limits: Limits) -> None:
        self._engine = Engine.of(catalog)
        self._values = tuple(row for row in catalog if isinstance(row, ValueRule))
        self._cost = cost
        self._limits = limits
        self._recall = Recall.of(catalog, cost, limits)
        self._reports: list[Growth] = []
        self._names: set[str] = set()
        # What tensors hold that are stored, whoever reads them.
        self._definitions: dict[Tensor, Stage] = {}
        # Stages that may be joined with their only reader, which has not been met yet.
        self._waiting: set[Stage] = set()

    def of(self, outputs: Sequence[Tensor]) -> Simplified:
        """The cheapest program for ``outputs`` that the rules reach."""
        start = time.perf_counter()
        found = self._recall.solve("program", outputs, lambda: self._program(outputs))
        report = found.report
        return Simplified(
            found.tensors,
            Saturation(
                report.stopped,
                time.perf_counter() - start,
                report.nodes,
                report.rounds,
                dict(report.matches),
            ),
        )

    def _program(self, outputs: Sequence[Tensor]) -> Answer:
        order = program(outputs)
        self._names = {tensor.name for tensor in order}
        readers = _readers(order)
        wanted = set(outputs)
        replaced: dict[Tensor, Tensor] = {}
        for tensor in order:
            replaced[tensor] = tensor
            if isinstance(tensor, Stage):
                below = [replaced[source] for source in sources(tensor) if source not in wanted]
                stage = inline(retarget(tensor, replaced), filter(is_copy, below))
                stage = self._restricted(stage)
                waits = tensor not in wanted and readers[tensor] == 1 and _joins(stage)
                replaced[tensor] = stage if waits else self._optimised(self._joined(stage))
                if waits:
                    self._waiting.add(stage)
        apart = absorbed([replaced[tensor] for tensor in outputs])
        results = fused(apart, self._cost, self._engine.simplify)
        return Answer(tuple(results), _together(self._reports))

    def _joined(self, stage: Stage) -> Stage:
        """``stage`` with what waited for it: joined where it is read at one place."""
        while waiting := [source for source in sources(stage) if source in self._waiting]:
            for source in waiting:
                assert isinstance(source, Stage)
                self._waiting.discard(source)
                if _fits(stage, source):
                    joined = inline(stage, [source])
                    body = Scopes(joined.axes).named(joined.body)
                    stage = Stage(joined.name, joined.axes, body, joined.scatters)
                else:
                    stage = retarget(stage, {source: self._optimised(self._joined(source))})
        return stage

    def _restricted(self, stage: Stage) -> Stage:
        """``stage`` on its smallest domains."""

        def work(problem: Problem) -> Answer:
            before = self._engine.tally.snapshot()
            found = self._engine.restrict(problem.stage)
            tally = self._engine.tally.since(before)
            stopped = "; ".join(sorted(set(tally.stops))) or SATURATED
            matches = Counter(tally.matches)
            return Answer((found,), Growth(tally.nodes, tally.rounds, 0.0, stopped, matches))

        return self._solved("domains", stage, work)

    def _optimised(self, stage: Stage) -> Stage:
        """``stage`` as the last of the stages that compute it most cheaply."""

        def work(problem: Problem) -> Answer:
            found = optimise(
                problem.stage, self._values, self._cost, self._limits, known=problem.known
            )
            return Answer(found.stages, found.report)

        result = self._solved("values", stage, work, near(stage, self._definitions))
        if is_definition(stage):
            self._definitions[result] = stage
        return result

    def _solved(
        self,
        kind: str,
        stage: Stage,
        work: Callable[[Problem], Answer],
        known: Mapping[Tensor, Stage] | None = None,
    ) -> Stage:
        """The last stage of the answer to ``stage``, spelled as ``stage`` is."""
        problem = Problem.of(stage, known)
        question = [problem.stage, *problem.known]
        answer = self._recall.solve(kind, question, lambda: work(problem))
        self._reports.append(answer.report)
        parts = [part for part in answer.tensors if isinstance(part, Stage)]
        with built_at(stage.built):
            return problem.answer(parts, lambda part: self._name(part, stage.name))[-1]

    def _name(self, part: str, stem: str) -> str:
        """A name for a part of the stage ``stem``, which keeps its own."""
        if part == STAGE:
            return stem
        number = 1
        while f"{stem}_part_{number}" in self._names:
            number += 1
        self._names.add(f"{stem}_part_{number}")
        return f"{stem}_part_{number}"


SATURATED = "saturated"
SMALL = 40
"""Nodes of a reduction that may be joined with what reads it."""


def _together(reports: Iterable[Growth]) -> Growth:
    """What happened in all of ``reports``."""
    total = Growth()
    stops: set[str] = set()
    for report in reports:
        total.nodes += report.nodes
        total.rounds += report.rounds
        total.matches.update(report.matches)
        if "limit" in report.stopped:
            stops.add(report.stopped)
    total.stopped = "; ".join(sorted(stops)) or SATURATED
    return total


def _readers(order: Iterable[Tensor]) -> dict[Tensor, int]:
    """How many stages read each tensor."""
    count = dict.fromkeys(order, 0)
    for tensor in count:
        for source in sources(tensor):
            count[source] += 1
    return count


def _joins(stage: Stage) -> bool:
    """Whether ``stage`` may become a part of another: element-wise, or a small reduction."""
    if stage.scatters:
        return False
    nodes = postorder(stage.body)
    return len(nodes) <= SMALL or not any(isinstance(node, Reduce) for node in nodes)


def _fits(stage: Stage, source: Stage) -> bool:
    """Whether to join ``source`` with ``stage``, which reads it at one place outside of sums.

    An element-wise source is joined point by point. One that is repeated along an axis is joined
    for what the rules may then bring into its sum, or take out; if they do not, it is stored.
    """
    sites = [read for read in reads(*stage.roots) if read.tensor is source]
    if len(sites) != 1 or stage.scatters:
        return False
    (site,) = sites
    outside = not any(
        isinstance(node, Reduce) and site in postorder(node) for node in postorder(stage.body)
    )
    axes: set[Expr] = {*stage.axes}
    apart = len(set(site.indices)) == len(site.indices)
    if not (outside and apart and axes.issuperset(site.indices)):
        return False
    if len(site.indices) < len(axes):
        return sum(node.children.count(site) for node in postorder(stage.body)) == 1
    return not any(isinstance(node, Reduce) for node in postorder(source.body))


def absorbed(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``outputs``, where those that only copy a temporary take its place."""
    taken: dict[Tensor, Tensor] = {}
    for output in outputs:
        source = _copied(output)
        if source is not None and source not in outputs:
            taken.setdefault(source, output)
    replaced: dict[Tensor, Tensor] = {}
    for tensor in program(outputs):
        replaced[tensor] = tensor
        if isinstance(tensor, Stage):
            stage = retarget(tensor, replaced)
            name = taken[tensor].name if tensor in taken else stage.name
            replaced[tensor] = Stage(name, stage.axes, stage.body, stage.scatters)
    replaced.update({output: replaced[source] for source, output in taken.items()})
    return [replaced[output] for output in outputs]


def _copied(tensor: Tensor) -> Stage | None:
    """The stage that ``tensor`` copies element by element."""
    if not isinstance(tensor, Stage) or tensor.scatters or not isinstance(tensor.body, Read):
        return None
    source, indices = tensor.body.tensor, tensor.body.indices
    axes: tuple[Axis, ...] = tensor.axes
    same = isinstance(source, Stage) and indices == axes and source.shape == tensor.shape
    return source if same and isinstance(source, Stage) else None
