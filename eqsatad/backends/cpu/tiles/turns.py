"""Copies that change which axis is contiguous, a square of vectors at a time.

Vectors are read along the axis that is contiguous in the source, turned in registers, and written
along the one that is contiguous in the target, so that no element moves alone. What is made of an
element is worked out before it is turned. Stores that fill the gaps of each other, one of which may
store a constant, are written together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, log2, prod

from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.memory import masked_store, shuffled
from eqsatad.backends.cpu.code.points import Point
from eqsatad.backends.cpu.code.scalars import BYTES, COMPUTED, STORED
from eqsatad.backends.cpu.code.text import Value, Writer, number
from eqsatad.backends.cpu.tiles.fusion import fused
from eqsatad.backends.cpu.tiles.tile import Tile, chain, length, most, pairs, stride
from eqsatad.loops.nest import For, Statement, Store
from eqsatad.terms.nodes import Apply, Const, Expr, Read

# Squares smaller than this are copied as they are.
LEAST = 4
# Bytes of a matrix all of which stays near while it is turned.
NEARBY = 1 << 17
# The largest distance of neighbours in the target, and what a vector costs besides its turning.
NEAR = 2
MOVED = 2


def turn(statement: Statement, vector: int, *, vectors: int | None = None) -> Tile | None:
    """The tile for ``statement`` if it is a copy across; its vectors are read along the lanes.

    With ``vectors``, loops of unknown length are taken to be long: for the fewer vectors, the
    smaller are the squares that the tile `needs` to fit.
    """
    loops, body = fused(*chain(statement))
    stores = [each for each in body if isinstance(each, Store)]
    values = [node for store in stores for node in _values(store.value)]
    reads = [node for node in values if isinstance(node, Read)]
    if not reads or len(stores) < len(body) or not _moved(values, stores):
        return None
    along, across = _contiguous(loops, reads, stores)
    if along is None or across is None or along is across:
        return None
    lanes = vector // BYTES[STORED[stores[0].buffer.dtype]]
    unknown = [loop for loop in (along, across) if length(loop) is None]
    side = 0 if not vectors or any(map(most, unknown)) else _side(vectors, lanes)
    extents = {loop: side if loop in unknown else length(loop) or 0 for loop in (along, across)}
    size = _square(extents[along], extents[across], lanes)
    if size < LEAST:
        return None
    counts = {along.axis: 1, across.axis: size}
    sure = frozenset(loop.axis for loop in unknown)
    order = _ordered(loops, (along, across), BYTES[STORED[stores[0].buffer.dtype]])
    return Tile(order, body, along.axis, size, False, counts, turned=across.axis, sure=sure)


def _ordered(loops: Sequence[For], sides: Sequence[For], width: int) -> tuple[For, ...]:
    """``loops`` with those of a matrix that is turned innermost, if it is small.

    Squares that overlap, and lines that several of them have a part in, are then still near.
    """
    if width * prod(length(side) or NEARBY for side in sides) > NEARBY:
        return tuple(loops)
    others = [loop for loop in loops if loop not in sides]
    return (*others, *(loop for loop in loops if loop in sides))


def _side(vectors: int, lanes: int) -> int:
    """The side of squares along loops of unknown length that may have so many ``vectors``."""
    return lanes if vectors > 1 else lanes // 2


def _values(root: Expr) -> Iterator[Expr]:
    """All that ``root`` is made of, without the places that are read."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, Read):
            stack.extend(node.children)


def _moved(values: Sequence[Expr], stores: Sequence[Store]) -> bool:
    """Whether ``stores`` are of ``values`` of their own kind, made of reads and numbers alone."""
    kinds = {store.buffer.dtype for store in stores} | {value.dtype for value in values}
    targets = {store.buffer for store in stores}
    return (
        len(kinds) == 1
        and all(STORED[kind] == COMPUTED[kind] for kind in kinds)
        and all(
            isinstance(value, Const | Apply)
            or (isinstance(value, Read) and value.tensor not in targets)
            for value in values
        )
    )


def _contiguous(
    loops: Sequence[For], reads: Sequence[Read], stores: Sequence[Store]
) -> tuple[For | None, For | None]:
    """The loops along which elements are neighbours where they are read, and where stored.

    Some are far from each other along the latter, and the others may be the same for a vector.
    """
    across = next(
        (loop for loop in loops if all(0 < (_step(store, loop) or 0) <= NEAR for store in stores)),
        None,
    )
    if across is None:
        return None, None
    turned = [read for read in reads if across.axis in read.free and _step(read, across) != 1]
    along = (
        loop
        for loop in loops
        if any(_step(read, loop) == 1 for read in turned)
        and all(_step(read, loop) in (0, 1) for read in reads)
    )
    return next(along, None), across


def _step(access: Read | Store, loop: For) -> int | None:
    tensor = access.tensor if isinstance(access, Read) else access.buffer
    return stride(tensor, access.indices, loop.axis)


def _square(along: int, across: int, lanes: int) -> int:
    """The side of the squares that take the fewest instructions; 0 if there are none."""
    sizes = [LEAST << n for n in range(lanes.bit_length()) if LEAST << n <= lanes]
    if min(along, across) < LEAST or not sizes:
        return 0

    def cost(size: int) -> float:
        return ceil(along / size) * ceil(across / size) * size * (MOVED + log2(size))

    return min(sizes, key=cost)


class Turned:
    """Writes a tile that `turn` has made, at the points of its rows."""

    def __init__(self, w: Writer, expressions: Expressions, tile: Tile) -> None:
        assert tile.turned is not None, "made by `turn`"
        assert tile.lane is not None, "made by `turn`"
        self.w = w
        self.expressions = expressions
        self.body = tile.body
        self.along, self.across = tile.lane, tile.turned
        self.size, self.claimed = tile.lanes, tile.claimed
        # A tile is only run where loops of unknown length are as long.
        extents = {loop.axis: length(loop) for loop in tile.loops}
        sides = (extents[axis] for axis in (self.along, self.across))
        self.columns, self.rows = (
            self.size if side is None else min(self.size, side) for side in sides
        )

    def write(self, points: Sequence[Point]) -> None:
        stores = [each for each in self.body if isinstance(each, Store)]
        couples = pairs(stores, self.across)
        paired = {store for couple in couples for store in couple}
        for even, odd in couples:
            with self.expressions.scope():
                self._store(even, self._values(even, points), self._values(odd, points), points[0])
        for store in stores:
            if store not in paired:
                with self.expressions.scope():
                    self._store(store, self._values(store, points), None, points[0])

    def _values(self, store: Store, points: Sequence[Point]) -> list[Value]:
        """A vector along the target for each place along the source."""
        # Rows beyond the end are never stored; any other row does in their place.
        rows = [self.expressions.value(store.value, point) for point in points[: self.rows]]
        if not rows[0].lanes:
            return [self.w.wide(rows[0], self.size)] * self.columns
        return transposed(self.w, [*rows, *rows[-1:] * (self.size - len(rows))])[: self.columns]

    def _store(
        self, store: Store, even: Sequence[Value], odd: Sequence[Value] | None, point: Point
    ) -> None:
        """The vectors ``even``, with those of ``odd`` or with gaps between their lanes."""
        for delta, vector in enumerate(even):
            at = self.expressions.address(store.buffer, store.indices, self._place(point, delta))
            if at.stride == 1:
                self._claim(at.base)
                self._whole(vector, at.base, [lane < self.rows for lane in range(self.size)])
                continue
            other = vector if odd is None else odd[delta]
            for half in (0, 1):
                lanes = range(half * self.size // 2, (half + 1) * self.size // 2)
                mixed = shuffled(
                    self.w,
                    vector,
                    other,
                    [each for lane in lanes for each in (lane, lane + self.size)],
                )
                there = [
                    lane < self.rows and (side == 0 or odd is not None)
                    for lane in lanes
                    for side in (0, 1)
                ]
                base = self.w.address(
                    at.base, vector.kind, number(half * self.size, "i64"), inside=False
                )
                self._whole(mixed, base, there)

    def _claim(self, address: str) -> None:
        """Asks for the line that is stored to a little later."""
        if self.claimed:
            further = self.w.address(address, "i8", number(self.claimed, "i64"), inside=False)
            self.w.prefetch(further, write=True)

    def _place(self, point: Point, delta: int) -> Point:
        """The first of the elements that are stored together."""
        axes = dict(point.axes)
        axes[self.across] = replace(axes[self.across], lane=1, delta=0)
        axes[self.along] = replace(axes[self.along], lane=0, delta=delta)
        return Point(axes, point.lanes)

    def _whole(self, vector: Value, address: str, there: Sequence[bool]) -> None:
        """A store of the lanes that are ``there``."""
        if all(there):
            self.w.store(vector, address, BYTES[vector.kind])
        elif any(there):
            bits = ", ".join(f"i1 {'true' if each else 'false'}" for each in there)
            masked_store(self.w, vector, address, Value(f"<{bits}>", "i1", len(there)))


def transposed(w: Writer, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square of vectors: blocks off the diagonal swapped, small to large."""
    square = list(rows)
    size = len(square)
    distance = 1
    while distance < size:
        upper = [lane if not lane & distance else lane - distance + size for lane in range(size)]
        lower = [lane + distance if not lane & distance else lane + size for lane in range(size)]
        for row in range(size):
            if not row & distance:
                a, b = square[row], square[row + distance]
                square[row] = shuffled(w, a, b, upper)
                square[row + distance] = shuffled(w, a, b, lower)
        distance *= 2
    return square
