"""Tiles for loops of unknown length: those that ask little of the sizes of a call.

A tile is only run where loops are as long as it is, see `Tile.needs`. Of tiles that cost about the
same, the one that fits the most sizes is best, with neighbours along inner loops: outer ones are
more often those of a batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eqsatad.backends.cpu.tiles.costs import Work, cycles
from eqsatad.backends.cpu.tiles.tile import Tile, stride
from eqsatad.terms.nodes import Axis

# By how much a tile may cost more than the cheapest if it asks for less, by the number of vectors
# that loops are taken to have: what is for short loops runs seldom, and is code all the same.
SIMILAR = {0: 1.15, 1: 1.05}
ALIKE = 1.02


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


def modest(
    tiles: Sequence[Tile], work: Work, unknown: Collection[Axis], vectors: int
) -> list[Tile]:
    """Those of ``tiles`` that ask the least of the axes ``unknown``, of those of similar cost."""
    if not tiles or not unknown:
        return list(tiles)
    priced = [(cycles(tile, work, None), tile) for tile in tiles]
    limit = SIMILAR.get(vectors, ALIKE) * min(cost for cost, _ in priced)
    asks = {id(tile): _asks(tile, unknown) for cost, tile in priced if cost <= limit}
    if vectors not in SIMILAR:
        # Loops are long: which ones it is about, not how far.
        asks = {key: ([], places) for key, (_, places) in asks.items()}
    least = min(asks.values())
    return [tile for tile in tiles if asks.get(id(tile)) == least]


def _asks(tile: Tile, unknown: Collection[Axis]) -> tuple[list[int], list[int]]:
    """How many neighbours ``tile`` takes along ``unknown`` axes, and which loops, from inside."""
    places = [
        place
        for place, loop in enumerate(reversed(tile.loops))
        if loop.axis in unknown and loop.axis is not tile.lane and tile.step(loop.axis) > 1
    ]
    steps = (tile.step(tile.loops[-1 - place].axis) for place in places)
    return sorted(steps, reverse=True), places
