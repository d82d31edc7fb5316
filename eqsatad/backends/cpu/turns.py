"""Copies that change which axis is contiguous, a square of vectors at a time.

Vectors are read along the axis that is contiguous in the source, turned in registers, and written
along the one that is contiguous in the target, so that no element moves alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsatad.backends.cpu.fusion import fused
from eqsatad.backends.cpu.memory import shuffled
from eqsatad.backends.cpu.scalars import BYTES, COMPUTED, STORED
from eqsatad.backends.cpu.text import Value, Writer
from eqsatad.backends.cpu.tiles import Tile, chain, length, stride
from eqsatad.loops.nest import For, Statement, Store
from eqsatad.terms.nodes import Read

# Squares smaller than this are copied as they are.
LEAST = 4


def turn(statement: Statement, vector: int) -> Tile | None:
    """The tile for ``statement`` if it is a copy across; its vectors are read along the lanes."""
    loops, body = fused(*chain(statement))
    match body:
        case (Store(buffer, indices, Read(source, places)),) if source is not buffer:
            pass
        case _:
            return None
    if STORED[buffer.dtype] != COMPUTED[buffer.dtype] or source.dtype != buffer.dtype:
        return None
    along = _contiguous(loops, [stride(source, places, loop.axis) for loop in loops])
    across = _contiguous(loops, [stride(buffer, indices, loop.axis) for loop in loops])
    if along is None or across is None or along is across:
        return None
    lanes = vector // BYTES[STORED[buffer.dtype]]
    while lanes > min(length(along) or 0, length(across) or 0):
        lanes //= 2
    if lanes < LEAST:
        return None
    counts = {along.axis: 1, across.axis: lanes}
    return Tile(tuple(loops), body, along.axis, lanes, False, counts, turned=across.axis)


def _contiguous(loops: Sequence[For], strides: Sequence[int | None]) -> For | None:
    return next((loop for loop, step in zip(loops, strides, strict=True) if step == 1), None)


def transposed(w: Writer, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square of vectors: blocks off the diagonal swapped, small to large."""
    square = list(rows)
    size = len(square)
    distance = 1
    while distance < size:
        upper = [lane if not lane & distance else lane - distance + size for lane in range(size)]
        lower = [lane + distance if not lane & distance else lane + size for lane in range(size)]
        for row in range(size):
            if not row & distance:
                a, b = square[row], square[row + distance]
                square[row] = shuffled(w, a, b, upper)
                square[row + distance] = shuffled(w, a, b, lower)
        distance *= 2
    return square
