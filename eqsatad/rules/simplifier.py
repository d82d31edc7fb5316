"""Index expressions and conditions made short, proved or bounded, by themselves.

An expression is brought to normal form, narrowed where it stands, and improved by proposals that
are proved before they are taken; the result with the fewest operators wins. "Unknown" is an
answer: what is not proved within the budget stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from functools import lru_cache

from eqsatad.errors import ArgumentError
from eqsatad.rules.catalog import simplifier_themes
from eqsatad.rules.index_exchange import Names, accepted
from eqsatad.rules.index_facts import Facts, Interval
from eqsatad.rules.index_forms import Node, scaled
from eqsatad.rules.index_match import head
from eqsatad.rules.index_narrow import narrowed
from eqsatad.rules.index_proposals import improved
from eqsatad.rules.index_spelling import Tree, operators, spelled
from eqsatad.rules.rule import TermRow
from eqsatad.terms.nodes import Expr

Bounds = Mapping[Expr, Interval]


def simplify(expr: Expr, bounds: Bounds | None = None, assume: Iterable[Expr] = ()) -> Expr:
    """``expr`` with as few operators as was found, equal wherever all of ``assume`` hold.

    ``bounds`` gives the least and the greatest value of variables; None is no bound.
    """
    names, node, facts = _asked(expr, bounds, assume, "simplify")
    before = names.tree(expr)
    after = spelled(improved(narrowed(node, facts), facts, _rows()))
    if not _by_negative(before):
        after = _by_positive(after, names)
    return names.expr(after) if operators(after) < operators(before) else expr


def _by_negative(tree: Tree) -> bool:
    """Whether something is divided by a negative number, which only the simplifier takes."""
    if not isinstance(tree, tuple):
        return False
    name, *args = tree
    own = name in ("div", "mod") and isinstance(args[1], int) and args[1] < 0
    return own or any(map(_by_negative, args))


def _by_positive(tree: Tree, names: Names) -> Tree:
    """``tree`` with ``x // -m`` as ``-x // m`` and ``x % -m`` as ``-(-x % m)``."""
    if not isinstance(tree, tuple) or not _by_negative(tree):
        return tree
    name, *args = tree
    if name in ("div", "mod") and isinstance(args[1], int) and args[1] < 0:
        opposite = _by_positive(spelled(scaled(names.node(args[0]), -1)), names)
        positive = (name, opposite, -args[1])
        return positive if name == "div" else ("neg", positive)
    return (name, *(_by_positive(arg, names) for arg in args))


def prove(cond: Expr, bounds: Bounds | None = None, assume: Iterable[Expr] = ()) -> bool | None:
    """True if ``cond`` is proved to hold wherever ``assume`` do, False if never, else None."""
    if accepted(cond, "prove").dtype != "bool":
        raise ArgumentError(f"prove takes a condition; found the index expression {cond!r}.")
    _, node, facts = _asked(cond, bounds, assume, "prove")
    return facts.decide(narrowed(node, facts))


def bounds(expr: Expr, bounds: Bounds | None = None, assume: Iterable[Expr] = ()) -> Interval:
    """The least and the greatest value of ``expr`` that could be proved; None is no bound."""
    if accepted(expr, "bounds").dtype != "index":
        raise ArgumentError(f"bounds takes an index expression; found the condition {expr!r}.")
    _, node, facts = _asked(expr, bounds, assume, "bounds")
    return facts.extremes(narrowed(node, facts))


@lru_cache(maxsize=1)
def _rows() -> dict[str, list[TermRow]]:
    """The rows of the simplifier by the kind of node that they replace."""
    rows: dict[str, list[TermRow]] = {}
    for theme in simplifier_themes().values():
        for row in theme:
            assert isinstance(row, TermRow), f"{row.name} is no row of the simplifier"
            rows.setdefault(head(row), []).append(row)
    return rows


def _asked(
    expr: Expr, bounds: Bounds | None, assume: Iterable[Expr], what: str
) -> tuple[Names, Node, Facts]:
    """The names, the normal form and the facts of one question."""
    names = Names()
    node = names.node(names.tree(accepted(expr, what)))
    given = [names.node(names.tree(accepted(cond, what))) for cond in assume]
    known = list(given)
    for variable_, (low, high) in (bounds or {}).items():
        name = names.of(accepted(variable_, what))
        least, most = names.bounds.get(name, (None, None))
        names.bounds[name] = _narrower(least, low, max), _narrower(most, high, min)
    known += names.facts()
    return names, node, Facts.of(names.bounds, known, [node])


def _narrower(old: int | None, new: int | None, choose: object) -> int | None:
    if old is None or new is None:
        return new if old is None else old
    return choose(old, new)  # type: ignore[no-any-return, operator]

