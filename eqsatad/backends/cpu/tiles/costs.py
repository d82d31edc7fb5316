"""What a tile costs: cycles for one result, by a count of loads, operations and lines of memory.

Nothing is measured. The figures are those of a core with two multiply-adds and two loads a cycle;
what matters is the order in which they put the tiles of one nest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from eqsatad.backends.access import flat
from eqsatad.backends.cpu.code.loads import PICKED
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.rewrites.streams import size
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.reuse import (
    AHEAD,
    FAR_PART,
    FAR_SPEED,
    NEAR_PART,
    Loop,
    refetched,
    room,
    speed,
    traffic,
)
from eqsatad.backends.cpu.tiles.reuse import LINE as LINE_BYTES
from eqsatad.backends.cpu.tiles.strips import put_away, strips
from eqsatad.backends.cpu.tiles.tile import TYPICAL, Tile, length, pairs, stride, typical
from eqsatad.loops.nest import Block, For, If, Store, expressions_of, statements
from eqsatad.terms.nodes import FLOATS, Apply, Axis, Read
from eqsatad.terms.walk import postorder

# Cycles: a vector instruction, the latency of an addition and a little that it waits for its turn,
# adding up the lanes of a vector.
ISSUE = 0.5
LATENCY = 4.5
ADD_UP = 12.0
# Going on to the next values of a sum.
STEP = 0.5
# What a load costs on top of its issue, since it may miss the nearest cache.
MISS = 0.1
# The part of the time in which lines come that is not hidden by other work.
SEEN = 0.1
# What a vector that lies in two lines costs more than one that lies in one.
TWO_LINES = 1.5
# A lane of a vector that is not contiguous, compared with a whole contiguous vector.
APART = 2
# The same where no neighbour in the tile uses the same cache line, and elements of a line.
ALONE = 6
LINE = 16
# An accumulator that is put away between strips and fetched again from the second cache, and
# starting a strip.
KEEP = 2.0
START = 10.0
# The part of the time in which lines come again from the second cache, strip by strip, that is
# not hidden by other work.
STALLED = 0.3
# Lengths for which neighbours that are dealt out are to fit, which depends on the length.
LENGTHS = (14, 28, 32, 64)
# How many times as much tiles cost of which some have a neighbour less: these do not fill all
# registers.
DEALT = 1.05
# The part of what a tile reads that may come again from beyond the nearest cache where strips are
# to fit that, and from beyond the second.
SLOWER_NEAR = 0.25
SLOWER_FAR = 0.1
# Strips that gain less than this are left out: caches are shared with other work.
DOUBT = 1.05
# The part of the time of a tile that strips for the nearest cache have to save.
WORTH = 0.02


@dataclass(frozen=True)
class Leaf:
    """An innermost loop of a body: what it reads, and how often it runs for one result.

    ``around`` are the loops of the body that it is inside of, itself the last.
    """

    reads: tuple[Read, ...]
    operations: int
    trips: float
    around: tuple[For, ...]

    @property
    def loop(self) -> For:
        return self.around[-1]


@dataclass(frozen=True)
class Work:
    """A nest as far as its cost depends on it: its leaves, and its stores for one point.

    ``extents`` are those of the loops around it.
    """

    leaves: tuple[Leaf, ...]
    stores: tuple[tuple[Store, float], ...]
    extents: Mapping[Axis, int]

    @staticmethod
    def of(loops: Sequence[For], body: Block) -> Work:
        known = {loop.axis: length(loop) for loop in loops}
        extents = {axis: TYPICAL if n is None else max(1, n) for axis, n in known.items()}
        return Work(tuple(_leaves(body, 1.0, ())), tuple(_stores(body, 1.0)), extents)


def _leaves(block: Block, trips: float, around: tuple[For, ...]) -> Iterator[Leaf]:
    for statement in block:
        if isinstance(statement, If):
            yield from _leaves((*statement.then, *statement.other), trips, around)
        if not isinstance(statement, For):
            continue
        here = trips * typical(statement)
        inner = list(_leaves(statement.body, here, (*around, statement)))
        if inner:
            yield from inner
        else:
            yield _leaf((*around, statement), here)


def _stores(block: Block, trips: float) -> Iterator[tuple[Store, float]]:
    for statement in block:
        match statement:
            case Store():
                yield statement, trips
            case If(_, then, other):
                yield from _stores((*then, *other), trips)
            case For(body=body):
                yield from _stores(body, trips * typical(statement))


def _leaf(around: tuple[For, ...], trips: float) -> Leaf:
    body = around[-1].body
    nodes = postorder(*(expr for each in statements(body) for expr in expressions_of(each)))
    reads = tuple(node for node in nodes if isinstance(node, Read))
    operations = sum(isinstance(node, Apply) and node.dtype in FLOATS for node in nodes)
    return Leaf(reads, max(1, operations - 1), trips, around)


def cheapest(tiles: Iterator[Tile], work: Work, caches: Caches) -> Tile | None:
    """The tile of the lowest cost, with strips where they help."""
    best: tuple[float, Tile] | None = None
    priced = [(cycles(tile, work, None), tile) for tile in tiles]
    for least, tile in sorted(priced, key=lambda pair: pair[0]):
        if best is not None and least >= best[0]:
            break
        for each in _ways(tile, work, caches):
            cost = cycles(each, work, caches) * (1.0 if each.strips is None else DOUBT)
            if best is None or cost < best[0]:
                best = cost, each
    return None if best is None else _nearer(best[1], work, caches)


def _nearer(tile: Tile, work: Work, caches: Caches) -> Tile:
    """``tile`` in strips whose windows stay in the nearest cache, if these pay."""
    cut = _cut(replace(tile, strips=None), work, NEAR_PART * caches.near, SLOWER_NEAR)
    if cut is None or not _windows(cut, work):
        return tile
    (leaf,) = work.leaves
    waits = [_waits(each, work, leaf, caches) for each in (tile, cut)]
    apart = [_put_away(each, work, caches) for each in (tile, cut)]
    saved = STALLED * (waits[0] - waits[1]) + apart[0] - apart[1]
    return cut if saved > WORTH * _sum(tile, work, leaf, caches) else tile


def _windows(tile: Tile, work: Work) -> bool:
    """Whether tiles side by side read what overlaps along the loop that strips cut."""
    assert tile.strips is not None
    axis, beside = tile.strips.loops[-1].axis, {loop.axis for loop in tile.loops}
    reads = (read for leaf in work.leaves for read in leaf.reads)
    places = (place.free for read in reads for place in read.indices)
    return any(axis in free and not beside.isdisjoint(free) for free in places)


def over(tile: Tile, work: Work) -> list[Loop]:
    """The loops over tiles, outermost first."""
    steps = [(loop.axis, tile.step(loop.axis)) for loop in tile.order]
    return [Loop(axis, ceil(work.extents[axis] / step), step) for axis, step in steps]


def _ways(tile: Tile, work: Work, caches: Caches) -> Iterator[Tile]:
    """``tile`` as it is, and in strips that fit a cache."""
    yield tile
    cut = _cut(tile, work, FAR_PART * caches.far, SLOWER_FAR)
    if cut is not None:
        yield cut


def _cut(tile: Tile, work: Work, kept: float, beyond: float) -> Tile | None:
    """``tile`` in strips that fit ``kept`` bytes of a cache, if it is one sum that may be cut."""
    if len(work.leaves) != 1 or tile.inner or tile.overlap is not None:
        return None
    (leaf,) = work.leaves
    return strips(tile, leaf.reads, inside_of(tile, leaf), kept, beyond)


def _put_away(tile: Tile, work: Work, caches: Caches) -> float:
    """Cycles for the accumulators of one tile between strips, if there are any."""
    if tile.strips is None or (kept := put_away("kept", tile)) is None:
        return 0.0
    (leaf,) = work.leaves
    wide = {loop.axis: float(loop.tiles * loop.step) for loop in over(tile, work)}
    strip = inside_of(tile, leaf) | tile.strips.extents | wide
    between = (size(kept) or 0) + sum(room(read, strip) for read in leaf.reads)
    slower = FAR_SPEED / speed(between, caches, AHEAD * LINE_BYTES)
    return (tile.strips.number - 1) * (START + KEEP * slower * prod(tile.counts.values()))


def cycles(tile: Tile, work: Work, caches: Caches | None) -> float:
    """Cycles per result, counting what tiles at the ends compute in vain.

    Without ``caches`` everything is taken to be in the nearest one.
    """
    copies = prod(tile.counts.values())
    total = sum(_sum(tile, work, leaf, caches) for leaf in work.leaves)
    if caches is not None:
        total += _put_away(tile, work, caches)
    together = {id(store) for pair in _coupled(tile, work) for store in pair}
    for store, trips in work.stores:
        total += trips * copies * (1 if id(store) in together else _stored(tile, store))
    results = float(copies)
    for axis, extent in work.extents.items():
        results /= _waste(tile, axis, extent)
    return total / (results * (max(1, tile.lanes) if not tile.inner else 1))


def _waste(tile: Tile, axis: Axis, extent: int) -> float:
    """How many times as many values of ``axis`` tiles take as there are."""
    if axis is not tile.dealt:
        return tile.covered(axis, extent) / extent
    if any(loop.axis is axis and length(loop) is not None for loop in tile.loops):
        return DEALT
    return sum(tile.covered(axis, each) / each for each in LENGTHS) / len(LENGTHS)


def _coupled(tile: Tile, work: Work) -> list[tuple[Store, Store]]:
    return pairs([store for store, _ in work.stores], tile.lane)


def _sum(tile: Tile, work: Work, leaf: Leaf, caches: Caches | None) -> float:
    """Cycles of one leaf in one tile."""
    copies = prod(tile.counts.values())
    loads = sum(_load(tile, read) for read in leaf.reads)
    trips, ending = leaf.trips, 0.0
    if tile.inner:
        once = typical(leaf.loop)
        trips = leaf.trips / once * ceil(once / tile.lanes)
        ending = copies * ADD_UP
    issued = max(LATENCY, ISSUE * max(copies * leaf.operations, loads))
    waits = 0.0 if caches is None else _waits(tile, work, leaf, caches)
    steps = 1 if tile.overlap is None else len(tile.overlap.taps)
    return (
        max(trips * issued, waits) + SEEN * waits + trips * (STEP / steps + MISS * loads) + ending
    )


def _waits(tile: Tile, work: Work, leaf: Leaf, caches: Caches) -> float:
    """Cycles until all lines have come that one tile reads."""
    inside = inside_of(tile, leaf)
    number = 1
    if tile.strips is not None:
        inside |= tile.strips.extents
        number = tile.strips.number
    loops = over(tile, work)
    again = leaf.trips * sum(refetched(read, tile.counts) for read in leaf.reads)
    return max(number * traffic(leaf.reads, inside, loops, caches), again)


def inside_of(tile: Tile, leaf: Leaf) -> dict[Axis, float]:
    """How many values of each axis a tile takes."""
    inside = {loop.axis: typical(loop) for loop in leaf.around}
    return inside | {loop.axis: float(tile.step(loop.axis)) for loop in tile.loops}


def _stored(tile: Tile, store: Store) -> float:
    """The cost of one store of a vector."""
    if tile.inner or not tile.lanes or stride(store.buffer, store.indices, tile.lane) == 1:
        return 1
    rows = (stride(store.buffer, store.indices, axis) for axis in tile.counts)
    near = any(row is not None and 0 < abs(row) < LINE for row in rows)
    return tile.lanes * (APART if near else ALONE)


def _load(tile: Tile, read: Read) -> float:
    """The cost of a read in all copies of a tile."""
    copies: float = _copies(tile.counts, read.free)
    if tile.overlap is not None:
        copies *= tile.overlap.part(read, tile.counts[tile.overlap.row])
    if not tile.lanes:
        return copies
    along = stride(read.tensor, read.indices, tile.lane)
    if along == 0:
        return copies
    if along == 1:
        return copies * (1 + TWO_LINES * _split(tile, read))
    # Neighbours at small strides are picked out of whole vectors.
    few = along is not None and 1 < along <= PICKED
    return copies * (2 * along - 1 if few and along is not None else APART * tile.lanes)


def _split(tile: Tile, read: Read) -> float:
    """The part of the vectors along the lanes of ``tile`` that lie in two lines."""
    width = BYTES[STORED[read.tensor.dtype]]
    form = flat(read.tensor, read.indices)
    steps = [form.const, *(coef for coef, atom in form.terms if atom is not tile.lane)]
    size = tile.lanes * width
    return 0.0 if not any(step % tile.lanes for step in steps) else min(1.0, size / LINE_BYTES)


def _copies(counts: Mapping[Axis, int], free: frozenset[Axis]) -> int:
    """How many different elements a tile touches where the axes ``free`` tell them apart."""
    return prod(count for axis, count in counts.items() if axis in free)
