"""Shorter nodes that may be equal: proposed by leaving parts out, taken when proved.

Every proposal is first compared with the original at the sample of points, then proved by isl
where the facts hold. So a proposal need not be right, only likely; nothing is taken on trust.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsatad.rules.index_facts import Facts
from eqsatad.rules.index_forms import (
    FALSE,
    TRUE,
    Node,
    both,
    either,
    inside,
    is_cond,
    make,
    minimum,
    number,
    replaced,
    single,
)
from eqsatad.rules.index_spelling import cost


def improved(node: Node, facts: Facts) -> Node:
    """``node``, or something with fewer operators that is proved to be equal."""
    least = cost(node)
    while least and (found := _shorter(node, least, facts)) is not None:
        node, least = found
    return node


def _shorter(node: Node, least: int, facts: Facts) -> tuple[Node, int] | None:
    seen = {node}
    likely: list[tuple[int, Node]] = []
    for proposal in _proposals(node):
        if proposal in seen:
            continue
        seen.add(proposal)
        facts.budget.proposals -= 1
        if facts.budget.proposals < 0:
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


def _smaller(node: Node) -> Iterator[Node]:
    """What may stand for ``node`` in a proposal."""
    match node[0]:
        case "+":
            terms = dict(node[2])
            for atom in terms:
                yield make(node[1], {a: c for a, c in terms.items() if a != atom})
            if node[1]:
                yield make(0, terms)
        case "min":
            for arg in node[1]:
                yield arg
                if len(node[1]) > 2:
                    yield minimum(*(other for other in node[1] if other != arg))
        case "sel":
            yield node[2]
            yield node[3]
        case "and" | "or":
            build = both if node[0] == "and" else either
            for part in node[1]:
                yield build(*(other for other in node[1] if other != part))
        case "floor" | "fdiv" | "tdiv" | "ediv" | "emod":
            yield number(0)
            yield number(-1)
    if is_cond(node):
        yield TRUE
        yield FALSE
    elif node[0] != "+":
        yield from (single(part) if part[0] != "+" else part for part in node[1:2] if
                    isinstance(part, tuple) and not is_cond(part) and node[0] != "min"
                    and node[0] != "mul")
