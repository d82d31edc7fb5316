"""Elementary functions of the CPU backend: every bound, special value, storage and kind of CPU."""

import re

import numpy as np
import pytest

from benchmarks import polynomials
from benchmarks.functions import LONG, SUBJECTS, WIDER, bound, errors, kernel, points
from eqsatad import cache
from eqsatad.backends import build
from eqsatad.backends.cpu import Launcher
from eqsatad.backends.cpu.code.source import Machine, write
from eqsatad.backends.cpu.functions.circular import FAR
from eqsatad.backends.cpu.functions.polynomials import POLYNOMIALS
from eqsatad.backends.cpu.functions.table import FUNCTIONS
from eqsatad.backends.cpu.runtime.machine import load
from eqsatad.backends.storage import from_bits, to_bits
from eqsatad.loops.lower import lower
from eqsatad.terms import builders as ea
from eqsatad.terms import ops
from eqsatad.terms.nodes import Apply
from tests.loop_programs import mapped, place, reduced

COUNT = 40_000
NAN, INF = float("nan"), float("inf")
EVERY = [pytest.param(op, id=op.name) for op in FUNCTIONS]
SINGLE = [pytest.param(op, id=op.name) for op in FUNCTIONS if op.arity == 1]
CIRCULAR = [pytest.param(op, id=op.name) for op in (ops.SIN, ops.COS, ops.TAN)]


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(tmp_path_factory.mktemp("objects")))
        yield


def exact(op, *arrays):
    with np.errstate(all="ignore"):
        return SUBJECTS[op].exact(*(array.astype(LONG) for array in arrays))


def check(op, dtype, arrays, got):
    """Raises if an error is beyond the bound; says where."""
    found = errors(got, exact(op, *arrays))
    place = int(found.argmax())
    where = ", ".join(repr(array[place]) for array in arrays)
    assert found[place] <= bound(op, dtype), f"{op.name}({where}) is {got[place]!r}"


def test_every_function_that_needs_a_bound_has_one():
    arithmetic = {"div", "sqrt", "rsqrt", "floor", "ceil", "round", "trunc"}
    functions = {op for op in ops.OPS.values() if op.kind == "function"}
    assert {op for op in functions if op.name not in arithmetic} == set(FUNCTIONS) == set(SUBJECTS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", EVERY)
def test_error_is_within_the_bound(op, dtype):
    if dtype == "float64" and not WIDER:
        pytest.skip("no numpy float here is wider than float64")
    places = points(op, dtype, COUNT)
    check(op, dtype, places, kernel(op, dtype, len(places[0]))(*places)[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", [ops.EXP, ops.EXPM1, ops.SIGMOID, ops.SOFTPLUS, ops.TANH, ops.ERF])
def test_exponentials_hold_their_bound_to_the_ends_of_the_range(op, dtype):
    end = 110 if dtype == "float32" else 760
    x = np.linspace(-end, end, 20011).astype(dtype)
    check(op, dtype, (x,), kernel(op, dtype, len(x))(x)[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", [ops.LOG, ops.LOG2, ops.LOG1P])
def test_logarithms_hold_their_bound_near_one_and_for_subnormal_numbers(op, dtype):
    least = float(np.finfo(dtype).smallest_subnormal)
    most = float(np.finfo(dtype).max)
    near, wide = 1 + np.linspace(-0.01, 0.01, 3001), np.geomspace(least, most, 5003, dtype=LONG)
    x = np.concatenate([near, wide]).astype(dtype)
    check(op, dtype, (x,), kernel(op, dtype, len(x))(x)[0])


def test_the_usual_functions_of_float32_are_within_two_units():
    usual = (ops.EXP, ops.LOG, ops.TANH, ops.SIGMOID, ops.ERF, ops.SIN, ops.COS, ops.POW)
    assert max(FUNCTIONS[op].float32 for op in usual) <= 2


@pytest.mark.parametrize("machine", [Machine(32, 16), Machine(16, 16)], ids=["32", "16"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", EVERY)
def test_error_is_within_the_bound_without_avx512(op, dtype, machine):
    if dtype == "float64" and not WIDER:
        pytest.skip("no numpy float here is wider than float64")
    places = points(op, dtype, COUNT // 10)
    check(op, dtype, places, made_for(machine, op, places))


def made_for(machine, op, places):
    """What code for another width of vectors gives."""
    length, dtype = len(places[0]), places[0].dtype.name
    arrays = [ea.placeholder((length,), name=name, dtype=dtype) for name in "xy"[: op.arity]]
    stage = ea.compute((length,), lambda i: Apply(op, tuple(each[i] for each in arrays)), name="z")
    program = lower([stage])
    source = write(program, machine)
    assert "avx512" not in source.text
    found = np.empty(length, dtype)
    Launcher(program, load(source.text, source.outside), 1)(list(places), [found], [])
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", EVERY)
def test_a_single_number_gives_what_a_vector_gives(op, dtype):
    """Short arrays are computed without vectors."""
    if dtype == "float64" and not WIDER:
        pytest.skip("no numpy float here is wider than float64")
    places = tuple(each[:3] for each in points(op, dtype, 100))
    check(op, dtype, places, kernel(op, dtype, 3)(*places)[0])


# Of x to the power of y: C99, F.9.4.4.
POWERS = [
    *((x, 0.0, 1.0) for x in (0.0, -0.0, 2.0, -2.0, INF, -INF, NAN)),
    *((1.0, y, 1.0) for y in (3.0, -0.5, INF, -INF, NAN)),
    *((-1.0, y, 1.0) for y in (INF, -INF, 2.0)),
    *((0.0, -3.0, INF), (-0.0, -3.0, -INF), (-0.0, -2.0, INF), (-0.0, -0.5, INF)),
    *((0.0, 3.0, 0.0), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, 0.5, 0.0)),
    *((-2.0, 0.5, NAN), (-2.0, 3.0, -8.0), (-2.0, -3.0, -0.125), (-2.0, 2.0, 4.0)),
    *((0.5, -INF, INF), (2.0, -INF, 0.0), (0.5, INF, 0.0), (-2.0, INF, INF)),
    *((-INF, -3.0, -0.0), (-INF, -2.0, 0.0), (-INF, 3.0, -INF), (-INF, 0.5, INF)),
    *((INF, -1.0, 0.0), (INF, 0.5, INF), (NAN, 1.0, NAN), (2.0, NAN, NAN)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_special_numbers_are_those_of_c99(dtype):
    x, y, expected = (np.array(column, dtype) for column in zip(*POWERS, strict=True))
    got = kernel(ops.POW, dtype, len(x))(x, y)[0]
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(expected[got == 0]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_that_are_floats_are_exact(dtype):
    x, y = np.meshgrid(np.arange(1, 40), np.arange(0, 12))
    fits = x.astype(float) ** y < 2.0 ** np.finfo(dtype).nmant
    x, y = x[fits].astype(dtype), y[fits].astype(dtype)
    got = kernel(ops.POW, dtype, len(x))(x, y)[0]
    np.testing.assert_array_equal(got, [int(a) ** int(b) for a, b in zip(x, y, strict=True)])


# Of a negative zero these are a negative zero.
ODD = (ops.SIN, ops.TAN, ops.ASIN, ops.ATAN, ops.SINH, ops.TANH, ops.EXPM1, ops.LOG1P, ops.ERF)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in ODD])
def test_the_sign_of_zero_is_kept(op, dtype):
    x = np.array([0.0, -0.0] * 16, dtype)
    got = kernel(op, dtype, len(x))(x)[0]
    assert not got.any()
    np.testing.assert_array_equal(np.signbit(got), np.signbit(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", CIRCULAR)
def test_a_far_argument_changes_no_other_lane(op, dtype):
    kind = {"float32": "float", "float64": "double"}[dtype]
    x = np.linspace(-50, 50, 512).astype(dtype)
    run = kernel(op, dtype, len(x))
    alone = run(x)[0]
    mixed = x.copy()
    mixed[::5] = np.array(FAR[kind], dtype) * np.linspace(2, 1e6, len(mixed[::5])).astype(dtype)
    got = run(mixed)[0]
    np.testing.assert_array_equal(np.delete(got, np.s_[::5]), np.delete(alone, np.s_[::5]))
    check(op, dtype, (mixed,), got)


def product(f):
    a, b, k = place(70, 90, name="a"), place(90, 50, name="b"), reduced(90, "k")
    return ea.compute((70, 50), lambda i, j: ea.sum(f(a[i, k]) * b[k, j], k), name="c"), (a, b)


def row_pass(f):
    a, k = place(37, 203, name="a"), reduced(203, "k")
    total = ea.compute((37,), lambda i: ea.sum(f(a[i, k]), k), name="total")
    return ea.compute((37, 203), lambda i, j: f(a[i, j]) - total[i], name="c"), (a,)


def turned(f):
    a = place(37, 203, name="a")
    return ea.compute((203, 37), lambda i, j: f(a[j, i]), name="c"), (a,)


def running(f):
    a, k = place(1000, name="a"), reduced(1000, "k")
    return ea.compute((1000,), lambda i: ea.sum(f(a[k]), k, where=k <= i), name="c"), (a,)


def chosen(f):
    a = place(1000, name="a")
    return ea.compute((1000,), lambda i: ea.select(a[i] > 0, f(a[i]), a[0]), name="c"), (a,)


@pytest.mark.parametrize("make", [product, row_pass, turned, running, chosen])
@pytest.mark.parametrize("op", CIRCULAR)
def test_far_arguments_are_right_in_loops_of_every_kind(op, make):
    output, inputs = make(lambda x: Apply(op, (x,)))
    dice = np.random.default_rng(3)
    arrays = [
        dice.uniform(-1, 1, [each.value for each in x.shape]).astype("float32") for x in inputs
    ]
    arrays[0].flat[::7] *= 1e7
    program = lower([output])
    got, expected = (build(program, target)(*arrays)[0] for target in ("cpu", "reference"))
    # Sums of up to a thousand float32 numbers; tangents are large somewhere.
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_the_way_of_far_arguments_is_written_once():
    x = ea.placeholder((64,), name="x")
    both = ea.compute((64,), lambda i: ea.sin(x[i]) * ea.sin(2 * x[i]), name="y")
    source = build(lower([both]), "cpu").source
    written = re.findall(r"^define internal .*@(far\.sin[\w.]*)", source, flags=re.MULTILINE)
    assert written
    assert len(written) == len(set(written))


@pytest.mark.parametrize("op", EVERY)
def test_half_precision_is_float32_rounded_once(op):
    with np.errstate(over="ignore"):
        places = [each.astype("float16") for each in points(op, "float32", 2_000)]
    single = kernel(op, "float32", len(places[0]))(*(each.astype("float32") for each in places))
    with np.errstate(over="ignore"):
        expected = single[0].astype("float16")
    got = build(mapped(lambda *args: Apply(op, args), *["float16"] * op.arity), "cpu")(*places)[0]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("op", EVERY)
def test_bfloat16_is_float32_rounded_once(op):
    places = [to_bits(each) for each in points(op, "float32", 2_000)]
    single = kernel(op, "float32", len(places[0]))(*map(from_bits, places))[0]
    program = mapped(lambda *args: Apply(op, args), *["bfloat16"] * op.arity)
    got = build(program, "cpu")(*places)[0]
    np.testing.assert_array_equal(got, from_bits(to_bits(single)))


@pytest.mark.parametrize("kind", list(POLYNOMIALS))
def test_polynomials_are_those_that_the_benchmark_derives(kind):
    derived = {name: tuple(numbers) for name, (numbers, _) in polynomials.table()[kind].items()}
    assert derived == POLYNOMIALS[kind]
