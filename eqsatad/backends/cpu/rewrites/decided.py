"""Conditions that the loops around them decide: a program of sizes in, an equal one out.

Where extents are numbers, lowering finds that a condition always holds. Of sizes it is said by the
loops: the phase ``2*i`` of ``h`` rows has ``(h + 1) // 2`` of them, and is asked whether it has.
What is left is a nest of sums without conditions that the other passes recognise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from eqsatad.loops.nest import (
    Assign,
    Block,
    For,
    If,
    LoopProgram,
    Nest,
    Statement,
    replaced,
    rewritten,
    scheduled,
    statements,
)
from eqsatad.terms.nodes import Apply, Axis, Expr, Read, Select, Var
from eqsatad.terms.ops import EQ, GE, LT, NOT
from eqsatad.terms.presburger import implied
from eqsatad.terms.walk import conjunction, conjuncts, postorder, transform

Facts = tuple[Expr, ...]


def decided(program: LoopProgram) -> LoopProgram:
    """``program`` without conditions that always hold, or never, where they are asked."""
    nests = tuple(
        nest if scheduled(nest.body) else Nest(nest.stage, tuple(_block(_spelled(nest.body), ())))
        for nest in program.nests
    )
    return replace(program, nests=nests)


def _spelled(block: Block) -> Block:
    """``block``, the body of a nest, without locals that are worked out of sizes alone.

    Their loops are independent then, and steps of their own.
    """
    for place, statement in enumerate(block):
        match statement:
            case Assign(var, value) if _constant(value) and _once(var, block):
                rest = replaced(block[place + 1 :], {var: value})
                return _spelled((*block[:place], *rest))
    return block


def _constant(value: Expr) -> bool:
    """Whether ``value`` is made of sizes alone."""
    inner = (isinstance(node, Axis | Read | Var) for node in postorder(value))
    return value.dtype == "index" and not any(inner)


def _block(block: Block, facts: Facts) -> Iterator[Statement]:
    for statement in block:
        match statement:
            case For(axis, start, stop, body):
                inside = (*facts, Apply(GE, (axis, start)), Apply(LT, (axis, stop)))
                inner = tuple(_block(body, inside))
                yield replace(statement, body=_direct(inner) if statement.parallel else inner)
            case If(cond, then, other):
                yield from _chosen(cond, then, other, facts)
            case _:
                (plain,) = rewritten((statement,), partial(_expr, facts))
                if isinstance(plain, Assign) and plain.value.dtype == "index":
                    facts = (*facts, Apply(EQ, (plain.var, plain.value)))
                yield plain


def _chosen(cond: Expr, then: Block, other: Block, facts: Facts) -> Iterator[Statement]:
    """The side that ``cond`` chooses, or both under what is left of it."""
    left = _undecided(cond, facts)
    if not left:
        yield from _block(then, facts)
    elif _never(cond, facts):
        yield from _block(other, facts)
    else:
        inside = tuple(_block(then, (*facts, *filter(_asked, left))))
        yield If(conjunction(left), inside, tuple(_block(other, facts)))


def _undecided(cond: Expr, facts: Facts) -> list[Expr]:
    """The parts of ``cond`` that ``facts`` do not imply."""
    return [part for part in conjuncts(cond) if not (_asked(part) and implied(part, facts))]


def _never(cond: Expr, facts: Facts) -> bool:
    return any(_asked(part) and implied(Apply(NOT, (part,)), facts) for part in conjuncts(cond))


def _asked(cond: Expr) -> bool:
    """Whether ``cond`` is about indices alone."""
    return not any(isinstance(node, Read) for node in postorder(cond))


def _expr(facts: Facts, root: Expr) -> Expr:
    """``root`` without what its selections need not ask."""

    def visit(node: Expr) -> Expr:
        if not isinstance(node, Select):
            return node
        left = _undecided(node.cond, facts)
        return Select(conjunction(left), node.then, node.other) if left else node.then

    return transform(root, visit)


def _direct(block: Block) -> Block:
    """``block``, the body of a parallel loop, without locals that are another local's value."""
    for place, statement in enumerate(block):
        match statement:
            case Assign(var, Var() as source) if _once(var, block) and not _set(
                source, block[place + 1 :]
            ):
                rest = replaced(block[place + 1 :], {var: source})
                return _direct((*block[:place], *rest))
    return block


def _once(var: Var, block: Block) -> bool:
    return sum(isinstance(each, Assign) and each.var is var for each in statements(block)) == 1


def _set(var: Var, block: Block) -> bool:
    return any(isinstance(each, Assign) and each.var is var for each in statements(block))
