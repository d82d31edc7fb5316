"""The forward definitions of the 83 legacy gradients, by the id of their row.

Each entry of `CASES` builds the output, what to differentiate with respect to, and in which range
to draw data. Ranges keep functions away from saturation, so that a wrong gradient shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.terms.builders import Extent
from eqsatad.terms.nodes import Expr, Stage, Tensor

Range = tuple[float, float]
UNIT: Range = (-1.0, 1.0)


@dataclass(frozen=True)
class Case:
    """A gradient to take: ``ranges`` and ``sizes`` by name, data from `UNIT` where not given."""

    output: Stage
    inputs: tuple[Tensor, ...]
    ranges: Mapping[str, Range] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


def array(name: str, *shape: Extent, dtype: str = "float64") -> Tensor:
    """A placeholder in double precision, in which gradients are checked."""
    return ea.placeholder(shape, name=name, dtype=dtype)


def square(name: str = "A") -> Tensor:
    """The matrix that most rows are about."""
    return array(name, 10, 10)


def with_transpose(fn: Callable[[Expr, Expr], Expr], low: float = -1.0, high: float = 1.0) -> Case:
    """``B[i,j] = fn(A[i,j], A[j,i])``."""
    a = square()
    b = ea.compute((10, 10), lambda i, j: fn(a[i, j], a[j, i]), name="B")
    return Case(b, (a,), {"A": (low, high)})


def over_k(fn: Callable[[Tensor, Expr, Expr, Expr], Expr], combine: Callable[..., Expr]) -> Case:
    """``B[i,j] = combine over k of fn(A, i, j, k)``."""
    a = square()
    k = ea.reduce_axis((0, 10), name="k")
    b = ea.compute((10, 10), lambda i, j: combine(fn(a, i, j, k), axis=k), name="B")
    return Case(b, (a,))


def diag_of_square(n: Extent = 10, **sizes: int) -> Case:
    """``B[i] = sum over k of A[i,k]*A[k,i]``."""
    a = array("A", n, n)
    k = ea.reduce_axis((0, n), name="k")
    b = ea.compute((n,), lambda i: ea.sum(a[i, k] * a[k, i], axis=k), name="B")
    return Case(b, (a,), sizes=sizes)


def mul_add_transpose() -> Case:
    """A product whose second factor is read transposed."""
    a, other = square("A0"), square("A1")
    b = ea.compute((10, 10), lambda i, j: a[i, j] * (other[j, i] + a[j, i]), name="B")
    return Case(b, (a,))


def reverse_tensordot() -> Case:
    """Two stages that read a vector from both ends, contracted to a scalar."""
    x = array("X", 10)
    i = ea.reduce_axis((0, 10), name="i")
    p = ea.compute((10,), lambda n: x[n] + x[9 - n], name="P")
    q = ea.compute((10,), lambda n: x[n] * x[9 - n], name="Q")
    return Case(ea.compute((), lambda: ea.sum(p[i] * q[i], axis=i), name="Y"), (x,))


def diagonal() -> Case:
    """The diagonal of a matrix."""
    x = array("X", 3, 3)
    return Case(ea.compute((3,), lambda i: x[i, i], name="Y"), (x,))


def conv_p1() -> tuple[Tensor, Tensor, Stage]:
    """The padded convolution of two rows."""
    x, w = array("X", 1, 2, 4, 4), array("W", 5, 2, 3, 3)
    return x, w, nn.conv2d(x, w, pad=1, name="R")


def conv_relu_conv() -> Case:
    """Two convolutions with a relu between."""
    x, w, r = conv_p1()
    w1 = array("W1", 2, 5, 3, 3)
    return Case(nn.conv2d(nn.relu(r), w1, name="Y"), (x, w, w1))


def broadcast_scalar() -> Case:
    """One number repeated to a weight."""
    w2 = array("W2", 1)
    return Case(nn.broadcast_to(w2, (5, 2, 3, 3)), (w2,))


def conv_broadcast_weight() -> Case:
    """A convolution whose weights are all one number."""
    x, w2 = array("X", 1, 2, 4, 4), array("W2", 1)
    return Case(nn.conv2d(x, nn.broadcast_to(w2, (5, 2, 3, 3)), pad=1), (x, w2))


def pooled(pool: Callable[..., Stage], *shape: Extent, **sizes: int) -> Case:
    """A 2x2 pooling with stride 2."""
    x = array("X", *shape, 4, 4)
    return Case(pool(x, 2, stride=2), (x,), sizes=sizes)


def reshaped(*shape: int, truncate: bool = False) -> Case:
    """Another shape of (1, 2, 5, 5)."""
    x = array("X", 1, 2, 5, 5)
    return Case(nn.reshape(x, shape, truncate=truncate), (x,))


def residual(head: Callable[[Tensor], Stage] | None, *wrt: str) -> Case:
    """``R = X + conv(X + conv(X, W), W)``, then ``head`` of R as a row."""
    x, w = array("X", 1, 2, 5, 5), array("W", 2, 2, 3, 3)

    def add(a: Tensor, b: Tensor, name: str) -> Stage:
        return ea.compute((1, 2, 5, 5), lambda *i: a[i] + b[i], name=name)

    inner = add(x, nn.conv2d(x, w, pad=1, name="conv1"), "add1")
    r = add(x, nn.conv2d(inner, w, pad=1, name="conv2"), "R")
    output = r if head is None else head(nn.reshape(r, (1, 50)))
    return Case(output, tuple(t for t in (x, w) if t.name in wrt), {"X": UNIT, "W": (-0.5, 0.5)})


def mapped(fn: Callable[[Expr], Expr]) -> Callable[[Tensor], Stage]:
    """``fn`` of each element of a row."""
    return lambda x: ea.compute((1, 50), lambda n, i: fn(x[n, i]), name="Y")


def concatenated() -> Case:
    """Two tensors side by side."""
    x, y = array("X", 1, 2, 3, 5), array("Y", 1, 2, 7, 5)
    return Case(nn.concatenate([x, y], axis=2), (x, y))


def halves(*order: int) -> Case:
    """The halves of a tensor in the order given, put together again when there are two."""
    x = array("X", 1, 2, 6, 5)
    parts = nn.split(x, 2, axis=2)
    chosen = [parts[n] for n in order]
    return Case(chosen[0] if len(chosen) == 1 else nn.concatenate(chosen, axis=2), (x,))


def take_flat() -> Case:
    """A gather from the flattened tensor at absolute positions."""
    x = array("X", 4, 5)
    places = array("I", 100, dtype="int32")
    flat = nn.reshape(x, (20,), name="flat")
    y = ea.compute((100,), lambda n: flat[ea.abs(places[n])], name="Y")
    return Case(y, (x,), {"I": (-19, 20)})


def dense_softmax() -> Case:
    """A softmax written out by hand, without a shift."""
    x, w = array("X", 4, 5), array("W", 5, 5)
    k = ea.reduce_axis((0, 5), name="k")
    d = nn.dense(x, w)
    e = ea.compute((4, 5), lambda i, j: ea.exp(d[i, j]), name="E")
    s = ea.compute((4,), lambda i: ea.sum(e[i, k], axis=k), name="S")
    return Case(ea.compute((4, 5), lambda i, j: e[i, j] / s[i], name="Y"), (x, w))


def strided_conv(kernel: int, stride: int, dilation: int) -> Case:
    """An unpadded convolution of (1, 2, 10, 10)."""
    x, w = array("X", 1, 2, 10, 10), array("W", 2, 2, kernel, kernel)
    return Case(nn.conv2d(x, w, stride=stride, dilation=dilation), (x, w))


def strided_max_pool(kernel: int, stride: int) -> Case:
    """A max pooling of (1, 2, 10, 10)."""
    x = array("X", 1, 2, 10, 10)
    return Case(nn.max_pool(x, kernel, stride=stride), (x,))


def small_conv_net() -> Case:
    """Two convolutions, a pooling and two dense layers under a cross entropy."""
    x, y = array("x", 1, 28, 14, 1), array("y", 1, 10)
    w1, w2 = array("w1", 4, 1, 3, 5), array("w2", 4, 4, 3, 5)
    w3, w4 = array("w3", 16, 144), array("w4", 10, 16)
    b1, b2, b3, b4 = (array(f"b{n}", size) for n, size in enumerate((4, 4, 16, 10), start=1))
    t = nn.transpose(x, (0, 3, 1, 2), name="t1")
    t = nn.relu(nn.conv2d(t, w1, b1, name="conv1"), name="relu1")
    t = nn.relu(nn.conv2d(t, w2, b2, name="conv2"), name="relu2")
    t = nn.transpose(nn.avg_pool(t, 2, stride=2), (0, 2, 3, 1), name="t2")
    t = nn.relu(nn.dense(nn.flatten(t), w3, b3, name="dense1"), name="relu3")
    logs = nn.log_softmax(nn.dense(t, w4, b4, name="dense2"))
    k = ea.reduce_axis((0, 10), name="k")
    loss = ea.compute((), lambda: -ea.sum(y[0, k] * logs[0, k], axis=k), name="loss")
    return Case(loss, (w1, b1, w2, b2, w3, b3, w4, b4), {name: (-0.3, 0.3) for name in ("w3",)})


def sym_add_bias() -> Case:
    """A matrix and a row, of symbolic sizes."""
    m, n = ea.size("m"), ea.size("n")
    a, b = array("A", m, n), array("B", n)
    c = ea.compute((m, n), lambda i, j: a[i, j] + b[j], name="C")
    return Case(c, (a, b), sizes={"m": 5, "n": 10})


def sym_add_transpose() -> Case:
    """A square matrix of symbolic size and its transpose."""
    m = ea.size("m")
    a = array("A", m, m)
    b = ea.compute((m, m), lambda i, j: a[i, j] + a[j, i], name="B")
    return Case(b, (a,), sizes={"m": 10})


def sym_pool(pool: Callable[..., Stage]) -> Case:
    """A pooling with symbolic batch and channels."""
    return pooled(pool, ea.size("m"), ea.size("n"), m=1, n=2)


def scaled(fn: Callable[[Expr], Expr]) -> Callable[[], Case]:
    """``fn`` of each element, over a range in which it takes many values."""
    return partial(with_transpose, lambda a, _: fn(a), -10.0, 10.0)


def clamped(a: Tensor, i: Expr, j: Expr, k: Expr) -> Expr:
    """The body of the row with a clamped index."""
    return a[k, k] - a[ea.minimum(j + k, 9), j] * a[i, k]


NAMED: dict[str, Callable[[], Case]] = {
    "add-transpose": partial(with_transpose, lambda a, t: a + t),
    "floor": scaled(ea.floor),
    "ceil": scaled(ea.ceil),
    "trunc": scaled(ea.trunc),
    "round": scaled(ea.round),
    "add-exp-transpose": partial(with_transpose, lambda a, t: a + ea.exp(t)),
    "log-abs-exp": partial(with_transpose, lambda a, t: ea.log(0.1 + ea.abs(a + ea.exp(t)))),
    "sigmoid-cubic": partial(with_transpose, lambda a, t: ea.sigmoid(a * a * t)),
    "tanh-cubic": partial(with_transpose, lambda a, t: ea.tanh(a * a * t)),
    "sqrt-cubic": partial(with_transpose, lambda a, t: ea.sqrt(a * a * t), 0.1, 10.0),
    "pow-transpose": partial(with_transpose, lambda a, t: ea.abs(a) ** t, -4.0, 4.0),
    "mul-transpose": partial(with_transpose, lambda a, t: a * t),
    "diag-of-square": diag_of_square,
    "diag-of-square-plus": partial(over_k, lambda a, i, j, k: a[i, k] * a[k, i] + 5.0, ea.sum),
    "max-product": partial(over_k, lambda a, i, j, k: a[i, k] * a[k, j] + 5.0, ea.max),
    "mul-add-transpose": mul_add_transpose,
    "clamped-index": partial(over_k, clamped, ea.sum),
    "product-reduction": partial(over_k, lambda a, i, j, k: a[i, k] + a[k, i], ea.prod),
    "reverse-tensordot": reverse_tensordot,
    "diagonal": diagonal,
    "conv-p1": lambda: Case(conv_p1()[2], conv_p1()[:2]),
    "conv-relu-conv": conv_relu_conv,
    "broadcast-scalar": broadcast_scalar,
    "conv-broadcast-weight": conv_broadcast_weight,
    "avgpool-2-2": partial(pooled, nn.avg_pool, 1, 2),
    "maxpool-2-2": partial(pooled, nn.max_pool, 1, 2),
    "reshape-truncating": partial(reshaped, 1, 32, truncate=True),
    "reshape": partial(reshaped, 1, 50),
    "residual-conv": partial(residual, None, "X", "W"),
    "residual-softmax": partial(residual, nn.softmax, "X", "W"),
    "residual-sigmoid": partial(residual, mapped(ea.sigmoid), "X", "W"),
    "residual-tanh": partial(residual, mapped(ea.tanh), "X", "W"),
    "residual-log-softmax": partial(residual, nn.log_softmax, "X", "W"),
    "residual-log-softmax-w": partial(residual, nn.log_softmax, "W"),
    "concatenate": concatenated,
    "split-first": partial(halves, 0),
    "split-second": partial(halves, 1),
    "split-concat": partial(halves, 0, 1),
    "split-concat-swapped": partial(halves, 1, 0),
    "take-flat": take_flat,
    "dense-softmax": dense_softmax,
    "small-conv-net": small_conv_net,
    "sym-add-bias": sym_add_bias,
    "sym-add-transpose": sym_add_transpose,
    "sym-diag-of-square": lambda: diag_of_square(ea.size("m"), m=10),
    "sym-avgpool": partial(sym_pool, nn.avg_pool),
    "sym-maxpool": partial(sym_pool, nn.max_pool),
}

CASES: dict[str, Callable[[], Case]] = {
    **NAMED,
    **{
        f"conv-k{k}-s{s}-d{d}": partial(strided_conv, k, s, d)
        for k, s, d in product((1, 2, 3), repeat=3)
    },
    **{
        f"maxpool-k{k}-s{s}": partial(strided_max_pool, k, s)
        for k, s in product((1, 2, 3), repeat=2)
    },
}
