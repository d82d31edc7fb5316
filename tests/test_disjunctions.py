"""Disjunctions: taken apart into pieces of which exactly one holds, and the work that saves."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

import eqsatad as ea
from eqsatad.rules.conditions import MOST, pieces
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Stage, Tensor
from eqsatad.terms.ops import EQ, GE, GT, LE, LT, NE, NOT
from eqsatad.terms.walk import conjunction

N = 30
X = ea.placeholder((N,), name="x", dtype="float64")
A = ea.placeholder((N, N), name="a", dtype="float64")

i, j, k = (Axis(name, Const(n, "index")) for name, n in (("i", 5), ("j", 7), ("k", 6)))


def holds(cond: Expr) -> np.ndarray:
    """Where ``cond`` holds, over all values of i, j and k."""
    body = ea.select(cond, ea.const(1, "int64"), 0)
    (found,) = ea.evaluate([Stage("held", (i, j, k), body)], {})
    return found.astype(bool)


CONDITIONS: dict[str, tuple[list[Expr], int]] = {
    "two that exclude each other": ([(j < 2) | (j >= 5)], 2),
    "two that overlap": ([(j < 4) | (k < 3)], 2),
    "equations": ([j.equal(i) | j.equal(6 - i)], 2),
    "three": ([(j < 1) | (j > 5) | j.equal(3)], 3),
    "unequal": ([Apply(NE, (j, i))], 2),
    "unequal beside an equation": ([Apply(NE, (j, i)), k.equal(j)], 1),
    "beside an equation that says what the axis is": ([(j < 2) | (j >= 5), j.equal(i + 1)], 1),
    "beside an equation with several solutions": ([(j < 2) | (j >= 5), (j // 2).equal(i)], 2),
    "not both": ([Apply(NOT, ((j >= i) & (j < i + 2),))], 2),
    "neither": ([Apply(NOT, ((j < i) | (j > i + 2),))], 1),
    "within a conjunction": ([k >= 2, (j < 2) | (j >= 5)], 2),
    "below the larger": ([j < ea.maximum(i, 3)], 2),
    "below the smaller": ([j < ea.minimum(i, 3)], 1),
    "equal to the smaller": ([j.equal(ea.minimum(i, k))], 2),
    "equal to twice the larger": ([j.equal(2 * ea.maximum(i, k) - 1)], 2),
    "only outer axes": ([(i < 1) | (i > 3)], 1),
    "never": ([(j < 0) | (j > 6)], 0),
    "nothing": ([j < 3], 1),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_exactly_one_piece_holds_where_the_condition_does(name: str) -> None:
    conds, number = CONDITIONS[name]
    found = pieces(conds, frozenset((j, k)))
    assert len(found) == number
    exactly_one(conds, found)


def exactly_one(conds: Sequence[Expr], found: Sequence[Sequence[Expr]]) -> None:
    expected = holds(conjunction(conds))
    counted = sum((holds(conjunction(piece)).astype(int) for piece in found), np.zeros((5, 7, 6)))
    np.testing.assert_array_equal(counted, expected.astype(int))


def condition(random: Random, depth: int) -> Expr:
    """A random condition on i, j and k."""
    if depth and random.random() < 0.7:
        left, right = (condition(random, depth - 1) for _ in range(2))
        return random.choice((left | right, left & right, Apply(NOT, (left,))))
    pair = random.sample((i, j, k), 2)
    left = random.choice((1, 1, 2)) * pair[0] + random.randint(-2, 2)
    right = random.choice((pair[1], ea.minimum(*pair), ea.maximum(pair[1], 2), Const(3, "index")))
    return Apply(random.choice((EQ, NE, LT, LE, GT, GE)), (left, right))


@pytest.mark.parametrize("seed", range(60))
def test_exactly_one_piece_of_a_random_condition_holds(seed: int) -> None:
    random = Random(seed)
    conds = [condition(random, 2) for _ in range(random.randint(1, 2))]
    found = pieces(conds, frozenset((j, k)))
    assert len(found) <= MOST
    exactly_one(conds, found)


def test_condition_with_too_many_pieces_is_left_whole() -> None:
    cond = j.equal(0)
    for n in range(1, 7):
        cond = cond | (j.equal(n) & k.equal(n - 1)) | (j.equal(n) & (k > n))
    assert pieces([cond], frozenset((j, k))) == [(cond,)]


# A program, and the counts of one call of its gradient with respect to x: visits, multiplications.
# Ids say what the pieces are; every visit is one of a point that counts, or of an element.
GRADIENTS = {
    # Two equations: no sum is left.
    "k == i or k == 29 - i": ("y[i<30] = sum(x[k]*x[k], where={})", N, 2 * N),
    # 3 + 3 columns of 30, and 24 elements that are 0.
    "k < 3 or k >= 27": ("y[i<30] = sum(a[i,k]*x[k], where={})", 6 * N + 24, 6 * N),
    # Two triangles: 29 * 30 / 2 and 25 * 26 / 2.
    "k < i or k > i + 4": ("y[i<30] = sum(a[i,k]*x[k], where={})", 435 + 325, 435 + 325),
    "not (k >= i and k < i + 4)": ("y[i<30] = sum(a[i,k]*x[k], where={})", 435 + 351, 435 + 351),
    "k != i": ("y[i<30] = sum(a[i,k]*x[k], where={})", N * (N - 1), N * (N - 1)),
    # A triangle and the even columns above it.
    "k <= i or k % 2 == 0": ("y[i<30] = sum(a[i,k]*x[k], where={})", 465 + 210, 465 + 210),
    # i > k below the diagonal; k < 5 for i <= k: 435 and 15 pairs.
    "k < maximum(i, 5)": ("y[i<30] = sum(a[i,k]*x[k], where={})", 450 + 1, 450),
    # k < i and k < 5: 5 + 4 + ... for i < 6, and five for each of 24; 25 elements are 0.
    "k < minimum(i, 5)": ("y[i<30] = sum(a[i,k]*x[k], where={})", 135 + 25, 135),
}


@pytest.mark.parametrize("where", GRADIENTS)
def test_gradient_visits_the_pieces_and_nothing_else(where: str) -> None:
    program, visits, multiplications = GRADIENTS[where]
    total = ea.differentiate(made(program, where), [X]).report().total
    assert total.iterations <= visits
    assert total.multiplications <= multiplications
    assert total.comparisons == total.inner_conditions == total.index_divisions == 0


def made(program: str, where: str) -> Tensor:
    given = {"x": X} | ({"a": A} if "a[" in program else {})
    return ea.op(program.format(where), **given)


# Left whole: the condition is tested at every point, or is one of data.
WHOLE = {
    "x[k] > 0.0 or k < i": "y[i<30] = sum(a[i,k]*x[k], where={})",
    "k < 3 or i >= 27": "y[i<30] = sum(a[i,k]*x[k], where={})",
    "k == i or k == 2*i or k == 3*i or k == 4*i": "y[i<7] = sum(a[i,k]*x[k], where={})",
}


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("where", "program"),
    [*((where, program) for where, (program, _, _) in GRADIENTS.items()), *WHOLE.items()],
)
def test_gradient_under_a_disjunction_is_right(where: str, program: str, target: str) -> None:
    y = made(program, where)
    random = np.random.default_rng(0)
    given = {"x": random.normal(size=N), "a": random.normal(size=(N, N))}
    given["head"] = random.normal(size=int(y.shape[0].value))
    inputs = [X, A] if "a[" in program else [X]
    found = ea.differentiate(y, inputs)
    expected = ea.evaluate(list(ea.differentiate(y, inputs, simplify=False)), given)
    kernel = found.build(target)
    for one, other in zip(kernel(**{n: given[n] for n in kernel.inputs}), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_position_that_is_data_under_a_disjunction_is_a_scatter_still() -> None:
    places = ea.placeholder((N,), name="p", dtype="int32")
    y = ea.op("y[i<30] = sum(x[p[k]] * a[i,k], where=k < 3 or k > 20)", x=X, p=places, a=A)
    (slope,) = ea.differentiate(y, [X], cost="count")
    assert isinstance(slope, Stage)
    assert slope.scatters
