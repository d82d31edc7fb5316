"""The catalog: rows gathered from `rules_catalog`, from files and from installed packages.

A row file is a Python file whose upper-case names hold tuples of rows; importing it changes
nothing. A catalog is a tuple of rows, so ``load() + my_rows`` is a catalog too.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from eqsatad.errors import RuleError
from eqsatad.rules.rule import Row
from eqsatad.rules.value_rule import ValueRule
from eqsatad.terms.nodes import Expr, digest

AnyRow = Row | ValueRule
Catalog = tuple[AnyRow, ...]

ENTRY_POINTS = "eqsatad.rules"


def themes() -> dict[str, Catalog]:
    """The rows that come with eqsatad, by theme: ``domains``, ``hoisting``, ..."""
    return _themes_of("rules_catalog")


def simplifier_themes() -> dict[str, Catalog]:
    """The rows of the simplifier that come with eqsatad, by theme; no gradient uses them."""
    return _themes_of("rules_catalog.simplifier")


def _themes_of(package: str) -> dict[str, Catalog]:
    found: dict[str, Catalog] = {}
    path = importlib.import_module(package).__path__
    for info in sorted(pkgutil.iter_modules(path), key=lambda info: info.name):
        found.update(_tuples(importlib.import_module(f"{package}.{info.name}")))
    return found


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


def every_row() -> Catalog:
    """What `load` gives and the rows of the simplifier: all that comes with eqsatad."""
    return check_names((*load(), *(row for rows in simplifier_themes().values() for row in rows)))


def load_file(path: Path | str) -> Catalog:
    """The rows of a Python file; `RuleError` names the file and what is wrong with it."""
    path = Path(path)
    if not path.is_file():
        raise RuleError(f"no rule file {path}. Give the path of a Python file with rows.")
    spec = importlib.util.spec_from_file_location(f"eqsatad_rules_{path.stem}", path)
    assert spec is not None, "the path is that of a file"
    assert spec.loader is not None, "Python files have a loader"
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RuleError(f"{path} could not be run: {type(error).__name__}: {error}") from error
    rows = check_names(row for rows in _tuples(module).values() for row in rows)
    if not rows:
        raise RuleError(f"{path} holds no rows. Put them into a tuple under an upper-case name.")
    return rows


def check_names(rows: Iterable[AnyRow]) -> Catalog:
    """``rows`` as a catalog; names must be distinct, since reports go by name."""
    catalog = tuple(rows)
    twice = [name for name, count in Counter(row.name for row in catalog).items() if count > 1]
    if twice:
        raise RuleError(f"two rows have the name {', '.join(sorted(twice))}. Rename one.")
    return catalog


@lru_cache(maxsize=8)
def contents(catalog: Catalog) -> str:
    """A digest of what the rows say, the same in every run."""
    return digest(*map(_spelled, catalog))


def _spelled(value: object) -> str:
    """Everything that ``value`` holds, as text."""
    if isinstance(value, Expr):
        return value.key
    if isinstance(value, tuple):
        return f"({','.join(map(_spelled, value))})"
    if is_dataclass(value):
        held = (_spelled(getattr(value, field.name)) for field in fields(value))
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


def _installed() -> dict[str, Catalog]:
    """The rows of packages that name themselves under the entry point group."""
    return {
        f"{point.name}": tuple(row for rows in _tuples(point.load()).values() for row in rows)
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    }
