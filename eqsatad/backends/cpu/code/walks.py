"""Loops that are run a vector of neighbours at a time: stores, sums and extrema.

What is left over at the end is under a mask. A sum or an extremum is made in the lanes of several
vectors, so that one addition need not wait for the last, and put together at the end; between
functions there is enough else to do. Loops are marked by a schedule, or by `passes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from typing import TYPE_CHECKING

from eqsatad.backends.access import flat
from eqsatad.backends.cpu.code import shifted
from eqsatad.backends.cpu.code.points import Local, Place, Point
from eqsatad.backends.cpu.code.scalars import BYTES, COMPUTED, STORED, operation
from eqsatad.backends.cpu.code.shifted import Row
from eqsatad.backends.cpu.code.text import Value, number
from eqsatad.backends.cpu.rewrites.streams import far, open_ended
from eqsatad.backends.cpu.tiles.effort import COSTS, OPERATION
from eqsatad.backends.cpu.tiles.tile import length
from eqsatad.loops.nest import Assign, Block, For, Store, nodes_of, reads_of, replaced
from eqsatad.terms.nodes import FLOATS, Apply, Axis, Expr, Read, Tensor, Var
from eqsatad.terms.ops import ADD, MAX, MIN, Op
from eqsatad.terms.walk import postorder

if TYPE_CHECKING:
    from eqsatad.backends.cpu.code.statements import Statements

# What is made lane by lane: what it starts from, and how LLVM calls it over all lanes.
REDUCED: dict[Op, tuple[float, str]] = {
    ADD: (0.0, "fadd"), MAX: (-inf, "fmaximum"), MIN: (inf, "fminimum"),
}  # fmt: skip
# Vectors that run together: of a sum, and at most of a short loop.
TOGETHER = 4
MOST = 4
# Bytes from what is read to what is asked for beside stores past the caches.
AHEAD = 1 << 14


def combined(statement: Assign) -> Op | None:
    """By which operation ``statement`` combines its float local with a value, if it does that."""
    match statement:
        case Assign(var, Apply(op, (left, right))) if left is var and op in REDUCED:
            return op if var.dtype in FLOATS and var not in postorder(right) else None
    return None


@dataclass(frozen=True)
class Partial:
    """A local, and the one that has a value for each lane."""

    var: Var
    op: Op

    @property
    def lanes(self) -> Var:
        return Var(f"{self.var.name}.lanes", self.var.dtype)


def furthest(block: Block, lane: Axis) -> Iterator[Read]:
    """Of the reads of large tensors that move along ``lane`` together, the last one of each."""
    found: dict[tuple[Tensor, tuple[tuple[int, Expr], ...]], tuple[int, int, Read]] = {}
    for read in reads_of(block):
        form = flat(read.tensor, read.indices)
        moving = tuple(term for term in form.terms if term[1].free)
        # What moves along the rows as well is as large as a result of unknown extents.
        wide = far(read.tensor) or (open_ended(read.tensor) and len(moving) > 1)
        if form.coefficient(lane) == 1 and wide:
            key = read.tensor, moving
            rows = sum(coefficient for coefficient, atom in form.terms if not atom.free)
            place = rows, form.const, read
            if key not in found or found[key][:2] < place[:2]:
                found[key] = place
    return (read for _, _, read in found.values())


class Walk:
    """Writes one loop by vectors of ``lanes``."""

    def __init__(self, to: Statements, loop: For, lanes: int, points: Sequence[Point]) -> None:
        self.w = to.w
        self.to = to
        self.loop = loop
        self.lanes = lanes
        self.points = points
        self.together = self._together()
        sums = () if loop.parallel else loop.body
        ops = {each.var: combined(each) for each in sums if isinstance(each, Assign)}
        self.partial = [Partial(var, op) for var, op in ops.items() if op is not None]

    def write(self, start: Value, stop: Value) -> None:
        """The loop from ``start`` to ``stop``."""
        locals_: dict[Expr, Expr] = {each.var: each.lanes for each in self.partial}
        body = replaced(self.loop.body, locals_)
        for each in self.partial:
            self._begin(each)
        rest = self.w.intrinsic("smax", self.w.two("sub nsw", stop, start), number(0, "i64"))
        whole, rows = self._lined_up(body)
        if whole is not None:
            start, rest = self._head(body, start, rest, whole)
            if whole.buffer in self.to.expressions.large:
                self.to.expressions.streamed = whole.buffer
        if rows:
            start, rest = self._shifted(body, start, rest, rows)
        for together in dict.fromkeys((self.together, 1)):
            start, rest = self._whole(body, start, rest, together)
        self.to.expressions.streamed = None
        if whole is not None or (length(self.loop) or 1) % self.lanes:
            self._left(body, start, rest)
        for each in self.partial:
            self._end(each)

    def _together(self) -> int:
        extent = length(self.loop)
        if self.loop.parallel:
            short = extent and extent % self.lanes == 0 and extent <= MOST * self.lanes
            return extent // self.lanes if extent and short else 1
        nodes = nodes_of(self.loop.body)
        calls = (isinstance(node, Apply) and COSTS.get(node.op, 0) > OPERATION for node in nodes)
        return 1 if any(calls) else TOGETHER

    def _whole(self, body: Block, start: Value, count: Value, together: int) -> tuple[Value, Value]:
        """The loop by ``together`` whole vectors; where it stopped, and how many are left."""
        rest = self.w.two("urem", count, number(self.lanes * together, "i64"))
        stop = self.w.two("sub nsw", self.w.two("add nsw", start, count), rest)
        with self.w.loop(start, stop, self.lanes * together) as index, self.to.expressions.scope():
            places = [Place(index, self.lanes * turn, lane=True) for turn in range(together)]
            self._ahead(body, self.points[0].at(self.loop.axis, places[0]))
            self.to.block(body, [
                point.at(self.loop.axis, place).by(self.lanes)
                for point in self.points
                for place in places
            ])  # fmt: skip
        return stop, rest

    def _shifted(
        self, body: Block, start: Value, count: Value, rows: Sequence[Row]
    ) -> tuple[Value, Value]:
        """The loop by whole vectors that are shifted together, as far as all they need is there."""
        w, lanes = self.w, self.lanes
        early, late = (any(row.early for row in rows), any(row.late for row in rows))
        inside = w.two("sub nsw", count, number((early + late) * lanes, "i64"))
        inside = w.intrinsic("smax", inside, number(0, "i64"))
        inside = w.two("sub nsw", inside, w.two("urem", inside, number(lanes, "i64")))
        some = w.compare("icmp sgt", inside, number(0, "i64"))
        lead = w.select(some, number(early * lanes, "i64"), number(0, "i64"))
        begin, _ = self._whole(body, start, lead, 1)
        slots = [[w.slot(row.kind, lanes) for _ in row.vectors[:-1]] for row in rows]
        with w.when(some), self.to.expressions.scope():
            for row, kept in zip(rows, slots, strict=True):
                for vector, slot in zip(row.vectors, kept, strict=False):
                    w.set(slot, self._vector(row, vector, begin))
        stop = w.two("add nsw", begin, inside)
        with w.loop(begin, stop, lanes) as index, self.to.expressions.scope():
            self._ahead(body, self._lane(index))
            for row, kept in zip(rows, slots, strict=True):
                vectors = [w.get(slot, row.kind, lanes) for slot in kept]
                vectors.append(self._vector(row, row.vectors[-1], index))
                self.to.expressions.loaded.update(row.read(w, vectors))
                for slot, following in zip(kept, vectors[1:], strict=True):
                    w.set(slot, following)
            self.to.block(body, [self._lane(index)])
            self.to.expressions.loaded.clear()
        return stop, w.two("sub nsw", w.two("add nsw", start, count), stop)

    def _vector(self, row: Row, vector: int, index: Value) -> Value:
        """One of the vectors of ``row`` where the walk is at ``index``."""
        read, apart = row.first
        base = self.to.expressions.address(read.tensor, read.indices, self._lane(index)).base
        place = number(apart + vector * self.lanes, "i64")
        to = self.w.address(base, row.kind, place, inside=False)
        return self.w.load(row.kind, self.lanes, to, BYTES[row.kind])

    def _lane(self, index: Value) -> Point:
        """The vector that begins at ``index``."""
        return self.points[0].at(self.loop.axis, Place(index, lane=True)).by(self.lanes)

    def _lined_up(self, body: Block) -> tuple[Store | None, list[Row]]:
        """The store whose whole vectors begin with lines, and rows that are shifted together.

        That matters past the caches and beside such rows. There is none beside sums, whose order
        would depend on where arrays begin, and where not all vectors that are stored to the same
        buffer begin with one of the places that it begins with.
        """
        stores = [each for each in body if isinstance(each, Store)]
        if self.partial or len(self.points) > 1 or not stores:
            return None, []
        past = self.to.expressions.large
        first = next((each for each in stores if each.buffer in past), stores[0])
        rows = shifted.rows(body, self.loop.axis, self.lanes, first)
        beside = [flat(s.buffer, s.indices) for s in stores if s.buffer is first.buffer]
        steps = {form.terms for form in beside}, {form.const % self.lanes for form in beside}
        fits = all(len(each) == 1 for each in steps) and (rows or first.buffer in past)
        return (first, rows) if fits else (None, [])

    def _head(self, body: Block, start: Value, count: Value, store: Store) -> tuple[Value, Value]:
        """What comes before the first whole vector of ``store``; where it stopped, what is left."""
        here = self.points[0].at(self.loop.axis, Place(start, lane=True)).by(self.lanes)
        base = self.to.expressions.address(store.buffer, store.indices, here).base
        width = BYTES[STORED[store.buffer.dtype]]
        place = self.w.convert("ptrtoint", Value(base, "ptr"), "i64")
        place = self.w.two("udiv", self.w.two("sub", number(0, "i64"), place), number(width, "i64"))
        first = self.w.intrinsic(
            "smin", self.w.two("and", place, number(self.lanes - 1, "i64")), count
        )
        self._left(body, start, first)
        return self.w.two("add nsw", start, first), self.w.two("sub nsw", count, first)

    def _ahead(self, body: Block, point: Point) -> None:
        """Asks for what is read later: stores past the caches leave no time to wait for it."""
        if self.to.expressions.streamed is None:
            return
        for read in furthest(body, self.loop.axis):
            base = self.to.expressions.address(read.tensor, read.indices, point).base
            self.w.prefetch(self.w.address(base, "i8", number(AHEAD, "i64"), inside=False))

    def _left(self, body: Block, start: Value, rest: Value) -> None:
        some = self.w.compare("icmp sgt", rest, number(0, "i64"))
        with self.w.when(some), self.to.expressions.scope():
            mask = self.w.compare("icmp ult", self.w.counting(self.lanes), rest)
            place = Place(start, lane=True)
            self.to.block(body, [
                replace(point.at(self.loop.axis, place), lanes=self.lanes, mask=mask, tail=mask)
                for point in self.points
            ])  # fmt: skip

    def _begin(self, partial: Partial) -> None:
        kind = COMPUTED[partial.var.dtype]
        axes = (*self.points[0].axes, self.loop.axis)
        self.to.expressions.locals[partial.lanes] = Local(kind, self.lanes, axes)
        for point in self.points:
            for turn in self._turns(point):
                self.to.expressions.assign(
                    partial.lanes, number(REDUCED[partial.op][0], kind), turn
                )

    def _turns(self, point: Point) -> list[Point]:
        """Where the vectors that run together have locals of their own."""
        zero = number(0, "i64")
        return [
            point.at(self.loop.axis, Place(zero, self.lanes * turn))
            for turn in range(self.together)
        ]

    def _end(self, partial: Partial) -> None:
        """Puts the lanes of all vectors together with what the local was before."""
        expressions, var = self.to.expressions, partial.var
        combine = operation(partial.op, var.dtype)
        for point in self.points:
            with expressions.scope():
                vectors = [expressions.value(partial.lanes, turn) for turn in self._turns(point)]
                whole = reduce(lambda a, b: combine(self.w, a, b), vectors)
                before = expressions.value(var, point)
                expressions.assign(var, self._over(partial.op, before, whole), point)

    def _over(self, op: Op, before: Value, vector: Value) -> Value:
        if op is ADD:
            return self.w.add_up(before, vector)
        suffix = f"v{vector.lanes}{'f32' if vector.kind == 'float' else 'f64'}"
        name = f"llvm.vector.reduce.{REDUCED[op][1]}.{suffix}"
        one = self.w.call(name, [vector], vector.kind, 0)
        return self.w.intrinsic(REDUCED[op][1].removeprefix("f"), before, one)
