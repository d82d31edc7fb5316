"""Random schedules of a few programs, run on two targets against the nests as they were.

``python -m tests.fuzz_schedules [--examples N] [--seed S]`` prints every failure with what repeats
it, and exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.progress import track

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.backends import build
from eqsatad.errors import ScheduleError
from eqsatad.loops import interpret
from eqsatad.loops.samples import samples
from eqsatad.planning import Plan, Stages
from eqsatad.terms.nodes import Tensor

# Sums of at most a few hundred float32 products, added up in another order.
TOLERANCE = 1e-4


def place(*shape: Any, name: str) -> Tensor:
    return ea.placeholder(shape, name=name)


def gradient(output: Tensor, *wrt: Tensor) -> Plan:
    return ea.differentiate(output, list(wrt)).plan()


def product(rows: Any = 13, inner: Any = 7, columns: Any = 37) -> Plan:
    a, b = place(rows, inner, name="A"), place(inner, columns, name="B")
    return gradient(nn.matmul(a, b), a, b)


def convolution() -> Plan:
    x, w = place(2, 3, 9, 8, name="X"), place(4, 3, 3, 3, name="W")
    return gradient(nn.conv2d(x, w, stride=2, pad=1), x, w)


def pooling() -> Plan:
    x = place(2, 3, 9, 8, name="X")
    return gradient(nn.max_pool(x, 3, stride=2, pad=1), x)


def normalised() -> Plan:
    x, gamma, beta = place(6, 19, name="X"), place(19, name="G"), place(19, name="B")
    return gradient(nn.layer_norm(x, gamma, beta), x, gamma, beta)


def rows() -> Plan:
    """A sum over each row, kept as a stage, that divides the row."""
    x, k = place(6, 19, name="x"), ea.reduce_axis((0, 19), "k")
    total = ea.compute((6,), lambda i: ea.sum(ea.exp(x[i, k]), axis=k), "total")
    y = ea.compute((6, 19), lambda i, j: ea.exp(x[i, j]) / total[i], "y")
    return ea.plan([y], simplify=False)


def symbolic() -> Plan:
    return product(ea.size("n"), ea.size("k"), 21)


def running() -> Plan:
    x = place(5, 21, name="X")
    return gradient(nn.cumsum(x, axis=1), x)


def looked_up() -> Plan:
    table = place(7, 18, name="E")
    places = ea.placeholder((11,), name="I", dtype="int32")
    return gradient(nn.embedding(table, places), table)


def interpolated() -> Plan:
    x = place(1, 2, 5, 6, name="X")
    return gradient(nn.upsample_bilinear(x, 2), x)


PROGRAMS: dict[str, Callable[[], Plan]] = {
    "product": product,
    "convolution": convolution,
    "pooling": pooling,
    "normalised": normalised,
    "rows": rows,
    "symbolic": symbolic,
    "running": running,
    "looked up": looked_up,
    "interpolated": interpolated,
}


def arrays_of(plan: Plan, sizes: dict[str, int]) -> dict[str, Any]:
    return samples(plan.program.inputs, [nest.stage for nest in plan.program.nests], sizes)


def agrees(plan: Plan, fresh: Plan) -> Any:
    """The kernel of ``plan``, after it gave what the nests of ``fresh`` give."""
    sizes = {size.name: 9 for size in plan.program.sizes}
    arrays = arrays_of(fresh, sizes)
    expected = interpret.run(fresh.program, arrays, sizes).outputs
    kernel = plan.build()
    for target in ("cpu", "reference"):
        found = build(plan.program, target)(**arrays)
        for ours, right in zip(found, expected, strict=True):
            scale = np.abs(right).max(initial=1.0)
            np.testing.assert_allclose(ours, right, rtol=TOLERANCE, atol=TOLERANCE * scale)
    return kernel


METHODS: tuple[Callable[[Stages, random.Random], Stages], ...] = (
    lambda nest, r: nest.split(r.choice(nest.axes), r.choice((2, 3, 4, 8, 16))),
    lambda nest, r: nest.reorder(*r.sample(nest.axes, min(len(nest.axes), r.choice((2, 3))))),
    lambda nest, r: nest.unroll(r.choice(nest.axes), r.choice((2, 3, 4))),
    lambda nest, r: nest.vectorize(r.choice(nest.axes)),
    lambda nest, r: nest.parallel(r.choice(nest.axes)),
)


def scheduled(plan: Plan, seed: int) -> list[str]:
    """Makes random changes, and says which of them were not refused."""
    dice = random.Random(seed)
    made = []
    for _ in range(6):
        names = [nest.stage.name for nest in plan.program.nests]
        nest = plan[dice.choice(names)]
        number = dice.randrange(len(METHODS))
        try:
            if nest.axes:
                METHODS[number](nest, dice)
                made.append(f"{number} in {nest.name}")
        except ScheduleError:
            pass
    return made


def main(arguments: list[str] | None = None) -> int:
    """Runs the examples and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="schedules of each program")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    failures = changes = 0
    seeds = range(options.seed, options.seed + options.examples)
    for seed in track(seeds, transient=True):
        for name, make in PROGRAMS.items():
            plan = make()
            changes += len(scheduled(plan, seed))
            try:
                agrees(plan, make())
            except Exception as error:  # whatever it is, the run goes on
                failures += 1
                print(f"{name}, --examples 1 --seed {seed}: {error}\n{plan.show()}")
    print(f"{len(seeds) * len(PROGRAMS)} schedules, {changes} changes, {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
