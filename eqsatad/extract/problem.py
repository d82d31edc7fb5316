"""A stage up to names: what its simplification depends on, and the way back.

Layers of one shape are one problem: they differ in the names of tensors, axes and stages only.
A problem is the stage with its tensors as placeholders and its axes numbered, both in the order
of first use; a solution is spelled with the names of whoever asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from eqsatad.terms.nodes import Axis, Expr, Placeholder, Read, Reduce, Scatter, Stage, Tensor
from eqsatad.terms.walk import postorder, with_children

STAGE = "$"


@dataclass(frozen=True)
class Problem:
    """``stage`` without names; ``tensors`` and ``axes`` say what its parts are for the asker.

    Each of ``known`` says what the placeholder of its name holds.
    """

    stage: Stage
    known: tuple[Stage, ...]
    tensors: Mapping[Tensor, Tensor]
    axes: Mapping[str, str]

    @staticmethod
    def of(stage: Stage, known: Mapping[Tensor, Stage] | None = None) -> Problem:
        """``stage`` as a problem; ``known`` says what tensors hold that it may read."""
        axis = _Numbered()
        tensors: dict[Tensor, Tensor] = {}

        def tensor(own: Tensor) -> Tensor:
            if own not in tensors:
                tensors[own] = Placeholder(f"{STAGE}{len(tensors)}", own.shape, own.dtype)
            return tensors[own]

        unnamed = respelled(stage, STAGE, axis, tensor)
        definitions = tuple(
            respelled(definition, tensor(held).name, _Numbered(), tensor)
            for held, definition in (known or {}).items()
        )
        return Problem(
            unnamed,
            definitions,
            {numbered: own for own, numbered in tensors.items()},
            {numbered.name: own.name for own, numbered in axis.known.items()},
        )

    def answer(self, solution: Iterable[Stage], naming: Callable[[str], str]) -> list[Stage]:
        """The stages of ``solution`` for the asker, each named by ``naming``."""
        known = dict(self.tensors)
        stages: list[Stage] = []
        for part in solution:
            axis = _SourceNames(self.axes)
            stage = respelled(part, naming(part.name), axis, known.__getitem__)
            known[part] = stage
            stages.append(stage)
        return stages


class _Numbered:
    """The axes of one stage, numbered in the order of first use."""

    def __init__(self) -> None:
        self.known: dict[Axis, Axis] = {}

    def __call__(self, own: Axis) -> Axis:
        if own not in self.known:
            self.known[own] = Axis(f"a{len(self.known):02}", own.extent)
        return self.known[own]


class _SourceNames:
    """Axes of one stage under the names of the asker, no two alike.

    An axis that the rules made of the axis ``a03`` is called ``a03_1``.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._known: dict[Axis, Axis] = {}
        self._taken: set[str] = set()

    def __call__(self, axis: Axis) -> Axis:
        if axis not in self._known:
            stem, mark, number = axis.name.partition("_")
            source = self._names.get(stem, stem)
            name = f"{source}{mark}{number}"
            count = 0
            while name in self._taken:
                count += 1
                name = f"{source}_{count}"
            self._taken.add(name)
            self._known[axis] = Axis(name, axis.extent)
        return self._known[axis]


def respelled(
    stage: Stage, name: str, axis: Callable[[Axis], Axis], tensor: Callable[[Tensor], Tensor]
) -> Stage:
    """``stage`` under ``name`` over other axes and tensors, asked for in the order of use."""
    own = tuple(map(axis, stage.axes))
    done: dict[Expr, Expr] = {}
    for node in postorder(*stage.roots):
        children = tuple(done[child] for child in node.children)
        match node:
            case Axis():
                done[node] = axis(node)
            case Read(source, _):
                done[node] = Read(tensor(source), children)
            case Reduce(combiner, axes, _, _):
                done[node] = Reduce(combiner, tuple(map(axis, axes)), *children)
            case _:
                done[node] = with_children(node, children)
    scatters = tuple(
        Scatter(
            tuple(map(axis, scatter.axes)),
            done[scatter.cond],
            tuple(done[index] for index in scatter.indices),
            done[scatter.value],
        )
        for scatter in stage.scatters
    )
    return Stage(name, own, done[stage.body], scatters)
