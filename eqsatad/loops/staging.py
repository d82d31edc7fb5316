"""Stages worked out where they are read: an element at a time, in a loop of the reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsatad.errors import ScheduleError
from eqsatad.loops.changes import (
    Pieces,
    chain,
    everywhere,
    known,
    loops_in,
    marked,
    refused,
    variables,
)
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    LoopProgram,
    Nest,
    Statement,
    Store,
    reads_of,
    replaced,
    statements,
)
from eqsatad.loops.render import render_block
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Const, Expr, Tensor, Var

ZERO = Const(0, "index")


def staged(program: LoopProgram, tensor: Tensor, at: str) -> LoopProgram:
    """``program`` with ``tensor`` worked out where it is read: in the loops over ``at``.

    Its element must be the same for all that an iteration of ``at`` reads; it becomes a local.
    """
    loops, body = _maker(program, tensor)
    nests: list[Nest] = []
    for nest in program.nests:
        if nest.stage is tensor:
            continue
        pieces = [_with_local(piece, tensor, at, loops, body) for piece in nest.body]
        nests.append(Nest(nest.stage, marked(nest.body, tuple(pieces))))
    kept = tuple(each for each in program.temporaries if each is not tensor)
    return replace(program, nests=tuple(nests), temporaries=kept)


def _maker(program: LoopProgram, tensor: Tensor) -> tuple[list[For], Block]:
    """The loops and the body that compute ``tensor``, one element in each iteration."""
    if tensor not in program.temporaries:
        raise ScheduleError(
            f"{tensor.name} is an output, which must be stored; temporaries: "
            f"{', '.join(each.name for each in program.temporaries) or 'none'}"
        )
    (block,) = (nest.body for nest in program.nests if nest.stage is tensor)
    if len(block) == 1:
        loops, body = _leading(block[0], len(tensor.shape))
        axes = tuple(loop.axis for loop in loops)
        whole = all(
            normal(loop.start) is ZERO and normal(loop.stop) is normal(extent)
            for loop, extent in zip(loops, tensor.shape, strict=False)
        )
        match body:
            case (*_, Store(buffer, indices)) if buffer is tensor and indices == axes and whole:
                if sum(isinstance(each, Store | Accumulate) for each in statements(body)) == 1:
                    return loops, body
    raise ScheduleError("\n".join([
        f"{tensor.name} is not computed by one loop for each dimension, so it stays as it is:",
        *render_block(block),
    ]))  # fmt: skip


def _leading(statement: Statement, number: int) -> tuple[list[For], Block]:
    """The outermost ``number`` loops of ``statement``, and what is inside."""
    loops, body = chain(statement)
    taken = loops[:number]
    return taken, body if len(taken) == len(loops) else (loops[number],)


def _with_local(
    piece: Statement, tensor: Tensor, at: str, loops: Sequence[For], body: Block
) -> Statement:
    """``piece`` with the element of ``tensor`` that it reads as a local of the loop ``at``."""
    if tensor not in {read.tensor for read in reads_of((piece,))}:
        return piece
    known((piece,), at)
    within = [loop for loop in loops_in((piece,)) if loop.axis.name == at]
    found = {read for loop in within for read in reads_of(loop.body) if read.tensor is tensor}
    total = {read for read in reads_of((piece,)) if read.tensor is tensor}
    inside = {inner.axis for loop in within for inner in loops_in(loop.body)}
    if found != total or len(found) != 1 or next(iter(found)).free & inside:
        raise refused(
            f"reads more than one element of {tensor.name} in an iteration, or some outside; "
            "stage it in another loop",
            (piece,),
            at,
        )
    (read,) = found
    local = Var(f"{tensor.name}_here", tensor.dtype)
    mapping: dict[Expr, Expr] = {
        loop.axis: index for loop, index in zip(loops, read.indices, strict=True)
    }
    taken = {var.name for var in variables((piece,))}
    for var in dict.fromkeys(variables(body)):
        name = f"{tensor.name}_{var.name}"
        mapping[var] = Var(name if name not in taken else f"{name}_", var.dtype)
    *before, store = replaced(body, mapping)
    assert isinstance(store, Store), "what makes an element stores it last"
    made = (*before, Assign(local, store.value))

    def change(loop: For) -> Pieces | None:
        if loop.axis.name != at:
            return None
        return ((replace(loop, body=(*made, *replaced(loop.body, {read: local}))),),)

    (result,) = everywhere((piece,), change)
    return result
