"""Values and derivatives to order 3 against JAX, wherever JAX can say what an operator does.

Needs the extra ``test-jax``. Both sides are double precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import eqsatad as ea
from eqsatad.terms.nodes import Tensor
from tests.operators import OPERATORS, Operator

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install eqsatad[test-jax]")
jax.config.update("jax_enable_x64", True)
jnp, lax = jax.numpy, jax.lax

Array = NDArray[Any]
TOLERANCE = 1e-9  # the same sums in another order, up to third derivatives of some hundreds


def conv(
    x: Any, w: Any, *, stride: int = 1, pad: Any = 0, dilation: int = 1, groups: int = 1
) -> Any:
    """A convolution over channels-first data of any rank."""
    space = x.ndim - 2
    pads = [(pad, pad)] * space if isinstance(pad, int) else pad
    return lax.conv_general_dilated(
        x, w, (stride,) * space, pads, rhs_dilation=(dilation,) * space, feature_group_count=groups
    )


def conv_transpose(x: Any, w: Any) -> Any:
    """With stride 2, padding 1 and one more output, for a kernel of 3."""
    turned = jnp.flip(jnp.swapaxes(w, 0, 1), (2, 3))
    return lax.conv_general_dilated(x, turned, (1, 1), [(1, 2)] * 2, lhs_dilation=(2, 2))


def windows(x: Any, kernel: int, stride: int, pad: int, border: float) -> Any:
    """The elements of each window along a new last axis."""
    x = jnp.pad(x, [(0, 0)] * 2 + [(pad, pad)] * 2, constant_values=border)
    rows, columns = ((n - kernel) // stride + 1 for n in x.shape[2:])
    taken = [
        x[
            :,
            :,
            i : i + (rows - 1) * stride + 1 : stride,
            j : j + (columns - 1) * stride + 1 : stride,
        ]
        for i in range(kernel)
        for j in range(kernel)
    ]
    return jnp.stack(taken, axis=-1)


def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def cross_entropy(x: Any, labels: Any) -> Any:
    return -jax.nn.log_softmax(x)[jnp.arange(len(labels)), labels]


def pixel_shuffle(x: Any) -> Any:
    n, c, h, w = x.shape
    parts = x.reshape(n, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // 4, 2 * h, 2 * w)


def bilinear(x: Any) -> Any:
    return jax.image.resize(x, (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3]), "bilinear")


def segments(x: Any, places: Any) -> Any:
    return jnp.zeros(3).at[places].add(x**2)


def masked_product(x: Any) -> Any:
    return jnp.where(jnp.arange(4) != jnp.arange(3)[:, None], x, 1.0).prod(1)


def windows_of_rows(x: Any, w: Any) -> Any:
    rows = [[(x[2 * i : 2 * i + 3, j : j + 2] * w).sum() for j in range(3)] for i in range(2)]
    return jnp.array(rows)


def two_thirds(x: Any) -> Any:
    i = jnp.arange(6)
    return x[(2 * i) // 3] ** 2 * x[i // 2]


def chain(x: Any, w: Any) -> Any:
    h = w @ x
    return jnp.tanh(h) * h


def stencil(x: Any) -> Any:
    padded = jnp.pad(x, 1)
    return jnp.tanh(padded[:-2] - 2 * x + padded[2:])


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + lax.erf(x * math.sqrt(0.5)))


def window_mean(x: Any) -> Any:
    taken = windows(x, 3, 2, 1, 0.0)
    return taken.sum(-1) / windows(jnp.ones_like(x), 3, 2, 1, 0.0).sum(-1)


JAX: dict[str, Callable[..., Any]] = {
    "matmul": lambda x, w: x @ w,
    "batched_matmul": lambda x, w: x @ w,
    "dense": lambda x, w, b: x @ w.T + b,
    "conv1d": lambda x, w: conv(x, w, pad=[(2, 0)], dilation=2),
    "conv2d": lambda x, w: conv(x, w, pad=1),
    "conv2d-strided": lambda x, w: conv(x, w, stride=2, pad=1),
    "conv2d-grouped": lambda x, w: conv(x, w, groups=2, dilation=2, pad=2),
    "conv3d": conv,
    "conv2d_transpose": conv_transpose,
    "max_pool": lambda x: windows(x, 2, 2, 0, -np.inf).max(-1),
    "max_pool-overlap": lambda x: windows(x, 3, 2, 1, -np.inf).max(-1),
    "avg_pool": lambda x: windows(x, 2, 2, 0, 0.0).mean(-1),
    "avg_pool-overlap": window_mean,
    "global_avg_pool": lambda x: x.mean((2, 3)),
    "relu": jax.nn.relu,
    "softmax": jax.nn.softmax,
    "log_softmax": jax.nn.log_softmax,
    "logsumexp": lambda x: jax.nn.logsumexp(x, -1),
    "cross_entropy": cross_entropy,
    "layer_norm": layer_norm,
    "reshape": lambda x: x.reshape(3, 4),
    "flatten": lambda x: x.reshape(2, -1),
    "transpose": lambda x: x.transpose(1, 2, 0),
    "concatenate": lambda *x: jnp.concatenate(x, 1),
    "split": lambda x: jnp.split(x, 3, 1)[1],
    "broadcast_to": lambda x: jnp.broadcast_to(x, (4, 2, 3)),
    "pad": lambda x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=7.0),
    "take": lambda x, i: jnp.take(x, i, axis=1),
    "embedding": lambda x, i: x[i],
    "pixel_shuffle": pixel_shuffle,
    "upsample_bilinear": bilinear,
    "sum": jnp.sum,
    "mean": lambda x: x.mean(1),
    "max": lambda x: x.max(1),
    "cumsum": lambda x: jnp.cumsum(x, -1),
    "quadratic-form": lambda x, w: x @ w @ x,
    "power-mean": lambda x: (x**3).sum(1) ** (1 / 3),
    "cosine": lambda x, w: x @ w / jnp.sqrt((x**2).sum(1)),
    "attention-score": lambda x, w: jax.nn.softmax(x) @ w,
    "product": lambda x: x.prod(1),
    "masked-product": masked_product,
    "running-product": jnp.cumprod,
    "least": lambda x, w: (x * w).min(1),
    "triangle": lambda x, w: jnp.tril(jnp.tanh(x)) @ w,
    "stencil": stencil,
    "reflected": lambda x: x[::-1] * jnp.sin(x),
    "windows": windows_of_rows,
    "two-thirds": two_thirds,
    "wrapped": lambda x: jnp.sin(x) * jnp.roll(x, -2),
    "mish": lambda x: x * jnp.tanh(jax.nn.softplus(x)),
    "gelu": gelu,
    "entropy": lambda x: -(x * jnp.log(x)).sum(1),
    "angles": lambda x, y: jnp.arctan2(x[:, None], y) + jnp.cos(x[:, None] * y),
    "power": lambda x, y: x[:, None] ** y,
    "larger": lambda x, y: jnp.maximum(x[:, None], y) * x[:, None],
    "chain": chain,
    "segments": segments,
    "logaddexp": lambda x: jax.nn.logsumexp(x, -1),
}

operators = pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.id)


def agree(found: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE * scale)


def random(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def cubed_sum(y: Tensor) -> Tensor:
    axes = tuple(ea.reduce_axis((0, extent), name="q") for extent in y.shape)
    cube = y[axes] * y[axes] * y[axes]
    return ea.compute((), lambda: ea.sum(cube, axis=axes) if axes else cube, name="scalar")


def weighed(tensors: Sequence[Tensor], names: Sequence[str]) -> Tensor:
    """The scalar ``sum(weights * tensors)`` over weights of those names, which are inputs."""
    total = ea.const(0.0, "float64")
    for tensor, name in zip(tensors, names, strict=True):
        weight = ea.placeholder(tensor.shape, name=name, dtype="float64")
        axes = tuple(ea.reduce_axis((0, extent), name="q") for extent in tensor.shape)
        product = tensor[axes] * weight[axes]
        total = total + (ea.sum(product, axis=axes) if axes else product)
    return ea.compute((), lambda: total, name=f"scalar_{names[0]}")


@operators
def test_value_and_gradients_agree_with_jax(operator: Operator) -> None:
    tensors, arrays = operator.tensors(), operator.arrays()
    y = operator.build(*tensors)
    given, moving = _operands(operator)
    value, back = jax.vjp(
        lambda *moved: JAX[operator.id](*_among(given, moving, moved)), *(given[n] for n in moving)
    )
    agree(ea.evaluate([y], arrays)[0], value)
    head = random(np.shape(value), 1)
    gradients = ea.differentiate(y, [tensors[n] for n in moving])
    for found, expected in zip(
        ea.evaluate(list(gradients), arrays | {"head": head}), back(jnp.asarray(head)), strict=True
    ):
        agree(found, expected)


@operators
def test_pair_with_saved_tensors_agrees_with_jax(operator: Operator) -> None:
    tensors, arrays = operator.tensors(), operator.arrays()
    y = operator.build(*tensors)
    given, moving = _operands(operator)
    value, back = jax.vjp(
        lambda *moved: JAX[operator.id](*_among(given, moving, moved)), *(given[n] for n in moving)
    )
    ahead, behind = ea.vjp(y, [tensors[n] for n in moving])
    out, *saved = ea.evaluate(list(ahead), arrays)
    agree(out, value)
    head = random(np.shape(value), 1)
    kept = {tensor.name: array for tensor, array in zip(ahead.saved, saved, strict=True)}
    gradients = ea.evaluate(list(behind), arrays | kept | {y.name: out, "head": head})
    for found, expected in zip(gradients, back(jnp.asarray(head)), strict=True):
        agree(found, expected)


@pytest.mark.parametrize("order", [2, 3])
@operators
def test_gradients_of_gradients_agree_with_jax(operator: Operator, order: int) -> None:
    tensors, arrays = operator.tensors(), operator.arrays()
    given, moving = _operands(operator)
    inputs, at = [tensors[n] for n in moving], [given[n] for n in moving]
    scalar, function = cubed_sum(operator.build(*tensors)), _cubed(operator)
    for turn in range(1, order):
        weights = [random(array.shape, 10 * turn + n) for n, array in enumerate(at)]
        named = {f"weight{turn}_{n}": array for n, array in enumerate(weights)}
        arrays |= named
        slopes = ea.differentiate(scalar, inputs, "identity")
        scalar = weighed(slopes, list(named))
        function = _weighed(jax.grad(function, argnums=tuple(range(len(at)))), weights)
    expected = jax.grad(function, argnums=tuple(range(len(at))))(*at)
    gradients = ea.differentiate(scalar, inputs, "identity")
    for found, other in zip(ea.evaluate(list(gradients), arrays), expected, strict=True):
        agree(found, other)


@operators
def test_jacobian_agrees_with_jax(operator: Operator) -> None:
    tensors, arrays = operator.tensors(), operator.arrays()
    given, moving = _operands(operator)
    expected = jax.jacobian(
        lambda *moved: JAX[operator.id](*_among(given, moving, moved)),
        argnums=tuple(range(len(moving))),
    )(*(given[n] for n in moving))
    blocks = ea.jacobian(operator.build(*tensors), [tensors[n] for n in moving])
    for found, other in zip(ea.evaluate(list(blocks), arrays), expected, strict=True):
        agree(found, other)


@operators
def test_second_derivative_along_a_vector_agrees_with_jax(operator: Operator) -> None:
    tensors, arrays = operator.tensors(), operator.arrays()
    given, moving = _operands(operator)
    way = [random(given[n].shape, 2 + n) for n in moving]
    slopes = jax.grad(_cubed(operator), argnums=tuple(range(len(moving))))
    _, expected = jax.jvp(slopes, tuple(given[n] for n in moving), tuple(way))
    product = ea.hvp(cubed_sum(operator.build(*tensors)), [tensors[n] for n in moving])
    along = {tensor.name: array for tensor, array in zip(product.tangents, way, strict=True)}
    for found, other in zip(ea.evaluate(list(product), arrays | along), expected, strict=True):
        agree(found, other)


@operators
def test_third_derivative_along_two_vectors_agrees_with_jax(operator: Operator) -> None:
    tensors, arrays = operator.tensors(), operator.arrays()
    given, moving = _operands(operator)
    first, second = ([random(given[n].shape, seed + n) for n in moving] for seed in (2, 12))
    at = tuple(given[n] for n in moving)
    slopes = jax.grad(_cubed(operator), argnums=tuple(range(len(moving))))
    _, expected = jax.jvp(lambda *x: jax.jvp(slopes, x, tuple(first))[1], at, tuple(second))
    inputs = [tensors[n] for n in moving]
    product = ea.hvp(cubed_sum(operator.build(*tensors)), inputs)
    third = ea.jvp(list(product), inputs)
    along = {
        tensor.name: array
        for tangents, way in ((product.tangents, first), (third.tangents, second))
        for tensor, array in zip(tangents, way, strict=True)
    }
    for found, other in zip(ea.evaluate(list(third), arrays | along), expected, strict=True):
        agree(found, other)


def _operands(operator: Operator) -> tuple[list[Array], list[int]]:
    """The data of every operand, and the places of those that are floats."""
    moving = [n for n, tensor in enumerate(operator.tensors()) if tensor.dtype == "float64"]
    return list(operator.arrays().values()), moving


def _cubed(operator: Operator) -> Callable[..., Any]:
    """The sum of the cubes of what the operator gives, as a function of its floats."""
    given, moving = _operands(operator)

    def scalar(*moved: Any) -> Any:
        return (JAX[operator.id](*_among(given, moving, moved)) ** 3).sum()

    return scalar


def _weighed(gradients: Callable[..., Any], weights: Sequence[Array]) -> Callable[..., Any]:
    """The sum of what ``gradients`` gives times ``weights``, as a function of the same."""

    def scalar(*moved: Any) -> Any:
        return sum((g * w).sum() for g, w in zip(gradients(*moved), weights, strict=True))

    return scalar


def _among(given: list[Array], moving: list[int], moved: tuple[Any, ...]) -> list[Any]:
    """``given`` with those that move replaced."""
    places = dict(zip(moving, moved, strict=True))
    return [places.get(n, array) for n, array in enumerate(given)]
