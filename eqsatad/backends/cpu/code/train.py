"""Steps over the same rows as one function, and which steps of a program are such trains.

See `tiles.trains` for which may be, and `driver` for how they are run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eqsatad.backends.blocks import touched
from eqsatad.backends.cpu.code.text import BEGIN, END, Module, Writer, number
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.fetches import fetching
from eqsatad.backends.cpu.tiles.tile import Tile
from eqsatad.backends.cpu.tiles.trains import Rows, block, coupled, enough, passing, rows_of
from eqsatad.loops.nest import LoopProgram, has_loop, scheduled
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import TRUE, Apply, Expr, Tensor
from eqsatad.terms.ops import ADD

if TYPE_CHECKING:
    from eqsatad.backends.cpu.code.source import Step


@dataclass(frozen=True)
class Share:
    """The iterations of a step, and the picoseconds that all of them take."""

    start: Expr
    stop: Expr
    effort: Expr


class Train:
    """Steps over the same rows as one function of a range of blocks of rows."""

    def __init__(self, module: Module, steps: Sequence[Step], rows: Sequence[Rows]) -> None:
        self.module = module
        self.steps = steps
        self.rows = rows
        self.unit = block(rows)
        self.name = f"{steps[0].name}.{'train' if self.enough else 'alone'}"
        # What several threads make of it, one after the other, if it has too few blocks for them.
        self.parts = [] if self.enough else list(runs(module, steps, few=False))
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


def runs(module: Module, steps: Sequence[Step], *, few: bool) -> Iterator[Step | Train]:
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
        yield from runs(module, before, few=few)
        yield first if len(train) == 1 else Train(module, list(train), list(train.values()))


def _coupled(
    first: Step, rows: Rows, others: Sequence[Step], *, few: bool
) -> tuple[list[Step], dict[Step, Rows], list[Step]]:
    """Of ``others``, those that go before ``first``, those of its train, and those after it."""
    train = {first: rows}
    before: list[Step] = []
    waiting: list[Step] = []
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

    A copy of what sums give goes through it as they do, if that leaves enough blocks; but not among
    the parts of a train, which runs it as it is.
    """
    sums = any(each.tile is not None and has_loop(each.tile.body) for each in train)
    for tile in _ways(step.tile) if sums and few else (step.tile,):
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
