"""Gather or scatter: a summand whose target position is data becomes a scatter, by cost.

A gradient's summand says "for every output element, add up the points that land on it". Where
the position is data no row can turn that around, and every element would be compared with every
point. Read the other way it is a scatter: for every point, add to the element it lands on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from eqsatad.rules.conditions import Conditions
from eqsatad.rules.domain import EXAMPLE_SIZE, Domain, put
from eqsatad.rules.domains import Domains
from eqsatad.rules.indices import ATLEAST, ZERO, Guard
from eqsatad.rules.summands import guarded, onto, summands
from eqsatad.rules.views import quotient_parts
from eqsatad.terms.checks import depends_on_data
from eqsatad.terms.linear import Linear, atom, expression, linear
from eqsatad.terms.nodes import SUM, Axis, Expr, Read, Reduce, Scatter
from eqsatad.terms.walk import conjuncts, constant, fresh, postorder, substitute


@dataclass(frozen=True)
class Prices:
    """What a scatter costs next to the gather in its place, one test of which costs 1.

    ``add`` is the price of adding to an element whose place in its row is data, or to ``vector``
    neighbours of which only the row is data. A gather tests the ``vector`` neighbours of a row
    together, so that a short row costs as much as so many elements. Where windows lie apart, only
    elements as far apart are tested together, at the price ``strided``; a row is cut at windows
    that reach over its ends if they are the only ones that a place is in.
    """

    add: float = 1
    vector: int = 1
    strided: float = 1

    def test(self, axes: Sequence[Axis], apart: int = 1, cuts: int = 0) -> float:
        """The price of one test of each element over ``axes``.

        Windows are so far ``apart`` in a row, which is cut at so many places.
        """
        groups = -(-_volume(axes[-1:]) // (apart * self.vector)) + cuts
        each = 1 if apart == 1 else self.strided
        return _volume(axes[:-1]) * groups * apart * self.vector * each


@dataclass(frozen=True)
class Position:
    """Where a summand lands: one form for each output axis, and what is left to satisfy."""

    targets: dict[Axis, Linear]
    guards: tuple[Guard, ...]


def as_scatter(
    term: Expr,
    restricted: Expr,
    axes: Sequence[Axis],
    domains: Domains,
    taken: set[str],
    prices: Prices,
) -> Scatter | None:
    """``term``, a summand of a stage over ``axes``, as a scatter if that is cheaper.

    ``restricted`` is the same summand as the gather that the rows made of it.
    """
    if not isinstance(term, Reduce) or term.combiner is not SUM:
        return None
    parts = list(summands(term.body))
    if len(parts) > 1 and any(guarded(part)[0] for part in parts):
        return None
    gathers = list(summands(restricted))
    if not any(compares_data(gather, axes) for gather in gathers):
        return None
    conds, value = guarded(term.body)
    found = Conditions.of([*conjuncts(term.cond), *conds]).with_data()
    position = solved_for(found.guards, axes)
    if position is None:
        return None
    copies = {axis: fresh(axis, taken) for axis in axes if axis not in position.targets}
    over = {axis: atom(copy) for axis, copy in copies.items()}
    guards = tuple((kind, put(form, over)) for kind, form in position.guards)
    domain = domains.solve(Domain((*term.axes, *copies.values()), guards), taken)
    if domain is None:
        return None
    moved = domain.substitution
    landing = {axis: expression(form) for axis, form in (position.targets | over).items()}
    landing = {axis: substitute(target, moved) for axis, target in landing.items()}
    together = prices.vector if axes and not depends_on_data(landing[axes[-1]]) else 1
    row = axes[-1] if axes else None
    apart, cuts = (1, 0) if row is None else _windows(row, position.targets.get(row))
    scatter = prices.test(axes) + prices.add * domain.volume / together
    tested = (
        prices.test(axes, apart, 0 if _points(each) else cuts) * _volume(_points(each))
        for each in gathers
    )
    if scatter >= sum(tested):
        return None
    # Once the range of data is known, the digits of data need no care for negative numbers.
    domain = replace(domain, guards=tuple(sorted(domain.guards, key=_divides_data)))
    cond, spread = onto(domain, found.opaque, value)
    return Scatter(
        domain.axes,
        substitute(cond, landing),
        tuple(landing[axis] for axis in axes),
        substitute(spread, landing),
    )


def compares_data(term: Expr, axes: Sequence[Axis]) -> bool:
    """Whether a gather tests a position that is data, of each point or of the only one."""
    own, outer = frozenset(_points(term)), frozenset(axes)
    conds = conjuncts(term.cond) if isinstance(term, Reduce) else guarded(term)[0]
    for kind, form in Conditions.of(conds).with_data().guards:
        if kind != ZERO or not form.free & outer:
            continue
        for _, node in form.terms:
            if node.children and (node.free & own if own else depends_on_data(node)):
                return True
    return False


def solved_for(guards: Sequence[Guard], axes: Sequence[Axis]) -> Position | None:
    """Each output axis that an equation determines; None if none is."""
    targets: dict[Axis, Linear] = {}
    left = list(guards)
    for axis in axes:
        for guard in left:
            kind, form = guard
            rest = form.without(axis)
            coef = form.coefficient(axis)
            if kind == ZERO and abs(coef) == 1 and not rest.free & frozenset(axes):
                targets[axis] = rest.scaled(-coef)
                left.remove(guard)
                break
    kept = [(kind, put(form, targets)) for kind, form in left]
    for axis, target in targets.items():
        last = linear(axis.extent) - Linear(1, ())
        kept += [(ATLEAST, target), (ATLEAST, last - target)]
    return Position(targets, tuple(kept)) if targets else None


def _windows(row: Axis, target: Linear | None) -> tuple[int, int]:
    """How far apart in ``row`` the windows are that summands land in, and how many ends they cut.

    An end is cut where no window begins or stops with the row.
    """
    if target is None:
        return 1, 0
    coefs = (abs(coef) for coef, node in target.terms if isinstance(node, Axis))
    apart = max(coefs, default=1)
    ends = (target.const, target.const - _volume((row,)))
    return apart, sum(end % apart != 0 for end in ends)


def _divides_data(guard: Guard) -> bool:
    """Whether a quotient is in ``guard`` that depends on data."""
    return any(
        quotient_parts(node) is not None and any(isinstance(part, Read) for part in postorder(node))
        for _, root in guard[1].terms
        for node in postorder(root)
    )


def _points(term: Expr) -> Sequence[Axis]:
    """The axes that a gather sums over for each element; none if one point at most lands there."""
    return term.axes if isinstance(term, Reduce) else ()


def _volume(axes: Sequence[Axis]) -> int:
    return prod(constant(axis.extent) or EXAMPLE_SIZE for axis in axes)
