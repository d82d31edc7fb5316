"""How long one gradient takes to simplify from a cold start.

``python -m benchmarks.simplification [--only ID]``. The legacy rows and all small convolutions,
each with the caches of the process cleared before. The exit code is 0 when the median and the
longest are within their limits.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median, quantiles

from rich.console import Console
from rich.progress import track
from rich.table import Table

import eqsatad as ea
from benchmarks.convolution_cases import Convolution, convolutions
from benchmarks.legacy_cases import CASES, Case
from eqsatad import cache
from eqsatad.extract.recall import forget
from eqsatad.rules.engine import clear_caches
from eqsatad.terms.nodes import Stage, Tensor

MEDIAN_LIMIT = 0.3
LONGEST_LIMIT = 1.5
SHOWN = 10

Build = Callable[[], tuple[Stage, list[Tensor]]]


def programs() -> Iterator[tuple[str, Build]]:
    """Everything that is timed: a name, and what builds the output and its inputs."""
    for name, make in CASES.items():
        yield name, partial(_legacy, make)
    for case in convolutions():
        yield case.id, partial(_convolution, case)


def _legacy(make: Callable[[], Case]) -> tuple[Stage, list[Tensor]]:
    case = make()
    return case.output, list(case.inputs)


def _convolution(case: Convolution) -> tuple[Stage, list[Tensor]]:
    output, *inputs = case.build()
    return output, list(inputs)


def seconds(build: Build) -> float:
    """The simplification time of one program, cold."""
    clear_caches()
    forget()
    output, inputs = build()
    spent: float = ea.differentiate(output, inputs, cost="count").saturation.seconds
    return spent


def main(arguments: list[str] | None = None) -> int:
    """Runs all programs and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="ID", action="append", help="only this one; repeatable")
    options = parser.parse_args(arguments)
    os.environ[cache.VARIABLE] = ""  # nothing is known from before
    chosen = [row for row in programs() if options.only is None or row[0] in options.only]
    if not chosen:
        parser.error("no such program; see --help")
    console = Console()
    # What is loaded once per process is not part of any one gradient.
    seconds(chosen[0][1])
    times = {
        name: seconds(build)
        for name, build in track(chosen, "simplifying", console=Console(stderr=True))
    }
    console.print(table(times))
    fine = median(times.values()) <= MEDIAN_LIMIT and max(times.values()) <= LONGEST_LIMIT
    return 0 if fine else 1


def table(times: dict[str, float]) -> Table:
    """The summary and the longest ones."""
    values = sorted(times.values())
    ninth = quantiles(values, n=10)[-1] if len(values) > 1 else values[0]
    result = Table("program", "seconds", title=f"simplification of {len(times)} gradients, cold")
    for name, value in (("median", median(values)), ("p90", ninth), ("longest", values[-1])):
        result.add_row(name, f"{value:.3f}")
    result.add_section()
    for name, value in sorted(times.items(), key=lambda row: -row[1])[:SHOWN]:
        result.add_row(name, f"{value:.3f}")
    return result


if __name__ == "__main__":
    sys.exit(main())
