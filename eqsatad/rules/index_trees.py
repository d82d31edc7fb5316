"""Trees: nested tuples ``(operator, operand, ...)`` over names and integers, and their measure.

`operators` counts a tree as `docs/simplifier.md` defines it: sums flat, signs free, n-ary minima
and connectives n-1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

Tree = Any
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
Term = tuple[int, Tree]
"""A sign and what is added with it."""


@lru_cache(maxsize=1 << 16)
def operators(tree: Tree) -> int:
    """The number of operators of ``tree``: see the measure in `docs/simplifier.md`."""
    if not isinstance(tree, tuple):
        return 0
    name, *args = tree
    if name in ("+", "-", "neg") or (name == "*" and -1 in args):
        terms = list(_terms(tree, 1))
        negative = not any(sign > 0 for sign, _ in terms)
        return len(terms) - 1 + negative + sum(operators(part) for _, part in terms)
    if name == "not" and isinstance(args[0], tuple) and args[0][0] in COMPARISONS:
        return operators(args[0])
    own = 0 if name == "b2i" else 1
    return own + sum(map(operators, args))


def _terms(tree: Tree, sign: int) -> Iterator[Term]:
    match tree:
        case ("+", left, right):
            yield from _terms(left, sign)
            yield from _terms(right, sign)
        case ("-", left, right):
            yield from _terms(left, sign)
            yield from _terms(right, -sign)
        case ("neg", inner) | ("*", inner, -1) | ("*", -1, inner):
            yield from _terms(inner, -sign)
        case ("*", _, int(factor)) | ("*", int(factor), _) if factor < 0:
            yield -sign, tree
        case int() if tree < 0:
            yield -sign, tree
        case _:
            yield sign, tree


def added(terms: list[Term]) -> Tree:
    """The tree of signed terms, a positive one first."""
    ordered = sorted(terms, key=lambda term: term[0] < 0)
    if not ordered:
        return 0
    sign, result = ordered[0]
    if sign < 0:
        result = -result if isinstance(result, int) else negated(result)
    for sign, part in ordered[1:]:
        if isinstance(part, int):
            result = ("+", result, sign * part)
        else:
            result = ("+" if sign > 0 else "-", result, part)
    return result


def negated(tree: Tree) -> Tree:
    match tree:
        case ("*", inner, int(factor)):
            return ("*", inner, -factor)
    return ("neg", tree)


def terms_dear(terms: tuple[Term, ...]) -> tuple[int, int]:
    return terms_cost(terms), sum(by_negatives(tree) for _, tree in terms)


@lru_cache(maxsize=1 << 16)
def by_negatives(tree: Tree) -> int:
    """How many quotients in ``tree`` are by a negative number."""
    if not isinstance(tree, tuple):
        return 0
    own = tree[0] in ("div", "mod", "ediv", "tdiv") and isinstance(tree[2], int) and tree[2] < 0
    return own + sum(map(by_negatives, tree[1:]))


def dear(tree: Tree) -> tuple[int, int]:
    """What trees are compared by: operators, then quotients by negative numbers."""
    return operators(tree), by_negatives(tree)


def terms_cost(terms: tuple[Term, ...]) -> int:
    if not terms:
        return 0
    negative = not any(sign > 0 for sign, _ in terms)
    if len(terms) == 1:
        negative = negative and isinstance(terms[0][1], tuple) and terms[0][1][0] != "*"
    return len(terms) - 1 + negative + sum(operators(tree) for _, tree in terms)


def nary(name: str, trees: list[Tree]) -> Tree:
    ordered = sorted(trees, key=lambda tree: (isinstance(tree, int), repr(tree)))
    result = ordered[0]
    for tree in ordered[1:]:
        result = (name, result, tree)
    return result
