"""The loop-nest language: what every backend gets, and what the counts are taken from.

Scalar expressions are those of `terms.nodes`: a loop variable is an `Axis`, a local is a `Var`,
an array element is a `Read` of a `Buffer`. No `Reduce` is left. Loops have step 1; strides are
in the index expressions. Bounds are evaluated once, when a loop is entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from eqsatad.terms.nodes import Axis, Expr, Read, Size, Tensor, Var
from eqsatad.terms.walk import postorder, substitute

Block = tuple["Statement", ...]


class Mark(Enum):
    """How a schedule wants a loop to be run: see `schedule`."""

    PLAIN = "plain"
    VECTOR = "vector"
    SHARED = "shared"


@dataclass(frozen=True)
class For:
    """``body`` for each value of ``axis`` with ``start <= axis < stop``.

    ``parallel`` says that iterations may run in any order at the same time. A statement in which
    some loop has a ``mark`` was scheduled by hand: backends run it as it is written.
    """

    axis: Axis
    start: Expr
    stop: Expr
    body: Block
    parallel: bool = False
    mark: Mark | None = None


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
    """The statements that compute a stage, in order; a backend may join others to them."""

    stage: Tensor
    body: Block

    @property
    def stored(self) -> tuple[Tensor, ...]:
        """The stage, and what else is stored."""
        others = [
            each.buffer for each in statements(self.body) if isinstance(each, Store | Accumulate)
        ]
        return tuple(dict.fromkeys((self.stage, *others)))


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


def scheduled(block: Block) -> bool:
    """Whether ``block`` was scheduled by hand."""
    return any(isinstance(each, For) and each.mark is not None for each in statements(block))


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


def nodes_of(block: Block) -> list[Expr]:
    """Every distinct node of what ``block`` works out, operands first."""
    return postorder(*(expr for each in statements(block) for expr in expressions_of(each)))


def reads_of(block: Block) -> list[Read]:
    """Every distinct read in ``block``."""
    return [node for node in nodes_of(block) if isinstance(node, Read)]


def replaced(block: Block, mapping: Mapping[Expr, Expr]) -> Block:
    """``block`` with nodes of its expressions replaced, locals also where they are assigned."""
    return rewritten(block, lambda expr: substitute(expr, mapping))


def rewritten(block: Block, change: Callable[[Expr], Expr]) -> Block:
    """``block`` with ``change`` made to its expressions, assigned locals among them."""
    return tuple(_rewritten(statement, change) for statement in block)


def _rewritten(statement: Statement, change: Callable[[Expr], Expr]) -> Statement:
    match statement:
        case For(_, start, stop, body):
            body = rewritten(body, change)
            return replace(statement, start=change(start), stop=change(stop), body=body)
        case If(cond, then, other):
            return If(change(cond), rewritten(then, change), rewritten(other, change))
        case Assign(var, value):
            target = change(var)
            assert isinstance(target, Var), "a local is replaced by a local"
            return Assign(target, change(value))
        case Store(buffer, indices, value):
            return Store(buffer, tuple(map(change, indices)), change(value))
        case Accumulate(buffer, indices, value):
            return Accumulate(buffer, tuple(map(change, indices)), change(value))
    raise AssertionError(f"{type(statement).__name__} is no statement")


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
