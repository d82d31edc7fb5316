"""Values that are stored anyway are read where a part equals one, and sums that leave a factor."""

from __future__ import annotations

import numpy as np

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.extract.known import equations, is_definition, near
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Placeholder, Read, Stage, Tensor
from eqsatad.terms.walk import program, sources

E = ea.placeholder((4, 5), "e", "float64")
S = ea.placeholder((4,), "s", "float64")
Y = ea.op("y[i, j] = e[i, j] * s[i]", e=E, s=S)


def test_small_arithmetic_is_a_definition() -> None:
    assert is_definition(Y)
    assert not is_definition(E)
    assert not is_definition(ea.op("t[i] = sum(e[i, j])", e=E))
    assert not is_definition(ea.op("t[i, j] = -e[i, j]", e=E))


def test_definitions_are_near_what_reads_their_sources() -> None:
    both = ea.op("t[i, j] = s[i] + e[i, j]", e=E, s=S)
    one = ea.op("t[i, j] = 2 * e[i, j]", e=E)
    assert near(both, {Y: Y}) == {Y: Y}
    assert near(one, {Y: Y}) == {}


def test_equations_stand_at_reads_that_are_there() -> None:
    body = ea.op("t[j, i] = s[i] * e[i, j] + e[i, 0]", e=E, s=S)
    j, i = body.axes
    zero = ea.const(0)
    holder = Placeholder("y", Y.shape, "float64")
    assert dict(equations(body.body, [Y])) == {
        Read(holder, (i, j)): E[i, j] * S[i],
        Read(holder, (i, zero)): E[i, zero] * S[i],
    }


def test_equations_need_reads_that_stay_in_range() -> None:
    shifted = ea.op("t[i < 6, j] = e.get(i - 1, j) * s.get(i - 1)", e=E, s=S)
    assert not list(equations(shifted.body, [Y]))


def test_equations_need_elements_that_are_stored() -> None:
    short = ea.op("y[i < 2, j] = e[i, j] * s[i]", e=E, s=S)
    body = ea.op("t[i < 2, j] = e[i, j] * s[i] + e[3, j] * s[3]", e=E, s=S)
    i, j = body.axes
    holder = Placeholder("y", short.shape, "float64")
    assert dict(equations(body.body, [short])) == {Read(holder, (i, j)): E[i, j] * S[i]}


def reads_of(tensors: list[Tensor]) -> set[str]:
    """The names of what the stages of a program read."""
    return {
        source.name
        for tensor in program(tensors)
        if isinstance(tensor, Stage)
        for source in sources(tensor)
    }


def test_softmax_gradient_reads_the_softmax() -> None:
    x = ea.placeholder((3, 4), "x", "float64")
    y = nn.softmax(x, name="y")
    raw = ea.differentiate(y, [x], simplify=False)
    output, gradient = ea.simplified([y, *raw], cost="count").outputs
    assert "y" in reads_of([gradient])
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(3, 4)), "head": rng.normal(size=(3, 4))}
    value, found = evaluate([output, gradient], arrays)
    inner = (arrays["head"] * value).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, value * (arrays["head"] - inner), rtol=1e-12, atol=1e-15)


def test_a_factor_of_rows_goes_into_the_sum_of_the_stage_below() -> None:
    total = ea.op("t[i] = sum(e[i, j] * h[i, j])", e=E, h=(ea.placeholder((4, 5), "h", "float64")))
    scaled = ea.op("u[i] = t[i] * s[i]", t=total, s=S)
    z = ea.op("z[i, j] = e[i, j] * s[i] - e[i, j] * s[i] * u[i]", e=E, s=S, u=scaled)
    found = ea.simplified([Y, z], cost="count").outputs
    count = ea.report(found).total.multiplications
    # y, the sum of h * y, and y times what is left.
    assert count == 3 * 20
