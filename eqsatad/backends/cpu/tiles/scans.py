"""Running sums as tiles: a vector along the running axis, several rows at a time.

The sums within a vector come from adding it to itself, moved by 1, 2, 4... lanes; what ran up
before is added to all lanes. Rows are independent, so several of them hide the time that one
addition waits for another. The order of additions differs from that of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.memory import shuffled
from eqsatad.backends.cpu.code.points import Local, Place, Point
from eqsatad.backends.cpu.code.scalars import BYTES, COMPUTED
from eqsatad.backends.cpu.code.statements import Statements
from eqsatad.backends.cpu.code.text import FLOAT_BITS, Value, Writer, number, splat
from eqsatad.backends.cpu.tiles.tile import Tile, chain, independent, length, stride
from eqsatad.loops.nest import Assign, Block, For, Statement, Store, expressions_of, replaced
from eqsatad.terms.nodes import Apply, Expr, Read, Var
from eqsatad.terms.ops import ADD
from eqsatad.terms.walk import postorder

ROWS = 4


@dataclass(frozen=True)
class Running:
    """``var = start``, then for each value of ``loop``: ``var += value`` and ``stores``.

    ``direction`` is 1 where neighbours along the loop are neighbours in memory, -1 where they
    are in reverse.
    """

    start: Assign
    loop: For
    value: Expr
    stores: Block
    direction: int


def scanned(statement: Statement, vector: int, *, many: bool = False) -> Tile | None:
    """The tile for ``statement`` if it is a running sum along rows.

    If their number is not known they are taken to be ``many``; the tile says what it `needs`.
    """
    loops, body = chain(statement)
    running = recognised(body)
    if not loops or running is None:
        return None
    stores = [each for each in running.stores if isinstance(each, Store)]
    if not independent(loops, body, stores):
        return None
    lanes = vector // BYTES[COMPUTED[running.start.var.dtype]]
    rows = loops[-1]
    known = length(rows)
    count = ROWS if (many if known is None else known >= ROWS) else 1
    sure = frozenset({rows.axis} if known is None else ())
    return Tile(tuple(loops), body, running.loop.axis, lanes, True, {rows.axis: count}, sure=sure)


def recognised(body: Block) -> Running | None:
    """``body`` as a running sum of floats whose accesses are contiguous along it."""
    match body:
        case (Assign(var) as start, For(axis, body=(Assign(again, value), *stores)) as loop):
            pass
        case _:
            return None
    more = _increment(value, var)
    if again is not var or more is None or COMPUTED[var.dtype] not in FLOAT_BITS:
        return None
    if not stores or not all(isinstance(each, Store) for each in stores):
        return None
    steps = {stride(each.buffer, each.indices, axis) for each in stores if isinstance(each, Store)}
    if steps not in ({1}, {-1}) or axis in start.value.free | loop.start.free | loop.stop.free:
        return None
    (direction,) = steps
    reads = [stride(read.tensor, read.indices, axis) for read in _reads(more, stores)]
    if direction is None or not set(reads) <= {0, direction}:
        return None
    return Running(start, loop, more, tuple(stores), direction)


def _increment(value: Expr, var: Var) -> Expr | None:
    """What is added to ``var``."""
    match value:
        case Apply(op, (left, right)) if op is ADD and var in (left, right):
            other = right if left is var else left
            return None if var in postorder(other) else other
    return None


def _reads(value: Expr, stores: Sequence[Statement]) -> list[Read]:
    roots = [value, *(expr for each in stores for expr in expressions_of(each))]
    return [node for node in postorder(*roots) if isinstance(node, Read)]


class Scan:
    """Writes a running sum at the points of a tile."""

    def __init__(self, w: Writer, expressions: Expressions, statements: Statements) -> None:
        self.w = w
        self.expressions = expressions
        self.statements = statements

    def write(self, body: Block, lanes: int, points: Sequence[Point]) -> None:
        running = recognised(body)
        assert running is not None, "the tile was made for a running sum"
        loop = running.loop
        self.statements.block((running.start,), points)
        start, stop = (
            self.expressions.value(bound, points[0]) for bound in (loop.start, loop.stop)
        )
        count = self.w.intrinsic("smax", self.w.two("sub nsw", stop, start), number(0, "i64"))
        rest = self.w.two("and", count, number(lanes - 1, "i64"))
        whole = self.w.two("sub nsw", self.w.two("add nsw", start, count), rest)
        with self.w.loop(start, whole, lanes) as index, self.expressions.scope():
            self._vectors(running, lanes, index, points)
        with self.w.loop(whole, stop) as index, self.expressions.scope():
            inner = [point.at(loop.axis, Place(index)) for point in points]
            self.statements.block(loop.body, inner)

    def _vectors(self, running: Running, lanes: int, index: Value, points: Sequence[Point]) -> None:
        var, axis = running.start.var, running.loop.axis
        first = index
        if running.direction < 0:
            # Lanes are in the order of memory, so the last of the loop comes first.
            first = self.w.two("add nsw", index, number(lanes - 1, "i64"))
        place = Place(first, lane=running.direction)
        inner = [point.at(axis, place).by(lanes) for point in points]
        sums = Var(f"{var.name}.lanes", var.dtype)
        self.expressions.locals[sums] = Local(COMPUTED[var.dtype], lanes, tuple(points[0].axes))
        values = [self._summed(running, lanes, point) for point in inner]
        for point, at, value in zip(points, inner, values, strict=True):
            before = self.expressions.value(var, point)
            total = self.w.two("fadd", value, before)
            self.expressions.assign(sums, total, at)
            last = lanes - 1 if running.direction > 0 else 0
            self.expressions.assign(var, self.w.lane(total, last), point)
        self.statements.block(replaced(running.stores, {var: sums}), inner)

    def _summed(self, running: Running, lanes: int, point: Point) -> Value:
        """The sums within a vector of values."""
        value = self.w.wide(self.expressions.value(running.value, point), lanes)
        zero = splat(number(0, value.kind), lanes)
        distance = 1
        while distance < lanes:
            move = distance * running.direction
            chosen = [lane - move if 0 <= lane - move < lanes else lanes for lane in range(lanes)]
            value = self.w.two("fadd", value, shuffled(self.w, value, zero, chosen))
            distance *= 2
        return value
