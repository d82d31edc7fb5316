"""Where the user's code built a tensor, for messages: ``file.py:12``.

The line is that of the first frame outside eqsatad. It is no part of what a tensor is: not of its
key, its text or its stored form. On the command line there is no such line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from os.path import basename
from types import FrameType

# Callbacks and cached properties put frames of the standard library between us and the user.
OURS = frozenset(("eqsatad", "rules_catalog", *sys.stdlib_module_names))

_given: ContextVar[str | None] = ContextVar("given", default=None)


@contextmanager
def built_at(line: str) -> Iterator[None]:
    """A context in which whatever is built counts as built at ``line``."""
    token = _given.set(line)
    try:
        yield
    finally:
        _given.reset(token)


def origin() -> str:
    """The line of the user's code that is running; empty where there is none."""
    if (line := _given.get()) is not None:
        return line
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module == "eqsatad.cli":
            return ""
        if module.partition(".")[0] not in OURS:
            return f"{basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
