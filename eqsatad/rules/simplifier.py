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
from eqsatad.rules.index_facts import Budget, Facts
from eqsatad.rules.index_forms import Node, minus, number, scaled
from eqsatad.rules.index_match import head
from eqsatad.rules.index_narrow import narrowed
from eqsatad.rules.index_proposals import improved
from eqsatad.rules.index_ranges import Interval
from eqsatad.rules.index_spelling import spelled
from eqsatad.rules.index_trees import Tree, operators
from eqsatad.rules.rule import TermRow
from eqsatad.terms.nodes import Expr

Bounds = Mapping[Expr, Interval]


def simplify(
    expr: Expr,
    bounds: Bounds | None = None,
    assume: Iterable[Expr] = (),
    budget: Budget | None = None,
) -> Expr:
    """``expr`` with as few operators as was found, equal wherever all of ``assume`` hold.

    ``bounds`` gives the least and the greatest value of variables; None is no bound. A ``budget``
    of one's own is spent, and says what ran out.
    """
    names, node, facts = _asked(expr, bounds, assume, "simplify", budget)
    before = names.tree(expr)
    after = spelled(improved(narrowed(node, facts), facts, _rows()))
    for quotients in (("div", "mod"), ("ediv",)):
        if not _by_negative(before, quotients):
            after = _by_positive(after, quotients, names)
    return names.expr(after) if operators(after) < operators(before) else expr


def _by_negative(tree: Tree, names: tuple[str, ...]) -> bool:
    """Whether one of the quotients ``names`` is by a negative number, as only some want."""
    if not isinstance(tree, tuple):
        return False
    name, *args = tree
    own = name in names and isinstance(args[1], int) and args[1] < 0
    return own or any(_by_negative(arg, names) for arg in args)


def _by_positive(tree: Tree, quotients: tuple[str, ...], names: Names) -> Tree:
    """``tree`` with ``quotients`` by negative numbers as such by positive ones."""
    if not _by_negative(tree, quotients):
        return tree
    name, *args = tree
    if name not in quotients or not isinstance(args[1], int) or args[1] > 0:
        return (name, *(_by_positive(arg, quotients, names) for arg in args))
    top, size = names.node(args[0]), -args[1]
    opposite = _by_positive(spelled(scaled(top, -1)), quotients, names)
    if name == "ediv":
        below = spelled(minus(number(size - 1), top))
        either = ("neg", ("div", args[0], size)), ("div", below, size)
        return _by_positive(min(either, key=operators), quotients, names)
    return (name, opposite, size) if name == "div" else ("neg", (name, opposite, size))


def prove(
    cond: Expr,
    bounds: Bounds | None = None,
    assume: Iterable[Expr] = (),
    budget: Budget | None = None,
) -> bool | None:
    """True if ``cond`` is proved to hold wherever ``assume`` do, False if never, else None."""
    if accepted(cond, "prove").dtype != "bool":
        raise ArgumentError(f"prove takes a condition; found the index expression {cond!r}.")
    _, node, facts = _asked(cond, bounds, assume, "prove", budget)
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
    expr: Expr,
    bounds: Bounds | None,
    assume: Iterable[Expr],
    what: str,
    budget: Budget | None = None,
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
    return names, node, Facts.of(names.bounds, known, [node], budget)


def _narrower(old: int | None, new: int | None, choose: object) -> int | None:
    if old is None or new is None:
        return new if old is None else old
    return choose(old, new)  # type: ignore[no-any-return, operator]
