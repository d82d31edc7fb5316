"""Rows of results that are accumulated while the rows that are read go by; see `rolling`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.points import Place, Point
from eqsatad.backends.cpu.code.statements import Statements
from eqsatad.backends.cpu.code.text import Value, number
from eqsatad.backends.cpu.tiles.tile import Rolling, Tile
from eqsatad.loops.nest import Assign, For, Store

# Accumulators of the columns that run together: of fewer each would wait for its last addition.
ACCUMULATORS = 9


class RollWriter:
    """Writes the body of ``tile``, a sum and the store of it, for all of its rows of results."""

    def __init__(self, expressions: Expressions, statements: Statements, tile: Tile) -> None:
        self.w = expressions.w
        self.expressions = expressions
        self.statements = statements
        start, loop, store = tile.body
        assert tile.rolling is not None, "made by `rolling`"
        assert isinstance(start, Assign), "a sum begins with a number"
        assert isinstance(loop, For), "a sum is a loop"
        assert isinstance(store, Store), "a sum is stored"
        self.start, self.loop, self.store = start, loop, store
        self.rolling: Rolling = tile.rolling
        self.size = number(tile.counts[tile.rolling.row], "i64")

    def write(self, points: Sequence[Point]) -> None:
        """All rows of all columns, which are ``points`` in the first row."""
        together = max(1, ACCUMULATORS // len(self.rolling.taps))
        for first in range(0, len(points), together):
            with self.expressions.scope():
                self._columns(points[first : first + together])

    def _columns(self, columns: Sequence[Point]) -> None:
        """All rows of ``columns``, one after the other for each row that is read."""
        taps = self.rolling.taps
        first, stop = self._reading(columns[0].axes[self.rolling.row].base)
        for offset, _ in taps:
            self._begin([self._at(column, first, offset) for column in columns])
        with self.w.loop(first, stop) as row, self.expressions.scope():
            for column in columns:
                self.statements.inside(self.loop, [
                    self._at(column, row, offset).at(self.rolling.tap, _literal(tap))
                    for offset, tap in taps
                ])  # fmt: skip
            self._finish(columns, row, taps[0][0])
            for column in columns:
                self._age(column, row)
        for offset, _ in taps[:-1]:
            self._finish(columns, stop, offset)

    def _reading(self, row: Value) -> tuple[Value, Value]:
        """The rows that are read for results from ``row`` on, and the first one behind them."""
        oldest, newest = self.rolling.taps[0][0], self.rolling.taps[-1][0]
        least, beyond = (number(end, "i64") for end in self.rolling.reading)
        first = self.w.two("sub nsw", row, number(newest, "i64"))
        last = self.w.two("add nsw", row, self.size)
        last = self.w.two("sub nsw", last, number(oldest, "i64"))
        return self.w.intrinsic("smax", first, least), self.w.intrinsic("smin", last, beyond)

    def _begin(self, points: Sequence[Point]) -> None:
        with self.expressions.scope():
            self.statements.statement(self.start, points)

    def _finish(self, columns: Sequence[Point], row: Value, offset: int) -> None:
        """Stores the results at ``offset`` from ``row`` if they are of this tile."""
        begin = columns[0].axes[self.rolling.row].base
        place = self.w.two("sub nsw", self.w.two("add nsw", row, number(offset, "i64")), begin)
        with self.w.when(self.w.compare("icmp ult", place, self.size)), self.expressions.scope():
            self.statements.statement(
                self.store, [self._at(column, row, offset) for column in columns]
            )

    def _age(self, column: Point, row: Value) -> None:
        """Each accumulator takes the next one's place, and the newest begins anew."""
        local = self.expressions.locals[self.start.var]
        points = [self._at(column, row, offset) for offset, _ in self.rolling.taps]
        slots = [self.expressions.slot(local, point) for point in points]
        for older, newer in pairwise(slots):
            self.w.set(older, self.w.get(newer, local.kind, local.lanes))
        self._begin(points[-1:])

    def _at(self, column: Point, row: Value, offset: int) -> Point:
        """The point of ``column`` in the row of results at ``offset`` from the one read."""
        place = replace(column.axes[self.rolling.row], base=row, delta=offset, room=None)
        return column.at(self.rolling.row, place)


def _literal(value: int) -> Place:
    """A place that other values of the same axis share their base with."""
    return Place(number(0, "i64"), delta=value)
