"""Temporaries that hold the same as an earlier one: they are left out, and nothing changes."""

from dataclasses import replace

import numpy as np

from eqsatad.backends.cpu import build, prepare
from eqsatad.backends.cpu.code.source import Machine
from eqsatad.backends.cpu.rewrites.twins import united
from eqsatad.loops.lower import lower
from eqsatad.terms import builders as ea
from eqsatad.terms.evaluate import evaluate


def place(*shape, name):
    return ea.placeholder(shape, name=name, dtype="float32")


def two_users(second):
    """Two results over sums of the same products; ``second`` makes the sum of the second one."""
    a, b, c = place(9, 20, name="a"), place(9, 30, name="b"), place(20, 30, name="c")
    k = ea.reduce_axis((0, 9), name="k")
    p = ea.compute((20, 30), lambda i, j: ea.sum(a[k, i] * b[k, j], axis=k), name="p")
    m = ea.reduce_axis((0, second), name="m")
    q = ea.compute((20, 30), lambda x, y: ea.sum(b[m, y] * a[m, x], axis=m), name="q")
    i = ea.reduce_axis((0, 20), name="i")
    j = ea.reduce_axis((0, 30), name="j")
    rows = ea.compute((30,), lambda j: ea.sum(p[i, j] * c[i, j], axis=i), name="rows")
    columns = ea.compute((20,), lambda i: ea.sum(q[i, j] * c[i, j], axis=j), name="columns")
    return [rows, columns]


def test_equal_temporary_is_worked_out_once():
    outputs = two_users(9)
    program = lower(outputs)
    assert [tensor.name for tensor in program.temporaries] == ["p", "q"]
    assert [tensor.name for tensor in united(program).temporaries] == ["p"]
    rng = np.random.default_rng(0)
    arrays = {
        tensor.name: rng.standard_normal([extent.value for extent in tensor.shape]).astype("f")
        for tensor in program.inputs
    }
    expected = evaluate(outputs, arrays)
    for exact in (False, True):
        for ours, theirs in zip(build(program, exact=exact)(**arrays), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_sum_over_another_range_stays():
    program = lower(two_users(8))
    assert united(program) is program


def test_temporaries_of_equal_temporaries_are_equal():
    """What a nest reads is compared after what it reads was united."""
    x, y = place(40, 7, name="x"), place(40, 7, name="y")

    def chain(name):
        k = ea.reduce_axis((0, 7), name=f"{name}k")
        r = ea.reduce_axis((0, 40), name=f"{name}r")
        row = ea.compute((40,), lambda i: ea.sum(x[i, k] * y[i, k], axis=k), name=f"{name}_row")
        return ea.compute((7,), lambda j: ea.sum(row[r] * x[r, j], axis=r), name=f"{name}_column")

    one, two = chain("one"), chain("two")
    first = ea.compute((7,), lambda j: one[j] * 2.0 + ea.exp(one[6 - j]), name="first")
    second = ea.compute((7,), lambda j: two[j] * 3.0 + ea.exp(two[6 - j]), name="second")
    program = lower([first, second])
    assert len(program.temporaries) == 2 * len(united(program).temporaries)


def test_program_is_united_before_it_is_planned():
    program = prepare(lower(two_users(9)), Machine(64, 32))
    assert "q" not in {tensor.name for tensor in program.temporaries}


def test_order_of_parallel_loops_does_not_matter():
    program = lower(two_users(9))
    nests = tuple(
        replace(nest, body=(swapped(nest.body[0]),)) if nest.stage.name == "q" else nest
        for nest in program.nests
    )
    assert [t.name for t in united(replace(program, nests=nests)).temporaries] == ["p"]


def swapped(outer):
    (inner,) = outer.body
    return replace(inner, body=(replace(outer, body=inner.body),))
