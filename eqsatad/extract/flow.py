"""Minimum cuts: the cheapest way to part a source from a sink (Dinic's algorithm).

Capacities are integers, so that sums are exact; None is infinite. Of several minimum cuts it is
the one nearest to the source, which makes the result deterministic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass
class Network:
    """Arcs with capacities between nodes; the source and the sink are numbers 0 and 1."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    # An arc and its opposite are next to each other: `number ^ 1` is the opposite.
    heads: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    arcs: list[list[int]] = field(default_factory=lambda: [[], []])
    infinite: int = 1

    def number(self, node: Hashable) -> int:
        """The number of ``node``, which is met here first or again."""
        if node not in self.numbers:
            self.numbers[node] = len(self.arcs)
            self.arcs.append([])
        return self.numbers[node]

    def join(self, tail: int, head: int, capacity: int | None) -> None:
        """An arc from ``tail`` to ``head``."""
        if capacity is not None:
            self.infinite += capacity
        for start, end, room in ((tail, head, capacity), (head, tail, 0)):
            self.arcs[start].append(len(self.heads))
            self.heads.append(end)
            self.left.append(-1 if room is None else room)

    def source_side(self) -> set[Hashable]:
        """The nodes on the side of the source in the minimum cut nearest to it."""
        self.left = [self.infinite if room < 0 else room for room in self.left]
        while (depth := self._depths())[1] >= 0:
            used = [0] * len(self.arcs)
            while self._push(depth, used):
                pass
        return {node for node, number in self.numbers.items() if depth[number] >= 0}

    def _depths(self) -> list[int]:
        """How far each node is from the source along arcs with room left; -1 is unreachable."""
        depth = [-1] * len(self.arcs)
        depth[0] = 0
        waiting = deque([0])
        while waiting:
            node = waiting.popleft()
            for arc in self.arcs[node]:
                if self.left[arc] > 0 and depth[self.heads[arc]] < 0:
                    depth[self.heads[arc]] = depth[node] + 1
                    waiting.append(self.heads[arc])
        return depth

    def _push(self, depth: list[int], used: list[int]) -> bool:
        """Sends what one path has room for; ``used`` counts the arcs that are known to be full."""
        path: list[int] = []
        node = 0
        while node != 1:
            arc = self._next(node, depth, used)
            if arc is not None:
                path.append(arc)
                node = self.heads[arc]
            elif not path:
                return False
            else:
                node = self.heads[path.pop() ^ 1]
                used[node] += 1
        room = min(self.left[arc] for arc in path)
        for arc in path:
            self.left[arc] -= room
            self.left[arc ^ 1] += room
        return True

    def _next(self, node: int, depth: list[int], used: list[int]) -> int | None:
        while used[node] < len(self.arcs[node]):
            arc = self.arcs[node][used[node]]
            if self.left[arc] > 0 and depth[self.heads[arc]] == depth[node] + 1:
                return arc
            used[node] += 1
        return None
