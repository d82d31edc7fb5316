"""The operators on which derivatives of every kind are tested: the library's, and more in text.

Shapes are small, since each is differentiated three times and evaluated many times; data is
double precision and has no ties. ``python -m tests.operators`` says how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.terms.nodes import Tensor

Array = NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operator:
    """An operator and its operands: ``bounds`` has those of integers, ``positive`` is for log."""

    id: str
    build: Callable[..., Tensor]
    shapes: tuple[Shape, ...]
    bounds: dict[int, int] = field(default_factory=dict)
    positive: bool = False

    def tensors(self) -> list[Tensor]:
        """A placeholder for each operand."""
        return [
            ea.placeholder(shape, name=f"x{n}", dtype="int32" if n in self.bounds else "float64")
            for n, shape in enumerate(self.shapes)
        ]

    def arrays(self) -> dict[str, Array]:
        """Data for each operand, by name, the same every time."""
        random = np.random.default_rng(len(self.id) + 7)
        found: dict[str, Array] = {}
        for n, shape in enumerate(self.shapes):
            if n in self.bounds:
                found[f"x{n}"] = random.integers(0, self.bounds[n], shape).astype("int32")
            elif self.positive:
                found[f"x{n}"] = random.uniform(0.5, 2.0, shape)
            else:
                found[f"x{n}"] = random.normal(size=shape)
        return found


def written(id: str, statements: str, *shapes: Shape, **options: Any) -> Operator:
    """An operator in index notation over ``x0``, ``x1``, ..."""

    def build(*tensors: Tensor) -> Tensor:
        return ea.op(statements, **{tensor.name: tensor for tensor in tensors})

    return Operator(id, build, shapes, **options)


IMAGE = (1, 2, 5, 4)

LIBRARY = (
    Operator("matmul", nn.matmul, ((3, 4), (4, 2))),
    Operator("batched_matmul", nn.batched_matmul, ((2, 3, 4), (2, 4, 2))),
    Operator("dense", nn.dense, ((3, 4), (2, 4), (2,))),
    Operator(
        "conv1d",
        lambda x, w: nn.conv1d(x, w, pad=[(2, 0)], dilation=2),
        ((1, 2, 6), (2, 2, 2)),
    ),
    Operator("conv2d", lambda x, w: nn.conv2d(x, w, pad=1), (IMAGE, (2, 2, 3, 3))),
    Operator(
        "conv2d-strided", lambda x, w: nn.conv2d(x, w, stride=2, pad=1), (IMAGE, (2, 2, 3, 2))
    ),
    Operator(
        "conv2d-grouped",
        lambda x, w: nn.conv2d(x, w, groups=2, dilation=2, pad=2),
        (IMAGE, (2, 1, 2, 2)),
    ),
    Operator("conv3d", nn.conv3d, ((1, 1, 3, 4, 3), (2, 1, 2, 2, 2))),
    Operator(
        "conv2d_transpose",
        lambda x, w: nn.conv2d_transpose(x, w, stride=2, pad=1, output_pad=1),
        ((1, 2, 3, 2), (2, 1, 3, 3)),
    ),
    Operator("max_pool", lambda x: nn.max_pool(x, 2), (IMAGE,)),
    Operator("max_pool-overlap", lambda x: nn.max_pool(x, 3, 2, 1), (IMAGE,)),
    Operator("avg_pool", lambda x: nn.avg_pool(x, 2), (IMAGE,)),
    Operator(
        "avg_pool-overlap",
        lambda x: nn.avg_pool(x, 3, 2, 1, count_include_pad=False),
        (IMAGE,),
    ),
    Operator("global_avg_pool", nn.global_avg_pool, (IMAGE,)),
    Operator("relu", nn.relu, ((3, 4),)),
    Operator("softmax", nn.softmax, ((2, 4),)),
    Operator("log_softmax", nn.log_softmax, ((2, 4),)),
    Operator("logsumexp", nn.logsumexp, ((2, 4),)),
    Operator("cross_entropy", nn.cross_entropy, ((3, 4), (3,)), {1: 4}),
    Operator("layer_norm", nn.layer_norm, ((2, 4), (4,), (4,))),
    Operator("reshape", lambda x: nn.reshape(x, (3, 4)), ((2, 6),)),
    Operator("flatten", nn.flatten, ((2, 2, 3),)),
    Operator("transpose", lambda x: nn.transpose(x, (1, 2, 0)), ((2, 3, 2),)),
    Operator("concatenate", lambda *x: nn.concatenate(x, axis=1), ((2, 2), (2, 1), (2, 3))),
    Operator("split", lambda x: nn.split(x, 3, axis=1)[1], ((2, 6),)),
    Operator("broadcast_to", lambda x: nn.broadcast_to(x, (4, 2, 3)), ((2, 1),)),
    Operator("pad", lambda x: nn.pad(x, ((1, 2), (0, 1)), 7.0), ((2, 3),)),
    Operator("take", lambda x, i: nn.take(x, i, axis=1), ((2, 5), (4,)), {1: 5}),
    Operator("embedding", nn.embedding, ((5, 2), (4,)), {1: 5}),
    Operator("pixel_shuffle", lambda x: nn.pixel_shuffle(x, 2), ((1, 4, 2, 2),)),
    Operator("upsample_bilinear", nn.upsample_bilinear, ((1, 1, 3, 2),)),
    Operator("sum", nn.sum, ((3, 4),)),
    Operator("mean", lambda x: nn.mean(x, 1), ((2, 3, 2),)),
    Operator("max", lambda x: nn.max(x, 1), ((3, 4),)),
    Operator("cumsum", nn.cumsum, ((2, 5),)),
)

WRITTEN = (
    written("quadratic-form", "y = sum(x0[i] * x1[i,j] * x0[j])", (4,), (4, 4)),
    written("power-mean", "y[i] = sum(x0[i,k]**3)**(1/3)", (3, 4), positive=True),
    written("cosine", "y[i] = sum(x0[i,k]*x1[k]) * rsqrt(sum(x0[i,k]**2))", (3, 4), (4,)),
    written(
        "attention-score", "y[i] = sum(exp(x0[i,k]) * x1[k]) / sum(exp(x0[i,k]))", (2, 4), (4,)
    ),
    written("product", "y[i] = prod(x0[i,k])", (2, 4)),
    written("masked-product", "y[i] = prod(x0[i,k], where=k != i)", (3, 4)),
    written("running-product", "y[i<5] = prod(x0[k], where=k<=i)", (5,)),
    written("least", "y[i] = min(x0[i,k] * x1[k])", (3, 4), (4,)),
    written("triangle", "y[i<4] = sum(tanh(x0[i,k]) * x1[k], where=k<=i)", (4, 4), (4,)),
    written("stencil", "y[i<5] = tanh(x0.get(i-1) - 2*x0[i] + x0.get(i+1))", (5,)),
    written("reflected", "y[i] = x0[4-i] * sin(x0[i])", (5,)),
    written("windows", "y[i,j] = sum(x0[2*i+u, j+v] * x1[u,v])", (6, 4), (3, 2)),
    written("two-thirds", "y[i<6] = x0[(2*i)//3]**2 * x0[i//2]", (5,)),
    written("wrapped", "y[i] = sin(x0[i]) * x0[(i+2)%5]", (5,)),
    written("mish", "y[i] = x0[i] * tanh(softplus(x0[i]))", (5,)),
    written("gelu", "y[i] = 0.5 * x0[i] * (1.0 + erf(x0[i] * 0.7071067811865476))", (5,)),
    written("entropy", "y[i] = -sum(x0[i,k] * log(x0[i,k]))", (2, 4), positive=True),
    written("angles", "y[i,j] = atan2(x0[i], x1[j]) + cos(x0[i] * x1[j])", (3,), (2,)),
    written("power", "y[i,j] = x0[i] ** x1[j]", (3,), (2,), positive=True),
    written("larger", "y[i,j] = max(x0[i], x1[j]) * x0[i]", (3,), (4,)),
    written(
        "chain", "h[i] = sum(x1[i,k] * x0[k])\ng[i] = tanh(h[i])\ny[i] = g[i] * h[i]", (3,), (3, 3)
    ),
)


def _segments(x: Tensor, places: Tensor) -> Tensor:
    return ea.scatter((3,), (6,), lambda i: (places[i], x[i] * x[i]), name="segments")


def _logaddexp(x: Tensor) -> Tensor:
    add = ea.comm_reducer(
        lambda a, b: ea.maximum(a, b) + ea.log1p(ea.exp(-ea.abs(a - b))), -1e30, "logaddexp"
    )
    k = ea.reduce_axis((0, 4), name="k")
    return ea.compute((2,), lambda i: add(x[i, k], axis=k), name="y")


BUILT = (
    Operator("segments", _segments, ((6,), (6,)), {1: 3}),
    Operator("logaddexp", _logaddexp, ((2, 4),)),
)

OPERATORS = (*LIBRARY, *WRITTEN, *BUILT)

CHECKS = "gradients to order 3, Jacobian, second derivative along a vector, pair"

if __name__ == "__main__":
    print(f"{len(OPERATORS)} operators, {len(LIBRARY)} of them of the library; each is checked in")
    print(f"tests/test_higher_order.py (differences) and tests/test_jax.py (JAX): {CHECKS}")
