"""Under which guards each class of an e-graph is worked out.

A class *holds zeros* outside of some guards, as ``guard(g, x) * y`` does outside of ``g``; guards
come back outermost in a product, so nothing is worked out there. And it is *within* the guards
that are around it wherever it is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from eqsatad.extract.dag import Class, Node
from eqsatad.rules.values import Encoded

EVERY = -1


class Cover:
    """For every node of an e-graph, the guards under which it is worked out, as a mask."""

    def __init__(self, encoded: Encoded, classes: int, root: Class, rows: Sequence[Node]) -> None:
        self._clear = lru_cache(maxsize=None)(encoded.clear)
        self._zeros = [0] * classes
        self._within = [EVERY if encoded.guards else 0] * classes
        self._within[root] = 0
        if encoded.guards:
            _settle(rows, self._grow, lambda node: node.children)
            _settle(rows, self._shrink, lambda node: (node.owner,))

    def of(self, node: Node) -> int:
        """The guards around ``node``; those of what it adds up among them."""
        inside = self._inside(node)
        return inside | self._zeros[node.children[0]] if node.op == "Sum" else inside

    def _inside(self, node: Node) -> int:
        """The guards around the children of ``node``."""
        around = self._within[node.owner] | self._zeros[node.owner]
        match node.op, node.data:
            case "If", (int(guard),):
                return around | guard
            case ("Sum", (int(axes),)) | ("Fold", (_, int(axes), _)):
                return self._clear(around, axes)
        return around

    def _grow(self, node: Node) -> list[Class]:
        """The owner of ``node``, if it holds more zeros than was known."""
        below = [self._zeros[child] for child in node.children]
        match node.op, node.data:
            case "If", (int(guard),):
                found = below[0] | guard
            case "Sum", (int(axes),):
                found = self._clear(below[0], axes)
            case "Mul", _:
                found = below[0] | below[1]
            case "Add", _:
                found = below[0] & below[1]
            case "Div", _:
                found = below[0]
            case _:
                found = 0
        if not found & ~self._zeros[node.owner]:
            return []
        self._zeros[node.owner] |= found
        return [node.owner]

    def _shrink(self, node: Node) -> list[Class]:
        """The children of ``node`` that are within fewer guards than was known."""
        inside = self._inside(node)
        found = [child for child in node.children if self._within[child] & ~inside]
        for child in found:
            self._within[child] &= inside
        return found


def _settle(
    rows: Sequence[Node],
    visit: Callable[[Node], list[Class]],
    depends: Callable[[Node], Iterable[Class]],
) -> None:
    """Visits ``rows`` until none of the classes that they depend on changes."""
    users: dict[Class, list[Node]] = {}
    for node in rows:
        for number in depends(node):
            users.setdefault(number, []).append(node)
    queue = deque(rows)
    while queue:
        for number in visit(queue.popleft()):
            queue.extend(users.get(number, ()))
