"""What stands for code in keys: a text that is read again whenever a file may have changed."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from eqsatad import cache

SECOND = 10**9
# Longer than a tick of the clock by which files are dated.
TICK = 0.05
DATED = pytest.mark.skipif(os.name != "posix", reason="only Unix dates every change to a file")


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A Python file in a folder of its own, an empty cache, and a clock that is a minute ahead."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 60 * SECOND)
    path = tmp_path / "code" / "one.py"
    path.parent.mkdir()
    path.write_text("A = 1", encoding="utf-8")
    return path


def text_of(folder: Path) -> str:
    """What another process would find."""
    return cache.text_of.__wrapped__(folder)


def rewritten(path: Path, text: str) -> None:
    """Changes the contents but not what a program can set of the dates."""
    before = path.stat()
    time.sleep(TICK)
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@DATED
def test_code_that_has_not_changed_is_not_read(file, monkeypatch):
    said = text_of(file.parent)
    monkeypatch.setattr(cache, "_read", lambda files: pytest.fail("it was read"))
    assert text_of(file.parent) == said


def test_a_change_that_leaves_size_and_date_alone_is_seen(file):
    first = text_of(file.parent)
    rewritten(file, "A = 2")
    second = text_of(file.parent)
    rewritten(file, "A = 1")
    assert text_of(file.parent) == first != second


@pytest.mark.parametrize("name", ["two.py", "below/two.py"])
def test_files_that_come_and_go_are_seen(file, name):
    first = text_of(file.parent)
    other = file.parent / name
    other.parent.mkdir(exist_ok=True)
    other.write_text("B = 1", encoding="utf-8")
    second = text_of(file.parent)
    other.unlink()
    assert text_of(file.parent) == first != second


def test_a_name_is_part_of_the_code(file):
    first = text_of(file.parent)
    file.rename(file.with_name("other.py"))
    assert text_of(file.parent) != first


def test_what_python_keeps_beside_code_is_no_part_of_it(file):
    first = text_of(file.parent)
    (file.parent / "__pycache__").mkdir()
    (file.parent / "__pycache__" / "one.py").write_text("B = 1", encoding="utf-8")
    assert text_of(file.parent) == first


@pytest.mark.parametrize("variable", ["", "cache"])
def test_code_says_the_same_with_and_without_a_cache(file, monkeypatch, variable):
    kept = [text_of(file.parent) for _ in range(2)]
    monkeypatch.setenv(cache.VARIABLE, variable and str(file.parent.parent / variable))
    assert [text_of(file.parent) for _ in range(2)] == kept


NOW = 1_000 * SECOND + 7


def dated(change: int, **other: int) -> SimpleNamespace:
    """What the system says of a file that was changed at ``change``."""
    told = {"st_dev": 1, "st_ino": 2, "st_size": 3, "st_mtime_ns": 4, "st_ctime_ns": change}
    return SimpleNamespace(**{**told, **other})


@DATED
@pytest.mark.parametrize(
    "change",
    [NOW, NOW - SECOND, NOW + 60 * SECOND, 100 * SECOND],
    ids=["just now", "a second ago", "tomorrow", "in whole seconds"],
)
def test_dates_that_tell_too_little_are_not_relied_on(change):
    settled = dated(NOW - 60 * SECOND)
    assert cache.stamp_of({"one.py": settled, "two.py": settled}, NOW) is not None
    assert cache.stamp_of({"one.py": settled, "two.py": dated(change)}, NOW) is None


@DATED
@pytest.mark.parametrize("field", ["st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns"])
def test_all_that_is_told_of_a_file_decides(field):
    settled = NOW - 60 * SECOND
    other = dated(settled, **{field: settled + 1})
    assert cache.stamp_of({"one.py": dated(settled)}, NOW) != cache.stamp_of({"one.py": other}, NOW)
