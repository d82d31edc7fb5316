"""Sums in nests of their own, apart from what only uses what they add up to.

``for i: total = sum(...); for j: y[i, j] = h[j] * total`` is two kinds of work, of which each is
planned better alone. The sums go to a temporary. What reads again that which was summed, as a row
of a softmax does, stays with its sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from eqsatad.backends.blocks import fresh_names, touched
from eqsatad.backends.cpu.code.scalars import COMPUTED, STORED
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.tile import added, chain, length, typical
from eqsatad.loops.nest import (
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
from eqsatad.terms.linear import Linear, expression, linear
from eqsatad.terms.nodes import Axis, Placeholder, Read, Tensor, Var

Fresh: TypeAlias = Callable[[str], str]
Name: TypeAlias = Callable[[], str]

# The shortest sum, in terms, that gets a temporary for what it adds up to.
LEAST = 64


@dataclass(frozen=True)
class Parts:
    """The nest that fills ``temporary``, and what is left of the block that it was in."""

    temporary: Tensor
    sums: Statement
    rest: Block


def parted(program: LoopProgram) -> LoopProgram:
    """``program`` with sums apart from what uses them."""
    fresh = fresh_names(program)
    nests: list[Nest] = []
    made: list[Tensor] = []
    for nest in program.nests:
        while (parts := _first(nest, fresh)) is not None:
            made.append(parts.temporary)
            nests.append(Nest(parts.temporary, (parts.sums,)))
            nest = replace(nest, body=parts.rest)
        nests.append(nest)
    return replace(program, temporaries=(*program.temporaries, *made), nests=tuple(nests))


def _first(nest: Nest, fresh: Fresh) -> Parts | None:
    """The first sum of ``nest`` that is better apart."""
    if scheduled(nest.body):
        return None
    written = {tensor for tensor, writes in touched(nest.body).items() if writes}
    for parts in _candidates(nest.body, lambda: fresh(f"{nest.stage.name}_sum")):
        if written.isdisjoint(_reads((parts.sums,))):
            return parts
    return None


def _candidates(block: Block, name: Name) -> Iterator[Parts]:
    # Sums that are no part of a loop, then those of each loop.
    yield from filter(None, (_inner((), block, name), _scaled((), block, name)))
    for place, statement in enumerate(block):
        loops, body = chain(statement)
        if not loops or any(length(loop) is None for loop in loops):
            continue
        for part in (_inner, _scaled):
            if (found := part(loops, body, name)) is not None:
                around = _within(loops, found.rest)
                rest = (*block[:place], around, *block[place + 1 :])
                yield replace(found, rest=rest)


def _scaled(loops: Sequence[For], block: Block, name: Name) -> Parts | None:
    """A sum that loops after it scale, if these do not read again what is summed."""
    first = tuple(each for each in block if not _stores(each))
    last = block[len(first) :]
    if (*first, *last) != block or not any(isinstance(each, For) for each in first):
        return None
    if not all(isinstance(each, For) and each.parallel for each in last):
        return None
    if loops and not (all(map(_scales, last)) and _reads(first).isdisjoint(_reads(last))):
        return None
    used = _locals(last) & set(_assigned(first))
    if len(used) != 1 or used & set(_assigned(last)):
        return None
    (var,) = used
    return _parts(loops, first, var, last, name)


def _inner(loops: Sequence[For], block: Block, name: Name) -> Parts | None:
    """A long sum for each term of another one."""
    for place, outermost in enumerate(block):
        outer = _right_inside(outermost)
        match outer[-1].body if outer else ():
            case (Assign(var) as start, For() as inner, Assign() as update):
                pass
            case _:
                continue
        if any(e.parallel or length(e) is None or linear(e.start).terms for e in outer):
            continue
        if added(update) is None or update.var is var or _terms(inner) < LEAST:
            continue
        if set(_assigned((inner,))) != {var} or not _locals((start, inner)) <= {var}:
            continue
        around = (*loops, *(replace(each, parallel=True) for each in outer))
        found = _parts(around, (start, inner), var, (update,), name)
        if found is not None:
            rest = (*block[:place], _within(outer, found.rest), *block[place + 1 :])
            return replace(found, rest=rest)
    return None


def _right_inside(statement: Statement) -> tuple[For, ...]:
    """``statement`` and the loops right inside each other in it, if it is a loop."""
    loops: list[For] = []
    while isinstance(statement, For):
        loops.append(statement)
        if len(statement.body) != 1:
            break
        (statement,) = statement.body
    return tuple(loops)


def _parts(loops: Sequence[For], first: Block, var: Var, last: Block, name: Name) -> Parts | None:
    """``first``, which sets ``var``, in a nest of ``loops``, and ``last``, which reads it."""
    if STORED[var.dtype] != COMPUTED[var.dtype]:
        # Storing would round.
        return None
    shape = tuple(index(length(loop) or 0) for loop in loops) or (index(1),)
    temporary = Placeholder(name(), shape, var.dtype)
    places = tuple(
        expression(Linear.build(0, ((1, loop.axis),)) - linear(loop.start)) for loop in loops
    ) or (index(0),)
    sums = (*first, Store(temporary, places, var))
    if not loops:
        one = For(Axis("all", index(1)), index(0), index(1), sums, True)
        return Parts(temporary, one, replaced(last, {var: Read(temporary, places)}))
    return Parts(temporary, _within(loops, sums), replaced(last, {var: Read(temporary, places)}))


def _assigned(block: Sequence[Statement]) -> Iterator[Var]:
    return (each.var for each in statements(tuple(block)) if isinstance(each, Assign))


def _terms(loop: For) -> float:
    """How many terms a sum has, more or less."""
    return prod(typical(each) for each in statements((loop,)) if isinstance(each, For))


def _within(loops: Sequence[For], block: Block) -> Statement:
    for loop in reversed(loops):
        block = (replace(loop, body=block),)
    (statement,) = block
    return statement


def _stores(statement: Statement) -> bool:
    """Whether ``statement`` does more than set locals."""
    return not all(isinstance(each, Assign | For) for each in statements((statement,)))


def _scales(statement: Statement) -> bool:
    """Whether ``statement`` is parallel loops around stores."""
    loops, body = chain(statement)
    return bool(loops) and all(isinstance(each, Store) for each in body)


def _locals(block: Sequence[Statement]) -> set[Var]:
    return {node for node in nodes_of(tuple(block)) if isinstance(node, Var)}


def _reads(block: Sequence[Statement]) -> set[Tensor]:
    return {read.tensor for read in reads_of(tuple(block))}
