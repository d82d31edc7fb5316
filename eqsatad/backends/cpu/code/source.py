"""A loop program as one LLVM module.

Every independent statement of a nest is a *step*: a function of a range of its outermost loop.
``run(args)`` makes the steps in order; ``args`` is a table of 64-bit words: the address of a
team of threads (or 0), then every buffer's address, then every size; see `driver`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsatad.backends.blocks import buffers_of, groups, touched
from eqsatad.backends.cpu.code.driver import Driver, argument
from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.points import Place, Point
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.code.statements import Statements
from eqsatad.backends.cpu.code.stripwriter import STRIPS
from eqsatad.backends.cpu.code.text import BEGIN, END, Module, Value, Writer, number
from eqsatad.backends.cpu.code.tilewriter import TileWriter, flattened, iterations, spread
from eqsatad.backends.cpu.code.train import Share, Train, runs
from eqsatad.backends.cpu.rewrites.streaming import streaming
from eqsatad.backends.cpu.rewrites.streams import large, unread
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles import slices
from eqsatad.backends.cpu.tiles.ahead import foreseen
from eqsatad.backends.cpu.tiles.choice import plan
from eqsatad.backends.cpu.tiles.effort import effort, index, trips
from eqsatad.backends.cpu.tiles.kinds import Kind, decision
from eqsatad.backends.cpu.tiles.maps import mapped
from eqsatad.backends.cpu.tiles.panels import panelled
from eqsatad.backends.cpu.tiles.reuse import read_once
from eqsatad.backends.cpu.tiles.scans import scanned
from eqsatad.backends.cpu.tiles.strips import put_away
from eqsatad.backends.cpu.tiles.taps import tapped
from eqsatad.backends.cpu.tiles.tile import Tile, chain, length, most
from eqsatad.backends.cpu.tiles.turns import turn
from eqsatad.backends.cpu.tiles.windowed import windowed
from eqsatad.backends.cpu.tiles.zeros import Filled, filled, without_zeros
from eqsatad.loops.nest import Block, For, LoopProgram, Mark, has_loop, scheduled
from eqsatad.terms.checks import depends_on_data
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import TRUE, Apply, Const, Expr, Tensor
from eqsatad.terms.ops import FLOORDIV, MAX, NOT
from eqsatad.terms.presburger import empty
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import conjunction

# How much faster than `effort` assumes are nests that are run by tiles, or scheduled by hand; and
# those of some kinds. Sums of products in tiles are as much faster for every lane.
TILE_SPEED = 8
SPEEDS = {Kind.COPY: 4, Kind.ROWS: 16}
PRODUCTS = 4
# Picoseconds that a byte takes at least that such sums read and no cache near a core holds.
BYTE = 30
# Picoseconds that a round of strips takes at least: threads wait for each other after each.
ROUND = 200_000_000
CONTRACT = ("contract",)
# What steps take loops of unknown length to have, of which the sizes of a call choose one: so many
# vectors, only rows, nothing.
VECTORS = (8, 1, 0, None)
# The same for nests that are few points of an image.
THIN = (1, None)


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
    together = list(runs(module, steps, few=not program.sizes))
    for run in together:
        if isinstance(run, Train) and not program.sizes:
            needed = {
                tensor for step in steps if step not in run.steps for tensor in touched(step.body)
            }
            run.keep_in_place([each for each in program.temporaries if each not in needed])
            run.fetch([*program.inputs, *program.outputs])
        run.write(program)
    Driver(module, program).write(together)
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
    def rounds(self) -> int:
        """How many rounds several threads make the strips in, at least one."""
        least, _ = interval(self._effort)
        return max(1, min(self.strips, (least or 0) // ROUND))

    @property
    def in_rounds(self) -> str:
        """The function of a range of iterations of all rounds."""
        return f"{self.name}.rounds" if self.strips else self.name

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
            fast = Apply(FLOORDIV, (effort(self.body), index(PRODUCTS * max(1, self.tile.lanes))))
            size = read_once(self.body)
            far = size > self.options.machine.caches.far
            return Apply(MAX, (fast, index(int(BYTE * size)))) if far else fast
        usual = TILE_SPEED if self.tile is not None or scheduled(self.body) else 1
        return Apply(FLOORDIV, (effort(self.body), index(SPEEDS.get(kind, usual))))

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
            self._entry(self.name, used, lambda w: (BEGIN, END))
            return
        assert self.tile is not None, "strips are of tiles"
        _, tiles = spread(self.tile)
        assert isinstance(tiles, Const), "tiles in strips are counted"
        none, all_tiles = number(0, "i64"), number(tiles.value, "i64")
        whole = number(self.strips, "i64")
        self._entry(self.name, used, lambda w: (BEGIN, END, none, whole))
        self._entry(self.in_order, used, lambda w: (none, all_tiles, BEGIN, END))
        self._entry(self.in_rounds, used, lambda w: self._of_round(w, all_tiles))

    def _of_round(self, w: Writer, tiles: Value) -> Sequence[Value]:
        """The range of ``tiles`` and that of strips which a range of one round is."""
        turn = w.two("udiv", BEGIN, tiles)
        before = w.two("mul", turn, tiles)
        rounds, strips = number(self.rounds, "i64"), number(self.strips, "i64")
        first, last = (
            w.two("udiv", w.two("mul", each, strips), rounds)
            for each in (turn, w.two("add", turn, number(1, "i64")))
        )
        return w.two("sub", BEGIN, before), w.two("sub", END, before), first, last

    def _entry(
        self, name: str, used: Mapping[Tensor, bool], ranges: Callable[[Writer], Sequence[Value]]
    ) -> None:
        """The function ``name`` of a range that is part of the ``ranges`` of the body."""
        buffers = buffers_of(self.program)
        first = 1 + len(buffers)
        w = Writer(self.module)
        arguments = [
            *(argument(w, 1 + place, "ptr") for place, each in enumerate(buffers) if each in used),
            *(argument(w, first + place, "i64") for place in range(len(self.program.sizes))),
            *ranges(w),
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


def _parameter(tensor: Tensor, name: str, *, writes: bool, whole: bool) -> str:
    """A buffer; all of it may be read from where it begins on if it is the ``whole``."""
    access = "" if writes else " readonly"
    known = [extent.value for extent in tensor.shape if isinstance(extent, Const)]
    size = BYTES[STORED[tensor.dtype]]
    for extent in known:
        size *= extent
    certain = whole and size and len(known) == len(tensor.shape)
    return f"ptr noalias{access}{f' dereferenceable({size})' if certain else ''} {name}"
