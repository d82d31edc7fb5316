"""The CPU backend: loop programs through LLVM.

`source` writes the module, `tiles` decides which loops become register tiles, `machine` compiles,
`ready` keeps what was made on disk, `pool` runs chunks on threads. Only float additions of a
reduction are reassociated, and products fused into sums; with ``exact=True`` not even these.
What plans and writes code is imported by the functions that need it: what was made before does not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from struct import Struct
from typing import TYPE_CHECKING

from eqsatad.backends.addresses import address
from eqsatad.backends.blocks import buffers_of
from eqsatad.backends.cpu.runtime.caches import Caches, found
from eqsatad.backends.cpu.runtime.machine import Code, Cpu, compiled, host, linked
from eqsatad.backends.cpu.runtime.pool import Team
from eqsatad.backends.cpu.runtime.ready import Ready, plain
from eqsatad.backends.cpu.runtime.workspace import Workspaces
from eqsatad.backends.kernel import Call, Kernel
from eqsatad.backends.storage import Array
from eqsatad.backends.threads import agreed
from eqsatad.errors import ArgumentError
from eqsatad.loops.nest import For, LoopProgram, Mark
from eqsatad.loops.nest import statements as all_statements  # A module here has the other name.

if TYPE_CHECKING:
    from eqsatad.backends.cpu.code.source import Machine, Source, Step

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def build(program: LoopProgram, *, threads: int | None = None, exact: bool = False) -> Kernel:
    """``program`` compiled for this CPU; for ``threads``, see `threads.set_num_threads`."""
    if threads is not None and threads < 1:
        raise ArgumentError(f"threads is {threads}; give at least 1, or None for all CPUs")
    ready = Ready.of(program, exact, lambda: _made(program, exact))
    buffers = replace(program, temporaries=ready.temporaries, nests=())
    launch = Launcher(buffers, linked(ready.content, ready.outside), threads, exact)
    noted = replace(program, notes=(*program.notes, *unheeded(program, host().vector)))
    return Kernel(noted, target="cpu", source=ready.text, launch=launch)


def _made(program: LoopProgram, exact: bool) -> Ready:
    """``program`` planned, written and compiled."""
    prepared, source = written(program, host(), exact)
    temporaries = tuple(map(plain, prepared.temporaries))
    return Ready(source.text, compiled(source.text), source.outside, temporaries)


def written(program: LoopProgram, cpu: Cpu, exact: bool) -> tuple[LoopProgram, Source]:
    """``program`` as it is planned for ``cpu``, and its module."""
    from eqsatad.backends.cpu.code.source import write

    machine = _machine(cpu)
    prepared = prepare(program, machine, exact=exact)
    source = write(prepared, machine, exact=exact)
    return replace(prepared, temporaries=source.temporaries), source


def planned(program: LoopProgram, cpu: Cpu, exact: bool) -> list[Step]:
    """The steps that ``program`` is made of on ``cpu``, without their code."""
    from eqsatad.backends.cpu.code.source import Options, steps_of
    from eqsatad.backends.cpu.code.text import Module

    machine = _machine(cpu)
    prepared = prepare(program, machine, exact=exact)
    return steps_of(prepared, Module(machine.vector), Options.of(prepared, machine, exact=exact))


def _machine(cpu: Cpu) -> Machine:
    """What code generation knows of ``cpu``."""
    from eqsatad.backends.cpu.code.source import Machine

    caches = found() if cpu == host() else Caches()
    return Machine(cpu.vector, cpu.registers, cpu.half, caches)


def unheeded(program: LoopProgram, vector: int) -> Iterator[str]:
    """What a schedule asks for and the generated code does not do."""
    for nest in program.nests:
        for each in all_statements(nest.body):
            if isinstance(each, For) and each.mark is Mark.VECTOR and not _lanes(each, vector):
                yield f"{nest.stage.name}: {each.axis.name} is not vectorised; it stores Booleans"


def _lanes(loop: For, vector: int) -> int:
    from eqsatad.backends.cpu.code.statements import lanes_of

    return lanes_of(loop, vector)


def prepare(program: LoopProgram, machine: Machine, *, exact: bool = False) -> LoopProgram:
    """An equal program that runs faster on ``machine``."""
    from eqsatad.backends.cpu.rewrites.columns import accumulated
    from eqsatad.backends.cpu.rewrites.decided import decided
    from eqsatad.backends.cpu.rewrites.inlining import inlined
    from eqsatad.backends.cpu.rewrites.joining import rowwise
    from eqsatad.backends.cpu.rewrites.layouts import arranged
    from eqsatad.backends.cpu.rewrites.margins import with_margins
    from eqsatad.backends.cpu.rewrites.packing import packed
    from eqsatad.backends.cpu.rewrites.parting import parted
    from eqsatad.backends.cpu.rewrites.passes import settled
    from eqsatad.backends.cpu.rewrites.ragged import evened
    from eqsatad.backends.cpu.rewrites.scatters import filled_first
    from eqsatad.backends.cpu.rewrites.siblings import joined
    from eqsatad.backends.cpu.rewrites.twins import united

    lean = inlined(decided(program) if program.sizes else program)
    lean = filled_first(united(arranged(parted(lean))))
    if not exact:
        lean = packed(settled(accumulated(rowwise(lean)), machine.caches), machine.vector)
        lean = with_margins(lean, machine.vector)
    return joined(evened(lean), machine.vector)


class Launcher:
    """Runs compiled code on arrays; keeps alive what the code needs."""

    def __init__(
        self, program: LoopProgram, code: Code, threads: int | None, exact: bool = False
    ) -> None:
        self.program = program
        self.code = code
        self.threads = threads
        self.exact = exact
        self._run = _RUN(code.address("run"))
        # Without a team the code runs every chunk itself.
        limit = agreed() if threads is None else ctypes.c_int64(threads)
        self._team = None if threads == 1 else Team(limit)
        self._workspaces = Workspaces(program)
        self._table = Struct(f"{1 + len(buffers_of(program)) + len(program.sizes)}q").pack

    def __call__(
        self, inputs: Sequence[Array], outputs: Sequence[Array], sizes: Sequence[int]
    ) -> None:
        workspace = self._workspaces.take(sizes)
        self._run(self._words(inputs, outputs, workspace.addresses, sizes))
        self._workspaces.give_back(workspace)

    def prepared(
        self, inputs: Sequence[Array], outputs: Sequence[Array], sizes: Sequence[int]
    ) -> Call:
        """A call on these arrays, with a workspace of its own; not for several threads at once."""
        workspace = self._workspaces.made(sizes)
        words = self._words(inputs, outputs, workspace.addresses, sizes)
        return Prepared(self._run, words, (*inputs, *outputs, workspace, self))

    def _words(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        temporaries: Sequence[int],
        sizes: Sequence[int],
    ) -> bytes:
        """The table of arguments; see `source`."""
        team = 0 if self._team is None else self._team.address
        addresses = map(address, (*inputs, *outputs))
        return self._table(team, *addresses, *temporaries, *sizes)


class Prepared:
    """One call whose arguments are in place; `__call__` only runs."""

    def __init__(
        self,
        run: Callable[[bytes], None],
        words: bytes,
        alive: tuple[object, ...],
    ) -> None:
        self._run = run
        self._words = words
        self._alive = alive

    def __call__(self) -> None:
        self._run(self._words)
