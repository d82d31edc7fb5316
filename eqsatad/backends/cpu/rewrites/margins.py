"""Operands of unknown extents copied to where there is room around them: a program in, one out.

What `packing` does where extents are numbers, as far as it can be done where they are sizes. Bounds
of a sum of products that only keep a read in range depend on the place of the result, so that the
points of a tile would disagree on them. Read from a copy with zeros around it, all results run
through the same sum. As there, results that come out NaN are worked out again with the bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsatad.backends.blocks import touched
from eqsatad.backends.cpu.rewrites.packing import names
from eqsatad.backends.cpu.rewrites.products import Products, parts, products_of, rebuilt
from eqsatad.backends.cpu.rewrites.repairs import again, transparent
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.loops.nest import (
    Block,
    For,
    LoopProgram,
    Nest,
    Statement,
    Store,
    scheduled,
)
from eqsatad.terms.linear import linear, normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Placeholder, Read, Tensor
from eqsatad.terms.ops import ADD, GE, LT, MAX, MIN, MUL, SUB, Op
from eqsatad.terms.presburger import implied, span

# The bounds of a sum: what they say of its axis, and how those of several conditions are one.
BOUNDS: tuple[tuple[str, Op, Op], ...] = (("start", GE, MAX), ("stop", LT, MIN))


@dataclass(frozen=True)
class Room:
    """A copy of ``tensor`` with so many zeros before and behind it in each dimension."""

    tensor: Tensor
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def empty(self) -> bool:
        return not any((*self.before, *self.after))

    @property
    def shape(self) -> tuple[Expr, ...]:
        sides = zip(self.before, self.after, strict=True)
        more = (index(before + after) for before, after in sides)
        whole = zip(self.tensor.shape, more, strict=True)
        return tuple(normal(Apply(ADD, pair)) for pair in whole)


@dataclass(frozen=True)
class Roomy:
    """A nest without bounds on its results, whose operands have ``rooms``.

    ``sure`` says that zeros are only multiplied with zeros.
    """

    source: Products
    wide: Products
    rooms: tuple[Room, ...]
    sure: bool


def with_margins(program: LoopProgram) -> LoopProgram:
    """``program`` with room around operands of unknown extents where bounds need it."""
    return Margins(program).program()


class Margins:
    """Rewrites the nests of a program; equal copies are made once."""

    def __init__(self, source: LoopProgram) -> None:
        self.source = source
        self.copies: dict[Room, Tensor] = {}
        self._fresh = names(source)

    def program(self) -> LoopProgram:
        nests: list[Nest] = []
        for nest in self.source.nests:
            before = len(self.copies)
            body = self._body(nest.body)
            fresh = list(self.copies.items())[before:]
            nests.extend(Nest(copy, tuple(_copying(room, copy))) for room, copy in fresh)
            nests.append(replace(nest, body=body))
        temporaries = (*self.source.temporaries, *self.copies.values())
        return replace(self.source, nests=tuple(nests), temporaries=temporaries)

    def _body(self, body: Block) -> Block:
        written = {tensor for tensor, writes in touched(body).items() if writes}
        done: list[Statement] = []
        doubtful: list[tuple[Store, Statement]] = []
        for statement in body:
            found = roomy(statement)
            if found is None or any(room.tensor in written for room in found.rooms):
                done.append(statement)
                continue
            if not found.sure:
                doubtful.append((found.source.store, statement))
            pairs = zip(found.wide.operands, found.rooms, strict=True)
            done.append(rebuilt(found.wide, {read: self._read(read, room) for read, room in pairs}))
        for buffer in dict.fromkeys(store.buffer for store, _ in doubtful):
            done.append(again(buffer, [pair for pair in doubtful if pair[0].buffer is buffer]))
        return tuple(done)

    def _read(self, read: Read, room: Room) -> Expr:
        """The element of the copy that ``read`` is in the source."""
        if room.empty:
            return read
        if room not in self.copies:
            name = self._fresh(f"{room.tensor.name}_roomy")
            self.copies[room] = Placeholder(name, room.shape, room.tensor.dtype)
        moved = zip(read.indices, room.before, strict=True)
        places = tuple(normal(Apply(ADD, (place, index(by)))) for place, by in moved)
        return Read(self.copies[room], places)


def roomy(statement: Statement) -> Roomy | None:
    """``statement`` without bounds that keep one of its reads in range; None if it has none."""
    products = None if scheduled((statement,)) else products_of(statement)
    if products is None or not _sized(products):
        return None
    conditions = list(_conditions(products.sums))
    sums = [each for loop in products.sums if (each := _widened(loop)) is not None]
    if not conditions or len(sums) < len(products.sums):
        return None
    if not _decide(products.operands, conditions):
        return None
    wide = replace(products, sums=tuple(sums))
    rooms = [room for read in products.operands if (room := _room(read, wide)) is not None]
    sure = all(_decide([read], conditions) for read in products.operands)
    if len(rooms) < len(products.operands) or not (sure or transparent(products.store.value)):
        return None
    return Roomy(products, wide, tuple(rooms), sure)


def _sized(products: Products) -> bool:
    """Whether extents are sizes, and results share operands, so that copies are worth it."""
    extents = [extent for read in products.operands for extent in read.tensor.shape]
    shared = (loop.axis not in read.free for loop in products.loops for read in products.operands)
    return any(shared) and not all(isinstance(extent, Const) for extent in extents)


def _conditions(sums: Sequence[For]) -> Iterator[Expr]:
    """The bounds of ``sums`` that depend on axes, as conditions."""
    for loop in sums:
        for side, op, extreme in BOUNDS:
            for part in parts(getattr(loop, side), extreme):
                if part.free:
                    yield Apply(op, (loop.axis, part))


def _widened(loop: For) -> For | None:
    """``loop`` without the bounds that depend on axes; None if nothing would bound it."""
    found: dict[str, Expr] = {}
    for place, (side, _, extreme) in enumerate(BOUNDS):
        bound = getattr(loop, side)
        kept = [part for part in parts(bound, extreme) if not part.free]
        if len(kept) == 0:
            limit = span(bound)[place]
            if limit is None:
                return None
            kept = [index(limit)]
        found[side] = kept[0]
        for part in kept[1:]:
            found[side] = Apply(extreme, (found[side], part))
    return replace(loop, start=found["start"], stop=found["stop"])


def _decide(reads: Sequence[Read], conditions: Sequence[Expr]) -> bool:
    """Whether ``conditions`` hold wherever ``reads`` are inside of their arrays."""
    inside = [
        Apply(op, (place, limit))
        for read in reads
        for place, extent in zip(read.indices, read.tensor.shape, strict=True)
        for op, limit in ((GE, index(0)), (LT, extent))
    ]
    return all(implied(condition, inside) for condition in conditions)


def _room(read: Read, products: Products) -> Room | None:
    """The zeros around what ``read`` reads in ``products``; None if they are not known."""
    bounds = {loop.axis: (loop.start, loop.stop) for loop in (*products.loops, *products.sums)}
    before, after = [], []
    for place, extent in zip(read.indices, read.tensor.shape, strict=True):
        ends = _ends(place, bounds)
        if ends is None:
            return None
        least = span(ends[0])[0]
        beyond = span(normal(Apply(SUB, (ends[1], extent))))[1]
        if least is None or beyond is None:
            return None
        before.append(max(0, -least))
        after.append(max(0, beyond + 1))
    return Room(read.tensor, tuple(before), tuple(after))


def _ends(place: Expr, bounds: Mapping[Axis, tuple[Expr, Expr]]) -> tuple[Expr, Expr] | None:
    """The least and the greatest value of ``place`` over loops with these bounds."""
    form = linear(place)
    ends: list[Expr] = [index(form.const), index(form.const)]
    for coef, atom in form.terms:
        if isinstance(atom, Axis):
            low, stop = bounds[atom]
            reach = [low, Apply(SUB, (stop, index(1)))]
        elif atom.free:
            return None
        else:
            reach = [atom, atom]
        for side, value in enumerate(reach if coef > 0 else reversed(reach)):
            ends[side] = Apply(ADD, (ends[side], Apply(MUL, (index(coef), value))))
    return normal(ends[0]), normal(ends[1])


def _copying(room: Room, copy: Tensor) -> Iterator[Statement]:
    """Zeros around, and the source in the middle."""
    zero: Expr = index(0)
    starts = [index(before) for before in room.before]
    stops = [normal(Apply(ADD, pair)) for pair in zip(room.tensor.shape, starts, strict=True)]
    full = [(zero, extent) for extent in copy.shape]
    for place, extent in enumerate(copy.shape):
        for border in ((zero, starts[place]), (stops[place], extent)):
            if border[0] is not border[1]:
                spans = [*full[:place], border, *full[place + 1 :]]
                yield _over(copy, spans, None)
    yield _over(copy, list(zip(starts, stops, strict=True)), room.tensor)


def _over(copy: Tensor, spans: Sequence[tuple[Expr, Expr]], source: Tensor | None) -> Statement:
    """``copy`` within ``spans`` set to what ``source`` has from its start on, or to zero."""
    extents = [normal(Apply(SUB, (stop, start))) for start, stop in spans]
    axes = [Axis(f"p{place}", extent) for place, extent in enumerate(extents)]
    pairs = zip(axes, spans, strict=True)
    places = tuple(normal(Apply(ADD, (axis, start))) for axis, (start, _) in pairs)
    value = Const(0.0, copy.dtype) if source is None else Read(source, tuple(axes))
    body: Block = (Store(copy, places, value),)
    for axis in reversed(axes):
        body = (For(axis, index(0), axis.extent, body, True),)
    (statement,) = body
    return statement
