"""Sums whose innermost loop runs along the lanes of vectors, at all points of a tile.

Each lane has a partial sum of its own; they are added up at the end. Where the points of a tile
take different parts of a loop, and these are known, the loop is cut where a point begins or ends,
and along lanes only vectors at the ends are under masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eqsatad.backends.cpu.code.known import range_of, segments
from eqsatad.backends.cpu.code.points import Local, Place, Point
from eqsatad.backends.cpu.code.scalars import BYTES, COMPUTED, STORED
from eqsatad.backends.cpu.code.text import Value, number
from eqsatad.backends.cpu.tiles.reuse import LINE
from eqsatad.backends.cpu.tiles.tile import added
from eqsatad.loops.nest import Assign, Block, For, Statement, expressions_of, statements
from eqsatad.terms.nodes import Apply, Axis, Expr, Read, Var
from eqsatad.terms.ops import ADD
from eqsatad.terms.walk import postorder

if TYPE_CHECKING:
    from eqsatad.backends.cpu.code.statements import Statements

# Turns of a loop around vectors that run together where points of a tile share what they read.
TOGETHER = 2
# Bytes from a row to the one that is asked for ahead of it.
AHEAD = 2048
# A point, and the part of a loop that it takes.
Part = tuple[Point, tuple[int, int]]


def along(to: Statements, block: Block, lane: Axis, lanes: int, points: Sequence[Point]) -> None:
    """``block`` at ``points``, with the innermost loops over ``lane`` a vector at a time."""
    for statement in block:
        sums = [
            each.var
            for loop in statements((statement,))
            if isinstance(loop, For) and loop.axis is lane
            for each in loop.body
            if isinstance(each, Assign)
        ]
        if sums:
            partial = {var: Var(f"{var.name}.lanes", var.dtype) for var in sums}
            LaneSums(to, lane, lanes, partial).write(statement, points)
        else:
            to.block((statement,), points)


@dataclass(frozen=True)
class LaneSums:
    """Writes sums along ``lane``; ``partial`` are the locals with a sum for each lane."""

    to: Statements
    lane: Axis
    lanes: int
    partial: dict[Var, Var]

    def write(self, statement: Statement, points: Sequence[Point]) -> None:
        """The loops of ``statement``, and the sums of all lanes after it."""
        expressions = self.to.expressions
        for var in self.partial.values():
            kind = COMPUTED[var.dtype]
            expressions.locals[var] = Local(kind, self.lanes, tuple(points[0].axes))
            for point in points:
                expressions.assign(var, number(0, kind), point)
        self._inside(statement, points)
        for var, lanes in self.partial.items():
            for point in points:
                with expressions.scope():
                    before = expressions.value(var, point)
                    vector = expressions.value(lanes, point)
                    expressions.assign(var, self.to.w.add_up(before, vector), point)

    def _inside(self, statement: Statement, points: Sequence[Point]) -> None:
        assert isinstance(statement, For), "a loop over lanes is inside loops only"
        ranges = [range_of(statement, point).exact for point in points]
        parts = [(p, part) for p, part in zip(points, ranges, strict=True) if part is not None]
        if len(parts) == len(points) and len(dict.fromkeys(ranges)) > 1:
            self._apart(statement, parts)
            return
        start, stop = (self._same(bound, points) for bound in (statement.start, statement.stop))
        if statement.axis is self.lane:
            self._vectors(statement, (start, stop), points)
            return
        with self.to.w.loop(start, stop) as index, self.to.expressions.scope():
            self._body(statement, [point.at(statement.axis, Place(index)) for point in points])

    def _body(self, loop: For, points: Sequence[Point]) -> None:
        for each in loop.body:
            with self.to.expressions.scope():
                if isinstance(each, For):
                    self._inside(each, points)
                else:
                    self.to.statement(each, points)

    def _same(self, expr: Expr, points: Sequence[Point]) -> Value:
        """A value that all points of the tile agree on."""
        (value,) = {self.to.expressions.value(expr, point) for point in points}
        assert not value.lanes, "lanes agree as well"
        return value

    def _apart(self, loop: For, parts: Sequence[Part]) -> None:
        """A loop of which each point takes a part, piece by piece."""
        if loop.axis is self.lane:
            self._windows(loop, parts)
            return
        for low, high, inside in segments([part for _, part in parts]):
            chosen = [parts[place][0] for place in inside]
            whole = high - (high - low) % TOGETHER
            self._turns(loop, (low, whole), TOGETHER, chosen)
            self._turns(loop, (whole, high), 1, chosen)

    def _turns(
        self, loop: For, span: tuple[int, int], together: int, points: Sequence[Point]
    ) -> None:
        """The values of ``span``, so many together."""
        if span[0] == span[1]:
            return
        start, stop = (number(bound, "i64") for bound in span)
        with self.to.w.loop(start, stop, together) as index, self.to.expressions.scope():
            places = [Place(index, turn) for turn in range(together)]
            for at in places:
                self._ahead(loop.body, points[-1].at(loop.axis, at))
            self._body(loop, [point.at(loop.axis, at) for at in places for point in points])

    def _ahead(self, body: Block, point: Point) -> None:
        """Asks for what a loop along lanes reads some turns later, for one point of those beside.

        Rows of an image are too short for memory to be fetched ahead by itself.
        """
        match body:
            case (For(axis, body=inner) as loop,) if axis is self.lane:
                part = range_of(loop, point).exact
            case _:
                return
        if part is None:
            return
        roots = [expr for each in statements(inner) for expr in expressions_of(each)]
        reads = {n.tensor: n for n in postorder(*roots) if isinstance(n, Read) and axis in n.free}
        first = point.at(axis, Place(number(part[0], "i64")))
        for read in reads.values():
            size = BYTES[STORED[read.tensor.dtype]]
            base = self.to.expressions.address(read.tensor, read.indices, first).base
            for place in range(AHEAD, AHEAD + (part[1] - part[0]) * size, LINE):
                to = self.to.w.address(base, "i8", number(place, "i64"), inside=False)
                self.to.w.prefetch(to)

    def _windows(self, loop: For, parts: Sequence[Part]) -> None:
        """A loop along lanes of which each point takes a part."""
        spans = [part for _, part in parts]
        first, last = min(low for low, _ in spans), max(high for _, high in spans)
        # What lies between is in the parts of all points.
        low, high = max(low for low, _ in spans), min(high for _, high in spans)
        begin = min(last, first + -(-(low - first) // self.lanes) * self.lanes)
        end = max(begin, begin + (high - begin) // self.lanes * self.lanes)
        start, stop = number(begin, "i64"), number(end, "i64")
        with self.to.w.loop(start, stop, self.lanes) as index, self.to.expressions.scope():
            self._sums(loop, [self._at(loop, point, index) for point, _ in parts])
        for place in (*range(first, begin, self.lanes), *range(end, last, self.lanes)):
            with self.to.expressions.scope():
                self._sums(loop, [
                    _between(self._at(loop, point, number(place, "i64")), place, part)
                    for point, part in parts
                    if place < part[1] and place + self.lanes > part[0]
                ])  # fmt: skip

    def _vectors(self, loop: For, bounds: tuple[Value, Value], points: Sequence[Point]) -> None:
        """The loop by whole vectors, and what is left under a mask."""
        w, lanes = self.to.w, self.lanes
        start, stop = bounds
        count = w.intrinsic("smax", w.two("sub nsw", stop, start), number(0, "i64"))
        rest = w.two("and", count, number(lanes - 1, "i64"))
        whole = w.two("sub nsw", w.two("add nsw", start, count), rest)
        with w.loop(start, whole, lanes) as index, self.to.expressions.scope():
            self._sums(loop, [self._at(loop, point, index) for point in points])
        left = w.compare("icmp sgt", rest, number(0, "i64"))
        with w.when(left), self.to.expressions.scope():
            mask = w.compare("icmp ult", w.counting(lanes), rest)
            inner = [self._at(loop, point, whole) for point in points]
            self._sums(loop, [replace(point, mask=mask, tail=mask) for point in inner])

    def _at(self, loop: For, point: Point, start: Value) -> Point:
        """``point`` with a vector along ``loop`` that begins at ``start``."""
        return point.at(loop.axis, Place(start, lane=1)).by(self.lanes)

    def _sums(self, loop: For, points: Sequence[Point]) -> None:
        """What one vector along ``loop`` adds at ``points``."""
        for statement in loop.body:
            assert isinstance(statement, Assign), "only sums are run along lanes"
            value = added(statement)
            assert value is not None, "only sums are run along lanes"
            var = self.partial[statement.var]
            with self.to.expressions.scope():
                for point in points:
                    total = self.to.assigned(var, Apply(ADD, (var, value)), point)
                    self.to.expressions.assign(var, total, point)


def _between(point: Point, start: int, part: tuple[int, int]) -> Point:
    """``point``, whose lanes begin at ``start``, where only those within ``part`` count."""
    inside = [part[0] <= place < part[1] for place in range(start, start + point.lanes)]
    if all(inside):
        return point
    lanes = ", ".join(f"i1 {str(each).lower()}" for each in inside)
    mask = Value(f"<{lanes}>", "i1", point.lanes)
    return replace(point, mask=mask, tail=mask)
