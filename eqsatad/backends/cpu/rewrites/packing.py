"""Operands of sums of products copied to where vectors can read them: a program in, one out.

A nest that adds up products of two reads, one of which serves several results, may read copies
instead: with zeros around them, so that bounds that only keep reads in range are not needed; with
the axis of the vectors innermost; and with a stride made a dimension of its own. The copies are
temporaries and copying them is part of the program. What a bound left out is then a product with
zero, which is NaN where the other factor is infinite or NaN; results that come out NaN are worked
out again with the bounds. ``exact`` programs are not packed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain as chained
from math import ceil, gcd, prod

from eqsatad.backends.blocks import fresh_names, touched
from eqsatad.backends.cpu.code.loads import PICKED
from eqsatad.backends.cpu.code.scalars import BYTES, COMPUTED, STORED
from eqsatad.backends.cpu.rewrites.copies import (
    Layout,
    Part,
    as_it_lies,
    borders,
    filling,
    layout_of,
    place_in,
    together,
)
from eqsatad.backends.cpu.rewrites.products import (
    Products,
    Span,
    affine,
    decides,
    inmost,
    rebuilt,
    recognised,
    rounded,
    span,
    without_bounds,
)
from eqsatad.backends.cpu.rewrites.repairs import again, transparent
from eqsatad.backends.cpu.rewrites.results import kept, worth_keeping
from eqsatad.backends.cpu.tiles import panels
from eqsatad.backends.cpu.tiles.costs import ADD_UP
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.fusion import fused
from eqsatad.backends.cpu.tiles.overlap import overlaps
from eqsatad.backends.cpu.tiles.reuse import LINE, SETS
from eqsatad.backends.cpu.tiles.taps import tapped
from eqsatad.backends.cpu.tiles.tile import chain, length, stride
from eqsatad.loops.nest import (
    Block,
    For,
    LoopProgram,
    Nest,
    Statement,
    Store,
    replaced,
    scheduled,
)
from eqsatad.terms.linear import expression, linear
from eqsatad.terms.nodes import (
    Axis,
    Expr,
    Placeholder,
    Read,
    Tensor,
)
from eqsatad.terms.walk import postorder

# Cycles for one element: copied in order, copied across, stored apart from its neighbours, kept
# in a temporary and copied to its place.
IN_ORDER = 0.25
ACROSS = 0.5
APART = 1.5
KEPT = 0.5
# Results that share a vector before it is worth copying, and cycles of products for each cycle
# of copying.
SHARED = 4
WORTH = 0.5
# Cycles for a product where elements are loaded one by one, as no vector finds both operands.
SCALAR = 2

# Bytes of a page, how many of them a CPU finds at once, and what products cost, compared with
# others, that go through more of them in turns.
PAGE = 4096
PAGES = 64
LEAPING = 1.3
# Vectors and rows of a tile that reads panels.
LANES, ROWS = 3, 6
# What tiles of sums with bounds need: vectors along the lanes, rows along one other axis, and the
# most bytes from one of these to the next.
VECTORS = 2
NEIGHBOURS = 12
NEARBY = 4 * PAGE
# How often an element must be read across for a copy to pay where nothing is added up.
REREAD = 2
# What products cost, compared with others, whose operands both come in vectors, of which those of
# one begin anywhere in a line.
SLIDING = 1.5
# The same where vectors of a result begin anywhere in a line, each of which serves one product.
SOLE = 2
# Bytes that lines of a sum may fill and still be there for the next.
FILLED = 1 << 15
# Results that share an element from which on it is loaded often.
OFTEN = 256


@dataclass(frozen=True)
class Choice:
    """The axis that vectors run along, which ``products`` may round up to whole vectors.

    ``layouts`` are those of both operands; ``keeps`` says that results go to a temporary.
    """

    lane: Axis
    products: Products
    layouts: tuple[Layout, Layout]
    keeps: bool
    cycles: float


@dataclass(frozen=True)
class Planned:
    """What becomes of a statement, the nest ``source``; see `Choice`.

    ``sure`` says that no result is NaN because of a border alone.
    """

    source: Products
    choice: Choice
    sure: bool


@dataclass(frozen=True)
class Strewn:
    """Stores without sums, and the layouts of what they read across."""

    layouts: dict[Read, Layout]


def packed(program: LoopProgram, vector: int) -> LoopProgram:
    """``program`` with copies of operands where they pay; ``vector`` bytes are one vector."""
    return Packer(program, vector).program()


class Packer:
    """Rewrites the nests of a program; copies that only differ in their borders are one."""

    def __init__(self, source: LoopProgram, vector: int) -> None:
        self.source = source
        self.plans = _plans(source, vector)
        self.groups = together(
            layout
            for nest in self.plans
            for planned in nest
            for layout in _layouts(planned)
            if not layout.natural
        )
        self.copies: dict[Layout, Tensor] = {}
        self.results: list[Nest] = []
        # Statements whose results may be NaN because of a border alone.
        self._doubtful: list[tuple[Store, Statement]] = []
        self._name = fresh_names(source)

    def program(self) -> LoopProgram:
        nests: list[Nest] = []
        for nest, plans in zip(self.source.nests, self.plans, strict=True):
            before, done = len(self.copies), len(self.results)
            body = self._body(nest.body, plans)
            nests.extend(self._copying(list(self.copies)[before:]))
            nests.extend(self.results[done:])
            nests.append(Nest(nest.stage, (*body, *self._repairs())))
        results = (nest.stage for nest in self.results)
        temporaries = (*self.source.temporaries, *self.copies.values(), *results)
        return replace(self.source, nests=tuple(nests), temporaries=temporaries)

    def _body(self, body: Block, plans: Sequence[Planned | Strewn | None]) -> Block:
        """``body`` rewritten; of results that are kept elsewhere only the copies."""
        written = {tensor for tensor, writes in touched(body).items() if writes}
        done: list[Statement] = []
        for statement, planned in zip(body, plans, strict=True):
            if planned is None or any(each.tensor in written for each in _layouts(planned)):
                done.append(statement)
                continue
            if isinstance(planned, Strewn):
                done.append(self._gathered(statement, planned))
                continue
            if not planned.sure:
                self._doubtful.append((planned.source.store, statement))
            make = self._kept if planned.choice.keeps else self._sums
            done.append(make(planned))
        return tuple(done)

    def _gathered(self, statement: Statement, strewn: Strewn) -> Statement:
        """``statement`` with reads of copies."""
        reads: dict[Expr, Expr] = {
            read: self._read(read, layout) for read, layout in strewn.layouts.items()
        }
        (result,) = replaced((statement,), reads)
        return result

    def _sums(self, planned: Planned) -> Statement:
        """The nest with its operands read from copies."""
        choice = planned.choice
        reads: dict[Expr, Expr] = {
            read: self._read(read, layout)
            for read, layout in zip(choice.products.operands, choice.layouts, strict=True)
        }
        return rebuilt(choice.products, reads)

    def _kept(self, planned: Planned) -> Statement:
        """What copies the results to their place from where `_sums` leaves them."""
        choice, source = planned.choice, planned.source
        name = self._name(f"{source.store.buffer.name}_kept")
        found = kept(source.loops, choice.products.loops, source.store, choice.lane, name)
        products = replace(choice.products, store=found.store)
        sums = self._sums(replace(planned, choice=replace(choice, products=products)))
        self.results.append(Nest(found.temporary, (sums,)))
        return found.copy

    def _repairs(self) -> Iterator[Statement]:
        """What works results again that came out NaN, each as the original statement does."""
        doubtful, self._doubtful = self._doubtful, []
        for buffer in dict.fromkeys(store.buffer for store, _ in doubtful):
            yield again(buffer, [pair for pair in doubtful if pair[0].buffer is buffer])

    def _read(self, read: Read, layout: Layout) -> Read:
        """The element of the copy that ``read`` is in the source."""
        if layout.natural:
            return read
        whole = self.groups[layout]
        if whole not in self.copies:
            self.copies[whole] = self._copy(whole)
        forms = [linear(place) for place in read.indices]
        indices = tuple(expression(place_in(part, whole.parts, forms)) for part in whole.parts)
        return Read(self.copies[whole], indices)

    def _copy(self, layout: Layout) -> Tensor:
        shape = tuple(index(part.extent) for part in layout.parts)
        name = self._name(f"{layout.tensor.name}_packed")
        return Placeholder(name, shape, layout.tensor.dtype)

    def _copying(self, layouts: Sequence[Layout]) -> Iterator[Nest]:
        for layout in layouts:
            copy = self.copies[layout]
            yield Nest(copy, (*borders(layout, copy), filling(layout, copy)))


def _plans(source: LoopProgram, vector: int) -> list[list[Planned | Strewn | None]]:
    """What becomes of every statement; what is copied for one is read from the copy by all."""
    plans = [[_planned(each, vector) for each in nest.body] for nest in source.nests]
    copied = {
        layout.tensor
        for planned in chained.from_iterable(plans)
        for layout in _layouts(planned)
        if not layout.natural
    }

    def settled(statement: Statement, planned: Planned | Strewn | None) -> Planned | Strewn | None:
        if not isinstance(planned, Planned) or not _bounds(planned.choice.products):
            return planned
        beside = {layout.tensor for layout in planned.choice.layouts if layout.natural}
        return planned if beside.isdisjoint(copied) else _planned(statement, vector, bounded=False)

    return [
        [settled(each, planned) for each, planned in zip(nest.body, row, strict=True)]
        for nest, row in zip(source.nests, plans, strict=True)
    ]


def _layouts(planned: Planned | Strewn | None) -> tuple[Layout, ...]:
    """How what is read lies."""
    match planned:
        case Planned(choice=choice):
            return choice.layouts
        case Strewn(layouts):
            return tuple(layouts.values())
    return ()


def _planned(statement: Statement, vector: int, *, bounded: bool = True) -> Planned | Strewn | None:
    """What becomes of ``statement``; None if it stays as it is.

    Unless ``bounded``, bounds that may go do.
    """
    if scheduled((statement,)):
        return None
    products = recognised(statement)
    if products is None:
        return _strewn(statement)
    if (wide := without_bounds(products)) is None:
        return None
    if tapped(statement, vector) is not None:
        return None
    lanes = vector // BYTES[COMPUTED[products.update.var.dtype]]
    bounded = bounded and wide is not products
    found = (best_choice(wide, lanes), _bounded(products, lanes) if bounded else None)
    choice = _cheapest(each for each in found if each is not None)
    if choice is None or (
        not choice.keeps
        and choice.products.sums in (products.sums, wide.sums)
        and all(layout.natural for layout in choice.layouts)
    ):
        return None
    sure = _bounds(choice.products) == _bounds(products) or all(
        map(partial(decides, products), products.operands)
    )
    return Planned(products, choice, sure) if sure or transparent(products.store.value) else None


def _strewn(statement: Statement) -> Strewn | None:
    """``statement`` if it only stores, and reads elements across its vectors several times each."""
    loops, body = chain(statement)
    stores = [each for each in body if isinstance(each, Store)]
    if not loops or len(stores) < len(body) or any(length(loop) is None for loop in loops):
        return None
    lanes = [
        loop.axis
        for loop in loops
        if all(stride(store.buffer, store.indices, loop.axis) == 1 for store in stores)
    ]
    if not lanes:
        return None
    spans = {loop.axis: span(loop) for loop in loops}
    points = prod(high - low + 1 for low, high in spans.values())
    layouts: dict[Read, Layout] = {}
    for read in postorder(*(store.value for store in stores)):
        if not isinstance(read, Read) or not affine(read):
            continue
        step = stride(read.tensor, read.indices, lanes[-1])
        layout = layout_of(read, lanes[-1], spans, frozenset()) if step and step > PICKED else None
        if layout and not layout.padded and points >= REREAD * layout.elements:
            layouts[read] = layout
    return Strewn(layouts) if layouts else None


def best_choice(products: Products, lanes: int) -> Choice | None:
    """The cheapest axis to run vectors along: of a result, or of a sum, which goes innermost."""
    loops = (*products.loops, *reversed(products.sums))
    arranged = _following if _across(products) else inmost
    choices = (_along(arranged(products, loop), loop.axis, lanes) for loop in loops)
    return _cheapest(choice for choice in choices if choice is not None)


def _following(products: Products, last: For) -> Products:
    """``products`` with sums in the order of the operand in which ``last`` is contiguous.

    A copy of the other operand lies in that order as well.
    """
    for read in products.operands:
        if stride(read.tensor, read.indices, last.axis) == 1:
            steps = {
                loop: stride(read.tensor, read.indices, loop.axis) or 0 for loop in products.sums
            }
            sums = sorted(products.sums, key=lambda loop: abs(steps[loop]), reverse=True)
            return inmost(replace(products, sums=tuple(sums)), last)
    return inmost(products, last)


def _cheapest(choices: Iterable[Choice]) -> Choice | None:
    return min(choices, key=lambda choice: choice.cycles, default=None)


def _bounded(products: Products, lanes: int) -> Choice | None:
    """The cheapest axis of a result with the bounds of the sums as they are.

    Points of a tile have bounds in common if it takes one value of the axes that these depend on;
    what is read alike by all lanes needs no copy then.
    """
    free = [loop for loop in products.loops if loop.axis not in _bounds(products)]
    choices = (
        _along(products, lane.axis, lanes)
        for lane in free
        if (length(lane) or 0) >= VECTORS * lanes
        and any(lane is not row and _neighbours(products, row) for row in free)
    )
    return _cheapest(
        choice
        for choice in choices
        if choice is not None and not any(layout.padded for layout in choice.layouts)
    )


def _bounds(products: Products) -> frozenset[Axis]:
    """The axes that bounds of the sums depend on."""
    return frozenset[Axis]().union(*(loop.start.free | loop.stop.free for loop in products.sums))


def _neighbours(products: Products, row: For) -> bool:
    """Whether a tile finds enough rows along ``row``, which are not far apart where it reads."""
    steps = [abs(stride(read.tensor, read.indices, row.axis) or 0) for read in products.operands]
    widths = [BYTES[STORED[read.tensor.dtype]] for read in products.operands]
    far = any(step * width > NEARBY for step, width in zip(steps, widths, strict=True))
    return not far and (length(row) or 0) >= NEIGHBOURS


def _along(products: Products, lane: Axis, lanes: int) -> Choice | None:
    """Vectors along ``lane``, rounded up where that costs no copy of its own."""
    result = any(loop.axis is lane for loop in products.loops)
    keeps = result and worth_keeping(products.loops, products.store, lane)
    choice = _choice(products, lane, lanes, keeps)
    if (
        choice is None
        or not keeps
        or any(
            layout.natural
            for read, layout in zip(products.operands, choice.layouts, strict=True)
            if lane in read.free
        )
    ):
        return choice
    wide, axis = rounded(products, lane, lanes)
    return (
        None if (other := _choice(wide, axis, lanes, keeps)) is None else replace(other, lane=lane)
    )


def _choice(products: Products, lane: Axis, lanes: int, keeps: bool) -> Choice | None:
    """Vectors along ``lane``, read from the operands that depend on it."""
    spans = products.spans
    extents = {axis: high - low + 1 for axis, (low, high) in spans.items()}
    summed = frozenset(loop.axis for loop in products.sums)
    layouts = []
    for read in products.operands:
        if _bounds(products) and lane not in read.free:
            layouts.append(as_it_lies(read.tensor))
            continue
        layout = layout_of(read, lane if lane in read.free else None, spans, summed)
        if layout is None:
            return None
        row = _strewn_along(products, read, lane, lanes) if layout.natural else None
        if row is not None and (beside := layout_of(read, row, spans, summed)) is not None:
            layout = _in_order(beside, read, products.sums, row)
        layouts.append(_in_order(layout, read, products.sums) if _across(products) else layout)
    points = prod(extents.values())
    lies = (layout.natural for read, layout in zip(products.operands, layouts, strict=True)
            if lane in read.free)  # fmt: skip
    as_it_is = not keeps and all(lies)
    along = _stretch(products, lane) if as_it_is else extents[lane]
    vectors = points / along * ceil(along / lanes)
    if any(layout.natural and _leaps(products, read, lane, lanes)
           for layout, read in zip(layouts, products.operands, strict=True)):  # fmt: skip
        vectors *= LEAPING
    vectors *= _sliding(products, lane, extents)
    copies = sum(_copying(layout) for layout in layouts)
    if _across(products):
        pays = vectors + copies < SCALAR * points
    else:
        pays = _reuse(products, lane, extents) >= SHARED and vectors >= WORTH * copies
    if not pays:
        return None
    results = prod(extents[loop.axis] for loop in products.loops)
    ending = KEPT if keeps else _ending(products, lane, lanes)
    left, right = layouts
    return Choice(lane, products, (left, right), keeps, vectors + copies + results * ending)


def _strewn_along(products: Products, read: Read, lane: Axis, lanes: int) -> Axis | None:
    """The axis along which a copy of ``read`` lies, each element of which serves whole vectors.

    The longest one of the results, if every row of a tile reads lines of its own, so many that they
    are gone from the nearest cache when the next elements of them are read. The innermost sum, if
    the lines that it reads belong to few sets of that cache. None also where there are few vectors
    along ``lane`` for each element.
    """
    (*_, last) = products.sums
    rows = [loop for loop in products.loops if loop.axis in read.free]
    width = BYTES[STORED[read.tensor.dtype]]
    steps = [stride(read.tensor, read.indices, loop.axis) or 0 for loop in (*rows, last)]
    extents = {axis: high - low + 1 for axis, (low, high) in products.spans.items()}
    alike = prod(extents[loop.axis] for loop in products.loops if loop.axis not in read.free)
    if lane in read.free or not rows or alike < SHARED * lanes:
        return None
    trips, leap = extents[last.axis], abs(steps[-1]) * width
    if alike >= OFTEN and leap > LINE and trips * gcd(leap, SETS) > FILLED:
        return last.axis
    if min(map(abs, steps)) * width < LINE or NEIGHBOURS * trips * LINE <= FILLED:
        return None
    return max(rows, key=lambda loop: extents[loop.axis]).axis


def _in_order(layout: Layout, read: Read, sums: Sequence[For], row: Axis | None = None) -> Layout:
    """``layout`` with its dimensions in the order in which ``sums`` go through them.

    That of ``row`` comes last.
    """
    if layout.natural or any(part.step > 1 for part in layout.parts):
        return layout
    places = {loop.axis: place for place, loop in enumerate(sums)}
    if row is not None:
        places[row] = len(sums)

    def place(pair: tuple[Part, Span]) -> int:
        axes = linear(read.indices[pair[0].source]).free
        return max((places.get(axis, -1) for axis in axes), default=-1)

    pairs = sorted(zip(layout.parts, layout.filled, strict=True), key=place)
    parts, filled = zip(*pairs, strict=True)
    return replace(layout, parts=parts, filled=filled)


def _across(products: Products) -> bool:
    """Whether no vectors find both operands as they lie, and few results share an element."""
    loops = (*products.loops, *products.sums)
    steps = (
        {stride(read.tensor, read.indices, loop.axis) for read in products.operands}
        for loop in loops
    )
    shared = (
        prod(length(loop) or 1 for loop in products.loops if loop.axis not in read.free)
        for read in products.operands
    )
    return max(shared) < SHARED and not any(each in ({1}, {0, 1}) for each in steps)


def _leaps(products: Products, read: Read, lane: Axis, lanes: int) -> bool:
    """Whether vectors of ``read`` come from more pages than a CPU keeps at hand, in turns.

    What fits a panel is only copied from there.
    """
    (*_, loop) = products.sums
    step = stride(read.tensor, read.indices, loop.axis)
    low, high = products.spans[loop.axis]
    width = BYTES[STORED[read.tensor.dtype]]
    far = lane in read.free and abs(step or 0) * width >= PAGE and high - low >= PAGES
    return far and not _in_panels(products, read, lanes)


def _in_panels(products: Products, read: Read, lanes: int) -> bool:
    """Whether tiles are likely to read a panel of ``read``; see `panels`."""
    extents = {axis: high - low + 1 for axis, (low, high) in products.spans.items()}
    trips = prod(extents[loop.axis] for loop in products.sums)
    size = BYTES[STORED[read.tensor.dtype]] * LANES * lanes * trips
    often = _served(products, read, extents) >= ROWS * panels.OFTEN
    return len(products.sums) == 1 and size <= panels.LARGEST and often


def _sliding(products: Products, lane: Axis, extents: Mapping[Axis, int]) -> float:
    """What products cost, as vectors along ``lane`` slide over an operand as another axis moves."""
    places = [place for read in products.operands for place in read.indices]
    if not any(lane in place.free and len(place.free) > 1 for place in places):
        return 1.0
    if any(loop.axis is lane for loop in products.sums):
        return SLIDING
    served = (_served(products, read, extents) for read in products.operands if lane in read.free)
    return SOLE if min(served) < SHARED else 1.0


def _stretch(products: Products, lane: Axis) -> int:
    """How many values vectors along ``lane`` run over once loops are joined; see `fusion`."""
    left = iter(products.loops)
    for whole in fused(products.loops, products.loops[-1].body)[0]:
        parts = [next(left)]
        while prod(length(part) or 1 for part in parts) < (length(whole) or 0):
            parts.append(next(left))
        if lane in (part.axis for part in parts):
            return length(whole) or 1
    low, high = products.spans[lane]
    return high - low + 1


def _copying(layout: Layout) -> float:
    """Cycles to copy the source; none where it stays as it is."""
    each = 0.0 if layout.natural else ACROSS if layout.across else IN_ORDER
    return layout.elements * each


def _reuse(products: Products, lane: Axis, extents: Mapping[Axis, int]) -> int:
    """How many results share a vector along ``lane``."""
    (*_, last) = products.sums
    rows = [loop for loop in products.loops if lane not in (loop.axis, last.axis)]
    ways = overlaps(rows, last, products.operands)
    served = [_served(products, read, extents) for read in products.operands if lane in read.free]
    return max((*served, *(len(way.taps) for way in ways.values())), default=0)


def _served(products: Products, read: Read, extents: Mapping[Axis, int]) -> int:
    """How many results share an element of ``read``."""
    return prod(extents[loop.axis] for loop in products.loops if loop.axis not in read.free)


def _ending(products: Products, lane: Axis, lanes: int) -> float:
    """Cycles to store a result: of a vector, apart from its neighbours, or after adding lanes."""
    if any(loop.axis is lane for loop in products.sums):
        return ADD_UP
    whole = stride(products.store.buffer, products.store.indices, lane) == 1
    return 1 / lanes if whole else APART
