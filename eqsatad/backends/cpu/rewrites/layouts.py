"""Temporaries laid out as they are used: their dimensions in the order that vectors want.

Vectors run along the axis that is contiguous in the arrays of the caller. A temporary that lies
across it would be written or read an element at a time, so its dimensions are put in another
order, everywhere alike. Values stay the same. What is the same for whole rows, a weight of each,
says nothing of where they lie.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from eqsatad.backends.cpu.rewrites.products import recognised
from eqsatad.backends.cpu.tiles.costs import ALONE
from eqsatad.backends.cpu.tiles.tile import chain, stride, typical
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    If,
    LoopProgram,
    Nest,
    Statement,
    Store,
    expressions_of,
    scheduled,
)
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Axis, Const, Expr, Placeholder, Read, Tensor
from eqsatad.terms.walk import postorder, transform

# A vector along the axis of a store saves more than one along that of a read.
STORED = 2
# The longest sum that is a few neighbours of a place, whose weights are of no more account than
# those that a place is multiplied by.
SHORT = 16


@dataclass(frozen=True)
class Access:
    """An element that is read or written, so many times.

    Loops inside of the innermost one that moves it do not count: it stays in a register.
    """

    tensor: Tensor
    indices: tuple[Expr, ...]
    written: bool
    times: float


def arranged(program: LoopProgram) -> LoopProgram:
    """``program`` with the dimensions of its temporaries in the order that suits most accesses."""
    tops = [each for nest in program.nests for each in nest.body]
    fixed = {access.tensor for access in _accesses(tuple(filter(_scheduled, tops)))}
    votes = {
        tensor: Counter[int]()
        for tensor in program.temporaries
        if len(tensor.shape) > 1 and tensor not in fixed
    }
    for statement in tops:
        _vote(statement, votes)
    for tensor, counts in votes.items():
        last = len(tensor.shape) - 1
        wanted = max(range(last + 1), key=lambda place: (counts[place], place == last))
        if wanted != last:
            program = _turned(program, tensor, wanted)
    return program


def _scheduled(statement: Statement) -> bool:
    return scheduled((statement,))


def _vote(statement: Statement, votes: dict[Tensor, Counter[int]]) -> None:
    """Counts for each temporary the dimension that ``statement`` would have innermost."""
    accesses = list(_accesses((statement,)))
    evidence = [each for each in accesses if each.tensor not in votes]
    lane = _lane([each for each in evidence if not _broadcast(each, statement)])
    if lane is None:
        return
    copied = recognised(statement) is not None
    for access in accesses:
        if access.tensor not in votes:
            continue
        for place, index in enumerate(access.indices):
            if abs(linear(index).coefficient(lane)) == 1:
                votes[access.tensor][place] += int(_weight(access, copied))


def _weight(access: Access, copied: bool) -> float:
    """The cost of the access if vectors lie across it; operands of products may be copied."""
    elements = prod(extent.value for extent in access.tensor.shape if isinstance(extent, Const))
    if access.written:
        return ALONE * access.times
    return min(access.times, elements) if copied else access.times


def _broadcast(access: Access, statement: Statement) -> bool:
    """Whether any lane does for a read of a nest without long sums.

    It is of a row of weights, or moves along one loop only.
    """
    _, body = chain(statement)
    free = {axis for index in access.indices for axis in index.free}
    few = len(access.indices) < 2 or len(free) < 2
    return not access.written and few and _summed(body) <= SHORT


def _summed(body: Block) -> float:
    """How often the loops of a body right inside each other run together, at most."""
    return max(
        (typical(each) * _summed(each.body) for each in body if isinstance(each, For)), default=1
    )


def _lane(accesses: Sequence[Access]) -> Axis | None:
    """The axis along which most of ``accesses`` are contiguous; None if no axis wins."""
    found = defaultdict[Axis, float](float)
    for access in accesses:
        axes = {axis for index in access.indices for axis in index.free}
        for axis in axes:
            if stride(access.tensor, access.indices, axis) == 1:
                found[axis] += access.times * (STORED if access.written else 1)
    ranked = sorted(found.items(), key=lambda each: -each[1])[:2]
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return None
    return ranked[0][0]


def _accesses(block: Block, around: tuple[For, ...] = ()) -> Iterator[Access]:
    for statement in block:
        if isinstance(statement, Store | Accumulate):
            times = _times(statement.indices, around)
            yield Access(statement.buffer, statement.indices, True, times)
        for node in postorder(*expressions_of(statement)):
            if isinstance(node, Read):
                yield Access(node.tensor, node.indices, False, _times(node.indices, around))
        match statement:
            case For(body=body):
                yield from _accesses(body, (*around, statement))
            case If(_, then, other):
                yield from _accesses((*then, *other), around)


def _times(indices: tuple[Expr, ...], around: Sequence[For]) -> float:
    """How often the loops ``around`` move ``indices`` on."""
    free = {axis for index in indices for axis in index.free}
    moving = [place for place, loop in enumerate(around) if loop.axis in free]
    return prod(typical(loop) for loop in around[: max(moving, default=-1) + 1])


def _turned(program: LoopProgram, tensor: Tensor, last: int) -> LoopProgram:
    """``program`` with the dimension ``last`` of ``tensor`` behind the others."""
    order = [*(place for place in range(len(tensor.shape)) if place != last), last]
    turn = Turn(tensor, order)
    nests = tuple(
        Nest(turn.new if nest.stage is tensor else nest.stage, turn.block(nest.body))
        for nest in program.nests
    )
    temporaries = tuple(turn.new if other is tensor else other for other in program.temporaries)
    return replace(program, nests=nests, temporaries=temporaries)


class Turn:
    """Statements with ``old``, whose dimensions are now in ``order``."""

    def __init__(self, old: Tensor, order: Sequence[int]) -> None:
        self.old = old
        self.order = order
        self.new = Placeholder(old.name, self._moved(old.shape), old.dtype)

    def block(self, block: Block) -> Block:
        return tuple(map(self._statement, block))

    def _statement(self, statement: Statement) -> Statement:
        match statement:
            case For(start=start, stop=stop, body=body):
                return replace(
                    statement,
                    start=self._changed(start),
                    stop=self._changed(stop),
                    body=self.block(body),
                )
            case If(cond, then, other):
                return If(self._changed(cond), self.block(then), self.block(other))
            case Assign(var, value):
                return Assign(var, self._changed(value))
        indices, value = tuple(map(self._changed, statement.indices)), statement.value
        moved = statement.buffer is self.old
        return replace(
            statement,
            buffer=self.new if moved else statement.buffer,
            indices=self._moved(indices) if moved else indices,
            value=self._changed(value),
        )

    def _changed(self, expr: Expr) -> Expr:
        return transform(expr, self._read)

    def _read(self, node: Expr) -> Expr:
        if isinstance(node, Read) and node.tensor is self.old:
            return Read(self.new, self._moved(node.indices))
        return node

    def _moved(self, dimensions: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(dimensions[place] for place in self.order)
