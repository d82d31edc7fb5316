"""The host's CPU, and machine code: compiled by LLVM, kept on disk, loaded into the process.

The only module that imports llvmlite. What it raises becomes a `BackendError`.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from threading import Lock
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from eqsatad import cache as disk
from eqsatad.errors import BackendError

_lock = Lock()
# How much LLVM optimises: the next level takes up to nine times as long on tiles, and its loop
# passes undo interleaved stores.
LEVEL = 2
# In order of preference: a feature, the bytes of its vectors, and how many registers it has.
VECTORS = (("avx512f", 64, 32), ("avx", 32, 16), ("neon", 16, 32), ("sse2", 16, 16))


@dataclass(frozen=True)
class Host:
    """The CPU that code is made for."""

    name: str
    features: str
    vector: int
    registers: int


@cache
def host() -> Host:
    """This CPU."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    found = llvm.get_host_cpu_features()
    for feature, vector, registers in VECTORS:
        if found.get(feature):
            return Host(llvm.get_host_cpu_name(), found.flatten(), vector, registers)
    return Host(llvm.get_host_cpu_name(), found.flatten(), 16, 16)


class Code:
    """Loaded machine code; addresses are valid as long as this object lives."""

    def __init__(self, engine: Any, content: bytes) -> None:
        self._engine = engine
        self.content = content

    def address(self, name: str) -> int:
        return int(self._engine.get_function_address(name))


def load(text: str, outside: tuple[str, ...] = (), level: int = LEVEL) -> Code:
    """The module ``text``, compiled or from disk; ``outside`` are the C functions that it calls."""
    key = _key(text, level)
    with _lock:
        _resolve(outside)
        content = disk.fetch(key)
        if content is not None:
            return _linked(content)
        content = _compiled(text, _target_machine(), level)
        disk.keep(key, content)
        return _linked(content)


def compiled(text: str) -> bytes:
    """The object code of the module ``text`` for this process."""
    here = _target_machine()
    with _lock:
        return _compiled(text, here, LEVEL)


def linked(content: bytes, outside: tuple[str, ...]) -> Code:
    """Object code that this CPU made before, loaded."""
    with _lock:
        _resolve(outside)
        return _linked(content)


def portable(text: str) -> bytes:
    """The object code of the module ``text`` for a linker, to run anywhere in memory."""
    here = host()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=here.name, features=here.features, opt=3, reloc="pic", codemodel="default"
    )
    with _lock:
        return _compiled(text, machine, LEVEL)


def identity() -> str:
    """What object code depends on besides its source: the CPU and the compiler."""
    here = host()
    versions = (llvmlite.__version__, *llvm.llvm_version_info)
    parts = (here.name, here.features, versions, llvm.get_default_triple())
    return blake2b(repr(parts).encode(), digest_size=20).hexdigest()


def _key(text: str, level: int) -> str:
    parts = (text, level, identity())
    return blake2b(repr(parts).encode(), digest_size=20).hexdigest()


def _target_machine() -> Any:
    here = host()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=here.name, features=here.features, opt=3, codemodel="jitdefault", jit=True
    )


def _compiled(text: str, machine: Any, level: int) -> bytes:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
        module.triple = llvm.get_default_triple()
        module.data_layout = str(machine.target_data)
        options = llvm.create_pipeline_tuning_options(speed_level=level)
        options.loop_vectorization = options.slp_vectorization = level > 1
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return bytes(machine.emit_object(module))
    except RuntimeError as cause:
        raise BackendError(
            "LLVM refused the code of a kernel, which is a fault of eqsatad; please report it "
            f"with the kernel's source. LLVM says: {cause}"
        ) from cause


def _linked(content: bytes) -> Code:
    try:
        machine = _target_machine()
        empty = llvm.parse_assembly("")
        engine = llvm.create_mcjit_compiler(empty, machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(content))
        engine.finalize_object()
        return Code(engine, content)
    except RuntimeError as cause:
        raise BackendError(f"compiled code could not be loaded: {cause}") from cause


def _resolve(outside: tuple[str, ...]) -> None:
    """Makes the functions of the C library known to LLVM."""
    missing = [name for name in outside if not llvm.address_of_symbol(name)]
    if not missing:
        return
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    for name in missing:
        try:
            function = getattr(library, name)
        except AttributeError as cause:
            raise BackendError(f"the C library of this system has no function {name}") from cause
        llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
