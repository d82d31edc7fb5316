"""How much of the simplification corpora is solved, and how fast, beside other systems.

``python -m benchmarks.simplifier [--corpora DIR] [--only NAME] [--limit N] [--failures N]``. Every
answer is checked by evaluation at random points within bounds and assumptions. The exit code is 0
when nothing is wrong, no refuted condition was proved, each corpus is solved to the share of
`WANTED`, more is solved than by each of the systems whose scores stand beside the cases, and the
median and the 99th percentile of the processor time of a case are within `LIMITS`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

import eqsatad as ea
from benchmarks.corpora import DEFAULT, Case, NotExpressibleError, Tree, load, value
from eqsatad.errors import ArgumentError
from eqsatad.rules.index_exchange import Names
from eqsatad.rules.index_trees import operators

SOLVED = ("proved", "simplified", "refused")
FAILED = ("worse", "unknown", "not expressible", "wrong")
EXTRA = ("extra", "open")
"""True conditions that are not proved where they come from; they are no part of the share."""
OUTCOMES = (*SOLVED, *FAILED, *EXTRA)
SYSTEMS = ("tvm", "tinygrad")
WANTED = {"tvm": 0.95, "tinygrad": 0.93, "halide": 0.92, "halide_rule_instances": 0.85}
CLEARLY = 1.05
"""How many times as many cases as each other system are to be solved, of those it expresses."""
LIMITS = {"median": 0.02, "p99": 0.5}
"""Seconds of processor time of a case."""


@dataclass(frozen=True)
class Result:
    """What came of one case."""

    case: Case
    outcome: str
    seconds: float
    answer: Any = None
    budget: ea.Budget = field(default_factory=ea.Budget)

    @property
    def solved(self) -> bool:
        """Whether the answer is as good as expected."""
        return self.outcome in SOLVED


def run(case: Case) -> Result:
    """The outcome of one case."""
    judge, budget = JUDGES[case.kind], ea.Budget()
    try:
        expr = case.expr(case.tree)
        assumed = [case.expr(tree) for tree in case.assumed]
        start = time.process_time()
        answer = ASKED[case.kind](expr, case.bounds, assumed, budget)
    except (NotExpressibleError, ArgumentError):
        return Result(case, "not expressible", 0.0)
    seconds = time.process_time() - start
    return Result(case, judge(case, answer), seconds, answer, budget)


def _simplify(expr: ea.Expr, bounds: Any, assumed: Any, budget: ea.Budget) -> Any:
    return ea.simplify(expr, bounds, assumed, budget)


def _prove(expr: ea.Expr, bounds: Any, assumed: Any, budget: ea.Budget) -> Any:
    return ea.prove(expr, bounds, assumed, budget)


def _prover(expr: ea.Expr, bounds: Any, assumed: Any, budget: ea.Budget) -> Any:
    return lambda cond: ea.prove(cond, bounds, assumed, budget)


def _range(expr: ea.Expr, bounds: Any, assumed: Any, budget: ea.Budget) -> Any:
    number = ea.select(expr, 1, 0) if expr.dtype == "bool" else expr
    return ea.bounds(number, bounds, assumed, budget)


ASKED: dict[str, Any] = {
    "simplify": _simplify,
    "regression-input": _simplify,
    "prove": _prove,
    "prove-fails": _prove,
    "bound": _range,
    "congruence": _prover,
}


def _values(case: Case, seed: int) -> Iterator[tuple[dict[str, int], Any]]:
    """Points, and the value of the case at them where it has one."""
    for point in case.points(seed):
        with suppress(ZeroDivisionError):
            yield point, value(case.tree, point)


def _simplified(case: Case, answer: ea.Expr) -> str:
    tree = Names().tree(answer)
    for point, expected in _values(case, seed=11):
        try:
            if value(tree, point) != expected:
                return "wrong"
        except ZeroDivisionError:
            return "wrong"
    limit = case.record.get("rhs_nops", case.record["lhs_nops"])
    return "simplified" if operators(tree) <= limit else "worse"


def _proved(case: Case, answer: bool | None) -> str:
    if answer is None:
        return "unknown"
    return _by_points(case, answer)


def _by_points(case: Case, answer: bool) -> str:
    if any(bool(found) != answer for _, found in _values(case, seed=12)):
        return "wrong"
    return "proved" if answer == (case.record["rhs"] == "true") else "unknown"


def _not_proved(case: Case, answer: bool | None) -> str:
    """A refuted condition is never proved; one that is true but not proved upstream may be."""
    if case.record["status"] == "refuted":
        return "wrong" if answer is True else "refused"
    outcome = "unknown" if answer is None else _by_points(case, answer)
    return {"proved": "extra", "unknown": "open"}.get(outcome, outcome)


def _bounded(case: Case, answer: tuple[int | None, int | None]) -> str:
    low, high = answer
    for _, found in _values(case, seed=13):
        if (low is not None and found < low) or (high is not None and found > high):
            return "wrong"
    wanted_low, wanted_high = case.record["bound"]
    tight = (wanted_low is None or (low is not None and low >= wanted_low)) and (
        wanted_high is None or (high is not None and high <= wanted_high)
    )
    return "proved" if tight else "unknown"


def _congruent(case: Case, prove: Any) -> str:
    modulus, residue = case.record["modulus"], case.record["residue"]
    expr = case.expr(case.tree)
    cond = expr.equal(residue) if modulus == 0 else (expr % modulus).equal(residue % modulus)
    return "proved" if prove(cond) is True else "unknown"


JUDGES: dict[str, Any] = {
    "simplify": _simplified,
    "regression-input": _simplified,
    "prove": _proved,
    "prove-fails": _not_proved,
    "bound": _bounded,
    "congruence": _congruent,
}


def share(results: Iterable[Result]) -> float:
    """Of the cases that are expected to be solved, how many are."""
    counts = Counter(result.outcome for result in results)
    expected = sum(counts[outcome] for outcome in (*SOLVED, *FAILED))
    return sum(counts[outcome] for outcome in SOLVED) / max(expected, 1)


def weighed(results: Iterable[Result]) -> float:
    """The share of simplified cases where a quotient counts as much as five operators."""
    judged = [
        operators(tree) + 4 * quotients(tree)
        <= record.get("rhs_nops", record["lhs_nops"])
        + 4 * record.get("rhs_divs", record["lhs_divs"])
        for result in results
        if JUDGES[result.case.kind] is _simplified and isinstance(result.answer, ea.Expr)
        for record, tree in [(result.case.record, Names().tree(result.answer))]
    ]
    return sum(judged) / max(len(judged), 1)


def quotients(tree: Tree) -> int:
    """The quotients and remainders of a tree."""
    if not isinstance(tree, tuple):
        return 0
    own = tree[0] in ("div", "mod", "tdiv", "tmod", "ediv", "emod")
    return own + sum(map(quotients, tree[1:]))


def beside(results: Iterable[Result], system: str) -> tuple[int, int, int]:
    """How many cases ``system`` expresses, how many of these it solves, and how many we do."""
    scored = [
        (result, result.case.record["scores"][system])
        for result in results
        if system in result.case.record["scores"]
    ]
    theirs = sum(_reached(result.case, score) for result, score in scored)
    return len(scored), theirs, sum(result.solved for result, _ in scored)


def _reached(case: Case, score: dict[str, Any]) -> bool:
    if "proved" in score:
        return bool(score["proved"])
    return score["ops"] is not None and score["ops"] <= case.record["rhs_nops"]


def late(results: Sequence[Result]) -> float:
    """The 99th percentile of the seconds."""
    times = sorted(result.seconds for result in results)
    return times[min(len(times) - 1, int(0.99 * len(times)))]


def broken(corpora: dict[str, list[Result]]) -> Iterator[str]:
    """What is not as it has to be, one line each."""
    together = [result for results in corpora.values() for result in results]
    for result in together:
        if result.outcome == "wrong":
            yield f"{result.case.record['id']} is wrong: {result.answer!r}"
    for name, results in corpora.items():
        if share(results) < WANTED.get(name, 0.0):
            yield f"{name}: {share(results):.1%} solved, {WANTED[name]:.0%} wanted"
    for system in SYSTEMS:
        count, theirs, ours = beside(together, system)
        if count and ours < min(CLEARLY * theirs, count):
            yield f"{ours} of the {count} cases that {system} expresses are solved, it: {theirs}"
    if together:
        for name, seconds in (("median", _median(together)), ("p99", late(together))):
            if seconds > LIMITS[name]:
                yield f"{name} of {1000 * seconds:.0f} ms, {1000 * LIMITS[name]:.0f} ms allowed"


def _median(results: Iterable[Result]) -> float:
    return median(result.seconds for result in results)


def row(name: str, results: list[Result]) -> tuple[str, ...]:
    """The line of one corpus."""
    counts = Counter(result.outcome for result in results)
    return (
        name,
        str(len(results)),
        *(str(counts[outcome]) for outcome in OUTCOMES),
        f"{share(results):.1%}",
        f"{weighed(results):.1%}",
        f"{1000 * _median(results):.1f}",
        f"{1000 * late(results):.0f}",
    )


def tables(corpora: dict[str, list[Result]]) -> Iterator[Table]:
    """What came of the cases, and what other systems make of those that they express."""
    together = [result for results in corpora.values() for result in results]
    rows = {**corpora, "together": together}
    solved = Table("corpus", "cases", *OUTCOMES, "solved", "weighed", "ms", "p99 ms")
    for name, results in rows.items():
        solved.add_row(*row(name, results))
    yield solved
    systems = Table("corpus", *(f"{system}: {what}" for system in SYSTEMS for what in BESIDE))
    for name, results in rows.items():
        found = (beside(results, system) for system in SYSTEMS)
        systems.add_row(name, *(str(number) for counts in found for number in counts))
    yield systems


BESIDE = ("cases", "it solves", "solved here")


def outcomes(
    folder: Path, only: str | None = None, limit: int | None = None
) -> dict[str, list[Result]]:
    """What comes of the cases of each corpus in ``folder``."""
    console = Console(stderr=True)
    return {
        name: [run(case) for case in track(cases[:limit], name, console=console)]
        for name, cases in load(folder, only).items()
    }


def main(arguments: list[str] | None = None) -> int:
    """Runs the corpora and returns the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.simplifier", description=__doc__)
    parser.add_argument("--corpora", type=Path, default=DEFAULT)
    parser.add_argument("--only")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--failures", type=int, default=0, help="print this many per corpus")
    options = parser.parse_args(arguments)
    if not options.corpora.is_dir():
        print(f"no folder {options.corpora}; give --corpora DIR", file=sys.stderr)
        return 2
    corpora = outcomes(options.corpora, options.only, options.limit)
    for results in corpora.values():
        failed = [result for result in results if not result.solved and result.outcome != "extra"]
        for result in failed[: options.failures]:
            _print(result)
    console = Console(width=160)
    for table in tables(corpora):
        console.print(table)
    failures = list(broken(corpora))
    for line in failures:
        print(f"broken: {line}")
    return int(bool(failures))


def _print(result: Result) -> None:
    record = result.case.record
    print(
        f"{record['id']} {result.outcome}: {record['lhs']} where {record['assume']} -> "
        f"{result.answer!r}, expected {record.get('rhs')}"
    )


if __name__ == "__main__":
    sys.exit(main())
