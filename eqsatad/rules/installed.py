"""What is installed, as the folders on the path tell.

``importlib.metadata`` takes longer to import than these folders to be read, and than all that is
left to do where answers are known. It is asked only where it may know more: where something is
named here, and where packages are found in other ways than in folders.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "eqsatad.rules"
"""The group of entry points under which packages bring rows."""


@cache
def points() -> tuple[EntryPoint, ...]:
    """The entry points of the group, by name."""
    if not _elsewhere() and not any(ENTRY_POINTS.encode() in said for said in _entry_points()):
        return ()
    from importlib.metadata import entry_points

    return tuple(sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name))


@cache
def versions(*packages: str) -> tuple[str, ...]:
    """The names of ``packages`` with their versions, ``none`` for what is not installed."""
    return tuple(map(_version, packages))


def _version(package: str) -> str:
    described = [os.path.basename(folder) for folder in _described()]
    name = package.replace("-", "_")
    found = [one for one in described if one.lower().startswith(f"{name}-")]
    if found and not _elsewhere():
        return " ".join(found)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{package}-{version(package)}"
    except PackageNotFoundError:
        return f"{package}-none"


def _elsewhere() -> bool:
    """Whether packages may be found that lie in no folder on the path."""
    finders = [one for one in sys.meta_path if hasattr(one, "find_distributions")]
    return finders != [PathFinder] or any(map(os.path.isfile, sys.path))


@cache
def _described() -> tuple[str, ...]:
    """The folders that describe the packages in the folders on the path."""
    found = []
    for folder in sys.path:
        names: list[str] = []
        with suppress(OSError):
            names = os.listdir(folder or ".")
        for name in names:
            if name.lower().endswith((".dist-info", ".egg-info")) or name == "EGG-INFO":
                found.append(os.path.join(folder, name))
    return tuple(found)


def _entry_points() -> Iterator[bytes]:
    """What each package says of its entry points."""
    for folder in _described():
        with suppress(OSError), open(f"{folder}/entry_points.txt", "rb", buffering=0) as file:
            yield file.read()
