"""Expressions of the term language to trees and normal forms, and back.

Whatever the simplifier does not look into (reads, casts, data) is a variable to it. Axes and
sizes bring their ranges along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from eqsatad.errors import ArgumentError, DtypeError
from eqsatad.rules import index_conditions as conds
from eqsatad.rules import index_forms as forms
from eqsatad.rules.index_forms import Node
from eqsatad.rules.index_ranges import Interval
from eqsatad.terms import builders
from eqsatad.terms.coerce import const
from eqsatad.terms.division import DERIVED, divided
from eqsatad.terms.nodes import Apply, Axis, Cast, Const, Expr, Select, Size
from eqsatad.terms.ranges import interval

Tree = Any

NAMES = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "neg": "neg",
    "floordiv": "div",
    "mod": "mod",
    "min": "min",
    "max": "max",
    "abs": "abs",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "and": "and",
    "or": "or",
    "not": "not",
}


class Names:
    """The variables of one question: names for the nodes that are not looked into."""

    def __init__(self) -> None:
        self.nodes: dict[str, Expr] = {}
        self.bounds: dict[str, Interval] = {}
        self._given: dict[Expr, str] = {}

    def of(self, node: Expr) -> str:
        """The name of ``node``, which is unique among the names given so far."""
        if node not in self._given:
            stem = str(getattr(node, "name", "value"))
            name, number = stem, 1
            while name in self.nodes:
                name, number = f"{stem}_{number}", number + 1
            self._given[node] = name
            self.nodes[name] = node
            if node.dtype == "index":
                self.bounds[name] = interval(node)
        return self._given[node]

    def tree(self, expr: Expr) -> Tree:
        """``expr`` as a tree."""
        known: dict[Expr, Tree] = {}

        def visit(node: Expr) -> Tree:
            if node not in known:
                known[node] = self._node(node, visit)
            return known[node]

        return visit(expr)

    def _node(self, node: Expr, visit: Callable[[Expr], Tree]) -> Tree:
        if (found := divided(node)) is not None:
            name, a, b = found
            return (name, visit(a), visit(b))
        match node:
            case Const(bool(value), _):
                return str(value).lower()
            case Const(value, "index"):
                return value
            case Apply(op, args) if op.name in NAMES and self._plain(args):
                return (NAMES[op.name], *map(visit, args))
            case Select(cond, then, other) if self._plain((then,)):
                return ("select", visit(cond), visit(then), visit(other))
            case Cast(arg, "index") if arg.dtype == "bool":
                return ("select", visit(arg), 1, 0)
        return self.of(node)

    @staticmethod
    def _plain(args: tuple[Expr, ...]) -> bool:
        return all(arg.dtype in ("index", "bool") for arg in args)

    def node(self, tree: Tree) -> Node:
        """The normal form of a tree."""
        if isinstance(tree, int):
            return forms.number(tree)
        if isinstance(tree, str):
            if tree in ("true", "false"):
                return (tree,)
            return ("b", tree) if self.nodes[tree].dtype == "bool" else forms.variable(tree)
        name, *args = tree
        return NORMAL[name](*map(self.node, args))

    def facts(self) -> list[Node]:
        """What is known about the variables: extents of axes, and what sizes promise."""
        known = []
        pending = list(self.nodes)
        # An extent may bring a size along, which is then one more name.
        while pending:
            name = pending.pop(0)
            node, before = self.nodes[name], len(self.nodes)
            if isinstance(node, Axis):
                extent = self.node(self.tree(node.extent))
                known.append(_below(forms.variable(name), extent))
            elif isinstance(node, Size) and node.multiple_of > 1:
                known.append(_multiple(forms.variable(name), node.multiple_of))
            pending += list(self.nodes)[before:]
        return known

    def expr(self, tree: Tree) -> Expr:
        """The expression that ``tree`` spells."""
        if isinstance(tree, int):
            return Const(tree, "index")
        if isinstance(tree, str):
            return Const(tree == "true", "bool") if tree in ("true", "false") else self.nodes[tree]
        name, *args = tree
        if name in MIRRORED and isinstance(args[0], int):
            name, args = MIRRORED[name], args[::-1]
        return EXPRS[name](*map(self.expr, args))


def _below(left: Node, right: Node) -> Node:
    return conds.at_least(forms.shifted(forms.minus(right, left), -1))


def _multiple(form: Node, of: int) -> Node:
    return conds.is_zero(forms.minus(form, forms.scaled(forms.floor(form, of), of)))


def _equal(left: Node, right: Node) -> Node:
    if conds.is_cond(left):
        return conds.same_truth(left, right)
    return conds.is_zero(forms.minus(left, right))


def _chosen(cond: Node, then: Node, other: Node) -> Node:
    build = conds.choose_cond if conds.is_cond(then) else conds.select
    return build(cond, then, other)


NORMAL: dict[str, Callable[..., Node]] = {
    "+": forms.plus,
    "-": forms.minus,
    "*": forms.times,
    "neg": lambda a: forms.scaled(a, -1),
    "div": forms.quotient,
    "mod": lambda a, b: forms.minus(a, forms.times(b, forms.quotient(a, b))),
    "tdiv": forms.truncated,
    "tmod": lambda a, b: forms.minus(a, forms.times(b, forms.truncated(a, b))),
    "ediv": forms.euclidean,
    "emod": forms.euclidean_rest,
    "min": conds.minimum,
    "max": conds.maximum,
    "abs": conds.absolute,
    "select": _chosen,
    "<": _below,
    "<=": lambda a, b: conds.at_least(forms.minus(b, a)),
    ">": lambda a, b: _below(b, a),
    ">=": lambda a, b: conds.at_least(forms.minus(a, b)),
    "==": _equal,
    "!=": lambda a, b: conds.negation(_equal(a, b)),
    "and": conds.both,
    "or": conds.either,
    "not": conds.negation,
}

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
"""Comparisons from the other side: numbers are written on the right."""

EXPRS: dict[str, Callable[..., Expr]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "neg": lambda a: -a,
    "div": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    **DERIVED,
    "min": builders.minimum,
    "max": builders.maximum,
    "abs": builders.abs,
    "select": builders.select,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a.equal(b),
    "!=": lambda a, b: a.differs(b),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "not": lambda a: ~a,
}


def accepted(given: Any, what: str) -> Expr:
    """``given`` if it is an index expression or a condition; a number is a literal."""
    expr = const(given) if isinstance(given, int | np.integer | np.bool_) else given
    if not isinstance(expr, Expr) or expr.dtype not in ("index", "bool"):
        found = expr.dtype if isinstance(expr, Expr) else type(expr).__name__
        raise DtypeError(
            f"{what} takes index expressions and conditions; found {found}:\n    {expr!r}\n"
            "Cast integer data to 'index'."
        )
    return expr


def conditions(given: Any, what: str, takes: str = "conditions") -> list[Expr]:
    """The conditions that ``given`` is: one or several."""
    found = [accepted(one, what) for one in ([given] if _alone(given) else given)]
    for cond in found:
        if cond.dtype != "bool":
            raise ArgumentError(
                f"{what} takes {takes}; found the index expression {cond!r}. "
                f"Compare it, for example {cond!r} >= 0."
            )
    return found


def _alone(given: Any) -> bool:
    return isinstance(given, Expr | str) or not isinstance(given, Iterable)


def spans(bounds: Any, what: str) -> dict[Expr, Interval]:
    """The least and greatest values that ``bounds`` gives of variables."""
    if not isinstance(bounds, Mapping):
        raise ArgumentError(
            f"{what} takes bounds as {{variable: (least, greatest)}}; found {bounds!r}."
        )
    for variable, span in bounds.items():
        if not isinstance(variable, Expr) or not isinstance(Names().tree(variable), str):
            raise ArgumentError(f"{what} takes bounds of variables; found those of {variable!r}.")
        if variable.dtype != "index":
            raise ArgumentError(f"the condition {variable!r} has no bounds; use assume=.")
        if not isinstance(span, tuple | list) or len(span) != 2 or not all(map(_is_end, span)):
            raise ArgumentError(
                f"the bounds of {variable!r} are a pair (least, greatest) of integers, "
                f"None for no bound; found {span!r}."
            )
        low, high = span
        if low is not None and high is not None and low > high:
            raise ArgumentError(
                f"the bounds of {variable!r} leave no value: {low} is above {high}. "
                "The second of the pair is the greatest value."
            )
    return {variable: (_whole(low), _whole(high)) for variable, (low, high) in bounds.items()}


def _is_end(end: Any) -> bool:
    return end is None or isinstance(end, int | np.integer)


def _whole(end: Any) -> int | None:
    return None if end is None else int(end)
