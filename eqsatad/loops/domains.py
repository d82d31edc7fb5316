"""Domains: axes, guards over them, and the expressions that are evaluated at every point.

Both an output box with its value and a reduction with its body are domains, so what lowering does
to one it does to the other. The functions here give equal domains, or several that partition one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eqsatad.loops.forms import Guard, guard, length
from eqsatad.terms.linear import Linear, expression, linear
from eqsatad.terms.nodes import FALSE, TRUE, Axis, Const, Expr, Reduce
from eqsatad.terms.walk import postorder, substitute


@dataclass(frozen=True)
class Domain:
    """``exprs`` at every point of ``axes`` where all of ``conds`` hold.

    ``scope`` are the axes of the loops around it; ``summed`` says that it is a reduction's.
    """

    axes: tuple[Axis, ...]
    conds: tuple[Expr, ...]
    exprs: tuple[Expr, ...]
    scope: frozenset[Axis] = frozenset()
    summed: bool = False

    @property
    def names(self) -> set[str]:
        """Every axis name that occurs or is in scope."""
        found = {axis.name for axis in (*self.axes, *self.scope)}
        for node in postorder(*self.conds, *self.exprs):
            found.update(axis.name for axis in node.free)
            if isinstance(node, Reduce):
                found.update(axis.name for axis in node.axes)
        return found

    def replaced(self, mapping: Mapping[Axis, tuple[Expr, tuple[Axis, ...]]]) -> Domain:
        """The domain with each axis written as an expression of the axes that take its place."""
        values = {axis: value for axis, (value, _) in mapping.items()}
        axes: list[Axis] = []
        for axis in self.axes:
            axes.extend(mapping[axis][1] if axis in mapping else (axis,))
        return replace(
            self,
            axes=tuple(axes),
            conds=tuple(substitute(cond, values) for cond in self.conds),
            exprs=tuple(substitute(expr, values) for expr in self.exprs),
        )

    def restricted(self, *conds: Expr) -> Domain:
        """The domain with more guards."""
        return replace(self, conds=(*self.conds, *conds))

    def interval(self, axis: Axis, start: int, stop: int) -> Domain:
        """The part with ``start <= axis < stop``, the axis counting from zero again."""
        return self.shifted(axis, start, Const(stop - start, "index"))

    def shifted(self, axis: Axis, start: int, extent: Expr) -> Domain:
        """The ``extent`` values of ``axis`` from ``start`` on, counted from zero."""
        new = Axis(axis.name, extent)
        return self.replaced({axis: (expression(linear(new) + Linear(start, ())), (new,))})


def narrowed(domain: Domain) -> Domain | None:
    """An equal domain with fewer points: guards of one axis in its extent, equations solved.

    Equations on the axes of a reduction stay: to solve them is what the rules are for. None if
    the domain has no point.
    """
    while (smaller := _narrower(domain)) is not domain:
        if smaller is None:
            return None
        domain = smaller
    return domain


def _narrower(domain: Domain) -> Domain | None:
    if FALSE in domain.conds:
        return None
    if TRUE in domain.conds:
        return replace(domain, conds=tuple(cond for cond in domain.conds if cond is not TRUE))
    for axis in domain.axes:
        extent = length(axis)
        if extent is not None and extent <= 1:
            zero = Const(0, "index")
            return domain.replaced({axis: (zero, ())}) if extent == 1 else None
    for cond in domain.conds:
        if (what := guard(cond)) is not None and (found := _absorbed(domain, cond, what)):
            return found[0]
    return domain


def _absorbed(domain: Domain, cond: Expr, what: Guard) -> tuple[Domain | None] | None:
    """The domain without ``cond``, if it can go; in a tuple, since no domain is an answer too."""
    rest = replace(domain, conds=tuple(other for other in domain.conds if other is not cond))
    own = [axis for _, axis in what.form.terms if isinstance(axis, Axis) and axis in domain.axes]
    if not what.form.terms:
        holds = what.form.const == 0 if what.equality else what.form.const >= 0
        return (rest if holds else None,)
    if what.equality:
        solvable = not domain.summed and any(_unit(what, axis) for axis in own)
        return (_solved(rest, what, own),) if solvable else None
    (_, axis), *others = what.form.terms
    if others or not own or (extent := length(own[0])) is None:
        return None
    start, stop = limits(what, axis, extent)
    return (rest.interval(own[0], start, stop) if start < stop else None,)


def _unit(what: Guard, axis: Expr) -> bool:
    """Whether the equation can be solved for ``axis``: coefficient one, and nowhere else."""
    return abs(what.form.coefficient(axis)) == 1 and axis not in what.form.without(axis).free


def limits(what: Guard, axis: Expr, extent: int) -> tuple[int, int]:
    """The values of ``axis``, the only atom of an inequality, that lie in the box."""
    coef = what.form.coefficient(axis)
    if coef > 0:
        return max(0, -(what.form.const // coef)), extent
    return 0, min(extent, what.form.const // -coef + 1)


def _solved(domain: Domain, what: Guard, own: Sequence[Axis]) -> Domain:
    """The equation used to write one axis, the last that allows it, by means of the others."""
    axis = next(axis for axis in reversed(own) if _unit(what, axis))
    value = what.form.without(axis).scaled(-what.form.coefficient(axis))
    inside = (Guard(value), Guard(linear(axis.extent) - value - Linear(1, ())))
    solved = domain.replaced({axis: (expression(value), ())})
    return solved.restricted(*(bound.expr for bound in inside))
