"""Rows as values: how they match, how a catalog is put together, and that the README tells so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eqsatad.errors import RuleError
from eqsatad.rules.catalog import load, load_file
from eqsatad.rules.compile import compile_domain, compile_index
from eqsatad.rules.domain import Domain
from eqsatad.rules.engine import Engine
from eqsatad.rules.indices import ATLEAST, ZERO, Indices
from eqsatad.rules.prove import check
from eqsatad.rules.rule import (
    DomainRow,
    IndexRow,
    Row,
    b,
    c,
    high,
    interval,
    k,
    let,
    low,
    m,
    p,
    q,
    restrict,
    rewrite,
    x,
    y,
)
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Axis, Const, Expr

README = Path(__file__).parent.parent / "rules_catalog" / "README.md"
CATALOG = load()
EGGLOG_ROWS = [row for row in CATALOG if isinstance(row, IndexRow | DomainRow)]
A, B, OUT = (Axis(name, Const(extent, "index")) for name, extent in (("a", 24), ("b", 5), ("o", 6)))


def snippet() -> str:
    """The example of a row file in the README."""
    found = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.fixture
def row_file(tmp_path: Path) -> Path:
    path = tmp_path / "my_rows.py"
    path.write_text(snippet())
    return path


def test_row_of_the_readme_holds(row_file: Path) -> None:
    assert [check(row).method for row in load_file(row_file)] == ["symbolic"]


def test_row_of_the_readme_does_what_no_row_of_the_catalog_does(row_file: Path) -> None:
    guard = (ATLEAST, linear(A // 3 - OUT))
    plain, more = Engine.of(CATALOG), Engine.of(CATALOG + load_file(row_file))
    assert plain.indices.guards([guard]) == [guard]
    assert more.indices.guards([guard]) == [(ATLEAST, linear(A - 3 * OUT))]
    assert more.tally.matches["floor-reaches"] == 1


def test_readme_shows_how_a_row_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = re.findall(r"```\n(rule floor is wrong.*?)\n```", README.read_text(), re.DOTALL)
    sides = "(g * x) // m, x // (m // g), g > 0, m > 0"
    head = "from eqsatad.rules.rule import g, m, rewrite, x\n\n"
    (tmp_path / "my_rows.py").write_text(f'{head}ROWS = (\n    rewrite("floor", {sides}),\n)\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuleError) as refusal:
        check(*load_file("my_rows.py"))
    assert str(refusal.value) == shown


def test_every_file_of_the_catalog_is_in_the_readme() -> None:
    files = {path.name for path in README.parent.glob("*.py")} - {"__init__.py"}
    assert files <= set(re.findall(r"`(\w+\.py)`", README.read_text()))


def test_everything_that_the_readme_names_is_there() -> None:
    names = re.findall(r"`((?:rules|terms|tests)/\w+\.py)`", README.read_text())
    root = README.parent.parent
    missing = [n for n in names if not ((root / n).exists() or (root / "eqsatad" / n).exists())]
    assert (len(names) > 5, missing) == (True, [])


def test_an_engine_refuses_a_row_that_could_not_run() -> None:
    with pytest.raises(RuleError, match=r"rule sum: in x \+ y it is open what x and y are"):
        Engine.of((*CATALOG, rewrite("sum", (x + y) // m, x)))


def test_catalog_without_quotient_rows_leaves_quotients() -> None:
    engine = Engine.of(load(without=["quotients"]))
    (found,) = engine.simplify([(4 * A + OUT % 4) // 4])
    assert "//" in repr(found)


# Rows alone in a catalog, an index expression, and what it becomes.
QUOTIENT = rewrite("multiple", (m * x + y) // m, x + y // m, m > 0)
MATCHES: dict[str, tuple[tuple[Row, ...], Expr, Expr]] = {
    "whatever the order of the sum": ((QUOTIENT,), (B + 1 + 4 * A) // 4, A + (B + 1) // 4),
    "several multiples at once": ((QUOTIENT,), (8 * A - 4 * B + OUT) // 4, 2 * A - B + OUT // 4),
    "nothing where there is no multiple": ((QUOTIENT,), (2 * A + B) // 4, (2 * A + B) // 4),
    "a literal that is a product": (
        (rewrite("product", (b * x) // (b * m), x // m, b > 1, m > 0),),
        (6 * A) // 6,
        A,
    ),
    "a quotient inside a sum": (
        (rewrite("nested", (x // b + c) // m, (x + b * c) // (b * m), b > 0, m > 0),),
        (A // 2 + 3) // 5,
        (A + 6) // 10,
    ),
    "a range that is named": (
        (
            rewrite("small", x // m, p, m > 0, let(p, low(x) // m), (high(x) // m).equal(p)),
            interval("axis", c * k + y, low(y), high(y) + c * 4, c > 0),
        ),
        (B + 10) // 5,
        Const(2, "index"),
    ),
}


@pytest.mark.parametrize("what", MATCHES, ids=str)
def test_index_row_matches(what: str) -> None:
    rows, expr, expected = MATCHES[what]
    assert Indices(rows).forms([linear(expr)]) == [linear(expected)]


def test_a_letter_matches_no_term_that_mentions_the_axis() -> None:
    guard = (ZERO, linear(A + (A + B) // 2 - OUT))
    row = restrict("unit", (k + x).equal(0), axis=k, value=-x, rank=0)
    engine = Engine.of((row,))
    found = engine.domains.candidates(Domain((A,), (guard,)), {"a"})
    assert [candidate.axes for candidate in found] == [(A,)]


def test_different_axis_letters_match_different_axes() -> None:
    row = restrict("two", k + x >= 0, q + y >= 0, axis=k, value=-x, rank=0)
    with pytest.raises(RuleError, match="axis k is not in the guard"):
        Engine.of((row,))
    both = restrict("two", k + q + x >= 0, k - q + y >= 0, axis=k, value=-x, rank=0)
    assert re.search(r"\(!= v\d+ v\d+\)", compile_domain(both).text)


def test_only_the_lowest_rank_is_followed() -> None:
    late = restrict("late", (k + x).equal(0), axis=k, value=-x, rank=5)
    soon = restrict("soon", (c * k + x).equal(0), axis=k, value=(-x) // c,
                    leaves=((x % c).equal(0),), when=(c > 1,), rank=1)  # fmt: skip
    engine = Engine.of((late, soon))
    domain = Domain((A, B), ((ZERO, linear(2 * A + B - OUT)),))
    (found,) = engine.domains.candidates(domain, {"a", "b"}, most=9)
    assert [solved for solved, _ in found.solved] == [A]


def test_rules_ask_only_for_the_ranges_they_use() -> None:
    assert compile_index(QUOTIENT).intervals == frozenset()
    holds = compile_index(rewrite("holds", x >= 0, True, low(x) >= 0))
    assert holds.intervals == {("NotNegative", 0, "low")}


@pytest.mark.parametrize("row", EGGLOG_ROWS, ids=lambda row: row.name)
def test_no_right_side_is_matched_again(row: IndexRow | DomainRow) -> None:
    """A run of one round is a run to the end: no rule builds what a rule looks for."""
    compiled = compile_index(row) if isinstance(row, IndexRow) else compile_domain(row)
    left, right = compiled.text.split(") ((", 1)
    assert not {"Quotient", "Zero", "NotNegative"} & set(re.findall(r"\((\w+)", right))
    assert re.findall(r"\((Plus|Times|Floor|Mod|Fresh|Always)\b", left) == []
