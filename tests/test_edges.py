"""Derivatives where there is none: the rows of docs/edge_values.md, through the whole pipeline.

Every case names its row by the first two columns, and every row has a case.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import eqsatad as ea
from eqsatad import library
from eqsatad.errors import NotDifferentiableError

NAN, INF = float("nan"), float("inf")
TABLE = Path(__file__).parent.parent / "docs" / "edge_values.md"

ABS, RELU = "abs(x), sign(x) | x == 0", "library.relu(x), which is select(x > 0, x, 0) | x == 0"
TWO, TIES = "maximum(x, y), minimum(x, y) of two | x == y", "max, min over axes | ties"
NOWHERE = "max, min over axes | no point satisfies the condition"
PRODUCT = "prod over axes | some factors are 0"
SQRT, RSQRT, LOG = (f"{name}(x) | x == 0" for name in ("sqrt", "rsqrt", "log"))
POWER = "x ** c, constant exponent | x == 0"
EXPONENT, NEGATIVE = (f"x ** y with respect to y | x {what} 0" for what in ("==", "<"))
ORIGIN, STEPS = "atan2(y, x) | x == y == 0", "floor ceil round trunc | everywhere"
INTEGERS = "comparisons, any, all, integer casts | everywhere"
POSITION = "argmax, argmin | everywhere"
SELECT, OUTSIDE = "select(c, a, b) |", "get(..., outside=v) | outside"
UNUSED = "input not used by the output |"

# Row, program, x, and the gradient with respect to x for a head of ones.
EDGES = [
    (ABS, "y[i] = abs(x[i])", [0.0, 2.0], [0.0, 1.0]),
    (ABS, "y[i] = sign(x[i])", [0.0, 2.0], [0.0, 0.0]),
    (TWO, "y[i] = maximum(x[i], 0.0)", [0.0], [1.0]),
    (TWO, "y[i] = maximum(0.0, x[i])", [0.0], [0.0]),
    (TWO, "y[i] = minimum(x[i], 0.0)", [0.0], [1.0]),
    (TWO, "y[i] = minimum(0.0, x[i])", [0.0], [0.0]),
    (TWO, "y[i<1] = maximum(x[i], x[i+1])", [2.0, 2.0], [1.0, 0.0]),
    (TWO, "y[i<1] = minimum(x[i], x[i+1])", [2.0, 2.0], [1.0, 0.0]),
    (TIES, "y = max(x[i])", [1.0, 3.0, 3.0], [0.0, 1.0, 0.0]),
    (TIES, "y = min(x[i])", [1.0, 3.0, 1.0], [1.0, 0.0, 0.0]),
    (NOWHERE, "y[i<2] = max(x[k], where=k < i)", [5.0, 7.0], [1.0, 0.0]),
    (NOWHERE, "y[i<2] = min(x[k], where=k > i)", [5.0, 7.0], [0.0, 1.0]),
    (PRODUCT, "y = prod(x[i])", [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
    (PRODUCT, "y = prod(x[i])", [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
    (SQRT, "y[i] = sqrt(x[i])", [0.0], [INF]),
    (RSQRT, "y[i] = rsqrt(x[i])", [0.0], [-INF]),
    (LOG, "y[i] = log(x[i])", [0.0], [INF]),
    (POWER, "y[i] = x[i]**2.0", [0.0], [0.0]),
    (POWER, "y[i] = x[i]**1.5", [0.0], [0.0]),
    (POWER, "y[i] = x[i]**1.0", [0.0], [1.0]),
    (POWER, "y[i] = x[i]**0.5", [0.0], [INF]),
    (POWER, "y[i] = x[i]**0.0", [0.0], [0.0]),
    (POWER, "y[i] = x[i]**(-1.0)", [0.0], [-INF]),
    (EXPONENT, "y[i] = 0.0**x[i]", [2.0, 0.0], [0.0, 0.0]),
    (NEGATIVE, "y[i] = (0.0 - 1.0)**x[i]", [2.0], [NAN]),
    (
        STEPS,
        "y[i] = floor(x[i]) + ceil(x[i]) + round(x[i]) + trunc(x[i])",
        [0.5, 1.0],
        [0.0, 0.0],
    ),
    (SELECT, "y[i] = select(x[i] > 0.0, log(x[i]), 0.0)", [0.0, 2.0], [0.0, 0.5]),
    (SELECT, "y[i] = select(x[i] > 0.0, 0.0, log(1.0 - x[i]))", [0.0, 1.0], [-1.0, 0.0]),
    (OUTSIDE, "y[i < 3] = x.get(2*i, outside=7.0)", [1.0, 1.0, 1.0], [1.0, 0.0, 1.0]),
]

# What is only a matter of integers; its gradient is asked for alone.
FLAT = [
    (INTEGERS, "y[i] = cast(cast(x[i], 'int32'), 'float64')"),
    (INTEGERS, "y[i] = cast(x[i] > 1.0, 'float64')"),
    (INTEGERS, "y = cast(any(x[i] > 1.0), 'float64')"),
    (INTEGERS, "y = cast(all(x[i] > 1.0), 'float64')"),
    (POSITION, "y = cast(argmax(x[i]), 'float64')"),
    (POSITION, "y = cast(argmin(x[i]), 'float64')"),
]

rows = {row for row, *_ in (*EDGES, *FLAT)}


def row(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Says that a test is one of the row ``name``."""
    rows.add(name)
    return lambda test: test


def gradient(y: ea.Tensor, x: object, **options: object) -> np.ndarray:
    """The gradient of ``y`` with respect to its input x, for a head of ones."""
    grads = ea.differentiate(y, **options)
    assert grads.head is not None
    head = np.ones([int(extent.value) for extent in grads.head.shape])
    kernel = grads.build(target="reference")
    arrays = {"x": np.array(x), grads.head.name: head}
    (found,) = kernel(**{name: arrays[name] for name in kernel.inputs})
    return found


def test_every_row_of_the_table_has_a_case():
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("|")]
    cells = [line.strip("|").split("|")[:2] for line in lines[2:]]
    told = {" | ".join(cell.strip().replace("`", "") for cell in pair).strip() for pair in cells}
    assert told == rows


@pytest.mark.parametrize(
    ("program", "x", "expected"),
    [edge[1:] for edge in EDGES],
    ids=[f"{e[1]} at {e[2]}" for e in EDGES],
)
def test_gradient_at_an_edge(program, x, expected):
    np.testing.assert_array_equal(gradient(ea.op(program, x=((len(x),), "float64")), x), expected)


@pytest.mark.parametrize("program", [program for _, program in FLAT])
def test_gradient_only_through_integers_is_refused_unless_zero_is_allowed(program):
    y = ea.op(program, x=((2,), "float64"))
    with pytest.raises(NotDifferentiableError):
        ea.differentiate(y)
    np.testing.assert_array_equal(gradient(y, [1.5, 2.5], allow_zero=True), [0.0, 0.0])


@row(TIES)
@pytest.mark.parametrize("name", ["max", "min"])
def test_first_of_a_tie_is_first_in_row_major_order(name):
    x = ea.placeholder((2, 2), name="x", dtype="float64")
    other = -9.0 if name == "max" else 9.0
    found = gradient(ea.op(f"y = {name}(x[i,j])", x=x), [[other, 3.0], [3.0, 3.0]])
    np.testing.assert_array_equal(found, [[0.0, 1.0], [0.0, 0.0]])


@row(TIES)
@pytest.mark.parametrize("name", ["max", "min"])
def test_ties_can_be_split(name):
    y = ea.op(f"y = {name}(x[i])", x=((3,), "float64"))
    other = 1.0 if name == "max" else 5.0
    found = gradient(y, [other, 3.0, 3.0], ties="split")
    np.testing.assert_allclose(found, [0.0, 0.5, 0.5])


@row(NOWHERE)
@pytest.mark.parametrize("ties", ["first", "split"])
def test_maximum_over_no_point_passes_nothing_on(ties):
    y = ea.op("y[i<2] = max(x[k], where=k < i)", x=((2,), "float64"))
    np.testing.assert_array_equal(gradient(y, [5.0, 7.0], ties=ties), [1.0, 0.0])


@row(EXPONENT)
def test_power_of_zero_does_not_move_with_its_exponent():
    y = ea.op("y[i] = b[i]**x[i]", b=((2,), "float64"), x=((2,), "float64"))
    arrays = {"b": np.zeros(2), "x": np.array([2.0, 0.0]), "head": np.ones(2)}
    (found,) = ea.evaluate(list(ea.differentiate(y, [y.body.args[1].tensor])), arrays)
    np.testing.assert_array_equal(found, [0.0, 0.0])


@row(ORIGIN)
def test_atan2_at_the_origin_has_no_slope():
    y = ea.op("y = atan2(a, b)", a=((), "float64"), b=((), "float64"))
    kernel = ea.differentiate(y).build(target="reference")
    a_bar, b_bar = kernel(**{name: np.zeros(()) for name in ("a", "b")}, head=np.ones(()))
    assert np.isnan(a_bar)
    assert np.isnan(b_bar)


@row(RELU)
def test_relu_at_zero_has_slope_0():
    x = ea.placeholder((2,), name="x", dtype="float64")
    np.testing.assert_array_equal(gradient(library.relu(x), [0.0, 1.0]), [0.0, 1.0])


@row(UNUSED)
def test_input_that_is_not_used_gets_zeros():
    x, z = (ea.placeholder((2,), name=name, dtype="float64") for name in "xz")
    y = ea.compute((2,), lambda i: z[i] * 2.0, name="y")
    (x_bar,) = ea.evaluate(list(ea.differentiate(y, [x])), {})
    np.testing.assert_array_equal(x_bar, [0.0, 0.0])


@pytest.mark.parametrize(
    ("program", "x"), [("y[i] = 0.0 / x[i]", 0.0), ("y[i] = x[i] - x[i]", INF)]
)
def test_rules_hold_over_the_reals(program, x):
    kernel = ea.build([ea.op(program, x=((1,), "float64"))], target="reference")
    (found,) = kernel(**{name: np.array([x]) for name in kernel.inputs})
    np.testing.assert_array_equal(found, [0.0])
