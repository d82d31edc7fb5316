"""Loop programs run in plain Python, with exact counts of what was executed.

A nest is written out as a Python function over flat lists and run. Floats are worked on in
float64 and rounded to a stage's dtype when its nest ends, as in `terms.evaluate`. Counts are made
by execution; only what every iteration of a loop does alike is counted as trips times once.

An iteration is one execution of an innermost loop body. A body that stores counts as many as it
stored, or as its inner loops made, whichever is more; a body without inner loops at least one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsatad.errors import ArgumentError, ShapeError
from eqsatad.loops.nest import LoopProgram
from eqsatad.loops.scalars import FUNCTIONS
from eqsatad.loops.script import Script
from eqsatad.terms.evaluate import extents
from eqsatad.terms.meaning import STORAGE, WORKING, bfloat16
from eqsatad.terms.nodes import FLOATS, INTEGERS, Size, Tensor

Array = NDArray[Any]


@dataclass(frozen=True)
class Counts:
    """What was executed; see the module for iterations.

    ``multiplications`` are ``*``, ``/``, powers and calls of functions on floats, ``additions``
    ``+`` and ``-`` on floats with those of reductions, ``comparisons`` those of values, minima and
    maxima included. ``index_divisions`` are integer ``//`` and ``%`` in innermost bodies and
    ``bound_divisions`` those elsewhere; ``inner_conditions`` are tests and selects in innermost
    bodies, and ``data_conditions`` those of them that depend on data. ``memory`` is the number of
    elements stored.
    """

    iterations: int = 0
    multiplications: int = 0
    additions: int = 0
    comparisons: int = 0
    index_divisions: int = 0
    inner_conditions: int = 0
    bound_divisions: int = 0
    data_conditions: int = 0
    memory: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Execution:
    """The outputs of a program in order, and the counts of each stage by name."""

    outputs: list[Array]
    counts: dict[str, Counts]

    @property
    def total(self) -> Counts:
        """The counts of all stages together."""
        return sum(self.counts.values(), Counts())


def run(
    program: LoopProgram, arrays: Mapping[str, Array], sizes: Mapping[str, int] | None = None
) -> Execution:
    """Executes ``program`` on ``arrays``, by input name.

    Sizes that are an extent of an input need not be given.
    """
    values = _sizes(program, arrays, sizes or {})
    buffers: dict[Tensor, list[Any]] = {}
    for tensor in program.inputs:
        buffers[tensor] = _given(tensor, arrays, extents(tensor.shape, values))
    counts: dict[str, Counts] = {}
    for nest in program.nests:
        shapes = {tensor: extents(tensor.shape, values) for tensor in nest.stored}
        for tensor, shape in shapes.items():
            if tensor is nest.stage or tensor not in buffers:
                buffers[tensor] = [0] * math.prod(shape)
        script = Script(values, computes=True)
        function = _compiled(script.function(nest.body))
        found = function(*(buffers[tensor] for tensor in script.buffers))
        for tensor in shapes:
            buffers[tensor] = _rounded(buffers[tensor], tensor.dtype).tolist()
        name, shape = nest.stage.name, shapes[nest.stage]
        counts[name] = counts.get(name, Counts()) + _counts(found, shape)
    outputs = [
        np.array(buffers[tensor], dtype=WORKING[tensor.dtype])
        .reshape(extents(tensor.shape, values))
        .astype(STORAGE[tensor.dtype])
        for tensor in program.outputs
    ]
    return Execution(outputs, counts)


def count(
    program: LoopProgram,
    sizes: Mapping[str, int] | None = None,
    arrays: Mapping[str, Array] | None = None,
) -> Execution:
    """The counts of ``program`` without its outputs, and without computing if no count needs it.

    ``arrays`` are needed where what is executed depends on data.
    """
    if arrays is not None:
        return Execution([], run(program, arrays, sizes).counts)
    counts: dict[str, Counts] = {}
    values = _sizes(program, {}, sizes or {})
    for nest in program.nests:
        script = Script(values, computes=False)
        function = _compiled(script.function(nest.body))
        found = function(*(None for _ in script.buffers))
        shape = extents(nest.stage.shape, values)
        counts[nest.stage.name] = counts.get(nest.stage.name, Counts()) + _counts(found, shape)
    return Execution([], counts)


def _counts(found: Sequence[int], shape: Sequence[int]) -> Counts:
    return Counts(*(*found, math.prod(shape)))


def _compiled(source: str) -> Any:
    space: dict[str, Any] = dict(FUNCTIONS)
    exec(compile(source, "<loop nest>", "exec"), space)
    return space["nest"]


def _sizes(
    program: LoopProgram, arrays: Mapping[str, Array], given: Mapping[str, int]
) -> dict[str, int]:
    values = dict(given)
    for tensor in program.inputs:
        if tensor.name in arrays:
            for extent, number in zip(tensor.shape, np.shape(arrays[tensor.name]), strict=False):
                if isinstance(extent, Size):
                    values.setdefault(extent.name, number)
    if missing := [size.name for size in program.sizes if size.name not in values]:
        raise ArgumentError(
            f"no value for size {', '.join(missing)}; given: {', '.join(sorted(values)) or 'none'}."
            f" Give it: sizes={{{missing[0]!r}: ...}}."
        )
    return values


def _given(tensor: Tensor, arrays: Mapping[str, Array], shape: tuple[int, ...]) -> list[Any]:
    if tensor.name not in arrays:
        known = ", ".join(sorted(arrays)) or "none"
        raise ArgumentError(
            f"no array for input {tensor.name}{tensor.where_built}; given: {known}."
        )
    array = np.asarray(arrays[tensor.name])
    if array.shape != shape:
        raise ShapeError(
            f"{tensor.name}{tensor.where_built} expects shape {shape} and got one of {array.shape}."
        )
    values: list[Any] = _rounded(array.ravel(), tensor.dtype).tolist()
    return values


def _rounded(values: Any, dtype: str) -> Array:
    """``values`` as ``dtype`` holds them, floats in float64."""
    if dtype == "bfloat16":
        return bfloat16(np.asarray(values, np.float64)).astype(np.float64)
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            return np.asarray(values, np.float64).astype(STORAGE[dtype]).astype(np.float64)
    if dtype in INTEGERS and isinstance(values, list):
        values = [(value + 2**63) % 2**64 - 2**63 for value in values]
        return np.asarray(values, np.int64).astype(STORAGE[dtype])
    return np.asarray(values).astype(STORAGE[dtype])
