"""Which loop of a sum goes innermost: the one along which rows of a tile share what they load.

A gradient for a volume adds up, at every place, a few neighbours along each axis. Where a tile
takes several places along one of these, what a row loads for a neighbour is what the next row loads
for the neighbour before. The innermost loop is written out if it is short, so that such vectors are
loaded once. A sum whose order matters is left as it is.

Where all turns of a short innermost loop together read more than there is room for in registers,
they are kept apart: LLVM would load at once whatever two of them have in common, and put
accumulators away for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from math import prod

from eqsatad.backends.access import flat
from eqsatad.backends.cpu.code.statements import SHORT
from eqsatad.backends.cpu.tiles.strips import carried, tower
from eqsatad.backends.cpu.tiles.tile import Tile, length
from eqsatad.loops.nest import Block, For, reads_of
from eqsatad.terms.nodes import Read


def sharing(tile: Tile, registers: int) -> Tile:
    """``tile`` with that loop innermost, if all that rows load along it fits ``registers``."""
    accumulators = len(carried(tile.body)) * prod(tile.counts.values())
    if not accumulators or not tile.lanes or tile.inner or tile.overlap is not None:
        return tile
    loops = tower(tile.body)
    if not _short(loops[-1]):
        return tile
    found = [loop for loop in loops if _short(loop) and not _bounds(loop, loops)]
    fitting = [loop for loop in found if accumulators + _loaded(tile, loop) < registers]
    best = min(fitting, key=lambda loop: _part(tile, loop), default=loops[-1])
    if _part(tile, best) >= _part(tile, loops[-1]):
        return tile
    return replace(tile, body=_inmost(tile.body, loops, best))


def turned_apart(tile: Tile, registers: int) -> Tile:
    """``tile`` with the turns of a short innermost loop apart, if they do not fit ``registers``."""
    accumulators = len(carried(tile.body)) * prod(tile.counts.values())
    if not accumulators or not tile.lanes or tile.inner or tile.overlap is not None:
        return tile
    loops = tower(tile.body)
    if not _short(loops[-1]) or _bounds(loops[-1], loops):
        return tile
    loaded = sum(_places(read, tile, loops[-1]) for read in _reads(loops))
    return tile if accumulators + loaded <= registers else replace(tile, apart=loops[-1].axis)


def _short(loop: For) -> bool:
    return 0 < (length(loop) or 0) <= SHORT


def _bounds(loop: For, loops: list[For]) -> bool:
    """Whether the range of another one of ``loops`` depends on where ``loop`` is."""
    return any(loop.axis in each.start.free | each.stop.free for each in loops)


def _part(tile: Tile, loop: For) -> float:
    """How many vectors are loaded in each turn of ``loop``."""
    return _loaded(tile, loop) / (length(loop) or 1)


def _loaded(tile: Tile, loop: For) -> int:
    """How many vectors all turns of ``loop`` load, each of them once."""
    reads = (read for read in _reads(tower(tile.body)) if tile.lane in read.free)
    return sum(_places(read, tile, loop) for read in reads)


def _reads(loops: list[For]) -> Iterable[Read]:
    return dict.fromkeys(reads_of(loops[-1].body))


def _places(read: Read, tile: Tile, loop: For) -> int:
    """At how many places a tile reads along ``loop``."""
    form = flat(read.tensor, read.indices)
    steps = [(form.coefficient(loop.axis), length(loop) or 1)]
    for axis, count in tile.counts.items():
        width = tile.lanes if axis is tile.lane else 1
        steps.append((form.coefficient(axis) * width, count))
    turns = product(*(range(count) for _, count in steps))
    return len({sum(step * n for (step, _), n in zip(steps, turn, strict=True)) for turn in turns})


def _inmost(body: Block, loops: list[For], last: For) -> Block:
    """``body`` with ``last`` inside of all others of its ``loops``."""
    block = loops[-1].body
    for loop in (last, *(each for each in reversed(loops) if each is not last)):
        block = (replace(loop, body=block),)
    return tuple(block[0] if isinstance(each, For) else each for each in body)
