"""Integer systems solved: both maps are right, point by point, and the volume is the least."""

from dataclasses import replace
from typing import Any

import pytest

import eqsatad as ea
from benchmarks import domains
from eqsatad.errors import ArgumentError
from eqsatad.terms.nodes import Axis, Const, Expr
from tests import fuzz_solving
from tests.fuzz_solving import compare, system

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


@pytest.mark.parametrize("seed", range(100))
def test_random_systems_agree_with_brute_force_in_both_directions(seed: int) -> None:
    asked = system(seed)
    compare(asked, ea.solve(asked.conditions, over=asked.case.domain.axes))


def test_a_wrong_map_is_found_by_brute_force() -> None:
    tried = map(system, range(99))
    solved = ((asked, ea.solve(asked.conditions, asked.case.domain.axes)) for asked in tried)
    asked, solution = next(pair for pair in solved if len(pair[1].axes) == 1)
    for name in ("old", "new"):
        wrong = {axis: expr + 1 for axis, expr in getattr(solution, name).items()}
        with pytest.raises(AssertionError, match="points"):
            compare(asked, replace(solution, **{name: wrong}))
    with pytest.raises(AssertionError, match="said to be empty"):
        compare(asked, replace(solution, empty=True))


def test_the_fuzzer_reports_how_many_systems_it_solved(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz_solving.main(["--examples", "3"]) == 0
    assert "3 systems from 0" in capsys.readouterr().out


@pytest.mark.parametrize("case", [*domains.cases()], ids=lambda case: case.name)
def test_loops_visit_each_point_of_a_domain_once_and_no_other(case: domains.Case) -> None:
    row = domains.row(case)
    assert row.visited == row.points <= row.expected


EXACT = {
    "k <= l": 75,
    "k < l": 50,
    "k = l, l < n": 10,
    "l - k < 2, 2n = k": 11,
    "l - k < 2, l >= k": 45,
    "2l = k, from -3": 10,
    "l - k < 2, 2n = k, from -3": 8,
    "l - k < p < 2, l >= k": 25,
    "(l + k) % 3 <= 1, (l + k) // 3 <= 2": 27,
    "inputs and outputs of a convolution": 576,
}


@pytest.mark.parametrize("name", EXACT)
def test_the_points_of_a_domain_are_counted(name: str) -> None:
    (case,) = (case for case in domains.cases() if case.name == name)
    assert domains.row(case).points == EXACT[name]


def test_the_table_of_domains_fails_where_a_point_is_visited_in_vain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(domains, "cases", lambda: iter(domains._triples(0, {"k < l": 80})))
    assert domains.main([]) == 0
    monkeypatch.setattr(domains, "visited", lambda *_: 51)
    assert domains.main([]) == 1
    assert "above" in capsys.readouterr().out


def test_a_solution_tells_its_points() -> None:
    assert ea.solve([i < j], over=[i, j]).points == 45
    assert ea.solve([i + j > 30], over=[i, j]).points == 0
    assert ea.solve([i.equal(3)], over=[i]).points == 1
    assert ea.solve([i < j], over=[i]).points is None
    assert ea.solve([], over=[Axis("s", ea.size("s"))]).points is None


def test_conditions_may_be_one_or_a_truth_value() -> None:
    assert ea.solve(i < 3, over=[i]).volume == 3
    assert ea.solve([True], over=[i]).volume == 10
    assert ea.solve([i < 3, False], over=[i]).empty


@pytest.mark.parametrize(
    "over", [[], [i, i], [i, 3], i, [ea.size("s")], [ea.reduce_axis((2, 9), "r")]], ids=repr
)
def test_solve_refuses_what_are_no_axes(over: Any) -> None:
    with pytest.raises(ArgumentError, match="distinct axes"):
        ea.solve([i < 3], over=over)


def test_names_of_the_solution_are_free() -> None:
    solution = ea.solve([(i * 2).equal(j), i < k], over=[i, j])
    assert solution.axes
    assert not {axis.name for axis in solution.axes} & {"j", "k"}
