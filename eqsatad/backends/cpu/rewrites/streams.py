"""Results that are stored past the caches: large ones that the program does not read.

A line that is stored the ordinary way is fetched first, and pushes out what is read again. Walks
along rows store the whole vectors of such results around the caches, from the first place on that
is a multiple of a vector, and ask early for what they read from other large arrays. Where all
arrays together stay in the last cache, nothing is pushed out, and lines are fetched from there. A
last cache that is many times as large has room for more; then it only matters whether what is
stored pushes the row that is walked out of the nearest cache.
"""

from __future__ import annotations

from math import prod

from eqsatad.backends.blocks import buffers_of, touched
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.loops.nest import LoopProgram, expressions_of, statements
from eqsatad.terms.nodes import Const, Read, Tensor
from eqsatad.terms.walk import postorder

# Bytes from which on a result takes too much of the last cache to be kept in it.
LARGE = 4 << 20
# How many times that all arrays of a program may have before they push each other out.
CROWD = 2.5
# The part of the last cache that all arrays may fill: others use it, too.
SHARE = 0.25


def large(program: LoopProgram, caches: Caches) -> frozenset[Tensor]:
    """The results of ``program`` that are stored past the caches where that is possible."""
    sizes = [size(tensor) for tensor in buffers_of(program)]
    known = None not in sizes
    total = sum(filter(None, sizes))
    if known and total < CROWD * LARGE:
        return frozenset()
    found = frozenset(filter(far, unread(program)))
    if known and total <= SHARE * caches.last:
        rows = [touched(nest.body) for nest in program.nests]
        crowded = (row for row in rows if sum(map(_row, row)) > caches.near)
        found &= frozenset[Tensor]().union(*crowded)
    return found


def _row(tensor: Tensor) -> int:
    """The bytes of a row of ``tensor``, if they are known."""
    *_, extent = (Const(1, "index"), *tensor.shape)
    return BYTES[STORED[tensor.dtype]] * (extent.value if isinstance(extent, Const) else 0)


def unread(program: LoopProgram) -> frozenset[Tensor]:
    """The results of ``program`` that it does not read."""
    found = set(program.outputs)
    roots = [e for nest in program.nests for s in statements(nest.body) for e in expressions_of(s)]
    return frozenset(found - {node.tensor for node in postorder(*roots) if isinstance(node, Read)})


def open_ended(tensor: Tensor) -> bool:
    """Whether it is not known how large ``tensor`` is."""
    return not all(isinstance(extent, Const) for extent in tensor.shape)


def far(tensor: Tensor) -> bool:
    """Whether ``tensor`` is certainly too large to be in a cache when it is walked through."""
    return (size(tensor) or 0) >= LARGE


def size(tensor: Tensor) -> int | None:
    """The bytes of ``tensor``, if its shape is known."""
    known = [extent.value for extent in tensor.shape if isinstance(extent, Const)]
    whole = len(known) == len(tensor.shape)
    return BYTES[STORED[tensor.dtype]] * prod(known) if whole else None
