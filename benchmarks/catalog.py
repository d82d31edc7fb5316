"""What the catalog costs the first gradient of a process: its rows found, compiled and loaded.

``python -m benchmarks.catalog [--runs N]``. Each run is a process of its own; times are processor
time after ``import eqsatad``. The exit code is 1 when the median of all steps together is above
`LIMIT`. A process does this once; the engines are kept for all that follows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

LIMIT = 0.15
"""Seconds that the catalog may cost the first gradient."""


def once() -> dict[str, float]:
    """The seconds of each step in this process, which has not loaded the catalog before."""
    import eqsatad  # noqa: F401  # what the user imports anyway
    from eqsatad.rules.algebra import session
    from eqsatad.rules.engine import Engine
    from eqsatad.rules.given import gathered
    from eqsatad.rules.value_rule import ValueRule

    seconds = {}

    def timed(step: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = work()
        seconds[step] = time.process_time() - start
        return result

    rows = timed("rows found", lambda: gathered(None))
    timed("index and domain rows compiled", lambda: Engine.of(rows))
    values = [row for row in rows if isinstance(row, ValueRule)]
    timed("value rows compiled", lambda: session(values))
    return seconds


def main() -> int:
    """Prints the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--once", action="store_true", help="one run, in this process, as JSON")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once()))
        return 0
    command = [sys.executable, "-m", "benchmarks.catalog", "--once"]
    runs = [json.loads(subprocess.check_output(command)) for _ in range(options.runs)]
    table = Table("step", "median ms", "most ms", title=f"{options.runs} processes")
    steps = {step: [run[step] for run in runs] for step in runs[0]}
    steps["together"] = [sum(run.values()) for run in runs]
    for step, times in steps.items():
        table.add_row(step, f"{1e3 * median(times):.1f}", f"{1e3 * max(times):.1f}")
    Console().print(table)
    return int(median(steps["together"]) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
