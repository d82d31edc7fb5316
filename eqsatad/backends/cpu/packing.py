"""Operands of sums of products copied to where vectors can read them: a program in, one out.

A nest that adds up products of two reads, one of which serves several results, may read copies
instead: with zeros around them, so that bounds that only keep reads in range are not needed; with
the axis of the vectors innermost; and with a stride made a dimension of its own. The copies are
temporaries and copying them is part of the program. What a bound left out is then a product with
zero, which is NaN where the other factor is infinite or NaN; results that come out NaN are worked
out again with the bounds. ``exact`` programs are not packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, prod

from eqsatad.backends.cpu.effort import index
from eqsatad.backends.cpu.scalars import BYTES, COMPUTED
from eqsatad.backends.cpu.tiles import ADD_UP, added, chain, stride
from eqsatad.loops.nest import (
    Assign,
    Block,
    For,
    If,
    LoopProgram,
    Nest,
    Statement,
    Store,
    replaced,
    scheduled,
)
from eqsatad.terms.linear import Linear, expression, linear
from eqsatad.terms.nodes import (
    FLOATS,
    Apply,
    Axis,
    Const,
    Expr,
    Placeholder,
    Read,
    Select,
    Tensor,
    Var,
)
from eqsatad.terms.ops import ADD, EQ, GE, GT, LT, MAX, MIN, MUL, NE, NEG, SUB, Op
from eqsatad.terms.presburger import implied
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import postorder

# Cycles for one element: copied in order, copied across, stored apart from its neighbours.
IN_ORDER = 0.25
ACROSS = 1.5
APART = 1.5
# Results that share a vector before it is worth copying, and cycles of products for each cycle
# of copying.
SHARED = 4
WORTH = 0.5

# The longest sum whose axis does not decide how a copy lies.
FEW = 8

Span = tuple[int, int]


@dataclass(frozen=True)
class Products:
    """A nest of parallel ``loops`` around ``sums`` of products of two reads."""

    loops: tuple[For, ...]
    start: Assign
    sums: tuple[For, ...]
    update: Assign
    store: Store
    operands: tuple[Read, Read]

    @property
    def spans(self) -> dict[Axis, Span]:
        """The first and last value of every axis; of a sum, over all results."""
        return {loop.axis: _span(loop) for loop in (*self.loops, *self.sums)}


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


@dataclass(frozen=True)
class Choice:
    """The operand that vectors run along, and the layouts of both operands."""

    layouts: tuple[Layout, Layout]
    cycles: float


def packed(program: LoopProgram, vector: int) -> LoopProgram:
    """``program`` with copies of operands where they pay; ``vector`` bytes are one vector."""
    return Packer(program, vector).program()


class Packer:
    """Rewrites the nests of a program; equal copies are made once."""

    def __init__(self, source: LoopProgram, vector: int) -> None:
        self.source = source
        self.vector = vector
        self.copies: dict[Layout, Tensor] = {}
        # Statements whose results may be NaN because of a border alone.
        self._doubtful: list[tuple[Store, Statement]] = []
        self._taken = {tensor.name for tensor in (*source.inputs, *source.outputs,
                                                  *source.temporaries)}  # fmt: skip

    def program(self) -> LoopProgram:
        nests: list[Nest] = []
        for nest in self.source.nests:
            body: list[Statement] = []
            for statement in nest.body:
                before = len(self.copies)
                written = self._statement(statement)
                nests.extend(self._copying(list(self.copies)[before:]))
                body.extend(written)
            nests.append(Nest(nest.stage, (*body, *self._repairs())))
        temporaries = (*self.source.temporaries, *self.copies.values())
        return replace(self.source, nests=tuple(nests), temporaries=temporaries)

    def _statement(self, statement: Statement) -> Block:
        """What takes the place of ``statement``."""
        products = None if scheduled((statement,)) else recognised(statement)
        if products is None or (wide := _without_bounds(products)) is None:
            return (statement,)
        lanes = self.vector // BYTES[COMPUTED[products.update.var.dtype]]
        choice = _best(wide, lanes)
        if choice is None or all(layout.natural for layout in choice.layouts):
            return (statement,)
        apart = wide is products or all(map(partial(_decides, products), products.operands))
        if not apart and not _transparent(products.store.value):
            return (statement,)
        reads: dict[Expr, Expr] = {
            read: self._read(read, layout)
            for read, layout in zip(wide.operands, choice.layouts, strict=True)
        }
        if not apart:
            self._doubtful.append((products.store, statement))
        return (_rebuilt(wide, reads),)

    def _repairs(self) -> Iterator[Statement]:
        """What works results again that came out NaN, each as the original statement does."""
        doubtful, self._doubtful = self._doubtful, []
        for buffer in dict.fromkeys(store.buffer for store, _ in doubtful):
            yield _again(buffer, [pair for pair in doubtful if pair[0].buffer is buffer])

    def _read(self, read: Read, layout: Layout) -> Read:
        """The element of the copy that ``read`` is in the source."""
        if layout.natural:
            return read
        if layout not in self.copies:
            self.copies[layout] = self._copy(layout)
        forms = [linear(place) for place in read.indices]
        indices = tuple(expression(_place(part, layout.parts, forms)) for part in layout.parts)
        return Read(self.copies[layout], indices)

    def _copy(self, layout: Layout) -> Tensor:
        shape = tuple(index(part.extent) for part in layout.parts)
        name = self._name(f"{layout.tensor.name}_packed")
        return Placeholder(name, shape, layout.tensor.dtype)

    def _name(self, stem: str) -> str:
        """A name that no tensor has."""
        number = 1
        while (name := f"{stem}_{number}") in self._taken:
            number += 1
        self._taken.add(name)
        return name

    def _copying(self, layouts: Sequence[Layout]) -> Iterator[Nest]:
        for layout in layouts:
            copy = self.copies[layout]
            yield Nest(copy, (*_borders(layout, copy), _filling(layout, copy)))


def recognised(statement: Statement) -> Products | None:
    """``statement`` as a nest of sums of products of two reads, all of known extents."""
    loops, body = chain(statement)
    match body:
        case (Assign() as start, For() as loop, Store() as store):
            pass
        case _:
            return None
    sums: list[For] = []
    inner: Block = (loop,)
    while len(inner) == 1 and isinstance(each := inner[0], For):
        sums.append(each)
        inner = each.body
    match inner:
        case (Assign() as update,) if update.var is start.var:
            value = added(update)
        case _:
            return None
    factors = None if value is None else _factors(value)
    if factors is None or not loops or _reads(start.value, store.value, *store.indices):
        return None
    found = Products(tuple(loops), start, tuple(sums), update, store, factors)
    return found if _known(found) else None


def _reads(*exprs: Expr) -> bool:
    return any(isinstance(node, Read) for node in postorder(*exprs))


def _factors(value: Expr) -> tuple[Read, Read] | None:
    """The two reads of which ``value`` is the product, perhaps with constants."""
    reads: list[Read] = []
    stack = [value]
    while stack:
        match stack.pop():
            case Apply(op, args) if op is MUL:
                stack.extend(reversed(args))
            case Read() as read if read.dtype in FLOATS:
                reads.append(read)
            case Const():
                pass
            case _:
                return None
    return (reads[0], reads[1]) if len(reads) == 2 else None


def _known(products: Products) -> bool:
    """Whether extents and shapes are numbers and accesses affine."""
    indices = [place for read in products.operands for place in read.indices]
    tensors = (products.store.buffer, *(read.tensor for read in products.operands))
    shapes = [extent for tensor in tensors for extent in tensor.shape]
    if not all(isinstance(extent, Const) for extent in shapes):
        return False
    if any(not isinstance(atom, Axis) for place in indices for _, atom in linear(place).terms):
        return False
    bounds = [bound for loop in products.loops for bound in (loop.start, loop.stop)]
    if any(linear(bound).terms for bound in bounds):
        return False
    return all(
        interval(loop.start)[0] is not None and interval(loop.stop)[1] is not None
        for loop in products.sums
    )


def _span(loop: For) -> Span:
    low, high = interval(loop.start)[0], interval(loop.stop)[1]
    assert low is not None, "loops without known bounds are not recognised"
    assert high is not None, "loops without known bounds are not recognised"
    return low, high - 1


def _range(form: Linear, spans: Mapping[Axis, Span]) -> Span:
    """The least and the greatest value of ``form``."""
    low = high = form.const
    for coef, atom in form.terms:
        assert isinstance(atom, Axis), "accesses are affine"
        ends = [coef * end for end in spans[atom]]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _without_bounds(products: Products) -> Products | None:
    """``products`` with constant bounds, if outside of the old ones something read is outside.

    None if that cannot be proved. A bound like this says of a convolution that an image ends.
    """
    wide = tuple(_widened(loop) for loop in products.sums)
    if not list(_conditions(products.sums)):
        return products
    return replace(products, sums=wide) if _decides(products, *products.operands) else None


def _decides(products: Products, *reads: Read) -> bool:
    """Whether outside of the bounds of ``products`` one of ``reads`` is outside of its array."""
    inside = [
        Apply(op, (place, limit))
        for read in reads
        for place, extent in zip(read.indices, read.tensor.shape, strict=True)
        for op, limit in ((GE, index(0)), (LT, extent))
    ]
    return all(implied(bound, inside) for bound in _conditions(products.sums))


def _transparent(value: Expr) -> bool:
    """Whether a NaN in ``value`` comes out of it."""
    nodes = [node for node in postorder(value) if isinstance(node, Apply)]
    return all(node.op in (ADD, SUB, MUL, NEG) for node in nodes)


def _again(buffer: Tensor, doubtful: Sequence[tuple[Store, Statement]]) -> Statement:
    """``doubtful`` statements for the elements of ``buffer`` that are NaN.

    They are counted along the first dimension, so that nothing more is done where none is.
    """
    first = Axis("r0", buffer.shape[0])
    rest = Axis("r1", index(prod(_extent(buffer, place) for place in range(1, len(buffer.shape)))))
    # All other dimensions as one: what counts is the offset.
    places = (first, *[index(0)] * (len(buffer.shape) - 2), rest)
    one, none = Const(1.0, buffer.dtype), Const(0.0, buffer.dtype)
    count = Var(f"{buffer.name}_nan", buffer.dtype)
    more = Select(_odd(buffer, places[: len(buffer.shape)]), one, none)
    counting = For(rest, index(0), rest.extent, (Assign(count, Apply(ADD, (count, more))),))
    again = tuple(_where_odd(first, store, statement) for store, statement in doubtful)
    some = If(Apply(GT, (count, none)), again)
    return For(first, index(0), first.extent, (Assign(count, none), counting, some), True)


def _where_odd(first: Axis, store: Store, statement: Statement) -> Statement:
    """``statement`` for the elements at ``first`` that are NaN."""
    loops, body = chain(statement)
    block: Block = (If(_odd(store.buffer, store.indices), body),)
    left = store.indices[0].free
    guard = Apply(EQ, (store.indices[0], first))
    for loop in reversed(loops):
        if loop.axis in left:
            block, left = (If(guard, block),), frozenset()
        block = (replace(loop, body=block, parallel=False),)
    return block[0] if not left and store.indices[0].free else If(guard, block)


def _odd(buffer: Tensor, indices: tuple[Expr, ...]) -> Expr:
    """Whether the element is NaN."""
    element = Read(buffer, indices)
    return Apply(NE, (element, element))


def _widened(loop: For) -> For:
    low, high = _span(loop)
    return replace(loop, start=index(low), stop=index(high + 1))


def _conditions(sums: Sequence[For]) -> Iterator[Expr]:
    """The bounds of ``sums`` that depend on axes, as conditions."""
    for loop in sums:
        for bound, op, extreme in ((loop.start, GE, MAX), (loop.stop, LT, MIN)):
            if linear(bound).terms:
                yield from (Apply(op, (loop.axis, each)) for each in _parts(bound, extreme))


def _parts(expr: Expr, extreme: Op) -> Iterator[Expr]:
    """The operands of nested maxima or minima."""
    match expr:
        case Apply(op, args) if op is extreme:
            for arg in args:
                yield from _parts(arg, extreme)
        case _:
            yield expr


def _best(products: Products, lanes: int) -> Choice | None:
    """The cheapest axis to run vectors along: of a result, or of the innermost sum."""
    spans = products.spans
    loops = (*products.loops, products.sums[-1])
    choices = (_choice(products, loop.axis, spans, lanes) for loop in loops)
    found = [choice for choice in choices if choice is not None]
    return min(found, key=lambda choice: choice.cycles, default=None)


def _choice(
    products: Products, lane: Axis, spans: Mapping[Axis, Span], lanes: int
) -> Choice | None:
    """Vectors along ``lane``, read from the operands that depend on it."""
    extents = {axis: high - low + 1 for axis, (low, high) in spans.items()}
    summed = frozenset(loop.axis for loop in products.sums)
    layouts = []
    for read in products.operands:
        layout = _layout(read, lane if lane in read.free else None, spans, summed)
        if layout is None:
            return None
        layouts.append(layout)
    points = prod(extents.values())
    vectors = points / extents[lane] * ceil(extents[lane] / lanes)
    copies = sum(_copying(layout) for layout in layouts)
    if _reuse(products, lane, extents) < SHARED or vectors < WORTH * copies:
        return None
    results = prod(extents[loop.axis] for loop in products.loops)
    left, right = layouts
    return Choice((left, right), vectors + copies + results * _ending(products, lane, lanes))


def _copying(layout: Layout) -> float:
    """Cycles to copy the source; none where it stays as it is."""
    each = 0.0 if layout.natural else ACROSS if layout.across else IN_ORDER
    return layout.elements * each


def _reuse(products: Products, lane: Axis, extents: Mapping[Axis, int]) -> int:
    """How many results share a vector along ``lane``."""
    results = (
        prod(extents[loop.axis] for loop in products.loops if loop.axis not in read.free)
        for read in products.operands
        if lane in read.free
    )
    return max(results, default=0)


def _ending(products: Products, lane: Axis, lanes: int) -> float:
    """Cycles to store a result: of a vector, apart from its neighbours, or after adding lanes."""
    if any(loop.axis is lane for loop in products.sums):
        return ADD_UP
    whole = stride(products.store.buffer, products.store.indices, lane) == 1
    return 1 / lanes if whole else APART


def _layout(
    read: Read, lane: Axis | None, spans: Mapping[Axis, Span], summed: frozenset[Axis]
) -> Layout | None:
    """How ``read`` finds all that it reads, the elements along ``lane`` next to each other."""
    found: list[tuple[bool, bool, Part, Span]] = []
    lanes = 0
    for source, place in enumerate(read.indices):
        form = linear(place)
        step = form.coefficient(lane) if lane is not None else 0
        lanes += step != 0
        split = _split(source, form, max(1, step), spans, _extent(read.tensor, source))
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


def _extent(tensor: Tensor, dimension: int) -> int:
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
        low, high = _range(rest, spans)
        if low < 0 or high >= step or extent % step:
            return None
        rests.append((Part(source, 1, 0, step), (0, step)))
    low, high = _range(whole, spans)
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


def _place(part: Part, parts: Sequence[Part], forms: Sequence[Linear]) -> Linear:
    """Where a read is along ``part`` of a copy."""
    step = max(each.step for each in parts if each.source == part.source)
    rest, whole = _divided(forms[part.source], step)
    form = whole if part.step == step else rest
    return Linear.build(form.const - part.low, form.terms)


def _rebuilt(products: Products, reads: Mapping[Expr, Expr]) -> Statement:
    """The nest with other reads."""
    block: Block = replaced((products.update,), reads)
    for loop in reversed(products.sums):
        block = (For(loop.axis, loop.start, loop.stop, block),)
    body: Block = (products.start, *block, products.store)
    for loop in reversed(products.loops):
        body = (For(loop.axis, loop.start, loop.stop, body, True),)
    (statement,) = body
    return statement


def _borders(layout: Layout, copy: Tensor) -> Iterator[Statement]:
    """Zeros in what the source does not fill."""
    full = [(0, part.extent) for part in layout.parts]
    for place, (part, span) in enumerate(zip(layout.parts, layout.filled, strict=True)):
        for border in ((0, span[0]), (span[1], part.extent)):
            if border[0] < border[1]:
                spans = [*full[:place], border, *full[place + 1 :]]
                yield _over(copy, spans, lambda _: Const(0.0, copy.dtype))


def _filling(layout: Layout, copy: Tensor) -> Statement:
    """The source copied to its place."""

    def element(places: Sequence[Linear]) -> Expr:
        indices = [Linear.build(0, ()) for _ in layout.tensor.shape]
        for part, place in zip(layout.parts, places, strict=True):
            moved = Linear.build(place.const + part.low, place.terms)
            indices[part.source] += moved.scaled(part.step)
        return Read(layout.tensor, tuple(map(expression, indices)))

    return _over(copy, layout.filled, element)


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
