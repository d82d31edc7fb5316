"""Index expressions and conditions made short, proved or bounded, by themselves.

An expression is brought to normal form, narrowed where it stands, and improved by proposals that
are proved before they are taken; the result with the fewest operators wins. "Unknown" is an
answer: what is not proved within the budget stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eqsatad.errors import ArgumentError
from eqsatad.rules.index_exchange import Names, accepted
from eqsatad.rules.index_facts import Facts, Interval
from eqsatad.rules.index_forms import FALSE, Node, at_least, is_cond, minus, number, variable
from eqsatad.rules.index_narrow import narrowed
from eqsatad.rules.index_proposals import improved
from eqsatad.rules.index_spelling import operators, spelled
from eqsatad.terms.nodes import Const, Expr

Bounds = Mapping[Expr, Interval]


def simplify(expr: Expr, bounds: Bounds | None = None, assume: Iterable[Expr] = ()) -> Expr:
    """``expr`` with as few operators as was found, equal wherever all of ``assume`` hold.

    ``bounds`` gives the least and the greatest value of variables; None is no bound.
    """
    names, node, facts = _asked(expr, bounds, assume, "simplify")
    before = names.tree(expr)
    after = spelled(improved(narrowed(node, facts), facts))
    return expr if operators(before) <= operators(after) and _kept(before) else names.expr(after)


def prove(cond: Expr, bounds: Bounds | None = None, assume: Iterable[Expr] = ()) -> bool | None:
    """True if ``cond`` is proved to hold wherever ``assume`` do, False if never, else None."""
    if accepted(cond, "prove").dtype != "bool":
        raise ArgumentError(f"prove takes a condition; found the index expression {cond!r}.")
    _, node, facts = _asked(cond, bounds, assume, "prove")
    found = facts.decide(narrowed(node, facts))
    return found


def bounds(expr: Expr, bounds: Bounds | None = None, assume: Iterable[Expr] = ()) -> Interval:
    """The least and the greatest value of ``expr`` that could be proved; None is no bound."""
    if accepted(expr, "bounds").dtype != "index":
        raise ArgumentError(f"bounds takes an index expression; found the condition {expr!r}.")
    _, node, facts = _asked(expr, bounds, assume, "bounds")
    return facts.extremes(narrowed(node, facts))


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


def _kept(tree: object) -> bool:
    return not isinstance(tree, tuple)


__all__ = ["FALSE", "Const", "at_least", "bounds", "is_cond", "minus", "number", "prove",
           "simplify", "variable"]
