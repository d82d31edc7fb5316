"""Names of bound axes within one stage: no reduction binds a name that is in scope around it.

`builders.reduce_axis` gives every axis a name of its own (``k'7``, printed as ``k``), so that two
calls never mean the same axis. A finished stage gets plain names, which depend on the stage only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eqsatad.terms.nodes import MARKER, Axis, Expr, Reduce
from eqsatad.terms.walk import fold, with_children


def stem(axis: Axis) -> str:
    """The name of ``axis`` as it was given."""
    return axis.name.split(MARKER, 1)[0]


def replace_free(root: Expr, mapping: Mapping[Axis, Axis]) -> Expr:
    """``root`` with the axes of ``mapping`` replaced where they are free, bound ones untouched."""
    axes = frozenset(mapping)

    def visit(node: Expr, children: tuple[Expr, ...]) -> Expr:
        if not node.free & axes:
            return node
        if isinstance(node, Reduce) and axes & frozenset(node.axes):
            rest = {axis: to for axis, to in mapping.items() if axis not in node.axes}
            return with_children(node, tuple(replace_free(child, rest) for child in node.children))
        return mapping[node] if isinstance(node, Axis) else with_children(node, children)

    return fold(root, visit)


def replace_all(root: Expr, mapping: Mapping[Axis, Axis]) -> Expr:
    """``root`` with the axes of ``mapping`` replaced wherever they occur and are bound."""

    def visit(node: Expr, children: tuple[Expr, ...]) -> Expr:
        if isinstance(node, Reduce):
            axes = tuple(mapping.get(axis, axis) for axis in node.axes)
            return Reduce(node.combiner, axes, *children)
        return mapping.get(node, node) if isinstance(node, Axis) else with_children(node, children)

    return fold(root, visit)


class Scopes:
    """Gives the bound axes of one stage their final names.

    Equal names mean equal extents within a stage, and an axis is named after what is bound
    inside its reduction, so inner reductions keep the shorter names and stay shared.
    """

    def __init__(self, outer: Iterable[Axis]) -> None:
        self.outer = {axis.name for axis in outer}
        self.extents = {axis.name: axis.extent for axis in outer}

    def named(self, root: Expr) -> Expr:
        """``root`` with its reductions over axes of final names."""
        inside: dict[Expr, frozenset[str]] = {}

        def visit(node: Expr, children: tuple[Expr, ...]) -> Expr:
            node = with_children(node, children)
            bound = frozenset[str]().union(*(inside[child] for child in node.children))
            if isinstance(node, Reduce):
                node = self._renamed(node, bound)
                bound |= {axis.name for axis in node.axes}
            inside[node] = bound | inside.get(node, frozenset())
            return node

        return fold(root, visit)

    def _renamed(self, node: Reduce, bound: frozenset[str]) -> Reduce:
        taken = {*self.outer, *bound, *(axis.name for axis in node.free)}
        mapping: dict[Axis, Axis] = {}
        for axis in node.axes:
            mapping[axis] = Axis(self.name(axis, taken), axis.extent)
        cond, body = (replace_free(child, mapping) for child in node.children)
        return Reduce(node.combiner, tuple(mapping.values()), cond, body)

    def name(self, axis: Axis, taken: set[str]) -> str:
        """A name for ``axis`` outside ``taken``, to which it is added."""
        plain = name = stem(axis)
        number = 0
        while name in taken or self.extents.setdefault(name, axis.extent) is not axis.extent:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name)
        return name
