"""The kernels of the benchmark in Halide, translated from our own forward programs.

Nothing here knows a kernel: each node of a term becomes the expression of Halide that means the
same, a stage or a reduction a `Func`. Gradients are Halide's own (`propagate_adjoints`), the
schedule is that of its autoscheduler Mullapudi2016; a backward pass that is written by hand is
translated as it is. What Halide has no word for raises `NotImplementedError`, what it cannot
differentiate or schedule an error of its own.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernel_cases import Gradient, Problem
from benchmarks.kernel_peers import Array
from eqsatad.terms.nodes import (
    TRUE,
    Apply,
    Axis,
    Cast,
    Const,
    Expr,
    Placeholder,
    Read,
    Reduce,
    Select,
    Stage,
    Tensor,
)
from eqsatad.terms.ops import GE, LT
from eqsatad.terms.walk import conjunction, conjuncts, constant, program, reads

AUTOSCHEDULER = "Mullapudi2016"

# What Halide says of adjoints that it adds up in more places than the result has.
BEYOND = "Output buffer"

# Bytes that the beginning of each array is a multiple of: Halide's code relies on it for inputs.
ALIGNMENT = 128

# How Halide spells a dtype: the function that makes the type, and its bits if it takes any.
TYPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "float64": ("Float", (64,)),
    "float32": ("Float", (32,)),
    "int64": ("Int", (64,)),
    "int32": ("Int", (32,)),
    "index": ("Int", (32,)),
    "bool": ("Bool", ()),
}

# Operations that Python's operators stand for. Halide rounds quotients of integers down.
OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": operator.and_,
    "or": operator.or_,
}

# Operations that are functions of Halide, by its name for them.
FUNCTIONS = {
    **{name: name for name in ("min", "max", "abs", "pow", "atan2", "sqrt", "exp", "log", "erf")},
    **{name: name for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh")},
    **{name: name for name in ("tanh", "floor", "ceil", "round", "trunc")},
    "not": "logical_not",
}

# How a reduction combines, and the value that it starts with.
COMBINERS: dict[str, tuple[str, float]] = {
    "sum": ("add", 0.0),
    "prod": ("mul", 1.0),
    "max": ("max", -np.inf),
    "min": ("min", np.inf),
}


def halide_call(problem: Problem) -> Compiled:
    """A call of the compiled backward pass, into arrays that are there before."""
    halide: Any = import_module("halide")
    plugin = f"libautoschedule_{AUTOSCHEDULER.lower()}.so"
    halide.load_plugin(str(Path(halide.__file__).parent / "lib64" / plugin))
    try:
        return _compiled(halide, problem, copied=False)
    except halide.HalideError as refusal:
        if BEYOND not in str(refusal):
            raise
        return _compiled(halide, problem, copied=True)


@dataclass(frozen=True)
class Compiled:
    """A pipeline with the memory that it reads and writes, which it does not keep itself."""

    pipeline: Any
    inputs: Mapping[str, Array]
    outputs: list[Array]
    buffers: list[Any]

    def __call__(self) -> list[Array]:
        self.pipeline.realize(self.buffers)
        return self.outputs


def _compiled(halide: Any, problem: Problem, *, copied: bool) -> Compiled:
    """The backward pass, whose results are copied out of larger arrays if ``copied``."""
    inputs = {name: aligned(array) for name, array in problem.arrays.items()}
    outputs = _outputs(Translation(halide, inputs), problem)
    arrays = [
        aligned(np.zeros(tuple(map(_extent, tensor.shape)), tensor.dtype)) for tensor, _ in outputs
    ]
    funcs = [_copy(halide, func) if copied else func for _, func in outputs]
    for func, array in zip(funcs, arrays, strict=True):
        func.set_estimates(ranges(halide, array.shape))
    pipeline = halide.Pipeline(funcs)
    target = halide.get_jit_target_from_environment()
    options = {"parallelism": os.environ.get("HL_NUM_THREADS", "1")}
    pipeline.apply_autoscheduler(target, halide.AutoschedulerParams(AUTOSCHEDULER, options))
    pipeline.compile_jit(target)
    compiled = Compiled(pipeline, inputs, arrays, [halide.Buffer(array) for array in arrays])
    # Where it writes is checked when it runs.
    compiled()
    return compiled


def aligned(array: Array) -> Array:
    """A copy of ``array`` that begins where Halide's own memory would."""
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy: Array = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _copy(halide: Any, func: Any) -> Any:
    """A function that only reads ``func``."""
    copy, places = halide.Func(), tuple(halide.Var() for _ in range(func.dimensions()))
    copy[places] = func[places]
    return copy


def _outputs(written: Translation, problem: Problem) -> list[tuple[Tensor, Any]]:
    """What the backward pass computes, each as the tensor whose shape it has and as a `Func`."""
    ours = problem.ours
    if not isinstance(ours, Gradient):
        return [(stage, written.func(stage)) for stage in ours.outputs]
    head = Placeholder("H", ours.output.shape, ours.output.dtype)
    shape = tuple(map(_extent, ours.output.shape))
    # The only form of the call that takes a head from Python is that of functions and ranges.
    adjoints = written.halide.propagate_adjoints(
        written.func(ours.output), written.func(head), ranges(written.halide, shape)
    )
    return [(tensor, adjoints[written.func(tensor)]) for tensor in ours.wrt]


def ranges(halide: Any, shape: Sequence[int]) -> list[Any]:
    """The extents of an array, the innermost dimension first, as Halide has them."""
    return [halide.Range(0, extent) for extent in reversed(shape)]


def _extent(size: Expr) -> int:
    extent = constant(size)
    if extent is None:
        raise NotImplementedError("symbolic sizes")
    return extent


@dataclass
class Translation:
    """Tensors as functions of Halide, each made once; inputs are read out of ``arrays``."""

    halide: Any
    arrays: Mapping[str, Array]
    funcs: dict[Tensor, Any] = field(default_factory=dict)

    def func(self, tensor: Tensor) -> Any:
        """The function that holds ``tensor``."""
        for each in program([tensor]):
            if each not in self.funcs:
                made = self._stage(each) if isinstance(each, Stage) else self._input(each)
                self.funcs[each] = made
        return self.funcs[tensor]

    def type(self, dtype: str) -> Any:
        """Halide's word for ``dtype``."""
        if dtype not in TYPES:
            raise NotImplementedError(f"dtype {dtype}")
        name, bits = TYPES[dtype]
        return getattr(self.halide, name)(*bits)

    def literal(self, value: float, dtype: str) -> Any:
        """A constant."""
        # A number of Python's is a float32 to Halide unless it is an integer or says otherwise.
        exact = self.halide.f64(value) if isinstance(value, float) else int(value)
        return self.halide.cast(self.type(dtype), exact)

    def _input(self, tensor: Tensor) -> Any:
        # Zero outside: the bounds of what adjoints read are not always found to be inside.
        return self.halide.BoundaryConditions.constant_exterior(
            self.halide.Buffer(self.arrays[tensor.name]), self.literal(0, tensor.dtype)
        )

    def _stage(self, stage: Stage) -> Any:
        if stage.scatters:
            raise NotImplementedError("a stage with scatters")
        return self._defined(stage.axes, stage.body)

    def _defined(self, axes: Sequence[Axis], body: Expr) -> Any:
        """A function of ``axes`` that is ``body``."""
        func, places = self.halide.Func(), {axis: self.halide.Var() for axis in axes}
        at = tuple(places[axis] for axis in reversed(axes))
        if not isinstance(body, Reduce):
            func[at] = self._expr(body, dict(places))
            return func
        if body.combiner.name not in COMBINERS:
            raise NotImplementedError(f"the reduction {body.combiner.name}")
        combine, identity = COMBINERS[body.combiner.name]
        start = self.literal(identity, body.dtype)
        func[at] = start
        func[at] = self._operation(combine)(func[at], self._summand(body, places, start))
        return func

    def _summand(self, node: Reduce, places: Mapping[Axis, Any], start: Any) -> Any:
        """What ``node`` combines at each point, ``start`` where its condition does not hold."""
        inner = tuple(reversed(node.axes))
        domain = self.halide.RDom([self.halide.Range(0, _extent(axis.extent)) for axis in inner])
        known = {**places, **{axis: domain[n] for n, axis in enumerate(inner)}}
        value = self._expr(node.body, known)
        if node.cond is TRUE:
            return value
        return self.halide.select(self._expr(node.cond, known), value, start)

    def _expr(self, node: Expr, known: dict[Any, Any]) -> Any:
        """``node``, where ``known`` holds its free axes and what was already translated."""
        if node not in known:
            known[node] = self._made(node, known)
        return known[node]

    def _made(self, node: Expr, known: dict[Any, Any]) -> Any:
        made = partial(self._expr, known=known)
        match node:
            case Const(value, dtype):
                return self.literal(value, dtype)
            case Cast(arg, dtype):
                return self.halide.cast(self.type(dtype), made(arg))
            case Apply(op, args):
                if op.name in ("floordiv", "mod") and (constant(args[1]) or 0) <= 0:
                    raise NotImplementedError(f"{op.name} by other than a positive constant")
                # Of what has a sign Halide's ``abs`` makes what has none.
                applied = self._operation(op.name)(*map(made, args))
                return self.halide.cast(self.type(node.dtype), applied)
            case Select():
                parts = unguarded(node).children
                return made(parts[1]) if parts[0] is TRUE else self.halide.select(*map(made, parts))
            case Read(tensor, indices):
                at = [self._index(*pair, known) for pair in zip(indices, tensor.shape, strict=True)]
                return self._value(self.func(tensor), at)
            case Reduce():
                free = sorted(node.free, key=lambda axis: axis.name)
                return self._value(self._defined(free, node), [known[axis] for axis in free])
        raise NotImplementedError(f"nodes like {node!r}")

    def _value(self, func: Any, at: Sequence[Any]) -> Any:
        # What a function gives may be several values to Halide until it is made an expression.
        return self.halide.Expr(func[tuple(reversed(at))])

    def _index(self, index: Expr, extent: Expr, known: dict[Any, Any]) -> Any:
        place = self._expr(index, known)
        # Of positions that are data Halide cannot know that they are inside, as they are.
        return self.halide.clamp(place, 0, _extent(extent) - 1) if reads(index) else place

    def _operation(self, name: str) -> Callable[..., Any]:
        if name in OPERATORS:
            return OPERATORS[name]
        if name not in FUNCTIONS:
            raise NotImplementedError(f"the operation {name}")
        function: Callable[..., Any] = getattr(self.halide, FUNCTIONS[name])
        return function


def unguarded(node: Select) -> Select:
    """``node`` without conditions that say only what reading an input as zero outside does."""
    read, other = node.then, node.other
    if not isinstance(read, Read) or isinstance(read.tensor, Stage):
        return node
    if not isinstance(other, Const) or other.value != 0 or reads(*read.indices):
        return node
    zero = Const(0, "index")
    inside = {
        bound
        for index, extent in zip(read.indices, read.tensor.shape, strict=True)
        for bound in (Apply(GE, (index, zero)), Apply(LT, (index, extent)))
    }
    return Select(conjunction(c for c in conjuncts(node.cond) if c not in inside), read, other)
