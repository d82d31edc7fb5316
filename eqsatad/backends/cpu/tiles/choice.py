"""The tiles that a nest of sums could be run by, and the cheapest of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from eqsatad.backends.cpu.code.scalars import BYTES, COMPUTED
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.costs import Leaf, Work, cheapest
from eqsatad.backends.cpu.tiles.fusion import fused, spelled_out
from eqsatad.backends.cpu.tiles.modest import accessible, dealt, even, frugal, modest, whole
from eqsatad.backends.cpu.tiles.overlap import overlapping, overlaps, summed
from eqsatad.backends.cpu.tiles.sharing import sharing, turned_apart
from eqsatad.backends.cpu.tiles.slices import cut
from eqsatad.backends.cpu.tiles.tile import (
    Overlap,
    Tile,
    added,
    chain,
    independent,
    length,
    most,
    stride,
    uneven,
)
from eqsatad.loops.nest import (
    Assign,
    Block,
    For,
    If,
    Statement,
    Store,
    expressions_of,
    reads_of,
    statements,
    stores_in_loop,
)
from eqsatad.terms.nodes import Axis, Var
from eqsatad.terms.walk import postorder

# One register out of so many is left to the compiler.
SPARE = 32
# The fewest lanes that are worth having, and the bytes of vectors that are masked at no cost.
FEWEST = 4
MASKED = 64
LANE_COUNTS = (1, 2, 3, 4, 5, 6, 8)
# The most loops of which neighbours are rows of a tile.
ROWS = 2
ROW_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16)


def plan(
    statement: Statement,
    vector: int,
    registers: int,
    exact: bool,
    caches: Caches | None = None,
    *,
    vectors: int | None = None,
) -> Tile | None:
    """The best tile for ``statement``; None if it is no nest around reductions.

    With ``vectors``, loops of unknown length are taken to have so many, and as many rows as any
    tile; the tile says what it `needs`.
    """
    loops, body = fused(*chain(statement))
    body = spelled_out(body)
    work = Work.of(loops, body)
    stores = [store for store, _ in work.stores]
    if (
        not loops
        or not work.leaves
        or not stores
        or any(store.buffer.dtype == "bool" for store in stores)
        or not independent(loops, body, stores)
    ):
        return None
    if len(work.leaves) > 1 and stores_in_loop(body) and not exact:
        # Passes over a row: LLVM makes vectors of each, and one row at a time stays close by.
        return None
    lanes = vector // max(BYTES[COMPUTED[store.buffer.dtype]] for store in stores)
    known = {loop: length(loop) for loop in loops}
    fixed = uneven(body)
    even = [loop for loop in loops if loop.axis not in fixed]
    rows = [loop for loop in even if known[loop] is not None or vectors is not None]
    assumed = (vectors or 0) * lanes
    longest = {loop: _assumed(loop, assumed) if n is None else n for loop, n in known.items()}
    wide = {
        loop: _within(lanes, extent, vector >= MASKED and _in_rows(loop, stores, body))
        for loop, extent in longest.items()
    }
    tiles = _candidates(longest, wide, rows, body, work.leaves, lanes, registers, exact)
    unknown = [loop.axis for loop in loops if known[loop] is None]
    caches = caches or Caches()
    if not unknown:
        best = cheapest(tiles, work, caches)
        if best is None:
            return None
        return turned_apart(best if exact else sharing(best, registers), registers)
    fitting = whole(list(tiles), work)
    if vectors is None:
        return cheapest(iter(fitting), work, caches)
    if vectors > 1:
        fitting = [dealt(tile, unknown) for tile in fitting if accessible(tile, unknown)]
    slices = cut(body, caches) if vectors > 1 else None
    # What tiles read of a slice is near, whichever they are.
    around = caches if slices is None else None
    best = frugal(modest(fitting, work, unknown, vectors, around), work, around)
    if best is None:
        return None
    masked = best.lane if vectors == 0 else None
    sure = frozenset(axis for axis in unknown if axis is not masked)
    return replace(best, sure=sure, slices=None if best.inner else slices)


def _assumed(loop: For, extent: int) -> int:
    """``extent``, or less if ``loop`` is never as long."""
    limit = most(loop)
    return extent if limit is None else min(extent, limit)


def _candidates(
    longest: Mapping[For, int],
    wide: Mapping[For, int],
    rows: Sequence[For],
    body: Block,
    leaves: Sequence[Leaf],
    lanes: int,
    registers: int,
    exact: bool,
) -> Iterator[Tile]:
    """Every tile that could be used for loops of the length ``longest``, with some of ``rows``.

    Vectors along each loop have as many lanes as ``wide`` says.
    """
    loops = list(longest)
    accumulators = max(1, sum(_accumulated(leaf.loop) for leaf in leaves[:1]))
    ways = _overlaps(rows, leaves)
    for loop in loops:
        for count in LANE_COUNTS:
            # The last vector may begin within the one before.
            if count > 1 and longest[loop] <= (count - 1) * wide[loop]:
                continue
            others = [row for row in rows if row is not loop]
            # Where one vector is all there is, a second loop makes a tile large enough.
            for counts in _row_counts(others, ROWS if longest[loop] <= wide[loop] else 1):
                if _fits(count, counts, accumulators, registers):
                    tile = Tile(tuple(loops), body, loop.axis, wide[loop], False,
                                {loop.axis: count, **counts})  # fmt: skip
                    yield even(tile)
                    left = registers - accumulators * prod(tile.counts.values())
                    yield from overlapping(tile, ways, leaves[0].reads, left)
    if _branches_on_locals(body):
        return
    inner = {leaf.loop.axis for leaf in leaves}
    partial = not exact and len(inner) == 1 and all(_sums(leaf.loop, body) for leaf in leaves)
    for counts in _row_counts(rows, ROWS):
        if not _fits(1, counts, accumulators, registers):
            continue
        yield Tile(tuple(loops), body, None, 0, False, counts)
        if partial:
            yield Tile(tuple(loops), body, leaves[0].loop.axis, lanes, True, counts)


def _overlaps(rows: Sequence[For], leaves: Sequence[Leaf]) -> dict[Axis, Overlap]:
    """How neighbours along ``rows`` overlap in the only sum."""
    (leaf, *others) = leaves
    if others or not summed(leaf.loop):
        return {}
    return overlaps(rows, leaf.loop, leaf.reads, serving=True)


def _in_rows(loop: For, stores: Sequence[Store], body: Block) -> bool:
    """Whether all that is read and stored along ``loop`` lies in rows."""
    reads = reads_of(body)
    return all(stride(store.buffer, store.indices, loop.axis) == 1 for store in stores) and all(
        stride(read.tensor, read.indices, loop.axis) in (0, 1) for read in reads
    )


def _within(lanes: int, extent: int, masked: bool) -> int:
    """The lanes of a vector for a short loop, which it covers under a mask where that is free.

    Elsewhere those that fit without a mask; all where even few do not, and for unknown extents.
    """
    parts = [lanes // part for part in (4, 2, 1) if lanes // part >= FEWEST]
    if masked and extent:
        return next((size for size in parts if size >= extent), lanes)
    return next((size for size in reversed(parts) if size <= extent), lanes)


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
    extent = length(first)
    for count in ROW_COUNTS:
        if count > 1 and (extent is None or count <= extent):
            for counts in _products(rest):
                yield {first.axis: count, **counts}


def _fits(count: int, counts: Mapping[Axis, int], accumulators: int, registers: int) -> bool:
    """Whether accumulators, the vectors of one row and one broadcast value fit the registers.

    What the fewest neighbours share stays in registers, see `tilewriter`.
    """
    sides = (count, prod(counts.values())) if count > 1 or len(counts) < 2 else counts.values()
    smallest = min(sides)
    usable = registers - registers // SPARE
    return accumulators * count * prod(counts.values()) + smallest + 1 <= usable


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
