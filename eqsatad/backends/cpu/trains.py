"""Steps over the same rows, run a few rows at a time one after the other.

A row of a softmax is read by the sum over it and again by what divides by that sum. Run in turns,
the second step finds its rows in the cache. This is allowed where what one step writes and another
touches is told apart by its first index, which is the row in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from eqsatad.backends.cpu.tiles import Tile, length
from eqsatad.backends.cpu.tilewriter import spread, tiles_along
from eqsatad.loops.nest import Accumulate, Block, For, Store, expressions_of, statements
from eqsatad.terms.nodes import Axis, Const, Expr, Read, Tensor
from eqsatad.terms.walk import postorder


@dataclass(frozen=True)
class Rows:
    """The outermost loop of a step: ``extent`` values of ``axis``.

    ``turns`` iterations of the step, one after the other, take ``unit`` values.
    """

    axis: Axis
    extent: int
    unit: int
    body: Block
    turns: int = 1

    @property
    def iterations(self) -> int:
        return -(-self.extent // self.unit) * self.turns


def rows_of(block: Block, tile: Tile | None) -> Rows | None:
    """The rows of a step that is ``block``, run by ``tile`` if there is one."""
    if tile is not None:
        first, *others = tile.order[: spread(tile)[0]]
        found = _rows(first, tile.step(first.axis), tile.body)
        if found is None or found.extent < found.unit:
            return None
        turns = [tiles_along(tile, loop) for loop in others]
        known = [count.value for count in turns if isinstance(count, Const)]
        return replace(found, turns=prod(known)) if len(known) == len(turns) else None
    match block:
        case (For(parallel=True) as loop,):
            return _rows(loop, 1, loop.body)
    return None


def _rows(loop: For, unit: int, body: Block) -> Rows | None:
    extent = length(loop)
    if extent is None or not isinstance(loop.start, Const) or loop.start.value != 0:
        return None
    return Rows(loop.axis, extent, unit, body)


def coupled(train: Sequence[Rows], rows: Rows) -> bool:
    """Whether ``rows`` may run in turns with ``train``, and finds there what it reads."""
    units = [each.unit for each in (*train, rows)]
    if any(max(units) % unit for unit in units) or train[0].extent != rows.extent:
        return False
    return all(_apart(each, rows) for each in train) and any(_feeds(each, rows) for each in train)


def _apart(before: Rows, after: Rows) -> bool:
    """Whether a row of one never touches what another row of the other writes."""
    mine, theirs = list(_accesses(before)), list(_accesses(after))
    written = {tensor for tensor, _, writes in (*mine, *theirs) if writes}
    shared = written & {tensor for tensor, *_ in mine} & {tensor for tensor, *_ in theirs}
    return all(
        indices and indices[0] is rows.axis
        for rows, accesses in ((before, mine), (after, theirs))
        for tensor, indices, _ in accesses
        if tensor in shared
    )


def _feeds(before: Rows, after: Rows) -> bool:
    written = {tensor for tensor, _, writes in _accesses(before) if writes}
    return any(tensor in written for tensor, _, writes in _accesses(after) if not writes)


def _accesses(rows: Rows) -> Iterator[tuple[Tensor, tuple[Expr, ...], bool]]:
    """What is read and written, and where."""
    for statement in statements(rows.body):
        if isinstance(statement, Store | Accumulate):
            yield statement.buffer, statement.indices, True
        for node in postorder(*expressions_of(statement)):
            if isinstance(node, Read):
                yield node.tensor, node.indices, False
