"""Tiles of sums over a few neighbours whose ranges end with an image: no copies, no inner tests.

A depthwise convolution reads nine neighbours of each place, fewer at the border. Its gradient for
the image is a short sum at every place: a tile takes whole rows of the image, several of them, so
that neighbours are loaded once for all places that read them, and which of them are there is known
for every vector (see `known`). The same holds where a condition says what is added, as in the
gradient of a max pooling that saved where each window found its largest element. The gradient of
the convolution for the kernel is a long sum for every tap: a tile takes all taps, which share what
they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from eqsatad.backends.cpu.code.scalars import BYTES, COMPUTED, STORED
from eqsatad.backends.cpu.code.statements import SHORT
from eqsatad.backends.cpu.tiles.rolling import rolling
from eqsatad.backends.cpu.tiles.tile import Asked, Tile, added, chain, independent, length, stride
from eqsatad.loops.nest import (
    Assign,
    Block,
    For,
    If,
    Statement,
    Store,
    reads_of,
)
from eqsatad.terms.nodes import Axis, Const, Expr, Read
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import substitute

# The most taps at a place: all of them are written out.
TAPS = 25
# Vectors in a row of an image that one tile takes, and those of a part of a longer row; the most
# products in a tile; and rows, as many as share what is loaded before accumulators, taps and
# loaded vectors no longer fit the registers.
VECTORS = 8
PART = 2
PRODUCTS = 256
ROWS = (4, 3, 2, 1)
# Where rows go by: the fewest tiles that are left for threads if there are as many, and the fewest
# rows in each, next to those that are read for two tiles.
TILES = 64
BLOCK = 4
# Bytes from what a tile reads to what it asks for: a few tiles further on.
AHEAD = 2048


def tapped(statement: Statement, vector: int, *, exact: bool = False) -> Tile | None:
    """The tile for ``statement`` if it is such a sum; ``exact`` keeps the order of long ones."""
    loops, body = chain(statement)
    match body:
        case (Assign() as start, For() as loop, Store() as store) if loops:
            sums, update = _sums(loop)
        case _:
            return None
    if update is None or update.var is not start.var or not independent(loops, body, [store]):
        return None
    if COMPUTED[update.var.dtype] != STORED[store.buffer.dtype]:
        return None
    lanes = vector // BYTES[COMPUTED[update.var.dtype]]
    places = _places(loops, body, sums, store, lanes)
    return places if places is not None or exact else _kernel(loops, body, sums, lanes)


def _sums(loop: For) -> tuple[tuple[For, ...], Assign | None]:
    """The loops right inside each other from ``loop`` on, and the sum inside if it is only that."""
    sums: list[For] = []
    inner: Block = (loop,)
    while len(inner) == 1 and isinstance(each := inner[0], For):
        sums.append(each)
        inner = each.body
    match inner:
        case (Assign() as update,) | (If(_, (Assign() as update,), ()),):
            return tuple(sums), update if added(update) is not None else None
    return tuple(sums), None


def _places(
    loops: Sequence[For], body: Block, sums: Sequence[For], store: Store, lanes: int
) -> Tile | None:
    """Whole rows of places, several at a time, if all sums are short and their ranges uneven."""
    trips = [_trips(loop) for loop in sums]
    known = [count for count in trips if count is not None]
    if len(known) < len(trips) or max(known) > SHORT or prod(known) > TAPS:
        return None
    uneven = frozenset[Expr]().union(*(bound.free for loop in sums for bound in _bounds(loop)))
    *around, last = loops
    extent = length(last)
    if last.axis not in uneven or extent is None:
        return None
    reads = reads_of(body)
    if stride(store.buffer, store.indices, last.axis) != 1 or not any(
        stride(read.tensor, read.indices, last.axis) == 1 for read in reads
    ):
        return None
    if any(stride(read.tensor, read.indices, last.axis) not in (0, 1) for read in reads):
        return None
    rows = next((loop for loop in reversed(around) if loop.axis in uneven), None)
    vectors = -(-extent // lanes)
    counts = {last.axis: vectors if vectors <= VECTORS else PART}
    own = [read for read in reads if last.axis in read.free]
    tile = Tile(tuple(loops), body, last.axis, lanes, False, counts, columns=True)
    if rows is not None and (rolled := _rolled(tile, rows, sums, own)) is not None:
        return rolled
    if rows is not None and (high := length(rows)):
        most = min(high, PRODUCTS // (counts[last.axis] * prod(known)))
        counts = {**counts, rows.axis: next((count for count in ROWS if count <= most), 1)}
    return replace(tile, counts=counts, asked=tuple(_ahead(read, sums) for read in own))


def _rolled(tile: Tile, rows: For, sums: Sequence[For], own: Sequence[Read]) -> Tile | None:
    """``tile`` with as many rows as leave enough tiles for threads, if these can go by."""
    found = rolling(rows, sums[0])
    if found is None:
        return None
    others = [loop for loop in tile.loops if loop is not rows]
    tiles = prod(-(-(length(loop) or TILES) // tile.step(loop.axis)) for loop in others)
    extent = length(rows) or 1
    size = min(extent, max(-(-extent * tiles // TILES), BLOCK * len(found.taps)))
    asked = (_next(read, tile, sums, others) for read in own)
    counts = {**tile.counts, rows.axis: size}
    return replace(tile, counts=counts, rolling=found, asked=tuple(filter(None, asked)))


def _next(read: Read, tile: Tile, sums: Sequence[For], loops: Sequence[For]) -> Asked | None:
    """What is asked for at each row: the same row in the tile after this one along ``loops``."""
    steps = ((loop, tile.step(loop.axis)) for loop in reversed(loops))
    further = ((loop, step) for loop, step in steps if step < (length(loop) or TILES))
    loop, step = next(further, (None, 0))
    if loop is None or not (apart := stride(read.tensor, read.indices, loop.axis)):
        return None
    first: dict[Expr, Expr] = {each.axis: Const(0, "index") for each in sums[1:]}
    there = Read(read.tensor, tuple(substitute(index, first) for index in read.indices))
    return Asked(there, sums[0].axis, (step * apart * BYTES[STORED[read.tensor.dtype]],))


def _ahead(read: Read, sums: Sequence[For]) -> Asked:
    """What a tile asks for: rows of an image are too short for memory to be fetched by itself."""
    first: dict[Expr, Expr] = {loop.axis: Const(0, "index") for loop in sums}
    there = Read(read.tensor, tuple(substitute(index, first) for index in read.indices))
    return Asked(there, None, (AHEAD,))


def _kernel(loops: Sequence[For], body: Block, sums: Sequence[For], lanes: int) -> Tile | None:
    """All taps at once, if these are few and alone share what is read in a long sum.

    Where other results read it too, `packing` copies it to where nothing ends.
    """
    inner = sums[-1]
    uneven = frozenset[Expr]().union(*(bound.free for loop in sums for bound in _bounds(loop)))
    taps = {loop.axis: length(loop) or 0 for loop in loops if loop.axis in uneven}
    if not taps or set(taps) != uneven or not 0 < prod(taps.values()) <= TAPS:
        return None
    if 2 * (_trips(inner) or 0) < lanes or inner.axis in uneven or not all(map(_bounded, sums)):
        return None
    reads = reads_of(body)
    own = {loop.axis for loop in loops if loop.axis not in taps}
    if not all(own <= read.free for read in reads):
        return None
    if any(stride(read.tensor, read.indices, inner.axis) not in (0, 1) for read in reads):
        return None
    return Tile(tuple(loops), body, inner.axis, lanes, True, taps)


def _bounded(loop: For) -> bool:
    """Whether the range of ``loop`` is known where all axes that it depends on are."""
    return all(isinstance(atom, Axis) for bound in _bounds(loop) for atom in bound.free)


def _bounds(loop: For) -> tuple[Expr, Expr]:
    return loop.start, loop.stop


def _trips(loop: For) -> int | None:
    """How often ``loop`` runs at most, if that is known."""
    low, high = interval(loop.start)[0], interval(loop.stop)[1]
    return None if low is None or high is None else high - low
