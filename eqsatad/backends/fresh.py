"""New arrays for results, and where in memory they begin.

A large result begins with a line of the caches, since elsewhere every vector that is stored touches
two lines. One that an input of the same size is walked along with begins like that input within a
line, so that both have whole lines at the same elements, and half a page away: a load whose address
differs from that of a store just before in its upper bits alone waits for the store (Intel 64 and
IA-32 Architectures Optimization Reference Manual, on aliasing of 4 KiB).

The memory of a large result is kept when no array is in it any more, for the next one of its size:
memory that the system gives anew is cleared page by page, which takes as long as a kernel that
fills it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.generic]
Shape: TypeAlias = tuple[int, ...]
# What makes a result of a shape and a dtype for a call with some arrays.
Maker: TypeAlias = Callable[[Shape, np.dtype[np.generic], Sequence[Array]], Array]

LINE = 64
PAGE = 4096
# Bytes from which on a result begins with a line, and from which on beside an input.
LARGE = 1 << 20
LARGER = 4 << 20
# Bytes that are kept at most.
KEPT = 128 << 20


class Memory:
    """What the arrays in one block of memory have in common."""

    # Blocks that no array is in. Each operation on it is one step, so threads need no lock, nor
    # does a collection of garbage in the midst of another operation.
    free: ClassVar[deque[Array]] = deque()

    def __init__(self, size: int) -> None:
        self.block = self._kept(size)
        self.__array_interface__ = self.block.__array_interface__

    def __del__(self) -> None:
        self.free.append(self.block)
        with suppress(IndexError):
            while sum(block.nbytes for block in tuple(self.free)) > KEPT:
                self.free.popleft()

    def _kept(self, size: int) -> Array:
        with suppress(IndexError):
            for _ in range(len(self.free)):
                block = self.free.popleft()
                if block.nbytes == size:
                    return block
                self.free.append(block)
        return np.empty(size, "uint8")


def maker(shape: Shape, dtype: np.dtype[np.generic]) -> Maker:
    """What makes results of this shape and dtype."""
    size = dtype.itemsize * prod(shape)
    return anywhere if size < LARGE else in_lines if size < LARGER else beside


def anywhere(shape: Shape, dtype: np.dtype[np.generic], taken: Sequence[Array]) -> Array:
    """A new array."""
    return np.empty(shape, dtype)


def in_lines(shape: Shape, dtype: np.dtype[np.generic], taken: Sequence[Array]) -> Array:
    """A new array that begins with a line of the caches."""
    return _placed(shape, dtype, 0, LINE)


def beside(shape: Shape, dtype: np.dtype[np.generic], taken: Sequence[Array]) -> Array:
    """A new array that begins half a page away from where one of ``taken`` of its size begins."""
    size = dtype.itemsize * prod(shape)
    like = next((array for array in taken if array.nbytes == size), None)
    if like is None:
        return in_lines(shape, dtype, taken)
    return _placed(shape, dtype, like.__array_interface__["data"][0] + PAGE // 2, PAGE)


def _placed(shape: Shape, dtype: np.dtype[np.generic], address: int, apart: int) -> Array:
    """A new array that begins a multiple of ``apart`` bytes from ``address``."""
    block = np.asarray(Memory(dtype.itemsize * prod(shape) + apart))
    start: int = (address - block.__array_interface__["data"][0]) % apart
    return np.ndarray(shape, dtype, block, start)
