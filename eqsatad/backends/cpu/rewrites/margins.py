"""Operands of unknown extents copied to where vectors can read them: a program in, one out.

What `packing` does where extents are numbers, as far as it can be done where they are sizes. Bounds
of a sum of products that only keep a read in range depend on the place of the result, so that the
points of a tile would disagree on them. Read from a copy with zeros around it, all results run
through the same sum. As there, results that come out NaN are worked out again with the bounds.
The order in which a copy lies, and whether results are kept elsewhere, is what `packing` would do
at the sizes of an example.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from eqsatad.backends.blocks import fresh_names, touched
from eqsatad.backends.cpu.code.scalars import BYTES, COMPUTED
from eqsatad.backends.cpu.rewrites.copies import Layout
from eqsatad.backends.cpu.rewrites.examples import example, sides_of
from eqsatad.backends.cpu.rewrites.packing import best_choice
from eqsatad.backends.cpu.rewrites.products import Products, inmost, parts, products_of, rebuilt
from eqsatad.backends.cpu.rewrites.repairs import again, transparent
from eqsatad.backends.cpu.rewrites.results import kept
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

Kind = TypeVar("Kind")

# The bounds of a sum: what they say of its axis, and how those of several conditions are one.
BOUNDS: tuple[tuple[str, Op, Op], ...] = (("start", GE, MAX), ("stop", LT, MIN))


@dataclass(frozen=True)
class Room:
    """A copy of ``tensor`` with so many zeros before and behind it in each dimension.

    ``order`` are the dimensions of the tensor as they follow each other in the copy.
    """

    tensor: Tensor
    before: tuple[int, ...]
    after: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def natural(self) -> bool:
        """Whether the source itself lies like this."""
        return not any((*self.before, *self.after)) and self.order == tuple(sorted(self.order))

    @property
    def shape(self) -> tuple[Expr, ...]:
        sides = zip(self.before, self.after, strict=True)
        more = (index(before + after) for before, after in sides)
        whole = zip(self.tensor.shape, more, strict=True)
        return self.ordered([normal(Apply(ADD, pair)) for pair in whole])

    def ordered(self, each: Sequence[Kind]) -> tuple[Kind, ...]:
        """What there is for each dimension of the tensor, for those of the copy."""
        return tuple(each[place] for place in self.order)


@dataclass(frozen=True)
class Roomy:
    """A nest without bounds on its results, whose operands have ``rooms``.

    ``sure`` says that zeros are only multiplied with zeros; results that are ``kept`` lie
    elsewhere with that axis innermost, see `results`.
    """

    source: Products
    wide: Products
    rooms: tuple[Room, ...]
    sure: bool
    kept: Axis | None


def with_margins(program: LoopProgram, vector: int) -> LoopProgram:
    """``program`` with copies of operands of unknown extents; ``vector`` bytes are one vector."""
    return Margins(program, vector).program()


class Margins:
    """Rewrites the nests of a program; copies that only differ in their margins are one."""

    def __init__(self, source: LoopProgram, vector: int) -> None:
        self.source = source
        self.copies: dict[Room, Tensor] = {}
        self.results: list[Nest] = []
        self._fresh = fresh_names(source)
        found = [[_products(each) for each in nest.body] for nest in source.nests]
        sides = frozenset[Expr]().union(
            *(sides_of(each) for nest in found for each in nest if each is not None)
        )
        self.plans = [
            [None if each is None else _roomy(each, vector, sides) for each in nest]
            for nest in found
        ]
        self.whole = _together(
            room
            for nest in self.plans
            for plan in nest
            if plan is not None
            for room in plan.rooms
            if not room.natural
        )

    def program(self) -> LoopProgram:
        nests: list[Nest] = []
        for nest, plans in zip(self.source.nests, self.plans, strict=True):
            before, done = len(self.copies), len(self.results)
            body = self._body(nest.body, plans)
            fresh = list(self.copies.items())[before:]
            nests.extend(Nest(copy, tuple(_copying(room, copy))) for room, copy in fresh)
            nests.extend(self.results[done:])
            nests.append(replace(nest, body=body))
        kept = (nest.stage for nest in self.results)
        temporaries = (*self.source.temporaries, *self.copies.values(), *kept)
        return replace(self.source, nests=tuple(nests), temporaries=temporaries)

    def _body(self, body: Block, plans: Sequence[Roomy | None]) -> Block:
        written = {tensor for tensor, writes in touched(body).items() if writes}
        done: list[Statement] = []
        doubtful: list[tuple[Store, Statement]] = []
        for statement, found in zip(body, plans, strict=True):
            if found is None or any(room.tensor in written for room in found.rooms):
                done.append(statement)
                continue
            if not found.sure:
                doubtful.append((found.source.store, statement))
            done.append(self._sums(found))
        for buffer in dict.fromkeys(store.buffer for store, _ in doubtful):
            done.append(again(buffer, [pair for pair in doubtful if pair[0].buffer is buffer]))
        return tuple(done)

    def _sums(self, found: Roomy) -> Statement:
        """The nest with operands read from copies, or what copies its results to their place."""
        wide = found.wide
        pairs = zip(wide.operands, found.rooms, strict=True)
        reads: dict[Expr, Expr] = {read: self._read(read, room) for read, room in pairs}
        if found.kept is None:
            return rebuilt(wide, reads)
        name = self._fresh(f"{wide.store.buffer.name}_kept")
        elsewhere = kept(wide.loops, wide.loops, wide.store, found.kept, name)
        sums = rebuilt(replace(wide, store=elsewhere.store), reads)
        self.results.append(Nest(elsewhere.temporary, (sums,)))
        return elsewhere.copy

    def _read(self, read: Read, room: Room) -> Expr:
        """The element of the copy that ``read`` is in the source."""
        if room.natural:
            return read
        room = self.whole[room]
        if room not in self.copies:
            name = self._fresh(f"{room.tensor.name}_roomy")
            self.copies[room] = Placeholder(name, room.shape, room.tensor.dtype)
        moved = zip(read.indices, room.before, strict=True)
        places = [normal(Apply(ADD, (place, index(by)))) for place, by in moved]
        return Read(self.copies[room], room.ordered(places))


def _together(rooms: Iterable[Room]) -> dict[Room, Room]:
    """For each room one in the same order that has its margins and those of others."""
    alike: dict[tuple[Tensor, tuple[int, ...]], list[Room]] = {}
    for room in rooms:
        alike.setdefault((room.tensor, room.order), []).append(room)
    whole: dict[Room, Room] = {}
    for group in alike.values():
        before = tuple(map(max, zip(*(room.before for room in group), strict=True)))
        after = tuple(map(max, zip(*(room.after for room in group), strict=True)))
        whole |= dict.fromkeys(group, replace(group[0], before=before, after=after))
    return whole


def _products(statement: Statement) -> Products | None:
    """``statement`` as sums of products of unknown extents."""
    products = None if scheduled((statement,)) else products_of(statement)
    return products if products is not None and _sized(products) else None


def _roomy(products: Products, vector: int, sides: Collection[Expr]) -> Roomy | None:
    """``products`` read from where they are best read; None if they are so as they are."""
    conditions = list(_conditions(products.sums))
    sums = [each for loop in products.sums if (each := _widened(loop)) is not None]
    if len(sums) < len(products.sums) or not _decide(products.operands, conditions):
        return None
    wide = replace(products, sums=tuple(sums))
    rooms = [room for read in products.operands if (room := _room(read, wide)) is not None]
    sure = all(_decide([read], conditions) for read in products.operands)
    if len(rooms) < len(products.operands) or not (sure or transparent(products.store.value)):
        return None
    lanes = vector // BYTES[COMPUTED[products.update.var.dtype]]
    found = _arranged(Roomy(products, wide, tuple(rooms), sure, None), lanes, sides)
    moved = found.kept is not None or not all(room.natural for room in found.rooms)
    return found if conditions or moved else None


def _arranged(found: Roomy, lanes: int, sides: Collection[Expr]) -> Roomy:
    """``found`` with copies in the order that is best at the sizes of an example."""
    choice = best_choice(example(found.wide, sides), lanes)
    if choice is None:
        return found
    last = [loop for loop in found.wide.sums if loop.axis is choice.lane]
    wide = inmost(found.wide, last[0]) if last else found.wide
    rooms = map(_ordered, found.rooms, choice.layouts)
    lane = choice.lane if choice.keeps else None
    return replace(found, wide=wide, rooms=tuple(rooms), kept=lane)


def _ordered(room: Room, layout: Layout) -> Room:
    """``room`` in the order of ``layout``, as far as that cuts no dimension in two."""
    order = tuple(part.source for part in layout.parts)
    return room if layout.natural or len(set(order)) < len(order) else replace(room, order=order)


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
    return Room(read.tensor, tuple(before), tuple(after), tuple(range(len(before))))


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
    starts = room.ordered([index(before) for before in room.before])
    inside = room.ordered(room.tensor.shape)
    stops = [normal(Apply(ADD, pair)) for pair in zip(inside, starts, strict=True)]
    full = [(zero, extent) for extent in copy.shape]
    for place, extent in enumerate(copy.shape):
        for border in ((zero, starts[place]), (stops[place], extent)):
            if border[0] is not border[1]:
                spans = [*full[:place], border, *full[place + 1 :]]
                yield _over(copy, spans, None)
    yield _over(copy, list(zip(starts, stops, strict=True)), room)


def _over(copy: Tensor, spans: Sequence[tuple[Expr, Expr]], room: Room | None) -> Statement:
    """``copy`` within ``spans`` set to what the source has from its start on, or to zero."""
    extents = [normal(Apply(SUB, (stop, start))) for start, stop in spans]
    axes = [Axis(f"p{place}", extent) for place, extent in enumerate(extents)]
    pairs = zip(axes, spans, strict=True)
    places = tuple(normal(Apply(ADD, (axis, start))) for axis, (start, _) in pairs)
    value: Expr = Const(0.0, copy.dtype)
    if room is not None:
        there = dict(zip(room.order, axes, strict=True))
        value = Read(room.tensor, tuple(there[place] for place in sorted(there)))
    body: Block = (Store(copy, places, value),)
    for axis in reversed(axes):
        body = (For(axis, index(0), axis.extent, body, True),)
    (statement,) = body
    return statement
