"""A process beside this one for work that may hang or eat memory: it can be killed.

A step of egglog cannot be interrupted from inside. The worker runs functions by dotted name, one
at a time; each gives better and better results, so that what there was is left when it is
stopped. It is started on first use, serves all threads, has bounded memory, and ends with this
process, whatever way that ends. It imports nothing of the main script.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import IO, Self, cast

from eqsatad import errors
from eqsatad.errors import EqsatadError

Function = Callable[[bytes], Iterable[bytes]]

MEMORY = 2 << 30
"""Bytes that the worker may take on top of what it has after its imports; held to on Linux."""

START_SECONDS = 60.0
"""How long a start may take: imports, on a busy machine."""

GRACE = 2.0
"""After how many seconds past its deadline a worker ends itself: nobody else is there to do it."""

LONGEST = 1e7
"""What stands for no deadline at all."""

READY, RESULT, DONE, ERROR, REQUEST = b"r", b"+", b".", b"!", b"?"
HEADER = struct.Struct("<cQ")

BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); \
from eqsatad.rules.worker import serve; serve(int(sys.argv[2]))"


class WorkerError(Exception):
    """A call that did not end well; ``latest`` is the last result that it gave, if any."""

    def __init__(self, message: str, latest: bytes | None = None) -> None:
        super().__init__(message)
        self.latest = latest


class WorkerTimeoutError(WorkerError):
    """The call was not done in time, and the worker was killed."""


class WorkerDiedError(WorkerError):
    """The worker ended by itself: a crash, no more memory, or it never started."""


class WorkerFailedError(Exception):
    """The function raised something that is no message to a user; holds the traceback."""


def call(function: str, payload: bytes, seconds: float) -> bytes:
    """The last result of ``function``, named ``module:name``, at ``payload``.

    Raises `WorkerTimeoutError` after ``seconds`` and `WorkerDiedError` when the worker ended. An
    `EqsatadError` of the function is raised here.
    """
    return _worker.call(function, payload, seconds)


class Worker:
    """One worker process, or none as long as none is needed."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, function: str, payload: bytes, seconds: float) -> bytes:
        """As `call` of this module, in this worker."""
        seconds = min(seconds, LONGEST)
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                self.stop()
                process = self._process = self._started()
            return self._converse(process, function, payload, seconds)

    def stop(self) -> None:
        """Ends the process if there is one; the next call starts another."""
        # Without the lock: a call that hangs is what this is for.
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    @property
    def pid(self) -> int | None:
        """The process, if one was started and not ended."""
        return None if self._process is None else self._process.pid

    def _started(self) -> subprocess.Popen[bytes]:
        if not sys.executable or getattr(sys, "frozen", False):
            raise WorkerDiedError("there is no Python interpreter to start a worker with")
        command = [sys.executable, "-P", "-c", BOOT, json.dumps(sys.path), str(self._memory)]
        # Arenas are address space that threads reserve and hardly use, and the limit counts it.
        environment = {**os.environ, "MALLOC_ARENA_MAX": "2"}
        try:
            process = subprocess.Popen(
                command,
                # Unbuffered: a fork of this process has nothing to flush into the pipe.
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        except OSError as error:
            raise WorkerDiedError(f"the worker could not be started: {error}") from error
        try:
            with _Deadline(process, START_SECONDS):
                _receive(_pipe(process.stdout))
        except BaseException as error:
            _end(process)
            if isinstance(error, EOFError | OSError):
                raise WorkerDiedError(
                    f"the worker did not start: {_ending(process.returncode)}"
                ) from error
            raise
        return process

    def _converse(
        self, process: subprocess.Popen[bytes], function: str, payload: bytes, seconds: float
    ) -> bytes:
        """Sends one request and reads results until there are no more."""
        latest: bytes | None = None
        deadline = _Deadline(process, seconds)
        try:
            with deadline:
                _send(_pipe(process.stdin), REQUEST, json.dumps([function, seconds]).encode())
                _send(_pipe(process.stdin), REQUEST, payload)
                kind, content = _receive(_pipe(process.stdout))
                while kind == RESULT:
                    latest = content
                    kind, content = _receive(_pipe(process.stdout))
        except BaseException as error:
            # Whatever interrupted this, the two sides no longer agree on what comes next.
            self.stop()
            if not isinstance(error, EOFError | OSError):
                raise
            if deadline.passed:
                message = f"{function} was not done after {seconds:g} s"
                raise WorkerTimeoutError(message, latest) from None
            message = f"the worker ended in {function}: {_ending(process.returncode)}"
            raise WorkerDiedError(message, latest) from None
        if kind == ERROR:
            raise _error(content)
        assert latest is not None, f"{function} gave no result"
        return latest


class _Deadline:
    """A context that kills ``process`` when it is not left within ``seconds``."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self.passed = False
        self._process = process
        self._left = False
        self._guard = threading.Lock()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._guard:
            self._left = True
        self._timer.cancel()

    def _expire(self) -> None:
        with self._guard:
            if not self._left:
                self.passed = True
                self._process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills ``process``, which keeps nothing, and waits for it: no zombie is left."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            _pipe(pipe).close()


def _ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None, "the worker is started with pipes"
    return stream


def _send(stream: IO[bytes], kind: bytes, content: bytes) -> None:
    rest = memoryview(HEADER.pack(kind, len(content)) + content)
    while rest:
        rest = rest[stream.write(rest) :]
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[bytes, bytes]:
    kind, length = HEADER.unpack(_exactly(stream, HEADER.size))
    return kind, _exactly(stream, length)


def _exactly(stream: IO[bytes], length: int) -> bytes:
    parts = []
    while length:
        part = stream.read(length)
        if not part:
            raise EOFError("the other side has closed its end")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _error(content: bytes) -> Exception:
    """The exception that the function raised."""
    name, message, trace = json.loads(content)
    cls = getattr(errors, name, None)
    if isinstance(cls, type) and issubclass(cls, EqsatadError):
        return cls(message)
    return WorkerFailedError(trace)


_worker = Worker()


def _forget() -> None:
    """Leaves the worker to the process that started it."""
    global _worker
    _worker = Worker()


atexit.register(lambda: _worker.stop())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def serve(memory: int) -> None:
    """Answers requests on the standard input until it is closed: what the worker runs."""
    requests, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Whatever a library prints must not get between the results.
    os.dup2(2, 1)
    # An interrupt from the keyboard is for the process that asked, which then ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _bound_memory(memory)
    _send(results, READY, b"")
    while True:
        try:
            function, seconds = json.loads(_receive(requests)[1])
            payload = _receive(requests)[1]
        except EOFError:
            return
        _alarm(seconds + GRACE)
        _answer(function, payload, results)
        _alarm(0)


def _answer(name: str, payload: bytes, results: IO[bytes]) -> None:
    try:
        for result in _function(name)(payload):
            _send(results, RESULT, result)
    except MemoryError:
        # What is left of a process without memory is not to be relied on.
        raise
    except Exception as error:
        content = [type(error).__name__, str(error), traceback.format_exc()]
        _send(results, ERROR, json.dumps(content).encode())
    else:
        _send(results, DONE, b"")


def _function(name: str) -> Function:
    module, _, attribute = name.partition(":")
    return cast(Function, getattr(importlib.import_module(module), attribute))


def _alarm(seconds: float) -> None:
    """Has the system end this process after ``seconds``; 0 is never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _bound_memory(extra: int) -> None:
    """Lets the address space grow by ``extra`` bytes at most."""
    if sys.platform != "linux":
        return
    import resource

    with open("/proc/self/statm", encoding="ascii") as sizes:
        taken = int(sizes.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bounds = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([taken + extra, *bounds]), hard))
