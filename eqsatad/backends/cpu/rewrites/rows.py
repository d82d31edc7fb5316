"""Nests as rows: what is done for each row, part by part, and whether rows suit being walked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TypeAlias

from eqsatad.backends.access import harmless
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.tiles.tile import added, chain, length, stride
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    If,
    Nest,
    Statement,
    Store,
    expressions_of,
    replaced,
)
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Read, Select, Tensor, Var
from eqsatad.terms.ops import ADD
from eqsatad.terms.walk import postorder, substitute

# Elements from which a row is worth its own start and end of a loop.
LONG = 64
# Bytes of a row up to which it is still in the second cache after the first pass.
NEAR = 1 << 18
Access: TypeAlias = tuple[Tensor, tuple[Expr, ...]]


def around(loops: Sequence[For], block: Block) -> Block:
    """``block`` inside of ``loops``."""
    for loop in reversed(loops):
        block = (replace(loop, body=block),)
    return block


def bounds(loops: Sequence[For]) -> list[tuple[Expr, Expr]]:
    """The ranges of ``loops``."""
    return [(loop.start, loop.stop) for loop in loops]


@dataclass(frozen=True)
class Part:
    """A statement for a row: without loops, or loops right inside each other around ``body``."""

    loops: tuple[For, ...]
    body: Block

    @property
    def stores(self) -> bool:
        """Whether elements all along a row are stored."""
        return bool(self.loops) and any(isinstance(each, Store) for each in self.body)

    @property
    def elements(self) -> int:
        return prod(length(loop) or 0 for loop in self.loops)

    @cached_property
    def writes(self) -> frozenset[Tensor | Var]:
        return frozenset(
            each.var if isinstance(each, Assign) else each.buffer
            for each in self.body
            if isinstance(each, Assign | Store | Accumulate)
        )

    @property
    def locals(self) -> tuple[Var, ...]:
        """The locals that are set, in order."""
        return tuple(dict.fromkeys(each.var for each in self.body if isinstance(each, Assign)))

    @cached_property
    def nodes(self) -> tuple[Expr, ...]:
        """All that is worked out."""
        return tuple(postorder(*(expr for each in self.body for expr in expressions_of(each))))

    @cached_property
    def reads(self) -> frozenset[Tensor | Var]:
        tensors = {node.tensor for node in self.nodes if isinstance(node, Read)}
        return frozenset(tensors | {node for node in self.nodes if isinstance(node, Var)})

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """Every element that is read or written, once."""
        stored = (each for each in self.body if isinstance(each, Store | Accumulate))
        written = [(each.buffer, each.indices) for each in stored]
        read = [(node.tensor, node.indices) for node in self.nodes if isinstance(node, Read)]
        return tuple(dict.fromkeys((*written, *read)))

    def conflicts(self, other: Part) -> bool:
        """Whether the order of both matters."""
        return not (
            self.writes.isdisjoint(other.reads)
            and self.writes.isdisjoint(other.writes)
            and self.reads.isdisjoint(other.writes)
        )

    def along(self, other: Part) -> bool:
        """Whether both may be one part if they conflict: what both touch, they touch in one place.

        Each point of the loops has elements of its own.
        """
        shared = (self.writes & (other.reads | other.writes)) | (other.writes & self.reads)
        if bounds(self.loops) != bounds(other.loops) or any(isinstance(e, Var) for e in shared):
            return False
        axes: dict[Expr, Expr] = {
            theirs.axis: mine.axis for mine, theirs in zip(self.loops, other.loops, strict=True)
        }
        places: dict[Tensor | Var, set[tuple[Expr, ...]]] = {}
        for part in (self, other.changed(axes)):
            for tensor, indices in part.accesses:
                places.setdefault(tensor, set()).add(indices)
        own = {loop.axis for loop in self.loops}
        return all(len(places[e]) == 1 and own <= set(*places[e]) for e in shared)

    def changed(self, mapping: dict[Expr, Expr]) -> Part:
        if mapping.keys().isdisjoint((*self.nodes, *self.writes)):
            return self
        return replace(self, body=replaced(self.body, mapping))

    def statement(self) -> Statement:
        (result,) = around(self.loops, self.body)
        return result


@dataclass(frozen=True)
class Rows:
    """Parallel ``loops``, and the parts of what is done for each row."""

    loops: tuple[For, ...]
    parts: tuple[Part, ...]

    @property
    def stores(self) -> bool:
        """Whether elements all along a row are stored."""
        return any(part.stores for part in self.parts)

    @property
    def size(self) -> int:
        """Bytes of all that is read and stored in one row alone."""
        elements = max(part.elements for part in self.parts if part.loops)
        tensors = {tensor for tensor, _ in whole(self)}
        return elements * sum(BYTES[STORED[tensor.dtype]] for tensor in tensors)

    def nest(self, stage: Tensor) -> Nest:
        statements = tuple(part.statement() for part in self.parts)
        return Nest(stage, around(self.loops, statements))


def rows_of(statement: Statement, count: int) -> Rows | None:
    """``statement`` as ``count`` loops over rows around parts, if it is such a nest."""
    loops, body = chain(statement)
    if len(loops) < count or any(length(loop) is None for loop in loops):
        return None
    parts = [_part(each) for each in around(loops[count:], body)]
    return Rows(loops[:count], tuple(filter(None, parts))) if all(parts) else None


def _part(statement: Statement) -> Part | None:
    loops: list[For] = []
    body: Block = (statement,)
    while len(body) == 1 and isinstance(loop := body[0], For):
        if length(loop) is None or loop.start.free:
            return None
        loops.append(loop)
        body = loop.body
    body = _unconditional(body)
    kind = Assign if loops and not loops[0].parallel else Store
    if not loops and isinstance(statement, Assign | Store):
        return Part((), body)
    same = all(loop.parallel == loops[0].parallel for loop in loops)
    return Part(tuple(loops), body) if same and _only(body, kind) else None


def _unconditional(body: Block) -> Block:
    """``body`` with sums under a condition as sums of what is 0 without it."""
    match body:
        case (If(cond, then, ()),) if harmless(cond):
            values = [added(each) if isinstance(each, Assign) else None for each in then]
            if all(value is not None and harmless(value) for value in values):
                return tuple(_chosen(cond, each) for each in then if isinstance(each, Assign))
    return body


def _chosen(cond: Expr, statement: Assign) -> Assign:
    var, value = statement.var, added(statement)
    assert value is not None, "only sums are asked for"
    more = Select(cond, value, Const(0.0, var.dtype))
    return Assign(var, Apply(ADD, (var, more)))


def _only(body: Block, kind: type[Assign] | type[Store]) -> bool:
    return all(isinstance(each, kind) for each in body)


def whole(rows: Rows) -> set[Access]:
    """The elements that differ at each point of the loops of some part, axes by their place."""
    found = set()
    for part in rows.parts:
        loops = (*rows.loops, *part.loops)
        places: dict[Expr, Expr] = {
            loop.axis: Axis(f"place{number}", loop.axis.extent) for number, loop in enumerate(loops)
        }
        for tensor, indices in part.accesses if part.loops else ():
            if {loop.axis for loop in loops} <= {axis for each in indices for axis in each.free}:
                found.add((tensor, tuple(substitute(each, places) for each in indices)))
    return found


def passable(rows: Rows) -> bool:
    """Whether rows are fit to be walked in passes: contiguous, and neither short nor too long."""
    walks = [part for part in rows.parts if part.loops]
    if not all(contiguous(part) for part in walks):
        return False
    least = min(part.elements for part in walks)
    return least >= LONG and rows.size <= NEAR


def contiguous(part: Part) -> bool:
    """Whether vectors along the innermost loop of ``part`` are read and stored whole."""
    lane = part.loops[-1].axis
    return all(
        stride(tensor, indices, lane) in (0, 1) for tensor, indices in part.accesses
    ) and all(
        stride(each.buffer, each.indices, lane) == 1
        for each in part.body
        if isinstance(each, Store | Accumulate)
    )
