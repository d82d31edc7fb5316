"""The search of one stage in a process that can be killed (`rules.worker`).

A step of egglog cannot be interrupted. With the rows that come with eqsatad, within the default
limits, no step has been seen to take more than a tenth of a second on terms of up to 400 nodes;
nobody has measured other rows, so these are searched apart, and so is what is large enough for the
start of a process not to matter. Every cheaper stage is sent as it is found: a search that is
stopped gives the cheapest so far.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf

from eqsatad.extract.cost import CostModel
from eqsatad.extract.known import equations
from eqsatad.rules import worker
from eqsatad.rules.catalog import themes
from eqsatad.rules.growth import Growth, Limits
from eqsatad.rules.value_rule import ValueRule
from eqsatad.rules.values import encode
from eqsatad.terms.nodes import Expr, Stage
from eqsatad.terms.store import dump, load
from eqsatad.terms.walk import postorder

LARGE = 200
"""Nodes of a body above which it is searched apart."""

MARGIN = 1.0
"""Seconds after the limit at which a search is stopped from outside."""

Found = tuple[Stage | None, float]


def apart(body: Expr, rules: Sequence[ValueRule], cost: CostModel, limits: Limits) -> bool:
    """Whether ``body`` is searched in the worker; see `Limits.isolate`."""
    if type(cost) is not CostModel or any(type(row) is not ValueRule for row in rules):
        # The worker knows the classes of eqsatad only.
        return False
    if limits.isolate is not None:
        return limits.isolate
    usual = Limits()
    return (
        limits.nodes > usual.nodes
        or limits.rounds > usual.rounds
        or not all(id(row) in _shipped() for row in rules)
        or len(postorder(body)) > LARGE
    )


@lru_cache(maxsize=1)
def _shipped() -> frozenset[int]:
    """The rows that come with eqsatad, which live as long as their modules."""
    return frozenset(id(row) for rows in themes().values() for row in rows)


def search_apart(
    stage: Stage,
    rules: Sequence[ValueRule],
    cost: CostModel,
    limits: Limits,
    report: Growth,
    known: Sequence[Stage] = (),
) -> Found:
    """The cheapest stage found, and what ``stage`` cost as a choice; None if neither is known."""
    plain = replace(cost, calls=dict(cost.calls), sizes=dict(cost.sizes))
    payload = pickle.dumps((dump([stage, *known]), _packed(tuple(rules)), plain, limits))
    try:
        result = worker.call(f"{__name__}:answer", payload, limits.seconds + MARGIN)
    except worker.WorkerTimeoutError as error:
        reason = f"time limit {limits.seconds} s: the e-graph was stopped from outside"
        return _stopped(error.latest, reason, report)
    except worker.WorkerDiedError as error:
        return _stopped(error.latest, f"memory limit or crash: {error}", report)
    return _unpacked(result, report)


def _stopped(latest: bytes | None, reason: str, report: Growth) -> Found:
    """What was found before the worker ended."""
    found = (None, inf) if latest is None else _unpacked(latest, report)
    report.stopped = reason
    return found


def _unpacked(result: bytes, report: Growth) -> Found:
    stages, ideal, grown = pickle.loads(result)
    vars(report).update(vars(grown))
    best = load(stages)
    if not best:
        return None, ideal
    assert isinstance(best[0], Stage), "a stage is searched for a stage"
    return best[0], ideal


@lru_cache(maxsize=8)
def _packed(rules: tuple[ValueRule, ...]) -> bytes:
    return pickle.dumps(rules)


@lru_cache(maxsize=8)
def _rules(packed: bytes) -> tuple[ValueRule, ...]:
    rules: tuple[ValueRule, ...] = pickle.loads(packed)
    return rules


def answer(payload: bytes) -> Iterator[bytes]:
    """What the worker runs: every cheaper stage that is found, and in the end the report."""
    from eqsatad.extract.optimise import chosen, search

    sent, packed, cost, limits = pickle.loads(payload)
    stage, *known = (tensor for tensor in load(sent) if isinstance(tensor, Stage))
    report = Growth()
    encoded = encode(stage.body, stage.axes, equations(stage.body, known))
    choices = []
    for choice in search(encoded, _rules(packed), cost, limits, report):
        choices.append(choice)
        yield _result(chosen(stage, encoded, choices, report), report)
    yield _result(chosen(stage, encoded, choices, report), report)


def _result(found: Found, report: Growth) -> bytes:
    best, ideal = found
    return pickle.dumps((dump([] if best is None else [best]), ideal, report))
