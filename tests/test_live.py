"""What is live of a stage: temporaries become as long as they are read, empty sums cost nothing."""

from __future__ import annotations

import numpy as np
import pytest

import eqsatad as ea
from eqsatad.counting import counted
from eqsatad.extract.live import live
from eqsatad.loops.lower import lower
from eqsatad.rules.catalog import load
from eqsatad.rules.engine import Engine
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Expr, Stage, Tensor
from eqsatad.terms.presburger import span
from eqsatad.terms.show import show
from eqsatad.terms.walk import constant, program

SIMPLIFY = Engine.of(load()).simplify
X = ea.placeholder((12,), name="x", dtype="float64")
SQUARES = ea.compute((12,), lambda i: X[i] * X[i], name="squares")


def at_an_end() -> Stage:
    return ea.compute((5,), lambda i: SQUARES[i + 3] + 1.0, name="y")


def on_a_grid() -> Stage:
    return ea.compute((4,), lambda i: SQUARES[3 * i + 1], name="y")


def under_a_condition() -> Stage:
    return ea.compute((12,), lambda i: ea.select(i < 7, SQUARES[i], 0.0), name="y")


def in_a_sum() -> Stage:
    k = ea.reduce_axis((0, 3), name="k")
    return ea.compute((3,), lambda i: ea.sum(SQUARES[2 * i + 2 * k + 2], axis=k), name="y")


def twice() -> Stage:
    return ea.compute((3,), lambda i: SQUARES[4 * i] + SQUARES[2 * i + 2], name="y")


def everywhere() -> Stage:
    return ea.compute((12,), lambda i: SQUARES[11 - i] + 1.0, name="y")


def by_data() -> Stage:
    at = ea.placeholder((5,), name="at", dtype="int64")
    return ea.compute((5,), lambda i: SQUARES[ea.cast(at[i], "index")], name="y")


def running() -> Stage:
    k = ea.reduce_axis((0, 12), name="k")
    sums = ea.compute((12,), lambda i: ea.sum(X[k], axis=k, where=k <= i), name="squares")
    return ea.compute((4,), lambda i: sums[i + 8], name="y")


KEPT = [
    (at_an_end, 5),
    (on_a_grid, 4),
    (under_a_condition, 7),
    (in_a_sum, 5),
    (twice, 5),
    (everywhere, 12),
    (by_data, 12),
    (running, 12),
]


def values(outputs: list[Tensor]) -> np.ndarray:
    given = {"x": np.arange(1.0, 13.0), "at": np.array([0, 11, 3, 3, 7])}
    named = {t.name for t in program(outputs)}
    (found,) = evaluate(outputs, {name: a for name, a in given.items() if name in named})
    return found


@pytest.mark.parametrize(("make", "length"), KEPT, ids=[make.__name__ for make, _ in KEPT])
def test_temporary_is_as_long_as_it_is_read(make, length: int) -> None:
    output = make()
    found = live([output], SIMPLIFY)
    (temporary,) = (t for t in program(found) if isinstance(t, Stage) and t.name == "squares")
    assert constant(temporary.shape[0]) == length
    np.testing.assert_array_equal(values(found), values([output]))


def test_what_is_read_of_a_temporary_decides_about_those_below() -> None:
    y = ea.compute((12,), lambda i: SQUARES[i] + X[i], name="both")
    output = ea.compute((3,), lambda i: y[i + 4] * 2.0, name="y")
    found = live([output], SIMPLIFY)
    assert [constant(t.shape[0]) for t in program(found) if isinstance(t, Stage)] == [3, 3, 3]
    np.testing.assert_array_equal(values(found), values([output]))


def test_outputs_keep_their_shape() -> None:
    output = ea.compute((4,), lambda i: SQUARES[i], name="y")
    assert [t.shape for t in live([SQUARES, output], SIMPLIFY)] == [SQUARES.shape, output.shape]


def windows(where) -> Stage:
    h = ea.placeholder((3,), name="h", dtype="float64")
    o = ea.reduce_axis((0, 3), name="o")
    return ea.compute((12,), lambda i: X[i] * ea.sum(h[o], axis=o, where=where(i, o)), name="y")


@pytest.mark.parametrize(
    ("where", "products"),
    [
        (lambda i, o: ea.all_of(i - 4 * o >= 1, i - 4 * o <= 2), 10),
        (lambda i, o: ea.all_of(i - 3 * o >= 2, i - 3 * o <= 4), 9),
        (lambda i, o: i - 3 * o >= 0, 12),
    ],
    ids=["with gaps inside", "at both ends", "nowhere empty"],
)
def test_product_with_an_empty_sum_is_not_made(where, products: int) -> None:
    output = windows(where)
    found = live([output], SIMPLIFY)
    total = counted(lower(found, simplify=SIMPLIFY), {})[0].total
    assert total.multiplications == products
    arrays = {"x": np.arange(12.0) + 1, "h": np.array([2.0, 3.0, 5.0])}
    np.testing.assert_array_equal(evaluate(found, arrays)[0], evaluate([output], arrays)[0])


def test_empty_ends_are_conditions_of_the_product() -> None:
    (found,) = live([windows(lambda i, o: ea.all_of(i - 3 * o >= 2, i - 3 * o <= 4))], SIMPLIFY)
    assert isinstance(found, Stage)
    assert show(found.body).startswith("select(i >= 2 and i <= 10, ")


def test_span_is_exact_under_conditions() -> None:
    i, j = ea.compute((9, 5), lambda i, j: X[i] + j, name="t").axes  # axes of 9 and 5
    both: Expr = 2 * i + 3 * j
    assert span(both) == (0, 28)
    assert span(both, (i >= 4, i + j <= 9)) == (8, 22)
    assert span(both, (i >= 9,)) == (None, None)
