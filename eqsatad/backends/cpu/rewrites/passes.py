"""Nests over the same rows as one nest, in which each row is walked in as few passes as it takes.

The gradient of a layer norm adds up two sums over each row, then writes a row that needs both, and
the two sums down the columns read the same rows once more. A nest for each of these fetches every
row again. Here nests over the same rows that read the same elements become one: sums over the same
loops are added up together, equal ones once, and what one nest keeps for the next is a local.
Nests of sums alone remain for register tiles; one that stores along the row is run row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TypeAlias

from eqsatad.backends.access import flat, harmless
from eqsatad.backends.blocks import touched
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.code.walks import combined
from eqsatad.backends.cpu.rewrites.streams import large
from eqsatad.backends.cpu.tiles.fusion import fused
from eqsatad.backends.cpu.tiles.tile import added, chain, length, stride
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    If,
    LoopProgram,
    Mark,
    Nest,
    Statement,
    Store,
    expressions_of,
    replaced,
    scheduled,
    statements,
)
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Read, Select, Tensor, Var
from eqsatad.terms.ops import ADD
from eqsatad.terms.walk import postorder, substitute

# Elements from which a row is worth its own start and end of a loop.
LONG = 64
# Elements from which a row that is only stored is worth storing past the caches: its start and end
# are not.
APART = 1024
# Elements at most that are read and stored for one of such a row.
FEW = 8
# Bytes of a row up to which it is still in the second cache after the first pass.
NEAR = 1 << 18


def around(loops: Sequence[For], block: Block) -> Block:
    """``block`` inside of ``loops``."""
    for loop in reversed(loops):
        block = (replace(loop, body=block),)
    return block


def bounds(loops: Sequence[For]) -> list[tuple[Expr, Expr]]:
    """The ranges of ``loops``."""
    return [(loop.start, loop.stop) for loop in loops]


Access: TypeAlias = tuple[Tensor, tuple[Expr, ...]]


@dataclass(frozen=True)
class Part:
    """A statement for a row: without loops, or loops right inside each other around ``body``."""

    loops: tuple[For, ...]
    body: Block

    @property
    def stores(self) -> bool:
        """Whether elements all along a row are stored."""
        return bool(self.loops) and any(isinstance(each, Store) for each in self.body)

    @property
    def elements(self) -> int:
        return prod(length(loop) or 0 for loop in self.loops)

    @cached_property
    def writes(self) -> frozenset[Tensor | Var]:
        return frozenset(
            each.var if isinstance(each, Assign) else each.buffer
            for each in self.body
            if isinstance(each, Assign | Store | Accumulate)
        )

    @property
    def locals(self) -> tuple[Var, ...]:
        """The locals that are set, in order."""
        return tuple(dict.fromkeys(each.var for each in self.body if isinstance(each, Assign)))

    @cached_property
    def nodes(self) -> tuple[Expr, ...]:
        """All that is worked out."""
        return tuple(postorder(*(expr for each in self.body for expr in expressions_of(each))))

    @cached_property
    def reads(self) -> frozenset[Tensor | Var]:
        tensors = {node.tensor for node in self.nodes if isinstance(node, Read)}
        return frozenset(tensors | {node for node in self.nodes if isinstance(node, Var)})

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """Every element that is read or written, once."""
        stored = (each for each in self.body if isinstance(each, Store | Accumulate))
        written = [(each.buffer, each.indices) for each in stored]
        read = [(node.tensor, node.indices) for node in self.nodes if isinstance(node, Read)]
        return tuple(dict.fromkeys((*written, *read)))

    def conflicts(self, other: Part) -> bool:
        """Whether the order of both matters."""
        return not (
            self.writes.isdisjoint(other.reads)
            and self.writes.isdisjoint(other.writes)
            and self.reads.isdisjoint(other.writes)
        )

    def along(self, other: Part) -> bool:
        """Whether both may be one part if they conflict: what both touch, they touch in one place.

        Each point of the loops has elements of its own.
        """
        shared = (self.writes & (other.reads | other.writes)) | (other.writes & self.reads)
        if bounds(self.loops) != bounds(other.loops) or any(isinstance(e, Var) for e in shared):
            return False
        axes: dict[Expr, Expr] = {
            theirs.axis: mine.axis for mine, theirs in zip(self.loops, other.loops, strict=True)
        }
        places: dict[Tensor | Var, set[tuple[Expr, ...]]] = {}
        for part in (self, other.changed(axes)):
            for tensor, indices in part.accesses:
                places.setdefault(tensor, set()).add(indices)
        own = {loop.axis for loop in self.loops}
        return all(len(places[e]) == 1 and own <= set(*places[e]) for e in shared)

    def changed(self, mapping: dict[Expr, Expr]) -> Part:
        if mapping.keys().isdisjoint((*self.nodes, *self.writes)):
            return self
        return replace(self, body=replaced(self.body, mapping))

    def statement(self) -> Statement:
        (result,) = around(self.loops, self.body)
        return result


@dataclass(frozen=True)
class Rows:
    """Parallel ``loops``, and the parts of what is done for each row."""

    loops: tuple[For, ...]
    parts: tuple[Part, ...]

    @property
    def stores(self) -> bool:
        """Whether elements all along a row are stored."""
        return any(part.stores for part in self.parts)

    @property
    def size(self) -> int:
        """Bytes of all that is read and stored in one row alone."""
        elements = max(part.elements for part in self.parts if part.loops)
        tensors = {tensor for tensor, _ in whole(self)}
        return elements * sum(BYTES[STORED[tensor.dtype]] for tensor in tensors)

    def nest(self, stage: Tensor) -> Nest:
        statements = tuple(part.statement() for part in self.parts)
        return Nest(stage, around(self.loops, statements))


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


def settled(program: LoopProgram) -> LoopProgram:
    """``program`` with parts of rows in as few passes as it takes.

    Rows that are stored past the caches, and nothing else, are walked as well.
    """
    past = large(program)
    return replace(program, nests=tuple(_settled(nest, past) for nest in program.nests))


def _settled(nest: Nest, past: frozenset[Tensor]) -> Nest:
    if scheduled(nest.body):
        return nest
    if len(nest.body) == 1 and (passes := _passes(nest.body[0])) is not None:
        return Nest(nest.stage, passes)
    return Nest(nest.stage, tuple(_streamed(each, past) for each in nest.body))


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


def _streamed(statement: Statement, past: frozenset[Tensor]) -> Statement:
    """``statement``, a store at each point, by rows if these are stored past the caches."""
    loops, body = fused(*chain(statement))
    if len(loops) < 2 or (length(loops[-1]) or 0) < APART:
        return statement
    (whole,) = around(loops, body)
    rows = rows_of(whole, len(loops) - 1)
    if rows is None or not passable(rows):
        return statement
    # Of what is read in many places, tiles of several rows read less; but where all moves along
    # alike, vectors that are read begin with lines as those do that are stored.
    accesses = [access for part in rows.parts for access in part.accesses]
    if len(accesses) > FEW and len({flat(*access).terms for access in accesses}) > 1:
        return statement
    if not past & {buffer for part in rows.parts for buffer in part.writes}:
        return statement
    (result,) = around(loops[:-1], vectors(around(loops[-1:], body)))
    return result


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


def rows_of(statement: Statement, count: int) -> Rows | None:
    """``statement`` as ``count`` loops over rows around parts, if it is such a nest."""
    loops, body = chain(statement)
    if len(loops) < count or any(length(loop) is None for loop in loops):
        return None
    parts = [_part(each) for each in around(loops[count:], body)]
    return Rows(loops[:count], tuple(filter(None, parts))) if all(parts) else None


def _part(statement: Statement) -> Part | None:
    loops: list[For] = []
    body: Block = (statement,)
    while len(body) == 1 and isinstance(loop := body[0], For):
        if length(loop) is None or loop.start.free:
            return None
        loops.append(loop)
        body = loop.body
    body = _unconditional(body)
    kind = Assign if loops and not loops[0].parallel else Store
    if not loops and isinstance(statement, Assign | Store):
        return Part((), body)
    same = all(loop.parallel == loops[0].parallel for loop in loops)
    return Part(tuple(loops), body) if same and _only(body, kind) else None


def _unconditional(body: Block) -> Block:
    """``body`` with sums under a condition as sums of what is 0 without it."""
    match body:
        case (If(cond, then, ()),) if harmless(cond):
            values = [added(each) if isinstance(each, Assign) else None for each in then]
            if all(value is not None and harmless(value) for value in values):
                return tuple(_chosen(cond, each) for each in then if isinstance(each, Assign))
    return body


def _chosen(cond: Expr, statement: Assign) -> Assign:
    var, value = statement.var, added(statement)
    assert value is not None, "only sums are asked for"
    more = Select(cond, value, Const(0.0, var.dtype))
    return Assign(var, Apply(ADD, (var, more)))


def _only(body: Block, kind: type[Assign] | type[Store]) -> bool:
    return all(isinstance(each, kind) for each in body)


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
        if isinstance(each, Store) and isinstance(each.value, Var)
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


def whole(rows: Rows) -> set[Access]:
    """The elements that differ at each point of the loops of some part, axes by their place."""
    found = set()
    for part in rows.parts:
        loops = (*rows.loops, *part.loops)
        places: dict[Expr, Expr] = {
            loop.axis: Axis(f"place{number}", loop.axis.extent) for number, loop in enumerate(loops)
        }
        for tensor, indices in part.accesses if part.loops else ():
            if {loop.axis for loop in loops} <= {axis for each in indices for axis in each.free}:
                found.add((tensor, tuple(substitute(each, places) for each in indices)))
    return found


def _worth(rows: Rows) -> bool:
    """Whether ``rows`` that read the same are better walked than left to nests of their own."""
    # Without stores register tiles take several rows at once, which is for one pass.
    return passable(rows) if rows.stores else max(levels(rows.parts)) == 1


def passable(rows: Rows) -> bool:
    """Whether rows are fit to be walked in passes: contiguous, and neither short nor too long."""
    walks = [part for part in rows.parts if part.loops]
    if not all(contiguous(part) for part in walks):
        return False
    least = min(part.elements for part in walks)
    return least >= LONG and rows.size <= NEAR


def contiguous(part: Part) -> bool:
    """Whether vectors along the innermost loop of ``part`` are read and stored whole."""
    lane = part.loops[-1].axis
    return all(
        stride(tensor, indices, lane) in (0, 1) for tensor, indices in part.accesses
    ) and all(
        stride(each.buffer, each.indices, lane) == 1
        for each in part.body
        if isinstance(each, Store | Accumulate)
    )


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
