"""Phases of a gradient that differ in size by a row or a column, cut to what they have in common.

An image of odd width has one even column more than odd ones, so that the phases of a gradient with
stride 2 are nests over loops of different lengths. Cut to the shortest of each they are nests over
the same points, which `siblings` joins; what is left over are thin nests of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from eqsatad.backends.cpu.rewrites.siblings import alike, apart
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.tile import chain, length
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    LoopProgram,
    Nest,
    Statement,
    Store,
    nodes_of,
    reads_of,
    replaced,
    scheduled,
    statements,
)
from eqsatad.terms.linear import Linear, expression
from eqsatad.terms.nodes import Axis, Const, Expr, Tensor, Var

# By how many iterations the loops of phases differ at most.
NEAR = 2


def evened(program: LoopProgram) -> LoopProgram:
    """``program`` with such phases cut where they can be joined then."""
    nests = tuple(Nest(nest.stage, tuple(_evened(nest.body))) for nest in program.nests)
    return replace(program, nests=nests)


def _evened(body: Block) -> Iterator[Statement]:
    left = list(body)
    while left:
        first, *left = left
        run, passed = [first], list[Statement]()
        for other in left:
            if _near(first, other) and all(_elsewhere(other, each) for each in (*run, *passed)):
                run.append(other)
            else:
                passed.append(other)
        parts = _parts(run) if len(run) > 1 else []
        if parts and all(alike(parts[:n], parts[n]) for n in range(1, len(run))):
            yield from parts
            left = passed
        else:
            yield first


def _near(a: Statement, b: Statement) -> bool:
    """Whether two nests have loops of nearly the same known lengths, all parallel."""
    if scheduled((a, b)):
        return False
    ours, theirs = (_lengths(statement) for statement in (a, b))
    if not ours or len(ours) != len(theirs) or _dimensions(a) != _dimensions(b):
        return False
    return all(n == m or 0 < n - NEAR <= m <= n + NEAR for n, m in zip(ours, theirs, strict=True))


def _dimensions(statement: Statement) -> list[list[bool]]:
    """Which loops each index depends on that a nest stores at."""
    loops, body = chain(statement)
    stores = [each for each in statements(body) if isinstance(each, Store)]
    return [[loop.axis in index.free for loop in loops] for index in stores[0].indices]


def _lengths(statement: Statement) -> list[int]:
    """The lengths of the loops of a nest; none where one is not known, or carries something."""
    loops, body = chain(statement)
    if not any(isinstance(each, Store) for each in statements(body)):
        return []
    found = [length(loop) for loop in loops if _plain(loop)]
    known = [each for each in found if each is not None]
    return known if len(known) == len(loops) else []


def _plain(loop: For) -> bool:
    return loop.parallel and isinstance(loop.start, Const) and loop.start.value == 0


def _elsewhere(a: Statement, b: Statement) -> bool:
    """Whether the order of two statements does not matter: they may store in one array, apart."""
    for one, other in ((a, b), (b, a)):
        if _assigned(one) & _from_outside(other) or _written(one) & _read(other):
            return False
    if any(isinstance(each, Accumulate) for each in statements((a, b))):
        return _written(a).isdisjoint(_written(b))
    return all(apart(one, two) for one in _stores(a) for two in _stores(b))


def _stores(statement: Statement) -> list[Store]:
    return [each for each in statements((statement,)) if isinstance(each, Store)]


def _written(statement: Statement) -> set[Tensor]:
    found = statements((statement,))
    return {each.buffer for each in found if isinstance(each, Store | Accumulate)}


def _read(statement: Statement) -> set[Tensor]:
    return {read.tensor for read in reads_of((statement,))}


def _assigned(statement: Statement) -> set[Var]:
    return {each.var for each in statements((statement,)) if isinstance(each, Assign)}


def _from_outside(statement: Statement) -> set[Var]:
    """The locals that ``statement`` needs and does not set."""
    return {node for node in nodes_of((statement,)) if isinstance(node, Var)} - _assigned(statement)


def _parts(run: Sequence[Statement]) -> list[Statement]:
    """What all of ``run`` have in common of each, in order, then what is left of them."""
    common = [min(lengths) for lengths in zip(*map(_lengths, run), strict=True)]
    names = [loop.axis.name for loop in chain(run[0])[0]]
    axes = [Axis(name, index(n)) for name, n in zip(names, common, strict=True)]
    left = [part for statement in run for part in _left(statement, common)]
    return [*(_moved(each, [(axis, 0) for axis in axes]) for each in run), *left]


def _left(statement: Statement, common: Sequence[int]) -> Iterator[Statement]:
    """The points of a nest at which one of its loops has gone on for longer than ``common``."""
    loops, _ = chain(statement)
    for place, loop in enumerate(loops):
        extents = [*common[:place], *_lengths(statement)[place:]]
        if extents[place] == common[place]:
            continue
        starts = [0] * len(loops)
        starts[place] = common[place]
        yield _moved(statement, [
            (Axis(loop.axis.name, index(extent - start)), start)
            for loop, extent, start in zip(loops, extents, starts, strict=True)
        ])  # fmt: skip


def _moved(statement: Statement, places: Sequence[tuple[Axis, int]]) -> Statement:
    """The nest over other axes, which start at some values of the old ones; with its own locals."""
    loops, body = chain(statement)
    mapping: dict[Expr, Expr] = {
        loop.axis: expression(Linear.build(start, ((1, axis),)))
        for loop, (axis, start) in zip(loops, places, strict=True)
    }
    part = "_".join(str(start) for _, start in places if start)
    for each in statements(body):
        if isinstance(each, Assign) and part:
            mapping[each.var] = Var(f"{each.var.name}_{part}", each.var.dtype)
    block: Block = replaced(body, mapping)
    for axis, _ in reversed(places):
        block = (For(axis, index(0), axis.extent, block, True),)
    (result,) = block
    return result
