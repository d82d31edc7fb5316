"""Slices of a sum of unknown length: strips whose size depends on the sizes of a call.

As with `strips`, all tiles add a part of the sum before any goes on to the next, so that what they
read again is still in the second cache. The two outermost loops of the sum, as those over a batch
and the rows of its images, are cut as one range. How many values a slice has is worked out when a
call is made; if all of the sum is small enough there is one.
"""

from __future__ import annotations

from functools import reduce

from eqsatad.backends.cpu.code.scalars import BYTES, COMPUTED, STORED
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.reuse import FAR_PART
from eqsatad.backends.cpu.tiles.strips import KEPT, SHORTEST, carried, tower
from eqsatad.backends.cpu.tiles.tile import Slices, Tile, length
from eqsatad.loops.nest import Block, For, reads_of
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Apply, Axis, Expr, Placeholder, Read, Tensor
from eqsatad.terms.ops import ADD, FLOORDIV, MAX, MUL, SUB

# Loops that are cut as one range.
CUT = 2


def cut(body: Block, caches: Caches) -> Slices | None:
    """The slices of the sum of ``body`` that fit the second cache; None if it has no such sum."""
    loops = tower(body) if carried(body) else []
    if len(loops) < CUT or not all(map(_plain, loops[:CUT])):
        return None
    axes = frozenset(loop.axis for loop in loops[:CUT])
    reads = dict.fromkeys(reads_of(body))
    if not all(read.free & axes for read in reads):
        return None
    each = reduce(_sum, (_bytes(read, axes) for read in reads))
    points = reduce(_product, (_extent(loop) for loop in loops[CUT:]), index(1))
    fitting = _quotient(index(int(FAR_PART * caches.far)), each)
    least = Apply(ADD, (_quotient(index(2 * SHORTEST), points), index(1)))
    return Slices(tuple(loops[:CUT]), Apply(MAX, (fitting, least)))


def put_away(name: str, tile: Tile) -> Tensor:
    """What keeps the accumulators of every tile between slices."""
    found = carried(tile.body)
    tiles = reduce(_product, (_tiles(tile, loop) for loop in tile.loops))
    copies = len(found)
    for count in tile.counts.values():
        copies *= count
    shape = (normal(tiles), index(copies), index(max(1, tile.lanes)))
    return Placeholder(name, shape, KEPT[COMPUTED[found[0].dtype]])


def _plain(loop: For) -> bool:
    """Whether ``loop`` counts from 0 to a size."""
    return loop.start is index(0) and not loop.stop.free and length(loop) is None


def _tiles(tile: Tile, loop: For) -> Expr:
    step = tile.step(loop.axis)
    above = Apply(ADD, (_extent(loop), index(step - 1)))
    return Apply(FLOORDIV, (normal(above), index(step)))


def _bytes(read: Read, axes: frozenset[Axis]) -> Expr:
    """The bytes that ``read`` may touch for one value of ``axes``."""
    pairs = zip(read.indices, read.tensor.shape, strict=True)
    others = [extent for place, extent in pairs if not place.free & axes]
    return reduce(_product, others, index(BYTES[STORED[read.tensor.dtype]]))


def _extent(loop: For) -> Expr:
    return normal(Apply(SUB, (loop.stop, loop.start)))


def _quotient(left: Expr, right: Expr) -> Expr:
    """``left`` divided by what is at least 1."""
    return Apply(FLOORDIV, (left, Apply(MAX, (normal(right), index(1)))))


def _sum(left: Expr, right: Expr) -> Expr:
    return Apply(ADD, (left, right))


def _product(left: Expr, right: Expr) -> Expr:
    return Apply(MUL, (left, right))
