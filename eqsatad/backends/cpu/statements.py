"""Statements of the loop-nest language as LLVM IR, at a point or at all points of a tile.

Points of a tile run together. Where they disagree, on the bounds of a loop or on a condition,
all run through everything that any of them needs, each under a mask of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby

from eqsatad.backends.access import safe_read
from eqsatad.backends.cpu.expressions import Expressions, Local, Place, Point
from eqsatad.backends.cpu.known import Range, range_of, segments, span
from eqsatad.backends.cpu.scalars import BYTES, COMPUTED, operation
from eqsatad.backends.cpu.text import FLOAT_BITS, Value, Writer, number
from eqsatad.backends.cpu.tiles import added, pairs
from eqsatad.backends.cpu.walks import Walk
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    If,
    Mark,
    Statement,
    Store,
    expressions_of,
    statements,
)
from eqsatad.terms.nodes import Apply, Axis, Expr, Read, Select, Var
from eqsatad.terms.ops import ADD, AND, MUL, OR
from eqsatad.terms.walk import postorder

# A running sum or product may be split into several that are combined at the end.
RUNNING = {ADD: "fadd", MUL: "fmul"}
SPLIT = ("reassoc", "nsz")
# Turns of a loop around vectors that run together where points of a tile share what they read.
TOGETHER = 2
# The longest loop that is written out where the points of a tile disagree on its range.
SHORT = 4


def lanes_of(loop: For, vector: int) -> int:
    """How many lanes a loop has that is marked for vectors; 0 for another, and for Booleans."""
    if loop.mark is not Mark.VECTOR:
        return 0
    stored = [each.buffer for each in statements(loop.body) if isinstance(each, Store | Accumulate)]
    summed = [each.var for each in loop.body if isinstance(each, Assign)]
    dtypes = [each.dtype for each in stored or summed]
    if not dtypes or "bool" in dtypes:
        return 0
    return vector // max(BYTES[COMPUTED[dtype]] for dtype in dtypes)


def _branchless(cond: Expr, block: Block) -> bool:
    """Whether ``block`` only adds up what may be read whether ``cond`` holds or not.

    What ``cond`` itself reads at the same place of another tensor of the same shape is there.
    """
    if not all(isinstance(each, Assign) and added(each) is not None for each in block):
        return False
    inside = postorder(cond)
    there = {(n.tensor.shape, n.indices) for n in inside if isinstance(n, Read)}
    if any(isinstance(n, Select) or (isinstance(n, Apply) and n.op in (AND, OR)) for n in inside):
        there = set()
    roots = [expr for each in block for expr in expressions_of(each)]
    reads = [node for node in postorder(*roots) if isinstance(node, Read)]
    return all(safe_read(n) or (n.tensor.shape, n.indices) in there for n in reads)


def _between(point: Point, start: int, span: tuple[int, int]) -> Point:
    """``point``, whose lanes begin at ``start``, where only those within ``span`` count."""
    places = range(start, start + point.lanes)
    inside = [span[0] <= place < span[1] for place in places]
    if all(inside):
        return point
    lanes = ", ".join(f"i1 {str(each).lower()}" for each in inside)
    mask = Value(f"<{lanes}>", "i1", point.lanes)
    return replace(point, mask=mask, tail=mask)


class Statements:
    """Writes statements by means of `Expressions`."""

    def __init__(self, w: Writer, expressions: Expressions, vector: int) -> None:
        self.w = w
        self.expressions = expressions
        # Bytes of a vector, for loops that a schedule has marked.
        self.vector = vector

    def block(self, block: Block, points: Sequence[Point]) -> None:
        """Each statement at all of ``points`` before the next one."""
        for stores, run in groupby(block, key=lambda each: isinstance(each, Store)):
            statements = list(run)
            if stores and len(statements) > 1:
                self._stores([each for each in statements if isinstance(each, Store)], points)
                continue
            for statement in statements:
                with self.expressions.scope():
                    self.statement(statement, points)

    def _stores(self, stores: Sequence[Store], points: Sequence[Point]) -> None:
        """Stores one after the other; two that fill the gaps of each other as whole vectors."""
        lane = next((axis for axis, place in points[0].axes.items() if place.lane), None)
        whole = all(point.mask is None for point in points)
        couples = pairs(stores, lane) if whole else []
        second = {after: before for before, after in couples}
        for store in stores:
            with self.expressions.scope():
                if store in second:
                    self._interleaved(second[store], store, points)
                elif all(store is not before for before, _ in couples):
                    self.statement(store, points)

    def _interleaved(self, even: Store, odd: Store, points: Sequence[Point]) -> None:
        for point in points:
            values = (
                self.expressions.value(even.value, point),
                self.expressions.value(odd.value, point),
            )
            self.expressions.interleave(even.buffer, even.indices, values, point)

    def statement(self, statement: Statement, points: Sequence[Point]) -> None:
        match statement:
            case For():
                self._loop(statement, points)
            case If(cond, then, other):
                self._choice(cond, then, other, points)
            case Assign(var, value):
                for point in points:
                    self.expressions.assign(var, self.assigned(var, value, point), point)
            case Store(buffer, indices, value):
                for point in points:
                    self.expressions.store(
                        buffer, indices, self.expressions.value(value, point), point
                    )
            case Accumulate():
                for point in points:
                    self._add(statement, point)

    def assigned(self, var: Var, value: Expr, point: Point) -> Value:
        """The value that ``var`` is set to."""
        match value:
            case Apply(op, (left, right)) if left is var and op in RUNNING and self.w.flags:
                if COMPUTED[var.dtype] in FLOAT_BITS:
                    code = " ".join((RUNNING[op], *SPLIT, *self.w.flags))
                    a, b = (self.expressions.value(part, point) for part in (left, right))
                    return self.w.two(code, a, b)
        return self.expressions.value(value, point)

    def along(self, block: Block, lane: Axis, lanes: int, points: Sequence[Point]) -> None:
        """Like `block`, with the innermost loops over ``lane`` a vector at a time."""
        for statement in block:
            sums = [
                each.var
                for loop in statements((statement,))
                if isinstance(loop, For) and loop.axis is lane
                for each in loop.body
                if isinstance(each, Assign)
            ]
            if not sums:
                self.block((statement,), points)
                continue
            partial = {var: Var(f"{var.name}.lanes", var.dtype) for var in sums}
            self._start(list(partial.values()), lanes, points)
            self._inside(statement, lane, lanes, partial, points)
            self._end(partial, points)

    def _start(self, partial: Sequence[Var], lanes: int, points: Sequence[Point]) -> None:
        for var in partial:
            kind = COMPUTED[var.dtype]
            self.expressions.locals[var] = Local(kind, lanes, tuple(points[0].axes))
            for point in points:
                self.expressions.assign(var, number(0, kind), point)

    def _end(self, partial: dict[Var, Var], points: Sequence[Point]) -> None:
        """Adds up the lanes of partial sums."""
        for var, lanes in partial.items():
            for point in points:
                with self.expressions.scope():
                    before = self.expressions.value(var, point)
                    vector = self.expressions.value(lanes, point)
                    self.expressions.assign(var, self.w.add_up(before, vector), point)

    def _inside(
        self,
        statement: Statement,
        lane: Axis,
        lanes: int,
        partial: dict[Var, Var],
        points: Sequence[Point],
    ) -> None:
        assert isinstance(statement, For), "a loop over lanes is inside loops only"
        ranges = [each.exact for each in (range_of(statement, point) for point in points)]
        exact = [each for each in ranges if each is not None]
        if len(exact) == len(points) and len(dict.fromkeys(exact)) > 1:
            self._apart(statement, lane, lanes, partial, list(zip(points, exact, strict=True)))
            return
        start, stop = (self._same(bound, points) for bound in (statement.start, statement.stop))
        if statement.axis is lane:
            self._vectors(statement, start, stop, lanes, partial, points)
            return
        with self.w.loop(start, stop) as index, self.expressions.scope():
            inner = [point.at(statement.axis, Place(index)) for point in points]
            for each in statement.body:
                with self.expressions.scope():
                    if isinstance(each, For):
                        self._inside(each, lane, lanes, partial, inner)
                    else:
                        self.statement(each, inner)

    def _apart(
        self,
        loop: For,
        lane: Axis,
        lanes: int,
        partial: dict[Var, Var],
        points: Sequence[tuple[Point, tuple[int, int]]],
    ) -> None:
        """A loop of which each point takes a part that is known, piece by piece."""
        if loop.axis is lane:
            self._windows(loop, lanes, partial, points)
            return
        for low, high, inside in segments([part for _, part in points]):
            chosen = [points[place][0] for place in inside]
            done = low
            for count in (TOGETHER, 1):
                stop = high - (high - done) % count
                if done == stop:
                    continue
                with (
                    self.w.loop(number(done, "i64"), number(stop, "i64"), count) as index,
                    self.expressions.scope(),
                ):
                    inner = [
                        point.at(loop.axis, Place(index, turn))
                        for turn in range(count)
                        for point in chosen
                    ]
                    for each in loop.body:
                        assert isinstance(each, For), "only sums are run along lanes"
                        self._inside(each, lane, lanes, partial, inner)
                done = stop

    def _windows(
        self,
        loop: For,
        lanes: int,
        partial: dict[Var, Var],
        points: Sequence[tuple[Point, tuple[int, int]]],
    ) -> None:
        """A loop along lanes of which each point takes a part: vectors, under masks at the ends."""
        spans = [part for _, part in points]
        first, last = min(low for low, _ in spans), max(high for _, high in spans)
        common = max(low for low, _ in spans), min(high for _, high in spans)
        begin = min(last, first + -(-(common[0] - first) // lanes) * lanes)
        end = max(begin, begin + (common[1] - begin) // lanes * lanes)
        with (
            self.w.loop(number(begin, "i64"), number(end, "i64"), lanes) as index,
            self.expressions.scope(),
        ):
            self._sums(loop, partial, [
                point.at(loop.axis, Place(index, lane=1)).by(lanes) for point, _ in points
            ])  # fmt: skip
        for start in (*range(first, begin, lanes), *range(end, last, lanes)):
            with self.expressions.scope():
                at = Place(number(start, "i64"), lane=1)
                self._sums(loop, partial, [
                    _between(point.at(loop.axis, at).by(lanes), start, part)
                    for point, part in points
                    if start < part[1] and start + lanes > part[0]
                ])  # fmt: skip

    def _vectors(
        self,
        loop: For,
        start: Value,
        stop: Value,
        lanes: int,
        partial: dict[Var, Var],
        points: Sequence[Point],
    ) -> None:
        """The loop by whole vectors, and what is left under a mask."""
        count = self.w.two("sub nsw", stop, start)
        count = self.w.intrinsic("smax", count, number(0, "i64"))
        rest = self.w.two("and", count, number(lanes - 1, "i64"))
        whole = self.w.two("sub nsw", self.w.two("add nsw", start, count), rest)
        with self.w.loop(start, whole, lanes) as index, self.expressions.scope():
            place = Place(index, lane=True)
            self._sums(loop, partial, [point.at(loop.axis, place).by(lanes) for point in points])
        left = self.w.compare("icmp sgt", rest, number(0, "i64"))
        with self.w.when(left), self.expressions.scope():
            mask = self.w.compare("icmp ult", self.w.counting(lanes), rest)
            place = Place(whole, lane=True)
            self._sums(loop, partial, [
                replace(point.at(loop.axis, place), lanes=lanes, mask=mask, tail=mask)
                for point in points
            ])  # fmt: skip

    def _sums(self, loop: For, partial: dict[Var, Var], points: Sequence[Point]) -> None:
        """What one vector along ``loop`` adds at ``points``."""
        for statement in loop.body:
            assert isinstance(statement, Assign), "only sums are run along lanes"
            value = added(statement)
            assert value is not None, "only sums are run along lanes"
            var = partial[statement.var]
            with self.expressions.scope():
                for point in points:
                    total = self.assigned(var, Apply(ADD, (var, value)), point)
                    self.expressions.assign(var, total, point)

    def _add(self, statement: Accumulate, point: Point) -> None:
        read = Read(statement.buffer, statement.indices)
        more = self.expressions.value(statement.value, point)
        total = operation(ADD, read.dtype)(self.w, self.expressions.value(read, point), more)
        self.expressions.store(statement.buffer, statement.indices, total, point)

    def _loop(self, loop: For, points: Sequence[Point]) -> None:
        lanes = lanes_of(loop, self.vector)
        if lanes and not any(point.lanes for point in points):
            self._along_lanes(loop, lanes, points)
            return
        bounds = [
            (self.expressions.value(loop.start, point), self.expressions.value(loop.stop, point))
            for point in points
        ]
        (start, stop), *others = dict.fromkeys(bounds)
        if others or start.lanes or stop.lanes:
            self._uneven(loop, bounds, points)
            return
        with self.w.loop(start, stop) as index, self.expressions.scope():
            self.block(loop.body, [point.at(loop.axis, Place(index)) for point in points])

    def _along_lanes(self, loop: For, lanes: int, points: Sequence[Point]) -> None:
        """A loop that is marked for vectors."""
        start, stop = (self._same(bound, points) for bound in (loop.start, loop.stop))
        Walk(self, loop, lanes, points).write(start, stop)

    def _uneven(
        self, loop: For, bounds: Sequence[tuple[Value, Value]], points: Sequence[Point]
    ) -> None:
        """A loop over all values that any point needs; one that is surely short is written out."""
        ranges = [range_of(loop, point) for point in points]
        whole = span(ranges)
        if whole is not None and whole[1] - whole[0] <= SHORT:
            for place in range(*whole):
                here = Place(number(place, "i64"))
                with self.expressions.scope():
                    known = [
                        (point.at(loop.axis, here), self._tests(place, each, bound))
                        for point, each, bound in zip(points, ranges, bounds, strict=True)
                        if not each.never(place)
                    ]
                    masked = [reduce(self._masked, tests, point) for point, tests in known]
                    self.block(loop.body, masked)
            return
        start = self._extreme("smin", [bound[0] for bound in bounds])
        stop = self._extreme("smax", [bound[1] for bound in bounds])
        with self.w.loop(start, stop) as index, self.expressions.scope():
            inner = []
            for point, (low, high) in zip(points, bounds, strict=True):
                inside = self.w.two(
                    "and",
                    self.w.compare("icmp sge", index, low),
                    self.w.compare("icmp slt", index, high),
                )
                inner.append(self._masked(point.at(loop.axis, Place(index)), inside))
            self.block(loop.body, inner)

    def _tests(self, place: int, known: Range, bounds: tuple[Value, Value]) -> list[Value]:
        """What must hold for ``place`` to be in a range, if that is not certain."""
        here = number(place, "i64")
        tests = []
        if not known.begun(place):
            tests.append(self.w.compare("icmp sge", here, bounds[0]))
        if not known.open(place):
            tests.append(self.w.compare("icmp slt", here, bounds[1]))
        return tests

    def _extreme(self, name: str, values: Sequence[Value]) -> Value:
        scalars = [self.w.over_lanes(name, value) for value in dict.fromkeys(values)]
        return reduce(lambda a, b: self.w.intrinsic(name, a, b), scalars)

    def _masked(self, point: Point, test: Value) -> Point:
        wide = self.w.wide(test, point.lanes)
        return point.under(wide if point.mask is None else self.w.two("and", point.mask, wide))

    def _same(self, expr: Expr, points: Sequence[Point]) -> Value:
        """A value that all points of the tile agree on."""
        (value,) = {self.expressions.value(expr, point) for point in points}
        assert not value.lanes, "lanes agree as well"
        return value

    def _choice(self, cond: Expr, then: Block, other: Block, points: Sequence[Point]) -> None:
        tests = [self.expressions.value(cond, point) for point in points]
        if not other and _branchless(cond, then) and not any(test.lanes for test in tests):
            for statement in then:
                assert isinstance(statement, Assign), "only sums are chosen without a branch"
                for point, test in zip(points, tests, strict=True):
                    before = self.expressions.value(statement.var, point)
                    more = self.assigned(statement.var, statement.value, point)
                    self.expressions.assign(
                        statement.var, self.w.select(test, more, before), point
                    )
            return
        (test, *others) = dict.fromkeys(tests)
        sides = ((then, False), (other, True))
        for block, negated in sides:
            if not block:
                continue
            if others or test.lanes:
                wanted = [self._negated(each) if negated else each for each in tests]
                pairs = zip(points, wanted, strict=True)
                with self.expressions.scope():
                    self.block(block, [self._masked(point, each) for point, each in pairs])
                continue
            with self.w.when(self._negated(test) if negated else test), self.expressions.scope():
                self.block(block, points)

    def _negated(self, test: Value) -> Value:
        return self.w.two("xor", test, Value("true", "i1"))
