"""How much of the simplification corpora is solved, and how fast.

``python -m benchmarks.simplifier [--corpora DIR] [--only NAME] [--limit N] [--failures N]``. Every
answer is checked by evaluation at random points within bounds and assumptions. The exit code is 0
when nothing is wrong and no refuted condition was proved.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

import eqsatad as ea
from benchmarks.corpora import DEFAULT, Case, NotExpressibleError, load, value
from eqsatad.rules.index_exchange import Names
from eqsatad.rules.index_trees import operators

SOLVED = ("proved", "simplified")
OUTCOMES = (*SOLVED, "worse", "unknown", "not expressible", "wrong")
SYSTEMS = ("tvm", "tinygrad")


@dataclass(frozen=True)
class Result:
    """What came of one case."""

    case: Case
    outcome: str
    seconds: float
    answer: Any = None


def run(case: Case) -> Result:
    """The outcome of one case."""
    try:
        expr = case.expr(case.tree)
        assumed = [case.expr(tree) for tree in case.assumed]
    except NotExpressibleError:
        return Result(case, "not expressible", 0.0)
    judge = JUDGES[case.kind]
    start = time.perf_counter()
    answer = ASKED[case.kind](expr, case.bounds, assumed)
    seconds = time.perf_counter() - start
    return Result(case, judge(case, answer), seconds, answer)


def _modulo(expr: ea.Expr, bounds: Any, assumed: Any) -> Any:
    return lambda cond: ea.prove(cond, bounds, assumed)


def _range(expr: ea.Expr, bounds: Any, assumed: Any) -> Any:
    number = ea.select(expr, 1, 0) if expr.dtype == "bool" else expr
    return ea.bounds(number, bounds, assumed)


ASKED: dict[str, Any] = {
    "simplify": ea.simplify,
    "regression-input": ea.simplify,
    "prove": ea.prove,
    "prove-fails": ea.prove,
    "bound": _range,
    "congruence": _modulo,
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
        return "wrong" if answer is True else "proved"
    return "unknown" if answer is None else _by_points(case, answer)


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


def recorded(cases: list[Case], system: str) -> str:
    """What ``system`` solves of the expressions among ``cases`` that it can express."""
    scored = [
        (case.record["scores"][system], case.record)
        for case in cases
        if case.kind == "simplify" and system in case.record["scores"]
    ]
    solved = sum(
        score.get("ops") is not None and score["ops"] <= record["rhs_nops"]
        for score, record in scored
    )
    return f"{solved}/{len(scored)}" if scored else "-"


def row(name: str, results: list[Result]) -> tuple[str, ...]:
    """The line of one corpus."""
    counts = Counter(result.outcome for result in results)
    share = sum(counts[outcome] for outcome in SOLVED) / len(results)
    times = sorted(1000 * result.seconds for result in results)
    late = times[min(len(times) - 1, int(0.99 * len(times)))]
    cases = [result.case for result in results]
    return (
        name,
        str(len(results)),
        *(str(counts[outcome]) for outcome in OUTCOMES),
        f"{100 * share:.1f} %",
        f"{median(times):.1f}",
        f"{late:.0f}",
        *(recorded(cases, system) for system in SYSTEMS),
    )


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
    table = Table("corpus", "cases", *OUTCOMES, "solved", "ms", "p99 ms", *SYSTEMS)
    together: list[Result] = []
    console = Console(width=160)
    for name, cases in load(options.corpora, options.only).items():
        results = [run(case) for case in cases[: options.limit]]
        together += results
        table.add_row(*row(name, results))
        failed = [result for result in results if result.outcome not in SOLVED]
        for result in failed[: options.failures]:
            _print(result)
    table.add_row(*row("together", together))
    console.print(table)
    return int(any(result.outcome == "wrong" for result in together))


def _print(result: Result) -> None:
    record = result.case.record
    print(
        f"{record['id']} {result.outcome}: {record['lhs']} where {record['assume']} -> "
        f"{result.answer!r}, expected {record.get('rhs')}"
    )


if __name__ == "__main__":
    sys.exit(main())
