"""Adjoints of programs against central differences, and the shape in which they are written."""

import warnings

import numpy as np
import pytest

from eqsatad.errors import DtypeError, NotDifferentiableError, ShapeError, TermError
from eqsatad.grad import reverse
from eqsatad.terms import builders as ea
from eqsatad.terms import ops
from eqsatad.terms.checks import check
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import (
    ARGMAX,
    SUM,
    Apply,
    Axis,
    Const,
    Placeholder,
    Read,
    Reduce,
    Stage,
)
from eqsatad.terms.show import show
from eqsatad.terms.walk import conjuncts, postorder, program

STEP = 1e-6
TOLERANCE = 2e-7  # of central differences with STEP in float64, relative to the largest term
SIZES = {"n": 5, "m": 3}


def tensor(name, *shape, dtype="float64"):
    return ea.placeholder(shape, name, dtype)


def axis(extent, name="k"):
    return ea.reduce_axis((0, extent), name)


def extents(t):
    return tuple(SIZES[e.name] if not isinstance(e, Const) else e.value for e in t.shape)


def values(tensors, seed, given=None):
    """Random arrays for the placeholders below ``tensors``, apart from those given."""
    rng = np.random.default_rng(seed)
    made = {
        t.name: rng.uniform(0.2, 1.0, extents(t)) * rng.choice([-1, 1], extents(t))
        for t in program(tensors)
        if isinstance(t, Placeholder)
    }
    return made | (given or {})


def agrees(output, inputs, arrays=None, seed=0, **options):
    """Asserts that the adjoints are the central differences, in random directions."""
    found = reverse(output, inputs, **options)
    arrays = values([output, *inputs, *found.results], seed, arrays)
    head = arrays[found.head.name]
    results = evaluate(found.results, arrays, SIZES, dtype="float64")
    rng = np.random.default_rng(seed + 1)
    for t, result in zip(inputs, results, strict=True):
        assert result.shape == extents(t)
        for _ in range(2):
            way = rng.uniform(-1, 1, extents(t))
            above, below = (
                evaluate([output], moved(arrays, t, step * way), SIZES, dtype="float64")[0]
                for step in (STEP, -STEP)
            )
            expected = np.sum(head * (above - below)) / (2 * STEP)
            size = max(1.0, np.sum(np.abs(result * way)))
            assert abs(np.sum(result * way) - expected) < TOLERANCE * size, (t.name, seed)
    for stage in program(found.results):
        if isinstance(stage, Stage):
            check(stage)
            binds_each_name_once(stage)
    return found


def moved(arrays, t, way):
    return arrays | {t.name: arrays[t.name] + way}


def binds_each_name_once(stage):
    """Asserts that no reduction binds a name that is free around it or an axis of the stage."""
    outer = {a.name for a in stage.axes}
    assert len(outer) == len(stage.axes)
    for root in stage.roots:
        for node in postorder(root):
            if isinstance(node, Reduce):
                bound = {a.name for a in node.axes}
                assert not bound & outer, show(stage)
                inner = [n for c in node.children for n in postorder(c) if isinstance(n, Reduce)]
                assert not bound & {a.name for n in inner for a in n.axes}, show(stage)


A, B, C = tensor("A", 4, 4), tensor("B", 4, 4), tensor("C", 4, 4)
X, W, V = tensor("X", 6), tensor("W", 6), tensor("V", 6)
S = tensor("S")
K = axis(4)


def matmul():
    k = axis(4)
    return ea.compute((4, 4), lambda i, j: ea.sum(A[i, k] * B[k, j], k))


def convolution(stride=1, pad=1, dilation=1):
    x, w = tensor("x", 2, 2, 6, 5), tensor("w", 3, 2, 3, 2)
    c, u, v = axis(2, "c"), axis(3, "u"), axis(2, "v")
    rows = (6 + 2 * pad - dilation * 2 - 1) // stride + 1
    columns = (5 + 2 * pad - dilation - 1) // stride + 1

    def body(b, o, i, j):
        at = (stride * i + dilation * u - pad, stride * j + dilation * v - pad)
        return ea.sum(x.get(b, c, *at, outside=0.0) * w[o, c, u, v], (c, u, v))

    return ea.compute((2, 3, rows, columns), body, "conv"), [x, w]


def softmax_in_one_stage():
    k, m = axis(4, "k"), axis(4, "m")

    def body(i, j):
        shift = ea.max(A[i, m], m)
        return ea.exp(A[i, j] - shift) / ea.sum(ea.exp(A[i, k] - shift), k)

    return ea.compute((4, 4), body)


def softmax_in_stages():
    k = axis(4)
    top = ea.compute((4,), lambda i: ea.max(A[i, k], k), "top")
    exps = ea.compute((4, 4), lambda i, j: ea.exp(A[i, j] - top[i]), "exps")
    total = ea.compute((4,), lambda i: ea.sum(exps[i, k], k), "total")
    return ea.compute((4, 4), lambda i, j: exps[i, j] / total[i], "soft")


def layer_norm():
    k = axis(4)
    mean = ea.compute((4,), lambda i: ea.sum(A[i, k], k) / 4.0, "mean")
    centred = ea.compute((4, 4), lambda i, j: A[i, j] - mean[i], "centred")
    scale = ea.compute((4,), lambda i: ea.rsqrt(ea.sum(centred[i, k] ** 2, k) / 4.0 + 0.1), "scale")
    return ea.compute((4, 4), lambda i, j: centred[i, j] * scale[i] * X[j] + W[j], "normed")


def deep_sharing():
    a = ea.compute((6,), lambda i: X[i] * W[i], "a")
    b = ea.compute((6,), lambda i: ea.tanh(a[i]) * a[5 - i], "b")
    c = ea.compute((6,), lambda i: a[i] * b[i] + X[i], "c")
    k = axis(6)
    return ea.compute((), lambda: ea.sum(c[k] * b[k] * a[k], k), "d")


def scan():
    k = axis(6)
    return ea.compute((6,), lambda i: ea.sum(X[k] * W[k], k, where=k <= i))


def running_product():
    k = axis(6)
    return ea.compute((6,), lambda i: ea.prod(X[k], k, where=k <= i))


def guarded_reads():
    return ea.compute(
        (6,),
        lambda i: ea.select(
            (i >= 1) & (i < 5), X[i - 1] * W[i + 1] * ea.exp(V[i - 1]), ea.tanh(X[i] * W[i])
        ),
    )


def guarded_maximum():
    """Reductions that are only in range under the guard around them."""
    k = axis(2)
    return ea.compute(
        (6,),
        lambda i: ea.select(
            i < 5,
            ea.max(X[i + k] * W[i + k], k) + ea.prod(X[i + k] + W[i + k], k),
            ea.exp(X[i] * W[i]),
        ),
    )


def user_combiner():
    merge = ea.comm_reducer(lambda a, b: a + b + a * b, 0.0, "merge")
    k, m = axis(4, "k"), axis(4, "m")
    return ea.compute((4,), lambda i: merge(A[i, k] * B[k, m], (k, m)) * X[i])


def logaddexp():
    def combine(a, b):
        return ea.maximum(a, b) + ea.log1p(ea.exp(-abs(a - b)))

    merge = ea.comm_reducer(combine, -1e30, "logaddexp")
    k = axis(4)
    return ea.compute((4,), lambda i: merge(A[i, k], k))


def sums_of_equal_axes():
    """Two reductions over axes of one name, each in the other's adjoint."""
    k, m = axis(4, "k"), axis(4, "k")
    return ea.compute(
        (4,), lambda i: ea.sum(A[i, k] * B[k, i], k) * ea.sum(ea.exp(C[i, m] * A[m, i]), m)
    )


def guard_with_work():
    k = axis(4)
    return ea.compute(
        (4, 4),
        lambda i, j: ea.select(
            (i >= 1) & (ea.sum(A[i - 1, k] * B[k, j], k) > 0.0),
            C[i - 1, j] * A[i, j] * 3.0,
            B[i, j] * A[j, i],
        ),
    )


def summed_out_adjoint():
    """The adjoint of the inner sum lives over fewer axes than are in scope."""
    k = axis(4)
    return ea.compute(
        (4, 4), lambda i, j: ea.sum(ea.sigmoid(A[i, k] + C[i, k]) * B[k, j], k) * C[i, j]
    )


def triangular_outer():
    k = axis(4)
    return ea.compute(
        (4,),
        lambda i: ea.sum(ea.select(k <= i, ea.exp(X[k] * W[k]) * B[i, k], 0.0), k),
    )


def reduction_condition_with_work():
    k = axis(4)
    return ea.compute(
        (4,),
        lambda i: ea.sum(A[i, k] * B[k, i], k, where=(k >= 1) & (ea.exp(A[k - 1, i]) > 1.0)),
    )


def mixed_dtypes():
    x = tensor("x", 4, dtype="float32")
    return ea.compute((4,), lambda i: ea.cast(x[i] * x[3 - i], "float64") * X[i] / W[i]), [x, X, W]


PROGRAMS = {
    "reduction-condition-with-work": lambda: (reduction_condition_with_work(), [A, B]),
    "mixed-dtypes": mixed_dtypes,
    "matmul": lambda: (matmul(), [A, B]),
    "square": lambda: (ea.compute((6,), lambda i: X[i] * X[i]), [X]),
    "transpose-sum": lambda: (ea.compute((4, 4), lambda i, j: A[i, j] + A[j, i]), [A]),
    "transpose-product": lambda: (ea.compute((4, 4), lambda i, j: A[i, j] * A[j, i]), [A]),
    "gram": lambda: (
        ea.compute((4, 4), lambda i, j: ea.sum(A[i, K] * A[j, K], K)),
        [A],
    ),
    "sigmoid-cube": lambda: (
        ea.compute((4, 4), lambda i, j: ea.sigmoid(A[i, j] * A[i, j] * A[j, i])),
        [A],
    ),
    "diagonal": lambda: (ea.compute((4,), lambda i: A[i, i] * A[3 - i, i]), [A]),
    "reversal": lambda: (ea.compute((6,), lambda i: X[5 - i] * W[i]), [X, W]),
    "reshape": lambda: (ea.compute((16,), lambda i: A[i // 4, i % 4] ** 2), [A]),
    "repeat": lambda: (ea.compute((11,), lambda i: X[i // 2] * X[i % 3]), [X]),
    "concat": lambda: (
        ea.compute((10,), lambda i: ea.select(i < 6, X.get(i), ea.sin(W.get(i - 4)))),
        [X, W],
    ),
    "convolution": convolution,
    "strided-convolution": lambda: convolution(stride=2, pad=2),
    "dilated-convolution": lambda: convolution(stride=2, pad=1, dilation=2),
    "softmax-one-stage": lambda: (softmax_in_one_stage(), [A]),
    "softmax-stages": lambda: (softmax_in_stages(), [A]),
    "layer-norm": lambda: (layer_norm(), [A, tensor("X", 6), W]),
    "deep-sharing": lambda: (deep_sharing(), [X, W]),
    "scan": lambda: (scan(), [X, W]),
    "running-product": lambda: (running_product(), [X]),
    "guarded-reads": lambda: (guarded_reads(), [X, W, V]),
    "guarded-maximum": lambda: (guarded_maximum(), [X, W]),
    "user-combiner": lambda: (user_combiner(), [A, B, X]),
    "logaddexp": lambda: (logaddexp(), [A]),
    "equal-axes": lambda: (sums_of_equal_axes(), [A, B, C]),
    "guard-with-work": lambda: (guard_with_work(), [A, B, C]),
    "summed-out-adjoint": lambda: (summed_out_adjoint(), [A, B, C]),
    "triangular-outer": lambda: (triangular_outer(), [X, W, B]),
    "scalar": lambda: (ea.compute((), lambda: S[()] * ea.exp(S[()])), [S]),
    "broadcast-scalar": lambda: (ea.compute((6,), lambda i: S[()] * X[i] + S[()]), [S, X]),
    "unused-axis": lambda: (ea.compute((6, 3), lambda i, j: ea.exp(X[i]) * W[i]), [X, W]),
    "leaky-relu": lambda: (
        ea.compute((6,), lambda i: ea.select(X[i] * W[i] > 0.0, X[i] * W[i], 0.1 * X[i] * W[i])),
        [X, W],
    ),
    "relu-of-product": lambda: (
        ea.compute((4, 4), lambda i, j: ea.maximum(ea.sum(A[i, K] * B[K, j], K), 0.0)),
        [A, B],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_adjoints_agree_with_differences(name):
    output, inputs = PROGRAMS[name]()
    agrees(output, inputs)


def masked(body):
    """``body(k)``, in the scope of i and k, only where k is far enough from i."""
    return ea.compute(
        (4,), lambda i: ea.sum(body(K) * A[i, K] * B[i, K], K, where=i + 2 <= K), "masked"
    )


def test_infinite_slope_at_masked_points_does_not_leak():
    """No i takes the elements 0 and 1, where the logarithms have an infinite slope."""
    given = {"X": np.array([0.0, 0.0, 0.5, 0.7, 1.0, 1.0]), "W": np.full(6, 0.9)}
    output = masked(lambda k: ea.log(X[k]) + ea.log(W[k]))
    found = reverse(output, [X, W])
    grads = evaluate(found.results, values([output, *found.results], 0, given))
    assert all(np.isfinite(grad).all() for grad in grads)
    assert grads[0][2:4].all()


def test_read_that_is_in_range_where_not_masked():
    agrees(masked(lambda k: X[k - 2] + W[k - 2]), [X, W, A, B])


def test_adjoint_under_a_mask_is_shared_when_nothing_can_leak():
    (stage,) = made_for(masked(lambda k: X[k] + W[k]), [X, W])
    assert extents(stage) == (4,)


REDUCED = {
    "sum": lambda body, k: ea.sum(body, k),
    "max": lambda body, k: ea.max(body, k),
    "min": lambda body, k: ea.min(body, k),
    "prod": lambda body, k: ea.prod(body, k),
}


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("where", ["all", "some", "none"])
@pytest.mark.parametrize("form", ["read", "product", "inner"])
def test_reduction_agrees_with_differences(name, where, form):
    k, m = axis(4, "k"), axis(4, "m")
    bodies = {
        "read": lambda i: A[i, k] * 1.0 if where == "read" else A[k, m],
        "product": lambda i: A[i, k] * B[k, m],
        "inner": lambda i: ea.exp(A[k, m] * X[i]),
    }
    conds = {"all": True, "some": k + m >= 3, "none": k >= 4}

    def body(i):
        found = ea.select(k + m >= 0, bodies[form](i), 0.0) if form == "inner" else bodies[form](i)
        reduced = ea.sum if name == "sum" else getattr(ea, name)
        value = reduced(found, (k, m), where=conds[where])
        empty = where == "none" and name in ("max", "min")
        return X[i] if empty else ea.tanh(value * 0.2) * X[i]

    agrees(ea.compute((4,), body), [A, B, X])


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_product_with_zeros(zeros):
    k = axis(6)
    x = np.array([1.5, -0.5, 2.0, 0.7, 1.1, 0.9])
    x[:zeros] = 0.0
    agrees(ea.compute((2,), lambda i: ea.prod(X[k], k)), [X], {"X": x})


TIED = np.array([1.0, 3.0, 3.0, 0.0, 3.0, -1.0])


@pytest.mark.parametrize(
    ("ties", "expected"),
    [("first", [0, 1, 0, 0, 0, 0]), ("split", [0, 1 / 3, 1 / 3, 0, 1 / 3, 0])],
)
def test_ties_of_a_maximum(ties, expected):
    k = axis(6)
    found = reverse(ea.compute((), lambda: ea.max(X[k], k)), [X], ties=ties)
    (grad,) = evaluate(found.results, {"X": TIED, "head": np.array(1.0)})
    assert grad == pytest.approx(expected)


def test_ties_in_single_precision_are_split_by_what_is_stored():
    k, x, w = axis(6), tensor("x", 6, dtype="float32"), tensor("w", 6, dtype="float32")
    found = reverse(ea.compute((), lambda: ea.max(x[k] * w[k], k)), [x], ties="split")
    arrays = {"x": np.full(6, 0.1, "float32"), "w": np.full(6, 0.3, "float32")}
    (grad,) = evaluate(found.results, arrays | {"head": np.float32(6.0)})
    assert grad == pytest.approx(np.full(6, 0.3), rel=1e-6)


def test_unknown_way_of_ties_is_an_error():
    with pytest.raises(TermError, match="first, split"):
        reverse(scan(), [X], ties="last")


RELU_EDGES = [
    ("select", lambda x: ea.select(x > 0.0, x, 0.0), 0.0),
    ("zero-first", lambda x: ea.maximum(0.0, x), 0.0),
    ("zero-second", lambda x: ea.maximum(x, 0.0), 1.0),
    ("abs", lambda x: abs(x), 0.0),
]


@pytest.mark.parametrize(
    ("form", "expected"), [e[1:] for e in RELU_EDGES], ids=[e[0] for e in RELU_EDGES]
)
def test_value_at_the_kink(form, expected):
    found = reverse(ea.compute((6,), lambda i: form(X[i])), [X])
    (grad,) = evaluate(found.results, {"X": np.zeros(6), "head": np.ones(6)})
    assert grad == pytest.approx(np.full(6, expected))


def test_side_that_is_not_chosen_does_not_leak():
    output = ea.compute((6,), lambda i: ea.select(X[i] > 0.0, ea.log(X[i]) * W[i], W[i]))
    found = reverse(output, [X, W])
    x = np.array([0.0, -1.0, 2.0, 0.0, 1.0, -3.0])
    grads = evaluate(found.results, {"X": x, "W": np.ones(6), "head": np.ones(6)})
    with np.errstate(all="ignore"):
        assert grads[0] == pytest.approx(np.where(x > 0, 1 / x, 0.0))
        assert grads[1] == pytest.approx(np.where(x > 0, np.log(x), 1.0))


def test_other_side_of_a_comparison_holds_for_nan():
    output = ea.compute((6,), lambda i: ea.select(X[i] < 1.0, W[i], V[i]))
    found = reverse(output, [W, V])
    grads = evaluate(found.results, {"X": np.full(6, np.nan), "head": np.ones(6)})
    assert [grad.tolist() for grad in grads] == [[0.0] * 6, [1.0] * 6]


# Data-dependent positions.


def test_gather():
    idx = tensor("idx", 5, dtype="int64")
    output = ea.compute((5, 4), lambda i, j: A[idx[i], j] * ea.exp(A[idx[i], 3 - j]))
    agrees(output, [A], {"idx": np.array([0, 3, 3, 1, 0])})


def test_scatter():
    idx = tensor("idx", 6, dtype="int64")
    output = ea.scatter(
        (4,), (6,), lambda p: (idx[p], X[p] * W[p]), where=lambda p: p >= 1, init=2.0
    )
    agrees(output, [X, W], {"idx": np.array([0, 3, 3, 1, 0, 2])})


def test_scatter_onto_values():
    axes, p = (Axis("i", ea.const(6)),), Axis("p", ea.const(4))
    scatter = ea.scatter((6,), (4,), lambda p: (p + 1, ea.exp(W[p]))).scatters[0]
    assert p in scatter.axes
    output = Stage("added", axes, ea.tanh(X[axes[0]]), (scatter,))
    agrees(output, [X, W])


def test_gather_of_computed_positions_is_no_float_path():
    k = axis(4)
    best = ea.compute((4,), lambda i: ea.argmax(A[i, k], k), "best")
    agrees(ea.compute((4,), lambda i: A[i, best[i]] * B[best[i], i]), [A, B])


# Paths through integers and conditions.

TRUNCATED = ea.compute((4,), lambda i: ea.cast(A[i, i], "int32"), "truncated")
BROKEN = {
    "argmax": lambda i: ea.cast(ea.argmax(A[i, K], K), "float64") * X[i],
    "any": lambda i: ea.cast(ea.any(A[i, K] > 0.0, K), "float64"),
    "comparison": lambda i: ea.cast(A[i, 0] > X[i], "float64"),
    "integer": lambda i: ea.cast(ea.cast(A[i, 0], "int64"), "float64"),
    "integer-stage": lambda i: ea.cast(TRUNCATED[i], "float64") + X[i],
}


@pytest.mark.parametrize("name", BROKEN)
def test_float_path_through_integers_is_an_error_that_marks_it(name):
    with pytest.raises(NotDifferentiableError, match=r"cast(?s:.)*\n *\^+(?s:.)*allow_zero=True"):
        reverse(ea.compute((4,), BROKEN[name]), [A])


@pytest.mark.parametrize("name", BROKEN)
def test_float_path_through_integers_is_zero_when_allowed(name):
    found = reverse(ea.compute((4,), BROKEN[name]), [A], allow_zero=True)
    arrays = values(found.results, 0)
    assert not evaluate(found.results, arrays)[0].any()


def test_integers_that_the_input_is_not_behind_are_no_error():
    idx = tensor("idx", 4, dtype="int64")
    output = ea.compute((4,), lambda i: ea.cast(idx[i], "float64") * X[i])
    agrees(output, [X], {"idx": np.arange(4)})


def test_integers_chosen_by_a_condition_on_the_input_are_no_error():
    side = ea.compute((6,), lambda i: ea.select(X[i] > 0.0, ea.const(1, "int64"), 2), "side")
    output = ea.compute((6,), lambda i: ea.cast(side[i], "float64") * X[i])
    agrees(output, [X])


def test_condition_on_the_input_is_zero_without_asking():
    output = ea.compute((6,), lambda i: ea.select(X[i] > 0.0, W[i], 2.0))
    found = agrees(output, [X, W])
    assert found.results[0].body is ea.const(0.0, "float64")


@pytest.mark.parametrize("op", ["floor", "ceil", "round", "trunc", "sign"])
def test_flat_function_gives_zero(op):
    output = ea.compute((6,), lambda i: getattr(ea, op)(X[i]))
    found = reverse(output, [X])
    assert found.results[0].body is ea.const(0.0, "float64")
    assert found.independent == ()


# Heads.


def test_head_with_a_prefix():
    head = tensor("H", 3, 2, 4, 4)
    found = reverse(matmul(), [A, B], head)
    assert [extents(r) for r in found.results] == [(3, 2, 4, 4)] * 2
    assert found.head is head
    arrays = values(found.results, 3)
    grads = evaluate(found.results, arrays)
    h, a, b = arrays["H"], arrays["A"], arrays["B"]
    assert grads[0] == pytest.approx(np.einsum("pqij,kj->pqik", h, b))
    assert grads[1] == pytest.approx(np.einsum("pqij,ik->pqkj", h, a))


@pytest.mark.parametrize("name", ["matmul", "softmax-one-stage", "summed-out-adjoint", "scan"])
def test_jacobian_times_a_head_is_the_adjoint(name):
    output, inputs = PROGRAMS[name]()
    whole, vjp = reverse(output, inputs, "identity"), reverse(output, inputs)
    assert whole.head is None
    arrays = values(vjp.results, 4)
    rank = len(output.shape)
    jacobians = evaluate(whole.results, arrays)
    for jacobian, expected in zip(jacobians, evaluate(vjp.results, arrays), strict=True):
        assert np.tensordot(arrays["head"], jacobian, rank) == pytest.approx(expected)


def test_jacobian_of_a_scatter():
    idx = tensor("idx", 6, dtype="int64")
    output = ea.scatter((4,), (6,), lambda p: (idx[p], X[p] * W[p]))
    where = np.array([0, 3, 3, 1, 0, 2])
    found = reverse(output, [X], "identity")
    w = np.arange(1.0, 7.0)
    (jacobian,) = evaluate(found.results, {"idx": where, "X": w, "W": w})
    assert jacobian == pytest.approx((np.arange(4)[:, None] == where) * w)


def test_jacobian_reads_no_dense_identity():
    found = reverse(matmul(), [A], "identity")
    assert all(t.name != "head" for t in program(found.results))


def test_jacobian_of_the_output_itself_is_the_identity():
    output = matmul()
    found = reverse(output, [output], "identity")
    (grad,) = evaluate(found.results, {})
    assert grad == pytest.approx(np.eye(16).reshape(4, 4, 4, 4))


def test_jacobian_keeps_its_condition_out_of_shared_adjoints():
    output = ea.compute((5,), lambda i: X[i + 1] * W[i] * ea.select(i >= 1, V[i - 1], 1.0))
    (stage,) = made_for(output, [X, W, V], head="identity")
    assert extents(stage) == (5,)


def test_output_that_is_an_input_array_has_the_head():
    found = reverse(X, [X, W])
    assert found.results[0] is found.head
    assert found.independent == (W,)


def test_head_placeholder_has_the_shape_and_dtype_of_the_output():
    x = tensor("x", 3, 2, dtype="float32")
    found = reverse(ea.compute((2,), lambda i: x[1, i] * 2.0), [x])
    assert isinstance(found.head, Placeholder)
    assert (extents(found.head), found.head.dtype) == ((2,), "float32")


def test_head_name_that_is_taken_gets_a_number():
    x = tensor("head", 3)
    found = reverse(ea.compute((3,), lambda i: ea.exp(x[i])), [x])
    assert found.head is not x
    assert found.head.name != "head"


@pytest.mark.parametrize(
    ("head", "error", "text"),
    [
        (tensor("H", 4, 3), ShapeError, r"\(4, 4\).*\(4, 3\)"),
        (tensor("H", 4), ShapeError, r"\(4, 4\).*\(4\)"),
        (tensor("H", 4, 4, dtype="float32"), DtypeError, "float64.*float32.*Cast"),
        ("ones", ShapeError, "'identity'"),
    ],
)
def test_head_that_does_not_fit_is_an_error_with_both(head, error, text):
    with pytest.raises(error, match=text):
        reverse(matmul(), [A], head)


# Inputs.


def test_input_that_the_output_does_not_depend_on_has_zeros():
    found = agrees(matmul(), [A, X])
    assert found.independent == (X,)
    assert found.results[1].body is ea.const(0.0, "float64")


def test_independent_input_has_the_prefix_too():
    found = reverse(matmul(), [X], tensor("H", 3, 4, 4))
    assert extents(found.results[0]) == (3, 6)


def test_all_float_tensors_are_inputs_when_none_are_given():
    output = softmax_in_stages()
    found = reverse(output)
    assert {t.name for t in found.adjoints} == {"A", "top", "exps", "total", "soft"}
    assert len(found.results) == 4


def test_input_may_be_a_stage_and_its_source():
    middle = ea.compute((6,), lambda i: X[i] * X[i], "middle")
    output = ea.compute((6,), lambda i: ea.exp(middle[i]), "output")
    found = reverse(output, [middle, X])
    x = np.linspace(0.1, 0.6, 6)
    grads = evaluate(found.results, {"X": x, "head": np.ones(6)})
    assert grads[0] == pytest.approx(np.exp(x * x))
    assert grads[1] == pytest.approx(2 * x * np.exp(x * x))


def test_adjoint_that_no_input_needs_is_not_made():
    found = reverse(matmul(), [B])
    assert A not in found.adjoints


def test_integer_input_is_an_error():
    idx = tensor("idx", 4, dtype="int64")
    with pytest.raises(DtypeError, match=r"idx.*int64"):
        reverse(ea.compute((4,), lambda i: X[idx[i]]), [idx])


def test_integer_output_is_an_error():
    with pytest.raises(DtypeError, match=r"floats.*int64"):
        reverse(ea.compute((6,), lambda i: ea.cast(X[i], "int64")), [X])


def test_symbolic_sizes():
    n, m = ea.size("n"), ea.size("m")
    x, w = tensor("x", n, m), tensor("w", m)
    k = axis(m)
    output = ea.compute((n,), lambda i: ea.tanh(ea.sum(x[i, k] * w[k] * w[m - 1 - k], k)))
    found = agrees(output, [x, w])
    assert [r.shape for r in found.results] == [x.shape, w.shape]


def test_single_precision_stays_single():
    x, w = tensor("x", 4, dtype="float32"), tensor("w", 4)
    output = ea.compute((4,), lambda i: ea.cast(ea.exp(x[i]), "float64") * w[i])
    found = agrees(output, [x, w])
    assert [r.dtype for r in found.results] == ["float32", "float64"]


# The form of the adjoints.


def summands(expr):
    stack, found = [expr], []
    while stack:
        node = stack.pop()
        if isinstance(node, Apply) and node.op is ops.ADD:
            stack.extend(reversed(node.args))
        else:
            found.append(node)
    return found


@pytest.mark.parametrize(
    ("name", "count"), [("matmul", 1), ("transpose-sum", 2), ("sigmoid-cube", 2), ("square", 1)]
)
def test_each_read_is_one_summand(name, count):
    output, inputs = PROGRAMS[name]()
    found = summands(reverse(output, inputs).results[0].body)
    assert len(found) == count
    assert all(isinstance(s, Reduce) and s.combiner is SUM for s in found)


def test_summand_has_an_equality_for_each_dimension():
    (summand,) = summands(reverse(matmul(), [A]).results[0].body)
    assert len(summand.axes) == 3
    equalities = [c for c in conjuncts(summand.cond) if c.op is ops.EQ]
    assert len(equalities) == 2


def made_for(output, inputs, word="_adj", **options):
    """The stages of intermediate adjoints."""
    found = program(reverse(output, inputs, **options).results)
    return [t for t in found if word in t.name]


def test_shared_adjoint_is_a_stage_read_by_each_summand():
    output, inputs = PROGRAMS["sigmoid-cube"]()
    (stage,) = made_for(output, inputs)
    (grad,) = reverse(output, inputs).results
    for summand in summands(grad.body):
        assert stage in {n.tensor for n in postorder(summand) if isinstance(n, Read)}


@pytest.mark.parametrize("name", ["transpose-sum", "matmul", "gram", "convolution", "square"])
def test_adjoint_that_costs_nothing_is_no_stage(name):
    assert made_for(*PROGRAMS[name]()) == []


def test_factor_that_a_sum_can_move_out_is_not_shared_over_all_axes():
    k = axis(4)
    output = ea.compute((4, 4), lambda i, j: ea.sum(A[i, k] * B[k, j] * X[k], k))
    assert made_for(output, [A, B, X]) == []


def test_shared_adjoint_is_worked_out_where_it_counts_only():
    point, i, j = tensor("point", 5), axis(5, "i"), axis(5, "j")
    square = (point[i] - point[j]) * (point[i] - point[j])
    loss = ea.compute((), lambda: ea.sum(square, axis=(i, j), where=i < j), "loss")
    (made,) = made_for(loss, [point])
    (value,) = evaluate([made], values([made], 0))
    assert np.array_equal(value != 0, np.triu(np.ones((5, 5), bool), 1))


@pytest.mark.parametrize(("many", "few"), [(8, 4), (4, 8)])
def test_scaled_adjoint_is_shared_unless_its_sums_are_fewer(many, few):
    x, size = tensor("x", few), max(1, many // few)
    output = ea.compute((many,), lambda i: 0.5 * (x[i // size] - x[few - 1 - i // size]))
    assert bool(made_for(output, [x])) == (many <= few)


def test_shared_adjoint_lives_over_the_axes_of_its_node():
    output = ea.compute((4, 4), lambda i, j: (X[i] + W[i]) * A[i, j])
    (stage,) = made_for(output, [X, W])
    assert extents(stage) == (4,)
    assert stage.body.combiner is SUM


def test_forward_value_is_read_from_its_stage():
    output = ea.compute((6,), lambda i: ea.tanh(X[i] * 0.5), "y")
    (grad,) = reverse(output, [X]).results
    nodes = [node for node in postorder(grad.body) if isinstance(node, Apply)]
    assert all(node.op is not ops.TANH for node in nodes)
    assert output in program([grad])


def test_forward_value_is_read_on_the_chosen_side():
    output = ea.compute((6,), lambda i: ea.select(X[i] > 0.0, X[i], ea.exp(X[i])), "elu")
    (grad,) = agrees(output, [X]).results
    nodes = [node for node in postorder(grad.body) if isinstance(node, Apply)]
    assert all(node.op is not ops.EXP for node in nodes)


def test_maximum_works_out_its_position_once():
    k = axis(4)
    output = ea.compute((4,), lambda i: ea.max(A[i, k] * B[i, k], k), "y")
    (stage,) = made_for(output, [A, B], "argmax")
    assert stage.dtype == "int64"
    assert stage.body.combiner is ARGMAX


def test_output_axes_name_the_axes_of_the_adjoint():
    middle = ea.compute((6, 4), lambda row, column: X[row] * A[column, column], "middle")
    output = ea.compute((6, 4), lambda row, column: ea.exp(middle[row, column]))
    found = reverse(output, [middle, A])
    assert [a.name for a in found.results[0].axes] == ["row", "column"]
    assert [a.name for a in found.results[1].axes] == ["i0", "i1"]


def test_summands_by_consumer_add_up():
    output, inputs = PROGRAMS["deep-sharing"]()
    found = reverse(output, inputs)
    arrays = values(found.results, 5)
    for t, parts in found.summands.items():
        assert parts
        total = sum(evaluate(list(parts.values()), arrays))
        assert total == pytest.approx(evaluate([found.adjoints[t]], arrays)[0])
    assert {t.name for t in found.summands[X]} == {"a", "c"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_tensor_has_a_name_of_its_own(name):
    output, inputs = PROGRAMS[name]()
    names = [t.name for t in program(reverse(output, inputs).results)]
    assert len(names) == len(set(names))


def test_names_avoid_those_of_the_users_tensors():
    middle, last = two_stages()
    user = ea.compute((6,), lambda i: W[i] * 2.0, "X_bar")
    found = reverse(last, [X], override={middle: ([X], lambda t, deps, adj: [user])})
    names = [t.name for t in program(found.results)]
    assert len(names) == len(set(names))


def test_result_is_the_same_every_time():
    for name in ("softmax-one-stage", "guard-with-work", "user-combiner"):
        output, inputs = PROGRAMS[name]()
        first, second = (reverse(output, inputs) for _ in range(2))
        assert first.results == second.results


def test_gradient_can_be_differentiated_again():
    output = ea.compute((6,), lambda i: ea.sin(X[i] * W[i]))
    (first,) = reverse(output, [X]).results
    agrees(first, [X, W], values([first], 6), head=tensor("again", 6))


def test_thousands_of_stages_and_deep_bodies():
    stage = X
    for n in range(1500):
        before = stage
        stage = ea.compute((6,), lambda i, before=before: before[i] * 1.0, f"s{n}")
    deep = X[0]
    for _ in range(1500):
        deep = deep * W[1] + X[2]
    found = reverse(ea.compute((6,), lambda i: stage[i] + deep), [X, W])
    assert len(found.adjoints) == 1503


# Derivatives given by the user.


def two_stages():
    middle = ea.compute((6,), lambda i: X[i] * W[i], "middle")
    return middle, ea.compute((6,), lambda i: ea.exp(middle[i]) * W[i], "last")


def tripled(t, deps, adjoint):
    return [ea.compute((6,), lambda i: adjoint[i] * 3.0, f"for_{d.name}") for d in deps]


def test_override_replaces_what_a_tensor_passes_on():
    middle, last = two_stages()
    found = reverse(last, [X, W], override={middle: ([X], tripled)})
    x, w, h = (np.linspace(*span, 6) for span in ((0.1, 1), (1, 2), (-1, 1)))
    grads = evaluate(found.results, {"X": x, "W": w, "head": h})
    assert grads[0] == pytest.approx(3 * h * np.exp(x * w) * w)
    assert grads[1] == pytest.approx(h * np.exp(x * w))


def test_override_may_skip_tensors_between():
    middle, last = two_stages()
    found = reverse(last, [X, middle], override={last: ([X], tripled)})
    assert middle not in found.summands or found.summands[middle] == {}
    h = np.linspace(0, 1, 6)
    assert evaluate(found.results[:1], {"head": h})[0] == pytest.approx(3 * h)


def test_override_that_gives_none_blocks_the_gradient():
    middle, last = two_stages()
    found = reverse(last, [X, W], override={middle: ([X, W], lambda t, deps, adj: [None, None])})
    assert found.results[0].body is ea.const(0.0, "float64")
    assert found.independent == ()


def test_override_of_the_output_gets_the_head():
    _, last = two_stages()
    seen = []
    reverse(last, [X], override={last: ([X], lambda t, d, adj: seen.append(adj) or [adj])})
    assert [t.name for t in seen] == ["head"]


def test_manual_derivative_replaces_one_edge():
    middle, last = two_stages()
    found = reverse(last, [X, W], manual={(middle, W): lambda out, inp, head: head})
    x, w, h = (np.linspace(*span, 6) for span in ((0.1, 1), (1, 2), (-1, 1)))
    grads = evaluate(found.results, {"X": x, "W": w, "head": h})
    bar = h * np.exp(x * w) * w
    assert grads[0] == pytest.approx(bar * w)
    assert grads[1] == pytest.approx(bar + h * np.exp(x * w))


@pytest.mark.parametrize("key", ["inp", "out", "exact-first"])
def test_manual_wildcards(key):
    middle, last = two_stages()
    calls = []

    def rule(out, inp, head):
        calls.append((out.name, inp.name))
        return head

    keys = {
        "inp": [(None, W)],
        "out": [(last, None)],
        "exact-first": [(last, None), (last, middle)],
    }
    reverse(last, [X, W], manual={k: rule for k in keys[key]})
    expected = {
        "inp": [("last", "W"), ("middle", "W")],
        "out": [("last", "middle"), ("last", "W")],
        "exact-first": [("last", "middle"), ("last", "W")],
    }
    assert calls == expected[key]


def test_unused_entries_are_warned_of():
    last = two_stages()[1]
    rule = {(X, W): lambda out, inp, head: head}
    with pytest.warns(UserWarning, match=r"manual\[X, W\] was not used"):
        reverse(last, [X], manual=rule)
    with pytest.warns(UserWarning, match=r"override\[V\] was not used"):
        reverse(last, [X], override={V: ([X], tripled)})


def test_used_entries_are_not_warned_of():
    middle, last = two_stages()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reverse(last, [X], override={middle: ([X], tripled)})


@pytest.mark.parametrize("way", ["override", "manual"])
def test_contribution_of_a_wrong_shape_names_the_entry(way):
    middle, last = two_stages()
    wrong = tensor("wrong", 5)
    entries = {
        "override": {"override": {middle: ([X], lambda t, deps, adj: [wrong])}},
        "manual": {"manual": {(middle, X): lambda out, inp, head: wrong}},
    }
    with pytest.raises(ShapeError, match=rf"{way}\[middle.*\(6\).*wrong.*\(5\)"):
        reverse(last, [X], **entries[way])


def test_contribution_of_a_wrong_dtype_is_an_error():
    middle, last = two_stages()
    wrong = tensor("wrong", 6, dtype="float32")
    with pytest.raises(DtypeError, match=r"override\[middle\].*float64.*float32"):
        reverse(last, [X], override={middle: ([X], lambda t, deps, adj: [wrong])})


def test_override_with_a_missing_contribution_is_an_error():
    middle, last = two_stages()
    with pytest.raises(ShapeError, match=r"override\[middle\].*2.*found 1"):
        reverse(last, [X], override={middle: ([X, W], lambda t, deps, adj: [adj])})


def test_override_in_a_circle_is_an_error():
    middle, last = two_stages()
    with pytest.raises(ShapeError, match="own dependencies"):
        reverse(last, [X], override={middle: ([last], tripled)})


def test_override_with_a_prefix_gets_it_in_front():
    middle, last = two_stages()
    found = reverse(
        last, [X], tensor("H", 2, 6), override={middle: ([X], lambda t, deps, adj: [adj])}
    )
    assert extents(found.results[0]) == (2, 6)
