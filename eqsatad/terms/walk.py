"""Walks over terms: iterative, once per distinct node, deterministic in order.

Everything that looks at or rebuilds terms goes through here, so that a program of thousands of
stages neither recurses out nor visits a shared node twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import TypeVar
from weakref import WeakKeyDictionary

from eqsatad.terms.nodes import (
    TRUE,
    Apply,
    Axis,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Scatter,
    Select,
    Stage,
    Tensor,
)
from eqsatad.terms.ops import AND, Op
from eqsatad.terms.origin import built_at

T = TypeVar("T")
K = TypeVar("K", bound=Expr)


def postorder(*roots: Expr) -> list[Expr]:
    """Every distinct node under ``roots``, children before parents."""
    order: list[Expr] = []
    seen: set[Expr] = set()
    # None says that the node below it has all its children in order.
    stack: list[Expr | None] = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node is None:
            ready = stack.pop()
            assert ready is not None, "None stands on a node"
            order.append(ready)
        elif node not in seen:
            seen.add(node)
            if children := node.children:
                stack += (node, None, *reversed(children))
            else:
                order.append(node)
    return order


def fold(root: Expr, visit: Callable[[Expr, tuple[T, ...]], T]) -> T:
    """``visit(node, results of its children)`` bottom-up; returns the result of ``root``."""
    results: dict[Expr, T] = {}
    for node in postorder(root):
        results[node] = visit(node, tuple([results[child] for child in node.children]))
    return results[root]


def with_children(node: Expr, children: tuple[Expr, ...]) -> Expr:
    """``node`` over other children; the same object when they are the same."""
    if children == node.children:
        return node
    match node:
        case Apply(op, _):
            return Apply(op, children)
        case Cast(_, dtype):
            return Cast(children[0], dtype)
        case Select():
            return Select(*children)
        case Read(tensor, _):
            return Read(tensor, children)
        case Reduce(combiner, axes, _, _):
            return Reduce(combiner, axes, *children)
    return node


def transform(root: Expr, visit: Callable[[Expr], Expr]) -> Expr:
    """``root`` rebuilt bottom-up, each node (over its new children) replaced by ``visit(node)``."""
    return fold(root, lambda node, children: visit(with_children(node, children)))


def substitute(root: Expr, mapping: Mapping[K, Expr]) -> Expr:
    """``root`` with every node in ``mapping`` replaced, all at once and without capture.

    What a reduction inside ``root`` binds is not the axis of the mapping, even if it is spelled
    the same.
    """
    table: dict[Expr, Expr] = dict(mapping.items())
    done: dict[tuple[Expr, frozenset[Expr]], Expr] = {}
    stack = [(root, frozenset(table))]
    while stack:
        node, active = item = stack[-1]
        # A key that mentions an axis which is not free here cannot occur here.
        keys = frozenset(key for key in active if key.free <= node.free)
        if item in done or node in keys or not keys:
            done.setdefault(item, table[node] if node in keys else node)
            stack.pop()
            continue
        inner, below = _entered(node, keys, table) if isinstance(node, Reduce) else (node, keys)
        missing = [(child, below) for child in inner.children if (child, below) not in done]
        if missing:
            stack.extend(reversed(missing))
            continue
        done[item] = with_children(inner, tuple(done[child, below] for child in inner.children))
        stack.pop()
    return done[root, frozenset(table)]


def _entered(
    node: Reduce, keys: frozenset[Expr], mapping: Mapping[Expr, Expr]
) -> tuple[Reduce, frozenset[Expr]]:
    """``node`` with axes that no replacement mentions, and the keys that still mean the same."""
    own = frozenset(node.axes)
    keys = frozenset(key for key in keys if not key.free & own)
    arriving = frozenset[Axis]().union(*(mapping[key].free for key in keys))
    if not own & arriving:
        return node, keys
    taken = {axis.name for axis in arriving | node.body.free | node.cond.free}
    renamed = {axis: fresh(axis, taken) for axis in node.axes if axis in arriving}
    return rename(node, renamed), keys


def fresh(axis: Axis, taken: set[str]) -> Axis:
    """An axis like ``axis`` under a name not in ``taken``, to which it is added."""
    stem = axis.name.rsplit("_", 1)[0] if axis.name.rsplit("_", 1)[-1].isdigit() else axis.name
    number = 1
    while f"{stem}_{number}" in taken:
        number += 1
    taken.add(f"{stem}_{number}")
    return Axis(f"{stem}_{number}", axis.extent)


def rename(node: Reduce, renamed: Mapping[Axis, Axis]) -> Reduce:
    """``node`` with its own axes spelled otherwise."""
    axes = tuple(renamed.get(axis, axis) for axis in node.axes)
    cond, body = (substitute(child, renamed) for child in node.children)
    return Reduce(node.combiner, axes, cond, body)


def reads(*roots: Expr) -> list[Read]:
    """Every distinct read under ``roots``, in order of first use."""
    return [node for node in postorder(*roots) if isinstance(node, Read)]


def sources(tensor: Tensor) -> list[Tensor]:
    """The tensors that ``tensor`` reads, each once, in order of first use."""
    if not isinstance(tensor, Stage):
        return []
    if (found := _sources.get(tensor)) is None:
        found = tuple(dict.fromkeys(read.tensor for read in reads(*tensor.roots)))
        _sources[tensor] = found
    return list(found)


# Every pass asks, for every stage.
_sources: WeakKeyDictionary[Stage, tuple[Tensor, ...]] = WeakKeyDictionary()


def program(outputs: Iterable[Tensor]) -> list[Tensor]:
    """Every tensor that ``outputs`` need, sources before their readers."""
    order: list[Tensor] = []
    seen: set[Tensor] = set()
    stack = [(tensor, False) for tensor in reversed(list(outputs))]
    while stack:
        tensor, ready = stack.pop()
        if ready:
            order.append(tensor)
        elif tensor not in seen:
            seen.add(tensor)
            stack.append((tensor, True))
            stack.extend((source, False) for source in reversed(sources(tensor)))
    return order


def operands(root: Expr, *through: Op) -> Iterator[Expr]:
    """What the nested operations ``through`` at the top of ``root`` are applied to, in order."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Apply) and node.op in through:
            stack.extend(reversed(node.args))
        else:
            yield node


def joined(op: Op, terms: Iterable[Expr]) -> Expr:
    """``terms``, at least one, under the binary operation ``op``, from left to right."""
    return reduce(lambda left, right: Apply(op, (left, right)), terms)


def conjuncts(cond: Expr) -> Iterator[Expr]:
    """The conditions whose conjunction is ``cond``; none for true."""
    return (part for part in operands(cond, AND) if part is not TRUE)


def conjunction(conds: Iterable[Expr]) -> Expr:
    """The condition that all of ``conds`` hold, each once."""
    result: Expr = TRUE
    for cond in dict.fromkeys(conds):
        if cond is not TRUE:
            result = cond if result is TRUE else Apply(AND, (result, cond))
    return result


def constant(expr: Expr) -> int | None:
    """The value of an integer literal, else None."""
    return expr.value if isinstance(expr, Const) and expr.dtype == "index" else None


def map_stage(stage: Stage, change: Callable[[Expr], Expr]) -> Stage:
    """``stage`` with ``change`` applied to each of its expressions."""
    scatters = tuple(
        Scatter(s.axes, change(s.cond), tuple(map(change, s.indices)), change(s.value))
        for s in stage.scatters
    )
    body = change(stage.body)
    with built_at(stage.built):
        return Stage(stage.name, stage.axes, body, scatters)
