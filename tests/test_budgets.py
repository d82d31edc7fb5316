"""What simplification costs stays below twice what is recorded; a row that doubles it is caught."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import budgets
from benchmarks.budgets import LEAST, Excess, excesses, programs, recorded
from benchmarks.corpora import DEFAULT
from eqsatad import cache
from eqsatad.rules import value_rule
from eqsatad.rules.catalog import load, simplifier_themes
from eqsatad.rules.given import Rules
from eqsatad.rules.rule import turn, x, y, z
from eqsatad.terms.builders import maximum, minimum

EVERY = 5
"""Of how many gradients one is counted here; the command counts all."""

NAMES = sorted(programs())
SIMPLIFIER = [name for name in NAMES if name.startswith("simplifier/")]
GRADIENTS = [name for name in NAMES if not name.startswith("simplifier/")][::EVERY]


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, "")


def counted(names: Sequence[str], rules: Rules | None = None) -> dict[str, dict[str, int]]:
    """The counts of some programs."""
    runs = programs(rules)
    return {name: runs[name]() for name in names}


@pytest.mark.parametrize("names", [GRADIENTS, SIMPLIFIER], ids=["gradients", "simplifier"])
def test_nothing_costs_twice_what_is_recorded(names: list[str]) -> None:
    assert not [str(excess) for excess in excesses(counted(names), recorded())]


def test_every_program_is_recorded_and_no_other() -> None:
    assert [name for name in sorted(recorded()) if not name.startswith("corpus/")] == NAMES


@pytest.mark.skipif(not DEFAULT.is_dir(), reason=f"no corpora in {DEFAULT}")
def test_no_corpus_costs_twice_what_is_recorded() -> None:
    found = budgets.of_corpora(DEFAULT, only="tinygrad")
    assert not [str(excess) for excess in excesses(found, recorded())]


def test_counts_are_the_same_in_every_run() -> None:
    names = [*GRADIENTS[:3], *SIMPLIFIER[:3]]
    assert counted(names) == counted(names)


v = value_rule.x, value_rule.y, value_rule.z
DOUBLING = {
    "minus-twice": value_rule.rewrite("minus-twice", v[0] * v[1], -(-v[0] * v[1])),
    "halves": value_rule.rewrite("halves", v[0] + v[1], 2 * (v[0] * 0.5 + v[1] * 0.5)),
    "spread": value_rule.rewrite("spread", v[0] * (v[1] + v[2]), v[0] * v[1] + v[0] * v[2]),
}


@pytest.mark.parametrize("name", DOUBLING)
def test_a_value_row_that_doubles_e_graphs_is_caught(name: str) -> None:
    names = ["gradient/add-transpose", "gradient/tanh-cubic", "gradient/dense-softmax"]
    assert not list(excesses(counted(names), recorded()))
    assert list(excesses(counted(names, (*load(), DOUBLING[name])), recorded()))


def test_a_row_of_the_simplifier_that_undoes_another_is_caught() -> None:
    own = [row for rows in simplifier_themes().values() for row in rows]
    back = maximum(minimum(x, y), minimum(x, z))
    undoing = turn("min-of-max-spread", minimum(x, maximum(y, z)), back)
    found = counted(SIMPLIFIER, [*own, undoing])
    assert "rewritings" in {excess.count for excess in excesses(found, recorded())}


def test_what_counts_as_an_excess() -> None:
    least = LEAST["nodes"]
    known = {"a/one": {"nodes": least}, "a/two": {"nodes": 10 * least}, "a/three": {"nodes": 1}}
    assert not list(excesses({"a/one": {"nodes": 2 * least - 1}}, known))
    assert list(excesses({"a/one": {"nodes": 2 * least}}, known)) == [
        Excess("a/one", "nodes", least, 2 * least),
        Excess("a, together", "nodes", least, 2 * least),
    ]
    assert not list(excesses({"a/three": {"nodes": least - 1}}, known))
    assert "nothing recorded" in str(next(excesses({"a/new": {"nodes": 1}}, known)))


def test_many_programs_that_cost_a_little_more_are_too_much_together() -> None:
    few = LEAST["nodes"] // 4
    known = {f"a/{number}": {"nodes": few} for number in range(9)}
    doubled = {name: {"nodes": 2 * few} for name in known}
    (excess,) = excesses(doubled, known)
    assert excess.program == "a, together"


def test_the_command_compares_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(budgets, "DATA", tmp_path / "budgets.json")
    few = ["--only", "simplifier/shorter: a m"]
    budgets.DATA.write_text("{}", encoding="utf-8")
    assert budgets.main(few) == 1
    assert "nothing recorded" in capsys.readouterr().out
    assert budgets.main([*few, "--update"]) == 0
    assert budgets.main(few) == 0
    assert set(recorded()) == {name for name in NAMES if name.startswith(few[1])}
