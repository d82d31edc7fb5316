"""Lowering: values against the evaluator, and counts against closed formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsatad import pipeline
from eqsatad.loops.emit import emit
from eqsatad.loops.interpret import Counts, count, run
from eqsatad.loops.lower import Piece, lower, pieces
from eqsatad.loops.nest import For, If, LoopProgram, Nest, Statement
from eqsatad.loops.render import render
from eqsatad.terms import builders as ea
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import (
    SUM,
    Axis,
    Const,
    Expr,
    Placeholder,
    Reduce,
    Scatter,
    Select,
    Stage,
    Tensor,
)
from eqsatad.terms.walk import conjunction, postorder

Arrays = Mapping[str, np.ndarray]


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def checked(
    stages: Sequence[Tensor], arrays: Arrays, sizes: Mapping[str, int] | None = None
) -> Counts:
    """The counts of ``stages``, after their values have been compared with the evaluator's."""
    program = lower(stages)
    execution = run(program, arrays, sizes)
    for found, expected in zip(execution.outputs, evaluate(stages, arrays, sizes), strict=True):
        # Sums may be added up in another order in float64 before they are rounded.
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    return execution.total


def simplified(stage: Stage) -> list[Tensor]:
    """``stage`` as the rules hand it over: equations on summed axes are theirs to solve."""
    return list(pipeline.simplified([stage], cost="count").outputs)


def is_clean(counts: Counts) -> bool:
    return counts.index_divisions == 0 and counts.inner_conditions == 0


def test_matmul_counts_one_iteration_per_product() -> None:
    a, b = ea.placeholder((4, 5), "a"), ea.placeholder((5, 3), "b")
    k = ea.reduce_axis((0, 5), "k")
    y = ea.compute((4, 3), lambda i, j: ea.sum(a[i, k] * b[k, j], axis=k), "y")
    counts = checked([y], {"a": array(4, 5), "b": array(5, 3)})
    assert counts == Counts(iterations=60, multiplications=60, additions=60, memory=12)


def taps(extent: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    """Pairs of a kernel place and an output whose input is inside, along one dimension."""
    out = outputs(extent, kernel, stride, dilation, padding)
    return sum(
        0 <= o * stride + k * dilation - padding < extent for k in range(kernel) for o in range(out)
    )


def outputs(extent: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    return (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@pytest.mark.parametrize("kernel", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
def test_input_gradient_of_a_strided_convolution_has_one_product_per_tap(
    kernel: int, stride: int, padding: int
) -> None:
    extent, out = 9, outputs(9, kernel, stride, 1, padding)
    h, w = ea.placeholder((2, out, out), "h"), ea.placeholder((2, kernel, kernel), "w")
    steps = -(-kernel // stride)
    f, t, s = (ea.reduce_axis((0, n), name) for n, name in ((2, "f"), (steps, "t"), (steps, "s")))

    def at(u: Expr, v: Expr) -> Expr:
        rows, columns = u + padding, v + padding
        where = Const(True, "bool")
        for place, tap in ((rows, t), (columns, s)):
            where &= (place // stride - tap >= 0) & (place // stride - tap < out)
            where &= place % stride + stride * tap < kernel
        head = h[f, rows // stride - t, columns // stride - s]
        return ea.sum(
            head * w[f, rows % stride + stride * t, columns % stride + stride * s],
            axis=(f, t, s),
            where=where,
        )

    dx = ea.compute((extent, extent), at, "dx")
    counts = checked([dx], {"h": array(2, out, out), "w": array(2, kernel, kernel)})
    assert counts.multiplications == 2 * taps(extent, kernel, stride, 1, padding) ** 2
    assert is_clean(counts)


@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_congruence_guards_become_phases(stride: int, dilation: int) -> None:
    extent, kernel, padding = 11, 3, 1
    out = outputs(extent, kernel, stride, dilation, padding)
    h, w = ea.placeholder((out,), "h"), ea.placeholder((kernel,), "w")
    k = ea.reduce_axis((0, kernel), "k")

    def at(u: Expr) -> Expr:
        place = u + padding - dilation * k
        where = (place % stride).equal(0) & (place >= 0) & (place // stride < out)
        return ea.sum(h[place // stride] * w[k], axis=k, where=where)

    dx = simplified(ea.compute((extent,), at, "dx"))
    counts = checked(dx, {"h": array(out), "w": array(kernel)})
    assert counts.multiplications == taps(extent, kernel, stride, dilation, padding)
    assert is_clean(counts)


def copies() -> list[tuple[str, Stage, Arrays]]:
    """Stages that only move data: what they store is what they execute."""
    x, y = ea.placeholder((4, 3, 4), "x"), ea.placeholder((4, 3), "y")
    flat = ea.placeholder((60,), "f")
    arrays = {"x": array(4, 3, 4), "y": array(4, 3), "f": array(60)}
    cases = {
        "reshape": ea.compute((48,), lambda j: x[j // 12, j // 4 % 3, j % 4]),
        "reshape-truncated": ea.compute((45,), lambda j: x[j // 12, j // 4 % 3, j % 4]),
        "reshape-large": ea.compute((60,), lambda j: flat[j // 20 * 20 + j % 20]),
        "roll": ea.compute((60,), lambda j: flat[(j + 41) % 60]),
        "flip": ea.compute((60,), lambda j: flat[59 - j]),
        "upsample-shifted": ea.compute((15,), lambda j: flat[(j + 2) // 3]),
        "concat": ea.compute((4, 7), lambda i, j: ea.select(j < 4, x[i, 0, j], y[i, j - 4])),
        "slice": ea.compute((20,), lambda j: flat[3 * j]),
        "slice-adjoint": ea.compute(
            (60,), lambda j: ea.select((j % 3).equal(0), flat[j // 3], 0.0)
        ),
        "diagonal": ea.compute((3, 3), lambda i, j: ea.select(i.equal(j), y[i, j], 0.0)),
        "triangle": ea.compute((3, 3), lambda i, j: ea.select(i <= j, y[i, j], 0.0)),
        "band": ea.compute(
            (9, 9), lambda i, j: ea.select((i - j <= 1) & (j - i <= 2), flat[i + j], 0.0)
        ),
        "pad": ea.compute((70,), lambda j: ea.select((j >= 5) & (j < 65), flat[j - 5], 0.0)),
        "reflect": ea.compute(
            (66,), lambda j: flat[ea.select(j < 3, 3 - j, ea.select(j < 63, j - 3, 121 - j))]
        ),
        "shuffle": ea.compute((60,), lambda j: flat[j % 4 * 15 + j // 4]),
        "resize": ea.compute((12,), lambda j: flat[j * 7 // 12]),
    }
    return [(name, stage, arrays) for name, stage in cases.items()]


@pytest.mark.parametrize(("stage", "arrays"), [pytest.param(s, a, id=n) for n, s, a in copies()])
def test_copies_execute_nothing_but_stores(stage: Stage, arrays: Arrays) -> None:
    counts = checked([stage], arrays)
    assert counts.iterations == counts.memory == np.prod([axis.extent.value for axis in stage.axes])
    assert counts.multiplications == counts.additions == 0
    assert is_clean(counts)


def test_stencil_has_an_interior_without_conditions() -> None:
    n = 9
    u = ea.placeholder((n, n), "u")

    def inside(i: Expr, j: Expr) -> Expr:
        return (i >= 1) & (i < n - 1) & (j >= 1) & (j < n - 1)

    def at(i: Expr, j: Expr) -> Expr:
        total = ea.select(inside(i, j), 0.6 * u[i, j], u[i, j])
        for di, dj in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            total = total + ea.select(inside(i + di, j + dj), 0.1 * u[i + di, j + dj], 0.0)
        return total

    counts = checked([ea.compute((n, n), at, "du")], {"u": array(n, n)})
    inner = n - 2
    assert counts.iterations == n * n
    assert counts.multiplications == inner * inner + 4 * inner * inner
    assert is_clean(counts)


def test_triangular_reduction_is_exact() -> None:
    n = 7
    a, x = ea.placeholder((n, n), "a"), ea.placeholder((n,), "x")
    k = ea.reduce_axis((0, n), "k")
    y = ea.compute((n,), lambda i: ea.sum(a[i, k] * x[k], axis=k, where=k <= i), "y")
    counts = checked([y], {"a": array(n, n), "x": array(n)})
    assert counts.multiplications == n * (n + 1) // 2
    assert is_clean(counts)


def test_banded_reduction_is_exact() -> None:
    n, b = 10, 2
    a, x = ea.placeholder((n, 2 * b + 1), "a"), ea.placeholder((n,), "x")
    k = ea.reduce_axis((0, 2 * b + 1), "k")
    y = ea.compute(
        (n,),
        lambda i: ea.sum(a[i, k] * x[i + k - b], axis=k, where=(i + k >= b) & (i + k - b < n)),
    )
    counts = checked([y], {"a": array(n, 2 * b + 1), "x": array(n)})
    assert counts.multiplications == n * (2 * b + 1) - b * (b + 1)
    assert is_clean(counts)


SCANS = {
    "inclusive": lambda k, i: k <= i,
    "exclusive": lambda k, i: k < i,
    "shifted": lambda k, i: k <= i + 2,
    "behind": lambda k, i: k <= i - 2,
    "suffix": lambda k, i: k >= i,
    "exclusive-suffix": lambda k, i: k > i,
    "shifted-suffix": lambda k, i: k >= i - 2,
    "guarded": lambda k, i: (k <= i) & (k >= 3),
}


@pytest.mark.parametrize("where", SCANS.values(), ids=SCANS.keys())
@pytest.mark.parametrize("combine", [ea.sum, ea.prod, ea.max, ea.min], ids=lambda f: f.__name__)
def test_growing_reductions_are_running_values(where: object, combine: object) -> None:
    n = 8
    x = ea.placeholder((2, n), "x")
    k = ea.reduce_axis((0, n), "k")
    y = ea.compute((2, n), lambda b, i: combine(x[b, k], axis=k, where=where(k, i)), "y")  # type: ignore[operator]
    counts = checked([y], {"x": array(2, n)})
    assert counts.iterations <= 2 * (n + 2)
    assert counts.additions + counts.multiplications + counts.comparisons <= 2 * n
    assert is_clean(counts)


@pytest.mark.parametrize("name", ["inclusive", "exclusive", "suffix", "exclusive-suffix"])
def test_running_values_of_symbolic_length_have_no_condition(name: str) -> None:
    n = ea.size("n")
    x = ea.placeholder((n,), "x")
    k = ea.reduce_axis((0, n), "k")
    y = ea.compute((n,), lambda i: ea.sum(x[k], axis=k, where=SCANS[name](k, i)), "y")
    for extent in (1, 2, 9):
        counts = checked([y], {"x": array(extent)})
        assert counts.iterations == extent
        assert is_clean(counts)


def test_running_value_of_a_user_combiner_keeps_the_order() -> None:
    n = 6
    x = ea.placeholder((n,), "x", "float64")
    k = ea.reduce_axis((0, n), "k")
    last = ea.comm_reducer(lambda a, b: a * 0.5 + b, lambda dtype: 0.0, name="decay")
    y = ea.compute((n,), lambda i: last(x[k], axis=k, where=k <= i), "y")
    counts = checked([y], {"x": array(n).astype(np.float64)})
    assert counts.iterations == n


def test_two_running_values_share_one_walk() -> None:
    n = 7
    x = ea.placeholder((n,), "x")
    k = ea.reduce_axis((0, n), "k")
    y = ea.compute(
        (n,),
        lambda i: ea.sum(x[k], axis=k, where=k <= i) * ea.max(x[k], axis=k, where=k < i),
        "y",
    )
    counts = checked([y], {"x": array(n)})
    assert counts.iterations == n


def test_argmax_of_windows_keeps_the_first_best() -> None:
    x = ea.placeholder((2, 9, 9), "x")
    a, b = ea.reduce_axis((0, 3), "a"), ea.reduce_axis((0, 3), "b")
    y = ea.compute((2, 4, 4), lambda c, i, j: ea.argmax(x[c, 2 * i + a, 2 * j + b], axis=(a, b)))
    values = np.random.default_rng(1).integers(0, 3, size=(2, 9, 9)).astype(np.float32)
    counts = checked([y], {"x": values})
    assert counts.iterations == 2 * 16 * 9


def test_argmax_of_infinities_and_nans_agrees_with_the_evaluator() -> None:
    x = ea.placeholder((4, 5), "x")
    k = ea.reduce_axis((0, 5), "k")
    values = np.full((4, 5), -np.inf, np.float32)
    values[1, 3], values[2, 2], values[2, 3], values[3, 4] = np.nan, np.nan, np.inf, 0.0
    for reduce in (ea.argmax, ea.argmin):
        y = ea.compute((4,), lambda i, reduce=reduce: reduce(x[i, k], axis=k), "y")
        z = ea.compute((4,), lambda i, reduce=reduce: reduce(x[i, k], axis=k, where=k > i), "z")
        checked([y, z], {"x": values})


def test_scatter_fills_and_adds() -> None:
    rows = ea.placeholder((5,), "rows", "int32")
    h = ea.placeholder((5, 3), "h")
    y = ea.scatter((4, 3), (5, 3), lambda b, d: ((rows[b], d), h[b, d]), "y")
    places = np.array([3, 0, 3, 3, 1], np.int32)
    counts = checked([y], {"rows": places, "h": array(5, 3)})
    assert counts == Counts(iterations=27, additions=15, memory=12)


def test_scatter_under_a_condition_on_data_adds_where_it_holds() -> None:
    rows = ea.placeholder((5,), "rows", "int32")
    h = ea.placeholder((5,), "h")
    y = ea.scatter((4,), (5,), lambda b: (rows[b], h[b]), "y", where=lambda b: rows[b] >= 0)
    places = np.array([3, -1, 3, -2, 1], np.int32)
    counts = checked([y], {"rows": places, "h": array(5)})
    assert counts.additions == 3


def test_scatter_runs_in_parallel_only_where_elements_differ() -> None:
    rows = ea.placeholder((5,), "rows", "int32")
    h = ea.placeholder((5, 3), "h")
    apart = ea.scatter((3, 4), (3, 5), lambda d, b: ((d, rows[b]), h[b, d]), "apart")
    meeting = ea.scatter((4, 3), (5, 3), lambda b, d: ((rows[b], d), h[b, d]), "meeting")
    flags = {
        stage.name: [loop.parallel for loop in loops(lower([stage]).nests[0].body[-1])]
        for stage in (apart, meeting)
    }
    assert flags == {"apart": [True, False], "meeting": [False, False]}


def loops(statement: Statement) -> list[For]:
    """The loops of a perfect nest."""
    found = []
    while isinstance(statement, For):
        found.append(statement)
        statement = statement.body[0]
    return found


def test_gather_by_comparison_needs_one_read() -> None:
    rows = ea.placeholder((5,), "rows", "int32")
    e = ea.placeholder((9,), "e")
    v = ea.reduce_axis((0, 9), "v")
    y = ea.compute(
        (5,), lambda b: ea.sum(e[v], axis=v, where=v.equal(ea.cast(rows[b], "index"))), "y"
    )
    arrays = {"rows": np.array([8, 0, -1, 4, 9], np.int32), "e": array(9)}
    assert checked([y], arrays).iterations == 5 * 9
    assert checked(simplified(y), arrays).iterations == 5


def test_reduction_is_computed_where_its_axes_are_known() -> None:
    a, b = ea.placeholder((4, 6), "a"), ea.placeholder((4, 3), "b")
    k = ea.reduce_axis((0, 6), "k")
    y = ea.compute((4, 3), lambda i, j: b[i, j] * ea.sum(a[i, k] * a[i, k], axis=k), "y")
    counts = checked([y], {"a": array(4, 6), "b": array(4, 3)})
    assert counts.multiplications == 4 * 6 + 4 * 3


def test_reduction_is_not_computed_for_rows_without_elements() -> None:
    a = ea.placeholder((4, 6), "a")
    k = ea.reduce_axis((0, 6), "k")

    def at(i: Expr, j: Expr) -> Expr:
        return ea.select(j < i - 3, ea.sum(a[i - 4, k], axis=k), 0.0)

    checked([ea.compute((8, 5), at, "y")], {"a": array(4, 6)})


def test_nested_reductions() -> None:
    a = ea.placeholder((4, 6), "a")
    k, m = ea.reduce_axis((0, 6), "k"), ea.reduce_axis((0, 6), "m")
    y = ea.compute(
        (4,),
        lambda i: (
            ea.sum(a[i, k] * ea.max(a[i, m], axis=m, where=m <= k), axis=k)
            / ea.sum(ea.exp(a[i, m]), axis=m)
        ),
        "y",
    )
    counts = checked([y], {"a": array(4, 6)})
    assert counts.comparisons == 4 * 21


def test_select_between_reductions_computes_one_of_them() -> None:
    a = ea.placeholder((4, 6), "a")
    k = ea.reduce_axis((0, 6), "k")

    def at(i: Expr) -> Expr:
        total = ea.sum(a[i, k] * a[i, k], axis=k)
        return ea.select(a[i, 0] > 0.0, total, ea.prod(a[i, k], axis=k))

    counts = checked([ea.compute((4,), at, "y")], {"a": array(4, 6)})
    assert counts.multiplications == 4 * 6


def test_values_of_every_dtype() -> None:
    for dtype in ("float64", "float32", "float16", "bfloat16", "int64", "int32"):
        x = ea.placeholder((6,), "x", dtype)
        k = ea.reduce_axis((0, 6), "k")
        y = ea.compute((6,), lambda i, x=x, k=k: x[i] * x[5 - i] - ea.sum(x[k], axis=k), "y")
        z = ea.compute((), lambda x=x, k=k: ea.any(x[k] > x[0], axis=k), "z")
        checked([y, z], {"x": np.array([1, 2, -3, 4, -5, 6], np.float32)})


def test_symbolic_sizes_give_the_same_values() -> None:
    n, m = ea.size("n"), ea.size("m")
    x = ea.placeholder((n, m), "x")
    k = ea.reduce_axis((0, m), "k")
    stages = [
        ea.compute((n, m), lambda i, j: ea.select(i < 3, x[i, j // 2], x[i, j]), "a"),
        ea.compute((2 * n,), lambda j: x[j // 2, 0], "b"),
        ea.compute((n,), lambda j: x[j // 2, 0], "c"),
        ea.compute((n, m), lambda i, j: ea.select(j >= m - 2, 0.0, x[i, m - 1 - j]), "d"),
        ea.compute((n,), lambda i: ea.sum(x[i, k], axis=k, where=k + i >= 2), "e"),
        ea.compute((n, m), lambda i, j: ea.select(i <= j, x[i, j], 0.0), "f"),
    ]
    for shape in ((1, 1), (2, 5), (5, 2), (7, 7)):
        counts = checked(stages, {"x": array(*shape)})
        assert is_clean(counts)


def test_residues_of_a_symbolic_axis() -> None:
    n = ea.size("n")
    h, w = ea.placeholder((n,), "h"), ea.placeholder((3,), "w")
    t = ea.reduce_axis((0, 2), "t")
    where = lambda u: (u // 2 - t >= 0) & (u % 2 + 2 * t < 3)  # noqa: E731
    dx = ea.compute(
        (2 * n,), lambda u: ea.sum(h[u // 2 - t] * w[u % 2 + 2 * t], axis=t, where=where(u)), "dx"
    )
    for extent in (1, 2, 6):
        counts = checked([dx], {"h": array(extent), "w": array(3)})
        assert counts.multiplications == 3 * extent - 1
        assert is_clean(counts)


def conv_piece() -> Stage:
    h, w = ea.placeholder((3, 6), "h"), ea.placeholder((3, 3), "w")
    f, k = ea.reduce_axis((0, 3), "f"), ea.reduce_axis((0, 3), "k")
    return ea.compute(
        (8,),
        lambda u: ea.sum(h[f, u - k] * w[f, k], axis=(f, k), where=(u - k >= 0) & (u - k < 6)),
        "dx",
    )


def test_every_order_of_a_piece_gives_the_same_values() -> None:
    stage = conv_piece()
    (piece,) = pieces(stage)
    assert piece.reduction is not None
    arrays = {"h": array(3, 6), "w": array(3, 3)}
    (expected,) = evaluate([stage], arrays)
    program = lower([stage])
    for order in permutations((*piece.axes, *piece.reduction.axes)):
        nest = Nest(stage, emit(piece, order))
        ordered = LoopProgram(program.inputs, (stage,), (), (), (nest,))
        execution = run(ordered, arrays)
        np.testing.assert_allclose(execution.outputs[0], expected, rtol=1e-5)
        assert execution.total.multiplications == 3 * 18
        assert is_clean(execution.total)


def test_lower_takes_an_order() -> None:
    stage = conv_piece()
    arrays = {"h": array(3, 6), "w": array(3, 3)}
    program = lower([stage], order=lambda piece: (*piece.reduction.axes, *piece.axes))
    (expected,) = evaluate([stage], arrays)
    np.testing.assert_allclose(run(program, arrays).outputs[0], expected, rtol=1e-5)
    assert "dx[u] +=" in render(program)


def test_program_keeps_the_order_of_arguments_and_copies_shared_outputs() -> None:
    x, y = ea.placeholder((3,), "x"), ea.placeholder((3,), "y")
    z = ea.compute((3,), lambda i: x[i] + y[i], "z")
    twice = ea.compute((3,), lambda i: z[i] * 2.0, "twice")
    program = lower([twice, x, twice], [y, x])
    assert program.inputs == (y, x)
    assert program.temporaries == (z,)
    assert len(set(program.outputs)) == 3
    execution = run(program, {"x": array(3), "y": array(3, seed=1)})
    np.testing.assert_array_equal(execution.outputs[0], execution.outputs[2])
    np.testing.assert_array_equal(execution.outputs[1], array(3))


def test_index_simplification_is_applied_to_whole_indices() -> None:
    x = ea.placeholder((6,), "x")
    y = ea.compute((6,), lambda i: x[i * 2 - i], "y")
    seen: list[Expr] = []

    def simplify(exprs: Sequence[Expr]) -> list[Expr]:
        seen.extend(exprs)
        return [y.axes[0] for _ in exprs]

    assert "x[i]" in render(lower([y], simplify=simplify))
    assert len(seen) == 1


def test_quotients_that_are_not_cut_are_computed_outside_of_inner_loops() -> None:
    x = ea.placeholder((19, 3), "x")
    y = ea.compute((23, 3), lambda i, j: x[i * 19 // 23, j], "y")
    counts = checked([y], {"x": array(19, 3)})
    assert is_clean(counts)
    assert counts.bound_divisions == 23


def test_the_interior_is_cut_before_the_borders() -> None:
    n = 8
    x = ea.placeholder((n, n, n), "x")

    def at(i: Expr, j: Expr, k: Expr) -> Expr:
        total: Expr = Const(0.0, "float32")
        for step in (1, 2):
            for di, dj, dk in ((step, 0, 0), (0, step, 0), (0, 0, step)):
                for sign in (-1, 1):
                    place = (i + sign * di, j + sign * dj, k + sign * dk)
                    total = total + x.get(*place, outside=0.0)
        return total

    stage = ea.compute((n, n, n), at, "y")
    found = pieces(stage)
    assert len(found) <= 64
    largest = max(found, key=lambda piece: np.prod([axis.extent.value for axis in piece.axes]))
    assert not any(isinstance(node, Select) for node in postorder(largest.value))
    checked([stage], {"x": array(n, n, n)})


def test_many_conditions_stop_at_the_limit_and_stay_correct() -> None:
    x = ea.placeholder((40, 40), "x")

    def at(i: Expr, j: Expr) -> Expr:
        total = x[i, j]
        for n in range(12):
            total = total + ea.select((i + n * j) % 7 > 2, x[j, i], 1.0)
        return total

    stage = ea.compute((40, 40), at, "y")
    assert len(pieces(stage)) <= 64
    checked([stage], {"x": array(40, 40)})


def test_render_shows_loops_bounds_and_stores() -> None:
    n = 4
    a = ea.placeholder((n, n), "a")
    k = ea.reduce_axis((0, n), "k")
    y = ea.compute((n,), lambda i: ea.sum(a[i, k], axis=k, where=k <= i), "y")
    assert render(lower([y])) == (
        "input a: float32[4, 4]\n"
        "output y: float32[4]\n"
        "\n"
        "y:\n"
        "    parallel for i in 0 .. 4:\n"
        "        sum_1 = 0.0\n"
        "        for k in 0 .. i + 1:\n"
        "            sum_1 = sum_1 + a[i, k]\n"
        "        y[i] = sum_1"
    )


# Random stages. Every read is made safe by a remainder or a guard, so that any index will do.

INDEX = st.integers(-4, 6)
X = ea.placeholder((7,), "x", "float64")
Y = ea.placeholder((4, 5), "y", "float64")
ARRAYS = {"x": array(7).astype(np.float64), "y": array(4, 5).astype(np.float64)}


@st.composite
def indices(draw: st.DrawFn, axes: Sequence[Expr]) -> Expr:
    index: Expr = Const(draw(INDEX), "index")
    for axis in axes:
        index = index + draw(st.integers(-2, 3)) * axis
    for _ in range(draw(st.integers(0, 2))):
        divisor = draw(st.integers(1, 5))
        index = index // divisor if draw(st.booleans()) else index % divisor
        index = index + draw(st.integers(-1, 2)) * draw(st.sampled_from(list(axes)))
    return index


@st.composite
def conditions(draw: st.DrawFn, axes: Sequence[Expr]) -> Expr:
    left, right = draw(indices(axes)), draw(INDEX)
    kind = draw(st.integers(0, 5))
    cond = (
        left >= right,
        left < right,
        left.equal(right),
        left.differs(right),
        X[left % 7] > 0.0,
        (left >= right) | (left < right - 3),
    )[kind]
    if draw(st.integers(0, 3)) == 0:
        cond = cond & draw(conditions(axes))
    return cond


@st.composite
def values(draw: st.DrawFn, axes: tuple[Expr, ...], depth: int = 2) -> Expr:
    kind = draw(st.integers(0, 5 if depth else 1))
    if kind == 0:
        return X[draw(indices(axes)) % 7]
    if kind == 1:
        i, j = draw(indices(axes)), draw(indices(axes))
        inside = (i >= 0) & (i < 4) & (j >= 0) & (j < 5)
        return ea.select(inside, Y[i, j], Const(0.0, "float64"))
    inner = values(axes, depth - 1)
    if kind == 2:
        return draw(inner) + draw(inner)
    if kind == 3:
        return draw(inner) * draw(inner)
    if kind == 4:
        return ea.select(draw(conditions(axes)), draw(inner), draw(inner))
    return draw(reductions(axes, depth - 1))


@st.composite
def reductions(draw: st.DrawFn, axes: tuple[Expr, ...], depth: int) -> Expr:
    number = len(axes)
    bound = tuple(
        Axis(f"r{number + n}", Const(draw(st.integers(1, 6)), "index"))
        for n in range(draw(st.integers(1, 2)))
    )
    everything = (*axes, *bound)
    body = draw(values(everything, depth))
    where = [draw(conditions(everything)) for _ in range(draw(st.integers(0, 2)))]
    combine = draw(st.sampled_from([ea.sum, ea.prod, ea.max, ea.min, ea.argmax, ea.argmin]))
    if combine in (ea.argmax, ea.argmin):
        return ea.cast(combine(body, axis=bound, where=conjunction(where)), "float64")
    return combine(body, axis=bound, where=conjunction(where))


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.data())
def test_random_stages_have_the_values_of_the_evaluator(data: st.DataObject) -> None:
    extents = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=2))
    axes = tuple(Axis(f"i{n}", Const(extent, "index")) for n, extent in enumerate(extents))
    stage = Stage("out", axes, data.draw(values(axes)))
    program = lower([stage])
    execution = run(program, ARRAYS)
    (expected,) = evaluate([stage], ARRAYS)
    np.testing.assert_allclose(execution.outputs[0], expected, rtol=1e-9, atol=1e-9)
    assert execution.total.memory == expected.size
    assert execution.total.iterations >= expected.size


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_random_sums_hold_for_every_size(data: st.DataObject) -> None:
    n = ea.size("n")
    axes = (Axis("i0", n), Axis("i1", n + data.draw(st.integers(0, 3))))
    stage = Stage("out", axes, data.draw(values(axes)))
    program = lower([stage])
    for extent in (1, 2, 5):
        found = run(program, ARRAYS, {"n": extent}).outputs[0]
        (expected,) = evaluate([stage], ARRAYS, {"n": extent})
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_random_stages_count_the_same_without_values(data: st.DataObject) -> None:
    axes = (Axis("i0", Const(data.draw(st.integers(1, 9)), "index")),)
    bound = (Axis("r1", Const(data.draw(st.integers(1, 6)), "index")),)
    inner = (*axes, *bound)
    where = data.draw(indices(inner)) >= data.draw(INDEX)
    body = X[data.draw(indices(inner)) % 7] * Y[data.draw(indices(inner)) % 4, 0]
    stage = Stage("out", axes, Reduce(SUM, bound, where, body))
    program = lower([stage])
    assert count(program).counts == run(program, ARRAYS).counts


def has_conditions(program: LoopProgram) -> bool:
    found: list[Statement] = [statement for nest in program.nests for statement in nest.body]
    while found:
        match found.pop():
            case For(body=body):
                found.extend(body)
            case If():
                return True
    return False


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_affine_guards_leave_no_condition(data: st.DataObject) -> None:
    axes = tuple(Axis(f"i{n}", Const(data.draw(st.integers(1, 7)), "index")) for n in range(2))
    bound = (Axis("r", Const(data.draw(st.integers(1, 6)), "index")),)

    def affine() -> Expr:
        form: Expr = Const(data.draw(INDEX), "index")
        for axis in (*axes, *bound):
            form = form + data.draw(st.integers(-2, 2)) * axis
        return form >= 0

    where = conjunction([affine() for _ in range(data.draw(st.integers(1, 3)))])
    total = Reduce(SUM, bound, where, X[bound[0]] * Y[axes[0] % 4, axes[1] % 5])
    outer = axes[0] + data.draw(st.integers(-1, 1)) * axes[1] >= data.draw(INDEX)
    stage = Stage("out", axes, Select(outer, total, Const(1.0, "float64")))
    program = lower([stage])
    execution = run(program, ARRAYS)
    (expected,) = evaluate([stage], ARRAYS)
    np.testing.assert_allclose(execution.outputs[0], expected, rtol=1e-9, atol=1e-9)
    assert is_clean(execution.total)
    assert not has_conditions(program)


def test_a_placeholder_is_no_stage_of_its_own() -> None:
    x = Placeholder("x", (Const(3, "index"),), "float32")
    program = lower([ea.compute((3,), lambda i: x[i], "y")])
    assert [nest.stage.name for nest in program.nests] == ["y"]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_random_scatters_add_what_the_evaluator_adds(data: st.DataObject) -> None:
    axes = tuple(Axis(f"i{n}", Const(data.draw(st.integers(1, 6)), "index")) for n in range(2))
    out = Axis("o", Const(7, "index"))
    places = data.draw(indices(axes)) + ea.cast(X[axes[0] % 7] * 3.0, "index")
    scatter = Scatter(axes, data.draw(conditions(axes)), (places % 7,), data.draw(values(axes, 1)))
    stage = Stage("out", (out,), data.draw(values((out,), 0)), (scatter,))
    (expected,) = evaluate([stage], ARRAYS)
    found = run(lower([stage]), ARRAYS).outputs[0]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_product_starts_from_what_it_is_multiplied_by() -> None:
    h, x = ea.placeholder((3,), "h"), ea.placeholder((3, 7), "x")
    k = ea.reduce_axis((0, 7), "k")
    y = ea.compute((3, 7), lambda i, j: h[i] * ea.prod(x[i, k], axis=k, where=k < j), "y")
    counts = checked([y], {"h": array(3), "x": array(3, 7)})
    assert counts.multiplications == 3 * 6


def test_wrapped_index_over_two_loops_is_cut_at_its_step() -> None:
    n = 500
    x, w = ea.placeholder((n,), "x"), ea.placeholder((9,), "w")
    k = ea.reduce_axis((0, 9), "k")
    y = ea.compute((n,), lambda i: ea.sum(x[(i - k) % n] * w[k], axis=k), "y")
    counts = checked([y], {"x": array(n), "w": array(9)})
    assert is_clean(counts)
    assert counts.multiplications == 9 * n


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.data())
def test_random_growing_reductions_have_the_values_of_the_evaluator(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 8))
    symbolic = data.draw(st.booleans())
    extent = ea.size("n") if symbolic else Const(n, "index")
    axes = (Axis("i0", Const(3, "index")), Axis("i1", extent))
    bound = Axis("r", Const(data.draw(st.integers(1, 9)), "index"))
    shift, ascending = data.draw(INDEX), data.draw(st.booleans())
    grows = bound <= axes[1] + shift if ascending else bound >= axes[1] + shift
    guard = data.draw(conditions((axes[0], bound))) if data.draw(st.booleans()) else grows
    body = data.draw(values((axes[0], bound), 1))
    combine = data.draw(st.sampled_from([ea.sum, ea.prod, ea.max, ea.min]))
    total = combine(body, axis=bound, where=grows & guard)
    stage = Stage("out", axes, total * data.draw(values(axes, 0)))
    execution = run(lower([stage]), ARRAYS, {"n": n})
    (expected,) = evaluate([stage], ARRAYS, {"n": n})
    np.testing.assert_allclose(execution.outputs[0], expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data())
def test_random_orders_give_the_values_of_the_evaluator(data: st.DataObject) -> None:
    axes = tuple(Axis(f"i{n}", Const(data.draw(st.integers(1, 6)), "index")) for n in range(2))
    bound = tuple(Axis(f"r{n}", Const(data.draw(st.integers(1, 4)), "index")) for n in range(2))
    everything = (*axes, *bound)
    where = conjunction([data.draw(conditions(everything)) for _ in range(2)])
    stage = Stage("out", axes, Reduce(SUM, bound, where, data.draw(values(everything, 1))))

    def order(piece: Piece) -> list[Axis]:
        assert piece.reduction is not None
        return data.draw(st.permutations((*piece.axes, *piece.reduction.axes)))

    (expected,) = evaluate([stage], ARRAYS)
    found = run(lower([stage], order=order), ARRAYS).outputs[0]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
