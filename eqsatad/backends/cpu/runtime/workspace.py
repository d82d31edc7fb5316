"""Memory for the temporaries of a program: kept between calls, one block for each call at a time.

Fresh memory costs a page fault for every few kilobytes, more than many kernels take to fill it.
Temporaries start at multiples of `ALIGNMENT`, and as much is free before and behind each, so that
a vector of which only some lanes count may be loaded at its ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eqsatad.backends.extents import value
from eqsatad.backends.storage import STORAGE, Array
from eqsatad.loops.nest import LoopProgram

# A cache line, and the longest vector.
ALIGNMENT = 64
# Blocks that are kept for calls of several threads.
KEPT = 4


@dataclass(frozen=True)
class Workspace:
    """A block of memory, where the temporaries lie in it, and the sizes that they are for."""

    block: Array
    addresses: tuple[int, ...]
    sizes: tuple[int, ...]


NONE = Workspace(np.empty(0, "uint8"), (), ())


class Workspaces:
    """The workspaces of one program."""

    def __init__(self, program: LoopProgram) -> None:
        self._sizes = [size.name for size in program.sizes]
        self._temporaries = [
            (tensor.shape, STORAGE[tensor.dtype].itemsize) for tensor in program.temporaries
        ]
        # Taking from a list and appending to it are atomic.
        self._spare: list[Workspace] = []

    def take(self, sizes: Sequence[int]) -> Workspace:
        """A workspace that nobody else uses, until it is given back."""
        if not self._temporaries:
            return NONE
        try:
            found = self._spare.pop()
        except IndexError:
            return self.made(sizes)
        return found if found.sizes == tuple(sizes) else self.made(sizes)

    def give_back(self, workspace: Workspace) -> None:
        """Keeps ``workspace`` for another call with the same sizes."""
        if self._temporaries and len(self._spare) < KEPT:
            self._spare.append(workspace)

    def made(self, sizes: Sequence[int]) -> Workspace:
        """A new workspace."""
        known = dict(zip(self._sizes, sizes, strict=True))
        places, total = [], ALIGNMENT
        for shape, width in self._temporaries:
            places.append(total)
            count = width
            for extent in shape:
                count *= value(extent, known)
            total += -(-count // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        block = np.empty(total + ALIGNMENT, "uint8")
        start = block.__array_interface__["data"][0]
        start += -start % ALIGNMENT
        return Workspace(block, tuple(start + place for place in places), tuple(sizes))
