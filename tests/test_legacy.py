"""The legacy suite as tests: its table is complete, and a spread of its rows reach their targets.

All rows are run by ``python -m benchmarks.legacy``.
"""

from __future__ import annotations

import pytest

from benchmarks import legacy
from benchmarks.legacy_cases import CASES

ROWS = {row["id"]: row for row in legacy.rows()}

SPREAD = (
    "add-transpose",
    "floor",
    "log-abs-exp",
    "pow-transpose",
    "mul-transpose",
    "diag-of-square",
    "max-product",
    "clamped-index",
    "product-reduction",
    "sym-diag-of-square",
    "diagonal",
    "reverse-tensordot",
    "conv-p1",
    "conv-broadcast-weight",
    "avgpool-2-2",
    "maxpool-2-2",
    "reshape-truncating",
    "concatenate",
    "split-concat-swapped",
    "take-flat",
    "dense-softmax",
    "residual-log-softmax-w",
    "conv-k1-s3-d2",
    "conv-k2-s3-d2",
    "conv-k3-s2-d3",
    "maxpool-k3-s2",
    "sym-add-bias",
    "sym-avgpool",
    "sym-maxpool",
)


def test_every_row_has_a_definition_with_its_inputs() -> None:
    assert {name: [x.name for x in make().inputs] for name, make in CASES.items()} == {
        name: row["wrt"] for name, row in ROWS.items()
    }


@pytest.mark.parametrize("name", SPREAD)
def test_gradient_is_right_and_within_its_bounds(name: str) -> None:
    row = ROWS[name]
    outcome = legacy.measure(row)
    assert outcome.right, f"relative error {outcome.error}"
    assert outcome.bounded, f"{outcome.measured} against {outcome.recorded} and {outcome.target}"
    assert not outcome.missed, f"{outcome.measured} against {outcome.target}"
    if "multiplications" not in row.get("about", ()):
        assert outcome.at_target, f"{outcome.measured} against {outcome.target}"
