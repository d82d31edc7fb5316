"""Extraction: cheap choices, stages for what is worth storing, and the same values throughout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsatad.extract.cost import COUNT, CPU, MODELS, CostModel
from eqsatad.extract.dag import Choice, Graph, Node, extract
from eqsatad.extract.graph import snapshot
from eqsatad.extract.materialise import merged
from eqsatad.extract.optimise import Optimised, optimise
from eqsatad.extract.points import Points
from eqsatad.extract.sites import executed, price, runs, sites
from eqsatad.rules.algebra import grow
from eqsatad.rules.growth import Growth, Limits
from eqsatad.rules.values import canonical, encode
from eqsatad.terms import builders as ea
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import (
    SUM,
    TRUE,
    Apply,
    Axis,
    Const,
    Expr,
    Placeholder,
    Read,
    Reduce,
    Stage,
)
from eqsatad.terms.ops import GE
from eqsatad.terms.show import show
from eqsatad.terms.walk import postorder, program
from rules_catalog.algebra import ALGEBRA
from rules_catalog.functions import FUNCTIONS
from rules_catalog.sums import GUARDED, HOISTING, SUMS

CATALOG = (*ALGEBRA, *SUMS, *HOISTING, *GUARDED, *FUNCTIONS)


def tensor(name: str, *shape: int) -> Placeholder:
    return ea.placeholder(shape, name, "float64")


def over(size: int, name: str) -> Expr:
    return ea.reduce_axis((0, size), name)


def multiplications(stages: tuple[Stage, ...]) -> int:
    """Products, quotients and calls that the stages execute, equal parts once per loop body."""
    total = 0.0
    for stage in stages:
        for site in sites(stage.body, stage.axes):
            if isinstance(site.node, Apply) and price(site.node, COUNT) >= 1:
                total += runs(site, Points(COUNT))
    return round(total)


def assert_same_values(stage: Stage, found: Optimised) -> None:
    """The input stage and the optimised ones give one array, up to the order of sums."""
    rng = np.random.default_rng(7)
    inputs = [part for part in program([stage]) if isinstance(part, Placeholder)]
    arrays = {
        part.name: rng.normal(size=[size.value for size in part.shape])  # type: ignore[attr-defined]
        for part in inputs
    }
    expected, result = evaluate([stage, found.stages[-1]], arrays)
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(result, expected, rtol=1e-8, atol=1e-8 * scale)


PRODUCTS = replace(COUNT, name="products", visit=0.0)
"""No loop is too dear for what it saves: the search is for the fewest multiplications."""

# Targets: the stage, and the multiplications that the best program needs.


def mul_transpose() -> Stage:
    h, a = tensor("h", 10, 10), tensor("a", 10, 10)
    return ea.compute((10, 10), lambda n, m: h[n, m] * a[m, n] + h[m, n] * a[m, n])


def diagonal_of_square_plus() -> Stage:
    h, a = tensor("h", 10, 10), tensor("a", 10, 10)
    j, k = over(10, "j"), over(10, "k")
    return ea.compute(
        (10, 10),
        lambda n, m: ea.sum(h[m, j] * a[n, m], axis=j) + ea.sum(h[n, k] * a[n, m], axis=k),
    )


def broadcast_weight() -> Stage:
    """The gradient of a convolution with one scalar for all its weights, by that scalar."""
    h, x = tensor("h", 1, 5, 4, 4), tensor("x", 1, 2, 4, 4)
    axes = tuple(
        over(size, name) for size, name in zip((1, 2, 4, 4, 5, 3, 3), "ncyxfij", strict=True)
    )
    n, c, y, z, f, i, j = axes
    return ea.compute(
        (1,),
        lambda _: ea.sum(
            h[n, f, y, z] * x[n, c, y + i - 1, z + j - 1],
            axis=axes,
            where=(y + i >= 1) & (y + i < 5) & (z + j >= 1) & (z + j < 5),
        ),
    )


def broadcast_weight_data() -> Stage:
    """The gradient of the same convolution by its data."""
    h, w = tensor("h", 1, 5, 4, 4), tensor("w", 1)
    f, i, j = over(5, "f"), over(3, "i"), over(3, "j")
    return ea.compute(
        (1, 2, 4, 4),
        lambda n, c, y, z: ea.sum(
            h[n, f, y - i + 1, z - j + 1] * w[0],
            axis=(f, i, j),
            where=(y - i >= -1) & (y - i < 3) & (z - j >= -1) & (z - j < 3),
        ),
    )


def chain() -> Stage:
    p, q, r = tensor("p", 4, 7), tensor("q", 6, 7), tensor("r", 5, 6)
    c, d = over(6, "c"), over(7, "d")
    return ea.compute((4, 5), lambda a, b: ea.sum(p[a, d] * q[c, d] * r[b, c], axis=(c, d)))


def mttkrp() -> Stage:
    t, b, c = tensor("t", 4, 5, 6), tensor("b", 5, 8), tensor("c", 6, 8)
    j, k = over(5, "j"), over(6, "k")
    return ea.compute((4, 8), lambda i, r: ea.sum(t[i, j, k] * b[j, r] * c[k, r], axis=(j, k)))


def softmax_backward() -> Stage:
    """With nothing saved: exponentials, their sum, and the head against them."""
    h, x = tensor("h", 3, 5), tensor("x", 3, 5)
    j, k = over(5, "j"), over(5, "k")

    def body(i: Expr, o: Expr) -> Expr:
        total = ea.sum(ea.exp(x[i, k]), axis=k)
        answer = ea.exp(x[i, o]) / total
        inner = ea.sum(h[i, j] * (ea.exp(x[i, j]) / total), axis=j)
        return answer * h[i, o] - answer * inner

    return ea.compute((3, 5), body)


def outer_product() -> Stage:
    """Sums over different axes part from each other."""
    a, b = tensor("a", 4, 6), tensor("b", 5, 7)
    j, k = over(6, "j"), over(7, "k")
    return ea.compute((4, 5), lambda m, n: ea.sum(a[m, j] * b[n, k], axis=(j, k)))


TARGETS: dict[Callable[[], Stage], int] = {
    mul_transpose: 100,
    diagonal_of_square_plus: 100,
    broadcast_weight: 16,
    broadcast_weight_data: 16,
    chain: 4 * 6 * 7 + 4 * 5 * 6,
    mttkrp: 4 * 5 * 6 * 8 + 4 * 5 * 8,
    softmax_backward: 15 + 15 + 3 + 15 + 15,
    outer_product: 20,
}


@pytest.mark.parametrize("build", TARGETS, ids=lambda build: build.__name__)
def test_multiplications_reach_the_minimum(build: Callable[[], Stage]) -> None:
    stage = build()
    found = optimise(stage, CATALOG, PRODUCTS)
    assert_same_values(stage, found)
    assert multiplications(found.stages) <= TARGETS[build], "\n".join(map(show, found.stages))


def test_parts_equal_up_to_names_are_one_stage() -> None:
    """The row sums of h are read at two indices and stored once."""
    found = optimise(diagonal_of_square_plus(), CATALOG, COUNT)
    rows, _ = found.stages
    assert COUNT.volume(rows.axes) == 10


def windows(size: int) -> Stage:
    """Sums of three by three neighbours in five maps, of which there are fewer at the border."""
    x = tensor("x", 5, size, size)
    f, i, j = over(5, "f"), over(3, "i"), over(3, "j")
    return ea.compute(
        (size, size),
        lambda n, m: ea.sum(
            x[f, n + i - 1, m + j - 1],
            axis=(f, i, j),
            where=(n + i >= 1) & (n + i < size + 1) & (m + j >= 1) & (m + j < size + 1),
        ),
    )


def test_windows_over_several_maps_are_taken_axis_by_axis() -> None:
    stage = windows(16)
    found = optimise(stage, CATALOG, COUNT)
    assert_same_values(stage, found)
    maps, rows, last = found.stages
    assert [COUNT.volume(part.axes) for part in (maps, rows, last)] == [16 * 16] * 3


def test_windows_that_mostly_meet_the_border_are_one_sum() -> None:
    """A hundred additions and no temporary, rather than eighty and sixteen elements more."""
    maps, last = optimise(windows(4), CATALOG, COUNT).stages
    assert COUNT.volume(maps.axes) == 4 * 4
    assert sum(isinstance(node, Reduce) for node in postorder(last.body)) == 1


def test_factor_stays_under_guards_where_that_is_less_work() -> None:
    """``v*u`` at one of three places and ``v*w`` at another are less than ``v*(u + w)`` at all."""
    u, v, w = tensor("u", 40), tensor("v", 20), tensor("w", 20)
    i, a = ea.Axis("i", ea.const(20)), ea.Axis("a", ea.const(3))
    body = ea.select(a.equal(0), u[i + a] * v[i], 0.0)
    stage = Stage("y", (i, a), body + ea.select(a.equal(1), 1.0 * (v[i] * w[i]), 0.0))
    found = optimise(stage, CATALOG, CPU)
    assert multiplications(found.stages) == 2 * 20
    assert_same_values(stage, found)


def test_factor_leaves_guards_that_hold_together() -> None:
    u, v, w = tensor("u", 40), tensor("v", 20), tensor("w", 20)
    i, a = ea.Axis("i", ea.const(20)), ea.Axis("a", ea.const(3))
    body = ea.select(a >= 1, u[i + a] * v[i], 0.0)
    stage = Stage("y", (i, a), body + ea.select(a >= 1, u[i + a] * w[i], 0.0))
    assert multiplications(optimise(stage, CATALOG, CPU).stages) == 2 * 20


def test_contraction_stores_its_inner_product() -> None:
    found = optimise(chain(), CATALOG, CPU)
    assert [COUNT.volume(stage.axes) for stage in found.stages] == [4 * 6, 4 * 5]


def test_register_reductions_stay_inline() -> None:
    """A plain matrix product is one stage, and no e-graph is built for it."""
    a, b = tensor("a", 4, 6), tensor("b", 6, 5)
    k = over(6, "k")
    found = optimise(
        ea.compute((4, 5), lambda i, j: ea.sum(a[i, k] * b[k, j], axis=k)), CATALOG, COUNT
    )
    assert len(found.stages) == 1
    assert found.report.rounds == 0


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
@pytest.mark.parametrize("build", TARGETS, ids=lambda build: build.__name__)
def test_result_costs_no_more_than_the_input(build: Callable[[], Stage], model: CostModel) -> None:
    found = optimise(build(), CATALOG, model)
    assert found.cost_after <= found.cost_before
    assert found.cost_after == pytest.approx(executed(found.stages, Points(model)))


def test_limits_are_reported_and_the_best_so_far_is_used() -> None:
    stage = softmax_backward()
    found = optimise(stage, CATALOG, COUNT, Limits(nodes=60))
    assert "node limit 60" in found.report.stopped
    assert_same_values(stage, found)


def test_names_that_are_taken_are_avoided() -> None:
    taken = {"compute_part_1", "compute_part_2"}
    found = optimise(chain(), CATALOG, COUNT, name_taken=taken.__contains__)
    assert not taken & {stage.name for stage in found.stages}


def test_last_stage_keeps_name_axes_and_dtype() -> None:
    stage = broadcast_weight_data()
    last = optimise(stage, CATALOG, COUNT).stages[-1]
    assert (last.name, last.axes, last.dtype) == (stage.name, stage.axes, stage.dtype)


def test_symbolic_extents_cost_at_example_sizes() -> None:
    """The order of a chain depends on what its sizes are said to be."""
    n, m = ea.size("n"), ea.size("m")
    p, q = ea.placeholder((4, m), "p", "float64"), ea.placeholder((n, m), "q", "float64")
    r = ea.placeholder((5, n), "r", "float64")
    c, d = ea.reduce_axis((0, n), "c"), ea.reduce_axis((0, m), "d")
    stage = ea.compute((4, 5), lambda a, b: ea.sum(p[a, d] * q[c, d] * r[b, c], axis=(c, d)))
    for sizes, inner in (({"n": 100, "m": 2}, "r"), ({"n": 2, "m": 100}, "p")):
        model = CostModel("mine", 1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.1, 0.1, sizes=sizes)
        first, _ = optimise(stage, CATALOG, model).stages
        assert inner in {
            read.tensor.name for read in postorder(first.body) if isinstance(read, Read)
        }


def test_result_is_the_same_in_every_process() -> None:
    """Neither hashing nor addresses decide between choices of one cost."""
    code = (
        "from tests.test_extract import *\n"
        "for build in TARGETS:\n"
        "    print(*map(show, optimise(build(), CATALOG, COUNT).stages), sep='\\n')"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


# The exact solver: a node for each class that is needed, no circles, least total.


def solve(graph: Graph) -> float:
    """The least cost of any choice, by integer programming."""
    optimize = pytest.importorskip("scipy.optimize")
    nodes, classes = graph.nodes, graph.classes
    count = len(nodes)
    # Variables: each node chosen or not, then a level for each class.
    rows: list[np.ndarray] = []
    lows: list[float] = []
    chosen = np.zeros((classes, count + classes))
    for n, node in enumerate(nodes):
        chosen[node.owner, n] = 1
    rows.append(chosen[graph.root])
    lows.append(1)
    for n, node in enumerate(nodes):
        for child in dict.fromkeys(node.children):
            needs = chosen[child].copy()
            needs[n] -= 1
            rows.append(needs)
            lows.append(0)
            order = np.zeros(count + classes)
            order[count + node.owner], order[count + child], order[n] = 1, -1, -classes
            rows.append(order)
            lows.append(1 - classes)
    costs = np.concatenate([[node.cost for node in nodes], np.zeros(classes)])
    found = optimize.milp(
        costs,
        constraints=optimize.LinearConstraint(np.array(rows), np.array(lows), np.inf),
        integrality=np.concatenate([np.ones(count), np.zeros(classes)]),
        bounds=optimize.Bounds(0, np.concatenate([np.ones(count), np.full(classes, classes)])),
        options={"time_limit": 20},
    )
    assert found.success, found.message
    return float(found.fun)


@pytest.mark.parametrize(
    "build", [mul_transpose, chain, mttkrp, diagonal_of_square_plus], ids=lambda b: b.__name__
)
def test_choice_is_as_cheap_as_the_exact_one(build: Callable[[], Stage]) -> None:
    stage = build()
    term, _ = canonical(stage.body)
    encoded = encode(term, stage.axes)
    for number, session in enumerate(grow(encoded, CATALOG, Limits(rounds=3), Growth())):
        graph = snapshot(session, encoded, Points(COUNT))
        if number and len(graph.nodes) < 250:
            assert extract(graph).cost == pytest.approx(solve(graph), rel=0.03)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Small graphs of choices with circles and sharing; class 0 and 1 are leaves."""
    classes = draw(st.integers(3, 9))
    prices = st.integers(1, 20)
    nodes = [Node(n, f"leaf{n}", (), (), draw(prices)) for n in range(2)]
    for owner in range(2, classes):
        for n in range(draw(st.integers(1, 3))):
            # The first node of a class looks down, so that there always is a choice.
            highest = owner - 1 if n == 0 else classes - 1
            children = draw(st.lists(st.integers(0, highest), min_size=1, max_size=3))
            nodes.append(Node(owner, f"n{n}", (), tuple(children), draw(prices)))
    return Graph(nodes, classes, classes - 1)


def assert_choice_is_a_term(graph: Graph, choice: Choice) -> None:
    assert graph.root in choice.nodes
    for owner, node in choice.nodes.items():
        assert node.owner == owner
        assert all(child in choice.nodes for child in node.children)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_choice_is_complete_and_no_cheaper_than_the_exact_one(graph: Graph) -> None:
    choice = extract(graph)
    assert_choice_is_a_term(graph, choice)
    assert choice.cost == sum(node.cost for node in choice.nodes.values())
    assert solve(graph) - 1e-6 <= choice.cost


def drawn(rng: np.random.Generator) -> Graph:
    """A graph as those of `graphs`, every one of them as likely."""
    classes = int(rng.integers(3, 10))
    nodes = [Node(n, f"leaf{n}", (), (), int(rng.integers(1, 21))) for n in range(2)]
    for owner in range(2, classes):
        for n in range(int(rng.integers(1, 4))):
            below = owner if n == 0 else classes
            children = rng.integers(0, below, int(rng.integers(1, 4)))
            nodes.append(
                Node(owner, f"n{n}", (), tuple(map(int, children)), int(rng.integers(1, 21)))
            )
    return Graph(nodes, classes, classes - 1)


def test_choices_are_nearly_always_the_exact_ones() -> None:
    rng = np.random.default_rng(0)
    ratios = [extract(graph).cost / solve(graph) for graph in (drawn(rng) for _ in range(500))]
    assert np.mean(ratios) < 1.01
    assert np.max(ratios) < 1.5
    assert np.mean(np.array(ratios) < 1 + 1e-9) > 0.95


def test_a_choice_that_is_cheaper_in_two_classes_at_once_is_missed() -> None:
    """The search changes one class at a time: what it does not find, as an example."""
    nodes = [
        Node(0, "leaf0", (), (), 15),
        Node(1, "leaf1", (), (), 19),
        Node(2, "from 0", (), (0,), 7),
        Node(2, "from 1", (), (1,), 4),
        Node(3, "both", (), (1, 2), 2),
        Node(3, "alone", (), (0,), 26),
    ]
    assert extract(Graph(nodes, 4, 3)).cost == 41
    assert solve(Graph(nodes, 4, 3)) == pytest.approx(25)


# Random programs: sums of guarded products with functions and nested reductions.


@st.composite
def programs(draw: st.DrawFn) -> Stage:
    """A stage over up to two axes whose reads are kept in range by selects and conditions."""
    tensors = [
        tensor(name, *draw(st.lists(st.integers(2, 4), max_size=2))) for name in ("a", "b", "c")
    ]
    numbers = iter(range(1000))

    def index(scope: list[Expr], size: int) -> tuple[Expr, list[Expr]]:
        if not scope:
            return ea.const(draw(st.integers(0, size - 1)), "index"), []
        axis = draw(st.sampled_from(scope))
        if axis.extent.value <= size and draw(st.booleans()):  # type: ignore[attr-defined]
            return axis, []
        other = draw(st.sampled_from(scope))
        shifted = axis + draw(st.sampled_from([-1, 0, 1])) * other + draw(st.integers(-1, 1))
        return shifted, [shifted >= 0, shifted < size]

    def read(scope: list[Expr], conds: list[Expr]) -> Expr:
        chosen = draw(st.sampled_from(tensors))
        indices = []
        for size in chosen.shape:
            found, tests = index(scope, size.value)  # type: ignore[attr-defined]
            indices.append(found)
            conds += tests
        return Read(chosen, tuple(indices))

    def guarded(value: Expr, conds: list[Expr]) -> Expr:
        for cond in conds:
            value = ea.select(cond, value, 0.0)
        return value

    def closed(scope: list[Expr], depth: int) -> Expr:
        conds: list[Expr] = []
        value = expr(scope, depth, conds)
        return guarded(value, conds)

    def expr(scope: list[Expr], depth: int, conds: list[Expr]) -> Expr:
        kinds = ("read", "number", "mul", "mul", "add", "sub", "call", "div", "pick", "max", "sum")
        kind = draw(st.sampled_from(kinds if depth else kinds[:2]))
        match kind:
            case "read":
                return read(scope, conds)
            case "number":
                return ea.const(draw(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0])), "float64")
            case "mul":
                return expr(scope, depth - 1, conds) * expr(scope, depth - 1, conds)
            case "add":
                return closed(scope, depth - 1) + closed(scope, depth - 1)
            case "sub":
                return closed(scope, depth - 1) - closed(scope, depth - 1)
            case "call":
                function = draw(st.sampled_from([ea.exp, ea.sin, ea.tanh, ea.abs]))
                return function(closed(scope, depth - 1))
            case "div":
                below = closed(scope, 0)
                return closed(scope, depth - 1) / (below * below + 1.5)
            case "pick":
                test = closed(scope, 0) > 0.0
                return ea.select(test, closed(scope, depth - 1), closed(scope, depth - 1))
        axis = ea.reduce_axis((0, draw(st.integers(1, 3))), f"k{next(numbers)}")
        inner: list[Expr] = []
        body = expr([*scope, axis], depth - 1, inner)
        if kind == "max":
            return ea.max(guarded(body, inner), axis=axis)
        where = inner[0] if inner else axis >= 0
        for cond in inner[1:]:
            where = where & cond
        return ea.sum(body, axis=axis, where=where)

    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    depth = draw(st.integers(1, 4))
    return ea.compute(shape, lambda *axes: closed(list(axes), depth), name="out")


@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from([COUNT, CPU]))
def test_random_program_keeps_its_values(stage: Stage, model: CostModel) -> None:
    found = optimise(stage, CATALOG, model, Limits(nodes=2000))
    assert_same_values(stage, found)
    assert found.cost_after <= found.cost_before * (1 + 1e-9)


def test_long_sum_is_optimised_in_groups() -> None:
    """Every group of summands still gives up its common factor."""
    h, x = tensor("h", 120), tensor("x", 30)
    stage = ea.compute((30,), lambda i: sum((h[i + n] * x[i] for n in range(1, 60)), h[i] * x[i]))
    found = optimise(stage, CATALOG, COUNT)
    assert_same_values(stage, found)
    assert multiplications(found.stages) <= 30 * 8


def test_deep_input_is_left_alone_and_reported() -> None:
    """A chain of a thousand calls neither overflows the stack nor takes long."""
    x = tensor("x", 3)

    def body(i: Expr) -> Expr:
        value = x[i]
        for _ in range(1000):
            value = ea.tanh(value)
        return value

    stage = ea.compute((3,), body)
    found = optimise(stage, CATALOG, COUNT)
    assert "limit" in found.report.stopped
    assert_same_values(stage, found)


def test_sums_of_sums_are_one_though_an_axis_inside_has_the_name_of_one_outside() -> None:
    """The condition of the outer sum is about another ``k`` than the one that the inner sum has."""
    x = tensor("x", 4, 4)
    k, m = Axis("k", Const(4, "index")), Axis("m", Const(4, "index"))
    inner = Reduce(SUM, (k,), TRUE, Read(x, (k, m)))
    outer = Reduce(SUM, (m,), Apply(GE, (m, k)), inner)
    one = merged(outer)
    assert isinstance(one, Reduce)
    assert one.free == outer.free == {k}
    assert len(one.axes) == 2
    values = np.arange(16.0).reshape(4, 4)
    (before, after) = (
        evaluate([Stage("y", (k,), body)], {"x": values})[0] for body in (outer, one)
    )
    np.testing.assert_array_equal(before, after)
