"""The function that makes all steps of a program, alone or with a team of threads.

A step over a parallel loop is made in chunks whose number does not depend on the threads, so
neither do the results. Steps over the same rows are made chunk by chunk in turns; see `train`. One
thread keeps what only they use in the same place for all chunks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eqsatad.backends.blocks import buffers_of
from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.points import Point
from eqsatad.backends.cpu.code.text import Module, Value, Writer, number
from eqsatad.backends.cpu.code.train import Train
from eqsatad.loops.nest import LoopProgram
from eqsatad.terms.nodes import TRUE

if TYPE_CHECKING:
    from eqsatad.backends.cpu.code.source import Step

# Picoseconds of work below which one thread is faster even where others are awake, and for which
# one that sleeps is woken.
ALONE, AWAKE = 20_000_000, 50_000_000
# How many chunks a step is made in, so that all threads are done at once, and the picoseconds that
# a chunk takes at least, as each begins anew, and at most, as none can be taken back.
CHUNKS, SMALLEST, CHUNK = 16, 4_000_000, 20_000_000
# What one of sums in strips takes: each goes through all that its tiles read from the beginning.
CHUNK_IN_STRIPS = 120_000_000
WORD = 8
# The function that makes any step of a program of sizes, without and with strips.
SHARE = {False: "share", True: "share_strips"}


class Driver:
    """The function that makes all steps."""

    def __init__(self, module: Module, program: LoopProgram) -> None:
        self.module = module
        self.program = program
        # Where the address of each buffer is in the table of arguments.
        self.words = {tensor: 1 + place for place, tensor in enumerate(buffers_of(program))}

    def write(self, steps: Sequence[Step | Train]) -> None:
        w = Writer(self.module)
        first = 1 + len(self.words)
        sizes = {
            size.name: argument(w, first + place, "i64").text
            for place, size in enumerate(self.program.sizes)
        }
        expressions = Expressions(w, {}, sizes)
        team = argument(w, 0, "ptr")
        if sizes:
            for strips in sorted(set(map(_in_strips, steps))):
                self._share(strips=strips)
        for step in steps:
            guard = step.guard if not isinstance(step, Train) else TRUE
            with ExitStack() as inside:
                inside.enter_context(expressions.scope())
                if guard is not TRUE:
                    inside.enter_context(w.when(expressions.value(guard, Point())))
                self._step(w, expressions, team, step)
        w.finish("run", ["ptr %args"])

    def _step(self, w: Writer, expressions: Expressions, team: Value, step: Step | Train) -> None:
        if (share := step.share) is None:
            w.line(f"call void @{step.name}(ptr %args, i64 0, i64 1)")
            return
        start, stop, work = (
            expressions.value(expr, Point()) for expr in (share.start, share.stop, share.effort)
        )
        strips = _in_strips(step)
        if self.program.sizes:
            given = ", ".join(each.typed for each in (start, stop, work))
            w.line(f"call void @{SHARE[strips]}(ptr @{step.name}, ptr %args, {given}) noinline")
            return
        blocks = step.passing if isinstance(step, Train) else {}
        places = {self.words[tensor]: size for tensor, size in blocks.items()}
        passing = Passing(1 + len(self.words), places)
        if isinstance(step, Train) and not step.enough:
            self._few(w, expressions, team, step, passing)
        else:
            _shared(w, team, f"@{step.name}", (start, stop, work), strips=strips, passing=passing)

    def _few(
        self, w: Writer, expressions: Expressions, team: Value, train: Train, passing: Passing
    ) -> None:
        """A ``train`` of few blocks: one thread makes it, several make one step after the other."""
        several = _willing(w, team, _there(w, team))
        with w.when(several), expressions.scope():
            for part in train.parts:
                self._step(w, expressions, team, part)
        with w.when(w.two("xor", several, Value("true", "i1"))):
            blocks = expressions.value(train.share.stop, Point())
            _alone(w, f"@{train.name}", number(0, "i64"), blocks, number(1, "i64"), passing)

    def _share(self, *, strips: bool) -> None:
        """A function that makes any step: where little is known of it, it is as long as a step."""
        w = Writer(self.module)
        team = argument(w, 0, "ptr")
        given = [Value(f"%{name}", "i64") for name in ("start", "stop", "work")]
        start, stop, work = given
        _shared(w, team, "%step", (start, stop, work), strips=strips)
        parameters = ["ptr %step", "ptr %args", *(value.typed for value in given)]
        w.finish(SHARE[strips], parameters, "internal ")


@dataclass(frozen=True)
class Passing:
    """Buffers that hold nothing but the rows under way: words of the table of arguments.

    A block of rows of each has so many bytes. The table has as many ``words``.
    """

    words: int
    places: Mapping[int, int]

    def table(self, w: Writer) -> Value:
        """A copy of the table of arguments."""
        copy = Value(w.slot(f"[{self.words} x i64]"), "ptr")
        for word in range(self.words):
            place = w.address(copy.text, "i64", number(word, "i64"))
            w.store(argument(w, word, "i64"), place, WORD)
        return copy


def _in_strips(step: Step | Train) -> bool:
    return not isinstance(step, Train) and step.kept is not None


def _shared(
    w: Writer,
    team: Value,
    step: str,
    share: tuple[Value, Value, Value],
    *,
    strips: bool,
    passing: Passing | None = None,
) -> None:
    """``step`` by the ``team`` if it is worth it, else in chunks, or in one if it has ``strips``.

    Strips are cut for all tiles that one call runs, so few calls read their operands seldom.
    One thread keeps what is ``passing`` in one place.
    """
    start, stop, work = share
    count = w.two("sub", stop, start)
    limits = (CHUNK_IN_STRIPS, CHUNK_IN_STRIPS) if strips else (min(SMALLEST, CHUNK), CHUNK)
    chunk = _chunk(w, work, count, limits)
    there = _there(w, team)
    big = w.compare("icmp sgt", work, number(ALONE, "i64"))
    several = w.compare("icmp sgt", count, chunk)
    shared = w.two("and", there, w.two("and", big, several))
    if strips or (passing is not None and passing.places):
        shared = _willing(w, team, shared)
    long = w.compare("icmp sgt", work, number(AWAKE, "i64"))
    arguments = [team, Value(step, "ptr"), Value("%args", "ptr"), start, stop, chunk, long]
    given = ", ".join(argument.typed for argument in arguments)
    with w.when(shared):
        function = w.load("ptr", 0, team.text, WORD)
        w.line(f"call void {function.text}({given})")
    with w.when(w.two("xor", shared, Value("true", "i1"))):
        _alone(w, step, start, stop, count if strips else chunk, passing)


def _there(w: Writer, team: Value) -> Value:
    """Whether there is a ``team``."""
    return w.compare("icmp ne", w.convert("ptrtoint", team, "i64"), number(0, "i64"))


def _willing(w: Writer, team: Value, wanted: Value) -> Value:
    """Whether a ``team`` is ``wanted``, has more than one thread and would share now."""
    slot = w.slot("i1")
    w.set(slot, wanted)
    with w.when(wanted):
        function = w.load("ptr", 0, w.address(team.text, "i64", number(2, "i64")), WORD)
        w.set(slot, w.emit(f"call i1 {function.text}({team.typed})", "i1"))
    return w.get(slot, "i1")


def _chunk(w: Writer, work: Value, count: Value, limits: tuple[int, int]) -> Value:
    """How many iterations make a chunk of one part of ``work``, within ``limits``."""
    one = number(1, "i64")
    each = w.two("sdiv", work, w.intrinsic("smax", count, one))
    part = w.two("sdiv", work, number(CHUNKS, "i64"))
    least, most = (number(limit, "i64") for limit in limits)
    wanted = w.intrinsic("smin", w.intrinsic("smax", part, least), most)
    many = w.two("sdiv", wanted, w.intrinsic("smax", each, one))
    return w.intrinsic("smax", many, one)


def _alone(
    w: Writer, step: str, start: Value, stop: Value, chunk: Value, passing: Passing | None
) -> None:
    """The chunks one after the other, cut as for several threads.

    Of what is ``passing`` all chunks have the place of the last one, so that every address that a
    step is given lies within the buffer.
    """
    slot = w.slot("i64")
    w.set(slot, start)
    places = {} if passing is None else passing.places
    given = passing.table(w) if passing is not None and places else Value("%args", "ptr")
    head, body, done = (w.fresh(stem) for stem in ("head", "body", "done"))
    w.jump(head)
    w.begin(head)
    here = w.get(slot, "i64")
    w.branch(w.compare("icmp slt", here, stop), body, done)
    w.begin(body)
    after = w.two("add", here, chunk)
    limit = w.intrinsic("smin", after, stop)
    for word, size in places.items():
        further = w.two("mul", w.two("sub", stop, limit), number(size, "i64"))
        there = w.address(argument(w, word, "ptr").text, "i8", further)
        place = w.address(given.text, "i64", number(word, "i64"))
        w.store(Value(there, "ptr"), place, WORD)
    w.line(f"call void {step}({given.typed}, {here.typed}, {limit.typed})")
    w.set(slot, after)
    w.jump(head)
    w.begin(done)


def argument(w: Writer, place: int, kind: str) -> Value:
    """A word of the table of arguments."""
    address = w.address("%args", "i64", number(place, "i64"))
    return w.load(kind, 0, address, WORD)
