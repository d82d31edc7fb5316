"""Elementary functions of the CPU backend: how wrong they are, and how long they take.

``python -m benchmarks.functions`` prints, for float32 and float64, the largest error found in
units of the last place beside the bound of `eqsatad.backends.cpu.functions.table`, and nanoseconds
an element of arrays in the cache, beside numpy and, where it is installed, torch, all on one
thread.
``--every`` measures float32 functions of one number at every float there is, which takes hours.
References are numpy's extended precision; without that (``np.longdouble`` is no wider than
float64) errors of float64 are not measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from timeit import timeit
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsatad.backends import build
from eqsatad.backends.cpu.functions.circular import FAR
from eqsatad.backends.cpu.functions.floats import HALF_PI
from eqsatad.backends.cpu.functions.table import FUNCTIONS
from eqsatad.backends.kernel import Kernel
from eqsatad.loops.lower import lower
from eqsatad.terms import builders as ea
from eqsatad.terms import ops
from eqsatad.terms.nodes import Apply
from eqsatad.terms.ops import Op

Array = NDArray[Any]
LONG = np.longdouble
WIDER = np.finfo(LONG).nmant > np.finfo(np.float64).nmant
DTYPES = ("float32", "float64")
# Elements of the arrays for times: inputs and output fit the first two levels of cache.
LENGTH, CALLS, REPEATS = 8192, 20, 50
# Floats at which errors are looked for, and of a call in `every`.
POINTS, BATCH = 200_000, 1 << 20
SEED = 7
# Where some function changes its formula.
BENDS = (0.5, 0.625, 0.75, 1, 1.5, 2**15, 2**20)
PI = LONG("3.14159265358979323846264338327950288")


def exact_erf(x: Array) -> Array:
    """By its series of positive terms; beyond the limit it is 1 to the last bit of float64."""
    size = np.minimum(np.abs(x), LONG(6.2))
    total = term = size
    for step in range(1, 180):
        term = term * (2 * size * size) / (2 * step + 1)
        total = total + term
    found: Array = np.copysign(2 / np.sqrt(PI) * np.exp(-size * size) * total, x)
    return found


def exact_sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    found: Array = np.where(x >= 0, 1, small) / (1 + small)
    return found


def exact_softplus(x: Array) -> Array:
    found: Array = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return found


@dataclass(frozen=True)
class Subject:
    """What is right, where errors are looked for and times are taken, and what else computes it."""

    exact: Callable[..., Array]
    low: float
    high: float
    numpy: Callable[..., Any] | None
    torch: str


def _known(function: Callable[..., Any], low: float, high: float, torch: str) -> Subject:
    return Subject(function, low, high, function, torch)


SUBJECTS: dict[Op, Subject] = {
    ops.EXP: _known(np.exp, -20, 20, "exp"),
    ops.EXPM1: _known(np.expm1, -20, 20, "expm1"),
    ops.LOG: _known(np.log, 0.01, 100, "log"),
    ops.LOG1P: _known(np.log1p, -0.9, 100, "log1p"),
    ops.LOG2: _known(np.log2, 0.01, 100, "log2"),
    ops.SINH: _known(np.sinh, -10, 10, "sinh"),
    ops.COSH: _known(np.cosh, -10, 10, "cosh"),
    ops.TANH: _known(np.tanh, -5, 5, "tanh"),
    ops.SIGMOID: Subject(exact_sigmoid, -20, 20, None, "sigmoid"),
    ops.SOFTPLUS: Subject(exact_softplus, -20, 20, None, "softplus"),
    ops.ERF: Subject(exact_erf, -4, 4, None, "erf"),
    ops.POW: _known(np.power, 0.01, 10, "pow"),
    ops.SIN: _known(np.sin, -100, 100, "sin"),
    ops.COS: _known(np.cos, -100, 100, "cos"),
    ops.TAN: _known(np.tan, -100, 100, "tan"),
    ops.ASIN: _known(np.arcsin, -1, 1, "asin"),
    ops.ACOS: _known(np.arccos, -1, 1, "acos"),
    ops.ATAN: _known(np.arctan, -5, 5, "atan"),
    ops.ATAN2: _known(np.arctan2, -5, 5, "atan2"),
}


def kernel(op: Op, dtype: str, length: int) -> Kernel:
    """``op`` of each element."""
    arrays = [ea.placeholder((length,), name=name, dtype=dtype) for name in "xy"[: op.arity]]
    stage = ea.compute((length,), lambda i: Apply(op, tuple(each[i] for each in arrays)), name="z")
    return build(lower([stage]), "cpu")


def bound(op: Op, dtype: str) -> float:
    """The stated one."""
    return float(getattr(FUNCTIONS[op], dtype))


def points(op: Op, dtype: str, count: int) -> tuple[Array, ...]:
    """About ``count`` points: of all exponents, in the usual range, special and hard ones."""
    dice = np.random.default_rng(SEED)
    found = _pairs(dtype, count, dice) if op.arity == 2 else _singles(op, dtype, count, dice)
    with np.errstate(over="ignore"):
        return tuple(np.concatenate([each.astype(dtype) for each in column]) for column in found)


def _singles(op: Op, dtype: str, count: int, dice: np.random.Generator) -> list[list[Array]]:
    ranges = ((SUBJECTS[op].low, SUBJECTS[op].high), (-1.0, 1.0), (0.5, 2.0))
    share = count // (len(ranges) + 1)
    usual = [dice.uniform(low, high, share) for low, high in ranges]
    ends = np.log(np.finfo(dtype).max)
    edges = [dice.uniform(-1.1 * ends, 1.1 * ends, share // 4), around(np.array(BENDS), dtype)]
    hard = [around(turns(dtype), dtype)] if op in (ops.SIN, ops.COS, ops.TAN) else []
    return [[any_float(dtype, share, dice), *usual, *edges, special(dtype), *hard]]


def _pairs(dtype: str, count: int, dice: np.random.Generator) -> list[list[Array]]:
    """For powers and angles alike."""
    share = count // 5
    ends = np.log(np.finfo(dtype).max)
    grid = np.meshgrid(special(dtype), special(dtype))
    left, right = (any_float(dtype, share, dice) for _ in range(2))
    return [
        [
            *(left, left, dice.uniform(-10, 10, share), 1 + dice.uniform(-0.01, 0.01, share)),
            *(np.exp(dice.uniform(-ends, ends, share)), grid[0].ravel()),
        ],
        [
            *(right, dice.integers(-9, 9, share), dice.uniform(-10, 10, share)),
            *(dice.uniform(-1e4, 1e4, share), dice.uniform(-1.1, 1.1, share), grid[1].ravel()),
        ],
    ]


def any_float(dtype: str, count: int, dice: np.random.Generator) -> Array:
    """Bits at random."""
    bits = np.dtype(dtype.replace("float", "uint"))
    return dice.integers(0, 2 ** (8 * bits.itemsize), count, dtype=bits).view(dtype)


def special(dtype: str) -> Array:
    """Zeros, infinities, NaN, the ends of the range, and numbers that are special somewhere."""
    about = np.finfo(dtype)
    whole = 2.0 ** (about.nmant + 1)
    least, tiny, most = map(float, (about.smallest_subnormal, about.tiny, about.max))
    sizes = [0.0, 0.5, 1.0, 2.0, 3.0, 1e5, whole - 1, whole / 2 + 1, 1e30, np.inf]
    sizes += [least, tiny, 1.5 * tiny, most]
    return np.array([np.nan, *sizes, *(-each for each in sizes)], dtype)


def turns(dtype: str) -> Array:
    """Multiples of pi/2 as far as they are taken from arguments here: sines are least there."""
    kind = "float" if dtype == "float32" else "double"
    most = int(FAR[kind] / float(HALF_PI)) + 2
    step = max(1, most // 20_000)
    return np.array([float(count * HALF_PI) for count in range(1, most, step)], LONG).astype(dtype)


def around(places: Array, dtype: str) -> Array:
    """``places`` and their next neighbours, of both signs."""
    middle = places.astype(dtype)
    near = [middle, np.nextafter(middle, 0, dtype=dtype), np.nextafter(middle, np.inf, dtype=dtype)]
    found = np.concatenate(near)
    return np.concatenate([found, -found])


def errors(got: Array, exact: Array) -> Array:
    """Distances in units of the last place of the exact results, infinite for wrong kinds."""
    with np.errstate(all="ignore"):
        near = exact.astype(got.dtype)
        same = ((got == near) & (np.signbit(got) == np.signbit(near))) | (
            np.isnan(got) & np.isnan(near)
        )
        unit = np.spacing(np.abs(near)).astype(exact.dtype)
        found = np.abs(got.astype(exact.dtype) - exact) / unit
        # A zero or an infinity that should be one counts as right.
        found = np.where(same & ~np.isfinite(found), 0, found)
        wrong = np.isnan(found) | ((near == 0) & ~same)
    return np.where(wrong, np.inf, found)


def worst(op: Op, dtype: str, count: int) -> float:
    """The largest error at `points`."""
    places = points(op, dtype, count)
    got = kernel(op, dtype, len(places[0]))(*places)[0]
    with np.errstate(all="ignore"):
        exact = SUBJECTS[op].exact(*(each.astype(LONG) for each in places))
    return float(errors(got, exact).max())


def every(op: Op) -> float:
    """The largest error of all float32 numbers, against float64."""
    run = kernel(op, "float32", BATCH)
    most = 0.0
    for start in range(0, 2**32, BATCH):
        x = np.arange(start, start + BATCH, dtype=np.uint64).astype(np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            exact = SUBJECTS[op].exact(x.astype(np.float64))
        most = max(most, float(errors(run(x)[0], exact).max()))
    return most


def nanoseconds(op: Op, dtype: str) -> dict[str, float]:
    """The least time an element: ours, and of others that are installed."""
    dice, subject = np.random.default_rng(SEED), SUBJECTS[op]
    arrays = [
        dice.uniform(subject.low, subject.high, LENGTH).astype(dtype) for _ in "xy"[: op.arity]
    ]
    out = np.empty(LENGTH, dtype)
    calls: dict[str, Callable[[], Any]] = {
        "ours": kernel(op, dtype, LENGTH).prepare(*arrays, out=out)
    }
    if (function := subject.numpy) is not None:
        calls["numpy"] = lambda: function(*arrays, out=out)
    if (other := _torch(subject.torch, arrays)) is not None:
        calls["torch"] = other
    best = dict.fromkeys(calls, float("inf"))
    with np.errstate(all="ignore"):
        # In turns, so that what else the machine does hits all alike.
        for _ in range(REPEATS):
            for name, call in calls.items():
                best[name] = min(best[name], timeit(call, number=CALLS) / CALLS)
    return {name: 1e9 * seconds / LENGTH for name, seconds in best.items()}


def _torch(name: str, arrays: list[Array]) -> Callable[[], Any] | None:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    tensors = [torch.from_numpy(each) for each in arrays]
    out = torch.empty_like(tensors[0])
    if name == "softplus":
        return lambda: torch.nn.functional.softplus(tensors[0])
    function = getattr(torch, name)
    return lambda: function(*tensors, out=out)


def rows(dtype: str, names: list[str]) -> Iterator[str]:
    """Lines of the table."""
    yield f"| {dtype} | bound | measured | ns, ours | numpy | torch |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for op in SUBJECTS:
        if names and op.name not in names:
            continue
        found = f"{worst(op, dtype, POINTS):.2f}" if WIDER else "-"
        times = nanoseconds(op, dtype)
        shown = [
            f"{times[name]:.2f}" if name in times else "-" for name in ("ours", "numpy", "torch")
        ]
        yield f"| `{op.name}` | {bound(op, dtype):g} | {found} | {' | '.join(shown)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="functions, all if none is named")
    parser.add_argument("--every", action="store_true", help="errors at every float32")
    options = parser.parse_args()
    if options.every:
        for op in SUBJECTS:
            if op.arity == 1 and (not options.names or op.name in options.names):
                print(f"{op.name}: {every(op):.3f} of {bound(op, 'float32'):g}", flush=True)
        return
    for dtype in DTYPES:
        for line in rows(dtype, options.names):
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
