"""The sizes of the caches of a core, and how fast the next level fills the nearest.

Linux says how large they are. Where nobody does, they are taken to be what even small cores have.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

KIB = 1024
# Where Linux describes the caches of the first core, and what it calls those that hold data.
DESCRIBED = Path("/sys/devices/system/cpu/cpu0/cache")
HOLDS_DATA = ("Data", "Unified")


@dataclass(frozen=True)
class Caches:
    """Bytes of the nearest cache of a core, of the one behind it, and of the last one of all.

    The last one is shared with other cores; 0 says that nothing is known of it.
    """

    near: int = 32 * KIB
    far: int = 512 * KIB
    last: int = 0


@cache
def found() -> Caches:
    """The caches of this CPU."""
    return described(DESCRIBED)


def described(folder: Path) -> Caches:
    """The caches that the files in ``folder`` tell of, each at least as large as `Caches` says."""
    sizes: dict[str, int] = {}
    try:
        for each in sorted(name for name in os.listdir(folder) if name.startswith("index")):
            level, kind, size = (
                _said(f"{folder}/{each}/{name}") for name in ("level", "type", "size")
            )
            if kind in HOLDS_DATA and size.endswith("K") and size[:-1].isdigit():
                sizes[level] = int(size[:-1]) * KIB
    except OSError:
        return Caches()
    usual = Caches()
    near, far = (sizes.get(level, 0) for level in ("1", "2"))
    return Caches(max(usual.near, near), max(usual.far, far), sizes.get("3", usual.last))


def _said(path: str) -> str:
    """The one word in a file."""
    with open(path, "rb", buffering=0) as file:
        return file.read().decode().strip()
