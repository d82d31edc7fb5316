"""The workloads as tests: the table is complete, and a spread of its rows reach their minimum.

All rows are run by ``python -m benchmarks.workloads``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import workloads
from benchmarks.workload_cases import WORKLOADS
from benchmarks.workloads import MOST_NOT_REACHED, NOT_REACHED, Count, Outcome

ROWS = {row["id"]: row for row in workloads.rows()}

SPREAD = (
    "conv3x3-s2-d2",
    "conv-transpose",
    "circular-conv1d",
    "mttkrp",
    "a-plus-at",
    "polynomial-product",
    "max-times",
    "product-axis",
    "avgpool-exclude",
    "resize-align-corners",
    "reshape-truncating",
    "pad-reflect",
    "strided-slice",
    "banded-matvec",
    "pairwise-loss",
    "softmax",
    "softmax-xent",
    "rmsnorm",
    "take-along-axis",
    "where",
    "heat-steps",
    "jacobian-stencil",
)


def test_every_row_has_a_workload() -> None:
    assert list(WORKLOADS) == list(ROWS)


def test_every_gradient_has_its_minimum_stated_or_as_a_formula() -> None:
    for name, row in ROWS.items():
        stated, workload = workloads.numbers(row["minimal_multiplications"]), WORKLOADS[name]
        for label in workload.make(**workload.small):
            assert label in workload.minimum or label.split()[0] in stated, (name, label)


def test_formulas_are_evaluated_at_two_sizes() -> None:
    for name, workload in WORKLOADS.items():
        assert not workload.minimum or len(workload.at) == 2, name


def test_rows_that_are_not_reached_are_few_and_known() -> None:
    assert len(NOT_REACHED) <= MOST_NOT_REACHED
    assert set(NOT_REACHED) <= set(ROWS)


@pytest.mark.parametrize("name", SPREAD)
def test_gradient_is_right_and_minimal(name: str) -> None:
    outcome = workloads.measure(ROWS[name])
    assert outcome.right, f"relative error {outcome.error}"
    assert outcome.reached, outcome.counts


GOOD = Outcome("conv3x3", (Count("dX", {}, 8, 8, 0, 0, 0.0),), 0.0, 0.0)


@pytest.mark.parametrize(
    "waste",
    [
        Count("dX", {}, 8, 9, 0, 0, 0.0),
        Count("dX", {}, 8, 8, 1, 0, 0.0),
        Count("dX", {}, 8, 8, 0, 1, 0.0),
    ],
    ids=["multiplications", "index_divisions", "inner_conditions"],
)
def test_any_waste_fails_a_row(waste: Count) -> None:
    wasteful = replace(GOOD, counts=(waste,))
    assert workloads.passed([GOOD])
    assert not workloads.passed([GOOD, wasteful])


def test_a_wrong_gradient_fails_even_where_the_minimum_is_not_asked_for() -> None:
    assert not workloads.passed([replace(GOOD, id=next(iter(NOT_REACHED)), error=1.0)])


def test_a_list_in_the_table_is_numbered() -> None:
    assert workloads.numbers({"dA": [0, 7], "dB": 3, "dC": "n"}) == {
        "dA[0]": 0,
        "dA[1]": 7,
        "dB": 3,
    }
