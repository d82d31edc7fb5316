"""The copy of what the vectors of a row of tiles read; see `panels`."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.points import Place, Point
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.code.text import Value, number
from eqsatad.backends.cpu.tiles.reuse import LINE
from eqsatad.backends.cpu.tiles.tile import Panel, Tile, length
from eqsatad.loops.nest import For
from eqsatad.terms.nodes import Const

# The bits of a part of a row.
BITS = 16


class PanelWriter:
    """Writes the copy of a ``panel`` to a place on the stack."""

    def __init__(self, expressions: Expressions, tile: Tile, panel: Panel) -> None:
        self.w = expressions.w
        self.expressions = expressions
        self.tile = tile
        self.panel = panel
        copy = panel.copied.tensor
        elements = prod(extent.value for extent in copy.shape if isinstance(extent, Const))
        place = self.w.room(STORED[copy.dtype], elements, LINE)
        expressions.buffers = {**expressions.buffers, copy: place}
        self._before = number(0, "i64")

    def write(self, points: Sequence[Point], new: Value) -> None:
        """The copy of all vectors of a tile at ``points``, if they are ``new``."""
        loop, copied, read = self.panel.loop, self.panel.copied, self.panel.read
        kind, lane = STORED[read.tensor.dtype], self.tile.lane
        assert lane is not None, "a panel is of vectors"
        vectors = {point.axes[lane].delta: point for point in points}.values()
        start, stop = (self.expressions.value(end, Point()) for end in (loop.start, loop.stop))
        with (
            self.w.when(new),
            self.w.loop(start, stop) as value,
            self.expressions.scope(),
        ):
            for point in vectors:
                here = point.at(loop.axis, Place(value))
                source = self.expressions.address(read.tensor, read.indices, here).base
                target = self.expressions.address(copied.tensor, copied.indices, here).base
                vector = self.w.load(kind, self.tile.lanes, source, BYTES[kind])
                self.w.store(vector, target, BYTES[kind] * self.tile.lanes)

    def begin(self, tile: Value) -> None:
        """The tile number ``tile`` of those that read a panel is next."""
        trips = number(length(self.panel.loop) or 1, "i64")
        self._before = self.w.two("mul", tile, trips)

    def inside(self, loop: For, point: Point) -> None:
        """Asks at ``point`` of a sum for a part of what the next panel is copied from."""
        panel, lane = self.panel, self.tile.lane
        if not panel.asking or loop.axis is not panel.loop.axis or lane is None:
            return
        place = point.axes[loop.axis]
        if place.delta:
            return
        start = self.expressions.value(loop.start, Point())
        turn = self.w.two("add", self._before, self.w.two("sub", place.base, start))
        part = number(ceil((1 << BITS) / panel.asking), "i64")
        row = self.w.two("lshr", self.w.two("mul", turn, part), number(BITS, "i64"))
        width = BYTES[STORED[panel.read.tensor.dtype]]
        step = self.tile.step(lane)
        here = point.at(loop.axis, Place(self.w.two("add", row, start)))
        with self.expressions.scope():
            at = self.expressions.address(panel.read.tensor, panel.read.indices, here).base
        # A line that both panels have a part in is near.
        for offset in range((2 * step - 1) * width, step * width, -LINE):
            there = self.w.address(at, "i8", number(offset, "i64"), inside=False)
            self.w.prefetch(there)
