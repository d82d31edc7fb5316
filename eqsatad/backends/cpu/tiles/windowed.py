"""Nests whose reads are picked out of windows, as tiles: see `windows`.

Where the lanes of a vector are depends on no other loop, and neither do the masks of what only
some lanes add up. Where a row has few vectors they are written out, and all that is constant;
elsewhere one is run through a block of rows before the next one. See `tilewriter`.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsatad.backends.cpu.code.loads import PERMUTES, PICKED
from eqsatad.backends.cpu.code.scalars import BYTES, COMPUTED, STORED
from eqsatad.backends.cpu.tiles.fusion import fused, spelled_out
from eqsatad.backends.cpu.tiles.maps import joined
from eqsatad.backends.cpu.tiles.tile import Tile, chain, independent, length, stride, uneven
from eqsatad.backends.cpu.tiles.windows import inside, window
from eqsatad.loops.nest import (
    Block,
    For,
    Statement,
    Store,
    reads_of,
    statements,
)
from eqsatad.terms.nodes import Axis, Read

# A vector is filled to this part at least, by one loop and by two that are joined.
FILLED, JOINED = 2, 4
# Rows that run together, and the tiles of rows that one vector is run through.
ROWS = 2
BLOCK = 16


def windowed(statement: Statement, vector: int) -> Tile | None:
    """The tile for ``statement`` if reads of it are picked out of windows.

    Where both innermost loops are the digits of a place in a row shorter than a vector, that is one
    loop.
    """
    if vector != PERMUTES:
        return None
    (whole,) = spelled_out((statement,))
    loops, body = fused(*chain(whole))
    found = _tile(loops, body, vector, FILLED)
    if found is not None or vector <= _row(loops, body):
        return found
    pair = joined(loops, body)
    return _tile(*pair, vector, JOINED) if pair is not None and _in_rows(*pair, vector) else None


def _row(loops: Sequence[For], body: Block) -> int:
    """The bytes that the innermost loop stores in a row."""
    stored = (
        BYTES[STORED[each.buffer.dtype]] for each in statements(body) if isinstance(each, Store)
    )
    return (length(loops[-1]) or 0) * max(stored, default=0) if loops else 0


def _in_rows(loops: Sequence[For], body: Block, vector: int) -> bool:
    """Whether windows along the innermost loop stay in their rows, which joined loops may leave."""
    lane = loops[-1].axis
    windows = [
        window(read, lane, vector // BYTES[STORED[read.tensor.dtype]]) for read in reads_of(body)
    ]
    return all(found is None or inside(found.place, found.extent - 1) for found in windows)


def _tile(loops: Sequence[For], body: Block, vector: int, part: int) -> Tile | None:
    """The tile with vectors along one of ``loops``, of which it fills one in ``part`` at least."""
    stores = [each for each in statements(body) if isinstance(each, Store)]
    if not loops or not stores or not independent(loops, body, stores):
        return None
    if any(store.buffer.dtype == "bool" for store in stores):
        return None
    lanes = vector // max(BYTES[COMPUTED[store.buffer.dtype]] for store in stores)
    reads = reads_of(body)
    for loop in loops:
        if part * (length(loop) or 0) >= lanes and _suits(loop.axis, lanes, stores, reads):
            return Tile(tuple(loops), body, loop.axis, lanes, False,
                        {loop.axis: 1, **_rows(loops, loop, body)}, block=BLOCK)  # fmt: skip
    return None


def _suits(lane: Axis, lanes: int, stores: Sequence[Store], reads: Sequence[Read]) -> bool:
    """Whether all is stored and read by vectors along ``lane``, some of it out of windows."""
    if any(stride(store.buffer, store.indices, lane) != 1 for store in stores):
        return False
    steps = {read: stride(read.tensor, read.indices, lane) for read in reads}
    uneven = [read for read, step in steps.items() if step is None]
    regular = all(step is None or 0 <= step <= PICKED for step in steps.values())
    return bool(uneven) and regular and all(window(read, lane, lanes) for read in uneven)


def _rows(loops: Sequence[For], lane: For, body: Block) -> dict[Axis, int]:
    """Neighbours along the innermost loop on which no bound or condition depends."""
    fixed = uneven(body)
    for loop in reversed(loops):
        if loop is not lane and loop.axis not in fixed and (length(loop) or 0) >= ROWS:
            return {loop.axis: ROWS}
    return {}
