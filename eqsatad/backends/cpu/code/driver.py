"""The function that makes all steps of a program, alone or with a team of threads.

A step over a parallel loop is made in chunks whose number does not depend on the threads, so
neither do the results. Sums in strips, whose order no chunk has to do with, are made in fewer
chunks by fewer threads. Steps over the same rows are made chunk by chunk in turns; see `train`. One
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
# How many chunks of each round of strips there are for a thread.
PARTS = 3
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
            for strips in sorted({_rounds(step) is not None for step in steps}):
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
        rounds = _rounds(step)
        if self.program.sizes:
            values = [start, stop, work]
            if rounds is not None:
                values += [Value(rounds.function, "ptr"), rounds.number]
            given = ", ".join(each.typed for each in values)
            name = SHARE[rounds is not None]
            w.line(f"call void @{name}(ptr @{step.name}, ptr %args, {given}) noinline")
            return
        blocks = step.passing if isinstance(step, Train) else {}
        places = {self.words[tensor]: size for tensor, size in blocks.items()}
        passing = Passing(1 + len(self.words), places)
        if isinstance(step, Train) and not step.enough:
            self._few(w, expressions, team, step, passing)
        elif rounds is not None:
            _in_rounds(w, team, f"@{step.name}", (start, stop, work), rounds)
        else:
            _shared(w, team, f"@{step.name}", (start, stop, work), passing)

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
        if strips:
            rounds = Rounds("%round", Value("%rounds", "i64"))
            given += [Value(rounds.function, "ptr"), rounds.number]
            _in_rounds(w, team, "%step", (start, stop, work), rounds)
        else:
            _shared(w, team, "%step", (start, stop, work))
        parameters = ["ptr %step", "ptr %args", *(value.typed for value in given)]
        w.finish(SHARE[strips], parameters, "internal ")


@dataclass(frozen=True)
class Rounds:
    """The ``number`` of rounds of a step in strips, and the function of a range of all of them.

    All threads make a round before any begins the next one. Each is as many iterations as the step
    has, so that round and iteration are one number.
    """

    function: str
    number: Value


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


def _rounds(step: Step | Train) -> Rounds | None:
    """The rounds of ``step``, if its sums are kept between parts of them."""
    if isinstance(step, Train) or step.kept is None:
        return None
    return Rounds(f"@{step.in_rounds}", number(step.rounds, "i64"))


def _shared(
    w: Writer,
    team: Value,
    step: str,
    share: tuple[Value, Value, Value],
    passing: Passing | None = None,
) -> None:
    """``step`` by the ``team`` if it is worth it, else in the same chunks by one thread.

    That one keeps what is ``passing`` in one place.
    """
    start, stop, work = share
    count = w.two("sub", stop, start)
    chunk = _chunk(w, work, count)
    shared = _worth(w, team, work, w.compare("icmp sgt", count, chunk))
    if passing is not None and passing.places:
        shared = _willing(w, team, shared)
    with w.when(shared):
        _handed_out(w, team, step, (start, stop, chunk), work)
    with w.when(w.two("xor", shared, Value("true", "i1"))):
        _alone(w, step, start, stop, chunk, passing)


def _in_rounds(
    w: Writer, team: Value, step: str, share: tuple[Value, Value, Value], rounds: Rounds
) -> None:
    """``step`` in ``rounds`` by the ``team`` if it is worth it, else by one thread in one call.

    Strips are cut for all tiles that one call runs. So chunks are long, and threads that make one
    round after the other read what a strip needs few times.
    """
    start, stop, work = share
    one = number(1, "i64")
    count = w.two("sub", stop, start)
    work = w.two("sdiv", work, rounds.number)
    shared = _willing(w, team, _worth(w, team, work, w.compare("icmp sgt", count, one)))
    with w.when(shared):
        limit = w.load("ptr", 0, w.address(team.text, "i64", one), WORD)
        parts = w.two("mul", w.load("i64", 0, limit.text, WORD), number(PARTS, "i64"))
        chunk = w.two("sdiv", w.two("add", count, w.two("sub", parts, one)), parts)
        with w.loop(number(0, "i64"), rounds.number) as turn:
            before = w.two("mul", turn, count)
            first, last = (w.two("add", before, end) for end in (start, stop))
            _handed_out(w, team, rounds.function, (first, last, chunk), work)
    with w.when(w.two("xor", shared, Value("true", "i1"))):
        _alone(w, step, start, stop, count, None)


def _worth(w: Writer, team: Value, work: Value, several: Value) -> Value:
    """Whether there is a ``team``, ``several`` chunks, and enough ``work``."""
    big = w.compare("icmp sgt", work, number(ALONE, "i64"))
    return w.two("and", _there(w, team), w.two("and", big, several))


def _handed_out(
    w: Writer, team: Value, step: str, share: tuple[Value, Value, Value], work: Value
) -> None:
    """A range of ``step`` in chunks, shared by a ``team``."""
    function = w.load("ptr", 0, team.text, WORD)
    long = w.compare("icmp sgt", work, number(AWAKE, "i64"))
    given = [team, Value(step, "ptr"), Value("%args", "ptr"), *share, long]
    w.line(f"call void {function.text}({', '.join(each.typed for each in given)})")


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


def _chunk(w: Writer, work: Value, count: Value) -> Value:
    """How many iterations make a chunk of one part of ``work``, neither too short nor too long."""
    one = number(1, "i64")
    each = w.two("sdiv", work, w.intrinsic("smax", count, one))
    part = w.two("sdiv", work, number(CHUNKS, "i64"))
    least, most = (number(limit, "i64") for limit in (min(SMALLEST, CHUNK), CHUNK))
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
