"""Pages that are made from the code are up to date; ``python -m tests.test_docs`` writes them."""

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

from eqsatad.rules.catalog import AnyRow, simplifier_themes, themes
from eqsatad.rules.describe import describe

ROOT = Path(__file__).parent.parent
INTRODUCTION = """# Modules

Every module and the first line of what it says of itself, made by `python -m tests.test_docs`.
How they hang together is in [architecture.md](architecture.md).

| module | holds |
| --- | --- |
"""
RULES_INTRODUCTION = """# Rules

Every rule that comes with eqsatad, made by `python -m tests.test_docs`. How they are written and
checked is in [rules_catalog](../rules_catalog/README.md), how to add one in the
[tutorial](tutorial.md). ⇔ goes both ways. Values are reals; an *exact* rule gives the same
floating-point number, bit by bit. Rules about indices, ranges, conditions and domains hold for all
integers. The letters: `x y z` any expression, `b c d g m n p s w` constants, `f g h` conditions in
rules about values, `k q` axes, `S T` sets of axes.
"""


def modules_page() -> str:
    """The page of all modules of the package and the catalog."""
    rows = []
    for folder in ("eqsatad", "rules_catalog"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            if said:
                first = said.splitlines()[0].replace("|", "\\|")
                rows.append(f"| `{path.relative_to(ROOT).as_posix()}` | {first} |\n")
    return INTRODUCTION + "".join(rows)


def rules_page() -> str:
    """The page of all rules, a table a theme."""
    tables = {
        **themes(),
        **{f"simplifier/{theme}": rows for theme, rows in simplifier_themes().items()},
    }
    return RULES_INTRODUCTION + "".join(
        f"\n## {theme}\n\n{_table(rows)}" for theme, rows in tables.items()
    )


def _table(rows: Iterable[AnyRow]) -> str:
    head = "| name | before | | after | if | |\n| --- | --- | --- | --- | --- | --- |\n"
    return head + "".join(_line(describe(row)) for row in rows)


def _line(facts: dict[str, str]) -> str:
    before, after, when = (_code(facts[part]) for part in ("before", "after", "when"))
    arrow = "⇔" if facts["both ways"] == "yes" else "⇒"
    exact = "exact" if facts["kind"] == "value" and facts["exact"] == "yes" else ""
    return f"| {facts['name']} | {before} | {arrow} | {after} | {when} | {exact} |\n"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


PAGES = {ROOT / "docs" / "modules.md": modules_page, ROOT / "docs" / "rules.md": rules_page}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path]()


if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
