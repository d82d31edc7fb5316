"""Threads that take chunks of a loop from each other.

A job is a row of words with an atomic counter of chunks; native code takes chunks until none is
left. The caller works too and at the end waits only for chunks that others have begun, so a
thread that the system does not run delays nobody. Threads are started once and sleep in a queue;
waking one costs tens of microseconds, which is why small jobs never come here.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache
from queue import SimpleQueue

from eqsatad.backends.cpu.runtime.machine import Code, load

# The words of a job: function, table of arguments, next iteration, stop, chunk, iterations left.
WORDS = 6
Job = ctypes.c_int64 * WORDS
_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

SOURCE = """
declare i32 @sched_yield()
declare i64 @llvm.smin.i64(i64, i64)

define void @work(ptr %job) {
entry:
  %function = load ptr, ptr %job, align 8
  %args.at = getelementptr i64, ptr %job, i64 1
  %next.at = getelementptr i64, ptr %job, i64 2
  %stop.at = getelementptr i64, ptr %job, i64 3
  %chunk.at = getelementptr i64, ptr %job, i64 4
  %left.at = getelementptr i64, ptr %job, i64 5
  %args = load ptr, ptr %args.at, align 8
  %stop = load i64, ptr %stop.at, align 8
  %chunk = load i64, ptr %chunk.at, align 8
  br label %take
take:
  %begin = atomicrmw add ptr %next.at, i64 %chunk monotonic, align 8
  %there = icmp slt i64 %begin, %stop
  br i1 %there, label %run, label %none
run:
  %after = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %after, i64 %stop)
  call void %function(ptr %args, i64 %begin, i64 %end)
  %count = sub i64 %end, %begin
  %was = atomicrmw sub ptr %left.at, i64 %count release, align 8
  br label %take
none:
  ret void
}

define void @finish(ptr %job) {
entry:
  %left.at = getelementptr i64, ptr %job, i64 5
  br label %look
look:
  %left = load atomic i64, ptr %left.at acquire, align 8
  %busy = icmp sgt i64 %left, 0
  br i1 %busy, label %wait, label %done
wait:
  %ignored = call i32 @sched_yield()
  br label %look
done:
  ret void
}
"""


class Pool:
    """Threads of this process, as many as the largest kernel has asked for."""

    def __init__(self) -> None:
        self._code: Code = load(SOURCE, ("sched_yield",))
        self._work = _WORK(self._code.address("work"))
        self._finish = _WORK(self._code.address("finish"))
        self._queue: SimpleQueue[ctypes.Array[ctypes.c_int64]] = SimpleQueue()
        self._count = 0
        self._growing = threading.Lock()

    def run(
        self, threads: int, function: int, args: int, start: int, stop: int, chunk: int
    ) -> None:
        """``function`` of every chunk of a range, by at most ``threads`` threads."""
        job = Job(function, args, start, stop, chunk, stop - start)
        chunks = -(-(stop - start) // chunk)
        helpers = min(threads, chunks) - 1
        self._grow(helpers)
        for _ in range(helpers):
            self._queue.put(job)
        address = ctypes.addressof(job)
        self._work(address)
        self._finish(address)

    def _grow(self, count: int) -> None:
        with self._growing:
            while self._count < count:
                self._count += 1
                name = f"eqsatad-{self._count}"
                threading.Thread(target=self._help, name=name, daemon=True).start()

    def _help(self) -> None:
        while True:
            job = self._queue.get()
            self._work(ctypes.addressof(job))


@cache
def pool() -> Pool:
    """The pool of this process; a forked child makes its own."""
    return Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)
