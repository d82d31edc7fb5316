"""Rows in as few passes as it takes.

The gradient of a layer norm adds up two sums over each row, then writes a row that needs both, and
the two sums down the columns read the same rows once more. A nest for each of these fetches every
row again; `joining` makes one of them. Here sums over the same loops are added up together, equal
ones once, and a loop waits for another only if it needs more of it than the element it is at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from eqsatad.backends.access import flat
from eqsatad.backends.cpu.code.walks import combined
from eqsatad.backends.cpu.rewrites.rows import (
    Part,
    around,
    bounds,
    contiguous,
    passable,
    rows_of,
)
from eqsatad.backends.cpu.rewrites.streams import large
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.fusion import fused
from eqsatad.backends.cpu.tiles.tile import added, chain, length
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    LoopProgram,
    Mark,
    Nest,
    Statement,
    Store,
    replaced,
    scheduled,
)
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Apply, Axis, Expr, Tensor, Var
from eqsatad.terms.ops import ADD, MUL

# Elements from which a row that is only stored is worth storing past the caches, and a row of a
# stencil is worth its own start and end: these are by vectors that are partly masked.
APART = 1024
STENCIL = 512
# Elements of the rows that one long row is cut into.
ROW = 4096
# Elements at most that are read and stored for one of such a row.
FEW = 8


def settled(program: LoopProgram, caches: Caches) -> LoopProgram:
    """``program`` with parts of rows in as few passes as it takes.

    Rows of a stencil, and those that are stored past the caches, are walked as well.
    """
    past = large(program, caches)
    return replace(program, nests=tuple(_settled(nest, past) for nest in program.nests))


def _settled(nest: Nest, past: frozenset[Tensor]) -> Nest:
    if scheduled(nest.body):
        return nest
    if len(nest.body) == 1 and (passes := _passes(nest.body[0])) is not None:
        return Nest(nest.stage, passes)
    return Nest(nest.stage, tuple(part for each in nest.body for part in _walked(each, past)))


def _passes(statement: Statement) -> Block | None:
    """``statement`` in as few passes over each row as it takes, if there are several loops."""
    loops, body = chain(statement)
    rows = rows_of(statement, len(loops)) if any(isinstance(each, For) for each in body) else None
    if rows is None or sum(bool(part.loops) for part in rows.parts) < 2:
        return None
    body = arranged(rows.parts)
    if not rows.stores:
        return around(loops, body)
    loops, body = fused(loops, body)
    return around(loops, vectors(body))


def _walked(statement: Statement, past: frozenset[Tensor]) -> Block:
    """``statement``, a store at each point, row by row where that is faster than tiles of rows.

    It is for rows that are stored past the caches, and for those of a stencil: a walk loads each
    vector of them once.
    """
    loops, body = fused(*chain(statement))
    loops, body, rest = _cut(loops[0]) if len(loops) == 1 else (loops, body, ())
    if len(loops) < 2:
        return (statement,)
    (whole,) = around(loops, body)
    rows = rows_of(whole, len(loops) - 1)
    if rows is None or not passable(rows):
        return (statement,)
    accesses = [flat(*access) for part in rows.parts for access in part.accesses]
    stencil = len(accesses) > 2 and len({form.terms for form in accesses}) == 1
    stored = past & {buffer for part in rows.parts for buffer in part.writes}
    least = STENCIL if stencil else APART if stored and len(accesses) <= FEW else inf
    if rows.parts[0].elements < least:
        return (statement,)
    return (*around(loops[:-1], vectors(around(loops[-1:], body))), *rest)


def _cut(loop: For) -> tuple[tuple[For, ...], Block, Block]:
    """``loop`` as rows of `ROW` elements: two loops, their body, and what is left over."""
    rows, left = divmod(length(loop) or 0, ROW)
    if not rows:
        return (loop,), loop.body, ()
    outer = Axis(f"{loop.axis.name}_rows", index(rows))
    inner = Axis(f"{loop.axis.name}_row", index(ROW))
    place = Apply(ADD, (Apply(MUL, (outer, index(ROW))), inner))
    body = replaced(loop.body, {loop.axis: normal(Apply(ADD, (loop.start, place)))})
    loops = tuple(
        replace(loop, axis=axis, start=index(0), stop=axis.extent) for axis in (outer, inner)
    )
    done = normal(Apply(ADD, (loop.start, index(rows * ROW))))
    return loops, body, (replace(loop, start=done),) if left else ()


def vectors(block: Block) -> Block:
    """``block`` with its innermost loops marked for vectors, where these read and store whole."""
    return tuple(_vectors(each) if isinstance(each, For) else each for each in block)


def _vectors(loop: For) -> For:
    if any(isinstance(each, For) for each in loop.body):
        return replace(loop, body=vectors(loop.body))
    stored = [each.buffer.dtype for each in loop.body if isinstance(each, Store | Accumulate)]
    made = [combined(each) for each in loop.body if isinstance(each, Assign)]
    fits = contiguous(Part((loop,), loop.body)) and "bool" not in stored and None not in made
    return replace(loop, mark=Mark.VECTOR) if fits else loop


def levels(parts: Sequence[Part]) -> list[int]:
    """How many passes are over when each part is done: the own one, and those that it waits for."""
    found: list[int] = []
    for part in parts:
        least = int(bool(part.loops))
        for other, level in zip(parts, found, strict=False):
            if other.conflicts(part):
                joins = not part.loops or (bool(other.loops) and other.along(part))
                least = max(least, level if joins else level + 1)
        found.append(_level(part, least, list(zip(parts, found, strict=False))))
    return found


def arranged(parts: Sequence[Part]) -> Block:
    """The statements of ``parts``: loops as early as they can be, those of one range as one."""
    places = levels(parts)
    result: list[Statement] = []
    same: dict[Expr, Expr] = {}
    for level in range(max(places, default=0) + 1):
        here = [part for part, found in zip(parts, places, strict=True) if found == level]
        for part in _jammed([part for part in here if part.loops]):
            one, equal = _once(part.changed(same), result)
            same.update(equal)
            result = [each for each in result if not _sets(each, equal)]
            result.append(one.statement())
        result.extend(part.changed(same).statement() for part in here if not part.loops)
    return tuple(result)


def _sets(statement: Statement, locals_: dict[Expr, Expr]) -> bool:
    return isinstance(statement, Assign) and statement.var in locals_


def _level(part: Part, least: int, placed: Sequence[tuple[Part, int]]) -> int:
    """``least``, or for what nothing waits for the place of the last store over its range."""
    if not part.loops or not isinstance(part.body[0], Accumulate):
        return least
    wanted = bounds(part.loops)
    beside = [level for other, level in placed if other.stores and bounds(other.loops) == wanted]
    return max((*beside, least))


def _jammed(parts: Sequence[Part]) -> Iterator[Part]:
    """``parts``, which may be one if they are over one range, those that are so as one."""
    left = list(parts)
    while left:
        first = left[0]
        same = [part for part in left if bounds(part.loops) == bounds(first.loops)]
        left = [part for part in left if part not in same]
        together = all(loop.parallel for part in same for loop in part.loops)
        loops = tuple(replace(loop, parallel=together) for loop in first.loops)
        body: list[Statement] = []
        for part in same:
            pairs = zip(first.loops, part.loops, strict=True)
            axes: dict[Expr, Expr] = {
                theirs.axis: mine.axis for mine, theirs in pairs if theirs.axis is not mine.axis
            }
            body.extend(part.changed(axes).body)
        yield Part(loops, tuple(body))


def _once(part: Part, before: Sequence[Statement]) -> tuple[Part, dict[Expr, Expr]]:
    """``part`` without sums that are equal to another one of it, and the locals to use instead."""
    starts = {each.var: each.value for each in before if isinstance(each, Assign)}
    found: dict[tuple[Expr, Expr], Var] = {}
    equal: dict[Expr, Expr] = {}
    body: list[Statement] = []
    for each in part.body:
        if isinstance(each, Assign) and (value := added(each)) is not None:
            start = starts.get(each.var)
            other = found.setdefault((start, value), each.var) if start is not None else each.var
            if other is not each.var:
                equal[each.var] = other
                continue
        body.append(each)
    return replace(part, body=tuple(body)), equal
