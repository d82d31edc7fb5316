"""The worker ends what hangs, survives what crashes, and changes no result."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add, mul

import numpy as np
import pytest

import eqsatad as ea
from eqsatad.cache import VARIABLE
from eqsatad.errors import DtypeError, RuleError
from eqsatad.extract.cost import COUNT, CPU, CostModel
from eqsatad.extract.isolate import LARGE, apart
from eqsatad.extract.optimise import optimise
from eqsatad.extract.recall import forget
from eqsatad.rules import worker
from eqsatad.rules.catalog import load
from eqsatad.rules.growth import Limits
from eqsatad.rules.value_rule import Pattern, ValueRule, rewrite, x
from eqsatad.rules.worker import (
    Worker,
    WorkerDiedError,
    WorkerFailedError,
    WorkerTimeoutError,
)
from eqsatad.terms.store import dump
from tests.programs import from_seed

LINUX = sys.platform == "linux"
VALUES = tuple(row for row in load() if isinstance(row, ValueRule))


# What the worker of a test runs: it finds these functions by name.


def echo(payload):
    yield payload


def slow(payload):
    yield b"first"
    yield b"second"
    time.sleep(60)


def crash(payload):
    yield b"before"
    os._exit(7)


def killed(payload):
    yield b"before"
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(payload):
    yield b"ignored"
    raise DtypeError(payload.decode())


def fail(payload):
    yield b"ignored"
    raise KeyError(payload.decode())


def greedy(payload):
    yield b"before"
    yield bytes(int(payload))


def hoard(payload):
    hoarded = bytearray(int(payload))
    yield str(len(hoarded)).encode()


def chatty(payload):
    print("this is not a result")
    os.write(1, b"neither is this")
    yield payload


def identity(payload):
    yield str(os.getpid()).encode()


def name(function):
    return f"{__name__}:{function.__name__}"


@pytest.fixture(scope="module")
def own():
    made = Worker()
    yield made
    made.stop()


def gone(pid):
    """Whether the process has ended and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("size", [0, 1, 100_000, 5_000_000])
def test_call_gives_the_last_result(own, size):
    payload = os.urandom(size)
    assert own.call(name(echo), payload, 20) == payload


def test_process_starts_with_the_first_call_and_is_kept():
    made = Worker()
    assert made.pid is None
    first = made.call(name(identity), b"", 20)
    pid = made.pid
    assert made.call(name(identity), b"", 20) == first == str(pid).encode()
    made.stop()
    assert made.pid is None
    assert gone(pid)


def test_output_of_a_library_is_no_result(own):
    assert own.call(name(chatty), b"this is", 20) == b"this is"


def test_call_without_a_limit_ends(own):
    assert own.call(name(echo), b"x", float("inf")) == b"x"


def test_late_call_is_killed_with_its_latest_result(own):
    own.call(name(echo), b"", 20)
    pid, start = own.pid, time.monotonic()
    with pytest.raises(WorkerTimeoutError, match=r"slow was not done after 0\.5 s") as caught:
        own.call(name(slow), b"", 0.5)
    assert time.monotonic() - start < 5
    assert caught.value.latest == b"second"
    assert own.pid is None
    assert gone(pid)


@pytest.mark.parametrize(
    ("function", "ending"), [(crash, "exit code 7"), (killed, "killed by SIGKILL")]
)
def test_crash_is_reported_and_survived(own, function, ending):
    own.call(name(echo), b"", 20)
    pid = own.pid
    with pytest.raises(WorkerDiedError, match=ending) as caught:
        own.call(name(function), b"", 20)
    assert caught.value.latest == b"before"
    assert gone(pid)
    assert own.call(name(echo), b"again", 20) == b"again"


def test_worker_killed_between_calls_is_replaced(own):
    own.call(name(echo), b"", 20)
    pid = own.pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert own.call(name(echo), b"again", 20) == b"again"
    assert own.pid != pid


def test_message_to_the_user_crosses(own):
    with pytest.raises(DtypeError, match="cast it"):
        own.call(name(refuse), b"cast it", 20)
    assert own.call(name(echo), b"again", 20) == b"again"


def test_other_exception_crosses_as_a_traceback(own):
    with pytest.raises(WorkerFailedError, match=r"in fail\n(.*\n)*KeyError: 'key'"):
        own.call(name(fail), b"key", 20)


@pytest.mark.parametrize(
    ("executable", "reason"),
    [
        ("/no/such/python", "could not be started"),
        (str(shutil.which("false")), "did not start: exit code 1"),
        ("", "no Python"),
    ],
)
def test_interpreter_that_does_not_start_is_reported(monkeypatch, executable, reason):
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(WorkerDiedError, match=reason):
        Worker().call(name(echo), b"", 20)


@pytest.mark.skipif(not LINUX, reason="memory is bounded on Linux only")
def test_memory_is_bounded():
    small = Worker(memory=200 << 20)
    try:
        assert small.call(name(hoard), str(20 << 20).encode(), 20) == str(20 << 20).encode()
        with pytest.raises(WorkerDiedError) as caught:
            small.call(name(greedy), str(400 << 20).encode(), 20)
        assert caught.value.latest == b"before"
        assert small.call(name(echo), b"again", 20) == b"again"
    finally:
        small.stop()


def test_threads_share_the_worker(own):
    payloads = [str(number).encode() * 1000 for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda payload: own.call(name(echo), payload, 30), payloads))
    assert found == payloads


def test_stop_ends_a_call_of_another_thread(own):
    own.call(name(echo), b"", 20)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(own.call, name(slow), b"", 60)
        time.sleep(0.3)
        own.stop()
        with pytest.raises(WorkerDiedError):
            waiting.result(timeout=10)
    assert own.call(name(echo), b"again", 20) == b"again"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_forked_process_has_a_worker_of_its_own():
    mine = worker.call(name(identity), b"", 20)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writing, worker.call(name(identity), b"", 20))
            worker._worker.stop()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100)
    os.close(reading), os.close(writing)
    assert theirs.isdigit()
    assert theirs != mine
    assert worker.call(name(identity), b"", 20) == mine


SCRIPT = """
import eqsatad as ea
from eqsatad.rules.growth import Limits
from eqsatad.rules import worker
x = ea.placeholder((4,), name="x")
y = ea.compute((4,), lambda i: ea.tanh(x[i]) * x[i] + 3 * x[i], name="y")
grads = ea.differentiate(y, [x], limits=Limits(isolate=True))
print(grads.saturation.stop_reason, worker._worker.pid)
"""


def environment():
    """That of a process which finds what this one finds, and remembers no answer."""
    path = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "PYTHONPATH": path, VARIABLE: ""}


def started(tmp_path, way):
    """The output of `SCRIPT`, run in one of the ways in which users run Python."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, encoding="utf-8")
    command, text = {
        "script": ([path], None),
        "standard input": (["-"], SCRIPT),
        "argument": (["-c", SCRIPT], None),
        "interactive": (["-i", "-q"], SCRIPT + "\n"),
    }[way]
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        input=text,
        capture_output=True,
        text=True,
        env=environment(),
        cwd=tmp_path,
        timeout=60,
    )
    return done.stdout.split()


@pytest.mark.parametrize("way", ["script", "standard input", "argument", "interactive"])
def test_worker_runs_and_ends_with_any_main_module(tmp_path, way):
    reason, pid = started(tmp_path, way)
    assert reason == "saturated"
    assert gone(int(pid))


ORPHAN = f"""
import os, signal, threading, time
from eqsatad.rules import worker
worker.call("{__name__}:echo", b"", 30)
print(worker._worker.pid, flush=True)
if {{busy}}:
    threading.Thread(target=worker.call, args=("{__name__}:slow", b"", 1.0), daemon=True).start()
    time.sleep(0.5)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not LINUX, reason="a hanging orphan is ended by an alarm of the system")
@pytest.mark.parametrize("busy", [False, True])
def test_worker_of_a_killed_process_ends(busy):
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN.format(busy=busy)],
        stdout=subprocess.PIPE,
        env=environment(),
        timeout=60,
    )
    deadline = time.monotonic() + 20
    while not gone(int(done.stdout)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert gone(int(done.stdout))


@pytest.fixture
def nothing_remembered(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    forget()


# The search of a stage in the worker.


def product(factors):
    k, m = ea.reduce_axis((0, 4), "k"), ea.reduce_axis((0, 5), "l")
    a = [ea.placeholder((3, 4), name=f"a{n}") for n in range(factors)]
    b = [ea.placeholder((4, 5), name=f"b{n}") for n in range(factors)]
    return ea.compute(
        (3,),
        lambda i: ea.sum(
            reduce(mul, [a[n][i, k] if n % 2 else b[n][k, m] for n in range(factors)]),
            axis=(k, m),
        ),
        name="s",
    )


def found(stage, rules=VALUES, cost: CostModel = COUNT, **limits):
    """Everything that a simplification gives, time aside."""
    result = optimise(stage, rules, cost, Limits(**limits))
    report = {key: value for key, value in vars(result.report).items() if key != "seconds"}
    return dump(result.stages), result.cost_before, result.cost_after, report


@pytest.mark.parametrize("factors", [3, 5, 8])
@pytest.mark.parametrize("cost", [COUNT, CPU], ids=lambda cost: cost.name)
def test_worker_finds_what_this_process_finds(factors, cost):
    stage = product(factors)
    here, there = (found(stage, cost=cost, seconds=60, isolate=way) for way in (False, True))
    assert here == there


@pytest.mark.parametrize("seed", range(12))
def test_worker_finds_the_same_gradients(seed, nothing_remembered):
    program = from_seed(seed)
    here, there = (
        ea.differentiate(program.output, program.floats, limits=Limits(seconds=60, isolate=way))
        for way in (False, True)
    )
    assert dump(here.results) == dump(there.results)
    assert here.saturation.stop_reason == there.saturation.stop_reason


ALIKE = rewrite("times-one-again", 1 * x, x)
LETTERS = [Pattern("value", name=letter) for letter in "abcdefghijklmno"]
TERMS = [reduce(mul, LETTERS[n : n + 3]) for n in range(0, 15, 3)]
# True, and it matches every way to write five products of four factors: billions in one step.
RUNAWAY = rewrite("five-products", reduce(add, TERMS), reduce(add, reversed(TERMS)))


def sum_of_products(terms=5, factors=4):
    k = ea.reduce_axis((0, 6), "k")
    a = [ea.placeholder((4, 6), name=f"a{n}", dtype="float64") for n in range(terms * factors)]
    return ea.compute(
        (4,),
        lambda i: ea.sum(
            reduce(
                add,
                [
                    reduce(mul, [read[i, k] for read in a[n : n + factors]])
                    for n in range(0, len(a), factors)
                ],
            ),
            axis=k,
        ),
        name="s",
    )


def test_row_that_runs_away_ends_within_the_limit(nothing_remembered):
    stage = sum_of_products()
    worker.call(name(echo), b"", 30)
    start = time.monotonic()
    result = ea.simplified([stage], rules=(*load(), RUNAWAY), limits=Limits(seconds=1.0))
    assert time.monotonic() - start < 8
    expected = "time limit 1.0 s: the e-graph was stopped from outside"
    assert result.saturation.stop_reason == expected
    random = np.random.default_rng(0)
    arrays = {f"a{n}": random.normal(size=(4, 6)) for n in range(20)}
    (before,), (after,) = (
        ea.evaluate(outputs, arrays) for outputs in ([stage], list(result.outputs))
    )
    # Sums in another order: rounding of 30 products of four.
    np.testing.assert_allclose(after, before, rtol=1e-12)
    assert found(product(4), isolate=True) == found(product(4), isolate=False)


def test_what_was_found_before_the_end_is_kept(monkeypatch):
    """A search that is stopped after some rounds gives their best."""
    stage = product(5)
    full = found(stage, isolate=True)

    def stopped(function, payload, seconds):
        result = real(function, payload, seconds)
        raise WorkerTimeoutError("late", result)

    real = worker.call
    monkeypatch.setattr(worker, "call", stopped)
    stages, _, cost, report = found(stage, isolate=True)
    assert (stages, cost) == (full[0], full[2])
    assert report["stopped"] == "time limit 2.0 s: the e-graph was stopped from outside"


def test_crash_leaves_the_stage_as_it_is(monkeypatch, nothing_remembered):
    stage = product(3)

    def crashed(function, payload, seconds):
        raise WorkerDiedError("killed by SIGSEGV")

    monkeypatch.setattr(worker, "call", crashed)
    result = ea.simplified([stage], limits=Limits(isolate=True))
    assert result.saturation.stop_reason == "memory limit or crash: killed by SIGSEGV"
    arrays = {t: np.ones((3, 4), "float32") for t in ("a1",)}
    arrays |= {t: np.ones((4, 5), "float32") for t in ("b0", "b2")}
    assert ea.evaluate(list(result.outputs), arrays)[0].tolist() == [20.0, 20.0, 20.0]


def test_wrong_row_is_refused_with_its_own_message():
    row = rewrite("grow", x, x + 0 * x)
    with pytest.raises(RuleError, match="grow"):
        ea.simplified([product(3)], rules=(*load(), row))


def shallow(size):
    """A body of more than ``size`` nodes."""
    a = ea.placeholder((size + 1,), name="a")
    return ea.compute((), lambda: reduce(add, [a[n] for n in range(size)])).body


class OwnCost(CostModel):
    """A cost model that another process cannot know."""


@pytest.mark.parametrize(
    ("expected", "rules", "limits", "body"),
    [
        (False, VALUES, Limits(), product(8).body),
        (False, VALUES[:5], Limits(), product(8).body),
        (False, VALUES, Limits(nodes=100, seconds=10), product(8).body),
        (True, VALUES, Limits(nodes=7_000), product(8).body),
        (True, VALUES, Limits(rounds=7), product(8).body),
        (True, (*VALUES, ALIKE), Limits(), product(8).body),
        (True, VALUES, Limits(), shallow(LARGE)),
        (True, VALUES, Limits(isolate=True), product(2).body),
        (False, (*VALUES, ALIKE), Limits(isolate=False), shallow(LARGE)),
    ],
)
def test_search_is_apart_where_nobody_has_measured(expected, rules, limits, body):
    assert apart(body, rules, COUNT, limits) is expected


def test_cost_model_of_a_user_class_stays_here():
    own = OwnCost(**vars(COUNT))
    assert not apart(product(3).body, VALUES, own, Limits(isolate=True))
    assert found(product(3), cost=own, isolate=True) == found(product(3), cost=COUNT)


def test_searches_of_several_threads_are_right():
    stages = [product(factors) for factors in (3, 4, 5, 6)] * 2
    expected = [found(stage, isolate=False, seconds=60) for stage in stages]
    with ThreadPoolExecutor(4) as pool:
        searched = list(pool.map(lambda stage: found(stage, isolate=True, seconds=60), stages))
    assert searched == expected


def test_no_thread_is_left_behind(own):
    before = threading.active_count()
    own.call(name(echo), b"", 30)
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
