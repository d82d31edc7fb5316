"""The CPU backend: every operation on every dtype, tiles, threads, the cache of objects."""

import math

import numpy as np
import pytest

from eqsatad.backends import build, cache
from eqsatad.backends.kernel import from_bits, to_bits
from eqsatad.loops.nest import For, LoopProgram, Nest, Store
from eqsatad.terms import ops
from eqsatad.terms.nodes import (
    Apply,
    Axis,
    Cast,
    Const,
    Placeholder,
    Read,
    Size,
    Stage,
)

NAN, INF = math.nan, math.inf


@pytest.fixture(autouse=True, scope="session")
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(tmp_path_factory.mktemp("objects")))
        yield


def index(number):
    return Const(number, "index")


def stage(name, axes, dtype):
    """A stage of which only the shape and dtype matter."""
    zero = Const(False if dtype == "bool" else 0.0 if "float" in dtype else 0, dtype)
    return Stage(name, tuple(axes), zero)


def mapped(formula, *dtypes, length=None, wanted=None):
    """The program ``y[i] = formula(a[i], b[i], ...)``."""
    extent = Size("n") if length is None else index(length)
    axis = Axis("i", extent)
    inputs = tuple(
        Placeholder(name, (extent,), dtype) for name, dtype in zip("abc", dtypes, strict=False)
    )
    value = formula(*(Read(tensor, (axis,)) for tensor in inputs))
    output = stage("y", [axis], wanted or value.dtype)
    loop = For(axis, index(0), extent, (Store(output, (axis,), value),), True)
    sizes = (extent,) if length is None else ()
    return LoopProgram(inputs, (output,), (), sizes, (Nest(output, (loop,)),))


def applied(op):
    return lambda *args: Apply(op, args)


def run(formula, *arrays, dtypes=None, exact=False):
    dtypes = dtypes or [array.dtype.name for array in arrays]
    return build(mapped(formula, *dtypes), "cpu", exact=exact)(*arrays)[0]


def ulps(got, exact, dtype):
    """The largest distance in units of the last place of the exact result."""
    with np.errstate(all="ignore"):
        near = exact.astype(dtype)
        same = (got == near) | (np.isnan(got) & np.isnan(near))
        unit = np.spacing(np.abs(near)).astype(np.longdouble)
        error = np.abs(got.astype(np.longdouble) - exact) / unit
    return float(np.where(same, 0, np.where(np.isnan(error), np.inf, error)).max())


def exact_sigmoid(x):
    return np.where(x >= 0, 1, np.exp(np.minimum(x, 0))) / (1 + np.exp(-np.abs(x)))


def exact_softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-30, -1e-30, 1e30, -1e30]
ORDINARY = np.concatenate([np.linspace(-20, 20, 997), np.geomspace(1e-12, 1e12, 401)])
# Of each function of one number: the exact value, and the stated bound in units of last place.
UNARY = {
    ops.NEG: (np.negative, 0),
    ops.ABS: (np.abs, 0),
    ops.SIGN: (np.sign, 0),
    ops.SQRT: (np.sqrt, 0.5),
    ops.RSQRT: (lambda x: 1 / np.sqrt(x), 1.5),
    ops.EXP: (np.exp, 2.5),
    ops.EXPM1: (np.expm1, 2.5),
    ops.LOG: (np.log, 2.5),
    ops.LOG1P: (np.log1p, 2.5),
    ops.LOG2: (np.log2, 2.5),
    ops.SIN: (np.sin, 1),
    ops.COS: (np.cos, 1),
    ops.TAN: (np.tan, 1),
    ops.ASIN: (np.arcsin, 1),
    ops.ACOS: (np.arccos, 1),
    ops.ATAN: (np.arctan, 1),
    ops.SINH: (np.sinh, 2),
    ops.COSH: (np.cosh, 2),
    ops.TANH: (np.tanh, 4),
    ops.SIGMOID: (exact_sigmoid, 2.5),
    ops.SOFTPLUS: (exact_softplus, 4),
    ops.ERF: (np.vectorize(math.erf, otypes=[np.longdouble]), 2),
    ops.FLOOR: (np.floor, 0),
    ops.CEIL: (np.ceil, 0),
    ops.ROUND: (np.rint, 0),
    ops.TRUNC: (np.trunc, 0),
}
BINARY = {
    ops.ADD: (np.add, 0.5),
    ops.SUB: (np.subtract, 0.5),
    ops.MUL: (np.multiply, 0.5),
    ops.DIV: (np.divide, 0.5),
    ops.MIN: (np.minimum, 0),
    ops.MAX: (np.maximum, 0),
    ops.POW: (np.power, 1),
    ops.ATAN2: (np.arctan2, 2),
}
COMPARE = {
    ops.EQ: np.equal,
    ops.NE: np.not_equal,
    ops.LT: np.less,
    ops.LE: np.less_equal,
    ops.GT: np.greater,
    ops.GE: np.greater_equal,
}
WHOLE = {
    ops.ADD: np.add,
    ops.SUB: np.subtract,
    ops.MUL: np.multiply,
    ops.MIN: np.minimum,
    ops.MAX: np.maximum,
    ops.FLOORDIV: np.floor_divide,
    ops.MOD: np.mod,
}


def named(table):
    return [pytest.param(*row, id=row[0].name) for row in table]


def test_every_operation_has_a_row_here():
    logic = {ops.AND, ops.OR, ops.NOT}
    assert {*UNARY, *BINARY, *COMPARE, *WHOLE, *logic} == set(ops.OPS.values())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("op", "row"), named(UNARY.items()))
def test_function_is_within_its_bound(op, row, dtype):
    exact, bound = row
    x = np.concatenate([SPECIAL, ORDINARY, -ORDINARY]).astype(dtype)
    with np.errstate(all="ignore"):
        expected = exact(x.astype(np.longdouble))
    assert ulps(run(applied(op), x), expected, dtype) <= bound


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", [ops.EXP, ops.EXPM1, ops.SIGMOID, ops.SOFTPLUS, ops.TANH])
def test_exponentials_hold_their_bound_to_the_ends_of_the_range(op, dtype):
    exact, bound = UNARY[op]
    end = 110 if dtype == "float32" else 760
    x = np.linspace(-end, end, 20011).astype(dtype)
    with np.errstate(all="ignore"):
        expected = exact(x.astype(np.longdouble))
    assert ulps(run(applied(op), x), expected, dtype) <= bound


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", [ops.LOG, ops.LOG2, ops.LOG1P])
def test_logarithms_hold_their_bound_near_one_and_for_subnormal_numbers(op, dtype):
    exact, bound = UNARY[op]
    least = float(np.finfo(dtype).smallest_subnormal)
    most = float(np.finfo(dtype).max)
    x = np.concatenate(
        [
            1 + np.linspace(-0.01, 0.01, 3001),
            np.geomspace(least, most, 5003, dtype=np.longdouble),
        ]
    ).astype(dtype)
    with np.errstate(all="ignore"):
        expected = exact(x.astype(np.longdouble))
    assert ulps(run(applied(op), x), expected, dtype) <= bound


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("op", "row"), named(BINARY.items()))
def test_operation_on_two_floats_is_within_its_bound(op, row, dtype):
    exact, bound = row
    values = np.array([*SPECIAL, *np.linspace(-9, 9, 37), *np.geomspace(1e-3, 1e3, 21)], dtype)
    a, b = (array.ravel().copy() for array in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = exact(a.astype(np.longdouble), b.astype(np.longdouble))
    assert ulps(run(applied(op), a, b), expected, dtype) <= bound


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool"])
@pytest.mark.parametrize(("op", "exact"), named(COMPARE.items()))
def test_comparison(op, exact, dtype):
    values = np.array([0, 1] if dtype == "bool" else SPECIAL if "f" in dtype else [-2, 0, 3], dtype)
    a, b = (array.ravel().copy() for array in np.meshgrid(values, values))
    assert np.array_equal(run(applied(op), a, b), exact(a, b))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(("op", "exact"), named(WHOLE.items()))
def test_operation_on_integers_wraps_and_never_traps(op, exact, dtype):
    limits = np.iinfo(dtype)
    values = np.array([limits.min, limits.max, -7, -2, -1, 0, 1, 2, 3, 8, 1000], dtype)
    a, b = (array.ravel().copy() for array in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        assert np.array_equal(run(applied(op), a, b), exact(a, b))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("op", "exact"), named([(ops.NEG, np.negative), (ops.ABS, np.abs), (ops.SIGN, np.sign)])
)
def test_function_of_an_integer(op, exact, dtype):
    values = np.array([-(2**30), -3, -1, 0, 1, 7], dtype)
    assert np.array_equal(run(applied(op), values), exact(values))


def test_logic():
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert np.array_equal(run(applied(ops.AND), a, b), a & b)
    assert np.array_equal(run(applied(ops.OR), a, b), a | b)
    assert np.array_equal(run(applied(ops.NOT), a), ~a)


@pytest.mark.parametrize(("op", "row"), named(UNARY.items()))
def test_half_precision_is_float32_rounded_once(op, row):
    x = np.array([*SPECIAL[:11], 3.25, 100.0, 6.0e4, 6.0e-8], "float16")
    with np.errstate(all="ignore"):
        expected = row[0](x.astype(np.longdouble)).astype("float16")
    got = run(applied(op), x)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=6e-8)


@pytest.mark.parametrize(("op", "row"), named(BINARY.items()))
def test_bfloat16_is_float32_rounded_once(op, row):
    values = from_bits(to_bits(np.array([NAN, INF, -INF, 0, 1, -1.5, 3, 1e30, 1e-30], "float32")))
    a, b = (array.ravel().copy() for array in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        wide = row[0](a.astype("float64"), b.astype("float64")).astype("float32")
    got = run(applied(op), to_bits(a), to_bits(b), dtypes=["bfloat16", "bfloat16"])
    np.testing.assert_array_equal(got, from_bits(to_bits(wide)))


CASTS = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "bool"]


@pytest.mark.parametrize("target", CASTS)
@pytest.mark.parametrize("source", CASTS)
def test_cast(source, target):
    stored = {"bfloat16": "float32"}
    values = np.array(
        [0, 1, 0, 1] if source == "bool" else [0, 1, 3, 100], stored.get(source, source)
    )
    got = run(lambda a: Cast(a, target), values, dtypes=[source])
    assert np.array_equal(got, values.astype(stored.get(target, target)))


def test_cast_of_a_fraction_to_an_integer_drops_it():
    x = np.array([2.9, -2.9, 0.5, -0.5], "float32")
    assert run(lambda a: Cast(a, "int32"), x).tolist() == [2, -2, 0, 0]


def test_cast_of_a_float_that_no_integer_is_near_gives_the_nearest():
    x = np.array([1e30, -1e30, NAN], "float64")
    assert run(lambda a: Cast(a, "int32"), x).tolist() == [2**31 - 1, -(2**31), 0]


@pytest.mark.parametrize("exponent", [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.5, 2.5])
@pytest.mark.parametrize("exact", [False, True])
def test_power_with_a_literal_exponent(exponent, exact):
    x = np.array([0.1, 1.7, 3.3, 1e5, 0.0, INF, NAN], "float64")
    got = run(lambda a: Apply(ops.POW, (a, Const(exponent, "float64"))), x, exact=exact)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, x**exponent, rtol=4e-16)
