"""Phases of a gradient that differ in size by a row or a column, cut to what they have in common.

An image of odd width has one even column more than odd ones, so that the phases of a gradient with
stride 2 are nests over loops of different lengths. Cut to the shortest of each they are nests over
the same points, which `siblings` joins; what is left over are thin nests of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, reduce

from eqsatad.backends.cpu.rewrites.siblings import STEPS, alike, apart, stores_constant
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.tile import chain
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
from eqsatad.terms.linear import Linear, expression, normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Tensor, Var
from eqsatad.terms.ops import ADD, FLOORDIV, SUB
from eqsatad.terms.presburger import span

# By how many iterations the loops of phases differ at most.
NEAR = 2
ZERO = index(0)


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
            parts = [other] if _near(first, other) else _dealt(first, other)
            if parts and all(_elsewhere(other, each) for each in (*run, *passed)):
                run.extend(parts)
            else:
                passed.append(other)
        parts = _parts(run) if len(run) > 1 else []
        if parts and all(alike(parts[:n], parts[n]) for n in range(1, len(run))):
            yield from parts
            left = passed
        else:
            yield first


def _near(a: Statement, b: Statement) -> bool:
    """Whether two nests have loops of nearly the same lengths, all parallel."""
    if scheduled((a, b)):
        return False
    ours, theirs = (_lengths(statement) for statement in (a, b))
    if not ours or len(ours) != len(theirs) or _dimensions(a) != _dimensions(b):
        return False
    return all(map(_close, ours, theirs))


def _dealt(pattern: Statement, statement: Statement) -> list[Statement]:
    """Stores of constants over a longer innermost loop as several nests near ``pattern``."""
    (loops, body), (others, _) = chain(statement), chain(pattern)
    if not loops or not others or not all(map(stores_constant, body)):
        return []
    for step in range(2, STEPS + 1):
        parts = [_every(statement, step, turn) for turn in range(step)]
        if all(_near(pattern, part) for part in parts):
            return parts
    return []


def _every(statement: Statement, step: int, turn: int) -> Statement:
    """The nest with every so many values of its innermost loop, beginning with ``turn``."""
    loops, body = chain(statement)
    (*around, loop) = loops
    left = Apply(ADD, (loop.stop, index(step - 1 - turn)))
    axis = Axis(loop.axis.name, normal(Apply(FLOORDIV, (left, index(step)))))
    block = replaced(body, {loop.axis: expression(Linear.build(turn, ((step, axis),)))})
    for each in (replace(loop, axis=axis, stop=axis.extent), *reversed(around)):
        block = (replace(each, body=block),)
    (result,) = block
    return result


def _close(n: Expr, m: Expr) -> bool:
    """Whether two lengths differ by little, and always to the same side."""
    if n is m:
        return True
    low, high = _apart(n, m)
    if low is None or high is None or low < -NEAR or high > NEAR or low < 0 < high:
        return False
    return not isinstance(n, Const) or n.value > NEAR


@lru_cache(maxsize=4096)
def _apart(n: Expr, m: Expr) -> tuple[int | None, int | None]:
    """The least and the greatest value of ``n - m``."""
    if isinstance(n, Const) and isinstance(m, Const):
        return n.value - m.value, n.value - m.value
    return span(normal(Apply(SUB, (n, m))))


def _shorter(n: Expr, m: Expr) -> Expr:
    """The lesser of two lengths that are close."""
    return m if n is not m and (_apart(n, m)[0] or 0) >= 0 else n


def _dimensions(statement: Statement) -> list[list[bool]]:
    """Which loops each index depends on that a nest stores at."""
    loops, body = chain(statement)
    stores = [each for each in statements(body) if isinstance(each, Store)]
    return [[loop.axis in index.free for loop in loops] for index in stores[0].indices]


def _lengths(statement: Statement) -> list[Expr]:
    """The lengths of the loops of a nest; none where one carries something."""
    loops, body = chain(statement)
    if not any(isinstance(each, Store) for each in statements(body)):
        return []
    return [normal(loop.stop) for loop in loops] if all(map(_plain, loops)) else []


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
    common = [reduce(_shorter, lengths) for lengths in zip(*map(_lengths, run), strict=True)]
    names = [loop.axis.name for loop in chain(run[0])[0]]
    axes = [Axis(name, n) for name, n in zip(names, common, strict=True)]
    left = [part for statement in run for part in _left(statement, common)]
    return [*(_moved(each, [(axis, ZERO) for axis in axes]) for each in run), *left]


def _left(statement: Statement, common: Sequence[Expr]) -> Iterator[Statement]:
    """The points of a nest at which one of its loops has gone on for longer than ``common``."""
    loops, _ = chain(statement)
    for place, loop in enumerate(loops):
        extents = [*common[:place], *_lengths(statement)[place:]]
        if extents[place] is common[place]:
            continue
        starts: list[Expr] = [ZERO] * len(loops)
        starts[place] = common[place]
        yield _moved(statement, [
            (Axis(loop.axis.name, normal(Apply(SUB, (extent, start)))), start)
            for loop, extent, start in zip(loops, extents, starts, strict=True)
        ])  # fmt: skip


def _moved(statement: Statement, places: Sequence[tuple[Axis, Expr]]) -> Statement:
    """The nest over other axes, which start at some values of the old ones; with its own locals."""
    loops, body = chain(statement)
    mapping: dict[Expr, Expr] = {
        loop.axis: normal(Apply(ADD, (axis, start)))
        for loop, (axis, start) in zip(loops, places, strict=True)
    }
    part = "_".join(
        str(start.value) if isinstance(start, Const) else f"end{place}"
        for place, (_, start) in enumerate(places)
        if start is not ZERO
    )
    for each in statements(body):
        if isinstance(each, Assign) and part:
            mapping[each.var] = Var(f"{each.var.name}_{part}", each.var.dtype)
    block: Block = replaced(body, mapping)
    for axis, _ in reversed(places):
        block = (For(axis, ZERO, axis.extent, block, True),)
    (result,) = block
    return result
