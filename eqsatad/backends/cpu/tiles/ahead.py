"""Lines of memory that a tile asks for, so that they are near when a later tile reads them.

A CPU foresees long runs and small steps by itself. Pieces of a few lines that lie pages apart, as
the rows of an image, come too late from beyond the second cache. So the sum that goes from one
piece to the next asks for what a later tile reads: the one that is a step further along the loop
over tiles that brings the read to new lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod

from eqsatad.backends.access import flat
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.costs import Work, inside_of, over
from eqsatad.backends.cpu.tiles.reuse import FAR_PART, LINE, Extents, Loop, footprint, sources
from eqsatad.backends.cpu.tiles.tile import Asked, Tile, length, widest
from eqsatad.loops.nest import For, Store, reads_of
from eqsatad.terms.nodes import Axis, Const, Expr, Read
from eqsatad.terms.walk import substitute

# Bytes from one element to the next from which on a CPU foresees little.
LEAP = 768
# Bytes of a page, in which a CPU foresees what comes.
PAGE = 4096
# The part of the second cache that may be touched between asking and reading.
ROOM = 0.75
# The least part of what a tile reads that is worth asking for.
WORTH = 0.05
# How often a line is read by what one request for it stands for, at least.
SHARED = 1.5
# The most lines that are asked for at once.
MOST = 32
# Operations on vectors for each line that is asked for.
OPERATIONS = 9
# How many pieces a copy reads in turns before it goes on in one of them, and bytes to there; the
# same for one that reads what lies in a row.
PIECES = 16
FURTHER = 128
ALONG = 1024
# Bytes from where a copy that is turned stores a vector to the line that it asks for.
CLAIMED = 512
# The part of the second cache in which the rest of a program may leave what a copy reads.
LEFT = 1 / 16


@dataclass(frozen=True)
class Walk:
    """How tiles go through memory: the loops ``over`` them and the loops ``around`` a product.

    ``inside`` is how many values of each axis one tile takes.
    """

    over: tuple[Loop, ...]
    around: tuple[For, ...]
    inside: Extents
    reads: tuple[Read, ...]


def foreseen(tile: Tile | None, caches: Caches) -> Tile | None:
    """``tile`` with what it asks for."""
    if tile is None or tile.asked or tile.inner or tile.block:
        return tile
    if any(not length(each) for each in tile.loops):
        return tile
    work = Work.of(tile.loops, tile.body)
    if len(work.leaves) > 1:
        return tile
    if not work.leaves:
        tile = replace(tile, claimed=_claimed(tile, caches))
        found = (_copied(read, tile, caches) for read in reads_of(tile.body))
    else:
        (leaf,) = work.leaves
        around = tuple(filter(None, map(widest, leaf.around)))
        if len(around) < len(leaf.around) or not all(map(length, around)):
            return tile
        inside = inside_of(tile, leaf)
        if tile.strips is not None:
            inside |= tile.strips.extents
        walk = Walk((*_strips(tile), *over(tile, work)), around, inside, leaf.reads)
        found = (_summed(read, tile, walk, caches) for read in dict.fromkeys(leaf.reads))
    return replace(tile, asked=tuple(each for each in found if each is not None))


def _strips(tile: Tile) -> Iterator[Loop]:
    """The loops over strips."""
    if tile.strips is not None:
        *whole, cut = zip(tile.strips.loops, tile.strips.counts, strict=True)
        yield from (Loop(loop.axis, count, 1) for loop, count in whole)
        yield Loop(cut[0].axis, cut[1], tile.strips.size)


def _claimed(tile: Tile, caches: Caches) -> int:
    """How far ahead a copy that is turned asks for what it stores to, if that is large.

    It stores to more rows in turns than a CPU foresees.
    """
    if tile.turned is None:
        return 0
    everywhere = {loop.axis: float(length(loop) or 1) for loop in tile.loops}
    stores = [each for each in tile.body if isinstance(each, Store)]
    written = sum(footprint(Read(store.buffer, store.indices), everywhere) for store in stores)
    return CLAIMED if written > LEFT * caches.far else 0


def _copied(read: Read, tile: Tile, caches: Caches) -> Asked | None:
    """What a tile without sums asks for."""
    everywhere = {loop.axis: float(length(loop) or 1) for loop in tile.loops}
    size = footprint(read, everywhere)
    if not _plain(read) or size <= LEFT * caches.far:
        return None
    found = _piece(read, tile) if size > FAR_PART * caches.far else None
    return _along(read, tile) if found is None and tile.turned is not None else found


def _along(read: Read, tile: Tile) -> Asked | None:
    """What lies further along, if tiles turn one after the other what lies in a row.

    Of short rows that are read one by one a CPU foresees less than of a run of vectors.
    """
    form, width = flat(read.tensor, read.indices), BYTES[STORED[read.tensor.dtype]]
    inner = next((loop for loop in reversed(tile.order) if _tiles(tile, loop) > 1), None)
    if inner is None:
        return None
    step = form.coefficient(inner.axis) * tile.step(inner.axis) * width
    return Asked(read, None, (step * ceil(ALONG / step),)) if 0 < step < LEAP else None


def _piece(read: Read, tile: Tile) -> Asked | None:
    """The next of each of the pieces that a tile reads in turns, if these are many."""
    form, width = flat(read.tensor, read.indices), BYTES[STORED[read.tensor.dtype]]
    back, pieces = 0, 1
    rows = [(axis, 1, count) for axis, count in tile.counts.items() if axis is not tile.lane]
    tiles = [(loop.axis, tile.step(loop.axis), _tiles(tile, loop)) for loop in tile.order]
    for axis, size, trips in (*rows, *reversed(tiles)):
        step = form.coefficient(axis) * size
        if trips <= 1:
            continue
        if pieces >= PIECES and 0 < step * width < LEAP:
            return Asked(read, None, (step * width * ceil(FURTHER / (step * width)),))
        if abs(step - back) * width > LEAP:
            pieces *= trips
        back += step * (trips - 1)
    return None


def _tiles(tile: Tile, loop: For) -> int:
    return ceil((length(loop) or 1) / tile.step(loop.axis))


def _plain(read: Read) -> bool:
    """Whether ``read`` moves by multiples of axes alone."""
    return all(isinstance(atom, Axis) for _, atom in flat(read.tensor, read.indices).terms)


def _summed(read: Read, tile: Tile, walk: Walk, caches: Caches) -> Asked | None:
    """What the sum of a tile asks for."""
    if not _plain(read) or not _leaps(read, walk.around) or _far(read, walk, caches) < WORTH:
        return None
    moving, same = _moving(read, walk, caches)
    found = None if moving is None else _lines(read, tile, walk.around, moving)
    first = tuple(loop for loop in tile.loops if loop.axis in same and _tiles(tile, loop) > 1)
    return None if found is None else replace(found, first=first)


def _leaps(read: Read, around: Sequence[For]) -> bool:
    """Whether what a sum reads next may lie a page away."""
    form, width = flat(read.tensor, read.indices), BYTES[STORED[read.tensor.dtype]]
    back = 0
    for loop in reversed(around):
        step, trips = form.coefficient(loop.axis), length(loop) or 1
        if trips > 1 and abs(step - back) * width > LEAP:
            return True
        back += step * (trips - 1)
    return abs(back) * width < PAGE


def _far(read: Read, walk: Walk, caches: Caches) -> float:
    """The part of what a tile reads by ``read`` that lies beyond the second cache."""
    everywhere = {**walk.inside, **{loop.axis: loop.tiles * loop.step for loop in walk.over}}
    near = FAR_PART * caches.far
    if footprint(read, everywhere) <= near:
        return 0.0
    parts = sources(read, walk.reads, walk.inside, walk.over)
    far = sum(size for size, between in parts if between is None or between > near)
    return far / footprint(read, walk.inside)


def _moving(read: Read, walk: Walk, caches: Caches) -> tuple[Loop | None, frozenset[Axis]]:
    """The longest loop over tiles that moves ``read``, and those that come back to the same.

    Of all loops, a step of which leaves in the second cache what was read and asked for before.
    """
    longest: Loop | None = None
    same: set[Axis] = set()
    extents = dict(walk.inside)
    for loop in reversed(walk.over):
        if sum(footprint(each, extents) for each in walk.reads) > ROOM * caches.far:
            break
        if loop.axis not in read.free:
            same.add(loop.axis)
        elif loop.tiles > max(1, longest.tiles if longest else 1):
            longest = loop
        extents[loop.axis] = loop.tiles * loop.step
    return longest, frozenset(same)


def _lines(read: Read, tile: Tile, around: Sequence[For], moving: Loop) -> Asked | None:
    """What the innermost sum asks for that goes from one piece of ``read`` to the next."""
    form, width = flat(read.tensor, read.indices), BYTES[STORED[read.tensor.dtype]]
    ahead, line = form.coefficient(moving.axis) * moving.step, LINE // width
    places = _places(read, tile)
    work = prod(tile.counts.values())
    fixed: dict[Expr, Expr] = {}
    for loop in reversed(around):
        step, trips = form.coefficient(loop.axis), length(loop) or 1
        few = trips * min(abs(step), line) <= MOST * line
        wide = {place + step * trip for place in places for trip in range(trips if few else 0)}
        last = 0
        if _window(read, loop.axis, moving.axis) and abs(step) * (trips - 1) >= abs(ahead):
            # A window moves on by a place or less, so that only one end of it is new.
            last = trips - 1 if step * ahead > 0 else 0
        elif few and _number(wide, line) <= min(MOST, trips * _number(places, line) / SHARED):
            places = wide
        else:
            offsets = list(_offsets({place + ahead for place in places}, places, line))
            if len(offsets) * OPERATIONS > work:
                return None
            there = Read(read.tensor, tuple(substitute(index, fixed) for index in read.indices))
            return Asked(there, loop.axis, tuple(width * offset for offset in offsets))
        assert isinstance(loop.start, Const), "checked before"
        fixed[loop.axis] = Const(loop.start.value + last, "index")
        work *= trips
    return None


def _places(read: Read, tile: Tile) -> set[int]:
    """How far what one tile reads is from the first element of it."""
    form = flat(read.tensor, read.indices)
    axes = [loop.axis for loop in tile.loops if loop.axis in read.free]
    steps = ([form.coefficient(axis) * n for n in range(tile.step(axis))] for axis in axes)
    return {sum(place) for place in product(*steps)}


def _window(read: Read, axis: Axis, other: Axis) -> bool:
    """Whether both axes are steps along the same dimension of what is read."""
    return any({axis, other} <= index.free for index in read.indices)


def _runs(places: Collection[int], line: int) -> Iterator[tuple[int, int]]:
    """The first and the last of places that are less than a line apart."""
    first, *others = sorted(places)
    last = first
    for place in others:
        if place - last > line:
            yield first, last
            first = place
        last = place
    yield first, last


def _number(places: Collection[int], line: int) -> float:
    """How many lines ``places`` are on, wherever lines begin."""
    return sum(1 + (last - first) / line for first, last in _runs(places, line))


def _offsets(new: set[int], old: set[int], line: int) -> Iterator[int]:
    """Places on all lines of ``new``, except for those that also ``old`` is on."""
    if new <= old:
        return
    for first, last in _runs(new - old, line):
        # Where lines begin is not known: from an end that is new, and at the other one.
        if first - 1 in old:
            yield from range(last, first - 1, -line)
        else:
            yield from range(first, last, line)
            if last + 1 not in old:
                yield last
