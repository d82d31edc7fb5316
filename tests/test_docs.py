"""Pages that are made from the code are up to date; ``python -m tests.test_docs`` writes them."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "modules.md"
INTRODUCTION = """# Modules

Every module and the first line of what it says of itself, made by `python -m tests.test_docs`.
How they hang together is in [architecture.md](architecture.md).

| module | holds |
| --- | --- |
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


def test_page_of_modules_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == modules_page()


if __name__ == "__main__":
    PAGE.write_text(modules_page(), encoding="utf-8")
