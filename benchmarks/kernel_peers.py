"""The gradients of the kernel benchmarks as an expert would write them in numpy.

They serve twice: in float32 as the peer that numpy is, and in float64 as the independent
reference that results are checked against. Each takes the head first and returns a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def place(*index: Any) -> tuple[Any, ...]:
    """An index made of parts."""
    return index


def taps(
    kernel: Sequence[int], outputs: Sequence[int], stride: int, dilation: int
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each kernel position, with the padded positions that it reads."""
    for tap in product(*map(range, kernel)):
        yield (
            tap,
            tuple(
                slice(k * dilation, k * dilation + stride * (o - 1) + 1, stride)
                for k, o in zip(tap, outputs, strict=True)
            ),
        )


def padded(x: Array, pad: int) -> Array:
    """``x`` with a border of zeros around its spatial axes."""
    widths = [(0, 0), (0, 0), *[(pad, pad)] * (x.ndim - 2)]
    return np.pad(x, widths) if pad else x


def conv_dw(
    h: Array, x: Array, w: Array, *, stride: int = 1, pad: int = 0, dilation: int = 1
) -> list[Array]:
    """Columns of the input, then one matrix product."""
    kernel, outputs = w.shape[2:], h.shape[2:]
    source = padded(x, pad)
    columns = np.empty((x.shape[1], *kernel, x.shape[0], *outputs), dtype=x.dtype)
    for tap, at in taps(kernel, outputs, stride, dilation):
        columns[place(slice(None), *tap)] = source[place(..., *at)].swapaxes(0, 1)
    heads = h.swapaxes(0, 1).reshape(w.shape[0], -1)
    return [(heads @ columns.reshape(-1, heads.shape[1]).T).reshape(w.shape)]


def conv_dx(
    h: Array, x: Array, w: Array, *, stride: int = 1, pad: int = 0, dilation: int = 1
) -> list[Array]:
    """One matrix product, then the columns added back to where they came from."""
    kernel, outputs = w.shape[2:], h.shape[2:]
    heads = h.swapaxes(0, 1).reshape(w.shape[0], -1)
    columns = w.reshape(w.shape[0], -1).T @ heads
    columns = columns.reshape(x.shape[1], *kernel, x.shape[0], *outputs)
    result = np.zeros((x.shape[1], x.shape[0], *(n + 2 * pad for n in x.shape[2:])), dtype=x.dtype)
    for tap, at in taps(kernel, outputs, stride, dilation):
        result[place(..., *at)] += columns[place(slice(None), *tap)]
    inner = tuple(slice(pad, pad + n) for n in x.shape[2:])
    return [np.ascontiguousarray(result[place(..., *inner)].swapaxes(0, 1))]


def depthwise_dx(h: Array, x: Array, w: Array, *, pad: int) -> list[Array]:
    """One scaled shift per tap."""
    result = np.zeros(padded(x, pad).shape, dtype=x.dtype)
    for tap, at in taps(w.shape[2:], h.shape[2:], 1, 1):
        result[place(..., *at)] += h * w[place(slice(None), 0, *tap)][:, None, None]
    return [np.ascontiguousarray(result[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]])]


def depthwise_dw(h: Array, x: Array, w: Array, *, pad: int) -> list[Array]:
    """One inner product per channel and tap."""
    source, result = padded(x, pad), np.empty_like(w)
    for tap, at in taps(w.shape[2:], h.shape[2:], 1, 1):
        result[place(slice(None), 0, *tap)] = np.einsum("nchw,nchw->c", h, source[place(..., *at)])
    return [result]


def max_pool_dx(
    h: Array, x: Array, places: Array, *, kernel: int, stride: int, pad: int
) -> list[Array]:
    """Each head sent to the position in its window that ``places`` names."""
    result = np.zeros(padded(x, pad).shape, dtype=h.dtype)
    for (i, j), at in taps((kernel, kernel), h.shape[2:], stride, 1):
        result[place(..., *at)] += np.where(places == i * kernel + j, h, 0)
    return [np.ascontiguousarray(result[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]])]


def avg_pool_dx(h: Array, *, kernel: int) -> list[Array]:
    """The scaled head, repeated."""
    scaled = h * h.dtype.type(1 / kernel**2)
    n, c, height, width = h.shape
    result = np.empty((n, c, height, kernel, width, kernel), dtype=h.dtype)
    result[...] = scaled[:, :, :, None, :, None]
    return [result.reshape(n, c, height * kernel, width * kernel)]


def dense_dx(h: Array, x: Array, w: Array) -> list[Array]:
    """The head times the weights."""
    return [(h @ w).reshape(x.shape)]


def dense_dw(h: Array, x: Array, w: Array) -> list[Array]:
    """The transposed head times the rows."""
    return [h.T @ x.reshape(len(x), -1)]


def softmax_dx(h: Array, y: Array) -> list[Array]:
    """``y * (h - sum(h * y))``."""
    return [y * (h - np.einsum("ij,ij->i", h, y)[:, None])]


def logsumexp_dx(h: Array, x: Array, y: Array) -> list[Array]:
    """``h * exp(x - y)``."""
    return [h[:, None] * np.exp(x - y[:, None])]


def layer_norm_all(h: Array, x: Array, gamma: Array, mean: Array, scale: Array) -> list[Array]:
    """With respect to ``x``, ``gamma`` and ``beta``."""
    unit = (x - mean[:, None]) * scale[:, None]
    g = h * gamma
    share = 1 / x.shape[1]
    first = g.sum(axis=1, keepdims=True) * share
    second = np.einsum("ij,ij->i", g, unit)[:, None] * share
    dx = scale[:, None] * (g - first - unit * second)
    return [dx, np.einsum("ij,ij->j", h, unit), h.sum(axis=0)]


def bmm_all(h: Array, a: Array, b: Array) -> list[Array]:
    """With respect to both factors."""
    return [h @ b.swapaxes(1, 2), a.swapaxes(1, 2) @ h]


def upsample_dx(h: Array) -> list[Array]:
    """The two axes one after the other: quarters and three quarters, clamped ends folded in."""
    for axis in (2, 3):
        even, odd = (np.take(h, np.arange(start, h.shape[axis], 2), axis=axis) for start in (0, 1))
        result = 0.75 * (even + odd)
        low, high = ([slice(None)] * 4 for _ in range(2))
        low[axis], high[axis] = slice(None, -1), slice(1, None)
        result[tuple(low)] += 0.25 * even[tuple(high)]
        result[tuple(high)] += 0.25 * odd[tuple(low)]
        first, last = ([slice(None)] * 4 for _ in range(2))
        first[axis], last[axis] = slice(0, 1), slice(-1, None)
        result[tuple(first)] += 0.25 * even[tuple(first)]
        result[tuple(last)] += 0.25 * odd[tuple(last)]
        h = result.astype(h.dtype, copy=False)
    return [h]


def cumsum_dx(h: Array) -> list[Array]:
    """The running sum from the other end."""
    return [np.ascontiguousarray(np.cumsum(h[:, ::-1], axis=1)[:, ::-1])]


def stencil_dx(h: Array, *, rate: float) -> list[Array]:
    """The stencil is its own transpose."""
    around = np.zeros_like(h)
    around[1:] += h[:-1]
    around[:-1] += h[1:]
    around[:, 1:] += h[:, :-1]
    around[:, :-1] += h[:, 1:]
    return [h + h.dtype.type(rate) * (around - 4 * h)]


def correlation_all(h: Array, a: Array, b: Array, *, reach: int) -> list[Array]:
    """With respect to both images: one scaled shift per displacement."""
    da, db = np.zeros_like(a), np.zeros_like(b)
    height, width = a.shape[2:]
    span = range(-reach, reach + 1)
    for place, (dy, dx) in enumerate(product(span, span)):
        rows, shifted_rows = _overlap(dy, height)
        columns, shifted_columns = _overlap(dx, width)
        head = h[:, place, rows, columns][:, None]
        da[:, :, rows, columns] += head * b[:, :, shifted_rows, shifted_columns]
        db[:, :, shifted_rows, shifted_columns] += head * a[:, :, rows, columns]
    return [da, db]


def _overlap(shift: int, size: int) -> tuple[slice, slice]:
    """The positions p for which ``p + shift`` is in range, and those positions shifted."""
    start, stop = max(0, -shift), min(size, size - shift)
    return slice(start, stop), slice(start + shift, stop + shift)


def embedding_dx(h: Array, places: Array, *, rows: int) -> list[Array]:
    """The heads added up by row."""
    result = np.zeros((rows, h.shape[1]), dtype=h.dtype)
    np.add.at(result, places, h)
    return [result]


def unshuffle(h: Array, factor: int) -> Array:
    """The inverse of a pixel shuffle."""
    n, c, height, width = h.shape
    blocks = h.reshape(n, c, height // factor, factor, width // factor, factor)
    return blocks.transpose(0, 1, 3, 5, 2, 4).reshape(
        n, c * factor * factor, height // factor, width // factor
    )


def einsum3_all(h: Array, a: Array, b: Array, c: Array) -> list[Array]:
    """With respect to the three factors; ``sum(b * c)`` over k and ``a.T @ h`` are shared."""
    inner = np.einsum("jkl,kl->jl", b, c)
    outer = a.T @ h
    return [h @ inner.T, outer[:, None, :] * c, np.einsum("jkl,jl->kl", b, outer)]
