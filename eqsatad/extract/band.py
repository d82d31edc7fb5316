"""Stages that are zero outside of a band, stored along it.

Where conditions keep an axis within a few values of something that the other axes say, as
``p <= i <= p + 2``, the stage is stored over those values only: ``band[p, d]`` is its element at
``i = p + d``. Who reads it reads the band where an index lies in it, and 0 elsewhere; that is a
condition, which the rules turn into loop bounds. So the adjoints on the way to a Jacobian are no
denser than they have to be. What is asked for keeps its shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eqsatad.rules.bounds import Bounds
from eqsatad.rules.conditions import Conditions, as_condition
from eqsatad.rules.domain import EXAMPLE_SIZE
from eqsatad.rules.engine import names_in
from eqsatad.rules.indices import ATLEAST, ZERO, Guard
from eqsatad.rules.summands import guarded, is_zero, summands
from eqsatad.terms.coerce import const
from eqsatad.terms.linear import Linear, expression, linear, quotient
from eqsatad.terms.nodes import SUM, Axis, Const, Expr, Read, Reduce, Select, Stage
from eqsatad.terms.walk import conjunction, conjuncts, constant, fresh, postorder, substitute

SHARE = 2
"""How many times as wide as its band an axis has to be."""

NOTHING = Linear(0, ())


@dataclass(frozen=True)
class Band:
    """What an axis is equal to where the stage is not zero: ``start`` and ``width`` values on."""

    axis: Axis
    start: Linear
    width: int

    @property
    def extent(self) -> Expr:
        """The extent of the axis that is left."""
        return Const(self.width, "index")


def bands(stage: Stage, bounds: Bounds) -> list[Band]:
    """The axes of ``stage`` that its conditions keep in a band which no other of them moves."""
    if stage.scatters:
        return []
    terms = [_guards(term) for term in summands(stage.body) if not is_zero(term)]
    if not terms or not all(terms):
        return []
    found: list[Band] = []
    for axis in reversed(stage.axes):
        fixed = frozenset(stage.axes) - {axis} - {band.axis for band in found}
        used = {other for band in found for other in band.start.free}
        if axis not in used and (band := _band(axis, fixed, terms, bounds)):
            found.append(band)
    return found


def along(stage: Stage, bands: Sequence[Band]) -> Stage:
    """``stage`` over its bands only: an axis of one value goes."""
    taken = names_in(stage)
    own = {band.axis: band for band in bands}
    axes: list[Axis] = []
    values: dict[Axis, Linear] = {}
    for axis in stage.axes:
        kept = axis if axis not in own else fresh(Axis(axis.name, own[axis].extent), taken)
        if axis in own:
            values[axis] = own[axis].start + (linear(kept) if own[axis].width > 1 else NOTHING)
        if axis not in own or own[axis].width > 1:
            axes.append(kept)
    inside = (guard for axis, value in values.items() for guard in _within(value, axis.extent))
    spelled = {axis: expression(value) for axis, value in values.items()}
    body = substitute(stage.body, spelled)
    return Stage(stage.name, tuple(axes), _where(inside, body))


def copied(stage: Stage, bands: Sequence[Band], own: Stage) -> Stage:
    """What reads as ``stage``, over ``own``, which is ``stage`` along ``bands``."""
    places = {band.axis: _place(band) for band in bands}
    narrow = {band.axis for band in bands if band.width == 1}
    at = (expression(places.get(axis, linear(axis))) for axis in stage.axes if axis not in narrow)
    inside = (guard for band in bands for guard in _within(places[band.axis], band.extent))
    return Stage(stage.name, stage.axes, _where(inside, Read(own, tuple(at))))


def clipped(stage: Stage, bands: Sequence[Band]) -> Stage:
    """``stage`` with 0 said to be outside of ``bands``, so that nothing is worked out there."""
    if not bands:
        return stage
    inside = [guard for band in bands for guard in _within(_place(band), band.extent)]
    said = _inequalities(Conditions.of(guarded(stage.body)[0]).guards)
    if set(inside) <= set(said):
        return stage
    return Stage(stage.name, stage.axes, _where(inside, stage.body))


def _within(value: Linear, extent: Expr) -> tuple[Guard, Guard]:
    """The guards by which ``value`` lies in an axis of ``extent``."""
    return (ATLEAST, value), (ATLEAST, linear(extent) - Linear(1, ()) - value)


def _place(band: Band) -> Linear:
    """Where on ``band`` its axis is."""
    return linear(band.axis) - band.start


def _where(guards: Iterable[Guard], value: Expr) -> Expr:
    """``value`` where ``guards`` hold, else 0."""
    return Select(conjunction(map(as_condition, guards)), value, const(0, value.dtype))


def _guards(term: Expr) -> tuple[Guard, ...]:
    """The guards outside of which ``term`` is 0; equations as two of them."""
    conds, value = guarded(term)
    if isinstance(value, Reduce) and value.combiner is SUM:
        conds += [*conjuncts(value.cond), *guarded(value.body)[0]]
    return _inequalities(Conditions.of(conds).guards)


def _inequalities(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """``guards`` with two inequalities for each equation."""
    signs = {ZERO: (1, -1), ATLEAST: (1,)}
    return tuple((ATLEAST, form.scaled(sign)) for kind, form in guards for sign in signs[kind])


def _band(
    axis: Axis, fixed: frozenset[Axis], terms: Sequence[tuple[Guard, ...]], bounds: Bounds
) -> Band | None:
    """The narrowest band of ``axis`` that starts where a guard of one of ``terms`` says."""
    last = linear(axis.extent) - Linear(1, ())
    ends = [tuple(_ends(axis, fixed, guards, bounds)) for guards in terms]
    if not all(ends):
        return None
    starts = {end: None for term in ends for end, lower in term if lower}
    most = (constant(axis.extent) or EXAMPLE_SIZE) // SHARE
    best: Band | None = None
    for start in starts:
        spans = [_span(start, [*term, (NOTHING, True), (last, False)], bounds) for term in ends]
        lows, highs = zip(*spans, strict=True)
        if None in (*lows, *highs):
            continue
        width = max(highs) - min(lows) + 1
        if 0 < width <= (most if best is None else best.width - 1):
            best = Band(axis, start + Linear(min(lows), ()), width)
    return best


End = tuple[Linear, bool]
"""An end of the values of an axis, and whether it is the lower one."""


def _ends(
    axis: Axis, fixed: frozenset[Axis], guards: Sequence[Guard], bounds: Bounds
) -> Iterator[End]:
    """The ends that ``guards`` give ``axis``, from the axes that are ``fixed``."""
    for _, form in guards:
        if not (coef := form.coefficient(axis)):
            continue
        rest = form.without(axis)
        widest = None if axis in rest.free else _widest(rest, fixed, bounds)
        if widest is not None:
            end = quotient(widest, abs(coef))
            yield (end.scaled(-1), True) if coef > 0 else (end, False)


def _widest(form: Linear, fixed: frozenset[Axis], bounds: Bounds) -> Linear | None:
    """``form`` with what is not ``fixed`` as large as it can be; None where that is not known."""
    kept = [(coef, node) for coef, node in form.terms if node.free <= fixed and not _data(node)]
    other = Linear.build(0, [term for term in form.terms if term not in kept])
    highest = bounds.of(other)[1] if other.free.isdisjoint(fixed) else None
    return None if highest is None else Linear.build(form.const + highest, kept)


def _data(node: Expr) -> bool:
    return any(isinstance(part, Read) for part in postorder(node))


def _span(start: Linear, ends: Sequence[End], bounds: Bounds) -> tuple[int | None, int | None]:
    """Between what numbers above ``start`` the values lie that ``ends`` allow."""
    lows = [bounds.of(end - start)[0] for end, lower in ends if lower]
    highs = [bounds.of(end - start)[1] for end, lower in ends if not lower]
    return (
        max((low for low in lows if low is not None), default=None),
        min((high for high in highs if high is not None), default=None),
    )
