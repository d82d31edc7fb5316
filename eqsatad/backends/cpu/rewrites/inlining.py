"""Temporaries that are cheaper to work out again than to write and read back.

A stage like ``t[i] = 0.1 * x[i]`` saves multiplications on paper, but a multiplication costs
nothing beside the memory traffic of a temporary. Where each element is read a few times only, its
value takes the place of the reads. What a store would round stays a temporary: values are the same,
so this is done for ``exact`` programs as well.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from eqsatad.backends.blocks import touched
from eqsatad.backends.cpu.code.scalars import COMPUTED, STORED
from eqsatad.backends.cpu.tiles.tile import TYPICAL, chain, typical
from eqsatad.loops.nest import (
    Block,
    For,
    If,
    LoopProgram,
    Nest,
    Store,
    expressions_of,
    reads_of,
    replaced,
    scheduled,
)
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Read, Tensor
from eqsatad.terms.ops import ADD, MUL, NEG, SUB
from eqsatad.terms.walk import postorder, substitute

CHEAP = {ADD, SUB, MUL, NEG}
# Operations of a value, reads of a value, and reads of each element of the temporary.
OPERATIONS = 2
READS = 2
TIMES = 6


def inlined(program: LoopProgram) -> LoopProgram:
    """``program`` without the temporaries that cost more than they save."""
    for tensor in program.temporaries:
        program = _without(program, tensor)
    return program


def _without(program: LoopProgram, tensor: Tensor) -> LoopProgram:
    makers = [nest for nest in program.nests if nest.stage is tensor]
    if len(makers) != 1 or (store := _elementwise(makers[0])) is None:
        return program
    others = [nest for nest in program.nests if nest.stage is not tensor]
    using = [nest for nest in others if tensor in touched(nest.body)]
    if any(scheduled(nest.body) for nest in (*makers, *using)):
        return program
    elements = prod(each.value if isinstance(each, Const) else TYPICAL for each in tensor.shape)
    times = sum(_times(nest.body, tensor, 1.0) for nest in others)
    if times > TIMES * elements:
        return program
    nests = tuple(Nest(nest.stage, _rewritten(nest.body, store)) for nest in others)
    kept = tuple(other for other in program.temporaries if other is not tensor)
    return replace(program, nests=nests, temporaries=kept)


def _elementwise(nest: Nest) -> Store | None:
    """The only store of ``nest``, if it is a cheap value at each element."""
    if len(nest.body) != 1:
        return None
    loops, body = chain(nest.body[0])
    match body:
        case (Store(buffer, indices) as store,) if buffer is nest.stage:
            pass
        case _:
            return None
    whole = all(
        isinstance(index, Axis) and loop.axis is index and _covers(loop, extent)
        for loop, index, extent in zip(loops, indices, buffer.shape, strict=False)
    )
    same = STORED[buffer.dtype] == COMPUTED[buffer.dtype]
    fits = same and len(loops) == len(indices) and whole
    return store if fits and _cheap(store.value) else None


def _covers(loop: For, extent: Expr) -> bool:
    start = loop.start
    from_zero = isinstance(start, Const) and start.value == 0
    return from_zero and normal(loop.stop) is normal(extent)


def _cheap(value: Expr) -> bool:
    nodes = [node for node in postorder(value) if node.dtype != "index"]
    if any(isinstance(node, Apply) and node.op not in CHEAP for node in nodes):
        return False
    if any(not isinstance(node, Apply | Read | Const) for node in nodes):
        return False
    operations = sum(isinstance(node, Apply) for node in nodes)
    return operations <= OPERATIONS and sum(isinstance(node, Read) for node in nodes) <= READS


def _times(block: Block, tensor: Tensor, trips: float) -> float:
    """How many elements of ``tensor`` are read in ``block``, more or less."""
    total = 0.0
    for statement in block:
        nodes = postorder(*expressions_of(statement))
        total += trips * sum(isinstance(n, Read) and n.tensor is tensor for n in nodes)
        match statement:
            case For(body=body):
                total += _times(body, tensor, trips * typical(statement))
            case If(_, then, other):
                total += _times((*then, *other), tensor, trips)
    return total


def _rewritten(block: Block, store: Store) -> Block:
    """``block`` with the value of ``store`` in place of its elements."""
    axes = [index for index in store.indices if isinstance(index, Axis)]
    found = [read for read in reads_of(block) if read.tensor is store.buffer]
    mapping: dict[Expr, Expr] = {
        read: substitute(store.value, dict(zip(axes, read.indices, strict=True))) for read in found
    }
    return replaced(block, mapping)
