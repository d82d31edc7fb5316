"""A loop program as one LLVM module.

Every independent statement of a nest is a *step*: a function of a range of its outermost loop.
``run(args)`` makes the steps in order; ``args`` is a table of 64-bit words: the address of a
team of threads (or 0), then every buffer's address, then every size. A step over a parallel loop
is made in chunks whose number does not depend on the threads, so neither do the results. Steps over
the same rows are made chunk by chunk in turns; see `trains`. One thread keeps what only they use in
the same place for all chunks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from eqsatad.backends.blocks import buffers_of, groups, touched
from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.points import Place, Point
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.code.statements import Statements
from eqsatad.backends.cpu.code.stripwriter import STRIPS
from eqsatad.backends.cpu.code.text import Module, Value, Writer, number
from eqsatad.backends.cpu.code.tilewriter import TileWriter, flattened, iterations, spread
from eqsatad.backends.cpu.rewrites.streaming import streaming
from eqsatad.backends.cpu.rewrites.streams import large, unread
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles import slices
from eqsatad.backends.cpu.tiles.ahead import foreseen
from eqsatad.backends.cpu.tiles.choice import plan
from eqsatad.backends.cpu.tiles.effort import effort, index, trips
from eqsatad.backends.cpu.tiles.fetches import fetching
from eqsatad.backends.cpu.tiles.kinds import Kind, decision
from eqsatad.backends.cpu.tiles.maps import mapped
from eqsatad.backends.cpu.tiles.panels import panelled
from eqsatad.backends.cpu.tiles.scans import scanned
from eqsatad.backends.cpu.tiles.strips import put_away
from eqsatad.backends.cpu.tiles.taps import tapped
from eqsatad.backends.cpu.tiles.tile import Tile, chain, length, most
from eqsatad.backends.cpu.tiles.trains import Rows, block, coupled, enough, passing, rows_of
from eqsatad.backends.cpu.tiles.turns import turn
from eqsatad.backends.cpu.tiles.windowed import windowed
from eqsatad.backends.cpu.tiles.zeros import Filled, filled, without_zeros
from eqsatad.loops.nest import Block, For, LoopProgram, Mark, has_loop, scheduled
from eqsatad.terms.checks import depends_on_data
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import TRUE, Apply, Const, Expr, Tensor
from eqsatad.terms.ops import ADD, FLOORDIV, NOT
from eqsatad.terms.presburger import empty
from eqsatad.terms.walk import conjunction

# Picoseconds of work below which one thread is faster even where others are awake, and for which
# one that sleeps is woken.
ALONE, AWAKE = 20_000_000, 50_000_000
# How many chunks a step is made in, so that all threads are done at once, and the picoseconds that
# a chunk takes at least, as each begins anew, and at most, as none can be taken back.
CHUNKS, SMALLEST, CHUNK = 16, 4_000_000, 20_000_000
# What one of sums in strips takes: each goes through all that its tiles read from the beginning.
CHUNK_IN_STRIPS = 120_000_000
# How much faster than `effort` assumes are nests that are run by tiles, or scheduled by hand; and
# those of some kinds. Sums of products in tiles are as much faster for every lane.
TILE_SPEED = 8
SPEEDS = {Kind.COPY: 4, Kind.ROWS: 16}
PRODUCTS = 4
CONTRACT = ("contract",)
# What steps take loops of unknown length to have, of which the sizes of a call choose one: so many
# vectors, only rows, nothing.
VECTORS = (8, 1, 0, None)
# The same for nests that are few points of an image.
THIN = (1, None)
WORD = 8
# The function that makes any step of a program of sizes, without and with strips.
SHARE = {False: "share", True: "share_strips"}
BEGIN, END = Value("%begin", "i64"), Value("%end", "i64")


@dataclass(frozen=True)
class Machine:
    """What code generation knows of the CPU: bytes of a vector, and how many registers.

    ``half`` says that it converts half floats.
    """

    vector: int
    registers: int
    half: bool = True
    caches: Caches = field(default_factory=Caches)


@dataclass(frozen=True)
class Options:
    """How code is to be written.

    A step may take loops of unknown length to have so many ``vectors``; see `plan`. What is
    ``large`` may be stored past the caches, and what is ``unread`` by the program if it turns out
    to be large; beyond what is ``filled`` there are zeros.
    """

    machine: Machine
    exact: bool
    vectors: int | None = None
    large: frozenset[Tensor] = frozenset()
    unread: frozenset[Tensor] = frozenset()
    filled: Filled = field(default_factory=dict)

    @staticmethod
    def of(program: LoopProgram, machine: Machine, *, exact: bool) -> Options:
        """How code for ``program`` is to be written."""
        past = large(program, machine.caches)
        return Options(machine, exact, large=past, unread=unread(program), filled=filled(program))


@dataclass(frozen=True)
class Source:
    """The text of a module, the C functions that it calls, and the temporaries that it needs.

    Those of the program come first, then those that its steps add.
    """

    text: str
    outside: tuple[str, ...]
    temporaries: tuple[Tensor, ...]


def write(program: LoopProgram, machine: Machine, *, exact: bool = False) -> Source:
    """The module that computes ``program``."""
    module = Module(machine.vector, half=machine.half)
    steps = steps_of(program, module, Options.of(program, machine, exact=exact))
    kept = (step.kept for step in steps if step.kept is not None)
    program = replace(program, temporaries=(*program.temporaries, *kept))
    runs = list(_runs(module, steps, few=not program.sizes))
    for run in runs:
        if isinstance(run, Train) and not program.sizes:
            needed = {
                tensor for step in steps if step not in run.steps for tensor in touched(step.body)
            }
            run.keep_in_place([each for each in program.temporaries if each not in needed])
            run.fetch([*program.inputs, *program.outputs])
        run.write(program)
    Driver(module, program).write(runs)
    vector = f'"prefer-vector-width"="{8 * machine.vector}"'
    text = module.text(["nounwind", vector])
    return Source(text, outside(text), program.temporaries)


def steps_of(program: LoopProgram, module: Module, options: Options) -> list[Step]:
    """What ``program`` does one after the other, each planned, none written."""
    return [
        step
        for place, group in enumerate(groups(program))
        for step in _steps(module, program, f"step{place}", group, options)
    ]


def _steps(
    module: Module, program: LoopProgram, name: str, group: Block, options: Options
) -> Iterator[Step]:
    """What does ``group``: one step, or several of which the sizes of a call choose one."""
    guards: list[Expr] = []
    if not options.exact and (rows := streaming(group, options.unread)) is not None:
        given = replace(options, large=rows.results)
        step = Step(module, program, f"{name}.rows", rows.body, given)
        step.guard = rows.needs
        yield step
        guards.append(rows.needs)
    for place, vectors in enumerate(THIN if _thin(group) else VECTORS):
        given = replace(options, vectors=vectors)
        step = Step(module, program, f"{name}.{place}" if place else name, group, given)
        needs = TRUE if step.tile is None else step.tile.needs
        if any(needs is guard for guard in guards) or (needs is not TRUE and empty((needs,))):
            continue
        step.guard = conjunction((*(Apply(NOT, (guard,)) for guard in guards), needs))
        yield step
        if needs is TRUE:
            return
        guards.append(needs)


def _thin(group: Block) -> bool:
    """Whether ``group`` is the row or column that images of odd sides have more than others."""
    loops = chain(group[0])[0] if len(group) == 1 else ()
    return any(length(loop) is None and most(loop) == 1 for loop in loops)


def outside(text: str) -> tuple[str, ...]:
    """The C functions that the module ``text`` calls."""
    declared = re.findall(r"^declare .* @([\w.]+)\(", text, flags=re.MULTILINE)
    return tuple(sorted(name for name in declared if not name.startswith("llvm.")))


@dataclass(frozen=True)
class Share:
    """The iterations of a step, and the picoseconds that all of them take."""

    start: Expr
    stop: Expr
    effort: Expr


class Step:
    """One function of a range of iterations: of a parallel loop, or of the tiles of a nest."""

    def __init__(
        self, module: Module, program: LoopProgram, name: str, body: Block, options: Options
    ) -> None:
        self.module = module
        self.program = program
        self.name = name
        self.body = body
        self.options = options
        tile = without_zeros(foreseen(self._plan(), options.machine.caches), options.filled)
        self.tile = panelled(tile, program, options.machine.caches)
        # For which sizes it is run.
        self.guard: Expr = TRUE
        # Buffers that it is given as if they began elsewhere.
        self.moved: frozenset[Tensor] = frozenset()
        # What the accumulators of tiles are kept in.
        self.kept = None if self.tile is None else _kept(f"{name}_sums", self.tile)

    @property
    def strips(self) -> int:
        """How many strips of a known size its sums are made in; 0 if they are not."""
        return 0 if self.tile is None or self.tile.strips is None else self.tile.strips.number

    @property
    def in_order(self) -> str:
        """The function of a range of what trains run in order: of strips, if there are any."""
        return f"{self.name}.strips" if self.strips else self.name

    def _plan(self) -> Tile | None:
        machine = self.options.machine
        if len(self.body) != 1 or scheduled(self.body):
            return None
        exact, vectors = self.options.exact, self.options.vectors
        if (copy := turn(self.body[0], machine.vector, vectors=vectors)) is not None:
            return copy
        if (
            not exact
            and (running := scanned(self.body[0], machine.vector, many=bool(vectors))) is not None
        ):
            return running
        if (simple := mapped(self.body[0], machine.vector, large=bool(vectors))) is not None:
            return simple
        if (picked := windowed(self.body[0], machine.vector)) is not None:
            return picked
        if (taps := tapped(self.body[0], machine.vector, exact=exact)) is not None:
            return taps
        vector, registers = machine.vector, machine.registers
        return plan(self.body[0], vector, registers, exact, machine.caches, vectors=vectors)

    @property
    def share(self) -> Share | None:
        """What may be divided among threads."""
        if self.tile is not None:
            return Share(index(0), spread(self.tile)[1], self._effort)
        if divided := self._divided:
            inside = [
                trips(loop, {})
                for loop in chain(self.body[0])[0][len(divided) :]
                if length(loop) is None and not any(map(depends_on_data, (loop.start, loop.stop)))
            ]
            total = iterations([trips(loop, {}) for loop in divided], inside)
            return Share(index(0), total, normal(self._effort))
        return None

    @property
    def _effort(self) -> Expr:
        """The picoseconds that all of it takes."""
        kind = decision(self.body, self.tile).kind
        if self.tile is not None and kind is Kind.CONTRACTION and has_loop(self.tile.body):
            speed = PRODUCTS * max(1, self.tile.lanes)
        else:
            usual = TILE_SPEED if self.tile is not None or scheduled(self.body) else 1
            speed = SPEEDS.get(kind, usual)
        return Apply(FLOORDIV, (effort(self.body), index(speed)))

    @property
    def _divided(self) -> tuple[For, ...]:
        """The loops that are one range together: the outermost, or as far as a schedule says."""
        loops = chain(self.body[0])[0] if len(self.body) == 1 else ()
        shared = [place for place, loop in enumerate(loops) if loop.mark is Mark.SHARED]
        return loops[: max(shared, default=0) + 1]

    def write(self, program: LoopProgram) -> None:
        """Writes the function; ``program`` has the temporaries of all steps."""
        self.program = program
        buffers = buffers_of(program)
        used = touched(self.body)
        if self.kept is not None:
            used[self.kept] = True
        if self.tile is not None and self.tile.fetches is not None:
            used |= {part.tensor: used.get(part.tensor, False) for part in self.tile.fetches.parts}
        names = {tensor: f"%b{place}" for place, tensor in enumerate(buffers)}
        parameters = [
            _parameter(each, names[each], writes=used[each], whole=each not in self.moved)
            for each in buffers
            if each in used
        ]
        sizes = {size.name: f"%size.{place}" for place, size in enumerate(program.sizes)}
        self._body(parameters, names, sizes)
        if not self.strips:
            self._entry(self.name, (BEGIN, END), used)
            return
        whole = number(self.strips, "i64")
        self._entry(self.name, (BEGIN, END, number(0, "i64"), whole), used)
        _, tiles = spread(self.tile) if self.tile is not None else (0, index(0))
        assert isinstance(tiles, Const), "tiles in strips are counted"
        self._entry(self.in_order, (number(0, "i64"), number(tiles.value, "i64"), BEGIN, END), used)

    def _entry(self, name: str, ranges: Sequence[Value], used: Mapping[Tensor, bool]) -> None:
        """The function ``name`` of a range that is part of the ``ranges`` of the body."""
        buffers = buffers_of(self.program)
        first = 1 + len(buffers)
        w = Writer(self.module)
        arguments = [
            *(_argument(w, 1 + place, "ptr") for place, each in enumerate(buffers) if each in used),
            *(_argument(w, first + place, "i64") for place in range(len(self.program.sizes))),
            *ranges,
        ]
        w.line(f"call void @{self.name}.body({', '.join(a.typed for a in arguments)})")
        w.finish(name, ["ptr %args", BEGIN.typed, END.typed])

    def _body(
        self, parameters: Sequence[str], names: Mapping[Tensor, str], sizes: Mapping[str, str]
    ) -> None:
        w = Writer(self.module, () if self.options.exact else CONTRACT)
        roomy = frozenset(self.program.temporaries)
        expressions = Expressions(w, names, sizes, roomy, self.options.large)
        statements = Statements(w, expressions, self.options.machine.vector)
        with expressions.scope():
            if self.tile is not None:
                TileWriter(w, expressions, statements, self.tile, self.kept).write()
            elif self.share is None:
                statements.block(self.body, [Point()])
            else:
                self._loops(w, expressions, statements)
        strips = STRIPS if self.strips else ()
        given = [*parameters, *(f"i64 {name}" for name in sizes.values())]
        given += [each.typed for each in (BEGIN, END, *strips)]
        # Not inlined, because the parameters say that buffers do not overlap.
        w.finish(f"{self.name}.body", given, "internal ")

    def _loops(self, w: Writer, expressions: Expressions, statements: Statements) -> None:
        """The loops that are divided, as one loop."""
        loops = self._divided
        counts = [expressions.value(trips(loop, {}), Point()) for loop in loops]
        starts = [expressions.value(loop.start, Point()) for loop in loops]
        with flattened(w, BEGIN, END, counts) as (_, places), expressions.scope():
            point = Point()
            for loop, start, place in zip(loops, starts, places, strict=True):
                point = point.at(loop.axis, Place(w.two("add nsw", start, place)))
            statements.block(loops[-1].body, [point])


def _kept(name: str, tile: Tile) -> Tensor | None:
    """What keeps the accumulators of ``tile`` between parts of its sum; None if it has none."""
    return put_away(name, tile) if tile.slices is None else slices.put_away(name, tile)


class Train:
    """Steps over the same rows as one function of a range of blocks of rows."""

    def __init__(self, module: Module, steps: Sequence[Step], rows: Sequence[Rows]) -> None:
        self.module = module
        self.name = f"{steps[0].name}.train"
        self.steps = steps
        self.rows = rows
        self.unit = block(rows)
        # What several threads make of it, one after the other, if it has too few blocks for them.
        self.parts: Sequence[Step | Train] = ()
        # Temporaries that hold nothing but these rows, and the bytes of a block of them.
        self.passing: dict[Tensor, int] = {}

    def keep_in_place(self, temporaries: Sequence[Tensor]) -> None:
        """Lets rows of those of ``temporaries`` that nothing else needs follow each other."""
        found = passing(self.rows, temporaries)
        self.passing = {tensor: self.unit * size for tensor, size in found.items()}
        for step in self.steps:
            step.moved = frozenset(found)

    def fetch(self, outside: Sequence[Tensor]) -> None:
        """Lets sums fetch what copies touch of the tensors ``outside``."""
        caches = self.steps[0].options.machine.caches
        pairs = [(step.tile, rows) for step, rows in zip(self.steps, self.rows, strict=True)]
        for step, tile in zip(self.steps, fetching(pairs, outside, caches), strict=True):
            step.tile = tile

    @property
    def enough(self) -> bool:
        """Whether it has enough blocks for several threads."""
        return enough(self.rows)

    @property
    def share(self) -> Share:
        """All blocks of rows."""
        total: Expr = index(0)
        for step in self.steps:
            assert step.share is not None, "steps with rows are shared"
            total = Apply(ADD, (total, step.share.effort))
        blocks = -(-self.rows[0].extent // self.unit)
        return Share(index(0), index(blocks), normal(total))

    def write(self, program: LoopProgram) -> None:
        """Writes the steps and the function; ``program`` has the temporaries of all steps."""
        for step in self.steps:
            step.write(program)
        for part in self.parts:
            if isinstance(part, Train):
                part.write_train()
        self.write_train()

    def write_train(self) -> None:
        """Writes the function alone."""
        w = Writer(self.module)
        for step, rows in zip(self.steps, self.rows, strict=True):
            last = number(rows.iterations, "i64")
            each = number(self.unit // rows.unit * rows.turns, "i64")
            first, stop = (
                w.intrinsic("smin", w.two("mul", place, each), last) for place in (BEGIN, END)
            )
            w.line(f"call void @{step.in_order}(ptr %args, {first.typed}, {stop.typed})")
        w.finish(self.name, ["ptr %args", BEGIN.typed, END.typed])


def _runs(module: Module, steps: Sequence[Step], *, few: bool) -> Iterator[Step | Train]:
    """``steps`` in order, those that belong together as trains, which may have ``few`` blocks.

    What has nothing to do with the first steps of a train goes before it if that joins others.
    """
    rest = list(steps)
    while rest:
        first = rest.pop(0)
        if (rows := _rows(first, first.tile)) is None:
            yield first
            continue
        before, train, rest = _coupled(first, rows, rest, few=few)
        yield from _runs(module, before, few=few)
        if len(train) == 1:
            yield first
            continue
        found = Train(module, list(train), list(train.values()))
        if not found.enough:
            found.name = f"{first.name}.alone"
            found.parts = list(_runs(module, list(train), few=False))
        yield found


def _coupled(
    first: Step, rows: Rows, others: Sequence[Step], *, few: bool
) -> tuple[list[Step], dict[Step, Rows], list[Step]]:
    """Of ``others``, those that go before ``first``, those of its train, and those after it."""
    train, before, waiting = {first: rows}, list[Step](), list[Step]()
    for place, step in enumerate(others):
        if (found := _joined(train, step, few=few)) is not None:
            step.tile, train[step] = found
            before += waiting
            waiting = []
        elif all(_independent(step, each) for each in train):
            waiting.append(step)
        else:
            return before, train, [*waiting, *others[place:]]
    return before, train, waiting


def _joined(
    train: Mapping[Step, Rows], step: Step, *, few: bool
) -> tuple[Tile | None, Rows] | None:
    """How ``step`` is run as part of ``train``, and its rows; None if it cannot be.

    A copy of what sums give goes through it as they do, if that leaves enough blocks.
    """
    sums = any(each.tile is not None and has_loop(each.tile.body) for each in train)
    for tile in _ways(step.tile) if sums else (step.tile,):
        rows = _rows(step, tile)
        if rows is None or not coupled(list(train.values()), rows):
            continue
        if (few and tile is step.tile) or enough([*train.values(), rows]):
            return tile, rows
    return None


def _ways(tile: Tile | None) -> Iterator[Tile | None]:
    """``tile``, and with another loop outermost, if it takes squares of what it copies."""
    yield tile
    if tile is not None and tile.turned is not None:
        for loop in tile.loops[1:]:
            yield replace(tile, loops=(loop, *(each for each in tile.loops if each is not loop)))


def _rows(step: Step, tile: Tile | None) -> Rows | None:
    """The rows of ``step``, run by ``tile``, if it may be part of a train."""
    sliced = tile is not None and tile.slices is not None
    alone = scheduled(step.body) or sliced or step.guard is not TRUE
    return None if alone else rows_of(step.body, tile)


def _independent(one: Step, other: Step) -> bool:
    """Whether it does not matter which of two steps comes first."""
    ones, others = touched(one.body), touched(other.body)
    return not any(ones[tensor] or others[tensor] for tensor in ones.keys() & others.keys())


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
            size.name: _argument(w, first + place, "i64").text
            for place, size in enumerate(self.program.sizes)
        }
        expressions = Expressions(w, {}, sizes)
        team = _argument(w, 0, "ptr")
        if sizes:
            for strips in sorted(set(map(_in_strips, steps))):
                self._share(strips=strips)
        for step in steps:
            guard = step.guard if isinstance(step, Step) else TRUE
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
        team = _argument(w, 0, "ptr")
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
            w.store(_argument(w, word, "i64"), place, WORD)
        return copy


def _in_strips(step: Step | Train) -> bool:
    return isinstance(step, Step) and step.kept is not None


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
        there = w.address(_argument(w, word, "ptr").text, "i8", further)
        place = w.address(given.text, "i64", number(word, "i64"))
        w.store(Value(there, "ptr"), place, WORD)
    w.line(f"call void {step}({given.typed}, {here.typed}, {limit.typed})")
    w.set(slot, after)
    w.jump(head)
    w.begin(done)


def _parameter(tensor: Tensor, name: str, *, writes: bool, whole: bool) -> str:
    """A buffer; all of it may be read from where it begins on if it is the ``whole``."""
    access = "" if writes else " readonly"
    known = [extent.value for extent in tensor.shape if isinstance(extent, Const)]
    size = BYTES[STORED[tensor.dtype]]
    for extent in known:
        size *= extent
    certain = whole and size and len(known) == len(tensor.shape)
    return f"ptr noalias{access}{f' dereferenceable({size})' if certain else ''} {name}"


def _argument(w: Writer, place: int, kind: str) -> Value:
    """A word of the table of arguments."""
    address = w.address("%args", "i64", number(place, "i64"))
    return w.load(kind, 0, address, WORD)
