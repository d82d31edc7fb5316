"""Steps over the same rows, run a few rows at a time one after the other.

A row of a softmax is read by the sum over it and again by what divides by that sum. Run in turns,
the second step finds its rows in the cache, as do the sums of a convolution the image that was
just copied for them. This is allowed where what one step writes and another touches is told apart
by its first index, which is the row in both, or by the second where the first is 0 in both.

Few blocks of rows would leave threads idle that the steps alone use: those are trains for one
thread only. So are those with the strips of a sum, of which the rows are what is added up.

A temporary of which every row is written and read by one train alone needs no more memory than the
rows under way. One thread uses the last rows of it for all, which stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import lcm, prod

from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.code.tilewriter import spread, tiles_along
from eqsatad.backends.cpu.tiles.fusion import ZERO
from eqsatad.backends.cpu.tiles.tile import Strips, Tile, length
from eqsatad.loops.nest import Accumulate, Block, For, Store, expressions_of, statements
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Axis, Const, Expr, Read, Tensor
from eqsatad.terms.walk import postorder

# Fewer blocks of rows than this may leave threads idle that the steps alone would use.
BLOCKS = 8
# As many leave no doubt, so that a block may be longer than what any step takes at a time.
MANY = 64


@dataclass(frozen=True)
class Rows:
    """The outermost loop of a step: ``extent`` values of ``axis``.

    ``turns`` iterations of the step, one after the other, take ``unit`` values. The strips of a sum
    are ``ordered``: one begins with what the one before it left.
    """

    axis: Axis
    extent: int
    unit: int
    body: Block
    turns: int = 1
    ordered: bool = False

    @property
    def iterations(self) -> int:
        return -(-self.extent // self.unit) * self.turns


def rows_of(block: Block, tile: Tile | None) -> Rows | None:
    """The rows of a step that is ``block``, run by ``tile`` if there is one."""
    if tile is not None and tile.strips is not None:
        return _strips(tile, tile.strips)
    if tile is not None:
        taken = tile.order[: spread(tile)[0]]
        # A loop that is one tile is none to run around others.
        several = [loop for loop in taken if tiles_along(tile, loop) is not Const(1, "index")]
        first, *others = several or taken
        found = _rows(first, tile.step(first.axis), tile.body)
        if found is None:
            return None
        turns = [tiles_along(tile, loop) for loop in others]
        known = [count.value for count in turns if isinstance(count, Const)]
        return replace(found, turns=prod(known)) if len(known) == len(turns) else None
    match block:
        case (For(parallel=True) as loop,):
            return _rows(loop, 1, loop.body)
    return None


def _strips(tile: Tile, strips: Strips) -> Rows | None:
    """The outermost loop of the strips of a sum, around all tiles."""
    first, *others = strips.loops
    found = _rows(first, 1 if others else strips.size, tile.body)
    return None if found is None else replace(found, turns=prod(strips.counts[1:]), ordered=True)


def _rows(loop: For, unit: int, body: Block) -> Rows | None:
    extent = length(loop)
    if extent is None or not isinstance(loop.start, Const) or loop.start.value != 0:
        return None
    return Rows(loop.axis, extent, max(1, min(unit, extent)), body)


def coupled(train: Sequence[Rows], rows: Rows) -> bool:
    """Whether ``rows`` may run in turns with ``train``, and finds there what it reads."""
    longest = max(rows.extent // MANY, *(each.unit for each in (*train, rows)))
    if train[0].extent != rows.extent or block([*train, rows]) > longest:
        return False
    return all(_apart(each, rows) for each in train) and any(_meet(each, rows) for each in train)


def block(train: Sequence[Rows]) -> int:
    """The fewest rows that are whole in each step."""
    return lcm(*(rows.unit for rows in train))


def enough(train: Sequence[Rows]) -> bool:
    """Whether a train has enough blocks of rows for several threads, in any order."""
    if any(rows.ordered for rows in train):
        return False
    blocks = -(-train[0].extent // block(train))
    return blocks >= min(BLOCKS, *(rows.iterations for rows in train))


def passing(train: Sequence[Rows], temporaries: Sequence[Tensor]) -> dict[Tensor, int]:
    """Those of ``temporaries`` that hold nothing but rows of ``train``, and the bytes of a row.

    Nothing else touches ``temporaries``. Blocks of rows are several, and none overlaps another.
    """
    if any(rows.extent % rows.unit or rows.extent <= rows.unit for rows in train):
        return {}
    places: dict[Tensor, set[tuple[int, int] | None]] = {}
    for rows in train:
        for tensor, indices, _ in accesses(rows):
            places.setdefault(tensor, set()).add(place(indices, rows.axis))
    found = {}
    for tensor in temporaries:
        (first, *others) = places.get(tensor, {None})
        if first is None or first[1] or others:
            continue
        known = [each.value for each in tensor.shape[first[0] + 1 :] if isinstance(each, Const)]
        if len(known) == len(tensor.shape) - first[0] - 1:
            found[tensor] = prod(known) * BYTES[STORED[tensor.dtype]]
    return found


def _apart(before: Rows, after: Rows) -> bool:
    """Whether a row of one never touches what another row of the other writes."""
    mine, theirs = list(accesses(before)), list(accesses(after))
    written = {tensor for tensor, _, writes in (*mine, *theirs) if writes}
    shared = written & {tensor for tensor, *_ in mine} & {tensor for tensor, *_ in theirs}
    places = {
        (tensor, place(indices, rows.axis))
        for rows, accesses in ((before, mine), (after, theirs))
        for tensor, indices, _ in accesses
        if tensor in shared
    }
    return len(places) == len(shared) and all(place is not None for _, place in places)


def place(indices: tuple[Expr, ...], row: Axis) -> tuple[int, int] | None:
    """Which index is ``row``, and what is added to it; None if it is none.

    Nothing but zeros come before it, as where loops are fused.
    """
    for place, index in enumerate(indices):
        if index is ZERO:
            continue
        form = linear(index)
        return (place, form.const) if form.terms == ((1, row),) else None
    return None


def _meet(before: Rows, after: Rows) -> bool:
    """Whether there is a buffer of which both touch the row that they are at."""
    return not _own(before).isdisjoint(_own(after))


def _own(rows: Rows) -> frozenset[Tensor]:
    """The buffers of which a row touches a row."""
    return frozenset(
        tensor for tensor, indices, _ in accesses(rows) if place(indices, rows.axis) is not None
    )


def accesses(rows: Rows) -> Iterator[tuple[Tensor, tuple[Expr, ...], bool]]:
    """What is read and written, and where."""
    for statement in statements(rows.body):
        if isinstance(statement, Store | Accumulate):
            yield statement.buffer, statement.indices, True
        for node in postorder(*expressions_of(statement)):
            if isinstance(node, Read):
                yield node.tensor, node.indices, False
