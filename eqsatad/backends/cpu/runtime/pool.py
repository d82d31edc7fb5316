"""Threads that take chunks of a loop from each other, without Python.

Compiled code posts a job: a row of words, one of them a ticket, from which whoever has time takes
chunks until none is left. The caller works too, and at the end waits only for chunks that others
have begun, so a thread that the system does not run delays nobody. Threads are started when a job
first has use for them. For a while after a job they look out for the next one, so that a step after
a step, or a kernel after a kernel, finds them awake. Then they sleep; to wake one takes tens of
microseconds, so a small job wakes nobody.

A ticket is {generation, seats, next chunk}. Every job has a generation of its own, and a seat or a
chunk is taken by exchanging the whole ticket for another, so a thread that comes late takes nothing
of the job that came after. Nobody waits for a lock: a thread that lies down just as it is called
may miss that, and then the job has a thread less.

A thread may be woken on the caller's own CPU, where it waits for its turn as long as the caller
works. So while it sleeps it may use any CPU but that of the last caller; and if it finds itself on
the caller's all the same, it goes to another one.

Where other processes want the CPUs, sharing can be slower than working alone. A thread may get no
CPU before the job is over, or be put off in the midst of a chunk, for milliseconds. A caller that
woke threads of which none came though they had time to get up, or that waited longer for others
than it had worked, has lost by it, and shares nothing for some time.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from string import Template
from time import CLOCK_MONOTONIC

from eqsatad.backends.cpu.runtime.machine import Code, host, load, lock

# Jobs that may be under way at once, a bit each; the caller of one more works alone.
JOBS = 64
# Threads beside the caller that may take part in a job: what ten bits hold.
SEATS = 1023
# Chunks of a job: what 31 bits hold. A job of more is the caller's.
CHUNKS = (1 << 31) - 1
# How often a thread looks out for a job before it sleeps, some 100 microseconds, and how
# often a caller looks whether the last chunks are done before it offers its CPU to others.
LOOKS, WAITS = 8000, 500
# For how many times as long as a caller worked or waited in vain nothing is shared after that.
SHY = 8
# Nanoseconds that a thread is given to get up: before, that it did not come means nothing.
RISING = 300_000
# The instruction of a thread that only waits, by the architecture: its name, types and arguments.
PAUSES = {"x86_64": ("llvm.x86.sse2.pause", "", ""), "aarch64": ("llvm.aarch64.isb", "i32", "15")}

SOURCE = Template("""
declare i32 @sched_yield()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @clock_gettime(i32, ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.cttz.i64(i64, i1)
$declared

; Ticket, chunks that are not done, function, its table of arguments, start, stop, chunk, chunks;
; then nothing, so that two jobs are in no pair of lines of a cache.
%job = type { i64, i64, i64, i64, i64, i64, i64, i64, [8 x i64] }
@jobs = internal global [$jobs x %job] zeroinitializer, align 128
; A bit for each job that somebody has.
@taken = internal global i64 0, align 64
; How many jobs were posted, and the CPU of who posted the last.
@posted = internal global i64 0, align 64
@home = internal global i64 -1, align 64
; Threads that there are, that look out for a job, and that sleep.
@threads = internal global i64 0, align 64
@looking = internal global i64 0, align 64
@sleeping = internal global i64 0, align 64
; Until when nothing is shared, in nanoseconds.
@until = internal global i64 0, align 64
; How long callers worked alone since they woke threads of which none came, in nanoseconds.
@missed = internal global i64 0, align 64
; As large as these are anywhere, and more.
@mutex = internal global [16 x i64] zeroinitializer, align 64
@called = internal global [16 x i64] zeroinitializer, align 64

; What a new process has: no threads, and no jobs.
define void @reset() {
  br label %loop
loop:
  %n = phi i64 [ 0, %0 ], [ %after, %loop ]
  %ticket = getelementptr [$jobs x %job], ptr @jobs, i64 0, i64 %n
  store atomic i64 $none, ptr %ticket monotonic, align 8
  %after = add i64 %n, 1
  %more = icmp ult i64 %after, $jobs
  br i1 %more, label %loop, label %rest
rest:
  store atomic i64 0, ptr @taken monotonic, align 8
  store atomic i64 0, ptr @threads monotonic, align 8
  store atomic i64 0, ptr @looking monotonic, align 8
  store atomic i64 0, ptr @sleeping monotonic, align 8
  store atomic i64 0, ptr @until monotonic, align 8
  store atomic i64 0, ptr @missed monotonic, align 8
  %a = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr @called, ptr null)
  ret void
}

; How many threads there are beside callers.
define i64 @count() {
  %count = load atomic i64, ptr @threads monotonic, align 8
  ret i64 %count
}

; Nanoseconds since some time.
define internal i64 @clock() {
  %time = alloca [2 x i64], align 8
  %ignored = call i32 @clock_gettime(i32 $clock, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at, align 8
  %whole = mul i64 %seconds, 1000000000
  %all = add i64 %whole, %rest
  ret i64 %all
}
$leave
; Chunks of the job with this ticket, until there are no more of them; how many these were.
define internal i64 @work(ptr %job, i64 %mine) {
$places
  br label %look
look:
  %done = phi i64 [ 0, %0 ], [ %done, %take ], [ %more.done, %run ]
  %ticket = load atomic i64, ptr %job acquire, align 8
  %differs = xor i64 %ticket, %mine
  %same = icmp ult i64 %differs, $generation
  br i1 %same, label %ours, label %none
ours:
  %next = and i64 %ticket, $chunks
  %function = load atomic ptr, ptr %function.at monotonic, align 8
  %args = load atomic ptr, ptr %args.at monotonic, align 8
  %start = load atomic i64, ptr %start.at monotonic, align 8
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %chunk = load atomic i64, ptr %chunk.at monotonic, align 8
  %count = load atomic i64, ptr %count.at monotonic, align 8
  %more = icmp ult i64 %next, %count
  br i1 %more, label %take, label %none
take:
  %after = add i64 %ticket, 1
  %pair = cmpxchg ptr %job, i64 %ticket, i64 %after acq_rel monotonic, align 8
  %taken = extractvalue { i64, i1 } %pair, 1
  br i1 %taken, label %run, label %look
run:
  %skipped = mul i64 %next, %chunk
  %begin = add i64 %start, %skipped
  %full = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %full, i64 %stop)
  call void %function(ptr %args, i64 %begin, i64 %end)
  %was = atomicrmw sub ptr %left.at, i64 1 release, align 8
  %more.done = add i64 %done, 1
  br label %look
none:
  ret i64 %done
}

; A seat in any job that has one and chunks to do, and the work; false if there is none.
define internal i1 @join() {
  br label %scan
scan:
  %all = load atomic i64, ptr @taken acquire, align 8
  br label %next
next:
  %rest = phi i64 [ %all, %scan ], [ %others, %look ]
  %any = icmp ne i64 %rest, 0
  br i1 %any, label %look, label %none
look:
  %n = call i64 @llvm.cttz.i64(i64 %rest, i1 true)
  %less = sub i64 %rest, 1
  %others = and i64 %rest, %less
  %job = getelementptr [$jobs x %job], ptr @jobs, i64 0, i64 %n
  %count.at = getelementptr %job, ptr %job, i64 0, i32 7
  %ticket = load atomic i64, ptr %job acquire, align 8
  %count = load atomic i64, ptr %count.at monotonic, align 8
  %seats = and i64 %ticket, $seats
  %free = icmp ne i64 %seats, 0
  %chunk = and i64 %ticket, $chunks
  %more = icmp ult i64 %chunk, %count
  %open = and i1 %free, %more
  br i1 %open, label %sit, label %next
sit:
  %after = sub i64 %ticket, $seat
  %pair = cmpxchg ptr %job, i64 %ticket, i64 %after acq_rel monotonic, align 8
  %sits = extractvalue { i64, i1 } %pair, 1
  br i1 %sits, label %begin, label %scan
begin:
  %was = atomicrmw sub ptr @looking, i64 1 monotonic, align 8
  %done = call i64 @work(ptr %job, i64 %after)
  %is = atomicrmw add ptr @looking, i64 1 monotonic, align 8
  ret i1 true
none:
  ret i1 false
}

; The life of a thread.
define internal ptr @help(ptr %nothing) {
  br label %look
look:
  %seen = load atomic i64, ptr @posted seq_cst, align 8
  %home = load atomic i64, ptr @home monotonic, align 8
  call void @leave(i64 %home)
  %joined = call i1 @join()
  br i1 %joined, label %look, label %wait
wait:
  %n = phi i64 [ 0, %look ], [ %after, %pause ]
  %now = load atomic i64, ptr @posted monotonic, align 8
  %new = icmp ne i64 %now, %seen
  br i1 %new, label %look, label %pause
pause:
  $pause
  %after = add i64 %n, 1
  %longer = icmp ult i64 %after, $looks
  br i1 %longer, label %wait, label %tired
tired:
  %gone = call i1 @allow(i64 %home, i1 false)
  %a = call i32 @pthread_mutex_lock(ptr @mutex)
  %b = atomicrmw sub ptr @looking, i64 1 seq_cst, align 8
  %c = atomicrmw add ptr @sleeping, i64 1 seq_cst, align 8
  br label %check
check:
  %last = load atomic i64, ptr @posted seq_cst, align 8
  %missed = icmp ne i64 %last, %seen
  br i1 %missed, label %up, label %sleep
sleep:
  %d = call i32 @pthread_cond_wait(ptr @called, ptr @mutex)
  br label %up
up:
  %e = atomicrmw sub ptr @sleeping, i64 1 seq_cst, align 8
  %f = atomicrmw add ptr @looking, i64 1 seq_cst, align 8
  %g = call i32 @pthread_mutex_unlock(ptr @mutex)
  br i1 %gone, label %return, label %look
return:
  %h = call i1 @allow(i64 %home, i1 true)
  br label %look
}

; At least so many threads, if the system gives them.
define internal void @grow(i64 %wanted) {
  %id.at = alloca i64, align 8
  br label %look
look:
  %count = load atomic i64, ptr @threads monotonic, align 8
  %few = icmp slt i64 %count, %wanted
  br i1 %few, label %one, label %enough
one:
  %after = add i64 %count, 1
  %pair = cmpxchg ptr @threads, i64 %count, i64 %after monotonic monotonic, align 8
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %start, label %look
start:
  %a = atomicrmw add ptr @looking, i64 1 monotonic, align 8
  %refused = call i32 @pthread_create(ptr %id.at, ptr null, ptr @help, ptr null)
  %fine = icmp eq i32 %refused, 0
  br i1 %fine, label %started, label %fewer
started:
  %id = load i64, ptr %id.at, align 8
  %b = call i32 @pthread_detach(i64 %id)
  br label %look
fewer:
  %c = atomicrmw sub ptr @looking, i64 1 monotonic, align 8
  %d = atomicrmw sub ptr @threads, i64 1 monotonic, align 8
  br label %enough
enough:
  ret void
}

; Calls so many of those that sleep.
define internal void @call(i64 %wanted) {
  %asleep = load atomic i64, ptr @sleeping seq_cst, align 8
  %all = call i64 @llvm.smin.i64(i64 %wanted, i64 %asleep)
  br label %look
look:
  %left = phi i64 [ %all, %0 ], [ %fewer, %one ]
  %more = icmp sgt i64 %left, 0
  br i1 %more, label %one, label %done
one:
  %ignored = call i32 @pthread_cond_signal(ptr @called)
  %fewer = sub i64 %left, 1
  br label %look
done:
  ret void
}

; The number of a job that nobody has, or -1.
define internal i64 @claim() {
  br label %look
look:
  %taken = load atomic i64, ptr @taken monotonic, align 8
  %full = icmp eq i64 %taken, -1
  br i1 %full, label %none, label %try
try:
  %free = xor i64 %taken, -1
  %n = call i64 @llvm.cttz.i64(i64 %free, i1 true)
  %bit = shl i64 1, %n
  %after = or i64 %taken, %bit
  %pair = cmpxchg ptr @taken, i64 %taken, i64 %after acq_rel monotonic, align 8
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %found, label %look
found:
  ret i64 %n
none:
  ret i64 -1
}

; Every chunk, one after the other.
define internal void @alone(ptr %function, ptr %args, i64 %start, i64 %stop, i64 %chunk) {
  br label %look
look:
  %begin = phi i64 [ %start, %0 ], [ %full, %run ]
  %more = icmp slt i64 %begin, %stop
  br i1 %more, label %run, label %done
run:
  %full = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %full, i64 %stop)
  call void %function(ptr %args, i64 %begin, i64 %end)
  br label %look
done:
  ret void
}

; Whether nothing is shared for now, at the time ``now``.
define internal i1 @shy(i64 %now) {
  %until = load atomic i64, ptr @until monotonic, align 8
  %shy = icmp slt i64 %now, %until
  ret i1 %shy
}

; Whether a team has more than one thread and would share.
define i1 @willing(ptr %team) {
  %limit.at.at = getelementptr i64, ptr %team, i64 1
  %limit.at = load ptr, ptr %limit.at.at, align 8
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %several = icmp sgt i64 %limit, 1
  br i1 %several, label %ask, label %alone
ask:
  %now = call i64 @clock()
  %shy = call i1 @shy(i64 %now)
  %shares = xor i1 %shy, true
  ret i1 %shares
alone:
  ret i1 false
}

; The function of every chunk of a range, by at most as many threads as a team has, of which those
; that sleep are woken if it is long. The words of a team: this function, where the number is, and
; the function that says whether it is willing.
define void @share(ptr %team, ptr %function, ptr %args,
                   i64 %start, i64 %stop, i64 %chunk, i1 %long) {
  %limit.at.at = getelementptr i64, ptr %team, i64 1
  %limit.at = load ptr, ptr %limit.at.at, align 8
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %length = sub i64 %stop, %start
  %round = add i64 %length, %chunk
  %above = sub i64 %round, 1
  %count = sdiv i64 %above, %chunk
  %most = call i64 @llvm.smin.i64(i64 %limit, i64 %count)
  %others = sub i64 %most, 1
  %wanted = call i64 @llvm.smin.i64(i64 %others, i64 $beside)
  %several = icmp sgt i64 %wanted, 0
  %fits = icmp sle i64 %count, $limit
  %shared = and i1 %several, %fits
  br i1 %shared, label %ask, label %alone
ask:
  %started = call i64 @clock()
  %shy = call i1 @shy(i64 %started)
  br i1 %shy, label %alone, label %take
take:
  %n = call i64 @claim()
  %got = icmp sge i64 %n, 0
  br i1 %got, label %post, label %alone
alone:
  call void @alone(ptr %function, ptr %args, i64 %start, i64 %stop, i64 %chunk)
  ret void
post:
  %job = getelementptr [$jobs x %job], ptr @jobs, i64 0, i64 %n
$places
  store atomic i64 %count, ptr %left.at monotonic, align 8
  store atomic ptr %function, ptr %function.at monotonic, align 8
  store atomic ptr %args, ptr %args.at monotonic, align 8
  store atomic i64 %start, ptr %start.at monotonic, align 8
  store atomic i64 %stop, ptr %stop.at monotonic, align 8
  store atomic i64 %chunk, ptr %chunk.at monotonic, align 8
  store atomic i64 %count, ptr %count.at monotonic, align 8
  %cpu = call i64 @cpu()
  store atomic i64 %cpu, ptr @home monotonic, align 8
  %old = load atomic i64, ptr %job monotonic, align 8
  %generation = and i64 %old, $generations
  %seats = mul i64 %wanted, $seat
  %ticket = or i64 %generation, %seats
  store atomic i64 %ticket, ptr %job release, align 8
  %before = atomicrmw add ptr @posted, i64 1 seq_cst, align 8
  br i1 %long, label %rouse, label %begin
rouse:
  call void @grow(i64 %wanted)
  %looking = load atomic i64, ptr @looking monotonic, align 8
  %lacking = sub i64 %wanted, %looking
  call void @call(i64 %lacking)
  br label %begin
begin:
  %called = phi i64 [ 0, %post ], [ %lacking, %rouse ]
  %done = call i64 @work(ptr %job, i64 %ticket)
  %worked = call i64 @clock()
  %working = sub i64 %worked, %started
  br label %wait
wait:
  %tries = phi i64 [ 0, %begin ], [ %tried, %pause ], [ $waits, %yield ]
  %left = load atomic i64, ptr %left.at acquire, align 8
  %busy = icmp sgt i64 %left, 0
  br i1 %busy, label %slow, label %close
slow:
  %patient = icmp ult i64 %tries, $waits
  br i1 %patient, label %pause, label %yield
pause:
  $pause
  %tried = add i64 %tries, 1
  br label %wait
yield:
  %ignored = call i32 @sched_yield()
  br label %wait
close:
  %following = add i64 %generation, $generation
  %closed = or i64 %following, $none
  store atomic i64 %closed, ptr %job release, align 8
  %bit = shl i64 1, %n
  %gone = xor i64 %bit, -1
  %free = atomicrmw and ptr @taken, i64 %gone release, align 8
  %impatient = icmp uge i64 %tries, $waits
  br i1 %impatient, label %judge, label %prompt
judge:
  %ended = call i64 @clock()
  %waiting = sub i64 %ended, %worked
  %vain = icmp sgt i64 %waiting, %working
  br i1 %vain, label %lost, label %over
prompt:
  %all = icmp eq i64 %done, %count
  br i1 %all, label %single, label %came
came:
  store atomic i64 0, ptr @missed monotonic, align 8
  br label %over
single:
  %woke = icmp sgt i64 %called, 0
  br i1 %woke, label %missed, label %over
missed:
  %earlier = atomicrmw add ptr @missed, i64 %working monotonic, align 8
  %since = add i64 %earlier, %working
  %enough = icmp sgt i64 %since, $rising
  br i1 %enough, label %none, label %over
none:
  store atomic i64 0, ptr @missed monotonic, align 8
  br label %lost
lost:
  %now = phi i64 [ %ended, %judge ], [ %worked, %none ]
  %spent = phi i64 [ %waiting, %judge ], [ %since, %none ]
  %calm = mul i64 %spent, $shy
  %then = add i64 %now, %calm
  store atomic i64 %then, ptr @until monotonic, align 8
  br label %over
over:
  ret void
}
""")
# Where a thread may choose its CPU: how it leaves the one of the caller.
LEAVE = """
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

; The CPU of this thread.
define internal i64 @cpu() {
  %here = call i32 @sched_getcpu()
  %wide = sext i32 %here to i64
  ret i64 %wide
}

; Whether this thread may use a CPU from now on; whether that is a change.
define internal i1 @allow(i64 %cpu, i1 %allowed) {
  %all = alloca [16 x i64], align 8
  %size = call i32 @sched_getaffinity(i32 0, i64 128, ptr %all)
  %known = icmp sge i32 %size, 0
  %fits = icmp ult i64 %cpu, 1024
  %both = and i1 %known, %fits
  br i1 %both, label %change, label %none
change:
  %n = lshr i64 %cpu, 6
  %word.at = getelementptr i64, ptr %all, i64 %n
  %word = load i64, ptr %word.at, align 8
  %place = and i64 %cpu, 63
  %bit = shl i64 1, %place
  %with = or i64 %word, %bit
  %without = xor i64 %with, %bit
  %wanted = select i1 %allowed, i64 %with, i64 %without
  %same = icmp eq i64 %wanted, %word
  br i1 %same, label %none, label %set
set:
  store i64 %wanted, ptr %word.at, align 8
  %refused = call i32 @sched_setaffinity(i32 0, i64 128, ptr %all)
  %changed = icmp eq i32 %refused, 0
  ret i1 %changed
none:
  ret i1 false
}

; To any other CPU that this thread may use, if it is on this one; all remain allowed.
define void @leave(i64 %cpu) {
  %here = call i64 @cpu()
  %there = icmp eq i64 %here, %cpu
  br i1 %there, label %go, label %done
go:
  %gone = call i1 @allow(i64 %cpu, i1 false)
  br i1 %gone, label %return, label %done
return:
  %a = call i1 @allow(i64 %cpu, i1 true)
  br label %done
done:
  ret void
}
"""
STAY = """
define internal i64 @cpu() {
  ret i64 -1
}

define internal i1 @allow(i64 %cpu, i1 %allowed) {
  ret i1 false
}

define void @leave(i64 %cpu) {
  ret void
}
"""
OUTSIDE = (
    "sched_yield", "pthread_create", "pthread_detach", "pthread_mutex_init", "pthread_mutex_lock",
    "pthread_mutex_unlock", "pthread_cond_init", "pthread_cond_wait", "pthread_cond_signal",
    "clock_gettime",
)  # fmt: skip
# Where the words of a job are, of which the first is its ticket.
PLACES = "\n".join(
    f"  %{name}.at = getelementptr %job, ptr %job, i64 0, i32 {place}"
    for place, name in enumerate(
        ("left", "function", "args", "start", "stop", "chunk", "count"), start=1
    )
)
# The parts of a ticket: one seat, one generation; below are the chunks.
SEAT = 1 << 32
GENERATION = SEAT * (SEATS + 1)
# The chunk of a ticket without chunks.
NONE = SEAT - 1

# Of a team: the function that shares work, where the number of threads is, and the function that
# says whether it would share.
Words = ctypes.c_int64 * 3


def source(architecture: str, shy: int = SHY, rising: int = RISING) -> str:
    """The module of the pool for CPUs of an architecture."""
    name, kind, argument = PAUSES.get(architecture, ("llvm.donothing", "", ""))
    return SOURCE.substitute(
        jobs=JOBS, none=NONE, chunks=NONE, limit=CHUNKS, beside=SEATS, looks=LOOKS, waits=WAITS,
        seat=SEAT, seats=SEAT * SEATS, generation=GENERATION, generations=-GENERATION,
        shy=shy, rising=rising, clock=CLOCK_MONOTONIC,
        leave=LEAVE if hasattr(os, "sched_setaffinity") else STAY,
        declared=f"declare void @{name}({kind})", pause=f"call void @{name}({kind} {argument})",
        places=PLACES,
    )  # fmt: skip


class Pool:
    """Threads of this process, as many as the largest job has had use for."""

    def __init__(self) -> None:
        architecture, *_ = host().triple.split("-")
        # There is nothing in it to optimise, and that takes as long as all the rest.
        self._code: Code = load(source(architecture), OUTSIDE, level=0)
        self.share, self.willing = map(self._code.address, ("share", "willing"))
        self._count = ctypes.CFUNCTYPE(ctypes.c_int64)(self._code.address("count"))
        reset = ctypes.CFUNCTYPE(None)(self._code.address("reset"))
        reset()
        if hasattr(os, "register_at_fork"):
            # A forked child has the memory of its parent, but none of its threads.
            os.register_at_fork(after_in_child=reset)

    @property
    def threads(self) -> int:
        """How many threads there are beside those that call."""
        return int(self._count())


class Team:
    """Whom compiled code shares work among: at most as many threads as ``limit`` says by then."""

    def __init__(self, limit: ctypes.c_int64) -> None:
        self._limit = limit
        self._words = Words(0, ctypes.addressof(limit), 0)
        self._place = ctypes.addressof(self._words)

    @property
    def address(self) -> int:
        """What code is given, which may use it as long as this object lives."""
        if not self._words[0]:
            self._words[2] = pool().willing
            self._words[0] = pool().share
        return self._place


def pool() -> Pool:
    """The pool of this process, which is never dropped: its threads run its code."""
    with _making:
        return _pool()


_making = lock()
_pool = cache(Pool)
