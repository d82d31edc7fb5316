"""Derivatives beside the gradient: tangents, Jacobians, and second derivatives along a vector.

Each is a program of stages, simplified like a gradient, that can be evaluated, built, and
differentiated again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from eqsatad.errors import ShapeError
from eqsatad.extract.cost import CostModel
from eqsatad.extract.program import UNTOUCHED, Simplified
from eqsatad.grad import reverse
from eqsatad.grad.custom import spelled
from eqsatad.grad.forward import Tangents, forward
from eqsatad.pipeline import Gradients, Results, differentiate, simplified
from eqsatad.rules.algebra import Limits
from eqsatad.rules.catalog import Catalog, load
from eqsatad.rules.engine import inline_copies
from eqsatad.terms.nodes import Tensor

Tensors = Tensor | Sequence[Tensor]


class Options(TypedDict, total=False):
    """The options that `differentiate` has too, with the same meaning and defaults."""

    allow_zero: bool
    ties: str
    simplify: bool
    cost: str | CostModel
    rules: Catalog | None
    limits: Limits | None


@dataclass(frozen=True)
class Directional(Results):
    """Derivatives along ``tangents``, one of the shape of each of ``inputs``."""

    inputs: tuple[Tensor, ...]
    tangents: tuple[Tensor, ...]


def jvp(
    outputs: Tensors,
    inputs: Tensors,
    tangents: Tensors | None = None,
    **options: Unpack[Options],
) -> Directional:
    """How fast each output changes where the inputs move along ``tangents`` (forward mode).

    A tangent has the shape of its input, with any dimensions in front, the same for all; these
    are then in front of each result too. By default a placeholder is made for each (see
    ``.tangents``).
    """
    wanted, given = _listed(outputs), _listed(inputs)
    became = _read_through(wanted, given, options)
    wanted, given = [became[t] for t in wanted], [became.get(t, t) for t in given]
    along = None if tangents is None else _listed(tangents)
    pushed = forward(wanted, given, along, **_differentiation(options))
    title = f"tangent of {', '.join(tensor.name for tensor in wanted)}"
    notes = tuple(
        f"{tensor.name} depends on no input: its tangent is zero" for tensor in pushed.independent
    )
    return _directional(title, notes, given, pushed, options)


def jacobian(output: Tensor, inputs: Tensors, **options: Unpack[Options]) -> Gradients:
    """The derivative of every element of ``output`` by every element of each input.

    Each result has the shape ``output.shape + input.shape``. What is always zero costs nothing
    but its zero: a diagonal or banded Jacobian is worked out on its band only.
    """
    return differentiate(output, _listed(inputs), "identity", **options)


def hvp(
    output: Tensor, inputs: Tensors, tangents: Tensors | None = None, **options: Unpack[Options]
) -> Directional:
    """The product of the second derivative of a scalar with a vector, one part for each input.

    It is the tangent of the gradient: the whole second derivative is never made. ``tangents``
    are as for `jvp`.
    """
    if output.shape:
        raise ShapeError(
            f"expected a scalar to differentiate twice, found {output.name}{output.where_built} of "
            f"shape {spelled(output.shape)}. Add its elements up first."
        )
    given = _listed(inputs)
    became = _read_through([output], given, options)
    output, given = became[output], [became.get(t, t) for t in given]
    chosen = _differentiation(options)
    slopes = reverse(output, given, "identity", **chosen)
    along = None if tangents is None else _listed(tangents)
    pushed = forward(slopes.results, given, along, **chosen)
    return _directional(f"second derivative of {output.name}", (), given, pushed, options)


def _listed(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


class Differentiation(TypedDict, total=False):
    """The options of `reverse` and `forward`."""

    allow_zero: bool
    ties: str


def _differentiation(options: Options) -> Differentiation:
    return {
        "allow_zero": options.get("allow_zero", False),
        "ties": options.get("ties", "first"),
    }


def _read_through(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], options: Options
) -> dict[Tensor, Tensor]:
    """What each tensor becomes where copies are read through, as `differentiate` does."""
    if options.get("simplify", True):
        return inline_copies(outputs, keep=inputs)
    return {tensor: tensor for tensor in outputs}


def _directional(
    title: str,
    notes: tuple[str, ...],
    inputs: Sequence[Tensor],
    pushed: Tangents,
    options: Options,
) -> Directional:
    rules = options.get("rules")
    catalog = load() if rules is None else tuple(rules)
    cost, limits = options.get("cost", "cpu"), options.get("limits")
    if options.get("simplify", True):
        found = simplified(pushed.results, cost=cost, rules=catalog, limits=limits)
    else:
        found, catalog = Simplified(tuple(pushed.results), UNTOUCHED), ()
    return Directional(
        results=found.outputs,
        title=title,
        notes=notes,
        saturation=found.saturation,
        rules=catalog,
        inputs=tuple(inputs),
        tangents=pushed.given,
    )
