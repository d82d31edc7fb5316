"""New arrays for results, and where in memory they begin.

A load waits for an earlier store that is not yet done if their addresses are the same but for the
upper bits (Intel 64 and IA-32 Architectures Optimization Reference Manual, on aliasing of 4 KiB). A
kernel that goes through an input and a result alike has some sixty stores under way. So a large
result begins a little before the place in a page where an input begins: of the stores that a load
may meet, those are the oldest. Of an input of the same size that is gone through as the result is,
see `alike`, the result also has the place within a line of the caches, so that both have whole
lines at the same elements. Other large results begin with a line, since elsewhere every vector that
is stored touches two.

The memory of a large result is kept when no array is in it any more, for the next one of its size:
memory that the system gives anew is cleared page by page, which takes as long as a kernel that
fills it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any, ClassVar, TypeAlias

import numpy as np

from eqsatad.backends.addresses import address
from eqsatad.backends.storage import Array

Shape: TypeAlias = tuple[int, ...]
# What makes a result of a shape and a dtype for a call with some arrays.
Maker: TypeAlias = Callable[[Shape, np.dtype[np.generic], Sequence[Array]], Array]
# A block of memory, and what NumPy says of it, which takes as long as all the rest of a new array.
Block: TypeAlias = tuple[Array, dict[str, Any]]

LINE = 64
PAGE = 4096
# How many bytes before an input, in a page, a result begins.
BEFORE = 256
# Bytes from which on it matters where a result begins, and its memory is kept.
LARGE = 1 << 20
# Bytes that are kept at most.
KEPT = 128 << 20


class Memory:
    """What the arrays in one block of memory have in common."""

    # Blocks that no array is in. Each operation on it is one step, so threads need no lock, nor
    # does a collection of garbage in the midst of another operation.
    free: ClassVar[deque[Block]] = deque()

    def __init__(self, size: int) -> None:
        self._block = self._kept(size)
        self.__array_interface__ = self._block[1]

    def __del__(self) -> None:
        self.free.append(self._block)
        with suppress(IndexError):
            while sum(block.nbytes for block, _ in tuple(self.free)) > KEPT:
                self.free.popleft()

    def _kept(self, size: int) -> Block:
        with suppress(IndexError):
            for _ in range(len(self.free)):
                found = self.free.popleft()
                if found[0].nbytes == size:
                    return found
                self.free.append(found)
        block = np.empty(size, "uint8")
        return block, block.__array_interface__


def maker(shape: Shape, dtype: np.dtype[np.generic], alike: Sequence[int] = ()) -> Maker:
    """What makes results of this shape and dtype, gone through as the inputs ``alike``."""
    large = dtype.itemsize * prod(shape) >= LARGE
    return partial(beside, alike=alike) if large else anywhere


def anywhere(shape: Shape, dtype: np.dtype[np.generic], taken: Sequence[Array]) -> Array:
    """A new array."""
    return np.empty(shape, dtype)


def beside(
    shape: Shape, dtype: np.dtype[np.generic], taken: Sequence[Array], alike: Sequence[int] = ()
) -> Array:
    """A new array that begins a little before an input, by the place in a page."""
    size = dtype.itemsize * prod(shape)
    for place in alike:
        if taken[place].nbytes == size:
            # Elements of another type may begin where these cannot.
            begin = address(taken[place])
            return _placed(shape, dtype, begin - begin % dtype.itemsize - BEFORE)
    same = (array for array in taken if array.nbytes == size)
    other = next(same, max(taken, key=_size, default=None))
    near = 0 if other is None else address(other)
    return _placed(shape, dtype, near - near % LINE - BEFORE)


def _size(array: Array) -> int:
    return array.nbytes


def _placed(shape: Shape, dtype: np.dtype[np.generic], begin: int) -> Array:
    """A new array that begins at ``begin`` but for the page."""
    block = np.asarray(Memory(dtype.itemsize * prod(shape) + PAGE))
    return np.ndarray(shape, dtype, block, (begin - address(block)) % PAGE)
