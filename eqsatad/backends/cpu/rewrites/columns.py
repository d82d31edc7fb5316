"""Sums down the columns, added up while the rows that they read are walked for something else.

The gradients of the scale and the shift of a layer norm are such sums, and the gradient of a bias
behind a nonlinearity. Each would read all rows again. Here they are accumulated row by row next to
the store of a row, for blocks of rows whose number depends on sizes only, so that threads may share
the blocks and results do not depend on them. The blocks are added up at the end, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from eqsatad.backends.blocks import buffers_of, touched
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.rewrites.joining import EXACT, apart, in_order, kept, without_unread
from eqsatad.backends.cpu.rewrites.passes import arranged, vectors
from eqsatad.backends.cpu.rewrites.rows import (
    Part,
    Rows,
    around,
    bounds,
    contiguous,
    passable,
    rows_of,
    whole,
)
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.fusion import fused
from eqsatad.backends.cpu.tiles.tile import added, chain, length
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    LoopProgram,
    Nest,
    Statement,
    Store,
    scheduled,
)
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Placeholder, Read, Tensor, Var
from eqsatad.terms.ops import ADD, MIN, MUL
from eqsatad.terms.walk import substitute

# Bytes of the rows of a block, and the most blocks.
BLOCK = 1 << 19
MOST = 256
# Bytes of sums that stay in the nearest caches beside a row.
SUMS = 1 << 16


@dataclass(frozen=True)
class Columns:
    """Sums over ``rows`` at every point of parallel ``loops``: all that a nest does.

    ``values`` are what is added to each local in a row, and ``parts`` the whole nest.
    """

    stage: Tensor
    loops: tuple[For, ...]
    rows: tuple[For, ...]
    values: dict[Var, Expr]
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Bytes of one row of sums."""
        elements = prod(length(loop) or 0 for loop in self.loops)
        return elements * sum(BYTES[STORED[var.dtype]] for var in self.values)

    def at(self, rows: Rows, beside: Part) -> dict[Var, Expr]:
        """The values in ``rows``, where ``beside`` stores."""
        pairs = zip((*self.rows, *self.loops), (*rows.loops, *beside.loops), strict=True)
        axes: dict[Expr, Expr] = {theirs.axis: mine.axis for theirs, mine in pairs}
        return {var: substitute(value, axes) for var, value in self.values.items()}


@dataclass(frozen=True)
class Sums:
    """Partial sums of ``columns``: in each of ``buffers`` a row for every value of ``block``."""

    columns: Columns
    buffers: dict[Var, Tensor]
    block: Axis

    def start(self) -> Statement:
        """Zeros for a block."""
        places = self._places(self.columns.loops)
        zeros = (Store(each, places, Const(0.0, each.dtype)) for each in self.buffers.values())
        return Part(self.columns.loops, tuple(zeros)).statement()

    def more(self, rows: Rows) -> Part:
        """What a row adds while it is stored; what is stored need not be read."""
        beside = _beside(rows, self.columns)
        assert beside is not None, "sums are set up for rows that store beside them"
        stored: dict[Expr, Expr] = {
            Read(each.buffer, each.indices): each.value
            for each in beside.body
            if isinstance(each, Store) and each.buffer.dtype in EXACT
        }
        places = self._places(beside.loops)
        values = self.columns.at(rows, beside)
        adds = (
            Accumulate(buffer, places, substitute(values[var], stored))
            for var, buffer in self.buffers.items()
        )
        return Part(beside.loops, tuple(adds))

    def end(self) -> Nest:
        """The nest of the columns, over blocks instead of rows."""
        places = self._places(self.columns.loops)
        adds = tuple(
            Assign(var, Apply(ADD, (var, Read(buffer, places))))
            for var, buffer in self.buffers.items()
        )
        walk = Part((For(self.block, index(0), self.block.extent, adds),), adds)
        parts = (walk if part.loops else part for part in self.columns.parts)
        return Rows(self.columns.loops, tuple(parts)).nest(self.columns.stage)

    def _places(self, loops: Sequence[For]) -> tuple[Expr, ...]:
        return (self.block, *(loop.axis for loop in loops))


def accumulated(program: LoopProgram) -> LoopProgram:
    """``program`` with sums down the columns made while rows are stored that they read as well."""
    nests = list(program.nests)
    temporaries = list(program.temporaries)
    names = {tensor.name for tensor in buffers_of(program)}
    for nest in program.nests:
        found = _found(nests, nest) if nest in nests else {}
        if not found:
            continue
        here = nests.index(nest)
        rows = rows_of(nest.body[0], len(next(iter(found.values())).rows))
        assert rows is not None, "columns are found beside rows"
        sums = {place: _set_up(columns, rows, names) for place, columns in found.items()}
        ends = {place: each.end() for place, each in sums.items()}
        nests = [
            *(each for place, each in enumerate(nests[:here]) if place not in ends),
            Nest(nest.stage, _walked(rows, list(sums.values()))),
            *(end for place, end in ends.items() if place < here),
            *(ends.get(place, each) for place, each in enumerate(nests) if place > here),
        ]
        temporaries.extend(each for one in sums.values() for each in one.buffers.values())
    return without_unread(replace(program, nests=tuple(nests), temporaries=tuple(temporaries)))


def columns_of(nest: Nest) -> Columns | None:
    """``nest`` as sums down the columns, if it is nothing else."""
    if len(nest.body) != 1 or scheduled(nest.body):
        return None
    loops, _ = chain(nest.body[0])
    found = rows_of(nest.body[0], len(loops))
    if not loops or found is None or any(loop.start is not index(0) for loop in loops):
        return None
    (once,) = around(loops, arranged(found.parts))
    found = rows_of(once, len(loops))
    if found is None:
        return None
    walks = [part for part in found.parts if part.loops]
    if len(walks) != 1 or walks[0].stores:
        return None
    values = {each.var: added(each) for each in walks[0].body if isinstance(each, Assign)}
    known = {var: value for var, value in values.items() if value is not None}
    if len(known) < len(walks[0].body) or any(var.dtype not in EXACT for var in known):
        return None
    return Columns(nest.stage, loops, walks[0].loops, known, found.parts)


def _found(nests: Sequence[Nest], nest: Nest) -> dict[int, Columns]:
    """The columns that may be added up beside what ``nest`` stores, by their place."""
    found: dict[int, Columns] = {}
    if len(nest.body) != 1 or scheduled(nest.body):
        return found
    for place, other in enumerate(nests):
        columns = None if other is nest else columns_of(other)
        if columns is None or any(len(o.rows) != len(columns.rows) for o in found.values()):
            continue
        rows = rows_of(nest.body[0], len(columns.rows))
        if rows is not None and _fits(rows, columns) and _movable(nests, nest, place):
            found[place] = columns
    return found


def _movable(nests: Sequence[Nest], nest: Nest, place: int) -> bool:
    """Whether what the nest at ``place`` adds up may be added up in ``nest``."""
    here, other = nests.index(nest), nests[place]
    if place < here and in_order(other, nest):
        return False
    between = nests[min(here, place) + 1 : max(here, place)]
    return not any(in_order(each, other) for each in between)


def _fits(rows: Rows, columns: Columns) -> bool:
    """Whether a part of ``rows`` stores what lies along ``columns`` and reads the same."""
    beside = _beside(rows, columns)
    if beside is None or columns.size > SUMS or not passable(rows):
        return False
    if bounds(rows.loops) != bounds(columns.rows):
        return False
    adds = tuple(Assign(var, value) for var, value in columns.at(rows, beside).items())
    more = Part(beside.loops, adds)
    both = Rows(rows.loops, (*rows.parts, more))
    does = touched(tuple(part.statement() for part in rows.parts))
    same = whole(rows) & whole(Rows(rows.loops, (more,)))
    return bool(same) and contiguous(more) and apart(both, does, touched(adds))


def _beside(rows: Rows, columns: Columns) -> Part | None:
    """The last part of ``rows`` that stores along the columns."""
    wanted = bounds(columns.loops)
    found = [part for part in rows.parts if part.stores and bounds(part.loops) == wanted]
    return found[-1] if found else None


def _set_up(columns: Columns, rows: Rows, names: set[str]) -> Sums:
    """Partial sums for ``columns`` in ``rows``, whose names are not among ``names``."""
    block = Axis("block", index(_blocks(rows)))
    buffers: dict[Var, Tensor] = {}
    for number, var in enumerate(columns.values):
        name = f"{columns.stage.name}_blocks_{number}"
        while name in names:
            name += "_"
        names.add(name)
        shape = (block.extent, *(loop.stop for loop in columns.loops))
        buffers[var] = Placeholder(name, shape, var.dtype)
    return Sums(columns, buffers, block)


def _blocks(rows: Rows) -> int:
    """Into how many blocks ``rows`` are cut: a matter of sizes alone."""
    outermost = length(fused(rows.loops, arranged(rows.parts))[0][0]) or 1
    size = rows.size * prod(length(loop) or 1 for loop in rows.loops)
    height = ceil(outermost / min(MOST, max(1, size // BLOCK)))
    return ceil(outermost / height)


def _walked(rows: Rows, sums: Sequence[Sums]) -> Block:
    """The nest of ``rows`` with ``sums``, block by block."""
    parts = [*rows.parts]
    for each in sums:
        parts.extend(kept(each.more(rows), parts))
    (first, *rest), body = fused(rows.loops, arranged(parts))
    block = sums[0].block
    loop = For(block, index(0), block.extent, (), True)
    height = index(ceil((length(first) or 1) / (length(loop) or 1)))
    start = normal(Apply(ADD, (first.start, Apply(MUL, (block, height)))))
    stop = Apply(MIN, (normal(Apply(ADD, (start, height))), first.stop))
    inner = around([replace(other, parallel=False) for other in rest], body)
    zeros = (each.start() for each in sums)
    loops, body = fused([loop], (*zeros, For(first.axis, start, stop, inner)))
    return around(loops, vectors(body))
