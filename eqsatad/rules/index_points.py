"""A fixed sample of points at which nodes are compared before anything is proved.

The sample of a question depends on the question alone. A division by 0 has some value here: what
is wrong at such a point is only not proposed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsatad.rules.index_conditions import inside
from eqsatad.rules.index_forms import Cond, Node
from eqsatad.rules.index_ranges import Interval

Array = NDArray[Any]
POINTS = 160
"""Points at which questions are tried first."""
HUGE = 1 << 60
"""Numbers beyond which nothing is sampled: there 64 bits are not enough, and proofs are lost."""
DRAWS = 4000
"""Points that are drawn to find those that meet the assumptions."""


class Points:
    """Values of the variables at points that meet the assumptions; nodes are evaluated once."""

    def __init__(self, values: dict[Node, Array], count: int) -> None:
        self.count = count
        self._values = values

    @staticmethod
    def drawn(bounds: Mapping[str, Interval], conds: tuple[Cond, ...], nodes: list[Node]) -> Points:
        """A fixed sample, the same for the same question."""
        found = [node for root in nodes for node in inside(root)]
        names = dict.fromkeys(node for node in found if node[0] in ("v", "b"))
        source = random.Random(7)
        special = sorted({c for node in found for c in _literals(node)})[:24]
        draws = DRAWS if conds else POINTS
        columns = {
            node: np.array(
                [source.random() < 0.5 for _ in range(draws)]
                if node[0] == "b"
                else _column(source, bounds.get(node[1], (None, None)), special, draws)
            )
            for node in names
        }
        points = Points(dict(columns), draws)
        for cond in conds:
            points = points.where(cond)
        if points.count > POINTS:
            kept = {
                node: column[:POINTS] for node, column in points._values.items() if node in names
            }
            points = Points(kept, POINTS)
        return points

    def where(self, cond: Cond) -> Points:
        """The points at which ``cond`` holds."""
        mask = self.value(cond)
        columns = {
            node: column[mask] for node, column in self._values.items() if node[0] in ("v", "b")
        }
        return Points(columns, int(mask.sum()) if self.count else 0)

    def value(self, node: Node) -> Array:
        """The values of ``node`` at all points."""
        if (found := self._values.get(node)) is None:
            self._values[node] = found = self._evaluate(node)
        return found

    def _evaluate(self, node: Node) -> Array:
        match node[0]:
            case "+":
                total = np.full(self.count, _wrapped(node[1]), dtype=np.int64)
                for atom, coef in node[2]:
                    total = total + _wrapped(coef) * self.value(atom)
                return total
            case "floor":
                return np.floor_divide(self.value(node[1]), min(node[2], HUGE))
            case "min":
                return reduce(np.minimum, map(self.value, node[1]))
            case "mul":
                return reduce(np.multiply, map(self.value, node[1]))
            case "sel":
                return np.where(*map(self.value, node[1:]))
            case "ge":
                return np.greater_equal(self.value(node[1]), 0)
            case "eq":
                return np.equal(self.value(node[1]), 0)
            case "not":
                return np.logical_not(self.value(node[1]))
            case "and":
                return reduce(np.logical_and, map(self.value, node[1]))
            case "or":
                return reduce(np.logical_or, map(self.value, node[1]))
            case "true" | "false":
                return np.full(self.count, node[0] == "true")
        return DIVISIONS[node[0]](self.value(node[1]), self.value(node[2]))

    def refutes(self, cond: Cond) -> bool:
        """Whether ``cond`` fails at a point."""
        return not self.value(cond).all()

    def agree(self, left: Node, right: Node) -> bool:
        """Whether two nodes have the same value at all points."""
        return bool(np.array_equal(self.value(left), self.value(right)))


def _wrapped(number: int) -> int:
    """``number`` in 64 bits, as sums and products of arrays are."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _euclid(top: Array, under: Array) -> Array:
    size = np.abs(under)
    safe = np.where(size == 0, 1, size)
    return np.where(under == 0, 0, np.sign(under) * (top // safe))


def _floor_divide(top: Array, under: Array) -> Array:
    return np.floor_divide(top, np.where(under == 0, 1, under))


def _truncate(top: Array, under: Array) -> Array:
    size = np.where(under == 0, 1, np.abs(under))
    sign = np.sign(top) * np.where(under < 0, -1, 1)
    quotient: Array = np.multiply(sign, np.abs(top) // size)
    return quotient


def _euclid_rest(top: Array, under: Array) -> Array:
    rest: Array = np.where(under == 0, 0, top - under * _euclid(top, under))
    return rest


DIVISIONS = {
    "fdiv": _floor_divide,
    "tdiv": _truncate,
    "ediv": _euclid,
    "emod": _euclid_rest,
}


def _literals(node: Node) -> list[int]:
    """Numbers around which the value of ``node`` may change."""
    if node[0] in ("+",):
        return [node[1], -node[1], node[1] + 1, -node[1] - 1]
    return [node[2], -node[2]] if node[0] == "floor" else []


def _column(source: random.Random, bounds: Interval, special: list[int], count: int) -> list[int]:
    low, high = (None if end is None else max(-HUGE, min(end, HUGE)) for end in bounds)
    reach = 1 << 12
    if low is None:
        low = -reach if high is None else high - reach
    if high is None:
        high = low + 2 * reach
    if high < low:
        return [low] * count
    near = [value for value in special if low <= value <= high] or [low, high]
    column = []
    for place in range(count):
        kind = place % 8 if place > 1 else 8
        if kind == 8:
            value = low if place else high
        elif kind < 3:
            value = source.randint(max(low, min(-6, high)), min(high, max(9, low)))
        elif kind < 5:
            value = source.choice(near) + source.randint(-2, 2)
        elif kind == 5:
            value = source.randint(max(low, min(-60, high)), min(high, max(100, low)))
        else:
            value = source.randint(low, high)
        column.append(min(max(value, low), high))
    return column
