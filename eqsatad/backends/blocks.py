"""Blocks of statements: how a program divides into them, what is in them, how to change them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    statements,
)
from eqsatad.terms.nodes import Expr, Read, Tensor, Var
from eqsatad.terms.walk import postorder, substitute


def buffers_of(program: LoopProgram) -> list[Tensor]:
    """Every buffer, in the order of the table of arguments."""
    return [*program.inputs, *program.outputs, *program.temporaries]


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


def expressions_of(statement: Statement) -> tuple[Expr, ...]:
    """The expressions that ``statement`` itself works out."""
    match statement:
        case For(_, start, stop):
            return (start, stop)
        case If(cond, _, _):
            return (cond,)
        case Assign(_, value):
            return (value,)
        case Store(_, indices, value) | Accumulate(_, indices, value):
            return (*indices, value)
    raise AssertionError(f"{type(statement).__name__} is no statement")


def replaced(block: Block, mapping: Mapping[Expr, Expr]) -> Block:
    """``block`` with nodes of its expressions replaced, locals also where they are assigned."""
    return tuple(_replaced(statement, mapping) for statement in block)


def _replaced(statement: Statement, mapping: Mapping[Expr, Expr]) -> Statement:
    def change(expr: Expr) -> Expr:
        return substitute(expr, mapping)

    match statement:
        case For(axis, start, stop, body, parallel):
            return For(axis, change(start), change(stop), replaced(body, mapping), parallel)
        case If(cond, then, other):
            return If(change(cond), replaced(then, mapping), replaced(other, mapping))
        case Assign(var, value):
            target = mapping.get(var, var)
            assert isinstance(target, Var), "a local is replaced by a local"
            return Assign(target, change(value))
        case Store(buffer, indices, value):
            return Store(buffer, tuple(map(change, indices)), change(value))
        case Accumulate(buffer, indices, value):
            return Accumulate(buffer, tuple(map(change, indices)), change(value))
    raise AssertionError(f"{type(statement).__name__} is no statement")
