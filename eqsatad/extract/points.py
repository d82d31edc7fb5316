"""How many points of a box satisfy conditions: what guarded loops execute.

Conditions that share no axis are counted apart and multiplied. Boxes up to `EXACT` points are
counted point by point, larger ones estimated from a fixed sample. A condition on data is taken
to hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsatad.extract.cost import CostModel
from eqsatad.terms.meaning import MEANING
from eqsatad.terms.nodes import Apply, Axis, Cast, Const, Expr, Select, Size
from eqsatad.terms.walk import fold, postorder

EXACT = 1 << 16
SAMPLE = 1 << 14


class Points:
    """Counts at the example sizes of one cost model; every question is answered once."""

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self._known: dict[tuple[frozenset[Axis], frozenset[Expr]], float] = {}
        self._fractions: dict[frozenset[Expr], float] = {}

    def count(self, axes: Iterable[Axis], conds: Iterable[Expr]) -> float:
        """The points of the box of ``axes`` at which all of ``conds`` hold."""
        key = (frozenset(axes), frozenset(conds))
        if key not in self._known:
            box = float(self.model.volume(key[0]))
            for group in _connected(key[1]):
                if group not in self._fractions:
                    self._fractions[group] = self._fraction(group)
                box *= self._fractions[group]
            self._known[key] = box
        return self._known[key]

    def _fraction(self, conds: frozenset[Expr]) -> float:
        """The share of the points of the axes of ``conds`` at which they hold."""
        axes = sorted(frozenset[Axis]().union(*(cond.free for cond in conds)), key=_key)
        extents = [self.model.extent(axis) for axis in axes]
        grid = _grid(axes, extents)
        holds: NDArray[Any] = np.array(True)
        for cond in sorted(conds, key=_key):
            holds = np.logical_and(holds, self._value(cond, grid))
        return float(np.mean(holds))

    def _value(self, cond: Expr, grid: dict[Expr, NDArray[Any]]) -> NDArray[Any]:
        def visit(node: Expr, children: tuple[NDArray[Any], ...]) -> NDArray[Any]:
            match node:
                case Const(value, _):
                    return np.asarray(value)
                case Axis():
                    return grid[node]
                case Size(name):
                    return np.asarray(self.model.size(name))
                case Apply(op, _):
                    return np.asarray(MEANING[op](*children))
                case Select():
                    return np.where(*children)
            return children[0]

        return fold(cond, visit)


def _key(term: Expr) -> str:
    return term.key


def _countable(cond: Expr) -> bool:
    """Whether only indices decide ``cond``."""
    return all(isinstance(n, Const | Axis | Size | Apply | Select | Cast) for n in postorder(cond))


def _connected(conds: frozenset[Expr]) -> list[frozenset[Expr]]:
    """The countable ones of ``conds`` in groups that share no axis."""
    groups: list[tuple[frozenset[Axis], frozenset[Expr]]] = []
    for cond in sorted(filter(_countable, conds), key=_key):
        touching = [group for group in groups if group[0] & cond.free]
        free = cond.free.union(*(axes for axes, _ in touching))
        members = frozenset((cond,)).union(*(members for _, members in touching))
        groups = [group for group in groups if group not in touching] + [(free, members)]
    return [members for _, members in groups]


def _grid(axes: Sequence[Axis], extents: Sequence[int]) -> dict[Expr, NDArray[Any]]:
    """An array of values for each axis: all points of the box, or a sample of them."""
    if prod(extents) <= EXACT:
        return dict(zip(axes, np.indices(extents, sparse=True), strict=True)) if axes else {}
    rng = np.random.default_rng(0)
    return {
        axis: rng.integers(0, extent, SAMPLE) for axis, extent in zip(axes, extents, strict=True)
    }
