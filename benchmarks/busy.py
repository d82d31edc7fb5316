"""A core kept busy on purpose, by a process that is started and stopped here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SPIN = "while True: pass"
STOPPED = 5.0


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
