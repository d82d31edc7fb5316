"""Random domains against brute force: ``python -m tests.fuzz_domains --examples 5000 [--seed 0]``.

A domain is one to four summed axes under one to four guards, with two axes around it. Guards are
equations and inequalities of sums with quotients, remainders, minima and maxima. Every candidate
must meet each point of the domain exactly once, for every value of the outer axes and sizes, and
nothing else, and finding them may take no longer than `SLOW` of processor time. Some extents are
sizes and some guards read a table, as the position of a maximum does. Every example has a number,
and ``--seed N --examples 1`` repeats example N alone.
"""

from __future__ import annotations

import argparse
import faulthandler
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from random import Random
from typing import Any

import numpy as np

from eqsatad.rules.catalog import load
from eqsatad.rules.domain import Domain
from eqsatad.rules.engine import Engine
from eqsatad.rules.indices import ATLEAST, ZERO, Guard
from eqsatad.terms.linear import Linear, expression, linear
from eqsatad.terms.nodes import Apply, Axis, Cast, Const, Expr, Placeholder, Read, Size
from eqsatad.terms.ops import FLOORDIV, MAX, MIN, MOD
from eqsatad.terms.walk import fold, postorder

N = Size("n")
EXTENTS = {"o1": 5, "o2": 6}
MOST = 12
"""Candidates of one domain that are compared, at most."""
COEFFICIENTS = (-2, -1, -1, 1, 1, 1, 2, 2, 3, 4)
DIVISORS = (2, 2, 3, 4)
SLOW = 2.0
"""Seconds of processor time that are too many for one domain."""
HANGS = 60.0
"""Seconds after which an example ends the run, with the place where it hangs."""

Array = np.ndarray[Any, np.dtype[np.int64]]
Point = Mapping[Expr, Any]


@dataclass(frozen=True)
class Example:
    """A domain, the axes around it, the sizes to try, and the table that its guards read."""

    domain: Domain
    outer: tuple[Axis, ...]
    sizes: tuple[int, ...]
    table: Array

    def __str__(self) -> str:
        return described(self.domain)


def described(domain: Domain) -> str:
    """A domain on one line."""
    axes = ", ".join(f"{axis.name} < {axis.extent!r}" for axis in domain.axes)
    signs = {ZERO: "==", ATLEAST: ">="}
    guards = " and ".join(f"{expression(form)!r} {signs[kind]} 0" for kind, form in domain.guards)
    solved = ", ".join(f"{axis.name} = {expression(form)!r}" for axis, form in domain.solved)
    return f"over {axes or 'nothing'} where {guards or 'true'}; {solved}"


def example(seed: int) -> Example:
    """The example of that number."""
    rng = Random(seed)
    symbolic, reading = rng.random() < 0.2, rng.random() < 0.2
    # From numbers of its own, so that what else is drawn stays what it was.
    bends = Random(-seed - 1)
    bending = bends.random() < 0.4
    outer = tuple(Axis(name, Const(extent, "index")) for name, extent in EXTENTS.items())
    axes = tuple(
        Axis(name, N if symbolic and rng.random() < 0.5 else Const(rng.randint(1, 7), "index"))
        for name in "abcd"[: rng.choice((1, 2, 2, 3, 3, 4))]
    )
    table = np.array([rng.randint(-1, 6) for _ in range(8)])
    scope = (*axes, *outer, *((N,) if symbolic else ()))
    made = Example(Domain(axes, ()), outer, (1, 2, 5) if symbolic else (1,), table)
    guards = []
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
        bent = bending and bends.random() < 0.6
        extra = _extreme(bends, scope) if bent else Linear(0, ())
        guards.append(_guard(rng, made, scope, reading, extra))
    return Example(Domain(axes, tuple(guards)), outer, made.sizes, table)


def index(rng: Random, scope: Sequence[Expr], quotients: int, nested: int = 0) -> Linear:
    """A random sum over ``scope`` with quotients and remainders, which may hold others."""
    form = _sum(rng, scope)
    for _ in range(quotients):
        inner = form if rng.random() < 0.3 else index(rng, scope, nested, max(0, nested - 1))
        divisor = Const(rng.choice(DIVISORS), "index")
        quotient = Apply(rng.choice((FLOORDIV, MOD)), (expression(inner), divisor))
        form = form + linear(quotient).scaled(rng.choice(COEFFICIENTS))
    return form


def _extreme(rng: Random, scope: Sequence[Expr]) -> Linear:
    """A multiple of a random minimum or maximum, at times of a number."""
    sides = [index(rng, scope, rng.choice((0, 0, 1))), _sum(rng, scope)]
    if rng.random() < 0.4:
        sides[1] = Linear(rng.randint(-1, 5), ())
    node = Apply(rng.choice((MIN, MAX)), tuple(map(expression, sides)))
    return linear(node).scaled(rng.choice((1, 1, -1, -1, 2, -3)))


def _guard(
    rng: Random, made: Example, scope: Sequence[Expr], reading: bool, extra: Linear
) -> Guard:
    """A guard on a sum with ``extra`` in it that holds at one point at least."""
    form = index(rng, scope, rng.choice((0, 0, 0, 1, 1, 2))) + extra
    if reading and rng.random() < 0.5:
        table = Placeholder("table", (Const(8, "index"),), "int64")
        at = expression(_sum(rng, scope) if rng.random() < 0.3 else linear(rng.choice(scope)))
        at = Apply(MOD, (at, Const(8, "index")))
        form = form + linear(Cast(Read(table, (at,)), "index")).scaled(rng.choice((1, -1)))
    size = rng.choice(made.sizes)
    point: dict[Expr, Any] = {N: size}
    for axis in (*made.domain.axes, *made.outer):
        point[axis] = rng.randrange(_extent(axis, size))
    at_point = int(value(expression(form), point, made.table))
    kind = rng.choice((ZERO, ZERO, ATLEAST))
    slack = 0 if kind == ZERO else rng.randint(0, 3)
    return kind, form + Linear(slack - at_point, ())


def _sum(rng: Random, scope: Sequence[Expr]) -> Linear:
    chosen = rng.sample(scope, rng.randint(1, min(3, len(scope))))
    terms = [(rng.choice(COEFFICIENTS), atom) for atom in chosen]
    return Linear.build(rng.randint(-3, 3), terms)


def _extent(axis: Axis, size: int) -> int:
    return axis.extent.value if isinstance(axis.extent, Const) else size


ARITHMETIC: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
}


def value(expr: Expr, point: Point, table: Array) -> Any:
    """``expr`` where axes and sizes have the values of ``point``, numbers or arrays."""

    def visit(node: Expr, parts: tuple[Any, ...]) -> Any:
        match node:
            case Const(number, _):
                return number
            case Axis() | Size():
                return point[node]
            case Read():
                return table[parts[0]]
            case Cast():
                return parts[0]
            case Apply(op, _):
                return ARITHMETIC[op.name](*parts)
        raise AssertionError(f"no index expression: {node}")

    return fold(expr, visit)


def points(domain: Domain, wanted: Sequence[Axis], around: Point, case: Example) -> list[Any]:
    """The values of the axes ``wanted`` at each point of ``domain``, sorted."""
    shape = tuple(_extent(axis, around[N]) for axis in domain.axes)
    grid = np.indices(shape).reshape(len(shape), math.prod(shape))
    point: dict[Expr, Any] = {**around, **dict(zip(domain.axes, grid, strict=True))}
    held = np.ones(math.prod(shape), dtype=bool)
    for kind, form in domain.guards:
        left = value(expression(form), point, case.table)
        held &= left == 0 if kind == ZERO else left >= 0
    inside = {key: got[held] if np.ndim(got) else got for key, got in point.items()}
    solved = {axis: expression(form) for axis, form in domain.solved}
    columns = [
        np.broadcast_to(value(solved.get(axis, axis), inside, case.table), (held.sum(),))
        for axis in wanted
    ]
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def surroundings(case: Example) -> Iterator[Point]:
    """Every value of the axes and sizes around the domain."""
    for size in case.sizes:
        ranges = [range(_extent(axis, size)) for axis in case.outer]
        for chosen in product(*ranges):
            yield {N: size, **dict(zip(case.outer, chosen, strict=True))}


def candidates(case: Example, engine: Engine) -> list[Domain]:
    """The best candidates of ``case``, best first."""
    taken = {axis.name for axis in (*case.domain.axes, *case.outer)}
    return list(islice(engine.domains.candidates(case.domain, taken, MOST), MOST))


def compare(case: Example, found: Sequence[Domain]) -> None:
    """AssertionError if one of ``found`` is not equal to the domain."""
    wanted = case.domain.axes
    for around in surroundings(case):
        expected = points(case.domain, wanted, around, case)
        if not found:
            assert not expected, f"{case} is said to be empty, and at {around} it is not"
        for candidate in found:
            got = points(candidate, wanted, around, case)
            assert got == expected, (
                f"{case}\nis not\n{described(candidate)}\nat {around}: {expected} and {got}"
            )


def check(case: Example, engine: Engine, slow: float = SLOW) -> tuple[list[Domain], float]:
    """The candidates of ``case`` and the seconds they took; AssertionError if one is wrong."""
    before = time.process_time()
    found = candidates(case, engine)
    taken = time.process_time() - before
    compare(case, found)
    assert taken <= slow, f"{case}\ntook {taken:.2f} s"
    return found, taken


def drawn(domain: Domain) -> set[str]:
    """What the guards of ``domain`` are made of."""
    nodes = postorder(*(expression(form) for _, form in domain.guards))
    found = {"==" if kind == ZERO else "<=" for kind, _ in domain.guards}
    found |= {node.op.name for node in nodes if isinstance(node, Apply)}
    found |= {"table" for node in nodes if isinstance(node, Read)}
    return found | {"size" for node in (*nodes, *(a.extent for a in domain.axes)) if node is N}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the examples and prints the summary; 1 when one failed or took too long."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_domains", description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first example")
    parser.add_argument("--slow", type=float, default=SLOW, help="seconds that are too many")
    options = parser.parse_args(arguments)

    engine = Engine.of(load())
    seen: Counter[str] = Counter()
    start = time.perf_counter()
    slowest = (0.0, options.seed)
    for seed in range(options.seed, options.seed + options.examples):
        case = example(seed)
        seen.update(f"with {part}" for part in drawn(case.domain))
        begun = engine.tally.snapshot()
        faulthandler.dump_traceback_later(HANGS, exit=True)
        try:
            found, taken = check(case, engine, options.slow)
        except Exception as error:
            seen[f"FAILED, {type(error).__name__}"] += 1
            print(f"\nexample {seed}: {type(error).__name__}: {error}\n{case}", flush=True)
            continue
        slowest = max(slowest, (taken, seed))
        seen["empty" if not found else "restricted"] += 1
        seen.update(f"stopped: {stop}" for stop in engine.tally.since(begun).stops)
    faulthandler.cancel_dump_traceback_later()
    print(f"\n{options.examples} domains from {options.seed}, {time.perf_counter() - start:.0f} s")
    print(f"slowest: {slowest[0]:.2f} s, example {slowest[1]}")
    for what, count in sorted(seen.items()):
        print(f"{count:8}  {what}")
    return int(any("FAILED" in what for what in seen))


if __name__ == "__main__":
    sys.exit(main())
