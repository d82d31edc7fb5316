"""What the speed benchmark compares with: peers compute the same, and what they refuse is said.

Halide and tinygrad are no requirement of the tests: ``pip install halide tinygrad ziglang``.
"""

from __future__ import annotations

import math
import subprocess
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsatad as ea
from benchmarks import peers, tinygrad_peer
from benchmarks.halide_peer import halide_call, unguarded
from benchmarks.kernel_cases import CASES, Case, Gradient, Problem, cumsum, drawn, placeholder
from benchmarks.kernel_limits import memory, products
from benchmarks.kernel_rows import AT_WILL, Limits, Row, Timing, Work
from benchmarks.kernels import at_will, missing, parsed
from benchmarks.peers import Apart, Outcome, error, in_rounds, least, objection, tried
from benchmarks.random_kernels import resized
from benchmarks.tinygrad_peer import ZIG, compiler, tinygrad_call
from eqsatad.terms.nodes import Expr, Read, Select, Tensor

# Sums of at most a few hundred float32 products, relative to the largest element.
CLOSE = 1e-5

needs_halide = pytest.mark.skipif(not find_spec("halide"), reason="Halide is not installed")
needs_tinygrad = pytest.mark.skipif(not find_spec("tinygrad"), reason="tinygrad is not installed")

# Halide 21 inverts u//2 and u%2 one by one where both are indices of one read.
WRONG = ("W18dW", "W18dX")


def small(name: str) -> Problem:
    """A row of the benchmark at its small size."""
    return CASES[name].make(**CASES[name].small)


def pointwise(function: Any, derivative: Any) -> Problem:
    """The gradient of ``function`` of the expressions a[i] and b[i], with respect to a."""
    a, b = placeholder("A", 5), placeholder("B", 5)
    arrays = {name: abs(array) + 0.5 for name, array in drawn(A=(5,), B=(5,), H=(5,)).items()}
    y = ea.compute((5,), lambda i: function(a[i], b[i]), name="Y")
    unused: Any = None
    numpy = lambda a: [a["H"] * derivative(a["A"], a["B"])]  # noqa: E731
    return Problem(Gradient(y, (a,)), arrays, ("A",), numpy, unused, unused)


@needs_halide
@pytest.mark.parametrize("name", [name for name in CASES if name not in WRONG])
def test_halide_agrees_with_numpy(name: str) -> None:
    problem = small(name)
    assert error(problem, halide_call(problem)()) <= CLOSE


@needs_halide
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("size", [(7, 4), (3, 11)])
def test_reads_of_stages_mean_the_same_in_halide(size: tuple[int, int], linear: bool) -> None:
    problem = resized((2, 3, 5, 6), size, linear=linear)
    assert error(problem, halide_call(problem)()) <= CLOSE


@needs_halide
@pytest.mark.parametrize("name", WRONG)
def test_wrong_gradients_of_halide_do_not_count(name: str) -> None:
    outcome = tried("halide", small(name), 1)
    assert outcome.seconds == math.inf
    assert "wrong" in outcome.reason


POINTWISE = {
    "quotient": (lambda a, b: a / b, lambda a, b: 1 / b),
    "exp and log": (lambda a, b: ea.exp(a) * ea.log(b), lambda a, b: np.exp(a) * np.log(b)),
    "select": (lambda a, b: ea.select((a < b) & ~(b < 1.0), a * b, -a), lambda a, b: np.where(
        (a < b) & (b >= 1), b, -1
    )),
    "tanh": (lambda a, b: ea.tanh(a * b), lambda a, b: b * (1 - np.tanh(a * b) ** 2)),
    "integers": (
        lambda a, b: a * ea.cast(abs(ea.cast(b, "int32") - 3), "float32"),
        lambda a, b: abs(np.trunc(b) - 3),
    ),
    "constant": (lambda a, b: a * 0.1, lambda a, b: 0.1 + 0 * a),
}  # fmt: skip


@needs_halide
@pytest.mark.parametrize("name", POINTWISE)
def test_operations_mean_the_same_in_halide(name: str) -> None:
    problem = pointwise(*POINTWISE[name])
    assert error(problem, halide_call(problem)()) <= CLOSE


@needs_halide
def test_what_halide_has_no_word_for_is_a_reason() -> None:
    problem = pointwise(lambda a, b: ea.expm1(a) + b, lambda a, b: np.exp(a))
    assert tried("halide", problem, 1).reason == "NotImplementedError: the operation expm1"


@needs_tinygrad
@pytest.mark.parametrize("name", CASES)
def test_tinygrad_agrees_with_numpy(name: str) -> None:
    try:
        compiler()
    except NotImplementedError as absent:
        pytest.skip(str(absent))
    problem = small(name)
    assert error(problem, tinygrad_call(problem)()) <= CLOSE


def guarded(x: Tensor, condition: Expr, place: Expr, other: float = 0.0) -> Select:
    """The read of ``x`` at ``place`` under a condition."""
    node = ea.select(condition, x[place], other)
    assert isinstance(node, Select)
    return node


def test_only_bounds_of_the_read_are_dropped() -> None:
    x, i = placeholder("X", 7), ea.reduce_axis((0, 9), name="i")
    place = i - 1
    inside = (place >= 0) & (place < 7)
    read = unguarded(guarded(x, inside, place))
    assert isinstance(read.then, Read)
    assert not read.cond.children
    kept = unguarded(guarded(x, inside & (i < 3), place))
    assert kept.cond is (i < 3)
    for node in (guarded(x, inside, place, 1.0), guarded(x, i < 3, place)):
        assert unguarded(node) is node


def test_bounds_of_what_is_computed_are_kept() -> None:
    x, i = placeholder("X", 7), ea.reduce_axis((0, 9), name="i")
    y = ea.compute((7,), lambda j: x[j] + 1.0, name="Y")
    node = guarded(y, i < 7, i)
    assert unguarded(node) is node


def test_a_wrong_result_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small("W14")
    right = problem.numpy(problem.arrays)
    assert not objection(problem, lambda: right)
    monkeypatch.setitem(peers.PEERS, "zero", lambda problem: lambda: [0 * right[0]])
    assert tried("zero", problem, 1) == Outcome(reason="a result that is wrong by 1e+00")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_result_that_is_not_finite_is_no_result() -> None:
    problem = small("W14")
    broken = [np.full_like(problem.arrays["X"], np.nan)]
    assert "wrong by inf" in objection(problem, lambda: broken)


def test_what_a_peer_raises_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(problem: Problem) -> Any:
        raise ValueError("no\n  gradient")

    monkeypatch.setitem(peers.PEERS, "none", refuse)
    assert tried("none", small("W14"), 1).reason == "ValueError: no gradient"


def test_a_slow_contender_is_not_repeated() -> None:
    calls: list[str] = []

    def slow() -> None:
        calls.append("slow")
        time.sleep(0.02)

    least({"slow": slow}, 50, patience=0.03)
    assert len(calls) == 2
    least({"slow": slow}, 3)
    assert len(calls) == 2 + 2 * 3


def test_rows_are_timed_round_by_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "SETTLED", 0.0)
    order: list[str] = []
    rows = {row: {row: partial(order.append, row)} for row in ("W1", "W2")}
    done: list[int] = []
    times = in_rounds(rows, 3, lambda: done.append(len(order)))
    # One untimed call and a timed one in each turn.
    assert order == ["W1", "W1", "W2", "W2"] * 3
    assert done == [2, 4, 6, 8, 10, 12]
    assert all(0 <= times[row][row] < math.inf for row in rows)


def test_a_row_without_a_peer_is_refused_before_anything_is_timed() -> None:
    with pytest.raises(RuntimeError, match="no peer computes W14"):
        Row.of("W14", Case(cumsum, SMALL, SMALL), [], opencl=False)


def test_limits_are_what_probes_did() -> None:
    probes = {**products(10_000_000), **memory()}
    for probe in probes.values():
        probe.call()
    limits = Limits.of(probes, dict.fromkeys(probes, 0.5))
    # Whole rounds of vectors, and at least so many that the call does not count.
    for name, of_name in (("products", limits.products), ("registers", limits.registers)):
        assert of_name == 2 * probes[name].amount >= 40_000_000
    assert limits.copied == 2 * limits.read


SMALL = {"x": (6, 9)}


def test_a_peer_apart_is_timed() -> None:
    case = Case(cumsum, SMALL, SMALL)
    assert 0 < Apart("numpy").outcome(case, 2).seconds < math.inf


def test_a_peer_apart_is_given_up_in_the_end() -> None:
    # Its start is not counted, and no library starts in a microsecond.
    outcome = Apart("numpy").outcome(Case(partial(cumsum), SMALL, SMALL), 2, seconds=1e-6)
    assert outcome == Outcome(reason="not done after 1e-06 s")


def test_reasons_are_said_once() -> None:
    row = partial(Timing, ours=1.0, opencl=None, peers={"numpy": 1.0}, error=0.0, first=0.0)
    rows = [
        row(
            id=name,
            without={"halide": reason},
            work=Work(0, 0, 0),
            limits=Limits(1.0, 1.0, 1.0, 1.0),
        )
        for name, reason in (("W1", "no"), ("W2", "wrong"), ("W3", "no"))
    ]
    assert missing(rows) == ["halide, W1, W3: no", "halide, W2: wrong"]


@pytest.mark.parametrize("name", [name for name in CASES if small(name).at_will])
def test_jax_has_what_the_row_gives(name: str) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install eqsatad[test-jax]")
    problem = small(name)
    assert problem.at_will is not None
    given = {name: jax.numpy.asarray(array) for name, array in problem.arrays.items()}

    def saved(function: Any) -> list[Any]:
        """What the backward pass of ``function`` has beside its head."""

        def forward(*values: Any) -> Any:
            return function(jax, {**given, **dict(zip(problem.wrt, values, strict=True))})

        _, backward = jax.vjp(forward, *(given[name] for name in problem.wrt))
        return [np.asarray(leaf) for leaf in jax.tree.leaves(backward)]

    def is_given(array: Any) -> bool:
        return any(
            array.shape == each.shape and np.allclose(array, each) for each in given.values()
        )

    assert all(is_given(array) for array in saved(problem.jax))
    assert not all(is_given(array) for array in saved(problem.at_will))
    for function in (problem.jax, problem.at_will):
        assert error(problem, peers.jax_call(problem, function)()) <= CLOSE


def test_what_jax_saves_at_will_is_said_and_not_counted() -> None:
    case = Case(cumsum, SMALL, SMALL)
    timing = Row.of("W14", case, ["numpy"], opencl=False).timing
    seconds = {"products": 1.0, "registers": 1.0, "copied": 1.0, "read": 1.0}
    found = timing({**seconds, "ours": 2e-6, "numpy": 4e-6, AT_WILL: 1e-6}, {})
    assert found.ratio == 2
    assert at_will([found]) == [
        "jax, W14: 1 where it saves what it likes, 0.50 of ours; not counted"
    ]
    assert not at_will([timing({**seconds, "ours": 2e-6, "numpy": 4e-6}, {})])


def test_peers_are_asked_for() -> None:
    assert not set(parsed([]).peers) & set(peers.APART)
    assert parsed(["--peers", "numpy"]).peers == ["numpy"]


def test_compiler_is_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "my-clang")
    assert compiler() == "my-clang"


def test_without_a_compiler_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(tinygrad_peer.shutil, "which", lambda name: None)
    monkeypatch.setattr(tinygrad_peer, "find_spec", lambda name: None)
    assert "no C compiler" in tried("tinygrad", small("W14"), 1).reason


def test_zig_is_told_the_target_in_its_words(tmp_path: Path) -> None:
    zig, clang = tmp_path / "zig", tmp_path / "clang"
    zig.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    clang.write_text(ZIG.format(zig=zig))
    for script in (zig, clang):
        script.chmod(0o755)
    options = ["-x", "a b", "--target=x86_64-none-unknown-elf", "-"]
    said = subprocess.run([clang, *options], capture_output=True, text=True, check=True).stdout
    wanted = ["cc", "-x", "a b", "--target=x86_64-freestanding-none", "-", "-g0"]
    assert said.splitlines() == wanted
