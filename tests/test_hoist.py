"""Factors without axes are multiplied in where that takes the fewest products."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsatad as ea
from eqsatad.extract.cost import COUNT
from eqsatad.extract.hoist import Hoist, factors, quotient, times
from eqsatad.terms.coerce import const
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Expr, Stage, Tensor
from eqsatad.terms.walk import program

C = ea.placeholder((1,), "c", "float64")
X = ea.placeholder((12,), "x", "float64")
Z = ea.placeholder((12,), "z", "float64")
FACTOR = C[0]
NOTHING: dict[Tensor, Tensor] = {}


def op(text: str, **others: Tensor) -> Stage:
    """A stage over those of c, x, z and ``others`` that its text reads."""
    tensors = {"c": C, "x": X, "z": Z, **others}
    return ea.op(text, **{name: t for name, t in tensors.items() if f"{name}[" in text})


def body(text: str) -> Expr:
    return op(text).body


def divided(text: str) -> Expr | None:
    return quotient(body(text), FACTOR, NOTHING).divided


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        ("y[i] = c[0] * x[i]", "y[i] = x[i]"),
        ("y[i] = x[i] * (z[i] * c[0])", "y[i] = x[i] * z[i]"),
        ("y[i] = c[0] * x[i] + z[i] * c[0]", "y[i] = x[i] + z[i]"),
        ("y[i] = -(c[0] * x[i]) - z[i] * c[0]", "y[i] = -x[i] - z[i]"),
        ("y[i] = c[0] * x[i] / z[i]", "y[i] = x[i] / z[i]"),
        ("y[i] = c[0] * x[i] * c[0]", "y[i] = x[i] * c[0]"),
        ("y[i] = select(z[i] > 0, c[0] * x[i], 0)", "y[i] = select(z[i] > 0, x[i], 0)"),
        (
            "y[i] = select(z[i] > 0, c[0] * x[i], c[0] * z[i])",
            "y[i] = select(z[i] > 0, x[i], z[i])",
        ),
    ],
)
def test_a_linear_value_is_divided(whole: str, part: str) -> None:
    assert divided(whole) is body(part)


@pytest.mark.parametrize(
    "whole",
    [
        "y[i] = c[0] * x[i] + z[i]",
        "y[i] = exp(c[0] * x[i])",
        "y[i] = x[i] / (c[0] * z[i])",
        "y[i] = select(z[i] > 0, c[0] * x[i], 1)",
        "y[i] = max(c[0] * x[i], c[0] * z[i])",
    ],
)
def test_other_values_are_not(whole: str) -> None:
    assert divided(whole) is None


def test_a_sum_is_divided_and_a_maximum_is_not() -> None:
    total = ea.op("t = sum(c[0] * x[k])", c=C, x=X).body
    assert quotient(total, FACTOR, NOTHING).divided is not None
    largest = ea.op("t = max(c[0] * x[k])", c=C, x=X).body
    assert quotient(largest, FACTOR, NOTHING).divided is None


def test_a_read_of_a_bare_tensor_gets_the_factor_back() -> None:
    stage = ea.op("y[i] = exp(z[i])", z=Z)
    found = quotient(stage.body, FACTOR, {Z: X})
    assert found.divided is None
    assert found.whole is ea.op("y[i] = exp(c[0] * x[i])", c=C, x=X).body


def test_a_product_with_one_is_the_other_factor() -> None:
    one, x = const(1, "float64"), body("y[i] = x[i]")
    assert times(one, x) is x
    assert times(x, one) is x


def test_factors_are_numbers_and_fixed_elements_of_temporaries() -> None:
    t = ea.op("t[i] = c[0] * x[i] * 0.5 * z[3]", c=C, x=X, z=Z)
    y = ea.op("y[i] = t[i] * x[7]", t=t, x=X)
    assert set(factors([y])) == {FACTOR, const(0.5, "float64"), Z[const(3)]}


def scaled(text: str = "t[i] = c[0] * x[i]") -> Stage:
    return op(text)


def bare(*outputs: Tensor) -> set[str]:
    """The names of the temporaries that leave the factor to their readers."""
    return {tensor.name for tensor in Hoist(outputs, FACTOR, COUNT).bare()}


def test_a_factor_leaves_a_temporary_for_a_smaller_reader() -> None:
    t = scaled()
    assert bare(ea.op("y = sum(t[k] * x[k])", t=t, x=X)) == {"t"}


def test_a_factor_stays_where_its_readers_are_not_smaller() -> None:
    t = scaled()
    same = ea.op("y[i] = t[i] + t[11 - i]", t=t)
    wider = ea.op("y[i, j] = t[i] + t[j]", t=t)
    assert bare(same) == set()
    assert bare(wider) == set()


def test_a_factor_stays_where_a_reader_is_not_linear() -> None:
    t = scaled()
    small = ea.op("y = sum(t[k])", t=t)
    assert bare(small) == {"t"}
    assert bare(small, ea.op("u[i] = exp(t[i])", t=t)) == set()


def test_several_temporaries_may_leave_it_together() -> None:
    """Neither alone would: the reader multiplies as often as each of them."""
    t, u = scaled(), scaled("u[i] = c[0] * exp(x[i])")
    assert bare(ea.op("y[i] = t[i] + u[11 - i]", t=t, u=u)) == {"t", "u"}


def test_a_factor_goes_as_far_as_products_get_fewer() -> None:
    t = scaled()
    window = ea.op("w[i < 4] = sum(t[3*i + k], k < 3)", t=t)
    wide = ea.op("y[i, j] = w[i] * x[j]", w=window, x=X)
    assert bare(wide) == {"t"}
    total = ea.op("y = sum(w[k] * w[k])", w=window)
    assert bare(total) == {"t", "w"}


def products(outputs: list[Tensor]) -> int:
    return ea.report(outputs).total.multiplications


def test_both_ends_of_a_vector_are_contracted_with_the_head_once() -> None:
    p = ea.op("p[n] = x[n] + x[11 - n]", x=X)
    q = ea.op("q[n] = x[n] * x[11 - n]", x=X)
    y = ea.op("y = sum(p[i] * q[i])", p=p, q=q)
    found = ea.differentiate(y, [X], cost="count")
    # q, the sum of both ends times the other end, and the head.
    assert products(list(found)) == 3 * 12


def test_numbers_of_two_stages_become_one() -> None:
    x = ea.placeholder((4, 6), "x", "float64")
    t = ea.op("t[i] = 0.25 * sum(x[i, k])", x=x)
    y = ea.op("y = 0.5 * sum(t[k])", t=t)
    z = ea.op("z[i] = 2 * exp(t[i])", t=t)
    assert products(list(ea.simplified([y], cost="count").outputs)) == 1
    kept = ea.simplified([y, z], cost="count").outputs
    arrays = {"x": np.arange(24.0).reshape(4, 6) / 24}
    for found, expected in zip(evaluate(kept, arrays), evaluate([y, z], arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


READERS = (
    "r[i] = {0}[i] + {1}[11 - i]",
    "r[i] = {0}[i] * x[i] - {1}[i]",
    "r[i] = sum({0}[k] * x[k]) * {1}[i]",
    "r[i < 12] = sum({0}[k] + {1}[k])",
    "r[i] = exp({0}[i]) + {1}[0]",
    "r[i] = select(x[i] > 0, {0}[i], -{1}[i])",
)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from(READERS), st.integers(0, 7), st.integers(0, 7)),
        min_size=1,
        max_size=5,
    ),
)
def test_values_stay_the_same(drawn: list[tuple[str, int, int]]) -> None:
    """Every program of stages that read each other means the same after its factor has moved."""
    stages: list[Tensor] = [scaled(), scaled("u[i] = x[i] * c[0]"), X]
    for number, (text, first, second) in enumerate(drawn):
        left, right = (stages[place % len(stages)] for place in (first, second))
        named = text.replace("r[", f"r{number}[").format("a", "b")
        stages.append(op(named, a=left, b=right))
    output = stages[-1]
    names = iter(range(100))
    trial = Hoist((output,), FACTOR, COUNT).results(
        lambda stage: stage, lambda stage: f"bare{next(names)}"
    )
    rng = np.random.default_rng(0)
    arrays = {"c": rng.uniform(0.5, 2, 1), "x": rng.uniform(-1, 1, 12)}
    used = {tensor.name for tensor in program([output])}
    arrays = {name: array for name, array in arrays.items() if name in used}
    np.testing.assert_allclose(
        evaluate(trial, arrays)[0], evaluate([output], arrays)[0], rtol=1e-9, atol=1e-12
    )
