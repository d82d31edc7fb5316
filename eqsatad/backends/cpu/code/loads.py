"""Loads of elements and of vectors, whose lanes may lie in a row, apart, or in any order.

A vector is loaded whole where its lanes lie in a row. Lanes that are a few elements apart are
picked out of whole vectors; lanes that repeat or move unevenly are permuted out of a few, see
`windows`. All others are gathered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eqsatad.backends.access import flat, safe_read
from eqsatad.backends.cpu.code import memory
from eqsatad.backends.cpu.code.points import Point
from eqsatad.backends.cpu.code.scalars import BYTES, STORED, widened
from eqsatad.backends.cpu.code.text import Value, number
from eqsatad.backends.cpu.tiles.windows import Window, inside, window
from eqsatad.terms.linear import expression, normal
from eqsatad.terms.nodes import Apply, Axis, Const, Read
from eqsatad.terms.ops import FLOORDIV
from eqsatad.terms.walk import substitute

if TYPE_CHECKING:
    from eqsatad.backends.cpu.code.expressions import Expressions

# The largest stride at which a vector is picked out of contiguous ones.
PICKED = 4
# The bytes of a vector whose lanes one instruction permutes.
PERMUTES = 64


class Loads:
    """Writes what expressions read."""

    def __init__(self, to: Expressions) -> None:
        self.w = to.w
        self.to = to

    def load(self, read: Read, point: Point) -> Value:
        """The element, or one per lane, as it is computed with."""
        dtype = read.tensor.dtype
        kind = STORED[dtype]
        if (at_hand := self.to.loaded.get(read)) is not None:
            return widened(self.w, at_hand, dtype)
        if (quotient := self._repeats(read, point)) is not None:
            return widened(self.w, self._repeated(read, quotient, point), dtype)
        if (found := self._window(read, point)) is not None:
            return widened(self.w, self._permuted(read, found, point), dtype)
        at = self.to.address(read.tensor, read.indices, point)
        safe = point.mask is None or safe_read(read)
        whole = point.mask is None or (safe and point.tail is None)
        # The first lane is inside of the lane axis, so it reads what all lanes share.
        some = safe or not point.lanes or point.mask is point.tail
        if not at.stride and at.offsets is None and some:
            raw = self.w.load(kind, 0, at.base, BYTES[kind])
        elif at.stride == 1 and at.offsets is None:
            spare = read.tensor in self.to.roomy and point.mask is point.tail
            if whole or spare:
                raw = self.w.load(kind, point.lanes, at.base, BYTES[kind])
            else:
                raw = memory.masked(self.w, dtype, point.lanes, at.base, point.on)
        elif whole and at.offsets is None and 1 < at.stride <= PICKED:
            raw = memory.picked(self.w, dtype, point.lanes, at.base, at.stride)
        else:
            offsets = at.offsets or self.w.counting(point.lanes, at.stride)
            raw = memory.gather(self.w, dtype, at.base, offsets, point.on)
        return widened(self.w, raw, dtype)

    def _repeats(self, read: Read, point: Point) -> Apply | None:
        """The quotient that moves ``read`` on every few lanes, if a vector can be permuted."""
        size = point.lanes * BYTES[STORED[read.tensor.dtype]]
        if point.mask is not None or not size == self.w.module.vector == PERMUTES:
            return None
        steps = {axis: place.lane for axis, place in point.axes.items() if place.lane}
        return repeating(read, *steps) if list(steps.values()) == [1] else None

    def _repeated(self, read: Read, quotient: Apply, point: Point) -> Value:
        axis, times = quotient.args
        assert isinstance(axis, Axis), "found by `repeating`"
        assert isinstance(times, Const), "found by `repeating`"
        dtype, nothing = read.tensor.dtype, {quotient: Const(0, "index")}
        indices = tuple(substitute(normal(index), nothing) for index in read.indices)
        start = self.to.axis(replace(point.axes[axis], lane=0), point)
        gone, before = (
            self.w.two(code, start, number(times.value, "i64")) for code in ("udiv", "urem")
        )
        base = self.to.address(read.tensor, indices, point).base
        base = self.w.address(base, STORED[dtype], gone)
        return memory.repeated(self.w, dtype, point.lanes, base, before, times.value)

    def _window(self, read: Read, point: Point) -> Window | None:
        """The window of vectors that ``read`` is in, if these can be permuted."""
        size = BYTES[STORED[read.tensor.dtype]]
        if size not in memory.PERMUTED or size * point.lanes != PERMUTES:
            return None
        steps = {axis: place.lane for axis, place in point.axes.items() if place.lane}
        if self.w.module.vector != PERMUTES or list(steps.values()) != [1]:
            return None
        (lane,) = steps
        found = window(read, lane, point.lanes)
        if found is None or point.mask is None or point.mask is not point.tail:
            return found
        # Loops that were joined may leave a row, also in the lanes that count.
        return found if inside(found.place, found.extent - 1) else None

    def _permuted(self, read: Read, found: Window, point: Point) -> Value:
        """The lanes of ``read`` out of vectors that lie inside of its row."""
        kind, lanes = STORED[read.tensor.dtype], point.lanes
        start, chosen = self._chosen(found, memory.PERMUTED[BYTES[kind]][1], point)
        base = self.w.address(self._row(read, found, point), kind, start)
        size, vectors = BYTES[kind], []
        for place in found.places(lanes):
            here = self.w.address(base, kind, number(place, "i64"))
            if found.extent >= lanes or read.tensor in self.to.roomy:
                vectors.append(self.w.load(kind, lanes, here, size))
            else:
                there = ", ".join(f"i1 {str(n < found.extent).lower()}" for n in range(lanes))
                mask = Value(f"<{there}>", "i1", lanes)
                vectors.append(memory.masked(self.w, read.tensor.dtype, lanes, here, mask))
        return memory.permuted(self.w, vectors, chosen)

    def _row(self, read: Read, found: Window, point: Point) -> str:
        """Where the row of a window begins; some row, if no lane counts that would be in it."""
        if found.safe or point.mask is None:
            return self.to.at(read.tensor, found.row, point).base
        last = number(found.last, "i64")
        offset = self.w.intrinsic("smin", self.to.value(expression(found.row), point), last)
        offset = self.w.intrinsic("smax", offset, number(0, "i64"))
        return self.w.address(self.to.buffers[read.tensor], STORED[read.tensor.dtype], offset)

    def _chosen(self, found: Window, integer: str, point: Point) -> tuple[Value, Value]:
        """Where the window starts in its row, and where each lane is in its vectors."""
        lanes, places = point.lanes, self.to.value(found.place, point)
        if found.start(lanes):
            last = number(found.start(lanes), "i64")
            first = self.w.intrinsic("smin", self.w.lane(places, 0), last)
            start = self.w.intrinsic("smax", first, number(0, "i64"))
        else:
            start = number(0, "i64")
        chosen = self.w.convert("trunc", self.w.two("sub nsw", places, start), integer)
        *_, last_place = found.places(lanes)
        before = (found.vectors(lanes) - 1) * lanes
        if last_place < before:
            # The last vector ends with the row, so it begins with what the one before it has, too.
            moved = self.w.two("add", chosen, number(before - last_place, integer))
            behind = self.w.compare("icmp sge", chosen, number(before, integer))
            chosen = self.w.select(behind, moved, chosen)
        return start, chosen


def repeating(read: Read, lane: Axis) -> Apply | None:
    """The quotient of ``lane`` that ``read`` moves on with, if its vectors are permuted ones."""
    if BYTES[STORED[read.tensor.dtype]] not in memory.PERMUTED:
        return None
    terms = [term for term in flat(read.tensor, read.indices).terms if lane in term[1].free]
    match terms:
        case [(1, Apply(op, (axis, Const(times))) as quotient)] if op is FLOORDIV and axis is lane:
            return quotient if times > 1 else None
    return None
