"""The examples run, and say what they are there to say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
SAID = {
    "custom_operator.py": "agrees with finite differences",
    "stencil.py": "misfit fell",
    "hand_written.py": "the automatic gradient multiplies no more",
    "training.py": "loss fell",
}


def test_every_example_is_listed() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_example_runs(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / name)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert SAID[name] in done.stdout
