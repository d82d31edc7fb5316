"""Gradients of gradients, tangents, Jacobians and second derivatives against central differences.

Each order is checked against differences of the order before it, which was checked itself, in
double precision through the numpy evaluator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import eqsatad as ea
from eqsatad.terms.nodes import Tensor
from tests.operators import OPERATORS, Operator

Array = NDArray[Any]
Arrays = dict[str, Array]

STEP = 1e-5
TOLERANCE = 1e-6  # of central differences with STEP in float64, relative to the largest value

operators = pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.id)


def floats(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor.dtype == "float64"]


def cubed(y: Tensor) -> Tensor:
    """``y**3``, so that no derivative to order 3 of a linear operator is zero."""
    return ea.compute(y.shape, lambda *i: y[i] * y[i] * y[i], name="cubed")


def weighed(tensors: Sequence[Tensor], order: int) -> tuple[Tensor, list[Tensor]]:
    """The scalar ``sum(weights * tensors)``, and the weights, which are inputs."""
    total, weights = ea.const(0.0, "float64"), []
    for n, tensor in enumerate(tensors):
        weight = ea.placeholder(tensor.shape, name=f"weight{order}_{n}", dtype="float64")
        axes = tuple(ea.reduce_axis((0, extent), name="q") for extent in tensor.shape)
        product = tensor[axes] * weight[axes]
        total = total + (ea.sum(product, axis=axes) if axes else product)
        weights.append(weight)
    return ea.compute((), lambda: total, name=f"scalar{order}"), weights


def random_like(tensors: Sequence[Tensor], seed: int, prefix: tuple[int, ...] = ()) -> Arrays:
    """Random arrays of the shapes of ``tensors``, by name."""
    random = np.random.default_rng(seed)
    return {
        tensor.name: random.uniform(-1, 1, (*prefix, *(int(n.value) for n in tensor.shape)))
        for tensor in tensors
    }


def moved(arrays: Arrays, way: Arrays, step: float) -> Arrays:
    return arrays | {name: arrays[name] + step * way[name] for name in way}


def slopes(outputs: Sequence[Tensor], arrays: Arrays, way: Arrays) -> list[Array]:
    """The central differences of ``outputs`` along ``way``."""
    ahead, behind = (ea.evaluate(outputs, moved(arrays, way, s)) for s in (STEP, -STEP))
    return [(a - b) / (2 * STEP) for a, b in zip(ahead, behind, strict=True)]


def agree(found: Sequence[Array], expected: Sequence[Array], tolerance: float = TOLERANCE) -> None:
    for one, other in zip(found, expected, strict=True):
        scale = max(1.0, float(np.abs(other).max(initial=0.0)))
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale)


def along(gradients: Sequence[Array], inputs: Sequence[Tensor], way: Arrays) -> Array:
    """The slope along ``way`` that ``gradients`` tell."""
    parts = (g * way[tensor.name] for g, tensor in zip(gradients, inputs, strict=True))
    return np.asarray(sum(float(part.sum()) for part in parts))


@operators
def test_gradients_to_order_3_agree_with_differences(operator: Operator) -> None:
    tensors, arrays = operator.tensors(), operator.arrays()
    inputs = floats(tensors)
    current: Sequence[Tensor] = [cubed(operator.build(*tensors))]
    for order in (1, 2, 3):
        scalar, weights = weighed(current, order)
        arrays |= random_like(weights, order)
        current = ea.differentiate(scalar, inputs, "identity")
        way = random_like(inputs, 10 + order)
        found = along(ea.evaluate(list(current), arrays), inputs, way)
        agree([found], slopes([scalar], arrays, way))


@operators
def test_tangent_agrees_with_differences_and_with_the_gradient(operator: Operator) -> None:
    tensors, arrays = operator.tensors(), operator.arrays()
    inputs, y = floats(tensors), operator.build(*tensors)
    pushed = ea.jvp(y, inputs)
    named = random_like(inputs, 3)
    way = {t.name: named[i.name] for t, i in zip(pushed.tangents, inputs, strict=True)}
    (found,) = ea.evaluate(list(pushed), arrays | way)
    agree([found], slopes([y], arrays, named))
    gradients = ea.differentiate(y, inputs)
    head = random_like([y], 4)[y.name]
    back = ea.evaluate(list(gradients), arrays | {"head": head})
    # The same sums in another order.
    agree([np.asarray((found * head).sum())], [along(back, inputs, named)], 1e-9)


@operators
def test_second_derivative_along_a_vector_agrees_with_differences(operator: Operator) -> None:
    tensors, arrays = operator.tensors(), operator.arrays()
    inputs = floats(tensors)
    scalar, weights = weighed([cubed(operator.build(*tensors))], 1)
    arrays |= random_like(weights, 1)
    product = ea.hvp(scalar, inputs)
    named = random_like(inputs, 3)
    way = {t.name: named[i.name] for t, i in zip(product.tangents, inputs, strict=True)}
    gradients = list(ea.differentiate(scalar, inputs, "identity"))
    agree(ea.evaluate(list(product), arrays | way), slopes(gradients, arrays, named))


@operators
def test_jacobian_times_a_direction_agrees_with_differences(operator: Operator) -> None:
    tensors, arrays = operator.tensors(), operator.arrays()
    inputs, y = floats(tensors), operator.build(*tensors)
    blocks = ea.evaluate(list(ea.jacobian(y, inputs)), arrays)
    way = random_like(inputs, 5)
    parts = [
        np.tensordot(block, way[tensor.name], axes=len(tensor.shape))
        for block, tensor in zip(blocks, inputs, strict=True)
    ]
    agree([np.sum(parts, axis=0)], slopes([y], arrays, way))


LIMITS = {"all-that-pays": None, "some": 100, "nothing": 0}


@pytest.mark.parametrize("limit", LIMITS)
@operators
def test_pair_gives_the_value_and_the_gradients(operator: Operator, limit: str) -> None:
    tensors, arrays = operator.tensors(), operator.arrays()
    inputs, y = floats(tensors), operator.build(*tensors)
    forward, backward = ea.vjp(y, inputs, LIMITS[limit])
    value, *saved = ea.evaluate(list(forward), arrays)
    agree([value], ea.evaluate([y], arrays), 1e-9)
    assert sum(array.nbytes for array in saved) <= (LIMITS[limit] or np.inf) or not saved
    given = random_like([y], 6)[y.name]
    kept = {tensor.name: array for tensor, array in zip(forward.saved, saved, strict=True)}
    found = ea.evaluate(list(backward), arrays | kept | {y.name: value, "head": given})
    gradients = list(ea.differentiate(y, inputs))
    # The same sums in another order.
    agree(found, ea.evaluate(gradients, arrays | {"head": given}), 1e-9)
    way = random_like(inputs, 7)
    (slope,) = slopes([y], arrays, way)
    agree([along(found, inputs, way)], [np.asarray((slope * given).sum())])


def test_table_has_forty_operators() -> None:
    assert len({operator.id for operator in OPERATORS}) == len(OPERATORS) >= 40
