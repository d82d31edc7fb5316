"""The speed of 28 gradient kernels beside numpy and, where installed, torch and jax.

``python -m benchmarks.kernels [--only ID] [--repeats N] [--threads N] [--peers NAMES] [--opencl]
[--json FILE] [--plot FILE] [--strict]``: everything interleaved, the least time counts. ``peak``
and ``memory`` say what part of the products or of the memory traffic that this machine reached in
the same run a kernel makes (products of a register tile out of the nearest cache; bytes of inputs
and outputs, once each, over what copying reaches, or reading where a kernel writes little);
``first`` is the time to differentiate and compile. The exit code is 1 when a row is wrong or takes
more than `LIMIT` times as long as the best peer, with ``--strict`` also when a target is missed.

``--peers torch,jax,halide,tinygrad`` names the peers beside numpy. Halide and tinygrad take minutes
and a process each. A peer without a right result for a row has ``-`` there, and a line below the
table says why. All are given what the row says that a forward pass saves; where jax would save
something else, a line below the table says how fast it is then.

``--random SEED [--count N]`` times kernels that are drawn at random instead, beside torch and jax.
``--busy`` keeps a core busy on purpose and compares our kernels on all threads with themselves on
one, by median times, as the least are of moments without the other process; ``--symbolic`` compares
kernels for all sizes (built with ``specialise=True``, and without) with those for one size.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

import eqsatad as ea
from benchmarks import overhead
from benchmarks.busy import busy_core, usual
from benchmarks.kernel_cases import CASES, Case
from benchmarks.kernel_rows import Limits, Timing, called, measured
from benchmarks.peers import PEERS, TOLERANCE, USUAL, Call, error, least
from benchmarks.random_kernels import drawn_cases
from benchmarks.symbolic_kernels import symbolic, values

# Read by the libraries when they are loaded, so they must be set before the process starts.
POOLS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"),
    *("HL_NUM_THREADS", "NUM_CPU_THREADS"),
)
XLA_ALONE = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

# A kernel with a busy core beside it over itself on one thread, and one for all sizes over one
# for the sizes of the call.
BUSY, SYMBOLIC = 1.3, 1.15

# How much of what a peer says against a row is printed.
SAID = 160

PEERS_HELP = f"peers beside numpy, of {', '.join(PEERS)}; {' and '.join(USUAL[1:])} if not given"


@dataclass(frozen=True)
class Target:
    """What is aimed at: the geometric mean of best peer / ours, and the least ratio if stated."""

    mean: float
    least: float = 0.0


TABLE, RANDOM, SHARED = Target(1.8, 0.95), Target(1.3, 0.7), Target(1.5)
# Rows that products bound: what part of their peak they reach on average.
PRODUCTS, PEAK = ("W1", "W2", "W3", "W5", "W8", "W11", "W18", "W20"), 0.78
# Rows that memory bounds: each reaches this part of its bandwidth, or is so much ahead of peers.
MEMORY = ("W4", "W6", "W7", "W9", "W10", "W12", "W13", "W14", "W15", "W17")
BANDWIDTH, AHEAD = 0.75, 2.0


def row(timing: Timing, peers: Sequence[str], threads: int) -> list[str]:
    """A row of the table, in microseconds."""
    seconds = [timing.ours, timing.opencl, *(timing.peers.get(peer) for peer in peers)]
    cells = ["-" if value is None else f"{value * 1e6:,.0f}" for value in seconds]
    verdict = f"{timing.ratio:.2f}" if timing.fine else f"[red]{timing.ratio:.2f}[/]"
    peak, memory = timing.limits.reached(timing.work, timing.ours, threads)
    shares = [f"{peak:.0%}", f"{memory:.0%}", f"{timing.first:.2f} s"]
    return [timing.id, *cells, verdict, *shares, f"{timing.error:.0e}"]


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="ID", action="append", help="only this row; repeatable")
    parser.add_argument("--repeats", type=int, default=20, help="calls of each contender")
    parser.add_argument("--threads", type=int, default=1, help="threads of every contender")
    parser.add_argument("--peers", metavar="NAMES", help=PEERS_HELP)
    parser.add_argument("--opencl", action="store_true", help="the opencl backend as well")
    parser.add_argument("--random", type=int, metavar="SEED", help="kernels drawn at random")
    parser.add_argument("--count", type=int, default=30, help="how many are drawn")
    parser.add_argument("--busy", action="store_true", help="beside a core that is kept busy")
    parser.add_argument("--symbolic", action="store_true", help="one kernel for all sizes")
    parser.add_argument("--strict", action="store_true", help="exit code 1 below a target")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="where to draw the ratios")
    options = parser.parse_args(arguments)
    cases = CASES if options.random is None else drawn_cases(options.random, options.count)
    known = {name.split()[0]: name for name in cases}
    if unknown := sorted(set(options.only or ()) - set(known)):
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(known)}")
    if options.threads < 1 or options.count < 1:
        parser.error("--threads and --count are at least 1")
    options.peers = chosen(options, parser)
    options.cases = {known[name]: cases[known[name]] for name in options.only or known}
    return options


def chosen(options: argparse.Namespace, parser: argparse.ArgumentParser) -> list[str]:
    """The peers that take part."""
    asked = options.peers.split(",") if options.peers is not None else None
    if unknown := sorted(set(asked or ()) - set(PEERS)):
        parser.error(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    if absent := [name for name in asked or () if not find_spec(name)]:
        parser.error(f"not installed: {', '.join(absent)}")
    wanted = USUAL if asked is None else ("numpy", *asked)
    peers = [name for name in PEERS if name in wanted and find_spec(name)]
    # The expert's numpy of kernels that are drawn is no expert's.
    drawn = options.random is not None and "numpy" not in (asked or ())
    return [name for name in peers if not drawn or name != "numpy"] or peers


def main(arguments: list[str] | None = None) -> int:
    """Runs the rows and returns the exit code."""
    options = parsed(arguments)
    threads = max(2, options.threads) if options.busy else options.threads
    on_threads(threads)
    ea.set_num_threads(threads)
    if options.busy or options.symbolic:
        return beside_ourselves(options, threads)
    columns = ("ours", "opencl", *options.peers, "peer / ours", "peak", "memory", "first", "error")
    result = Table("row", *columns, title=f"least microseconds, {options.threads} thread(s)")
    timings = measured(options.cases, options.peers, options.repeats, opencl=options.opencl)
    for timing in timings:
        result.add_row(*row(timing, options.peers, options.threads))
    console = wide()
    console.print(result)
    for line in (*missing(timings), *at_will(timings)):
        console.print(line, markup=False)
    mean = math.exp(sum(math.log(timing.ratio) for timing in timings) / len(timings))
    slowest = min(timings, key=lambda timing: timing.ratio)
    target = RANDOM if options.random is not None else SHARED if options.threads > 1 else TABLE
    stated = f" (target {target.least})" if target.least else ""
    console.print(
        f"geometric mean of best peer / ours: {mean:.2f} (target {target.mean}); "
        f"least: {slowest.ratio:.2f}, {slowest.id}{stated}"
    )
    bounds = bounded(timings) if target is TABLE else []
    for line, _ in bounds:
        console.print(line)
    console.print(machine([timing.limits for timing in timings]))
    console.print(overhead.line())
    if options.json is not None:
        options.json.write_text(json.dumps(figures(timings, options.threads), indent=1))
    if options.plot is not None:
        plot(timings, options.plot)
    met = mean >= target.mean and slowest.ratio >= target.least and all(fine for _, fine in bounds)
    return 0 if all(timing.fine for timing in timings) and (met or not options.strict) else 1


def missing(timings: list[Timing]) -> list[str]:
    """Why peers have no time in some rows, those with one reason in one line."""
    rows: dict[tuple[str, str], list[str]] = {}
    for timing in timings:
        for peer, reason in timing.without.items():
            rows.setdefault((peer, reason), []).append(timing.id)
    return [f"{peer}, {', '.join(ids)}: {reason[:SAID]}" for (peer, reason), ids in rows.items()]


def at_will(timings: list[Timing]) -> list[str]:
    """How fast jax is where it saves what it likes, in rows where that is not what they give."""
    return [
        f"jax, {timing.id}: {1e6 * timing.at_will:,.0f} where it saves what it likes, "
        f"{timing.at_will / timing.ours:.2f} of ours; not counted"
        for timing in timings
        if timing.at_will is not None
    ]


def machine(limits: Sequence[Limits]) -> str:
    """What one thread did in turns with the rows, from the slowest of these moments on."""
    units = {
        "products": ("G products and sums", 0),
        "registers": ("G of registers alone", 0),
        "copied": ("GB copied", 1),
        "read": ("GB read", 1),
    }
    found = []
    for name, (unit, digits) in units.items():
        values = [getattr(each, name) / 1e9 for each in limits]
        found.append(f"{min(values):.{digits}f} to {max(values):.{digits}f} {unit}")
    return f"one thread, a second: {', '.join(found)}"


def bounded(timings: list[Timing]) -> list[tuple[str, bool]]:
    """What the rows reach of what bounds them, in words, and whether it is enough; one thread."""
    rows = {timing.id: timing.limits.reached(timing.work, timing.ours, 1) for timing in timings}
    ahead = {timing.id for timing in timings if timing.ratio >= AHEAD}
    found = []
    if products := [timing for timing in timings if stem(timing.id) in PRODUCTS]:
        mean = fmean(rows[timing.id][0] for timing in products)
        alone = fmean(
            timing.work.operations / timing.ours / timing.limits.registers for timing in products
        )
        line = (
            f"contractions: {mean:.0%} of the peak on average (target {PEAK:.0%}), "
            f"{alone:.0%} of that of registers alone"
        )
        found.append((line, mean >= PEAK))
    if bound := [name for name in rows if stem(name) in MEMORY]:
        short = [name for name in bound if rows[name][1] < BANDWIDTH and name not in ahead]
        line = (
            f"bound by memory: {len(bound) - len(short)} of {len(bound)} at {BANDWIDTH:.0%} of the "
            f"bandwidth or {AHEAD:g} times as fast as all peers"
        )
        found.append((f"{line}; not {', '.join(short)}" if short else line, not short))
    return found


def stem(name: str) -> str:
    """The workload of a row: ``W1`` of ``W1dX``."""
    return name.split("d")[0]


def beside_ourselves(options: argparse.Namespace, threads: int) -> int:
    """Our kernels in two situations or more, over those of the first; the exit code."""
    compare, limit = (with_busy_core, BUSY) if options.busy else (for_all_sizes, SYMBOLIC)
    found = {name: compare(case, options.repeats, threads) for name, case in options.cases.items()}
    found = {name: seconds for name, seconds in found.items() if seconds}
    base, *others = next(iter(found.values()))
    result = Table("row", base, *(f"{other} / {base}" for other in others), title=compare.__doc__)
    for name, seconds in found.items():
        ratios = (f"{seconds[other] / seconds[base]:.2f}" for other in others)
        result.add_row(name, f"{1e6 * seconds[base]:,.0f}", *ratios)
    console = wide()
    console.print(result)
    for other in others:
        ratios = {name: seconds[other] / seconds[base] for name, seconds in found.items()}
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        largest = max(ratios, key=lambda name: ratios[name])
        stated = f" (target {limit})" if other is others[0] else ""
        console.print(
            f"{other} / {base}: geometric mean {mean:.2f}, largest {ratios[largest]:.2f}, "
            f"{largest}{stated}; {len(ratios)} of {len(options.cases)} rows"
        )
    if options.json is not None:
        options.json.write_text(json.dumps({"threads": threads, "seconds": found}, indent=1))
    worst = max(seconds[others[0]] / seconds[base] for seconds in found.values())
    return 1 if options.strict and worst > limit else 0


def with_busy_core(case: Case, repeats: int, threads: int) -> dict[str, float]:
    """median microseconds beside a core that is kept busy"""
    problem = case.make(**case.full)
    call = called(problem.ours.build("cpu"), problem)

    def on(count: int) -> Call:
        def run() -> None:
            ea.set_num_threads(count)
            call()

        return run

    with busy_core():
        return usual({"one thread": on(1), "all threads": on(threads)}, repeats)


def for_all_sizes(case: Case, repeats: int, threads: int) -> dict[str, float]:
    """microseconds of kernels for one size, and for all"""
    problem = case.make(**case.full)
    open_ended = symbolic(case)
    if open_ended is None:
        return {}
    sizes = values(open_ended, problem.arrays)
    calls = {"one size": called(problem.ours.build("cpu"), problem)}
    for way, specialise in (("specialised", True), ("general", False)):
        kernel = open_ended.build("cpu", specialise=specialise)
        calls[way] = called(kernel, problem, {name: sizes[name] for name in kernel.sizes})
        if (worst := error(problem, calls[way]())) > TOLERANCE:
            raise AssertionError(f"the {way} kernel is wrong by {worst:.0e}")
    return least(calls, repeats)


def wide() -> Console:
    """A console, wide enough for the table where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 140)


def figures(timings: list[Timing], threads: int) -> dict[str, Any]:
    """Everything that was measured, in seconds, operations and bytes."""
    return {"threads": threads, "rows": [asdict(timing) for timing in timings]}


def plot(timings: list[Timing], path: Path) -> None:
    """Bars of the time of the best peer over ours."""
    pyplot = import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(9, 4))
    axes.bar([timing.id for timing in timings], [timing.ratio for timing in timings])
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_ylabel("time of the best peer / ours")
    axes.tick_params(axis="x", rotation=90)
    figure.tight_layout()
    figure.savefig(path)


def on_threads(count: int) -> None:
    """Starts this command again where libraries could use another number of threads."""
    wanted = dict.fromkeys(POOLS, str(count))
    if count == 1:
        wanted["XLA_FLAGS"] = XLA_ALONE
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        command = [sys.executable, "-m", "benchmarks.kernels", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **wanted})


if __name__ == "__main__":
    sys.exit(main())
