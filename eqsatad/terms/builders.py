"""The Python front end: tensors, axes, reductions and functions as ordinary calls.

``compute`` takes a function from one axis per dimension to an expression and gives a `Stage`
that has been checked (`terms.checks`). Wherever an expression is expected a number is accepted.
Nothing is simplified: what is written is what the term holds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol

from eqsatad.errors import (
    ArityError,
    DtypeError,
    IndexCountError,
    ShapeError,
    UnboundIndexError,
)
from eqsatad.terms import ops
from eqsatad.terms.checks import check
from eqsatad.terms.coerce import (
    Operand,
    apply,
    as_index,
    convert,
    lift,
    together,
)
from eqsatad.terms.coerce import all_of as all_of
from eqsatad.terms.coerce import any_of as any_of
from eqsatad.terms.coerce import const as const
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import (
    COMBINERS,
    DTYPES,
    MARKER,
    TRUE,
    Axis,
    Combiner,
    Const,
    Expr,
    Placeholder,
    Reduce,
    Scatter,
    Select,
    Size,
    Stage,
    Tensor,
    Var,
)
from eqsatad.terms.ops import Op
from eqsatad.terms.scopes import Scopes
from eqsatad.terms.show import brief
from eqsatad.terms.walk import substitute

Extent = int | Expr
Axes = Expr | Sequence[Expr]
Unary = Callable[[Operand], Expr]
Binary = Callable[[Operand, Operand], Expr]

_numbers = count(1)


class Reduction(Protocol):
    """A function that reduces ``body`` over ``axis``, as `sum` does."""

    def __call__(
        self, body: Operand, axis: Axes, *, where: Operand = True, init: Operand | None = None
    ) -> Expr: ...


def placeholder(shape: Sequence[Extent], name: str = "x", dtype: str = "float32") -> Placeholder:
    """An input array."""
    return Placeholder(name, extents(shape, name), dtype)


def size(name: str, *, minimum: int = 1, multiple_of: int = 1) -> Size:
    """A symbolic extent, known when a kernel is called.

    ``minimum`` and ``multiple_of`` are promises: they simplify bounds and divisions, and a call
    with a size that breaks them is an error.
    """
    return Size(name, minimum, multiple_of)


def extents(shape: Sequence[Extent], of: str) -> tuple[Expr, ...]:
    """``shape`` as terms: integers of at least 0, sizes, and index expressions of sizes."""
    return tuple(_extent(entry, of) for entry in shape)


def _extent(entry: Extent, of: str) -> Expr:
    if isinstance(entry, float | bool | str):
        raise ShapeError(f"an extent of {of} must be an integer or a size; found {entry!r}.")
    extent = as_index(entry, of)
    if extent.free:
        raise ShapeError(f"an extent of {of} depends on an index: {extent!r}. Use sizes only.")
    if isinstance(known := normal(extent), Const) and known.value < 0:
        raise ShapeError(f"an extent of {of} must be at least 0; found {extent!r}.")
    return extent


def reduce_axis(bounds: tuple[Extent, Extent], name: str = "k") -> Expr:
    """An index over ``range(*bounds)`` to reduce over; each call gives another one.

    Where the lower bound is not 0 it is the expression ``axis + lower``.
    """
    low, high = bounds
    extent = high if isinstance(low, int) and low == 0 else normal(lift(high) - lift(low))
    axis = Axis(f"{name}{MARKER}{next(_numbers)}", _extent(extent, name))
    return axis if isinstance(low, int) and low == 0 else axis + low


def compute(shape: Sequence[Extent], fn: Callable[..., Operand], name: str = "compute") -> Stage:
    """The stage whose element at ``i, j`` is ``fn(i, j)``; axes are named like its parameters."""
    axes = _output_axes(extents(shape, name), fn, name)
    return finished(name, axes, lift(fn(*axes)))


def scatter(
    shape: Sequence[Extent],
    domain: Sequence[Extent],
    fn: Callable[..., tuple[Sequence[Operand] | Operand, Operand]],
    name: str = "scatter",
    *,
    where: Callable[..., Operand] | None = None,
    init: Operand = 0.0,
) -> Stage:
    """``init`` everywhere, and for each point of ``domain`` the value added at the indices.

    ``fn(p, q, ...)`` gives ``(indices, value)``; points at which ``where(p, q, ...)`` does not
    hold add nothing.
    """
    axes = _output_axes(extents(domain, name), fn, name)
    target, value = fn(*axes)
    indices = target if isinstance(target, Sequence) else (target,)
    if len(indices) != len(shape):
        raise IndexCountError(
            f"{name} has {len(shape)} dimensions and is added to at {len(indices)} indices. "
            "Give one index per dimension."
        )
    value = lift(value)
    outer = tuple(Axis(f"i{n}", extent) for n, extent in enumerate(extents(shape, name)))
    base = Stage(name, outer, lift(init, value.dtype))
    cond = lift(True if where is None else where(*axes))
    return accumulated(base, axes, tuple(as_index(index, name) for index in indices), value, cond)


def accumulated(
    base: Tensor, axes: tuple[Axis, ...], indices: tuple[Expr, ...], value: Expr, cond: Expr = TRUE
) -> Stage:
    """``base`` with ``value`` added at ``indices`` wherever ``cond`` holds over ``axes``.

    A placeholder stands for zeros of its shape.
    """
    if isinstance(base, Stage):
        outer, body, before = base.axes, base.body, base.scatters
    else:
        outer = tuple(Axis(f"i{n}", extent) for n, extent in enumerate(base.shape))
        body, before = const(0, base.dtype), ()
    scopes = Scopes(axes)
    at = tuple(map(scopes.named, indices))
    added = Scatter(axes, scopes.named(cond), at, scopes.named(convert(value, base.dtype)))
    stage = Stage(base.name, outer, body, (*before, added))
    check(stage)
    return stage


def finished(name: str, axes: tuple[Axis, ...], body: Expr) -> Stage:
    """The checked stage of ``body``, its reductions over axes of final names."""
    body = convert(body, "int64") if body.dtype == "index" else body
    stage = Stage(name, axes, Scopes(axes).named(body))
    check(stage)
    return stage


def _output_axes(shape: tuple[Expr, ...], fn: Callable[..., object], name: str) -> tuple[Axis, ...]:
    names: list[str] = []
    for given in inspect.signature(fn).parameters.values():
        if given.kind is given.VAR_POSITIONAL:
            missing = len(shape) - len(names)
            numbered = [f"{given.name}{n}" for n in range(missing)]
            names += [given.name] if missing == 1 else numbered
        elif given.default is given.empty:
            names.append(given.name)
    if len(names) != len(shape):
        raise IndexCountError(
            f"{name} has {len(shape)} dimensions, and its function takes "
            f"({', '.join(names)}). Give the function one parameter per dimension."
        )
    return tuple(Axis(axis, extent) for axis, extent in zip(names, shape, strict=True))


def _axes(axis: Axes, what: str) -> tuple[Axis, ...]:
    given = (axis,) if isinstance(axis, Expr) else tuple(axis)
    return tuple(_single_axis(entry, what) for entry in given)


def _single_axis(entry: Expr, what: str) -> Axis:
    if not isinstance(entry, Expr) or len(entry.free) != 1:
        raise UnboundIndexError(
            f"{what} reduces over axes; found {entry!r}. Make one with reduce_axis((0, n))."
        )
    (axis,) = entry.free
    return axis


COMBINING: dict[str, Op] = {
    **{"sum": ops.ADD, "prod": ops.MUL, "max": ops.MAX, "min": ops.MIN},
    **{"any": ops.OR, "all": ops.AND},
}


def _reduction(name: str) -> Reduction:
    logical = name in ("any", "all")

    def reduce(
        body: Operand, axis: Axes, *, where: Operand = True, init: Operand | None = None
    ) -> Expr:
        body = lift(body)
        if (body.dtype == "bool") != logical:
            wanted = "a condition; compare it with 0" if logical else "a number; cast it first"
            raise DtypeError(f"{name} takes {wanted}. Found {body.dtype}: {brief(body)}")
        result = Reduce(COMBINERS[name], _axes(axis, name), lift(where), body)
        if init is None:
            return result
        if name not in COMBINING:
            raise ArityError(f"{name} gives a position and takes no init.")
        return apply(COMBINING[name], init, result)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"``body`` reduced by {name} over ``axis`` where ``where`` holds."
    return reduce


sum, prod, max, min = (_reduction(name) for name in ("sum", "prod", "max", "min"))
any, all, argmax, argmin = (_reduction(name) for name in ("any", "all", "argmax", "argmin"))


def comm_reducer(
    combine: Callable[[Expr, Expr], Expr],
    identity: Operand | Callable[[str], Operand],
    name: str = "comm_reduce",
) -> Reduction:
    """A reduction by ``combine``, which is associative and commutative with ``identity``.

    ``identity`` may depend on the dtype.
    """

    def reduce(
        body: Operand, axis: Axes, *, where: Operand = True, init: Operand | None = None
    ) -> Expr:
        body = lift(body)
        left, right = Var("left", body.dtype), Var("right", body.dtype)
        neutral = lift(identity(body.dtype) if callable(identity) else identity, body.dtype)
        result = combine(left, right)
        if (found := {result.dtype, neutral.dtype}) != {body.dtype}:
            raise DtypeError(
                f"{name} combines values of {body.dtype}; its result and identity have "
                f"{', '.join(sorted(found))}. Cast them."
            )
        combiner = Combiner(name, left, right, result, neutral)
        reduced = Reduce(combiner, _axes(axis, name), lift(where), body)
        if init is None:
            return reduced
        return substitute(result, {left: lift(init, body.dtype), right: reduced})

    reduce.__name__ = reduce.__qualname__ = name
    return reduce


def select(cond: Operand, then: Operand, other: Operand) -> Expr:
    """``then`` where ``cond`` holds, else ``other``; only the chosen one is read."""
    return Select(lift(cond), *together((then, other), "select"))


def cast(value: Operand, dtype: str) -> Expr:
    """``value`` in ``dtype``; floats lose their fraction on the way to an integer."""
    if dtype not in DTYPES:
        raise DtypeError(f"unknown dtype {dtype!r}; available: {', '.join(DTYPES)}")
    return convert(value, dtype) if isinstance(value, Expr) else const(value, dtype)


def _unary(op: Op) -> Unary:
    def function(x: Operand) -> Expr:
        return apply(op, x)

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = f"The operation {op.name} on ``x``."
    return function


def _binary(op: Op, name: str) -> Binary:
    def function(a: Operand, b: Operand) -> Expr:
        return apply(op, a, b)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The operation {op.name} on ``a`` and ``b``."
    return function


sqrt, rsqrt, exp, expm1 = map(_unary, (ops.SQRT, ops.RSQRT, ops.EXP, ops.EXPM1))
log, log1p, log2 = map(_unary, (ops.LOG, ops.LOG1P, ops.LOG2))
sin, cos, tan, asin, acos, atan = map(
    _unary, (ops.SIN, ops.COS, ops.TAN, ops.ASIN, ops.ACOS, ops.ATAN)
)
sinh, cosh, tanh = map(_unary, (ops.SINH, ops.COSH, ops.TANH))
sigmoid, softplus, erf = map(_unary, (ops.SIGMOID, ops.SOFTPLUS, ops.ERF))
floor, ceil, round, trunc = map(_unary, (ops.FLOOR, ops.CEIL, ops.ROUND, ops.TRUNC))
abs, sign = map(_unary, (ops.ABS, ops.SIGN))
minimum, maximum = _binary(ops.MIN, "minimum"), _binary(ops.MAX, "maximum")
equal, differs = _binary(ops.EQ, "equal"), _binary(ops.NE, "differs")
pow, atan2 = _binary(ops.POW, "pow"), _binary(ops.ATAN2, "atan2")
