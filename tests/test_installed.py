"""What is installed is read from folders, and agrees with what the standard library says."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from eqsatad.extract.recall import TOOLS, Recall
from eqsatad.rules import installed
from eqsatad.rules.collection import Collection
from eqsatad.rules.installed import points, versions

ROWS = "[console_scripts]\nrun = rows:run\n\n[eqsatad.rules]\nmine = rows\n"


@pytest.fixture(autouse=True)
def nothing_read() -> Iterator[None]:
    """Nothing is remembered of the folders, before or after."""
    memories = (points, versions, installed._described)
    for memory in memories:
        memory.cache_clear()
    yield
    for memory in memories:
        memory.cache_clear()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def package(folder: Path, name: str, said: str) -> None:
    """A package in ``folder`` that says this of its entry points."""
    described = folder / f"{name}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Name: {name.partition('-')[0]}\nVersion: 1\n")
    (described / "entry_points.txt").write_text(said)


def test_entry_points_are_found(site: Path) -> None:
    package(site, "mine-1", ROWS)
    assert [(point.name, point.value) for point in points()] == [("mine", "rows")]


@pytest.mark.parametrize("said", ["", "[console_scripts]\nrun = rows:run\n"])
def test_other_packages_bring_nothing_and_nobody_else_is_asked(
    site: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(site, "other-1", said)
    monkeypatch.setitem(sys.modules, "importlib.metadata", None)
    assert points() == ()


def test_packages_in_an_archive_are_found(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = site / "packed.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("mine-1.dist-info/METADATA", "Name: mine\nVersion: 1\n")
        file.writestr("mine-1.dist-info/entry_points.txt", ROWS)
    monkeypatch.syspath_prepend(str(archive))
    assert [point.name for point in points()] == ["mine"]


def test_packages_of_another_finder_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        @staticmethod
        def find_spec(*_: object) -> None:
            return None

        @staticmethod
        def find_distributions(*_: object) -> list[object]:
            return []

    assert not installed._elsewhere()
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert installed._elsewhere()


def test_versions_are_those_of_the_standard_library() -> None:
    for name in (*TOOLS, "typing-extensions"):
        (found,) = versions(name)
        assert version(name) in found


def test_what_is_not_installed_has_no_version() -> None:
    assert versions("no-such-package") == ("no-such-package-none",)


def test_version_of_a_tool_is_part_of_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for number in ("13.2.0", "13.2.1"):
        folder = tmp_path / number
        folder.mkdir()
        package(folder, f"egglog-{number}", "")
        package(folder, "islpy-2026.1", "")
        monkeypatch.setattr(sys, "path", [str(folder)])
        versions.cache_clear()
        installed._described.cache_clear()
        said.append(Recall.by(Collection(())).context)
    assert said[0] != said[1]
