"""Cuts of a domain after which a quotient or a condition is settled in every part.

An axis inside ``(a*j + rest) // m`` becomes ``M*q + r``: with ``r`` a loop when that alone makes
the quotients affine and no condition sees ``r`` (a reshape), with a part per residue when there
are few (a strided convolution). A condition affine in the axes cuts the domain in two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, lcm, prod

from eqsatad.loops.domains import Domain, limits
from eqsatad.loops.forms import (
    ZERO,
    Guard,
    decided,
    divide,
    extreme,
    guard,
    length,
    literal_quotient,
    span,
)
from eqsatad.loops.settle import known, tidied
from eqsatad.terms.linear import Linear, expression, linear
from eqsatad.terms.nodes import Apply, Axis, Const, Expr
from eqsatad.terms.ops import EQ, MAX, MIN, NE
from eqsatad.terms.walk import fresh, postorder

# More residues than this are a loop; fewer are parts of their own.
RESIDUES = 16
# The same for an axis that is short, and for one of which multiples are divided: ``3*axis // 4``.
SOME = 8
FEW = 4
# The least average length of the parts when an axis is cut into many because of quotients alone:
# short loops cost more than quotients, which are worked out once for all other loops.
SHORTEST = 32
# The most steps of a quotient that a domain is cut at.
STEPS = 3
# What a size is taken for when parts are compared.
LARGE = 1 << 10

# Which part of which part a part is: the order of parts.
Place = tuple[int, ...]


@dataclass(frozen=True)
class Quotient:
    """An ``(coef*axis + rest) // divisor`` in which ``axis`` does not simply leave."""

    form: Linear
    divisor: int
    coef: int

    @property
    def modulus(self) -> int:
        """The period of the axis."""
        return self.divisor // gcd(self.divisor, self.coef)

    @property
    def alone(self) -> bool:
        """Whether the axis is the only atom."""
        return len(self.form.terms) == 1


def parts(
    domain: Domain, given: Sequence[Guard], limit: int, *, ordered: bool = False
) -> list[Domain]:
    """A partition of ``domain`` into at most ``limit`` domains with as much settled as possible.

    ``ordered`` cuts into intervals only, so that one after the other they keep the order.
    """
    done: list[tuple[Place, Domain]] = []
    work: list[tuple[Place, Domain]] = [((), domain)]
    while work:
        # The largest part first: if not everything can be cut, the borders are left.
        place, part = work.pop(max(range(len(work)), key=lambda n: _points(work[n][1])))
        current = tidied(part, given)
        if current is None:
            continue
        room = limit - len(done) - len(work)
        cut = _ordered_cut(current, room) if ordered else _cut(current, given, room)
        if cut is None:
            done.append((place, current))
        else:
            work.extend(((*place, number), new) for number, new in enumerate(cut))
    return [part for _, part in sorted(done, key=lambda found: found[0])]


def _points(domain: Domain) -> int:
    """How many points the box of ``domain`` has, sizes taken as large."""
    return prod(LARGE if (count := length(axis)) is None else count for axis in domain.axes)


def _cut(domain: Domain, given: Sequence[Guard], room: int) -> list[Domain] | None:
    """The first cut that fits into ``room`` parts; None when there is nothing (more) to cut."""
    for what in _conditions(domain):
        sides = _cut_by(domain, what, given)
        if 1 < len(sides) <= room:
            return sides
    for axis in _divided(domain):
        for way in WAYS:
            found = way(domain, axis, room)
            if found and len(found) <= room:
                return found
    for what in _steps(domain):
        sides = _cut_by(domain, what, given)
        if 1 < len(sides) <= room:
            return sides
    return None


def _steps(domain: Domain) -> Iterator[Guard]:
    """Where a quotient over several axes steps from one value to the next, if it takes few."""
    own = frozenset(domain.axes)
    for node in postorder(*domain.conds, *domain.exprs):
        if (found := literal_quotient(node)) is None or not found[0].affine:
            continue
        form, divisor = found
        low, high = span(form)
        if (
            low is None
            or high is None
            or not form.free & own
            or not form.free <= own | domain.scope
        ):
            continue
        steps = high // divisor - low // divisor
        if 0 < steps <= STEPS and not _shortens(form, steps):
            yield Guard(form - Linear(divisor * (low // divisor + 1), ()))


def _shortens(form: Linear, cuts: int) -> bool:
    """Whether so many cuts of the only axis of ``form`` leave many parts that are short."""
    (_, axis), *others = form.terms
    extent = length(axis) if isinstance(axis, Axis) else None
    several = not others and cuts > 1
    return several and extent is not None and RESIDUES < extent < SHORTEST * (cuts + 1)


def _ordered_cut(domain: Domain, room: int) -> list[Domain] | None:
    for what in _conditions(domain):
        found = _interval_cut(domain, what) or _symbolic_cut(domain, what)
        if found is not None and 1 < len(found) <= room:
            return found
    return None


def _symbolic_cut(domain: Domain, what: Guard) -> list[Domain] | None:
    """The parts before and after a literal place of an axis whose extent is a size."""
    (coef, axis), *others = what.form.terms
    if others or what.equality or not isinstance(axis, Axis):
        return None
    place = Linear(-(what.form.const // coef) if coef > 0 else what.form.const // -coef + 1, ())
    whole = linear(axis.extent)
    first = extreme(MIN, (expression(place), axis.extent))
    rest = extreme(MAX, (ZERO, expression(whole - place)))
    return [domain.shifted(axis, 0, first), domain.shifted(axis, place.const, rest)]


def _conditions(domain: Domain) -> Iterator[Guard]:
    """Undecided guards affine in the axes of ``domain`` and around it, in order of use."""
    own = frozenset(domain.axes)
    for node in postorder(*domain.exprs):
        if isinstance(node, Apply) and node.op is NE:
            node = Apply(EQ, node.args)
        what = guard(node)
        if (
            what
            and what.form.affine
            and what.form.free & own
            and what.form.free <= own | domain.scope
        ):
            yield what


def _cut_by(domain: Domain, what: Guard, given: Sequence[Guard]) -> list[Domain]:
    """The parts where ``what`` holds and where it does not."""
    if (found := _interval_cut(domain, what)) is not None:
        return found
    facts = (*given, *known(domain.conds))
    sides = (what, *what.negated())
    return [domain.restricted(side.expr) for side in sides if decided(side, facts) is not False]


def _interval_cut(domain: Domain, what: Guard) -> list[Domain] | None:
    """The parts in the order of the axis, if ``what`` is about one of literal extent."""
    (_, axis), *others = what.form.terms
    if others or not isinstance(axis, Axis) or (extent := length(axis)) is None:
        return None
    edges = _edges((what, *what.negated()), axis, extent)
    return _intervals(domain, axis, sorted(edges - {0, extent}))


def _edges(sides: Sequence[Guard], axis: Axis, extent: int) -> set[int]:
    return {edge for side in sides if not side.equality for edge in limits(side, axis, extent)}


def _intervals(domain: Domain, axis: Axis, cuts: Sequence[int]) -> list[Domain]:
    extent = length(axis)
    assert extent is not None, "only an axis of a literal extent is cut into intervals"
    edges = [0, *cuts, extent]
    return [domain.interval(axis, lo, hi) for lo, hi in pairwise(edges)]


def _divided(domain: Domain) -> Iterator[Axis]:
    """The axes of ``domain`` inside quotients of affine forms, innermost quotients first."""
    seen: set[Axis] = set()
    for node in postorder(*domain.conds, *domain.exprs):
        if (found := literal_quotient(node)) is None or not found[0].affine:
            continue
        if found[0].free & domain.scope:
            continue
        for _, axis in found[0].terms:
            if isinstance(axis, Axis) and axis in domain.axes and axis not in seen:
                seen.add(axis)
                if _quotients(domain, axis):
                    yield axis


def _quotients(domain: Domain, axis: Axis) -> list[Quotient]:
    found = []
    for node in postorder(*domain.conds, *domain.exprs):
        if (pair := literal_quotient(node)) is not None:
            form, divisor = pair
            if form.affine and (coef := form.coefficient(axis)) % divisor:
                found.append(Quotient(form, divisor, coef))
    return found


def _modulus(domain: Domain, axis: Axis) -> int:
    return lcm(*(quotient.modulus for quotient in _quotients(domain, axis)))


def _by_value(domain: Domain, axis: Axis, room: int) -> list[Domain] | None:
    """Intervals on which every quotient of the axis alone is one value, when they are few."""
    extent = length(axis)
    found = _quotients(domain, axis)
    if extent is None or not all(quotient.alone for quotient in found):
        return None
    count = _modulus(domain, axis)
    most = min(room, RESIDUES, extent if extent <= count else count - 1)
    if min(sum(abs(q.coef) * (extent - 1) // q.divisor for q in found), extent) > most:
        return None
    cuts = [j for j in range(1, extent) if any(_value(q, j) != _value(q, j - 1) for q in found)]
    if not 0 < len(cuts) < most or any(_shortens(each.form, len(cuts)) for each in found):
        return None
    return _intervals(domain, axis, cuts)


def _value(quotient: Quotient, place: int) -> int:
    return (quotient.coef * place + quotient.form.const) // quotient.divisor


def _by_radix(domain: Domain, axis: Axis, room: int) -> list[Domain] | None:
    """``axis`` as two loops, when that makes its quotients affine and no condition sees ``r``."""
    count = _modulus(domain, axis)
    shift = _alignment(_quotients(domain, axis), count)
    extent = length(axis)
    if shift is None or (shift if extent is None else extent - shift <= count):
        return None
    head, main, start = [], domain, axis
    if shift:
        head = _intervals(domain, axis, [shift])
        main, start = head[1], Axis(axis.name, Const((extent or 0) - shift, "index"))
    trial, inner = _radix(main, start, count)
    if not _is_clean(trial, inner):
        return None
    return head or _ragged(domain, axis, count, trial, inner)


def _alignment(found: Sequence[Quotient], count: int) -> int | None:
    """The first place from which on every quotient starts a new value, None if there is none."""
    if not all(q.alone and q.coef == 1 and count % q.divisor == 0 for q in found):
        return None
    shifts = (s for s in range(count) if all((s + q.form.const) % q.divisor == 0 for q in found))
    return next(shifts, None)


def _radix(domain: Domain, axis: Axis, count: int) -> tuple[Domain, Axis]:
    """``axis`` as ``count*q + r`` with both a loop."""
    taken = domain.names
    turns = expression(divide(linear(axis.extent) + Linear(count - 1, ()), count))
    outer = fresh(Axis(axis.name, turns), taken)
    inner = fresh(Axis(axis.name, Const(count, "index")), taken)
    value = linear(outer).scaled(count) + linear(inner)
    return domain.replaced({axis: (expression(value), (outer, inner))}), inner


def _is_clean(trial: Domain, inner: Axis) -> bool:
    """Whether the inner loop of a split is free of conditions and of quotients it cannot lose."""
    tidy = tidied(trial)
    if tidy is None:
        return False
    bounds = {cond for cond in tidy.conds if tidy.summed and _bounds(cond)}
    nodes = [node for node in postorder(*tidy.conds, *tidy.exprs) if node not in bounds]
    seen = any(inner in node.free and guard(node) is not None for node in nodes)
    return not seen and all(
        form.coefficient(inner) in (0, 1) and len(form.terms) == 1 and not form.const
        for form, _ in filter(None, map(literal_quotient, nodes))
        if inner in form.free
    )


def _bounds(cond: Expr) -> bool:
    """Whether ``cond`` is an inequality without quotients: what bounds a loop of a sum."""
    what = guard(cond)
    return what is not None and not what.equality and what.form.affine


def _ragged(
    domain: Domain, axis: Axis, count: int, trial: Domain, inner: Axis
) -> list[Domain] | None:
    """``trial``, whose last turn of the outer loop may be shorter than ``count``."""
    extent = length(axis)
    if extent is not None:
        whole = extent - extent % count
        return [trial] if whole == extent else _intervals(domain, axis, [whole])
    (outer,) = (new for new in trial.axes if new not in domain.axes and new is not inner)
    last = linear(axis.extent) - linear(outer).scaled(count) - linear(inner) - Linear(1, ())
    return [trial.restricted(Guard(last).expr)]


def _by_residue(domain: Domain, axis: Axis, room: int) -> list[Domain] | None:
    """A part for each residue of ``axis``.

    The limits are on code: every part has loops of its own, and an image s x s of them. In the
    gradient of a depthwise convolution of 7 x 7 over 56 x 56, stride 5, parts take 18 us and two
    loops 77 us (one core, vectors of 64 bytes); at stride 6 over 112 x 112 it is 110 us and 343 us,
    but also 2.5 s and 1.1 s to compile. Neither the conditions that parts settle nor their length
    tell which is faster: where each place sums over channels, 11 taps eight apart over rows of 400
    take 44 us in parts and 22 us as two loops; with a stride of 5 in both directions it is 104 us
    and 98 us.
    """
    count = _modulus(domain, axis)
    extent = length(axis)
    single = all(abs(quotient.coef) == 1 for quotient in _quotients(domain, axis))
    long = extent is None or extent >= SHORTEST * count
    most = min(FEW if not single else RESIDUES if long else SOME, room)
    if count > most or (extent is not None and extent <= count):
        return None
    taken = domain.names
    found = []
    for residue in range(count):
        left = linear(axis.extent) + Linear(count - 1 - residue, ())
        turn = fresh(Axis(axis.name, expression(divide(left, count))), set(taken))
        value = linear(turn).scaled(count) + Linear(residue, ())
        found.append(domain.replaced({axis: (expression(value), (turn,))}))
    return found


def _by_large_radix(domain: Domain, axis: Axis, room: int) -> list[Domain] | None:
    """``axis`` as two loops, when there are too many residues for a part each.

    The inner loop then stands for the residue of each quotient: with ``3*axis // 64`` it would not.
    """
    if any(abs(quotient.coef) != 1 for quotient in _quotients(domain, axis)):
        return None
    count = _modulus(domain, axis)
    extent = length(axis)
    if count <= RESIDUES or (extent is not None and extent <= count):
        return None
    return _ragged(domain, axis, count, *_radix(domain, axis, count))


def _by_point(domain: Domain, axis: Axis, room: int) -> list[Domain] | None:
    """A part for each value of a short axis."""
    extent = length(axis)
    if extent is None or extent > min(RESIDUES, room):
        return None
    return _intervals(domain, axis, range(1, extent))


# In order of preference: fewest parts first.
WAYS: tuple[Callable[[Domain, Axis, int], list[Domain] | None], ...] = (
    _by_radix,
    _by_value,
    _by_residue,
    _by_large_radix,
    _by_point,
)
