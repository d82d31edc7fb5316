"""Which inputs a kernel goes through as it goes through a result."""

from __future__ import annotations

from collections.abc import Iterator

from eqsatad.loops.nest import Block, For, If, LoopProgram, Store
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Read
from eqsatad.terms.walk import postorder


def inputs_alike(program: LoopProgram) -> list[tuple[int, ...]]:
    """For each output the places of the inputs that are read where it is stored, or beside.

    Not if each element waits for the one before, as in a running sum: that is not stored in the
    order in which memory is read.
    """
    stores = [store for nest in program.nests for store in _independent(nest.body)]
    found = {output: set[int]() for output in program.outputs}
    places = {tensor: place for place, tensor in enumerate(program.inputs)}
    for store in stores:
        if store.buffer in found:
            reads = (node for node in postorder(store.value) if isinstance(node, Read))
            beside = (read.tensor for read in reads if _beside(read, store))
            found[store.buffer] |= {places[each] for each in beside if each in places}
    return [tuple(sorted(found[output])) for output in program.outputs]


def _independent(block: Block) -> Iterator[Store]:
    """The stores of ``block`` that are in no loop whose iterations depend on each other."""
    for statement in block:
        match statement:
            case Store():
                yield statement
            case For(parallel=True, body=body):
                yield from _independent(body)
            case If(_, then, other):
                yield from _independent((*then, *other))


def _beside(read: Read, store: Store) -> bool:
    """Whether ``read`` is always as far from ``store``."""
    if len(read.indices) != len(store.indices):
        return False
    pairs = zip(read.indices, store.indices, strict=True)
    return all(not (linear(mine) - linear(theirs)).terms for mine, theirs in pairs)
