"""Gradients of all small convolutions visit exactly the taps that lie inside, and are right."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import eqsatad as ea
from benchmarks import kernel_peers as expert
from benchmarks.convolution_cases import CHANNELS, SIZE, Convolution, convolutions

CASES = tuple(convolutions())
CHECKED = CASES[::7]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_gradients_do_only_the_work_there_is(case: Convolution) -> None:
    output, x, w = case.build()
    total = ea.differentiate(output, [x, w], cost="count").report().total
    found = (total.multiplications, total.index_divisions, total.inner_conditions)
    assert found == (2 * case.multiplications, 0, 0)


@pytest.mark.parametrize("case", CHECKED, ids=lambda case: case.id)
def test_gradients_agree_with_numpy(case: Convolution) -> None:
    output, x, w = case.build()
    rng = np.random.default_rng(0)
    outputs = tuple(map(case.outputs, SIZE))
    filters = w.shape[0].value  # type: ignore[attr-defined]  # a literal by construction
    arrays = {
        "X": rng.normal(size=(1, CHANNELS, *SIZE)),
        "W": rng.normal(size=tuple(n.value for n in w.shape)),  # type: ignore[attr-defined]
    }
    head = rng.normal(size=(1, filters, *outputs))
    gradients = ea.differentiate(output, [x, w], cost="count")
    kernel = gradients.build(target="reference")
    known = {**arrays, gradients.head.name: head}
    found = kernel(**{name: known[name] for name in kernel.inputs})
    for ours, expected in zip(found, numpy(case, head, **arrays), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-11, atol=1e-11)


def numpy(
    case: Convolution, head: expert.Array, X: expert.Array, W: expert.Array
) -> list[expert.Array]:
    """Both gradients; a depthwise weight is a full one with zeros off the diagonal."""
    options = {"stride": case.stride, "pad": case.pad, "dilation": case.dilation}
    if not case.depthwise:
        return [*expert.conv_dx(head, X, W, **options), *expert.conv_dw(head, X, W, **options)]
    full = np.zeros((CHANNELS, CHANNELS, *W.shape[2:]))
    each = np.arange(CHANNELS)
    full[each, each] = W[:, 0]
    dx, dw = expert.conv_dx(head, X, full, **options), expert.conv_dw(head, X, full, **options)
    return [*dx, dw[0][each, each][:, None]]


@pytest.mark.parametrize("case", CHECKED, ids=lambda case: case.id)
def test_tap_formula_counts_the_pairs_inside(case: Convolution) -> None:
    for size in SIZE:
        pairs = product(range(case.outputs(size)), range(case.kernel))
        reached = [o * case.stride + k * case.dilation - case.pad for o, k in pairs]
        assert case.taps(size) == sum(0 <= position < size for position in reached)
