"""Conditions of terms: as guards on linear forms and back, and disjunctions taken apart.

A sum over the points where ``a or b`` holds is the sum over ``a`` and the sum over ``b and not a``.
So each part is a conjunction of guards, which the domain rows and the bounds of loops can take.
What tests data stays one condition, and so does what would fall into too many parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeGuard

import numpy as np

from eqsatad.rules.indices import ATLEAST, ZERO, Guard
from eqsatad.terms.linear import Linear, expression, linear
from eqsatad.terms.nodes import INTEGERS, Apply, Axis, Cast, Const, Expr, Read
from eqsatad.terms.ops import AND, EQ, GE, GT, LE, LT, MAX, MIN, NE, NOT, OR, Op
from eqsatad.terms.presburger import empty
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import conjunction, conjuncts, postorder

MOST = 8
"""Parts that a condition is taken apart into; one that has more is left whole."""

OPPOSITE = {LT: GE, GE: LT, LE: GT, GT: LE, EQ: NE, NE: EQ}
ONE = Linear(1, ())
GUARDS: dict[Op, Callable[[Linear, Linear], Guard]] = {
    EQ: lambda left, right: (ZERO, left - right),
    GE: lambda left, right: (ATLEAST, left - right),
    GT: lambda left, right: (ATLEAST, left - right - ONE),
    LE: lambda left, right: (ATLEAST, right - left),
    LT: lambda left, right: (ATLEAST, right - left - ONE),
}
# The extremum that is at least something where both of its operands are, by its sign.
BOTH: dict[tuple[Op, bool], bool] = {
    (MIN, True): True,
    (MAX, False): True,
    (MIN, False): False,
    (MAX, True): False,
}


@dataclass(frozen=True)
class Conditions:
    """A conjunction: guards on linear forms, and conditions of any other kind."""

    guards: tuple[Guard, ...]
    opaque: tuple[Expr, ...]

    @staticmethod
    def of(conds: Iterable[Expr]) -> Conditions:
        """The conjunction of ``conds``, with negations moved inwards."""
        guards: dict[Guard, None] = {}
        opaque: dict[Expr, None] = {}
        for cond in conds:
            for part in conjuncts(positive(cond)):
                if guard := as_guard(part):
                    guards.update(dict.fromkeys(unfolded(guard)))
                else:
                    opaque[part] = None
        return Conditions(tuple(guards), tuple(opaque))

    def with_data(self) -> Conditions:
        """The same conjunction, where data that equals an index is a guard on the data."""
        known = {cond: guard for cond in self.opaque if (guard := _as_position(cond))}
        left = tuple(cond for cond in self.opaque if cond not in known)
        return Conditions((*self.guards, *known.values()), left)


def positive(cond: Expr) -> Expr:
    """``cond`` with its negations moved into comparisons."""
    if not (isinstance(cond, Apply) and cond.op is NOT):
        return cond
    (inner,) = cond.args
    if isinstance(inner, Apply) and inner.op is NOT:
        return positive(inner.args[0])
    if isinstance(inner, Apply) and inner.op in OPPOSITE and inner.args[0].dtype == "index":
        return Apply(OPPOSITE[inner.op], inner.args)
    if isinstance(inner, Apply) and inner.op is OR:
        return conjunction(positive(Apply(NOT, (part,))) for part in inner.args)
    return cond


def as_guard(cond: Expr) -> Guard | None:
    """A comparison of index expressions as a guard; None for any other condition."""
    if isinstance(cond, Apply) and cond.op in GUARDS and cond.args[0].dtype == "index":
        return GUARDS[cond.op](*map(linear, cond.args))
    return None


def _as_position(cond: Expr) -> Guard | None:
    """Data that is compared with an index in the dtype of the data, as a guard on indices."""
    if not (isinstance(cond, Apply) and cond.op is EQ and cond.args[0].dtype in INTEGERS):
        return None
    for data, cast in (cond.args, cond.args[::-1]):
        if isinstance(cast, Cast) and cast.arg.dtype == "index" and _keeps(cast):
            return ZERO, linear(Cast(data, "index")) - linear(cast.arg)
    return None


def _keeps(cast: Cast) -> bool:
    """Whether an index that is cast keeps its value."""
    low, high = interval(cast.arg)
    limits = np.iinfo(cast.dtype)
    return low is not None and high is not None and limits.min <= low and high <= limits.max


def as_condition(guard: Guard) -> Expr:
    """A guard as a condition of a term."""
    kind, form = guard
    return Apply(EQ if kind == ZERO else GE, (expression(form), Const(0, "index")))


def unfolded(guard: Guard) -> list[Guard]:
    """``guard`` without the extrema of which both operands have to satisfy it."""
    kind, form = guard
    for coef, node in form.terms if kind == ATLEAST else ():
        if _extremum(node) and BOTH[node.op, coef > 0]:
            return [
                part for form in _with_each(form, coef, node) for part in unfolded((kind, form))
            ]
    return [guard]


def pieces(conds: Sequence[Expr], summed: frozenset[Axis]) -> list[tuple[Expr, ...]]:
    """Conjunctions of which exactly one holds where all of ``conds`` do, and none elsewhere.

    Only conditions on the axes that are ``summed`` are taken apart.
    """
    found = list(islice(_pieces(tuple(conds), summed), MOST + 1))
    return found if len(found) <= MOST else [tuple(conds)]


def _pieces(conds: tuple[Expr, ...], summed: frozenset[Axis]) -> Iterator[tuple[Expr, ...]]:
    for place, cond in enumerate(conds):
        choices = _choices(cond, conds, summed)
        if len(choices) > 1:
            yield from _apart((*conds[:place], *conds[place + 1 :]), choices, summed)
            return
    yield conds


def _apart(
    others: tuple[Expr, ...], choices: Sequence[Expr], summed: frozenset[Axis]
) -> Iterator[tuple[Expr, ...]]:
    """The pieces of ``others`` and one of ``choices``: the first that holds."""
    for place, choice in enumerate(choices):
        here = (*others, *conjuncts(choice))
        before = (other for other in choices[:place] if not empty((*here, other)))
        piece = (*here, *(part for other in before for part in conjuncts(_not(other))))
        if not empty(piece):
            yield from _pieces(tuple(dict.fromkeys(piece)), summed)


def _choices(cond: Expr, conds: Sequence[Expr], summed: frozenset[Axis]) -> list[Expr]:
    """The conditions of which one has to hold for ``cond``; itself where it is not taken apart."""
    if not isinstance(cond, Apply) or not cond.free & summed or _tests_data(cond):
        return [cond]
    if any(_determines(other, cond.free & summed) for other in conds if other is not cond):
        return [cond]
    if cond.op is OR:
        return [choice for part in cond.args for choice in _choices(part, conds, summed)]
    if cond.op is NOT and isinstance(cond.args[0], Apply) and cond.args[0].op is AND:
        return [_not(part) for part in conjuncts(cond.args[0])]
    if cond.op is NE:
        return [Apply(op, cond.args) for op in (LT, GT) if cond.args[0].dtype == "index"] or [cond]
    guard = as_guard(cond)
    return [cond] if guard is None else _cases(*guard) or [cond]


def _tests_data(cond: Expr) -> bool:
    return any(isinstance(node, Read) for node in postorder(cond))


def _determines(cond: Expr, axes: frozenset[Axis]) -> bool:
    """Whether ``cond`` says what one of ``axes`` is: that is put in before anything is split."""
    kind, form = as_guard(cond) or (ATLEAST, Linear(0, ()))
    return kind == ZERO and any(
        abs(coef) == 1 and axis in axes and axis not in form.without(axis).free
        for coef, axis in form.terms
    )


def _cases(kind: str, form: Linear) -> list[Expr]:
    """A guard on an extremum by the operand that the extremum is; none on any other."""
    for coef, node in form.terms:
        if not _extremum(node) or (kind == ATLEAST and BOTH[node.op, coef > 0]):
            continue
        left, right = node.args
        chosen = [as_condition((kind, one)) for one in _with_each(form, coef, node)]
        if kind == ATLEAST:
            return chosen
        first = left <= right if node.op is MIN else left >= right
        return [conjunction((first, chosen[0])), conjunction((_not(first), chosen[1]))]
    return []


def _extremum(node: Expr) -> TypeGuard[Apply]:
    return isinstance(node, Apply) and node.op in (MIN, MAX)


def _with_each(form: Linear, coef: int, node: Apply) -> list[Linear]:
    """``form`` with each operand of ``node`` in its place."""
    return [form.without(node) + linear(operand).scaled(coef) for operand in node.args]


def _not(cond: Expr) -> Expr:
    return positive(Apply(NOT, (cond,)))
