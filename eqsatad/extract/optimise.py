"""One stage made cheaper: through the e-graph of values, then split into stages.

The e-graph grows round by round; after each round the cheapest choice is read, and growing stops
when that no longer gets cheaper or a limit is reached. Whatever happens, the result is the
cheapest program seen, the input among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import inf

from eqsatad.extract.cost import CostModel
from eqsatad.extract.dag import Choice, extract
from eqsatad.extract.graph import Decoder, snapshot
from eqsatad.extract.isolate import apart, search_apart
from eqsatad.extract.known import equations
from eqsatad.extract.materialise import materialise
from eqsatad.extract.naming import readable
from eqsatad.extract.points import Points
from eqsatad.extract.safe import in_order
from eqsatad.extract.sites import executed, parts
from eqsatad.rules.algebra import grow
from eqsatad.rules.copies import retarget
from eqsatad.rules.growth import Growth, Limits
from eqsatad.rules.value_rule import ValueRule
from eqsatad.rules.values import Encoded, TooLargeError, canonical, encode, is_value
from eqsatad.terms.nodes import SUM, Apply, Const, Expr, Read, Reduce, Select, Stage, Tensor
from eqsatad.terms.ops import ADD, MUL
from eqsatad.terms.walk import conjuncts, fold, joined, operands, postorder, reads


@dataclass(frozen=True)
class Optimised:
    """The stages of one stage: temporaries first, then the stage itself.

    ``rewritten`` is the stage before parts of it were stored; None where the rules had no part.
    """

    stages: tuple[Stage, ...]
    report: Growth
    cost_before: float
    cost_after: float
    rewritten: Stage | None = None


LARGEST_INPUT = 400
DEEPEST_INPUT = 100
"""Operations, one in another, of a term that is put into an e-graph at all."""

TOGETHER = 8
"""Summands that share an e-graph: reordering more of them fills it with nothing else."""

QUIET_ROUNDS = 2
"""Rounds without a cheaper choice after which growing stops, once there are `SMALL` terms."""

SMALL = 400


def optimise(
    stage: Stage,
    rules: Sequence[ValueRule],
    cost: CostModel,
    limits: Limits | None = None,
    name_taken: Callable[[str], bool] = lambda name: False,
    known: Sequence[Stage] = (),
) -> Optimised:
    """``stage`` as the cheapest program that ``rules`` reach, and what it took.

    ``known`` say what placeholders hold that are at hand besides what ``stage`` reads.
    """
    report = Growth()
    term, names = canonical(stage.body)
    plain = Stage(stage.name, stage.axes, term, stage.scatters)
    naming = _naming(stage.name, name_taken)
    points = Points(cost)
    best: list[Stage] = []
    found: Stage | None = None
    ideal = inf
    if not is_value(term):
        report.stopped = "not a number"
    elif worthwhile(term) or any(equations(term, known)):
        found, ideal = _in_groups(plain, rules, cost, limits or Limits(), report, known)
        best = materialise(found, points, naming) if found else []
    # What the input costs with every part shared is a bound that it rarely reaches.
    if not best or executed(best, points) > min(ideal, executed([plain], points)):
        stored = materialise(plain, points, naming)
        if not best or executed(stored, points) < executed(best, points):
            best, found = stored, None
    return Optimised(
        _finished(best, names),
        report,
        executed([stage], points),
        executed(best, points),
        found,
    )


def _finished(stages: Sequence[Stage], names: dict[str, str]) -> tuple[Stage, ...]:
    """``stages`` under names that people wrote, each reading those before it."""
    done: dict[Tensor, Tensor] = {}
    result = []
    for stage in stages:
        result.append(in_order(readable(retarget(stage, done), names)))
        done[stage] = result[-1]
    return tuple(result)


def worthwhile(term: Expr) -> bool:
    """Whether there is anything to choose: not for one product of two reads summed over both."""
    if isinstance(term, Select):
        term = term.then
    axes = frozenset(term.axes) if isinstance(term, Reduce) and term.combiner is SUM else None
    if axes is not None:
        if any(not cond.free & axes for cond in conjuncts(term.cond)):  # type: ignore[attr-defined]
            return True
        term = term.body  # type: ignore[attr-defined]
    factors = term.args if isinstance(term, Apply) and term.op is MUL else (term,)
    if not all(isinstance(factor, Read | Const) for factor in factors):
        return bool(parts(term))
    if any(isinstance(factor, Const) for factor in factors):
        return len(factors) > 1
    if axes is None:
        return False
    # A sum of single elements may be taken axis by axis where several axes share a position.
    windows = len(factors) == 1 and len(axes) > 1 and any(map(_moves, reads(term)))
    return windows or any(axes - factor.free for factor in factors)


def _moves(read: Read) -> bool:
    return any(index.children for index in read.indices)


def _in_groups(
    stage: Stage,
    rules: Sequence[ValueRule],
    cost: CostModel,
    limits: Limits,
    report: Growth,
    known: Sequence[Stage],
) -> tuple[Stage | None, float]:
    """As `_through_graph`, a long sum as several groups of summands."""
    terms = list(operands(stage.body, ADD))
    if len(terms) <= TOGETHER:
        return _through_graph(stage, rules, cost, limits, report, known)
    groups = [terms[n : n + TOGETHER] for n in range(0, len(terms), TOGETHER)]
    bodies: list[Expr] = []
    ideal = 0.0
    for group in groups:
        own = Growth()
        part = Stage(stage.name, stage.axes, joined(ADD, group))
        found, bound = _through_graph(part, rules, cost, limits, own, known)
        bodies.append((found or part).body)
        ideal += bound
        report.include(own)
    return Stage(stage.name, stage.axes, canonical(joined(ADD, bodies))[0], stage.scatters), ideal


def _depth(root: Expr) -> int:
    return fold(root, lambda node, below: 1 + max(below, default=0))


def _through_graph(
    stage: Stage,
    rules: Sequence[ValueRule],
    cost: CostModel,
    limits: Limits,
    report: Growth,
    known: Sequence[Stage],
) -> tuple[Stage | None, float]:
    """The stage over the cheapest choice, and what the input cost as a choice; None if neither."""
    if len(postorder(stage.body)) > LARGEST_INPUT or _depth(stage.body) > DEEPEST_INPUT:
        report.stopped = "input limit: too many operations for an e-graph"
        return None, inf
    try:
        encoded = encode(stage.body, stage.axes, equations(stage.body, known))
    except TooLargeError:
        report.stopped = "more axes or guards than a mask holds"
        return None, inf
    if apart(stage.body, rules, cost, limits):
        return search_apart(stage, rules, cost, limits, report, known)
    choices = list(search(encoded, rules, cost, limits, report))
    return chosen(stage, encoded, choices, report)


def chosen(
    stage: Stage, encoded: Encoded, choices: Sequence[tuple[int, Choice]], report: Growth
) -> tuple[Stage | None, float]:
    """``stage`` over the last of ``choices``, and what the first one cost."""
    if not choices:
        return None, inf
    root, choice = choices[-1]
    body = Decoder(encoded, choice).decode(root, stage.body.dtype)
    if body.free - frozenset(stage.axes):
        report.stopped += "; the choice mentioned an axis outside its sum and was dropped"
        return None, inf
    best = Stage(stage.name, stage.axes, canonical(body)[0], stage.scatters)
    return best, choices[0][1].cost


def search(
    encoded: Encoded,
    rules: Sequence[ValueRule],
    cost: CostModel,
    limits: Limits,
    report: Growth,
) -> Iterator[tuple[int, Choice]]:
    """The input as a choice with its root, then every cheaper one that is found."""
    best = inf
    quiet = 0
    points = Points(cost)
    with closing(grow(encoded, rules, limits, report)) as rounds:
        for session in rounds:
            graph = snapshot(session, encoded, points)
            choice = extract(graph)
            if choice.cost < best * (1 - 1e-9):
                best = choice.cost
                yield graph.root, choice
                quiet = 0
            else:
                quiet += 1
            if quiet >= QUIET_ROUNDS and report.nodes > SMALL:
                report.stopped = "no longer cheaper"
                break


def _naming(stem: str, taken: Callable[[str], bool]) -> Callable[[], str]:
    """Fresh names for the temporaries of ``stem``."""
    count = 0

    def name() -> str:
        nonlocal count
        count += 1
        while taken(f"{stem}_part_{count}"):
            count += 1
        return f"{stem}_part_{count}"

    return name
