"""Temporaries that hold the same as an earlier one are left out.

Gradients for different inputs often store the same sum, each under names of its own and with its
factors and its parallel loops in another order. Two nests are the same if they are spelled alike
once these are sorted and axes and locals are numbered; then results are equal bit by bit.
"""

from __future__ import annotations

from dataclasses import replace

from eqsatad.backends.blocks import touched
from eqsatad.backends.cpu.tiles.tile import chain
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    If,
    LoopProgram,
    Nest,
    Statement,
    Store,
    rewritten,
    scheduled,
)
from eqsatad.terms.nodes import Apply, Axis, Cast, Expr, Read, Tensor, Var, digest
from eqsatad.terms.ops import ADD, MAX, MIN, MUL
from eqsatad.terms.walk import fold, transform

COMMUTATIVE = (ADD, MUL, MIN, MAX)


def united(program: LoopProgram) -> LoopProgram:
    """``program`` with each temporary that holds the same as an earlier one replaced by that."""
    stages = [nest.stage for nest in program.nests]
    if len(set(stages)) < len(stages):
        return program
    first: dict[str, Tensor] = {}
    same: dict[Tensor, Tensor] = {}
    nests: list[Nest] = []
    for nest in program.nests:
        body = _reading(nest.body, same)
        if nest.stage in program.temporaries and not scheduled(body):
            twin = first.setdefault(_Spelling(nest.stage).of(body), nest.stage)
            if twin is not nest.stage:
                same[nest.stage] = twin
                continue
        nests.append(replace(nest, body=body))
    left = tuple(tensor for tensor in program.temporaries if tensor not in same)
    return replace(program, nests=tuple(nests), temporaries=left) if same else program


def _reading(block: Block, same: dict[Tensor, Tensor]) -> Block:
    """``block`` where the tensors in ``same`` are read from others."""
    if not same.keys() & touched(block).keys():
        return block

    def change(node: Expr) -> Expr:
        if isinstance(node, Read) and node.tensor in same:
            return Read(same[node.tensor], node.indices)
        return node

    return rewritten(block, lambda expr: transform(expr, change))


def _by_place(statement: Statement) -> Statement:
    """``statement`` with its parallel loops in the order of the indices that they store at."""
    loops, body = chain(statement)
    places = [each.indices for each in body if isinstance(each, Store)]
    if len(places) != 1 or not {loop.axis for loop in loops} <= set(places[0]):
        return statement
    block = body
    for loop in sorted(loops, key=lambda loop: places[0].index(loop.axis), reverse=True):
        block = (replace(loop, body=block),)
    return block[0]


class _Spelling:
    """Writes a nest that fills ``stage`` as text in which names do not matter."""

    def __init__(self, stage: Tensor) -> None:
        self.stage = stage
        self._names: dict[Expr, str] = {}

    def of(self, block: Block) -> str:
        """The whole nest, with what is filled."""
        shape = ",".join(extent.key for extent in self.stage.shape)
        return f"{self.stage.dtype} {shape} {self._block(tuple(map(_by_place, block)))}"

    def _block(self, block: Block) -> str:
        return f"{{{'; '.join(map(self._statement, block))}}}"

    def _statement(self, statement: Statement) -> str:
        match statement:
            case For(axis, start, stop, body, parallel):
                bounds = f"{self._expr(start)}..{self._expr(stop)}"
                return f"for {self._name(axis)} {bounds} {parallel} {self._block(body)}"
            case If(cond, then, other):
                return f"if {self._expr(cond)} {self._block(then)} {self._block(other)}"
            case Assign(var, value):
                return f"{self._name(var)} {var.dtype} = {self._expr(value)}"
            case Store(buffer, indices, value) | Accumulate(buffer, indices, value):
                places = ",".join(map(self._expr, indices))
                kind = type(statement).__name__
                return f"{kind} {self._tensor(buffer)}[{places}] {self._expr(value)}"
        raise AssertionError(f"{type(statement).__name__} is no statement")

    def _expr(self, root: Expr) -> str:
        return fold(root, self._node)

    def _node(self, node: Expr, children: tuple[str, ...]) -> str:
        match node:
            case Axis() | Var():
                return self._name(node)
            case Read(tensor, _):
                return digest(self._tensor(tensor), *children)
            case Apply(op, _):
                inner = sorted(children) if op in COMMUTATIVE else children
                return digest(op.name, *inner)
            case Cast(_, dtype):
                return digest(dtype, *children)
        return digest(type(node).__name__, *children) if children else node.key

    def _name(self, node: Expr) -> str:
        """The number of an axis or a local, counted from where it first appears."""
        return self._names.setdefault(node, f"#{len(self._names)}")

    def _tensor(self, tensor: Tensor) -> str:
        return "itself" if tensor is self.stage else f"{tensor.name}:{tensor.key}"
