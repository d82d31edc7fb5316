"""Nests without reductions as tiles: a vector along the contiguous axis, several rows at a time.

Neighbouring rows of a stencil read the same elements, which are loaded once for all of them. Only
stores of whole vectors are taken over; everything else is left to LLVM's own vectoriser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from eqsatad.backends.access import flat
from eqsatad.backends.cpu.expressions import PICKED
from eqsatad.backends.cpu.fusion import fused
from eqsatad.backends.cpu.scalars import BYTES, STORED
from eqsatad.backends.cpu.tiles import Tile, chain, independent, length, stride
from eqsatad.loops.nest import For, Statement, Store, expressions_of
from eqsatad.terms.linear import Linear
from eqsatad.terms.nodes import FLOATS, Axis, Expr, Read, Tensor
from eqsatad.terms.walk import postorder

Access: TypeAlias = tuple[Tensor, Linear]

ROWS = (1, 2, 3, 4)
# What a row of a tile must save of its loads to be worth its code.
WORTH = 0.9
# Elements so many bytes apart share a set of the nearest cache, which holds so many lines.
PAGE = 4096
WAYS = 8


def mapped(statement: Statement, vector: int) -> Tile | None:
    """The tile for ``statement`` if it only stores values, a vector of them at a time."""
    loops, body = fused(*chain(statement))
    stores = [each for each in body if isinstance(each, Store)]
    if not loops or len(stores) < len(body) or not independent(loops, body, stores):
        return None
    reads = [node for node in postorder(*_roots(stores)) if isinstance(node, Read)]
    kinds = {STORED[store.buffer.dtype] for store in stores}
    kinds |= {STORED[read.dtype] for read in reads}
    if len(kinds) != 1 or not {store.buffer.dtype for store in stores} <= set(FLOATS):
        return None
    lanes = vector // BYTES[kinds.pop()]
    for loop in reversed(loops):
        if (length(loop) or 0) >= lanes and _along(loop.axis, stores, reads):
            counts = {loop.axis: 1, **_rows(loops, loop.axis, stores, reads)}
            return Tile(tuple(loops), body, loop.axis, lanes, False, counts)
    return None


def _roots(stores: Sequence[Store]) -> Iterator[Expr]:
    for store in stores:
        yield from expressions_of(store)


def _along(lane: Axis, stores: Sequence[Store], reads: Sequence[Read]) -> bool:
    """Whether vectors along ``lane`` are stored whole, and read whole or picked out of whole."""
    if any(stride(store.buffer, store.indices, lane) != 1 for store in stores):
        return False
    steps = [stride(read.tensor, read.indices, lane) for read in reads]
    return all(step is not None and 0 <= step <= PICKED for step in steps)


def _rows(
    loops: Sequence[For], lane: Axis, stores: Sequence[Store], reads: Sequence[Read]
) -> dict[Axis, int]:
    """Neighbours along another axis that share loads, and how many of them; none if none do."""
    read = [(each.tensor, flat(each.tensor, each.indices)) for each in reads if lane in each.free]
    written = [(each.buffer, flat(each.buffer, each.indices)) for each in stores]
    best, chosen = WORTH * len(_places(read, lane, 1)), dict[Axis, int]()
    for loop in loops:
        for count in ROWS:
            places = _places(read, loop.axis, count)
            if loop.axis is lane or (length(loop) or 0) < count:
                continue
            if _crowded(places | _places(written, loop.axis, count), loop.axis):
                continue
            if len(places) / count < best:
                best, chosen = len(places) / count, {loop.axis: count}
    return chosen


def _places(accesses: Sequence[Access], axis: Axis, count: int) -> set[Access]:
    """The elements that ``count`` neighbours along ``axis`` touch."""
    return {
        (tensor, form + Linear(form.coefficient(axis) * turn, ()))
        for tensor, form in accesses
        for turn in range(count)
    }


def _crowded(places: set[Access], axis: Axis) -> bool:
    """Whether ``places`` are more lines of one set of the nearest cache than it has room for."""
    lines = set()
    for tensor, form in places:
        step = form.coefficient(axis)
        if not step or step * BYTES[STORED[tensor.dtype]] % PAGE:
            return False
        lines.add((tensor, round(form.const / step)))
    return len(lines) > WAYS
