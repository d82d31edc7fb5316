"""How many threads kernels use that were built without a number of them."""

from __future__ import annotations

import ctypes
import os
from typing import ClassVar

from eqsatad.errors import ArgumentError

VARIABLE = "EQSATAD_NUM_THREADS"


def set_num_threads(count: int | None) -> None:
    """Kernels built without a number of threads use at most ``count``; None: the default again.

    The default is the variable EQSATAD_NUM_THREADS, or one thread for each available CPU, as it is
    here or when a kernel is built. Results do not depend on the number of threads.
    """
    if count is not None and count < 1:
        raise ArgumentError(f"the number of threads is {count}; give at least 1, or None")
    _Chosen.threads = count
    agreed()


def num_threads() -> int:
    """How many threads a kernel uses that was built without a number of them."""
    if _Chosen.threads is not None:
        return _Chosen.threads
    if not (text := os.environ.get(VARIABLE, "")):
        return available()
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentError(f"{VARIABLE} is {text!r}; set it to an integer of at least 1")
    return int(text)


def agreed() -> ctypes.c_int64:
    """`num_threads`, where code finds it that was compiled without a number of them."""
    _Chosen.agreed.value = num_threads()
    return _Chosen.agreed


class _Chosen:
    """What `set_num_threads` was last given, and what kernels use that have no number."""

    threads: int | None = None
    agreed: ClassVar[ctypes.c_int64] = ctypes.c_int64(1)


def available() -> int:
    """How many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
