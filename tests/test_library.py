"""The operators of the library against numpy written out by hand, and their errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eqsatad import library as nn
from eqsatad.errors import ShapeError
from eqsatad.terms import builders as ea
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Tensor

Array = NDArray[Any]


def conv(
    x: Array,
    w: Array,
    *,
    stride: int = 1,
    pad: Sequence[tuple[int, int]] = (),
    dilation: int = 1,
    groups: int = 1,
) -> Array:
    """A convolution of any rank, one output at a time."""
    space = x.ndim - 2
    pairs = list(pad) or [(0, 0)] * space
    x = np.pad(x, [(0, 0), (0, 0), *pairs])
    filters, depth, *kernel = w.shape
    outputs = [
        (n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], kernel, strict=True)
    ]
    y = np.zeros((x.shape[0], filters, *outputs))
    for f, *at in product(range(filters), *map(range, outputs)):
        first = f // (filters // groups) * depth
        taken = tuple(
            slice(o * stride, o * stride + dilation * (k - 1) + 1, dilation)
            for o, k in zip(at, kernel, strict=True)
        )
        part = x[(slice(None), slice(first, first + depth), *taken)]
        y[(slice(None), f, *at)] = (part * w[f]).sum(axis=tuple(range(1, x.ndim)))
    return y


def conv_transpose(
    x: Array, w: Array, *, stride: int, pad: int, dilation: int, output_pad: int
) -> Array:
    """Each input spread over the outputs that it reaches."""
    (batch, channels, *size), (_, filters, *kernel) = x.shape, w.shape
    full = [
        (n - 1) * stride + dilation * (k - 1) + 1 + output_pad
        for n, k in zip(size, kernel, strict=True)
    ]
    y = np.zeros((batch, filters, *full))
    for c, o, q, i, j in product(range(channels), *map(range, size), *map(range, kernel)):
        u, v = o * stride + i * dilation, q * stride + j * dilation
        y[:, :, u, v] += x[:, c, o, q][:, None] * w[c, :, i, j]
    return y[:, :, pad : full[0] - pad, pad : full[1] - pad]


def pool(
    x: Array,
    reduce: Callable[[Array], Any],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: int = 0,
) -> Array:
    """``reduce`` of the elements of each window that lie inside."""
    size = x.shape[2:]
    outputs = [(n + 2 * pad - k) // s + 1 for n, k, s in zip(size, kernel, stride, strict=True)]
    y = np.empty((*x.shape[:2], *outputs))
    for n, c, o, q in np.ndindex(y.shape):
        part = x[n, c]
        for axis, (at, k, s) in enumerate(zip((o, q), kernel, stride, strict=True)):
            start = at * s - pad
            part = part.take(range(max(start, 0), min(start + k, size[axis])), axis=axis)
        y[n, c, o, q] = reduce(part)
    return y


def softmax(x: Array) -> Array:
    """Exponentials that add up to 1 along the last axis."""
    exps = np.exp(x - x.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    """Zero mean and unit variance along the last axis, then an affine map."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * gamma + beta


def bilinear(x: Array, factor: int) -> Array:
    """Interpolation along one spatial axis after the other."""
    for axis in (2, 3):
        n = x.shape[axis]
        at = np.clip((np.arange(n * factor) + 0.5) / factor - 0.5, 0, n - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, n - 1)
        share = (at - low).reshape([-1 if m == axis else 1 for m in range(4)])
        x = x.take(low, axis) * (1 - share) + x.take(high, axis) * share
    return x


def pixel_shuffle(x: Array, r: int) -> Array:
    """Channels laid out as squares."""
    n, c, h, w = x.shape
    y = np.empty((n, c // r**2, h * r, w * r))
    for k, i, j in product(range(c // r**2), range(r), range(r)):
        y[:, k, i::r, j::r] = x[:, k * r * r + i * r + j]
    return y


@dataclass(frozen=True)
class Row:
    """An operator, its operands' shapes, and the same in numpy."""

    id: str
    ours: Callable[..., Tensor]
    numpy: Callable[..., Array]
    shapes: tuple[tuple[int, ...], ...]
    integers: dict[int, int] = field(default_factory=dict)


def conv_row(name: str, x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> Row:
    """A convolution with the same options on both sides."""
    space = len(x) - 2
    ours = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}[space]
    pad = options.get("pad", 0)
    pairs = [(pad, pad)] * space if isinstance(pad, int) else pad
    theirs = {**options, "pad": pairs}
    return Row(name, lambda x, w: ours(x, w, **options), lambda x, w: conv(x, w, **theirs), (x, w))


IMAGE = (2, 3, 7, 6)

ROWS = (
    Row("matmul", nn.matmul, np.matmul, ((4, 5), (5, 3))),
    Row("batched_matmul", nn.batched_matmul, np.matmul, ((2, 4, 5), (2, 5, 3))),
    Row("dense", nn.dense, lambda x, w: x @ w.T, ((4, 5), (3, 5))),
    Row("dense-bias", nn.dense, lambda x, w, b: x @ w.T + b, ((4, 5), (3, 5), (3,))),
    conv_row("conv1d-causal", (2, 3, 9), (4, 3, 2), pad=[(3, 0)], dilation=3),
    conv_row("conv2d", IMAGE, (4, 3, 3, 2)),
    conv_row("conv2d-strided", IMAGE, (4, 3, 3, 3), stride=2, pad=1),
    conv_row("conv2d-dilated", IMAGE, (4, 3, 2, 2), dilation=3, pad=2),
    conv_row("conv2d-grouped", (2, 4, 5, 6), (6, 2, 3, 3), groups=2, pad=1),
    conv_row("conv2d-depthwise", IMAGE, (3, 1, 3, 3), groups=3, pad=1),
    conv_row("conv3d", (1, 2, 4, 5, 6), (3, 2, 3, 3, 3), pad=1, stride=2),
    Row(
        "conv2d-bias",
        nn.conv2d,
        lambda x, w, b: conv(x, w) + b[:, None, None],
        (IMAGE, (4, 3, 3, 2), (4,)),
    ),
    Row(
        "conv2d_transpose",
        lambda x, w: nn.conv2d_transpose(x, w, stride=2, pad=1, output_pad=1),
        lambda x, w: conv_transpose(x, w, stride=2, pad=1, dilation=1, output_pad=1),
        ((2, 3, 4, 5), (3, 2, 3, 3)),
    ),
    Row(
        "conv2d_transpose-dilated",
        lambda x, w: nn.conv2d_transpose(x, w, stride=3, dilation=2),
        lambda x, w: conv_transpose(x, w, stride=3, pad=0, dilation=2, output_pad=0),
        ((2, 3, 4, 5), (3, 2, 3, 2)),
    ),
    Row(
        "max_pool", lambda x: nn.max_pool(x, 2), lambda x: pool(x, np.max, (2, 2), (2, 2)), (IMAGE,)
    ),
    Row(
        "max_pool-overlap",
        lambda x: nn.max_pool(x, 3, 2, 1),
        lambda x: pool(x, np.max, (3, 3), (2, 2), 1),
        (IMAGE,),
    ),
    Row(
        "max_pool-rectangle",
        lambda x: nn.max_pool(x, (3, 2), (1, 2)),
        lambda x: pool(x, np.max, (3, 2), (1, 2)),
        (IMAGE,),
    ),
    Row(
        "avg_pool-overlap",
        lambda x: nn.avg_pool(x, 3, 2, 1),
        lambda x: pool(x, np.sum, (3, 3), (2, 2), 1) / 9,
        (IMAGE,),
    ),
    Row(
        "avg_pool-excluding-padding",
        lambda x: nn.avg_pool(x, 3, 2, 1, count_include_pad=False),
        lambda x: pool(x, np.mean, (3, 3), (2, 2), 1),
        (IMAGE,),
    ),
    Row("global_avg_pool", nn.global_avg_pool, lambda x: x.mean(axis=(2, 3)), (IMAGE,)),
    Row("relu", nn.relu, lambda x: np.maximum(x, 0), ((4, 5),)),
    Row("softmax", nn.softmax, softmax, ((4, 5),)),
    Row("softmax-three-axes", nn.softmax, softmax, ((2, 4, 5),)),
    Row("log_softmax", nn.log_softmax, lambda x: np.log(softmax(x)), ((4, 5),)),
    Row("logsumexp", nn.logsumexp, lambda x: np.log(np.exp(x).sum(axis=-1)), ((4, 5),)),
    Row(
        "cross_entropy",
        nn.cross_entropy,
        lambda x, labels: -np.log(softmax(x))[np.arange(4), labels],
        ((4, 5), (4,)),
        {1: 5},
    ),
    Row("layer_norm", nn.layer_norm, layer_norm, ((4, 5), (5,), (5,))),
    Row("reshape", lambda x: nn.reshape(x, (3, 10)), lambda x: x.reshape(3, 10), ((5, 2, 3),)),
    Row(
        "reshape-truncating",
        lambda x: nn.reshape(x, (2, 7), truncate=True),
        lambda x: x.ravel()[:14].reshape(2, 7),
        ((5, 2, 3),),
    ),
    Row("reshape-scalar", lambda x: nn.reshape(x, ()), lambda x: x.reshape(()), ((1, 1),)),
    Row("flatten", nn.flatten, lambda x: x.reshape(2, -1), (IMAGE,)),
    Row("transpose", nn.transpose, np.transpose, ((2, 3, 4),)),
    Row(
        "transpose-rotated",
        lambda x: nn.transpose(x, (1, 2, 0)),
        lambda x: x.transpose(1, 2, 0),
        ((2, 3, 4),),
    ),
    Row(
        "concatenate",
        lambda *x: nn.concatenate(x, axis=-2),
        lambda *x: np.concatenate(x, axis=-2),
        ((2, 3, 2), (2, 1, 2), (2, 4, 2)),
    ),
    Row("split", lambda x: nn.split(x, 3, axis=1)[1], lambda x: x[:, 2:4], ((2, 6),)),
    Row("split-uneven", lambda x: nn.split(x, (1, 3, 2), axis=1)[2], lambda x: x[:, 4:], ((2, 6),)),
    Row(
        "broadcast_to",
        lambda x: nn.broadcast_to(x, (4, 2, 3)),
        lambda x: np.broadcast_to(x, (4, 2, 3)),
        ((2, 1),),
    ),
    Row(
        "pad",
        lambda x: nn.pad(x, ((1, 2), (0, 3)), 7.0),
        lambda x: np.pad(x, ((1, 2), (0, 3)), constant_values=7),
        ((3, 4),),
    ),
    Row(
        "take",
        lambda x, i: nn.take(x, i, axis=1),
        lambda x, i: x.take(i, axis=1),
        ((3, 5, 2), (2, 4)),
        {1: 5},
    ),
    Row("embedding", nn.embedding, lambda e, i: e[i], ((7, 3), (4,)), {1: 7}),
    Row(
        "pixel_shuffle",
        lambda x: nn.pixel_shuffle(x, 2),
        lambda x: pixel_shuffle(x, 2),
        ((2, 8, 3, 4),),
    ),
    Row("upsample_bilinear", nn.upsample_bilinear, lambda x: bilinear(x, 2), ((2, 3, 4, 5),)),
    Row(
        "upsample_bilinear-odd",
        lambda x: nn.upsample_bilinear(x, 3),
        lambda x: bilinear(x, 3),
        ((1, 2, 4, 3),),
    ),
    Row("sum", nn.sum, np.sum, ((3, 4),)),
    Row("sum-axes", lambda x: nn.sum(x, (0, -1)), lambda x: x.sum(axis=(0, 2)), ((3, 4, 2),)),
    Row("mean", lambda x: nn.mean(x, 1), lambda x: x.mean(axis=1), ((3, 4, 2),)),
    Row("max", lambda x: nn.max(x, 1), lambda x: x.max(axis=1), ((3, 4, 2),)),
    Row("cumsum", nn.cumsum, lambda x: x.cumsum(axis=-1), ((3, 6),)),
    Row("cumsum-first", lambda x: nn.cumsum(x, 0), lambda x: x.cumsum(axis=0), ((4, 3),)),
)


def operands(row: Row) -> tuple[list[Tensor], list[Array]]:
    """Placeholders and data for a row; integer operands stay below their bound."""
    rng = np.random.default_rng(len(row.id))
    tensors: list[Tensor] = []
    arrays: list[Array] = []
    for n, shape in enumerate(row.shapes):
        bound = row.integers.get(n)
        dtype = "float64" if bound is None else "int32"
        array = rng.normal(size=shape) if bound is None else rng.integers(0, bound, shape)
        tensors.append(ea.placeholder(shape, name=f"x{n}", dtype=dtype))
        arrays.append(array.astype(dtype))
    return tensors, arrays


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_operator_agrees_with_numpy(row: Row) -> None:
    tensors, arrays = operands(row)
    named = {t.name: array for t, array in zip(tensors, arrays, strict=True)}
    (found,) = evaluate([row.ours(*tensors)], named)
    # Both sides are double precision and add up fewer than a hundred terms.
    np.testing.assert_allclose(found, row.numpy(*arrays), rtol=1e-11, atol=1e-12)


def test_softmax_of_large_values_is_finite() -> None:
    x = ea.placeholder((1, 3), name="x", dtype="float64")
    (found,) = evaluate([nn.softmax(x)], {"x": np.array([[1e4, 1e4, -1e4]])})
    np.testing.assert_allclose(found, [[0.5, 0.5, 0.0]])


def test_symbolic_sizes_are_kept() -> None:
    n, m = ea.size("n"), ea.size("m")
    x, w = ea.placeholder((n, 5), name="x"), ea.placeholder((m, 5), name="w")
    assert nn.dense(x, w).shape == (n, m)


def test_convolution_takes_symbolic_sizes() -> None:
    n, h = ea.size("n"), ea.size("h")
    x = ea.placeholder((n, 2, h, 6), name="x", dtype="float64")
    w = ea.placeholder((3, 2, 3, 3), name="w", dtype="float64")
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(2, 2, 5, 6)), "w": rng.normal(size=(3, 2, 3, 3))}
    (found,) = evaluate([nn.conv2d(x, w, pad=1)], arrays, {"n": 2, "h": 5})
    expected = conv(arrays["x"], arrays["w"], pad=[(1, 1), (1, 1)])
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def p(*shape: int, dtype: str = "float32") -> Tensor:
    """A placeholder of no particular name."""
    return ea.placeholder(shape, name="x", dtype=dtype)


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "inner-extents": (lambda: nn.matmul(p(2, 3), p(4, 5)), "3 and 4"),
    "rank": (lambda: nn.matmul(p(2, 3, 4), p(4, 5)), "2 dimensions, found 3"),
    "batch": (lambda: nn.batched_matmul(p(2, 3, 4), p(3, 4, 5)), "2 and 3"),
    "bias": (lambda: nn.dense(p(2, 3), p(4, 3), p(5)), "4 and 5"),
    "channels": (lambda: nn.conv2d(p(1, 2, 5, 5), p(3, 4, 3, 3)), "2 and 4"),
    "window": (lambda: nn.conv2d(p(1, 2, 5, 5), p(3, 2, 3, 3), dilation=3), "does not fit"),
    "groups": (lambda: nn.conv2d(p(1, 4, 5, 5), p(3, 2, 3, 3), groups=2), "divide the 3 filters"),
    "stride": (lambda: nn.conv2d(p(1, 2, 5, 5), p(3, 2, 3, 3), stride=0), "at least 1"),
    "pad": (lambda: nn.conv2d(p(1, 2, 5, 5), p(3, 2, 3, 3), pad=(1, 1, 1)), "2 integers"),
    "pool-pad": (lambda: nn.max_pool(p(1, 2, 5, 5), 2, pad=2), "smaller than the kernel"),
    "labels": (lambda: nn.cross_entropy(p(4, 5), p(3, dtype="int32")), "4 and 3"),
    "scale": (lambda: nn.layer_norm(p(4, 5), p(4), p(5)), "5 and 4"),
    "elements": (lambda: nn.reshape(p(4, 5), (3, 7)), "20 elements"),
    "fewer-elements": (lambda: nn.reshape(p(4, 5), (3, 5)), "15"),
    "axes": (lambda: nn.transpose(p(4, 5), (0, 0)), "once"),
    "axis": (lambda: nn.sum(p(4, 5), 2), "no axis 2"),
    "concatenated": (lambda: nn.concatenate([p(4, 5), p(4, 6)]), "5 and 6"),
    "nothing": (lambda: nn.concatenate([]), "at least one"),
    "parts": (lambda: nn.split(p(4, 5), 3), "cannot be cut"),
    "repeated": (lambda: nn.broadcast_to(p(4, 5), (4, 6)), "5 and 6"),
    "fewer-axes": (lambda: nn.broadcast_to(p(4, 5), (5,)), "more dimensions"),
    "widths": (lambda: nn.pad(p(4, 5), ((1, 1),)), "pair per axis"),
    "blocks": (lambda: nn.pixel_shuffle(p(1, 6, 2, 2), 2), "multiple of 4"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_shapes_that_disagree_are_named(mistake: str) -> None:
    build, message = MISTAKES[mistake]
    with pytest.raises(ShapeError, match=message):
        build()
