"""The gradient kernels with symbolic sizes: batch, channels and images of any size.

What is a parameter of the operator stays a number: the sides of a convolution's kernel, strides,
windows. Rows whose definition needs numbers throughout (a pixel shuffle, an interpolation, a list
of displacements) have no entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import eqsatad as ea
from benchmarks import kernel_cases as known
from benchmarks.kernel_cases import Arrays, Case, Gradient, Written, placeholder
from eqsatad import library as nn
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Expr, Placeholder, Size
from eqsatad.terms.walk import program

Definition = Gradient | Written


def symbolic(case: Case) -> Definition | None:
    """The definition of ``case`` with symbolic sizes; None if there is none."""
    make = case.make
    given: Mapping[str, Any] = {}
    if isinstance(make, partial):
        make, given = make.func, make.keywords
    options = {**given, **case.full}
    if make not in DEFINITIONS or options.get("shuffle", 1) > 1:
        return None
    return DEFINITIONS[make](**options)


def values(definition: Definition, arrays: Arrays) -> dict[str, int]:
    """The sizes that ``arrays`` have, by name; extents are multiples of sizes."""
    outputs = definition.outputs if isinstance(definition, Written) else (definition.output,)
    found: dict[str, int] = {}
    for tensor in program(outputs):
        if isinstance(tensor, Placeholder) and tensor.name in arrays:
            for extent, number in zip(tensor.shape, arrays[tensor.name].shape, strict=True):
                match linear(extent).terms:
                    case ((factor, Size(name)),):
                        found[name] = number // factor
    return found


def sizes(names: str) -> tuple[Size, ...]:
    """One size for each of ``names``."""
    return tuple(ea.size(name) for name in names.split())


def conv(x: Sequence[int], w: Sequence[int], wrt: str, **options: Any) -> Definition:
    """A convolution with kernels of known sides."""
    batch, channels, filters, *image = sizes("n c f h w d")
    xs = placeholder("X", batch, channels, *image[: len(x) - 2])
    ws = placeholder("W", filters, channels, *w[2:])
    operator = {2: nn.conv2d, 3: nn.conv3d}[len(x) - 2]
    return Gradient(operator(xs, ws, **options), (xs if wrt == "X" else ws,))


def max_pool(x: Sequence[int], *, kernel: int = 3, stride: int = 2, pad: int = 1) -> Definition:
    """Max pooling whose forward pass saved the positions."""
    batch, channels, *image = sizes("n c h w")
    xs = placeholder("X", batch, channels, *image)
    shape = (batch, channels, *((side + (2 * pad - kernel)) // stride + 1 for side in image))
    saved = placeholder("A", *shape, dtype="int32")
    i, j = (ea.reduce_axis((0, kernel), name=name) for name in "ij")

    def body(n: Expr, c: Expr, o: Expr, q: Expr) -> Expr:
        u, v = o * stride + i - pad, q * stride + j - pad
        chosen = saved[n, c, o, q].equal(ea.cast(i * kernel + j, "int32"))
        return ea.sum(ea.select(chosen, xs.get(n, c, u, v), 0.0), axis=(i, j))

    return Gradient(ea.compute(shape, body, name="Y"), (xs,))


def avg_pool(x: Sequence[int], *, kernel: int = 2) -> Definition:
    """Average pooling of disjoint windows."""
    batch, channels, rows, columns = sizes("n c h w")
    xs = placeholder("X", batch, channels, kernel * rows, kernel * columns)
    return Gradient(nn.avg_pool(xs, kernel), (xs,))


def flat_dense(x: Sequence[int], outputs: int, wrt: str) -> Definition:
    """A matrix product with the rows of images."""
    batch, channels, rows, columns, out = sizes("n c h w o")
    xs = placeholder("X", batch, channels, rows, columns)
    flat = nn.flatten(xs)
    ws = placeholder("W", out, flat.shape[1])
    return Gradient(nn.dense(flat, ws), (xs if wrt == "X" else ws,))


def softmax(x: Sequence[int]) -> Definition:
    """Softmax over rows whose forward pass saved its result."""
    shape = rows, columns = sizes("m n")
    y, h = placeholder("Y", *shape), placeholder("H", *shape)
    k = ea.reduce_axis((0, columns), name="k")
    inner = ea.compute((rows,), lambda i: ea.sum(h[i, k] * y[i, k], axis=k), name="inner")
    return Written((ea.compute(shape, lambda i, j: y[i, j] * (h[i, j] - inner[i]), name="dX"),))


def logsumexp(x: Sequence[int]) -> Definition:
    """Logsumexp over rows whose forward pass saved its result."""
    shape = rows, _ = sizes("m n")
    xs, y, h = placeholder("X", *shape), placeholder("Y", rows), placeholder("H", rows)
    return Written((ea.compute(shape, lambda i, j: h[i] * ea.exp(xs[i, j] - y[i]), name="dX"),))


def bmm(batch: int, rows: int, inner: int, columns: int) -> Definition:
    """A batched matrix product."""
    b, m, k, n = sizes("b m k n")
    left, right = placeholder("A", b, m, k), placeholder("B", b, k, n)
    return Gradient(nn.batched_matmul(left, right), (left, right))


def cumsum(x: Sequence[int]) -> Definition:
    """A running sum along rows."""
    xs = placeholder("X", *sizes("m n"))
    return Gradient(nn.cumsum(xs, axis=1), (xs,))


def stencil(x: Sequence[int], *, rate: float = 0.1) -> Definition:
    """One explicit step of diffusion, zero outside."""
    shape = sizes("m n")
    xs = placeholder("X", *shape)

    def body(i: Expr, j: Expr) -> Expr:
        around = xs.get(i - 1, j) + xs.get(i + 1, j) + xs.get(i, j - 1) + xs.get(i, j + 1)
        return xs[i, j] + rate * (around - 4.0 * xs[i, j])

    return Gradient(ea.compute(shape, body, name="Y"), (xs,))


def embedding(rows: int, width: int, count: int) -> Definition:
    """Rows of a table."""
    m, n, k = sizes("m n k")
    table, places = placeholder("E", m, n), placeholder("I", k, dtype="int32")
    return Gradient(nn.embedding(table, places), (table,))


def einsum3(i: int, j: int, k: int, l: int) -> Definition:  # noqa: E741
    """A product of three tensors in one sum."""
    rows, first, second, columns = sizes("i j k l")
    a, b = placeholder("A", rows, first), placeholder("B", first, second, columns)
    c = placeholder("C", second, columns)
    over = ea.reduce_axis((0, first), name="j"), ea.reduce_axis((0, second), name="k")

    def body(row: Expr, column: Expr) -> Expr:
        inner, outer = over
        return ea.sum(a[row, inner] * b[inner, outer, column] * c[outer, column], axis=over)

    return Gradient(ea.compute((rows, columns), body, name="Y"), (a, b, c))


DEFINITIONS: dict[Callable[..., Any], Callable[..., Definition]] = {
    known.conv: conv,
    known.max_pool: max_pool,
    known.avg_pool: avg_pool,
    known.flat_dense: flat_dense,
    known.softmax: softmax,
    known.logsumexp: logsumexp,
    known.bmm: bmm,
    known.cumsum: cumsum,
    known.stencil: stencil,
    known.embedding: embedding,
    known.einsum3: einsum3,
}
