"""The largest ranges of axes that keep every read in range: what the text front end infers.

An axis that is alone in a dimension of some read gets its extent from there; an axis that shares
a dimension gets what the others, at their ends, leave over (so a convolution's window comes from
its kernel and its output from the rest). A read that its guards keep in range bounds nothing,
except that an axis which nothing bounds takes the extent of a dimension it alone is the index of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eqsatad.errors import ShapeError
from eqsatad.terms.checks import ZERO, Guards, guarded
from eqsatad.terms.linear import Linear, expression, linear, normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr
from eqsatad.terms.ops import FLOORDIV, GE, LT
from eqsatad.terms.presburger import implied
from eqsatad.terms.ranges import interval
from eqsatad.terms.show import brief
from eqsatad.terms.walk import reads


@dataclass(frozen=True)
class Bound:
    """The requirement that ``form``, linear in axes, is at most ``most``, which is of sizes."""

    form: Linear
    most: Expr
    source: str

    @property
    def axes(self) -> list[Axis]:
        """The axes that can grow until they break the bound."""
        return [atom for coef, atom in self.form.terms if isinstance(atom, Axis) and coef > 0]

    def extent(self, axis: Axis, known: dict[Axis, Expr]) -> Expr:
        """The largest extent of ``axis`` when the other axes have those in ``known``."""
        rest: Expr = self.most - expression(self.form)
        for coef, other in self.form.terms:
            if isinstance(other, Axis):
                rest = rest + coef * other
                if coef > 0 and other is not axis:
                    rest = rest - coef * (known[other] - 1)
        coef = self.form.coefficient(axis)
        return normal(normal(rest) // coef + 1)


def solve(bodies: Iterable[Expr], unknown: Iterable[Axis]) -> dict[Axis, Expr]:
    """The extents of the axes of ``unknown`` that the reads in ``bodies`` determine."""
    bodies = list(bodies)
    wanted = dict.fromkeys(unknown)
    bounds = [bound for body in bodies for bound in _bounds(body)]
    axes = dict.fromkeys(axis for bound in bounds for axis in bound.axes)
    known = {axis: axis.extent for axis in axes if axis not in wanted}
    alone = [bound for bound in bounds if len(bound.form.free) == 1]
    _settle(alone, wanted, known)
    while _settle(bounds, wanted, known):
        pass
    for axis in wanted:
        if axis not in known and (whole := _dimension(bodies, axis)) is not None:
            known[axis] = whole
    return {axis: extent for axis, extent in known.items() if axis in wanted}


def _dimension(bodies: Iterable[Expr], axis: Axis) -> Expr | None:
    """The extent of the first dimension that ``axis`` alone is the index of."""
    for read in reads(*bodies):
        for index, extent in zip(read.indices, read.tensor.shape, strict=True):
            if index is axis:
                return extent
    return None


def _settle(bounds: list[Bound], wanted: Iterable[Axis], known: dict[Axis, Expr]) -> bool:
    """Adds to ``known`` each wanted axis that is the only unknown of a bound; whether any was."""
    found: dict[Axis, list[tuple[Expr, str]]] = {}
    for bound in bounds:
        missing = [axis for axis in bound.axes if axis not in known]
        if len(missing) == 1:
            extent = bound.extent(missing[0], known)
            found.setdefault(missing[0], []).append((extent, bound.source))
    for axis in wanted:
        if axis in found:
            known[axis] = _smallest(axis, found[axis])
    return bool(found)


def _smallest(axis: Axis, candidates: list[tuple[Expr, str]]) -> Expr:
    best, source = candidates[0]
    for extent, other in candidates[1:]:
        if implied(Apply(LT, (extent, best))):
            best, source = extent, other
        elif not implied(Apply(GE, (extent, best))):
            raise ShapeError(
                f"the range of {axis!r} is {brief(best)} by {source} and {brief(extent)} by "
                f"{other}, and neither is known to be the smaller. "
                f"Give it: {axis!r} < {brief(best)}."
            )
    if isinstance(best, Const) and best.value < 1:
        raise ShapeError(
            f"no value of {axis!r} keeps {source} in range. Give larger tensors, or guard the read."
        )
    return best


def _bounds(body: Expr) -> Iterable[Bound]:
    for read, guards in guarded(body, (), set(reads(body))):
        for index, extent in zip(read.indices, read.tensor.shape, strict=True):
            if not index.free:
                continue
            if not _proved(Apply(LT, (index, extent)), guards):
                yield from _multiplied_out(index, extent - 1, brief(read))
            low = interval(index)[0]
            if (low is None or low < 0) and not _proved(Apply(GE, (index, ZERO)), guards):
                yield from _multiplied_out(-index, ZERO, brief(read))


def _proved(cond: Expr, guards: Guards) -> bool:
    # Without guards nothing but remainders, minima and quotients can bound an index.
    index = cond.children[0]
    return bool(guards or not linear(index).affine) and implied(cond, guards)


def _multiplied_out(expr: Expr, most: Expr, source: str) -> Iterable[Bound]:
    """``expr <= most`` without quotients, or nothing when it is not linear in axes then."""
    form = linear(expr)
    quotients = [
        (coef, atom)
        for coef, atom in form.terms
        if isinstance(atom, Apply) and atom.op is FLOORDIV and atom.free
    ]
    if len(quotients) == 1 and abs(quotients[0][0]) == 1:
        coef, atom = quotients[0]
        assert isinstance(atom, Apply)
        top, divisor = atom.args
        rest = divisor * expression(form.without(atom))
        # floor(a / b) <= c is a <= b*c + b - 1, and -floor(a / b) <= c is -a <= b*c.
        if coef == 1:
            return _multiplied_out(rest + top, divisor * (most + 1) - 1, source)
        return _multiplied_out(rest - top, divisor * most, source)
    if any(atom.free and not isinstance(atom, Axis) for _, atom in form.terms):
        return []
    return [Bound(form, most, source)]
