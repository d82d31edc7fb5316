"""Shorter nodes that may be equal: proposed by leaving parts out, taken when proved.

Every proposal is first compared with the original at the sample of points, then proved by isl
where the facts hold. So a proposal need not be right, only likely; nothing is taken on trust.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain, combinations, product

import numpy as np

from eqsatad.rules.index_conditions import (
    FORMS,
    both,
    either,
    inside,
    is_cond,
    is_zero,
    maximum,
    minimum,
    replaced,
    select,
)
from eqsatad.rules.index_facts import Facts
from eqsatad.rules.index_forms import (
    FALSE,
    TRUE,
    ZERO,
    Node,
    euclidean,
    floor,
    make,
    minus,
    number,
    order,
    plus,
    scaled,
    shifted,
    single,
    times,
)
from eqsatad.rules.index_match import Rows
from eqsatad.rules.index_narrow import narrowed
from eqsatad.rules.index_spelling import cost

SLACK = 2
"""How many operators more than the shortest a node may have to be rewritten further."""


def improved(node: Node, facts: Facts, rows: Rows) -> Node:
    """``node``, or the equal node with the fewest operators that was found."""
    best, least = node, cost(node)
    waiting = [(least, order(node), node)]
    seen = {node}
    while waiting and least and facts.budget.spend("expansions"):
        _, _, taken = heappop(waiting)
        found, dear = _shortened(taken, facts)
        if dear < least:
            best, least = found, dear
        for root in dict.fromkeys((taken, found)):
            for new in _rewritings(root, facts, rows):
                if new not in seen:
                    seen.add(new)
                    if (dear := cost(new)) <= least + SLACK:
                        heappush(waiting, (dear, order(new), new))
    return best


def _rewritings(root: Node, facts: Facts, rows: Rows) -> Iterator[Node]:
    """``root`` with one part replaced by what a row makes of it."""
    for node in inside(root):
        for new in chain(rows.rewritten(node, facts), _opened(node), _joined(node)):
            if new != node and facts.budget.spend("rewritings"):
                yield narrowed(new if node == root else replaced(root, node, new), facts)


def _shortened(node: Node, facts: Facts) -> tuple[Node, int]:
    """``node`` less what is proved to be of no effect, and its operators."""
    least = cost(node)
    while least and (found := _shorter(node, least, facts)) is not None:
        node, least = found
    return node, least


def _shorter(node: Node, least: int, facts: Facts) -> tuple[Node, int] | None:
    seen = {node}
    likely: list[tuple[int, Node]] = []
    for proposal in chain(_fitted(node, facts), _proposals(node)):
        if proposal in seen:
            continue
        seen.add(proposal)
        if not facts.budget.spend("proposals"):
            break
        if facts.points.agree(node, proposal) and (dear := cost(proposal)) < least:
            likely.append((dear, proposal))
    likely.sort(key=lambda item: item[0])
    for dear, proposal in likely:
        if facts.same(node, proposal):
            return proposal, dear
    return None


def _proposals(root: Node) -> Iterator[Node]:
    for node in inside(root):
        if node is root or node == root:
            yield from _smaller(root)
        else:
            for new in _smaller(node):
                yield replaced(root, node, new)


def _flattened(node: Node) -> Iterator[Node]:
    """``(x // a + r) // m`` as ``(x + a*r) // (a*m)``; ``-(x // a)`` is ``(a - 1 - x) // a``."""
    _, form, divisor = node
    for atom, coef in form[2]:
        if atom[0] == "floor" and abs(coef) == 1:
            _, top, under = atom
            inner = top if coef == 1 else minus(number(under - 1), top)
            rest = minus(form, single(atom, coef))
            yield floor(plus(inner, rest, under), under * divisor)


def _two_operands(form: Node) -> Iterator[Node]:
    """``form`` with one operand each of two minima in their place."""
    minima = [(atom, coef) for atom, coef in form[2] if atom[0] == "min"]
    for (left, a), (right, b) in combinations(minima, 2):
        rest = minus(minus(form, single(left, a)), single(right, b))
        for one, other in product(left[1], right[1]):
            yield plus(plus(rest, one, a), other, b)


def _opened(node: Node) -> Iterator[Node]:
    """A Euclidean remainder in a sum as what a quotient leaves over, which is 0 by 0."""
    for atom, coef in node[2] if node[0] == "+" else ():
        if atom[0] == "emod":
            _, top, under = atom
            whole = times(under, euclidean(top, under))
            left = minus(select(is_zero(under), ZERO, top), whole)
            yield plus(node, minus(left, single(atom)), coef)


def _joined(node: Node) -> Iterator[Node]:
    """A select between two quotients, or remainders, by one divisor as one of a select."""
    if node[0] == "sel" and all(len(branch[2]) == 1 and not branch[1] for branch in node[2:]):
        ((one, a),), ((other, b),) = node[2][2], node[3][2]
        if a == b and one[0] == other[0] and one[0] in FORMS and one[2] == other[2]:
            top = select(node[1], one[1], other[1])
            yield scaled(FORMS[one[0]](top, one[2]), a)


def _fitted(root: Node, facts: Facts) -> Iterator[Node]:
    """``root`` with an atom, or a sum, as the linear form whose values it has at the sample."""
    for node in inside(root):
        if node[0] == "+":
            compound = [atom for atom, _ in node[2] if atom[0] != "v"]
            for atom in compound:
                others = [a for a in inside(node) if _is_number(a) and a not in (node, atom)]
                if (form := _fit(node, others, facts)) is not None:
                    yield form if node == root else replaced(root, node, form)
        elif node[0] in FITTED and facts.points.count:
            variables = [part for part in inside(node) if part[0] == "v"]
            if (form := _fit(node, variables, facts)) is not None:
                yield replaced(root, node, form)
        elif node[0] == "and" and (cond := _pinned(node, facts)) is not None:
            yield cond if node == root else replaced(root, node, cond)


def _pinned(cond: Node, facts: Facts) -> Node | None:
    """The one value that a conjunction with an equation leaves of its only variable."""
    variables = [single(part) for part in inside(cond) if part[0] == "v"]
    if len(variables) != 1 or all(part[0] != "eq" for part in cond[1]):
        return None
    (only,) = variables
    low, high = facts.under(cond).extremes(only)
    return is_zero(shifted(only, -low)) if low is not None and low == high else None


FITTED = ("floor", "min", "sel", "fdiv", "tdiv", "ediv", "emod")
LARGEST_FIT = 1 << 40


def _is_number(node: Node) -> bool:
    return node[0] != "+" and not is_cond(node)


def _fit(node: Node, basis: list[Node], facts: Facts) -> Node | None:
    """The integer combination of ``basis`` that has the values of ``node`` at all points."""
    values = facts.points.value(node)
    columns = [facts.points.value(part) for part in basis]
    if facts.points.count <= len(basis) or np.abs(values).max() > LARGEST_FIT:
        return None
    matrix = np.array([*columns, np.ones_like(values)]).T
    found = np.rint(np.linalg.lstsq(matrix.astype(float), values.astype(float), rcond=None)[0])
    if np.abs(found).max() > LARGEST_FIT:
        return None
    whole = found.astype(np.int64)
    if not np.array_equal(matrix @ whole, values):
        return None
    return make(int(whole[-1]), dict(zip(basis, map(int, whole[:-1]), strict=True)))


def _smaller(node: Node) -> Iterator[Node]:
    """What may stand for ``node`` in a proposal."""
    match node[0]:
        case "+":
            terms = dict(node[2])
            for atom in terms:
                yield make(node[1], {a: c for a, c in terms.items() if a != atom})
            if node[1]:
                yield make(0, terms)
            signs = {atom: 1 if coef > 0 else -1 for atom, coef in terms.items()}
            yield make(node[1], signs)
            yield from _two_operands(node)
        case "min":
            for arg in node[1]:
                yield arg
                if len(node[1]) > 2:
                    yield minimum(*(other for other in node[1] if other != arg))
        case "sel":
            yield node[2]
            yield node[3]
            yield minimum(node[2], node[3])
            yield maximum(node[2], node[3])
        case "and" | "or":
            build = both if node[0] == "and" else either
            for part in node[1]:
                yield build(*(other for other in node[1] if other != part))
        case "floor" | "fdiv" | "tdiv" | "ediv" | "emod":
            yield number(0)
            yield number(-1)
            if node[0] == "floor":
                yield from _flattened(node)
    if is_cond(node):
        yield TRUE
        yield FALSE
    elif node[0] != "+":
        yield from (
            single(part) if part[0] != "+" else part
            for part in node[1:2]
            if isinstance(part, tuple)
            and not is_cond(part)
            and node[0] != "min"
            and node[0] != "mul"
        )
