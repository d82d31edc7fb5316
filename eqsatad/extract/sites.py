"""What a program executes: which part of a stage is worked out under which loops.

Everything runs in the innermost loop around it, except that a reduction is worked out once for
the leading loops it depends on, and that equal parts in one loop body are worked out once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from eqsatad.extract.cost import CostModel
from eqsatad.rules.values import is_value
from eqsatad.terms.nodes import Apply, Axis, Cast, Expr, Read, Reduce, Select, Stage
from eqsatad.terms.ops import DIV, MUL, NEG
from eqsatad.terms.walk import conjuncts


class Loop(NamedTuple):
    """An axis and the reduction that runs it; None for the axes of the stage."""

    axis: Axis
    owner: Expr | None


Loops = tuple[Loop, ...]


def parts(node: Expr) -> tuple[Expr, ...]:
    """The values directly below ``node``; what indices and conditions hold is not counted."""
    match node:
        case Select(_, then, other):
            return (then, other)
        case Reduce(_, _, _, body):
            return (body,)
        case Apply() | Cast():
            return tuple(child for child in node.children if is_value(child))
    return ()


def price(node: Expr, model: CostModel) -> float:
    """The cost of evaluating ``node`` once, its parts and repetitions aside."""
    match node:
        case Read():
            return model.read
        case Reduce(_, _, cond, _):
            return model.add + model.guard * sum(1 for _ in conjuncts(cond))
        case Select(cond, _, _):
            return model.guard * sum(1 for _ in conjuncts(cond))
        case Apply(op, _) if op is MUL:
            return model.multiply
        case Apply(op, _) if op is DIV:
            return model.divide
        case Apply(op, _) if op is NEG:
            return model.negate
        case Apply(op, _):
            return model.function(op.name)
    return 0.0


def sites(body: Expr, axes: Sequence[Axis]) -> Iterator[tuple[Expr, Loops]]:
    """Every part of a stage that is executed, with the loops around it, each once."""
    seen: set[tuple[Expr, Loops]] = set()
    stack: list[tuple[Expr, Loops]] = [(body, tuple(Loop(axis, None) for axis in axes))]
    while stack:
        node, loops = stack.pop()
        if isinstance(node, Reduce):
            loops = leading(loops, node.free)
        if (node, loops) in seen:
            continue
        seen.add((node, loops))
        yield node, loops
        inner = loops
        if isinstance(node, Reduce):
            inner = (*loops, *(Loop(axis, node) for axis in node.axes))
        stack.extend((part, inner) for part in parts(node))


def leading(loops: Loops, free: frozenset[Axis]) -> Loops:
    """The shortest start of ``loops`` that binds all of ``free``."""
    last = max((n for n, loop in enumerate(loops) if loop.axis in free), default=-1)
    return loops[: last + 1]


def runs(node: Expr, loops: Loops, model: CostModel) -> int:
    """How often ``node`` is executed at ``loops``; a reduction counts its points."""
    own = node.axes if isinstance(node, Reduce) else ()
    return model.volume((*(loop.axis for loop in loops), *own))


def executed(stages: Sequence[Stage], model: CostModel) -> float:
    """The cost of running ``stages`` once."""
    total = 0.0
    for stage in stages:
        looping = False
        for node, loops in sites(stage.body, stage.axes):
            looping |= isinstance(node, Reduce)
            total += price(node, model) * runs(node, loops, model)
        written = model.store + (0.0 if looping else model.add)
        total += written * model.volume(stage.axes)
    return total
