"""LLVM IR as text: which loops LLVM may unroll."""

import pytest

from eqsatad.backends.cpu.code.text import Module, Value, Writer, number
from eqsatad.backends.cpu.runtime.machine import compiled

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
