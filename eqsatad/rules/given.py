"""The rows that a user gives, found and checked before they are used.

A catalog is given as rows, as paths of files or folders of rows, or as a mixture. Rows alone are
the whole catalog; files are added to the rows that are given with them, or, where there are none,
to those that come with eqsatad. Every row that does not come with eqsatad is checked by machine
(`rules.prove`), which is remembered by what the row says; ``trusted`` rows are taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from os import PathLike
from pathlib import Path

from eqsatad.errors import RuleError
from eqsatad.rules.catalog import (
    AnyRow,
    Catalog,
    check_names,
    load,
    load_file,
    simplifier_themes,
    themes,
)
from eqsatad.rules.collection import Collection
from eqsatad.rules.rule import Row
from eqsatad.rules.value_rule import ValueRule

Given = AnyRow | str | PathLike[str]
Rules = Given | Sequence[Given] | Collection
"""Rows, paths of files or folders of rows, or several of these."""


def gathered(
    rules: Rules | None, *, trusted: bool = False, default: Callable[[], Catalog] = load
) -> Catalog:
    """The catalog that ``rules`` stand for, each row checked; ``default`` if nothing is given."""
    if rules is None:
        catalog = default()
    elif isinstance(rules, Collection):
        catalog = rules.rows
    else:
        given = [rules] if isinstance(rules, Row | ValueRule | str | PathLike) else list(rules)
        rows = [row for row in given if isinstance(row, Row | ValueRule)]
        files = [path for path in given if isinstance(path, str | PathLike)]
        if len(rows) + len(files) < len(given):
            raise RuleError(
                f"rules are rows or paths of files with rows; found {_strange(given)}. "
                "See rules_catalog/README.md."
            )
        own = default() if files and not rows else tuple(rows)
        catalog = check_names((*own, *(row for path in files for row in load_file(Path(path)))))
    if not trusted:
        _checked(catalog)
    return catalog


def _strange(given: Iterable[object]) -> str:
    found = (g for g in given if not isinstance(g, Row | ValueRule | str | PathLike))
    return type(next(found)).__name__


def _checked(catalog: Catalog) -> None:
    """Raises `RuleError` for the first row that a check refuses."""
    brought = catalog
    for shipped in (themes, simplifier_themes):  # The second is loaded only if rows are left.
        if brought:
            brought = tuple(row for row in brought if id(row) not in _identities(shipped))
    for row in brought:
        _check(row)


@lru_cache(maxsize=1024)
def _check(row: AnyRow) -> None:
    from eqsatad.rules.prove import check  # Only who brings rows pays for the import.

    check(row)


@cache
def _identities(shipped: Callable[[], dict[str, Catalog]]) -> frozenset[int]:
    """The rows of these themes, which live as long as their modules."""
    return frozenset(id(row) for rows in shipped().values() for row in rows)
