"""A whole program made cheaper: stage by stage, sources first.

Each stage is read through the copies below it, put on its smallest domains, stored along its
bands, joined with the element-wise stages that only it reads, point by point, and then optimised.
Results that would only copy a temporary take its place. Stages that differ in names only are one
problem, which is solved once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from eqsatad.extract.band import Band, along, bands, clipped, copied
from eqsatad.extract.cost import CostModel
from eqsatad.extract.fuse import fused
from eqsatad.extract.hoist import Hoist, factors
from eqsatad.extract.known import is_definition, near
from eqsatad.extract.live import live
from eqsatad.extract.optimise import optimise
from eqsatad.extract.points import Points
from eqsatad.extract.problem import STAGE, Problem
from eqsatad.extract.recall import Answer, Recall
from eqsatad.extract.shared import common
from eqsatad.extract.sites import program_cost
from eqsatad.extract.swap import absorbed, independent, swapped
from eqsatad.rules.collection import Collection
from eqsatad.rules.copies import inline, is_copy, retarget
from eqsatad.rules.engine import Engine
from eqsatad.rules.growth import Growth, Limits
from eqsatad.rules.value_rule import ValueRule
from eqsatad.terms.nodes import Expr, Reduce, Stage, Tensor
from eqsatad.terms.origin import built_at
from eqsatad.terms.scopes import Scopes
from eqsatad.terms.walk import postorder, program, reads, sources

COPIES, DOMAINS, BANDS, VALUES, JOINING, SHARING, HOISTING, ABSORBING, FUSING, SHORTENING = (
    "copies", "domains", "bands", "values", "joining", "sharing", "hoisting", "absorbing", "fusing",
    "shortening",
)  # fmt: skip
"""The phases: what a step of a simplification does."""


class Watch(Protocol):
    """Is told every step: what some tensors of the program became."""

    def became(self, phase: str, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        """``phase`` put ``after`` in the place of ``before``."""

    def rewrote(self, stage: Stage, problem: Problem, rewritten: Stage | None) -> None:
        """``stage``, which is ``problem``, has the value ``rewritten`` before parts are stored.

        None if the rows made nothing of it.
        """


class Simplification:
    """One simplification of one program with ``rules``, which are read if something is asked."""

    def __init__(
        self, rules: Collection, cost: CostModel, limits: Limits, watch: Watch | None = None
    ) -> None:
        """``watch`` is told every step; what is watched is worked out, not recalled."""
        self._rules = rules
        self._cost = cost
        self._points = Points(cost)
        self._limits = limits
        self._recall = Recall(None) if watch else Recall.of(rules, cost, limits)
        self._watch = watch
        self._reports: list[Growth] = []
        self._names: set[str] = set()
        # What tensors hold that are stored, whoever reads them.
        self._definitions: dict[Tensor, Stage] = {}
        # What became of each stage of the program.
        self._answers: dict[Stage, Stage] = {}
        # Stages that may be joined with their only reader, which has not been met yet.
        self._waiting: set[Stage] = set()

    # What is recalled needs neither rows nor an engine, which take long to make.

    @cached_property
    def _values(self) -> tuple[ValueRule, ...]:
        return tuple(row for row in self._rules.rows if isinstance(row, ValueRule))

    @cached_property
    def _engine(self) -> Engine:
        return Engine.of(self._rules.rows)

    def of(self, outputs: Sequence[Tensor]) -> Answer:
        """The cheapest program for ``outputs`` that the rules reach; see `outcome`."""
        order = program(outputs)
        self._names = {tensor.name for tensor in order}
        readers = _readers(order)
        wanted = set(outputs)
        replaced: dict[Tensor, Tensor] = {}
        for tensor in order:
            replaced[tensor] = tensor
            if isinstance(tensor, Stage):
                below = [replaced[source] for source in sources(tensor) if source not in wanted]
                over = retarget(tensor, replaced)
                stage = inline(over, filter(is_copy, below))
                self._became(COPIES, [over], [stage])
                stage = self._restricted(stage)
                narrow = bands(stage, self._engine.indices.bounds)
                if narrow and tensor not in wanted:
                    replaced[tensor] = self._stored(stage, narrow)
                    continue
                unclipped, stage = stage, clipped(stage, narrow)
                self._became(BANDS, [unclipped], [stage])
                waits = tensor not in wanted and readers[tensor] == 1 and _joins(stage)
                replaced[tensor] = stage if waits else self._answered(self._joined(stage))
                if waits:
                    self._waiting.add(stage)
        finished = [replaced[tensor] for tensor in outputs]
        apart = absorbed(self._hoisted(self._shared(finished)))
        self._became(ABSORBING, finished, apart)
        joined = fused(apart, self._cost, self._engine.simplify)
        self._became(FUSING, apart, joined)
        results = live(joined, self._engine.simplify)
        self._became(SHORTENING, joined, results)
        return Answer(tuple(results), _together(self._reports))

    def _shared(self, outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """``outputs`` with sums that stages have in common worked out once."""
        for users in common(list(self._answers), self._restricted):
            before = [self._answers[stage] for stage in users]
            if independent(before) and set(before) <= set(program(outputs)):
                first = next(iter(users.values()))
                stored = self._optimised(first.stored(self._name("", first.stage.name)))
                after = [self._optimised(core.reading(stored)) for core in users.values()]
                trial = swapped(outputs, dict(zip(before, after, strict=True)))
                outputs = self._cheaper(SHARING, outputs, trial)
        return outputs

    def _hoisted(self, outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """``outputs`` with factors moved to where they are multiplied in most cheaply."""
        for factor in factors(outputs):
            trial = Hoist(tuple(outputs), factor, self._cost).results(
                self._optimised, lambda stage: self._name("", stage.name)
            )
            outputs = self._cheaper(HOISTING, outputs, trial)
        return outputs

    def _cheaper(
        self, phase: str, outputs: Sequence[Tensor], trial: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """``trial`` if that costs less than ``outputs``, with a word to the watch."""
        same = all(new is old for new, old in zip(trial, outputs, strict=True))
        if same or program_cost(trial, self._points) >= program_cost(outputs, self._points):
            return outputs
        self._became(phase, outputs, trial)
        return trial

    def _joined(self, stage: Stage) -> Stage:
        """``stage`` with what waited for it: joined where it is read at one place."""
        while waiting := [source for source in sources(stage) if source in self._waiting]:
            for source in waiting:
                assert isinstance(source, Stage)
                self._waiting.discard(source)
                if _fits(stage, source):
                    joined = inline(stage, [source])
                    body = Scopes(joined.axes).named(joined.body)
                    joined = Stage(joined.name, joined.axes, body, joined.scatters)
                    self._became(JOINING, [stage], [joined])
                    stage = joined
                else:
                    stage = retarget(stage, {source: self._answered(self._joined(source))})
        return stage

    def _answered(self, stage: Stage) -> Stage:
        """``stage``, which is part of the program, made cheaper."""
        self._answers[stage] = found = self._optimised(stage)
        return found

    def _stored(self, stage: Stage, narrow: Sequence[Band]) -> Stage:
        """A copy, in the place of ``stage``, of what is stored of it: its elements on bands."""
        own = along(stage, narrow)
        self._became(BANDS, [stage], [copied(stage, narrow, own)])
        return copied(stage, narrow, self._optimised(self._joined(self._restricted(own))))

    def _restricted(self, stage: Stage) -> Stage:
        """``stage`` on its smallest domains."""

        def work(problem: Problem) -> Answer:
            before = self._engine.tally.snapshot()
            found = self._engine.restrict(problem.stage, self._cost.scatter)
            tally = self._engine.tally.since(before)
            stopped = "; ".join(sorted(set(tally.stops))) or SATURATED
            matches = Counter(tally.matches)
            return Answer((found,), Growth(tally.nodes, tally.rounds, 0.0, stopped, matches))

        return self._solved(DOMAINS, stage, work)

    def _optimised(self, stage: Stage) -> Stage:
        """``stage`` as the last of the stages that compute it most cheaply."""

        def work(problem: Problem) -> Answer:
            found = optimise(
                problem.stage, self._values, self._cost, self._limits, known=problem.known
            )
            if self._watch:
                self._watch.rewrote(stage, problem, found.rewritten)
            return Answer(found.stages, found.report)

        result = self._solved(VALUES, stage, work, near(stage, self._definitions))
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
            found = problem.answer(parts, lambda part: self._name(part, stage.name))[-1]
        self._became(kind, [stage], [found])
        return found

    def _became(self, phase: str, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        if self._watch:
            self._watch.became(phase, before, after)

    def _name(self, part: str, stem: str) -> str:
        """A name for a part of the stage ``stem``, which keeps its own."""
        if part == STAGE:
            return stem
        stem, _, _ = stem.partition("_part_")
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
