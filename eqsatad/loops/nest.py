"""The loop-nest language: what every backend gets, and what the counts are taken from.

Scalar expressions are those of `terms.nodes`: a loop variable is an `Axis`, a local is a `Var`,
an array element is a `Read` of a `Buffer`. No `Reduce` is left. Loops have step 1; strides are
in the index expressions. Bounds are evaluated once, when a loop is entered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from eqsatad.terms.nodes import Axis, Expr, Size, Tensor, Var

Block = tuple["Statement", ...]


@dataclass(frozen=True)
class For:
    """``body`` for each value of ``axis`` with ``start <= axis < stop``.

    ``parallel`` says that iterations may run in any order at the same time.
    """

    axis: Axis
    start: Expr
    stop: Expr
    body: Block
    parallel: bool = False


@dataclass(frozen=True)
class If:
    """``then`` where ``cond`` holds, else ``other``."""

    cond: Expr
    then: Block
    other: Block = ()


@dataclass(frozen=True)
class Assign:
    """Sets the local ``var``, which lives in the enclosing loop body and below."""

    var: Var
    value: Expr


@dataclass(frozen=True)
class Store:
    """``buffer[indices] = value``."""

    buffer: Tensor
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True)
class Accumulate:
    """``buffer[indices] += value``; ``ordered`` when two iterations may hit one element."""

    buffer: Tensor
    indices: tuple[Expr, ...]
    value: Expr


Statement = For | If | Assign | Store | Accumulate


@dataclass(frozen=True)
class Nest:
    """The statements that compute one stage, in order."""

    stage: Tensor
    body: Block


@dataclass(frozen=True)
class LoopProgram:
    """A whole kernel: nests run in order; ``temporaries`` live for one call.

    A buffer is the `Tensor` it holds: row-major, its shape in constants and ``sizes``. A stage
    that is an output is stored in the caller's array.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    temporaries: tuple[Tensor, ...]
    sizes: tuple[Size, ...]
    nests: tuple[Nest, ...]
    notes: tuple[str, ...] = field(default=())


def statements(block: Block) -> Iterator[Statement]:
    """Every statement in ``block``, at any depth, in order."""
    stack = list(reversed(block))
    while stack:
        statement = stack.pop()
        yield statement
        match statement:
            case For(body=body):
                stack.extend(reversed(body))
            case If(_, then, other):
                stack.extend(reversed((*then, *other)))


def has_loop(block: Block) -> bool:
    """Whether there is a loop in ``block``: if not, it is an innermost body."""
    return any(isinstance(statement, For) for statement in statements(block))


def stores_in_loop(block: Block) -> bool:
    """Whether a loop in ``block`` stores elements."""
    return any(
        isinstance(inner, Store | Accumulate)
        for statement in statements(block)
        if isinstance(statement, For)
        for inner in statements(statement.body)
    )


def groups(block: Block) -> Iterator[Block]:
    """``block`` cut at the statements that store inside a loop, each of which is alone."""
    group: list[Statement] = []
    for statement in block:
        if stores_in_loop((statement,)):
            if group:
                yield tuple(group)
            yield (statement,)
            group = []
        else:
            group.append(statement)
    if group:
        yield tuple(group)
