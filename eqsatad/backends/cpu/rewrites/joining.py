"""Nests over the same rows as one nest.

Nests over the same rows that read the same elements become one: what one nest keeps for the next is
a local. Nests of sums alone remain for register tiles; one that stores along the row is run row by
row, see `passes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from eqsatad.backends.blocks import touched
from eqsatad.backends.cpu.rewrites.passes import levels
from eqsatad.backends.cpu.rewrites.rows import Part, Rows, bounds, passable, rows_of, whole
from eqsatad.backends.cpu.tiles.tile import chain
from eqsatad.loops.nest import (
    Assign,
    Block,
    For,
    LoopProgram,
    Nest,
    Statement,
    Store,
    expressions_of,
    scheduled,
    statements,
)
from eqsatad.terms.nodes import Expr, Read, Tensor, Var
from eqsatad.terms.walk import postorder


def rowwise(program: LoopProgram) -> LoopProgram:
    """``program`` with nests over the same rows joined where they read the same."""
    nests: list[Nest] = []
    for nest in program.nests:
        _place(nests, nest)
    return without_unread(replace(program, nests=tuple(nests)))


def _place(nests: list[Nest], nest: Nest) -> None:
    """Puts ``nest`` at the end of ``nests``, or joins it with those that it may be joined with."""
    end = len(nests)
    for place in reversed(range(len(nests))):
        if (both := joined(nests[place], nest)) is not None:
            del nests[place]
            nest, end = both, place
        elif in_order(nests[place], nest):
            break
    nests.insert(end, nest)


def in_order(first: Nest, second: Nest) -> bool:
    """Whether ``second`` has to come after ``first``."""
    one, two = touched(first.body), touched(second.body)
    return any(one[tensor] or two[tensor] for tensor in one.keys() & two.keys())


def joined(first: Nest, second: Nest) -> Nest | None:
    """Both nests as one, if that saves reading rows again."""
    if len(first.body) != 1 or len(second.body) != 1 or scheduled((*first.body, *second.body)):
        return None
    (loops, _), (others, _) = chain(first.body[0]), chain(second.body[0])
    known = [len(around) for around, nest in ((loops, first), (others, second)) if _sums(nest)]
    if not known or max(known) != min(known):
        return None
    one, two = (rows_of(nest.body[0], known[0]) for nest in (first, second))
    if one is None or two is None or bounds(one.loops) != bounds(two.loops):
        return None
    if whole(one).isdisjoint(whole(two)):
        return None
    both = _together(one, two)
    fits = apart(both, touched(first.body), touched(second.body)) and _worth(both)
    return both.nest(second.stage) if fits else None


def _sums(nest: Nest) -> bool:
    """Whether the rows of ``nest`` are told by what is inside its parallel loops."""
    return any(isinstance(each, For) for each in chain(nest.body[0])[1])


def _together(one: Rows, two: Rows) -> Rows:
    """The parts of both for each row; values of a row that the second reads are locals."""
    mapping: dict[Expr, Expr] = {
        theirs.axis: mine.axis for mine, theirs in zip(one.loops, two.loops, strict=True)
    }
    mine = {each for part in one.parts for each in part.locals}
    taken = mine | {each for part in two.parts for each in part.locals}
    for var in dict.fromkeys(each for part in two.parts for each in part.locals):
        if var in mine:
            mapping[var] = _fresh(var, taken)
    parts: list[Part] = []
    for part in (*one.parts, *(part.changed(mapping) for part in two.parts)):
        parts.extend(kept(part, parts))
    return Rows(one.loops, tuple(parts))


def _fresh(var: Var, taken: set[Var]) -> Var:
    """A local like ``var`` that is not among ``taken``, to which it is added."""
    number = 1
    while (found := Var(f"{var.name}_{number}", var.dtype)) in taken:
        number += 1
    taken.add(found)
    return found


def kept(part: Part, before: Sequence[Part]) -> Iterator[Part]:
    """``part`` with locals in place of elements that parts ``before`` it have stored."""
    stored: dict[Expr, Expr] = {
        Read(each.buffer, each.indices): each.value
        for other in before
        if not other.loops
        for each in other.body
        if isinstance(each, Store) and isinstance(each.value, Var) and each.buffer.dtype in EXACT
    }
    part = part.changed(stored)
    match part:
        case Part((), (Store(buffer, _, value) as store,)) if not isinstance(value, Var):
            local = Var(f"{buffer.name}_row", value.dtype)
            if buffer.dtype in EXACT and not any(local in other.writes for other in before):
                yield Part((), (Assign(local, value),))
                part = Part((), (replace(store, value=local),))
    yield part


# What is stored is what was worked out, without another rounding.
EXACT = ("float32", "float64")


def apart(both: Rows, one: dict[Tensor, bool], two: dict[Tensor, bool]) -> bool:
    """Whether what either nest writes and the other touches belongs to the row in both."""
    shared = {tensor for tensor in one.keys() & two.keys() if one[tensor] or two[tensor]}
    axes = tuple(loop.axis for loop in both.loops)
    accesses = (access for part in both.parts for access in part.accesses)
    return all(tensor not in shared or indices[: len(axes)] == axes for tensor, indices in accesses)


def _worth(rows: Rows) -> bool:
    """Whether ``rows`` that read the same are better walked than left to nests of their own."""
    # Without stores register tiles take several rows at once, which is for one pass.
    return passable(rows) if rows.stores else max(levels(rows.parts)) == 1


def without_unread(program: LoopProgram) -> LoopProgram:
    """``program`` without temporaries that are stored and never read."""
    read = {
        node.tensor
        for nest in program.nests
        for each in statements(nest.body)
        for node in postorder(*expressions_of(each))
        if isinstance(node, Read)
    }
    unread = [tensor for tensor in program.temporaries if tensor not in read]
    if not unread:
        return program
    nests = [Nest(nest.stage, _less(nest.body, unread)) for nest in program.nests]
    used = {tensor for nest in nests for tensor in touched(nest.body)}
    return replace(
        program,
        nests=tuple(nest for nest in nests if nest.body),
        temporaries=tuple(tensor for tensor in program.temporaries if tensor in used),
    )


def _less(block: Block, unread: Sequence[Tensor]) -> Block:
    """``block`` without stores to ``unread`` tensors, nor loops that are empty then."""
    result: list[Statement] = []
    for each in block:
        if isinstance(each, Store) and each.buffer in unread:
            continue
        if isinstance(each, For):
            each = replace(each, body=_less(each.body, unread))
            if not each.body:
                continue
        result.append(each)
    return tuple(result)
