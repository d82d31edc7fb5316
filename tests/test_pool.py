"""The pool: chunks, seats, nested jobs, callers in several threads, forks, what waits in vain."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import eqsatad as ea
from eqsatad.backends import threads
from eqsatad.backends.cpu import prepare
from eqsatad.backends.cpu.code.source import Machine, Options, steps_of
from eqsatad.backends.cpu.code.text import Module
from eqsatad.backends.cpu.runtime import pool
from eqsatad.backends.cpu.runtime.machine import host, load
from eqsatad.backends.cpu.tiles.kinds import Kind, decision
from eqsatad.terms.ranges import interval
from tests.loop_programs import conv_input_gradient, lowered

CHUNK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
SHARE = ctypes.CFUNCTYPE(
    None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 3, ctypes.c_bool
)  # fmt: skip
# Seconds after which what should happen at once has not happened.
PATIENCE = 30
# What compiled code has addresses of, and the code of pools whose threads still sleep.
KEPT = []


class Fresh:
    """A pool of its own, called from Python with chunks in Python."""

    def __init__(self, shy=0, changed=lambda text: text, rising=pool.RISING):
        architecture, *_ = host().triple.split("-")
        self.code = load(changed(pool.source(architecture, shy, rising)), pool.OUTSIDE)
        KEPT.append(self.code)
        self._share = SHARE(self.code.address("share"))
        self._count = ctypes.CFUNCTYPE(ctypes.c_int64)(self.code.address("count"))
        self.reset = ctypes.CFUNCTYPE(None)(self.code.address("reset"))
        self.reset()

    @property
    def threads(self):
        return self._count()

    def share(self, limit, chunk_of, start, stop, chunk, long=True):
        """``chunk_of(begin, end)`` for all chunks, by at most ``limit`` threads."""
        called = CHUNK(lambda _, begin, end: chunk_of(begin, end))
        most = ctypes.c_int64(limit)
        team = pool.Words(0, ctypes.addressof(most), 0)
        function = ctypes.cast(called, ctypes.c_void_p)
        self._share(ctypes.addressof(team), function, None, start, stop, chunk, long)

    def willing(self, limit):
        """Whether a team of at most ``limit`` threads would share."""
        most = ctypes.c_int64(limit)
        team = pool.Words(0, ctypes.addressof(most), 0)
        ask = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(self.code.address("willing"))
        return ask(ctypes.addressof(team))


@pytest.fixture
def fresh():
    return Fresh()


def me():
    return threading.get_ident()


def slow(workers, seconds):
    """A chunk of so many seconds that notes who does it."""

    def chunk(begin, end):
        workers.add(me())
        time.sleep(seconds)

    return chunk


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize(
    ("start", "stop", "chunk"), [(0, 100, 7), (0, 100, 1), (3, 5, 10), (-4, 9, 13), (5, 5, 3)]
)
def test_every_chunk_is_done_once(fresh, limit, start, stop, chunk):
    done = []
    for _ in range(10):
        fresh.share(limit, lambda begin, end: done.append((begin, end)), start, stop, chunk)
    expected = [(begin, min(begin + chunk, stop)) for begin in range(start, stop, chunk)]
    assert sorted(done) == sorted(10 * expected)


def meet(fresh, count):
    """A job whose chunks wait for each other, each in a thread of its own."""
    # One that lies down as it is called may miss that, but not again and again.
    assert any(met(fresh, count) for _ in range(5))


def met(fresh, count, patience=2.0):
    meeting, missing = threading.Barrier(count), []

    def chunk(begin, end):
        try:
            meeting.wait(patience)
        except threading.BrokenBarrierError:
            missing.append(begin)

    fresh.share(count, chunk, 0, count, 1)
    return not missing


def test_as_many_threads_as_may_do_take_part_job_after_job(fresh):
    for _ in range(3 * pool.JOBS):
        meet(fresh, 4)
    assert fresh.threads == 3


def test_no_more_threads_take_part_than_may(fresh):
    for limit in [1, 2, 3] * 20:
        # Now there are more that look out for a job.
        meet(fresh, 5)
        workers = set()
        fresh.share(limit, slow(workers, 1e-5), 0, 20, 1)
        assert me() in workers
        assert len(workers) <= limit


def test_small_jobs_neither_start_nor_wake_threads(fresh):
    workers = []
    fresh.share(4, lambda *_: workers.append(me()), 0, 50, 1, long=False)
    assert fresh.threads == 0
    assert set(workers) == {me()}


def test_a_thread_that_looks_out_takes_part_in_a_small_job(fresh):
    def both():
        meet(fresh, 2)
        workers = set()
        # Long enough for a thread that is awake, and over before one that sleeps would wake.
        fresh.share(2, slow(workers, 1e-5), 0, 20, 1, long=False)
        return len(workers) == 2

    assert any(both() for _ in range(200))


def test_a_chunk_may_share_work_itself(fresh):
    done = []

    def inner(place):
        return lambda begin, end: done.append((place, begin))

    def outer(begin, end):
        fresh.share(3, inner(begin), 0, 10, 1)

    fresh.share(3, outer, 0, 8, 1)
    assert sorted(done) == [(place, begin) for place in range(8) for begin in range(10)]


def test_more_callers_than_jobs_at_once(fresh):
    callers = pool.JOBS + 10
    together = threading.Barrier(callers)
    found = {}

    def call(number):
        done = []
        first = [True]

        def chunk(begin, end):
            # Nobody goes on before all have begun.
            if first.pop() if first else False:
                together.wait(PATIENCE)
            done.append(begin)

        fresh.share(2, chunk, 0, 30, 1)
        found[number] = sorted(done)

    started = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for each in started:
        each.start()
    for each in started:
        each.join(PATIENCE)
    assert found == {number: list(range(30)) for number in range(callers)}


def unequal(fresh, caller_waits, other_waits):
    """A job of two chunks, of which the caller has one, and both have begun before one is done."""
    caller, other = me(), threading.Event()

    def chunk(begin, end):
        if me() == caller:
            other.wait(PATIENCE)
            time.sleep(caller_waits)
        else:
            other.set()
            time.sleep(other_waits)

    fresh.share(2, chunk, 0, 2, 1)


def test_who_waited_in_vain_shares_nothing_for_a_while():
    fresh = Fresh(shy=1000)
    unequal(fresh, 0.0, 0.3)
    assert not met(fresh, 2, patience=0.5)


def test_who_did_not_wait_in_vain_shares_again():
    fresh = Fresh(shy=1000)
    unequal(fresh, 0.3, 0.0)
    assert met(fresh, 2)


def test_after_a_while_all_is_as_before():
    fresh = Fresh(shy=1)
    unequal(fresh, 0.0, 0.3)
    time.sleep(0.5)
    meet(fresh, 2)


def called_in_vain(rising):
    """A pool of which the one thread sleeps and hears nothing, after a job that called it."""
    calling = "call i32 @pthread_cond_signal(ptr @called)"
    fresh = Fresh(
        shy=1000, changed=lambda text: text.replace(calling, "add i32 0, 0"), rising=rising
    )
    unequal(fresh, 0.1, 0.0)
    time.sleep(0.1)
    fresh.share(2, slow(set(), 0.02), 0, 2, 1)
    return fresh


def test_who_called_in_vain_shares_nothing_for_a_while():
    fresh = called_in_vain(pool.RISING)
    # This would start another thread.
    fresh.share(3, slow(set(), 0.0), 0, 3, 1)
    assert fresh.threads == 1
    assert not fresh.willing(3)


def test_a_thread_has_time_to_get_up():
    """40 milliseconds are not enough here, twice as many are."""
    fresh = called_in_vain(rising=60_000_000)
    assert fresh.willing(2)
    fresh.share(2, slow(set(), 0.02), 0, 2, 1)
    assert not fresh.willing(2)


def test_a_team_of_several_is_willing_until_it_has_lost_by_it():
    fresh = Fresh(shy=1)
    assert fresh.willing(2)
    assert not fresh.willing(1)
    unequal(fresh, 0.0, 0.3)
    assert not fresh.willing(2)
    time.sleep(0.5)
    assert fresh.willing(2)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
needs_two = pytest.mark.skipif(threads.available() < 2, reason="there is one CPU")
needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="threads cannot choose their CPU here"
)


def allowed_elsewhere():
    """The CPUs that each thread of this process may use, but for the one that asks."""
    tasks = Path("/proc/self/task").iterdir()
    others = [int(task.name) for task in tasks if int(task.name) != threading.get_native_id()]
    return {task: os.sched_getaffinity(task) for task in others}


@needs_two
@needs_affinity
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are not listed here")
def test_a_thread_sleeps_where_the_caller_is_not(fresh):
    """So that it is not woken where it would have to wait for the caller."""
    before, allowed, caller, awake = allowed_elsewhere(), os.sched_getaffinity(0), me(), []

    def chunk(begin, end):
        if me() != caller:
            awake.append(os.sched_getaffinity(0))
        time.sleep(0.02)

    fresh.share(2, chunk, 0, 2, 1)
    home = min(allowed)
    os.sched_setaffinity(0, {home})
    try:
        fresh.share(2, chunk, 0, 2, 1)
        time.sleep(0.1)
    finally:
        os.sched_setaffinity(0, allowed)
    (asleep,) = (cpus for task, cpus in allowed_elsewhere().items() if task not in before)
    assert asleep == allowed - {home}
    fresh.share(2, chunk, 0, 2, 1)
    assert awake == [allowed] * 3


@needs_two
@needs_affinity
def test_a_thread_leaves_the_cpu_of_the_caller_and_no_other(fresh):
    leave = ctypes.CFUNCTYPE(None, ctypes.c_int64)(fresh.code.address("leave"))
    library, moved, stayed = ctypes.CDLL(None), set(), set()
    allowed = os.sched_getaffinity(0)
    for _ in range(5):
        cpu = library.sched_getcpu()
        leave(cpu)
        after = library.sched_getcpu()
        moved.add(after != cpu)
        leave(max(allowed) + 1)
        stayed.add(library.sched_getcpu() == after)
    # The system may have moved this thread as well, but not each time.
    assert True in moved
    assert True in stayed
    assert os.sched_getaffinity(0) == allowed
    try:
        os.sched_setaffinity(0, {min(allowed)})
        leave(max(allowed))
        assert library.sched_getcpu() == min(allowed)
        # Where there is no other CPU, it stays.
        leave(min(allowed))
        assert os.sched_getaffinity(0) == {min(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)


def run(script):
    """What ``script`` prints, in a process of its own: a fork of this one would be of pytest."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


IN_CHILD = """
import os, sys, threading, time
sys.path.insert(0, {root!r})
from tests.test_pool import Fresh, PATIENCE, meet

fresh = Fresh()
os.register_at_fork(after_in_child=fresh.reset)

meet(fresh, 2)
begun, end = threading.Event(), threading.Event()
other = threading.Thread(
    target=fresh.share, args=(2, lambda *_: (begun.set(), end.wait(PATIENCE)), 0, 50, 1)
)
other.start()
begun.wait(PATIENCE)
child = os.fork()
if child == 0:
    before = fresh.threads
    meet(fresh, 2)
    meet(fresh, 2)
    os.write(1, f"{{before}} {{fresh.threads}} ".encode())
    os._exit(0)
end.set()
other.join(PATIENCE)
_, status = os.waitpid(child, 0)
meet(fresh, 2)
print(status, fresh.threads)
"""


@needs_fork
def test_a_child_forked_in_the_midst_of_a_job_has_threads_of_its_own():
    assert run(IN_CHILD.format(root=str(Path(__file__).parent.parent))) == ["0", "1", "0", "1"]


KERNEL = """
import numpy as np
import eqsatad as ea
from eqsatad.backends.cpu.runtime.pool import pool

x = ea.placeholder((3000, 1000), name="x")
y = ea.compute((3000, 1000), lambda i, j: ea.exp(x[i, j]), name="y")
kernel = ea.build([y])
array = np.zeros((3000, 1000), "float32")
"""


def counts(calls, number):
    """How many threads there are beside the caller after each of some calls; ``number`` is set."""
    before = f"import os; os.environ[{threads.VARIABLE!r}] = {number!r}"
    lines = [f"{call}; print(pool().threads)" for call in calls]
    return [int(word) for word in run("\n".join([before, KERNEL, *lines]))]


def test_kernel_uses_the_chosen_number_of_threads():
    calls = ["kernel(array)", "ea.set_num_threads(4); kernel(array)"]
    assert counts(calls, number="1") == [0, 3]
    assert counts(["kernel(array)"], number="3") == [2]


def test_a_prepared_call_uses_the_number_of_threads_of_the_moment():
    calls = ["call = kernel.prepare(array); call()", "ea.set_num_threads(3); call()"]
    assert counts(calls, number="1") == [0, 2]


FIRST = """
import gc, threading
together = threading.Barrier(8)
wrong = []

def call():
    together.wait()
    for _ in range(10):
        wrong.extend([0] if (kernel(array)[0] != 1.0).any() else [])
        gc.collect()

started = [threading.Thread(target=call) for _ in range(8)]
[each.start() for each in started]
[each.join() for each in started]
print(len(wrong))
"""


def test_callers_that_are_the_first_at_once_have_one_pool():
    before = f"import os; os.environ[{threads.VARIABLE!r}] = '2'"
    assert run("\n".join([before, KERNEL, FIRST])) == ["0"]


COMPILING = """
import os, threading, time
from eqsatad.backends.cpu.runtime.machine import compiled

def compile(number):
    names = (f"f{number}_{n}" for n in range(50))
    compiled("".join(f"define void @{name}() {{ ret void }}\\n" for name in names))

compile(0)
over = threading.Event()
other = threading.Thread(target=lambda: [compile(n) for n in range(10**6) if not over.is_set()])
other.start()
for number in range(20):
    time.sleep(0.003)
    child = os.fork()
    if child == 0:
        compile(-1)
        os._exit(0)
    print(os.waitpid(child, 0)[1])
over.set()
"""


@needs_fork
def test_a_child_forked_in_the_midst_of_a_compilation_compiles():
    assert run(COMPILING) == ["0"] * 20


@pytest.fixture
def asked(monkeypatch):
    """What compiled code asks to be shared: how many chunks, and whether it is long."""
    found = []

    @SHARE
    def share(team, function, args, start, stop, chunk, long):
        found.append((-(-(stop - start) // chunk), long))
        for begin in range(start, stop, chunk):
            CHUNK(function)(args, begin, min(begin + chunk, stop))

    limit = ctypes.c_int64(2)
    words = pool.Words(
        ctypes.cast(share, ctypes.c_void_p).value, ctypes.addressof(limit), pool.pool().willing
    )
    address = property(lambda team: ctypes.addressof(words))
    monkeypatch.setattr("eqsatad.backends.cpu.runtime.pool.Team.address", address)
    KEPT.append((share, words, limit))
    return found


@pytest.mark.parametrize(
    ("rows", "shared", "long"), [(1, False, False), (128, True, False), (2000, True, True)]
)
def test_what_is_shared_follows_from_how_long_it_takes(asked, rows, shared, long):
    x = ea.placeholder((rows, 1000), name="x")
    kernel = ea.build([ea.compute((rows, 1000), lambda i, j: ea.exp(x[i, j]), name="y")], threads=2)
    (found,) = kernel(np.zeros((rows, 1000), "float32"))
    np.testing.assert_allclose(found, 1.0)
    assert [wakes for _, wakes in asked] == [long] * shared
    # All threads have some to do, and the last one is soon over.
    assert all(chunks >= 8 for chunks, _ in asked)


def test_what_is_worked_out_again_is_an_exception():
    """A convolution looks for results that came out NaN: little beside its products."""
    machine = Machine(64, 32)
    program = prepare(lowered(conv_input_gradient(2, 16, 16, 20, 3, 1)), machine)
    steps = steps_of(program, Module(64), Options(machine, exact=False))
    efforts = {
        decision(step.body, step.tile).kind: interval(step.share.effort)[1]
        for step in steps
        if step.share is not None
    }
    assert efforts[Kind.REST] < efforts[Kind.CONTRACTION]


def test_a_wrong_number_of_threads_is_an_error_of_the_build(monkeypatch):
    monkeypatch.setenv(threads.VARIABLE, "many")
    x = ea.placeholder((3,), name="x")
    with pytest.raises(ea.errors.ArgumentError, match="EQSATAD_NUM_THREADS is 'many'"):
        ea.build([ea.compute((3,), lambda i: ea.exp(x[i]), name="y")])


class InterruptedCallError(Exception):
    """What the handler of the signal below raises."""


def interrupted(call):
    """Whether a signal came while ``call`` was made, or soon after."""
    try:
        signal.setitimer(signal.ITIMER_REAL, 3e-4)
        call()
        time.sleep(PATIENCE)
    except InterruptedCallError:
        return True
    return False


def test_an_interrupted_call_is_whole():
    """A signal that Python handles comes after the kernel, whoever works on it."""

    def handle(*_):
        raise InterruptedCallError

    x = ea.placeholder((3000, 1000), name="x")
    kernel = ea.build([ea.compute((3000, 1000), lambda i, j: ea.exp(x[i, j]), name="y")])
    array, out = np.zeros((3000, 1000), "float32"), np.empty((3000, 1000), "float32")
    call = kernel.prepare(array, out=out)
    call()
    before = signal.signal(signal.SIGALRM, handle)
    try:
        for _ in range(20):
            out.fill(0.0)
            assert interrupted(call)
            # It may have come even before the call.
            assert out.min() == out.max()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
