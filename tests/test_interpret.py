"""Counts by execution: each field against programs small enough to count by hand."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from eqsatad.errors import ArgumentError, ShapeError
from eqsatad.loops.interpret import Counts, count, run
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    If,
    LoopProgram,
    Nest,
    Store,
)
from eqsatad.loops.scalars import QUICK
from eqsatad.terms import builders as ea
from eqsatad.terms import ops
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Read, Select, Stage, Var

ZERO = Const(0, "index")
N = Const(4, "index")
ROW, COLUMN = Axis("i", N), Axis("j", N)
X = ea.placeholder((4, 4), "x", "float64")
OUT = Stage("out", (ROW, COLUMN), X[ROW, COLUMN])
TOTAL = Var("total", "float64")
VALUES = {"x": np.arange(16.0).reshape(4, 4)}


def counted(body: Block, stage: Stage = OUT) -> Counts:
    """The counts of one nest, which must be the same when nothing is computed."""
    program = LoopProgram((X,), (stage,), (), (), (Nest(stage, body),))
    total = run(program, VALUES).total
    assert count(program).total == total
    return total


def over(axis: Axis, *body: object) -> For:
    return For(axis, ZERO, axis.extent, body)  # type: ignore[arg-type]


def test_a_body_that_stores_counts_once() -> None:
    assert (
        counted((over(ROW, over(COLUMN, Store(OUT, (ROW, COLUMN), X[ROW, COLUMN]))),)).iterations
        == 16
    )


def test_a_body_that_stores_twice_counts_twice() -> None:
    stores = (Store(OUT, (ROW, ZERO), X[ROW, 0]), Store(OUT, (ROW, COLUMN.extent - 1), X[ROW, 1]))
    assert counted((over(ROW, *stores),)).iterations == 8


def test_a_reduction_counts_its_inner_iterations() -> None:
    body = (
        Assign(TOTAL, Const(0.0, "float64")),
        over(COLUMN, Assign(TOTAL, TOTAL + X[ROW, COLUMN])),
        Store(OUT, (ROW, ZERO), TOTAL),
    )
    assert counted((over(ROW, *body),)).iterations == 16


def test_an_empty_reduction_counts_its_store() -> None:
    body = (
        Assign(TOTAL, Const(0.0, "float64")),
        For(COLUMN, ZERO, ROW, (Assign(TOTAL, TOTAL + X[ROW, COLUMN]),)),
        Store(OUT, (ROW, ZERO), TOTAL),
    )
    assert counted((over(ROW, *body),)).iterations == 1 + 1 + 2 + 3


def test_setting_a_local_alone_is_no_iteration() -> None:
    program = (Assign(TOTAL, Const(0.0, "float64")), over(ROW, Store(OUT, (ROW, ZERO), TOTAL)))
    assert counted(program).iterations == 4


def test_stores_outside_of_loops_count_beside_loops_that_store() -> None:
    single = Store(OUT, (ZERO, ZERO), X[0, 0])
    assert counted((single, over(ROW, Store(OUT, (ROW, ZERO), X[ROW, 0])), single)).iterations == 6


def test_loops_that_do_not_run_count_nothing() -> None:
    body = over(COLUMN, Store(OUT, (ROW, COLUMN), X[ROW, COLUMN] * X[ROW, COLUMN]))
    assert counted((For(ROW, N, ZERO, (body,)),)) == Counts(memory=16)


def test_iterations_count_even_if_a_condition_stores_nothing() -> None:
    body = If(ROW >= 3, (Store(OUT, (ROW, ZERO), X[ROW, 0] * X[ROW, 0]),))
    counts = counted((over(ROW, body),))
    assert (counts.iterations, counts.multiplications, counts.inner_conditions) == (4, 1, 4)


def test_multiplications_are_products_quotients_powers_and_functions() -> None:
    value = ea.exp(X[ROW, COLUMN]) * X[ROW, COLUMN] / (X[ROW, COLUMN] ** 2.0 + 1.0)
    assert (
        counted((over(ROW, over(COLUMN, Store(OUT, (ROW, COLUMN), value))),)).multiplications
        == 16 * 4
    )


def test_additions_include_accumulation_and_leave_negation_out() -> None:
    value = -X[ROW, COLUMN] + X[ROW, COLUMN] - 1.0
    assert (
        counted((over(ROW, over(COLUMN, Accumulate(OUT, (ROW, COLUMN), value))),)).additions
        == 16 * 3
    )


def test_comparisons_are_of_values() -> None:
    value = ea.maximum(X[ROW, COLUMN], 1.0) + ea.select(
        ROW < COLUMN, 1.0, ea.cast(X[ROW, COLUMN] < 2.0, "float64")
    )
    counts = counted((over(ROW, over(COLUMN, Store(OUT, (ROW, COLUMN), ea.maximum(value, 0.0)))),))
    below = sum(i < j for i in range(4) for j in range(4))
    assert counts.comparisons == 16 * 2 + (16 - below)
    assert counts.inner_conditions == 16


def test_divisions_count_by_where_they_are() -> None:
    inner = Store(OUT, (ROW, COLUMN), X[ROW // 2, COLUMN % 3])
    outer = For(ROW, ZERO, N, (For(COLUMN, ROW // 3, N - ROW % 2, (inner,)),))
    counts = counted((outer,))
    trips = sum(4 - i % 2 - i // 3 for i in range(4))
    assert counts.index_divisions == 2 * trips
    assert counts.bound_divisions == 2 * 4


def test_arithmetic_on_indices_is_free() -> None:
    place = ea.maximum(3 - ROW, ZERO)
    assert counted(
        (over(ROW, over(COLUMN, Store(OUT, (ROW, COLUMN), X[place, COLUMN]))),)
    ) == Counts(16, memory=16)


def test_a_shared_term_is_computed_once() -> None:
    square = X[ROW, COLUMN] * X[ROW, COLUMN]
    value = square * square + square
    assert (
        counted((over(ROW, over(COLUMN, Store(OUT, (ROW, COLUMN), value))),)).multiplications
        == 16 * 2
    )


def test_only_the_chosen_side_of_a_select_counts() -> None:
    value = Select(ROW < 1, X[ROW, COLUMN] * X[ROW, COLUMN], ea.exp(X[ROW, COLUMN]) * 2.0)
    assert (
        counted((over(ROW, over(COLUMN, Store(OUT, (ROW, COLUMN), value))),)).multiplications
        == 4 + 24
    )


def test_a_read_in_the_side_not_chosen_does_not_happen() -> None:
    value = Select(ROW > 0, X[ROW - 1, COLUMN], Select(COLUMN >= 4, X[ROW, COLUMN + 100], X[0, 0]))
    program = LoopProgram(
        (X,),
        (OUT,),
        (),
        (),
        (Nest(OUT, (over(ROW, over(COLUMN, Store(OUT, (ROW, COLUMN), value))),)),),
    )
    expected = np.vstack([np.zeros((1, 4)), VALUES["x"][:3]])
    np.testing.assert_array_equal(run(program, VALUES).outputs[0], expected)


def test_counting_without_arrays_refuses_what_depends_on_data() -> None:
    value = Select(X[ROW, COLUMN] > 0.0, X[ROW, COLUMN] * X[ROW, COLUMN], X[ROW, COLUMN])
    body = (over(ROW, over(COLUMN, Store(OUT, (ROW, COLUMN), value))),)
    program = LoopProgram((X,), (OUT,), (), (), (Nest(OUT, body),))
    with pytest.raises(ArgumentError, match="needs the arrays"):
        count(program)
    assert count(program, arrays=VALUES).total.multiplications == 15


def test_counting_without_arrays_needs_none_where_both_sides_cost_alike() -> None:
    x = ea.placeholder((9,), "x")
    y = ea.compute((9,), lambda i: ea.select(x[i] > 0.0, x[i], 0.0), "y")
    expected = Counts(9, comparisons=9, inner_conditions=9, data_conditions=9, memory=9)
    assert count(lower([y])).total == expected


def test_conditions_on_data_are_told_from_those_on_axes() -> None:
    def tested(cond: Expr) -> tuple[int, int]:
        store = Store(OUT, (ROW, COLUMN), X[ROW, COLUMN])
        body = over(ROW, over(COLUMN, If(cond, (store,))))
        program = LoopProgram((X,), (OUT,), (), (), (Nest(OUT, (body,)),))
        total = count(program, arrays=VALUES).total
        return total.inner_conditions, total.data_conditions

    assert tested(X[ROW, COLUMN] > 0.0) == (16, 16)
    assert tested(COLUMN < ROW) == (16, 0)
    assert tested(ea.all_of(X[ROW, COLUMN] > 0.0, COLUMN < ROW)) == (16, 0)


def test_counting_large_loops_is_fast() -> None:
    n = 4000
    a, b = ea.placeholder((n, n), "a"), ea.placeholder((n, n), "b")
    k = ea.reduce_axis((0, n), "k")
    y = ea.compute((n, n), lambda i, j: ea.sum(a[i, k] * b[k, j], axis=k), "y")
    start = time.perf_counter()
    assert count(lower([y])).total.multiplications == n**3
    assert time.perf_counter() - start < 5


def test_sizes_come_from_the_arrays_or_are_given() -> None:
    n = ea.size("n")
    x = ea.placeholder((n,), "x")
    program = lower([ea.compute((n,), lambda i: x[i] * 2.0, "y")])
    assert run(program, {"x": np.ones(5, np.float32)}).total.multiplications == 5
    assert count(program, {"n": 7}).total.multiplications == 7
    with pytest.raises(ArgumentError, match="no value for size n"):
        count(program)


def test_missing_and_misshapen_arrays_are_refused() -> None:
    program = lower([ea.compute((4, 4), lambda i, j: X[i, j], "y")])
    with pytest.raises(ArgumentError, match="no array for input x"):
        run(program, {"z": np.ones(4)})
    with pytest.raises(ShapeError, match="expects shape"):
        run(program, {"x": np.ones((4, 5))})


def test_stages_are_counted_by_name_and_in_total() -> None:
    a = ea.compute((4, 4), lambda i, j: X[i, j] * 2.0, "a")
    b = ea.compute((4,), lambda i: a[i, i] + 1.0, "b")
    execution = run(lower([b]), VALUES)
    assert execution.counts["a"] == Counts(16, multiplications=16, memory=16)
    assert execution.counts["b"] == Counts(4, additions=4, memory=4)
    assert execution.total == execution.counts["a"] + execution.counts["b"]


SPECIAL = [0.0, 1.0, -1.0, 0.5, -2.5, 30.0, -800.0, 800.0, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize(
    "op", [*QUICK, ops.MIN, ops.MAX, ops.ABS, ops.SIGN], ids=lambda op: op.name
)
def test_operations_have_the_values_of_the_evaluator(op: ops.Op) -> None:
    x = ea.placeholder((len(SPECIAL),), "x", "float64")
    pairs = (len(SPECIAL), len(SPECIAL))
    y = ea.compute(pairs, lambda i, j: Apply(op, (x[i], x[j])[: op.arity]), "y")
    arrays = {"x": np.array(SPECIAL)}
    (expected,) = evaluate([y], arrays)
    # The functions of math and of numpy may differ in the last place.
    np.testing.assert_allclose(run(lower([y]), arrays).outputs[0], expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32"])
def test_casts_have_the_values_of_the_evaluator(dtype: str) -> None:
    x = ea.placeholder((5,), "x", "float64")
    y = ea.compute((5,), lambda i: ea.cast(ea.cast(x[i] * 1.7, dtype), "float64"), "y")
    arrays = {"x": np.array([0.1, -2.9, 3.5, 1e4, -0.0])}
    np.testing.assert_array_equal(run(lower([y]), arrays).outputs[0], evaluate([y], arrays)[0])


def test_stages_are_rounded_when_stored() -> None:
    x = ea.placeholder((3,), "x", "float32")
    third = ea.compute((3,), lambda i: x[i] / 3.0, "third")
    y = ea.compute((3,), lambda i: ea.cast(third[i], "float64"), "y")
    arrays = {"x": np.array([1, 2, 5], np.float32)}
    np.testing.assert_array_equal(
        run(lower([y]), arrays).outputs[0], (arrays["x"] / np.float32(3)).astype(np.float64)
    )


def test_deep_and_long_expressions_run() -> None:
    total: Expr = X[ROW, COLUMN]
    for number in range(3000):
        total = total + Read(X, (Const(number % 4, "index"), COLUMN))
    counts = counted((over(ROW, over(COLUMN, Store(OUT, (ROW, COLUMN), total))),))
    assert counts.additions == 16 * 3000
