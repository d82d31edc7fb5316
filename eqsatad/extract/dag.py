"""Extraction: one node for each class an e-graph's root needs, shared classes paid once.

A bottom-up pass keeps for every class the cheapest choice of everything below it; then single
classes are chosen again while the whole gets cheaper. The best choice is NP-hard to find; on
small graphs tests compare with an exact solver. Ties go to the node that was listed first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

Class = int

EPSILON = 1e-12
"""A total counts as cheaper only by more than rounding, so the order of addition cannot decide."""


class Node(NamedTuple):
    """A term over classes, with its own price."""

    owner: Class
    op: str
    data: tuple[object, ...]
    children: tuple[Class, ...]
    cost: float


@dataclass(frozen=True)
class Graph:
    """The nodes that may be chosen; each belongs to its ``owner``, a class below ``classes``."""

    nodes: list[Node]
    classes: int
    root: Class


@dataclass(frozen=True)
class Choice:
    """A node for every class that the root needs, and what they cost together."""

    nodes: dict[Class, Node]
    cost: float


def extract(graph: Graph, work: int = 20_000) -> Choice:
    """A cheap choice of nodes; ``work`` bounds the nodes that the local search looks at."""
    picks = greedy(graph)
    best = measure(graph.root, picks)
    trials = work // max(1, len(best.nodes))
    options: dict[Class, list[Node]] = {}
    for node in graph.nodes:
        options.setdefault(node.owner, []).append(node)
    while trials > 0 and best.nodes:
        trials, better = _improve(options, graph.root, picks, best, trials)
        if better is None:
            break
        best = better
    return best


def greedy(graph: Graph) -> dict[Class, Node]:
    """The node of each class whose terms, shared parts paid once, are cheapest."""
    nodes = graph.nodes
    parents: list[list[int]] = [[] for _ in range(graph.classes)]
    for number, node in enumerate(nodes):
        for child in set(node.children):
            parents[child].append(number)
    queue = deque(number for number, node in enumerate(nodes) if not node.children)
    queued = bytearray(len(nodes))
    known: list[dict[Class, float] | None] = [None] * graph.classes
    totals = [inf] * graph.classes
    picks: dict[Class, Node] = {}
    while queue:
        number = queue.popleft()
        queued[number] = 0
        node = nodes[number]
        limit = totals[node.owner] * (1 - EPSILON)
        parts = _parts(node, known, limit)
        if parts is None or (total := sum(parts.values())) >= limit:
            continue
        known[node.owner], totals[node.owner], picks[node.owner] = parts, total, node
        for parent in parents[node.owner]:
            if not queued[parent]:
                queued[parent] = 1
                queue.append(parent)
    return picks


def _parts(
    node: Node, known: list[dict[Class, float] | None], limit: float
) -> dict[Class, float] | None:
    """The classes below ``node`` and its own with their prices; None if it cannot be cheaper."""
    if node.cost >= limit:
        return None
    parts: dict[Class, float] = {}
    for child in node.children:
        below = known[child]
        if below is None or node.owner in below:
            return None
        parts.update(below)
    parts[node.owner] = node.cost
    return parts


def measure(root: Class, picks: dict[Class, Node]) -> Choice:
    """What ``picks`` cost from ``root``; infinite when they run in a circle or miss a class."""
    nodes: dict[Class, Node] = {}
    open_classes: set[Class] = set()
    stack = [(root, False)]
    while stack:
        number, ready = stack.pop()
        if ready:
            open_classes.discard(number)
            nodes[number] = picks[number]
        elif number in open_classes or number not in picks:
            return Choice({}, inf)
        elif number not in nodes:
            open_classes.add(number)
            stack.append((number, True))
            stack.extend((child, False) for child in picks[number].children if child not in nodes)
    return Choice(nodes, sum(node.cost for node in nodes.values()))


def _improve(
    options: dict[Class, list[Node]],
    root: Class,
    picks: dict[Class, Node],
    best: Choice,
    trials: int,
) -> tuple[int, Choice | None]:
    """The first better choice that differs in one class, and the trials that are left."""
    for number in sorted(best.nodes):
        for node in options[number]:
            if node is picks[number] or node.cost >= best.cost:
                continue
            if trials == 0:
                return 0, None
            trials -= 1
            kept, picks[number] = picks[number], node
            found = measure(root, picks)
            if found.cost < best.cost * (1 - EPSILON):
                return trials, found
            picks[number] = kept
    return trials, None
