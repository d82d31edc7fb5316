"""Tensors of a program in the place of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from eqsatad.rules.copies import retarget
from eqsatad.terms.nodes import Axis, Read, Stage, Tensor
from eqsatad.terms.walk import program, sources


def swapped(outputs: Sequence[Tensor], table: Mapping[Tensor, Tensor]) -> list[Tensor]:
    """``outputs`` over what is in ``table`` for some stages."""
    replaced = dict(table)
    for tensor in program(outputs):
        if tensor not in replaced:
            replaced[tensor] = retarget(tensor, replaced) if isinstance(tensor, Stage) else tensor
    return [replaced[output] for output in outputs]


def independent(stages: Iterable[Tensor]) -> bool:
    """Whether none of ``stages`` needs another one."""
    given = set(stages)
    return given.isdisjoint(program(source for stage in given for source in sources(stage)))


def absorbed(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``outputs``, where those that only copy a temporary take its place."""
    taken: dict[Tensor, Tensor] = {}
    for output in outputs:
        source = _copied(output)
        if source is not None and source not in outputs:
            taken.setdefault(source, output)
    replaced: dict[Tensor, Tensor] = {}
    for tensor in program(outputs):
        replaced[tensor] = tensor
        if isinstance(tensor, Stage):
            stage = retarget(tensor, replaced)
            name = taken[tensor].name if tensor in taken else stage.name
            replaced[tensor] = Stage(name, stage.axes, stage.body, stage.scatters)
    replaced.update({output: replaced[source] for source, output in taken.items()})
    return [replaced[output] for output in outputs]


def _copied(tensor: Tensor) -> Stage | None:
    """The stage that ``tensor`` copies element by element."""
    if not isinstance(tensor, Stage) or tensor.scatters or not isinstance(tensor.body, Read):
        return None
    source, indices = tensor.body.tensor, tensor.body.indices
    axes: tuple[Axis, ...] = tensor.axes
    same = isinstance(source, Stage) and indices == axes and source.shape == tensor.shape
    return source if same and isinstance(source, Stage) else None
