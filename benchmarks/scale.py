"""Deep programs: how long a residual network takes to differentiate and simplify.

``python -m benchmarks.scale [--stages N ...]``. Every figure is of a fresh process: first with an
empty cache, then with what the first one kept. Growing numbers of stages show that time grows no
faster. The exit code is 0 when the largest network is within the limits both times and the
gradients of both runs are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

import eqsatad as ea
from eqsatad import cache, library
from eqsatad.terms.nodes import Placeholder, Stage, Tensor, digest
from eqsatad.terms.walk import program

STAGES = (125, 250, 500)
PER_BLOCK = 5
COLD_LIMIT, WARM_LIMIT = 20.0, 2.0


@dataclass(frozen=True)
class Measured:
    """One run: stages before and after, seconds, the peak of memory, and what was found."""

    stages: int
    gradient_stages: int
    building: float
    differentiating: float
    megabytes: float
    found: str


def residual(blocks: int, width: int = 16, size: int = 8) -> tuple[Stage, list[Placeholder]]:
    """``x + conv(relu(conv(x)))`` so many times, each followed by a relu, and its weights."""
    x: Tensor = ea.placeholder((2, width, size, size), name="x")
    weights: list[Placeholder] = []
    for block in range(blocks):
        first, second = (
            ea.placeholder((width, width, 3, 3), name=f"w{block}_{half}") for half in (1, 2)
        )
        weights += [first, second]
        inner = library.relu(
            library.conv2d(x, first, pad=1, name=f"conv{block}_1"), name=f"relu{block}"
        )
        change = library.conv2d(inner, second, pad=1, name=f"conv{block}_2")
        x = library.relu(_sum(x, change, f"sum{block}"), name=f"block{block}")
    assert isinstance(x, Stage), "there is at least one block"
    return x, weights


def _sum(left: Tensor, right: Tensor, name: str) -> Stage:
    return ea.compute(left.shape, lambda *i: left[i] + right[i], name=name)


def measure(stages: int) -> Measured:
    """The figures of a network of so many stages in this process."""
    start = time.perf_counter()
    output, weights = residual(stages // PER_BLOCK)
    built = time.perf_counter()
    gradients = ea.differentiate(output, list(weights))
    done = time.perf_counter()
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Measured(
        _stages([output]),
        _stages(gradients.results),
        built - start,
        done - built,
        kilobytes / 1024,
        digest(*(tensor.key for tensor in gradients.results)),
    )


def _stages(outputs: list[Tensor] | tuple[Tensor, ...]) -> int:
    return sum(isinstance(tensor, Stage) for tensor in program(outputs))


def fresh(stages: int, directory: str) -> Measured:
    """The figures of a fresh process that keeps its cache in ``directory``."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", "--measure", str(stages)],
        env={**os.environ, cache.VARIABLE: directory},
        capture_output=True,
        text=True,
        check=True,
    )
    return Measured(**json.loads(done.stdout))


def main(arguments: list[str] | None = None) -> int:
    """Runs all sizes and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, nargs="+", default=STAGES, metavar="N")
    parser.add_argument("--measure", type=int, metavar="N", help="one size, in this process")
    options = parser.parse_args(arguments)
    if options.measure is not None:
        print(json.dumps(asdict(measure(options.measure))))
        return 0
    table = Table("stages", "gradient stages", "cache", title="deep residual networks")
    for column in ("build s", "differentiate s", "ms a stage", "peak MiB"):
        table.add_column(column, justify="right")
    passed = True
    for stages in options.stages:
        with tempfile.TemporaryDirectory() as directory:
            cold, warm = fresh(stages, directory), fresh(stages, directory)
        for name, run in (("empty", cold), ("kept", warm)):
            table.add_row(*_row(name, run))
        passed = cold.found == warm.found and (
            cold.differentiating < COLD_LIMIT and warm.differentiating < WARM_LIMIT
        )
    Console().print(table)
    return 0 if passed else 1


def _row(name: str, run: Measured) -> tuple[str, ...]:
    return (
        str(run.stages),
        str(run.gradient_stages),
        name,
        f"{run.building:.2f}",
        f"{run.differentiating:.2f}",
        f"{1000 * run.differentiating / run.stages:.1f}",
        f"{run.megabytes:.0f}",
    )


if __name__ == "__main__":
    sys.exit(main())
