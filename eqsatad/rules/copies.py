"""Stages that only move elements, and reading through them.

Every gradient begins with this, so that none of the rows and of the search is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eqsatad.terms.nodes import Const, Expr, Read, Reduce, Select, Stage, Tensor
from eqsatad.terms.walk import map_stage, postorder, program, sources, substitute, transform


def is_copy(tensor: Tensor) -> bool:
    """Whether ``tensor`` only moves elements: one read, perhaps guarded, no arithmetic.

    Padding, reshaping, transposing, slicing and broadcasting are copies; so is a constant.
    """
    if not isinstance(tensor, Stage) or tensor.scatters:
        return False
    body = tensor.body
    while isinstance(body, Select) and isinstance(body.other, Const):
        if any(isinstance(node, Read) for node in postorder(body.cond)):
            return False
        body = body.then
    if isinstance(body, Const):
        return body is tensor.body
    return isinstance(body, Read) and not any(
        isinstance(node, Read | Reduce) for index in body.indices for node in postorder(index)
    )


def inline(stage: Stage, chosen: Iterable[Tensor]) -> Stage:
    """``stage`` reading through the stages in ``chosen``."""
    through = {tensor for tensor in chosen if isinstance(tensor, Stage)}
    if not through:
        return stage

    def visit(node: Expr) -> Expr:
        if isinstance(node, Read) and node.tensor in through:
            source = node.tensor
            assert isinstance(source, Stage)
            return substitute(source.body, dict(zip(source.axes, node.indices, strict=True)))
        return node

    return map_stage(stage, lambda root: transform(root, visit))


def inline_copies(outputs: Sequence[Tensor], keep: Iterable[Tensor] = ()) -> dict[Tensor, Tensor]:
    """What each tensor below ``outputs`` becomes when copies are read through.

    The outputs and the tensors in ``keep`` stay tensors of their own.
    """
    kept = {*outputs, *keep}
    replaced: dict[Tensor, Tensor] = {}
    for tensor in program(outputs):
        if isinstance(tensor, Stage):
            below = [replaced[source] for source in sources(tensor) if source not in kept]
            replaced[tensor] = inline(retarget(tensor, replaced), filter(is_copy, below))
        else:
            replaced[tensor] = tensor
    return replaced


def retarget(stage: Stage, replaced: dict[Tensor, Tensor]) -> Stage:
    """``stage`` reading what its sources were replaced by."""
    if all(replaced.get(source, source) is source for source in sources(stage)):
        return stage

    def visit(node: Expr) -> Expr:
        if isinstance(node, Read) and replaced.get(node.tensor, node.tensor) is not node.tensor:
            return Read(replaced[node.tensor], node.indices)
        return node

    return map_stage(stage, lambda root: transform(root, visit))
