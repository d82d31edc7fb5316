"""Strips of a long sum: all tiles of a range add a part of it before any goes on to the next.

What one strip reads stays in a cache while the tiles pass over it. The accumulators of a tile are
put away in between, in a temporary of their own, so that it does not matter how results are stored
or whether the last tile overlaps the one before. Each result is added up in the same order as
without strips.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, prod

from eqsatad.backends.cpu.code.scalars import COMPUTED
from eqsatad.backends.cpu.tiles.reuse import Loop, footprint, sources
from eqsatad.backends.cpu.tiles.tile import Strips, Tile, length, widest
from eqsatad.loops.nest import Assign, Block, For, Store, statements, stores_in_loop
from eqsatad.terms.nodes import FLOATS, Axis, Const, Placeholder, Read, Tensor, Var

# Points of a strip below which putting accumulators away costs too much.
SHORTEST = 48
# How many times as many strips are tried next where some are too long.
FINER = 1.25
# What locals of each type are kept as.
KEPT = {"float": "float32", "double": "float64"}


def strips(
    tile: Tile, reads: Sequence[Read], inside: Mapping[Axis, float], room: float, beyond: float
) -> Tile | None:
    """``tile`` in the longest strips that make what it reads again fit ``room`` bytes of a cache.

    A part of all that it reads may come from ``beyond`` these. In the shortest strips that are
    worth it where none do, and None where all fits without strips. ``inside`` is how many values of
    each axis a tile takes without strips.
    """
    loops = [Loop(loop.axis, _tiles(tile, loop), tile.step(loop.axis)) for loop in tile.order]
    cuts = [loop for loop in sums(tile.body) if _common(tile, loop)]
    if not all(loop.tiles for loop in loops) or not cuts:
        return None
    if _fits(reads, inside, loops, room, beyond):
        return None
    points = prod(inside[loop.axis] for loop in tower(tile.body))
    extents, found = dict(inside), None
    for depth, loop in enumerate(cuts):
        for size in _sizes(length(loop) or 1):
            extents[loop.axis] = size
            here = points / prod(inside[each.axis] / extents[each.axis] for each in cuts)
            if here < SHORTEST:
                return found
            found = replace(tile, strips=Strips(tuple(cuts[: depth + 1]), size))
            if _fits(reads, extents, loops, room, beyond):
                return found
    return found


def _sizes(extent: int) -> Iterator[int]:
    """Sizes of strips of about the same length each, the longest first."""
    number = 2
    while number <= extent:
        yield ceil(extent / number)
        number = max(number + 1, int(FINER * number))
    if extent > 1:
        yield 1


def _tiles(tile: Tile, loop: For) -> int:
    return ceil((length(loop) or 0) / tile.step(loop.axis))


def _fits(
    reads: Sequence[Read],
    extents: Mapping[Axis, float],
    loops: Sequence[Loop],
    room: float,
    beyond: float,
) -> bool:
    """Whether what is read again is found in ``room`` bytes, but for a part ``beyond`` of all."""
    far = sum(
        size
        for read in reads
        for size, between in sources(read, reads, extents, loops)
        if between is not None and between > room
    )
    return far <= beyond * sum(footprint(read, extents) for read in reads)


def _common(tile: Tile, loop: For) -> bool:
    """Whether all points of ``tile`` run ``loop`` over the same values."""
    (own,) = (each for each in tower(tile.body) if each.axis is loop.axis)
    return all(tile.step(axis) == 1 for axis in own.start.free | own.stop.free)


def sums(body: Block) -> tuple[For, ...]:
    """The loops around each other at the top of ``body`` that may be cut into strips.

    The last one may be narrower in some tiles than it is here.
    """
    if not carried(body):
        return ()
    found: list[For] = []
    for loop in tower(body):
        if not (loop.start.free or loop.stop.free or length(loop) is None):
            found.append(loop)
            continue
        if (wide := widest(loop)) is not None:
            found.append(wide)
        break
    return tuple(found)


def tower(body: Block) -> list[For]:
    """The only loop of ``body``, and those that are all of what is in it."""
    (loop,) = (each for each in body if isinstance(each, For))
    found = [loop]
    while len(loop.body) == 1 and isinstance(inner := loop.body[0], For):
        found.append(inner)
        loop = inner
    return found


def carried(body: Block) -> tuple[Var, ...]:
    """The accumulators of ``body``, if it is one sum between constants and stores.

    None of them if it is anything else.
    """
    loops = [place for place, each in enumerate(body) if isinstance(each, For)]
    if len(loops) != 1 or stores_in_loop(body):
        return ()
    before, after = body[: loops[0]], body[loops[0] + 1 :]
    constant = all(isinstance(each, Assign) and isinstance(each.value, Const) for each in before)
    if not constant or not all(isinstance(each, Store) for each in after):
        return ()
    changed = {each.var for each in statements((body[loops[0]],)) if isinstance(each, Assign)}
    found = tuple(each.var for each in before if isinstance(each, Assign) and each.var in changed)
    same = len({COMPUTED[var.dtype] for var in found}) == 1
    return found if same and all(var.dtype in FLOATS for var in found) else ()


def put_away(name: str, tile: Tile) -> Tensor | None:
    """What keeps the accumulators of every tile between strips; None where there are none."""
    if tile.strips is None:
        return None
    found = carried(tile.body)
    tiles = prod(_tiles(tile, loop) for loop in tile.loops)
    shape = (tiles, len(found) * prod(tile.counts.values()), max(1, tile.lanes))
    extents = tuple(Const(extent, "index") for extent in shape)
    return Placeholder(name, extents, KEPT[COMPUTED[found[0].dtype]])
