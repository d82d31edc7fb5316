"""What the machine can do, measured: fused multiply-adds and memory traffic a second.

The peak of products comes from independent accumulators in registers, that of memory from copying
and from adding up arrays larger than the caches. What a machine reaches changes within minutes, as
other work on it comes and goes: each kernel is set against what is timed in turns with it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from eqsatad.backends.cpu.runtime.machine import Code, host, load

ACCUMULATORS = 12
# The fewest rounds of products that are timed: so many that the call itself does not count.
FEWEST = 50_000
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


def products(operations: int) -> Probe:
    """About so many products and sums of float32, on one thread.

    As many as a kernel makes take about as long, so that other work disturbs both alike.
    """
    lanes = host().vector // 4
    code = load(_loop(lanes))
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("peak"))
    target = np.zeros(lanes, "float32")
    rounds = max(FEWEST, round(operations / (2 * lanes * ACCUMULATORS)))
    return Probe(lambda: run(target.ctypes.data, rounds), 2 * lanes * ACCUMULATORS * rounds, code)


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


def _loop(lanes: int) -> str:
    """A function that runs so many rounds of independent products added up."""
    vector = f"<{lanes} x float>"
    name = f"llvm.fma.v{lanes}f32"
    begins = [f"  %a{n} = phi {vector} [ zeroinitializer, %entry ], [ %b{n}, %loop ]"
              for n in range(ACCUMULATORS)]  # fmt: skip
    steps = [f"  %b{n} = call {vector} @{name}({vector} %x, {vector} %x, {vector} %a{n})"
             for n in range(ACCUMULATORS)]  # fmt: skip
    totals = ["  %t0 = fadd " + f"{vector} %b0, zeroinitializer"]
    totals += [f"  %t{n} = fadd {vector} %t{n - 1}, %b{n}" for n in range(1, ACCUMULATORS)]
    return "\n".join([
        f"declare {vector} @{name}({vector}, {vector}, {vector})",
        "define void @peak(ptr %out, i64 %rounds) #0 {", "entry:",
        f"  %x = load {vector}, ptr %out, align 4", "  br label %loop", "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]", *begins, *steps,
        "  %j = add i64 %i, 1", "  %more = icmp slt i64 %j, %rounds",
        "  br i1 %more, label %loop, label %done", "done:", *totals,
        f"  store {vector} %t{ACCUMULATORS - 1}, ptr %out, align 4", "  ret void", "}",
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
