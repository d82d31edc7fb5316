"""Loop programs that the tests of all backends run, small enough for the evaluator."""

import math

import numpy as np

from eqsatad.loops.lower import lower
from eqsatad.loops.nest import For, LoopProgram, Nest, Store
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import (
    TRUE,
    Axis,
    Cast,
    Const,
    Placeholder,
    Read,
    Scatter,
    Size,
    Stage,
)

NAN, INF = math.nan, math.inf
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-30, -1e-30, 1e30, -1e30]


def index(number):
    return Const(number, "index")


def zero_stage(name, axes, dtype):
    """A stage of which only the shape and dtype matter."""
    zero = Const(False if dtype == "bool" else 0.0 if "float" in dtype else 0, dtype)
    return Stage(name, tuple(axes), zero)


def mapped(formula, *dtypes, length=None):
    """The program ``y[i] = formula(a[i], b[i], ...)``."""
    extent = Size("n") if length is None else index(length)
    axis = Axis("i", extent)
    inputs = tuple(
        Placeholder(name, (extent,), dtype) for name, dtype in zip("abc", dtypes, strict=False)
    )
    value = formula(*(Read(tensor, (axis,)) for tensor in inputs))
    output = zero_stage("y", [axis], value.dtype)
    loop = For(axis, index(0), extent, (Store(output, (axis,), value),), True)
    sizes = (extent,) if length is None else ()
    return LoopProgram(inputs, (output,), (), sizes, (Nest(output, (loop,)),))


def place(*shape, name, dtype="float32"):
    return ea.placeholder(shape, name=name, dtype=dtype)


def reduced(extent, name):
    return ea.reduce_axis((0, extent), name=name)


def matmul(n, k, m, dtype="float32"):
    a, b, r = (
        place(n, k, name="a", dtype=dtype),
        place(k, m, name="b", dtype=dtype),
        reduced(k, "k"),
    )
    return ea.compute((n, m), lambda i, j: ea.sum(a[i, r] * b[r, j], axis=r), name="c")


def matmul_both_transposed(n, k, m):
    a, b, r = place(k, n, name="a"), place(m, k, name="b"), reduced(k, "k")
    return ea.compute((n, m), lambda i, j: ea.sum(a[r, i] * b[j, r], axis=r), name="c")


def outer_rows(n, k, m):
    a, b, r = place(n, k, name="a"), place(m, k, name="b"), reduced(k, "k")
    return ea.compute((n, m), lambda i, j: ea.sum(a[i, r] * b[j, r], axis=r), name="c")


def flattened(n, k, c, s):
    """A matrix product whose result has three dimensions that lie as one."""
    h, w, o = place(n, k, name="h"), place(k, c * s * s, name="w"), reduced(k, "o")

    def body(i, ch, y, x):
        return ea.sum(h[i, o] * w[o, ch * s * s + y * s + x], axis=o)

    return ea.compute((n, c, s, s), body, name="y")


def conv_input_gradient(n, c, f, s, k, pad):
    o = s + 2 * pad - k + 1
    h, w = place(n, f, o, o, name="h"), place(f, c, k, k, name="w")
    axes = reduced(f, "f"), reduced(k, "u"), reduced(k, "v")

    def body(b, ch, y, x):
        g, u, v = axes
        p, q = y + pad - u, x + pad - v
        inside = (p >= 0) & (p < o) & (q >= 0) & (q < o)
        return ea.sum(h[b, g, p, q] * w[g, ch, u, v], axis=axes, where=inside)

    return ea.compute((n, c, s, s), body, name="x_bar")


def conv_weight_gradient(n, c, f, s, k, pad):
    o = s + 2 * pad - k + 1
    h, x = place(n, f, o, o, name="h"), place(n, c, s, s, name="x")
    axes = reduced(n, "n"), reduced(o, "p"), reduced(o, "q")

    def body(g, ch, u, v):
        b, p, q = axes
        y, z = p + u - pad, q + v - pad
        inside = (y >= 0) & (y < s) & (z >= 0) & (z < s)
        return ea.sum(h[b, g, p, q] * x[b, ch, y, z], axis=axes, where=inside)

    return ea.compute((f, c, k, k), body, name="w_bar")


def triangular(n):
    a, x, r = place(n, n, name="a"), place(n, name="x"), reduced(n, "k")
    return ea.compute((n,), lambda i: ea.sum(a[i, r] * x[r], axis=r, where=r <= i), name="y")


def column_sums(n, m):
    a, b, r = place(n, m, name="a"), place(n, m, name="b"), reduced(n, "r")
    return ea.compute((m,), lambda j: ea.sum(a[r, j] * b[r, j], axis=r), name="y")


def softmax(n, m):
    x, r = place(n, m, name="x"), reduced(m, "r")
    top = ea.compute((n,), lambda i: ea.max(x[i, r], axis=r), name="top")
    total = ea.compute((n,), lambda i: ea.sum(ea.exp(x[i, r] - top[i]), axis=r), name="total")
    return ea.compute((n, m), lambda i, j: ea.exp(x[i, j] - top[i]) / total[i], name="y")


def guarded_sum(n, m):
    """A sum that reads beyond its input unless a condition on data forbids it."""
    x, p, r = place(n, m, name="x"), place(m, name="p", dtype="int64"), reduced(m, "r")

    def body(i):
        at = p[r]
        return ea.sum(ea.select((at >= 0) & (at < m), x[i, at], -1.0), axis=r)

    return ea.compute((n,), body, name="y")


def best_places(n, m):
    x, r = place(n, m, name="x"), reduced(m, "r")
    return ea.compute((n,), lambda i: ea.argmax(x[i, r], axis=r), name="y")


def running_sums(n, m):
    x, r = place(n, m, name="x"), reduced(m, "r")
    return ea.compute((n, m), lambda i, k: ea.sum(x[i, r], axis=r, where=r <= k), name="y")


def two_sums(n, m):
    x, y, r, t = place(n, m, name="x"), place(m, n, name="y"), reduced(m, "r"), reduced(m, "t")

    def body(i):
        return ea.sum(x[i, r] * x[i, r], axis=r) - ea.sum(ea.tanh(y[t, i]), axis=t)

    return ea.compute((n,), body, name="z")


def total(n):
    x, r = place(n, name="x"), reduced(n, "r")
    return ea.compute((), lambda: ea.sum(x[r], axis=r), name="y")


def scattered(rows, width, count):
    h, at = place(count, width, name="h"), place(count, name="at", dtype="int64")
    r, d, t, e = (
        Axis(name, index(extent))
        for name, extent in (("r", rows), ("d", width), ("t", count), ("e", width))
    )
    adds = Scatter((t, e), TRUE, (Cast(Read(at, (t,)), "index"), e), Read(h, (t, e)))
    return Stage("y", (r, d), Const(0.0, "float32"), (adds,))


def border(n):
    x = place(n, n, name="x")

    def body(i, j):
        return x.get(i - 1, j) + x.get(i + 1, j) + x.get(i, j - 1) + x.get(i, j + 1)

    return ea.compute((n, n), body, name="y")


def weighted_by_position(n, m, k):
    """Dimensions that lie as one in memory, but one of them is a value as well."""
    x, r = place(n, m, k, name="x"), reduced(k, "r")

    def body(i, j):
        return ea.sum(x[i, j, r] * ea.cast(i + 2 * r, "float32"), axis=r)

    return ea.compute((n, m), body, name="y")


def columns_of_planes(n, m, k):
    """A sum over the first dimension; the other two are walked as one."""
    x, r = place(n, m, k, name="x"), reduced(n, "r")
    return ea.compute((m, k), lambda i, j: ea.sum(x[r, i, j] * x[r, i, j], axis=r), name="y")


def products(n, m):
    x, r = place(n, m, name="x"), reduced(m, "r")
    return ea.compute((n,), lambda i: ea.prod(x[i, r] + 1.0, axis=r), name="y")


CASES = {
    "matmul": matmul(64, 40, 48),
    "matmul odd": matmul(37, 19, 29),
    "matmul tiny": matmul(2, 3, 5),
    "matmul float64": matmul(21, 33, 18, "float64"),
    "matmul float16": matmul(20, 9, 34, "float16"),
    "matmul int64": matmul(9, 7, 20, "int64"),
    "both transposed": matmul_both_transposed(19, 23, 31),
    "outer rows": outer_rows(18, 45, 7),
    "flattened": flattened(6, 11, 5, 3),
    "conv dX": conv_input_gradient(2, 5, 3, 9, 3, 1),
    "conv dX wide": conv_input_gradient(1, 17, 2, 20, 3, 2),
    "conv dW": conv_weight_gradient(2, 5, 3, 9, 3, 1),
    "conv dW wide": conv_weight_gradient(1, 4, 8, 20, 3, 1),
    "triangular": triangular(35),
    "column sums": column_sums(23, 70),
    "softmax": softmax(9, 41),
    "guarded sum": guarded_sum(19, 12),
    "best places": best_places(21, 17),
    "running sums": running_sums(12, 33),
    "two sums": two_sums(13, 22),
    "total": total(101),
    "weighted": weighted_by_position(5, 7, 11),
    "columns of planes": columns_of_planes(6, 5, 9),
    "products": products(17, 6),
    "scattered": scattered(7, 20, 50),
    "border": border(19),
}


def lowered(output):
    return lower([output])


def arrays_for(program, seed=0):
    """Random arrays for the inputs; integers are small, some of them negative or too large."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    found = []
    for tensor in program.inputs:
        shape = [extent.value for extent in tensor.shape]
        if tensor.dtype == "int64":
            low, high = (-3, 16) if tensor.name == "p" else (0, 7)
            found.append(rng.integers(low, high, shape))
        else:
            found.append(rng.standard_normal(shape).astype(tensor.dtype))
    return found
