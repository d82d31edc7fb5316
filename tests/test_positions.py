"""Gradients of what reads at positions that are data: as gathers, or as scatters where cheaper."""

from dataclasses import replace

import numpy as np
import pytest

import eqsatad as ea
from eqsatad.backends.cpu import prepare
from eqsatad.backends.cpu.code.source import Machine
from eqsatad.extract.cost import CPU
from eqsatad.loops.interpret import run
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import Accumulate, For, If, Store, statements
from eqsatad.rules.conditions import Conditions
from eqsatad.rules.indices import ZERO
from eqsatad.rules.scatters import Prices
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Axis, Const
from tests.test_cpu import compiled

IMAGES = (2, 3, 23, 29)


def pooled(kernel, stride, dtype="int32", pad=0, images=IMAGES):
    """Each window's element at a saved position, and the input; 0 where that is outside."""
    x = ea.placeholder(images, name="x", dtype="float64")
    shape = (*images[:2], *((side + 2 * pad - kernel) // stride + 1 for side in images[2:]))
    saved = ea.placeholder(shape, name="saved", dtype=dtype)
    u, v = (ea.reduce_axis((0, kernel), name=name) for name in "uv")

    def body(n, c, i, j):
        chosen = saved[n, c, i, j].equal(ea.cast(u * kernel + v, dtype))
        place = (n, c, i * stride + u - pad, j * stride + v - pad)
        return ea.sum(ea.select(chosen, x.get(*place), 0.0), axis=(u, v))

    return ea.compute(shape, body, "y"), x


def gradient(kernel, stride, dtype="int32", pad=0, cost=CPU, images=IMAGES):
    y, x = pooled(kernel, stride, dtype, pad, images)
    head = ea.placeholder(y.shape, name="head", dtype="float64")
    (adjoint,) = ea.differentiate(y, [x], head, cost=cost)
    return adjoint


# Models for which each addition is free, or so dear that all is tested.
SCATTER, GATHER = (replace(CPU, scatter=Prices(add=add)) for add in (0, 1e9))


def arrays(adjoint, positions):
    """Heads, and positions drawn from ``positions``."""
    rng = np.random.default_rng(5)
    kinds = {"head": lambda shape: rng.standard_normal(shape),
             "saved": lambda shape: rng.integers(*positions, shape).astype("int32")}  # fmt: skip
    program = lower([adjoint])
    shapes = {each.name: tuple(side.value for side in each.shape) for each in program.inputs}
    return {name: kinds[name](shape) for name, shape in shapes.items()}


def added(kernel, stride, head, saved, pad=0):
    """The gradient, element by element."""
    total = np.zeros((*IMAGES[:2], *(side + 2 * pad for side in IMAGES[2:])))
    for place in np.ndindex(*head.shape):
        if 0 <= saved[place] < kernel**2:
            n, c, i, j = place
            u, v = divmod(int(saved[place]), kernel)
            total[n, c, i * stride + u, j * stride + v] += head[place]
    return total[:, :, pad : pad + IMAGES[2], pad : pad + IMAGES[3]]


@pytest.mark.parametrize(
    ("kernel", "stride", "scatters"),
    [(5, 2, 1), (5, 1, 0), (3, 2, 0), (3, 1, 0), (5, 5, 1), (2, 2, 0)],
)
def test_the_cheaper_of_gather_and_scatter_is_taken(kernel, stride, scatters):
    assert len(gradient(kernel, stride).scatters) == scatters


def test_prices_decide_between_gather_and_scatter():
    assert len(gradient(3, 1, cost=SCATTER).scatters) == 1
    assert len(gradient(5, 2, cost=GATHER).scatters) == 0


def test_rows_cost_whole_vectors_of_each_phase_of_windows_that_lie_apart():
    prices = Prices(add=1, vector=16, strided=2)
    rows, row = (Axis(name, Const(extent, "index")) for name, extent in (("y", 3), ("x", 20)))
    assert prices.test((rows, row)) == 3 * 32
    assert prices.test((rows, row), apart=3) == 3 * 48 * 2


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("pad", [0, 2, 3])
@pytest.mark.parametrize(("kernel", "stride"), [(5, 2), (5, 1), (3, 2), (4, 3), (3, 3)])
@pytest.mark.parametrize("cost", [SCATTER, GATHER], ids=["scatter", "gather"])
def test_positions_outside_of_a_window_or_the_image_add_nothing(kernel, stride, dtype, pad, cost):
    adjoint = gradient(kernel, stride, dtype, pad, cost)
    given = arrays(adjoint, (-2 * kernel**2, 3 * kernel**2))
    given["saved"] = given["saved"].astype(dtype)
    expected = added(kernel, stride, **given, pad=pad)
    np.testing.assert_allclose(evaluate([adjoint], given)[0], expected, atol=1e-12)
    (found,) = ea.build([adjoint], target="cpu")(**given)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_digits_of_a_position_take_no_condition_on_quotients():
    (scatter,) = gradient(5, 2, cost=SCATTER).scatters
    assert "//" not in str(scatter.cond)


@pytest.mark.parametrize("images", [IMAGES, (2, 3, 25, 29), (2, 3, 23, 15)], ids=str)
def test_only_windows_at_the_border_are_tested_against_it(images):
    """Also where whole windows, or digits of positions, fill a row."""
    (nest,) = lower([gradient(5, 2, pad=2, cost=SCATTER, images=images)]).nests
    conditions = [
        sum(isinstance(each, If) for each in statements((part,))) for part in nest.body[1:]
    ]
    # Sides have one condition more than the inside has, corners two.
    assert sorted(conditions) == [2] + 4 * [3] + 4 * [4]
    program = prepare(lower([gradient(5, 2, pad=2, cost=SCATTER, images=images)]), Machine(64, 32))
    assert [len(nest.body) for nest in program.nests] == [1]


def test_data_that_equals_an_index_is_a_guard():
    saved = ea.placeholder((9,), name="saved", dtype="int32")
    i, k = Axis("i", Const(9, "index")), Axis("k", Const(25, "index"))
    cond = saved[i].equal(ea.cast(k, "int32"))
    found = Conditions.of([cond, k >= 3])
    assert found.opaque == (cond,)
    assert found.with_data().opaque == ()
    assert {kind for kind, _ in found.with_data().guards} == {ZERO, "atleast"}


def test_data_that_equals_what_an_index_wraps_to_stays_a_condition():
    saved = ea.placeholder((9,), name="saved", dtype="int32")
    i, k = Axis("i", Const(9, "index")), Axis("k", Const(25, "index"))
    cond = saved[i].equal(ea.cast(k * 2**30, "int32"))
    assert Conditions.of([cond]).with_data().opaque == (cond,)


def scattered(shape, indices):
    rows = ea.placeholder((4, 50), name="rows", dtype="int64")
    values = ea.placeholder((4, 50), name="values", dtype="float64")
    return ea.scatter(shape, (4, 50), lambda b, k: (indices(b, rows[b, k]), values[b, k]), "y")


def test_what_is_added_to_is_filled_image_by_image():
    program = lower([scattered((4, 30), lambda b, row: (b, row))])
    (nest,) = prepare(program, Machine(64, 32)).nests
    (loop,) = nest.body
    assert isinstance(loop, For)
    assert loop.parallel
    fill, add = loop.body
    assert [type(each) for each in statements((fill,))] == [For, Store]
    assert Accumulate in {type(each) for each in statements((add,))}


def test_a_scatter_across_images_comes_after_all_that_is_filled():
    program = lower([scattered((30, 4), lambda b, row: (row, b))])
    (nest,) = prepare(program, Machine(64, 32)).nests
    assert len(nest.body) == 2


@pytest.mark.parametrize("shape", [(4, 30), (30, 4)])
def test_filled_blocks_are_added_to_like_the_whole(shape):
    turned = shape[0] == 30
    y = scattered(shape, lambda b, row: (row, b) if turned else (b, row))
    program = lower([y])
    rng = np.random.default_rng(3)
    given = {"rows": rng.integers(0, 30, (4, 50)), "values": rng.standard_normal((4, 50))}
    ordered = {tensor.name: given[tensor.name] for tensor in program.inputs}
    expected = run(program, ordered).outputs[0]
    got = compiled(program, Machine(64, 32))(*ordered.values())[0]
    np.testing.assert_allclose(got, expected, atol=1e-12)
