"""CPUs, and machine code: compiled by LLVM, kept on disk, loaded into the process.

Code that runs here is made for this CPU, or for the one that the variable EQSATAD_CPU names, which
must have no instruction that this one lacks. Assembly and object files are made for any row of
`CPUS`. The only module that imports llvmlite. What it raises becomes a `BackendError`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from threading import RLock
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from eqsatad import cache as disk
from eqsatad.errors import BackendError

VARIABLE = "EQSATAD_CPU"
# How much LLVM optimises: the next level takes up to nine times as long on tiles, and its loop
# passes undo interleaved stores.
LEVEL = 2
# In order of preference: a feature, the bytes of its vectors, and how many registers it has.
VECTORS = (("avx512dq", 64, 32), ("avx", 32, 16), ("neon", 16, 32), ("sse2", 16, 16))
# Features of which one is enough: to convert half floats, and to round in one instruction.
HALVES = ("f16c", "neon")
ROUNDS = ("fma", "neon")
# What LLVM calls in the C library where a CPU has no such instruction.
CALLED = tuple(name + end for name in ("floor", "ceil", "trunc", "roundeven", "fma")
               for end in ("", "f"))  # fmt: skip

SSE2: tuple[str, ...] = ("sse2",)
SSE4 = (*SSE2, "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
AVX2 = (*SSE4, "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe")
AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
NEON = ("neon",)
INTEL, ARM = "x86_64", "aarch64"
CPUS: dict[str, tuple[str, tuple[str, ...]]] = {
    "x86-64": (INTEL, SSE2),
    "x86-64-v2": (INTEL, SSE4),
    "x86-64-v3": (INTEL, AVX2),
    "x86-64-v4": (INTEL, AVX512),
    "haswell": (INTEL, AVX2),
    "skylake": (INTEL, (*AVX2, "adx", "clflushopt")),
    "skylake-avx512": (INTEL, (*AVX512, "adx", "clflushopt", "clwb")),
    "znver2": (INTEL, (*AVX2, "adx", "clflushopt", "clwb", "sse4a")),
    "znver3": (INTEL, (*AVX2, "adx", "clflushopt", "clwb", "sse4a", "vaes")),
    "aarch64": (ARM, NEON),
    "cortex-a72": (ARM, NEON),
    "neoverse-n1": (ARM, (*NEON, "lse", "fullfp16")),
    "apple-m1": (ARM, (*NEON, "lse", "fullfp16")),
}
"""By the name: the architecture, and the features that a CPU must have to run its code."""
# What LLVM calls the CPU of each architecture that has nothing but what all have.
PLAIN = {"aarch64": "generic"}
GENERIC = {INTEL: "x86-64", ARM: "aarch64"}


def lock() -> AbstractContextManager[bool]:
    """A lock for one thread at a time, any number of times; a fork waits until it is free."""
    made = RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=made.acquire, after_in_parent=made.release, after_in_child=made.release
        )
    return made


# LLVM has locks of its own, which would stay taken in a child that is forked in their midst.
_lock = lock()


@dataclass(frozen=True)
class Cpu:
    """A CPU that code is made for: ``name``, ``features`` and ``triple`` are in LLVM's words.

    ``vector`` is in bytes. ``half`` says that it converts half floats, and ``outside`` are the C
    functions that LLVM calls for want of instructions.
    """

    name: str
    features: str
    triple: str
    vector: int
    registers: int
    half: bool
    outside: tuple[str, ...]


def host() -> Cpu:
    """The CPU that code is made for here: the one that `VARIABLE` names, or this one."""
    name = os.environ.get(VARIABLE, "")
    return _runnable(name) if name else _this()


@cache
def named(name: str) -> Cpu:
    """The CPU called ``name``, a row of `CPUS`; ``generic`` is the least of this architecture."""
    known = GENERIC.get(_architecture(), name) if name == "generic" else name
    if known not in CPUS:
        raise BackendError(
            f"there is no CPU {name!r}; available: {', '.join(('generic', *sorted(CPUS)))}"
        )
    architecture, features = CPUS[known]
    here = architecture == _architecture()
    triple = llvm.get_default_triple() if here else f"{architecture}-unknown-linux-gnu"
    return _cpu(PLAIN.get(known, known), "", features, triple)


@cache
def _runnable(name: str) -> Cpu:
    """The CPU called ``name``, if this one does what it does."""
    cpu = named(name)
    architecture, features = CPUS[GENERIC[_architecture()] if name == "generic" else name]
    found = _found()
    lacking = [feature for feature in features if not found.get(feature)]
    if architecture != _architecture() or lacking:
        why = f"it has no {', '.join(lacking)}" if lacking else f"it is no {architecture}"
        raise BackendError(f"{VARIABLE} is {name!r}, whose code this CPU cannot run: {why}")
    return cpu


@cache
def _this() -> Cpu:
    found = _found()
    features = [feature for feature in found if found[feature]]
    return _cpu(llvm.get_host_cpu_name(), found.flatten(), features, llvm.get_default_triple())


def _cpu(name: str, flags: str, features: Collection[str], triple: str) -> Cpu:
    vector, registers = next(
        ((size, number) for feature, size, number in VECTORS if feature in features), (16, 16)
    )
    half, rounds = (any(map(features.__contains__, each)) for each in (HALVES, ROUNDS))
    return Cpu(name, flags, triple, vector, registers, half, () if rounds else CALLED)


@cache
def _found() -> Any:
    """What LLVM finds that this CPU has."""
    return llvm.get_host_cpu_features()


def _architecture() -> str:
    """The first part of the triple of this machine, as `CPUS` spells it."""
    first = str(llvm.get_default_triple()).partition("-")[0]
    return {"amd64": INTEL, "arm64": ARM}.get(first, first)


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
        content = _compiled(text, _loading(), level)
        disk.keep(key, content)
        return _linked(content)


def compiled(text: str) -> bytes:
    """The object code of the module ``text`` for this process."""
    with _lock:
        return _compiled(text, _loading(), LEVEL)


def linked(content: bytes, outside: tuple[str, ...]) -> Code:
    """Object code that this CPU made before, loaded."""
    with _lock:
        _resolve(outside)
        return _linked(content)


def portable(text: str, cpu: Cpu) -> bytes:
    """The object code of the module ``text`` for a linker, to run anywhere in memory."""
    with _lock:
        return _compiled(text, _machine(cpu, reloc="pic", codemodel="default"), LEVEL)


def assembly(text: str, cpu: Cpu) -> str:
    """The module ``text`` in the assembly language of ``cpu``."""
    with _lock:
        machine = _machine(cpu, reloc="pic", codemodel="default")
        return str(machine.emit_assembly(_optimised(text, machine, LEVEL)))


def identity() -> str:
    """What object code depends on besides its source: the CPU and the compiler."""
    here = host()
    versions = (llvmlite.__version__, *llvm.llvm_version_info)
    parts = (here.name, here.features, versions, here.triple)
    return blake2b(repr(parts).encode(), digest_size=20).hexdigest()


def _key(text: str, level: int) -> str:
    parts = (text, level, identity())
    return blake2b(repr(parts).encode(), digest_size=20).hexdigest()


def _loading() -> Any:
    """What makes code that `_linked` takes."""
    return _machine(host(), codemodel="jitdefault", jit=True)


def _machine(cpu: Cpu, **options: Any) -> Any:
    """LLVM's back end for ``cpu``."""
    made = _target(cpu).create_target_machine
    return made(cpu=cpu.name, features=cpu.features, opt=3, **options)


def _target(cpu: Cpu) -> Any:
    """LLVM's back end for CPUs like ``cpu``."""
    if cpu.triple == llvm.get_default_triple():
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    try:
        return llvm.Target.from_triple(cpu.triple)
    except RuntimeError as cause:
        raise BackendError(f"this LLVM makes no code for {cpu.name}: {cause}") from cause


def _compiled(text: str, machine: Any, level: int) -> bytes:
    return bytes(machine.emit_object(_optimised(text, machine, level)))


def _optimised(text: str, machine: Any, level: int) -> Any:
    """The module ``text`` after LLVM's passes."""
    try:
        module = llvm.parse_assembly(text)
        module.verify()
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        options = llvm.create_pipeline_tuning_options(speed_level=level)
        options.loop_vectorization = options.slp_vectorization = level > 1
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    except RuntimeError as cause:
        raise BackendError(
            "LLVM refused the code of a kernel, which is a fault of eqsatad; please report it "
            f"with the kernel's source. LLVM says: {cause}"
        ) from cause
    return module


def _linked(content: bytes) -> Code:
    try:
        empty = llvm.parse_assembly("")
        # What the CPU can do is of no use to a linker, and takes long to spell out.
        engine = llvm.create_mcjit_compiler(empty, _target(host()).create_target_machine(jit=True))
        # The engine would make code of it, which takes longer than all the rest.
        engine.remove_module(empty)
        engine.add_object_file(llvm.ObjectFileRef.from_data(content))
        engine.finalize_object()
        return Code(engine, content)
    except RuntimeError as cause:
        raise BackendError(f"compiled code could not be loaded: {cause}") from cause


def _resolve(outside: tuple[str, ...]) -> None:
    """Makes the functions of the C library known to LLVM, also those that it calls by itself."""
    wanted = (*outside, *host().outside)
    missing = [name for name in wanted if not llvm.address_of_symbol(name)]
    if not missing:
        return
    from ctypes.util import find_library

    library = ctypes.CDLL(find_library("m"))
    for name in missing:
        try:
            function = getattr(library, name)
        except AttributeError as cause:
            raise BackendError(f"the C library of this system has no function {name}") from cause
        llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
