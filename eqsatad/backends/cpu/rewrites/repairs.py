"""Results that came out NaN, worked out again.

A point that a bound left out is a product with zero once operands have zeros around them, which is
NaN where the other factor is infinite or NaN. Such a sum cannot come out otherwise than NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.tile import chain
from eqsatad.loops.nest import (
    Assign,
    Block,
    For,
    If,
    Statement,
    Store,
    replaced,
)
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import (
    Apply,
    Axis,
    Const,
    Expr,
    Read,
    Tensor,
    Var,
)
from eqsatad.terms.ops import ADD, EQ, MUL, NE, NEG, SUB
from eqsatad.terms.walk import postorder


def transparent(value: Expr) -> bool:
    """Whether a NaN in ``value`` comes out of it."""
    nodes = [node for node in postorder(value) if isinstance(node, Apply)]
    return all(node.op in (ADD, SUB, MUL, NEG) for node in nodes)


def again(buffer: Tensor, doubtful: Sequence[tuple[Store, Statement]]) -> Statement:
    """``doubtful`` statements for the elements of ``buffer`` that are NaN.

    All along the first dimension are added up, so that nothing more is done where none is NaN, nor
    infinite with both signs.
    """
    first = Axis("r0", buffer.shape[0])
    rest = Axis("r1", _product(buffer.shape[1:]))
    # All other dimensions as one: what counts is the offset.
    places = (first, *[index(0)] * (len(buffer.shape) - 2), rest)
    total = Var(f"{buffer.name}_total", buffer.dtype)
    more = Read(buffer, places[: len(buffer.shape)])
    adding = For(rest, index(0), rest.extent, (Assign(total, Apply(ADD, (total, more))),))
    again = tuple(_where_odd(first, store, statement) for store, statement in doubtful)
    some = If(_nan(total), again)
    begin = Assign(total, Const(0.0, buffer.dtype))
    return For(first, index(0), first.extent, (begin, adding, some), True)


def _product(extents: Sequence[Expr]) -> Expr:
    total: Expr = index(1)
    for extent in extents:
        total = Apply(MUL, (total, extent))
    return normal(total)


def _where_odd(first: Axis, store: Store, statement: Statement) -> Statement:
    """``statement`` for the elements at ``first`` that are NaN."""
    loops, body = chain(statement)
    block: Block = (If(_odd(store.buffer, store.indices), body),)
    row = store.indices[0]
    left = row.free
    guard = Apply(EQ, (row, first))
    for loop in reversed(loops):
        if loop.axis is row and (loop.start, loop.stop) == (index(0), first.extent):
            block, left = replaced(block, {row: first}), frozenset()
            continue
        if loop.axis in left:
            block, left = (If(guard, block),), frozenset()
        block = (replace(loop, body=block, parallel=False),)
    (result,) = block
    return result if not left and row.free else If(guard, block)


def _odd(buffer: Tensor, indices: tuple[Expr, ...]) -> Expr:
    """Whether the element is NaN."""
    return _nan(Read(buffer, indices))


def _nan(value: Expr) -> Expr:
    return Apply(NE, (value, value))
