"""Index expressions and conditions made short, proved or bounded, by themselves.

An expression is brought to normal form, narrowed where it stands, and improved by proposals that
are proved before they are taken; the result with the fewest operators wins. "Unknown" is an
answer: what is not proved within the budget stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from eqsatad.errors import ArgumentError
from eqsatad.rules.catalog import Catalog, simplifier_themes
from eqsatad.rules.given import Rules, gathered
from eqsatad.rules.index_exchange import Names, accepted, conditions, spans
from eqsatad.rules.index_facts import Budget, Facts
from eqsatad.rules.index_forms import Node, minus, number, scaled
from eqsatad.rules.index_match import Rows
from eqsatad.rules.index_narrow import narrowed
from eqsatad.rules.index_proposals import improved
from eqsatad.rules.index_ranges import Interval
from eqsatad.rules.index_spelling import spelled
from eqsatad.rules.index_trees import Tree, operators
from eqsatad.rules.rule import TermRow
from eqsatad.terms.nodes import Expr

Bounds = Mapping[Expr, Interval]
Assumed = Expr | bool | Iterable[Expr | bool]


def simplify(
    expr: Expr,
    bounds: Bounds | None = None,
    assume: Assumed = (),
    budget: Budget | None = None,
    *,
    rules: Rules | None = None,
    trusted: bool = False,
) -> Expr:
    """``expr`` with as few operators as was found, equal wherever all of ``assume`` hold.

    ``bounds`` gives the least and the greatest value of variables; None is no bound. A ``budget``
    of one's own is spent, and says what ran out. ``rules`` are rows to simplify with, or files
    of rows, which are added to those of eqsatad; they are checked unless they are ``trusted``.
    """
    rows = _rows(gathered(rules, trusted=trusted, default=_own))
    return simplified(expr, rows, bounds, assume, budget)


def simplified(
    expr: Expr,
    rows: Rows,
    bounds: Bounds | None = None,
    assume: Assumed = (),
    budget: Budget | None = None,
) -> Expr:
    """``expr`` as `simplify` makes it with ``rows``."""
    expr = accepted(expr, "simplify")
    names, node, facts = _asked(expr, bounds, assume, "simplify", budget)
    before = names.tree(expr)
    after = spelled(improved(narrowed(node, facts), facts, rows))
    for quotients in (("div", "mod"), ("ediv",), ("tdiv",)):
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
    if name == "tdiv":
        return ("neg", (name, _by_positive(args[0], quotients, names), size))
    opposite = _by_positive(spelled(scaled(top, -1)), quotients, names)
    if name == "ediv":
        below = spelled(minus(number(size - 1), top))
        either = ("neg", ("div", args[0], size)), ("div", below, size)
        return _by_positive(min(either, key=operators), quotients, names)
    return (name, opposite, size) if name == "div" else ("neg", (name, opposite, size))


def prove(
    cond: Expr,
    bounds: Bounds | None = None,
    assume: Assumed = (),
    budget: Budget | None = None,
    *,
    rules: Rules | None = None,
    trusted: bool = False,
) -> bool | None:
    """True if ``cond`` is proved to hold wherever ``assume`` do, False if never, else None.

    Rows are used where ``rules`` are given, as for `simplify`.
    """
    (cond,) = conditions(accepted(cond, "prove"), "prove", "a condition")
    _, node, facts = _asked(cond, bounds, assume, "prove", budget)
    return facts.decide(_prepared(node, facts, rules, trusted))


def bounds(
    expr: Expr,
    bounds: Bounds | None = None,
    assume: Assumed = (),
    budget: Budget | None = None,
    *,
    rules: Rules | None = None,
    trusted: bool = False,
) -> Interval:
    """The least and the greatest value of ``expr`` that could be proved; None is no bound.

    Rows are used where ``rules`` are given, as for `simplify`.
    """
    if accepted(expr, "bounds").dtype != "index":
        raise ArgumentError(f"bounds takes an index expression; found the condition {expr!r}.")
    _, node, facts = _asked(expr, bounds, assume, "bounds", budget)
    return facts.extremes(_prepared(node, facts, rules, trusted))


def _prepared(node: Node, facts: Facts, rules: Rules | None, trusted: bool) -> Node:
    """``node`` narrowed, and improved by ``rules`` if there are any."""
    if rules is None:
        return narrowed(node, facts)
    rows = _rows(gathered(rules, trusted=trusted, default=_own))
    return improved(narrowed(node, facts), facts, rows)


def _own() -> Catalog:
    """The rows of the simplifier that come with eqsatad."""
    return tuple(row for theme in simplifier_themes().values() for row in theme)


@lru_cache(maxsize=8)
def _rows(catalog: Catalog) -> Rows:
    """The rows of the simplifier in ``catalog``."""
    return Rows(row for row in catalog if isinstance(row, TermRow))


def _asked(
    expr: Expr,
    bounds: Bounds | None,
    assume: Assumed,
    what: str,
    budget: Budget | None = None,
) -> tuple[Names, Node, Facts]:
    """The names, the normal form and the facts of one question."""
    names = Names()
    node = names.node(names.tree(accepted(expr, what)))
    known = [names.node(names.tree(cond)) for cond in conditions(assume, "assume")]
    for variable, (low, high) in spans(bounds or {}, what).items():
        name = names.of(variable)
        least, most = names.bounds.get(name, (None, None))
        names.bounds[name] = _narrower(least, low, max), _narrower(most, high, min)
    known += names.facts()
    if not isinstance(budget, Budget | None):
        raise ArgumentError(f"{what} takes a Budget; found {budget!r}.")
    return names, node, Facts.of(names.bounds, known, [node], budget)


def _narrower(old: int | None, new: int | None, choose: object) -> int | None:
    if old is None or new is None:
        return new if old is None else old
    return choose(old, new)  # type: ignore[no-any-return, operator]
