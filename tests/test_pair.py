"""Pairs of programs from `vjp`: what is saved, under which limits, and how they are called.

That the numbers are right on a table of operators is in `tests.test_higher_order`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, combinations, product
from random import Random

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.errors import ArgumentError
from eqsatad.extract.cost import CPU
from eqsatad.extract.cut import Split
from eqsatad.extract.flow import Network
from eqsatad.grad import reverse
from eqsatad.terms.nodes import Read, Reduce, Stage, Tensor
from eqsatad.terms.walk import postorder, program, sources
from tests.operators import OPERATORS, Operator


def tensor(name: str, *shape: int, dtype: str = "float32") -> Tensor:
    return ea.placeholder(shape, name=name, dtype=dtype)


X = tensor("x", 16, 32)
IMAGE = tensor("image", 2, 3, 8, 8)
GAMMA, BETA, W = tensor("gamma", 32), tensor("beta", 32), tensor("w", 4, 3, 3, 3)


def elements(t: Tensor) -> int:
    return int(np.prod([int(extent.value) for extent in t.shape]))


def operations(half: ea.Half) -> set[str]:
    """The functions and reductions in a program."""
    stages = [t for t in program(list(half)) if isinstance(t, Stage)]
    nodes = [node for stage in stages for node in postorder(*stage.roots)]
    return {
        node.combiner.name if isinstance(node, Reduce) else node.op.name
        for node in nodes
        if isinstance(node, Reduce) or hasattr(node, "op")
    }


def test_layer_norm_saves_mean_and_scale_and_not_what_a_subtraction_gives():
    forward, backward = ea.vjp(nn.layer_norm(X, GAMMA, BETA), [X, GAMMA, BETA])
    values = np.random.default_rng(0).normal(size=(16, 32)).astype("float32")
    rows = {"gamma": np.ones(32, "float32"), "beta": np.zeros(32, "float32")}
    _, mean, scale = ea.evaluate(list(forward), {"x": values} | rows)
    # Whether the mean or its opposite is stored is for the rules to say.
    np.testing.assert_allclose(np.abs(mean), np.abs(values.mean(1)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(scale, 1 / np.sqrt(values.var(1) + 1e-5), rtol=1e-4)
    assert "rsqrt" not in operations(backward)


@pytest.mark.parametrize("window", [2, 3])
def test_max_pooling_saves_its_positions(window):
    forward, backward = ea.vjp(nn.max_pool(IMAGE, window), IMAGE)
    (saved,) = forward.saved
    assert saved.dtype == "int64"
    assert elements(saved) == elements(forward[0])
    assert not operations(backward) & {"max", "argmax"}
    assert IMAGE not in backward.inputs
    image = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype("float32")
    blocks = sliding_window_view(image, (window, window), (2, 3))[:, :, ::window, ::window]
    (_, positions) = ea.evaluate(list(forward), {"image": image})
    np.testing.assert_array_equal(positions, blocks.reshape(*blocks.shape[:4], -1).argmax(-1))


@pytest.mark.parametrize(("window", "found"), [(2, {"max", "argmax"}), (4, {"argmax"})])
def test_maximum_is_read_at_its_position_where_another_search_is_dearer(window, found):
    forward, _ = ea.vjp(nn.max_pool(IMAGE, window), IMAGE)
    assert operations(forward) & {"max", "argmax"} == found


def test_softmax_saves_its_output_and_nothing_else():
    forward, backward = ea.vjp(nn.softmax(X), X)
    assert forward.saved == ()
    assert [t.name for t in backward.inputs] == ["softmax", "head"]


def test_log_softmax_works_out_no_exponential_again():
    forward, backward = ea.vjp(nn.log_softmax(X), X)
    assert "exp" in operations(forward)
    assert "exp" not in operations(backward)
    assert X not in backward.inputs


def test_output_is_taken_where_it_serves_and_costs_nothing():
    y = ea.op("y[i,j] = tanh(x[i,j])", x=X)
    forward, backward = ea.vjp(y, X)
    assert forward.saved == ()
    assert [t.name for t in backward.inputs] == ["y", "head"]


def test_input_is_there_anyway():
    y = ea.op("y[i,j] = sin(x[i,j])", x=X)
    forward, backward = ea.vjp(y, X)
    assert forward.saved == ()
    assert [t.name for t in backward.inputs] == ["x", "head"]


def network() -> tuple[Tensor, list[Tensor]]:
    """A convolution, its positive part, the largest of each window."""
    return nn.max_pool(nn.relu(nn.conv2d(IMAGE, W, pad=1)), 2), [IMAGE, W]


@pytest.mark.parametrize(("limit", "names"), [(None, 2), (2048, 1), (1024, 1), (0, 0)])
def test_saved_tensors_fit_the_limit(limit, names):
    forward, backward = ea.vjp(*network(), memory_limit=limit)
    size = {"float32": 4, "int64": 8}
    assert len(forward.saved) == names
    if limit is not None:
        assert sum(size[t.dtype] * elements(t) for t in forward.saved) <= limit
    assert set(forward.saved) <= set(backward.inputs)


@pytest.mark.parametrize(("ties", "expected"), [("first", [0, 3, 0]), ("split", [0, 1.5, 1.5])])
def test_pair_at_a_tie(ties, expected):
    x = tensor("x", 3)
    forward, backward = ea.vjp(ea.op("y = max(x[k])", x=x), x, ties=ties)
    arrays = {"x": np.array([1, 2, 2], "float32"), "head": np.array(3, "float32")}
    y, *saved = ea.evaluate(list(forward), arrays)
    arrays |= {t.name: array for t, array in zip(forward.saved, saved, strict=True)}
    (found,) = ea.evaluate(list(backward), arrays | {"y": y})
    np.testing.assert_array_equal(found, expected)


def test_negative_limit_is_an_error():
    with pytest.raises(ArgumentError, match="memory_limit is -1"):
        ea.vjp(*network(), memory_limit=-1)


def test_more_memory_means_less_work_backwards():
    work = [
        ea.vjp(*network(), memory_limit=limit)[1].report().total.multiplications
        for limit in (0, None)
    ]
    assert work[0] > 1.4 * work[1]


def test_maximum_is_searched_for_as_such_where_no_position_is_saved():
    forward, _ = ea.vjp(*network(), memory_limit=0)
    assert operations(forward) & {"max", "argmax"} == {"max"}


def test_cost_decides_between_saving_and_working_out_again():
    y = ea.op("e[i,j] = exp(x[i,j])\ns[i] = sum(e[i,j])\ny[i,j] = e[i,j] * s[i] + e[i,j]", x=X)
    dear, cheap = (ea.vjp(y, X, cost=replace(CPU, calls={"exp": price})) for price in (50, 0.5))
    assert "e" in [t.name for t in dear[0].saved]
    assert "e" not in [t.name for t in cheap[0].saved]
    assert "exp" in operations(cheap[1])


def test_integer_inputs_are_inputs_of_the_pair():
    labels = tensor("labels", 16, dtype="int32")
    forward, backward = ea.vjp(nn.cross_entropy(X, labels), X)
    assert labels in forward.inputs
    assert labels in backward.inputs


def test_head_is_taken_last_and_even_where_nothing_depends_on_it():
    y = ea.op("y[i,j] = floor(x[i,j])", x=X)
    _, backward = ea.vjp(y, X)
    assert [t.name for t in backward.inputs] == ["head"]
    (found,) = backward.build("reference")(np.ones((16, 32), "float32"))
    assert not found.any()


def test_halves_report_and_show_their_loops():
    halves = ea.vjp(nn.softmax(X), X)
    for half, word in zip(halves, ("forward", "backward"), strict=True):
        assert word in str(half.report())
        assert [t.name for t in half.loops().outputs] == [t.name for t in half]
        assert half.loops().inputs == half.inputs


def test_report_names_what_is_saved():
    for half in ea.vjp(nn.max_pool(IMAGE, 2), IMAGE):
        assert f"saved: {half.saved[0].name} (2, 3, 4, 4) of int64" in str(half.report())


def test_saved_tensors_follow_the_output_under_their_names():
    forward, _ = ea.vjp(nn.layer_norm(X, GAMMA, BETA), [X, GAMMA, BETA])
    assert [t.name for t in forward] == ["layer_norm", *(t.name for t in forward.saved)]
    assert all(t.name.startswith("layer_norm") for t in forward.saved)
    assert forward.build("reference").outputs == tuple(t.name for t in forward)


def test_symbolic_sizes():
    x = ea.placeholder((ea.size("n"), 5), name="x", dtype="float64")
    forward, backward = ea.vjp(nn.softmax(x), x)
    values = np.random.default_rng(0).normal(size=(3, 5))
    head = np.random.default_rng(1).normal(size=(3, 5))
    y, *saved = forward.build("cpu")(values)
    arrays = {"x": values, "softmax": y, "head": head}
    arrays |= {t.name: array for t, array in zip(forward.saved, saved, strict=True)}
    (found,) = backward.build("cpu")(*(arrays[t.name] for t in backward.inputs))
    np.testing.assert_allclose(found, y * (head - (head * y).sum(1, keepdims=True)), rtol=1e-9)


def test_pair_is_the_same_every_time():
    first, second = (ea.vjp(*network(), memory_limit=1024) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert list(one) == list(other)
        assert one.inputs == other.inputs


KERNELS = ("softmax", "layer_norm", "max_pool-overlap", "conv2d", "product", "cross_entropy")


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(
    "operator", [o for o in OPERATORS if o.id in KERNELS], ids=lambda operator: operator.id
)
def test_kernels_of_a_pair(operator: Operator, target: str) -> None:
    tensors, arrays = operator.tensors(), operator.arrays()
    inputs = [t for t in tensors if t.dtype == "float64"]
    y = operator.build(*tensors)
    forward, backward = ea.vjp(y, inputs)
    value, *saved = forward.build(target)(*(arrays[t.name] for t in forward.inputs))
    head = np.random.default_rng(0).normal(size=value.shape)
    given = arrays | {y.name: value, "head": head}
    given |= {t.name: array for t, array in zip(forward.saved, saved, strict=True)}
    found = backward.build(target)(*(given[t.name] for t in backward.inputs))
    expected = ea.evaluate(list(ea.differentiate(y, inputs)), arrays | {"head": head})
    np.testing.assert_allclose(value, ea.evaluate([y], arrays)[0], rtol=1e-12)
    for one, other in zip(found, expected, strict=True):
        # The same sums in another order.
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def choices(split: Split) -> float:
    """The least cost over every choice of what is kept and worked out again."""
    stages = split.shared
    best = float("inf")
    for ways in product(("", "kept", "again"), repeat=len(stages)):
        chosen = dict(zip(stages, ways, strict=True))
        there = {stage for stage in stages if chosen[stage]}
        below = {s for stage in stages if chosen[stage] == "again" for s in sources(stage)}
        wanted = {s for s in (*split.needed, *below) if isinstance(s, Stage)}
        if wanted <= there:
            kept = sum(split.keeping(s) for s in stages if chosen[s] == "kept")
            again = sum(split.again[s] for s in stages if chosen[s] == "again")
            best = min(best, kept + again)
    return best


CUTS: dict[str, Callable[[], tuple[Tensor, list[Tensor]]]] = {
    "softmax": lambda: (nn.softmax(X), [X]),
    "layer-norm": lambda: (nn.layer_norm(X, GAMMA, BETA), [X, GAMMA, BETA]),
    "network": network,
    "log-softmax": lambda: (nn.log_softmax(nn.relu(X)), [X]),
}


@pytest.mark.parametrize("name", CUTS)
def test_cut_costs_no_more_than_any_other_choice(name):
    output, inputs = CUTS[name]()
    adjoints = reverse(output, inputs)
    joint = ea.simplified([output, *adjoints.results]).outputs
    split = Split(joint[0], joint[1:], adjoints.head, CPU)
    assert 0 < len(split.shared) <= 8
    assert split.cost(split.cut()) == pytest.approx(choices(split))


def least(nodes: int, arcs: dict[tuple[int, int], int]) -> int:
    """The capacity of the least cut, by trying all."""
    inner = range(2, nodes)
    sides = chain.from_iterable(combinations(inner, n) for n in range(nodes - 1))
    return min(
        sum(room for (tail, head), room in arcs.items() if tail in side and head not in side)
        for side in ({0, *chosen} for chosen in sides)
    )


@pytest.mark.parametrize("seed", range(40))
def test_minimum_cut_is_the_least_of_all_cuts(seed):
    random, nodes = Random(seed), 7
    arcs = {
        (tail, head): random.randrange(1, 20)
        for tail, head in product(range(nodes), repeat=2)
        if tail != head and random.random() < 0.4
    }
    network = Network()
    numbers = [0, 1, *(network.number(node) for node in range(2, nodes))]
    for (tail, head), room in arcs.items():
        network.join(numbers[tail], numbers[head], room)
    side = {0, *network.source_side()}
    found = sum(room for (tail, head), room in arcs.items() if tail in side and head not in side)
    assert found == least(nodes, arcs)


def test_infinite_arc_is_not_cut():
    network = Network()
    a, b = network.number("a"), network.number("b")
    network.join(0, a, 5)
    network.join(a, b, None)
    network.join(b, 1, 3)
    assert network.source_side() == {"a", "b"}


def test_no_read_of_a_stage_is_left_in_the_backward_program_that_was_saved():
    forward, backward = ea.vjp(*network())
    names = {t.name for t in forward.saved}
    stages = [t for t in program(list(backward)) if isinstance(t, Stage)]
    assert not names & {stage.name for stage in stages}
    read = {n.tensor.name for s in stages for n in postorder(*s.roots) if isinstance(n, Read)}
    assert names <= read
