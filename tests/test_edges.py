"""Derivatives where there is none: the rows of docs/edge_values.md, through the whole pipeline."""

import numpy as np
import pytest

import eqsatad as ea
from eqsatad import library
from eqsatad.errors import NotDifferentiableError

NAN, INF = float("nan"), float("inf")

# Program, x, and the gradient with respect to x for a head of ones.
EDGES = [
    ("y[i] = abs(x[i])", [0.0, 2.0], [0.0, 1.0]),
    ("y[i] = sign(x[i])", [0.0, 2.0], [0.0, 0.0]),
    ("y[i] = maximum(x[i], 0.0)", [0.0], [1.0]),
    ("y[i] = maximum(0.0, x[i])", [0.0], [0.0]),
    ("y[i] = minimum(x[i], 0.0)", [0.0], [1.0]),
    ("y = max(x[i])", [1.0, 3.0, 3.0], [0.0, 1.0, 0.0]),
    ("y = min(x[i])", [1.0, 3.0, 1.0], [1.0, 0.0, 0.0]),
    ("y = prod(x[i])", [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
    ("y = prod(x[i])", [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
    ("y[i] = sqrt(x[i])", [0.0], [INF]),
    ("y[i] = rsqrt(x[i])", [0.0], [-INF]),
    ("y[i] = log(x[i])", [0.0], [INF]),
    ("y[i] = x[i]**2.0", [0.0], [0.0]),
    ("y[i] = x[i]**1.0", [0.0], [1.0]),
    ("y[i] = x[i]**0.0", [0.0], [0.0]),
    ("y[i] = x[i]**0.5", [0.0], [INF]),
    ("y[i] = 0.0**x[i]", [2.0, 0.0], [0.0, 0.0]),
    ("y[i] = (0.0 - 1.0)**x[i]", [2.0], [NAN]),
    ("y[i] = floor(x[i]) + ceil(x[i]) + round(x[i]) + trunc(x[i])", [0.5, 1.0], [0.0, 0.0]),
    ("y[i] = select(x[i] > 0.0, log(x[i]), 0.0)", [0.0, 2.0], [0.0, 0.5]),
    ("y[i < 3] = x.get(2*i, outside=7.0)", [1.0, 1.0, 1.0], [1.0, 0.0, 1.0]),
]


def gradient(y: ea.Tensor, x: list[float], **options: object) -> np.ndarray:
    """The gradient of ``y`` with respect to its input x, for a head of ones."""
    grads = ea.differentiate(y, **options)
    assert grads.head is not None
    head = np.ones([int(extent.value) for extent in grads.head.shape])
    kernel = grads.build(target="reference")
    arrays = {"x": np.array(x), grads.head.name: head}
    (found,) = kernel(**{name: arrays[name] for name in kernel.inputs})
    return found


@pytest.mark.parametrize(
    ("program", "x", "expected"), EDGES, ids=[f"{e[0]} at {e[1]}" for e in EDGES]
)
def test_gradient_at_an_edge(program, x, expected):
    np.testing.assert_array_equal(gradient(ea.op(program, x=((len(x),), "float64")), x), expected)


def test_atan2_at_the_origin_has_no_slope():
    y = ea.op("y = atan2(a, b)", a=((), "float64"), b=((), "float64"))
    kernel = ea.differentiate(y).build(target="reference")
    a_bar, b_bar = kernel(**{name: np.zeros(()) for name in ("a", "b")}, head=np.ones(()))
    assert np.isnan(a_bar)
    assert np.isnan(b_bar)


def test_relu_at_zero_has_slope_0():
    x = ea.placeholder((2,), name="x", dtype="float64")
    np.testing.assert_array_equal(gradient(library.relu(x), [0.0, 1.0]), [0.0, 1.0])


def test_ties_can_be_split():
    y = ea.op("y = max(x[i])", x=((3,), "float64"))
    np.testing.assert_allclose(gradient(y, [1.0, 3.0, 3.0], ties="split"), [0.0, 0.5, 0.5])


def test_input_that_is_not_used_gets_zeros():
    x, z = (ea.placeholder((2,), name=name, dtype="float64") for name in "xz")
    y = ea.compute((2,), lambda i: z[i] * 2.0, name="y")
    (x_bar,) = ea.evaluate(list(ea.differentiate(y, [x])), {})
    np.testing.assert_array_equal(x_bar, [0.0, 0.0])


def test_gradient_only_through_integers_is_refused_unless_zero_is_allowed():
    y = ea.op("y[i] = cast(cast(x[i], 'int32'), 'float64')", x=((2,), "float64"))
    with pytest.raises(NotDifferentiableError):
        ea.differentiate(y)
    np.testing.assert_array_equal(gradient(y, [1.5, 2.5], allow_zero=True), [0.0, 0.0])
