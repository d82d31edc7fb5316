"""The forward definitions of the workloads, by the id of their row in ``data/workloads.json``.

Each entry of `WORKLOADS` builds its operators at given sizes (by default those of the row), with
what to differentiate with respect to and which forward values the backward pass may read. Where
the row gives a formula instead of a number, the entry gives it as a function of the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import eqsatad as ea
from benchmarks.legacy_cases import UNIT, Case, Range, array, conv_broadcast_weight, residual
from eqsatad import library as nn
from eqsatad.terms.nodes import Expr, Stage, Tensor
from eqsatad.terms.walk import program

POSITIVE: Range = (0.5, 2.0)

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Gradient(Case):
    """A gradient to take; the values of the stages ``saved`` are at hand from the forward pass.

    ``head`` is as for `differentiate`.
    """

    saved: tuple[Stage, ...] = ()
    head: str | None = None


Gradients = dict[str, Case]


@dataclass(frozen=True)
class Workload:
    """A row: its gradients by label, at sizes that override the defaults of ``make``.

    The word that a label begins with is the row's name for the gradient. ``small`` are the sizes
    at which values are checked, ``at`` those at which operations are counted, and ``minimum`` the
    formulas of the minimal multiplications. ``margin`` is what ``about`` allows.
    """

    make: Callable[..., Gradients]
    small: Sizes = field(default_factory=dict)
    at: Sequence[Sizes] = ({},)
    minimum: Mapping[str, Callable[..., float]] = field(default_factory=dict)
    margin: float = 0.0


def each(output: Stage, *inputs: Tensor, **options: Any) -> Gradients:
    """One gradient for each input, labelled ``dX`` for ``X``."""
    return {f"d{x.name}": Gradient(output, (x,), **options) for x in inputs}


def together(label: str, output: Stage, *inputs: Tensor, **options: Any) -> Gradients:
    """The gradients with respect to all inputs as one program."""
    return {label: Gradient(output, inputs, **options)}


def several(label: str, *outputs: tuple[str, Stage, Tensor], **options: Any) -> Gradients:
    """The gradients of several operators of one kind, each with respect to one input."""
    return {f"{label} {name}": Gradient(output, (x,), **options) for name, output, x in outputs}


# Convolutions


def conv2d(
    n: int = 1,
    c: int = 64,
    f: int = 64,
    size: int = 56,
    k: int = 3,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Gradients:
    """A convolution of square images by square kernels."""
    x, w = array("X", n, c, size, size), array("W", f, c // groups, k, k)
    y = nn.conv2d(x, w, stride=stride, pad=pad, dilation=dilation, groups=groups, name="Y")
    return each(y, x, w)


def depthwise(c: int, size: int, stride: int = 1) -> Gradients:
    """One 3x3 kernel for each channel."""
    x, w = array("X", 1, c, size, size), array("W", c, 3, 3)
    out = (size - 1) // stride + 1
    here = f"{stride}*o + i - 1, {stride}*p + j - 1"
    text = f"Y[n, c, o < {out}, p < {out}] = sum(X.get(n, c, {here}) * W[c, i, j])"
    return each(ea.op(text, X=x, W=w), x, w)


def conv_transpose(c: int = 64, f: int = 32, size: int = 14) -> Gradients:
    """A transposed convolution, with the remainder of a division as its guard."""
    x, w = array("X", 1, c, size, size), array("W", c, f, 4, 4)
    return each(nn.conv2d_transpose(x, w, stride=2, pad=1, name="Y"), x, w)


def conv3d(c: int = 16, f: int = 32, depth: int = 8, size: int = 28) -> Gradients:
    """A convolution over three axes."""
    x, w = array("X", 1, c, depth, size, size), array("W", f, c, 3, 3, 3)
    return each(nn.conv3d(x, w, pad=1, name="Y"), x, w)


def causal_conv(n: int = 16, c: int = 64, size: int = 1024) -> Gradients:
    """Two taps eight steps apart, none in the future."""
    x, w = array("X", n, c, size), array("W", c, c, 2)
    return each(nn.conv1d(x, w, pad=((8, 0),), dilation=8, name="Y"), x, w)


def circular_conv(n: int = 4096, k: int = 9) -> Gradients:
    """A convolution of a ring."""
    x, w = array("X", n), array("W", k)
    return each(ea.op(f"Y[i < {n}] = sum(X[(i + k) % {n}] * W[k])", X=x, W=w), x, w)


def by_row(index: Expr, *values: Expr) -> Expr:
    """The value of the row that ``index`` names: a constant matrix written out."""
    *rows, last = values
    for row in reversed(range(len(rows))):
        last = ea.select(index <= row, rows[row], last)
    return last


def winograd(c: int = 64, f: int = 64, size: int = 56) -> Gradients:
    """The F(2x2, 3x3) pipeline: transforms along each axis, products between."""
    x, w = array("X", 1, c, size, size), array("W", f, c, 3, 3)
    tiles, k = size // 2, ea.reduce_axis((0, c), name="k")

    def weights(get: Callable[[int], Expr], row: Expr) -> Expr:
        first, middle, last = get(0), get(1), get(2)
        even, odd = (first + middle + last) * 0.5, (first - middle + last) * 0.5
        return by_row(row, first, even, odd, last)

    def pixels(get: Callable[[int], Expr], row: Expr) -> Expr:
        a, b, c, d = (get(n) for n in range(4))
        return by_row(row, a - c, b + c, c - b, b - d)

    def outputs(get: Callable[[int], Expr], row: Expr) -> Expr:
        a, b, c, d = (get(n) for n in range(4))
        return by_row(row, a + b + c, b - c - d)

    def picture(n: Expr, ch: Expr, u: Expr, v: Expr) -> Expr:
        return x.get(n, ch, u, v)

    u1 = ea.compute((f, c, 4, 3), lambda o, i, r, s: weights(lambda t: w[o, i, t, s], r), "U1")
    u = ea.compute((f, c, 4, 4), lambda o, i, r, s: weights(lambda t: u1[o, i, r, t], s), "U")
    v1 = ea.compute(
        (c, tiles, 4, size + 2),
        lambda i, p, r, v: pixels(lambda t: picture(ea.const(0), i, 2 * p + t - 1, v - 1), r),
        "V1",
    )
    v = ea.compute(
        (c, tiles, tiles, 4, 4),
        lambda i, p, q, r, s: pixels(lambda t: v1[i, p, r, 2 * q + t], s),
        "V",
    )
    m = ea.compute(
        (f, tiles, tiles, 4, 4),
        lambda o, p, q, r, s: ea.sum(u[o, k, r, s] * v[k, p, q, r, s], axis=k),
        "M",
    )
    y1 = ea.compute(
        (f, tiles, tiles, 2, 4), lambda o, p, q, r, s: outputs(lambda t: m[o, p, q, t, s], r), "Y1"
    )
    y = ea.compute(
        (f, tiles, tiles, 2, 2), lambda o, p, q, r, s: outputs(lambda t: y1[o, p, q, r, t], s), "Y"
    )
    return each(y, x, w, saved=(u, v))


# Linear algebra


def batched_matmul(b: int = 16, m: int = 128, k: int = 64, n: int = 128) -> Gradients:
    """A product of matrices for each of a batch."""
    a, c = array("A", b, m, k), array("B", b, k, n)
    return together("both", nn.batched_matmul(a, c), a, c)


def chain3(n: int = 128) -> Gradients:
    """Three matrices in one stage."""
    a, b, c = array("A", n, n), array("B", n, n), array("C", n, n)
    return each(ea.op("Y[i, l] = sum(A[i, j] * B[j, k] * C[k, l])", A=a, B=b, C=c), b)


def mttkrp(n: int = 64, r: int = 16) -> Gradients:
    """A matricised tensor times a Khatri-Rao product."""
    x, b, c = array("X", n, n, n), array("B", n, r), array("C", n, r)
    return each(ea.op("Y[i, r] = sum(X[i, j, k] * B[j, r] * C[k, r])", X=x, B=b, C=c), b)


def diagonal(n: int = 512) -> Gradients:
    """The diagonal of a matrix."""
    x = array("X", n, n)
    return each(ea.op("Y[i] = X[i, i]", X=x), x)


def with_transpose(n: int = 1024) -> Gradients:
    """A matrix and its transpose: added, multiplied, and under a function."""
    a = array("A", n, n)
    exps = ea.ops("E[i, j] = exp(A[i, j])\nY[i, j] = A[i, j] + E[j, i]", A=a)
    return {
        "dA[0]": Gradient(ea.op("Y[i, j] = A[i, j] + A[j, i]", A=a), (a,)),
        "dA[1]": Gradient(ea.op("Y[i, j] = A[i, j] * A[j, i]", A=a), (a,)),
        "dA[2]": Gradient(exps["Y"], (a,), saved=(exps["E"],)),
    }


def quadratic_form(b: int = 64, n: int = 256) -> Gradients:
    """``x' A x`` for each of a batch."""
    a, x = array("A", n, n), array("x", b, n)
    return each(ea.op("y[b] = sum(x[b, i] * A[i, j] * x[b, j])", A=a, x=x), a, x)


def pairwise_distance(m: int = 512, n: int = 512, k: int = 64) -> Gradients:
    """The squared distances of two sets of points."""
    x, y = array("X", m, k), array("Y", n, k)
    return each(ea.op("D[i, j] = sum((X[i, k] - Y[j, k]) * (X[i, k] - Y[j, k]))", X=x, Y=y), x)


def kronecker(i: int = 12, j: int = 10, p: int = 6, q: int = 7) -> Gradients:
    """A product in which each element of one matrix meets each of the other."""
    a, b = array("A", i, j), array("B", p, q)
    text = f"Y[r < {i * p}, c < {j * q}] = A[r//{p}, c//{q}] * B[r % {p}, c % {q}]"
    return each(ea.op(text, A=a, B=b), a, b)


def polynomial_product(n: int = 512) -> Gradients:
    """The coefficients of a product of polynomials."""
    a, b = array("a", n), array("b", n)
    i = ea.reduce_axis((0, n), name="i")
    y = ea.compute(
        (2 * n - 1,),
        lambda k: ea.sum(a[i] * b[k - i], axis=i, where=ea.all_of(k - i >= 0, k - i < n)),
        name="c",
    )
    return each(y, a, b)


def max_times(n: int = 10) -> Gradients:
    """A product of matrices with the largest term instead of the sum."""
    a = array("A", n, n)
    return each(ea.op("B[i, j] = max(A[i, k] * A[k, j])", A=a), a)


def product_axis(rows: int = 32, n: int = 40) -> Gradients:
    """The products of rows."""
    x = array("X", rows, n)
    return each(ea.op("Y[r] = prod(X[r, k])", X=x), x)


# Pooling and resizing


def avg_pool(
    n: int = 32,
    c: int = 17,
    size: int = 280,
    k: int = 2,
    stride: int = 2,
    pad: int = 0,
    include: bool = True,
) -> Gradients:
    """The means of windows."""
    x = array("X", n, c, size, size)
    return each(nn.avg_pool(x, k, stride, pad, count_include_pad=include, name="Y"), x)


def max_pool(c: int = 64, size: int = 112) -> Gradients:
    """The largest elements of overlapping windows."""
    x = array("X", 1, c, size, size)
    return each(nn.max_pool(x, 3, 2, 1, name="Y"), x)


def global_avg_pool(n: int = 8, c: int = 64, size: int = 7) -> Gradients:
    """The means of planes."""
    x = array("X", n, c, size, size)
    return each(nn.global_avg_pool(x, name="Y"), x)


def upsample_nearest(n: int = 7, m: int = 12) -> Gradients:
    """Twice the size, and between two sizes both ways."""
    x, z = array("X", 1, 2, n, n), array("X", 1, 2, m, m)
    return several(
        "dX",
        ("twice", nn.resize_nearest(x, (2 * n, 2 * n)), x),
        ("larger", nn.resize_nearest(x, (m, m)), x),
        ("smaller", nn.resize_nearest(z, (n, n)), z),
    )


def upsample_bilinear(c: int = 32, size: int = 64) -> Gradients:
    """Twice the size, interpolated."""
    x = array("X", 1, c, size, size)
    return each(nn.upsample_bilinear(x, 2, name="Y"), x)


def resize_align_corners(h: int = 7, w: int = 5, oh: int = 12, ow: int = 10) -> Gradients:
    """Another size, interpolated with the corners aligned."""
    x = array("X", 1, 1, h, w)
    return each(nn.resize_bilinear(x, (oh, ow), name="Y"), x)


def adaptive_avg_pool(n: int = 10, m: int = 4) -> Gradients:
    """As many windows as asked for, along one axis."""
    x = array("X", 1, 1, n, 1)
    return each(nn.adaptive_avg_pool(x, (m, 1), name="Y"), x)


# Moving elements


def moved(make: Callable[..., Stage], *shape: int) -> Gradients:
    """The gradient of an operator on one tensor."""
    x = array("X", *shape)
    return each(make(x), x)


def moved_by(shape: Sequence[int], **makes: Callable[[Tensor], Stage]) -> Gradients:
    """The gradients of several operators on a tensor of one shape."""
    x = array("X", *shape)
    return several("dX", *((name, make(x), x) for name, make in makes.items()))


def flatten(n: int = 32, c: int = 100, h: int = 20, w: int = 25) -> Gradients:
    """A row for each image."""
    return moved(nn.flatten, n, c, h, w)


def reshape_truncating(count: int = 32) -> Gradients:
    """The first elements of a tensor as a row."""
    return moved(lambda x: nn.reshape(x, (1, count), truncate=True), 1, 2, 5, 5)


def concat_split(n: int = 6) -> Gradients:
    """A tensor cut in two and put together again."""
    return moved(lambda x: nn.concatenate(nn.split(x, 2, axis=2), axis=2), 1, 2, n, 5)


def rolled(n: int = 12, m: int = 9) -> Gradients:
    """Rows moved round, each way."""
    return moved_by((m, n), right=partial(nn.roll, shift=5), left=partial(nn.roll, shift=-3))


def sliced(n: int = 23, m: int = 6) -> Gradients:
    """Every third row, from either end."""
    return moved_by(
        (n, m),
        forwards=lambda x: nn.strided_slice(x, 1, n - 2, 3),
        backwards=lambda x: nn.strided_slice(x, n - 2, 1, -3),
    )


def triangles(n: int = 16) -> Gradients:
    """The triangles and the diagonal of a matrix."""
    return moved_by(
        (n, n), lower=nn.tril, upper=nn.triu, diagonal=lambda x: ea.op("Y[i] = X[i, i]", X=x)
    )


def windows(size: int = 8, window: int = 4) -> Gradients:
    """An image cut into windows, with a cyclic shift."""
    return moved(lambda x: nn.window_partition(x, window, window // 2), 2, size, size, 3)


# Triangular domains and scans


def cumsum(n: int = 1000) -> Gradients:
    """A running sum."""
    return moved(nn.cumsum, n)


def triangular_product(n: int = 64) -> Gradients:
    """A lower triangular matrix times a vector."""
    lower, x = array("L", n, n), array("x", n)
    return each(ea.op("Y[i] = sum(L[i, j] * x[j], j <= i)", L=lower, x=x), lower, x)


def banded_product(n: int = 64, b: int = 3) -> Gradients:
    """A matrix stored by its bands times a vector."""
    a, x = array("A", n, 2 * b + 1), array("x", n)
    y = ea.op(f"Y[i] = sum(A[i, t] * x.get(i + t - {b}))", A=a, x=x)
    return each(y, x)


def recurrence(n: int = 32) -> Gradients:
    """``y[t] = a[t] * y[t-1] + x[t]``, solved: each x times the products of what follows it."""
    a, x = array("a", n), array("x", n)
    s, t = ea.reduce_axis((0, n), name="s"), ea.reduce_axis((0, n), name="t")

    def body(i: Expr) -> Expr:
        through = ea.prod(a[t], axis=t, where=ea.all_of(s < t, t <= i))
        return ea.sum(x[s] * through, axis=s, where=s <= i)

    return together("both", ea.compute((n,), body, name="Y"), a, x)


def causal_attention(n: int = 128, d: int = 64) -> Gradients:
    """Attention of each position to those before it; the scale is part of the queries."""
    q, k, v = array("Q", n, d), array("K", n, d), array("V", n, d)
    made = ea.ops(
        """
        S[i, j] = sum(Q[i, c] * K[j, c], j <= i)
        E[i, j] = select(j <= i, exp(S[i, j]), 0.0)
        Z[i] = sum(E[i, j], j <= i)
        P[i, j] = E[i, j] / Z[i]
        Y[i, c] = sum(P[i, j] * V[j, c], j <= i)
        """,
        Q=q,
        K=k,
        V=v,
    )
    return together("all", made["Y"], q, k, v, saved=tuple(made[name] for name in "EZP"))


def pairwise_loss(p: int = 40) -> Gradients:
    """The squares of the distances of all pairs on a line, each pair once."""
    x = array("X", p)
    return each(ea.op("Y = sum((X[i] - X[j]) * (X[i] - X[j]), i < j)", X=x), x)


# Softmax and normalisation


def stages_of(output: Stage, *names: str) -> tuple[Stage, ...]:
    """The stages below ``output`` that are called so."""
    below = [tensor for tensor in program([output]) if isinstance(tensor, Stage)]
    return tuple(stage for stage in below if stage.name in names)


def softmax(r: int = 32, c: int = 100) -> Gradients:
    """The shares of exponentials."""
    x = array("X", r, c)
    y = nn.softmax(x, name="Y")
    return each(y, x, saved=(y, *stages_of(y, "Y_exp", "Y_share")))


def log_softmax(r: int = 32, c: int = 100) -> Gradients:
    """The logarithms of the shares."""
    x = array("X", r, c)
    y = nn.log_softmax(x, name="Y")
    return each(y, x, saved=stages_of(y, "Y_sum_exp", "Y_sum_total"))


def cross_entropy(r: int = 32, c: int = 100) -> Gradients:
    """The logarithm of the share of one column of each row."""
    x, labels = array("X", r, c), array("labels", r, dtype="int32")
    y = nn.cross_entropy(x, labels, name="Y")
    exps, total = stages_of(y, "Y_sum_exp", "Y_sum_total")
    share = ea.op("P[i, j] = E[i, j] / S[i]", E=exps, S=total)
    return each(y, x, ranges={"labels": (0, c)}, saved=(exps, total, share))


def logsumexp(r: int = 32, c: int = 100) -> Gradients:
    """The logarithm of the sum of exponentials."""
    x = array("X", r, c)
    y = nn.logsumexp(x, name="Y")
    return each(y, x, saved=stages_of(y, "Y_exp", "Y_total"))


def layer_norm(r: int = 32, c: int = 100) -> Gradients:
    """Rows centred and scaled, then stretched."""
    x, gamma, beta = array("X", r, c), array("gamma", c), array("beta", c)
    y = nn.layer_norm(x, gamma, beta, name="Y")
    return together("all", y, x, gamma, beta, saved=stages_of(y, "Y_mean", "Y_scale", "Y_normal"))


def batch_norm(n: int = 4, c: int = 6, size: int = 10) -> Gradients:
    """Channels centred and scaled by their own statistics."""
    x, gamma, beta = array("X", n, c, size, size), array("gamma", c), array("beta", c)
    y = nn.batch_norm(x, gamma, beta, name="Y")
    return together("all", y, x, gamma, beta, saved=stages_of(y, "Y_mean", "Y_scale"))


def rms_norm(r: int = 32, c: int = 100) -> Gradients:
    """Rows scaled by the root of their mean square."""
    x = array("X", r, c)
    y = nn.rms_norm(x, name="Y")
    return each(y, x, saved=(y, *stages_of(y, "Y_scale")))


def local_response_norm(c: int = 96, size: int = 55) -> Gradients:
    """Each pixel scaled by its near channels."""
    x = array("X", 1, c, size, size)
    y = nn.local_response_norm(x, name="Y")
    return each(y, x, saved=stages_of(y, "Y_scale"))


def standardise(r: int = 32, c: int = 100) -> Gradients:
    """Rows without their means."""
    x = array("X", r, c)
    mean = nn.mean(x, axis=1, name="mean")
    return each(ea.op("Y[i, j] = X[i, j] - mean[i]", X=x, mean=mean), x)


# Positions that are data


def embedding(v: int = 50000, d: int = 512, b: int = 4096) -> Gradients:
    """The rows of a table at given places."""
    table, places = array("E", v, d), array("idx", b, dtype="int32")
    return each(nn.embedding(table, places, name="Y"), table, ranges={"idx": (0, v)})


def take_along(r: int = 12, c: int = 30, k: int = 5) -> Gradients:
    """Places of each row gathered, and added to."""
    x, places = array("X", r, c), array("idx", r, k, dtype="int32")
    part = array("X", r, k)
    added = ea.scatter((r, c), (r, k), lambda i, j: ((i, places[i, j]), part[i, j]), name="Y")
    ranges = {"idx": (0, c)}
    return several(
        "dX",
        ("gather", nn.take_along_axis(x, places), x),
        ("scatter", added, part),
        ranges=ranges,
    )


def chosen(n: int = 100) -> Gradients:
    """Elements chosen by conditions."""
    x, cond, other = array("X", n), array("C", n), array("Z", n)
    where = ea.op("Y[i] = select(C[i] > 0, X[i], Z[i])", C=cond, X=x, Z=other)
    return several(
        "dX",
        ("where", where, x),
        ("clip", ea.op("Y[i] = min(max(X[i], -0.5), 0.5)", X=x), x),
        ("relu", nn.relu(x), x),
        ("leaky", ea.op("Y[i] = select(X[i] > 0, X[i], 0.1 * X[i])", X=x), x),
    )


def grid_sample(c: int = 5, size: int = 9, points: int = 20) -> Gradients:
    """Pixels interpolated at computed places."""
    x, grid = array("X", c, size, size), array("grid", points, 2)
    y = nn.grid_sample(x, grid, name="Y")
    saved = stages_of(y, "Y_pixel", "Y_share")
    return each(y, x, grid, saved=saved, ranges={"grid": (0.0, size - 1.0), "X": UNIT})


def correlation(c: int = 256, h: int = 48, w: int = 64, d: int = 4) -> Gradients:
    """The products of the pixels of one image with those near them in another."""
    a, b = array("A", c, h, w), array("B", c, h, w)
    k, side = ea.reduce_axis((0, c), name="k"), 2 * d + 1
    share = 1.0 / c

    def body(p: Expr, q: Expr, u: Expr, v: Expr) -> Expr:
        other = b.get(k, u + p - d, v + q - d)
        return ea.sum(a[k, u, v] * other, axis=k) * share

    return each(ea.compute((side, side, h, w), body, name="Y"), b)


# Stencils


def step(u: Tensor, n: int, name: str) -> Stage:
    """One explicit step of the heat equation; the border stays."""

    def body(i: Expr, j: Expr) -> Expr:
        inside = ea.all_of(i >= 1, i < n - 1, j >= 1, j < n - 1)
        around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
        return ea.select(inside, u[i, j] + 0.1 * (around - 4.0 * u[i, j]), u[i, j])

    return ea.compute((n, n), body, name=name)


def heat(n: int = 64, steps: int = 1) -> Gradients:
    """Steps of the heat equation."""
    u = array("U", n, n)
    state: Tensor = u
    for number in range(steps):
        state = step(state, n, f"V{number}")
    assert isinstance(state, Stage), "there is at least one step"
    return each(state, u)


def diffusion(n: int = 64) -> Gradients:
    """``div(k grad u)`` between the border, with respect to both."""
    u, k = array("U", n, n), array("K", n, n)
    made = ea.ops(
        """
        R[i, j] = K[i, j] * (U[i + 1, j] - U[i, j])
        D[i, j] = K[i, j] * (U[i, j + 1] - U[i, j])
        Y[i, j] = R[i + 1, j + 1] - R[i, j + 1] + D[i + 1, j + 1] - D[i + 1, j]
        """,
        U=u,
        K=k,
    )
    return together("both", made["Y"], u, k)


def periodic_stencil(n: int = 64) -> Gradients:
    """Two neighbours on a ring, with a weight each."""
    x = array("X", n, n)
    text = f"Y[r, i < {n}] = 0.3 * X[r, (i + 1) % {n}] + 0.6 * X[r, (i + {n - 1}) % {n}]"
    return each(ea.op(text, X=x), x)


def total_variation(n: int = 100) -> Gradients:
    """The squares of the differences of neighbours."""
    x = array("X", n)
    return each(ea.op("Y = sum((X[i + 1] - X[i]) * (X[i + 1] - X[i]))", X=x), x)


# Several stages


def with_one_weight() -> Gradients:
    """A convolution whose weights are all one number, with respect to it and to the image."""
    case = conv_broadcast_weight()
    return {"both": case}


def shared_residual() -> Gradients:
    """A block that uses one weight twice."""
    case = residual(None, "X", "W")
    return {"all": case}


def lstm_cell(b: int = 8, n: int = 16) -> Gradients:
    """One step of an LSTM from the gates before their functions."""
    z, c = array("Z", 4, b, n), array("C0", b, n)
    made = ea.ops(
        """
        I[b, n] = sigmoid(Z[0, b, n])
        F[b, n] = sigmoid(Z[1, b, n])
        O[b, n] = sigmoid(Z[2, b, n])
        G[b, n] = tanh(Z[3, b, n])
        C[b, n] = F[b, n] * C0[b, n] + I[b, n] * G[b, n]
        T[b, n] = tanh(C[b, n])
        Y[b, n] = O[b, n] * T[b, n]
        """,
        Z=z,
        C0=c,
    )
    return together("all", made["Y"], z, c, saved=tuple(made[name] for name in "IFOGT"))


def separable_blur(n: int = 64, k: int = 5) -> Gradients:
    """A blur along one axis after a blur along the other."""
    x, w = array("X", n, n), array("W", k)
    made = ea.ops(
        f"""
        R[i, j < {n}] = sum(X.get(i, j + t - {k // 2}) * W[t])
        Y[i < {n}, j] = sum(R.get(i + t - {k // 2}, j) * W[t])
        """,
        X=x,
        W=w,
    )
    return each(made["Y"], x)


def jacobians(n: int = 40) -> Gradients:
    """All derivatives of a stencil; only a band of them is not zero."""
    x = array("X", n)
    return {"J": Gradient(ea.op("Y[i] = X[i] * X[i] * X[i + 1]", X=x), (x,), head="identity")}


def hessian_product(n: int = 40) -> Gradients:
    """The gradient of the directional derivative of ``sum(X[i]**2 * X[i+1])``."""
    x, v = array("X", n), array("V", n)
    loss = ea.op("Y = sum(X[i] * X[i] * X[i + 1])", X=x)
    one = ea.compute((), lambda: ea.const(1.0, "float64"), name="one")
    (slope,) = ea.differentiate(loss, [x], one)
    return together("all", ea.op("D = sum(S[i] * V[i])", S=slope, V=v), x)


def in_place(shape: Sequence[int], make: Callable[[Tensor], Stage]) -> Workload:
    """A row about moving elements, which costs no multiplication at any size."""
    return Workload(partial(moved, make, *shape))


def conv(small: Sizes, **sizes: int) -> Workload:
    """A row about a convolution."""
    return Workload(partial(conv2d, **sizes), small)


def triangle(n: int) -> int:
    """The elements on and below the diagonal."""
    return n * (n + 1) // 2


def quadratic(b: int, n: int) -> int:
    return b * (n * n + n)


def attention(n: int, d: int) -> int:
    return 5 * d * triangle(n) + triangle(n) + n * d


def correlated(c: int, h: int, w: int, d: int) -> int:
    """The products, and the scaling of the head or of the other image."""
    side = 2 * d + 1
    rows, columns = (side * size - d * (d + 1) for size in (h, w))
    return c * rows * columns + min(rows * columns, c * h * w)


SMALL_IMAGE = {"c": 3, "f": 2, "size": 9}
MATRICES = ({"r": 32, "c": 100}, {"r": 50, "c": 64})
SMALL_MATRIX = {"r": 3, "c": 5}
LINES = ({"n": 64}, {"n": 37})

WORKLOADS: dict[str, Workload] = {
    "conv3x3": conv(SMALL_IMAGE, pad=1),
    "conv3x3-s2": conv(SMALL_IMAGE, f=128, stride=2, pad=1),
    "conv7x7-s2": conv({"c": 2, "f": 2, "size": 13}, c=3, size=224, k=7, stride=2, pad=3),
    "conv3x3-d2": conv(SMALL_IMAGE, size=28, pad=2, dilation=2),
    "conv3x3-s2-d2": conv(SMALL_IMAGE, c=32, f=32, size=33, stride=2, dilation=2),
    "conv3x3-s3-d2": conv(SMALL_IMAGE, c=32, f=32, size=32, stride=3, pad=2, dilation=2),
    "conv1x1-s2": conv(SMALL_IMAGE, c=256, f=512, k=1, stride=2),
    "patch-embedding": conv({"f": 3, "size": 12}, c=3, f=96, size=224, k=4, stride=4),
    "conv-transpose": Workload(conv_transpose, {"c": 2, "f": 3, "size": 5}),
    "depthwise": Workload(partial(depthwise, c=32, size=112), {"c": 2, "size": 7}),
    "depthwise-s2": Workload(partial(depthwise, c=64, size=112, stride=2), {"c": 2, "size": 7}),
    "grouped": conv(
        {"c": 6, "f": 9, "size": 6, "groups": 3}, c=128, f=128, size=28, pad=1, groups=32
    ),
    "conv3d": Workload(conv3d, {"c": 2, "f": 2, "depth": 4, "size": 5}),
    "causal-conv1d": Workload(causal_conv, {"n": 2, "c": 3, "size": 20}),
    "circular-conv1d": Workload(circular_conv, {"n": 11, "k": 3}),
    "winograd": Workload(
        winograd,
        {"c": 2, "f": 3, "size": 4},
        ({"c": 64, "f": 64, "size": 56}, {"c": 6, "f": 5, "size": 12}),
        {
            "dX": lambda c, f, size: 4 * size * size * f * c,
            # The halves in the transform of the weights: 4 * 2 and then 3 * 2 for each weight.
            "dW": lambda c, f, size: 4 * size * size * f * c + 14 * f * c,
        },
    ),
    "conv-broadcast-weight": Workload(with_one_weight),
    "bmm": Workload(batched_matmul, {"b": 2, "m": 3, "k": 4, "n": 5}),
    "chain3": Workload(chain3, {"n": 5}),
    "mttkrp": Workload(mttkrp, {"n": 5, "r": 2}),
    "diag": Workload(diagonal, {"n": 5}),
    "a-plus-at": Workload(with_transpose, {"n": 5}),
    "quadratic-form": Workload(
        quadratic_form,
        {"b": 3, "n": 4},
        ({"b": 64, "n": 256}, {"b": 10, "n": 33}),
        {"dA": quadratic, "dx": quadratic},
    ),
    "pairwise-distance": Workload(pairwise_distance, {"m": 4, "n": 5, "k": 3}),
    "kronecker": Workload(
        kronecker,
        {"i": 2, "j": 3, "p": 2, "q": 4},
        ({"i": 12, "j": 10, "p": 6, "q": 7}, {"i": 5, "j": 8, "p": 9, "q": 3}),
        {label: lambda i, j, p, q: i * j * p * q for label in ("dA", "dB")},
    ),
    "polynomial-product": Workload(polynomial_product, {"n": 5}),
    "max-times": Workload(max_times),
    "product-axis": Workload(
        product_axis,
        {"rows": 2, "n": 5},
        ({"rows": 32, "n": 40}, {"rows": 9, "n": 70}),
        {"dX": lambda rows, n: 3 * n * rows},
    ),
    "avgpool": Workload(avg_pool, {"n": 1, "c": 2, "size": 6}),
    "avgpool-overlap": Workload(partial(avg_pool, n=1, c=1, size=56, k=3, pad=1), {"size": 8}),
    "avgpool-exclude": Workload(
        partial(avg_pool, n=1, c=1, size=56, k=3, pad=1, include=False), {"size": 8}
    ),
    "maxpool": Workload(max_pool, {"c": 2, "size": 7}),
    "global-avgpool": Workload(global_avg_pool, {"n": 2, "c": 2, "size": 3}),
    "upsample-nearest": Workload(upsample_nearest, {"n": 3, "m": 5}),
    "upsample-bilinear": Workload(upsample_bilinear, {"c": 2, "size": 5}),
    "resize-align-corners": Workload(resize_align_corners),
    "adaptive-avgpool": Workload(
        adaptive_avg_pool,
        {"n": 7, "m": 3},
        ({"n": 10, "m": 4}, {"n": 23, "m": 6}),
        {"dX": lambda n, m: m},
    ),
    "flatten": Workload(flatten, {"n": 2, "c": 3, "h": 2, "w": 5}),
    "reshape-truncating": Workload(reshape_truncating),
    "pixel-shuffle": in_place((1, 8, 3, 3), lambda x: nn.pixel_shuffle(x, 2)),
    "space-to-depth": in_place((1, 2, 6, 6), lambda x: nn.space_to_depth(x, 2)),
    "channel-shuffle": in_place((1, 12, 4, 4), lambda x: nn.channel_shuffle(x, 3)),
    "layout-nchwc": in_place((2, 16, 5, 5), lambda x: nn.block_channels(x, 8)),
    "roll": Workload(rolled),
    "flip": in_place((9, 12), nn.flip),
    "pad-constant": in_place((7, 9), lambda x: nn.pad(x, ((2, 1), (0, 3)))),
    "pad-reflect": in_place((9, 12), lambda x: nn.pad_reflect(x, 3)),
    "pad-edge": in_place((9, 12), lambda x: nn.pad_edge(x, 3)),
    "strided-slice": Workload(sliced),
    "concat-split": Workload(concat_split),
    "broadcast": in_place((1, 12), lambda x: nn.broadcast_to(x, (9, 12))),
    "im2col": in_place((2, 3, 9, 9), lambda x: nn.unfold(x, 3, pad=1)),
    "tril": Workload(triangles),
    "window-partition": Workload(windows),
    "cumsum": Workload(cumsum, {"n": 9}),
    "tri-matvec": Workload(triangular_product, {"n": 5}, LINES, {"dL": triangle, "dx": triangle}),
    "banded-matvec": Workload(
        banded_product,
        {"n": 7, "b": 2},
        ({"n": 64, "b": 3}, {"n": 45, "b": 6}),
        {"dx": lambda n, b: n * (2 * b + 1) - b * (b + 1)},
    ),
    "recurrence": Workload(recurrence, {"n": 5}, LINES, {"both": lambda n: 2 * n}),
    "causal-attention": Workload(
        causal_attention,
        {"n": 5, "d": 3},
        ({"n": 128, "d": 64}, {"n": 50, "d": 16}),
        {"all": attention},
    ),
    "pairwise-loss": Workload(
        pairwise_loss, {"p": 5}, ({"p": 40}, {"p": 25}), {"dX": lambda p: triangle(p - 1)}
    ),
    "softmax": Workload(softmax, SMALL_MATRIX, MATRICES, {"dX": lambda r, c: 2 * r * c}),
    "log-softmax": Workload(log_softmax, SMALL_MATRIX, MATRICES, {"dX": lambda r, c: 2 * r * c}),
    "softmax-xent": Workload(cross_entropy, SMALL_MATRIX, MATRICES, {"dX": lambda r, c: r * c}),
    "logsumexp": Workload(logsumexp, SMALL_MATRIX, MATRICES, {"dX": lambda r, c: 2 * r * c}),
    "layernorm": Workload(
        layer_norm, SMALL_MATRIX, MATRICES, {"all": lambda r, c: 5 * r * c + 8 * (r + c)}
    ),
    "batchnorm": Workload(
        batch_norm,
        {"n": 2, "c": 3, "size": 3},
        ({"n": 4, "c": 6, "size": 10}, {"n": 3, "c": 5, "size": 16}),
        {"all": lambda n, c, size: 3 * n * c * size * size + 8 * c},
    ),
    "rmsnorm": Workload(rms_norm, SMALL_MATRIX, MATRICES, {"dX": lambda r, c: 3 * r * c + r}),
    "lrn": Workload(
        local_response_norm,
        {"c": 7, "size": 3},
        ({"c": 96, "size": 55}, {"c": 40, "size": 21}),
        {"dX": lambda c, size: 8 * c * size * size},
        margin=0.1,
    ),
    "standardise": Workload(standardise, SMALL_MATRIX, MATRICES, {"dX": lambda r, c: r}),
    "embedding": Workload(embedding, {"v": 9, "d": 3, "b": 5}),
    "take-along-axis": Workload(take_along),
    "where": Workload(
        chosen,
        {},
        ({"n": 100}, {"n": 64}),
        {
            "dX where": lambda n: 0,
            "dX clip": lambda n: 0,
            "dX relu": lambda n: 0,
            "dX leaky": lambda n: n,
        },
    ),
    "grid-sample": Workload(
        grid_sample,
        {"c": 2, "size": 5, "points": 6},
        ({"c": 5, "size": 9, "points": 20}, {"c": 3, "size": 14, "points": 31}),
        {
            "dX": lambda c, size, points: 4 * points * c,
            "dgrid": lambda c, size, points: 6 * points * c,
        },
    ),
    "correlation": Workload(
        correlation,
        {"c": 2, "h": 5, "w": 6, "d": 2},
        ({"c": 256, "h": 48, "w": 64, "d": 4}, {"c": 7, "h": 11, "w": 13, "d": 2}),
        {"dB": correlated},
    ),
    "heat": Workload(heat, {"n": 6}, LINES, {"dU": lambda n: 2 * (n - 2) ** 2 + 8 * n}),
    "heat-steps": Workload(
        heat,
        {"n": 6, "steps": 2},
        ({"n": 64, "steps": 3}, {"n": 37, "steps": 5}),
        {"dU": lambda n, steps: 2 * steps * (n - 2) ** 2},
    ),
    "diffusion": Workload(diffusion, {"n": 6}, LINES, {"both": lambda n: 6 * n * n}, margin=0.1),
    "periodic-stencil": Workload(periodic_stencil, {"n": 6}, LINES, {"dX": lambda n: 2 * n * n}),
    "total-variation": Workload(total_variation, {"n": 6}, LINES, {"dX": lambda n: n}),
    "residual-shared": Workload(shared_residual),
    "lstm-cell": Workload(
        lstm_cell,
        {"b": 2, "n": 3},
        ({"b": 8, "n": 16}, {"b": 5, "n": 7}),
        {"all": lambda b, n: 16 * b * n},
    ),
    "separable-blur": Workload(
        separable_blur,
        {"n": 7, "k": 3},
        ({"n": 64, "k": 5}, {"n": 37, "k": 9}),
        {"dX": lambda n, k: 2 * k * n * n},
    ),
    "jacobian-stencil": Workload(jacobians, {"n": 5}, LINES, {"J": lambda n: 2 * (n - 1)}),
    "hvp": Workload(hessian_product, {"n": 5}, LINES, {"all": lambda n: 4 * n - 3}),
}
