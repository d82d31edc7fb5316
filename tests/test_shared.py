"""Sums that several stages have in common are worked out once, where that is cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.extract.cost import COUNT
from eqsatad.extract.report import Cost
from eqsatad.extract.shared import Users, common
from eqsatad.extract.swap import independent, swapped
from eqsatad.rules.catalog import load
from eqsatad.rules.engine import Engine
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Placeholder, Reduce, Stage, Tensor
from eqsatad.terms.walk import program

RESTRICT = Engine.of(load()).restrict

H = ea.placeholder((20, 30), "h", "float64")
A = ea.placeholder((30,), "a", "float64")
X = ea.placeholder((4, 30), "x", "float64")
FIRST = ea.op("y[g, i] = sum(h[f, i] * x[g, i], f)", h=H, x=X)
SECOND = ea.op("z[i] = sum(h[f, i] * a[i])", h=H, a=A)
WINDOWS = ea.op("w[i < 30] = sum(h.get(f, i - u + 1) * a[3], f, u < 3)", h=H, a=A)
MOVED = ea.op("m = sum(h[f, o] * x.get(g, o + u - 1), u < 3)", h=H, x=X)


def values(outputs: Sequence[Tensor]) -> list[NDArray[np.float64]]:
    """What ``outputs`` hold for the same arrays, whatever they read."""
    rng = np.random.default_rng(0)
    arrays = {tensor.name: rng.uniform(-1, 1, shape) for tensor, shape in SHAPES.items()}
    read = {tensor.name for tensor in program(outputs) if isinstance(tensor, Placeholder)}
    return evaluate(list(outputs), {name: arrays[name] for name in arrays if name in read})


SHAPES = {H: (20, 30), A: (30,), X: (4, 30)}


def restricted(*stages: Stage) -> list[Stage]:
    return [RESTRICT(stage) for stage in stages]


def found(*stages: Stage) -> list[Users]:
    return list(common(restricted(*stages), RESTRICT))


def total(outputs: Sequence[Tensor]) -> Cost:
    return ea.report(outputs).total


def test_the_sum_of_one_factor_is_common() -> None:
    (users,) = found(FIRST, SECOND)
    cores = list(users.values())
    assert [core.stage.name for core in cores] == ["y", "z"]
    assert all(isinstance(core.term, Reduce) and len(core.axes) == 1 for core in cores)
    assert cores[0].part.body is cores[1].part.body


def test_sums_of_other_elements_are_not() -> None:
    other = ea.op("z[i] = sum(h[2*f, i] * a[i])", h=H, a=A)
    assert not found(FIRST, other)
    assert not found(FIRST)


def test_a_sum_is_seen_from_each_of_its_factors() -> None:
    """The windows over h in one stage are what x is multiplied by in the other."""
    (users,) = found(WINDOWS, MOVED)
    assert [stage.name for stage in users] == ["w", "m"]


def test_stages_that_read_a_common_sum_mean_the_same() -> None:
    for stages in ((FIRST, SECOND), (WINDOWS, MOVED)):
        (users,) = found(*stages)
        stored = next(iter(users.values())).stored("s")
        after = [core.reading(stored) for core in users.values()]
        assert all(stored in program([stage]) for stage in after)
        for new, old in zip(values(after), values(stages), strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-12, atol=1e-12)


def test_positions_are_those_of_factors_that_are_read_everywhere() -> None:
    """Neither a position under a condition nor one that a sum inside binds becomes an axis."""
    windows = ea.op("w[i < 30] = sum(h.get(f, i - u) * a[3], f, u < 3)", h=H, a=A)
    under = ea.op(
        "m = sum(h[f, o] * select(o + u < 30, x.get(0, o + u), 5.0), f, o, u < 3)", h=H, x=X
    )
    inside = ea.op("m = sum(h[f, o] * sum(x[0, o + v], v < 3), f, o < 28)", h=H, x=X)
    for moved in (under, inside):
        expected = values([windows, moved])
        for new, old in zip(values(ea.simplified([windows, moved]).outputs), expected, strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-12, atol=1e-12)
        for users in found(windows, moved):
            stored = next(iter(users.values())).stored("s")
            after = [core.reading(stored) for core in users.values()]
            for new, old in zip(values(after), values(list(users)), strict=True):
                np.testing.assert_allclose(new, old, rtol=1e-12, atol=1e-12)


def test_a_condition_that_the_sum_does_not_mention_stays_outside() -> None:
    some = ea.op("z[i] = sum(h[f, i] * a[i], where=i > 3)", h=H, a=A)
    (users,) = found(FIRST, some)
    (core,) = (core for stage, core in users.items() if stage.name == "z")
    after = core.reading(core.stored("s"))
    np.testing.assert_allclose(*values([after, some]), rtol=1e-12)


def test_a_common_sum_is_added_up_once() -> None:
    outputs = ea.simplified([FIRST, SECOND], cost="count").outputs
    assert total(outputs).additions == 20 * 30
    assert total(outputs).multiplications == 4 * 30 + 30
    for new, old in zip(values(outputs), values([FIRST, SECOND]), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-12)


def test_two_gradients_share_the_windows_of_the_head() -> None:
    x, w = ea.placeholder((1, 2, 4, 4), "x", "float64"), ea.placeholder((1,), "w", "float64")
    y = nn.conv2d(x, nn.broadcast_to(w, (5, 2, 3, 3)), pad=1)
    raw = ea.differentiate(y, [x, w], simplify=False)
    shared = ea.differentiate(y, [x, w], cost="count")
    # The head over its maps, windows of that, x times those, and w times those.
    assert total(shared).iterations == 5 * 16 + 100 + 32 + 32
    # Products are all that counts: each gradient has windows of its own, over sixteen products.
    apart = ea.differentiate(y, [x, w], cost=replace(COUNT, add=1e-4, store=1e-7))
    assert total(apart).multiplications == 16 + 16
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.normal(size=(1, 2, 4, 4)),
        "w": rng.normal(size=1),
        "head": rng.normal(size=(1, 5, 4, 4)),
    }
    expected = evaluate(list(raw), arrays)
    for gradients in (shared, apart):
        for new, old in zip(evaluate(list(gradients), arrays), expected, strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-11, atol=1e-11)


FACTORS = (
    lambda i: 2.5,
    lambda i: A[3],
    lambda i: X[1, i],
    lambda i: ea.exp(X[2, i]),
    lambda i: ea.select(i > 1, A[i], 0.5),
)


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 2]),
    st.integers(0, 2),
    st.sampled_from(FACTORS),
    st.sampled_from(FACTORS),
)
def test_values_stay_the_same(width, stride, step, before, first, second) -> None:
    """Windows over h in one stage, and h times windows over x in another, with other factors."""
    f, u, g = (ea.reduce_axis((0, n), name) for n, name in zip((20, width, 4), "fug", strict=True))
    o = ea.reduce_axis((0, 30), "o")

    def windows(i):
        at = i - step * u + before
        return ea.sum(H[f, at] * first(i), axis=(f, u), where=(at >= 0) & (at < 30))

    at = stride * o + step * u - before
    moved = ea.sum(H[f, o] * X[g, at] * second(o), axis=(f, u, o, g), where=(at >= 0) & (at < 30))
    stages = [ea.compute((30,), windows, "w"), ea.compute((), lambda: moved, "m")]
    expected = dict(zip("wm", values(stages), strict=True))
    for users in found(*stages):
        stored = next(iter(users.values())).stored("s")
        for core in users.values():
            (result,) = values([core.reading(stored)])
            np.testing.assert_allclose(result, expected[core.stage.name], rtol=1e-9, atol=1e-9)


def test_a_stage_is_swapped_under_those_that_read_it() -> None:
    t, u = ea.op("t[i] = 2 * a[i]", a=A), ea.op("u[i] = a[i] + a[i]", a=A)
    (after,) = swapped([ea.op("y[i] = t[i] + a[i]", t=t, a=A)], {t: u})
    assert after is ea.op("y[i] = u[i] + a[i]", u=u, a=A)


def test_stages_are_independent_unless_one_needs_another() -> None:
    t = ea.op("t[i] = 2 * a[i]", a=A)
    assert independent([t, SECOND])
    assert not independent([t, ea.op("y[i] = exp(t[i])", t=t)])
