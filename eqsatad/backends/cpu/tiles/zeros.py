"""Sums that leave out what is known to be zero: the borders of copies.

`packing` puts zeros around an image so that all points of a tile add up the same terms. Where a
tile lies in one row of the image, the terms that are rows of zeros are the same for all of its
points, too. Then the sum over these rows begins later or ends earlier, which is decided tile by
tile and once for all of its vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from eqsatad.backends.cpu.tiles.tile import Tile, added, chain
from eqsatad.loops.nest import Accumulate, Assign, Block, For, LoopProgram, Store, statements
from eqsatad.terms.linear import Linear, expression, linear, normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Read, Tensor
from eqsatad.terms.ops import FLOORDIV, MAX, MIN, MUL
from eqsatad.terms.ranges import interval

Span: TypeAlias = tuple[int, int]
# A dimension, the first place in it that is zero, and the first behind.
Border: TypeAlias = tuple[int, int, int]
# Of each dimension of a tensor the first place that is not in a border, and the first behind.
Filled: TypeAlias = Mapping[Tensor, tuple[Span, ...]]


def filled(program: LoopProgram) -> Filled:
    """The temporaries of ``program`` with borders of zeros, and where those end."""
    borders: dict[Tensor, list[Border]] = {each: [] for each in program.temporaries}
    others: list[Store | Accumulate] = []
    for store, border in (pair for nest in program.nests for pair in _stores(nest.body)):
        if border is None or store.buffer not in borders:
            others.append(store)
        else:
            borders[store.buffer].append(border)
    for store in others:
        there = list(map(interval, store.indices))
        borders[store.buffer] = [
            border for border in borders.get(store.buffer, []) if _apart(there[border[0]], border)
        ]
    return {tensor: _inside(tensor, each) for tensor, each in borders.items() if each}


def _stores(block: Block) -> Iterator[tuple[Store | Accumulate, Border | None]]:
    """All that is stored, and the borders that are set to zero by it."""
    for statement in block:
        loops, plain = chain(statement)
        whole = {loop.axis for loop in loops if (loop.start, loop.stop) == _range(loop.axis)}
        for store in statements((statement,)):
            if isinstance(store, Store):
                yield store, _border(store, whole) if store in plain else None
            elif isinstance(store, Accumulate):
                yield store, None


def _range(axis: Axis) -> tuple[Expr, Expr]:
    return Const(0, "index"), axis.extent


def _border(store: Store, whole: Collection[Axis]) -> Border | None:
    """The dimension in which ``store`` sets a border to zero; it is whole in all others.

    It is run for all values of the axes ``whole``.
    """
    if not isinstance(store.value, Const) or store.value.value != 0:
        return None
    found: list[Border] = []
    left = set(whole)
    for place, (index, extent) in enumerate(zip(store.indices, store.buffer.shape, strict=True)):
        form, (low, high) = linear(index), interval(index)
        if low is None or high is None or not isinstance(extent, Const):
            return None
        if form.terms and form.terms not in {((1, axis),) for axis in left}:
            return None
        left -= form.free
        if (low, high + 1) == (0, extent.value):
            continue
        if low > 0 and high + 1 < extent.value:
            return None
        found.append((place, low, high + 1))
    return found[0] if len(found) == 1 else None


def _apart(there: tuple[int | None, int | None], border: Border) -> bool:
    """Whether nothing of ``border`` is in the interval ``there``."""
    low, high = there
    return (low is not None and low >= border[2]) or (high is not None and high < border[1])


def _inside(tensor: Tensor, borders: Sequence[Border]) -> tuple[Span, ...]:
    """What ``borders`` leave of each dimension."""
    left = [(0, int(extent.value)) for extent in tensor.shape if isinstance(extent, Const)]
    for place, low, high in borders:
        first, last = left[place]
        left[place] = (max(first, high), last) if low == 0 else (first, min(last, low))
    return tuple(left)


def without_zeros(tile: Tile | None, found: Filled) -> Tile | None:
    """``tile`` with sums that leave out the borders of what they read."""
    if tile is None or tile.inner or not found:
        return tile
    same = frozenset(loop.axis for loop in tile.loops if tile.step(loop.axis) == 1)
    # What strips go through one value at a time is no loop in them.
    whole = () if tile.strips is None else tile.strips.loops[:-1]
    kept = frozenset(loop.axis for loop in whole)
    return replace(tile, body=_narrowed(tile.body, found, kept, same))


def _narrowed(block: Block, found: Filled, kept: frozenset[Axis], around: frozenset[Axis]) -> Block:
    """``block`` with narrower sums, except for those over ``kept``.

    Bounds may depend on ``around``: on what all points of a tile have in common.
    """
    return tuple(
        _loop(each, found, kept, around) if isinstance(each, For) else each for each in block
    )


def _loop(loop: For, found: Filled, kept: frozenset[Axis], around: frozenset[Axis]) -> For:
    body = _narrowed(loop.body, found, kept, around | {loop.axis})
    start, stop = loop.start, loop.stop
    for form, span in () if loop.axis in kept else _factors(loop, found):
        coef, rest = form.coefficient(loop.axis), form.without(loop.axis)
        low, high = interval(expression(form))
        if not coef or low is None or high is None or not rest.free <= around:
            continue
        before, behind = low < span[0], high >= span[1]
        if before if coef > 0 else behind:
            start = Apply(MAX, (start, _first(span, rest, coef)))
        if behind if coef > 0 else before:
            stop = Apply(MIN, (stop, _stop(span, rest, coef)))
    return replace(loop, start=start, stop=stop, body=body)


def _first(span: Span, rest: Linear, coef: int) -> Expr:
    """The least value of an axis of which ``coef`` times it and ``rest`` is inside of ``span``."""
    if coef > 0:
        return _quotient(Linear.build(span[0] + coef - 1, ()) - rest, coef)
    return _quotient(rest + Linear.build(-coef - span[1], ()), -coef)


def _stop(span: Span, rest: Linear, coef: int) -> Expr:
    """The value behind the greatest one like that."""
    if coef > 0:
        return _quotient(Linear.build(span[1] - 1 + coef, ()) - rest, coef)
    return _quotient(rest + Linear.build(-coef - span[0], ()), -coef)


def _quotient(form: Linear, by: int) -> Expr:
    if by == 1:
        return expression(form)
    return normal(Apply(FLOORDIV, (expression(form), Const(by, "index"))))


def _factors(loop: For, found: Filled) -> Iterator[tuple[Linear, Span]]:
    """The indices of factors of all that ``loop`` adds up, and where these are not zero."""
    inner: Block = (loop,)
    while len(inner) == 1 and isinstance(each := inner[0], For):
        inner = each.body
    match inner:
        case (Assign() as update,) if (value := added(update)) is not None:
            stack = [value]
        case _:
            return
    while stack:
        match stack.pop():
            case Apply(op, args) if op is MUL:
                stack.extend(args)
            # Where loops were joined, an index goes beyond its dimension into the next rows.
            case Read(tensor, indices) as read if tensor in found and _each_inside(read):
                yield from zip(map(linear, indices), found[tensor], strict=True)
            case _:
                pass


def _each_inside(read: Read) -> bool:
    """Whether every index of ``read`` is inside of its dimension."""
    ends = zip(map(interval, read.indices), read.tensor.shape, strict=True)
    return all(
        low is not None
        and high is not None
        and low >= 0
        and isinstance(extent, Const)
        and high < extent.value
        for (low, high), extent in ends
    )
