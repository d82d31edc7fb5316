"""Register tiles: which loops of a nest go along vector lanes, and which are unrolled together.

A nest of parallel loops around reductions is run a tile at a time: `counts` neighbours along some
axes, and a vector along the `lane` axis, each with accumulators of their own, so that a value
that is loaded serves several of them. The lane axis is one of the parallel loops, or else the
innermost reduction, whose partial sums are added up at the end. `choice` finds the tile of a nest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil, prod

from eqsatad.backends.access import flat
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
)
from eqsatad.terms.linear import Linear, linear, normal
from eqsatad.terms.nodes import FLOATS, Apply, Axis, Const, Expr, Read, Tensor, Var
from eqsatad.terms.ops import ADD, GE, SUB
from eqsatad.terms.presburger import span
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import conjunction, postorder

# What an extent is taken for when it is a symbolic size.
TYPICAL = 64


@dataclass(frozen=True)
class Strips:
    """The outer ``loops`` of a sum, run around the tiles; of the last one ``size`` values each."""

    loops: tuple[For, ...]
    size: int

    @property
    def counts(self) -> tuple[int, ...]:
        """How many strips there are along each loop."""
        *whole, cut = (length(loop) or 0 for loop in self.loops)
        return (*whole, ceil(cut / self.size))

    @property
    def number(self) -> int:
        return prod(self.counts)

    @property
    def extents(self) -> dict[Axis, float]:
        """How many values of each axis one strip takes."""
        axes = [loop.axis for loop in self.loops]
        return {**dict.fromkeys(axes, 1.0), axes[-1]: float(self.size)}


@dataclass(frozen=True)
class Slices:
    """The two outer ``loops`` of a sum, of which ``size`` values of both are run at a time."""

    loops: tuple[For, ...]
    size: Expr


@dataclass(frozen=True)
class Asked:
    """Lines that are asked for ahead: so many bytes from ``read``, in the sum over ``inside``.

    If that is None, so many bytes from what each point of a tile reads. Only the ``first`` tiles
    along some loops ask.
    """

    read: Read
    inside: Axis | None
    offsets: tuple[int, ...]
    first: tuple[For, ...] = ()


@dataclass(frozen=True)
class Rolling:
    """How results along ``row`` are accumulated while the rows that are read go by.

    What is read at ``r`` belongs to the result at ``r + offset`` for each offset and value of
    ``tap`` in ``taps``; offsets are neighbours and rise. All that is read is ``reading``: its first
    row, and the first one behind it.
    """

    row: Axis
    tap: Axis
    reading: tuple[int, int]
    taps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Overlap:
    """Neighbours along ``row`` that read what others read at another one of the ``taps``.

    What is read moves on by so many ``steps`` with the row, and with the tap.
    """

    row: Axis
    tap: Axis
    taps: range
    steps: tuple[int, int]

    def order(self, row: int, tap: int) -> int:
        """Where what ``row`` reads at ``tap`` is among all that is read, going up with taps."""
        by_row, by_tap = self.steps
        return (by_row * row + by_tap * tap) * (1 if by_tap > 0 else -1)

    def part(self, read: Read, rows: int) -> float:
        """The part of the products of ``rows`` that load ``read`` anew."""
        by_row, by_tap = (stride(read.tensor, read.indices, each) for each in (self.row, self.tap))
        if by_row is None or by_tap is None or by_row * self.steps[1] != by_tap * self.steps[0]:
            return 1.0
        places = {by_row * row + by_tap * tap for row in range(rows) for tap in self.taps}
        return len(places) / (rows * len(self.taps))


@dataclass(frozen=True)
class Fetch:
    """For each block of rows ``size`` bytes of ``tensor``, from ``begin`` on in the block.

    A block of it has so many bytes.
    """

    tensor: Tensor
    block: int
    begin: int
    size: int


@dataclass(frozen=True)
class Fetches:
    """What the sums over ``loops`` fetch, a part in each turn of all ``tiles`` of a block.

    Each strip has ``around`` tiles, if there are strips, which are parts of the loop along ``cut``.
    """

    loops: tuple[For, ...]
    tiles: int
    around: int
    parts: tuple[Fetch, ...]
    cut: Axis | None = None

    @property
    def turns(self) -> int:
        """The turns of one tile."""
        return prod(length(loop) or 1 for loop in self.loops)


@dataclass(frozen=True)
class Panel:
    """What ``read`` is in a sum over ``loop``, as ``copied`` for the tiles along rows.

    Vectors of the copy begin where those of the tiles do, at the value ``begin`` of the lane axis.
    The tiles that read it, ``asking`` in turns, ask for what the next one is copied from; 0 if that
    is near anyway.
    """

    read: Read
    copied: Read
    loop: For
    begin: Axis
    asking: int


@dataclass(frozen=True)
class Tile:
    """Parallel ``loops`` around ``body``, and how they are run.

    ``lanes`` is 0 for scalars. ``inner`` says that the lane axis is a reduction of ``body``.
    ``turned`` is the axis along which a copy writes what it read along the lanes; see `turns`.
    ``block`` is the number of tiles that one vector along the lane axis is run through before the
    next one, 0 if that does not matter.
    ``columns`` says that the vectors of a tile run one after the other, each with all its rows.
    ``sure`` are the axes along which it is only run where it fits, see `needs`. Some tiles have one
    neighbour less along the axis ``dealt``, so that all together cover the loop but not more. For
    ``asked`` and the bytes ``claimed``, see `ahead`, for the sum that is ``apart`` see `sharing`,
    for ``rolling`` and ``overlap`` the modules of that name, for ``panel``, which ``body`` reads,
    see `panels`, and for ``fetches`` that module.
    """

    loops: tuple[For, ...]
    body: Block
    lane: Axis | None = None
    lanes: int = 0
    inner: bool = False
    counts: Mapping[Axis, int] = field(default_factory=dict)
    turned: Axis | None = None
    strips: Strips | None = None
    slices: Slices | None = None
    block: int = 0
    columns: bool = False
    sure: frozenset[Axis] = frozenset()
    dealt: Axis | None = None
    asked: tuple[Asked, ...] = ()
    claimed: int = 0
    rolling: Rolling | None = None
    overlap: Overlap | None = None
    apart: Axis | None = None
    panel: Panel | None = None
    fetches: Fetches | None = None

    @property
    def needs(self) -> Expr:
        """Whether the loops along `sure` are as long as the tile."""
        return conjunction(
            Apply(GE, (normal(Apply(SUB, (loop.stop, loop.start))), Const(step, "index")))
            for loop in self.loops
            if loop.axis in self.sure and (step := self.fewest(loop.axis)) > 1
        )

    def step(self, axis: Axis) -> int:
        """How many values of ``axis`` a tile takes."""
        wide = self.lanes if axis is self.lane and self.lanes else 1
        return self.counts.get(axis, 1) * wide

    def fewest(self, axis: Axis) -> int:
        """How many values of ``axis`` the smallest tile takes."""
        return self.step(axis) - (axis is self.dealt)

    def covered(self, axis: Axis, extent: int) -> int:
        """How many values of ``axis`` all tiles along ``extent`` take, some of them twice."""
        tiles = ceil(extent / self.step(axis))
        fewest = tiles * self.fewest(axis)
        return max(extent, fewest) if axis is self.dealt else fewest

    @property
    def order(self) -> tuple[For, ...]:
        """The loops over tiles, outermost first: what neighbours share is close together."""
        if self.block:
            return (*(loop for loop in self.loops if loop.axis is not self.lane),
                    *(loop for loop in self.loops if loop.axis is self.lane))  # fmt: skip
        if not has_loop(self.body):
            return self.loops
        rows = [
            loop for loop in self.loops if loop.axis in self.counts and loop.axis is not self.lane
        ]
        lane = [loop for loop in self.loops if loop.axis is self.lane]
        rest = [loop for loop in self.loops if loop not in rows and loop not in lane]
        return tuple((*rows, *rest) if self.inner else (*rest, *lane, *rows))


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


def widest(loop: For) -> For | None:
    """``loop`` over all values that it ever takes, if those are known."""
    low, high = interval(loop.start)[0], interval(loop.stop)[1]
    if low is None or high is None:
        return None
    return replace(loop, start=Const(low, "index"), stop=Const(max(low, high), "index"))


def typical(loop: For) -> float:
    """How often ``loop`` runs, more or less."""
    low, _ = interval(Apply(SUB, (loop.stop, loop.start)))
    high = most(loop)
    if high is None:
        return TYPICAL
    return max(1.0, (max(0, low or 0) + high) / 2)


def most(loop: For) -> int | None:
    """How often ``loop`` runs at most, if that is known."""
    extent = Apply(SUB, (loop.stop, loop.start))
    high = interval(extent)[1]
    # Of a border like ``max(n - 1, 1) .. n`` only the decision procedure knows that it is short.
    return span(extent)[1] if high is None else high


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
    axes = {loop.axis for loop in loops}
    left = axes
    for index in store.indices:
        left = left - _told_apart(linear(index), left)
    # Where loops were joined no index tells their points apart, but the offset does.
    return not left or _told_apart(flat(store.buffer, store.indices), axes) == axes


def _told_apart(form: Linear, axes: set[Axis]) -> set[Axis]:
    """The axes of ``form``, if no two points along these of ``axes`` give it the same value."""
    terms = [(abs(coef), atom) for coef, atom in form.terms]
    if any(atom.free & axes and not isinstance(atom, Axis) for _, atom in terms):
        return set()
    own = [(coef, atom) for coef, atom in terms if isinstance(atom, Axis) and atom in axes]
    if len(own) < len(terms) and any(atom.free for _, atom in terms if atom not in axes):
        return set()
    reach = 0
    for coef, atom in sorted(own, key=lambda term: term[0]):
        high = interval(atom)[1]
        if coef <= reach or (high is None and len(own) > 1):
            return set()
        reach += coef * (high or 0)
    return {atom for _, atom in own}


def uneven(body: Block) -> frozenset[Axis]:
    """The axes on which bounds or conditions inside ``body`` depend."""
    found: set[Axis] = set()
    for statement in statements(body):
        if isinstance(statement, For | If):
            for expr in expressions_of(statement):
                found |= expr.free
    return frozenset(found)


def added(statement: Assign) -> Expr | None:
    """What ``statement`` adds to its float local, if that is all it does."""
    match statement:
        case Assign(var, Apply(op, (left, right))) if op is ADD and left is var:
            if var.dtype in FLOATS and var not in postorder(right):
                return right
    return None


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


@lru_cache(maxsize=65536)
def stride(tensor: Tensor, indices: tuple[Expr, ...], axis: Axis | None) -> int | None:
    """How far apart neighbours along ``axis`` are; None if it varies."""
    if axis is None:
        return 0
    form = flat(tensor, indices)
    if any(axis in atom.free and atom is not axis for _, atom in form.terms):
        return None
    return form.coefficient(axis)
