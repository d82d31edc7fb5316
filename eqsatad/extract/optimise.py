"""One stage made cheaper: through the e-graph of values, then split into stages.

The e-graph grows round by round; after each round the cheapest choice is read, and growing stops
when that no longer gets cheaper or a limit is reached. Whatever happens, the result is the
cheapest program seen, the input among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from eqsatad.extract.cost import CostModel
from eqsatad.extract.dag import Choice, extract
from eqsatad.extract.graph import Decoder, snapshot
from eqsatad.extract.materialise import executed, materialise, parts, readable
from eqsatad.rules.algebra import Growth, Limits, grow
from eqsatad.rules.value_rule import ValueRule
from eqsatad.rules.values import Encoded, TooLargeError, canonical, encode, is_value
from eqsatad.terms.nodes import SUM, Apply, Const, Expr, Read, Reduce, Select, Stage
from eqsatad.terms.ops import MUL
from eqsatad.terms.walk import conjuncts, postorder


@dataclass(frozen=True)
class Optimised:
    """The stages of one stage: temporaries first, then the stage itself."""

    stages: tuple[Stage, ...]
    report: Growth
    cost_before: float
    cost_after: float


LARGEST_INPUT = 400
"""Operations of a term that is put into an e-graph at all."""

QUIET_ROUNDS = 2
"""Rounds without a cheaper choice after which growing stops."""


def optimise(
    stage: Stage,
    rules: Sequence[ValueRule],
    cost: CostModel,
    limits: Limits | None = None,
    name_taken: Callable[[str], bool] = lambda name: False,
) -> Optimised:
    """``stage`` as the cheapest program that ``rules`` reach, and what it took."""
    report = Growth()
    term, names = canonical(stage.body)
    plain = Stage(stage.name, stage.axes, term, stage.scatters)
    versions = [plain]
    if not is_value(term):
        report.stopped = "not a number"
    elif worthwhile(term):
        versions += _through_graph(plain, rules, cost, limits or Limits(), report)
    programs = [materialise(version, cost, _naming(stage.name, name_taken)) for version in versions]
    best = min(programs, key=lambda stages: executed(stages, cost))
    return Optimised(
        tuple(readable(part, names) for part in best),
        report,
        executed([stage], cost),
        executed(best, cost),
    )


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
    if sum(isinstance(factor, Const) for factor in factors) and axes is not None:
        return len(factors) > 1
    return axes is not None and any(axes - factor.free for factor in factors)


def _through_graph(
    stage: Stage,
    rules: Sequence[ValueRule],
    cost: CostModel,
    limits: Limits,
    report: Growth,
) -> list[Stage]:
    """The stage over the cheapest choice that was reached; none where the term is too large."""
    if len(postorder(stage.body)) > LARGEST_INPUT:
        report.stopped = f"more than {LARGEST_INPUT} operations"
        return []
    try:
        encoded = encode(stage.body, stage.axes)
    except TooLargeError:
        report.stopped = "more axes or guards than a mask holds"
        return []
    best = _search(encoded, rules, cost, limits, report)
    if best is None:
        return []
    root, choice = best
    body = Decoder(encoded, choice).decode(root, stage.body.dtype)
    if body.free - frozenset(stage.axes):
        report.stopped += "; the choice mentioned an axis outside its sum and was dropped"
        return []
    return [Stage(stage.name, stage.axes, canonical(body)[0], stage.scatters)]


def _search(
    encoded: Encoded,
    rules: Sequence[ValueRule],
    cost: CostModel,
    limits: Limits,
    report: Growth,
) -> tuple[int, Choice] | None:
    """The root and the cheapest choice over all rounds."""
    best: tuple[int, Choice] | None = None
    quiet = 0
    with closing(grow(encoded, rules, limits, report)) as rounds:
        for session in rounds:
            graph = snapshot(session, encoded, cost)
            choice = extract(graph)
            if choice.nodes and (best is None or choice.cost < best[1].cost * (1 - 1e-9)):
                best, quiet = (graph.root, choice), 0
            else:
                quiet += 1
            if quiet >= QUIET_ROUNDS:
                report.stopped = "no longer cheaper"
                break
    return best


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
