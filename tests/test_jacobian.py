"""Jacobians: the work they take, counted; stages stored along their bands; both directions.

That the numbers are right on a table of operators is in `tests.test_higher_order`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.extract.band import along, bands, clipped, copied
from eqsatad.extract.report import Cost
from eqsatad.rules.catalog import load
from eqsatad.rules.engine import Engine
from eqsatad.terms.linear import expression
from eqsatad.terms.nodes import Expr, Stage, Tensor
from eqsatad.terms.show import show
from tests.oracles import check_jacobian
from tests.programs import from_seed

BOUNDS = Engine.of(load()).indices.bounds


def tensor(name: str, *shape: int | Expr) -> Tensor:
    return ea.placeholder(shape, name=name, dtype="float64")


N = 30
X, W = tensor("x", N), tensor("w", 3)
IMAGE, KERNEL = tensor("image", 1, 2, 8, 8), tensor("kernel", 2, 2, 3, 3)


def text(statement: str, **tensors: Tensor) -> Tensor:
    return ea.op(statement, **tensors)


def products() -> Tensor:
    """Products of neighbours, twice."""
    return text("y[i<28] = h[i] * h[i+1]", h=text("h[i<29] = x[i] * x[i+1]", x=X))


def convolved(depth: int, stride: int = 1) -> Tensor:
    """A convolution with three weights, then tanh, ``depth`` times; without the last tanh."""
    y = text(f"h[i] = sum(x[{stride}*i+k] * w[k])", x=X, w=W)
    for n in range(1, depth):
        y = text(f"t{n}[i] = tanh(h[i])", h=y)
        y = text(f"h{n}[i] = sum(t[{stride}*i+k] * w[k])", t=y, w=W)
    return y


def chain(depth: int) -> tuple[int, int]:
    """Multiplications and temporaries of the Jacobian of ``convolved(depth)``.

    Each slope of a tanh takes a convolution, a tanh and a square. A row of the adjoint of the
    stage that is ``d`` convolutions away has 2d + 1 elements. The next one takes a product with
    the slope for each, and three products with the weights; the first row is the weights.
    """
    sizes = [N - 2 * (n + 1) for n in range(depth)]
    slopes = sum(size * (3 + 1 + 1) for size in sizes[:-1])
    rows = sizes[-1] * sum((2 * d + 1) * (1 + 3) for d in range(1, depth))
    kept = sum(2 * size for size in sizes[:-1]) - sizes[-2]
    return slopes + rows, kept + sizes[-1] * sum(2 * d + 1 for d in range(1, depth))


def squares() -> Tensor:
    """Three neighbours of an array in which each element stands twice."""
    doubled = text("u[i<60] = tanh(x[i//2]) * x[i//2]", x=X)
    return text("y[i<58] = u[i] * u[i+1] * u[i+2]", u=doubled)


def total(output: Tensor, inputs: Tensor) -> Cost:
    return ea.jacobian(output, inputs).report().total


# An output, its input, and the most multiplications (calls of functions among them) and elements
# of temporaries that its Jacobian takes.
WORK: dict[str, tuple[Callable[[], Tensor], Tensor, int, int]] = {
    # A tanh and a square for each element.
    "diagonal": (lambda: text("y[i] = tanh(x[i]) + x[i]", x=X), X, 2 * N, 0),
    # Two functions and a product for each of two diagonals.
    "band": (lambda: text("y[i<29] = sin(x[i]) * cos(x[i+1])", x=X), X, 6 * (N - 1), 0),
    # The neighbours' product, and two products for each of two paths.
    "neighbours-twice": (products, X, (N - 1) + 4 * (N - 2), N - 1),
    "convolution": (lambda: convolved(1), X, 0, 0),
    "convolution-2": (lambda: convolved(2), X, *chain(2)),
    # Three products and a tanh at 14 positions; a slope and its product with a weight for three of
    # them and each of six outputs, and three products for each of those.
    "convolution-strided": (lambda: convolved(2, 2), X, 14 * 4 + 6 * 3 * (2 + 3), 14 + 6 * 3),
    # Where two of three neighbours are one element, what they say is added up before the slope.
    "repeated": (squares, X, 440, 60 + 58 * 3),
    # A window of two by two, each with a kernel of three by three, for two by two channels.
    "pooled": (
        lambda: nn.avg_pool(nn.relu(nn.conv2d(IMAGE, KERNEL, pad=1)), 2),
        IMAGE,
        2 * 16 * 4 * 2 * 9 + 128 * 18,
        128,
    ),
}


@pytest.mark.parametrize("name", WORK)
def test_jacobian_takes_no_more_than_its_band(name: str) -> None:
    make, x, multiplications, temporaries = WORK[name]
    found = total(make(), x)
    assert found.multiplications <= multiplications
    assert found.temporaries <= temporaries


@pytest.mark.parametrize("depth", [3, 5])
def test_rows_of_adjoints_are_as_wide_as_their_paths(depth: int) -> None:
    found, (multiplications, temporaries) = total(convolved(depth), X), chain(depth)
    assert found.multiplications <= multiplications
    assert found.temporaries <= temporaries


def test_zeros_are_written_and_nothing_else() -> None:
    found, rows = total(convolved(2), X), 26 * 5
    assert found.memory - found.temporaries == 26 * N
    # One visit an element, but as many as there are terms for those that are sums.
    assert found.iterations == found.memory + 28 * (3 - 1) + 26 * 9 - rows
    assert found.comparisons == found.inner_conditions == 0


def hidden(outputs: int, inner: int, inputs: int) -> tuple[Tensor, Tensor]:
    """Two dense layers, and their input."""
    x = tensor("x", inputs)
    h = text("h[i] = tanh(sum(a[i,k] * x[k]))", a=tensor("a", inner, inputs), x=x)
    return text("y[i] = tanh(sum(b[i,k] * h[k]))", b=tensor("b", outputs, inner), h=h), x


@pytest.mark.parametrize(("outputs", "inner", "inputs"), [(40, 20, 3), (3, 20, 40)])
def test_jacobian_goes_the_cheaper_way(outputs: int, inner: int, inputs: int) -> None:
    y, x = hidden(outputs, inner, inputs)
    least = min(outputs, inputs)
    # Both values; a product through the larger side for each element of the smaller one.
    dense = inner * (inputs + outputs) + max(outputs, inputs) * least * inner
    assert total(y, x).multiplications <= dense + (outputs + inner) * (3 + 2 * least)


def test_forward_jacobian_of_two_inputs_agrees_with_the_reverse_one() -> None:
    s, z = tensor("s"), tensor("z", 3)
    y = text("y[i<9,j<2] = sin(s * cast(i, float64)) * z[j] + exp(z[j+1])", s=s, z=z)
    values = {"s": np.array(0.3), "z": np.array([0.2, -1.0, 0.7])}
    found = ea.evaluate(list(ea.jacobian(y, [s, z])), values)
    plain = ea.evaluate(list(ea.jacobian(y, [s, z], simplify=False)), values)
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_forward_jacobian_has_adjoints_by_input() -> None:
    y, x = hidden(9, 4, 2)
    found = ea.jacobian(y, x)
    block = found.adjoints[x]
    assert [int(extent.value) for extent in block.shape] == [9, 2]
    assert found.inputs == (x,)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", WORK)
def test_kernel_of_a_jacobian_agrees_with_the_chain_rule(name: str, target: str) -> None:
    make, x, _, _ = WORK[name]
    y = make()
    kernel = ea.jacobian(y, x).build(target)
    random = np.random.default_rng(0)
    given = {t: random.normal(size=s) for t, s in SHAPES.items()}
    (found,) = kernel(**{key: given[key] for key in kernel.inputs})
    (expected,) = ea.evaluate(list(ea.jacobian(y, x, simplify=False)), given)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


SHAPES = {"x": (N,), "w": (3,), "image": (1, 2, 8, 8), "kernel": (2, 2, 3, 3)}


def test_symbolic_sizes() -> None:
    x = tensor("x", ea.size("n"))
    h = ea.compute((ea.size("n") - 1,), lambda i: x[i] * x[i + 1], name="h")
    y = ea.compute((ea.size("n") - 2,), lambda i: h[i] * h[i + 1], name="y")
    found = ea.jacobian(y, x)
    assert found.report({"n": N}).total.multiplications <= (N - 1) + 4 * (N - 2)
    values = np.linspace(1, 2, N)
    (band,) = found.build("cpu")(x=values)
    (expected,) = ea.evaluate(list(ea.jacobian(products(), X)), {"x": values})
    np.testing.assert_allclose(band, expected, rtol=1e-12)


# Seed 50 scatters to positions over an axis that the guards of the summed axes mention too.
@pytest.mark.parametrize("seed", [*range(0, 24), 50])
def test_jacobian_of_a_random_program_is_that_of_the_chain_rule(seed: int) -> None:
    check_jacobian(from_seed(seed, symbolic=seed % 3 == 2))


TWO = {"a": tensor("a", 40, 40), "b": tensor("b", 40)}

# A stage, and its bands: axis, first value, number of values.
BANDS: dict[str, tuple[str, list[tuple[str, str, int]]]] = {
    "diagonal": ("y[i<40,j<40] = select(i == j, b[i], 0.0)", [("j", "i", 1)]),
    "three diagonals": (
        "y[i,j] = select(i <= j, select(j < i + 3, a[i,j], 0.0), 0.0)",
        [("j", "i", 3)],
    ),
    "two terms": (
        "y[i<40,j<40] = select(j == i, b[i], 0.0) - select(j == i + 5, b[j], 0.0)",
        [("j", "i", 6)],
    ),
    "flipped": ("y[i,j] = select(i + j == 39, a[i,j], 0.0)", [("j", "-1 * i + 39", 1)]),
    "strided": (
        "y[i<20,j<40] = select(2*i + 1 == j, b[i], 0.0)",
        [("j", "2 * i + 1", 1)],
    ),
    "strided window": (
        "y[i<19,j<40] = sum(a[k,j], where=2*i + k == j and k < 3)",
        [("j", "2 * i", 3)],
    ),
    "repeated": ("y[i<40,j<20] = select(i // 2 == j, a[i,j], 0.0)", [("j", "i // 2", 1)]),
    "a few at one place": ("y[i,j] = select(j >= 3 and j < 5, a[i,j], 0.0)", [("j", "3", 2)]),
    "triangle": ("y[i,j] = select(j <= i, a[i,j], 0.0)", []),
    "one term without": ("y[i,j] = select(i == j, b[i], 0.0) + a[i,j]", []),
    "wide": ("y[i,j] = select(i <= j and j < i + 30, a[i,j], 0.0)", []),
    "data": ("y[i,j] = select(b[i] > b[j], a[i,j], 0.0)", []),
    "nothing to leave": ("y[i,j] = a[i,j]", []),
}


def stage(statement: str) -> Stage:
    """A statement on its smallest domains."""
    names = {name: given for name, given in TWO.items() if name in statement}
    made = ea.op(statement, **names)
    assert isinstance(made, Stage)
    return Engine.of(load()).restrict(made)


@pytest.mark.parametrize("name", BANDS)
def test_band_is_found(name: str) -> None:
    statement, expected = BANDS[name]
    found = bands(stage(statement), BOUNDS)
    assert [(b.axis.name, show(expression(b.start)), b.width) for b in found] == expected


@pytest.mark.parametrize("name", BANDS)
def test_stage_along_its_band_reads_as_the_whole(name: str) -> None:
    whole = stage(BANDS[name][0])
    found = bands(whole, BOUNDS)
    own = along(whole, found)
    random = np.random.default_rng(0)
    values = {"a": random.normal(size=(40, 40)), "b": random.normal(size=40)}
    expected, stored, cut = ea.evaluate(
        [whole, copied(whole, found, own), clipped(whole, found)], values
    )
    np.testing.assert_array_equal(stored, expected)
    np.testing.assert_array_equal(cut, expected)
