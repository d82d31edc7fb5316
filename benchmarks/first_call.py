"""The time from the start of a process to the first gradient, for the 28 kernels, beside jax.

``python -m benchmarks.first_call [--only ID] [--repeats N] [--small] [--json FILE] [--strict]``:
every figure is from a fresh process, the best of ``--repeats``. ``cold`` is with all caches off,
``warm`` with a disk cache that one run before has filled; the stages are those of the cold run.
Jax, where it is installed, traces and compiles the same gradient without a cache. Making the data
is not counted. ``after imports`` is what a warm run takes once everything is imported, ``reload``
what it takes from the loops to a kernel that can be called. Modules are compiled to bytecode
before, ours and jax's, as they are after an installation. With ``--strict`` the exit code is 1
unless ours is below jax's on `ROWS` rows, and `AFTER` and `RELOAD` are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.kernel_cases import CASES
from benchmarks.kernels import POOLS, wide

# Of 28 rows, those on which ours is to be below jax's; seconds of a warm run after the imports, and
# of them, those in which the kernel is found.
ROWS, AFTER, RELOAD = 24, 0.03, 0.005
BEFORE = ("start", "numpy", "import")
STAGES = (*BEFORE, "differentiate", "simplify", "lower", "compile", "call")
OFF = {"EQSATAD_CACHE_DIR": "", "JAX_ENABLE_COMPILATION_CACHE": "false", "JAX_PLATFORMS": "cpu"}

Seconds = Mapping[str, float]


@dataclass(frozen=True)
class First:
    """One row: the seconds of each stage, for each way of running it."""

    id: str
    cold: Seconds
    warm: Seconds
    jax: Seconds | None

    @property
    def faster(self) -> bool:
        """Whether ours is there before jax."""
        return self.jax is not None and total(self.cold) < total(self.jax)

    @property
    def after(self) -> float:
        """A warm run without its imports."""
        return total(self.warm) - sum(self.warm[stage] for stage in BEFORE)

    @property
    def reload(self) -> float:
        """From loops to a kernel, in a warm run."""
        return self.warm["compile"]


def total(seconds: Seconds) -> float:
    """All stages together."""
    return sum(seconds.values())


def run(way: str, row: str, environment: Mapping[str, str], *flags: str) -> Seconds:
    """The stages of one fresh process."""
    command = [sys.executable, "-m", "benchmarks.first_gradient", way, row, repr(time.time())]
    done = subprocess.run(
        [*command, *flags],
        env={**os.environ, **dict.fromkeys(POOLS, "1"), **OFF, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{way} {row}: {done.stderr}")
    seconds: Seconds = json.loads(done.stdout.splitlines()[-1])
    return seconds


def measure(row: str, modules: str, options: argparse.Namespace) -> First:
    """The best of each way of running a row; ``modules`` is the folder of the bytecode."""
    flags = ["--small"] if options.small else []
    with tempfile.TemporaryDirectory() as folder:
        compiled = {"PYTHONPYCACHEPREFIX": modules, "PYTHONDONTWRITEBYTECODE": ""}
        kept = {**compiled, "EQSATAD_CACHE_DIR": folder}
        ways = {"cold": ("ours", compiled), "warm": ("ours", kept)}
        if find_spec("jax"):
            ways["jax"] = ("jax", compiled)
        for way, environment in ways.values():
            run(way, row, environment, *flags)
        tried: dict[str, list[Seconds]] = {name: [] for name in ways}
        for _ in range(options.repeats):
            for name, (way, environment) in ways.items():
                tried[name].append(run(way, row, environment, *flags))
    best = {name: min(runs, key=total) for name, runs in tried.items()}
    return First(row, best["cold"], best["warm"], best.get("jax"))


def table(found: list[First]) -> Table:
    """All rows, in milliseconds."""
    columns = (*STAGES, "cold", "jax", "jax / cold", "warm", "after imports", "reload")
    result = Table("row", *columns, title="milliseconds from a fresh process to the first gradient")
    for first in found:
        stages = [f"{1e3 * first.cold.get(stage, 0.0):,.0f}" for stage in STAGES]
        peer = ["-", "-"]
        if first.jax is not None:
            ratio = total(first.jax) / total(first.cold)
            peer = [f"{1e3 * total(first.jax):,.0f}", f"{ratio:.2f}"]
        warm = [f"{1e3 * each:,.0f}" for each in (total(first.warm), first.after, first.reload)]
        result.add_row(first.id, *stages, f"{1e3 * total(first.cold):,.0f}", *peer, *warm)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Runs the rows and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="ID", action="append", choices=list(CASES))
    parser.add_argument("--repeats", type=int, default=3, help="fresh processes of each kind")
    parser.add_argument("--small", action="store_true", help="at small sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures")
    parser.add_argument("--strict", action="store_true", help="exit code 1 below a target")
    options = parser.parse_args(arguments)
    rows = options.only or list(CASES)
    console = wide()
    errors = Console(stderr=True)
    with tempfile.TemporaryDirectory() as modules:
        shown = track(rows, console=errors, transient=True)
        found = [measure(row, modules, options) for row in shown]
    console.print(table(found))
    beside = [first for first in found if first.jax is not None]
    won = sum(first.faster for first in beside)
    slowest = max(found, key=lambda first: first.after)
    reloaded = max(found, key=lambda first: first.reload)
    console.print(f"below jax on {won} of {len(beside)} rows (target {ROWS} of {len(CASES)})")
    console.print(
        f"warm, after imports: at most {1e3 * slowest.after:.0f} ms, {slowest.id} "
        f"(target {1e3 * AFTER:.0f}); the kernel alone: at most {1e3 * reloaded.reload:.1f} ms, "
        f"{reloaded.id} (target {1e3 * RELOAD:.0f})"
    )
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(first) for first in found], indent=1))
    late = slowest.after > AFTER or reloaded.reload > RELOAD
    short = len(beside) - won > len(CASES) - ROWS or late
    return 1 if options.strict and short else 0


if __name__ == "__main__":
    sys.exit(main())
