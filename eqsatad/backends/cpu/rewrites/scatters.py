"""Scatters into what is filled right before: block by block, while the block is in a cache.

A scatter adds to elements that a loop sets to a constant. Where both go over the same outer
dimensions, such as the images of a batch, each image is filled and added to before the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from eqsatad.backends.cpu.rewrites.siblings import stores_constant
from eqsatad.backends.cpu.tiles.tile import chain
from eqsatad.loops.nest import (
    Accumulate,
    Block,
    For,
    LoopProgram,
    Nest,
    Statement,
    Store,
    reads_of,
    replaced,
    scheduled,
    statements,
)
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Expr


def filled_first(program: LoopProgram) -> LoopProgram:
    """``program`` where a scatter and what fills its target go over the same blocks in turns."""
    nests = tuple(Nest(nest.stage, _filled(nest.body)) for nest in program.nests)
    return replace(program, nests=nests)


def _filled(body: Block) -> Block:
    found: list[Statement] = []
    for statement in body:
        both = _joined(found[-1], statement) if found else None
        if both is None:
            found.append(statement)
        else:
            found[-1] = both
    return tuple(found)


def _joined(fill: Statement, add: Statement) -> Statement | None:
    """Both as one nest over the outer dimensions that they share; None if there are none."""
    (loops, body), (others, rest) = chain(fill), chain(add)
    if scheduled((fill, add)) or len(body) != 1 or not stores_constant(body[0]):
        return None
    (store,) = body
    assert isinstance(store, Store), "a constant is stored"
    places = _additions(add, store)
    if not places:
        return None
    pairs = zip(loops, others, store.indices, *places, strict=False)
    shared = len(list(takewhile(_same, pairs)))
    if not shared:
        return None
    axes: dict[Expr, Expr] = {
        theirs.axis: mine.axis for mine, theirs in zip(loops[:shared], others, strict=False)
    }
    both = (*_inside(loops[shared:], body), *replaced(_inside(others[shared:], rest), axes))
    outer = [replace(loop, parallel=True) for loop in loops[:shared]]
    for loop in reversed(outer):
        both = (replace(loop, body=both),)
    (statement,) = both
    return statement


def _additions(add: Statement, store: Store) -> list[tuple[Expr, ...]]:
    """Where ``add`` adds to what ``store`` fills; nothing if it does anything else with it."""
    writes = [each for each in statements((add,)) if isinstance(each, Store | Accumulate)]
    fits = all(isinstance(each, Accumulate) and each.buffer is store.buffer for each in writes)
    used = any(read.tensor is store.buffer for read in reads_of((add,)))
    return [each.indices for each in writes] if fits and not used else []


def _same(place: tuple[For | Expr, ...]) -> bool:
    """Whether two loops go over one dimension, and all that is written there is at their axes."""
    mine, theirs, filled, *added = place
    assert isinstance(mine, For)
    assert isinstance(theirs, For)
    ends = all(
        linear(getattr(mine, end)) == linear(getattr(theirs, end)) for end in ("start", "stop")
    )
    return ends and filled is mine.axis and all(index is theirs.axis for index in added)


def _inside(loops: Sequence[For], body: Block) -> Block:
    """``body`` in ``loops`` that one thread runs."""
    for loop in reversed(loops):
        body = (replace(loop, body=body, parallel=False),)
    return body
