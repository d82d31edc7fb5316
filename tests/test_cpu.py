"""The CPU backend: every operation on every dtype, tiles, threads, the cache of objects."""

import re
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eqsatad import cache
from eqsatad.backends import build, cpu, load_kernel
from eqsatad.backends.access import safe_read
from eqsatad.backends.cpu.code import tilewriter
from eqsatad.backends.cpu.code.source import Machine, Options, steps_of, write
from eqsatad.backends.cpu.code.text import Module
from eqsatad.backends.cpu.functions.table import FUNCTIONS
from eqsatad.backends.cpu.runtime import ready
from eqsatad.backends.cpu.runtime.machine import load
from eqsatad.backends.cpu.tiles.choice import plan
from eqsatad.backends.kernel import Kernel
from eqsatad.backends.storage import from_bits, to_bits
from eqsatad.errors import ArgumentError, BackendError, CacheWarning
from eqsatad.loops.lower import lower
from eqsatad.terms import builders as ea
from eqsatad.terms import ops
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Apply, Axis, Cast, Const, Read, Select
from tests.loop_programs import (
    CASES,
    INF,
    NAN,
    SPECIAL,
    arrays_for,
    conv_input_gradient,
    conv_weight_gradient,
    index,
    lowered,
    mapped,
    matmul,
    place,
    reduced,
)
from tests.machine_code import runnable


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(tmp_path_factory.mktemp("objects")))
        yield


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


ORDINARY = np.concatenate([np.linspace(-20, 20, 997), np.geomspace(1e-12, 1e12, 401)])
# Of each operation on one number: the exact value, and the bound in units of the last place.
# Elementary functions are in test_functions.py.
UNARY = {
    ops.NEG: (np.negative, 0),
    ops.ABS: (np.abs, 0),
    ops.SIGN: (np.sign, 0),
    ops.SQRT: (np.sqrt, 0.5),
    ops.RSQRT: (lambda x: 1 / np.sqrt(x), 1.5),
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
    assert {*UNARY, *BINARY, *COMPARE, *WHOLE, *FUNCTIONS, *logic} == set(ops.OPS.values())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("op", "row"), named(UNARY.items()))
def test_function_is_within_its_bound(op, row, dtype):
    exact, bound = row
    x = np.concatenate([SPECIAL, ORDINARY, -ORDINARY]).astype(dtype)
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


# Vectors and registers of AVX-512, AVX2, SSE and NEON.
MACHINES = [Machine(64, 32), Machine(32, 16), Machine(16, 16), Machine(16, 32)]


def planned(program, machine, exact=False):
    """The steps of ``program`` on ``machine``, which may be another than this one."""
    prepared = cpu.prepare(program, machine, exact=exact)
    return steps_of(prepared, Module(machine.vector), Options.of(prepared, machine, exact=exact))


def compiled(program, machine, threads=1, exact=False):
    prepared = cpu.prepare(program, machine, exact=exact)
    source = write(prepared, machine, exact=exact)
    buffers = replace(prepared, temporaries=source.temporaries)
    launch = cpu.Launcher(buffers, runnable(source), threads)
    return Kernel(program, target="cpu", source=source.text, launch=launch)


def check(output, arrays, results, terms=50):
    program = lowered(output)
    given_arrays = {tensor.name: a for tensor, a in zip(program.inputs, arrays, strict=True)}
    (expected,) = evaluate([output], given_arrays)
    # Sums of tens of terms of size one: a few roundings of the dtype's last place each. Errors
    # of longer ones add up like steps of a random walk.
    tolerance = {"float16": 2e-3, "float64": 1e-13}.get(output.dtype, 1e-5)
    tolerance *= max(1, terms / 50) ** 0.5
    np.testing.assert_allclose(results[0], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_program_agrees_with_the_meaning_of_its_stages(name, machine):
    program = lowered(CASES[name])
    arrays = arrays_for(program)
    check(CASES[name], arrays, compiled(program, machine)(*arrays))


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize(("trips", "several"), [(6, False), (8, True), (9, False), (64, True)])
def test_turns_of_a_sum_in_a_row_change_no_bit(trips, several, machine, monkeypatch):
    program = lowered(matmul(48, trips, 64))
    arrays = arrays_for(program)
    kernel = compiled(program, machine)
    assert ("asm sideeffect" in kernel.source) == several
    monkeypatch.setattr(tilewriter, "LONG", 1 << 20)
    plain = compiled(program, machine)
    assert "asm sideeffect" not in plain.source
    np.testing.assert_array_equal(kernel(*arrays)[0], plain(*arrays)[0])


@pytest.mark.parametrize("name", CASES)
def test_exact_program_agrees_with_the_meaning_of_its_stages(name):
    program = lowered(CASES[name])
    arrays = arrays_for(program)
    check(CASES[name], arrays, build(program, exact=True)(*arrays))


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    machine=st.sampled_from(MACHINES),
    seed=st.integers(0, 2**32 - 1),
)
def test_matrix_product_of_any_shape(sizes, machine, seed):
    output = matmul(*sizes)
    arrays = arrays_for(lowered(output), seed)
    check(output, arrays, compiled(lowered(output), machine)(*arrays))


@settings(max_examples=25, deadline=None)
@given(
    make=st.sampled_from([conv_input_gradient, conv_weight_gradient]),
    channels=st.tuples(*[st.integers(1, 18)] * 2),
    size=st.integers(3, 21),
    pad=st.integers(0, 2),
    machine=st.sampled_from(MACHINES),
)
def test_convolution_gradients_of_any_shape(make, channels, size, pad, machine):
    output = make(2, *channels, size, 3, pad)
    arrays = arrays_for(lowered(output))
    results = compiled(lowered(output), machine)(*arrays)
    check(output, arrays, results, terms=2 * size * size)


def test_products_run_in_register_tiles():
    for name in ("matmul", "conv dX", "conv dW", "flattened", "column sums"):
        (nest,) = lowered(CASES[name]).nests
        assert plan(nest.body[0], 64, 32, False) is not None, name


def test_fused_dimensions_fill_vectors():
    (nest,) = lowered(CASES["flattened"]).nests
    tile = plan(nest.body[0], 16, 16, False)
    lane = next(loop for loop in tile.loops if loop.axis is tile.lane)
    assert lane.stop.value == 45


def spread_out(sizes, times, positions, dtype):
    """The gradient of max pooling: each value at its saved position of a window."""
    count, *places = sizes
    saved = place(*sizes, name="saved", dtype=positions)
    head = place(*sizes, name="h", dtype=dtype)

    def body(c, *at):
        near = tuple(x // times for x in at)
        here = sum(((x % times) * times**turn for turn, x in enumerate(reversed(at))), start=0)
        chosen = ea.equal(saved[(c, *near)], ea.cast(here, positions))
        return ea.select(chosen, head[(c, *near)], 0.0)

    return ea.compute((count, *(times * extent for extent in places)), body, "y")


@example(  # Rows that are joined, and together shorter than a vector.
    sizes=[2, 2], times=2, dtypes=("int32", "float32"), machine=MACHINES[0], seed=0
)
@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 14), min_size=2, max_size=3),
    times=st.integers(1, 18),
    dtypes=st.sampled_from([("int32", "float32"), ("int64", "float64"), ("int64", "float32")]),
    machine=st.sampled_from(MACHINES),
    seed=st.integers(0, 2**32 - 1),
)
def test_windows_of_any_length_are_filled(sizes, times, dtypes, machine, seed):
    output = spread_out(sizes, times, *dtypes)
    rng = np.random.default_rng(seed)
    saved = rng.integers(0, times ** (len(sizes) - 1), sizes).astype(dtypes[0])
    arrays = (saved, rng.standard_normal(sizes).astype(dtypes[1]))
    program = lowered(output)
    given_arrays = {tensor.name: arrays[tensor.name == "h"] for tensor in program.inputs}
    (expected,) = evaluate([output], given_arrays)
    got = compiled(program, machine)(*given_arrays.values())[0]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("dtypes", "loads"), [(("int32", "float32"), 2), (("int64", "float64"), 2)]
)
def test_short_loops_are_joined_and_their_loads_permuted(dtypes, loads):
    """All five rows of a window share what is loaded, and nothing is gathered."""
    text = compiled(lowered(spread_out((7, 5, 11), 5, *dtypes)), Machine(64, 32)).source
    assert len(re.findall(r"call .*permvar", text)) == loads
    assert "gather" not in text


def test_joined_loops_shorter_than_a_vector_are_one_that_is_masked():
    """Rows of four windows of three: one load of each row, permuted, and one store."""
    text = compiled(lowered(spread_out((7, 5, 4), 3, "int32", "float32")), Machine(64, 32)).source
    assert len(re.findall(r"call .*permvar", text)) == 2
    assert "masked.store" in text
    assert "gather" not in text


def test_read_of_joined_dimensions_is_inside_its_buffer():
    x, joined = place(4, 6, name="x"), Axis("i_j", Const(24, "index"))
    inside = Read(x, (Const(0, "index"), joined))
    beyond = Read(x, (Const(1, "index"), joined))
    assert safe_read(inside)
    assert not safe_read(beyond)


def test_exact_sum_is_added_in_order():
    """Adding 1 to 1e8 in float32 changes nothing, so only the order given yields this."""
    values = np.array([1e8, *[1.0] * 63, -1e8], "float32")
    x, r = place(65, name="x"), reduced(65, "r")
    output = ea.compute((), lambda: ea.sum(x[r], axis=r), name="y")
    assert build(lower([output]), exact=True)(values)[0] == 0.0


def test_exact_product_is_rounded_before_it_is_added():
    a = np.array([1 + 2.0**-12], "float32")
    formula = lambda x, y: Apply(ops.SUB, (Apply(ops.MUL, (x, x)), y))  # noqa: E731
    square = np.float32(a[0] * a[0])
    assert run(formula, a, np.array([square]), exact=True)[0] == 0.0


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", ["matmul", "total", "column sums", "outer rows"])
def test_nan_and_infinity_pass_through_sums(name, exact):
    program = lowered(CASES[name])
    arrays = [np.full_like(array, 1.0) for array in arrays_for(program)]
    kernel = build(program, exact=exact)
    for special in (INF, NAN):
        arrays[0].flat[0] = special
        result = kernel(*arrays)[0]
        expected = evaluate([CASES[name]], dict(zip(kernel.inputs, arrays, strict=True)))[0]
        np.testing.assert_array_equal(result, expected)


def test_maximum_of_nothing_but_nan_is_nan():
    x, r = place(3, 40, name="x"), reduced(40, "r")
    output = ea.compute((3,), lambda i: ea.max(x[i, r], axis=r), name="y")
    values = np.zeros((3, 40), "float32")
    values[0, 17] = NAN
    values[1, 20] = INF
    result = build(lower([output]))(values)[0]
    assert np.isnan(result[0])
    assert result[1:].tolist() == [INF, 0.0]


def test_side_that_is_not_chosen_is_not_read():
    def formula(a):
        far = Read(a.tensor, (Cast(Read(a.tensor, a.indices), "index"),))
        return Select(Apply(ops.GE, (a, Const(0.0, "float32"))), far, Const(-5.0, "float32"))

    x = np.array([1.0, -(2.0**40), 0.0], "float32")
    assert run(formula, x).tolist() == [-(2.0**40), -5.0, 1.0]


def test_second_condition_is_not_read_where_the_first_decides():
    def formula(a):
        far = Read(a.tensor, (Cast(a, "index"),))
        some = Const(0.0, "float32")
        return Apply(ops.AND, (Apply(ops.GE, (a, some)), Apply(ops.GT, (far, some))))

    x = np.array([1.0, -(2.0**40), 0.0], "float32")
    assert run(formula, x).tolist() == [False, False, True]


def symbolic():
    n, k, m = ea.size("n"), ea.size("k"), ea.size("m")
    a, b = ea.placeholder((n, k), name="a"), ea.placeholder((k, m), name="b")
    r = ea.reduce_axis((0, k), name="r")
    output = ea.compute((n, m), lambda i, j: ea.sum(a[i, r] * b[r, j], axis=r), name="c")
    return lower([output])


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_symbolic_sizes(machine):
    kernel = compiled(symbolic(), machine)
    rng = np.random.default_rng(3)
    for n, k, m in [(1, 1, 1), (5, 7, 3), (16, 16, 16), (33, 20, 70)]:
        a = rng.standard_normal((n, k)).astype("float32")
        b = rng.standard_normal((k, m)).astype("float32")
        np.testing.assert_allclose(kernel(a, b)[0], a @ b, rtol=1e-5, atol=1e-5)


def test_sum_of_a_thousand_terms_is_compiled():
    def formula(a):
        total = a
        for number in range(3000):
            total = Apply(ops.ADD, (total, Const(float(number % 3), "float32")))
        return total

    assert run(formula, np.array([1.0], "float32")).tolist() == [3001.0]


@pytest.fixture
def objects(tmp_path, monkeypatch):
    """An empty cache directory, where nothing but kernels comes."""
    cache.code(*ready.LAYERS)
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "objects"))
    return tmp_path / "objects"


@pytest.mark.parametrize("name", ["matmul", "softmax", "scattered", "conv dW", "border"])
def test_results_are_the_same_bits_for_any_number_of_threads(name, objects, monkeypatch):
    # Every parallel step is shared, however small, in chunks of a few iterations.
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.ALONE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.AWAKE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.CHUNK", 2_000_000)
    program = lowered(CASES[name])
    arrays = arrays_for(program)
    first, *others = (build(program, threads=threads)(*arrays)[0] for threads in (1, 2, 5))
    for other in others:
        assert np.array_equal(first.view("uint8"), other.view("uint8"))


def test_every_iteration_of_a_shared_loop_runs_once(objects, monkeypatch):
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.ALONE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.AWAKE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.CHUNK", 1)
    x = np.arange(20_011, dtype="float64")
    kernel = build(mapped(applied(ops.NEG), "float64"), threads=4)
    for _ in range(20):
        assert np.array_equal(kernel(x)[0], -x)


def test_calls_from_several_threads_do_not_mix(objects, monkeypatch):
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.ALONE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.AWAKE", 0)
    program = lowered(CASES["softmax"])
    kernel = build(program, threads=3)
    inputs = [arrays_for(program, seed) for seed in range(4)]
    expected = [kernel(*arrays)[0] for arrays in inputs]
    wrong = []

    def work(number):
        for _ in range(50):
            if not np.array_equal(kernel(*inputs[number])[0], expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_scatter_adds_in_the_order_of_the_program():
    """In float32, 1e8 + 1 - 1e8 is 0 and 1e8 - 1e8 + 1 is 1."""
    program = lowered(CASES["scattered"])
    h, at = np.zeros((50, 20), "float32"), np.zeros(50, "int64")
    h[:3] = np.array([1e8, 1.0, -1e8])[:, None]
    assert build(program, threads=4)(h=h, at=at)[0][0].tolist() == [0.0] * 20


def _in_child(queue, kernel, x):
    queue.put(kernel(x)[0])


def test_kernel_works_in_a_forked_process(objects, monkeypatch):
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.ALONE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.AWAKE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.CHUNK", 1)
    x = np.arange(1000, dtype="float32")
    kernel = build(mapped(applied(ops.NEG), "float32"), threads=3)
    kernel(x)
    context = get_context("fork")
    queue = context.SimpleQueue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=_in_child, args=(queue, kernel, x))
        child.start()
    child.join(30)
    assert child.exitcode == 0
    assert np.array_equal(queue.get(), -x)


def test_threads_below_one_are_refused():
    with pytest.raises(ArgumentError, match="threads is 0; give at least 1"):
        build(mapped(applied(ops.NEG), "float32"), threads=0)


def negation(length):
    kernel = build(mapped(applied(ops.NEG), "float32", length=length), threads=1)
    x = np.arange(length, dtype="float32")
    assert np.array_equal(kernel(x)[0], -x)


def test_second_build_comes_from_disk(objects, monkeypatch):
    negation(5)
    (entry,) = cache.entries()
    assert entry[1] > 0
    monkeypatch.setattr(
        "eqsatad.backends.cpu.runtime.machine._compiled",
        lambda *args: pytest.fail("compiled again"),
    )
    negation(5)


def test_other_code_is_another_entry(objects):
    negation(5)
    negation(6)
    assert len(cache.entries()) == 2


@pytest.fixture
def made(objects, monkeypatch):
    """The programs that are planned and written, with an empty cache."""
    found = []
    make = cpu._made

    def counted(program, exact):
        found.append(program)
        return make(program, exact)

    monkeypatch.setattr(cpu, "_made", counted)
    return found


def through_temporary():
    """The exponential of 70 rows less their maximum, which is a temporary."""
    return lowered(CASES["softmax"])


def test_second_build_neither_plans_nor_writes(made):
    first, second = (build(through_temporary(), threads=1) for _ in range(2))
    assert len(made) == 1
    assert (first.source, first.notes, repr(first)) == (second.source, second.notes, repr(second))
    arrays = arrays_for(first.loops)
    assert np.array_equal(first(*arrays)[0], second(*arrays)[0])


def test_exactness_machine_and_code_make_an_entry_of_their_own(made, monkeypatch):
    program = through_temporary()
    build(program)
    build(program, exact=True)
    assert len(made) == 2
    monkeypatch.setattr(ready, "identity", lambda: "another")
    build(program)
    assert len(made) == 3
    monkeypatch.setattr(cache, "code", lambda *layers: "another")
    build(program)
    assert len(made) == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda nest: replace(nest, body=(replace(nest.body[0], parallel=False), *nest.body[1:])),
        lambda nest: replace(nest, body=(replace(nest.body[0], start=index(1)), *nest.body[1:])),
        lambda nest: replace(nest, body=(replace(nest.body[0], body=()), *nest.body[1:])),
        lambda nest: replace(nest, body=nest.body[1:]),
    ],
)
def test_every_part_of_a_program_is_in_its_key(change):
    program = mapped(applied(ops.NEG), "float32", length=5)
    (nest,) = program.nests
    changed = replace(program, nests=(change(nest),))
    assert ready.key_of(changed, False) != ready.key_of(program, False)
    assert ready.key_of(program, True) != ready.key_of(program, False)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b'{"outside": [], "lengths": [1, 2, 3]}\nabc', b"\xff\xfe"],
)
def test_an_entry_that_is_no_kernel_is_reported_and_made_again(made, content):
    negation(5)
    ((key, _),) = cache.entries()
    cache.keep(key, content)
    with pytest.warns(CacheWarning, match="cannot be read"):
        negation(5)
    negation(5)
    assert len(made) == 2


def test_two_builders_at_once_agree(made):
    program = through_temporary()
    arrays = arrays_for(program)
    with ThreadPoolExecutor(4) as pool:
        kernels = list(pool.map(lambda _: build(program, threads=1), range(4)))
    first, *others = (kernel(*arrays)[0] for kernel in kernels)
    assert all(np.array_equal(first, other) for other in others)
    assert len(cache.entries()) == 1


def test_a_kernel_from_disk_is_saved_like_any_other(made, tmp_path):
    build(through_temporary(), threads=1)
    kernel = build(through_temporary(), threads=1)
    kernel.save(tmp_path / "kernel.bin")
    arrays = arrays_for(kernel.loops)
    assert np.array_equal(load_kernel(tmp_path / "kernel.bin")(*arrays)[0], kernel(*arrays)[0])


def test_without_a_cache_every_build_is_made(made, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, "")
    negation(5)
    negation(5)
    assert len(made) == 2


@pytest.mark.parametrize("damage", [lambda data: data[:-7], lambda data: data[:40], lambda _: b""])
def test_damaged_entry_is_reported_and_rebuilt(objects, damage):
    negation(5)
    (path,) = objects.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(CacheWarning, match="is damaged; it is made again"):
        negation(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        negation(5)


def test_entry_under_a_wrong_name_is_not_used(objects):
    negation(5)
    (key, _), (path,) = cache.entries()[0], objects.iterdir()
    path.rename(objects / f"{'0' * len(key)}.bin")
    with pytest.warns(CacheWarning, match="damaged"):
        assert cache.fetch("0" * len(key)) is None


def test_directory_that_cannot_be_written_warns_once(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file" / "objects"))
    with pytest.warns(CacheWarning, match="nothing is kept|it is made again"):
        negation(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        negation(6)


def test_failed_write_leaves_no_temporary_file(objects, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.warns(CacheWarning, match="No space left on device"):
        cache.keep("key", b"content")
    assert list(objects.iterdir()) == []


def test_empty_variable_disables_the_cache(monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, "")
    negation(5)
    assert cache.directory() is None
    assert cache.entries() == []
    assert cache.fetch("key") is None


def test_clear_deletes_every_entry(objects):
    negation(5)
    negation(6)
    assert cache.clear() == 2
    assert cache.entries() == []


def test_code_that_llvm_refuses_is_a_backend_error(objects):
    with pytest.raises(BackendError, match="LLVM says"):
        load("define void @run(ptr %x) { nonsense }")


def test_absent_function_of_the_c_library_is_named(objects):
    with pytest.raises(BackendError, match="no function eqsatad_no_such_function"):
        load("", ("eqsatad_no_such_function",))


def test_values_read_under_one_mask_are_not_taken_under_another():
    # Two rows of a tile take different branches; both need the same elements of x.
    m = ea.size("m")
    x, h = ea.placeholder((5, m), name="x"), ea.placeholder((5, 2, m), name="h")

    def at(i, j, column):
        k, n = ea.reduce_axis((0, m), "k"), ea.reduce_axis((0, m), "n")
        total = ea.sum(x[i, k] * x[0, (j - 3) % m] * x[0, n], axis=(n, k))
        other = ea.sum(x[i, k] * x[0, (j - 3) % m] * x[0, n] + 0.0, axis=(n, k))
        return ea.select(total > 0, h[i, j, column], ea.select(other < 0, -h[i, j, column], 0.0))

    y = ea.compute((5, 2, m), at, "y")
    rng = np.random.default_rng(3)
    shapes = {"x": (5, 3), "h": (5, 2, 3)}
    arrays = {n: rng.standard_normal(shape).astype("float32") for n, shape in shapes.items()}
    (found,) = build(lower([y]))(**arrays)
    (expected,) = evaluate([y], arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tanh_is_exactly_one_where_it_saturates(dtype):
    # Its derivative is 1 - tanh(x)**2, so one bit less than 1 is no small error.
    x = ea.placeholder((6,), name="x", dtype=dtype)
    y = ea.compute((6,), lambda i: ea.tanh(x[i]), "y")
    values = np.array([20, 50, 1e4, -20, -50, -1e4], dtype)
    (found,) = build(lower([y]))(x=values)
    np.testing.assert_array_equal(found, np.sign(values))


@pytest.mark.parametrize(("columns", "vector", "lanes"), [(15, 64, 16), (6, 64, 8), (15, 32, 8)])
def test_short_rows_are_one_vector_under_a_mask_where_that_is_free(columns, vector, lanes):
    a, b = place(40, 30, name="A"), place(30, columns, name="B")
    k = reduced(30, "k")
    program = lowered(
        ea.compute((40, columns), lambda i, j: ea.sum(a[i, k] * b[k, j], axis=k), name="Y")
    )
    tile = plan(program.nests[0].body[0], vector, 32, False)
    assert tile.lanes == lanes
    arrays = arrays_for(program)
    expected = arrays[0].astype("float64") @ arrays[1]
    np.testing.assert_allclose(build(program)(*arrays)[0], expected, rtol=1e-4, atol=1e-4)
