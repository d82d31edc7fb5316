"""How long statements take, roughly: what decides whether threads are worth waking.

In picoseconds, as an index expression of sizes. Bounds that depend on outer loops are taken at
the middle of these loops; a loop whose bounds are data or locals is taken to run in full. Of a
condition both sides count, but what is done where a local is above a constant is an exception: the
results that are worked out again, see `repairs`.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsatad.loops.nest import Accumulate, Assign, Block, For, If, Statement, Store
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Apply, Const, Expr, Read, Var
from eqsatad.terms.ops import ADD, FLOORDIV, MAX, MUL, NE, OPS, SUB, Op
from eqsatad.terms.walk import postorder, substitute

OPERATION = 200
FUNCTION = 2000
_CHEAP = {"add", "sub", "mul", "neg", "min", "max", "abs", "floor", "ceil", "round", "trunc"}
COSTS: dict[Op, int] = {
    op: FUNCTION if op.kind == "function" and op.name not in _CHEAP else OPERATION
    for op in OPS.values()
}


def index(number: int) -> Expr:
    return Const(number, "index")


def effort(block: Block, middles: Mapping[Expr, Expr] | None = None) -> Expr:
    """The time that ``block`` takes, given values for the axes of the loops around it."""
    total = index(0)
    for statement in block:
        total = Apply(ADD, (total, _one(statement, middles or {})))
    return normal(total)


def trips(loop: For, middles: Mapping[Expr, Expr]) -> Expr:
    """How often the body of ``loop`` runs."""
    start, stop = (substitute(bound, middles) for bound in (loop.start, loop.stop))
    return Apply(MAX, (normal(Apply(SUB, (stop, start))), index(0)))


def _one(statement: Statement, middles: Mapping[Expr, Expr]) -> Expr:
    match statement:
        case For(axis, start, stop, body) if not _foreseen(start, stop):
            return _one(For(axis, index(0), axis.extent, body), middles)
        case For(axis, start, stop, body):
            middle = Apply(FLOORDIV, (Apply(ADD, (start, stop)), index(2)))
            inner = effort(body, {**middles, axis: substitute(middle, middles)})
            return Apply(MUL, (trips(statement, middles), inner))
        case If(Apply(op, (Var() as total, Var() as same)) as cond, _, other) if (
            op is NE and total is same
        ):
            # What is done where a total is NaN is an exception.
            return Apply(ADD, (index(_values(cond)), effort(other, middles)))
        case If(cond, then, other):
            sides = Apply(ADD, (effort(then, middles), effort(other, middles)))
            return Apply(ADD, (index(_values(cond)), sides))
        case Assign(_, value):
            return index(_values(value))
        case Store(_, indices, value) | Accumulate(_, indices, value):
            return index(OPERATION + _values(value, *indices))
    raise AssertionError(f"{type(statement).__name__} is no statement")


def _foreseen(*bounds: Expr) -> bool:
    """Whether bounds are known before the program runs."""
    return not any(isinstance(node, Read | Var) for node in postorder(*bounds))


def _values(*exprs: Expr) -> int:
    total = 0
    for node in postorder(*exprs):
        if isinstance(node, Read):
            total += OPERATION
        elif isinstance(node, Apply) and node.dtype != "index":
            total += COSTS[node.op]
    return total
