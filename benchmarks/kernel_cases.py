"""The 28 kernels for speed: what is computed, on which data, and how the peers write it.

An entry of `CASES` makes a `Problem` at full size or at a small one. What a forward pass saves is
an input: of max pooling the position in the window, of softmax and logsumexp the result, of layer
normalisation the mean and the scale. Where the saved tensor makes the forward definition useless
for a gradient, the backward expression is written down and built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import eqsatad as ea
from benchmarks import kernel_peers as expert
from benchmarks.kernel_peers import Array
from eqsatad import library as nn
from eqsatad.extract.cost import CostModel
from eqsatad.terms.nodes import Expr, Stage, Tensor

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Gradient:
    """The gradient of ``output`` with respect to ``wrt``, the head being the placeholder ``H``."""

    output: Stage
    wrt: tuple[Tensor, ...]

    def build(self, target: str, *, specialise: bool = False, cost: CostModel | None = None) -> Any:
        """The kernel for ``target``, by ``cost`` if that is not the model of the target."""
        head = placeholder("H", *self.output.shape)
        prices = cost or (target if target in ("cpu", "opencl") else "count")
        gradients = ea.differentiate(self.output, list(self.wrt), head=head, cost=prices)
        return gradients.build(target, specialise=specialise)


@dataclass(frozen=True)
class Written:
    """Stages that are a backward pass written by hand."""

    outputs: tuple[Stage, ...]

    def build(self, target: str, *, specialise: bool = False) -> Any:
        """The kernel for ``target``."""
        return ea.build(list(self.outputs), target=target, specialise=specialise)


@dataclass(frozen=True)
class Problem:
    """One benchmark: ours, its data, and the same in numpy, torch and jax.

    ``torch`` and ``jax`` give the forward result from the module and the arrays; their gradient
    is taken with respect to the arrays called ``wrt``. ``at_will`` is jax's own way where its
    forward pass saves other tensors than the row gives: then ``jax`` has a rule for its gradient,
    so that all have the same.
    """

    ours: Gradient | Written
    arrays: Arrays
    wrt: tuple[str, ...]
    numpy: Callable[[Arrays], list[Array]]
    torch: Callable[[Any, Any], Any]
    jax: Callable[[Any, Any], Any]
    at_will: Callable[[Any, Any], Any] | None = None


@dataclass(frozen=True)
class Case:
    """How a `Problem` is made at its full and at a small size."""

    make: Callable[..., Problem]
    full: Mapping[str, Any]
    small: Mapping[str, Any]


def placeholder(name: str, *shape: Any, dtype: str = "float32") -> Tensor:
    """An input in single precision."""
    return ea.placeholder(shape, name=name, dtype=dtype)


def drawn(**shapes: Sequence[int]) -> dict[str, Array]:
    """Normal data in single precision, other for each name."""
    return {
        name: np.random.default_rng(list(name.encode())).standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def conv(
    x: Sequence[int],
    w: Sequence[int],
    wrt: str,
    *,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    shuffle: int = 1,
) -> Problem:
    """A convolution of any rank, perhaps followed by a pixel shuffle."""
    rank = len(x) - 2
    operator = {2: nn.conv2d, 3: nn.conv3d}[rank]
    xs, ws = placeholder("X", *x), placeholder("W", *w)
    y = operator(xs, ws, stride=stride, pad=pad, dilation=dilation)
    y = nn.pixel_shuffle(y, shuffle) if shuffle > 1 else y
    gradient = {"X": expert.conv_dx, "W": expert.conv_dw}[wrt]

    def numpy(a: Arrays) -> list[Array]:
        h = expert.unshuffle(a["H"], shuffle) if shuffle > 1 else a["H"]
        return gradient(h, a["X"], a["W"], stride=stride, pad=pad, dilation=dilation)

    def torch(torch: Any, a: Any) -> Any:
        forward = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[rank]
        result = forward(a["X"], a["W"], stride=stride, padding=pad, dilation=dilation)
        return torch.nn.functional.pixel_shuffle(result, shuffle) if shuffle > 1 else result

    def jax(jax: Any, a: Any) -> Any:
        result = jax.lax.conv_general_dilated(
            a["X"], a["W"], (stride,) * rank, [(pad, pad)] * rank, rhs_dilation=(dilation,) * rank
        )
        if shuffle == 1:
            return result
        n, c, height, width = result.shape
        blocks = result.reshape(n, c // shuffle**2, shuffle, shuffle, height, width)
        return blocks.transpose(0, 1, 4, 2, 5, 3).reshape(
            n, c // shuffle**2, height * shuffle, width * shuffle
        )

    arrays = drawn(X=x, W=w, H=_sizes(y))
    return Problem(Gradient(y, (xs if wrt == "X" else ws,)), arrays, (wrt,), numpy, torch, jax)


def _sizes(y: Tensor) -> tuple[int, ...]:
    return tuple(size for size in nn.extents(y) if isinstance(size, int))


def depthwise(x: Sequence[int], wrt: str) -> Problem:
    """A depthwise 3x3 convolution with one element of padding."""
    channels = x[1]
    w = (channels, 1, 3, 3)
    xs, ws = placeholder("X", *x), placeholder("W", *w)
    y = nn.conv2d(xs, ws, pad=1, groups=channels)
    gradient = {"X": expert.depthwise_dx, "W": expert.depthwise_dw}[wrt]
    return Problem(
        Gradient(y, (xs if wrt == "X" else ws,)),
        drawn(X=x, W=w, H=x),
        (wrt,),
        lambda a: gradient(a["H"], a["X"], a["W"], pad=1),
        lambda torch, a: torch.nn.functional.conv2d(a["X"], a["W"], padding=1, groups=channels),
        lambda jax, a: jax.lax.conv_general_dilated(
            a["X"], a["W"], (1, 1), [(1, 1)] * 2, feature_group_count=channels
        ),
    )


def max_pool(x: Sequence[int], *, kernel: int = 3, stride: int = 2, pad: int = 1) -> Problem:
    """Max pooling whose forward pass saved the position in each window."""
    xs = placeholder("X", *x)
    arrays = drawn(X=x)
    places = _argmax(arrays["X"], kernel, stride, pad)
    shape = places.shape
    saved = placeholder("A", *shape, dtype="int32")
    i, j = (ea.reduce_axis((0, kernel), name=name) for name in "ij")

    def body(n: Expr, c: Expr, o: Expr, q: Expr) -> Expr:
        u, v = o * stride + i - pad, q * stride + j - pad
        chosen = saved[n, c, o, q].equal(ea.cast(i * kernel + j, "int32"))
        return ea.sum(ea.select(chosen, xs.get(n, c, u, v), 0.0), axis=(i, j))

    y = ea.compute(shape, body, name="Y")
    return Problem(
        Gradient(y, (xs,)),
        {**arrays, "A": places, **drawn(H=shape)},
        ("X",),
        lambda a: expert.max_pool_dx(a["H"], a["X"], a["A"], kernel=kernel, stride=stride, pad=pad),
        lambda torch, a: torch.nn.functional.max_pool2d(a["X"], kernel, stride, pad),
        lambda jax, a: jax.lax.reduce_window(
            a["X"],
            -np.float32(np.inf),
            jax.lax.max,
            (1, 1, kernel, kernel),
            (1, 1, stride, stride),
            [(0, 0), (0, 0), (pad, pad), (pad, pad)],
        ),
    )


def _argmax(x: Array, kernel: int, stride: int, pad: int) -> Array:
    """The row-major position in its window of the first largest element."""
    source = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(source, (kernel, kernel), axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride]
    places: Array = windows.reshape(*windows.shape[:4], -1).argmax(axis=-1)
    return places.astype(np.int32)


def avg_pool(x: Sequence[int], *, kernel: int = 2) -> Problem:
    """Average pooling of disjoint windows."""
    xs = placeholder("X", *x)
    y = nn.avg_pool(xs, kernel)
    return Problem(
        Gradient(y, (xs,)),
        drawn(X=x, H=_sizes(y)),
        ("X",),
        lambda a: expert.avg_pool_dx(a["H"], kernel=kernel),
        lambda torch, a: torch.nn.functional.avg_pool2d(a["X"], kernel),
        lambda jax, a: (
            jax.lax.reduce_window(
                a["X"],
                np.float32(0),
                jax.lax.add,
                (1, 1, kernel, kernel),
                (1, 1, kernel, kernel),
                "VALID",
            )
            / kernel**2
        ),
    )


def flat_dense(x: Sequence[int], outputs: int, wrt: str) -> Problem:
    """A flattened image times a transposed matrix."""
    inner = int(np.prod(x[1:]))
    xs, ws = placeholder("X", *x), placeholder("W", outputs, inner)
    y = nn.dense(nn.flatten(xs), ws)
    gradient = {"X": expert.dense_dx, "W": expert.dense_dw}[wrt]
    return Problem(
        Gradient(y, (xs if wrt == "X" else ws,)),
        drawn(X=x, W=(outputs, inner), H=(x[0], outputs)),
        (wrt,),
        lambda a: gradient(a["H"], a["X"], a["W"]),
        lambda torch, a: a["X"].flatten(1) @ a["W"].T,
        lambda jax, a: a["X"].reshape(x[0], -1) @ a["W"].T,
    )


def softmax(x: Sequence[int]) -> Problem:
    """Softmax over rows whose forward pass saved its result."""
    rows, columns = x
    y, h = placeholder("Y", *x), placeholder("H", *x)
    k = ea.reduce_axis((0, columns), name="k")
    inner = ea.compute((rows,), lambda i: ea.sum(h[i, k] * y[i, k], axis=k), name="inner")
    dx = ea.compute(x, lambda i, j: y[i, j] * (h[i, j] - inner[i]), name="dX")
    arrays = drawn(X=x, H=x)
    exps = np.exp(arrays["X"] - arrays["X"].max(axis=1, keepdims=True))
    return Problem(
        Written((dx,)),
        {**arrays, "Y": exps / exps.sum(axis=1, keepdims=True)},
        ("X",),
        lambda a: expert.softmax_dx(a["H"], a["Y"]),
        lambda torch, a: torch.softmax(a["X"], 1),
        lambda jax, a: jax.nn.softmax(a["X"], 1),
    )


def logsumexp(x: Sequence[int]) -> Problem:
    """Logsumexp over rows whose forward pass saved its result."""
    rows, _ = x
    xs, y, h = placeholder("X", *x), placeholder("Y", rows), placeholder("H", rows)
    dx = ea.compute(x, lambda i, j: h[i] * ea.exp(xs[i, j] - y[i]), name="dX")
    arrays = drawn(X=x, H=(rows,))

    def jax(jax: Any, a: Any) -> Any:
        forward = jax.custom_vjp(lambda x: jax.nn.logsumexp(x, 1))

        def saving(x: Any) -> tuple[Any, tuple[Any, Any]]:
            y = jax.nn.logsumexp(x, 1)
            return y, (x, y)

        def backward(saved: tuple[Any, Any], h: Any) -> tuple[Any]:
            x, y = saved
            return (h[:, None] * jax.numpy.exp(x - y[:, None]),)

        forward.defvjp(saving, backward)
        return forward(a["X"])

    return Problem(
        Written((dx,)),
        {**arrays, "Y": np.log(np.exp(arrays["X"]).sum(axis=1))},
        ("X",),
        lambda a: expert.logsumexp_dx(a["H"], a["X"], a["Y"]),
        lambda torch, a: torch.logsumexp(a["X"], 1),
        jax,
        # Saves the exponentials, so that its backward pass has none to work out.
        at_will=lambda jax, a: jax.nn.logsumexp(a["X"], 1),
    )


def layer_norm(x: Sequence[int]) -> Problem:
    """Layer normalisation over rows whose forward pass saved the mean and the scale."""
    rows, columns = x
    xs, h = placeholder("X", *x), placeholder("H", *x)
    gamma, mean, scale = (
        placeholder(name, size) for name, size in (("G", columns), ("M", rows), ("R", rows))
    )
    k, r = ea.reduce_axis((0, columns), name="k"), ea.reduce_axis((0, rows), name="r")

    def unit(i: Expr, j: Expr) -> Expr:
        return (xs[i, j] - mean[i]) * scale[i]

    def share(fn: Callable[[Expr], Expr], name: str) -> Stage:
        return ea.compute((rows,), lambda i: ea.sum(fn(i), axis=k) * (1.0 / columns), name=name)

    first = share(lambda i: h[i, k] * gamma[k], "first")
    second = share(lambda i: h[i, k] * gamma[k] * unit(i, k), "second")
    dx = ea.compute(
        x,
        lambda i, j: scale[i] * (h[i, j] * gamma[j] - first[i] - unit(i, j) * second[i]),
        name="dX",
    )
    dgamma = ea.compute((columns,), lambda j: ea.sum(h[r, j] * unit(r, j), axis=r), name="dG")
    dbeta = ea.compute((columns,), lambda j: ea.sum(h[r, j], axis=r), name="dB")
    arrays = drawn(X=x, H=x, G=(columns,), B=(columns,))
    average, variance = arrays["X"].mean(axis=1), arrays["X"].var(axis=1)
    saved = {"M": average, "R": (1 / np.sqrt(variance + 1e-5)).astype(np.float32)}

    def jax(jax: Any, a: Any) -> Any:
        centred = a["X"] - a["X"].mean(axis=1, keepdims=True)
        variance = (centred * centred).mean(axis=1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * a["G"] + a["B"]

    return Problem(
        Written((dx, dgamma, dbeta)),
        {**arrays, **saved},
        ("X", "G", "B"),
        lambda a: expert.layer_norm_all(a["H"], a["X"], a["G"], a["M"], a["R"]),
        lambda torch, a: torch.nn.functional.layer_norm(a["X"], (columns,), a["G"], a["B"]),
        jax,
    )


def bmm(batch: int, rows: int, inner: int, columns: int) -> Problem:
    """A batched matrix product."""
    shapes = {"A": (batch, rows, inner), "B": (batch, inner, columns)}
    a, b = (placeholder(name, *shape) for name, shape in shapes.items())
    return Problem(
        Gradient(nn.batched_matmul(a, b), (a, b)),
        drawn(**shapes, H=(batch, rows, columns)),
        ("A", "B"),
        lambda a: expert.bmm_all(a["H"], a["A"], a["B"]),
        lambda torch, a: a["A"] @ a["B"],
        lambda jax, a: a["A"] @ a["B"],
    )


def upsample(x: Sequence[int]) -> Problem:
    """Bilinear interpolation to twice the size."""
    xs = placeholder("X", *x)
    y = nn.upsample_bilinear(xs, 2)
    return Problem(
        Gradient(y, (xs,)),
        drawn(X=x, H=_sizes(y)),
        ("X",),
        lambda a: expert.upsample_dx(a["H"]),
        lambda torch, a: torch.nn.functional.interpolate(
            a["X"], scale_factor=2, mode="bilinear", align_corners=False
        ),
        lambda jax, a: jax.image.resize(a["X"], _sizes(y), "bilinear"),
    )


def cumsum(x: Sequence[int]) -> Problem:
    """A running sum along rows."""
    xs = placeholder("X", *x)
    return Problem(
        Gradient(nn.cumsum(xs, axis=1), (xs,)),
        drawn(X=x, H=x),
        ("X",),
        lambda a: expert.cumsum_dx(a["H"]),
        lambda torch, a: torch.cumsum(a["X"], 1),
        lambda jax, a: jax.numpy.cumsum(a["X"], 1),
    )


def stencil(x: Sequence[int], *, rate: float = 0.1) -> Problem:
    """One explicit step of diffusion, zero outside."""
    xs = placeholder("X", *x)

    def body(i: Expr, j: Expr) -> Expr:
        around = xs.get(i - 1, j) + xs.get(i + 1, j) + xs.get(i, j - 1) + xs.get(i, j + 1)
        return xs[i, j] + rate * (around - 4.0 * xs[i, j])

    def peer(pad: Callable[[Any], Any], x: Any) -> Any:
        p = pad(x)
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        return x + rate * (around - 4 * x)

    return Problem(
        Gradient(ea.compute(x, body, name="Y"), (xs,)),
        drawn(X=x, H=x),
        ("X",),
        lambda a: expert.stencil_dx(a["H"], rate=rate),
        lambda torch, a: peer(lambda x: torch.nn.functional.pad(x, (1, 1, 1, 1)), a["X"]),
        lambda jax, a: peer(lambda x: jax.numpy.pad(x, 1), a["X"]),
    )


def correlation(x: Sequence[int], *, reach: int = 4) -> Problem:
    """The inner products of two images under all displacements up to ``reach``."""
    n, channels, height, width = x
    a, b = placeholder("A", *x), placeholder("B", *x)
    c = ea.reduce_axis((0, channels), name="c")
    span = 2 * reach + 1

    def body(n: Expr, d: Expr, u: Expr, v: Expr) -> Expr:
        moved = b.get(n, c, u + d // span - reach, v + d % span - reach)
        return ea.sum(a[n, c, u, v] * moved, axis=c)

    def peer(pad: Callable[[Any], Any], stack: Callable[[Any], Any], a: Any) -> Any:
        p = pad(a["B"])
        return stack(
            [
                (a["A"] * p[:, :, dy : dy + height, dx : dx + width]).sum(1)
                for dy, dx in product(range(span), repeat=2)
            ]
        )

    shape = (n, span * span, height, width)
    return Problem(
        Gradient(ea.compute(shape, body, name="Y"), (a, b)),
        drawn(A=x, B=x, H=shape),
        ("A", "B"),
        lambda a: expert.correlation_all(a["H"], a["A"], a["B"], reach=reach),
        lambda torch, a: peer(
            lambda x: torch.nn.functional.pad(x, (reach,) * 4), partial(torch.stack, dim=1), a
        ),
        lambda jax, a: peer(
            lambda x: jax.numpy.pad(x, [(0, 0), (0, 0), (reach, reach), (reach, reach)]),
            partial(jax.numpy.stack, axis=1),
            a,
        ),
    )


def embedding(rows: int, width: int, count: int) -> Problem:
    """Rows of a table."""
    table, places = placeholder("E", rows, width), placeholder("I", count, dtype="int32")
    indices = np.random.default_rng(1).integers(0, rows, count, dtype=np.int32)
    return Problem(
        Gradient(nn.embedding(table, places), (table,)),
        {**drawn(E=(rows, width), H=(count, width)), "I": indices},
        ("E",),
        lambda a: expert.embedding_dx(a["H"], a["I"], rows=rows),
        lambda torch, a: torch.nn.functional.embedding(a["I"], a["E"]),
        lambda jax, a: a["E"][a["I"]],
    )


def einsum3(i: int, j: int, k: int, l: int) -> Problem:  # noqa: E741
    """A product of three tensors in one sum."""
    shapes = {"A": (i, j), "B": (j, k, l), "C": (k, l)}
    a, b, c = (placeholder(name, *shape) for name, shape in shapes.items())
    over = ea.reduce_axis((0, j), name="j"), ea.reduce_axis((0, k), name="k")

    def body(row: Expr, column: Expr) -> Expr:
        inner, outer = over
        return ea.sum(a[row, inner] * b[inner, outer, column] * c[outer, column], axis=over)

    return Problem(
        Gradient(ea.compute((i, l), body, name="Y"), (a, b, c)),
        drawn(**shapes, H=(i, l)),
        ("A", "B", "C"),
        lambda a: expert.einsum3_all(a["H"], a["A"], a["B"], a["C"]),
        lambda torch, a: torch.einsum("ij,jkl,kl->il", a["A"], a["B"], a["C"]),
        lambda jax, a: jax.numpy.einsum("ij,jkl,kl->il", a["A"], a["B"], a["C"]),
    )


def both(name: str, case: Case) -> dict[str, Case]:
    """One row for each of the two gradients of an operator with weights."""
    return {
        f"{name}d{wrt}": Case(partial(case.make, wrt=wrt), case.full, case.small) for wrt in "WX"
    }


def conv_case(
    x: Sequence[int], w: Sequence[int], small: Sequence[int], few: Sequence[int], **options: Any
) -> Case:
    """A convolution at two sizes."""
    return Case(partial(conv, **options), {"x": x, "w": w}, {"x": small, "w": few})


IMAGE, WEIGHT = (8, 64, 28, 28), (64, 64, 3, 3)
SMALL_IMAGE, SMALL_WEIGHT = (2, 5, 9, 8), (6, 5, 3, 3)


def rows_case(make: Callable[..., Problem], full: Sequence[int], small: Sequence[int]) -> Case:
    """An operator on one tensor at two sizes."""
    return Case(make, {"x": full}, {"x": small})


CASES: dict[str, Case] = {
    **both("W1", conv_case(IMAGE, WEIGHT, SMALL_IMAGE, SMALL_WEIGHT, pad=1)),
    **both("W2", conv_case(IMAGE, WEIGHT, SMALL_IMAGE, SMALL_WEIGHT, pad=1, stride=2)),
    **both("W3", conv_case(IMAGE, WEIGHT, SMALL_IMAGE, SMALL_WEIGHT, pad=2, dilation=2)),
    **both("W4", Case(depthwise, {"x": (4, 128, 56, 56)}, {"x": (2, 5, 9, 8)})),
    **both(
        "W5", conv_case((8, 128, 28, 28), (256, 128, 1, 1), (2, 5, 8, 6), (7, 5, 1, 1), stride=2)
    ),
    "W6dX": rows_case(max_pool, (8, 64, 56, 56), (2, 3, 9, 8)),
    "W7dX": rows_case(avg_pool, (8, 64, 56, 56), (2, 3, 8, 6)),
    **both(
        "W8",
        Case(flat_dense, {"x": (64, 64, 7, 7), "outputs": 512}, {"x": (5, 3, 4, 3), "outputs": 6}),
    ),
    "W9dX": rows_case(softmax, (512, 1000), (6, 37)),
    "W10": rows_case(layer_norm, (1024, 768), (7, 19)),
    "W11": Case(
        bmm,
        {"batch": 16, "rows": 128, "inner": 64, "columns": 128},
        {"batch": 3, "rows": 9, "inner": 6, "columns": 11},
    ),
    "W12": rows_case(logsumexp, (512, 1000), (6, 37)),
    "W13": rows_case(upsample, (4, 32, 28, 28), (2, 3, 5, 6)),
    "W14": rows_case(cumsum, (512, 2048), (5, 43)),
    "W15": rows_case(stencil, (2048, 2048), (13, 11)),
    "W16": Case(correlation, {"x": (2, 32, 48, 64)}, {"x": (2, 3, 7, 9), "reach": 2}),
    "W17": Case(
        embedding,
        {"rows": 5000, "width": 64, "count": 4096},
        {"rows": 11, "width": 5, "count": 23},
    ),
    **both(
        "W18",
        conv_case((4, 64, 32, 32), (256, 64, 3, 3), (2, 3, 6, 5), (8, 3, 3, 3), pad=1, shuffle=2),
    ),
    "W19": Case(
        einsum3,
        {"i": 256, "j": 96, "k": 96, "l": 128},
        {"i": 7, "j": 5, "k": 6, "l": 9},
    ),
    **both(
        "W20",
        conv_case((2, 16, 16, 16, 16), (16, 16, 3, 3, 3), (2, 3, 5, 4, 6), (4, 3, 3, 3, 3), pad=1),
    ),
}
