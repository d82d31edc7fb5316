"""Derivatives beside the gradient: tangents, Jacobians, and second derivatives along a vector.

Each is a program of stages, simplified like a gradient, that can be evaluated, built, and
differentiated again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypedDict, Unpack

from eqsatad.errors import ShapeError
from eqsatad.extract.cost import CostModel, extent
from eqsatad.extract.outcome import UNTOUCHED, Simplified
from eqsatad.extract.points import Points
from eqsatad.extract.sites import program_cost
from eqsatad.grad import reverse
from eqsatad.grad.custom import spelled
from eqsatad.grad.forward import Tangents, forward
from eqsatad.grad.scope import identity
from eqsatad.pipeline import Gradients, Results, differentiate, model, simplified
from eqsatad.rules.collection import NO_ROWS, collected
from eqsatad.rules.copies import inline, inline_copies, retarget
from eqsatad.rules.given import Rules
from eqsatad.rules.growth import Limits
from eqsatad.terms.nodes import Scatter, Stage, Tensor
from eqsatad.terms.walk import program

Tensors = Tensor | Sequence[Tensor]


class Options(TypedDict, total=False):
    """The options that `differentiate` has too, with the same meaning and defaults."""

    allow_zero: bool
    ties: str
    simplify: bool
    cost: str | CostModel
    rules: Rules | None
    trusted: bool
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
    but its zero: a diagonal or banded Jacobian, and every part on the way to it, is worked out on
    its band only. It is taken backwards, or forwards where there are more outputs than inputs
    and that is cheaper.
    """
    given = _listed(inputs)
    backwards = differentiate(output, given, "identity", **options)
    prices = model(options.get("cost", "cpu"))
    few = _elements([output], prices) <= _elements(given, prices)
    if few or not options.get("simplify", True):
        return backwards
    ways, points = (backwards, _pushed(backwards, options)), Points(prices)
    return min(ways, key=lambda way: program_cost(way.results, points))


def _elements(tensors: Sequence[Tensor], prices: CostModel) -> int:
    """How many elements ``tensors`` have, at example sizes."""
    return sum(prod(extent(n, prices.sizes) for n in tensor.shape) for tensor in tensors)


def _pushed(whole: Gradients, options: Options) -> Gradients:
    """The Jacobian ``whole``, input by input in forward mode."""
    blocks: list[Tensor] = []
    for tensor in whole.inputs:
        seed = identity(f"{tensor.name}_seed", tensor.shape, tensor.dtype)
        chosen = _differentiation(options)
        pushed = forward([whole.output], [tensor], [seed], beside=blocks, **chosen)
        (result,) = _read_at(pushed.results, seed)
        blocks.append(_turned(result, len(tensor.shape)))
    cost, limits = options.get("cost", "cpu"), options.get("limits")
    found = simplified(blocks, cost=cost, rules=whole.rules, limits=limits)
    return replace(
        whole,
        results=found.outputs,
        saturation=found.saturation,
        adjoints=dict(zip(whole.inputs, blocks, strict=True)),
        adjoint_summands={tensor: {} for tensor in whole.inputs},
    )


def _read_at(results: Sequence[Tensor], seed: Stage) -> list[Tensor]:
    """``results`` with the condition that ``seed`` is in the place of its elements."""
    replaced: dict[Tensor, Tensor] = {}
    for tensor in program(results):
        replaced[tensor] = tensor
        if isinstance(tensor, Stage):
            replaced[tensor] = inline(retarget(tensor, replaced), [seed])
    return [replaced[result] for result in results]


def _turned(result: Tensor, count: int) -> Stage:
    """``result`` with its first ``count`` axes behind the others."""
    assert isinstance(result, Stage), "a tangent along a seed is worked out"
    scatters = [
        Scatter(one.axes, one.cond, (*one.indices[count:], *one.indices[:count]), one.value)
        for one in result.scatters
    ]
    axes = (*result.axes[count:], *result.axes[:count])
    return Stage(result.name, axes, result.body, tuple(scatters))


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
    chosen = collected(options.get("rules"), trusted=options.get("trusted", False))
    cost, limits = options.get("cost", "cpu"), options.get("limits")
    if options.get("simplify", True):
        found = simplified(pushed.results, cost=cost, rules=chosen, limits=limits)
    else:
        found, chosen = Simplified(tuple(pushed.results), UNTOUCHED), NO_ROWS
    return Directional(
        results=found.outputs,
        title=title,
        notes=notes,
        saturation=found.saturation,
        rules=chosen,
        inputs=tuple(inputs),
        tangents=pushed.given,
    )
