"""The meaning of every node, in numpy: slow, obvious, and the judge of everything else.

A node is worked out on the grid of its own free axes, once. A read that leaves its tensor is
not an error by itself: the point is tainted, `Select` drops the taint of the side it does not
choose, a reduction that of the points it leaves out, `and`/`or` that of an operand that decides
nothing. What is still tainted when a stage is stored is an `OutOfBoundsError`.

Float arithmetic is done in float64 and rounded to a stage's dtype when the stage is stored (and
where a `Cast` or a literal asks for a narrower dtype); bfloat16 is kept in float32 arrays that
hold bfloat16 values. ``dtype="float64"`` leaves out every rounding, for finite differences.
Where a division by zero of integers or a float without an integer is not dropped by a select,
the value is unspecified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np

from eqsatad.errors import ArgumentError, OutOfBoundsError, ShapeError, UnboundIndexError
from eqsatad.terms import ops
from eqsatad.terms.meaning import (
    MEANING,
    REDUCERS,
    STORAGE,
    WORKING,
    Array,
    bfloat16,
    first_best,
    identity_of,
)
from eqsatad.terms.nodes import (
    FLOATS,
    TRUE,
    Apply,
    Axis,
    Cast,
    Combiner,
    Const,
    Expr,
    Placeholder,
    Read,
    Reduce,
    Scatter,
    Select,
    Size,
    Stage,
    Tensor,
    Var,
)
from eqsatad.terms.show import brief, explained
from eqsatad.terms.walk import postorder, program

# Most grid points that are worked out at once; larger boxes are split along their output axes.
GRID_POINTS = 1 << 21


def evaluate(
    tensors: Sequence[Tensor],
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
    *,
    dtype: str | None = None,
) -> list[Array]:
    """The values of ``tensors`` for the placeholders' ``arrays``, by name.

    Sizes that are an extent of an array need not be given. ``dtype="float64"`` computes and
    stores every float in float64.
    """
    order = program(tensors)
    inputs = [tensor for tensor in order if isinstance(tensor, Placeholder)]
    run = Run(_sizes(inputs, arrays, sizes or {}), dtype == "float64")
    run.values.update({tensor: run.given(tensor, arrays) for tensor in inputs})
    with np.errstate(all="ignore"):
        for tensor in order:
            if isinstance(tensor, Stage):
                run.values[tensor] = run.stage(tensor)
    return [run.stored(run.values[tensor], tensor.dtype) for tensor in tensors]


def extents(shape: Iterable[Expr], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The numbers of a symbolic shape."""
    run = Run(dict(sizes), False)
    return tuple(run.extent(entry) for entry in shape)


def _sizes(
    inputs: Sequence[Placeholder], arrays: Mapping[str, Array], given: Mapping[str, int]
) -> dict[str, int]:
    sizes = dict(given)
    for tensor in inputs:
        if tensor.name not in arrays:
            known = ", ".join(sorted(arrays)) or "none"
            raise ArgumentError(
                f"no array for input {tensor.name}{tensor.where_built}; given: {known}."
            )
        shape = np.shape(arrays[tensor.name])
        if len(shape) != len(tensor.shape):
            raise ShapeError(f"{brief(tensor)} got an array of shape {shape}.")
        for extent, length in zip(tensor.shape, shape, strict=True):
            if isinstance(extent, Size):
                sizes.setdefault(extent.name, length)
    return sizes


class Value(NamedTuple):
    """A node on the grid of ``axes``; ``taint`` is 1 + the number of a failed read, or 0."""

    axes: tuple[Axis, ...]
    data: Array
    taint: Array | None = None


@dataclass
class Run:
    """One evaluation: the sizes, the tensors known so far, and whether floats are rounded."""

    sizes: dict[str, int]
    exact: bool
    values: dict[Tensor, Array] = field(default_factory=dict)

    def extent(self, expr: Expr) -> int:
        """The number that an extent stands for."""
        return max(0, int(Grid(self, {}, ()).value(expr).data))

    def given(self, tensor: Placeholder, arrays: Mapping[str, Array]) -> Array:
        """The array of an input, checked and in its dtype."""
        array = np.asarray(arrays[tensor.name])
        shape = tuple(self.extent(entry) for entry in tensor.shape)
        if array.shape != shape:
            raise ShapeError(
                f"{brief(tensor)}{tensor.where_built} expects shape {shape} and got an array of "
                f"shape {array.shape}."
            )
        if tensor.dtype in FLOATS:
            return self.rounded(array.astype(np.float64), tensor.dtype)
        return array.astype(STORAGE[tensor.dtype])

    def rounded(self, array: Array, dtype: str) -> Array:
        """``array`` with every float rounded to ``dtype``, still in float64."""
        if self.exact or dtype == "float64":
            return array
        if dtype == "bfloat16":
            return bfloat16(array).astype(np.float64)
        return array.astype(STORAGE[dtype]).astype(np.float64)

    def stored(self, array: Array, dtype: str) -> Array:
        """``array`` as it is handed out."""
        if self.exact and dtype in FLOATS:
            return array
        return array.astype(STORAGE[dtype])

    def stage(self, stage: Stage) -> Array:
        """The array of ``stage``."""
        shape = tuple(self.extent(axis.extent) for axis in stage.axes)
        result = np.zeros(shape, WORKING[stage.dtype])
        for box in self.boxes(stage.axes, stage.roots[:1]):
            grid = Grid(self, box, stage.axes)
            value = grid.value(stage.body)
            grid.settle(stage, value)
            result[tuple(slice(a[0], a[-1] + 1) for a in box.values())] = grid.full(value)
        for scatter in stage.scatters:
            self.scatter(stage, scatter, result)
        return self.rounded(result, stage.dtype) if stage.dtype in FLOATS else result

    def scatter(self, stage: Stage, scatter: Scatter, result: Array) -> None:
        """Adds what ``scatter`` adds to ``result``, in row-major order of its axes."""
        for box in self.boxes(scatter.axes, scatter.children):
            grid = Grid(self, box, scatter.axes)
            cond = grid.value(scatter.cond)
            values = [grid.value(expr) for expr in (*scatter.indices, scatter.value)]
            grid.settle(stage, cond)
            for value in values:
                grid.settle(stage, _where_needed(cond, value))
            chosen = grid.full(cond)
            *indices, added = (grid.full(value)[chosen] for value in values)
            for index, extent in zip(indices, result.shape, strict=True):
                if ((index < 0) | (index >= extent)).any():
                    raise OutOfBoundsError(
                        f"a scatter of {stage.name} adds outside its shape {result.shape}:\n"
                        f"    {brief(scatter)}\nGuard it with a condition."
                    )
            if indices:
                np.add.at(result, tuple(indices), added)
            else:
                result += added.sum()

    def boxes(self, axes: tuple[Axis, ...], roots: Sequence[Expr]) -> list[dict[Axis, Array]]:
        """Ranges of ``axes`` that together cover the whole and are small enough to work on."""
        spans = {axis: self.extent(axis.extent) for axis in axes}
        if 0 in spans.values():
            return []
        sets = {node.free for node in postorder(*roots)}
        inner = {axis for free in sets for axis in free} - set(axes)
        spans_inside = {axis: max(1, self.extent(axis.extent)) for axis in inner}

        def points(steps: dict[Axis, int]) -> int:
            lengths = steps | spans_inside
            grids = (math.prod(lengths[axis] for axis in free) for free in sets)
            return max(max(grids, default=1), math.prod(steps.values()))

        steps = dict(spans)
        while points(steps) > GRID_POINTS and (longest := max(steps.values(), default=1)) > 1:
            axis = next(axis for axis in axes if steps[axis] == longest)
            steps[axis] = (longest + 1) // 2
        cuts = [
            [np.arange(lo, min(lo + steps[a], spans[a])) for lo in range(0, spans[a], steps[a])]
            for a in axes
        ]
        return [dict(zip(axes, cut, strict=True)) for cut in product(*cuts)]


class Grid:
    """Values of nodes over one box of the outermost axes."""

    def __init__(self, run: Run, box: Mapping[Axis, Array], axes: tuple[Axis, ...]) -> None:
        self.run = run
        self.box = dict(box)
        self.order = {axis: place for place, axis in enumerate(axes)}
        self.axes = axes
        self.known: dict[Expr, Value] = {}
        self.reads: list[Read] = []

    def value(self, root: Expr) -> Value:
        """The value of ``root``; each distinct node is worked out once."""
        for node in postorder(root):
            if isinstance(node, Reduce):
                self._bind(node.axes)
        for node in postorder(root):
            if node not in self.known:
                self.known[node] = EVALUATORS[type(node)](self, node)
        return self.known[root]

    def _bind(self, axes: Iterable[Axis]) -> None:
        for axis in axes:
            self.order.setdefault(axis, len(self.order))
            if axis not in self.box:
                self.box[axis] = np.arange(self.run.extent(axis.extent))

    def aligned(self, *values: Value) -> tuple[tuple[Axis, ...], list[Value]]:
        """The union of the axes of ``values``, and the values laid out over it."""
        union = {axis for value in values for axis in value.axes}
        axes = tuple(sorted(union, key=self.order.__getitem__))
        return axes, [_over(axes, value) for value in values]

    def full(self, value: Value) -> Array:
        """``value`` at every point of the outermost axes."""
        shape = tuple(len(self.box[axis]) for axis in self.axes)
        return np.broadcast_to(_over(self.axes, value).data, shape)

    def settle(self, stage: Stage, value: Value) -> None:
        """Raises when a point of ``value`` depends on a read outside its tensor."""
        if value.taint is None or not value.taint.any():
            return
        place = np.argwhere(value.taint)[0]
        read = self.reads[value.taint[tuple(place)] - 1]
        names = [f"{a.name} = {self.box[a][n]}" for a, n in zip(value.axes, place, strict=True)]
        root = next(root for root in stage.roots if read in postorder(root))
        shape = self.run.values[read.tensor].shape
        raise OutOfBoundsError(
            explained(
                f"{stage.name} reads outside {read.tensor.name}, whose shape is {shape}"
                f"{', at ' * bool(names)}{', '.join(names)}:",
                root,
                read,
                "Guard it with select, or read with get(..., outside=).",
            )
        )


def _over(axes: tuple[Axis, ...], value: Value) -> Value:
    """``value`` laid out over ``axes``, which include its own."""
    if value.axes == axes:
        return value
    kept = [axis for axis in axes if axis in value.axes]
    order = [value.axes.index(axis) for axis in kept]

    def spread(array: Array) -> Array:
        lengths = dict(zip(value.axes, array.shape, strict=True))
        return array.transpose(order).reshape([lengths.get(axis, 1) for axis in axes])

    return Value(axes, spread(value.data), None if value.taint is None else spread(value.taint))


def _worst(*taints: Array | None) -> Array | None:
    found = [taint for taint in taints if taint is not None]
    result: Array | None = found[0] if found else None
    for taint in found[1:]:
        result = np.maximum(result, taint)  # type: ignore[arg-type]
    return result


def _masked(cond: Array, taint: Array | None) -> Array | None:
    return None if taint is None else np.where(cond, taint, 0)


def _where_needed(cond: Value, value: Value) -> Value:
    """``value``, whose taint counts only where ``cond`` holds."""
    if value.taint is None:
        return value
    axes = (*value.axes, *(axis for axis in cond.axes if axis not in value.axes))
    spread = _over(axes, value)
    return spread._replace(taint=_masked(_over(axes, cond).data, spread.taint))


def _const(grid: Grid, node: Const) -> Value:
    data = np.asarray(node.value, WORKING[node.dtype])
    return Value((), grid.run.rounded(data, node.dtype) if node.dtype in FLOATS else data)


def _size(grid: Grid, node: Size) -> Value:
    if node.name not in grid.run.sizes:
        raise ArgumentError(
            f"the size {node.name} is not the extent of an array that was given. "
            f"Give it: sizes={{{node.name!r}: ...}}."
        )
    return Value((), np.asarray(grid.run.sizes[node.name], np.int64))


def _axis(grid: Grid, node: Axis) -> Value:
    if node not in grid.box:
        raise UnboundIndexError(f"index {node.name} is used outside of what binds it.")
    return Value((node,), grid.box[node])


def _var(grid: Grid, node: Var) -> Value:
    raise UnboundIndexError(f"{node.name} has a value only inside a combiner.")


def _apply(grid: Grid, node: Apply) -> Value:
    axes, args = grid.aligned(*(grid.known[arg] for arg in node.args))
    data = MEANING[node.op](*(arg.data for arg in args))
    taints = [arg.taint for arg in args]
    # The second operand of `and` and `or` counts only where the first has not decided.
    if node.op is ops.AND:
        taints[1] = _masked(args[0].data, taints[1])
    elif node.op is ops.OR:
        taints[1] = _masked(~args[0].data, taints[1])
    return Value(axes, data, _worst(*taints))


def _cast(grid: Grid, node: Cast) -> Value:
    value = grid.known[node.arg]
    return value._replace(data=converted(grid.run, value.data, node.dtype))


def converted(run: Run, data: Array, dtype: str) -> Array:
    """``data`` in another dtype; floats lose their fraction on the way to an integer."""
    if dtype in FLOATS:
        return run.rounded(data.astype(np.float64), dtype)
    if dtype == "bool":
        return np.asarray(data != 0)
    return (np.trunc(data) if data.dtype.kind == "f" else data).astype(WORKING[dtype])


def _select(grid: Grid, node: Select) -> Value:
    axes, (cond, then, other) = grid.aligned(*(grid.known[child] for child in node.children))
    taint = _worst(cond.taint, _masked(cond.data, then.taint), _masked(~cond.data, other.taint))
    return Value(axes, np.where(cond.data, then.data, other.data), taint)


def _read(grid: Grid, node: Read) -> Value:
    array = grid.run.values[node.tensor]
    if not node.indices:
        return Value((), array)
    axes, indices = grid.aligned(*(grid.known[index] for index in node.indices))
    taint = _worst(*(index.taint for index in indices))
    outside = np.zeros((1,) * len(axes), bool)
    for index, length in zip(indices, array.shape, strict=True):
        outside = outside | (index.data < 0) | (index.data >= length)
    if outside.any():
        grid.reads.append(node)
        taint = _worst(taint, np.where(outside, len(grid.reads), 0))
    if array.size == 0:
        shape = np.broadcast_shapes(*(index.data.shape for index in indices))
        return Value(axes, np.zeros(shape, array.dtype), taint)
    clipped = (
        np.clip(index.data, 0, length - 1)
        for index, length in zip(indices, array.shape, strict=True)
    )
    return Value(axes, array[tuple(clipped)], taint)


def _reduce(grid: Grid, node: Reduce) -> Value:
    """Reduces over one trailing dimension that holds the points of the axes in row-major order."""
    cond, body = grid.known[node.cond], grid.known[node.body]
    union = {*cond.axes, *body.axes} - set(node.axes)
    outer = tuple(sorted(union, key=grid.order.__getitem__))
    spans = [len(grid.box[axis]) for axis in node.axes]
    count = math.prod(spans)

    def flat(value: Value) -> Value:
        value = _over((*outer, *node.axes), value)

        def merge(array: Array) -> Array:
            lead = array.shape[: len(outer)]
            return np.broadcast_to(array, (*lead, *spans)).reshape((*lead, count))

        return Value(outer, merge(value.data), None if value.taint is None else merge(value.taint))

    test, values = flat(cond), flat(body)
    taint = _worst(test.taint, _masked(test.data, values.taint))
    data = reduced(grid, node, test.data, values.data)
    return Value(outer, data, None if taint is None else taint.max(axis=-1, initial=0))


def reduced(grid: Grid, node: Reduce, test: Array, values: Array) -> Array:
    """``values`` combined along the last dimension where ``test`` holds."""
    combiner = node.combiner
    if combiner.result is not None:
        return folded(grid, combiner, test, values)
    if combiner.name in ("argmax", "argmin"):
        return first_best(combiner.name, test, values)
    ufunc = REDUCERS[combiner.name]
    identity = identity_of(combiner.name, node.dtype)
    if node.cond is not TRUE:
        values = np.where(test, values, np.asarray(identity, values.dtype))
    result: Array = np.asarray(ufunc.reduce(values, axis=-1, initial=identity))
    return result.astype(values.dtype)


def folded(grid: Grid, combiner: Combiner, test: Array, values: Array) -> Array:
    """A user's combiner applied from the identity on, in row-major order."""
    assert combiner.left is not None
    assert combiner.right is not None
    assert combiner.result is not None
    assert combiner.identity is not None
    test, values = np.broadcast_arrays(test, values)
    total = np.broadcast_to(grid.value(combiner.identity).data, values.shape[:-1])
    for place in range(values.shape[-1]):
        # A combiner has no axes: its operands are whole arrays of no axis.
        inner = Grid(grid.run, {}, ())
        inner.known[combiner.left] = Value((), total)
        inner.known[combiner.right] = Value((), values[..., place])
        total = np.where(test[..., place], inner.value(combiner.result).data, total)
    return total


EVALUATORS: dict[type[Expr], Callable[..., Value]] = {
    **{Const: _const, Size: _size, Axis: _axis, Var: _var, Apply: _apply, Cast: _cast},
    **{Select: _select, Read: _read, Reduce: _reduce},
}
