"""The evaluator against plain Python, element by element."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eqsatad as ea
from eqsatad.errors import ArgumentError, OutOfBoundsError, ShapeError
from eqsatad.terms import evaluate as module
from eqsatad.terms.nodes import (
    FLOATS,
    Apply,
    Axis,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Scatter,
    Select,
    Size,
    Stage,
)
from eqsatad.terms.ops import OPS
from tests.index_terms import AXES, values

X = ea.placeholder((6,), name="x")
Y = ea.placeholder((6,), name="y")
SAMPLES = (-50.0, -2.5, -1.5, -1.0, -0.5, 0.0, 0.3, 0.5, 1.0, 1.5, 2.0, 50.0)


def value(fn, shape=(), **arrays):
    """The array of the stage of ``fn``, computed in float64."""
    return ea.evaluate([ea.compute(shape, fn, name="out")], arrays, dtype="float64")[0]


def scalar(name, *args):
    """The operation called ``name`` on float64 numbers, through the evaluator."""
    tensors = [ea.placeholder((), name=f"p{n}", dtype="float64") for n in range(len(args))]
    stage = Stage("out", (), Apply(OPS[name], tuple(t[()] for t in tensors)))
    return ea.evaluate([stage], {f"p{n}": np.array(arg) for n, arg in enumerate(args)})[0]


PLAIN = {
    "neg": lambda x: -x,
    "abs": abs,
    "sign": lambda x: (x > 0) - (x < 0),
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "rsqrt": lambda x: 1 / math.sqrt(x) if x > 0 else (math.inf if x == 0 else math.nan),
    "exp": math.exp,
    "expm1": math.expm1,
    "log": lambda x: math.log(x) if x > 0 else (-math.inf if x == 0 else math.nan),
    "log1p": lambda x: math.log1p(x) if x > -1 else (-math.inf if x == -1 else math.nan),
    "log2": lambda x: math.log2(x) if x > 0 else (-math.inf if x == 0 else math.nan),
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": lambda x: math.asin(x) if abs(x) <= 1 else math.nan,
    "acos": lambda x: math.acos(x) if abs(x) <= 1 else math.nan,
    "atan": math.atan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)) if x < 30 else x,
    "erf": math.erf,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "trunc": math.trunc,
}
PLAIN_PAIRS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: math.nan if a < 0 and b != int(b) else float(a) ** b,
    "atan2": math.atan2,
}
INTEGER_PAIRS = {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b}
TESTS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
LOGIC = {"and": lambda a, b: a and b, "or": lambda a, b: a or b, "not": lambda a: not a}


def test_every_operation_has_a_plain_meaning_here():
    assert {*PLAIN, *PLAIN_PAIRS, *INTEGER_PAIRS, *TESTS, *LOGIC} == set(OPS)


@pytest.mark.parametrize("name", PLAIN)
def test_function_agrees_with_the_standard_library(name):
    found = [scalar(name, x) for x in SAMPLES]
    # numpy and the C library may differ in the last bits.
    np.testing.assert_allclose(found, [PLAIN[name](x) for x in SAMPLES], rtol=1e-13, atol=0)


@pytest.mark.parametrize("name", [*PLAIN_PAIRS, *TESTS])
def test_operation_on_pairs_agrees_with_python(name):
    plain = {**PLAIN_PAIRS, **TESTS}[name]
    pairs = [(a, b) for a in SAMPLES[1:-1] for b in (-2.0, -0.5, 0.5, 1.0, 3.0) if a or b > 0]
    found = [scalar(name, a, b) for a, b in pairs]
    np.testing.assert_allclose(found, [plain(a, b) for a, b in pairs], rtol=1e-13, atol=0)


@pytest.mark.parametrize("name", INTEGER_PAIRS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "index"])
def test_integer_division_is_floor_division(name, dtype):
    for a in range(-7, 8):
        for b in (1, 2, 3, 5):
            expr = Apply(OPS[name], (Const(a, dtype), Const(b, dtype)))
            stage = Stage("out", (), Cast(expr, "int64"))
            assert ea.evaluate([stage], {})[0] == INTEGER_PAIRS[name](a, b)


@pytest.mark.parametrize("name", LOGIC)
def test_logic_agrees_with_python(name):
    for a in (False, True):
        for b in (False, True):
            args = (a, b)[: OPS[name].arity]
            stage = Stage("out", (), Apply(OPS[name], tuple(Const(v, "bool") for v in args)))
            assert ea.evaluate([stage], {})[0] == LOGIC[name](*args)


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("sigmoid", 1000.0, 1.0),
        ("sigmoid", -1000.0, 0.0),
        ("sigmoid", -700.0, math.exp(-700)),
        ("softplus", 1000.0, 1000.0),
        ("softplus", -1000.0, 0.0),
        ("round", 0.5, 0.0),
        ("round", 2.5, 2.0),
        ("round", -1.5, -2.0),
        ("sign", 0.0, 0.0),
        ("floor", -0.5, -1.0),
    ],
)
def test_edge_value(name, x, expected):
    assert scalar(name, x) == pytest.approx(expected, rel=1e-13)


def points(axes, point):
    """Every assignment of ``axes`` in row-major order, on top of ``point``."""
    if not axes:
        return [point]
    first, *rest = axes
    return [full for n in range(extent(first)) for full in points(rest, {**point, first: n})]


def extent(axis):
    return axis.extent.value


def plain(expr: Expr, point, arrays):
    """The value of ``expr`` at ``point`` by plain recursion over numbers."""

    def of(part):
        return plain(part, point, arrays)

    match expr:
        case Const(number, _):
            return number
        case Axis():
            return point[expr]
        case Select(cond, then, other):
            return of(then) if of(cond) else of(other)
        case Read(tensor, indices):
            place = tuple(map(of, indices))
            assert all(0 <= p < n for p, n in zip(place, arrays[tensor.name].shape, strict=True))
            return float(arrays[tensor.name][place])
        case Cast(arg, dtype):
            return float(of(arg)) if dtype in FLOATS else int(of(arg))
        case Reduce(combiner, axes, cond, body):
            found = [plain(body, p, arrays) for p in points(axes, point) if plain(cond, p, arrays)]
            return {"sum": math.fsum, "max": lambda v: max(v, default=-math.inf)}[combiner.name](
                found
            )
        case Apply(op, args):
            tables = {**PLAIN, **PLAIN_PAIRS, **INTEGER_PAIRS, **TESTS, **LOGIC}
            return tables[op.name](*map(of, args))
    raise AssertionError(expr)


@given(values([X, Y]), st.integers(0, 2**32 - 1))
def test_random_values_agree_with_plain_recursion(expr, seed):
    rng = np.random.default_rng(seed)
    arrays = {"x": rng.normal(size=6), "y": rng.normal(size=6)}
    found = ea.evaluate([Stage("out", AXES, expr)], arrays, dtype="float64")[0]
    for point in points(AXES, {}):
        expected = plain(expr, point, arrays)
        # Both work in float64; numpy's tanh may differ in the last bits, products enlarge that.
        assert found[tuple(point[a] for a in AXES)] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(values([X, Y]), st.sampled_from(["sum", "max"]), st.integers(0, 2**32 - 1))
def test_random_reductions_agree_with_plain_recursion(expr, name, seed):
    rng = np.random.default_rng(seed)
    arrays = {"x": rng.normal(size=6), "y": rng.normal(size=6)}
    i, j, k = AXES
    body = getattr(ea, name)(expr, axis=(k, j), where=(k + j) % 3 < 2 - i)
    found = ea.evaluate([Stage("out", (i,), body)], arrays, dtype="float64")[0]
    for point in points([i], {}):
        expected = plain(body, point, arrays)
        assert found[point[i]] == pytest.approx(expected, rel=1e-9, abs=1e-9)


K = ea.reduce_axis((0, 6), name="k")


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda: ea.sum(X[K], axis=K, where=K > 9), 0.0),
        (lambda: ea.prod(X[K], axis=K, where=K > 9), 1.0),
        (lambda: ea.max(X[K], axis=K, where=K > 9), -math.inf),
        (lambda: ea.min(X[K], axis=K, where=K > 9), math.inf),
        (lambda: ea.argmax(X[K], axis=K, where=K > 9), 0),
        (lambda: ea.argmin(X[K], axis=K, where=K > 9), 0),
        (lambda: ea.any(X[K] > 0, axis=K, where=K > 9), False),
        (lambda: ea.all(X[K] > 9, axis=K, where=K > 9), True),
        (lambda: ea.sum(X[K], axis=K), 9.0),
        (lambda: ea.sum(X[K], axis=K, init=1), 10.0),
        (lambda: ea.prod(X[K], axis=K, where=K < 3, init=2), 24.0),
        (lambda: ea.max(X[K], axis=K, init=7), 7.0),
        (lambda: ea.min(X[K], axis=K, where=K > 2), -4.0),
        (lambda: ea.argmax(X[K], axis=K), 2),
        (lambda: ea.argmax(X[K], axis=K, where=K > 2), 4),
        (lambda: ea.argmin(X[K], axis=K, where=K < 3), 1),
        (lambda: ea.any(X[K] > 5, axis=K), True),
        (lambda: ea.all(X[K] > 0, axis=K), False),
        (lambda: ea.argmax(-ea.const(math.inf), axis=K, where=K > 3), 4),
        (lambda: ea.sum(1.0, axis=K), 6.0),
    ],
)
def test_reduction(fn, expected):
    x = np.array([2.0, 1.0, 6.0, -4.0, 3.0, 1.0])
    assert value(fn, x=x) == expected


def test_empty_maximum_of_integers_is_the_least_integer():
    for dtype in ("int32", "int64"):
        x = ea.placeholder((6,), name="x", dtype=dtype)
        stage = ea.compute((), lambda x=x: ea.max(x[K], axis=K, where=K > 9))
        found = ea.evaluate([stage], {"x": np.zeros(6, dtype)})[0]
        assert (found, found.dtype) == (np.iinfo(dtype).min, dtype)


def test_argmax_is_row_major_over_its_axes_in_order():
    a = ea.placeholder((3, 4), name="a")
    i, j = ea.reduce_axis((0, 3), name="i"), ea.reduce_axis((0, 4), name="j")
    array = np.zeros((3, 4))
    array[1, 2] = array[2, 0] = 5
    assert value(lambda: ea.argmax(a[i, j], axis=(i, j)), a=array) == 1 * 4 + 2
    assert value(lambda: ea.argmax(a[i, j], axis=(j, i)), a=array) == 0 * 3 + 2


def test_user_combiner_folds_from_the_identity():
    combine = ea.comm_reducer(lambda a, b: a + b + a * b, 0, name="plus_times")
    x = np.array([0.5, 1.0, 2.0, 0.0, 3.0, 1.0])
    expected = np.prod(1 + x) - 1
    assert value(lambda: combine(X[K], axis=K), x=x) == pytest.approx(expected, rel=1e-12)
    part = np.prod(1 + x[:3]) * 3 - 1
    found = value(lambda: combine(X[K], axis=K, where=K < 3, init=2), x=x)
    assert found == pytest.approx(part, rel=1e-12)


def test_select_reads_only_what_it_chooses():
    found = value(lambda i: ea.select(i > 0, X[i - 1], -1), (6,), x=np.arange(6.0))
    assert found.tolist() == [-1, 0, 1, 2, 3, 4]


def unchecked(axes, body, **arrays):
    return ea.evaluate([Stage("out", axes, body)], arrays)[0]


def test_real_read_outside_is_an_error_that_names_the_place():
    i = Axis("i", Const(6, "index"))
    with pytest.raises(OutOfBoundsError) as caught:
        unchecked((i,), X[0] + X[i + 1], x=np.zeros(6))
    assert "at i = 5" in str(caught.value)
    assert "x[i + 1]" in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        lambda i, k: ea.sum(X[k + i], axis=k, where=k + i < 6),
        lambda i, k: ea.select((i < 5) & (X[i + 1] > 0), 1.0, 0.0),
        lambda i, k: ea.select((i > 4) | (X[i + 1] > 0), 1.0, 0.0),
        lambda i, k: ea.select(i < 0, X[i + 99], 0.0),
    ],
)
def test_read_outside_that_is_not_needed_is_fine(body):
    i, k = Axis("i", Const(6, "index")), Axis("k", Const(6, "index"))
    assert unchecked((i,), body(i, k), x=np.ones(6)).shape == (6,)


def test_data_dependent_read_outside_is_an_error():
    index = ea.placeholder((6,), name="p", dtype="int32")
    stage = ea.compute((6,), lambda i: X[index[i]])
    good = np.array([5, 4, 3, 2, 1, 0])
    assert ea.evaluate([stage], {"x": np.arange(6.0), "p": good})[0].tolist() == good.tolist()
    with pytest.raises(OutOfBoundsError):
        ea.evaluate([stage], {"x": np.arange(6.0), "p": good - 1})


def test_scatter_adds_every_point_where_its_condition_holds():
    index = ea.placeholder((6,), name="p", dtype="int32")
    stage = ea.scatter((3,), (6,), lambda s: (index[s], X[s]), where=lambda s: s < 5, init=1)
    p, x = np.array([0, 2, 0, 0, 2, 99]), np.arange(6.0)
    assert ea.evaluate([stage], {"x": x, "p": p})[0].tolist() == [1 + 0 + 2 + 3, 1, 1 + 1 + 4]
    with pytest.raises(OutOfBoundsError):
        ea.evaluate([stage], {"x": x, "p": p + 1})


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "bool"])
def test_result_has_the_dtype_of_its_tensor(dtype):
    x = ea.placeholder((2,), name="x", dtype=dtype)
    stage = ea.compute((2,), lambda i: x[1 - i])
    found = ea.evaluate([stage], {"x": np.array([0, 1], dtype)})[0]
    assert (found.dtype, found.tolist()) == (dtype, [1, 0])


def test_bfloat16_holds_bfloat16_values():
    x = ea.placeholder((3,), name="x", dtype="bfloat16")
    stage = ea.compute((3,), lambda i: x[i])
    # 1 + 2**-8 is halfway between 1 and 1 + 2**-7: ties go to the even one.
    given = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-12])
    assert ea.evaluate([stage], {"x": given})[0].tolist() == [1, 1 + 2**-6, 1 + 2**-7]


def test_stages_are_rounded_unless_float64_is_asked_for():
    stage = ea.compute((), lambda: X[0] + 1e-9)
    x = {"x": np.ones(6)}
    assert ea.evaluate([stage], x)[0] == 1
    assert ea.evaluate([stage], x, dtype="float64")[0] == 1 + 1e-9


def test_cast_truncates_and_tests_for_zero():
    for number, expected in ((2.7, 2), (-2.7, -2)):
        assert value(lambda n=number: ea.cast(ea.const(n), "int32")) == expected
    assert value(lambda: ea.cast(ea.const(0.5), "bool"))


def test_sizes_come_from_arrays_or_are_given():
    n = Size("n")
    x = ea.placeholder((n,), name="x")
    stage = ea.compute((2 * n,), lambda i: x[i // 2])
    assert ea.evaluate([stage], {"x": np.arange(2.0)})[0].tolist() == [0, 0, 1, 1]
    free = ea.compute((n,), lambda i: ea.cast(i, "float32"))
    assert ea.evaluate([free], {}, {"n": 3})[0].tolist() == [0, 1, 2]
    with pytest.raises(ArgumentError):
        ea.evaluate([free], {})


def test_wrong_arrays_are_refused():
    stage = ea.compute((6,), lambda i: X[i])
    with pytest.raises(ArgumentError):
        ea.evaluate([stage], {})
    for shape in ((5,), (6, 1)):
        with pytest.raises(ShapeError):
            ea.evaluate([stage], {"x": np.zeros(shape)})


def test_empty_tensors_have_no_elements():
    x = ea.placeholder((0, 3), name="x")
    stage = ea.compute((0, 3), lambda i, j: x[i, j] + 1)
    k = ea.reduce_axis((0, 0), name="k")
    total = ea.compute((3,), lambda j: ea.sum(x[k, j], axis=k))
    array = {"x": np.zeros((0, 3))}
    assert ea.evaluate([stage], array)[0].shape == (0, 3)
    assert ea.evaluate([total], array)[0].tolist() == [0, 0, 0]


def test_boxes_do_not_change_the_result(monkeypatch):
    a = ea.placeholder((7, 9), name="a")
    k = ea.reduce_axis((0, 9), name="k")
    stage = ea.compute((7, 5), lambda i, j: ea.sum(a[i, k] * a.get(k, j + 1), axis=k, where=k <= i))
    spread = ea.scatter((7,), (7, 9), lambda i, j: ((i * j) % 7, a[i, j]))
    arrays = {"a": np.random.default_rng(3).normal(size=(7, 9))}
    whole = ea.evaluate([stage, spread], arrays)
    monkeypatch.setattr(module, "GRID_POINTS", 20)
    for left, right in zip(whole, ea.evaluate([stage, spread], arrays), strict=True):
        # The same float64 sums in another grouping, rounded to float32.
        np.testing.assert_allclose(left, right, rtol=1e-6)


def test_scatter_node_takes_its_own_axes():
    s = Axis("s", Const(4, "index"))
    i = Axis("i", Const(2, "index"))
    stage = Stage("out", (i,), Const(0.0, "float32"), (Scatter((s,), s > 0, (s % 2,), X[s]),))
    assert ea.evaluate([stage], {"x": np.arange(6.0)})[0].tolist() == [2, 1 + 3]


def test_program_of_many_stages_is_evaluated_in_order():
    stage = X
    for n in range(300):
        stage = ea.compute((6,), lambda i, before=stage: before[5 - i] + 1, name=f"s{n}")
    assert ea.evaluate([stage], {"x": np.arange(6.0)})[0].tolist() == [300.0 + n for n in range(6)]
