"""Expressions with every choice made that the ranges of their axes leave no freedom for.

A branch that is never taken goes, and the zero it leaves in a sum with it; guards of a reduction
become the extents of its axes. Nothing here looks for better terms: that is what rules are for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite

from eqsatad.loops.combine import ARGS, identity
from eqsatad.loops.domains import Domain, narrowed
from eqsatad.loops.forms import Guard, guard, settled_condition, settled_index
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import (
    FALSE,
    TRUE,
    Apply,
    Axis,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Select,
)
from eqsatad.terms.ops import ADD, AND, MUL, NEG, NOT, OR, SUB
from eqsatad.terms.walk import conjunction, conjuncts, postorder, transform


def settled(expr: Expr, given: Sequence[Guard] = ()) -> Expr:
    """``expr`` where ``given`` holds, with nothing left that is decided."""
    while (new := transform(expr, partial(_step, given))) is not expr:
        expr = new
    return expr


def tidied(domain: Domain, given: Sequence[Guard] = ()) -> Domain | None:
    """``domain`` narrowed, its expressions settled where its guards hold; None without a point."""
    while True:
        conds = tuple(normal_guard(cond) for cond in domain.conds)
        smaller = narrowed(replace(domain, conds=conds))
        if smaller is None:
            return None
        facts = (*given, *known(smaller.conds))
        exprs = tuple(settled(expr, facts) for expr in smaller.exprs)
        if exprs == domain.exprs and smaller.conds == domain.conds:
            return replace(smaller, exprs=tuple(map(normal_index, exprs)))
        domain = replace(smaller, exprs=exprs)


def known(conds: Sequence[Expr]) -> tuple[Guard, ...]:
    """Those of ``conds`` that are guards."""
    return tuple(what for cond in conds if (what := guard(cond)) is not None)


def normal_guard(cond: Expr) -> Expr:
    """``cond`` settled on its own."""
    return settled(cond)


def normal_index(expr: Expr) -> Expr:
    """An index in its linear normal form; data as it is."""
    return normal(expr) if expr.dtype == "index" else expr


def _step(given: Sequence[Guard], node: Expr) -> Expr:
    match node:
        case Apply() if node.dtype == "index":
            return settled_index(node, given)
        case Apply(op, _) if op in LOGIC:
            return LOGIC[op](node)
        case Apply(op, (a, b)) if op in (ADD, SUB) and (_is_zero(a) or _is_zero(b)):
            return _without_zero(node)
        case Apply(op, args) if op in (NEG, MUL) and all(map(_is_finite, args)):
            return next(filter(_is_zero, args), node)
        case Apply():
            return settled_condition(node, given)
        case Select(cond, then, other):
            return then if cond is TRUE or then is other else other if cond is FALSE else node
        case Read(tensor, indices):
            return Read(tensor, tuple(map(normal, indices)))
        case Cast(arg, dtype):
            return Cast(normal_index(arg), dtype)
        case Reduce():
            return _reduce(node)
    return node


def _is_zero(node: Expr) -> bool:
    return isinstance(node, Const) and node.dtype not in ("bool", "index") and node.value == 0


def _is_finite(node: Expr) -> bool:
    return isinstance(node, Const) and isfinite(node.value)


def _without_zero(node: Apply) -> Expr:
    a, b = node.args
    if _is_zero(b):
        return a
    return b if node.op is ADD else Apply(NEG, (b,))


def _and(node: Apply) -> Expr:
    if FALSE in node.args:
        return FALSE
    kept = tuple(arg for arg in node.args if arg is not TRUE)
    return node if len(kept) == 2 else conjunction(kept)


def _or(node: Apply) -> Expr:
    if TRUE in node.args:
        return TRUE
    kept = [arg for arg in node.args if arg is not FALSE]
    return node if len(kept) == 2 else kept[0] if kept else FALSE


def _not(node: Apply) -> Expr:
    (arg,) = node.args
    if isinstance(arg, Const):
        return FALSE if arg is TRUE else TRUE
    return node


LOGIC: dict[object, Callable[[Apply], Expr]] = {AND: _and, OR: _or, NOT: _not}


def _reduce(node: Reduce) -> Expr:
    """One step towards fewer points: what does not depend on the axes goes out, guards go in."""
    combiner, axes, cond, body = node.combiner, node.axes, node.cond, node.body
    start = Const(0, "int64") if combiner in ARGS else identity(combiner, node.dtype)
    if cond is FALSE or (body is start and combiner not in ARGS):
        return start
    inner, outer = _parted(cond, frozenset(axes))
    if outer:
        return Select(conjunction(outer), Reduce(combiner, axes, conjunction(inner), body), start)
    if combiner in ARGS:
        return node
    if isinstance(body, Select) and body.other is start:
        return Reduce(combiner, axes, conjunction((*inner, body.cond)), body.then)
    smaller = narrowed(Domain(axes, tuple(inner), (body,), summed=True))
    if smaller is None:
        return start
    if not smaller.axes:
        (value,) = smaller.exprs
        return Select(conjunction(smaller.conds), value, start) if smaller.conds else value
    return Reduce(combiner, smaller.axes, conjunction(smaller.conds), *smaller.exprs)


def _parted(cond: Expr, axes: frozenset[Axis]) -> tuple[list[Expr], list[Expr]]:
    """The conjuncts about ``axes`` or data, and the guards that the loops around can be cut by.

    A condition on data stays where the term has it: to take it out is what the rules are for.
    """
    parts = list(conjuncts(cond))
    inner = [part for part in parts if part.free & axes or has_reads(part)]
    return inner, [part for part in parts if part not in inner]


def has_reads(expr: Expr) -> bool:
    """Whether evaluating ``expr`` looks at data."""
    return any(isinstance(node, Read | Reduce) for node in postorder(expr))
