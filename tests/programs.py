"""Random programs: one to three stages, well formed, in range, and smooth almost everywhere.

A `Maker` builds a program out of numbers in ``range(n)`` that it asks for, so that Hypothesis can
draw (and shrink) them and `tests.fuzz` can take them from a seed. Choices are ordered: 0 is the
simplest. Reads are in range by construction or under a guard, divisors are positive literals or
sizes, and functions are composed so that no argument leaves their domain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import count
from random import Random
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from eqsatad.terms.nodes import (
    ALL,
    ANY,
    ARGMAX,
    ARGMIN,
    MAXIMUM,
    MINIMUM,
    PROD,
    SUM,
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
from eqsatad.terms.ops import OPS
from eqsatad.terms.show import show
from eqsatad.terms.walk import program

T = TypeVar("T")
Choose = Callable[[int], int]
SIZES = {"n": 4, "m": 3}
SMOOTH = ("tanh", "sin", "sigmoid", "cos", "atan", "erf", "softplus", "exp", "expm1", "sinh")
POSITIVE = ("sqrt", "log", "rsqrt", "log1p", "log2", "cosh")
PIECEWISE = ("abs", "floor", "ceil", "round", "trunc", "sign")
POINTS = 600  # most points of a stage, reduced ones included


@dataclass(frozen=True)
class Program:
    """A random program: its inputs, its last stage, and how to fill the inputs."""

    inputs: tuple[Placeholder, ...]
    bounds: dict[str, Expr]
    output: Stage
    seed: int

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays for the inputs: floats up to 1.5, positions below their bound."""
        random = np.random.default_rng(self.seed)
        return {tensor.name: self._array(tensor, random) for tensor in self.inputs}

    def _array(self, tensor: Placeholder, random: np.random.Generator) -> NDArray[Any]:
        shape = tuple(number(extent) for extent in tensor.shape)
        if tensor.name in self.bounds:
            return random.integers(0, number(self.bounds[tensor.name]), shape, dtype=tensor.dtype)
        return random.uniform(-1.5, 1.5, shape).astype(tensor.dtype)

    @property
    def floats(self) -> list[Placeholder]:
        """The inputs to differentiate with respect to."""
        return [tensor for tensor in self.inputs if tensor.name not in self.bounds]

    def __repr__(self) -> str:
        stages = [show(t, extents=True) for t in program([self.output]) if isinstance(t, Stage)]
        shapes = [f"{t.name}: {t.dtype}{list(t.shape)}" for t in self.inputs]
        return "\n".join([*shapes, *stages, f"seed {self.seed}"])


def number(extent: Expr) -> int:
    """The number that an extent of a random program stands for."""
    if isinstance(extent, Size):
        return SIZES[extent.name]
    assert isinstance(extent, Const), "extents of random programs are literals and sizes"
    return int(extent.value)


def literal(value: int) -> Const:
    return Const(value, "index")


@dataclass
class Maker:
    """Builds random parts of a program; ``room`` bounds how deep an expression still goes."""

    choose: Choose
    dtype: str = "float64"
    symbolic: bool = False
    inputs: list[Placeholder] = field(default_factory=list)
    bounds: dict[str, Expr] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=lambda: count(1))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.choose(len(options))]

    def chance(self, one_in: int) -> bool:
        return self.choose(one_in) == one_in - 1

    # Tensors and axes

    def extent(self) -> Expr:
        if self.symbolic and self.chance(3):
            return Size(self.pick(sorted(SIZES)))
        return literal(self.pick((2, 3, 4, 1, 5)))

    def shape(self, ranks: Sequence[int]) -> tuple[Expr, ...]:
        return tuple(self.extent() for _ in range(self.pick(ranks)))

    def axis(self, extent: Expr | None = None) -> Axis:
        return Axis(f"k{next(self.numbers)}", self.extent() if extent is None else extent)

    def constant(self, values: Sequence[float] = (1.0, 0.5, 2.0, -1.0, 0.3, 0.0)) -> Expr:
        return Const(float(self.pick(values)), self.dtype)

    def placeholder(self) -> Placeholder:
        tensor = Placeholder(f"x{len(self.inputs)}", self.shape((1, 2, 2, 3, 0)), self.dtype)
        self.inputs.append(tensor)
        return tensor

    def program(self) -> Program:
        tensors: list[Tensor] = [self.placeholder() for _ in range(1 + self.choose(3))]
        for name in range(1 + self.choose(3)):
            tensors.append(self.stage(f"y{name}", tensors))
        output = tensors[-1]
        assert isinstance(output, Stage), "the last tensor is a stage"
        return Program(tuple(self.inputs), dict(self.bounds), output, self.choose(1000))

    def stage(self, name: str, tensors: Sequence[Tensor]) -> Stage:
        axes = tuple(self.axis() for _ in range(self.pick((1, 2, 2, 0, 3))))
        kind = self.pick((self.value, self.value, self.value, self.scan))
        body = kind(Scope(axes, tuple(reversed(tensors)), 2))
        scatters = (self.scatter(axes, tensors),) if self.chance(12) else ()
        return Stage(name, axes, body, scatters)

    def scatter(self, axes: tuple[Axis, ...], tensors: Sequence[Tensor]) -> Scatter:
        source = tuple(self.axis() for _ in range(1 + self.choose(2)))
        scope = Scope(source, tuple(reversed(tensors)), 1)
        indices = tuple(self.index(axis.extent, scope) for axis in axes)
        cond = self.condition(scope) if self.chance(3) else TRUE
        return Scatter(source, cond, indices, self.value(scope))

    # Index expressions

    def linear(self, scope: Scope) -> Expr:
        """A sum of axes with small coefficients and a constant, of any range."""
        result: Expr = literal(self.pick((0, 1, -1, 2, -3)))
        for _ in range(1 + self.choose(2)):
            if scope.axes:
                coefficient = literal(self.pick((1, 2, -1, 3)))
                result = coefficient * self.pick(scope.axes) + result
        return result

    def index(self, extent: Expr, scope: Scope) -> Expr:
        """A position below ``extent`` whatever the axes are."""
        ways = [self.fitting, self.fitting, self.fitting, self.clamped, self.wrapped]
        if isinstance(extent, Const):
            ways += [self.affine, self.affine, self.quotient]
        if scope.room > 0:
            ways += [self.gathered]
        return self.pick(ways)(extent, scope)

    def fitting(self, extent: Expr, scope: Scope) -> Expr:
        fits = [axis for axis in scope.axes if axis.extent is extent]
        if isinstance(extent, Const):
            below = [axis for axis in scope.axes if isinstance(axis.extent, Const)]
            fits += [axis for axis in below if axis.extent.value < extent.value]
        if not fits:
            return self.wrapped(extent, scope) if scope.axes else literal(0)
        axis = self.pick(fits)
        return extent - 1 - axis if axis.extent is extent and self.chance(5) else axis

    def affine(self, extent: Expr, scope: Scope) -> Expr:
        """``s*i + t*k + c`` within the literal ``extent``."""
        room = number(extent) - 1
        result: Expr = literal(0)
        for axis in scope.axes:
            reach = number(axis.extent) - 1
            if isinstance(axis.extent, Const) and 0 < reach <= room and not self.chance(4):
                step = 1 + self.choose(room // reach)
                result, room = result + literal(step) * axis, room - step * reach
        return result + self.choose(room + 1)

    def quotient(self, extent: Expr, scope: Scope) -> Expr:
        """``(s*i + t*k + c) // d`` within the literal ``extent``."""
        result: Expr = literal(0)
        reach = 0
        for axis in scope.axes:
            if isinstance(axis.extent, Const) and not self.chance(3):
                step = self.pick((1, 2, 3))
                result, reach = (
                    result + literal(step) * axis,
                    reach + step * (number(axis.extent) - 1),
                )
        shift = self.choose(3)
        least = (reach + shift) // number(extent) + 1
        return (result + shift) // (least + self.choose(2))

    def wrapped(self, extent: Expr, scope: Scope) -> Expr:
        return self.linear(scope) % extent

    def clamped(self, extent: Expr, scope: Scope) -> Expr:
        return least(greatest(self.linear(scope), literal(0)), extent - 1)

    def gathered(self, extent: Expr, scope: Scope) -> Expr:
        """A position read from an integer input."""
        if not scope.axes:
            return literal(0)
        axis = self.pick(scope.axes)
        name = f"p{len(self.bounds)}"
        tensor = Placeholder(name, (axis.extent,), self.pick(("int32", "int64")))
        self.inputs.append(tensor)
        self.bounds[name] = extent
        return Cast(Read(tensor, (axis,)), "index")

    # Conditions

    def condition(self, scope: Scope) -> Expr:
        ways = [self.inequality, self.inequality, self.congruence, self.ordering, self.equation]
        if scope.room > 0:
            ways += [self.combination, self.negation, self.data_condition]
            ways += [self.quantified, self.quantified]
        return self.pick(ways)(scope)

    def inequality(self, scope: Scope) -> Expr:
        return self.linear(scope) >= self.pick((0, 1, 2))

    def equation(self, scope: Scope) -> Expr:
        return self.linear(scope).equal(self.linear(scope))

    def congruence(self, scope: Scope) -> Expr:
        modulus = self.pick((2, 3))
        return (self.linear(scope) % modulus).equal(self.choose(modulus))

    def ordering(self, scope: Scope) -> Expr:
        if len(scope.axes) < 2:
            return self.inequality(scope)
        one = self.choose(len(scope.axes) - 1)
        left, right = scope.axes[one], self.pick(scope.axes[one + 1 :])
        return self.pick((left < right, left <= right, left > right, left >= right))

    def combination(self, scope: Scope) -> Expr:
        left, right = (self.condition(scope.deeper()) for _ in range(2))
        return self.pick((left & right, left | right))

    def negation(self, scope: Scope) -> Expr:
        return ~self.condition(scope.deeper())

    def data_condition(self, scope: Scope) -> Expr:
        left = self.read(scope.deeper())
        return self.pick((left > self.constant(), left <= self.constant()))

    def quantified(self, scope: Scope) -> Expr:
        axis = self.axis()
        body = self.condition(scope.deeper().inside(axis))
        return Reduce(self.pick((ANY, ALL)), (axis,), TRUE, body)

    # Values

    def value(self, scope: Scope) -> Expr:
        ways = [self.read, self.read]
        if scope.room > 0:
            ways += [self.reduction] * 3 + [self.contraction] * 3
            ways += [self.product, self.product, self.sum, self.difference]
            ways += [self.smooth, self.smooth, self.positive, self.piecewise, self.extremum]
            ways += [self.guarded, self.guarded, self.power, self.quotient_of_values]
            ways += [self.constant_value, self.axis_value, self.position]
        return self.pick(ways)(scope)

    def constant_value(self, scope: Scope) -> Expr:
        return self.constant()

    def read(self, scope: Scope) -> Expr:
        tensor = self.pick(scope.tensors)
        if tensor.shape and self.chance(4):
            outside = tuple(
                self.linear(scope) if self.chance(2) else self.index(extent, scope)
                for extent in tensor.shape
            )
            return tensor.get(*outside, outside=float(self.pick((0.0, 1.0, -0.5))))
        return Read(tensor, tuple(self.index(extent, scope) for extent in tensor.shape))

    def two(self, scope: Scope) -> tuple[Expr, Expr]:
        inner = scope.deeper()
        return self.value(inner), self.value(inner)

    def product(self, scope: Scope) -> Expr:
        left, right = self.two(scope)
        return left * right

    def sum(self, scope: Scope) -> Expr:
        left, right = self.two(scope)
        return left + right

    def difference(self, scope: Scope) -> Expr:
        left, right = self.two(scope)
        return left - right

    def extremum(self, scope: Scope) -> Expr:
        return self.pick((greatest, least))(*self.two(scope))

    def quotient_of_values(self, scope: Scope) -> Expr:
        left, right = self.two(scope)
        return left / (right * right + 1.0)

    def bounded(self, scope: Scope) -> Expr:
        """A value between -1 and 1, or a plain read of an input."""
        value = self.value(scope)
        if isinstance(value, Read) and isinstance(value.tensor, Placeholder):
            return value
        return function("tanh", value)

    def smooth(self, scope: Scope) -> Expr:
        name = self.pick(SMOOTH)
        grows = name in ("exp", "expm1", "sinh")
        return function(name, (self.bounded if grows else self.value)(scope.deeper()))

    def positive(self, scope: Scope) -> Expr:
        value = self.value(scope.deeper())
        return function(self.pick(POSITIVE), function("tanh", value) * 0.5 + 1.0)

    def piecewise(self, scope: Scope) -> Expr:
        name = self.pick(PIECEWISE)
        return function(name, self.value(scope.deeper()))

    def power(self, scope: Scope) -> Expr:
        left, right = self.two(scope)
        base = function("sigmoid", left) + 0.5
        exponent = self.pick((Const(2.0, self.dtype), Const(-0.5, self.dtype), right))
        return base ** (function("tanh", exponent) if exponent is right else exponent)

    def axis_value(self, scope: Scope) -> Expr:
        return Cast(self.linear(scope), self.dtype) * 0.25

    def guarded(self, scope: Scope) -> Expr:
        inner = scope.deeper()
        other = self.pick((self.constant_value, self.read, self.value))(inner)
        return Select(self.condition(inner), self.value(inner), other)

    def position(self, scope: Scope) -> Expr:
        """A read at the position of the greatest or least element of a row."""
        rows = [tensor for tensor in scope.tensors if len(tensor.shape) == 1]
        if not rows:
            return self.read(scope)
        row = self.pick(rows)
        axis = self.axis(row.shape[0])
        best = Reduce(self.pick((ARGMAX, ARGMIN)), (axis,), TRUE, Read(row, (axis,)))
        return Read(row, (Cast(best, "index"),))

    # Reductions

    def reduction(self, scope: Scope) -> Expr:
        axes = [self.axis() for _ in range(1 + self.choose(2))]
        inner = scope.deeper().inside(*axes)
        if inner.points > POINTS:
            return self.read(scope)
        kind = self.pick((SUM, SUM, SUM, MAXIMUM, PROD, MINIMUM, self.combiner()))
        conds, factor = self.guards(inner)
        if self.chance(3):
            conds.append(self.condition(inner))
        body = (self.value if kind is SUM else self.bounded)(inner)
        body = body if factor is None else body * factor
        return finite(Reduce(kind, tuple(axes), conjunction(conds), body), self.dtype)

    def contraction(self, scope: Scope) -> Expr:
        """A sum of products of reads, as in matrix products and convolutions."""
        axes = [self.axis() for _ in range(1 + self.choose(2))]
        inner = scope.inside(*axes)
        if inner.points > POINTS:
            return self.read(scope)
        conds, factor = self.guards(inner)
        body = self.read(inner) * self.read(inner)
        body = body if factor is None else body * factor
        return Reduce(SUM, tuple(axes), conjunction(conds), body)

    def guards(self, scope: Scope) -> tuple[list[Expr], Expr | None]:
        """A read that only the conditions that come with it keep in range, or nothing."""
        tensors = [tensor for tensor in scope.tensors if tensor.shape]
        if not tensors or not self.chance(3):
            return [], None
        tensor = self.pick(tensors)
        position = self.linear(scope)
        rest = tuple(self.index(extent, scope) for extent in tensor.shape[1:])
        conds = [position >= 0, position < tensor.shape[0]]
        return conds, Read(tensor, (position, *rest))

    def combiner(self) -> Combiner:
        """``(1 + a) * (1 + b) - 1``: smooth, associative, neutral at 0."""
        left, right = Var("left", self.dtype), Var("right", self.dtype)
        result = left + right + left * right
        return Combiner("plus_times", left, right, result, Const(0.0, self.dtype))

    def scan(self, scope: Scope) -> Expr:
        """A running value along one axis of the stage."""
        if not scope.axes:
            return self.value(scope)
        along = self.pick(scope.axes)
        axis = self.axis(along.extent)
        cond = self.pick((axis <= along, axis < along, axis >= along, axis > along))
        kind = self.pick((SUM, SUM, PROD, MAXIMUM, self.combiner()))
        rest = tuple(other for other in scope.axes if other is not along)
        inner = Scope((axis, *rest), scope.tensors, scope.room - 1)
        body = (self.value if kind is SUM else self.bounded)(inner)
        return finite(Reduce(kind, (axis,), cond, body), self.dtype)


@dataclass(frozen=True)
class Scope:
    """What an expression may use: axes (innermost first), tensors (latest first)."""

    axes: tuple[Axis, ...]
    tensors: tuple[Tensor, ...]
    room: int

    def deeper(self) -> Scope:
        return Scope(self.axes, self.tensors, self.room - 1)

    def inside(self, *axes: Axis) -> Scope:
        return Scope((*axes, *self.axes), self.tensors, self.room)

    @property
    def points(self) -> int:
        return reduce(lambda total, axis: total * number(axis.extent), self.axes, 1)


def function(name: str, *args: Expr) -> Expr:
    return Apply(OPS[name], args)


def greatest(left: Expr, right: Expr) -> Expr:
    return function("max", left, right)


def least(left: Expr, right: Expr) -> Expr:
    return function("min", left, right)


def conjunction(conds: Sequence[Expr]) -> Expr:
    return reduce(lambda left, right: left & right, conds) if conds else TRUE


def finite(value: Reduce, dtype: str) -> Expr:
    """``value``, or a bound on it where a maximum or minimum over nothing would be infinite."""
    if value.cond is TRUE or value.combiner not in (MAXIMUM, MINIMUM):
        return value
    if value.combiner is MAXIMUM:
        return greatest(value, Const(-2.0, dtype))
    return least(value, Const(2.0, dtype))


@st.composite
def programs(draw: st.DrawFn, dtype: str = "float64", symbolic: bool = False) -> Program:
    """Random programs of one dtype, with or without symbolic sizes."""
    return Maker(lambda n: draw(st.integers(0, n - 1)), dtype, symbolic).program()


def from_seed(seed: int, dtype: str = "float64", symbolic: bool = False) -> Program:
    """The random program of a seed."""
    return Maker(Random(seed).randrange, dtype, symbolic).program()
