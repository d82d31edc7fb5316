"""Where the operands of a tile come from: how many bytes it walks through, and out of which cache.

A tile reads some lines of memory while its sums run. The next tile along a loop that does not tell
them apart reads them again, and finds them in the cache that holds all that was read in between;
where the loop tells some of them apart, some are found. Nothing is known of sets, of lines that
are fetched ahead, or of other cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd, prod

from eqsatad.backends.access import flat
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.rewrites.streams import open_ended
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.tile import length, typical, widest
from eqsatad.loops.nest import Block, For, reads_of, statements
from eqsatad.terms.nodes import Axis, Read, Size, Tensor
from eqsatad.terms.walk import postorder

# Bytes of a cache line.
LINE = 64
# The part of each cache that what is read again may fill: the rest holds what is read once or is
# fetched ahead, and lines of one set push each other out.
NEAR_PART = 0.5
FAR_PART = 0.25
CROWDED_PART = 0.6
# Bytes a cycle that the nearest cache is given by the one behind it, and by all beyond that.
FAR_SPEED = 40.0
CROWDED_SPEED = 24.0
BEYOND_SPEED = 16.0
# Lines in a row from which on others beyond are fetched ahead at that speed; of a sole line a bit
# over a third of it is left.
AHEAD = 8
SOLE = 3
# Bytes after which lines belong to the same set of the nearest cache, and lines in a set.
SETS = 4096
WAYS = 8

# What a size is taken for in a stride: few strides are powers of two.
STRIDE = 72

Extents = Mapping[Axis, float]


@dataclass(frozen=True)
class Loop:
    """A loop over tiles: ``tiles`` times ``step`` values of ``axis``."""

    axis: Axis
    tiles: float
    step: int


def traffic(reads: Sequence[Read], inside: Extents, loops: Sequence[Loop], caches: Caches) -> float:
    """Cycles that one tile waits for lines, were nothing else to be done.

    ``inside`` is how many values of each axis a tile takes, ``loops`` are those over tiles from
    the outermost.
    """
    everywhere = {**inside, **{loop.axis: loop.tiles * loop.step for loop in loops}}
    total = 0.0
    for read in reads:
        # Small arrays are near after a while, however they are walked through.
        large = footprint(read, everywhere) > caches.far or open_ended(read.tensor)
        piece = _pieces(read, inside)[0] if large else AHEAD * LINE
        for size, between in sources(read, reads, inside, loops):
            total += size / speed(between, caches, piece)
    return total


def sources(
    read: Read, reads: Sequence[Read], inside: Extents, loops: Sequence[Loop]
) -> Iterator[tuple[float, float | None]]:
    """The bytes that a tile reads by ``read``, and what is touched since they were read before.

    In parts, the nearest first; None says that nothing has read them before.
    """
    extents = dict(inside)
    before = left = footprint(read, extents)
    for loop in reversed(loops):
        if loop.tiles <= 1:
            continue
        wide = {**extents, loop.axis: loop.tiles * loop.step}
        after = footprint(read, wide)
        fresh = min(1.0, after / (loop.tiles * before))
        if fresh < 1:
            yield left * (1 - fresh), sum(room(each, extents) for each in reads)
        left *= fresh
        extents, before = wide, after
    yield left, None


def speed(between: float | None, caches: Caches, piece: float) -> float:
    """Bytes a cycle of what is read again after ``between`` bytes, in pieces of ``piece`` bytes."""
    steps = (
        (NEAR_PART * caches.near, float("inf")),
        (FAR_PART * caches.far, FAR_SPEED),
        (CROWDED_PART * caches.far, CROWDED_SPEED),
    )
    near = (speed for room, speed in steps if between is not None and between <= room)
    return next(near, BEYOND_SPEED * min(1.0, (piece / LINE + SOLE) / (AHEAD + SOLE)))


def refetched(read: Read, rows: Mapping[Axis, int]) -> float:
    """Cycles in which lines come again that ``rows`` of a tile push out of the nearest cache.

    Lines so many bytes apart that they belong to one set of it leave each other little room.
    """
    lines = 1
    for step, axes in steps(read):
        together = 1 + sum(prod(rows.get(axis, 1) for axis in each) - 1 for each in axes)
        if step % LINE == 0:
            lines *= -(-together // (SETS // gcd(step, SETS)))
    return 0.0 if lines <= WAYS else lines * LINE / FAR_SPEED


def footprint(read: Read, extents: Extents) -> float:
    """The bytes of the lines that ``read`` touches where its axes take so many values."""
    piece, pieces = _pieces(read, extents)
    return piece * pieces


def read_once(block: Block) -> float:
    """The bytes of all lines that ``block`` reads, were each to be read once; 0 if that is unknown.

    Of reads of one tensor that which touches most counts.
    """
    loops = [each for each in statements(block) if isinstance(each, For)]
    if any(length(loop) is None and widest(loop) is None for loop in loops):
        return 0.0
    extents = {loop.axis: typical(loop) for loop in loops}
    sizes: dict[Tensor, float] = {}
    for read in reads_of(block):
        sizes[read.tensor] = max(sizes.get(read.tensor, 0.0), footprint(read, extents))
    return sum(sizes.values())


def room(read: Read, extents: Extents) -> float:
    """The bytes of a cache that the lines which ``read`` touches need to stay in it.

    More than their `footprint` where all pieces begin at multiples of a step that `SETS` is a
    multiple of: the sets in between stay free.
    """
    piece, pieces = _pieces(read, extents)
    if pieces <= 1:
        return piece
    apart = [step for step, axes in steps(read) if step > piece and _count(axes, extents) > 1]
    return piece * pieces * max(1.0, gcd(SETS, *apart) / piece)


def _pieces(read: Read, extents: Extents) -> tuple[float, float]:
    """The bytes of the whole lines that lie in a row, and how often there are so many."""
    piece, pieces = float(BYTES[STORED[read.tensor.dtype]]), 1.0
    for step, axes in steps(read):
        count = _count(axes, extents)
        if count <= 1:
            continue
        if step <= max(piece, LINE):
            piece += step * (count - 1)
        else:
            pieces *= count
    return LINE * ceil(piece / LINE), pieces


def _count(axes: Sequence[frozenset[Axis]], extents: Extents) -> float:
    """How many places axes of one stride lead to: a window of k over n places touches n + k - 1."""
    return 1 + sum(prod(extents.get(axis, 1) for axis in each) - 1 for each in axes)


@lru_cache(maxsize=65536)
def steps(read: Read) -> tuple[tuple[int, tuple[frozenset[Axis], ...]], ...]:
    """How many bytes apart the elements along groups of axes are, the nearest first."""
    width = BYTES[STORED[read.tensor.dtype]]
    found: dict[int, list[frozenset[Axis]]] = {}
    unknown: dict[frozenset[Axis], int] = {}
    for coef, atom in flat(read.tensor, read.indices).terms:
        axes = atom.free
        if axes and (sizes := sum(isinstance(node, Size) for node in postorder(atom))):
            unknown[axes] = unknown.get(axes, 0) + coef * width * STRIDE**sizes
        elif axes:
            found.setdefault(abs(coef) * width, []).append(axes)
    for axes, step in unknown.items():
        found.setdefault(abs(step), []).append(axes)
    return tuple((step, tuple(found[step])) for step in sorted(found))
