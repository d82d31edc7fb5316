"""Pieces: a partition of what a stage writes into loops without quotients and conditions.

A piece stores one value expression, or adds it, at every point of its axes. Its `Reduce` nodes
are settled too: their guards are loop bounds. `emit` makes statements of a piece, for any order
of its loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from eqsatad.loops.combine import ARGS, combined, identity
from eqsatad.loops.domains import Domain
from eqsatad.loops.forms import Guard, guard
from eqsatad.loops.phases import parts
from eqsatad.loops.settle import has_reads, known, settled
from eqsatad.terms.linear import Linear, expression
from eqsatad.terms.nodes import SUM, Apply, Axis, Expr, Reduce, Scatter, Select, Stage
from eqsatad.terms.ops import OR
from eqsatad.terms.presburger import span
from eqsatad.terms.walk import conjunction, conjuncts, map_stage, postorder, substitute

Simplify = Callable[[Sequence[Expr]], Sequence[Expr]]

# The most parts a box of outputs and a reduction are cut into.
OUTPUT_PARTS = 64
REDUCTION_PARTS = 16


@dataclass(frozen=True)
class Piece:
    """``stage[indices] = value``, or ``+=`` if ``adds``, over ``axes`` where ``conds`` hold."""

    stage: Stage
    axes: tuple[Axis, ...]
    conds: tuple[Expr, ...]
    indices: tuple[Expr, ...]
    value: Expr
    adds: bool = False

    @property
    def reduction(self) -> Reduce | None:
        """The sum that is the whole value, whose axes may be ordered among those of the piece."""
        value = self.value
        if isinstance(value, Reduce) and value.combiner is SUM and not self.adds:
            return value
        return None


def pieces(stage: Stage, simplify: Simplify | None = None) -> list[Piece]:
    """What computes ``stage``: pieces that partition its box, then those of its scatters."""
    if simplify is not None:
        stage = simplified(stage, simplify)
    box = Domain(stage.axes, (), (stage.body, *stage.axes))
    found = [_piece(stage, part, False) for part in cut(box, (), OUTPUT_PARTS)]
    for scatter in stage.scatters:
        found.extend(_additions(stage, scatter))
    return found


def simplified(stage: Stage, simplify: Simplify) -> Stage:
    """``stage`` with its outermost index expressions rewritten by ``simplify``."""
    found = dict.fromkeys(
        child
        for node in postorder(*stage.roots)
        for child in node.children
        if child.dtype == "index" and node.dtype != "index" and child.children
    )
    changes = dict(zip(found, simplify(list(found)), strict=True))
    return map_stage(stage, lambda expr: substitute(expr, changes))


def _piece(stage: Stage, part: Domain, adds: bool) -> Piece:
    value, *indices = part.exprs
    return Piece(stage, part.axes, part.conds, tuple(indices), value, adds)


def _additions(stage: Stage, scatter: Scatter) -> list[Piece]:
    zero = identity(SUM, stage.dtype)
    value = _guarded(scatter.value, list(conjuncts(scatter.cond)), zero)
    box = Domain(scatter.axes, (), (value, *scatter.indices))
    found = [_piece(stage, part, True) for part in cut(box, (), OUTPUT_PARTS)]
    return [piece for piece in found if piece.value is not zero]


def _guarded(value: Expr, conds: Sequence[Expr], zero: Expr) -> Expr:
    """``value`` where all of ``conds`` hold, else ``zero``.

    A condition that the range of data decides at some points says so first. The loops are cut where
    these points end: inside of an image no position in a window is tested against its border.
    """
    sides = [_apart(cond) for cond in conds]
    alone = tuple(cond for cond, (_, rest) in zip(conds, sides, strict=True) if not rest.terms)
    found: list[Expr] = []
    for cond, (data, rest) in zip(conds, sides, strict=True):
        low = span(expression(data), alone)[0] if data.terms and rest.terms else None
        if low is not None:
            cond = Apply(OR, (Guard(rest + Linear(low, ())).expr, cond))
        found.append(cond)
    return Select(conjunction(found), value, zero) if found else value


def _apart(cond: Expr) -> tuple[Linear, Linear]:
    """The sides of ``data + rest >= 0``; of any other condition nothing is data."""
    found = guard(cond)
    if found is None or found.equality:
        return Linear(0, ()), Linear(0, ((1, cond),))
    data = tuple(term for term in found.form.terms if has_reads(term[1]))
    rest = tuple(term for term in found.form.terms if not has_reads(term[1]))
    return Linear(0, data), Linear(found.form.const, rest)


def cut(domain: Domain, given: tuple[Guard, ...], limit: int) -> list[Domain]:
    """A partition of ``domain`` in which the reductions inside are cut as well.

    A reduction that loses its axes leaves conditions on the axes around it, so the parts are cut
    until nothing changes.
    """
    done: list[Domain] = []
    work = [domain]
    while work:
        room = limit - len(done) - len(work) + 1
        found = []
        for part in parts(work.pop(), given, room):
            facts = (*given, *known(part.conds))
            scope = part.scope | frozenset(part.axes)
            exprs = tuple(refined(expr, scope, facts) for expr in part.exprs)
            found.append((part, replace(part, exprs=exprs)))
        for part, finer in reversed(found):
            if finer.exprs != part.exprs:
                work.append(finer)
        done.extend(part for part, finer in found if finer.exprs == part.exprs)
    return done


def refined(expr: Expr, scope: frozenset[Axis], given: tuple[Guard, ...]) -> Expr:
    """``expr`` with each of its reductions as a combination of reductions over parts."""
    changes = {
        node: _reduction(node, scope, given)
        for node in _outermost(expr)
        if node.combiner not in ARGS
    }
    return settled(substitute(expr, changes), given)


def _outermost(expr: Expr) -> list[Reduce]:
    found: list[Reduce] = []
    seen: set[Expr] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Reduce):
            found.append(node)
        else:
            stack.extend(node.children)
    return found


def _reduction(node: Reduce, scope: frozenset[Axis], given: tuple[Guard, ...]) -> Expr:
    """``node`` as a combination of reductions over the parts of its domain."""
    domain = Domain(node.axes, tuple(conjuncts(node.cond)), (node.body,), scope, summed=True)
    found = [
        Reduce(node.combiner, part.axes, conjunction(part.conds), *part.exprs)
        for part in cut(domain, given, REDUCTION_PARTS)
    ]
    start = identity(node.combiner, node.dtype)
    values = [value for value in map(settled, found) if value is not start]
    if not values:
        return start
    return reduce(lambda left, right: combined(node.combiner, left, right), values)


__all__ = ["OUTPUT_PARTS", "REDUCTION_PARTS", "Piece", "Simplify", "pieces", "simplified"]
