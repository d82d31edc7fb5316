"""What keeps reads in range when a value is moved: parts that are stored, conditions in order.

Where a value stood, conditions around it may have kept its reads in range. A part that is stored
is worked out at every point of its own box, so a read that is not proved to stay inside is
guarded there; where the guard fails the part is wanted by nobody, so its value does not matter.
"""

from __future__ import annotations

from eqsatad.terms.checks import depends_on_data, guarded, surely_inside, within
from eqsatad.terms.coerce import const
from eqsatad.terms.nodes import FALSE, Apply, Const, Expr, Read, Reduce, Scatter, Select, Stage
from eqsatad.terms.ops import GE, LT
from eqsatad.terms.walk import (
    conjunction,
    conjuncts,
    fold,
    map_stage,
    postorder,
    reads,
    with_children,
)

ZERO = Const(0, "index")


def total(body: Expr, *, tested: bool) -> Expr:
    """``body`` with a value at every point of its axes, and the same where it had one.

    ``tested`` says that conditions on data stood around it: they may be what kept a position
    that is data in range.
    """
    # Only then what nothing guards is read at every point.
    body = fold(body, _ordered)
    suspects = {
        read for read in reads(body) if not all(map(surely_inside, read.indices, read.tensor.shape))
    }
    outside: list[Expr] = []
    inside: dict[Read, list[Expr]] = {}
    for read, around in guarded(body, (), suspects):
        conds = _range(read, around, tested)
        # A read that nothing guards is made at every point, so its guard may stand around all.
        alone = [cond for cond in conds if not around and cond.free <= body.free]
        outside += alone
        inside.setdefault(read, []).extend(cond for cond in conds if cond not in alone)

    def visit(node: Expr, children: tuple[Expr, ...]) -> Expr:
        rebuilt = with_children(node, children)
        conds = inside.get(node, []) if isinstance(node, Read) else []
        return _guarded(conds, rebuilt)

    return _guarded(outside, fold(body, visit))


def _range(read: Read, around: tuple[Expr, ...], tested: bool) -> list[Expr]:
    """The conditions, of those that keep ``read`` in range, that ``around`` does not imply."""
    found: list[Expr] = []
    for index, extent in zip(read.indices, read.tensor.shape, strict=True):
        inside = not tested if depends_on_data(index) else within(index, extent, around)
        if not inside:
            found += [Apply(GE, (index, ZERO)), Apply(LT, (index, extent))]
    return found


def tests_data(expr: Expr) -> bool:
    """Whether ``expr`` has a condition on data in it."""
    return any(_on_data(node.cond) for node in postorder(expr) if isinstance(node, Select | Reduce))


def _guarded(conds: list[Expr], value: Expr) -> Expr:
    if not conds:
        return value
    zero = FALSE if value.dtype == "bool" else const(0, value.dtype)
    return Select(conjunction(sorted(conds, key=_reads_deep)), value, zero)


def in_order(stage: Stage) -> Stage:
    """``stage`` with conditions on indices before those on data, which may rely on them."""
    moved = map_stage(stage, lambda root: fold(root, _ordered))
    scatters = tuple(Scatter(s.axes, _sorted(s.cond), s.indices, s.value) for s in moved.scatters)
    return Stage(moved.name, moved.axes, moved.body, scatters)


def _ordered(node: Expr, children: tuple[Expr, ...]) -> Expr:
    node = with_children(node, children)
    match node:
        case Select(cond, Select(inner, then, other), outer) if (
            other is outer and _on_data(cond) and not _on_data(inner)
        ):
            return Select(_sorted(conjunction((*conjuncts(inner), *conjuncts(cond)))), then, other)
        case Select(cond, then, other):
            return Select(_sorted(cond), then, other)
        case Reduce(combiner, axes, cond, body):
            return Reduce(combiner, axes, _sorted(cond), body)
    return node


def _sorted(cond: Expr) -> Expr:
    parts = list(conjuncts(cond))
    ordered = sorted(parts, key=_reads_deep)
    return cond if ordered == parts else conjunction(ordered)


def _on_data(cond: Expr) -> bool:
    return _reads_deep(cond) > 0


def _reads_deep(cond: Expr) -> int:
    """How many reads lie in each other in ``cond``: one that lies deeper is to be guarded first."""

    def visit(node: Expr, below: tuple[int, ...]) -> int:
        return max(below, default=0) + isinstance(node, Read)

    return fold(cond, visit)
