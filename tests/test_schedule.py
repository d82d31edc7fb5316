"""Schedules: each change by hand, what is refused and how, and random schedules of many nests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.errors import ScheduleError
from eqsatad.planning import Stages
from tests.fuzz_schedules import (
    PROGRAMS,
    TOLERANCE,
    agrees,
    arrays_of,
    convolution,
    place,
    product,
    rows,
    running,
    scheduled,
)


def test_nests_are_found_by_source_and_by_name() -> None:
    plan = product()
    a, b = plan["A_bar"], plan["B_bar"]
    assert (a.axes, b.axes) == (("i0", "i1", "j"), ("i0", "i1", "i"))
    source = place(13, 7, name="A")
    assert plan[source].name == a.name
    assert plan[plan.program.outputs[1]].name == b.name


def test_split_leaves_the_rest_in_a_nest_of_its_own() -> None:
    plan = product()
    plan["B_bar"].split("i1", 16)
    assert plan["B_bar"].show().splitlines()[1:4] == [
        "    parallel for i0 in 0 .. 7:",
        "        parallel for i1_outer in 0 .. 2:",
        "            parallel for i1_inner in 0 .. 16:",
    ]
    assert "        parallel for i1_inner in 0 .. 5:" in plan["B_bar"].show().splitlines()
    agrees(plan, product())


def test_split_sum_is_still_the_sum() -> None:
    plan = product()
    plan["A_bar"].split("j", 8, names=("far", "near"))
    assert plan["A_bar"].axes == ("i0", "i1", "far", "near")
    agrees(plan, product())


def test_sum_outside_of_its_results_is_added_up_in_memory() -> None:
    plan = product()
    plan["A_bar"].reorder("j", "i0", "i1").vectorize("i1")
    assert "A_bar[i0, i1] += head[i0, j] * B[i1, j]" in plan["A_bar"].show()
    agrees(plan, product())


def test_independent_iterations_share_an_inner_loop() -> None:
    plan = product()
    plan["B_bar"].unroll("i0", 3).split("i1", 32).vectorize("i1_inner").parallel("i1_outer")
    text = plan["B_bar"].show()
    assert text.count("for i in 0 .. 13") == 4  # whole blocks and rests, both ways
    assert "shared parallel for i1_outer" in text
    assert "vector parallel for i1_inner" in text
    agrees(plan, product())


def test_vectors_are_written_as_vectors() -> None:
    plan = product(13, 7, 64)
    plan["B_bar"].vectorize("i1")
    assert "x float> " in agrees(plan, product(13, 7, 64)).source


def test_sum_along_lanes() -> None:
    plan = product()
    plan["A_bar"].vectorize("j").unroll("i1", 2)
    assert "llvm.vector.reduce.fadd" in agrees(plan, product()).source


def test_stage_is_worked_out_in_its_reader() -> None:
    plan = rows()
    if "total" not in [nest.stage.name for nest in plan.program.nests]:
        pytest.fail("the program has no stage to move; it should keep the sum of a row")
    plan["total"].stage(at="i")
    assert [nest.stage.name for nest in plan.program.nests] == ["y"]
    agrees(plan, rows())


def test_scheduled_nest_is_left_as_it_is() -> None:
    plain, planned = product(64, 64, 64), product(64, 64, 64)
    planned["A_bar"].reorder("i1", "i0")
    assert planned.build().source != plain.build().source
    assert "packed" not in agrees(planned, product(64, 64, 64)).source


@pytest.mark.parametrize("target", [pytest.param("opencl", marks=pytest.mark.opencl), "reference"])
def test_other_targets_run_the_same_nests(target: str) -> None:
    a, b = place(13, 7, name="A"), place(7, 37, name="B")
    plan = ea.differentiate(nn.matmul(a, b), [a, b]).plan(target)
    plan[b].split("i1", 16).vectorize("i1_inner")
    kernel = plan.build()
    arrays = arrays_of(plan, {})
    for ours, right in zip(kernel(**arrays), product().build()(**arrays), strict=True):
        np.testing.assert_allclose(ours, right, rtol=TOLERANCE, atol=TOLERANCE)
    assert any("ignores vector" in note for note in kernel.notes) == (target == "opencl")


def test_booleans_are_not_vectorised_and_a_note_says_so() -> None:
    x = place(40, name="x")
    y = ea.compute((40,), lambda i: x[i] > 0.0, "y")
    plan = ea.plan([y])
    plan[y].vectorize("i")
    assert plan.build().notes == ("y: i is not vectorised; it stores Booleans",)


REFUSED = {
    "unknown axis": (lambda n: n.split("z", 4), "there is no loop z in", "loops here: i0, i1, j"),
    "long factor": (lambda n: n.split("i1", 8), "i1 has fewer than 8 iterations"),
    "no factor": (lambda n: n.split("i0", 0), "the factor is 0"),
    "taken name": (lambda n: n.split("i0", 2, names=("j", "k")), "there is a loop j already"),
    "twice": (lambda n: n.reorder("i0", "i0"), "names a loop twice"),
    "not alone": (lambda n: n.parallel("j"), "j is not alone in the loops around it"),
    "dependent": (
        lambda n: n.reorder("j", "i0").parallel("j"),
        "j has iterations that depend on each other",
    ),
    "vector in vector": (
        lambda n: n.vectorize("i0").vectorize("i1"),
        "i1 is inside i0, which is vectorised",
    ),
    "split vector": (lambda n: n.vectorize("i1").split("i1", 2), "i1 is vectorised"),
    "vectorised sum": (
        lambda n: n.vectorize("j").reorder("j", "i1"),
        "j is a vectorised sum, which stays innermost",
    ),
    "too long": (lambda n: n.unroll("i0").unroll("i1").unroll("j"), "at most 1,024"),
    "output": (lambda n: n.stage(at="i0"), "A_bar is an output, which must be stored"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_says_why(name: str) -> None:
    change, *parts = REFUSED[name]
    with pytest.raises(ScheduleError) as caught:
        change(product()["A_bar"])
    for part in parts:
        assert part in str(caught.value)


def test_refusal_marks_the_loop() -> None:
    with pytest.raises(ScheduleError) as caught:
        product()["A_bar"].parallel("j")
    lines = str(caught.value).splitlines()
    below = next(place for place, line in enumerate(lines) if line.strip() == "^")
    assert lines[below - 1][lines[below].index("^")] == "j"


def test_order_of_a_running_sum_is_kept() -> None:
    plan = running()
    name = plan.program.nests[-1].stage.name
    along = next(axis for axis in plan[name].axes if axis.startswith("i1"))
    with pytest.raises(ScheduleError, match="depends on the iteration before"):
        plan[name].vectorize(along)


def test_bounds_keep_loops_in_order() -> None:
    plan = convolution()
    name = "W_bar"
    axes = plan[name].axes
    with pytest.raises(ScheduleError, match="has bounds that depend on"):
        plan[name].reorder(axes[-1], axes[2])


def test_absent_nest_lists_those_that_exist() -> None:
    with pytest.raises(ScheduleError, match="there is no nest of Z; stages: A_bar, B_bar"):
        product()["Z"]


def test_wrong_nest_is_found_by_the_check() -> None:
    plan = product()
    body = plan.nest("A_bar").body
    plan.change("A_bar", (*body, *body))
    with pytest.raises(ScheduleError, match="a fault of eqsatad"):
        plan.build()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_schedule_computes_the_same(name: str, seed: int) -> None:
    plan = PROGRAMS[name]()
    scheduled(plan, seed)
    agrees(plan, PROGRAMS[name]())


def test_example_of_the_page_runs() -> None:
    page = (Path(__file__).parent.parent / "docs" / "schedules.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(example, scope)
    arrays = arrays_of(scope["plan"], {})
    (found,) = scope["kernel"](**arrays)
    assert np.array_equal(found, (arrays["head"] * arrays["scale"]).T)


CHANGES = [
    name
    for name, method in vars(Stages).items()
    if getattr(method, "__annotations__", {}).get("return") == "Stages" and name[0] != "_"
]


@pytest.mark.parametrize("method", CHANGES)
def test_page_has_a_row_for_every_method(method: str) -> None:
    page = (Path(__file__).parent.parent / "docs" / "schedules.md").read_text(encoding="utf-8")
    assert f"| `{method}(" in page
