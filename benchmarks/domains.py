"""How small ``solve`` makes a domain, beside the box of a system that only has boxes.

``python -m benchmarks.domains [--json]``. For each domain: the box that the zero elimination of
tensor expressions in TVM leaves (figures expected by its tests of ``SimplifyDomain``,
github.com/sgrechanik-h/tvm, branch ``autodiff-dev``; ``about`` where a comment says so), the box
of ``solve``, the points that loops over the solution visit, and the points that there are. The
exit code is 0 when loops visit what there is and no more, which is never more than their box.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations

import numpy as np
from rich.console import Console
from rich.table import Table

import eqsatad as ea
from eqsatad.loops.interpret import count
from eqsatad.loops.lower import lower
from eqsatad.rules.catalog import load
from eqsatad.rules.engine import Engine
from eqsatad.rules.solving import Solution, counted
from eqsatad.terms.builders import finished
from eqsatad.terms.coerce import const
from eqsatad.terms.nodes import SUM, Axis, Const, Expr, Reduce
from eqsatad.terms.walk import conjunction, constant, substitute


@dataclass(frozen=True)
class Case:
    """A domain: axes, conditions, axes around them, and the box that the tests expect."""

    name: str
    conditions: tuple[Expr, ...]
    over: tuple[Axis, ...]
    expected: int
    around: tuple[Axis, ...] = ()
    about: bool = False


@dataclass(frozen=True)
class Row:
    """The volumes of one case; with axes around it, those at their worst values."""

    name: str
    expected: int
    box: int
    visited: int
    points: int

    @property
    def reached(self) -> bool:
        """Whether loops visit what there is and no more."""
        return self.visited == self.points <= self.expected


def axes(extent: int, names: str = "kln") -> tuple[Axis, ...]:
    """Axes of one extent, with a letter each."""
    return tuple(Axis(name, const(extent, "index")) for name in names)


def _triples(start: int, expected: Mapping[str, int]) -> Iterator[Case]:
    """Relations between three indices of five values, the first of which is ``start``."""
    over = axes(5)
    k, l, n = (axis + start for axis in over)  # noqa: E741  # the letters of the table
    relations = {
        "k <= l": (k <= l,),
        "k < l": (k < l,),
        "k = l": (k.equal(l),),
        "k = l, l < n": (k.equal(l), l < n),
        "2l = k": ((2 * l).equal(k),),
        "l - k < 2, 2n = k": (l - k < 2, (2 * n).equal(k)),
        "l - k < 2, l >= k": (l - k < 2, l >= k),
    }
    for name, volume in expected.items():
        yield Case(f"{name}, from {start}" if start else name, relations[name], over, volume)


def _orders(
    name: str, conditions: tuple[Expr, ...], over: Sequence[Axis], expected: int
) -> Iterator[Case]:
    """The same conditions over the axes in every order."""
    for order in permutations(over):
        letters = "".join(axis.name for axis in order)
        yield Case(f"{name}, over {letters}", conditions, order, expected)


def cases() -> Iterator[Case]:
    """The domains of the table."""
    band = "l - k < 2, l >= k"
    counts = {"k < l": 80, "k = l": 25, "k = l, l < n": 16}
    yield from _triples(0, {"k <= l": 125, **counts, "2l = k": 15, "l - k < 2, 2n = k": 15})
    yield from _triples(0, {band: 50})
    yield from _triples(-3, {**counts, "2l = k": 10, "l - k < 2, 2n = k": 10, band: 50})
    over = axes(5)
    k, l, _ = over  # noqa: E741
    for most, expected in ((3, 50), (2, 25)):
        (p,) = axes(most, "p")
        yield Case(f"l - k < p < {most}, l >= k", (l - k < p, l >= k), over, expected, (p,))
    k, m, x = (Axis(name, const(size, "index")) for name, size in (("k", 3), ("m", 2), ("x", 4)))
    yield Case("k + 3m = x", ((k + 3 * m).equal(x),), (k, m, x), 4)
    k, l, n = (Axis(name, const(size, "index")) for name, size in (("k", 6), ("l", 5), ("n", 30)))  # noqa: E741
    yield from _orders("k + 6l = n", ((k + 6 * l).equal(n),), (k, l, n), 30)
    floor = (n // 5).equal(k), (n % 5).equal(l)
    truncated = ea.truncated_div(n, 5).equal(k), ea.truncated_mod(n, 5).equal(l)
    yield from _orders("n // 5 = k, n % 5 = l", floor, (k, l, n), 30)
    yield from _orders("the same, truncated", truncated, (k, l, n), 30)
    k, l = axes(10, "kl")  # noqa: E741
    yield Case(
        "(l + k) % 3 <= 1, (l + k) // 3 <= 2", ((l + k) % 3 <= 1, (l + k) // 3 <= 2), (k, l), 48
    )
    yield from _convolution()


def _convolution() -> Iterator[Case]:
    """Which outputs of a convolution by 3 in steps of 2 read which of 10 x 10 inputs."""
    sizes = {"n": 1, "f": 2, "y": 4, "x": 4, "m": 1, "c": 2, "i": 10, "j": 10}
    named = {name: Axis(name, const(size, "index")) for name, size in sizes.items()}
    y, x, i, j = (named[name] for name in "yxij")
    window = (2 * x <= j, j <= 2 * x + 2, 2 * y <= i, i <= 2 * y + 2)
    yield Case("inputs and outputs of a convolution", window, tuple(named.values()), 2916, (), True)
    outputs = tuple(named[name] for name in "nfyx")
    yield Case("outputs of a convolution", window, outputs, 8, (i, j), True)


def visited(solution: Solution, put: Mapping[Expr, Expr]) -> int:
    """The iterations of loops over ``solution``, with ``put`` for what is around it."""
    if not solution.axes:
        return 0 if solution.empty else 1
    held = conjunction(substitute(cond, put) for cond in solution.conditions)
    body = Reduce(SUM, solution.axes, held, Const(1.0, "float32"))
    program = lower([finished("visited", (), body)], simplify=Engine.of(load()).simplify)
    total = count(program).total
    # The sum of nothing is stored too, which is one iteration.
    return total.iterations if total.additions else 0


def _surroundings(case: Case) -> Iterator[dict[Expr, Expr]]:
    """Every value of the axes around a domain."""
    shape = [constant(axis.extent) or 0 for axis in case.around]
    for place in np.ndindex(*shape):
        yield {axis: const(int(at), "index") for axis, at in zip(case.around, place, strict=True)}


def row(case: Case) -> Row:
    """The volumes of ``case``."""
    solution = ea.solve(case.conditions, over=case.over)
    box = solution.volume
    assert box is not None, "every extent is a number"
    found = []
    for put in _surroundings(case):
        points = counted(case.over, [substitute(cond, put) for cond in case.conditions])
        assert points is not None, "the domains are small"
        found.append((visited(solution, put), points))
    wasted = [pair for pair in found if pair[0] != pair[1]]
    return Row(case.name, case.expected, box, *max(wasted or found))


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; 1 when a point is visited in vain."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.domains", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    options = parser.parse_args(arguments)
    found = [(case, row(case)) for case in cases()]
    if options.json:
        print(json.dumps([asdict(one) for _, one in found], indent=1))
    else:
        table = Table("domain", "expected box", "box", "visited", "points", "")
        for case, one in found:
            about = "about " if case.about else ""
            volumes = (f"{about}{one.expected}", *map(str, (one.box, one.visited, one.points)))
            table.add_row(one.name, *volumes, "" if one.reached else "above")
        Console(width=110).print(table)
    return int(not all(one.reached for _, one in found))


if __name__ == "__main__":
    sys.exit(main())
