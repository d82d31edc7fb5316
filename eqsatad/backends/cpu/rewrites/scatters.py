"""Scatters into what is filled right before: block by block, while the block is in a cache.

A scatter adds to elements that a loop sets to a constant. Where both go over the same outer
dimensions, such as the images of a batch, each image is filled and added to before the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from eqsatad.backends.cpu.rewrites.rows import around
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


def _joined(first: Statement, add: Statement) -> Statement | None:
    """Both as one nest over the outer dimensions that they share; None if there are none.

    The first fills what ``add`` adds to, or has done so and added to it as well.
    """
    (loops, body), (others, rest) = chain(first), chain(add)
    before, after = _writes(first), _writes(add)
    if scheduled((first, add)) or any(isinstance(each, Store) for each in after):
        return None
    fills = [each for each in before if isinstance(each, Store)]
    if not fills or not after or not all(map(stores_constant, fills)):
        return None
    targets = {each.buffer for each in (*before, *after)}
    if len(targets) > 1 or any(read.tensor in targets for read in reads_of((first, add))):
        return None
    places = zip(
        zip(loops, others, strict=False),
        zip(*(each.indices for each in before), strict=True),
        zip(*(each.indices for each in after), strict=True),
        strict=False,
    )
    shared = len(list(takewhile(lambda place: _same(*place), places)))
    if not shared:
        return None
    axes: dict[Expr, Expr] = {
        theirs.axis: mine.axis for mine, theirs in zip(loops[:shared], others, strict=False)
    }
    inner = (*_inside(loops[shared:], body), *replaced(_inside(others[shared:], rest), axes))
    (statement,) = around(loops[:shared], inner)
    return statement


def _writes(statement: Statement) -> list[Store | Accumulate]:
    return [each for each in statements((statement,)) if isinstance(each, Store | Accumulate)]


def _same(loops: tuple[For, For], before: Sequence[Expr], after: Sequence[Expr]) -> bool:
    """Whether two loops go over one dimension, and all that is written there is at their axes."""
    mine, theirs = loops
    ends = ((mine.start, theirs.start), (mine.stop, theirs.stop))
    return (
        all(linear(one) == linear(other) for one, other in ends)
        and all(index is mine.axis for index in before)
        and all(index is theirs.axis for index in after)
    )


def _inside(loops: Sequence[For], body: Block) -> Block:
    """``body`` in ``loops`` that one thread runs."""
    return around([replace(loop, parallel=False) for loop in loops], body)
