"""Rows of a user: from files, folders and packages; checked before use; refused by line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import eqsatad as ea
from eqsatad import cache
from eqsatad.errors import RefutedRuleError, RuleError
from eqsatad.rules import catalog as catalogs
from eqsatad.rules import collection, given, prove
from eqsatad.rules.catalog import contents, every_row, load, load_file
from eqsatad.rules.collection import Collection, collected
from eqsatad.rules.describe import describe
from eqsatad.rules.given import gathered
from eqsatad.rules.installed import ENTRY_POINTS
from eqsatad.rules.rule import m, rewrite, x
from eqsatad.rules.value_rule import call
from eqsatad.rules.value_rule import rewrite as value_rewrite
from eqsatad.rules.value_rule import x as v

PYTHAGORAS = '''"""Rows of a test."""

from eqsatad.rules.value_rule import call, rewrite, x

ROWS = (
    rewrite(
        "pythagoras",
        call("sin", x) * call("sin", x) + call("cos", x) * call("cos", x),
        1,
    ),
)
'''

WRONG = PYTHAGORAS.replace("        1,", "        2,")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and a process that has checked nothing."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    given._check.cache_clear()
    yield tmp_path
    given._check.cache_clear()


@pytest.fixture
def file(own_cache: Path) -> Path:
    path = own_cache / "mine.py"
    path.write_text(PYTHAGORAS, encoding="utf-8")
    return path


@pytest.fixture
def wrong(own_cache: Path) -> Path:
    path = own_cache / "wrong.py"
    path.write_text(WRONG, encoding="utf-8")
    return path


def program() -> tuple[ea.Stage, ea.Tensor]:
    """A product with the sum of two squares that is 1, and its first factor."""
    a, b = (ea.placeholder((10,), name=name) for name in "ab")
    y = ea.compute(
        (10,), lambda i: a[i] * (ea.sin(b[i]) * ea.sin(b[i]) + ea.cos(b[i]) * ea.cos(b[i]))
    )
    return y, a


def multiplications(**options: Any) -> int:
    y, a = program()
    return ea.differentiate(y, [a], cost="count", **options).report().total.multiplications


# where rows come from


def test_file_of_rows_is_added_to_the_rows_that_come_with_eqsatad(file: Path) -> None:
    assert multiplications() > 10
    assert multiplications(rules=file) == multiplications(rules=[str(file)]) == 0


def test_file_is_added_to_the_rows_that_are_given_with_it(file: Path) -> None:
    (own,) = load_file(file)
    plain = load(without=["domains"])
    assert gathered([*plain, file]) == (*plain, own)


def test_rows_alone_are_the_whole_catalog() -> None:
    own = load()[0]
    assert (gathered(own), gathered([own]), gathered(())) == ((own,), (own,), ())


def test_folder_gives_the_rows_of_its_files_in_order(own_cache: Path) -> None:
    folder = own_cache / "rows"
    folder.mkdir()
    for name in ("second", "first"):
        text = PYTHAGORAS.replace("pythagoras", name)
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    (folder / "_draft.py").write_text("raise ValueError", encoding="utf-8")
    assert [row.name for row in load_file(folder)] == ["first", "second"]
    assert gathered(folder)[-2:] == load_file(folder)


def test_entry_point_gives_rows_to_every_catalog(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    installed(monkeypatch, "mine")
    assert load()[-1].name == "pythagoras"
    assert multiplications() == 0


def installed(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Makes ``module`` the one entry point of the group."""
    point = EntryPoint(f"theme_{module}", module, ENTRY_POINTS)
    monkeypatch.setattr(collection, "points", lambda: (point,))
    monkeypatch.setattr(catalogs, "points", lambda: (point,))
    monkeypatch.setattr(catalogs, "_installed", catalogs._installed.__wrapped__)


def test_wrong_row_of_an_entry_point_is_refused(
    wrong: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(wrong.parent))
    installed(monkeypatch, "wrong")
    with pytest.raises(RuleError, match="rule pythagoras is wrong"):
        multiplications()


def test_entry_point_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "no_such_module")
    with pytest.raises(RuleError, match="entry point theme_no_such_module = no_such_module"):
        load()


def test_what_the_rows_of_eqsatad_say_is_known_without_them(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection._shipped.cache_clear()
    said = Collection().contents
    assert said == contents(load())
    collection._shipped.cache_clear()
    monkeypatch.setattr(collection, "_said", lambda rows: pytest.fail("the rows were read"))
    assert Collection().contents == said


def test_a_changed_file_of_rows_is_read_again(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = own_cache / "rows"
    folder.mkdir()
    read: list[str] = []
    monkeypatch.setattr(collection, "_folders", lambda: [folder])
    monkeypatch.setattr(collection, "_said", lambda rows: read.append("read") or str(len(read)))

    def said(text: str) -> str:
        (folder / "rows.py").write_text(text, encoding="utf-8")
        cache.text_of.cache_clear()
        collection._shipped.cache_clear()
        return Collection().contents

    assert [said(text) for text in ("A = 1", "A = 2", "A = 1")] == ["1", "2", "1"]
    collection._shipped.cache_clear()


def test_rows_of_an_entry_point_are_part_of_what_is_said(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    plain = Collection().contents
    installed(monkeypatch, "mine")
    assert not Collection().is_shipped
    assert Collection().contents == contents(load()) != plain
    assert collected(None, trusted=True).rows[-1].name == "pythagoras"


def test_rows_that_were_collected_are_not_gathered_again(wrong: Path) -> None:
    rows = collected(wrong, trusted=True)
    assert collected(rows) is rows
    assert gathered(rows, trusted=True) is rows.rows


# what is wrong with them, and where


def test_wrong_row_is_refused_before_use_with_its_place_and_a_counterexample(wrong: Path) -> None:
    with pytest.raises(RefutedRuleError) as refusal:
        multiplications(rules=wrong)
    message = str(refusal.value)
    assert "rule pythagoras is wrong: before is not after" in message
    assert "which is 1 at" in message
    assert "after: 2, which is 2" in message
    assert f"{wrong}:6: pythagoras: " in message


@pytest.mark.parametrize("use", ["build", "simplified", "vjp", "jvp", "jacobian"])
def test_every_function_with_rules_checks_them(wrong: Path, use: str) -> None:
    y, a = program()
    calls = {
        "build": lambda: ea.build([y], rules=wrong),
        "simplified": lambda: ea.simplified([y], rules=wrong),
        "vjp": lambda: ea.vjp(y, a, rules=wrong),
        "jvp": lambda: ea.jvp(y, a, rules=wrong),
        "jacobian": lambda: ea.jacobian(y, a, rules=wrong),
    }
    with pytest.raises(RuleError, match="rule pythagoras is wrong"):
        calls[use]()


def test_trusted_row_is_used_without_a_check(wrong: Path) -> None:
    assert multiplications(rules=wrong, trusted=True) < multiplications()


def test_unbound_letter_is_refused_with_its_line(own_cache: Path) -> None:
    path = own_cache / "letters.py"
    path.write_text(
        "from eqsatad.rules.rule import m, rewrite, x, y\n\n\n"
        'ROWS = (rewrite("lost", x // m, y, m > 0),)\n',
        encoding="utf-8",
    )
    with pytest.raises(RuleError, match=r"(?s)rule lost: letter y of y .*letters\.py:4: lost"):
        gathered(path)


# A file, and what is said of it.
UNUSABLE = {
    "a syntax error": ("ROWS = (\n\n", r"could not be run: line 1: SyntaxError"),
    "an exception": ("x = 1\ny = 1 // 0\n", r"could not be run: line 2: ZeroDivisionError"),
    "no rows": ("x = 1\n", "holds no rows"),
    "one name twice": (PYTHAGORAS + "\nMORE = ROWS[:1]\n", r"two rows have the name pythagoras"),
}


@pytest.mark.parametrize("what", UNUSABLE, ids=str)
def test_file_that_cannot_be_used_is_named(own_cache: Path, what: str) -> None:
    text, why = UNUSABLE[what]
    path = own_cache / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RuleError, match=why):
        load_file(path)


def test_name_that_the_catalog_has_is_refused_with_both_places(own_cache: Path) -> None:
    path = own_cache / "mine.py"
    path.write_text(PYTHAGORAS.replace("pythagoras", "plus-zero"), encoding="utf-8")
    with pytest.raises(RuleError, match=r"name plus-zero \(.*algebra\.py:\d+, .*mine\.py:6\)"):
        gathered(path)


@pytest.mark.parametrize("rules", [3, [3], [None], "no/such/file.py"], ids=str)
def test_rules_that_are_none_are_refused(rules: Any) -> None:
    with pytest.raises((RuleError, TypeError)):
        gathered(rules)


def test_empty_folder_is_refused(own_cache: Path) -> None:
    with pytest.raises(RuleError, match="holds no Python files"):
        load_file(own_cache)


# checks that are remembered


def test_row_is_checked_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process finds the proof on the disk, and the second call in memory."""
    gathered(file)
    monkeypatch.setattr(prove, "check_value_rule", None)
    given._check.cache_clear()
    gathered(file)
    monkeypatch.setattr(cache, "fetch", None)
    gathered(file)


def test_row_that_changed_is_checked_again(file: Path) -> None:
    gathered(file)
    file.write_text(WRONG, encoding="utf-8")
    with pytest.raises(RuleError, match="is wrong"):
        gathered(file)


def test_rows_of_eqsatad_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "_check", None)
    assert gathered(None) == gathered(load()) == load()


# rows as values


def test_every_row_knows_its_file_and_line() -> None:
    for row in every_row():
        path, line = row.origin.rsplit(":", 1)
        text = Path(path).read_text(encoding="utf-8").splitlines()
        assert Path(path).parent.name in ("rules_catalog", "simplifier")
        assert any(word in text[int(line) - 1] for word in CONSTRUCTORS)


CONSTRUCTORS = ("rewrite(", "equal(", "turn(", "interval(", "restrict(")


def test_place_of_a_row_is_no_part_of_what_it_says() -> None:
    one = rewrite("small", x // m, 0, m > 0)
    other = rewrite("small", x // m, 0, m > 0)
    assert one.origin != other.origin
    assert one == other
    assert hash(one) == hash(other)
    assert contents((one,)) == contents((other,))


def test_representation_of_a_row_is_its_name_and_its_sides() -> None:
    assert repr(rewrite("small", x // m, 0, m > 1)) == "small: x // m => 0  if m > 1"
    assert repr(value_rewrite("gone", call("sin", v), v)) == "gone: sin(x) => x"


def test_description_says_where_a_row_was_written() -> None:
    assert describe(rewrite("small", x // m, 0))["written"].startswith("tests/test_catalog.py:")


# the simplifier

EVEN = """
from eqsatad.rules.rule import turn, x

ROWS = (
    turn("even-product", (x * x + x) % 2, 0),
    turn("is-even-product", ((x * x + x) % 2).equal(0), True),
)
"""


@pytest.fixture
def even(own_cache: Path) -> Path:
    path = own_cache / "even.py"
    path.write_text(EVEN, encoding="utf-8")
    return path


def test_simplifier_takes_rows_from_a_file(even: Path) -> None:
    n = ea.size("n")
    assert repr(ea.simplify((n * n + n) % 2, rules=even)) == "0"
    assert ea.prove(((n * n + n) % 2).equal(0)) is None
    assert ea.prove(((n * n + n) % 2).equal(0), rules=even) is True
    assert ea.bounds((n * n + n) % 2, rules=even) == (0, 0)


def test_simplifier_and_solver_check_rows(wrong: Path) -> None:
    n = ea.size("n")
    axis = ea.reduce_axis((0, 5), name="k")
    for use in (
        lambda: ea.simplify(n + 0, rules=wrong),
        lambda: ea.solve([axis.equal(n)], [axis], rules=wrong),
    ):
        with pytest.raises(RuleError, match="rule pythagoras is wrong"):
            use()


# the command line


def command(*arguments: str) -> tuple[int, str]:
    """The exit code of a command line, and all that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "eqsatad", *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


GRAD = ["grad", "y[i] = a[i] * (sin(b[i])*sin(b[i]) + cos(b[i])*cos(b[i]))", "--shape", "a=10",
        "--shape", "b=10", "--wrt", "a", "--show", "gradient"]  # fmt: skip


def test_command_line_takes_rows(file: Path, wrong: Path) -> None:
    plain, mine = command(*GRAD), command(*GRAD, "--rules", str(file))
    assert (plain[0], mine[0]) == (0, 0)
    assert "sin" in plain[1]
    assert "sin" not in mine[1]
    code, text = command(*GRAD, "--rules", str(wrong))
    assert (code, "rule pythagoras is wrong" in text, "wrong.py:6" in text) == (1, True, True)


def test_check_of_a_folder_says_how_each_row_was_proved(file: Path) -> None:
    code, text = command("rules", "check", str(file.parent / "mine.py"))
    assert code == 0
    assert "arrays" in text
