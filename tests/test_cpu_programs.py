"""What the CPU backend does to programs before it writes code: the result means the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kernel_cases import CASES, max_pool
from eqsatad.backends import build
from eqsatad.backends.blocks import groups
from eqsatad.backends.cpu import prepare
from eqsatad.backends.cpu.inlining import inlined
from eqsatad.backends.cpu.packing import packed
from eqsatad.backends.cpu.siblings import joined
from eqsatad.backends.cpu.source import Machine
from eqsatad.backends.cpu.turns import turn
from eqsatad.loops.interpret import run
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import For, statements
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Const
from tests.loop_programs import conv_input_gradient, conv_weight_gradient, lowered

MACHINE = Machine(16, 16)


def drawn(program):
    rng = np.random.default_rng(0)
    return {
        tensor.name: rng.standard_normal([extent.value for extent in tensor.shape]).astype(
            "float32"
        )
        for tensor in program.inputs
    }


@pytest.mark.parametrize("name", CASES)
def test_prepared_program_means_the_same(name):
    case = CASES[name]
    problem = case.make(**case.small)
    program = problem.ours.build("reference").loops
    arrays = {tensor.name: problem.arrays[tensor.name] for tensor in program.inputs}
    expected = run(program, arrays).outputs
    got = run(prepare(program, MACHINE), arrays).outputs
    for ours, theirs in zip(got, expected, strict=True):
        # Sums in another order: a few roundings of float32.
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [conv_input_gradient, conv_weight_gradient])
def test_bounds_of_a_convolution_become_zeros_of_a_copy(make):
    program = lowered(make(2, 8, 8, 9, 3, 1))
    sums = [each for nest in packed(program, 16).nests for each in statements(nest.body)]
    bounds = [bound for loop in sums if isinstance(loop, For) for bound in (loop.start, loop.stop)]
    assert all(isinstance(bound, Const) for bound in bounds)


def test_bounds_that_are_no_border_stay():
    a, b = ea.placeholder((24, 24), name="a"), ea.placeholder((24, 24), name="b")
    k = ea.reduce_axis((0, 24), name="k")
    lower_half = ea.compute(
        (24, 24), lambda i, j: ea.sum(a[i, k] * b[k, j], axis=k, where=k <= i), name="y"
    )
    program = lower([lower_half])
    assert packed(program, 16) == program


def test_cheap_temporary_is_worked_out_where_it_is_read():
    x = ea.placeholder((40,), name="x")
    scaled = ea.compute((40,), lambda i: x[i] * 0.5, name="scaled")
    y = ea.compute((39,), lambda i: scaled[i] - scaled[i + 1], name="y")
    program = lower([y])
    lean = inlined(program)
    assert program.temporaries
    assert not lean.temporaries
    arrays = drawn(program)
    np.testing.assert_array_equal(run(lean, arrays).outputs[0], run(program, arrays).outputs[0])


def test_temporary_that_saves_work_stays():
    x, w = ea.placeholder((40,), name="x"), ea.placeholder((30, 40), name="w")
    k = ea.reduce_axis((0, 40), name="k")
    grown = ea.compute((40,), lambda i: ea.exp(x[i]), name="grown")
    scaled = ea.compute((40,), lambda i: x[i] * 0.5, name="scaled")
    y = ea.compute((39,), lambda i: grown[i] - grown[i + 1], name="y")
    z = ea.compute((30,), lambda i: ea.sum(w[i, k] * scaled[k], axis=k), name="z")
    program = lower([y, z])
    assert inlined(program).temporaries == program.temporaries


def test_phases_of_a_gradient_are_one_nest_without_conditions_on_its_axes():
    program = max_pool((1, 2, 8, 8)).ours.build("reference").loops
    pieces = list(groups(joined(program, 4)))
    extents = [
        np.prod(
            [
                each.stop.value
                for each in statements(group)
                if isinstance(each, For) and each.parallel
            ]
        )
        for group in pieces
    ]
    interior = pieces[int(np.argmax(extents))]
    bounds = [
        b for each in statements(interior) if isinstance(each, For) for b in (each.start, each.stop)
    ]
    assert all(isinstance(bound, Const) for bound in bounds)
    assert max(extents) > 0.5 * sum(extents)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    dtype=st.sampled_from(["float32", "float64", "int32", "float16", "bool"]),
)
def test_copy_across_moves_every_element(sizes, dtype):
    n, a, b = sizes
    x = ea.placeholder((n, a, b), name="x", dtype=dtype)
    program = lower([ea.compute((n, b, a), lambda i, j, k: x[i, k, j], name="y")])
    array = (np.random.default_rng(0).standard_normal(sizes) * 9).astype(dtype)
    (got,) = build(program, "cpu")(array)
    np.testing.assert_array_equal(got, array.transpose(0, 2, 1))


def test_only_a_copy_across_is_turned():
    x = ea.placeholder((32, 32), name="x")
    across = ea.compute((32, 32), lambda i, j: x[j, i], name="across")
    along = ea.compute((32, 32), lambda i, j: x[i, j], name="along")
    more = ea.compute((32, 32), lambda i, j: x[j, i] + 1.0, name="more")
    found = [turn(lower([each]).nests[0].body[0], 64) is not None for each in (across, along, more)]
    assert found == [True, False, False]


def scaled_rows(rows, columns, other):
    """Rows times the sum of their squares, or of the squares of ``other(row, column)``."""
    x = ea.placeholder((rows, columns), name="x")
    k = ea.reduce_axis((0, columns), name="k")
    total = ea.compute((rows,), lambda i: ea.sum(x[i, k] * x[i, k], axis=k), name="total")
    y = ea.compute((rows, columns), lambda i, j: x[i, j] * total[other(i, j)], name="y")
    return lower([y])


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 90), columns=st.integers(1, 70))
def test_steps_over_the_same_rows_take_turns(rows, columns):
    kernel = build(scaled_rows(rows, columns, lambda i, j: i), "cpu")
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype("float32")
    expected = x * (x * x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(kernel(x)[0], expected, rtol=1e-5)
    assert "train" in kernel.source or rows < 16 or columns == 1


def test_step_that_reads_other_rows_waits_for_all_of_them():
    kernel = build(scaled_rows(64, 64, lambda i, j: j), "cpu")
    x = np.random.default_rng(0).standard_normal((64, 64)).astype("float32")
    np.testing.assert_allclose(kernel(x)[0], x * (x * x).sum(axis=1), rtol=1e-5)
    assert "train" not in kernel.source
