"""What is certain of index expressions at a point of a tile before anything runs.

A tile that takes a whole loop begins where that loop does, and the last tile ends with it. So the
ranges of short sums, which at the border of an image depend on the place, are often numbers at
one vector of a tile; what is certain needs neither a test nor a mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from eqsatad.backends.cpu.code.points import Place, Point
from eqsatad.backends.cpu.code.text import Value
from eqsatad.loops.nest import For
from eqsatad.terms.linear import Linear, expression
from eqsatad.terms.nodes import Axis, Const, Expr
from eqsatad.terms.ranges import Interval, interval
from eqsatad.terms.walk import substitute


@dataclass(frozen=True)
class Range:
    """Between which numbers the first value of a loop and the end of it lie, over all lanes."""

    start: Interval
    stop: Interval

    @property
    def exact(self) -> tuple[int, int] | None:
        """The range, if it is the same in all lanes and known."""
        low, high = self.start[0], self.stop[0]
        if low is None or high is None or (low, high) != (self.start[1], self.stop[1]):
            return None
        return low, high

    def never(self, place: int) -> bool:
        """Whether ``place`` is certainly outside."""
        least, most = self.start[0], self.stop[1]
        return (least is not None and place < least) or (most is not None and place >= most)

    def begun(self, place: int) -> bool:
        """Whether ``place`` is certainly not before the range."""
        return self.start[1] is not None and place >= self.start[1]

    def open(self, place: int) -> bool:
        """Whether ``place`` is certainly not behind the range."""
        return self.stop[0] is not None and place < self.stop[0]


def range_of(loop: For, point: Point) -> Range:
    """What is known of the range of ``loop`` at ``point``."""
    return Range(*(at(bound, point) for bound in (loop.start, loop.stop)))


def at(expr: Expr, point: Point) -> Interval:
    """Between which numbers ``expr`` lies in the lanes of ``point``."""
    places: Mapping[Expr, Expr] = {
        axis: _stands_for(axis, place, max(1, point.lanes))
        for axis, place in point.axes.items()
        if axis in expr.free
    }
    return interval(substitute(expr, places))


def _stands_for(axis: Axis, place: Place, lanes: int) -> Expr:
    """An expression that has the values of ``axis`` at ``place``."""
    wide = lanes if place.lane else 1
    if place.lane not in (0, 1):
        return axis
    if (base := literal(place.base)) is not None:
        return _counted(axis, base + place.delta, wide)
    if not isinstance(axis.extent, Const) or place.room is None:
        return axis
    return _counted(axis, place.delta, axis.extent.value - place.room + wide)


def _counted(axis: Axis, first: int, count: int) -> Expr:
    """So many values from ``first`` on."""
    if count == 1:
        return Const(first, "index")
    some = Axis(f"{axis.name}.some", Const(count, "index"))
    return expression(Linear.build(first, ((1, some),)))


def literal(value: Value) -> int | None:
    """The integer that ``value`` is, if that is written in it."""
    return int(value.text) if value.text.lstrip("-").isdigit() else None


def span(ranges: Sequence[Range]) -> tuple[int, int] | None:
    """The first value and the end of all ``ranges`` together, if they are known."""
    starts = [each.start[0] for each in ranges]
    stops = [each.stop[1] for each in ranges]
    lows = [low for low in starts if low is not None]
    highs = [high for high in stops if high is not None]
    if len(lows) < len(starts) or len(highs) < len(stops):
        return None
    return min(lows), max(highs)


def segments(
    ranges: Sequence[tuple[int, int]],
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The pieces of all ``ranges`` within which the same ones, given by number, take part."""
    edges = sorted({edge for low, high in ranges if low < high for edge in (low, high)})
    for low, high in pairwise(edges):
        inside = tuple(n for n, (a, b) in enumerate(ranges) if a <= low and high <= b)
        if inside:
            yield low, high, inside
