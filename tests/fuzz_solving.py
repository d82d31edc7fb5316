"""Random integer systems against brute force: ``python -m tests.fuzz_solving --examples 2000``.

A system is the domain of an example of `tests.fuzz_domains`, at times with a disjunction or a
negation beside its guards. Both maps of the solution are followed, point by point: every old point
becomes a new one and comes back, every new point becomes an old one and comes back. ``--seed N
--examples 1`` repeats system N alone.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

import eqsatad as ea
from eqsatad.rules.solving import Solution
from eqsatad.rules.summands import as_condition
from eqsatad.terms.meaning import MEANING
from eqsatad.terms.nodes import Apply, Axis, Cast, Const, Expr, Read, Select, Size
from eqsatad.terms.walk import fold
from tests.fuzz_domains import Example, N, described, example

Array = NDArray[Any]
Point = Mapping[Expr, Any]


@dataclass(frozen=True)
class System:
    """Conditions over the axes of an example."""

    case: Example
    conditions: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"{described(self.case.domain)} where also {self.conditions}"


def system(seed: int) -> System:
    """The system of that number."""
    case, rng = example(seed), Random(seed)
    conditions = [as_condition(guard) for guard in case.domain.guards]
    kind = rng.random()
    if kind < 0.15 and len(conditions) > 1:
        conditions[:2] = [conditions[0] | conditions[1]]
    elif kind < 0.3:
        conditions[0] = ~conditions[0]
    return System(case, tuple(conditions))


def value(expr: Expr, point: Point, table: Array) -> Any:
    """``expr`` at the points whose coordinates are the arrays of ``point``."""

    def visit(node: Expr, parts: tuple[Any, ...]) -> Any:
        match node:
            case Const(number, _):
                return np.asarray(number)
            case Axis() | Size():
                return point[node]
            case Read():
                return table[parts[0]]
            case Cast():
                return parts[0]
            case Select():
                return np.where(*parts)
            case Apply(op, _):
                return MEANING[op](*parts)
        raise AssertionError(f"no index expression: {node}")

    return fold(expr, visit)


def points(
    axes: Sequence[Axis], conditions: Sequence[Expr], size: int, case: Example
) -> dict[Expr, Any]:
    """The points of ``axes`` and the axes around them at which ``conditions`` hold, as columns."""
    every = (*case.outer, *axes)
    at: dict[Expr, Any] = {N: np.asarray(size)}
    shape = tuple(int(value(axis.extent, at, case.table)) for axis in every)
    grid = np.indices(shape).reshape(len(shape), math.prod(shape))
    at |= zip(every, grid, strict=True)
    held = np.ones(math.prod(shape), dtype=bool)
    for cond in conditions:
        held &= value(cond, at, case.table)
    return {axis: at[axis][held] for axis in every}


def columns(chosen: Sequence[Expr], at: Mapping[Expr, Any]) -> list[tuple[int, ...]]:
    """One tuple for each point."""
    return list(zip(*(at[axis].tolist() for axis in chosen), strict=True))


def compare(asked: System, solution: Solution) -> None:
    """AssertionError where a map of ``solution`` loses, invents or moves a point."""
    case, axes = asked.case, asked.case.domain.axes
    for size in case.sizes:
        old = points(axes, asked.conditions, size, case)
        where = f"{asked}\nat n = {size}"
        if solution.empty:
            assert not old[axes[0]].size, f"{where}: said to be empty"
            continue
        new = points(solution.axes, solution.conditions, size, case)
        there = _mapped(solution.new, old, size, case)
        back = _mapped(solution.old, new, size, case)
        around = case.outer
        sides = (
            ("new", (*around, *solution.axes), there, new),
            ("old", (*around, *axes), back, old),
        )
        for name, chosen, got, wanted in sides:
            found, expected = columns(chosen, got), columns(chosen, wanted)
            assert sorted(found) == sorted(expected), f"{where}: {name} points differ: {solution}"
        for name, chosen, mapping, got, start in (
            ("old", axes, solution.old, there, old),
            ("new", solution.axes, solution.new, back, new),
        ):
            again = columns(chosen, _mapped(mapping, got, size, case))
            assert again == columns(chosen, start), f"{where}: {name} points move: {solution}"


def _mapped(
    mapping: Mapping[Axis, Expr], at: Mapping[Expr, Any], size: int, case: Example
) -> dict[Expr, Any]:
    """The axes of ``mapping`` at the points ``at``, beside the axes around them."""
    count = at[case.outer[0]].size
    full = {N: np.asarray(size), **at}
    found: dict[Expr, Any] = {axis: at[axis] for axis in case.outer}
    for axis, expr in mapping.items():
        found[axis] = np.broadcast_to(value(expr, full, case.table), (count,))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the systems and prints the summary; 1 when one failed or took too long."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_solving", description=__doc__)
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first system")
    parser.add_argument("--slow", type=float, default=2.0, help="seconds that are too many")
    options = parser.parse_args(arguments)
    seen: Counter[str] = Counter()
    slowest = (0.0, 0)
    numbers = range(options.seed, options.seed + options.examples)
    for seed in track(numbers, description="solving", transient=True):
        asked = system(seed)
        before = time.process_time()
        try:
            solution = ea.solve(asked.conditions, over=asked.case.domain.axes)
            taken = time.process_time() - before
            compare(asked, solution)
        except Exception as error:
            seen[f"FAILED, {type(error).__name__}"] += 1
            print(f"\nsystem {seed}: {type(error).__name__}: {error}\n{asked}")
            continue
        slowest = max(slowest, (taken, seed))
        seen["empty" if solution.empty else "solved"] += 1
        if taken > options.slow:
            seen["FAILED, too slow"] += 1
            print(f"\nsystem {seed} took {taken:.2f} s\n{asked}")
    print(f"\n{options.examples} systems from {options.seed}")
    print(f"slowest: {slowest[0]:.2f} s, system {slowest[1]}")
    for what, count in sorted(seen.items()):
        print(f"{count:8}  {what}")
    return int(any("FAILED" in what for what in seen))


if __name__ == "__main__":
    sys.exit(main())
