"""Nests without reductions as tiles: a vector along the contiguous axis, several rows at a time.

Neighbouring rows of a stencil read the same elements, which are loaded once for all of them. A
loop too short for vectors is joined with the one around it; what only the outer one moves on is
loaded once and permuted, and so is what only the inner one moves on, a short row that repeats.
Only stores of whole vectors are taken over; everything else is left to LLVM's own vectoriser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from eqsatad.backends.access import flat
from eqsatad.backends.cpu.code.loads import PERMUTES, PICKED, repeating
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.tiles.fusion import fused
from eqsatad.backends.cpu.tiles.reuse import SETS, WAYS
from eqsatad.backends.cpu.tiles.tile import Tile, chain, independent, length, most, stride
from eqsatad.backends.cpu.tiles.windows import inside, window
from eqsatad.loops.nest import Block, For, Statement, Store, expressions_of, replaced
from eqsatad.terms.linear import Linear, normal
from eqsatad.terms.nodes import FLOATS, Apply, Axis, Const, Expr, Read, Tensor
from eqsatad.terms.ops import ADD, FLOORDIV, MOD
from eqsatad.terms.walk import postorder

Access: TypeAlias = tuple[Tensor, Linear]

ROWS = (1, 2, 3, 4)
# Rows at most that share all that is read.
MOST = 8
# What part of such rows the last tile may work out again, so that there are many in a tile.
WASTE = 1 / 16
# What a row of a tile must save of its loads to be worth its code.
WORTH = 0.9
# The part of a vector from which on a row that no loop can be joined to is worth a vector.
PART = 0.5


def mapped(statement: Statement, vector: int, *, large: bool = False) -> Tile | None:
    """The tile for ``statement`` if it only stores values, a vector of them at a time.

    With ``large``, loops of unknown length are taken to have a vector, which the tile `needs`.
    """
    loops, body = fused(*chain(statement))
    found = _tile(loops, body, vector, large=large)
    if found is not None or vector != PERMUTES:
        return found
    pair = joined(loops, body)
    ways = [(loops, body, None), *([] if pair is None else [(*pair, length(loops[-1]))])]
    tried = (
        _tile(around, inner, vector, least, period=period)
        for least in (1.0, PART)
        for around, inner, period in reversed(ways)
    )
    return next(filter(None, tried), None)


def _tile(
    loops: Sequence[For],
    body: Block,
    vector: int,
    least: float = 1.0,
    *,
    large: bool = False,
    period: int | None = None,
) -> Tile | None:
    """The tile with vectors along the innermost of ``loops`` where that is possible.

    A loop has at least the part ``least`` of a vector, and less than one is under a mask.
    ``period`` is the length of a loop that is joined to it; what such a short one moves over is
    read whole and permuted.
    """
    stores = [each for each in body if isinstance(each, Store)]
    if not loops or len(stores) < len(body) or not independent(loops, body, stores):
        return None
    reads = [node for node in postorder(*_roots(stores)) if isinstance(node, Read)]
    sizes = {BYTES[STORED[store.buffer.dtype]] for store in stores}
    sizes |= {BYTES[STORED[read.dtype]] for read in reads}
    if len(sizes) != 1 or not {store.buffer.dtype for store in stores} <= set(FLOATS):
        return None
    lanes = vector // sizes.pop()
    for loop in reversed(loops):
        permuted = [
            read
            for read in reads
            if repeating(read, loop.axis) is not None
            or (period and period < lanes and _in_row(read, loop.axis, lanes))
        ]
        whole = [read for read in reads if read not in permuted]
        extent = length(loop)
        open_ended = extent is None and large and most(loop) is None
        unknown = frozenset({loop.axis} if open_ended else ())
        if (unknown or (extent or 0) >= least * lanes) and _along(loop.axis, stores, whole):
            rows = (
                _steady(loops, loop.axis, reads)
                if permuted
                else _rows(loops, loop.axis, stores, reads)
            )
            counts = {loop.axis: 1, **rows}
            return Tile(tuple(loops), body, loop.axis, lanes, False, counts, sure=unknown)
    return None


def _in_row(read: Read, lane: Axis, lanes: int) -> bool:
    """Whether ``read`` is picked out of a row that joined loops do not leave."""
    found = window(read, lane, lanes)
    return found is not None and inside(found.place, found.extent - 1)


def joined(loops: Sequence[For], body: Block) -> tuple[tuple[For, ...], Block] | None:
    """``loops`` with both innermost ones as one, and the body that fits them.

    What depends on the outer one alone is then read every few lanes anew; see `repeating`.
    """
    if len(loops) < 2:
        return None
    *around, outer, inner = loops
    whole, times = length(outer), length(inner)
    if not whole or not times:
        return None
    axis = Axis(f"{outer.axis.name}_{inner.axis.name}", Const(whole * times, "index"))
    places = {
        loop: Apply(op, (axis, Const(times, "index")))
        for loop, op in ((outer, FLOORDIV), (inner, MOD))
    }
    body = replaced(body, {
        loop.axis: normal(Apply(ADD, (loop.start, place))) for loop, place in places.items()
    })  # fmt: skip
    one = replace(inner, axis=axis, start=Const(0, "index"), stop=axis.extent, body=body)
    return (*around, one), body


def _steady(loops: Sequence[For], lane: Axis, reads: Sequence[Read]) -> dict[Axis, int]:
    """Neighbours along the axis that moves the fewest reads: they share the others."""
    others = [loop for loop in reversed(loops) if loop.axis is not lane and length(loop)]
    moved = {loop: sum(loop.axis in read.free for read in reads) for loop in others}
    best = min(others, key=lambda loop: moved[loop], default=None)
    if best is None or moved[best] == len(reads):
        return {}
    extent = length(best) or 1
    return {best.axis: max(n for n in range(1, MOST + 1) if -extent % n <= extent * WASTE)}


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
        if not step or step * BYTES[STORED[tensor.dtype]] % SETS:
            return False
        lines.add((tensor, round(form.const / step)))
    return len(lines) > WAYS
