"""Values that are stored anyway: a part that equals one of them is read instead of worked out.

``softmax`` stores ``y = e * s``; where its gradient has ``e[i, k] * s[i]``, in whatever order the
rules bring the factors together, that is ``y[i, k]``. A definition takes part where every read of
it already stands in the term, so that nothing is computed only to be recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eqsatad.terms.checks import surely_inside
from eqsatad.terms.nodes import Apply, Cast, Expr, Placeholder, Read, Reduce, Select, Stage, Tensor
from eqsatad.terms.ops import NEG
from eqsatad.terms.walk import postorder, reads, sources, substitute

LARGEST = 30
"""Nodes of a definition; larger ones are not looked for."""

Equation = tuple[Read, Expr]


def is_definition(tensor: Tensor) -> bool:
    """Whether ``tensor`` is worth recognising: a little arithmetic on elements, and no more."""
    if not isinstance(tensor, Stage) or tensor.scatters:
        return False
    nodes = postorder(tensor.body)
    works = any(isinstance(node, Apply) and node.op is not NEG for node in nodes)
    plain = not any(isinstance(node, Reduce | Select | Cast) for node in nodes)
    return plain and works and len(nodes) <= LARGEST and _anchor(tensor) is not None


def near(stage: Stage, definitions: Mapping[Tensor, Stage]) -> dict[Tensor, Stage]:
    """Those of ``definitions`` that read only what ``stage`` reads too."""
    own = set(sources(stage))
    return {held: found for held, found in definitions.items() if own.issuperset(sources(found))}


def equations(body: Expr, known: Sequence[Stage]) -> Iterator[Equation]:
    """The reads that may stand for parts of ``body``, with what they are.

    Each of ``known`` says what the placeholder of its name holds.
    """
    present = {read: None for read in reads(body)}
    for definition in known:
        anchor = _anchor(definition)
        assert anchor is not None, "only definitions are asked about"
        holder = Placeholder(definition.name, definition.shape, definition.dtype)
        for read in present:
            if read.tensor is anchor.tensor:
                put = dict(zip(anchor.indices, read.indices, strict=True))
                held = Read(holder, tuple(put[axis] for axis in definition.axes))
                part = substitute(definition.body, put)
                # The definition may hold fewer elements than what it reads has.
                there = _inside(held) and all(map(_inside, reads(part)))
                if there and all(other in present for other in reads(part)):
                    yield held, part


def _inside(read: Read) -> bool:
    return all(map(surely_inside, read.indices, read.tensor.shape))


def _anchor(stage: Stage) -> Read | None:
    """A read whose indices are all the axes of ``stage``, which tells where an element is."""
    axes: set[Expr] = {*stage.axes}
    for read in reads(stage.body):
        if len(read.indices) == len(axes) and set(read.indices) == axes:
            return read
    return None
