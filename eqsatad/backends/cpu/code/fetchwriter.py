"""What the sums of a tile fetch for other steps; see `fetches`."""

from __future__ import annotations

from math import ceil

from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.points import Point
from eqsatad.backends.cpu.code.text import Value, number
from eqsatad.backends.cpu.tiles.reuse import LINE
from eqsatad.backends.cpu.tiles.tile import Fetches, length
from eqsatad.loops.nest import For
from eqsatad.terms.nodes import Const

# The bits of a part of a byte.
BITS = 16


class FetchWriter:
    """Writes what is fetched in each turn of the sums of a tile."""

    def __init__(self, expressions: Expressions, fetches: Fetches) -> None:
        self.w = expressions.w
        self.buffers = expressions.buffers
        self.fetches = fetches
        self._begins: list[str] = []

    def begin(self, tile: Value, strip: Value | None) -> None:
        """The tile number ``tile`` is next, counted over all blocks, or in each ``strip``."""
        tiles = number(self.fetches.tiles, "i64")
        if strip is not None:
            before = self.w.two("mul", strip, number(self.fetches.around, "i64"))
            tile = self.w.two("add", before, tile)
        block, place = (self.w.two(code, tile, tiles) for code in ("udiv", "urem"))
        self._begins = []
        for part in self.fetches.parts:
            start = self.w.two("mul", block, number(part.block, "i64"))
            done = self.w.two("udiv", self.w.two("mul", place, number(part.size, "i64")), tiles)
            base = self._from(self.buffers[part.tensor], self.w.two("add", start, done))
            self._begins.append(self._from(base, number(part.begin, "i64")))

    def inside(self, loop: For, point: Point) -> None:
        """Fetches at ``point``, if ``loop`` is the innermost of those that do."""
        if loop.axis is not self.fetches.loops[-1].axis:
            return
        turn = self._turn(point)
        for part, begin in zip(self.fetches.parts, self._begins, strict=True):
            whole = part.size / (self.fetches.tiles * self.fetches.turns)
            scaled = self.w.two("mul", turn, number(ceil(whole * (1 << BITS)), "i64"))
            here = self._from(begin, self.w.two("lshr", scaled, number(BITS, "i64")))
            for line in range(ceil(whole / LINE)):
                self.w.prefetch(self._from(here, number(line * LINE, "i64")), near=False)

    def _turn(self, point: Point) -> Value:
        """How many turns of this tile came before."""
        total = number(0, "i64")
        for loop in self.fetches.loops:
            assert isinstance(loop.start, Const), "as long as it ever is"
            trips = number(length(loop) or 1, "i64")
            place = point.axes[loop.axis]
            here = self.w.two("sub", place.base, number(loop.start.value - place.delta, "i64"))
            # Each strip counts its own turns.
            if loop.axis is self.fetches.cut:
                here = self.w.two("urem", here, trips)
            total = self.w.two("add", self.w.two("mul", total, trips), here)
        return total

    def _from(self, address: str, offset: Value) -> str:
        # Behind the last block there may be nothing, which may be asked for all the same.
        return self.w.address(address, "i8", offset, inside=False)
