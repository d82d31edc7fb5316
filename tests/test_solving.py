"""Integer systems solved: both maps are right, point by point, and the volume is the least."""

from itertools import product
from typing import Any

import pytest

import eqsatad as ea
from eqsatad.errors import ArgumentError
from eqsatad.rules.summands import as_condition
from eqsatad.terms.nodes import Axis, Const, Expr
from tests.fuzz_domains import N, example, value

i, j, k = (Axis(name, Const(10, "index")) for name in "ijk")
o = Axis("o", Const(10, "index"))

VOLUMES: dict[str, tuple[list[Expr], int]] = {
    "an axis that is another": ([i.equal(j)], 10),
    "a diagonal": ([(i + j).equal(9)], 10),
    "a stride": ([(i * 2).equal(j)], 5),
    "a window": ([(i + j).equal(o), j < 3], 3),
    "digits": ([(i // 5).equal(j), j < 2], 10),
    "a bounded axis": ([i < 4], 40),
}


@pytest.mark.parametrize("case", VOLUMES)
def test_solve_finds_the_least_volume(case: str) -> None:
    conditions, volume = VOLUMES[case]
    assert ea.solve(conditions, over=[i, j]).volume == volume


def test_a_system_without_points_is_empty() -> None:
    solution = ea.solve([i + j > 30], over=[i, j])
    assert solution.empty
    assert solution.volume == 0


def test_conditions_of_other_kinds_are_kept() -> None:
    either = (i < 2) | (j > 7)
    solution = ea.solve([i.equal(k), either], over=[i, j])
    assert solution.axes == (j,)
    assert any("or" in repr(cond) for cond in solution.conditions)


def test_solve_refuses_what_is_no_condition() -> None:
    with pytest.raises(ArgumentError, match="takes conditions"):
        ea.solve([i + j], over=[i])


@pytest.mark.parametrize("seed", range(60))
def test_random_systems_agree_with_brute_force_in_both_directions(seed: int) -> None:
    case = example(seed)
    conditions = [as_condition(guard) for guard in case.domain.guards]
    solution = ea.solve(conditions, over=case.domain.axes)
    size = case.sizes[-1]
    outer: dict[Expr, Any] = {**dict.fromkeys(case.outer, 1), N: size}

    def points(axes: tuple[Axis, ...], given: Any) -> list[tuple[int, ...]]:
        ranges = [range(value(axis.extent, outer, case.table)) for axis in axes]
        return [
            place
            for place in product(*ranges)
            if all(holds(cond, at(axes, place)) for cond in given)
        ]

    def at(axes: tuple[Axis, ...], place: tuple[int, ...]) -> dict[Expr, Any]:
        return {**outer, **dict(zip(axes, place, strict=True))}

    def holds(cond: Any, point: dict[Expr, Any]) -> bool:
        number = int(value(cond.args[0], point, case.table))
        return number == 0 if cond.op.name == "eq" else number >= 0

    old = points(case.domain.axes, conditions)
    if solution.empty:
        assert not old
        return
    new = points(solution.axes, solution.conditions)
    image = [
        tuple(
            int(value(solution.old[axis], at(solution.axes, place), case.table))
            for axis in case.domain.axes
        )
        for place in new
    ]
    assert sorted(image) == old, f"seed {seed}"
    back = [
        tuple(
            int(value(solution.new[axis], at(case.domain.axes, place), case.table))
            for axis in solution.axes
        )
        for place in image
    ]
    assert back == new, f"seed {seed}"


def test_names_of_the_solution_are_free() -> None:
    solution = ea.solve([(i * 2).equal(j), i < k], over=[i, j])
    assert solution.axes
    assert not {axis.name for axis in solution.axes} & {"j", "k"}
