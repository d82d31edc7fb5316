"""Schedules: loop nests changed by hand, each change refused where it could change a result.

Each function takes the statements of a nest and gives statements that compute the same. A loop is
named by its axis; a change is made in every piece of a nest that has loops of the names given.
What is allowed follows from the nest alone: iterations of a ``parallel`` loop are independent, and
a sum, product or extremum may be taken in any order. Statements that were changed carry a `Mark`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsatad.errors import ScheduleError
from eqsatad.loops.changes import (
    Pieces,
    axes_of,
    chain,
    changed,
    known,
    loops_in,
    nested,
    refused,
)
from eqsatad.loops.iterations import Names, blocks, may_reach, unrolled
from eqsatad.loops.nest import Accumulate, Assign, Block, For, Mark, Statement, Store, statements
from eqsatad.terms.nodes import Apply, Const, Expr, Read, Tensor, Var
from eqsatad.terms.ops import ADD, MAX, MIN, MUL, Op
from eqsatad.terms.walk import postorder

COMMUTING = {ADD, MUL, MAX, MIN}
# Dtypes that are added up in memory as in a local.
WIDE = {"float32", "float64"}


def split(block: Block, name: str, factor: int, names: Names) -> Block:
    """Loops over ``name`` as loops over blocks of ``factor`` iterations, the rest apart."""
    known(block, name)
    _at_least_one("factor", factor)
    if taken := {names.outer, names.inner} & (set(axes_of(block)) - {name}):
        raise ScheduleError(
            f"there is a loop {min(taken)} already; give other names: "
            f"split({name!r}, {factor}, names=(..., ...))"
        )

    def change(loop: For) -> Pieces | None:
        if loop.axis.name != name:
            return None
        if loop.mark is Mark.VECTOR:
            raise refused("is vectorised; split it before", block, name)
        return ((each,) for each in blocks(loop, block, factor, names))

    if not any(may_reach(loop, factor) for loop in loops_in(block) if loop.axis.name == name):
        raise refused(f"has fewer than {factor} iterations", block, name)
    return changed(block, change)


def reorder(block: Block, names: Sequence[str]) -> Block:
    """The loops over ``names`` in that order, from the outermost to the innermost."""
    for name in names:
        known(block, name)
    if len(set(names)) != len(names):
        raise ScheduleError(f"reorder({', '.join(map(repr, names))}) names a loop twice")
    if not any(set(names) <= set(axes_of((piece,))) for piece in block):
        raise refused(f"and {', '.join(names[1:])} are in no piece together", block, names[0])

    def change(loop: For) -> Pieces | None:
        if loop.axis.name not in names or not set(names) <= set(axes_of((loop,))):
            return None
        return ((each,) for each in _permuted(loop, names))

    result = changed(block, change)
    for loop in loops_in(result):
        if loop.mark is Mark.VECTOR and not loop.parallel and not _only_adds(loop):
            raise refused("is a vectorised sum, which stays innermost", block, loop.axis.name)
    return result


def unroll(block: Block, name: str, count: int | None) -> Block:
    """``count`` iterations of the loops over ``name``, or all, written out side by side.

    Independent iterations run together: their inner loops become one, so that what they share
    is read once. Others follow each other.
    """
    known(block, name)
    if count is not None:
        _at_least_one("count", count)

    def change(loop: For) -> Pieces | None:
        if loop.axis.name != name:
            return None
        if loop.mark is Mark.VECTOR:
            raise refused("is vectorised; split it, and unroll the outer part", block, name)
        return unrolled(loop, block, count)

    return changed(block, change)


def vectorize(block: Block, name: str) -> Block:
    """The loops over ``name`` along the lanes of vectors."""
    known(block, name)

    def change(loop: For) -> Pieces | None:
        if loop.axis.name != name:
            return None
        if not loop.parallel and not _only_adds(loop):
            raise refused("depends on the iteration before, and is no plain sum", block, name)
        if any(inner.mark is Mark.VECTOR for inner in loops_in(loop.body)):
            raise refused("has a vectorised loop inside", block, name)
        return ((replace(loop, mark=Mark.VECTOR),),)

    result = changed(block, change)
    for loop in loops_in(result):
        if loop.mark is Mark.VECTOR and name in axes_of(loop.body):
            raise refused(f"is inside {loop.axis.name}, which is vectorised", block, name)
    return result


def parallel(block: Block, name: str) -> Block:
    """The loops over ``name``, together with those around them, divided among threads."""
    known(block, name)
    result: list[Statement] = []
    for piece in block:
        loops, _ = chain(piece)
        names = [loop.axis.name for loop in loops]
        if name not in axes_of((piece,)):
            result.append(piece)
            continue
        if name not in names:
            raise refused("is not alone in the loops around it", (piece,), name)
        around = loops[: names.index(name) + 1]
        for loop in around:
            if not loop.parallel:
                raise refused("has iterations that depend on each other", (piece,), loop.axis.name)
        if around[-1].mark is Mark.VECTOR:
            raise refused("is vectorised; split it, and share the outer part", (piece,), name)
        ways = [
            replace(loop, mark=Mark.SHARED if loop is around[-1] else _unshared(loop))
            for loop in loops
        ]
        result.append(nested(ways, loops[-1].body))
    return tuple(result)


def _at_least_one(what: str, number: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ScheduleError(f"the {what} is {number!r}; give an integer of at least 1")


def _unshared(loop: For) -> Mark:
    return Mark.PLAIN if loop.mark in (None, Mark.SHARED) else loop.mark


def _permuted(loop: For, names: Sequence[str]) -> Block:
    """The nest that ``loop`` is with the loops over ``names`` in order."""
    loops, body = chain(loop)
    before: Block = ()
    if not set(names) <= {each.axis.name for each in loops}:
        if (found := _added_up(loops, body)) is None:
            inside = next(name for name in names if name not in {x.axis.name for x in loops})
            raise refused("is not alone in the loop around it, and no plain sum", (loop,), inside)
        first, (loops, body) = found
        before = (first,)
    places = [place for place, each in enumerate(loops) if each.axis.name in names]
    band = loops[places[0] : places[-1] + 1]
    if not all(each.parallel for each in band) and not _commutes(loops[-1].body):
        slow = next(each for each in band if not each.parallel)
        raise refused("has iterations that must stay in order", (loop,), slow.axis.name)
    by_name = {each.axis.name: each for each in loops}
    order = list(loops)
    for place, name in zip(places, names, strict=True):
        order[place] = by_name[name]
    for place, each in enumerate(order):
        late = {other.axis for other in order[place:]}
        if needed := sorted(a.name for a in late & (each.start.free | each.stop.free)):
            raise refused(f"has bounds that depend on {', '.join(needed)}", (loop,), each.axis.name)
    return (*before, nested(order, body))


def _added_up(
    loops: Sequence[For], body: Block
) -> tuple[Statement, tuple[list[For], Block]] | None:
    """A sum in a local as zeros in memory, and a nest that adds to them; None if it is none."""
    match body:
        case (Assign(total, Const() as zero), For() as first, Store(buffer, indices, value)):
            pass
        case _:
            return None
    inner, leaf = chain(first)
    match leaf:
        case (Assign(var, Apply(op, (left, right))),) if op is ADD and var is left is total:
            pass
        case _:
            return None
    nodes = postorder(right)
    if value is not total or total in nodes or buffer.dtype not in WIDE:
        return None
    if any(isinstance(node, Read) and node.tensor is buffer for node in nodes):
        return None
    fill = nested(loops, (Store(buffer, indices, zero),))
    return fill, ([*loops, *inner], (Accumulate(buffer, indices, right),))


def _commutes(body: Block) -> bool:
    """Whether ``body`` only adds up, multiplies or compares, so that its order does not matter."""
    operations: dict[Var, Op] = {}
    used: list[Expr] = []
    written: set[Tensor] = set()
    for each in statements(body):
        match each:
            case Assign(var, Apply(op, (left, right))) if op in COMMUTING and left is var:
                if operations.setdefault(var, op) is not op:
                    return False
                used.append(right)
            case Accumulate(buffer, indices, value):
                written.add(buffer)
                used.extend((*indices, value))
            case For(_, start, stop):
                used.extend((start, stop))
            case _:
                return False
    return not any(
        node in operations or (isinstance(node, Read) and node.tensor in written)
        for node in postorder(*used)
    )


def _only_adds(loop: For) -> bool:
    """Whether ``loop`` adds to float locals and does nothing else."""
    return _commutes(loop.body) and all(
        isinstance(each, Assign)
        and isinstance(each.value, Apply)
        and each.value.op is ADD
        and each.var.dtype in WIDE
        for each in loop.body
    )
