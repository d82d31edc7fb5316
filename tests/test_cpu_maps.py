"""Stores without sums: short rows under a mask, and images that lie across; see `maps`, `turns`."""

import numpy as np
import pytest

import eqsatad as ea
from benchmarks.kernel_cases import max_pool
from eqsatad.backends import build
from eqsatad.backends.blocks import groups
from eqsatad.backends.cpu.runtime.machine import host
from eqsatad.backends.cpu.tiles.maps import mapped
from eqsatad.backends.cpu.tiles.turns import turn
from eqsatad.loops.lower import lower
from tests.pages import CLOSED, between_pages

WIDE = pytest.mark.skipif(host().vector != 64, reason="rows are joined for vectors of 64 bytes")
# Of windows side by side: widths of an image, windows, and zeros around it.
POOLS = [(15, 3, 0), (14, 2, 1), (12, 2, 0), (9, 3, 0), (8, 4, 2)]


def pool(width, kernel, pad):
    """The gradient of max pooling, whose head has infinities and NaN."""
    problem = max_pool((2, 3, 3 * kernel + 1, width), kernel=kernel, stride=kernel, pad=pad)
    problem.arrays["H"][..., 0, 0], problem.arrays["H"][..., -1, -1] = np.inf, np.nan
    return problem


def inputs(kernel, problem):
    return {name: problem.arrays[name] for name in kernel.inputs}


@pytest.mark.parametrize(("width", "kernel", "pad"), POOLS)
def test_short_rows_are_right(width, kernel, pad):
    problem = pool(width, kernel, pad)
    expected = problem.ours.build("reference")
    found = problem.ours.build("cpu")
    np.testing.assert_array_equal(
        found(**inputs(found, problem))[0], expected(**inputs(expected, problem))[0]
    )


@WIDE
@pytest.mark.parametrize(("width", "kernel", "pad"), POOLS[:2])
def test_short_rows_are_vectors(width, kernel, pad):
    steps = pool(width, kernel, pad).ours.build("cpu").report().steps
    assert any(step.kind == "map" and "16 lanes" in step.run for step in steps)


@WIDE
@pytest.mark.parametrize(("extent", "lanes"), [(7, 0), (8, 16), (13, 16), (16, 16)])
def test_row_is_a_vector_from_half_of_one_on(extent, lanes):
    """Rows of a part of an image are not as far apart as those that they are copied to."""
    x = ea.placeholder((5, extent + 3), name="x")
    part = ea.compute((5, extent), lambda i, j: x[i, j + 1], name="part")
    (step,) = groups(lower([part]))
    tile = mapped(step[0], 64)
    assert (tile.lanes if tile else 0) == lanes


@CLOSED
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(("width", "kernel", "pad"), POOLS)
def test_nothing_beyond_short_rows_is_touched(width, kernel, pad, at_end):
    problem = pool(width, kernel, pad)
    found = problem.ours.build("cpu")
    arrays = {name: between_pages(each, at_end) for name, each in inputs(found, problem).items()}
    out = between_pages(np.empty_like(problem.arrays["X"]), at_end)
    found(**arrays, out=[out])
    np.testing.assert_array_equal(out, problem.ours.build("reference")(**arrays)[0])


def across(rows, columns, dtype):
    """A map of an image that lies across, of numbers by row and by column, and of a constant."""
    x = ea.placeholder((columns, rows), name="x", dtype=dtype)
    by_row, by_column = (
        ea.placeholder((extent,), name=name, dtype=dtype)
        for extent, name in ((rows, "u"), (columns, "v"))
    )
    return ea.compute(
        (rows, columns), lambda i, j: x[j, i] * by_row[i] + 2.0 * (by_column[j] - x[j, i]), name="y"
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(33, 47), (16, 16), (5, 100), (100, 5), (4, 4), (3, 40)])
def test_what_is_made_of_an_image_that_lies_across_is_right(shape, dtype):
    program = lower([across(*shape, dtype)])
    rng = np.random.default_rng(shape[0])
    arrays = [
        rng.standard_normal([extent.value for extent in tensor.shape]).astype(dtype)
        for tensor in program.inputs
    ]
    arrays[0][..., 0], arrays[-1][..., -1] = np.inf, np.nan
    expected = build(program, "reference")(*arrays)[0]
    tolerance = 1e-5 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(
        build(program, "cpu")(*arrays)[0], expected, rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize(("body", "turned"), [
    (lambda x, u, i, j: 2.0 * x[j, i], True),
    (lambda x, u, i, j: x[j, i] * u[j] - u[i], True),
    (lambda x, u, i, j: x[j, i] * x[i, j], False),
    (lambda x, u, i, j: u[j] * u[i], False),
])  # fmt: skip
def test_vectors_are_turned_where_all_of_them_lie_across(body, turned):
    x, u = ea.placeholder((40, 40), name="x"), ea.placeholder((40,), name="u")
    y = ea.compute((40, 40), lambda i, j: body(x, u, i, j), name="y")
    (step,) = groups(lower([y]))
    assert (turn(step[0], 64) is not None) == turned
