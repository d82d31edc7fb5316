"""Stages that need no loop of their own: what is put into its readers, and what stays."""

import numpy as np
import pytest

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.extract.cost import COUNT, CPU
from eqsatad.extract.fuse import fused
from eqsatad.rules.catalog import load
from eqsatad.rules.engine import Engine
from eqsatad.terms.nodes import Placeholder, Reduce, Stage, Tensor
from eqsatad.terms.walk import postorder, program

SIMPLIFY = Engine.of(load()).simplify


def placeholder(name: str, *shape: int) -> Tensor:
    return ea.placeholder(shape, name=name, dtype="float64")


def names(outputs: list[Tensor]) -> list[str]:
    return [tensor.name for tensor in program(outputs) if isinstance(tensor, Stage)]


def row_sums(x: Tensor, name: str = "sums") -> Stage:
    k = ea.reduce_axis((0, 5), name="k")
    return ea.compute((4,), lambda i: ea.sum(x[i, k] * x[i, k], axis=k), name=name)


def after_a_sum() -> Stage:
    s = row_sums(placeholder("x", 4, 5))
    return ea.compute((4,), lambda i: ea.tanh(s[i]) * s[i], name="y")


def transposed_read() -> Stage:
    a, b = placeholder("a", 4, 3), placeholder("b", 3, 4)
    p = nn.matmul(a, b, name="p")
    return ea.compute((4, 4), lambda i, j: p[j, i] + 1.0, name="y")


def under_a_reshape() -> Stage:
    x = placeholder("x", 4, 3)
    e = ea.compute((12,), lambda n: ea.exp(x[n // 3, n % 3]), name="e")
    return ea.compute((4, 3), lambda i, j: e[3 * i + j] * x[i, j], name="y")


def cheap_and_read_twice() -> Stage:
    x, w = placeholder("x", 4, 4), placeholder("w", 4)
    s = ea.compute((4, 4), lambda i, j: x[i, j] + x[j, i], name="s")
    return ea.compute((4, 4), lambda i, j: s[i, j] * w[i] + s[j, i], name="y")


def repeated() -> Stage:
    s = row_sums(placeholder("x", 4, 5))
    return ea.compute((4, 3), lambda i, j: s[i] + j, name="y")


def read_twice() -> Stage:
    s = row_sums(placeholder("x", 4, 5))
    return ea.compute((4,), lambda i: s[i] * s[3 - i], name="y")


def product_read_twice() -> Stage:
    x = placeholder("x", 4)
    p = ea.compute((4,), lambda i: x[i] * x[3 - i] * x[i], name="p")
    return ea.compute((4,), lambda i: p[i] + p[(i + 1) % 4], name="y")


def under_a_condition_on_data() -> Stage:
    x = placeholder("x", 4, 5)
    s = row_sums(x)
    return ea.compute((4,), lambda i: ea.select(x[i, 0] > 0.0, s[i], 0.0), name="y")


def running() -> Stage:
    x = placeholder("x", 6)
    k = ea.reduce_axis((0, 6), name="k")
    s = ea.compute((6,), lambda i: ea.sum(ea.select(k <= i, x[k], 0.0), axis=k), name="s")
    return ea.compute((6,), lambda i: ea.exp(s[i]), name="y")


GOES = (after_a_sum, transposed_read, under_a_reshape, cheap_and_read_twice)
STAYS = (repeated, read_twice, product_read_twice, under_a_condition_on_data)


def same_values(before: Tensor, after: Tensor) -> None:
    rng = np.random.default_rng(3)
    inputs = [tensor for tensor in program([before]) if isinstance(tensor, Placeholder)]
    shapes = {tensor.name: [extent.value for extent in tensor.shape] for tensor in inputs}
    arrays = {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}
    # The same operations in the same order.
    np.testing.assert_array_equal(*(ea.evaluate([tensor], arrays)[0] for tensor in (before, after)))


@pytest.mark.parametrize("build", GOES, ids=lambda build: build.__name__)
def test_what_is_needed_once_or_cheap_is_put_into_its_reader(build):
    before = build()
    (after,) = fused([before], COUNT, SIMPLIFY)
    assert names([after]) == ["y"]
    same_values(before, after)


@pytest.mark.parametrize("build", STAYS, ids=lambda build: build.__name__)
def test_what_would_be_worked_out_twice_or_cut_a_loop_stays(build):
    before = build()
    (after,) = fused([before], COUNT, SIMPLIFY)
    assert len(names([after])) == 2
    same_values(before, after)


def test_running_values_stay():
    (plain,) = ea.simplified([running()], cost="count").outputs
    (after,) = fused([plain], COUNT, SIMPLIFY)
    assert "s" in names([after])
    assert ea.report([after]).total.additions <= 6


def test_a_chain_goes_as_one():
    x = placeholder("x", 4, 5)
    tensor: Tensor = row_sums(x)
    for place in range(6):
        tensor = ea.compute((4,), lambda i, t=tensor: ea.sin(t[i]), name=f"t{place}")
    (after,) = fused([tensor], CPU, SIMPLIFY)
    assert names([after]) == ["t5"]
    same_values(tensor, after)


def test_outputs_stay_outputs():
    s = row_sums(placeholder("x", 4, 5))
    y = ea.compute((4,), lambda i: ea.exp(s[i]), name="y")
    assert fused([s, y], COUNT, SIMPLIFY) == [s, y]


def test_prices_decide_whether_something_cheap_is_worked_out_again():
    """A selection at each of nine taps: cheaper than memory is, for one model and not the other."""
    x, w = placeholder("x", 1, 4, 8, 8), placeholder("w", 4, 4, 3, 3)
    y = nn.conv2d(nn.relu(x, name="r"), w, name="y")
    assert names(fused([y], COUNT, SIMPLIFY)) == ["y"]
    assert names(fused([y], CPU, SIMPLIFY)) == ["r", "y"]


def test_a_reduction_keeps_its_loops_and_axes_their_names():
    (after,) = fused([after_a_sum()], COUNT, SIMPLIFY)
    assert isinstance(after, Stage)
    (sum_,) = [node for node in postorder(after.body) if isinstance(node, Reduce)]
    assert [axis.name for axis in (*after.axes, *sum_.axes)] == ["i", "k"]


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_multiplications_are_what_they_were(target):
    x, w = placeholder("x", 1, 2, 5, 5), placeholder("w", 2, 2, 3, 3)
    c = nn.conv2d(x, w, pad=1, name="c")
    y = ea.compute(x.shape, lambda *i: ea.tanh(x[i] + c[i]), name="y")
    (after,) = fused([y], COUNT, SIMPLIFY)
    before, now = ea.report([y]).total, ea.report([after]).total
    assert now.multiplications == before.multiplications
    assert now.memory == before.memory - 50
    assert now.iterations == before.iterations - 50
    rng = np.random.default_rng(5)
    arrays = {"x": rng.uniform(-1, 1, (1, 2, 5, 5)), "w": rng.uniform(-1, 1, (2, 2, 3, 3))}
    (found,) = ea.build([after], target=target, simplify=False)(**arrays)
    # Sums may be reassociated.
    np.testing.assert_allclose(found, ea.evaluate([y], arrays)[0], rtol=1e-12)
