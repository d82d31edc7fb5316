"""The speed of 28 gradient kernels beside numpy and, where installed, torch and jax.

``python -m benchmarks.kernels [--only ID] [--repeats N] [--opencl]``: one process, one thread,
everything interleaved, the least time counts. The exit code is 1 when a row is wrong or takes
more than `LIMIT` times as long as the best peer.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.kernel_cases import CASES, Arrays, Problem

DATA = Path(__file__).parent / "data" / "kernels.json"
LIMIT = 12.0
# Sums of up to about 10,000 float32 products, relative to the largest element of the result.
TOLERANCE = 2e-4

# Read by the libraries when they are loaded, so they must be set before the process starts.
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}

Call = Callable[[], Any]


@dataclass(frozen=True)
class Timing:
    """One row: the least seconds of each contender, and the largest relative error of ours."""

    id: str
    ours: float
    opencl: float | None
    peers: Mapping[str, float]
    error: float

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
    kernel = problem.ours.build(target)
    arrays = {name: problem.arrays[name] for name in kernel.inputs}
    return lambda: kernel(**arrays)


def numpy_call(problem: Problem) -> Call:
    """The expert's numpy."""
    return lambda: problem.numpy(problem.arrays)


def torch_call(problem: Problem) -> Call:
    """The backward pass of torch alone, its forward pass done before."""
    torch = import_module("torch")
    torch.set_num_threads(1)
    arrays = {name: torch.from_numpy(array) for name, array in problem.arrays.items()}
    wrt = [arrays[name].requires_grad_() for name in problem.wrt]
    result = problem.torch(torch, arrays)
    return lambda: torch.autograd.grad(result, wrt, arrays["H"], retain_graph=True)


def jax_call(problem: Problem) -> Call:
    """The compiled backward pass of jax alone, its forward pass done before."""
    jax = import_module("jax")
    arrays = {name: jax.numpy.asarray(array) for name, array in problem.arrays.items()}

    def forward(*values: Any) -> Any:
        return problem.jax(jax, {**arrays, **dict(zip(problem.wrt, values, strict=True))})

    _, backward = jax.vjp(forward, *(arrays[name] for name in problem.wrt))
    # What the forward pass saved is an argument: as a constant it would be folded for minutes.
    compiled = jax.jit(lambda saved, head: saved(head))
    return lambda: jax.block_until_ready(compiled(backward, arrays["H"]))


PEERS: dict[str, Callable[[Problem], Call]] = {
    "numpy": numpy_call,
    "torch": torch_call,
    "jax": jax_call,
}


def least(calls: Mapping[str, Call], repeats: int) -> dict[str, float]:
    """The least seconds of each call, taken in turns after one call to warm up."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in times.items()}


def error(problem: Problem, found: Any) -> float:
    """The largest error against numpy in double precision, relative to the largest element."""
    exact: Arrays = {
        name: array.astype(np.float64) if array.dtype == np.float32 else array
        for name, array in problem.arrays.items()
    }
    worst = 0.0
    for ours, expected in zip(found, problem.numpy(exact), strict=True):
        difference = np.abs(np.asarray(ours, dtype=np.float64) - expected).max()
        worst = max(worst, float(difference / max(np.abs(expected).max(), 1e-30)))
    return worst if math.isfinite(worst) else math.inf


def measure(name: str, peers: Mapping[str, Callable[[Problem], Call]], options: Any) -> Timing:
    """The timing of one row at its full size."""
    case = CASES[name]
    problem = case.make(**case.full)
    targets = {"ours": "cpu", **({"opencl": "opencl"} if options.opencl else {})}
    own = {label: our_call(problem, target) for label, target in targets.items()}
    worst = max(error(problem, call()) for call in own.values())
    times = least({**own, **{peer: make(problem) for peer, make in peers.items()}}, options.repeats)
    ours, opencl = times.pop("ours"), times.pop("opencl", None)
    return Timing(name, ours, opencl, times, worst)


def row(timing: Timing, peers: Mapping[str, Any]) -> list[str]:
    """A row of the table, in microseconds."""
    seconds = [timing.ours, timing.opencl, *(timing.peers[peer] for peer in peers)]
    cells = ["-" if value is None else f"{value * 1e6:,.0f}" for value in seconds]
    verdict = f"{timing.ratio:.2f}" if timing.fine else f"[red]{timing.ratio:.2f}[/]"
    return [timing.id, *cells, timing.best, verdict, f"{timing.error:.1e}"]


def main(arguments: list[str] | None = None) -> int:
    """Runs the rows and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="ID", action="append", help="only this row; repeatable")
    parser.add_argument("--repeats", type=int, default=20, help="calls of each contender")
    parser.add_argument("--opencl", action="store_true", help="the opencl backend as well")
    options = parser.parse_args(arguments)
    order = [kernel["id"] for kernel in json.loads(DATA.read_text())["kernels"]]
    chosen = [name for name in order if options.only is None or name in options.only]
    if not chosen:
        parser.error(f"no such row; there are {', '.join(order)}")
    peers = {name: make for name, make in PEERS.items() if find_spec(name)}
    columns = ("ours", "opencl", *peers, "best peer", "peer / ours", "error")
    result = Table("row", *columns, title="least microseconds, one thread")
    timings = []
    for name in chosen:
        timings.append(measure(name, peers, options))
        result.add_row(*row(timings[-1], peers))
    console = Console()
    console.print(result)
    mean = math.exp(sum(math.log(timing.ratio) for timing in timings) / len(timings))
    console.print(f"geometric mean of best peer / ours: {mean:.2f}")
    return 0 if all(timing.fine for timing in timings) else 1


def on_one_thread() -> None:
    """Starts this command again where libraries could use more than one thread."""
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        command = [sys.executable, "-m", "benchmarks.kernels", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **ONE_THREAD})


if __name__ == "__main__":
    on_one_thread()
    sys.exit(main())
