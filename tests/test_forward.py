"""Forward mode, Jacobians and second derivatives: options, shapes, structure and errors.

That the numbers are right on a table of operators is in `tests.test_higher_order`.
"""

from __future__ import annotations

import numpy as np
import pytest

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.errors import DtypeError, NotDifferentiableError, ShapeError, TermError
from eqsatad.terms.nodes import Tensor

X = ea.placeholder((4,), name="x", dtype="float64")
PLACES = ea.placeholder((4,), name="places", dtype="int32")


def tensor(name: str, *shape: int, dtype: str = "float64") -> Tensor:
    return ea.placeholder(shape, name=name, dtype=dtype)


def squared(t: Tensor) -> Tensor:
    """The sum of the squares of ``t``."""
    axes = tuple(ea.reduce_axis((0, extent), name="q") for extent in t.shape)
    square = t[axes] * t[axes]
    return ea.compute((), lambda: ea.sum(square, axis=axes) if axes else square, name="squared")


def spread() -> Tensor:
    """A scatter: squares added up where ``places`` says."""
    return ea.scatter((3,), (4,), lambda i: (PLACES[i], X[i] * X[i]), name="spread")


PREFIXED = {
    "elementwise": lambda: ea.op("y[i] = tanh(x[i])", x=X),
    "reduction": lambda: ea.op("y = sum(sin(x[k]) * x[k])", x=X),
    "maximum": lambda: ea.op("y = max(x[k])", x=X),
    "scatter": spread,
}


@pytest.mark.parametrize("name", PREFIXED)
def test_several_tangents_at_once_are_in_front(name):
    y, many = PREFIXED[name](), tensor("many", 5, 4)
    random = np.random.default_rng(0)
    arrays = {"x": random.normal(size=4), "places": np.array([0, 2, 0, 1], "int32")}
    ways = random.normal(size=(5, 4))
    (found,) = ea.evaluate(list(ea.jvp(y, X, many)), arrays | {"many": ways})
    one = ea.jvp(y, X)
    for n, way in enumerate(ways):
        (expected,) = ea.evaluate(list(one), arrays | {one.tangents[0].name: way})
        np.testing.assert_allclose(found[n], expected, rtol=1e-12, atol=1e-12)


def test_tangents_that_are_the_identity_give_the_jacobian():
    y = ea.op("y[i] = x[i] * x[(i+1)%4]", x=X)
    identity = ea.compute((4, 4), lambda p, i: ea.select(p.equal(i), ea.const(1.0, "float64"), 0.0))
    values = np.random.default_rng(1).normal(size=4)
    (found,) = ea.evaluate(list(ea.jvp(y, X, identity)), {"x": values})
    (expected,) = ea.evaluate(list(ea.jacobian(y, X)), {"x": values})
    np.testing.assert_allclose(found.T, expected, rtol=1e-12, atol=1e-12)


def test_input_that_is_computed_moves_with_its_source_and_by_its_own_tangent():
    h = ea.op("h[i] = 2 * x[i]", x=X)
    y = ea.op("y[i] = 3 * h[i]", h=h)
    pushed = ea.jvp(y, [X, h])
    values = {
        tangent.name: np.full(4, n) for n, tangent in zip((1.0, 10.0), pushed.tangents, strict=True)
    }
    (found,) = ea.evaluate(list(pushed), {"x": np.zeros(4)} | values)
    np.testing.assert_allclose(found, 3 * (2 * 1 + 10))


def test_outputs_are_given_in_order():
    outputs = [ea.op("a[i] = 2 * x[i]", x=X), ea.op("b[i] = x[3-i]", x=X)]
    pushed = ea.jvp(outputs, X)
    way = np.arange(4.0)
    first, second = ea.evaluate(list(pushed), {pushed.tangents[0].name: way})
    np.testing.assert_allclose(first, 2 * way)
    np.testing.assert_allclose(second, way[::-1])


@pytest.mark.parametrize(("ties", "expected"), [("first", 1.0), ("split", 2.0)])
def test_tangent_of_a_maximum_at_a_tie(ties, expected):
    pushed = ea.jvp(ea.op("y = max(x[k])", x=X), X, ties=ties)
    arrays = {"x": np.array([2.0, 0.0, 2.0, 1.0]), "x_dot": np.array([1.0, 7.0, 3.0, 7.0])}
    assert ea.evaluate(list(pushed), arrays)[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ties", "expected"), [("first", [2.0, 0.0, 0.0, 0.0]), ("split", [2.0, 0.0, 2.0, 0.0])]
)
def test_second_derivative_of_a_squared_maximum_at_a_tie(ties, expected):
    product = ea.hvp(squared(ea.op("y = max(x[k])", x=X)), X, ties=ties)
    arrays = {"x": np.array([2.0, 0.0, 2.0, 1.0]), "x_dot": np.array([1.0, 7.0, 3.0, 7.0])}
    np.testing.assert_allclose(ea.evaluate(list(product), arrays)[0], expected)


@pytest.mark.parametrize(
    ("ties", "expected"), [("first", [8.0, 0.0, 0.0, 0.0]), ("split", [4.0, 0.0, 4.0, 0.0])]
)
def test_third_derivative_along_two_tangents_at_a_tie(ties, expected):
    cube = ea.op("y = m * m * m\n", m=ea.op("m = max(x[k])", x=X))
    product = ea.hvp(cube, X, ties=ties)
    third = ea.jvp(list(product), X, ties=ties)
    names = [product.tangents[0].name, third.tangents[0].name]
    ways = dict(zip(names, (np.array([2.0, 7, 2, 7]), np.array([2.0, 7, 2, 7])), strict=True))
    found = ea.evaluate(list(third), {"x": np.array([2.0, 0.0, 2.0, 1.0])} | ways)[0]
    np.testing.assert_allclose(found, 3 * np.array(expected))


def test_single_precision_stays_single():
    x = tensor("x", 4, dtype="float32")
    y = ea.op("y[i] = exp(x[i]) * x[i]", x=x)
    scalar = squared(y)
    assert {t.dtype for r in (ea.jvp(y, x), ea.jacobian(y, x), ea.hvp(scalar, x)) for t in r} == {
        "float32"
    }


def test_symbolic_sizes():
    x = ea.placeholder((ea.size("n"),), name="x", dtype="float64")
    product = ea.hvp(squared(ea.op("y[i] = sin(x[i])", x=x)), x)
    values, way = np.linspace(0, 1, 7), np.linspace(1, 2, 7)
    (found,) = product.build("reference")(x=values, x_dot=way)
    np.testing.assert_allclose(found, 2 * np.cos(2 * values) * way, rtol=1e-12)


def test_output_that_does_not_move_has_zeros_and_a_note():
    other = tensor("other", 3)
    pushed = ea.jvp([ea.op("y[i] = 2 * x[i]", x=X)], other)
    np.testing.assert_array_equal(ea.evaluate(list(pushed), {})[0], np.zeros(4))
    assert "y depends on no input" in str(pushed.report())


def test_kernel_of_a_tangent():
    pushed = ea.jvp(ea.op("y = sum(exp(x[k]))", x=X), X)
    values, way = np.linspace(0, 1, 4), np.linspace(1, 2, 4)
    (found,) = pushed.build("cpu")(x=values, x_dot=way)
    assert found == pytest.approx((np.exp(values) * way).sum())


def calls(result: ea.Gradients) -> int:
    """Multiplications and function calls of one run."""
    return int(result.report().total.multiplications)


@pytest.mark.parametrize(
    ("text", "most"),
    [("y[i] = tanh(x[i]) + x[i]", 3 * 30), ("y[i<29] = sin(x[i]) * cos(x[i+1])", 4 * 60)],
    ids=["diagonal", "band"],
)
def test_jacobian_is_worked_out_on_its_band_only(text, most):
    x = tensor("x", 30)
    assert 0 < calls(ea.jacobian(ea.op(text, x=x), x)) <= most


def test_second_derivative_along_a_vector_takes_no_matrix():
    x, a = tensor("x", 30), tensor("a", 30, 30)
    product = ea.hvp(ea.op("h[i] = sum(a[i,k] * x[k])\ny = sum(tanh(h[i]))", x=x, a=a), x)
    # Two products with the matrix and two with its transpose are enough; a matrix of second
    # derivatives would take 30 times as many.
    assert product.report().total.multiplications <= 5 * 900


def through_integers() -> Tensor:
    return ea.op("y[i] = cast(cast(x[i], int64), float64) * x[i]", x=X)


def test_float_path_through_integers_is_an_error_that_marks_it():
    with pytest.raises(NotDifferentiableError, match=r"passes through int64"):
        ea.jvp(through_integers(), X)


def test_float_path_through_an_integer_stage_is_an_error():
    best = ea.op("p = argmax(x[k])", x=X)
    y = ea.compute((), lambda: ea.cast(best[()], "float64"), name="y")
    with pytest.raises(NotDifferentiableError, match=r"passes through int64"):
        ea.jvp(y, X)


def test_float_path_through_integers_is_zero_when_allowed():
    pushed = ea.jvp(through_integers(), X, allow_zero=True)
    arrays = {"x": np.array([1.5, 2.5, 0.5, -1.5]), "x_dot": np.ones(4)}
    np.testing.assert_allclose(ea.evaluate(list(pushed), arrays)[0], [1.0, 2.0, 0.0, -1.0])


def test_position_that_moves_is_taken_as_it_is():
    best = ea.op("p = argmax(x[k])", x=X)
    y = ea.compute((), lambda: X[best[()]] * 2.0, name="y")
    arrays = {"x": np.array([1.0, 4.0, 2.0, 3.0]), "x_dot": np.array([0.0, 5.0, 0.0, 0.0])}
    assert ea.evaluate(list(ea.jvp(y, X)), arrays)[0] == 10.0


def test_thousand_stages():
    y: Tensor = X
    for n in range(1000):
        y = ea.compute((4,), lambda i, y=y: y[i] + X[i], name=f"h{n}")
    (found,) = ea.jvp(y, X, simplify=False)
    assert ea.evaluate([found], {"x_dot": np.ones(4)})[0].tolist() == [1001.0] * 4


MISTAKES = {
    "count": (lambda: ea.jvp(squared(X), X, []), ShapeError, "one tangent for each of the 1"),
    "shape": (lambda: ea.jvp(squared(X), X, tensor("t", 5)), ShapeError, r"\(4\) for x.*\(5\)"),
    "prefixes": (
        lambda: ea.jvp(nn.sum(nn.matmul(tensor("a", 2, 2), tensor("b", 2, 2))), *_prefixes()),
        ShapeError,
        "the same dimensions in front",
    ),
    "dtype": (
        lambda: ea.jvp(squared(X), X, tensor("t", 4, dtype="float32")),
        DtypeError,
        "tangent of float64.*float32",
    ),
    "integer-input": (lambda: ea.jvp(spread(), PLACES), DtypeError, "places.*of int32"),
    "integer-output": (
        lambda: ea.jvp(ea.op("p = argmax(x[k])", x=X), X),
        DtypeError,
        "p .*of int64",
    ),
    "ties": (lambda: ea.jvp(squared(X), X, ties="last"), TermError, "first, split"),
    "not-a-scalar": (
        lambda: ea.hvp(ea.op("y[i] = x[i]**2", x=X), X),
        ShapeError,
        "expected a scalar.*Add its elements up",
    ),
}


def _prefixes() -> tuple[list[Tensor], list[Tensor]]:
    inputs = [tensor("a", 2, 2), tensor("b", 2, 2)]
    return inputs, [tensor("s", 3, 2, 2), tensor("t", 4, 2, 2)]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_named(mistake):
    make, error, message = MISTAKES[mistake]
    with pytest.raises(error, match=f"(?s){message}"):
        make()


def test_gradient_of_a_position_is_an_error():
    with pytest.raises(DtypeError, match=r"p .*of int64"):
        ea.differentiate(ea.op("p = argmax(x[k])", x=X), [X])


def test_gradient_of_a_gradient_through_a_scatter():
    total = squared(spread())
    (slope,) = ea.differentiate(total, [X], "identity")
    (second,) = ea.jacobian(slope, X)
    places, values = np.array([0, 2, 0, 1], "int32"), np.array([1.0, 2.0, 3.0, 4.0])
    same = places[:, None] == places
    sums = np.array([10.0, 16.0, 4.0])
    expected = 8 * np.outer(values, values) * same + np.diag(4 * sums[places])
    (found,) = ea.evaluate([second], {"x": values, "places": places})
    np.testing.assert_allclose(found, expected)


KERNELS = {
    "tanh": "y = sum(tanh(x[k]) * x[k])",
    "maximum": "y = max(sin(x[k]))**2",
    "product": "y = prod(x[k])",
    "ratio": "y = sum(exp(x[k]) * x[k]) / sum(exp(x[k]))",
}


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_second_derivatives(name, target):
    y = ea.op(KERNELS[name], x=X)
    product = ea.hvp(y, X)
    matrix = ea.jacobian(ea.differentiate(y, [X], "identity")[0], X)
    values, way = np.array([0.3, -0.7, 1.1, 0.4]), np.array([1.0, -2.0, 0.5, 3.0])
    (along,) = product.build(target)(**{"x": values, product.tangents[0].name: way})
    (whole,) = matrix.build(target)(x=values)
    np.testing.assert_allclose(whole @ way, along, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(whole, whole.T, rtol=1e-9, atol=1e-12)
    (expected,) = ea.evaluate(list(product), {"x": values, product.tangents[0].name: way})
    np.testing.assert_allclose(along, expected, rtol=1e-9, atol=1e-12)
