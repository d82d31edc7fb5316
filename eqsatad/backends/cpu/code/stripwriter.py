"""The strips of a sum around the loops over tiles, and what one tile does for each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from math import prod

from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.points import Place, Point
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.code.statements import Statements
from eqsatad.backends.cpu.code.text import Value, Writer, number
from eqsatad.backends.cpu.tiles.strips import carried
from eqsatad.backends.cpu.tiles.tile import Strips, Tile, length
from eqsatad.loops.nest import Block, For
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Tensor, Var
from eqsatad.terms.ops import ADD, MAX, MIN, MUL

FIRST = number(0, "i64")
TRUE = Value("true", "i1")
# The parameters of a step that say which strips are run: the first, and the first that is not.
STRIPS = (Value("%strip", "i64"), Value("%strips", "i64"))


@dataclass(frozen=True)
class Strip:
    """A strip by its number, where its loops are, and whether it is the first and the last."""

    number: Value
    places: dict[Axis, Place]
    first: Value
    last: Value


class PartWriter(ABC):
    """Writes tiles whose accumulators are in ``kept`` between parts of a sum."""

    def __init__(
        self, expressions: Expressions, statements: Statements, tile: Tile, kept: Tensor
    ) -> None:
        self.w: Writer = expressions.w
        self.expressions = expressions
        self.statements = statements
        self.tile = tile
        self.kept = kept

    @abstractmethod
    def loop(
        self, places: Callable[[Writer, Value, Sequence[Value]], Sequence[Value]]
    ) -> AbstractContextManager[Strip]:
        """A loop over all parts; ``places`` takes a flat number apart."""

    @abstractmethod
    def _parts(self) -> tuple[Block, For, Block]:
        """What is done before the first part, in each, and after the last."""

    def write(self, strip: Strip, points: Sequence[Point], tile: Value) -> None:
        """The sums of one strip at ``points``, which are the tile number ``tile``."""
        here = [replace(point, axes={**strip.places, **point.axes}) for point in points]
        before, loop, after = self._parts()
        with self._when(strip.first):
            self.statements.block(before, here)
        with self._when(self._not(strip.first)):
            for address, var, point in self._kept(here, tile):
                kind, lanes = STORED[self.kept.dtype], self.tile.lanes
                value = self.w.load(kind, lanes, address, BYTES[kind] * max(1, lanes))
                self.expressions.assign(var, value, point)
        self.statements.block((loop,), here)
        with self._when(strip.last):
            self.statements.block(after, here)
        with self._when(self._not(strip.last)):
            for address, var, point in self._kept(here, tile):
                value = self.expressions.value(var, point)
                self.w.store(value, address, BYTES[value.kind] * max(1, value.lanes))

    @contextmanager
    def _when(self, cond: Value) -> Iterator[None]:
        with self.w.when(cond), self.expressions.scope():
            yield

    def _not(self, test: Value) -> Value:
        return self.w.two("xor", test, TRUE)

    def _kept(self, points: Sequence[Point], tile: Value) -> Iterator[tuple[str, Var, Point]]:
        """Where each accumulator of a tile is kept."""
        kind, lanes = STORED[self.kept.dtype], max(1, self.tile.lanes)
        found = [(var, point) for var in carried(self.tile.body) for point in points]
        most = len(carried(self.tile.body)) * prod(self.tile.counts.values())
        start = self.w.two("mul nsw", tile, number(lanes * most, "i64"))
        base = self.w.address(self.expressions.buffers[self.kept], kind, start)
        for place, (var, point) in enumerate(found):
            yield self.w.address(base, kind, number(place * lanes, "i64")), var, point


class StripWriter(PartWriter):
    """Writes tiles by strips of a known size, for the strips ``%strip`` to ``%strips``."""

    def __init__(
        self, expressions: Expressions, statements: Statements, tile: Tile, kept: Tensor
    ) -> None:
        super().__init__(expressions, statements, tile, kept)
        assert tile.strips is not None, "a tile without strips is written in one go"
        self.strips: Strips = tile.strips
        self.cut = Axis(f"{self.strips.loops[-1].axis.name}_strip", _index(self.strips.counts[-1]))

    @contextmanager
    def loop(
        self, places: Callable[[Writer, Value, Sequence[Value]], Sequence[Value]]
    ) -> Iterator[Strip]:
        """A loop over the strips; ``places`` takes a flat number apart."""
        counts = [number(count, "i64") for count in self.strips.counts]
        with self.w.loop(*STRIPS) as flat:
            *outer, cut = places(self.w, flat, counts)
            axes = {
                loop.axis: Place(self._from(loop, place))
                for loop, place in zip(self.strips.loops, outer, strict=False)
            }
            last = number(self.strips.number - 1, "i64")
            yield Strip(
                flat,
                {**axes, self.cut: Place(cut)},
                self.w.compare("icmp eq", flat, FIRST),
                self.w.compare("icmp eq", flat, last),
            )

    def _from(self, loop: For, place: Value) -> Value:
        return self.w.two("add nsw", self.expressions.value(loop.start, Point()), place)

    def _parts(self) -> tuple[Block, For, Block]:
        """What is done before the first strip, in each, and after the last."""
        body = self.tile.body
        (place,) = (place for place, each in enumerate(body) if isinstance(each, For))
        loop = body[place]
        for _ in self.strips.loops[:-1]:
            assert isinstance(loop, For), "loops of strips are right inside each other"
            (loop,) = loop.body
        assert isinstance(loop, For), "loops of strips are right inside each other"
        return body[:place], self._part(loop), body[place + 1 :]

    def _part(self, loop: For) -> For:
        """One strip of ``loop``, which may be narrower than the loop that strips are cut from."""
        size, whole = self.strips.size, self.strips.loops[-1]
        extent, done = length(whole), Apply(MUL, (_index(size), self.cut))
        start = normal(Apply(ADD, (whole.start, done)))
        stop: Expr = normal(Apply(ADD, (start, _index(size))))
        if extent is None or extent % size:
            stop = Apply(MIN, (stop, whole.stop))
        if loop.start is not whole.start:
            start = Apply(MAX, (start, loop.start))
        if loop.stop is not whole.stop:
            stop = Apply(MIN, (stop, loop.stop))
        return replace(loop, start=start, stop=stop)


def _index(value: int) -> Expr:
    return Const(value, "index")
