"""Loop bounds from guards, for one order of the loops.

A guard bounds the innermost of its loops: ``c*k + rest >= 0`` is ``k >= ceil(-rest / c)`` or
``k <= floor(rest / -c)``. The division is done when the loop is entered, never inside. What is no
bound is a test, made as soon as its axes are known; within a reduction it stays inside, around the
body, and so does an equation: to take tests out and to solve equations is what the rules are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eqsatad.loops.forms import ONE, ZERO, Guard, divide, extreme, guard, never_below
from eqsatad.loops.settle import has_reads
from eqsatad.terms.linear import Linear, expression, linear
from eqsatad.terms.nodes import Axis, Expr
from eqsatad.terms.ops import MAX, MIN


@dataclass(frozen=True)
class Loop:
    """``start <= axis < stop``, then only where ``tests`` hold."""

    axis: Axis
    start: Expr
    stop: Expr
    tests: tuple[Expr, ...]

    @property
    def runs(self) -> bool:
        """Whether at least one iteration is certain to do something."""
        return not self.tests and never_below(linear(self.stop) - linear(self.start), 1)


@dataclass
class _Level:
    starts: list[Expr] = field(default_factory=list)
    stops: list[Expr] = field(default_factory=list)
    tests: list[Expr] = field(default_factory=list)


def loops(
    order: Sequence[Axis], conds: Sequence[Expr], summed: frozenset[Axis] = frozenset()
) -> tuple[tuple[Expr, ...], list[Loop]]:
    """The tests to make before any loop, and the loops; ``summed`` are the axes of reductions."""
    levels = [_Level() for _ in range(len(order) + 1)]
    for cond in conds:
        level = depth(order, cond.free)
        bound = _bound(order[level - 1], cond, summed) if level else None
        # A bound that reads data must not overtake a test that may keep the read in range.
        late = has_reads(cond) and any(inner.tests for inner in levels[level:])
        if bound is None or late:
            levels[len(order) if summed else level].tests.append(cond)
        else:
            starts, stops = bound
            levels[level].starts.extend(starts)
            levels[level].stops.extend(stops)
    return tuple(levels[0].tests), [
        Loop(
            axis,
            extreme(MAX, (ZERO, *level.starts)),
            extreme(MIN, (axis.extent, *level.stops)),
            tuple(level.tests),
        )
        for axis, level in zip(order, levels[1:], strict=True)
    ]


def depth(order: Sequence[Axis], free: frozenset[Axis]) -> int:
    """How many of the loops ``order`` must be entered for the axes ``free`` to be known."""
    return max((place + 1 for place, axis in enumerate(order) if axis in free), default=0)


def _bound(axis: Axis, cond: Expr, summed: frozenset[Axis]) -> tuple[list[Expr], list[Expr]] | None:
    """The first value and the end of ``axis`` that ``cond`` asks for; None if it is no bound."""
    what = guard(cond)
    if what is None or (what.equality and cond.free & summed):
        return None
    coef = what.form.coefficient(axis)
    if not coef or axis in what.form.without(axis).free:
        return None
    return bounds_of(what, axis, coef)


def bounds_of(what: Guard, axis: Axis, coef: int) -> tuple[list[Expr], list[Expr]]:
    """Starts and stops for ``axis`` in ``coef*axis + rest >= 0`` or ``== 0``."""
    rest = what.form.without(axis).scaled(1 if coef > 0 else -1)
    size = abs(coef)
    start = expression(divide(rest, size).scaled(-1))
    if what.equality:
        stop = divide(rest.scaled(-1), size) + Linear(1, ())
        return [start], [expression(stop)]
    if coef > 0:
        return [start], []
    return [], [expression(divide(rest.scaled(-1), size) + linear(ONE))]
