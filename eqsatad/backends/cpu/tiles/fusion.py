"""Loops over neighbouring dimensions as one loop, where every array is walked without a jump.

``for a < A: for b < B`` with every offset a multiple of ``B*a + b`` is ``for m < A*B``. In the
fused body the index of the first dimension is 0 and that of the second runs on beyond its
extent, which gives the right offset; only offsets are looked at after this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from eqsatad.backends.access import flat
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    If,
    Statement,
    Store,
    expressions_of,
    replaced,
    statements,
)
from eqsatad.terms.linear import expression, linear, normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Read, Tensor, Var
from eqsatad.terms.ops import MUL
from eqsatad.terms.polynomial import Polynomial, polynomial, times
from eqsatad.terms.walk import postorder

ZERO = Const(0, "index")


def fused(loops: Sequence[For], body: Block) -> tuple[tuple[For, ...], Block]:
    """``loops`` with neighbours joined where that is possible, and the body that fits them.

    Loops of the body that are right inside each other are joined as well.
    """
    done, body = _fused(loops, body)
    return done, tuple(map(_inside, body))


def _fused(loops: Sequence[For], body: Block) -> tuple[tuple[For, ...], Block]:
    done: list[For] = []
    for loop in reversed(loops):
        size = _joined(loop, done[0], body) if done and _free(loop, done) else None
        if size is not None:
            axis = Axis(f"{loop.axis.name}_{done[0].axis.name}", size)
            body = replaced(body, {loop.axis: ZERO, done[0].axis: axis})
            done[0] = replace(done[0], axis=axis, start=ZERO, stop=axis.extent, body=body)
        else:
            done.insert(0, loop)
    return tuple(done), body


def _free(loop: For, inside: Sequence[For]) -> bool:
    """Whether no range further inside depends on ``loop`` or on the first loop ``inside``."""
    pair = {loop.axis, inside[0].axis}
    return all(pair.isdisjoint(each.start.free | each.stop.free) for each in inside[1:])


def _inside(statement: Statement) -> Statement:
    """``statement`` with loops right inside each other joined, if it is such loops."""
    loops: list[For] = []
    block: Block = (statement,)
    while len(block) == 1 and isinstance(loop := block[0], For):
        loops.append(loop)
        block = loop.body
    if len(loops) < 2:
        return statement
    done, block = _fused(loops, block)
    for loop in reversed(done):
        block = (replace(loop, body=block),)
    (result,) = block
    return result


def _joined(outer: For, inner: For, body: Block) -> Expr | None:
    """The extent of both loops as one; None if they cannot be joined."""
    loops = (outer, inner)
    if any(linear(loop.start) != linear(ZERO) or loop.stop.free for loop in loops):
        return None
    pair = {outer.axis, inner.axis}
    count = polynomial(inner.stop)
    for tensor, indices in _accesses(body):
        offset = polynomial(expression(flat(tensor, indices)))
        steps = [_step(offset, loop.axis, pair) for loop in loops]
        if steps[0] is None or steps[1] is None or steps[0] != times(count, steps[1]):
            return None
    if any(_used_as_value(each, pair) for each in statements(body)):
        return None
    return normal(Apply(MUL, (outer.stop, inner.stop)))


def _step(offset: Polynomial, axis: Axis, pair: set[Axis]) -> Polynomial | None:
    """What ``offset`` grows by with ``axis``; None if it is not always the same."""
    step: Polynomial = {}
    for atoms, coef in offset.items():
        if any(atom.free & pair for atom in atoms):
            others = tuple(atom for atom in atoms if atom not in pair)
            if len(others) + 1 < len(atoms) or any(atom.free for atom in others):
                return None
            if axis in atoms:
                step[others] = coef
    return step


def _accesses(body: Block) -> Iterator[tuple[Tensor, tuple[Expr, ...]]]:
    """Every element that ``body`` reads or writes."""
    for each in statements(body):
        if isinstance(each, Store | Accumulate):
            yield each.buffer, each.indices
        for node in postorder(*expressions_of(each)):
            if isinstance(node, Read):
                yield node.tensor, node.indices


def _used_as_value(statement: Statement, pair: set[Axis]) -> bool:
    """Whether an axis of ``pair`` is used for more than the indices of arrays."""
    stack = list(expressions_of(statement))
    if isinstance(statement, Store | Accumulate):
        stack = [statement.value]
    while stack:
        node = stack.pop()
        if node in pair:
            return True
        if not isinstance(node, Read):
            stack.extend(child for child in node.children if child.free & pair)
    return False


def spelled_out(block: Block) -> Block:
    """``block`` without locals for indices: what uses one says where it is."""
    found: list[Statement] = []
    rest = list(block)
    while rest:
        statement = rest.pop(0)
        match statement:
            case Assign(var, value) if var.dtype == "index" and not _assigned(var, rest):
                rest = list(replaced(tuple(rest), {var: value}))
            case For(axis, start, stop, body, parallel, mark):
                found.append(For(axis, start, stop, spelled_out(body), parallel, mark))
            case If(cond, then, other):
                found.append(If(cond, spelled_out(then), spelled_out(other)))
            case _:
                found.append(statement)
    return tuple(found)


def _assigned(var: Var, rest: Sequence[Statement]) -> bool:
    return any(isinstance(each, Assign) and each.var is var for each in statements(tuple(rest)))
