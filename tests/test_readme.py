"""The README: its example runs, its commands exist, its links lead somewhere."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from eqsatad.cli import Options, app

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([path for path in ROOT.glob("*.md")] + list((ROOT / "docs").rglob("*.md")))


def blocks(language: str) -> list[str]:
    """The code blocks of the README in ``language``."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def test_example_runs_and_its_gradients_are_right(capsys):
    (example,) = blocks("python")
    scope: dict[str, object] = {}
    exec(example, scope)

    x, w = (scope["arrays"][name] for name in ("x", "w"))
    x_bar, w_bar = np.zeros_like(x), np.zeros_like(w)
    for o, c, i, j, u, v in np.ndindex(4, 3, 4, 4, 3, 3):
        x_bar[0, c, 2 * i + u, 2 * j + v] += w[o, c, u, v]
        w_bar[o, c, u, v] += x[0, c, 2 * i + u, 2 * j + v]
    np.testing.assert_allclose(scope["x_bar"], x_bar, rtol=1e-5)
    np.testing.assert_allclose(scope["w_bar"], w_bar, rtol=1e-5)
    assert "multiplications" in capsys.readouterr().out


def test_example_is_short():
    (example,) = blocks("python")
    assert len(example.splitlines()) <= 15


@pytest.mark.parametrize(
    "command",
    [line for block in blocks("") for line in block.splitlines() if line.startswith("eqsatad ")],
)
def test_command_works(command):
    outcome = CliRunner().invoke(app, shlex.split(command)[1:], obj=Options())
    assert outcome.exit_code == 0, outcome.output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [
        target
        for target in targets
        if not target.startswith("http") and not (page.parent / target).exists()
    ]
    assert missing == []
