"""Reads whose place moves slowly and unevenly along the lanes: picked out of a few vectors.

The nearest pixel ``x[3*i // 7]``, or the pixels ``x[i + (38*i + 37) // 103]`` that an image at
another size is made of: neighbouring lanes read neighbouring elements, so that all lanes of a
vector lie in a window of a few vectors. Loading these and permuting them is several times as fast
as a gather. Only what can be told from the expressions is taken: places that never go back, and
any in a row that is no longer than a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from eqsatad.backends.access import flat, safe_read
from eqsatad.terms.linear import Linear, linear
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Read
from eqsatad.terms.ops import ADD, FLOORDIV, MAX, MIN, MUL, NEG, SUB, Op
from eqsatad.terms.presburger import span
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import postorder

# The most vectors that are permuted: more are no faster than a gather.
MOST = 4
ZERO = Const(0, "index")

# Between which two numbers an expression grows.
Growth = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """A read of element ``place`` of a row of ``extent``, which begins at the offset ``row``.

    The places of a vector are at most ``reach`` apart. ``safe`` says that the row is inside of its
    buffer wherever the axes are; ``last`` is the offset of the last row.
    """

    place: Expr
    extent: int
    row: Linear
    reach: int
    safe: bool
    last: int

    def vectors(self, lanes: int) -> int:
        """How many vectors of ``lanes`` the window has."""
        return self.reach // lanes + 1

    def start(self, lanes: int) -> int:
        """The last place where a window may start that does not stick out of the row."""
        return max(0, self.extent - self.vectors(lanes) * lanes)

    def places(self, lanes: int) -> tuple[int, ...]:
        """Where the vectors are in the window: the last one does not stick out of the row."""
        last = max(0, self.extent - lanes)
        return tuple(min(turn * lanes, last) for turn in range(self.vectors(lanes)))


@lru_cache(maxsize=65536)
def window(read: Read, lane: Axis, lanes: int) -> Window | None:
    """The window of vectors of ``lanes`` along ``lane`` that ``read`` is in, if it is in one."""
    if not read.indices or any(lane in index.free for index in read.indices[:-1]):
        return None
    *outer, place = read.indices
    sizes = [extent.value for extent in read.tensor.shape if isinstance(extent, Const)]
    if len(sizes) < len(read.indices) or not all(sizes) or not _uneven(place, lane):
        return None
    if not _within(place, lane, sizes[-1]):
        return None
    whole = sizes[-1] - 1
    reach = _reach(place, lane, lanes)
    if reach is None and whole < lanes and inside(place, whole):
        # All of a short row is a window, wherever in it the lanes are.
        reach = whole
    if reach is None or reach >= MOST * lanes:
        return None
    first = (*outer, ZERO)
    safe = safe_read(Read(read.tensor, first))
    row = flat(read.tensor, first)
    return Window(place, sizes[-1], row, min(reach, whole), safe, prod(sizes) - sizes[-1])


def _reach(place: Expr, lane: Axis, lanes: int) -> int | None:
    """How far apart ``lanes`` neighbours are at most, if none is before the one to its left."""
    one, all_ = growth(place, lane, 1), growth(place, lane, lanes - 1)
    return None if one is None or all_ is None or one[0] < 0 else all_[1]


def inside(place: Expr, last: int) -> bool:
    """Whether ``place`` is certainly 0 to ``last``: where loops were joined it may be beyond."""
    low, high = span(place)
    return low is not None and high is not None and low >= 0 and high <= last


def _uneven(place: Expr, lane: Axis) -> bool:
    """Whether the steps of ``place`` along ``lane`` may differ."""
    return any(lane in atom.free and atom is not lane for _, atom in linear(place).terms)


def _within(place: Expr, lane: Axis, extent: int) -> bool:
    """Whether nothing else moves ``place`` by a whole row: an axis over two dimensions would."""
    for coef, atom in linear(place).terms:
        low, high = interval(atom)
        apart = None if low is None or high is None else abs(coef) * (high - low)
        if lane not in atom.free and (apart is None or apart >= extent):
            return False
    return True


def growth(root: Expr, axis: Axis, steps: int) -> Growth | None:
    """How much ``root`` grows over so many steps of ``axis``, whatever else is in it."""
    known: dict[Expr, Growth | None] = {}
    for node in postorder(root):
        known[node] = _growth(node, known, axis, steps)
    return known[root]


def _growth(node: Expr, known: dict[Expr, Growth | None], axis: Axis, steps: int) -> Growth | None:
    if axis not in node.free:
        return 0, 0
    if node is axis:
        return steps, steps
    match node:
        case Apply(op, (value, Const(by))) | Apply(op, (Const(by), value)) if op is MUL:
            return _scaled(known[value], int(by))
        case Apply(op, (value, Const(by))) if op is FLOORDIV and by > 0:
            inner = known[value]
            return None if inner is None else (inner[0] // by, -(-inner[1] // by))
        case Apply(op, args) if op in GROWTH:
            parts = [found for arg in args if (found := known[arg]) is not None]
            return GROWTH[op](*parts) if len(parts) == len(args) else None
    return None


def _scaled(growth: Growth | None, by: int) -> Growth | None:
    if growth is None:
        return None
    low, high = sorted(by * end for end in growth)
    return low, high


def _added(a: Growth, b: Growth) -> Growth:
    return a[0] + b[0], a[1] + b[1]


def _negated(a: Growth) -> Growth:
    return -a[1], -a[0]


def _either(a: Growth, b: Growth) -> Growth:
    """That of an extremum: no less and no more than that of either side."""
    return min(a[0], b[0]), max(a[1], b[1])


GROWTH: dict[Op, Callable[..., Growth]] = {
    ADD: _added,
    SUB: lambda a, b: _added(a, _negated(b)),
    NEG: _negated,
    MIN: _either,
    MAX: _either,
}
