"""Max pooling whose forward pass saved positions: its gradient as a gather and as a scatter.

``python -m benchmarks.pools`` prints both for windows of several sizes and rows of several lengths,
and what an addition of the scatter and a test of the gather take: the prices of
`eqsatad.rules.scatters` are chosen by these. One thread.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import ceil, inf
from timeit import repeat

from rich.console import Console
from rich.progress import track
from rich.table import Table

import eqsatad as ea
from benchmarks.kernel_cases import Gradient, max_pool
from eqsatad.extract.cost import CPU
from eqsatad.rules.scatters import Prices

IMAGES = (5, 64, 40)
ROWS = (8, 13, 20, 30, 60, 120)
WINDOWS = ((2, 1), (3, 1), (3, 2), (5, 1), (5, 2))
REPEATS = 30
WAYS = {"scatter": Prices(add=0), "gather": Prices(add=inf)}
PART = {"scatter": "addition", "gather": "test"}
PROGRESS = Console(stderr=True)


def nanoseconds(row: int, kernel: int, stride: int) -> dict[str, float]:
    """What a call takes in each way, and of that one addition or one test, at least."""
    problem = max_pool((*IMAGES, row), kernel=kernel, stride=stride, pad=0)
    ours = problem.ours
    assert isinstance(ours, Gradient)
    tests = problem.arrays["X"].size * ceil(kernel / stride) ** 2
    parts = {"scatter": problem.arrays["A"].size, "gather": tests}
    found = {}
    for way, prices in WAYS.items():
        built = ours.build("cpu", cost=replace(CPU, scatter=prices))
        call = built.prepare(**{name: problem.arrays[name] for name in built.inputs})
        found[way] = 1e9 * min(repeat(call, number=1, repeat=REPEATS))
        found[PART[way]] = found[way] / parts[way]
    return found


def table() -> Table:
    """Both ways for all windows and rows."""
    found = Table("row", "kernel", "stride", *(f"{way}, µs" for way in WAYS), *(
        f"{part}, ns" for part in PART.values()
    ), title=f"images {' x '.join(map(str, IMAGES))} x row, one thread")  # fmt: skip
    for row, (kernel, stride) in track(list(product(ROWS, WINDOWS)), console=PROGRESS):
        times = nanoseconds(row, kernel, stride)
        found.add_row(
            *map(str, (row, kernel, stride)),
            *(f"{times[way] / 1000:.0f}" for way in WAYS),
            *(f"{times[part]:.3f}" for part in PART.values()),
        )
    return found


def main() -> None:
    """Prints the table."""
    ea.set_num_threads(1)
    Console().print(table())


if __name__ == "__main__":
    main()
