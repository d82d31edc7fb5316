"""Backends: loop programs as kernels for a target.

Each row of `TARGETS` loads its backend when it is asked for, since compilers take long to import
and OpenCL is optional.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from eqsatad.backends.kernel import Kernel
from eqsatad.errors import UnknownTargetError
from eqsatad.loops.nest import LoopProgram

Build: TypeAlias = Callable[[LoopProgram, int | None, bool], Kernel]


def _cpu(program: LoopProgram, threads: int | None, exact: bool) -> Kernel:
    from eqsatad.backends.cpu import build

    return build(program, threads=threads, exact=exact)


def _opencl(program: LoopProgram, threads: int | None, exact: bool) -> Kernel:
    from eqsatad.backends.opencl import build

    return build(program, exact=exact)


def _reference(program: LoopProgram, threads: int | None, exact: bool) -> Kernel:
    from eqsatad.backends.reference import build

    return build(program)


TARGETS: dict[str, Build] = {"cpu": _cpu, "opencl": _opencl, "reference": _reference}


def build(
    program: LoopProgram,
    target: str = "cpu",
    *,
    threads: int | None = None,
    exact: bool = False,
) -> Kernel:
    """``program`` as a kernel for ``target``, a row of `TARGETS`.

    ``threads`` is for the CPU: at most so many, by default as `threads.num_threads` says.
    ``exact`` forbids reassociating sums and fusing products into sums.
    """
    return TARGETS[known(target)](program, threads, exact)


def known(target: str) -> str:
    """``target``; `UnknownTargetError` if it is no row of `TARGETS`."""
    if target not in TARGETS:
        raise UnknownTargetError(
            f"there is no target {target!r}; available: {', '.join(sorted(TARGETS))}"
        )
    return target


def load_kernel(path: str | Path) -> Kernel:
    """The kernel that `Kernel.save` wrote to ``path``; it can be called, but not counted."""
    from eqsatad.backends.saved import load_kernel as load

    return load(path)
