"""The derivative table: every row against central differences, and its edge values."""

import math

import numpy as np
import pytest

from eqsatad.errors import NotDifferentiableError
from eqsatad.grad import derivative
from eqsatad.grad.derivatives import FLAT, partials, table
from eqsatad.terms import builders as ea
from eqsatad.terms import ops
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import FLOATS, Apply, Const, Expr, Reduce, Var
from eqsatad.terms.walk import substitute

STEP = 1e-6
TOLERANCE = 1e-7  # of central differences with STEP in float64, for values of about 1

DIFFERENTIABLE = [op for op in ops.OPS.values() if op.kind in ("arith", "function")]
# Points inside the domain of each operation, away from kinks; the rest takes the usual ones.
USUAL = [(0.37, 1.61), (-0.74, 0.83), (1.9, -0.6)]
POSITIVE = [(0.37, 1.61), (2.3, -0.83), (1.2, 0.5)]
WITHIN_ONE = [(0.37, 0.0), (-0.74, 0.0), (0.9, 0.0)]
POINTS = {
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "pow"), POSITIVE),
    **dict.fromkeys(("asin", "acos"), WITHIN_ONE),
    **{"log1p": [(-0.4, 0.0), (0.2, 0.0), (3.0, 0.0)]},
    **{"softplus": [*USUAL, (-30.0, 0.0), (30.0, 0.0)], "tanh": [*USUAL, (4.0, 0.0)]},
}
X, Y = Var("first", "float64"), Var("second", "float64")


def value(expr: Expr, **given: float) -> float:
    """The number that ``expr`` stands for, its variables being ``given``."""
    filled = {
        var: Const(float(given[name]), "float64")
        for name, var in (("x", X), ("y", Y))
        if name in given
    }
    return float(evaluate([ea.compute((), lambda: substitute(expr, filled))], {})[0])


def slope(expr: Expr, x: float, y: float, of: str) -> float:
    """The central difference of ``expr`` in one variable."""
    at = {"x": x, "y": y}
    above, below = (value(expr, **(at | {of: at[of] + step})) for step in (STEP, -STEP))
    return (above - below) / (2 * STEP)


def applied(op: ops.Op) -> Expr:
    return Apply(op, (X, Y)[: op.arity])


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_row_agrees_with_differences(op):
    expr = applied(op)
    for x, y in POINTS.get(op.name, USUAL):
        for var, name in ((X, "x"), (Y, "y"))[: op.arity]:
            expected = slope(expr, x, y, name)
            found = value(derivative(expr, var), x=x, y=y)
            assert found == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE), (x, y, name)


@pytest.mark.parametrize("dtype", FLOATS)
def test_table_has_a_row_for_each_operation_on_floats(dtype):
    assert {*table(dtype), ops.POW} == set(DIFFERENTIABLE)
    assert {part.dtype for row in table(dtype).values() for part in row if part is not None} == {
        dtype
    }


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_row_is_linear_in_the_adjoint(op):
    node = applied(op)
    rows = (partials(node, node, ea.const(h, "float64")) for h in (1.0, -2.5))
    for one, two in zip(*rows, strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            assert value(two, x=0.3, y=0.7) == pytest.approx(-2.5 * value(one, x=0.3, y=0.7))


EDGES = [
    ("abs", "x", (0.0, 0.0), 0.0),
    ("sqrt", "x", (0.0, 0.0), math.inf),
    ("sign", "x", (0.0, 0.0), 0.0),
    ("max", "x", (2.0, 2.0), 1.0),
    ("max", "y", (2.0, 2.0), 0.0),
    ("min", "x", (2.0, 2.0), 1.0),
    ("min", "y", (2.0, 2.0), 0.0),
    ("pow", "x", (0.0, 0.0), 0.0),
    ("pow", "y", (0.0, 0.0), 0.0),
    ("pow", "x", (0.0, 2.0), 0.0),
    ("pow", "x", (0.0, 1.0), 1.0),
    ("pow", "x", (0.0, 0.5), math.inf),
    ("pow", "y", (0.0, 3.0), 0.0),
    ("pow", "x", (-2.0, 2.0), -4.0),
    ("pow", "y", (-2.0, 2.0), math.nan),
    ("atan2", "x", (0.0, 2.0), 0.5),
    ("log", "x", (0.0, 0.0), math.inf),
    ("softplus", "x", (-800.0, 0.0), 0.0),
    ("softplus", "x", (800.0, 0.0), 1.0),
    ("sigmoid", "x", (800.0, 0.0), 0.0),
    ("tanh", "x", (-400.0, 0.0), 0.0),
    ("floor", "x", (1.0, 0.0), 0.0),
    ("div", "y", (0.0, 2.0), 0.0),
]


@pytest.mark.parametrize(
    ("name", "of", "at", "expected"), EDGES, ids=[f"{n}-{of}-{at}" for n, of, at, _ in EDGES]
)
def test_edge_value(name, of, at, expected):
    found = derivative(applied(ops.OPS[name]), {"x": X, "y": Y}[of])
    assert value(found, x=at[0], y=at[1]) == pytest.approx(expected, nan_ok=True)


CONSTANT_POWERS = [
    (0.0, 0.0, 0.0),
    (0.0, -3.0, 0.0),
    (1.0, 0.0, 1.0),
    (2.0, 0.0, 0.0),
    (2.0, -3.0, -6.0),
    (3.0, -2.0, 12.0),
    (-1.0, 2.0, -0.25),
    (0.5, 0.0, math.inf),
    (0.5, 4.0, 0.25),
]


@pytest.mark.parametrize(("exponent", "x", "expected"), CONSTANT_POWERS)
def test_power_with_a_constant_exponent(exponent, x, expected):
    assert value(derivative(X**exponent, X), x=x) == pytest.approx(expected)


def test_square_needs_no_power():
    nodes = [derivative(X**2, X)]
    assert all(node.op is ops.MUL for node in nodes)
    assert value(nodes[0], x=3.0) == 6.0


def test_constant_base_has_an_exponential_derivative():
    assert value(derivative(2.0**X, X), x=3.0) == pytest.approx(8.0 * math.log(2.0))


@pytest.mark.parametrize("op", FLAT, ids=lambda op: op.name)
def test_flat_operation_adds_nothing(op):
    node = applied(op)
    assert partials(node, node, ea.const(1.0, "float64")) == (None,)


COMPOSED = {
    "chain": ea.exp(ea.sin(X * X) / (1.0 + Y * Y)),
    "shared": (X * Y + 1.0) * ea.tanh(X * Y + 1.0),
    "select": ea.select(X * Y > 0.0, X * X * Y, ea.exp(X)),
    "cast": ea.cast(ea.cast(X, "float64") * Y, "float64"),
    "logaddexp": ea.maximum(X, Y) + ea.log1p(ea.exp(-abs(X - Y))),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_derivative_of_a_formula(name):
    expr = COMPOSED[name]
    for x, y in ((0.4, 1.3), (-0.7, 0.9)):
        for var, of in ((X, "x"), (Y, "y")):
            found = value(derivative(expr, var), x=x, y=y)
            assert found == pytest.approx(slope(expr, x, y, of), rel=TOLERANCE, abs=TOLERANCE)


def test_derivative_goes_through_a_sum():
    k = ea.reduce_axis((0, 4))
    expr = ea.sum(X**2 * ea.cast(k, "float64"), axis=k)
    assert value(derivative(expr, X), x=1.5) == pytest.approx(2 * 1.5 * 6)


def test_derivative_by_an_absent_variable_is_zero():
    assert derivative(ea.exp(Y), X) is ea.const(0.0, "float64")
    assert derivative(ea.floor(X), X) is ea.const(0.0, "float64")


def test_derivative_through_a_maximum_is_refused_with_the_part_marked():
    k = ea.reduce_axis((0, 4))
    expr = 2.0 * ea.max(X * ea.cast(k, "float64"), axis=k)
    with pytest.raises(NotDifferentiableError, match=r"max\(k\).*\n +\^+") as caught:
        derivative(expr, X)
    assert isinstance(expr.args[1], Reduce)
    assert "Write the marked part" in str(caught.value)


def test_derivative_of_a_row_can_be_taken_again():
    second = derivative(derivative(ea.tanh(X), X), X)
    t = np.tanh(0.4)
    assert value(second, x=0.4) == pytest.approx(-2 * t * (1 - t * t))
