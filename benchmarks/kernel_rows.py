"""The rows of the speed benchmark: a kernel each, beside what else computes the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.kernel_cases import Case, Problem
from benchmarks.kernel_limits import Probe, memory, products
from benchmarks.peers import (
    APART,
    PEERS,
    TOLERANCE,
    Call,
    Outcome,
    apart,
    error,
    in_rounds,
    jax_call,
    objection,
)
from eqsatad.counting import counted
from eqsatad.terminal import bar

# How many times as long as the best peer a kernel may take at most.
LIMIT = 12.0
# The part of its bytes that a kernel writes which only reads, more or less.
LITTLE = 0.1
# The contender that is jax where it saves what it likes.
AT_WILL = "jax at will"


@dataclass(frozen=True)
class Work:
    """The float operations of one call, and the bytes of its inputs and outputs."""

    operations: int
    read: int
    written: int


@dataclass(frozen=True)
class Limits:
    """Operations and bytes a second that one thread of the machine does in turns with a row.

    ``products`` are those of a tile, ``registers`` those that load nothing.
    """

    products: float
    registers: float
    copied: float
    read: float

    @staticmethod
    def of(probes: Mapping[str, Probe], seconds: Mapping[str, float]) -> Limits:
        """The limits whose ``probes`` took so many ``seconds``."""
        return Limits(**{name: each.amount / seconds[name] for name, each in probes.items()})

    def reached(self, work: Work, seconds: float, threads: int) -> tuple[float, float]:
        """What part of the peak of products, and of the bandwidth that applies, ``work`` makes."""
        total = work.read + work.written
        bandwidth = self.read if work.written < LITTLE * total else self.copied
        return work.operations / seconds / self.products / threads, total / seconds / bandwidth


@dataclass(frozen=True)
class Timing:
    """One row: the least seconds of each contender, and the largest relative error of ours.

    ``without`` says of the peers that do not count why that is. ``at_will`` are the seconds of jax
    where its forward pass saves what it likes, if that is not what the row gives; it is no peer.
    ``work`` is what our kernel computes and moves, within ``limits``; ``first`` the seconds until
    it could be called.
    """

    id: str
    ours: float
    opencl: float | None
    peers: Mapping[str, float]
    without: Mapping[str, str]
    error: float
    work: Work
    limits: Limits
    first: float
    at_will: float | None = None

    @property
    def best(self) -> str:
        """The fastest peer."""
        return min(self.peers, key=lambda name: self.peers[name])

    @property
    def ratio(self) -> float:
        """The time of the best peer over ours."""
        return self.peers[self.best] / self.ours

    @property
    def fine(self) -> bool:
        """Whether the result is right and the time within the limit."""
        return self.error <= TOLERANCE and self.ratio >= 1 / LIMIT


def our_call(problem: Problem, target: str) -> Call:
    """A call of our kernel on the problem's arrays."""
    return called(problem.ours.build(target), problem)


def called(kernel: Any, problem: Problem, sizes: Mapping[str, int] | None = None) -> Call:
    """A call of ``kernel`` on the problem's arrays."""
    arrays = {name: problem.arrays[name] for name in kernel.inputs}
    return lambda: kernel(**arrays, **(sizes or {}))


def work_of(kernel: Any, problem: Problem) -> Work:
    """What one call of ``kernel`` computes, counted by its loops, and the arrays it touches."""
    arrays = {name: problem.arrays[name] for name in kernel.inputs}
    execution, _ = counted(kernel.loops, {}, None)
    results = kernel(**arrays)
    operations = execution.total.multiplications + execution.total.additions
    read, written = (sum(each.nbytes for each in found) for found in (arrays.values(), results))
    return Work(operations, read, written)


@dataclass(frozen=True)
class Row:
    """A kernel, and the ``calls`` of all that takes part in the rounds: contenders and probes."""

    name: str
    case: Case
    calls: Mapping[str, Call]
    probes: Mapping[str, Probe]
    without: Mapping[str, str]
    error: float
    work: Work
    first: float

    @staticmethod
    def of(name: str, case: Case, peers: Sequence[str], *, opencl: bool) -> Row:
        """The row of ``case`` at its full size."""
        problem = case.make(**case.full)
        start = time.perf_counter()
        kernel = problem.ours.build("cpu")
        first = time.perf_counter() - start
        own = {"ours": called(kernel, problem)}
        if opencl:
            own["opencl"] = our_call(problem, "opencl")
        worst = max(error(problem, call()) for call in own.values())
        beside = {peer: PEERS[peer](problem) for peer in peers if peer not in APART}
        without = {peer: objection(problem, call) for peer, call in beside.items()}
        counting = {peer: call for peer, call in beside.items() if not without[peer]}
        if not counting and not any(peer in APART for peer in peers):
            raise RuntimeError(f"no peer computes {name}: {without}")
        work = work_of(kernel, problem)
        probes = {**products(work.operations), **memory()}
        calls = {**own, **counting, **{limit: probe.call for limit, probe in probes.items()}}
        if problem.at_will is not None and "jax" in counting:
            calls[AT_WILL] = jax_call(problem, problem.at_will)
        return Row(name, case, calls, probes, without, worst, work, first)

    def timing(self, seconds: Mapping[str, float], outside: Mapping[str, Outcome]) -> Timing:
        """What was measured in rounds, and of the peers ``outside`` of them."""
        times = dict(seconds)
        limits = Limits.of(self.probes, {limit: times.pop(limit) for limit in self.probes})
        ours, opencl, at_will = (
            times.pop("ours"),
            times.pop("opencl", None),
            times.pop(AT_WILL, None),
        )
        without = {**self.without, **{peer: each.reason for peer, each in outside.items()}}
        without = {peer: reason for peer, reason in without.items() if reason}
        times |= {peer: each.seconds for peer, each in outside.items() if peer not in without}
        if not times:
            raise RuntimeError(f"no peer computes {self.name}: {without}")
        return Timing(
            id=self.name,
            ours=ours,
            opencl=opencl,
            peers=times,
            without=without,
            error=self.error,
            work=self.work,
            limits=limits,
            first=self.first,
            at_will=at_will,
        )


def measured(
    cases: Mapping[str, Case], peers: Sequence[str], repeats: int, *, opencl: bool
) -> list[Timing]:
    """The timings of all rows."""
    with bar("building", len(cases)) as done:
        rows = []
        for name, case in cases.items():
            rows.append(Row.of(name, case, peers, opencl=opencl))
            done()
    with bar("timing", repeats * len(rows)) as done:
        found = in_rounds({row.name: row.calls for row in rows}, repeats, done)
    slow = [peer for peer in peers if peer in APART]
    with bar("peers in processes of their own", len(rows) * len(slow)) as done:
        outside = {row.name: dict(_outside(row, slow, repeats, done)) for row in rows}
    return [row.timing(found[row.name], outside[row.name]) for row in rows]


def _outside(
    row: Row, peers: Sequence[str], repeats: int, done: Callable[[], object]
) -> Iterator[tuple[str, Outcome]]:
    for peer in peers:
        yield peer, apart(peer).outcome(row.case, repeats)
        done()
