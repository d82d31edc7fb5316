"""Iterations of a loop: cut into blocks, or written out side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsatad.loops.changes import refused, variables
from eqsatad.loops.nest import (
    Block,
    For,
    If,
    Statement,
    expressions_of,
    replaced,
    rewritten,
    statements,
)
from eqsatad.terms.linear import expression, linear, normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Var
from eqsatad.terms.ops import ADD, FLOORDIV, MAX, MOD, MUL, SUB
from eqsatad.terms.walk import substitute, transform

# Statements that unrolling may make of one loop.
WRITTEN = 1024


@dataclass(frozen=True)
class Names:
    """What the two loops are called that a loop is split into."""

    outer: str
    inner: str


def blocks(loop: For, block: Block, factor: int, names: Names) -> Iterator[For]:
    """The loops that ``loop`` is split into: over whole blocks, and over the rest."""
    whole, rest = _divided(_trips(loop), factor)
    by = _index(factor)
    if not _is_zero(whole):
        outer = _axis(names.outer, whole if not whole.free else loop.axis.extent)
        inner = _axis(names.inner, by)
        place = _at(loop, Apply(ADD, (Apply(MUL, (by, outer)), inner)))
        body = placed(loop.body, {loop.axis: place})
        loops = replace(loop, axis=inner, start=_index(0), stop=by, body=body, mark=None)
        yield replace(loop, axis=outer, start=_index(0), stop=whole, body=(loops,))
    if not _is_zero(rest):
        inner = _axis(names.inner, rest if not rest.free else by)
        done = Apply(MUL, (by, whole))
        place = _at(loop, Apply(ADD, (done, inner)))
        body = _copy(loop, block, place, "rest")
        yield replace(loop, axis=inner, start=_index(0), stop=rest, body=body)


def unrolled(loop: For, block: Block, count: int | None) -> Iterator[Block]:
    trips = _trips(loop)
    name = loop.axis.name
    if isinstance(trips, Const) and (count is None or count >= trips.value):
        yield _side_by_side(loop, block, _index(0), trips.value)
        return
    if count is None:
        why = "has no constant number of iterations; say how many, as in unroll(axis, 4)"
        raise refused(why, block, name)
    whole, rest = _divided(trips, count)
    axis = _axis(name, whole if not whole.free else loop.axis.extent)
    body = _side_by_side(loop, block, Apply(MUL, (_index(count), axis)), count)
    yield (replace(loop, axis=axis, start=_index(0), stop=whole, body=body, mark=None),)
    done = Apply(MUL, (_index(count), whole))
    if isinstance(rest, Const):
        yield _side_by_side(loop, block, done, rest.value, "rest")
        return
    inner = _axis(f"{name}_rest", rest if not rest.free else _index(count))
    body = _copy(loop, block, _at(loop, Apply(ADD, (done, inner))), "rest")
    yield (replace(loop, axis=inner, start=_index(0), stop=rest, body=body, mark=None),)


def _side_by_side(loop: For, block: Block, first: Expr, count: int, suffix: str = "") -> Block:
    """``count`` iterations of ``loop`` from ``first`` on: together if they are independent."""
    written = count * sum(1 for _ in statements(loop.body))
    if written > WRITTEN:
        why = f"would become {written:,} statements; at most {WRITTEN:,} are written out"
        raise refused(why, block, loop.axis.name)
    copies = []
    for number in range(count):
        place = _at(loop, Apply(ADD, (first, _index(number))))
        own = _renamed(loop, block, f"{suffix}{number}") if number or suffix else {}
        copies.append({loop.axis: place, **own})
    if loop.parallel:
        return _together(loop.body, copies)
    return tuple(each for copy in copies for each in placed(loop.body, copy))


def _together(block: Block, copies: Sequence[Mapping[Expr, Expr]]) -> Block:
    """Each statement in all copies before the next one; loops and tests alike are made once."""
    result: list[Statement] = []
    for statement in block:
        heads = {_head(statement, copy) for copy in copies}
        match statement:
            case For(body=body) if len(heads) == 1:
                ((start, stop),) = heads
                inner = _together(body, copies)
                result.append(replace(statement, start=start, stop=stop, body=inner))
            case If(_, then, other) if len(heads) == 1:
                ((cond,),) = heads
                result.append(If(cond, _together(then, copies), _together(other, copies)))
            case _:
                result.extend(each for copy in copies for each in placed((statement,), copy))
    return tuple(result)


def _head(statement: Statement, copy: Mapping[Expr, Expr]) -> tuple[Expr, ...]:
    """What ``statement`` itself works out, in a copy."""
    return tuple(_put(expr, copy) for expr in expressions_of(statement))


def placed(block: Block, mapping: Mapping[Expr, Expr]) -> Block:
    """``block`` with axes and locals replaced, and its index expressions in normal form."""
    return rewritten(replaced(block, mapping), lambda expr: transform(expr, _tidy))


def _put(expr: Expr, mapping: Mapping[Expr, Expr]) -> Expr:
    return transform(substitute(expr, mapping), _tidy)


def _tidy(node: Expr) -> Expr:
    return normal(node) if node.dtype == "index" and isinstance(node, Apply) else node


def _copy(loop: For, block: Block, place: Expr, suffix: str) -> Block:
    """The body of ``loop`` at one place, its locals renamed where nobody else uses them."""
    return placed(loop.body, {loop.axis: place, **_renamed(loop, block, suffix)})


def _renamed(loop: For, block: Block, suffix: str) -> dict[Expr, Expr]:
    taken = {var.name for var in variables(block)}
    outside = set(variables(block, without=loop))
    renamed: dict[Expr, Expr] = {}
    for var in dict.fromkeys(variables(loop.body)):
        if var in outside:
            continue
        name = f"{var.name}_{suffix}"
        while name in taken:
            name += "_"
        taken.add(name)
        renamed[var] = Var(name, var.dtype)
    return renamed


def _trips(loop: For) -> Expr:
    """How often ``loop`` runs."""
    trips = normal(Apply(SUB, (loop.stop, loop.start)))
    return trips if isinstance(trips, Const) else Apply(MAX, (trips, _index(0)))


def _index(number: int) -> Expr:
    return Const(number, "index")


def may_reach(loop: For, factor: int) -> bool:
    trips = _trips(loop)
    return not isinstance(trips, Const) or trips.value >= factor


def _axis(name: str, extent: Expr) -> Axis:
    """An axis over ``extent``, which is at least 1 where it is known."""
    extent = normal(extent)
    return Axis(name, _index(max(1, extent.value)) if isinstance(extent, Const) else extent)


def _divided(extent: Expr, factor: int) -> tuple[Expr, Expr]:
    """The quotient and the rest of ``extent`` by ``factor``."""
    by = _index(factor)
    return normal(Apply(FLOORDIV, (extent, by))), normal(Apply(MOD, (extent, by)))


def _at(loop: For, offset: Expr) -> Expr:
    """The value of the axis of ``loop`` that is ``offset`` from its start."""
    return expression(linear(Apply(ADD, (loop.start, offset))))


def _is_zero(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 0
