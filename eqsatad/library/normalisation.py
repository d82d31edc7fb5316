"""Softmax and its kin, layer normalisation and cross entropy, over the last axis.

Only forward definitions. The shift that keeps ``exp`` in range cancels from every result, so it
is the largest element *rounded up*: as safe to within one unit, and its derivative is zero, so
that no gradient is ever worked out through a maximum that cannot matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsatad.library.extents import agree, extents, per_axis
from eqsatad.library.shapes import total
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Expr, Stage, Tensor


def relu(x: Tensor, name: str = "relu") -> Stage:
    """``x`` where it is positive, else 0."""
    return ea.compute(extents(x), lambda *i: ea.select(x[i] > 0.0, x[i], 0.0), name=name)


def softmax(x: Tensor, name: str = "softmax") -> Stage:
    """``exp(x) / sum(exp(x))`` along the last axis, safe for large ``x``."""
    exps = _exps(x, _shift(x, f"{name}_shift"), f"{name}_exp")
    total = _row_sum(exps, f"{name}_sum")
    # A factor per row rather than a divisor: its gradient does not need the result again.
    share = ea.compute(total.shape, lambda *i: 1.0 / total[i], name=f"{name}_share")
    return ea.compute(extents(x), lambda *i: exps[i] * share[i[:-1]], name=name)


def log_softmax(x: Tensor, name: str = "log_softmax") -> Stage:
    """``x - log(sum(exp(x)))`` along the last axis, safe for large ``x``."""
    total = logsumexp(x, f"{name}_sum")
    return ea.compute(extents(x), lambda *i: x[i] - total[i[:-1]], name=name)


def logsumexp(x: Tensor, name: str = "logsumexp") -> Stage:
    """``log(sum(exp(x)))`` along the last axis, safe for large ``x``."""
    shift = _shift(x, f"{name}_shift")
    total = _row_sum(_exps(x, shift, f"{name}_exp"), f"{name}_total")
    return ea.compute(total.shape, lambda *i: ea.log(total[i]) + shift[i], name=name)


def cross_entropy(x: Tensor, labels: Tensor, name: str = "cross_entropy") -> Stage:
    """``-log_softmax(x)[n, labels[n]]`` for each row ``n``; labels are integers."""
    rows, _ = extents(x, 2)
    agree("the rows and the labels", rows, extents(labels, 1)[0], x, labels)
    total = logsumexp(x, f"{name}_sum")
    return ea.compute((rows,), lambda n: total[n] - x[n, ea.cast(labels[n], "index")], name=name)


def layer_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, *, epsilon: float = 1e-5, name: str = "layer_norm"
) -> Stage:
    """``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` along the last axis."""
    *rows, columns = extents(x)
    for scale in (gamma, beta):
        agree("the last axis and a scale", columns, extents(scale, 1)[0], x, scale)
    k = ea.reduce_axis((0, columns), name="k")
    share = 1.0 / ea.cast(columns, x.dtype)
    mean = ea.compute(rows, lambda *i: ea.sum(x[*i, k], axis=k) * share, name=f"{name}_mean")
    centred = ea.compute(extents(x), lambda *i: x[i] - mean[i[:-1]], name=f"{name}_centred")
    scale = ea.compute(
        rows,
        lambda *i: ea.rsqrt(ea.sum(centred[*i, k] * centred[*i, k], axis=k) * share + epsilon),
        name=f"{name}_scale",
    )
    normal = ea.compute(extents(x), lambda *i: centred[i] * scale[i[:-1]], name=f"{name}_normal")
    return ea.compute(extents(x), lambda *i: normal[i] * gamma[i[-1]] + beta[i[-1]], name=name)


def rms_norm(
    x: Tensor, gamma: Tensor | None = None, *, epsilon: float = 1e-5, name: str = "rms_norm"
) -> Stage:
    """``x / sqrt(mean(x * x) + epsilon)`` along the last axis, times ``gamma`` if given."""
    *rows, columns = extents(x)
    if gamma is not None:
        agree("the last axis and a scale", columns, extents(gamma, 1)[0], x, gamma)
    k = ea.reduce_axis((0, columns), name="k")
    share = 1.0 / ea.cast(columns, x.dtype)
    scale = ea.compute(
        rows,
        lambda *i: ea.rsqrt(ea.sum(x[*i, k] * x[*i, k], axis=k) * share + epsilon),
        name=f"{name}_scale",
    )

    def body(*i: Axis) -> Expr:
        scaled = x[i] * scale[i[:-1]]
        return scaled if gamma is None else scaled * gamma[i[-1]]

    return ea.compute(extents(x), body, name=name)


def batch_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, *, epsilon: float = 1e-5, name: str = "batch_norm"
) -> Stage:
    """Each channel of ``x`` (batch, channels, *space) centred and scaled by its own statistics."""
    shape = extents(x)
    for scale in (gamma, beta):
        agree("the channels and a scale", shape[1], extents(scale, 1)[0], x, scale)
    over = tuple(n for n in range(len(shape)) if n != 1)
    centred, scale = _standard(x, over, epsilon, name)
    return ea.compute(
        shape,
        lambda *i: centred[i] * (scale[i[1]] * gamma[i[1]]) + beta[i[1]],
        name=name,
    )


def instance_norm(x: Tensor, *, epsilon: float = 1e-5, name: str = "instance_norm") -> Stage:
    """Each channel of each image of ``x`` (batch, channels, *space) centred and scaled."""
    shape = extents(x)
    centred, scale = _standard(x, tuple(range(2, len(shape))), epsilon, name)
    return ea.compute(shape, lambda *i: centred[i] * scale[i[:2]], name=name)


def _standard(x: Tensor, over: tuple[int, ...], epsilon: float, name: str) -> tuple[Stage, Stage]:
    """``x`` minus its mean over the axes ``over``, and one over its standard deviation."""
    shape = extents(x)
    kept = [n for n in range(len(shape)) if n not in over]
    axes = {n: ea.reduce_axis((0, shape[n]), name=f"k{n}") for n in over}
    share = 1.0 / ea.cast(total([shape[n] for n in over]), x.dtype)

    def inner(i: Sequence[Expr]) -> tuple[Expr, ...]:
        outer = iter(i)
        return tuple(axes[n] if n in axes else next(outer) for n in range(len(shape)))

    rows, reduced = [shape[n] for n in kept], tuple(axes.values())
    mean = ea.compute(
        rows, lambda *i: ea.sum(x[inner(i)], axis=reduced) * share, name=f"{name}_mean"
    )
    centred = ea.compute(
        shape, lambda *i: x[i] - mean[tuple(i[n] for n in kept)], name=f"{name}_centred"
    )

    def spread(*i: Axis) -> Expr:
        value = centred[inner(i)]
        return ea.rsqrt(ea.sum(value * value, axis=reduced) * share + epsilon)

    return centred, ea.compute(rows, spread, name=f"{name}_scale")


def local_response_norm(
    x: Tensor,
    size: int = 5,
    *,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 2.0,
    name: str = "local_response_norm",
) -> Stage:
    """``x / (bias + alpha / size * sum of squares over size channels) ** beta``."""
    shape = extents(x)
    (size,) = per_axis("size", size, 1)
    r = ea.reduce_axis((0, size), name="r")

    def window(n: Axis, c: Axis, *i: Axis) -> Expr:
        near = c + r - size // 2
        inside = ea.all_of(near >= 0, near < shape[1])
        squares = ea.sum(x[n, near, *i] * x[n, near, *i], axis=r, where=inside)
        return bias + alpha / size * squares

    scale = ea.compute(shape, window, name=f"{name}_scale")
    return ea.compute(shape, lambda *i: x[i] * ea.pow(scale[i], -beta), name=name)


def _shift(x: Tensor, name: str) -> Stage:
    *rows, columns = extents(x)
    k = ea.reduce_axis((0, columns), name="k")
    return ea.compute(rows, lambda *i: ea.ceil(ea.max(x[*i, k], axis=k)), name=name)


def _exps(x: Tensor, shift: Tensor, name: str) -> Stage:
    return ea.compute(extents(x), lambda *i: ea.exp(x[i] - shift[i[:-1]]), name=name)


def _row_sum(x: Tensor, name: str) -> Stage:
    *rows, columns = extents(x)
    k = ea.reduce_axis((0, columns), name="k")
    return ea.compute(rows, lambda *i: ea.sum(x[*i, k], axis=k), name=name)
