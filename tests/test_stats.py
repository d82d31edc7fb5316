"""What rows do: the statistics of a small gradient are known, and a row left out has its price."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import eqsatad as ea
from benchmarks import rules as benchmark
from eqsatad.cli import main
from eqsatad.errors import ArgumentError
from eqsatad.extract.cost import MODELS
from eqsatad.rules.catalog import every_row, load, simplifier_themes, themes
from eqsatad.rules.engine import Engine
from eqsatad.rules.growth import Limits
from eqsatad.rules.index_match import Rows
from eqsatad.rules.indices import Indices
from eqsatad.rules.rule import Row
from eqsatad.rules.singly import PAIR, Answering, Choice, Reporting
from eqsatad.rules.value_rule import ValueRule
from eqsatad.rules.values import encode
from eqsatad.stats import RowStats, Stats, answered, gathered, observed, operations
from eqsatad.subjects import Question, Subject, operators, questions
from eqsatad.terms.nodes import Apply, Const, Expr, Var
from eqsatad.terms.ops import OPS

VALUES = [row for row in load() if isinstance(row, ValueRule)]


def product() -> Subject:
    """Gradients of a product of a matrix with exponentials: `exp` leaves the sum of one of them."""
    y = ea.op("y[i] = sum(a[i,k]*exp(x[k]))", a=(4, 5), x=(5,))
    gradients = ea.differentiate(y)
    return Subject("product", y, gradients.inputs)


@pytest.fixture(scope="module")
def stats() -> Stats:
    """The statistics of `product`, row by row."""
    return gathered([product()], load(), ablate="row")


def row(stats: Stats, name: str) -> RowStats:
    """What is known of one row."""
    return next(row for row in stats.rows if row.row == name)


def test_rows_that_the_gradient_needs_match_and_save(stats: Stats) -> None:
    solved, factored = row(stats, "solve-unit"), row(stats, "sum-factor")
    assert solved.theme == "domains"
    assert factored.theme == "sums"
    assert solved.applied == 2  # an axis of each of the two gradients
    assert factored.applied == 1  # exp leaves the sum
    assert factored.nodes
    assert [one.row for one in stats.ranked()[:2]] == ["solve-unit", "sum-factor"]


def test_rows_that_never_match_are_listed(stats: Stats) -> None:
    assert {"pow-three", "solve-window", "plus-over"} <= set(stats.idle)
    assert not {"solve-unit", "sum-factor", "times-commutes"} & set(stats.idle)


def test_every_row_is_in_the_statistics_once(stats: Stats) -> None:
    assert [one.row for one in stats.rows] == [one.name for one in load()]


def test_rows_that_the_search_reports_are_seen(stats: Stats) -> None:
    subject = product()
    gradients = ea.differentiate(subject.output, list(subject.inputs), cost="count")
    assert not set(gradients.saturation.rules) & set(stats.idle)


def test_saved_is_the_difference_of_what_is_executed(stats: Stats) -> None:
    subject = product()
    fewer = tuple(one for one in load() if one.name != "sum-factor")
    more = operations(subject, fewer) - operations(subject, load())
    # Without the row 4 products with an exponential for each of 5 elements, with it one.
    assert more == row(stats, "sum-factor").saved == 5 * (4 - 1)


def convolution() -> Subject:
    """Gradients of a strided convolution, which needs quotients."""
    y = ea.op("y[i] = sum(x[4*i+2*u]*exp(w[u]))", x=(41,), w=(5,))
    return Subject("convolution", y, ea.differentiate(y).inputs)


@pytest.fixture(scope="module")
def strided() -> Stats:
    """The statistics of `convolution`, nothing left out."""
    return gathered([convolution()], load(), ablate="none")


@pytest.mark.parametrize(
    ("name", "kind", "nodes"),
    [
        ("floor-multiple", "index", True),
        ("range-holds", "index", True),
        ("solve-window", "domain", True),
        ("times-commutes", "value", True),
        ("interval-sum", "interval", False),
    ],
)
def test_every_kind_of_row_has_its_figures(
    strided: Stats, name: str, kind: str, nodes: bool
) -> None:
    found = row(strided, name)
    assert found.kind == kind
    assert found.matches > 0
    assert found.applied > 0
    assert found.seconds > 0
    assert (found.nodes is not None and found.nodes > 0) if nodes else found.nodes is None


def test_index_row_applies_where_its_answer_is_taken() -> None:
    rows = [one for one in load() if isinstance(one, Row)]
    indices, answering = Indices(rows), Answering(rows)
    indices.watch = answering.look
    axis = ea.compute((4,), lambda i: A[i % 3], "y").axes[0]
    # Of x // 4 both 0, by the range of x, and x // 4 as it was asked are known; 0 is taken.
    assert indices.simplify([axis // 4]) == [Const(0, "index")]
    work = answering.work["floor-constant"]
    assert (work.matches, work.applied, work.nodes) == (1, 1, 1)
    assert answering.work["floor-multiple"].matches == 0


def test_looking_changes_nothing() -> None:
    subject = convolution()
    derived = ea.differentiate(subject.output, simplify=False)
    catalog = load()
    before = [tensor.key for tensor in ea.differentiate(subject.output, cost="count")]
    observed(derived, catalog, MODELS["count"])
    assert Engine.of(catalog).indices.watch is None
    assert [tensor.key for tensor in ea.differentiate(subject.output, cost="count")] == before


def minimum_and_maximum() -> Question:
    """What the row `min-plus-max` is for."""
    x, y = Var("x", "index"), Var("y", "index")
    return Question("both", ea.minimum(x, y) + ea.maximum(x, y), {x: (0, 7), y: (0, 7)})


def test_rows_of_the_simplifier_save_operators_of_its_answers() -> None:
    stats = gathered([], every_row(), questions=[minimum_and_maximum()], ablate="row")
    found = row(stats, "min-plus-max")
    assert (found.kind, found.theme, found.nodes) == ("term", "minmax", None)
    assert found.matches >= found.applied == 1
    assert stats.operators == {"both": 1}  # x + y
    assert found.saved == answered(minimum_and_maximum(), Rows([])) - 1


def test_rows_of_the_simplifier_are_left_out_without_questions() -> None:
    stats = gathered([], every_row(), ablate="none")
    assert [one.row for one in stats.rows] == [one.name for one in load()]


def test_every_row_of_the_simplifier_matches_in_the_questions() -> None:
    stats = gathered([], every_row(), questions=list(questions()), ablate="none")
    own = {one.name for rows in simplifier_themes().values() for one in rows}
    assert not own & set(stats.idle)


def test_theme_that_is_left_out_changes_what_is_executed() -> None:
    stats = gathered([product()], load(), ablate="theme")
    assert set(stats.saved) <= set(themes())
    assert stats.saved["domains"] > 100
    assert stats.saved["sums"] == 15
    assert all(one.saved is None for one in stats.rows)


def test_nothing_is_left_out_when_nothing_is_asked() -> None:
    stats = gathered([product()], load(), ablate="none")
    assert stats.saved == {}
    assert stats.operations == {"product": operations(product(), load())}
    with pytest.raises(ArgumentError, match="there are none, theme, row"):
        gathered([product()], load(), ablate="file")


def test_matches_do_not_depend_on_what_is_remembered(stats: Stats) -> None:
    again = gathered([product()], load(), ablate="none")
    assert [one.matches for one in again.rows] == [one.matches for one in stats.rows]


def test_saved_statistics_are_used_while_they_fit(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    first = gathered([product()], load(), ablate="none", saved=path)
    marked = json.loads(path.read_text())
    marked["operations"] = {"marked": 1}
    path.write_text(json.dumps(marked))
    assert gathered([product()], load(), ablate="none", saved=path).operations == {"marked": 1}
    assert gathered([product()], load()[:30], ablate="none", saved=path).key != first.key
    with pytest.raises(ArgumentError, match="there is no folder"):
        gathered([product()], load(), saved=tmp_path / "no" / "rules.json")
    path.write_text("[]")
    with pytest.raises(ArgumentError, match=r"rules\.json holds no statistics"):
        gathered([product()], load(), saved=path)


def test_operators_of_the_set_are_distinct_and_differentiate() -> None:
    subjects = list(operators())
    assert len({subject.name for subject in subjects}) == len(subjects) >= 25
    for subject in subjects[::6]:
        assert operations(subject, load()) >= 0


A, B = (ea.placeholder((3,), name=name) for name in "ab")


def body(make: Callable[[Expr], Expr]) -> Expr:
    """A value over one axis."""
    return ea.compute((3,), make, "y").body


def united(left: Expr, right: Expr, *rows: str) -> bool:
    """Whether these rows of the catalog unite two values."""
    pair = encode(Apply(OPS[PAIR], (left, right)), tuple(left.free))
    return Choice(VALUES).unites(pair, rows, Limits()) is not None


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(["times-commutes"], True), (["plus-commutes"], False), ([], False)],
    ids=["the row", "another row", "no row"],
)
def test_terms_are_united_by_the_rows_that_say_so(rows: list[str], expected: bool) -> None:
    left, right = body(lambda i: A[i] * B[i]), body(lambda i: B[i] * A[i])
    assert united(left, right, *rows) is expected


def test_both_directions_of_a_row_are_run() -> None:
    over, times = body(lambda i: A[i] / B[i]), body(lambda i: A[i] * (1.0 / B[i]))
    assert united(over, times, "over-as-times")
    assert united(times, over, "over-as-times")


def test_row_counts_as_applied_where_it_joins_classes() -> None:
    times = body(lambda i: A[i] * B[i])
    work = Reporting(VALUES).work(encode(times, tuple(times.free)), Limits())
    commutes = work["times-commutes"]
    # b*a is made once; that a*b is b*a again is a match, and joins nothing.
    assert (commutes.matches, commutes.applied, commutes.nodes) == (2, 1, 1)
    assert work["plus-commutes"].matches == 0


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command line prints that works."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0
    return capsys.readouterr().out


COMMAND = ("rules", "stats", "y[i] = sum(a[i,k]*exp(x[k]))", "--shape", "a=4x5", "--shape", "x=5")


def test_command_prints_the_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, *COMMAND)
    assert "solve-unit" in text.split("never matched")[0]
    assert "pow-three" in text.split("never matched")[1]
    plain = json.loads(run(capsys, *COMMAND, "--ablate", "none", "--json"))
    assert {one["row"] for one in plain["rows"] if one["matches"]} >= {"solve-unit", "sum-factor"}


def test_benchmark_prints_the_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--only", "mul-transpose", "--ablate", "theme"]) == 0
    assert "domains" in capsys.readouterr().out


def test_benchmark_asks_the_simplifier(capsys: pytest.CaptureFixture[str]) -> None:
    only = "a minimum and a maximum"
    assert benchmark.main(["--only", only, "--ablate", "row", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["operators"] == {only: 1}
    assert plain["operations"] == {}


def test_command_counts_rows_of_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from eqsatad.rules.value_rule import rewrite, x, y\n"
        'ROWS = (rewrite("mine-commutes", x * y, y * x, exact=True),)\n'
    )
    plain = json.loads(run(capsys, *COMMAND, "--ablate", "none", "--rules", str(mine), "--json"))
    (found,) = (one for one in plain["rows"] if one["row"] == "mine-commutes")
    assert found["theme"] == "other"
    assert found["matches"] > 0


@pytest.mark.parametrize(
    "arguments", [("--shape", "x=5"), ("--ablate", "rows")], ids=["no program", "unknown ablation"]
)
def test_command_refuses_what_means_nothing(arguments: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(("rules", "stats", *arguments))
    assert end.value.code == 2


def test_table_leaves_out_what_was_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with_saved, without = run(capsys, *COMMAND, "--ablate", "row"), run(capsys, *COMMAND)
    assert "saved" in with_saved.splitlines()[2]
    assert "saved" not in without.splitlines()[2]
