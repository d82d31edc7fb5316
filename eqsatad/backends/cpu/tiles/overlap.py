"""Rows of a tile that read, at an earlier step of a sum, what their neighbours read at a later one.

A correlation of two images multiplies, for every place and every displacement, two elements that
no other product needs together. Nothing serves all rows of a tile then, but what one row reads at a
tap the row before it reads at the tap after that. So all taps of all rows are written out in the
order of the places that are read, each of which is loaded once. This is the scatter order of a
stencil (K. Stock et al., "A framework for enhancing data reuse via associative reordering",
PLDI 2014); each row still adds up its taps in their order.

The gradient of a convolution for the image has weights that serve all rows. Where there are
registers for those of all taps, its pixels are loaded once as well, not again for every tap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from eqsatad.backends.cpu.tiles.tile import Overlap, Tile, added, length, stride
from eqsatad.loops.nest import Assign, For
from eqsatad.terms.nodes import Axis, Const, Read

# The most products of a tile that are written out.
PRODUCTS = 512
# The most taps of which something that serves all rows is held, and the fewest products at a place
# then: where there are fewer, one waits for another that has just been added to the same result.
FEW = 5
TOGETHER = 6


def overlapping(
    tile: Tile, ways: Mapping[Axis, Overlap], reads: Sequence[Read], registers: int
) -> Iterator[Tile]:
    """``tile`` with its rows written out in the order of what they read, if they overlap.

    What serves all rows has to fit ``registers``.
    """
    for row, way in ways.items():
        rows = tile.counts.get(row, 1)
        products = prod(tile.counts.values()) * len(way.taps)
        if row is tile.lane or rows == 1 or products > PRODUCTS:
            continue
        serving = [read for read in reads if row not in read.free]
        if serving and (products < TOGETHER * rows or _held(tile, way, reads) > registers):
            continue
        yield replace(tile, overlap=way)


def _held(tile: Tile, way: Overlap, reads: Sequence[Read]) -> int:
    """How many registers hold what serves all rows, at all taps, and what is read at a place."""
    held, here = 0, 0
    for read in reads:
        copies = _copies(tile, read, way.row)
        if way.row in read.free:
            here = max(here, copies)
        else:
            held += copies * (len(way.taps) if way.tap in read.free else 1)
    return held + here


def _copies(tile: Tile, read: Read, row: Axis) -> int:
    """How many elements or vectors of ``read`` one row of a tile touches."""
    return prod(count for axis, count in tile.counts.items() if axis in read.free - {row})


def summed(sums: For) -> bool:
    """Whether the innermost loop of a nest only adds up."""
    return all(isinstance(each, Assign) and added(each) is not None for each in sums.body)


def overlaps(
    loops: Iterable[For], sums: For, reads: Sequence[Read], *, serving: bool = False
) -> dict[Axis, Overlap]:
    """How neighbours along each of ``loops`` overlap in ``sums``, the innermost loop of a nest.

    Only where all ``reads`` depend on both, or also where some, ``serving`` all rows, do not and
    taps are few.
    """
    trips = length(sums)
    if not isinstance(sums.start, Const) or not trips:
        return {}
    taps = range(sums.start.value, sums.start.value + trips)
    ways = (_overlap(loop.axis, sums.axis, taps, reads, serving) for loop in loops)
    return {way.row: way for way in ways if way is not None}


def _overlap(
    row: Axis, tap: Axis, taps: range, reads: Sequence[Read], serving: bool
) -> Overlap | None:
    """How neighbours along ``row`` overlap; None if nothing is read by two of them."""
    steps = [
        (by_row, by_tap)
        for read in reads
        if (by_row := stride(read.tensor, read.indices, row))
        and (by_tap := stride(read.tensor, read.indices, tap))
    ]
    alike = sum(row not in read.free for read in reads) if serving and len(taps) <= FEW else 0
    if len(steps) + alike < len(reads):
        return None
    ways = (Overlap(row, tap, taps, pair) for pair in steps)
    shared = (way for way in ways if any(way.part(read, len(taps)) < 1 for read in reads))
    return min(shared, key=lambda way: sum(way.part(read, 2) for read in reads), default=None)
