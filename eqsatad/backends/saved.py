"""Kernels in files: to be loaded again, or to be called from C, perhaps on another CPU.

A saved kernel is a zip archive of what it takes and gives, its LLVM source and its object code.
On another kind of CPU, or with another LLVM, it is compiled again from the source. The loops are
not kept, so a loaded kernel can be called but not counted.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from eqsatad.backends.cpu import Launcher, written
from eqsatad.backends.cpu.code.source import outside
from eqsatad.backends.cpu.runtime import machine
from eqsatad.backends.cpu.runtime.export import declaration, exported
from eqsatad.backends.cpu.runtime.machine import Cpu, host, identity, linked, load, named, portable
from eqsatad.backends.cpu.runtime.ready import plain
from eqsatad.backends.kernel import Kernel
from eqsatad.backends.specialise import Specialised
from eqsatad.errors import BackendError, StoreError
from eqsatad.loops.nest import LoopProgram
from eqsatad.terms import store
from eqsatad.terms.nodes import Size, Tensor

VERSION = 3
INFO, BUFFERS, SOURCE, OBJECT = "kernel.json", "buffers.terms", "source.ll", "code.o"
COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True)
class Written:
    """The module of a kernel for ``cpu``, and the buffers that it works on."""

    cpu: Cpu
    program: LoopProgram
    text: str


def save(kernel: Kernel, path: Path, header: Path | None, cpu: str | None) -> None:
    """See `Kernel.save`."""
    launch = launcher_of(kernel, "saved")
    if path.suffix in WRITERS:
        WRITERS[path.suffix](_for(kernel, launch, cpu), path)
    elif cpu is None:
        _archive(kernel, launch, path)
    else:
        ends = " or ".join(sorted(WRITERS))
        raise BackendError(f"{path.name} is for this CPU; for {cpu} save a file ending in {ends}")
    if header is not None:
        header.write_text(declaration(launch.program, path.stem))


def assembly(kernel: Kernel, cpu: str | None) -> str:
    """See `Kernel.assembly`."""
    module = _for(kernel, launcher_of(kernel, "shown as assembly"), cpu)
    return machine.assembly(module.text, module.cpu)


def launcher_of(kernel: Kernel, what: str) -> Launcher:
    """What runs ``kernel``, if that is compiled code, which can be saved or ``what`` it may be."""
    launch = kernel.launch
    if not isinstance(launch, Launcher):
        kind = kernel.source if isinstance(launch, Specialised) else f"one for {kernel.target}"
        raise BackendError(f"only cpu kernels can be {what}, and this is {kind}")
    return launch


def _for(kernel: Kernel, launch: Launcher, cpu: str | None) -> Written:
    """``kernel`` as it is, or planned and written again for ``cpu``."""
    if cpu is None:
        return Written(host(), launch.program, kernel.source)
    if not kernel.loops.nests:
        raise BackendError(
            "a kernel loaded from a file has no loops, so it cannot be made for another CPU; "
            "build it again"
        )
    prepared, source = written(kernel.loops, named(cpu), launch.exact)
    return Written(named(cpu), prepared, source.text)


def load_kernel(path: str | Path) -> Kernel:
    """The kernel that ``Kernel.save`` wrote to ``path``."""
    try:
        with ZipFile(path) as archive:
            parts = {name: archive.read(name) for name in (INFO, BUFFERS, SOURCE, OBJECT)}
    except (BadZipFile, KeyError) as cause:
        raise StoreError(
            f"{path} holds no saved kernel, or a damaged one ({cause}); save it again"
        ) from cause
    info = json.loads(parts[INFO])
    if info.get("version") != VERSION:
        raise StoreError(f"{path} is of version {info.get('version')}, expected {VERSION}")
    program = _program(info, store.load(parts[BUFFERS]), str(path))
    text = parts[SOURCE].decode()
    same = info["identity"] == identity()
    code = linked(parts[OBJECT], outside(text)) if same else load(text, outside(text))
    launch = Launcher(program, code, info["threads"])
    return Kernel(program, target="cpu", source=text, launch=launch, alike=info["alike"])


def _archive(kernel: Kernel, launch: Launcher, path: Path) -> None:
    program = launch.program
    groups = (program.inputs, program.outputs, program.temporaries)
    info = {
        "version": VERSION,
        "identity": identity(),
        "buffers": [len(group) for group in groups],
        "sizes": [size.name for size in program.sizes],
        "threads": launch.threads,
        "alike": kernel.alike,
    }
    buffers = [plain(tensor) for group in groups for tensor in group]
    with ZipFile(path, "w") as archive:
        archive.writestr(INFO, json.dumps(info))
        archive.writestr(BUFFERS, store.dump(buffers))
        archive.writestr(SOURCE, kernel.source)
        archive.writestr(OBJECT, launch.code.content)


def _program(info: dict[str, list[int]], buffers: list[Tensor], path: str) -> LoopProgram:
    takes, gives, _ = info["buffers"]
    return LoopProgram(
        tuple(buffers[:takes]),
        tuple(buffers[takes : takes + gives]),
        tuple(buffers[takes + gives :]),
        tuple(Size(str(name)) for name in info["sizes"]),
        (),
        (f"loaded from {path}, which keeps no loops: they cannot be counted",),
    )


def _object(module: Written, path: Path) -> None:
    path.write_bytes(portable(exported(module.text, module.program, path.stem), module.cpu))


def _library(module: Written, path: Path) -> None:
    if module.cpu.triple != host().triple:
        raise BackendError(
            f"a library for {module.cpu.name} needs a linker for {module.cpu.triple}; "
            f"save {path.stem}.o and link it there"
        )
    compiler = next((found for name in COMPILERS if (found := which(name))), None)
    if compiler is None:
        raise BackendError(
            f"{path.name} needs a linker, and none of {', '.join(COMPILERS)} is installed; "
            f"save {path.stem}.o and link it elsewhere"
        )
    with TemporaryDirectory() as folder:
        part = Path(folder) / f"{path.stem}.o"
        _object(module, part)
        command = [compiler, "-shared", "-o", str(path), str(part), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"{' '.join(command)} failed: {done.stderr.strip()}")


WRITERS: dict[str, Callable[[Written, Path], None]] = {
    ".o": _object, ".so": _library, ".dylib": _library,
}  # fmt: skip
