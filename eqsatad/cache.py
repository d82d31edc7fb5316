"""A disk cache of compiled objects and simplified terms, keyed by all that they depend on.

The directory is ``EQSATAD_CACHE_DIR``, or the user's cache directory; an empty value disables
the cache. Entries carry a checksum and are written to a temporary file that is then renamed, so
that a reader never sees half an entry. Trouble with the disk is reported once and never fatal.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

from eqsatad.errors import CacheWarning
from eqsatad.version import VERSION

VARIABLE = "EQSATAD_CACHE_DIR"
SUFFIX = ".bin"
PACKAGE = Path(__file__).parent
# Bytes of the checksum of an entry, and of what stands for code in a key.
_CHECKSUM, _DIGEST = 32, 8
# Nanoseconds after which a file that changes is sure to get another time, and those in a second.
_SETTLED, _SECOND = 5 * 10**9, 10**9
_reported: set[str] = set()


def directory() -> Path | None:
    """Where entries are, or None when the cache is disabled."""
    chosen = os.environ.get(VARIABLE)
    if chosen == "":
        return None
    return Path(chosen) if chosen else _usual()


@cache
def _usual() -> Path:
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("eqsatad")) / "objects"


def fetch(key: str) -> bytes | None:
    """What was kept under ``key``; None when there is nothing, or when it is damaged."""
    if (place := directory()) is None:
        return None
    path = place / f"{key}{SUFFIX}"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as cause:
        _report(place, f"cannot read {path}: {cause}; it is made again")
        return None
    content = data[_CHECKSUM:]
    if _checksum(key, content) != data[:_CHECKSUM]:
        warnings.warn(f"{path} is damaged; it is made again", CacheWarning, stacklevel=2)
        return None
    return content


def keep(key: str, content: bytes) -> None:
    """Keeps ``content`` under ``key``, in place of what was there."""
    if (place := directory()) is None:
        return
    from tempfile import mkstemp

    temporary = None
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle, temporary = mkstemp(dir=place, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(_checksum(key, content) + content)
        os.replace(temporary, place / f"{key}{SUFFIX}")
    except OSError as cause:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        _report(place, f"cannot write to {place}: {cause}; nothing is kept")


def entries() -> list[tuple[str, int]]:
    """The keys with their sizes in bytes, sorted."""
    if (place := directory()) is None:
        return []
    found = []
    for path in sorted(place.glob(f"*{SUFFIX}")):
        with suppress(FileNotFoundError):  # another process may clear at the same time
            found.append((path.name.removesuffix(SUFFIX), path.stat().st_size))
    return found


def clear() -> int:
    """Deletes every entry; gives their number."""
    place = directory()
    count = 0
    if place is not None:
        for path in sorted(place.glob(f"*{SUFFIX}")):
            with suppress(OSError):
                path.unlink()
                count += 1
    return count


def code(*layers: str) -> str:
    """A digest of the version and of the code in these packages, for keys that depend on it."""
    said = (VERSION, *(text_of(PACKAGE / layer) for layer in layers))
    return blake2b("\x1f".join(said).encode(), digest_size=_DIGEST).hexdigest()


@cache
def text_of(folder: Path) -> str:
    """A digest of the Python files in ``folder``, at any depth, and of their names.

    It is kept as long as the system says that none of them has changed.
    """
    files = list(_python_files(str(folder)))
    stamp = stamp_of({path: entry.stat() for path, entry in files}, time.time_ns())
    if stamp is None:
        return _read(files)
    key = f"code-{stamp}"
    if (kept := fetch(key)) is not None:
        return kept.decode()
    said = _read(files)
    keep(key, said.encode())
    return said


def stamp_of(files: Mapping[str, os.stat_result], now: int) -> str | None:
    """A digest of what the system says of ``files``, another one whenever one of them changes.

    A program can set the time at which contents changed, but not that of the last change to
    anything in a file. None where that time tells too little: on Windows, where it is that of
    making the file; so short ago that another change could get the same; or in whole seconds, as
    in images of file systems that are built to be the same every time.
    """
    changes = [about.st_ctime_ns for about in files.values()]
    known = os.name == "posix" and all(change % _SECOND for change in changes)
    if not known or now - max(changes, default=0) < _SETTLED:
        return None
    said = [
        (path, about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        for path, about in files.items()
    ]
    return blake2b(repr(said).encode(), digest_size=_DIGEST).hexdigest()


def _read(files: Sequence[tuple[str, os.DirEntry[str]]]) -> str:
    """A digest of ``files`` and of their names."""
    said = blake2b(digest_size=_DIGEST)
    for name, entry in files:
        with open(entry.path, "rb", buffering=0) as file:
            content = file.read()
        said.update(f"{name}\0{len(content)}\0".encode())
        said.update(content)
    return said.hexdigest()


def _python_files(folder: str, inside: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The Python files from ``folder`` on, by their names in it."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.endswith(".py"):
            yield inside + entry.name, entry
        elif entry.name != "__pycache__" and entry.is_dir():
            yield from _python_files(entry.path, f"{inside}{entry.name}/")


def _checksum(key: str, content: bytes) -> bytes:
    return blake2b(key.encode() + b"\0" + content, digest_size=_CHECKSUM).digest()


def _report(place: Path, message: str) -> None:
    """Warns about ``place`` the first time that it fails."""
    if str(place) not in _reported:
        _reported.add(str(place))
        warnings.warn(message, CacheWarning, stacklevel=3)
