"""The rows that are asked for, before they are read.

To make the rows and to spell them out takes longer than all the rest where the answers are known
already (`extract.recall`). A `Collection` knows what they say, and reads them when one is needed.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from eqsatad import cache as disk
from eqsatad.rules.installed import points
from eqsatad.terms.nodes import digest

if TYPE_CHECKING:
    from eqsatad.rules.catalog import Catalog
    from eqsatad.rules.given import Rules

LAYERS = ("terms", "grad", "rules")
"""The packages that a file of rows can be made of."""


@dataclass(frozen=True)
class Collection:
    """The rows ``given``, or all that come with eqsatad or an installed package."""

    given: Catalog | None = None

    @cached_property
    def rows(self) -> Catalog:
        """The rows themselves."""
        from eqsatad.rules.catalog import load

        return load() if self.given is None else self.given

    @cached_property
    def contents(self) -> str:
        """A digest of what the rows say, the same in every run."""
        return _shipped() if self.is_shipped else _said(self.rows)

    @property
    def is_shipped(self) -> bool:
        """Whether every row comes with eqsatad, none from another package or from the user."""
        return self.given is None and not points()


NO_ROWS = Collection(())


def collected(rules: Rules | None, *, trusted: bool = False) -> Collection:
    """The rows that ``rules`` stand for: see `given.gathered`, which checks what a user brings."""
    if isinstance(rules, Collection):
        return rules
    if rules is None and (found := Collection()).is_shipped:
        return found
    from eqsatad.rules.given import gathered

    return Collection(gathered(rules, trusted=trusted))


@cache
def _shipped() -> str:
    """What the rows say that come with eqsatad, kept on disk by the text of their files."""
    key = f"rows-{digest(disk.code(*LAYERS), *map(disk.text_of, _folders()))}"
    if (kept := disk.fetch(key)) is not None:
        return kept.decode()
    said = _said(Collection().rows)
    disk.keep(key, said.encode())
    return said


def _said(rows: Catalog) -> str:
    from eqsatad.rules.catalog import contents

    return contents(rows)


def _folders() -> list[Path]:
    """Where the files of rows lie."""
    return [Path(folder) for folder in importlib.import_module("rules_catalog").__path__]
