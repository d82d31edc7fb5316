"""Panels: what the vectors of a row of tiles read of an input, copied in order for all of them.

An input begins anywhere in a line of the caches, so that each of its vectors may lie in two lines,
and the values of a sum may be read pages apart. Tiles that go on along rows alone read the same
vectors, one tile after the other. The first of them copies these to a place of its own, where they
lie one after the other from the beginning of a line on: the panels of K. Goto and R. van de Geijn,
"Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008. Of what stays in the
nearer caches, where the next row of tiles finds it again, a copy gains nothing, unless it makes
room in the nearest: rows of a matrix share the sets of that cache, and a panel has all of them.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from eqsatad.backends.access import flat
from eqsatad.backends.blocks import fresh_names
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.reuse import FAR_PART, footprint
from eqsatad.backends.cpu.tiles.strips import sums, tower
from eqsatad.backends.cpu.tiles.tile import Panel, Tile, length, stride
from eqsatad.loops.nest import For, LoopProgram, has_loop, reads_of, replaced
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Placeholder, Read
from eqsatad.terms.ops import SUB
from eqsatad.terms.walk import fresh

# The most bytes of a panel: it lies on the stack of a thread, which may have twice that in all.
LARGEST = 1 << 16
# The part of the nearest cache that a small panel takes at most.
SMALL = 0.75
# The fewest tiles that pay for a copy of what all of them read.
OFTEN = 8


def panelled(tile: Tile | None, program: LoopProgram, caches: Caches) -> Tile | None:
    """``tile`` with a panel of what its vectors read of an input of ``program``, if that pays."""
    if tile is None or (lane := tile.lane) is None or not _simple(tile, lane):
        return tile
    place = next(n for n, loop in enumerate(tile.order) if loop.axis is lane)
    rows = tile.order[place + 1 :]
    turns = prod(-(-(length(loop) or 0) // tile.step(loop.axis)) for loop in rows)
    if turns < OFTEN:
        return tile
    (loop,) = tower(tile.body)
    along = {lane: length(tile.order[place]), loop.axis: length(loop)}
    for read in reads_of(tile.body):
        inside = read.free - {each.axis for each in tile.order[:place]}
        size = BYTES[STORED[read.tensor.dtype]] * tile.step(lane) * (length(loop) or 0)
        whole = footprint(read, {axis: float(extent or 1) for axis, extent in along.items()})
        pays = _pays(size, whole, caches) and read.tensor in program.inputs
        if pays and inside == set(along) and _in_rows(read, lane):
            name = fresh_names(program)(f"{read.tensor.name}_panel")
            return _with(tile, lane, loop, read, name, turns)
    return tile


def _pays(size: int, whole: float, caches: Caches) -> bool:
    """Whether a panel of so many bytes, of ``whole`` that rows of tiles read, is worth its copy."""
    if size <= SMALL * caches.near:
        return whole > caches.near
    return size <= LARGEST and whole > FAR_PART * caches.far


def _simple(tile: Tile, lane: Axis) -> bool:
    """Whether ``tile`` is one sum of known length, of whole vectors in loops of known length."""
    if not tile.lanes or not has_loop(tile.body) or not sums(tile.body):
        return False
    special = (tile.inner, tile.turned, tile.strips, tile.slices, tile.block, tile.columns)
    if any(special) or tile.sure or tile.rolling:
        return False
    extents = {loop.axis: length(loop) or 0 for loop in (*tile.loops, *tower(tile.body))}
    known = all(extents.values()) and len(tower(tile.body)) == 1
    return known and extents[lane] >= tile.step(lane)


def _in_rows(read: Read, lane: Axis) -> bool:
    """Whether ``read`` moves by axes alone, along ``lane`` by one."""
    plain = all(isinstance(atom, Axis) for _, atom in flat(read.tensor, read.indices).terms)
    return plain and stride(read.tensor, read.indices, lane) == 1


def _with(tile: Tile, lane: Axis, loop: For, read: Read, name: str, turns: int) -> Tile:
    """``tile`` with a panel ``name`` of ``read`` for all values of ``loop``.

    What one tile would ask for, so many ``turns`` of tiles ask for one after the other.
    """
    shape = (length(loop) or 0, tile.step(lane))
    extents = tuple(Const(extent, "index") for extent in shape)
    copy = Placeholder(name, extents, read.tensor.dtype)
    begin = fresh(lane, {axis.name for axis in (*read.free, *(each.axis for each in tile.loops))})
    copied = Read(copy, (_minus(loop.axis, loop.start), _minus(lane, begin)))
    asked = tuple(each for each in tile.asked if each.read is not read)
    asking = turns if len(asked) < len(tile.asked) else 0
    panel = Panel(read, copied, loop, begin, asking)
    return replace(tile, body=replaced(tile.body, {read: copied}), panel=panel, asked=asked)


def _minus(value: Expr, other: Expr) -> Expr:
    return normal(Apply(SUB, (value, other)))
