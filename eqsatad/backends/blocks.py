"""Blocks of statements: how a program divides into them, and what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    If,
    LoopProgram,
    Statement,
    Store,
    expressions_of,
    statements,
)
from eqsatad.terms.nodes import Read, Tensor
from eqsatad.terms.walk import postorder


def buffers_of(program: LoopProgram) -> list[Tensor]:
    """Every buffer, in the order of the table of arguments."""
    return [*program.inputs, *program.outputs, *program.temporaries]


def fresh_names(program: LoopProgram) -> Callable[[str], str]:
    """What gives a name that begins with a stem and that no buffer of ``program`` has."""
    taken = {each.name for each in buffers_of(program)}

    def fresh(stem: str) -> str:
        number = 1
        while (name := f"{stem}_{number}") in taken:
            number += 1
        taken.add(name)
        return name

    return fresh


def groups(program: LoopProgram) -> Iterator[Block]:
    """Statements that share no locals, in order; those that are not parallel go together."""
    for nest in program.nests:
        if any(_sets_local(statement) for statement in nest.body):
            yield nest.body
            continue
        for parallel, run in groupby(nest.body, key=_parallel):
            if parallel:
                yield from ((statement,) for statement in run)
            else:
                yield tuple(run)


def _parallel(statement: Statement) -> bool:
    return isinstance(statement, For) and statement.parallel


def _sets_local(statement: Statement) -> bool:
    """Whether ``statement`` sets a local that the next ones may use."""
    match statement:
        case Assign():
            return True
        case If(_, then, other):
            return any(_sets_local(each) for each in (*then, *other))
    return False


def touched(block: Block) -> dict[Tensor, bool]:
    """The buffers that ``block`` uses, and whether it writes them."""
    found: dict[Tensor, bool] = {}
    for statement in statements(block):
        for expr in expressions_of(statement):
            for node in postorder(expr):
                if isinstance(node, Read):
                    found.setdefault(node.tensor, False)
        if isinstance(statement, Store | Accumulate):
            found[statement.buffer] = True
    return found
