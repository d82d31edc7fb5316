"""Cost models: what an operation, a test, a read and a stored element cost, as data.

A node is paid once for each assignment of the axes it depends on, so its cost is a price times a
volume. Volumes of symbolic extents use example values. `COUNT` weighs what cost reports count: a
multiplication is worth ten additions or five stored elements, and no element-wise stage is made
that saves fewer than four multiplications an element; `CPU` and `OPENCL` are rough costs in the
time of one addition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from eqsatad.rules.scatters import Prices
from eqsatad.terms.linear import is_unit, linear
from eqsatad.terms.nodes import Axis, Const, Expr, Size
from eqsatad.terms.ops import OPS

DEFAULT_SIZE = 64
"""What a symbolic size is taken to be where nothing else is said."""


@dataclass(frozen=True)
class CostModel:
    """Prices; ``calls`` overrides ``call`` for functions by name.

    ``store`` is paid for every element of a stage, ``visit`` for every element of a temporary that
    holds no reduction: a loop of its own for little work. ``scatter`` decides between adding to
    places that are data and testing for each element which data says its place.
    """

    name: str
    multiply: float
    divide: float
    call: float
    add: float
    negate: float
    guard: float
    read: float
    store: float
    visit: float
    calls: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    scatter: Prices = field(default_factory=Prices)

    def function(self, name: str) -> float:
        """The price of the operation ``name`` of `terms.ops`, or of a cast."""
        if name in self.calls:
            return self.calls[name]
        if name in OPS and OPS[name].kind == "function":
            return self.call
        return self.add

    def size(self, name: str) -> int:
        """The example value of a symbolic size."""
        return self.sizes.get(name, DEFAULT_SIZE)

    def extent(self, axis: Axis) -> int:
        """The number of values of ``axis``, at example sizes."""
        return extent(axis.extent, self.sizes)

    def volume(self, axes: frozenset[Axis] | tuple[Axis, ...]) -> int:
        """The number of points of the box of ``axes``."""
        return prod(map(self.extent, axes))


def extent(expr: Expr, sizes: Mapping[str, int]) -> int:
    """The value of an extent where each size has its example value."""
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Size):
        return sizes.get(expr.name, DEFAULT_SIZE)
    form = linear(expr)
    values = (coef * _atom(atom, sizes) for coef, atom in form.terms)
    return max(1, form.const + sum(values))


def _atom(atom: Expr, sizes: Mapping[str, int]) -> int:
    """A size, or a compound of sizes: the product or the largest of its parts."""
    if is_unit(atom):
        size, multiple = atom.children
        return max(1, extent(size, sizes) // extent(multiple, sizes))
    if not atom.children:
        return extent(atom, sizes)
    return prod(extent(child, sizes) for child in atom.children)


# On a CPU with vectors of 16 floats adding to a place takes 0.8 to 1.4 ns, a test 0.03 to 0.05 ns:
# `python -m benchmarks.pools`. On GPUs this was not measured; there places are added to one by one.
# A temporary without a reduction is worth its iterations where it saves two calls an element, or
# four multiplications.
COUNT = CostModel(
    "count", multiply=1, divide=1, call=1.9, add=0.1, negate=1e-6, guard=1e-7, read=1e-9,
    store=0.2, visit=3.5,
)  # fmt: skip
CPU = CostModel(
    "cpu", multiply=1, divide=4, call=12, add=1, negate=0.5, guard=0.2, read=0.3,
    store=1.5, visit=1,
    calls={"sqrt": 5, "rsqrt": 5, "pow": 30, "floor": 1, "ceil": 1, "round": 1, "trunc": 1},
    scatter=Prices(add=64, vector=16, strided=2),
)  # fmt: skip
OPENCL = CostModel(
    "opencl", multiply=1, divide=6, call=8, add=1, negate=0.5, guard=0.5, read=1.0,
    store=4, visit=1,
    calls={"sqrt": 4, "rsqrt": 2, "pow": 20, "floor": 1, "ceil": 1, "round": 1, "trunc": 1},
    scatter=Prices(add=64),
)  # fmt: skip

MODELS: dict[str, CostModel] = {model.name: model for model in (COUNT, CPU, OPENCL)}
