"""The legacy suite: every gradient differentiated, checked against finite differences, counted.

``python -m benchmarks.legacy [--only ID] [--json] [--strict]``. Counts are executed counts of the
whole gradient. The exit code is 0 when every gradient is right, no row is above both its record
and its target in iterations or multiplications, and enough rows reach the target's
multiplications; strictly, when every row is right and within `STRICT` of its target.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

import eqsatad as ea
from benchmarks.legacy_cases import CASES, UNIT, Case
from eqsatad import cache
from eqsatad.extract.recall import forget
from eqsatad.terms.evaluate import evaluate, extents
from eqsatad.terms.nodes import Placeholder
from eqsatad.terms.walk import program

DATA = Path(__file__).parent / "data" / "legacy_suite.json"
COUNTS = ("iterations", "multiplications", "memory")
BOUNDED = ("iterations", "multiplications")
STRICT = {"iterations": 0.02, "multiplications": 0.0, "memory": 0.0}
ABOUT = 0.1
"""How far above its target a count may be, strictly; figures that say about are looser."""
ENOUGH_AT_TARGET = 82
WIDTH = 150
STEP = 1e-5
# A central difference at this step is good to about 1e-8 of the values that it subtracts.
TOLERANCE = 1e-6
# Below this the rounding of the difference itself is what is left.
SMALLEST = 1e-3

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Outcome:
    """One row: its figures, the worst relative error of the gradient, and the time it took.

    ``failure`` is the exception that ended the row, if one did.
    """

    id: str
    recorded: Mapping[str, int] | None
    target: Mapping[str, int]
    measured: Mapping[str, int]
    error: float
    seconds: float
    simplification_seconds: float
    about: tuple[str, ...] = ()
    failure: str = ""

    @property
    def right(self) -> bool:
        """Whether the gradient agrees with finite differences."""
        return not self.failure and self.error <= TOLERANCE

    @property
    def bounded(self) -> bool:
        """Whether no bounded count is above both the record and the target."""
        record = self.recorded or self.target
        return not self.failure and all(
            self.measured[name] <= max(record[name], self.target[name]) for name in BOUNDED
        )

    @property
    def at_target(self) -> bool:
        """Whether multiplications are no more than the target's."""
        most = self.target["multiplications"]
        return not self.failure and self.measured["multiplications"] <= most

    @property
    def missed(self) -> tuple[str, ...]:
        """The counts that are above the target by more than the strict rule allows."""
        if self.failure:
            return COUNTS
        slack = {name: ABOUT if name in self.about else STRICT[name] for name in COUNTS}
        return tuple(
            name for name in COUNTS if self.measured[name] > self.target[name] * (1 + slack[name])
        )


def rows() -> list[dict[str, Any]]:
    """The rows of the suite, in order."""
    found: list[dict[str, Any]] = json.loads(DATA.read_text())
    return found


def draw(case: Case, rng: np.random.Generator) -> Arrays:
    """Data for every placeholder that the output reads."""
    inputs = [t for t in program([case.output]) if isinstance(t, Placeholder)]
    arrays: Arrays = {}
    for tensor in inputs:
        low, high = case.ranges.get(tensor.name, UNIT)
        shape = extents(tensor.shape, case.sizes)
        if tensor.dtype == "int32":
            arrays[tensor.name] = rng.integers(int(low), int(high), shape, dtype=np.int32)
        else:
            arrays[tensor.name] = rng.uniform(low, high, shape)
    return arrays


def gradient_error(case: Case, gradients: Any, seed: int = 0) -> float:
    """The largest error of two directional derivatives, relative to what they add up."""
    rng = np.random.default_rng(seed)
    arrays = draw(case, rng)
    head = rng.uniform(*UNIT, extents(case.output.shape, case.sizes))
    kernel = gradients.build(target="reference")
    known = {**arrays, gradients.head.name: head}
    found = kernel(**{name: known[name] for name in kernel.inputs})
    errors = [directional_error(case, arrays, head, found, rng) for _ in range(2)]
    return float(max(errors))


def directional_error(
    case: Case, arrays: Arrays, head: NDArray[Any], found: Iterable[Any], rng: np.random.Generator
) -> float:
    """The error of one directional derivative under ``head``, relative to what it adds up."""
    towards = {x.name: rng.uniform(*UNIT, arrays[x.name].shape) for x in case.inputs}

    def value(step: float) -> NDArray[Any]:
        moved = {
            name: array + step * towards[name] for name, array in arrays.items() if name in towards
        }
        result: NDArray[Any] = evaluate([case.output], {**arrays, **moved}, case.sizes)[0]
        return result

    change = (value(STEP) - value(-STEP)) / (2 * STEP)
    expected = np.sum(head * change)
    parts = [
        np.asarray(gradient) * towards[x.name]
        for x, gradient in zip(case.inputs, found, strict=True)
    ]
    ours = sum(part.sum() for part in parts)
    scale = np.abs(head * change).sum() + sum(np.abs(part).sum() for part in parts)
    return float(abs(expected - ours) / max(scale, SMALLEST))


def measure(row: Mapping[str, Any]) -> Outcome:
    """The outcome of one row."""
    case = CASES[row["id"]]()
    forget()
    start = time.perf_counter()
    gradients = ea.differentiate(case.output, list(case.inputs), cost="count")
    total = gradients.report(sizes=case.sizes).total
    error = gradient_error(case, gradients)
    return Outcome(
        row["id"],
        row["recorded"],
        row["target"],
        {name: getattr(total, name) for name in COUNTS},
        error,
        time.perf_counter() - start,
        gradients.saturation.seconds,
        tuple(row.get("about", ())),
    )


def outcome(row: Mapping[str, Any]) -> Outcome:
    """The outcome of one row, whatever happens in it."""
    try:
        return measure(row)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return Outcome(row["id"], row["recorded"], row["target"], {}, np.inf, 0, 0, failure=reason)


def table(outcomes: Iterable[Outcome], *, strict: bool = False) -> Table:
    """The outcomes as printed: recorded, target and measured figures of each row."""
    result = Table("row", title="legacy suite: recorded / target / measured")
    for name in (*COUNTS, "error", "seconds", "simplify", "verdict"):
        result.add_column(name, justify="right")
    for outcome in outcomes:
        figures = [
            " / ".join(
                _figure(side, name) for side in (outcome.recorded, outcome.target, outcome.measured)
            )
            for name in COUNTS
        ]
        result.add_row(
            outcome.id,
            *figures,
            f"{outcome.error:.1e}",
            f"{outcome.seconds:.2f}",
            f"{outcome.simplification_seconds:.3f}",
            _strict_verdict(outcome) if strict else _verdict(outcome),
        )
    return result


def _figure(side: Mapping[str, int] | None, name: str) -> str:
    return f"{side[name]:,}" if side else "-"


def _verdict(outcome: Outcome) -> str:
    if outcome.failure:
        return "[red]failed[/]"
    if not outcome.right:
        return "[red]wrong[/]"
    if not outcome.bounded:
        return "[red]above record[/]"
    return "[green]at target[/]" if outcome.at_target else "[yellow]above target[/]"


def _strict_verdict(outcome: Outcome) -> str:
    if outcome.failure or not outcome.right:
        return _verdict(outcome)
    return f"[yellow]{', '.join(outcome.missed)}[/]" if outcome.missed else "[green]at target[/]"


def passed(outcomes: list[Outcome], *, strict: bool = False) -> bool:
    """Whether all rows are right and bounded, and enough of a full run are at the target."""
    if strict:
        return all(outcome.right and not outcome.missed for outcome in outcomes)
    fine = all(outcome.right and outcome.bounded for outcome in outcomes)
    reached = sum(outcome.at_target for outcome in outcomes)
    missed_allowed = len(CASES) - ENOUGH_AT_TARGET
    return fine and len(outcomes) - reached <= missed_allowed


def show(outcomes: list[Outcome], *, strict: bool = False) -> None:
    """Prints the table, what failed, and how many rows are at the target."""
    console = Console(width=max(WIDTH, Console().width))
    console.print(table(outcomes, strict=strict))
    for row in outcomes:
        if row.failure:
            console.print(f"{row.id}: {row.failure}", markup=False)
    reached = sum(row.at_target for row in outcomes)
    console.print(f"{reached} of {len(outcomes)} rows at the target's multiplications")
    within = sum(row.right and not row.missed for row in outcomes)
    console.print(f"{within} of {len(outcomes)} rows within the strict rule")
    spent = sorted(row.simplification_seconds for row in outcomes)
    if len(spent) > 1:
        console.print(
            f"simplified in {median(spent):.3f} s (p90 {quantiles(spent, n=10)[-1]:.3f} s)"
        )


def main(arguments: list[str] | None = None) -> int:
    """Runs the suite and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="ID", action="append", help="only this row; repeatable")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--strict", action="store_true", help="every count near its target")
    options = parser.parse_args(arguments)
    os.environ[cache.VARIABLE] = ""  # times are those of a cold start
    chosen = [row for row in rows() if options.only is None or row["id"] in options.only]
    if not chosen:
        parser.error(f"no such row; there are {', '.join(CASES)}")
    progress = Console(stderr=True)
    outcomes = [outcome(row) for row in track(chosen, "legacy suite", console=progress)]
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    else:
        show(outcomes, strict=options.strict)
    return 0 if passed(outcomes, strict=options.strict) else 1


if __name__ == "__main__":
    sys.exit(main())
