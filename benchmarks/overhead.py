"""What a call costs besides the work: on inputs so small that there is none.

``python -m benchmarks.overhead`` prints the microseconds of a prepared call, of an ordinary one,
of one by name and of one with ``out=``; `benchmarks.kernels` prints the same line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from timeit import repeat

import numpy as np

import eqsatad as ea
from eqsatad import library as nn

CALLS, REPEATS = 5_000, 9


def overheads() -> dict[str, float]:
    """The least seconds of each kind of call of a product of two 4 x 4 matrices."""
    a, b = (ea.placeholder((4, 4), name=name) for name in "ab")
    kernel = ea.build([nn.matmul(a, b)], [a, b])
    x, y = (np.ones((4, 4), "float32") for _ in range(2))
    out = kernel(x, y)
    calls: dict[str, Callable[[], object]] = {
        "prepared": kernel.prepare(x, y, out=out),
        "ordinary": partial(kernel, x, y),
        "by name": partial(kernel, a=x, b=y),
        "with out=": partial(kernel, x, y, out=out),
    }
    return {
        kind: min(repeat(call, number=CALLS, repeat=REPEATS)) / CALLS
        for kind, call in calls.items()
    }


def line() -> str:
    """One line about all of them."""
    found = ", ".join(f"{kind} {1e6 * seconds:.2f}" for kind, seconds in overheads().items())
    return f"microseconds of a call on 4 x 4 matrices: {found}"


if __name__ == "__main__":
    print(line())
