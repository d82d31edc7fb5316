"""The slices of a sum of unknown length around the loops over tiles, see `slices`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.points import Place, Point
from eqsatad.backends.cpu.code.statements import Statements
from eqsatad.backends.cpu.code.stripwriter import FIRST, PartWriter, Strip
from eqsatad.backends.cpu.code.text import Value, Writer, number
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.tile import Slices, Tile
from eqsatad.loops.nest import Block, For
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Apply, Axis, Expr, Tensor
from eqsatad.terms.ops import ADD, FLOORDIV, MAX, MIN, MUL, SUB


class SliceWriter(PartWriter):
    """Writes tiles by slices, whose size a call decides."""

    def __init__(
        self,
        expressions: Expressions,
        statements: Statements,
        tile: Tile,
        kept: Tensor,
        slices: Slices,
    ) -> None:
        super().__init__(expressions, statements, tile, kept)
        self.slices = slices
        # Where a slice starts and stops: in the whole range, and along the outermost loop.
        outer, inner = slices.loops
        whole = normal(Apply(MUL, (outer.stop, inner.stop)))
        names = (f"{outer.axis.name}_{name}" for name in ("begin", "end", "first", "last"))
        self.begin, self.end, self.first, self.last = (Axis(name, whole) for name in names)

    @contextmanager
    def loop(
        self, places: Callable[[Writer, Value, Sequence[Value]], Sequence[Value]]
    ) -> Iterator[Strip]:
        """A loop over all slices, of about one length."""
        outer, inner = self.slices.loops
        whole = Apply(MUL, (outer.stop, inner.stop))
        count = Apply(MAX, (_above(whole, self.slices.size), index(1)))
        many = self.expressions.value(count, Point())
        size = self.expressions.value(_above(whole, count), Point())
        stop = self.expressions.value(whole, Point())
        with self.w.loop(FIRST, many) as place, self.expressions.scope():
            begin = self.w.intrinsic("smin", self.w.two("mul nsw", place, size), stop)
            end = self.w.intrinsic("smin", self.w.two("add nsw", begin, size), stop)
            here = Point({self.begin: Place(begin), self.end: Place(end)})
            rows = Apply(MAX, (inner.stop, index(1)))
            first = self.expressions.value(Apply(FLOORDIV, (self.begin, rows)), here)
            last = self.expressions.value(_above(self.end, rows), here)
            yield Strip(
                place,
                {**here.axes, self.first: Place(first), self.last: Place(last)},
                self.w.compare("icmp eq", place, FIRST),
                self.w.compare("icmp eq", place, self.w.two("sub", many, number(1, "i64"))),
            )

    def _parts(self) -> tuple[Block, For, Block]:
        """What is done before the first slice, in each, and after the last."""
        body = self.tile.body
        (place,) = (place for place, each in enumerate(body) if isinstance(each, For))
        outer, inner = self.slices.loops
        before = Apply(MUL, (outer.axis, inner.stop))
        rows = replace(
            inner,
            start=Apply(MAX, (normal(Apply(SUB, (self.begin, before))), index(0))),
            stop=Apply(MIN, (normal(Apply(SUB, (self.end, before))), inner.stop)),
        )
        loop = replace(outer, start=self.first, stop=self.last, body=(rows,))
        return body[:place], loop, body[place + 1 :]


def _above(dividend: Expr, divisor: Expr) -> Expr:
    """The quotient, rounded up."""
    more = Apply(SUB, (divisor, index(1)))
    return Apply(FLOORDIV, (Apply(ADD, (dividend, more)), divisor))
