"""What the machine can do, measured: fused multiply-adds and memory traffic a second.

The peak of products is that of a register tile whose operands come from the nearest cache, as those
of contractions do at best; beside it stands that of registers alone, at which a CPU may run at a
higher clock (docs/decisions/peak.md). That of memory comes from copying and from adding up arrays
larger than the caches. What a machine reaches changes within minutes, as other work on it comes and
goes: each kernel is set against what is timed in turns with it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from mmap import mmap
from typing import Any

import numpy as np

from eqsatad.backends.cpu.runtime.machine import Code, host, load

# Rows and vectors of the tile, by the number of registers, and how many steps its operands last, a
# power of two: they take at most 18 KiB, less than any nearest cache has.
TILES = {32: (6, 4), 16: (6, 2)}
STEPS = 64
# The accumulators where no operand is loaded.
ACCUMULATORS = 12
# The fewest products and sums that are timed: so many that the call itself does not count.
FEWEST = 20_000_000
# Vectors that a round of the sum of an array reads, each into an accumulator of its own.
READERS = 8
COPIED = 1 << 26


@dataclass(frozen=True)
class Probe:
    """A ``call`` that does so much of one kind of work, and nothing else.

    It runs ``code``, if that is not numpy's.
    """

    call: Callable[[], object]
    amount: float
    code: Code | None = None


def products(operations: int) -> dict[str, Probe]:
    """About so many products and sums of float32 on one thread: of a tile, and of registers alone.

    As many as a kernel makes take about as long, so that other work disturbs both alike.
    """
    cpu = host()
    lanes = cpu.vector // 4
    rows, vectors = TILES[cpu.registers]
    return {
        "products": _products(_tile(lanes, rows, vectors), lanes * rows * vectors, operations),
        "registers": _products(_registers(lanes), lanes * ACCUMULATORS, operations),
    }


def _products(text: str, each: int, operations: int) -> Probe:
    """So many steps of ``text``, which make so many products each, that they do ``operations``."""
    code = load(text)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("peak"))
    # A page of their own, as vectors across two lines take longer to load.
    operands = np.frombuffer(mmap(-1, 4 * STEPS * each), "float32")
    steps = math.ceil(max(FEWEST, operations) / (2 * each))
    return Probe(lambda: run(operands.ctypes.data, steps), 2 * each * steps, code)


@cache
def memory() -> Mapping[str, Probe]:
    """Bytes that are copied (read and written), and bytes read, on one thread."""
    source, target = filled(COPIED // 4, "float32"), filled(COPIED // 4, "float32")
    copied = Probe(lambda: np.copyto(target, source), 2 * COPIED)
    return {"copied": copied, "read": _reading(source)}


def _reading(source: np.ndarray[Any, np.dtype[Any]]) -> Probe:
    lanes = host().vector // 4
    code = load(_sum(lanes))
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        code.address("total")
    )
    target, rounds = np.zeros(lanes, "float32"), len(source) // (lanes * READERS)
    return Probe(lambda: run(target.ctypes.data, source.ctypes.data, rounds), COPIED, code)


def filled(size: int, dtype: str) -> np.ndarray[Any, np.dtype[Any]]:
    """An array with pages of its own: all that was never written is one page of zeros."""
    return np.full(size, 1, dtype)


def _tile(lanes: int, rows: int, vectors: int) -> str:
    """Steps that multiply a column of one operand by a row of vectors of the other.

    The vectors of all steps lie in memory first, then the values of the columns.
    """
    vector = f"<{lanes} x float>"
    step = [
        f"  %at = and i64 %i, {STEPS - 1}",
        f"  %vectors = getelementptr [{vectors} x {vector}], ptr %in, i64 %at",
        f"  %values = getelementptr [{STEPS * vectors} x {vector}], ptr %in, i64 1",
        f"  %column = getelementptr [{rows} x float], ptr %values, i64 %at",
    ]
    for n in range(vectors):
        step += [
            f"  %p{n} = getelementptr {vector}, ptr %vectors, i64 {n}",
            f"  %v{n} = load {vector}, ptr %p{n}, align 4",
        ]
    for row in range(rows):
        step += [
            f"  %q{row} = getelementptr float, ptr %column, i64 {row}",
            f"  %s{row} = load float, ptr %q{row}, align 4",
            f"  %f{row} = insertelement {vector} poison, float %s{row}, i64 0",
            f"  %r{row} = shufflevector {vector} %f{row}, {vector} poison, "
            f"<{lanes} x i32> zeroinitializer",
        ]
    pairs = [(f"%r{row}", f"%v{n}") for row in range(rows) for n in range(vectors)]
    return _peak(lanes, [], step, pairs)


def _registers(lanes: int) -> str:
    """Steps that add products of a vector with itself, and load nothing."""
    before = [f"  %x = load <{lanes} x float>, ptr %in, align 4"]
    return _peak(lanes, before, [], [("%x", "%x")] * ACCUMULATORS)


def _peak(
    lanes: int, before: Sequence[str], step: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> str:
    """A function that runs so many steps, which each add products of ``pairs`` to their sums."""
    vector, count = f"<{lanes} x float>", len(pairs)
    begins = [f"  %a{n} = phi {vector} [ zeroinitializer, %entry ], [ %b{n}, %loop ]"
              for n in range(count)]  # fmt: skip
    sums = [f"  %m{n} = fmul contract {vector} {left}, {right}\n"
            f"  %b{n} = fadd contract {vector} %a{n}, %m{n}"
            for n, (left, right) in enumerate(pairs)]  # fmt: skip
    totals = [f"  %t0 = fadd {vector} %b0, zeroinitializer"]
    totals += [f"  %t{n} = fadd {vector} %t{n - 1}, %b{n}" for n in range(1, count)]
    return "\n".join([
        "define void @peak(ptr %in, i64 %steps) #0 {", "entry:", *before, "  br label %loop",
        "loop:", "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]", *begins, *step, *sums,
        "  %j = add i64 %i, 1", "  %more = icmp slt i64 %j, %steps",
        "  br i1 %more, label %loop, label %done", "done:", *totals,
        f"  store {vector} %t{count - 1}, ptr %in, align 4", "  ret void", "}",
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{32 * lanes}" }}', "",
    ])  # fmt: skip


def _sum(lanes: int) -> str:
    """A function that adds up so many rounds of vectors."""
    vector = f"<{lanes} x float>"
    begins = [f"  %a{n} = phi {vector} [ zeroinitializer, %entry ], [ %b{n}, %loop ]"
              for n in range(READERS)]  # fmt: skip
    steps = []
    for n in range(READERS):
        steps += [
            f"  %p{n} = getelementptr {vector}, ptr %from, i64 {n}",
            f"  %v{n} = load {vector}, ptr %p{n}, align 4",
            f"  %b{n} = fadd {vector} %a{n}, %v{n}",
        ]
    totals = ["  %t0 = fadd " + f"{vector} %b0, zeroinitializer"]
    totals += [f"  %t{n} = fadd {vector} %t{n - 1}, %b{n}" for n in range(1, READERS)]
    return "\n".join([
        "define void @total(ptr %out, ptr %in, i64 %rounds) #0 {", "entry:", "  br label %loop",
        "loop:", "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]",
        "  %from = phi ptr [ %in, %entry ], [ %next, %loop ]", *begins, *steps,
        f"  %next = getelementptr {vector}, ptr %from, i64 {READERS}",
        "  %j = add i64 %i, 1", "  %more = icmp slt i64 %j, %rounds",
        "  br i1 %more, label %loop, label %done", "done:", *totals,
        f"  store {vector} %t{READERS - 1}, ptr %out, align 4", "  ret void", "}",
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{32 * lanes}" }}', "",
    ])  # fmt: skip
