"""How an adjoint passes through a reduction, one function per combiner.

A sum passes it to every point. A maximum passes it to the first best point, whose position is
worked out once in a stage (``ties="split"``: to all best points in equal parts). A product
passes it times the product of all the others, from exclusive products of what is before and
after each point, so nothing is divided and zeros are no special case. A user's combiner passes
it the same way, by the derivative of its formula at ``combine(x, all the others)``: it must be
associative, commutative and smooth. Over no point, nothing passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from eqsatad.grad.derivatives import derivative
from eqsatad.grad.scope import Context, hidden, position
from eqsatad.terms.coerce import const
from eqsatad.terms.nodes import (
    ARGMAX,
    ARGMIN,
    MAXIMUM,
    MINIMUM,
    PROD,
    SUM,
    Cast,
    Combiner,
    Expr,
    Read,
    Reduce,
)
from eqsatad.terms.scopes import replace_free, stem
from eqsatad.terms.walk import conjunction, conjuncts, substitute

if TYPE_CHECKING:
    from eqsatad.grad.walk import Options


class Passing(Protocol):
    """What takes on what passes through a reduction: backwards `Walk`, forwards `Gathered`."""

    @property
    def options(self) -> Options: ...

    def held(self, purpose: str, expr: Expr, context: Context, otherwise: Expr) -> Read: ...

    def add(self, node: Expr, context: Context, adjoint: Expr) -> None: ...


POSITIONS = {MAXIMUM: ARGMAX, MINIMUM: ARGMIN}


@dataclass(frozen=True, slots=True)
class Inner:
    """A reduction under way: ``outside`` is the context of its value, ``inside`` of its body."""

    walk: Passing
    node: Reduce
    outside: Context
    inside: Context

    @property
    def element(self) -> Expr:
        """The body, read from a tensor: one that takes work is stored in a stage."""
        body = self.node.body
        if isinstance(body, Read):
            return body
        return self.walk.held("value", body, self.inside, const(0.0, body.dtype))

    def over(self, conds: list[Expr], value: Expr, combiner: Combiner) -> Expr:
        """``value`` reduced over the points of the reduction where ``conds`` hold too."""
        cond = conjunction((*conjuncts(self.node.cond), *conds))
        return Reduce(combiner, self.node.axes, cond, value)

    def add(self, adjoint: Expr, *guards: Expr) -> None:
        """Passes ``adjoint`` to the body where ``guards`` hold."""
        self.walk.add(self.node.body, self.inside.within((), guards), adjoint)


def _sum(inner: Inner, adjoint: Expr) -> None:
    inner.add(adjoint)


def _best(inner: Inner, adjoint: Expr) -> None:
    if inner.walk.options.ties == "split":
        _all_best(inner, adjoint)
        return
    combiner = POSITIONS[inner.node.combiner]
    where = inner.over([], inner.node.body, combiner)
    first = inner.walk.held(combiner.name, where, inner.outside, const(0, "int64"))
    inner.add(adjoint, Cast(first, "index").equal(position(inner.node.axes)))


def _all_best(inner: Inner, adjoint: Expr) -> None:
    zero, one = (const(value, inner.node.dtype) for value in (0.0, 1.0))
    element = inner.element
    best: Expr = inner.walk.held(
        "best", inner.over([], element, inner.node.combiner), inner.outside, zero
    )
    tie = element.equal(best)
    count = inner.walk.held("ties", inner.over([tie], one, SUM), inner.outside, one)
    inner.add(adjoint / count, tie)


def _product(inner: Inner, adjoint: Expr) -> None:
    one = const(1.0, inner.node.dtype)
    # Where each value has its own adjoint, the product of what is before starts from it.
    if adjoint.free <= inner.node.free:
        before, after = _others(inner, one, adjoint)
        inner.add(before * after)
    else:
        before, after = _others(inner, one)
        inner.add(adjoint * before * after)


def combined(inner: Inner, adjoint: Expr) -> None:
    """Passes ``adjoint`` through a user's combiner."""
    combiner = inner.node.combiner
    left, right, result = combiner.left, combiner.right, combiner.result
    assert left is not None, "a combiner that is not named has a formula"
    assert right is not None
    assert result is not None
    assert combiner.identity is not None
    before, after = _others(inner, combiner.identity)
    rest = substitute(result, {left: before, right: after})
    slope = substitute(derivative(result, left), {left: inner.element, right: rest})
    inner.add(adjoint * slope)


def _others(inner: Inner, identity: Expr, seed: Expr | None = None) -> tuple[Expr, Expr]:
    """The reduction of all points before, and of all points after, each point.

    The former is a multiple of ``seed`` if one is given.
    """
    element = inner.element
    axes = inner.node.axes
    copies = {axis: hidden(stem(axis), axis.extent, "other") for axis in axes}
    here, there = position(axes), position(tuple(copies.values()))
    cond, value = (replace_free(part, copies) for part in (inner.node.cond, element))

    def reduced(purpose: str, order: Expr, seed: Expr | None = None) -> Expr:
        conds = conjunction((*conjuncts(cond), order))
        part = Reduce(inner.node.combiner, tuple(copies.values()), conds, value)
        whole = part if seed is None else seed * part
        return inner.walk.held(purpose, whole, inner.inside, identity)

    return reduced("before", there < here, seed), reduced("after", there > here)


REDUCTIONS: dict[Combiner, Callable[[Inner, Expr], None]] = {
    SUM: _sum,
    **{MAXIMUM: _best, MINIMUM: _best},
    PROD: _product,
}
