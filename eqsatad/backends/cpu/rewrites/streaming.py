"""Results of unknown extents that are stored past the caches where a call's sizes make it worth it.

Where extents are numbers, `passes` decides which results are walked row by row and stored so. Of
sizes it is asked when the step is run: this is the same decision as a condition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from eqsatad.backends.access import flat
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.rewrites.passes import APART, FEW, ROW, STENCIL, vectors
from eqsatad.backends.cpu.rewrites.rows import NEAR, Part, around
from eqsatad.backends.cpu.rewrites.streams import LARGE, open_ended
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.fusion import fused
from eqsatad.backends.cpu.tiles.tile import chain, length, most
from eqsatad.loops.nest import Block, For, Store, scheduled
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Apply, Axis, Expr, Tensor
from eqsatad.terms.ops import ADD, FLOORDIV, GE, LE, MIN, MUL, SUB
from eqsatad.terms.walk import conjunction


@dataclass(frozen=True)
class Streaming:
    """A step by rows whose ``results`` are stored past the caches, for sizes that it ``needs``."""

    body: Block
    results: frozenset[Tensor]
    needs: Expr


def streaming(block: Block, unread: frozenset[Tensor]) -> Streaming | None:
    """``block`` by rows that are stored past the caches; None if it is no block of such rows.

    That is for results of unknown extents that the program leaves ``unread``.
    """
    loops, body = fused(*chain(block[0])) if len(block) == 1 else ((), block)
    if not loops or scheduled(block) or not all(isinstance(each, Store) for each in body):
        return None
    part = Part(loops[-1:], body)
    results = [each for each in unread & part.writes if isinstance(each, Tensor)]
    endless = length(loops[-1]) is None and all(most(loop) is None for loop in loops)
    if not endless or not any(map(open_ended, results)):
        return None
    needs = _fitting(part) if len(loops) > 1 else []
    loops = loops if len(loops) > 1 else _pieces(loops[0])
    row = vectors(around(loops[-1:], body))
    if needs is None or not scheduled(row):
        return None
    needs += [Apply(GE, (_elements(each), index(LARGE // _width(each)))) for each in results]
    return Streaming(around(loops[:-1], row), frozenset(results), conjunction(needs))


def _fitting(part: Part) -> list[Expr] | None:
    """Whether rows are neither too short nor too long, as `passes` says; None if never."""
    forms = [flat(*access) for access in part.accesses]
    along = {tuple(term for term in form.terms if term[1].free) for form in forms}
    if len(forms) > FEW and len(along) > 1:
        return None
    least = STENCIL if len(forms) > 2 and len(along) == 1 else APART
    width = sum(map(_width, {tensor for tensor, _ in part.accesses}))
    (row,) = part.loops
    extent = normal(Apply(SUB, (row.stop, row.start)))
    return [Apply(GE, (extent, index(least))), Apply(LE, (extent, index(NEAR // width)))]


def _pieces(loop: For) -> tuple[For, For]:
    """``loop`` as pieces of `ROW` elements, the last one shorter."""
    extent = Apply(SUB, (loop.stop, loop.start))
    above = normal(Apply(ADD, (extent, index(ROW - 1))))
    outer = Axis(f"{loop.axis.name}_rows", Apply(FLOORDIV, (above, index(ROW))))
    start = normal(Apply(ADD, (loop.start, Apply(MUL, (outer, index(ROW))))))
    stop = Apply(MIN, (normal(Apply(ADD, (start, index(ROW)))), loop.stop))
    pieces = replace(loop, axis=outer, start=index(0), stop=outer.extent)
    return pieces, replace(loop, start=start, stop=stop)


def _elements(tensor: Tensor) -> Expr:
    return normal(reduce(lambda a, b: Apply(MUL, (a, b)), tensor.shape))


def _width(tensor: Tensor) -> int:
    return BYTES[STORED[tensor.dtype]]
