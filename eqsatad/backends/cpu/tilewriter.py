"""The loops over the tiles of a nest, and the points of one tile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from math import ceil, prod

from eqsatad.backends.cpu.expressions import Expressions, Place, Point
from eqsatad.backends.cpu.scans import Scan, recognised
from eqsatad.backends.cpu.statements import Statements
from eqsatad.backends.cpu.text import Value, Writer, number
from eqsatad.backends.cpu.tiles import Tile, length
from eqsatad.backends.cpu.turns import transposed
from eqsatad.loops.nest import For, Store
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr
from eqsatad.terms.ops import ADD, FLOORDIV, MUL, SUB

# Enough iterations to share; the rest of the loops stays inside each.
ENOUGH = 64


def tiles_along(tile: Tile, loop: For) -> Expr:
    """How many tiles there are along ``loop``."""
    step = tile.step(loop.axis)
    if (extent := length(loop)) is not None:
        return Const(ceil(extent / step), "index")
    above = Apply(ADD, (Apply(SUB, (loop.stop, loop.start)), Const(step - 1, "index")))
    return Apply(FLOORDIV, (normal(above), Const(step, "index")))


def spread(tile: Tile) -> tuple[int, Expr]:
    """How many of the loops over tiles are one range, and the length of it."""
    numbers = [tiles_along(tile, loop) for loop in tile.order]
    taken = len(numbers)
    if all(isinstance(count, Const) for count in numbers):
        known = [count.value for count in numbers if isinstance(count, Const)]
        while taken > 1 and prod(known[: taken - 1]) >= ENOUGH:
            taken -= 1
    total: Expr = Const(1, "index")
    for count in numbers[:taken]:
        total = Apply(MUL, (total, count))
    return taken, normal(total)


def unflattened(w: Writer, flat: Value, counts: Sequence[Value]) -> list[Value]:
    """The place along each of some loops of ``counts``, the last one varying fastest."""
    places: list[Value] = []
    for count in reversed(counts[1:]):
        places.append(w.two("urem", flat, count))
        flat = w.two("udiv", flat, count)
    return [flat, *reversed(places)]


class TileWriter:
    """Writes a nest tile by tile, for the iterations ``%begin`` to ``%end`` of its range."""

    def __init__(
        self, w: Writer, expressions: Expressions, statements: Statements, tile: Tile
    ) -> None:
        self.w = w
        self.expressions = expressions
        self.statements = statements
        self.tile = tile

    def write(self) -> None:
        taken, _ = spread(self.tile)
        order = self.tile.order
        counts = [self._outside(tiles_along(self.tile, loop)) for loop in order]
        with ExitStack() as loops:
            flat = loops.enter_context(self.w.loop(Value("%begin", "i64"), Value("%end", "i64")))
            places = unflattened(self.w, flat, counts[:taken])
            zero = number(0, "i64")
            for count in counts[taken:]:
                places.append(loops.enter_context(self.w.loop(zero, count)))
            loops.enter_context(self.expressions.scope())
            points = self._points(order, places)
            if self.tile.turned is not None:
                self._turn(self.tile.turned, points)
            elif self.tile.inner and recognised(self.tile.body) is not None:
                scan = Scan(self.w, self.expressions, self.statements)
                scan.write(self.tile.body, self.tile.lanes, points)
            elif self.tile.inner:
                assert self.tile.lane is not None, "a vector lies along an axis"
                self.statements.along(self.tile.body, self.tile.lane, self.tile.lanes, points)
            else:
                self.statements.block(self.tile.body, points)

    def _turn(self, across: Axis, points: Sequence[Point]) -> None:
        """Vectors read at ``points``, and written along ``across``."""
        (store,) = self.tile.body
        assert isinstance(store, Store), "only copies are turned"
        rows = [self.expressions.value(store.value, point) for point in points]
        for delta, column in enumerate(transposed(self.w, rows)):
            axes = {
                axis: replace(place, lane=int(axis is across), delta=0 if axis is across else delta)
                if axis in (across, self.tile.lane)
                else place
                for axis, place in points[0].axes.items()
            }
            place = replace(points[0], axes=axes)
            self.expressions.store(store.buffer, store.indices, column, place)

    def _outside(self, expr: Expr) -> Value:
        return self.expressions.value(expr, Point())

    def _points(self, order: Sequence[For], places: Sequence[Value]) -> list[Point]:
        tile = self.tile
        axes: dict[Axis, Place] = {}
        mask = None
        for loop, place in zip(order, places, strict=True):
            lane = loop.axis is tile.lane and tile.lanes > 0
            base = self._base(loop, place)
            axes[loop.axis] = Place(base, lane=int(lane))
            if lane and self._ragged(loop):
                here = self.w.two("add nsw", base, self.w.counting(tile.lanes))
                mask = self.w.compare("icmp slt", here, self._outside(loop.stop))
        point = Point(axes, 0 if tile.inner else tile.lanes, mask, mask)
        return [self._copy(point, deltas) for deltas in self._deltas()]

    def _ragged(self, loop: For) -> bool:
        """Whether a vector may stick out at the end."""
        extent = length(loop)
        return extent is None or extent < self.tile.step(loop.axis)

    def _base(self, loop: For, place: Value) -> Value:
        """The first value of a tile; the last tile is moved back to end with the loop."""
        step = self.tile.step(loop.axis)
        base = self._outside(loop.start)
        base = self.w.two("add nsw", base, self.w.two("mul nsw", place, number(step, "i64")))
        extent = length(loop)
        if extent is None or extent < step or extent % step == 0:
            return base
        last = normal(Apply(SUB, (loop.stop, Const(step, "index"))))
        return self.w.intrinsic("smin", base, self._outside(last))

    def _deltas(self) -> Iterator[dict[Axis, int]]:
        wide = {axis: self.tile.lanes if axis is self.tile.lane else 1 for axis in self.tile.counts}
        ranges = [
            [number * (wide[axis] or 1) for number in range(count)]
            for axis, count in self.tile.counts.items()
        ]
        for chosen in product(*ranges):
            yield dict(zip(self.tile.counts, chosen, strict=True))

    def _copy(self, point: Point, deltas: dict[Axis, int]) -> Point:
        axes = {
            axis: replace(place, delta=deltas.get(axis, 0)) for axis, place in point.axes.items()
        }
        return replace(point, axes=axes)
