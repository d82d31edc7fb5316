"""Workloads beside their analytic minimum: multiplications, and what is left in inner loops.

``python -m benchmarks.workloads [--only ID] [--json]``. Every gradient is checked against finite
differences at a small shape and counted, by execution, at the shapes of its row. Values that the
forward pass has at hand are read where the row says so. The exit code is 0 when every gradient is
right and, except for the rows of `NOT_REACHED`, does no more multiplications than the minimum, no
division of an index and no test of a condition in an innermost loop. Conditions on data, such as
that of a relu, are none of these: they are part of the operator.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import eqsatad as ea
from benchmarks.legacy import TOLERANCE, directional_error, draw
from benchmarks.legacy_cases import UNIT, Case
from benchmarks.workload_cases import WORKLOADS, Gradient, Workload
from eqsatad import cache
from eqsatad.counting import counted as executed
from eqsatad.extract.recall import forget
from eqsatad.pipeline import Gradients
from eqsatad.rules.collection import Collection
from eqsatad.rules.copies import retarget
from eqsatad.terms.evaluate import evaluate, extents
from eqsatad.terms.nodes import Placeholder, Stage, Tensor
from eqsatad.terms.walk import program

DATA = Path(__file__).parent / "data" / "workloads.json"
WIDTH = 150

NOT_REACHED: dict[str, str] = {
    "avgpool": "one product for a block of outputs, as a local around the loops over the block",
    "maxpool": "a position that is data kept as row and column, so that nothing divides it",
    "adaptive-avgpool": "a scaled copy of few elements, which the price of a loop forbids",
    "recurrence": "sums of products over growing ranges as one running value",
}
"""Rows above their minimum, with the mechanism that would bring them to it; at most six."""

MOST_NOT_REACHED = 6


@dataclass(frozen=True)
class Count:
    """What one gradient of a row executes at some sizes, beside the minimum."""

    label: str
    sizes: Mapping[str, int]
    minimum: int
    multiplications: int
    index_divisions: int
    inner_conditions: int
    simplification_seconds: float

    @property
    def reached(self) -> bool:
        """Whether nothing is wasted."""
        within = self.multiplications <= self.minimum
        return within and not self.index_divisions and not self.inner_conditions


@dataclass(frozen=True)
class Outcome:
    """One row: its counts, the worst relative error of a gradient, and the time it took.

    ``failure`` is the exception that ended the row, if one did.
    """

    id: str
    counts: tuple[Count, ...]
    error: float
    seconds: float
    failure: str = ""

    @property
    def right(self) -> bool:
        """Whether the gradients agree with finite differences."""
        return not self.failure and self.error <= TOLERANCE

    @property
    def reached(self) -> bool:
        """Whether no gradient of the row wastes anything."""
        return self.right and all(count.reached for count in self.counts)


def rows() -> list[dict[str, Any]]:
    """The rows of the table, in order."""
    found: list[dict[str, Any]] = json.loads(DATA.read_text())
    return found


def gradients_of(case: Case) -> Gradients:
    """The simplified gradients of ``case``, which read the values that were saved."""
    forget()
    head = case.head if isinstance(case, Gradient) else None
    saved = case.saved if isinstance(case, Gradient) else ()
    inputs = list(case.inputs)
    if not saved:
        return ea.differentiate(case.output, inputs, head, cost="count")
    raw = ea.differentiate(case.output, inputs, head, simplify=False)
    found = ea.simplified([*saved, *raw], cost="count")
    results = reading(found.outputs[len(saved) :], found.outputs[: len(saved)])
    return replace(raw, results=results, saturation=found.saturation, rules=Collection())


def reading(results: Iterable[Tensor], saved: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """``results`` where the tensors in ``saved`` are inputs."""
    became: dict[Tensor, Tensor] = {
        tensor: Placeholder(tensor.name, tensor.shape, tensor.dtype) for tensor in saved
    }
    wanted = list(results)
    for tensor in program(wanted):
        if isinstance(tensor, Stage):
            became.setdefault(tensor, retarget(tensor, became))
    return tuple(became[tensor] for tensor in wanted)


def error_of(case: Case, gradients: Gradients, seed: int = 0) -> float:
    """The largest error of two directional derivatives, relative to what they add up."""
    rng = np.random.default_rng(seed)
    arrays = draw(case, rng)
    head = rng.uniform(*UNIT, extents(case.output.shape, case.sizes))
    saved = list(case.saved) if isinstance(case, Gradient) else []
    values = evaluate(saved, arrays, case.sizes)
    known = {**arrays, **{stage.name: v for stage, v in zip(saved, values, strict=True)}}
    if isinstance(gradients.head, Placeholder):
        known[gradients.head.name] = head
    kernel = gradients.build(target="reference")
    found = kernel(**{name: known[name] for name in kernel.inputs})
    if gradients.head is None:
        found = [
            np.tensordot(head, np.asarray(jacobian, head.dtype), head.ndim) for jacobian in found
        ]
    return float(max(directional_error(case, arrays, head, found, rng) for _ in range(2)))


def measure(row: Mapping[str, Any]) -> Outcome:
    """The outcome of one row."""
    start = time.perf_counter()
    workload = WORKLOADS[row["id"]]
    small = workload.make(**workload.small)
    errors = [error_of(case, gradients_of(case)) for case in small.values()]
    counts = tuple(counted(row, workload))
    return Outcome(row["id"], counts, max(errors), time.perf_counter() - start)


def counted(row: Mapping[str, Any], workload: Workload) -> Iterator[Count]:
    """The counts of each gradient of a row, at each of its sizes."""
    stated = numbers(row["minimal_multiplications"])
    for sizes in workload.at:
        for label, case in workload.make(**sizes).items():
            gradients = gradients_of(case)
            total = executed(gradients.loops(), case.sizes)[0].total
            formula = workload.minimum.get(label)
            minimum = stated[label.split()[0]] if formula is None else formula(**sizes)
            yield Count(
                label,
                dict(sizes),
                int(minimum * (1 + workload.margin)),
                total.multiplications,
                total.index_divisions,
                total.inner_conditions - total.data_conditions,
                gradients.saturation.seconds,
            )


def numbers(stated: Mapping[str, Any]) -> dict[str, int]:
    """The minimal multiplications of a row that are numbers, by label; lists are numbered."""
    found: dict[str, int] = {}
    for label, value in stated.items():
        if isinstance(value, list):
            found |= {f"{label}[{n}]": number for n, number in enumerate(value)}
        elif isinstance(value, int):
            found[label] = value
    return found


def outcome(row: Mapping[str, Any]) -> Outcome:
    """The outcome of one row, whatever happens in it."""
    start = time.perf_counter()
    try:
        return measure(row)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return Outcome(row["id"], (), np.inf, time.perf_counter() - start, reason)


def table(outcomes: Iterable[Outcome]) -> Table:
    """The outcomes as printed: a line for each gradient at each of its sizes."""
    result = Table(title="workloads")
    for name in ("row", "gradient", "sizes"):
        result.add_column(name, no_wrap=True)
    for name in ("minimum", "multiplications", "index //", "inner if", "simplify", "verdict"):
        result.add_column(name, justify="right")
    for outcome in outcomes:
        for count in outcome.counts:
            result.add_row(
                outcome.id,
                count.label,
                " ".join(f"{name}={size}" for name, size in count.sizes.items()),
                f"{count.minimum:,}",
                f"{count.multiplications:,}",
                f"{count.index_divisions:,}",
                f"{count.inner_conditions:,}",
                f"{count.simplification_seconds:.3f}",
                _verdict(outcome, count),
            )
    return result


def _verdict(outcome: Outcome, count: Count) -> str:
    if not outcome.right:
        return "[red]wrong[/]"
    return "[green]minimal[/]" if count.reached else "[yellow]above[/]"


def passed(outcomes: Iterable[Outcome]) -> bool:
    """Whether all rows are right, and all but those in `NOT_REACHED` at their minimum."""
    allowed = len(NOT_REACHED) <= MOST_NOT_REACHED
    return allowed and all(row.right and (row.reached or row.id in NOT_REACHED) for row in outcomes)


def show(outcomes: list[Outcome]) -> None:
    """Prints the table, what failed, what was not reached, and how many rows were."""
    console = Console(width=max(WIDTH, Console().width))
    console.print(table(outcomes))
    for row in outcomes:
        if row.failure:
            console.print(f"{row.id}: {row.failure}", markup=False)
        elif not row.reached:
            reason = NOT_REACHED.get(row.id, "not listed as such")
            console.print(f"{row.id} is not reached: {reason}", markup=False)
    reached = sum(row.reached for row in outcomes)
    console.print(f"{reached} of {len(outcomes)} rows at their minimum")
    times = [count.simplification_seconds for row in outcomes for count in row.counts]
    if times:
        median, high = np.quantile(times, (0.5, 0.9))
        console.print(f"simplification: median {median:.3f} s, p90 {high:.3f} s")


def main(arguments: list[str] | None = None) -> int:
    """Runs the workloads and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="ID", action="append", help="only this row; repeatable")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    os.environ[cache.VARIABLE] = ""  # times are those of a cold start
    chosen = [row for row in rows() if options.only is None or row["id"] in options.only]
    if not chosen:
        parser.error(f"no such row; there are {', '.join(WORKLOADS)}")
    progress = Console(stderr=True)
    outcomes = [outcome(row) for row in track(chosen, "workloads", console=progress)]
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    else:
        show(outcomes)
    return 0 if passed(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
