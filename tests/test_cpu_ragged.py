"""Gradients of strided windows over images of odd sizes, whose phases differ by a row or column."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kernel_cases import max_pool
from eqsatad.backends.cpu import build, prepare
from eqsatad.backends.cpu.code.source import Machine
from eqsatad.backends.cpu.rewrites.ragged import evened
from eqsatad.extract.cost import CPU
from eqsatad.loops.interpret import run
from eqsatad.loops.lower import lower
from eqsatad.terms import builders as ea
from tests.test_cpu import compiled

MACHINES = [Machine(64, 32), Machine(32, 16), Machine(16, 32)]


def pooled(size, **options):
    """The loops of the gradient of a max pooling, its arrays, and what it is."""
    problem = max_pool((2, 3, *size), **options)
    program = problem.ours.build("reference", cost=CPU).loops
    arrays = {tensor.name: problem.arrays[tensor.name] for tensor in program.inputs}
    return program, arrays, problem.numpy(problem.arrays)[0]


@settings(max_examples=25, deadline=None)
@given(
    size=st.tuples(*[st.integers(5, 45)] * 2),
    kernel=st.sampled_from([2, 3, 5]),
    stride=st.sampled_from([1, 2, 3]),
    padded=st.booleans(),
    machine=st.sampled_from(MACHINES),
)
def test_max_pooling_gradient_of_any_size(size, kernel, stride, padded, machine):
    pad = kernel // 2 if padded else 0
    program, arrays, expected = pooled(size, kernel=kernel, stride=stride, pad=pad)
    # Terms that cancel leave the rounding of the terms, which depends on their order.
    got = compiled(program, machine)(**arrays)[0]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def largest(program):
    """How many stores the nest with the most of them has."""
    prepared = prepare(program, MACHINES[0])
    return max(str(each).count("Store(") for nest in prepared.nests for each in nest.body)


@pytest.mark.parametrize("size", [(40, 56), (41, 57), (41, 56)], ids=str)
def test_phases_are_one_nest_for_odd_sizes_as_well(size):
    program, _, _ = pooled(size, kernel=3, stride=2, pad=1)
    assert largest(program) == 4


def test_cut_phases_mean_the_same():
    program, arrays, expected = pooled((23, 31), kernel=3, stride=2, pad=0)
    cut = evened(program)
    assert sum(len(nest.body) for nest in cut.nests) > sum(len(nest.body) for nest in program.nests)
    np.testing.assert_allclose(run(cut, arrays).outputs[0], expected, rtol=1e-5)


def test_nests_that_cannot_be_joined_stay():
    """Sums longer than a window are not put side by side."""
    h = ea.placeholder((20, 30), name="h", dtype="float32")
    k = ea.reduce_axis((0, 30), name="k")
    sums = ea.compute((20,), lambda i: ea.sum(h[i, k], axis=k), name="sums")
    program = lower([sums])
    assert evened(program) == program


def chosen_sum(rows, terms, guarded):
    """For each row the sum of what another array says; ``guarded`` says it only within a range."""
    at = ea.placeholder((rows, terms), name="at", dtype="int32")
    x = ea.placeholder((rows, terms), name="x", dtype="float32")
    p = ea.placeholder((terms,), name="p", dtype="int64")
    k = ea.reduce_axis((0, terms), name="k")

    def body(i):
        place = p[k]
        inside = (place >= 0) & (place < terms)
        chosen = at[i, place if guarded else k].equal(ea.cast(1, "int32"))
        where = inside & chosen if guarded else chosen
        return ea.sum(x[i, place if guarded else k], axis=k, where=where)

    return ea.compute((rows,), body, name="y")


@pytest.mark.parametrize("guarded", [False, True])
def test_sum_under_a_condition_reads_nothing_that_is_not_there(guarded):
    rng = np.random.default_rng(0)
    rows, terms = 3, 7
    at = rng.integers(0, 2, (rows, terms)).astype("int32")
    x = rng.standard_normal((rows, terms)).astype("float32")
    p = np.arange(terms)
    p[2:5] = [-(1 << 40), 1 << 40, 2]
    kernel = build(lower([chosen_sum(rows, terms, guarded)]))
    arrays = {"at": at, "x": x, "p": p}
    got = kernel(**{name: arrays[name] for name in kernel.inputs})[0]
    inside = (p >= 0) & (p < terms)
    places = np.where(inside, p, 0) if guarded else np.arange(terms)
    taken = at[:, places] == 1
    taken &= inside if guarded else True
    np.testing.assert_allclose(got, np.where(taken, x[:, places], 0).sum(1), rtol=1e-5)


def stencil(rows, columns):
    """Each place plus what is beside it in its row and its column, where there is something."""
    h = ea.placeholder((rows, columns), name="h", dtype="float32")

    def body(i, j):
        above = ea.select(i >= 1, h[i - 1, j], 0.0)
        below = ea.select(i < rows - 1, h[i + 1, j], 0.0)
        left = ea.select(j >= 1, h[i, j - 1], 0.0)
        right = ea.select(j < columns - 1, h[i, j + 1], 0.0)
        return h[i, j] * 0.5 + above + below + left * 2.0 + right

    return ea.compute((rows, columns), body, name="y")


def expected_of(h):
    y = h * 0.5
    y[1:] += h[:-1]
    y[:-1] += h[1:]
    y[:, 1:] += 2 * h[:, :-1]
    y[:, :-1] += h[:, 1:]
    return y


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [(130, 70), (131, 33), (40, 200)], ids=str)
def test_border_columns_run_with_their_rows(size, threads, monkeypatch, tmp_path):
    """The rows of both are told apart by an index that is the row plus one."""
    monkeypatch.setenv("EQSATAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.ALONE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.AWAKE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.CHUNK", 1_000_000)
    kernel = build(lower([stencil(*size)]), threads=threads)
    h = np.random.default_rng(0).standard_normal(size).astype("float32")
    np.testing.assert_allclose(kernel(h)[0], expected_of(h), rtol=1e-5, atol=1e-5)
    assert "train" in kernel.source
