"""LLVM IR as text: which loops LLVM may unroll and vectorise."""

from contextlib import nullcontext

import numpy as np
import pytest

from eqsatad.backends import build
from eqsatad.backends.cpu.code.text import Module, Value, Writer, number
from eqsatad.backends.cpu.runtime.machine import compiled
from eqsatad.loops.lower import lower
from eqsatad.terms import builders as ea

ROLLED = ", !llvm.loop"


def nested(*trips):
    """A module of one function: loops of so many trips inside each other, around a store."""
    module = Module(16)
    w = Writer(module)

    def inside(left):
        if not left:
            w.store(number(0, "float"), "%there", 4)
            return
        stop = number(left[0], "i64") if isinstance(left[0], int) else left[0]
        with w.loop(number(0, "i64"), stop):
            inside(left[1:])

    inside(trips)
    w.finish("test", ["ptr %there", "i64 %n"])
    return module.text(["nounwind"])


@pytest.mark.parametrize(
    ("trips", "rolled"),
    [
        ((3, 3), 0),
        ((64,), 0),
        ((64, 3, 3), 1),
        ((8, 32, 2), 2),
        ((3, 64), 1),
        ((Value("%n", "i64"), 4), 1),
        ((4, Value("%n", "i64")), 1),
    ],
    ids=str,
)
def test_nested_loops_become_few_copies(trips, rolled):
    text = nested(*trips)
    assert text.count(ROLLED) == rolled
    # LLVM takes the notes for what they are.
    assert compiled(text)


N = Value("%n", "i64")
TRUE = Value("%true", "i1")


@pytest.mark.parametrize(
    ("divisor", "outer", "inner", "scalar"),
    [
        (N, False, True, 2),
        (N, True, False, 1),
        (N, True, True, 2),
        (N, False, False, 0),
        (number(3, "i64"), True, True, 0),
    ],
    ids=str,
)
def test_division_under_a_condition_keeps_the_loop_from_llvm(divisor, outer, inner, scalar):
    module = Module(16)
    w = Writer(module)
    zero, one = number(0, "i64"), number(1, "i64")
    with (
        w.loop(zero, N) as i,
        w.when(TRUE) if outer else nullcontext(),
        w.loop(zero, number(4, "i64")) as j,
        w.when(TRUE) if inner else nullcontext(),
    ):
        w.store(w.two("urem", w.two("add", i, one), divisor), w.address("%there", "i64", j), 8)
    w.finish("test", ["ptr %there", "i64 %n", "i1 %true"])
    text = module.text(["nounwind"])
    noted = [line for line in text.splitlines() if "distinct" in line and ", !2" in line]
    assert len(noted) == scalar
    assert compiled(text)


def test_index_divided_under_a_condition_is_right_in_every_lane():
    n = ea.size("n")
    x = ea.placeholder((n, 9), "x", "float64")
    chosen = ea.placeholder((n,), "chosen", "int64")
    stage = ea.compute(
        (n, 4),
        lambda i, k: ea.select(
            ea.cast(k, "int64").equal(chosen[i]), ea.tanh(x[(5 * i) % n, k]), 0.0
        ),
    )
    data = {
        "x": np.random.default_rng(0).standard_normal((7, 9)),
        "chosen": np.arange(7) % 5,
    }
    rows = np.tanh(data["x"][5 * np.arange(7) % 7, :4])
    expected = np.where(np.arange(4) == data["chosen"][:, None], rows, 0.0)
    np.testing.assert_allclose(build(lower((stage,)), "cpu")(**data)[0], expected, atol=1e-15)
