"""Register tiles: which loops of a nest go along vector lanes, and which are unrolled together.

A nest of parallel loops around reductions is run a tile at a time: `counts` neighbours along some
axes, and a vector along the `lane` axis, each with accumulators of their own, so that a value
that is loaded serves several of them. The lane axis is one of the parallel loops, or else the
innermost reduction, whose partial sums are added up at the end. The choice is the cheapest by
a count of loads and operations per useful result; nothing is searched by running.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from math import ceil, prod

from eqsatad.backends.access import flat
from eqsatad.backends.cpu.expressions import PICKED
from eqsatad.backends.cpu.fusion import fused
from eqsatad.backends.cpu.scalars import BYTES, COMPUTED
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    If,
    Statement,
    Store,
    expressions_of,
    has_loop,
    statements,
    stores_in_loop,
)
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import FLOATS, Apply, Axis, Expr, Read, Tensor, Var
from eqsatad.terms.ops import ADD, SUB
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import postorder

# Cycles: a vector instruction, the latency of an addition, adding up the lanes of a vector.
ISSUE = 0.5
LATENCY = 4.0
ADD_UP = 12.0
# What a load costs on top of its issue, since it may miss the nearest cache, and the part of it
# for a load right behind another one.
MISS = 0.1
AHEAD = 0.25
# The same for an element that nothing else in the nest reads, which comes from far away.
COLD = 1.0
# A lane of a vector that is not contiguous, compared with a whole contiguous vector.
APART = 2
# The same where no neighbour in the tile uses the same cache line, and elements of a line.
ALONE = 6
LINE = 16
# What an extent is taken for when it is a symbolic size.
TYPICAL = 64
# One register out of so many is left to the compiler.
SPARE = 8
LANE_COUNTS = (1, 2, 3, 4, 6, 8)
ROW_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)


@dataclass(frozen=True)
class Tile:
    """Parallel ``loops`` around ``body``, and how they are run.

    ``lanes`` is 0 for scalars. ``inner`` says that the lane axis is a reduction of ``body``.
    ``turned`` is the axis along which a copy writes what it read along the lanes; see `turns`.
    """

    loops: tuple[For, ...]
    body: Block
    lane: Axis | None = None
    lanes: int = 0
    inner: bool = False
    counts: Mapping[Axis, int] = field(default_factory=dict)
    turned: Axis | None = None

    def step(self, axis: Axis) -> int:
        """How many values of ``axis`` a tile takes."""
        wide = self.lanes if axis is self.lane and self.lanes else 1
        return self.counts.get(axis, 1) * wide

    @property
    def order(self) -> tuple[For, ...]:
        """The loops over tiles, outermost first: what neighbours share is close together."""
        if self.turned is None and not has_loop(self.body):
            return self.loops
        rows = [
            loop for loop in self.loops if loop.axis in self.counts and loop.axis is not self.lane
        ]
        lane = [loop for loop in self.loops if loop.axis is self.lane]
        rest = [loop for loop in self.loops if loop not in rows and loop not in lane]
        return tuple((*rows, *rest) if self.inner else (*rest, *lane, *rows))


@dataclass(frozen=True)
class Leaf:
    """An innermost loop of a body: what it reads, and how often it runs for one result."""

    reads: tuple[Read, ...]
    operations: int
    trips: float
    loop: For


def plan(statement: Statement, vector: int, registers: int, exact: bool) -> Tile | None:
    """The best tile for ``statement``; None if it is no nest around reductions."""
    loops, body = fused(*chain(statement))
    leaves = tuple(_leaves(body, 1.0))
    stores = list(_stores(body, 1.0))
    if (
        not loops
        or not leaves
        or not stores
        or any(store.buffer.dtype == "bool" for store, _ in stores)
        or not independent(loops, body, [s for s, _ in stores])
    ):
        return None
    if len(leaves) > 1 and stores_in_loop(body) and not exact:
        # Passes over a row: LLVM makes vectors of each, and one row at a time stays close by.
        return None
    lanes = vector // max(BYTES[COMPUTED[store.buffer.dtype]] for store, _ in stores)
    best: tuple[float, Tile] | None = None
    for tile in _candidates(loops, body, leaves, lanes, registers, exact):
        cost = _cycles(tile, leaves, stores)
        if best is None or cost < best[0]:
            best = cost, tile
    return None if best is None else best[1]


def chain(statement: Statement) -> tuple[tuple[For, ...], Block]:
    """The parallel loops that ``statement`` is, and what is inside them."""
    loops: list[For] = []
    body: Block = (statement,)
    while len(body) == 1 and isinstance(loop := body[0], For) and loop.parallel:
        if loop.start.free or loop.stop.free:
            break
        loops.append(loop)
        body = loop.body
    return tuple(loops), body


def length(loop: For) -> int | None:
    """How often ``loop`` runs, if it is known."""
    form = linear(Apply(SUB, (loop.stop, loop.start)))
    return None if form.terms else max(0, form.const)


def typical(loop: For) -> float:
    """How often ``loop`` runs, more or less."""
    low, high = interval(Apply(SUB, (loop.stop, loop.start)))
    if high is None:
        return TYPICAL
    return max(1.0, (max(0, low or 0) + high) / 2)


def _leaves(block: Block, trips: float) -> Iterator[Leaf]:
    for statement in block:
        if isinstance(statement, If):
            yield from _leaves((*statement.then, *statement.other), trips)
        if not isinstance(statement, For):
            continue
        here = trips * typical(statement)
        inner = list(_leaves(statement.body, here))
        if inner:
            yield from inner
        else:
            yield _leaf(statement, here)


def _stores(block: Block, trips: float) -> Iterator[tuple[Store, float]]:
    """Every store, and how often it is done for one point."""
    for statement in block:
        match statement:
            case Store():
                yield statement, trips
            case If(_, then, other):
                yield from _stores((*then, *other), trips)
            case For(body=body):
                yield from _stores(body, trips * typical(statement))


def _leaf(loop: For, trips: float) -> Leaf:
    roots = [expr for each in statements(loop.body) for expr in expressions_of(each)]
    nodes = postorder(*roots)
    reads = tuple(node for node in nodes if isinstance(node, Read))
    operations = sum(isinstance(node, Apply) and node.dtype in FLOATS for node in nodes)
    return Leaf(reads, max(1, operations - 1), trips, loop)


def independent(loops: Sequence[For], body: Block, stores: Sequence[Store]) -> bool:
    """Whether tiles of ``loops`` may be run in any order, and a point twice."""
    if any(isinstance(each, Accumulate) for each in statements(body)):
        return False
    written = {store.buffer for store in stores}
    roots = [expr for each in statements(body) for expr in expressions_of(each)]
    if any(isinstance(node, Read) and node.tensor in written for node in postorder(*roots)):
        return False
    inside = {each.var for each in statements(body) if isinstance(each, Assign)}
    used = {node for node in postorder(*roots) if isinstance(node, Var)}
    return used <= inside and all(_injective(loops, store) for store in stores)


def _injective(loops: Sequence[For], store: Store) -> bool:
    """Whether different points of ``loops`` certainly store to different elements."""
    left = {loop.axis for loop in loops}
    for index in store.indices:
        terms = [(abs(coef), atom) for coef, atom in linear(index).terms]
        if any(atom.free & left and not isinstance(atom, Axis) for _, atom in terms):
            continue
        reach = 0
        own = [term for term in terms if term[1] in left]
        if len(own) < len(terms) and any(atom.free for _, atom in terms if atom not in left):
            continue
        for coef, atom in sorted(own, key=lambda term: term[0]):
            high = interval(atom)[1]
            if coef <= reach or (high is None and len(own) > 1):
                break
            reach += coef * (high or 0)
        else:
            left -= {atom for _, atom in own}
    return not left


def _candidates(
    loops: Sequence[For],
    body: Block,
    leaves: Sequence[Leaf],
    lanes: int,
    registers: int,
    exact: bool,
) -> Iterator[Tile]:
    """Every tile that could be used."""
    uneven = _uneven(body)
    rows = [loop for loop in loops if loop.axis not in uneven and length(loop) is not None]
    accumulators = max(1, sum(_accumulated(leaf.loop) for leaf in leaves[:1]))
    for loop in loops:
        for count in LANE_COUNTS:
            extent = length(loop)
            if count > 1 and (extent is None or extent < count * lanes):
                continue
            others = [row for row in rows if row is not loop]
            for counts in _row_counts(others, 1):
                if _fits(count, counts, accumulators, registers):
                    yield Tile(tuple(loops), body, loop.axis, lanes, False,
                               {loop.axis: count, **counts})  # fmt: skip
    if _branches_on_locals(body):
        return
    inner = {leaf.loop.axis for leaf in leaves}
    summed = not exact and len(inner) == 1 and all(_sums(leaf.loop, body) for leaf in leaves)
    for counts in _row_counts(rows, 2):
        if not _fits(1, counts, accumulators, registers):
            continue
        yield Tile(tuple(loops), body, None, 0, False, counts)
        if summed:
            yield Tile(tuple(loops), body, leaves[0].loop.axis, lanes, True, counts)


def _row_counts(rows: Sequence[For], most: int) -> Iterator[dict[Axis, int]]:
    """Counts for up to ``most`` of ``rows``."""
    yield {}
    for number in range(1, most + 1):
        for chosen in combinations(rows, number):
            yield from _products(chosen)


def _products(rows: Sequence[For]) -> Iterator[dict[Axis, int]]:
    if not rows:
        yield {}
        return
    first, *rest = rows
    extent = length(first) or 0
    for count in ROW_COUNTS:
        if 1 < count <= extent:
            for counts in _products(rest):
                yield {first.axis: count, **counts}


def _fits(count: int, counts: Mapping[Axis, int], accumulators: int, registers: int) -> bool:
    """Whether accumulators, the vectors of one row and one broadcast value fit the registers.

    Some registers stay free: the compiler loads ahead and would otherwise spill accumulators.
    """
    smallest = min(counts.values(), default=1) if len(counts) > 1 else count
    usable = registers - registers // SPARE
    return accumulators * count * prod(counts.values()) + smallest + 1 <= usable


def _uneven(body: Block) -> frozenset[Axis]:
    """The axes on which bounds or conditions inside ``body`` depend."""
    found: set[Axis] = set()
    for statement in statements(body):
        if isinstance(statement, For | If):
            for expr in expressions_of(statement):
                found |= expr.free
    return frozenset(found)


def _branches_on_locals(body: Block) -> bool:
    """Whether scalar copies of a tile might go different ways."""
    return any(
        isinstance(node, Var)
        for each in statements(body)
        if isinstance(each, If)
        for node in postorder(each.cond)
    )


def _accumulated(loop: For) -> int:
    return len({each.var for each in statements(loop.body) if isinstance(each, Assign)})


def _sums(loop: For, body: Block) -> bool:
    """Whether ``loop`` only adds to locals that nothing else touches while it runs."""
    variables = set()
    for statement in loop.body:
        if not isinstance(statement, Assign) or added(statement) is None:
            return False
        variables.add(statement.var)
    whole = next(each for each in body if loop in tuple(statements((each,))))
    for statement in statements((whole,)):
        if statement in loop.body:
            continue
        if any(node in variables for node in postorder(*expressions_of(statement))):
            return False
        if isinstance(statement, Assign) and statement.var in variables:
            return False
        if isinstance(statement, If):
            return False
    return True


def added(statement: Assign) -> Expr | None:
    """What ``statement`` adds to its float local, if that is all it does."""
    match statement:
        case Assign(var, Apply(op, (left, right))) if op is ADD and left is var:
            if var.dtype in FLOATS and var not in postorder(right):
                return right
    return None


def _cycles(tile: Tile, leaves: Sequence[Leaf], stores: Sequence[tuple[Store, float]]) -> float:
    """Cycles per result, counting what tiles at the ends compute in vain."""
    copies = prod(tile.counts.values())
    total = 0.0
    for leaf in leaves:
        loads = sum(_load(tile, read) for read in leaf.reads)
        misses = MISS * loads + sum(_missed(tile, leaf, read) for read in leaf.reads)
        work = copies * leaf.operations
        trips = leaf.trips
        if tile.inner:
            once = typical(leaf.loop)
            trips = leaf.trips / once * ceil(once / tile.lanes)
            total += copies * ADD_UP
        total += trips * (max(LATENCY, ISSUE * max(work, loads)) + misses)
    together = {id(store) for pair in pairs([s for s, _ in stores], tile.lane) for store in pair}
    for store, trips in stores:
        total += trips * copies * (1 if id(store) in together else _stored(tile, store))
    results = float(copies)
    for loop in tile.loops:
        step = tile.step(loop.axis)
        known = length(loop)
        extent = TYPICAL if known is None else max(1, known)
        results *= extent / (ceil(extent / step) * step)
    return total / (results * (max(1, tile.lanes) if not tile.inner else 1))


def _stored(tile: Tile, store: Store) -> float:
    """The cost of one store of a vector."""
    if tile.inner or not tile.lanes or stride(store.buffer, store.indices, tile.lane) == 1:
        return 1
    rows = (stride(store.buffer, store.indices, axis) for axis in tile.counts)
    near = any(row is not None and 0 < abs(row) < LINE for row in rows)
    return tile.lanes * (APART if near else ALONE)


def pairs(stores: Sequence[Store], lane: Axis | None) -> list[tuple[Store, Store]]:
    """Stores of every other element along ``lane`` whose elements lie between each other."""
    found: list[tuple[Store, Store]] = []
    left = [s for s in stores if lane is not None and stride(s.buffer, s.indices, lane) == 2]
    while left:
        first, *left = left
        place = flat(first.buffer, first.indices)
        for other in left:
            apart = flat(other.buffer, other.indices) - place
            if other.buffer is first.buffer and not apart.terms and abs(apart.const) == 1:
                left.remove(other)
                found.append((first, other) if apart.const == 1 else (other, first))
                break
    return found


def _load(tile: Tile, read: Read) -> float:
    """The cost of a read in all copies of a tile."""
    copies = _copies(tile, read.free)
    if not tile.lanes:
        return copies
    along = stride(read.tensor, read.indices, tile.lane)
    if along in (0, 1):
        return copies
    # Neighbours at small strides are picked out of whole vectors.
    few = along is not None and 1 < along <= PICKED
    return copies * (2 * along - 1 if few and along is not None else APART * tile.lanes)


def _copies(tile: Tile, free: frozenset[Axis]) -> int:
    """How many different elements a tile touches where the axes ``free`` tell them apart."""
    return prod(count for axis, count in tile.counts.items() if axis in free)


def _missed(tile: Tile, leaf: Leaf, read: Read) -> float:
    """What a read in all copies of a tile waits for places of memory that it walks through alone.

    A vector behind another one along the lanes comes from a line that is fetched ahead anyway.
    """
    if not {loop.axis for loop in (*tile.loops, leaf.loop)} <= read.free:
        return 0.0
    total = COLD
    for axis, count in tile.counts.items():
        if axis in read.free:
            total *= 1 + AHEAD * (count - 1) if axis is tile.lane else count
    return total


@lru_cache(maxsize=65536)
def stride(tensor: Tensor, indices: tuple[Expr, ...], axis: Axis | None) -> int | None:
    """How far apart neighbours along ``axis`` are; None if it varies."""
    if axis is None:
        return 0
    form = flat(tensor, indices)
    if any(axis in atom.free and atom is not axis for _, atom in form.terms):
        return None
    return form.coefficient(axis)
