"""Where an adjoint holds, and the stages that are made on the way.

An adjoint of a scalar inside a stage belongs to a `Context`: the axes in scope, over which it is
summed in the end, and the guards under which it counts. Guards are kept beside the value, never
multiplied into it, so that NaN and inf of a side that was not chosen do not leak.

While adjoints are put together, the axes of the tensors they are for carry names with a marker,
so that nothing captures them; `finished` gives them plain ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from eqsatad.terms import ops
from eqsatad.terms.coerce import const
from eqsatad.terms.nodes import (
    FLOATS,
    MARKER,
    SUM,
    Apply,
    Axis,
    Const,
    Expr,
    Read,
    Reduce,
    Select,
    Stage,
    Tensor,
)
from eqsatad.terms.ranges import interval
from eqsatad.terms.scopes import Scopes, replace_free, stem
from eqsatad.terms.walk import conjunction, operands, program

# Float operations that are no multiplication, division or function call.
LIGHT = (ops.ADD, ops.SUB, ops.NEG, ops.MIN, ops.MAX, ops.ABS, ops.SIGN)


@dataclass(frozen=True, slots=True)
class Context:
    """The axes in scope and the conditions under which an adjoint counts."""

    scope: tuple[Axis, ...]
    guards: tuple[Expr, ...] = ()

    def within(self, axes: Iterable[Axis], conds: Iterable[Expr]) -> Context:
        """This context with more axes and guards, each guard once."""
        return Context((*self.scope, *axes), tuple(dict.fromkeys((*self.guards, *conds))))


class Names:
    """Names of tensors that are not taken yet."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)
        self.last: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """``wanted``, with a number where it is taken."""
        name = wanted
        while name in self.taken:
            self.last[wanted] = self.last.get(wanted, 0) + 1
            name = f"{wanted}_{self.last[wanted]}"
        self.taken.add(name)
        return name

    def reserve(self, tensor: Tensor) -> None:
        """Takes the names of ``tensor`` and of everything it is computed from."""
        self.taken.update(below.name for below in program([tensor]))


def hidden(name: str, extent: Expr, purpose: str) -> Axis:
    """An axis that no axis of a finished stage is; `finished` names it ``name``."""
    return Axis(f"{name}{MARKER}{purpose}", extent)


def finished(name: str, axes: Sequence[Axis], body: Expr) -> Stage:
    """The stage of ``body`` over ``axes``, all axes under plain names and none bound twice."""
    plain: dict[Axis, Axis] = {}
    names = Names(())
    for axis in axes:
        plain[axis] = Axis(names.fresh(stem(axis)), axis.extent)
    body = replace_free(Scopes(plain.values()).named(body), plain)
    return Stage(name, tuple(plain.values()), body)


def identity(name: str, shape: Sequence[Expr], dtype: str) -> Stage:
    """The stage that is 1 where its first axes are equal to its last ones, both of ``shape``."""
    first, last = ([hidden(f"{a}{n}", e, "head") for n, e in enumerate(shape)] for a in "pi")
    same = conjunction(p.equal(i) for p, i in zip(first, last, strict=True))
    return finished(name, (*first, *last), Select(same, const(1.0, dtype), const(0.0, dtype)))


def summed(axes: Sequence[Axis], conds: Sequence[Expr], value: Expr) -> Expr:
    """``value`` summed over ``axes`` where all of ``conds`` hold."""
    cond = conjunction(conds)
    if axes:
        return Reduce(SUM, tuple(axes), cond, value)
    return Select(cond, value, const(0.0, value.dtype)) if conds else value


def position(axes: Sequence[Axis]) -> Expr:
    """The row-major position of a point of ``axes``."""
    first, *rest = axes
    result: Expr = first
    for axis in rest:
        result = result * axis.extent + axis
    return result


class Anywhere:
    """Whether ``test`` holds for a node of an expression, remembered for every node seen."""

    def __init__(self, test: Callable[[Expr], bool]) -> None:
        self.test = test
        self.known: dict[Expr, bool] = {}

    def __call__(self, expr: Expr) -> bool:
        stack = [expr]
        while stack:
            node = stack[-1]
            if missing := [child for child in node.children if child not in self.known]:
                stack.extend(missing)
            else:
                stack.pop()
                below = any(self.known[child] for child in node.children)
                self.known[node] = below or self.test(node)
        return self.known[expr]


def works(node: Expr) -> bool:
    """Whether a node is a multiplication, division or call on floats, or a reduction."""
    if isinstance(node, Apply):
        return node.dtype in FLOATS and node.op not in LIGHT
    return isinstance(node, Reduce)


def may_leave(node: Expr) -> bool:
    """Whether a node is a read that is not in range wherever its axes are."""
    return isinstance(node, Read) and not all(map(_inside, node.indices, node.tensor.shape))


def _inside(index: Expr, extent: Expr) -> bool:
    if isinstance(index, Axis) and index.extent is extent:
        return True
    low, room = interval(index)[0], interval(extent - 1 - index)[0]
    return low is not None and low >= 0 and room is not None and room >= 0


def factors(expr: Expr) -> list[Expr]:
    """What is multiplied, or divided by, in ``expr``."""
    return list(operands(expr, ops.MUL, ops.DIV, ops.NEG))


def covers(expr: Expr, axes: frozenset[Axis]) -> bool:
    """Whether no sum over one of ``axes`` can leave ``expr`` outside."""
    return isinstance(expr, Const) or expr.free >= axes
