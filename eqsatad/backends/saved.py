"""Kernels in files: to be loaded again, or to be called from C.

A saved kernel is a zip archive of what it takes and gives, its LLVM source and its object code.
On another kind of CPU, or with another LLVM, it is compiled again from the source. The loops are
not kept, so a loaded kernel can be called but not counted.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from eqsatad.backends.cpu import Launcher
from eqsatad.backends.cpu.export import declaration, exported
from eqsatad.backends.cpu.machine import identity, linked, load, portable
from eqsatad.backends.cpu.ready import plain
from eqsatad.backends.cpu.source import outside
from eqsatad.backends.kernel import Kernel
from eqsatad.backends.specialise import Specialised
from eqsatad.errors import BackendError, StoreError
from eqsatad.loops.nest import LoopProgram
from eqsatad.terms import store
from eqsatad.terms.nodes import Size, Tensor

VERSION = 1
INFO, BUFFERS, SOURCE, OBJECT = "kernel.json", "buffers.terms", "source.ll", "code.o"
COMPILERS = ("cc", "gcc", "clang")


def save(kernel: Kernel, path: Path, header: Path | None) -> None:
    """See `Kernel.save`."""
    launch = kernel.launch
    if not isinstance(launch, Launcher):
        what = kernel.source if isinstance(launch, Specialised) else f"one for {kernel.target}"
        raise BackendError(f"only cpu kernels can be saved, and this is {what}")
    write = WRITERS.get(path.suffix, _archive)
    write(kernel, launch, path)
    if header is not None:
        header.write_text(declaration(launch.program, path.stem))


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
    return Kernel(program, target="cpu", source=text, launch=launch)


def _archive(kernel: Kernel, launch: Launcher, path: Path) -> None:
    program = launch.program
    groups = (program.inputs, program.outputs, program.temporaries)
    info = {
        "version": VERSION,
        "identity": identity(),
        "buffers": [len(group) for group in groups],
        "sizes": [size.name for size in program.sizes],
        "threads": launch.threads,
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


def _object(kernel: Kernel, launch: Launcher, path: Path) -> None:
    path.write_bytes(portable(exported(kernel.source, launch.program, path.stem)))


def _library(kernel: Kernel, launch: Launcher, path: Path) -> None:
    compiler = next((found for name in COMPILERS if (found := which(name))), None)
    if compiler is None:
        raise BackendError(
            f"{path.name} needs a linker, and none of {', '.join(COMPILERS)} is installed; "
            f"save {path.stem}.o and link it elsewhere"
        )
    with TemporaryDirectory() as folder:
        part = Path(folder) / f"{path.stem}.o"
        _object(kernel, launch, part)
        command = [compiler, "-shared", "-o", str(path), str(part), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"{' '.join(command)} failed: {done.stderr.strip()}")


WRITERS: dict[str, Callable[[Kernel, Launcher, Path], None]] = {
    ".o": _object, ".so": _library, ".dylib": _library,
}  # fmt: skip
