"""Copies of tensors: how they lie, and the nests that fill them.

Each dimension of a copy is a share of an index of the source: all of it, or its quotient or
remainder by a stride. Around what the source fills there may be zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from eqsatad.backends.cpu.rewrites.products import Span, reach
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.loops.nest import (
    Block,
    For,
    Statement,
    Store,
)
from eqsatad.terms.linear import Linear, expression, linear
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Read, Select, Tensor
from eqsatad.terms.ops import GE, LT

# The longest sum whose axis does not decide how a copy lies.
FEW = 8
# The shortest row that is copied in one go with the zeros at its ends.
WIDE = 16


@dataclass(frozen=True)
class Part:
    """One dimension of a copy: ``step * (place + low)`` is its share of an index of the source."""

    source: int
    step: int
    low: int
    extent: int


@dataclass(frozen=True)
class Layout:
    """How a copy of ``tensor`` lies, and the range of each part that the source fills."""

    tensor: Tensor
    parts: tuple[Part, ...]
    filled: tuple[Span, ...]

    @property
    def elements(self) -> int:
        return prod(part.extent for part in self.parts)

    @property
    def shape(self) -> tuple[Tensor, tuple[tuple[int, int], ...]]:
        """What layouts have in common that differ only in how far they reach."""
        return self.tensor, tuple((part.source, part.step) for part in self.parts)

    def with_room_for(self, other: Layout) -> Layout:
        """This one, of the same shape, as large as it takes to hold both."""
        parts, filled = [], []
        pairs = zip(
            zip(self.parts, self.filled, strict=True),
            zip(other.parts, other.filled, strict=True),
            strict=True,
        )
        for (mine, here), (theirs, there) in pairs:
            low = min(mine.low, theirs.low)
            high = max(mine.low + mine.extent, theirs.low + theirs.extent)
            parts.append(replace(mine, low=low, extent=high - low))
            first = min(mine.low + here[0], theirs.low + there[0])
            last = max(mine.low + here[1], theirs.low + there[1])
            filled.append((first - low, last - low))
        return Layout(self.tensor, tuple(parts), tuple(filled))

    @property
    def natural(self) -> bool:
        """Whether the source itself lies like this."""
        order = [part.source for part in self.parts]
        return (
            order == sorted(set(order))
            and not self.padded
            and not any(part.low for part in self.parts)
        )

    @property
    def padded(self) -> bool:
        return any(
            span != (0, part.extent) for part, span in zip(self.parts, self.filled, strict=True)
        )

    @property
    def across(self) -> bool:
        """Whether neighbours in the copy are not neighbours in the source."""
        last = self.parts[-1]
        return last.source != len(self.tensor.shape) - 1 or last.step != 1


def together(layouts: Iterable[Layout]) -> dict[Layout, Layout]:
    """For each layout one that has room for it, shared where that makes copies smaller."""
    groups: list[tuple[Layout, list[Layout]]] = []
    for layout in dict.fromkeys(layouts):
        for place, (whole, members) in enumerate(groups):
            if whole.shape == layout.shape:
                both = whole.with_room_for(layout)
                if both.elements < whole.elements + layout.elements:
                    groups[place] = both, [*members, layout]
                    break
        else:
            groups.append((layout, [layout]))
    return {member: whole for whole, members in groups for member in members}


def as_it_lies(tensor: Tensor) -> Layout:
    """The layout of ``tensor`` itself."""
    extents = [extent_of(tensor, place) for place in range(len(tensor.shape))]
    parts = tuple(Part(place, 1, 0, extent) for place, extent in enumerate(extents))
    return Layout(tensor, parts, tuple((0, extent) for extent in extents))


def layout_of(
    read: Read, lane: Axis | None, spans: Mapping[Axis, Span], summed: frozenset[Axis]
) -> Layout | None:
    """How ``read`` finds all that it reads, the elements along ``lane`` next to each other."""
    found: list[tuple[bool, bool, Part, Span]] = []
    lanes = 0
    for source, place in enumerate(read.indices):
        form = linear(place)
        step = form.coefficient(lane) if lane is not None else 0
        lanes += step != 0
        split = _split(source, form, max(1, step), spans, extent_of(read.tensor, source))
        if step < 0 or lanes > 1 or split is None:
            return None
        inner = form.free <= summed or _long(form, spans, summed)
        last = step > 0 if lane is not None else source == len(read.indices) - 1
        found.extend((last and part is split[-1][0], inner, part, span) for part, span in split)
    natural = Layout(read.tensor, *_columns(found))
    if natural.natural and (lane is None or found[-1][0]):
        return natural
    # What stays the same while long sums run comes first, so that they walk through memory.
    return Layout(read.tensor, *_columns(sorted(found, key=lambda each: each[:2])))


def _columns(
    found: Sequence[tuple[bool, bool, Part, Span]],
) -> tuple[tuple[Part, ...], tuple[Span, ...]]:
    return tuple(part for _, _, part, _ in found), tuple(span for *_, span in found)


def _long(form: Linear, spans: Mapping[Axis, Span], summed: frozenset[Axis]) -> bool:
    """Whether the axis of a long sum is in ``form``."""
    trips = [spans[axis][1] - spans[axis][0] + 1 for axis in form.free & summed]
    return max(trips, default=0) > FEW


def extent_of(tensor: Tensor, dimension: int) -> int:
    extent = tensor.shape[dimension]
    assert isinstance(extent, Const), "shapes are known"
    return int(extent.value)


def _split(
    source: int, form: Linear, step: int, spans: Mapping[Axis, Span], extent: int
) -> list[tuple[Part, Span]] | None:
    """The dimension ``source`` as one part, or as a remainder and a quotient by ``step``."""
    rest, whole = _divided(form, step)
    rests = []
    if step > 1:
        low, high = reach(rest, spans)
        if low < 0 or high >= step or extent % step:
            return None
        rests.append((Part(source, 1, 0, step), (0, step)))
    low, high = reach(whole, spans)
    extent //= step
    if low >= 0 and high < extent:
        # Nothing is read outside: the copy is as large as the source.
        return [*rests, (Part(source, step, 0, extent), (0, extent))]
    filled = max(0, -low), min(high + 1, extent) - low
    if filled[0] >= filled[1]:
        return None
    return [*rests, (Part(source, step, low, high - low + 1), filled)]


def _divided(form: Linear, step: int) -> tuple[Linear, Linear]:
    """``rest`` and ``whole`` with ``form = step * whole + rest``."""
    rest = Linear.build(form.const % step, ((c, a) for c, a in form.terms if c % step))
    whole = Linear.build(
        form.const // step, ((c // step, a) for c, a in form.terms if c % step == 0)
    )
    return (rest, whole) if step > 1 else (Linear.build(0, ()), form)


def place_in(part: Part, parts: Sequence[Part], forms: Sequence[Linear]) -> Linear:
    """Where a read is along ``part`` of a copy."""
    step = max(each.step for each in parts if each.source == part.source)
    rest, whole = _divided(forms[part.source], step)
    form = whole if part.step == step else rest
    return Linear.build(form.const - part.low, form.terms)


def borders(layout: Layout, copy: Tensor) -> Iterator[Statement]:
    """Zeros in what the source does not fill, except for what `filling` does of it."""
    full = [(0, part.extent) for part in layout.parts]
    for place, (part, span) in enumerate(zip(layout.parts, layout.filled, strict=True)):
        if place == len(full) - 1 and _by_rows(layout):
            continue
        for border in ((0, span[0]), (span[1], part.extent)):
            if border[0] < border[1]:
                spans = [*full[:place], border, *full[place + 1 :]]
                yield _over(copy, spans, lambda _: Const(0.0, copy.dtype))


def _by_rows(layout: Layout) -> bool:
    """Whether whole rows are copied with the zeros at their ends."""
    return not layout.across and layout.parts[-1].extent >= WIDE


def filling(layout: Layout, copy: Tensor) -> Statement:
    """The source copied to its place."""
    zero = Const(0.0, copy.dtype)

    def element(places: Sequence[Linear]) -> Expr:
        indices = [Linear.build(0, ()) for _ in layout.tensor.shape]
        for part, place in zip(layout.parts, places, strict=True):
            moved = Linear.build(place.const + part.low, place.terms)
            indices[part.source] += moved.scaled(part.step)
        return Read(layout.tensor, tuple(map(expression, indices)))

    def within(places: Sequence[Linear]) -> Expr:
        (low, high), last = layout.filled[-1], expression(places[-1])
        tests = [Apply(GE, (last, index(low)))] if low else []
        tests += [Apply(LT, (last, index(high)))] if high < layout.parts[-1].extent else []
        return reduce(lambda value, test: Select(test, value, zero), tests, element(places))

    if not _by_rows(layout):
        return _over(copy, layout.filled, element)
    return _over(copy, [*layout.filled[:-1], (0, layout.parts[-1].extent)], within)


def _over(
    copy: Tensor, spans: Sequence[Span], element: Callable[[Sequence[Linear]], Expr]
) -> Statement:
    """``copy`` set to ``element`` of each place within ``spans``."""
    axes = [Axis(f"p{n}", index(high - low)) for n, (low, high) in enumerate(spans)]
    places = [Linear.build(low, ((1, axis),)) for axis, (low, _) in zip(axes, spans, strict=True)]
    body: Block = (Store(copy, tuple(map(expression, places)), element(places)),)
    for axis in reversed(axes):
        body = (For(axis, index(0), axis.extent, body, True),)
    (statement,) = body
    return statement
