"""How a program came to be: the steps of a simplification, and the rows that each of them takes.

A step puts some tensors in the place of others, so the program after each step is a program. For
a step of rows there is a claim: that these rows alone unite both values in an e-graph, or that
they alone put the stage on its domains. The rows of a step are a smallest choice: leave one out,
and the claim fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property

from eqsatad.extract.cost import CostModel
from eqsatad.extract.dag import Choice as Chosen
from eqsatad.extract.dag import extract
from eqsatad.extract.graph import Decoder, snapshot
from eqsatad.extract.known import Equation, equations
from eqsatad.extract.naming import readable
from eqsatad.extract.optimise import search
from eqsatad.extract.points import Points
from eqsatad.extract.problem import Problem
from eqsatad.extract.program import (
    ABSORBING,
    DOMAINS,
    FUSING,
    HOISTING,
    SHARING,
    VALUES,
    Simplification,
)
from eqsatad.extract.safe import in_order
from eqsatad.rules.catalog import Catalog
from eqsatad.rules.collection import Collection
from eqsatad.rules.copies import retarget
from eqsatad.rules.domains import Domains
from eqsatad.rules.domains import Limits as DomainLimits
from eqsatad.rules.engine import Engine, names_in
from eqsatad.rules.growth import Growth, Limits
from eqsatad.rules.indices import Indices
from eqsatad.rules.rule import DomainRow, IndexRow, IntervalRow, Row, TermRow
from eqsatad.rules.scatters import Prices
from eqsatad.rules.singly import PAIR, Choice
from eqsatad.rules.summands import Restriction, added, summands
from eqsatad.rules.value_rule import ValueRule
from eqsatad.rules.values import Encoded, TooLargeError, canonical, encode
from eqsatad.terms.nodes import FLOATS, Apply, Axis, Expr, Stage, Tensor
from eqsatad.terms.ops import OPS
from eqsatad.terms.walk import program

STORING = "storing"
"""The phase that makes parts of a value stages of their own."""


@dataclass(frozen=True)
class United:
    """The claim that ``rounds`` unite two values over ``axes``; ``equal`` are so to begin with."""

    left: Expr
    right: Expr
    axes: tuple[Axis, ...]
    equal: tuple[Equation, ...]
    rounds: int

    def encoded(self) -> Encoded | None:
        """Both values for one e-graph; None if it cannot hold them."""
        if self.left.dtype not in FLOATS or self.left.dtype != self.right.dtype:
            return None
        try:
            return encode(Apply(OPS[PAIR], (self.left, self.right)), self.axes, self.equal)
        except TooLargeError:
            return None


@dataclass(frozen=True)
class Restricted:
    """The claim that ``stage`` on its smallest domains, or ``moves`` towards it, is ``result``."""

    stage: Stage
    result: Stage
    moves: int | None = None


Claim = United | Restricted


@dataclass(frozen=True)
class Step:
    """``after`` in the place of ``before``, by ``rows``; ``claim`` is what the rows show."""

    phase: str
    before: tuple[Tensor, ...]
    after: tuple[Tensor, ...]
    rows: tuple[str, ...] = ()
    claim: Claim | None = None

    def apply(self, outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The program ``outputs`` after this step."""
        put = dict(zip(self.before, self.after, strict=True))
        done: dict[Tensor, Tensor] = {}
        for tensor in program(outputs):
            over = retarget(tensor, done) if isinstance(tensor, Stage) else tensor
            done[tensor] = put.get(tensor, put.get(over, over))
        return tuple(done[output] for output in outputs)


WHOLE = (SHARING, HOISTING, ABSORBING, FUSING)
"""The phases that look at the whole program at once."""

MOST_MOVES = 8
"""Moves towards the smallest domain that are looked at one by one."""

KINDS: list[type[Row]] = [DomainRow, IndexRow, IntervalRow, TermRow]
"""In which order the rows of a step are named."""


class Judge:
    """Decides claims with the rows of one catalog."""

    def __init__(self, catalog: Catalog, limits: Limits, prices: Prices | None = None) -> None:
        self.values = tuple(row for row in catalog if isinstance(row, ValueRule))
        self.choice = Choice(self.values)
        self.limits = limits
        # What decides between gathers and scatters.
        self.prices = prices
        rows = (row for row in catalog if isinstance(row, Row))
        self._rows = sorted(rows, key=lambda row: KINDS.index(type(row)))
        self._chains: dict[Stage, list[tuple[Restricted, tuple[str, ...]]]] = {}
        self._restricted: dict[tuple[Stage, frozenset[str], int | None], Stage] = {}
        self._smallest: dict[tuple[Claim, tuple[str, ...]], tuple[str, ...]] = {}

    def holds(self, claim: Claim, rows: Sequence[str]) -> bool:
        """Whether the rows of these names show ``claim``."""
        if isinstance(claim, Restricted):
            found = self.restricted(claim.stage, rows, claim.moves)
            return _same(found, claim.result)
        return self.rounds(claim, rows) is not None

    def rounds(self, claim: United, rows: Sequence[str]) -> int | None:
        """After how many rounds, of those that ``claim`` has, the rows of these names show it."""
        if claim.left is claim.right:
            return 0
        limits = replace(self.limits, rounds=claim.rounds)
        pair = claim.encoded()
        return None if pair is None else self.choice.unites(pair, rows, limits)

    def restricted(self, stage: Stage, rows: Sequence[str], moves: int | None = None) -> Stage:
        """``stage`` on its smallest domains, or ``moves`` towards it, by rows of these names."""
        key = stage, frozenset(rows), moves
        if key not in self._restricted:
            indices = Indices([row for row in self._rows if row.name in key[1]])
            if moves is None:
                found = Engine(indices, Domains(indices)).restrict(stage, self.prices)
            else:
                domains = Domains(indices, DomainLimits(moves=moves))
                body = Restriction(indices, domains, names_in(stage)).term(stage.body)
                found = Stage(stage.name, stage.axes, body)
            self._restricted[key] = found
        return self._restricted[key]

    def domains(self, stage: Stage) -> list[tuple[Restricted, tuple[str, ...]]]:
        """Claims that lead from ``stage`` to its smallest domains, with the rows that show each."""
        if stage not in self._chains:
            rows = self._fired(stage)
            claims = self._moves(Restricted(stage, self.restricted(stage, rows)), rows)
            self._chains[stage] = [(claim, self.smallest(claim, rows)) for claim in claims]
        return self._chains[stage]

    def _fired(self, stage: Stage) -> tuple[str, ...]:
        """The names of the rows that matched while ``stage`` was put on its domains."""
        indices = Indices(self._rows)
        Engine(indices, Domains(indices)).restrict(stage, self.prices)
        fired = indices.tally.matches.keys() | indices.bounds.matches.keys()
        return tuple(row.name for row in self._rows if row.name in fired)

    def _moves(self, whole: Restricted, rows: tuple[str, ...]) -> Iterator[Restricted]:
        """``whole`` move by move, each by itself or, where it is one of several, from the start."""
        before = whole.stage
        for moves in range(MOST_MOVES):
            after = self.restricted(whole.stage, rows, moves)
            if _same(after, whole.result):
                break
            restated = moves == 0 and self.holds(Restricted(before, after, 0), ())
            if not restated and not _same(before, after):
                step = Restricted(before, after, min(moves, 1))
                yield step if self.holds(step, rows) else Restricted(whole.stage, after, moves)
                before = after
        last = Restricted(before, whole.result)
        yield last if self.holds(last, rows) else whole

    def smallest(self, claim: Claim, rows: Sequence[str]) -> tuple[str, ...]:
        """Those of ``rows`` that show ``claim``, of which none can be left out."""
        key = claim, tuple(rows)
        if key not in self._smallest:
            kept, size = key[1], len(rows)
            while kept and size:
                size = min(size, len(kept))
                fewer = self._fewer(claim, kept, size)
                # Single rows are tried again until none of them goes.
                size = 1 if size == 1 and fewer != kept else size // 2
                kept = fewer
            self._smallest[key] = kept
        return self._smallest[key]

    def _fewer(self, claim: Claim, rows: tuple[str, ...], size: int) -> tuple[str, ...]:
        """``rows`` without those of their pieces of ``size`` that ``claim`` does not need."""
        kept = rows
        for piece in [rows[n : n + size] for n in range(0, len(rows), size)]:
            fewer = tuple(name for name in kept if name not in piece)
            if self.holds(claim, fewer):
                kept = fewer
        return kept


class Trace:
    """Watches one simplification and keeps its steps.

    The programs on the way are to be evaluated, so the conditions of each stage are put in order,
    which a simplification does at the end only. ``_own`` has what a stage is on this way. What is
    only tried does not change the program, and is no step.
    """

    def __init__(self, outputs: Sequence[Tensor], judge: Judge, cost: CostModel) -> None:
        self.steps: list[Step] = []
        self._reached = tuple(outputs)
        self._judge = judge
        self._cost = cost
        self._own: dict[Tensor, Tensor] = {}

    def became(self, phase: str, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        """Keeps one step of ``phase``; a step of rows as the smaller steps that it is made of."""
        if phase in WHOLE:
            self.finish(phase, after)
            return
        olds = tuple(map(self._mine, before))
        news = tuple(map(self._ordered, after))
        if phase == DOMAINS:
            self._domains(olds[0], news[0])
        else:
            self._step(Step(STORING if phase == VALUES else phase, olds, news))

    def finish(self, phase: str, outputs: Sequence[Tensor]) -> None:
        """Keeps the step from the program that is reached to the whole program ``outputs``."""
        self._step(Step(phase, self._reached, tuple(outputs)))

    def rewrote(self, stage: Stage, problem: Problem, rewritten: Stage | None) -> None:
        """Keeps the steps from ``stage``, which is ``problem``, to the value ``rewritten``."""
        if rewritten is None:
            return
        plain, names = canonical(problem.stage.body)
        equal = tuple(equations(plain, problem.known))
        rewriting = Rewriting(self._judge, self._cost, rewritten.axes, equal)
        old = self._mine(stage)
        for claim, rows in rewriting.chain(plain, rewritten.body):
            part = Stage(rewritten.name, rewritten.axes, claim.right, rewritten.scatters)
            (found,) = problem.answer([readable(part, names)], lambda _: stage.name)
            new = self._ordered(found)
            shown = None if rows is None else claim
            self._step(Step(VALUES, (old,), (new,), rows or (), shown))
            old = new
        self._own[stage] = old

    def _step(self, step: Step) -> None:
        after = step.apply(self._reached)
        if after != self._reached:
            self.steps.append(step)
            self._reached = after

    def _domains(self, old: Tensor, new: Tensor) -> None:
        """Summand by summand; equal summands up to names are one claim."""
        assert isinstance(old, Stage), "domains are those of stages"
        terms = list(summands(old.body))
        done: list[Stage] = []
        before: Tensor = old
        for number, term in enumerate(terms, 1):
            problem = Problem.of(Stage(old.name, old.axes, term))
            found: list[Stage] = []
            for claim, rows in self._judge.domains(problem.stage):
                found = problem.answer([claim.result], lambda _: old.name)
                after = in_order(_together(old, [*done, *found], terms[number:]))
                self._step(Step(DOMAINS, (before,), (after,), rows, claim))
                before = after
            done += found
        self._step(Step(DOMAINS, (before,), (new,)))

    def _mine(self, tensor: Tensor) -> Tensor:
        """What ``tensor`` is in the programs on the way."""
        done: dict[Tensor, Tensor] = {}
        for part in program([tensor]):
            over = retarget(part, done) if isinstance(part, Stage) else part
            done[part] = self._own.get(part, over)
        return done[tensor]

    def _ordered(self, tensor: Tensor) -> Tensor:
        """As `_mine`, with conditions in order from now on."""
        found = self._mine(tensor)
        self._own[tensor] = in_order(found) if isinstance(found, Stage) else found
        return self._own[tensor]


def _same(left: Stage, right: Stage) -> bool:
    """Whether both stages are one up to the names of axes."""
    return Problem.of(left).stage is Problem.of(right).stage


def _together(stage: Stage, done: Sequence[Stage], rest: Sequence[Expr]) -> Stage:
    """``stage`` with its first summands replaced by the stages ``done``."""
    spread = [scatter for part in done for scatter in part.scatters]
    body = added([*(part.body for part in done), *rest])
    return Stage(stage.name, stage.axes, body, (*stage.scatters, *spread))


@dataclass(frozen=True)
class Rewriting:
    """Finds the way from one value to another, in steps that get cheaper."""

    judge: Judge
    cost: CostModel
    axes: tuple[Axis, ...]
    equal: tuple[Equation, ...]

    def chain(self, start: Expr, goal: Expr) -> Iterator[tuple[United, tuple[str, ...] | None]]:
        """Claims that lead from ``start`` to ``goal``, with the rows that show each.

        One claim without rows if not even all of them show it within the limits.
        """
        route = self._route(self._cheaper(start, goal))
        if not route:
            yield United(start, goal, self.axes, self.equal, 0), None
        for claim in route:
            yield from self._refined(claim, self.judge.smallest(claim, self._every))

    def _route(self, values: Sequence[Expr]) -> list[United]:
        """Claims that hold and lead from the first of ``values`` to the last, by way of others.

        A row goes one way, so what came of a value need not lead to all that comes of it.
        """
        first, *others = values
        for place, value in enumerate(others):
            claim = self._claim(first, value, self._every)
            if claim:
                rest = self._route(others[place:])
                if rest or value is values[-1]:
                    return [claim, *rest]
        return []

    def _claim(self, left: Expr, right: Expr, rows: Sequence[str]) -> United | None:
        """The claim that ``rows`` unite two values, in no more rounds than it takes; None if false.

        Where fewer rows take longer, it is for all of them together.
        """
        claim = United(left, right, self.axes, self.equal, self.judge.limits.rounds)
        rounds = self.judge.rounds(claim, rows)
        return None if rounds is None else replace(claim, rounds=rounds)

    @cached_property
    def _every(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.judge.values)

    def _cheaper(self, start: Expr, goal: Expr) -> list[Expr]:
        """``start``, the cheapest value after each round that found a cheaper one, and ``goal``."""
        encoded = encode(start, self.axes, self.equal)
        found = search(encoded, self.judge.values, self.cost, self.judge.limits, Growth())
        values = [self._read(encoded, root, choice, goal.dtype) for root, choice in found]
        return list(dict.fromkeys(v for v in (start, *values[1:], goal) if self._closed(v)))

    def _refined(
        self, claim: United, rows: tuple[str, ...]
    ) -> Iterator[tuple[United, tuple[str, ...]]]:
        """``claim`` by way of what fewer rows already make cheaper, if they do."""
        for name in rows if len(rows) > 1 else ():
            fewer = tuple(other for other in rows if other != name)
            middle = self._cheapest(claim, fewer)
            if middle is None or middle in (claim.left, claim.right):
                continue
            first = self._claim(claim.left, middle, fewer)
            second = self._claim(middle, claim.right, rows)
            if first and second:
                yield from self._refined(first, self.judge.smallest(first, fewer))
                yield from self._refined(second, self.judge.smallest(second, rows))
                return
        yield claim, rows

    def _cheapest(self, claim: United, rows: tuple[str, ...]) -> Expr | None:
        """What ``rows`` make of the left side, if that is cheaper."""
        encoded = encode(claim.left, self.axes, self.equal)
        limits = replace(self.judge.limits, rounds=claim.rounds)
        points = Points(self.cost)
        best: tuple[float, Expr] | None = None
        first = None
        with closing(self.judge.choice.grow(encoded, rows, limits)) as rounds:
            for graph in rounds:
                priced = snapshot(graph, encoded, points)
                choice = extract(priced)
                first = choice.cost if first is None else first
                if choice.cost < (first if best is None else best[0]) * CHEAPER:
                    value = self._read(encoded, priced.root, choice, claim.left.dtype)
                    best = choice.cost, value
        return best[1] if best and self._closed(best[1]) else None

    def _read(self, encoded: Encoded, root: int, choice: Chosen, dtype: str) -> Expr:
        return canonical(Decoder(encoded, choice).decode(root, dtype))[0]

    def _closed(self, value: Expr) -> bool:
        return value.free <= frozenset(self.axes)


CHEAPER = 1 - 1e-9


def traced(
    outputs: Sequence[Tensor], catalog: Catalog, cost: CostModel, limits: Limits, judge: Judge
) -> tuple[Step, ...]:
    """The steps that lead from ``outputs`` to what they simplify to."""
    trace = Trace(outputs, judge, cost)
    found = Simplification(Collection(catalog), cost, limits, trace).of(outputs).tensors
    # Whatever nobody told of.
    trace.finish("the rest", found)
    return tuple(trace.steps)
