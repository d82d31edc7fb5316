"""The copy of what the vectors of a row of tiles read; see `panels`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.points import Place, Point
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.code.text import Value
from eqsatad.backends.cpu.tiles.reuse import LINE
from eqsatad.backends.cpu.tiles.tile import Panel, Tile
from eqsatad.terms.nodes import Const


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
