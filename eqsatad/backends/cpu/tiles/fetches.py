"""Lines of memory that the sums of a train fetch for the copies around them.

A copy waits for memory all the time, a sum of products that finds its operands in the nearer caches
never, and a CPU does not look as far ahead as from one to the other. So the sums of a block of
rows fetch, a line now and then, what the copies behind them store, and what the copies before them
read of the next block; see `trains`. This is the software pipelining of memory (T. Mowry, M. Lam
and A. Gupta, "Design and evaluation of a compiler algorithm for prefetching", ASPLOS 1992), across
the steps of a program instead of the iterations of a loop. Lines go to the second cache, as many as
fit there beside what the sums read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.code.tilewriter import spread, tiles_along
from eqsatad.backends.cpu.rewrites.streams import size as whole
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.reuse import LINE
from eqsatad.backends.cpu.tiles.strips import tower
from eqsatad.backends.cpu.tiles.tile import Fetch, Fetches, Strips, Tile, length, widest
from eqsatad.backends.cpu.tiles.trains import Rows, accesses, block, place
from eqsatad.loops.nest import For, has_loop
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Apply, Axis, Const, Tensor
from eqsatad.terms.ops import ADD

# The part of the second cache that what is fetched for a block may fill, and the part of it from
# which on what copies touch is not there anyway.
ROOM = 0.25
LEFT = 0.5
# Products of vectors for each line that is fetched, at least.
PRODUCTS = 9


@dataclass(frozen=True)
class Carrier:
    """Sums ``over`` loops around each other, so many ``tiles`` of them for a block of rows.

    They are so many ``products`` of vectors. For ``around`` and ``cut`` see `Fetches`.
    """

    over: tuple[For, ...]
    tiles: int
    around: int
    products: int
    cut: Axis | None

    def fetches(self, parts: Sequence[Fetch]) -> Fetches:
        """``parts`` in the fewest of the loops that have a turn for each line."""
        lines = sum(part.size for part in parts) / (LINE * self.tiles)
        depth = 1
        while depth < len(self.over) and prod(map(_trips, self.over[:depth])) < lines:
            depth += 1
        return Fetches(self.over[:depth], self.tiles, self.around, tuple(parts), self.cut)


@dataclass(frozen=True)
class Touched:
    """A block of ``tensor``, of so many bytes, that is touched behind ``carriers``.

    With ``ahead``, before those of the next block.
    """

    tensor: Tensor
    size: int
    carriers: Mapping[int, Carrier]
    ahead: bool


def fetching(
    train: Sequence[tuple[Tile | None, Rows]], outside: Collection[Tensor], caches: Caches
) -> list[Tile | None]:
    """The tiles of a ``train``, the sums of which fetch what copies touch of ``outside``."""
    unit = block([rows for _, rows in train])
    carriers = {
        number: found
        for number, (tile, rows) in enumerate(train)
        if (found := _carrier(tile, rows, unit)) is not None
    }
    parts: dict[int, list[Fetch]] = {number: [] for number in carriers}
    room = int(ROOM * caches.far)
    if sum(whole(tensor) or 0 for tensor in outside) <= LEFT * caches.far:
        room = 0
    # What comes next is fetched before what comes after that.
    for touched in sorted(_copied(train, outside, unit, carriers), key=lambda each: each.ahead):
        size = min(room, touched.size)
        room -= size
        ahead = touched.size if touched.ahead else 0
        for number, (begin, end) in _divided(touched.carriers, size).items():
            fetch = Fetch(touched.tensor, touched.size, ahead + begin, end - begin)
            parts[number].append(fetch)
    return [
        replace(tile, fetches=carriers[number].fetches(parts[number]))
        if tile is not None and parts.get(number)
        else tile
        for number, (tile, _) in enumerate(train)
    ]


def _copied(
    train: Sequence[tuple[Tile | None, Rows]],
    outside: Collection[Tensor],
    unit: int,
    carriers: Mapping[int, Carrier],
) -> Iterator[Touched]:
    """What copies touch of ``outside`` before any other step of the ``train`` does."""
    seen = set[Tensor]()
    for number, (tile, rows) in enumerate(train):
        for tensor, row in _rows_of(tile, rows).items():
            if tensor in outside and tensor not in seen and row:
                earlier = {each: found for each, found in carriers.items() if each < number}
                yield Touched(tensor, unit * row, earlier or carriers, not earlier)
        seen |= {tensor for tensor, *_ in accesses(rows)}


def _carrier(tile: Tile | None, rows: Rows, unit: int) -> Carrier | None:
    """The step that ``tile`` runs, if it is one sum that may fetch."""
    if tile is None or not tile.lanes or sum(isinstance(each, For) for each in tile.body) != 1:
        return None
    strips, taps = tile.strips, None if tile.overlap is None else tile.overlap.tap
    special = (tile.inner, tile.slices, tile.block, tile.columns, tile.rolling)
    if any(special):
        return None
    tiles = [tiles_along(tile, loop) for loop in tile.order]
    known = [count.value for count in tiles if isinstance(count, Const)]
    wide = [each for loop in tower(tile.body) if (each := widest(loop)) is not None]
    if len(known) < len(tiles) or len(wide) < len(tower(tile.body)) or not all(map(_trips, wide)):
        return None
    around = prod(known)
    number = around if strips is not None else prod(known[spread(tile)[0] :])
    number *= unit // rows.unit * rows.turns
    sums = wide if strips is None else _in_strip(wide, strips)
    # Taps that are written out are one turn.
    over = tuple(loop for loop in sums if loop.axis is not taps)
    products = number * prod(tile.counts.values()) * prod(map(_trips, sums))
    cut = None if strips is None else strips.loops[-1].axis
    return Carrier(over, number, around, products, cut) if over else None


def _in_strip(loops: Sequence[For], strips: Strips) -> list[For]:
    """``loops`` of a sum as one strip runs them: those of which it takes one value are none."""
    *whole, cut = (loop.axis for loop in strips.loops)
    single = whole if strips.size > 1 else [*whole, cut]
    return [
        replace(loop, stop=normal(Apply(ADD, (loop.start, Const(strips.size, "index")))))
        if loop.axis is cut
        else loop
        for loop in loops
        if loop.axis not in single
    ]


def _trips(loop: For) -> int:
    return length(loop) or 0


def _rows_of(tile: Tile | None, rows: Rows) -> dict[Tensor, int]:
    """What a copy goes through row by row, and the bytes of a row of each."""
    if tile is None or has_loop(tile.body):
        return {}
    points = prod(map(_trips, tile.loops))
    found: dict[Tensor, list[int | None]] = {}
    for tensor, indices, _ in accesses(rows):
        at = place(indices, rows.axis)
        rest = tensor.shape if at is None else tensor.shape[at[0] + 1 :]
        known = [each.value for each in rest if isinstance(each, Const)]
        plain = at is not None and not at[1] and len(known) == len(rest)
        found.setdefault(tensor, []).append(prod(known) if plain else None)
    return {
        tensor: sizes[0] * BYTES[STORED[tensor.dtype]]
        for tensor, sizes in found.items()
        # Of what a copy hardly touches nothing is worth fetching.
        if sizes[0] and set(sizes) == {sizes[0]} and points * len(sizes) >= sizes[0] * rows.extent
    }


def _divided(carriers: Mapping[int, Carrier], size: int) -> dict[int, tuple[int, int]]:
    """The part of ``size`` bytes that each of ``carriers`` fetches, by its products."""
    total = sum(each.products for each in carriers.values())
    if not size or total * LINE < PRODUCTS * size:
        return {}
    found: dict[int, tuple[int, int]] = {}
    done = begin = 0
    for number, each in carriers.items():
        done += each.products
        end = size * done // total
        found[number] = begin, end
        begin = end
    return found
