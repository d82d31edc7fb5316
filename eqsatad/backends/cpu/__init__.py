"""The CPU backend: loop programs through LLVM.

`source` writes the module, `tiles` decides which loops become register tiles, `machine` compiles
and caches, `pool` runs chunks on threads. Only float additions of a reduction are reassociated,
and products fused into sums; with ``exact=True`` not even these.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from eqsatad.backends.cpu.machine import Code, host, load
from eqsatad.backends.cpu.packing import packed
from eqsatad.backends.cpu.pool import available, pool
from eqsatad.backends.cpu.source import Machine, write
from eqsatad.backends.extents import value
from eqsatad.backends.kernel import STORAGE, Array, Kernel
from eqsatad.errors import ArgumentError
from eqsatad.loops.nest import LoopProgram

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DISPATCH = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


def build(program: LoopProgram, *, threads: int | None = None, exact: bool = False) -> Kernel:
    """``program`` compiled for this CPU; ``threads`` is by default one for each available CPU."""
    count = available() if threads is None else threads
    if count < 1:
        raise ArgumentError(f"threads is {threads}; give at least 1, or None for all CPUs")
    here = host()
    prepared = program if exact else packed(program, here.vector)
    source = write(prepared, Machine(here.vector, here.registers), exact=exact)
    launch = Launcher(prepared, load(source.text, source.outside), count)
    return Kernel(program, target="cpu", source=source.text, launch=launch)


class Launcher:
    """Runs compiled code on arrays; keeps alive what the code needs."""

    def __init__(self, program: LoopProgram, code: Code, threads: int) -> None:
        self._code = code
        self._run = _RUN(code.address("run"))
        self._dispatch = _dispatcher(threads)
        # Without a dispatcher the code runs every chunk itself.
        shared = ctypes.cast(self._dispatch, ctypes.c_void_p).value or 0
        self._dispatcher = shared if threads > 1 else 0
        self._sizes = [size.name for size in program.sizes]
        self._temporaries = [
            (tensor.shape, STORAGE[tensor.dtype]) for tensor in program.temporaries
        ]

    def __call__(
        self, inputs: Sequence[Array], outputs: Sequence[Array], sizes: Sequence[int]
    ) -> None:
        known = dict(zip(self._sizes, sizes, strict=True))
        temporaries = [
            np.empty([value(extent, known) for extent in shape], dtype)
            for shape, dtype in self._temporaries
        ]
        buffers = (*inputs, *outputs, *temporaries)
        addresses = [array.__array_interface__["data"][0] for array in buffers]
        words = (self._dispatcher, *addresses, *sizes)
        table = (ctypes.c_int64 * len(words))(*words)
        self._run(ctypes.addressof(table))


def _dispatcher(threads: int) -> ctypes._CFunctionType:
    """What compiled code calls to share a loop among ``threads`` threads."""

    def dispatch(function: int, args: int, start: int, stop: int, chunk: int) -> None:
        pool().run(threads, function, args, start, stop, chunk)

    return _DISPATCH(dispatch)
