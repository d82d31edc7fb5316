"""Integer systems by themselves: the domain rows at work on conditions over some axes.

``solve`` gives axes with fewer points, the conditions that are left, and both maps: every old
point that satisfies the conditions is one new point, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from eqsatad.errors import ArgumentError
from eqsatad.rules.conditions import Conditions, as_condition
from eqsatad.rules.domain import Domain
from eqsatad.rules.engine import Engine
from eqsatad.rules.given import Rules, gathered
from eqsatad.rules.index_exchange import conditions as accepted_conditions
from eqsatad.rules.simplifier import Assumed, bounds, prove
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.linear import Linear, atom, expression, linear, normal
from eqsatad.terms.nodes import (
    FALSE,
    SUM,
    Axis,
    Const,
    Expr,
    Read,
    Reduce,
    Select,
    Size,
    Stage,
)
from eqsatad.terms.walk import conjunction, constant, fresh, postorder, substitute

CANDIDATES = 8
"""Of how many candidates the first that can be inverted is taken."""
LARGEST = 1 << 24
"""Of how many points those that satisfy conditions are counted, at most."""


@dataclass(frozen=True)
class Solution:
    """A smaller domain with the points of the one that was asked for.

    ``old`` gives each axis that was asked for over the new ``axes``; ``new`` gives each of these
    over the old ones. ``conditions`` are left on the new axes. ``empty`` is true where it is
    proved that nothing satisfies the conditions; there are then no axes.
    """

    axes: tuple[Axis, ...]
    conditions: tuple[Expr, ...]
    old: dict[Axis, Expr]
    new: dict[Axis, Expr]
    empty: bool = False

    @property
    def volume(self) -> int | None:
        """The points of the box around the new domain; None where an extent is a size."""
        total = 0 if self.empty else 1
        for axis in self.axes:
            if (extent := constant(axis.extent)) is None:
                return None
            total *= extent
        return total

    @property
    def points(self) -> int | None:
        """The points of the new domain, of which there are as many as in the old one.

        None where that depends on sizes, on axes around or on data, or the box has more than
        `LARGEST` points.
        """
        return 0 if self.empty else counted(self.axes, self.conditions)


EMPTY = Solution((), (), {}, {}, empty=True)
"""The solution of conditions that nothing satisfies."""


def _distinct_axes(over: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes to solve for, each once."""
    axes = () if isinstance(over, Expr) else tuple(over)
    if not axes or not all(isinstance(axis, Axis) for axis in axes) or len(set(axes)) < len(axes):
        raise ArgumentError(
            f"solve takes distinct axes, as in over=[i, j]; found {over!r}. An index with a lower "
            "bound is a sum: solve for the axis in it."
        )
    return axes


def counted(axes: Sequence[Axis], conditions: Iterable[Expr]) -> int | None:
    """At how many points of ``axes`` all ``conditions`` hold; None as for `Solution.points`."""
    held = conjunction(conditions)
    extents = [constant(axis.extent) for axis in axes]
    given = any(isinstance(node, Size | Read) for node in postorder(held))
    if given or None in extents or not held.free <= frozenset(axes):
        return None
    if prod(extent or 0 for extent in extents) > LARGEST:
        return None
    one = Const(1, "int64")
    body = Reduce(SUM, tuple(axes), held, one) if axes else Select(held, one, Const(0, "int64"))
    (total,) = evaluate([Stage("points", (), body)], {})
    return int(total)


def solve(
    conditions: Assumed,
    over: Sequence[Axis],
    *,
    rules: Rules | None = None,
    trusted: bool = False,
) -> Solution:
    """The points of the axes ``over`` that satisfy all of ``conditions``, on fewer axes.

    Other axes and sizes in the conditions are parameters. ``rules`` are rows to solve with, or
    files of rows, which are added to those of eqsatad; they are checked unless ``trusted``.
    """
    catalog = gathered(rules, trusted=trusted)
    given = accepted_conditions(conditions, "solve")
    asked = _distinct_axes(over)
    if FALSE in given:
        return EMPTY
    found = Conditions.of(given)
    nodes = postorder(*given, *asked)
    taken = {node.name for node in nodes if isinstance(node, Axis)}
    start = Domain(asked, found.guards)
    candidates = Engine.of(catalog).domains.candidates(start, taken, CANDIDATES)
    if not candidates:
        return EMPTY
    for domain in (*candidates, start):
        if (new := _inverse(domain, asked)) is not None:
            break
    else:
        raise AssertionError("the domain that was asked for is its own inverse")
    put = domain.substitution
    left = [*map(as_condition, domain.guards), *(substitute(cond, put) for cond in found.opaque)]
    old = {axis: put.get(axis, axis) for axis in asked}
    return _fitted(Solution(domain.axes, tuple(left), old, new), taken)


def _fitted(solution: Solution, taken: set[str]) -> Solution:
    """``solution`` with each axis cut to the values that it takes, and without idle conditions."""
    axes: list[Axis] = []
    put: dict[Expr, Expr] = {}
    new: dict[Axis, Expr] = {}
    for axis in solution.axes:
        low, high = bounds(axis, assume=solution.conditions)
        if low is not None and high is not None and low > high:
            return EMPTY
        short, value = axis, solution.new[axis]
        size = constant(axis.extent)
        if size is not None and low is not None and high is not None and high - low + 1 < size:
            short = fresh(Axis(axis.name, Const(high - low + 1, "index")), taken)
            put[axis] = normal(short + low)
            value = normal(value - low)
        axes.append(short)
        new[short] = value
    conditions = [substitute(cond, put) for cond in solution.conditions]
    kept = tuple(cond for cond in dict.fromkeys(conditions) if prove(cond) is not True)
    old = {axis: normal(substitute(form, put)) for axis, form in solution.old.items()}
    return Solution(tuple(axes), kept, old, new)


def _inverse(domain: Domain, asked: Sequence[Axis]) -> dict[Axis, Expr] | None:
    """The new axes over the old ones; None where a value cannot be solved for its axis."""
    known: dict[Expr, Expr] = {axis: axis for axis in domain.axes if axis in asked}
    open_ = {axis for axis in domain.axes if axis not in asked}
    while open_:
        solved = [pair for old, form in domain.solved for pair in _solved_for(old, form, open_)]
        if not solved:
            return None
        axis, value = solved[0]
        known[axis] = expression(linear(substitute(value, known)))
        open_.remove(axis)
    return {axis: known[axis] for axis in domain.axes}


def _solved_for(old: Axis, form: Linear, open_: set[Axis]) -> list[tuple[Axis, Expr]]:
    """The one open axis of ``form`` as an expression over ``old``, if it moves in steps."""
    inside = form.free & open_
    if len(inside) != 1:
        return []
    (axis,) = inside
    step, rest = form.coefficient(axis), form.without(axis)
    if not step or axis in rest.free:
        return []
    distance = (atom(old) - rest).scaled(1 if step > 0 else -1)
    return [(axis, expression(distance) // abs(step))]
