"""The tutorial runs as it is printed; ``python -m tests.test_tutorial`` prints it anew.

Blocks of Python run in order in one namespace. One that begins with the name of a file is that
file. A block after them that is called ``output`` is what they print, and what follows a line
``$ command`` is what the command prints.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n(.*)", re.DOTALL)
DURATION = re.compile(r"in \d+\.\d+s")
PROGRAMS = {"eqsatad": ["-m", "eqsatad"], "python": []}


def followed(page: str, folder: Path) -> str:
    """``page`` with all that its blocks print, when they are run one after the other."""
    scope: dict[str, Any] = {}
    printed = ""

    def run(block: re.Match[str]) -> str:
        nonlocal printed
        language, text = block.groups()
        if language == "python":
            if file := FILE.fullmatch(text):
                (folder / file[1]).write_text(file[2], encoding="utf-8")
            else:
                printed = _said(text, scope)
        elif language == "output":
            return f"```output\n{printed}```"
        elif text.startswith("$ "):
            command = text.splitlines()[0]
            return f"```\n{command}\n{_told(command[2:], folder)}```"
        return block[0]

    with contextlib.chdir(folder):
        return BLOCK.sub(run, page)


def _said(code: str, scope: dict[str, Any]) -> str:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(code, scope)
    return _plain(stream.getvalue())


def _told(command: str, folder: Path) -> str:
    program, *arguments = shlex.split(command)
    done = subprocess.run(
        [sys.executable, *PROGRAMS[program], *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "COLUMNS": "110", "PYTHONPATH": str(ROOT)},
    )
    return _plain(done.stdout)


def _plain(text: str) -> str:
    """``text`` without durations and without spaces at the ends of lines."""
    lines = DURATION.sub("in no time", text).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def test_tutorial_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert followed(page, tmp_path) == page


def test_tutorial_shows_what_it_is_about() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "sigmoid-exp │ WRONG" in page
    assert "1 passed" in page
    assert "[nan nan nan]" in page


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(followed(PAGE.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8")
