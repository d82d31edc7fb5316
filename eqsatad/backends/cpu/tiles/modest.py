"""Tiles for loops of unknown length: those that ask little of the sizes of a call.

A tile is only run where loops are as long as it is, see `Tile.needs`. Of tiles that cost about the
same, the one that fits the most sizes is best, with neighbours along inner loops: outer ones are
more often those of a batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import ceil

from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.costs import Work, cheapest, cycles
from eqsatad.backends.cpu.tiles.tile import Tile, length, stride
from eqsatad.terms.nodes import Axis

# By how much a tile may cost more than the cheapest if it asks for less, by the number of vectors
# that loops are taken to have: what is for short loops runs seldom, and is code all the same.
SIMILAR = {0: 1.15, 1: 1.05}
ALIKE = 1.02
# The same before what is known of caches is looked at.
NEAR = 1.15
# Neighbours along a loop at most: one less are still the side of a small image.
MOST = 8
# Neighbours below which it is not worth having tiles with one less.
FEWEST = 4
# The same along loops of known length, and how many times as many values as there are all tiles
# have to take else.
LEAST, VAIN = 3, 1.04


def whole(tiles: Sequence[Tile], work: Work) -> list[Tile]:
    """``tiles`` that store whole vectors, if there are any: how short rows are is not known."""
    stores = [store for store, _ in work.stores]
    found = [
        tile
        for tile in tiles
        if tile.inner
        or not tile.lanes
        or all(stride(store.buffer, store.indices, tile.lane) == 1 for store in stores)
    ]
    return found if any(tile.lanes and not tile.inner for tile in found) else list(tiles)


def accessible(tile: Tile, unknown: Collection[Axis]) -> bool:
    """Whether ``tile`` fits loops ``unknown`` that are as short as small images."""
    rows = (axis for axis in tile.counts if axis in unknown and axis is not tile.lane)
    return all(tile.step(axis) <= MOST for axis in rows)


def dealt(tile: Tile, unknown: Collection[Axis]) -> Tile:
    """``tile`` with neighbours along one of the axes ``unknown`` dealt out: the most there are."""
    rows = {axis: n for axis, n in tile.counts.items() if axis in unknown and axis is not tile.lane}
    most = max(rows, key=rows.__getitem__, default=None)
    if tile.inner or most is None or rows[most] < FEWEST:
        return tile
    return replace(tile, dealt=most)


def even(tile: Tile) -> Tile:
    """``tile`` with neighbours dealt out along a loop of known length that it would leave early.

    All tiles together then take every value of the loop once, and not some of them twice.
    """
    extents = {loop.axis: length(loop) or 0 for loop in tile.loops if loop.axis is not tile.lane}
    wasted = {axis: tile.covered(axis, n) / n for axis, n in extents.items() if n}
    axis = max(wasted, key=wasted.__getitem__, default=None)
    if axis is None or wasted[axis] < VAIN or tile.counts.get(axis, 1) < LEAST:
        return tile
    given = replace(tile, dealt=axis)
    fewest = ceil(extents[axis] / given.step(axis)) * given.fewest(axis)
    # Where all tiles would have one less, those are tiles of their own.
    return given if fewest < extents[axis] else tile


def modest(
    tiles: Sequence[Tile],
    work: Work,
    unknown: Collection[Axis],
    vectors: int,
    caches: Caches | None,
) -> list[Tile]:
    """Those of ``tiles`` that ask the least of the axes ``unknown``, of those of similar cost."""
    if not tiles or not unknown:
        return list(tiles)
    priced = [(cycles(tile, work, None), tile) for tile in tiles]
    if vectors not in SIMILAR:
        # Loops are long, so that it matters how arrays are walked through.
        near = NEAR * min(cost for cost, _ in priced)
        priced = [(cycles(tile, work, caches), tile) for cost, tile in priced if cost <= near]
    limit = SIMILAR.get(vectors, ALIKE) * min(cost for cost, _ in priced)
    asks = {id(tile): _asks(tile, unknown) for cost, tile in priced if cost <= limit}
    if vectors not in SIMILAR:
        # Which loops it is about, not how far.
        asks = {key: ([], places) for key, (_, places) in asks.items()}
    least = min(asks.values())
    return [tile for tile in tiles if asks.get(id(tile)) == least]


def frugal(tiles: Sequence[Tile], work: Work, caches: Caches | None) -> Tile | None:
    """The cheapest of ``tiles``; without ``caches`` all that they read is near."""
    if caches is not None:
        return cheapest(iter(tiles), work, caches)
    return min(tiles, key=lambda tile: cycles(tile, work, None), default=None)


def _asks(tile: Tile, unknown: Collection[Axis]) -> tuple[list[int], list[int]]:
    """How many neighbours ``tile`` takes along ``unknown`` axes, and which loops, from inside."""
    places = [
        place
        for place, loop in enumerate(reversed(tile.loops))
        if loop.axis in unknown and loop.axis is not tile.lane and tile.step(loop.axis) > 1
    ]
    steps = (tile.step(tile.loops[-1 - place].axis) for place in places)
    return sorted(steps, reverse=True), places
