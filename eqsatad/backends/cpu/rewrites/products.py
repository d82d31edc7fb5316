"""Sums of products of two reads: what `packing` looks for, and what may be changed about them.

Bounds that only keep reads in range may go where what is read is zero outside; whether a bound is
one of these is proved. A sum may go innermost, and an axis of results be rounded up to vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.tile import added, chain
from eqsatad.loops.nest import (
    Assign,
    Block,
    For,
    Statement,
    Store,
    replaced,
)
from eqsatad.terms.linear import Linear, linear
from eqsatad.terms.nodes import (
    FLOATS,
    Apply,
    Axis,
    Const,
    Expr,
    Read,
)
from eqsatad.terms.ops import GE, LT, MAX, MIN, MUL, Op
from eqsatad.terms.presburger import implied
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import postorder, substitute

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
        return {loop.axis: span(loop) for loop in (*self.loops, *self.sums)}


def recognised(statement: Statement) -> Products | None:
    """``statement`` as a nest of sums of products of two reads, all of known extents."""
    found = products_of(statement)
    return found if found is not None and _known(found) else None


def products_of(statement: Statement) -> Products | None:
    """``statement`` as a nest of sums of products of two reads."""
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
    if factors is None or not loops or _reads(start.value, *store.indices):
        return None
    if store.buffer in (node.tensor for node in postorder(store.value) if isinstance(node, Read)):
        return None
    return Products(tuple(loops), start, tuple(sums), update, store, factors)


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
    if not all(isinstance(extent, Const) for extent in products.store.buffer.shape):
        return False
    if not all(map(affine, products.operands)):
        return False
    bounds = [bound for loop in products.loops for bound in (loop.start, loop.stop)]
    if any(linear(bound).terms for bound in bounds):
        return False
    return all(
        interval(loop.start)[0] is not None and interval(loop.stop)[1] is not None
        for loop in products.sums
    )


def affine(read: Read) -> bool:
    """Whether ``read`` is of a tensor of known shape, at sums of multiples of axes."""
    return all(isinstance(extent, Const) for extent in read.tensor.shape) and all(
        isinstance(atom, Axis) for place in read.indices for _, atom in linear(place).terms
    )


def span(loop: For) -> Span:
    low, high = interval(loop.start)[0], interval(loop.stop)[1]
    assert low is not None, "loops without known bounds are not recognised"
    assert high is not None, "loops without known bounds are not recognised"
    return low, high - 1


def reach(form: Linear, spans: Mapping[Axis, Span]) -> Span:
    """The least and the greatest value of ``form``."""
    low = high = form.const
    for coef, atom in form.terms:
        assert isinstance(atom, Axis), "accesses are affine"
        ends = [coef * end for end in spans[atom]]
        low, high = low + min(ends), high + max(ends)
    return low, high


def without_bounds(products: Products) -> Products | None:
    """``products`` with constant bounds, if outside of the old ones something read is outside.

    None if that cannot be proved. A bound like this says of a convolution that an image ends.
    """
    wide = tuple(_widened(loop) for loop in products.sums)
    if not list(_conditions(products.sums)):
        return products
    return replace(products, sums=wide) if decides(products, *products.operands) else None


def decides(products: Products, *reads: Read) -> bool:
    """Whether outside of the bounds of ``products`` one of ``reads`` is outside of its array."""
    inside = [
        Apply(op, (place, limit))
        for read in reads
        for place, extent in zip(read.indices, read.tensor.shape, strict=True)
        for op, limit in ((GE, index(0)), (LT, extent))
    ]
    return all(implied(bound, inside) for bound in _conditions(products.sums))


def _widened(loop: For) -> For:
    low, high = span(loop)
    return replace(loop, start=index(low), stop=index(high + 1))


def _conditions(sums: Sequence[For]) -> Iterator[Expr]:
    """The bounds of ``sums`` that depend on axes, as conditions."""
    for loop in sums:
        for bound, op, extreme in ((loop.start, GE, MAX), (loop.stop, LT, MIN)):
            if linear(bound).terms:
                yield from (Apply(op, (loop.axis, each)) for each in parts(bound, extreme))


def parts(expr: Expr, extreme: Op) -> Iterator[Expr]:
    """The operands of nested maxima or minima."""
    match expr:
        case Apply(op, args) if op is extreme:
            for arg in args:
                yield from parts(arg, extreme)
        case _:
            yield expr


def inmost(products: Products, last: For) -> Products:
    """``products`` with ``last`` innermost, if it is a sum."""
    if last not in products.sums or last is products.sums[-1]:
        return products
    return replace(products, sums=(*(loop for loop in products.sums if loop is not last), last))


def rounded(products: Products, lane: Axis, lanes: int) -> tuple[Products, Axis]:
    """``products`` with whole vectors along ``lane``, and the axis that takes its place."""
    (old,) = [loop for loop in products.loops if loop.axis is lane]
    start = linear(old.start).const
    count = -(-(linear(old.stop).const - start) // lanes) * lanes
    axis = Axis(lane.name, index(start + count))
    new: dict[Expr, Expr] = {lane: axis}
    (update,) = replaced((products.update,), new)
    assert isinstance(update, Assign), "replacing keeps statements"
    left, right = (substitute(read, new) for read in products.operands)
    assert isinstance(left, Read), "replacing keeps reads"
    assert isinstance(right, Read), "replacing keeps reads"
    wide = replace(old, axis=axis, stop=axis.extent)
    loops = tuple(wide if loop is old else loop for loop in products.loops)
    return replace(products, loops=loops, update=update, operands=(left, right)), axis


def rebuilt(products: Products, reads: Mapping[Expr, Expr]) -> Statement:
    """The nest with other reads."""
    block: Block = replaced((products.update,), reads)
    for loop in reversed(products.sums):
        block = (For(loop.axis, loop.start, loop.stop, block),)
    body: Block = (products.start, *block, products.store)
    for loop in reversed(products.loops):
        body = (For(loop.axis, loop.start, loop.stop, body, True),)
    (statement,) = body
    return statement
