"""Stencils walked row by row: vectors that are loaded once and shifted together."""

import numpy as np
import pytest

from eqsatad.backends.cpu import build, prepare
from eqsatad.backends.cpu.code.shifted import MOST, rows
from eqsatad.backends.cpu.code.source import Machine
from eqsatad.backends.cpu.rewrites import passes, streams
from eqsatad.loops.interpret import run
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import For, Store, scheduled, statements
from eqsatad.terms import builders as ea
from tests.pages import CLOSED, between_pages

SQUARE = [(u, v) for u in (-1, 0, 1) for v in (-1, 0, 1)]
STENCILS = {
    "cross": [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)],
    "square": SQUARE,
    "large square": [(u, v) for u in range(-2, 3) for v in range(-2, 3)],
    "to one side": [(0, 0), (0, 3), (1, 1), (1, 14)],
    "in two parts": [(0, -20), (0, -19), (0, 20), (0, 22)],
    "one long row": [(0, -17), (0, 0), (0, 16)],
    "rows alone": [(-1, 0), (1, 0)],
}


@pytest.fixture
def walked(monkeypatch, tmp_path):
    """Rows of any length are walked, with an empty cache, as what is patched is in no key."""
    monkeypatch.setattr(passes, "STENCIL", 1)
    monkeypatch.setattr("eqsatad.backends.cpu.rewrites.rows.LONG", 1)
    monkeypatch.setenv("EQSATAD_CACHE_DIR", str(tmp_path))


def stencil(taps, height, width, dtype="float32"):
    x = ea.placeholder((height, width), name="X", dtype=dtype)

    def body(i, j):
        parts = [(0.5 + n) * x.get(i + u, j + v) for n, (u, v) in enumerate(taps)]
        return sum(parts[1:], parts[0])

    return lower([ea.compute((height, width), body, name="Y")])


def walks(program):
    prepared = prepare(program, Machine(64, 32))
    return [nest for nest in prepared.nests if scheduled(nest.body)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape", [(7, 83), (5, 160), (6, 49), (9, 128)], ids=str)
@pytest.mark.parametrize("name", STENCILS)
@pytest.mark.parametrize("past", [False, True], ids=["in the caches", "past them"])
def test_results_are_right(name, shape, dtype, past, walked, monkeypatch):
    if past:
        monkeypatch.setattr(streams, "LARGE", 1)
        monkeypatch.setattr(passes, "APART", 1)
    program = stencil(STENCILS[name], *shape, dtype)
    x = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    (expected,) = run(program, {"X": x.astype("float64")}).outputs
    kernel = build(program)
    tolerance = {"float64": 1e-13, "float32": 1e-4, "float16": 0.5}[dtype]
    for offset in (0, 1, 7):
        room = np.full(x.size + 64, np.nan, dtype)
        out = room[offset : offset + x.size].reshape(shape)
        kernel(x, out=[out])
        np.testing.assert_allclose(out, expected, atol=tolerance, rtol=tolerance)
        assert np.isnan(room[:offset]).all()
        assert np.isnan(room[offset + x.size :]).all()


@pytest.mark.parametrize("name", ["cross", "square", "to one side", "one long row"])
def test_stencils_are_walked(name, walked):
    assert walks(stencil(STENCILS[name], 9, 150))


def test_short_rows_of_stencils_are_left_to_tiles():
    assert not walks(stencil(SQUARE, 9, 150))
    assert walks(stencil(SQUARE, 9, passes.STENCIL + 2))


@pytest.mark.parametrize(("width", "vectors"), [(160, [3, 3, 3]), (150, [2, 3, 2])])
def test_vectors_are_loaded_once_a_row(width, vectors, walked):
    """Of the rows beside, what lies between two vectors is further off if rows are no vectors."""
    (nest, *_) = walks(stencil(SQUARE, 9, width))
    loops = [each for each in statements(nest.body) if isinstance(each, For)]
    (store,) = (each for each in loops[-1].body if isinstance(each, Store))
    found = rows(loops[-1].body, loops[-1].axis, 16, store)
    assert [len(row.vectors) for row in found] == vectors
    assert sum(len(row.places) for row in found) == len(SQUARE)
    assert all(len(row.vectors) <= MOST for row in found)


@CLOSED
@pytest.mark.parametrize("shape", [(7, 83), (5, 160), (16, 64)], ids=str)
@pytest.mark.parametrize("name", STENCILS)
@pytest.mark.parametrize("at_end", [False, True])
def test_nothing_beyond_the_array_is_read(name, shape, at_end, walked):
    program = stencil(STENCILS[name], *shape)
    values = np.random.default_rng(2).standard_normal(shape).astype("float32")
    x = between_pages(values, at_end)
    (got,) = build(program)(x)
    (expected,) = run(program, {"X": x.astype("float64")}).outputs
    np.testing.assert_allclose(got, expected, atol=1e-4, rtol=1e-4)
