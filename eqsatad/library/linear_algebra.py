"""Products of matrices, each one stage with one sum.

Only forward definitions: gradients, the order of contractions and blocking follow from them.
"""

from __future__ import annotations

from eqsatad.library.extents import agree, extents
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Expr, Stage, Tensor


def matmul(a: Tensor, b: Tensor, name: str = "matmul") -> Stage:
    """``y[i,j] = sum(a[i,k] * b[k,j])``."""
    rows, inner = extents(a, 2)
    depth, columns = extents(b, 2)
    agree("the inner extents", inner, depth, a, b)
    k = ea.reduce_axis((0, inner), name="k")
    return ea.compute((rows, columns), lambda i, j: ea.sum(a[i, k] * b[k, j], axis=k), name=name)


def batched_matmul(a: Tensor, b: Tensor, name: str = "batched_matmul") -> Stage:
    """``y[n,i,j] = sum(a[n,i,k] * b[n,k,j])``."""
    batch, rows, inner = extents(a, 3)
    other, depth, columns = extents(b, 3)
    agree("the batch extents", batch, other, a, b)
    agree("the inner extents", inner, depth, a, b)
    k = ea.reduce_axis((0, inner), name="k")
    return ea.compute(
        (batch, rows, columns),
        lambda n, i, j: ea.sum(a[n, i, k] * b[n, k, j], axis=k),
        name=name,
    )


def dense(x: Tensor, w: Tensor, bias: Tensor | None = None, name: str = "dense") -> Stage:
    """``y[n,m] = sum(x[n,k] * w[m,k]) + bias[m]``: one row of ``w`` for each output."""
    batch, inner = extents(x, 2)
    outputs, depth = extents(w, 2)
    agree("the inner extents", inner, depth, x, w)
    if bias is not None:
        agree("the outputs and the bias", outputs, extents(bias, 1)[0], w, bias)
    k = ea.reduce_axis((0, inner), name="k")

    def body(n: Axis, m: Axis) -> Expr:
        product = ea.sum(x[n, k] * w[m, k], axis=k)
        return product if bias is None else product + bias[m]

    return ea.compute((batch, outputs), body, name=name)
