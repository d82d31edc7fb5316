"""Results that are stored past the caches: large ones that the program does not read.

A line that is stored the ordinary way is fetched first, and pushes out what is read again. Walks
along rows store the whole vectors of such results around the caches, from the first place on that
is a multiple of a vector, and ask early for what they read from other large arrays.
"""

from __future__ import annotations

from math import prod

from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.loops.nest import LoopProgram, expressions_of, statements
from eqsatad.terms.nodes import Const, Read, Tensor
from eqsatad.terms.walk import postorder

# Bytes from which on a result takes too much of the last cache to be kept in it.
LARGE = 4 << 20


def large(program: LoopProgram) -> frozenset[Tensor]:
    """The results of ``program`` that are stored past the caches where that is possible."""
    found = {tensor for tensor in program.outputs if far(tensor)}
    if not found:
        return frozenset()
    roots = [e for nest in program.nests for s in statements(nest.body) for e in expressions_of(s)]
    return frozenset(found - {node.tensor for node in postorder(*roots) if isinstance(node, Read)})


def far(tensor: Tensor) -> bool:
    """Whether ``tensor`` is certainly too large to be in a cache when it is walked through."""
    known = [extent.value for extent in tensor.shape if isinstance(extent, Const)]
    return len(known) == len(tensor.shape) and BYTES[STORED[tensor.dtype]] * prod(known) >= LARGE
