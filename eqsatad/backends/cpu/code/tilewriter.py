"""The loops over the tiles of a nest, and the points of one tile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from math import ceil, prod

from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.fetchwriter import FetchWriter
from eqsatad.backends.cpu.code.known import literal
from eqsatad.backends.cpu.code.lanesums import along
from eqsatad.backends.cpu.code.panelwriter import PanelWriter
from eqsatad.backends.cpu.code.points import Place, Point
from eqsatad.backends.cpu.code.rollwriter import RollWriter
from eqsatad.backends.cpu.code.slicewriter import SliceWriter
from eqsatad.backends.cpu.code.statements import SHORT, Statements
from eqsatad.backends.cpu.code.stripwriter import TRUE, PartWriter, StripWriter
from eqsatad.backends.cpu.code.text import Value, Writer, number
from eqsatad.backends.cpu.tiles.overlap import summed
from eqsatad.backends.cpu.tiles.scans import Scan, recognised
from eqsatad.backends.cpu.tiles.tile import Asked, Overlap, Tile, length, most, widest
from eqsatad.backends.cpu.tiles.turns import Turned
from eqsatad.loops.nest import For, Statement, replaced, statements
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Tensor
from eqsatad.terms.ops import ADD, FLOORDIV, MAX, MIN, MUL, SUB

# Enough iterations to share; the rest of the loops stays inside each. With strips the tiles of
# one iteration find what they read in a cache.
ENOUGH = 64
ENOUGH_IN_STRIPS = 16
# Loops of unknown length that stay inside each iteration of at least two others.
INSIDE = 2
# The most vectors along a row that are written out.
WRITTEN_OUT = 8
# Turns of a sum that are written one after the other, so that going on takes fewer instructions;
# the fewest accumulators and turns for which that matters.
TURNS = 2
MANY, LONG = 12, 8


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
    if tile.block:
        taken = max(1, taken - 1)
    if (not tile.block or written_out(tile)) and all(isinstance(count, Const) for count in numbers):
        known = [count.value for count in numbers if isinstance(count, Const)]
        enough = ENOUGH if tile.strips is None else ENOUGH_IN_STRIPS
        while taken > 1 and prod(known[: taken - 1]) >= enough:
            taken -= 1
    elif taken > 1 and not any(map(_long, statements(tile.body))):
        # A tile takes too short to work out its place along each of the loops.
        taken = taken - INSIDE if taken > INSIDE + 1 else taken - 1
    return taken, iterations(numbers[:taken], numbers[taken:])


def iterations(counts: Sequence[Expr], inside: Sequence[Expr]) -> Expr:
    """The product of ``counts``; 0 where loops of one of the lengths ``inside`` do nothing."""
    one: Expr = Const(1, "index")
    some = [Apply(MIN, (one, count)) for count in inside if not isinstance(count, Const)]
    return normal(reduce(_product, (*counts, *some), one))


def _product(left: Expr, right: Expr) -> Expr:
    return Apply(MUL, (left, right))


def _long(statement: Statement) -> bool:
    """Whether ``statement`` is a loop that is not surely short."""
    return isinstance(statement, For) and (most(statement) or SHORT + 1) > SHORT


def written_out(tile: Tile) -> int:
    """How many vectors of a row are written one after the other, where all depend on few places.

    What is worked out for each is then a constant. 0 if they are a loop.
    """
    if not tile.block or len(tile.order) < 2:
        return 0
    count = tiles_along(tile, tile.order[-1])
    return count.value if isinstance(count, Const) and count.value <= WRITTEN_OUT else 0


def unflattened(w: Writer, flat: Value, counts: Sequence[Value]) -> list[Value]:
    """The place along each of some loops of ``counts``, the last one varying fastest."""
    places: list[Value] = []
    for count in reversed(counts[1:]):
        places.append(w.two("urem", flat, count))
        flat = w.two("udiv", flat, count)
    return [flat, *reversed(places)]


def _unbounded(tile: Tile) -> dict[Expr, Expr]:
    """The bounds of short sums that end some lanes early, with what they are for most vectors."""
    lane = next((loop for loop in tile.loops if loop.axis is tile.lane), None)
    if lane is None or length(lane) is not None:
        return {}
    found: dict[Expr, Expr] = {}
    for loop in statements(tile.body):
        if isinstance(loop, For) and lane.axis in loop.start.free | loop.stop.free:
            wide = widest(loop)
            if wide is None or not 0 < (length(wide) or 0) <= SHORT:
                return {}
            found |= {loop.start: wide.start, loop.stop: wide.stop}
    return {bound: number for bound, number in found.items() if lane.axis in bound.free}


class TileStatements(Statements):
    """Statements of a tile, whose sums ask for what later tiles read.

    Where rows overlap, the sum is written out; see `overlap`.
    """

    def __init__(self, of: Statements, tile: Tile, panel: PanelWriter | None) -> None:
        super().__init__(of.w, of.expressions, of.vector)
        self.panel = panel
        self.asked = tile.asked
        self.overlap = tile.overlap
        self.apart = tile.apart
        self.fetcher = None if tile.fetches is None else FetchWriter(of.expressions, tile.fetches)

    def statement(self, statement: Statement, points: Sequence[Point]) -> None:
        overlap = self.overlap
        if overlap is not None and isinstance(statement, For) and statement.axis is overlap.tap:
            with self.expressions.scope():
                self.inside(statement, _written(overlap, points))
        elif isinstance(statement, For) and statement.axis is self.apart and length(statement):
            self._apart(statement, points)
        elif isinstance(statement, For) and len(points) >= MANY and _sums_up(statement):
            self._in_turns(statement, points)
        else:
            super().statement(statement, points)

    def _apart(self, loop: For, points: Sequence[Point]) -> None:
        """All turns of a short sum, each of which loads what it reads itself."""
        start = self.expressions.value(loop.start, points[0])
        for turn in range(length(loop) or 0):
            here = Place(start, delta=turn)
            with self.expressions.anew():
                self.inside(loop, [point.at(loop.axis, here) for point in points])

    def _in_turns(self, loop: For, points: Sequence[Point]) -> None:
        """A sum of a known number of turns, several of them one after the other."""
        start, stop = (self.expressions.value(end, points[0]) for end in (loop.start, loop.stop))
        with self.w.loop(start, stop, TURNS) as index, self.expressions.scope():
            for turn in range(TURNS):
                if turn:
                    self.w.barrier()
                here = Place(index, delta=turn)
                self.inside(loop, [point.at(loop.axis, here) for point in points])

    def inside(self, loop: For, points: Sequence[Point]) -> None:
        for each in self.asked:
            if each.inside is loop.axis:
                # Where taps are written out each of them asks.
                taps = {point.axes[loop.axis].delta: point for point in reversed(points)}
                for point in taps.values():
                    self._first(each, point)
        if self.fetcher is not None:
            self.fetcher.inside(loop, points[0])
        if self.panel is not None:
            self.panel.inside(loop, points[0])
        super().inside(loop, points)

    def _first(self, asked: Asked, point: Point) -> None:
        """Asks at ``point`` if it is in one of the tiles that do."""
        with ExitStack() as inside:
            inside.enter_context(self.expressions.scope())
            for loop in asked.first:
                start = self.expressions.value(loop.start, Point())
                here = self.w.compare("icmp eq", point.axes[loop.axis].base, start)
                inside.enter_context(self.w.when(here))
            self.ask(asked, [point])

    def ask(self, asked: Asked, points: Sequence[Point]) -> None:
        """Asks for lines at ``points``, for each of them once."""
        tensor, indices = asked.read.tensor, asked.read.indices
        places = {
            tuple(
                place.delta for axis, place in point.axes.items() if axis in asked.read.free
            ): point
            for point in points
        }
        with self.expressions.scope():
            for point in places.values():
                base = self.expressions.address(tensor, indices, point).base
                for offset in asked.offsets:
                    there = self.w.address(base, "i8", number(offset, "i64"), inside=False)
                    self.w.prefetch(there)


def _sums_up(loop: For) -> bool:
    """Whether ``loop`` is a long sum of a number of turns that `TURNS` divides."""
    trips = length(loop) or 0
    same = isinstance(loop.start, Const) and isinstance(loop.stop, Const)
    return same and trips >= LONG and trips % TURNS == 0 and summed(loop)


def _written(overlap: Overlap, points: Sequence[Point]) -> list[Point]:
    """``points`` at all taps, in the order of the places that they read."""
    pairs = sorted(
        product(points, overlap.taps),
        key=lambda pair: overlap.order(pair[0].axes[overlap.row].delta, pair[1]),
    )
    zero = number(0, "i64")
    return [point.at(overlap.tap, Place(zero, delta=tap)) for point, tap in pairs]


@contextmanager
def flattened(
    w: Writer, begin: Value, end: Value, counts: Sequence[Value]
) -> Iterator[tuple[Value, list[Value]]]:
    """Some loops of ``counts`` as one from ``begin`` to ``end``, with the place along each.

    Numbers are divided by counts that are written in the code; by others each time would take long,
    so that places are counted on.
    """
    if all(literal(count) is not None for count in counts[1:]):
        with w.loop(begin, end) as flat:
            yield flat, unflattened(w, flat, counts)
        return
    slots = [w.slot("i64") for _ in counts]
    # Nothing is divided by 0 where there is nothing to do.
    some = [w.intrinsic("smax", count, number(1, "i64")) for count in counts]
    for slot, place in zip(slots, unflattened(w, begin, some), strict=True):
        w.set(slot, place)
    with w.loop(begin, end) as flat:
        yield flat, [w.get(slot, "i64") for slot in slots]
        more = number(1, "i64")
        for slot, count in zip(reversed(slots[1:]), reversed(counts[1:]), strict=True):
            after = w.two("add nsw", w.get(slot, "i64"), more)
            full = w.compare("icmp eq", after, count)
            w.set(slot, w.select(full, number(0, "i64"), after))
            more = w.convert("zext", full, "i64")
        w.set(slots[0], w.two("add nsw", w.get(slots[0], "i64"), more))


class TileWriter:
    """Writes a nest tile by tile, for the iterations ``%begin`` to ``%end`` of its range.

    A tile in strips keeps its accumulators in ``kept``.
    """

    def __init__(
        self,
        w: Writer,
        expressions: Expressions,
        statements: Statements,
        tile: Tile,
        kept: Tensor | None = None,
    ) -> None:
        self.w = w
        self.expressions = expressions
        self.tile = tile
        self.panel = None if tile.panel is None else PanelWriter(expressions, tile, tile.panel)
        self.statements = TileStatements(statements, tile, self.panel)
        self.strips: PartWriter | None = None
        if kept is not None and tile.slices is not None:
            given = self.statements
            self.strips = SliceWriter(expressions, given, tile, kept, tile.slices)
        elif kept is not None:
            self.strips = StripWriter(expressions, self.statements, tile, kept)

    def write(self) -> None:
        taken, _ = spread(self.tile)
        order = self.tile.order
        counts = [self._outside(tiles_along(self.tile, loop)) for loop in order]
        with ExitStack() as loops:
            strip = None
            if self.strips is not None:
                strip = loops.enter_context(self.strips.loop(unflattened))
            flat, places = self._places(counts, taken, loops)
            loops.enter_context(self.expressions.scope())
            if out := written_out(self.tile):
                for turn in range(out):
                    points = self._points(order, [*places, number(turn, "i64")])
                    with self.expressions.scope():
                        self.statements.block(self.tile.body, points)
                return
            points = self._points(order, places)
            if self.panel is not None:
                rows = self._along_lane + 1
                self.panel.write(points, self._new_vectors(flat, places, taken))
                pairs = zip(counts[rows:], places[rows:], strict=True)
                self.panel.begin(self._numbered(number(0, "i64"), pairs))
            tile = self._numbered(flat, zip(counts[taken:], places[taken:], strict=True))
            if (fetcher := self.statements.fetcher) is not None:
                fetcher.begin(tile, None if strip is None else strip.number)
            for asked in self.tile.asked:
                if asked.inside is None:
                    self.statements.ask(asked, points)
            if self.strips is not None and strip is not None:
                for here in self._dealt(order, places, points):
                    self.strips.write(strip, here, tile)
            elif self.tile.turned is not None:
                Turned(self.w, self.expressions, self.tile).write(points)
            elif self.tile.inner and recognised(self.tile.body) is not None:
                scan = Scan(self.w, self.expressions, self.statements)
                scan.write(self.tile.body, self.tile.lanes, points)
            elif self.tile.inner:
                assert self.tile.lane is not None, "a vector lies along an axis"
                along(self.statements, self.tile.body, self.tile.lane, self.tile.lanes, points)
            elif self.tile.rolling is not None:
                RollWriter(self.expressions, self.statements, self.tile).write(points)
            else:
                for here in self._dealt(order, places, points):
                    for together in self._together(here):
                        self._sums(together)

    @property
    def _along_lane(self) -> int:
        """Which of the loops over tiles goes along the lanes."""
        return next(n for n, loop in enumerate(self.tile.order) if loop.axis is self.tile.lane)

    def _new_vectors(self, flat: Value, places: Sequence[Value], taken: int) -> Value:
        """Whether a tile is the first along the rows, or of the iterations, to read its vectors."""
        zero, lane = number(0, "i64"), self._along_lane

        def first(rows: Sequence[Value]) -> Value:
            tests = (self.w.compare("icmp eq", place, zero) for place in rows)
            return reduce(partial(self.w.two, "and"), tests, TRUE)

        start = self.w.compare("icmp eq", flat, Value("%begin", "i64"))
        begun = self.w.two("and", start, first(places[max(taken, lane + 1) :]))
        return self.w.two("or", begun, first(places[lane + 1 :]))

    def _sums(self, points: Sequence[Point]) -> None:
        """The body of the tile at ``points``, without bounds where all lanes sum up all there is.

        Where a row ends is known only when the program runs; few vectors are there.
        """
        wide = _unbounded(self.tile)
        if not wide:
            with self.expressions.scope():
                self.statements.block(self.tile.body, points)
            return
        tests = [
            self.w.over_lanes("and", self.w.compare("icmp eq", self.expressions.value(bound, point),
                                                    self._outside(number)))
            for bound, number in wide.items() for point in points
        ]  # fmt: skip
        whole = reduce(partial(self.w.two, "and"), tests)
        bodies = ((whole, replaced(self.tile.body, wide)),
                  (self.w.two("xor", whole, TRUE), self.tile.body))  # fmt: skip
        for test, body in bodies:
            with self.w.when(test), self.expressions.scope():
                self.statements.block(body, points)

    def _dealt(
        self, order: Sequence[For], places: Sequence[Value], points: Sequence[Point]
    ) -> Iterator[list[Point]]:
        """The points of a tile: all of ``points``, or those of a tile with one neighbour less."""
        axis = self.tile.dealt
        if axis is None:
            yield list(points)
            return
        pairs = zip(order, places, strict=True)
        ((loop, place),) = (pair for pair in pairs if pair[0].axis is axis)
        whole = self.w.compare("icmp slt", place, self._outside(self._longer(loop)))
        with self.w.when(whole), self.expressions.scope():
            yield list(points)
        fewest = self.tile.fewest(axis)
        with self.w.when(self.w.two("xor", whole, TRUE)), self.expressions.scope():
            yield [point for point in points if point.axes[axis].delta < fewest]

    def _longer(self, loop: For) -> Expr:
        """How many tiles along ``loop`` have all neighbours: tiles with one less leave so many."""
        fewest = Const(self.tile.fewest(loop.axis), "index")
        covered = Apply(MUL, (tiles_along(self.tile, loop), fewest))
        left = Apply(SUB, (Apply(SUB, (loop.stop, loop.start)), covered))
        return Apply(MAX, (left, Const(0, "index")))

    def _together(self, points: Sequence[Point]) -> list[list[Point]]:
        """The points in groups that run one after the other."""
        lane = self.tile.lane
        if lane is None or not self.tile.columns:
            return [list(points)]
        columns: dict[int, list[Point]] = {}
        for point in points:
            columns.setdefault(point.axes[lane].delta, []).append(point)
        return list(columns.values())

    def _places(
        self, counts: Sequence[Value], taken: int, loops: ExitStack
    ) -> tuple[Value, list[Value]]:
        """The iteration, and the place along each loop, inside of loops that are entered."""
        zero = number(0, "i64")
        begin, end = Value("%begin", "i64"), Value("%end", "i64")
        inner: list[Value] = []
        out = written_out(self.tile)
        if self.tile.block and taken == len(counts) - 1 and not out:
            # All that a vector along the last loop needs is worked out once for a block.
            size = self.tile.block
            begin = loops.enter_context(self.w.loop(begin, end, size))
            beyond = self.w.two("add nsw", begin, number(size, "i64"))
            end = self.w.intrinsic("smin", beyond, end)
            inner.append(loops.enter_context(self.w.loop(zero, counts[-1])))
        flat, places = loops.enter_context(flattened(self.w, begin, end, counts[:taken]))
        for count in counts[taken + len(inner) : len(counts) - bool(out)]:
            inner.append(loops.enter_context(self.w.loop(zero, count)))
        return flat, [*places, *inner]

    def _numbered(self, flat: Value, within: Iterable[tuple[Value, Value]]) -> Value:
        """The number of a tile: ``flat`` of the range, and its place along the loops inside."""
        for count, place in within:
            flat = self.w.two("add nsw", self.w.two("mul nsw", flat, count), place)
        return flat

    def _outside(self, expr: Expr) -> Value:
        return self.expressions.value(expr, Point())

    def _points(self, order: Sequence[For], places: Sequence[Value]) -> list[Point]:
        tile = self.tile
        axes: dict[Axis, Place] = {}
        mask = None
        for loop, place in zip(order, places, strict=True):
            lane = loop.axis is tile.lane and tile.lanes > 0
            base = self._base(loop, place)
            axes[loop.axis] = Place(base, lane=int(lane), room=self._room(loop))
            if lane and tile.panel is not None:
                axes[tile.panel.begin] = Place(base)
            if lane and self._ragged(loop):
                here = self.w.two("add nsw", base, self.w.counting(tile.lanes))
                mask = self.w.compare("icmp slt", here, self._outside(loop.stop))
        point = Point(axes, 0 if tile.inner else tile.lanes, mask, mask)
        return [self._copy(point, deltas) for deltas in self._deltas()]

    def _ragged(self, loop: For) -> bool:
        """Whether a vector may stick out at the end."""
        extent = length(loop)
        return loop.axis not in self.tile.sure if extent is None else extent < self.tile.lanes

    def _room(self, loop: For) -> int | None:
        """How many values from the first of a tile on are certainly there."""
        extent, step = length(loop), self.tile.step(loop.axis)
        return step if extent is not None and extent >= step else None

    def _base(self, loop: For, place: Value) -> Value:
        """The first value of a tile; the last tile is moved back to end with the loop."""
        step = self.tile.fewest(loop.axis)
        base = self._outside(loop.start)
        if (whole := length(loop)) is not None and whole <= step:
            return base
        base = self.w.two("add nsw", base, self.w.two("mul nsw", place, number(step, "i64")))
        if loop.axis is self.tile.dealt:
            longer = self.w.intrinsic("smin", place, self._outside(self._longer(loop)))
            base = self.w.two("add nsw", base, longer)
        extent = length(loop)
        if extent is None and (loop.axis not in self.tile.sure or step == 1):
            return base
        if extent is not None and (extent < step or extent % step == 0):
            return base
        last = normal(Apply(SUB, (loop.stop, Const(step, "index"))))
        return self.w.intrinsic("smin", base, self._outside(last))

    def _deltas(self) -> Iterator[dict[Axis, int]]:
        """The points of a tile, fewest neighbours innermost.

        What is loaded for these stays in registers while the others take turns in a single one.
        """
        counts, lane = dict(self.tile.counts), self.tile.lane
        if self.tile.rolling is not None:
            counts.pop(self.tile.rolling.row)
        wide = {lane: counts.pop(lane)} if lane in counts else {}
        rows = dict(sorted(counts.items(), key=lambda each: each[1], reverse=True))
        few = prod(wide.values()) <= prod(rows.values())
        counts = {**rows, **wide} if few else {**wide, **rows}
        ranges = [self._neighbours(axis, count) for axis, count in counts.items()]
        for chosen in product(*ranges):
            yield dict(zip(counts, chosen, strict=True))

    def _neighbours(self, axis: Axis, count: int) -> list[int]:
        """How far each of some neighbours is from the first; the last vector ends with the loop."""
        lanes = self.tile.lanes if axis is self.tile.lane and self.tile.lanes else 1
        extent = next((length(loop) for loop in self.tile.loops if loop.axis is axis), None)
        places = [number * lanes for number in range(count)]
        if extent is None or extent < lanes or axis is not self.tile.lane:
            return places
        return [min(place, extent - lanes) for place in places]

    def _copy(self, point: Point, deltas: dict[Axis, int]) -> Point:
        axes = {
            axis: replace(place, delta=deltas.get(axis, 0)) for axis, place in point.axes.items()
        }
        return replace(point, axes=axes)
