"""The examples run, and say what they are there to say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples"
SAID = {
    "custom_operator.py": "agrees with finite differences",
    "schedule.py": "times as fast",
    "stencil.py": "misfit fell",
    "hand_written.py": "multiplies as often as the one by hand",
    "training.py": "loss fell",
}
TRAINED = {"train_digits.py"}  # takes longer: tests/test_training.py runs it


def test_every_example_is_listed() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == set(SAID) | TRAINED


@pytest.mark.parametrize("name", SAID)
def test_example_runs(name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(FOLDER / name)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert SAID[name] in done.stdout
