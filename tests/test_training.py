"""Networks trained with kernels from this project alone learn real digits."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install eqsatad[test]")

EXAMPLE = Path(__file__).parent.parent / "examples" / "train_digits.py"
STEPS = 200
ACCURACY = 0.95


@pytest.mark.parametrize("network", ["small", "lenet"])
def test_network_knows_its_training_digits(network: str) -> None:
    example = runpy.run_path(str(EXAMPLE))
    assert set(example["NETWORKS"]) == {"small", "lenet"}
    assert example["train"](network, STEPS) >= ACCURACY
