"""Rows of a tile that read, at an earlier step of a sum, what their neighbours read at a later one.

A correlation of two images multiplies, for every place and every displacement, two elements that
no other product needs together. Nothing serves all rows of a tile then, but what one row reads at a
tap the row before it reads at the tap after that. So all taps of all rows are written out in the
order of the places that are read, each of which is loaded once. This is the scatter order of a
stencil (K. Stock et al., "A framework for enhancing data reuse via associative reordering",
PLDI 2014); each row still adds up its taps in their order.
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


def overlapping(tile: Tile, ways: Mapping[Axis, Overlap]) -> Iterator[Tile]:
    """``tile`` with its rows written out in the order of what they read, if they overlap."""
    for row, way in ways.items():
        products = prod(tile.counts.values()) * len(way.taps)
        if row is not tile.lane and tile.counts.get(row, 1) > 1 and products <= PRODUCTS:
            yield replace(tile, overlap=way)


def summed(sums: For) -> bool:
    """Whether the innermost loop of a nest only adds up."""
    return all(isinstance(each, Assign) and added(each) is not None for each in sums.body)


def overlaps(loops: Iterable[For], sums: For, reads: Sequence[Read]) -> dict[Axis, Overlap]:
    """How neighbours along each of ``loops`` overlap in ``sums``, the innermost loop of a nest.

    Only where all ``reads`` depend on both: what serves all rows, or all taps, had better be loaded
    for these.
    """
    trips = length(sums)
    if not isinstance(sums.start, Const) or not trips:
        return {}
    taps = range(sums.start.value, sums.start.value + trips)
    ways = (_overlap(loop.axis, sums.axis, taps, reads) for loop in loops)
    return {way.row: way for way in ways if way is not None}


def _overlap(row: Axis, tap: Axis, taps: range, reads: Sequence[Read]) -> Overlap | None:
    """How neighbours along ``row`` overlap; None if nothing is read by two of them."""
    steps = [
        (by_row, by_tap)
        for read in reads
        if (by_row := stride(read.tensor, read.indices, row))
        and (by_tap := stride(read.tensor, read.indices, tap))
    ]
    if len(steps) < len(reads):
        return None
    ways = (Overlap(row, tap, taps, pair) for pair in steps)
    shared = (way for way in ways if any(way.part(read, len(taps)) < 1 for read in reads))
    return min(shared, key=lambda way: sum(way.part(read, 2) for read in reads), default=None)
