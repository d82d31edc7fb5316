"""Example arrays for a program whose counts depend on its data.

Floats are standard normal; integers that are used as positions are drawn from the positions that
exist. The seed is the same unless given, so that a report comes out the same every time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsatad.terms.evaluate import extents
from eqsatad.terms.nodes import FLOATS, Apply, Cast, Expr, Read, Stage, Tensor
from eqsatad.terms.walk import postorder

SEED = 0


def samples(
    inputs: Sequence[Tensor],
    stages: Sequence[Tensor],
    sizes: Mapping[str, int],
    seed: int = SEED,
) -> dict[str, Any]:
    """An array for each of ``inputs`` by name, at ``sizes``."""
    random = np.random.default_rng(seed)
    limits = positions(stages, sizes)
    return {tensor.name: _draw(tensor, limits.get(tensor), sizes, random) for tensor in inputs}


def _draw(
    tensor: Tensor, limit: int | None, sizes: Mapping[str, int], random: np.random.Generator
) -> Any:
    shape = extents(tensor.shape, sizes)
    if tensor.dtype in FLOATS:
        kind = np.float32 if tensor.dtype == "bfloat16" else np.dtype(tensor.dtype)
        return random.standard_normal(shape).astype(kind)
    if tensor.dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    return random.integers(0, limit or 2, shape).astype(tensor.dtype)


def positions(stages: Sequence[Tensor], sizes: Mapping[str, int]) -> dict[Tensor, int]:
    """For each integer tensor that gives positions: how many positions exist."""
    found: dict[Tensor, int] = {}

    def note(index: Expr, extent: int) -> None:
        for node in postorder(index):
            if isinstance(node, Cast) and node.dtype == "index":
                for read in postorder(node):
                    if isinstance(read, Read):
                        found[read.tensor] = min(extent, found.get(read.tensor, extent))

    for stage in stages:
        if not isinstance(stage, Stage):
            continue
        for scatter in stage.scatters:
            for index, extent in zip(scatter.indices, extents(stage.shape, sizes), strict=True):
                note(index, extent)
        for node in postorder(*stage.roots):
            if isinstance(node, Read):
                for index, extent in zip(
                    node.indices, extents(node.tensor.shape, sizes), strict=True
                ):
                    note(index, extent)
            elif isinstance(node, Apply) and node.op.kind == "compare":
                for axis in node.free:
                    note(node, extents((axis.extent,), sizes)[0])
    return found
