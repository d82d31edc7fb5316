"""Derivatives given by the user: overrides of a tensor, and manual edges between two tensors.

An override replaces what a tensor passes on to its dependencies, which may be any tensors it is
computed from, however far away. A manual derivative replaces one edge, from a stage to a tensor
it reads; None in its key stands for any tensor.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

from eqsatad.errors import DtypeError, ShapeError
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Expr, Tensor
from eqsatad.terms.show import show
from eqsatad.terms.walk import sources

# fn(tensor, dependencies, adjoint of the tensor) gives what each dependency gets, None for none.
OverrideRule = Callable[[Tensor, list[Tensor], Tensor], Sequence[Tensor | None]]
Override = Mapping[Tensor, tuple[Sequence[Tensor], OverrideRule]]
# fn(stage, tensor it reads, adjoint of the stage) gives what the tensor gets.
ManualRule = Callable[[Tensor, Tensor, Tensor], Tensor]
Manual = Mapping[tuple[Tensor | None, Tensor | None], ManualRule]


def spelled(shape: Iterable[Expr]) -> str:
    """``shape`` as it is written."""
    return f"({', '.join(map(show, shape))})"


def same_shape(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    """Whether two shapes are equal, whatever the sizes."""
    return list(map(linear, a)) == list(map(linear, b))


class Custom:
    """The user's derivatives, which of them were used, and the checks of their results."""

    def __init__(self, override: Override, manual: Manual) -> None:
        self.override, self.manual = override, manual
        self.unused: dict[object, str] = {}
        self.unused |= {tensor: f"override[{tensor.name}]" for tensor in override}
        self.unused |= {key: _label(*key) for key in manual}

    def edges(self, tensor: Tensor) -> list[Tensor]:
        """The tensors that get a part of the adjoint of ``tensor``."""
        if tensor in self.override:
            return list(self.override[tensor][0])
        return sources(tensor)

    def edge(self, out: Tensor, inp: Tensor) -> tuple[Tensor | None, Tensor | None] | None:
        """The key of the manual derivative for this edge; an exact one goes first."""
        keys = ((out, inp), (None, inp), (out, None), (None, None))
        return next((key for key in keys if key in self.manual), None)

    def overridden(
        self, tensor: Tensor, adjoint: Tensor, prefix: Sequence[Expr]
    ) -> list[tuple[Tensor, Tensor]]:
        """Each dependency that gets something from an overridden tensor, and what it gets."""
        dependencies, rule = self.override[tensor]
        label = self._use(tensor, f"override[{tensor.name}]")
        given = list(rule(tensor, list(dependencies), adjoint))
        if len(given) != len(dependencies):
            raise ShapeError(
                f"{label}: expected one contribution for each of its {len(dependencies)} "
                f"dependencies, found {len(given)}. Give None for a dependency that gets nothing."
            )
        pairs = [(d, g) for d, g in zip(dependencies, given, strict=True) if g is not None]
        for dependency, contribution in pairs:
            fits(label, contribution, dependency, prefix)
        return pairs

    def along(self, out: Tensor, inp: Tensor, adjoint: Tensor, prefix: Sequence[Expr]) -> Tensor:
        """What ``inp`` gets from ``out`` by the manual derivative of this edge."""
        key = self.edge(out, inp)
        assert key is not None
        contribution = self.manual[key](out, inp, adjoint)
        fits(self._use(key, _label(*key)), contribution, inp, prefix)
        return contribution

    def warn_of_unused(self) -> None:
        """Warns of each derivative that was given and never asked for."""
        for label in self.unused.values():
            warnings.warn(
                f"{label} was not used: no adjoint passes there on the way to the inputs.",
                UserWarning,
                stacklevel=3,
            )

    def _use(self, key: object, label: str) -> str:
        self.unused.pop(key, None)
        return label


def _label(out: Tensor | None, inp: Tensor | None) -> str:
    names = ", ".join("None" if tensor is None else tensor.name for tensor in (out, inp))
    return f"manual[{names}]"


def fits(label: str, found: Tensor, tensor: Tensor, prefix: Sequence[Expr]) -> None:
    """Raises unless ``found`` can be an adjoint of ``tensor``: ``prefix`` and its shape."""
    expected = (*prefix, *tensor.shape)
    if not same_shape(found.shape, expected):
        raise ShapeError(
            f"{label}: expected the shape {spelled(expected)} for {tensor.name}, found "
            f"{found.name}{found.where_built} of shape {spelled(found.shape)}. Give a tensor of "
            "the expected shape."
        )
    if found.dtype != tensor.dtype:
        raise DtypeError(
            f"{label}: expected {tensor.dtype} for {tensor.name}, found {found.name}"
            f"{found.where_built} of {found.dtype}. Cast it."
        )
