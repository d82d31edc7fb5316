"""How often a value differs: by the index expressions it depends on, where they take few values.

``sum(f) H[f, y - u + 1]`` has one value for each element of the second dimension of H, not for
each pair of y and u. A *path* is such an index expression; a class depends on axes directly and
through paths, and a sum over an axis that a path mentions opens the path.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from math import inf, prod

from eqsatad.extract.cost import CostModel, extent
from eqsatad.extract.dag import Class, Node
from eqsatad.rules.values import Encoded
from eqsatad.terms.nodes import Axis, Expr, Read
from eqsatad.terms.walk import reads


class Paths:
    """For every node of an e-graph, for how many points it has to be worked out."""

    def __init__(
        self,
        encoded: Encoded,
        model: CostModel,
        free: list[int],
        rows: list[Node],
    ) -> None:
        self.encoded, self.model, self.free = encoded, model, free
        self.paths: dict[Expr, int] = {}
        self.opened: list[int] = []
        self.sizes = [model.extent(axis) for axis in encoded.axes]
        self.volume = lru_cache(maxsize=None)(self._volume)
        self.leaves = [self._leaf(leaf) for leaf in encoded.leaves]
        self.via = list(free)
        if self.paths:
            self._settle(rows)

    def points(self, node: Node) -> float:
        """The number of points ``node`` is worked out for; infinite when paths do not help."""
        return self.volume(self._through(node)[1]) if self.paths else inf

    def _leaf(self, leaf: Expr) -> int:
        """The axes and paths through which ``leaf`` depends on its axes."""
        if not isinstance(leaf, Read):
            return self.encoded.mask(leaf.free)
        mask = 0
        for index, size in zip(leaf.indices, leaf.tensor.shape, strict=True):
            direct = isinstance(index, Axis) or not index.free or bool(reads(index))
            mask |= self.encoded.mask(index.free) if direct else self._path(index, size)
        return mask

    def _path(self, index: Expr, size: Expr) -> int:
        """The bit of a path, if it has fewer values than its axes have points."""
        values = extent(size, self.model.sizes)
        if values >= self.model.volume(index.free):
            return self.encoded.mask(index.free)
        if index not in self.paths:
            self.paths[index] = 1 << len(self.sizes)
            self.sizes.append(values)
            self.opened.append(self.encoded.mask(index.free))
        return self.paths[index]

    def _volume(self, mask: int) -> int:
        return prod(size for n, size in enumerate(self.sizes) if mask >> n & 1)

    def _open(self, mask: int, axes: int) -> int:
        """``mask`` with every path that mentions one of ``axes`` replaced by its own axes."""
        for bit, opened in zip(self.paths.values(), self.opened, strict=True):
            if mask & bit and opened & axes:
                mask = mask & ~bit | opened
        return mask

    def _through(self, node: Node) -> tuple[int, int]:
        """The mask of ``node``, outside its binder and inside."""
        mask = 0
        for child in node.children:
            mask |= self.via[child]
        match node.op, node.data:
            case "Leaf", (int(number),):
                mask = self.leaves[number]
            case "Sum", (int(axes),):
                mask = self._open(mask, axes)
                return mask & ~axes, mask | axes
            case "Fold", (_, int(axes), int(guard)):
                mask = self._open(mask, axes) | self.encoded.touched(guard)
                return mask & ~axes, mask | axes
            case (("If" | "Pick"), (int(guard),)):
                mask |= self.encoded.touched(guard)
        return mask, mask

    def _settle(self, rows: list[Node]) -> None:
        """Gives every class the mask of its node with the fewest points."""
        parents: dict[Class, list[Node]] = {}
        for node in rows:
            for child in node.children:
                parents.setdefault(child, []).append(node)
        queue = deque(rows)
        while queue:
            node = queue.popleft()
            mask = self._through(node)[0]
            if self.volume(mask) < self.volume(self.via[node.owner]):
                self.via[node.owner] = mask
                queue.extend(parents.get(node.owner, ()))
