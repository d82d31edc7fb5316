"""What the speed benchmark times beside our kernels, and how contenders are timed and checked.

numpy, torch and jax run in the process of the benchmark, in turns with ours. Halide and tinygrad
may crash, or compile and search for long: each runs in a process of its own, with its memory and
its time limited, a kernel at a time and not in turns with the others (`apart`).
"""

from __future__ import annotations

import json
import math
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

from benchmarks.halide_peer import halide_call
from benchmarks.kernel_cases import Arrays, Case, Problem
from benchmarks.tinygrad_peer import tinygrad_call
from eqsatad.rules.worker import Worker, WorkerDiedError, WorkerTimeoutError

# Sums of up to about 10,000 float32 products, relative to the largest element of the result.
TOLERANCE = 2e-4

# Seconds of untimed calls before a timed one: a cache that takes what nearer ones drop has settled
# only after several, and where arrays are large after ten.
SETTLED = 1e-2

# Seconds after which one that is timed apart is not repeated any more, and is given up.
PATIENCE, LONGEST = 2.0, 90.0
# Bytes that such a process may take beside what it has after its start.
MEMORY = 16 << 30

Call = Callable[[], Any]


def numpy_call(problem: Problem) -> Call:
    """The expert's numpy."""
    return lambda: problem.numpy(problem.arrays)


def torch_call(problem: Problem) -> Call:
    """The backward pass of torch alone, its forward pass done before."""
    torch = import_module("torch")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    arrays = {name: torch.from_numpy(array) for name, array in problem.arrays.items()}
    wrt = [arrays[name].requires_grad_() for name in problem.wrt]
    result = problem.torch(torch, arrays)
    return lambda: torch.autograd.grad(result, wrt, arrays["H"], retain_graph=True)


def jax_call(problem: Problem, function: Callable[[Any, Any], Any] | None = None) -> Call:
    """The compiled backward pass of jax alone, its forward pass done before.

    It is that of ``problem.jax`` unless another ``function`` is given.
    """
    jax = import_module("jax")
    arrays = {name: jax.numpy.asarray(array) for name, array in problem.arrays.items()}

    def forward(*values: Any) -> Any:
        given = {**arrays, **dict(zip(problem.wrt, values, strict=True))}
        return (function or problem.jax)(jax, given)

    _, backward = jax.vjp(forward, *(arrays[name] for name in problem.wrt))
    # What the forward pass saved is an argument: as a constant it would be folded for minutes.
    compiled = jax.jit(lambda saved, head: saved(head))
    return lambda: jax.block_until_ready(compiled(backward, arrays["H"]))


PEERS: dict[str, Callable[[Problem], Call]] = {
    "numpy": numpy_call,
    "torch": torch_call,
    "jax": jax_call,
    "halide": halide_call,
    "tinygrad": tinygrad_call,
}
# Those that take part unless others are asked for, and those in processes of their own.
USUAL, APART = ("numpy", "torch", "jax"), ("halide", "tinygrad")


@dataclass(frozen=True)
class Outcome:
    """The least seconds of a call, or why there are none."""

    seconds: float = math.inf
    reason: str = ""


def least(calls: Mapping[str, Call], repeats: int, patience: float = math.inf) -> dict[str, float]:
    """The least seconds of each call, taken in turns.

    One that took ``patience`` seconds in all is not called again.
    """
    return in_rounds({"": calls}, repeats, patience=patience)[""]


def in_rounds(
    rows: Mapping[str, Mapping[str, Call]],
    repeats: int,
    done: Callable[[], object] = lambda: None,
    patience: float = math.inf,
) -> dict[str, dict[str, float]]:
    """The least seconds of each call of each row: a turn of all calls of all rows, and so on.

    What a machine reaches changes within seconds, so that all of the turns of a row should not come
    one after the other. ``done`` is called after the turns of each row.
    """
    best = {row: dict.fromkeys(calls, math.inf) for row, calls in rows.items()}
    spent = {row: dict.fromkeys(calls, 0.0) for row, calls in rows.items()}
    for _, (row, calls) in product(range(repeats), rows.items()):
        for name, call in calls.items():
            if spent[row][name] <= patience:
                begin = time.perf_counter()
                best[row][name] = min(best[row][name], _turn(call))
                spent[row][name] += time.perf_counter() - begin
        done()
    return best


def _turn(call: Call) -> float:
    """The seconds of a call, right after untimed ones of the same.

    All contenders find their arrays in the caches alike: those that share arrays would otherwise
    warm them for each other.
    """
    begin = time.perf_counter()
    call()
    while (start := time.perf_counter()) - begin < SETTLED:
        call()
    call()
    return time.perf_counter() - start


def error(problem: Problem, found: Any) -> float:
    """The largest error against numpy in double precision, relative to the largest element."""
    exact: Arrays = {
        name: array.astype(np.float64) if array.dtype == np.float32 else array
        for name, array in problem.arrays.items()
    }
    worst = 0.0
    for ours, expected in zip(found, problem.numpy(exact), strict=True):
        # A tensor of tinygrad is no array to numpy, but can be made one.
        plain = ours.numpy() if hasattr(ours, "numpy") else ours
        difference = np.abs(np.asarray(plain, dtype=np.float64) - expected).max()
        share = float(difference / max(np.abs(expected).max(), 1e-30))
        # Nothing is larger than NaN.
        worst = max(worst, share if math.isfinite(share) else math.inf)
    return worst


def objection(problem: Problem, call: Call) -> str:
    """Why what ``call`` gives does not count; empty when it is right."""
    worst = error(problem, call())
    return f"a result that is wrong by {worst:.0e}" if worst > TOLERANCE else ""


class Apart:
    """A peer in a process of its own, which is started for the first kernel."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._worker = Worker(MEMORY)

    def outcome(self, case: Case, repeats: int, seconds: float = LONGEST) -> Outcome:
        """How fast the peer is at the full size of ``case``."""
        payload = pickle.dumps((self._peer, case, repeats))
        try:
            found = self._worker.call("benchmarks.peers:answer", payload, seconds)
        except WorkerTimeoutError:
            return Outcome(reason=f"not done after {seconds:g} s")
        except WorkerDiedError as crash:
            return Outcome(reason=str(crash))
        return Outcome(**json.loads(found))


@cache
def apart(peer: str) -> Apart:
    """The one process of ``peer``."""
    return Apart(peer)


def answer(payload: bytes) -> Iterator[bytes]:
    """The outcome of one peer at one kernel: what the process of `Apart` runs."""
    peer, case, repeats = pickle.loads(payload)
    yield json.dumps(vars(tried(peer, case.make(**case.full), repeats))).encode()


def tried(peer: str, problem: Problem, repeats: int) -> Outcome:
    """How fast ``peer`` is at ``problem``, or what it says against it."""
    try:
        call = PEERS[peer](problem)
        reason = objection(problem, call)
    except Exception as refusal:  # Each library has its own, and all of them are an answer.
        said = " ".join(str(refusal).split())
        return Outcome(reason=f"{type(refusal).__name__}: {said}")
    if reason:
        return Outcome(reason=reason)
    return Outcome(least({peer: call}, repeats, PATIENCE)[peer])
