"""Statements of the loop-nest language as LLVM IR, at a point or at all points of a tile.

Points of a tile run together. Where they disagree, on the bounds of a loop or on a condition,
all run through everything that any of them needs, each under a mask of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import reduce
from itertools import groupby

from eqsatad.backends.access import safe_read
from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.known import Range, range_of, span
from eqsatad.backends.cpu.code.points import Place, Point
from eqsatad.backends.cpu.code.scalars import BYTES, COMPUTED, operation
from eqsatad.backends.cpu.code.text import FLOAT_BITS, Value, Writer, number
from eqsatad.backends.cpu.code.walks import Walk
from eqsatad.backends.cpu.tiles.tile import added, pairs
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
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Apply, Const, Expr, Read, Select, Var
from eqsatad.terms.ops import ADD, AND, GE, MUL, OR
from eqsatad.terms.walk import postorder

# A running sum or product may be split into several that are combined at the end.
RUNNING = {ADD: "fadd", MUL: "fmul"}
SPLIT = ("reassoc", "nsz")
# The longest loop that is written out where the points of a tile disagree on its range.
SHORT = 5


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


def _between(cond: Expr, block: Block) -> tuple[Expr, int, Block] | None:
    """What ``cond`` and the condition that is all of ``block`` say lies between 0 and a number.

    With that number and what is inside both; None where they say anything else.
    """
    match cond, block:
        case (
            Apply(op, (place, Const(0))),
            (If(Apply(other, (left, Const(0))), then, ()),),
        ) if op is GE and other is GE and place.dtype == left.dtype == "index":
            last = linear(place) + linear(left)
            if not last.terms and last.const >= 0:
                return place, last.const, then
    return None


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
            self.inside(loop, [point.at(loop.axis, Place(index)) for point in points])

    def inside(self, loop: For, points: Sequence[Point]) -> None:
        """One turn of ``loop``, at the places that ``points`` have along it."""
        self.block(loop.body, points)

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
                    self.inside(loop, masked)
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
            self.inside(loop, inner)

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
        found = None if other else _between(cond, then)
        if found is not None:
            place, last, then = found
            tests = [self._within(self.expressions.value(place, p), last) for p in points]
        else:
            tests = [self.expressions.value(cond, point) for point in points]
        if not other and _branchless(cond, then):
            self._chosen(then, list(zip(points, tests, strict=True)))
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
            # Only behind a branch is it certain; under a mask, or a choice, what is off runs too.
            known = self.expressions.within(*found[:2]) if found is not None else nullcontext()
            holds = self._negated(test) if negated else test
            with self.w.when(holds), self.expressions.scope(), known:
                self.block(block, points)

    def _chosen(self, sums: Block, points: Sequence[tuple[Point, Value]]) -> None:
        """``sums`` at the points whose test holds, without a branch that would be guessed wrong."""
        for statement in sums:
            assert isinstance(statement, Assign), "only sums are chosen without a branch"
            for point, test in points:
                before = self.expressions.value(statement.var, point)
                more = self.assigned(statement.var, statement.value, point)
                wanted = test if point.mask is None else self.w.two("and", point.mask, test)
                value = self.w.select(wanted, more, before)
                self.expressions.assign(statement.var, value, point.under(None))

    def _within(self, place: Value, last: int) -> Value:
        """Whether ``place`` is 0 to ``last``: a negative number is large without its sign."""
        return self.w.compare("icmp ule", place, number(last, "i64"))

    def _negated(self, test: Value) -> Value:
        return self.w.two("xor", test, Value("true", "i1"))
