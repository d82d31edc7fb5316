"""What kind of work a nest is, told by its structure alone, and why it is run as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import TypeAlias

from eqsatad.backends.cpu.tiles.scans import recognised
from eqsatad.backends.cpu.tiles.tile import Tile, chain
from eqsatad.loops.nest import (
    Accumulate,
    Block,
    For,
    Mark,
    has_loop,
    reads_of,
    scheduled,
    statements,
)
from eqsatad.terms.nodes import Read


class Kind(StrEnum):
    """The kinds of work that have a way of their own to be run."""

    COPY = "transposing copy"
    SCAN = "scan"
    STENCIL = "stencil"
    MAP = "map"
    CONTRACTION = "contraction"
    REDUCTION = "reduction"
    ROWS = "row passes"
    SCATTER = "scatter"
    REST = "rest"


@dataclass(frozen=True)
class Decision:
    """The kind of a nest, and the reason in words."""

    kind: Kind
    reason: str


# The reason why a block that is run by a tile, or by none, is of a kind; None if it is not.
Test: TypeAlias = Callable[[Block, Tile | None], str | None]


def decision(body: Block, tile: Tile | None) -> Decision:
    """What ``body``, which is run by ``tile``, is: the first kind of `TESTS` that it meets."""
    found = ((kind, test(body, tile)) for kind, test in TESTS.items())
    return next(Decision(kind, reason) for kind, reason in found if reason is not None)


def _copy(body: Block, tile: Tile | None) -> str | None:
    if tile is None or tile.turned is None or tile.lane is None:
        return None
    return f"read along {tile.lane.name}, but stored along {tile.turned.name}"


def _scan(body: Block, tile: Tile | None) -> str | None:
    if tile is None or not tile.inner or recognised(tile.body) is None:
        return None
    assert tile.lane is not None, "a vector lies along an axis"
    return f"each element needs the one before it along {tile.lane.name}"


def _stencil(body: Block, tile: Tile | None) -> str | None:
    places = Counter(read.tensor for read in reads_of(_elementwise(body, tile)))
    tensor, number = places.most_common(1)[0] if places else (None, 0)
    return None if number < 2 or tensor is None else f"{tensor.name} is read in {number} places"


def _map(body: Block, tile: Tile | None) -> str | None:
    return "no sums, and nothing is read twice" if _elementwise(body, tile) else None


def _elementwise(body: Block, tile: Tile | None) -> Block:
    """What is done at each point, if that is nothing but stores: of a tile, or of a walk."""
    if tile is not None:
        return () if has_loop(tile.body) else tile.body
    loops, inner = chain(body[0]) if len(body) == 1 else ((), ())
    walked = bool(loops) and loops[-1].mark is Mark.VECTOR
    return inner if walked and not has_loop(inner) else ()


def _contraction(body: Block, tile: Tile | None) -> str | None:
    if tile is None:
        return None
    served = {read.tensor.name: shared(read, tile) for read in reads_of(tile.body)}
    parts = [f"{name} for {number}" for name, number in served.items() if number > 1]
    return f"what a tile loads serves several results: {', '.join(parts)}" if parts else None


def shared(read: Read, tile: Tile) -> int:
    """How many results of a tile need the element, or the vector, that ``read`` loads."""
    other = [count for axis, count in tile.counts.items() if axis not in read.free]
    lanes = 1 if tile.inner or tile.lane in read.free else max(1, tile.lanes)
    return prod(other) * lanes


def _reduction(body: Block, tile: Tile | None) -> str | None:
    return None if tile is None else "what is loaded serves one result"


def _rows(body: Block, tile: Tile | None) -> str | None:
    marked = [
        each for each in statements(body) if isinstance(each, For) and each.mark is Mark.VECTOR
    ]
    names = ", ".join(dict.fromkeys(loop.axis.name for loop in marked))
    passes = "one pass" if len(marked) == 1 else f"{len(marked)} passes"
    return f"{passes} over each row, a vector at a time, along {names}" if marked else None


def _scatter(body: Block, tile: Tile | None) -> str | None:
    found = [each.buffer.name for each in statements(body) if isinstance(each, Accumulate)]
    return f"adds up in places of {found[0]} that may be the same" if found else None


def _rest(body: Block, tile: Tile | None) -> str | None:
    if scheduled(body):
        return "as its schedule says"
    loops = chain(body[0])[0] if len(body) == 1 else ()
    return "vectors are left to LLVM" if loops else "no loop whose iterations are independent"


TESTS: dict[Kind, Test] = {
    Kind.COPY: _copy,
    Kind.SCAN: _scan,
    Kind.STENCIL: _stencil,
    Kind.MAP: _map,
    Kind.CONTRACTION: _contraction,
    Kind.REDUCTION: _reduction,
    Kind.ROWS: _rows,
    Kind.SCATTER: _scatter,
    Kind.REST: _rest,
}
