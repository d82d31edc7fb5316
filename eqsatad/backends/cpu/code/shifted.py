"""Neighbours along a row, out of vectors that a walk loads once.

A stencil reads the same elements of a row at several places. A vector of 64 bytes that lies across
two lines of the caches takes as long to load as several that do not, and of neighbouring vectors
at most one does not. So a walk keeps the last vectors of each row that it reads and loads one more
at every step, whole vectors away from where it stores; what lies between is shifted together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsatad.backends.access import flat
from eqsatad.backends.cpu.code import memory
from eqsatad.backends.cpu.code.scalars import STORED
from eqsatad.backends.cpu.code.text import FLOAT_BITS, Value, Writer
from eqsatad.loops.nest import Block, Store, nodes_of, reads_of
from eqsatad.terms.nodes import Axis, Expr, Read, Select, Tensor

# Vectors of a row that are needed at once, at most.
MOST = 4


@dataclass(frozen=True)
class Row:
    """Reads of one row: how far each is from the place where the walk loads a vector."""

    places: Mapping[Read, int]
    lanes: int

    @property
    def kind(self) -> str:
        """The type of an element in memory."""
        return STORED[self.first[0].tensor.dtype]

    @property
    def first(self) -> tuple[Read, int]:
        """A read, and how far from it the vectors lie."""
        read, place = next(iter(self.places.items()))
        return read, -place

    @property
    def vectors(self) -> range:
        """The vectors that are needed, from the one at that place; each step loads the last."""
        low, high = min(self.places.values()), max(self.places.values())
        return range(low // self.lanes, -(-high // self.lanes) + 1)

    @property
    def early(self) -> bool:
        """Whether the first vector begins before all that is read."""
        return min(self.places.values()) % self.lanes != 0

    @property
    def late(self) -> bool:
        """Whether the last vector ends after all that is read."""
        return max(self.places.values()) % self.lanes != 0

    def read(self, w: Writer, vectors: Sequence[Value]) -> dict[Read, Value]:
        """Each read, out of `vectors`."""
        return {
            read: self._between(w, vectors, place - self.vectors.start * self.lanes)
            for read, place in self.places.items()
        }

    def _between(self, w: Writer, vectors: Sequence[Value], start: int) -> Value:
        place, shift = divmod(start, self.lanes)
        if not shift:
            return vectors[place]
        chosen = range(shift, shift + self.lanes)
        return memory.shuffled(w, vectors[place], vectors[place + 1], list(chosen))


def rows(block: Block, lane: Axis, lanes: int, store: Store) -> list[Row]:
    """The rows of which ``block``, which ``store`` is in, reads several places along ``lane``.

    There are none where what is not wanted may not be there to be read.
    """
    if any(isinstance(node, Select) for node in nodes_of(block)):
        return []
    if not all(isinstance(each, Store) for each in block):
        return []
    found: dict[tuple[Tensor, tuple[tuple[int, Expr], ...]], dict[Read, int]] = {}
    for read in reads_of(block):
        form = flat(read.tensor, read.indices)
        if form.coefficient(lane) == 1 and STORED[read.tensor.dtype] in FLOAT_BITS:
            found.setdefault((read.tensor, form.terms), {})[read] = form.const
    whole = flat(store.buffer, store.indices).const
    apart = (places for row in found.values() for places in _apart(row, lanes))
    several = (_row(places, whole, lanes) for places in apart)
    return [row for row in several if 1 < len(row.vectors) <= MOST]


def _apart(places: Mapping[Read, int], lanes: int) -> Iterator[dict[Read, int]]:
    """``places`` in parts, each of which has no gap of a vector."""
    part: dict[Read, int] = {}
    for read, place in sorted(places.items(), key=lambda pair: pair[1]):
        if part and place - max(part.values()) >= lanes:
            yield part
            part = {}
        part[read] = place
    yield part


def _row(places: Mapping[Read, int], whole: int, lanes: int) -> Row:
    """The row of reads at ``places``; vectors are loaded whole vectors away from ``whole``."""
    middle = (min(places.values()) + max(places.values())) // 2
    anchor = whole + round((middle - whole) / lanes) * lanes
    return Row({read: place - anchor for read, place in places.items()}, lanes)
