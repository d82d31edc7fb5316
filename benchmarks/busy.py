"""A core kept busy on purpose, by a process that is started and stopped here.

Who shares a core is put off it for milliseconds now and then. So what counts beside such a process
is the usual call, out of many in a row: the least is of a moment without it, and a few calls may
all come right after such a moment, when the caches are cold.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median

SPIN = "while True: pass"
STOPPED = 5.0
# Seconds that a contender is called for before the next one has its turn.
TURN = 1e-2


def usual(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median seconds of each call, of all that are made in so many turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            begin = end = time.perf_counter()
            while end - begin < TURN:
                start = time.perf_counter()
                call()
                end = time.perf_counter()
                times[name].append(end - start)
    return {name: median(values) for name, values in times.items()}


@contextmanager
def busy_core() -> Iterator[None]:
    """One core is loaded as long as this lasts, the last of those that may be used."""
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        yield
    finally:
        process.kill()
        process.wait(STOPPED)
