"""Results of sums of products kept where vectors store them whole, then copied to their place.

Where the axis of the vectors is not contiguous in the array that results belong to, every lane
would be stored alone. Instead they go to a temporary in which that axis lies innermost, perhaps
rounded up to whole vectors, and a copy takes them to their place: a nest of stores, which
`siblings` joins with those beside it and `turns` runs a square of vectors at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsatad.backends.cpu.code.scalars import COMPUTED, STORED
from eqsatad.backends.cpu.tiles.tile import stride
from eqsatad.loops.nest import Block, For, Statement, Store
from eqsatad.terms.linear import Linear, expression, linear, normal
from eqsatad.terms.nodes import Apply, Axis, Expr, Placeholder, Read, Tensor
from eqsatad.terms.ops import SUB

# The largest distance of neighbours in the place of results at which a copy stores vectors.
NEAR = 2


@dataclass(frozen=True)
class Kept:
    """The ``temporary`` of some results, the ``store`` that fills it, and the ``copy`` from it."""

    temporary: Tensor
    store: Store
    copy: Statement


def worth_keeping(loops: Sequence[For], store: Store, lane: Axis) -> bool:
    """Whether vectors along ``lane`` would be stored lane by lane, and a copy can do better."""
    if store.value.free or STORED[store.buffer.dtype] != COMPUTED[store.buffer.dtype]:
        return False
    steps = {loop.axis: stride(store.buffer, store.indices, loop.axis) for loop in loops}
    near = any(step is not None and 0 < step <= NEAR for step in steps.values())
    return near and steps[lane] != 1


def kept(loops: Sequence[For], wide: Sequence[For], store: Store, lane: Axis, name: str) -> Kept:
    """Results of ``loops`` with ``lane`` innermost; ``wide`` are these loops, perhaps longer."""
    places = [place for place, loop in enumerate(loops) if loop.axis is not lane]
    places += [place for place, loop in enumerate(loops) if loop.axis is lane]
    whole = [wide[place] for place in places]
    shape = tuple(normal(Apply(SUB, (loop.stop, loop.start))) for loop in whole)
    temporary = Placeholder(name, shape, store.buffer.dtype)
    inside, outside = ([each[place] for place in places] for each in (loops, wide))
    body: Block = (Store(store.buffer, store.indices, Read(temporary, _reached(inside))),)
    for loop in reversed(loops):
        body = (replace(loop, body=body, parallel=True),)
    (copy,) = body
    return Kept(temporary, Store(temporary, _reached(outside), store.value), copy)


def _reached(loops: Sequence[For]) -> tuple[Expr, ...]:
    """How far each loop has come."""
    return tuple(
        expression(Linear.build(0, ((1, loop.axis),)) - linear(loop.start)) for loop in loops
    )
