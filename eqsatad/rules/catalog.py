"""The catalog: rows gathered from `rules_catalog`, from files and from installed packages.

A row file is a Python file whose upper-case names hold tuples of rows; importing it changes
nothing. A table `KEPT` in it says why a row that is not needed is there. A catalog is a tuple of
rows, so ``load() + my_rows`` is a catalog too. Nothing is checked here; `rules.given` does that
for what a user brings.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

from eqsatad.errors import RuleError
from eqsatad.rules.installed import ENTRY_POINTS, points
from eqsatad.rules.rule import Row, place
from eqsatad.rules.value_rule import ValueRule
from eqsatad.terms.nodes import Expr, digest

AnyRow = Row | ValueRule
Catalog = tuple[AnyRow, ...]


def themes() -> dict[str, Catalog]:
    """The rows that come with eqsatad, by theme: ``domains``, ``hoisting``, ..."""
    return dict(_themes_of("rules_catalog"))


def simplifier_themes() -> dict[str, Catalog]:
    """The rows of the simplifier that come with eqsatad, by theme; no gradient uses them."""
    return dict(_themes_of("rules_catalog.simplifier"))


@cache
def _themes_of(package: str) -> dict[str, Catalog]:
    found: dict[str, Catalog] = {}
    for module in _modules_of(package):
        found.update(_tuples(module))
    return found


def _modules_of(package: str) -> list[ModuleType]:
    path = importlib.import_module(package).__path__
    names = sorted(info.name for info in pkgutil.iter_modules(path))
    return [importlib.import_module(f"{package}.{name}") for name in names]


def load(without: Iterable[str] = ()) -> Catalog:
    """Every row that comes with eqsatad or an installed package, less the themes ``without``."""
    left_out = set(without)
    known = themes() | _installed()
    if unknown := left_out - set(known):
        raise RuleError(
            f"no theme {', '.join(sorted(unknown))}; available: {', '.join(sorted(known))}"
        )
    return check_names(
        row for theme, rows in known.items() if theme not in left_out for row in rows
    )


def every_theme() -> dict[str, Catalog]:
    """All rows that come with eqsatad or an installed package, by theme."""
    return {**themes(), **_installed(), **simplifier_themes()}


def every_row() -> Catalog:
    """What `load` gives and the rows of the simplifier: all that comes with eqsatad."""
    return check_names(row for rows in every_theme().values() for row in rows)


def kept() -> dict[str, str]:
    """Why rows that others imply, or that undo others, are in the catalog all the same."""
    modules = (*_modules_of("rules_catalog"), *_modules_of("rules_catalog.simplifier"))
    return {name: why for module in modules for name, why in getattr(module, "KEPT", {}).items()}


def load_file(path: Path | str) -> Catalog:
    """The rows of a Python file, or of all those in a folder; `RuleError` names file and line."""
    path = Path(path)
    if path.is_dir():
        inside = sorted(file for file in path.glob("*.py") if not file.name.startswith("_"))
        if not inside:
            raise RuleError(f"the folder {path} holds no Python files. Put files of rows there.")
        return check_names(row for file in inside for row in load_file(file))
    if not path.is_file():
        raise RuleError(f"no rule file {path}. Give the path of a Python file with rows.")
    rows = check_names(row for rows in _tuples(_module(path)).values() for row in rows)
    if not rows:
        raise RuleError(f"{path} holds no rows. Put them into a tuple under an upper-case name.")
    return rows


def _module(path: Path) -> ModuleType:
    """The module that the file at ``path`` makes."""
    spec = importlib.util.spec_from_file_location(f"eqsatad_rules_{path.stem}", path)
    assert spec is not None, "the path is that of a file"
    assert spec.loader is not None, "Python files have a loader"
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        line = f"line {_line(error, path)}: " if _line(error, path) else ""
        raise RuleError(
            f"{path} could not be run: {line}{type(error).__name__}: {error}"
        ) from error
    return module


def _line(error: Exception, path: Path) -> int | None:
    """The line of the file at ``path`` on which ``error`` was raised."""
    if isinstance(error, SyntaxError):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == path.absolute()]
    return lines[-1] if lines else None


def check_names(rows: Iterable[AnyRow]) -> Catalog:
    """``rows`` as a catalog; names must be distinct, since reports go by name."""
    known: dict[str, AnyRow] = {}
    for row in rows:
        if row.name in known:
            places = ", ".join(place(other.origin) for other in (known[row.name], row))
            raise RuleError(f"two rows have the name {row.name} ({places}). Rename one.")
        known[row.name] = row
    return tuple(known.values())


@lru_cache(maxsize=8)
def contents(catalog: Catalog) -> str:
    """A digest of what the rows say, the same in every run."""
    return digest(*map(_spelled, catalog))


def fingerprint(row: AnyRow) -> str:
    """A digest of what one row says, the same in every run."""
    return digest(_spelled(row))


def _spelled(value: object) -> str:
    """Everything that ``value`` holds, as text."""
    if isinstance(value, Expr):
        return value.key
    if isinstance(value, tuple):
        return f"({','.join(map(_spelled, value))})"
    if is_dataclass(value):
        held = (_spelled(getattr(value, field.name)) for field in fields(value) if field.compare)
        return f"{type(value).__name__}({','.join(held)})"
    return repr(value)


def _tuples(module: ModuleType) -> Mapping[str, Catalog]:
    return {
        name.lower(): value
        for name, value in vars(module).items()
        if name.isupper()
        and isinstance(value, tuple)
        and value
        and all(isinstance(row, Row | ValueRule) for row in value)
    }


@cache
def _installed() -> dict[str, Catalog]:
    """The rows of packages that name themselves under the entry point group."""
    return {point.name: _rows_of(point) for point in points()}


def _rows_of(point: EntryPoint) -> Catalog:
    try:
        module = point.load()
    except Exception as error:
        raise RuleError(
            f"the entry point {point.name} = {point.value} of the group {ENTRY_POINTS} could not "
            f"be loaded: {type(error).__name__}: {error}"
        ) from error
    return tuple(row for rows in _tuples(module).values() for row in rows)
