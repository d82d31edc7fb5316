"""Axes of finished stages under names that people wrote, distinct in every scope."""

from __future__ import annotations

from eqsatad.terms.nodes import Axis, Expr, Reduce, Stage
from eqsatad.terms.walk import fold, postorder, substitute, with_children


def readable(stage: Stage, names: dict[str, str]) -> Stage:
    """``stage`` with axes under the names they had, distinct in every scope."""
    own: dict[Expr, Expr] = {}
    taken: set[str] = set()
    for axis in stage.axes:
        own[axis] = named(axis, names, taken)

    def visit(node: Expr, children: tuple[Expr, ...]) -> Expr:
        node = with_children(node, children)
        if not isinstance(node, Reduce):
            return node
        avoid = taken | {
            axis.name
            for inner in postorder(*node.children)
            for axis in (inner.axes if isinstance(inner, Reduce) else inner.free)
        }
        renamed: dict[Expr, Expr] = {axis: named(axis, names, avoid) for axis in node.axes}
        cond, body = (substitute(child, renamed) for child in node.children)
        return Reduce(node.combiner, _axes(renamed), cond, body)

    body = fold(stage.body, visit)
    return Stage(stage.name, _axes(own), substitute(body, own), stage.scatters)


def _axes(renamed: dict[Expr, Expr]) -> tuple[Axis, ...]:
    return tuple(axis for axis in renamed.values() if isinstance(axis, Axis))


def named(axis: Axis, names: dict[str, str], avoid: set[str]) -> Axis:
    """``axis`` under its source name, numbered if that is in ``avoid``, to which it is added."""
    stem = axis.name.split("@")[0]
    while stem not in names and (shorter := stem.rpartition("_"))[2].isdigit():
        stem = shorter[0]
    stem = name = names.get(stem, stem)
    number = 0
    while name in avoid:
        number += 1
        name = f"{stem}_{number}"
    avoid.add(name)
    return Axis(name, axis.extent)
