"""What each row of a catalog does on a set of gradients and questions to the simplifier.

Matches, applications, e-nodes and seconds are looked at while everything is simplified once more,
row by row, without anything that is remembered from before. What rows are good for is found by
leaving them out: the operations that the gradients execute without them, less those with them.
Rows of the simplifier are judged by the operators of its answers. Without a row that matched
nowhere in a gradient the gradient is the same, so it is not tried.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from eqsatad import cache
from eqsatad.errors import ArgumentError
from eqsatad.extract.cost import MODELS, CostModel
from eqsatad.extract.known import Equation, equations
from eqsatad.extract.optimise import LARGEST_INPUT, worthwhile
from eqsatad.extract.problem import Problem
from eqsatad.extract.program import Simplification
from eqsatad.loops.lower import lower
from eqsatad.pipeline import Gradients, differentiate
from eqsatad.rules.catalog import AnyRow, Catalog, contents, every_theme
from eqsatad.rules.collection import Collection
from eqsatad.rules.describe import describe
from eqsatad.rules.engine import Engine, clear_caches
from eqsatad.rules.growth import Limits
from eqsatad.rules.index_exchange import Names
from eqsatad.rules.index_match import Rows
from eqsatad.rules.index_trees import operators
from eqsatad.rules.rule import DomainRow, IntervalRow, Row, TermRow
from eqsatad.rules.simplifier import simplified
from eqsatad.rules.singly import Answering, Reporting, TimedRows
from eqsatad.rules.value_rule import ValueRule
from eqsatad.rules.values import TooLargeError, canonical, encode, is_value
from eqsatad.rules.work import Work
from eqsatad.subjects import Question, Subject
from eqsatad.terms.nodes import Stage, Tensor, digest
from eqsatad.terms.walk import postorder

OPERATIONS = (
    "multiplications", "additions", "comparisons", "index_divisions", "inner_conditions",
)  # fmt: skip
"""What is counted as an executed operation."""

ABLATIONS = ("none", "theme", "row")
USER = "other"
"""The theme of rows that do not come with eqsatad."""

NO_NODES = (IntervalRow, TermRow)
"""Rows that are run without an e-graph, so that they make no nodes of one."""


@dataclass
class RowStats:
    """What one row did, and what is executed more without it; see docs/explain.md.

    ``nodes`` is None for rows that no e-graph runs, ``saved`` where the row was not left out.
    """

    row: str
    theme: str
    kind: str
    matches: int
    applied: int
    nodes: int | None
    seconds: float
    saved: int | None = None


@dataclass
class Stats:
    """What the rows did; ``saved`` is by theme.

    ``operations`` are those that the gradients execute with all rows, and ``operators`` those of
    the answers of the simplifier, by name.
    """

    key: str
    rows: list[RowStats]
    saved: dict[str, int]
    operations: dict[str, int]
    operators: dict[str, int]

    @property
    def idle(self) -> list[str]:
        """The rows that never matched."""
        return [row.row for row in self.rows if not row.matches]

    def ranked(self) -> list[RowStats]:
        """The rows that matched, those that save most first."""
        fired = [row for row in self.rows if row.matches]
        return sorted(fired, key=lambda row: (-(row.saved or 0), -row.matches, row.row))

    @staticmethod
    def load(path: Path) -> Stats:
        """The statistics that were saved in ``path``."""
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            rows = [RowStats(**row) for row in plain.pop("rows")]
            return Stats(rows=rows, **plain)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ArgumentError(
                f"{path} holds no statistics of rules ({error}). Name another file, or remove it."
            ) from error

    def save(self, path: Path) -> None:
        """Writes the statistics to ``path``."""
        try:
            path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise ArgumentError(f"cannot write {path}: {error.strerror}") from error


Progress = Callable[[Sequence[tuple[str, Callable[[], None]]]], None]
"""Runs pieces of work in turn, each with what it is about."""


def quietly(work: Sequence[tuple[str, Callable[[], None]]]) -> None:
    """Runs ``work`` and shows nothing."""
    for _, run in work:
        run()


def gathered(
    subjects: Sequence[Subject],
    catalog: Catalog,
    *,
    questions: Sequence[Question] = (),
    cost: str = "count",
    ablate: str = "theme",
    progress: Progress = quietly,
    saved: Path | None = None,
) -> Stats:
    """What the rows of ``catalog`` do in the gradients ``subjects``, and in ``questions``.

    ``ablate`` is what is left out in turn: every ``theme``, every ``row``, or ``none``. What is
    in the file ``saved`` is taken from there if it answers the same question, else written there.
    """
    if ablate not in ABLATIONS:
        raise ArgumentError(f"no ablation {ablate!r}; there are {', '.join(ABLATIONS)}")
    asked = [
        *(
            (s.name, s.head, s.output.key, *(t.key for t in s.inputs), sorted(s.sizes.items()))
            for s in subjects
        ),
        *((q.name, q.expr.key, [(v.key, ends) for v, ends in q.bounds.items()]) for q in questions),
    ]
    key = digest(cache.code("."), contents(catalog), cost, ablate, *map(str, asked))
    if saved and not saved.parent.is_dir():
        raise ArgumentError(f"cannot write {saved}: there is no folder {saved.parent}")
    if saved and saved.exists() and (known := Stats.load(saved)).key == key:
        return known
    found = _Gathering(subjects, questions, catalog, cost).stats(key, ablate, progress)
    if saved:
        found.save(saved)
    return found


class _Gathering:
    """One run over everything that is asked."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        questions: Sequence[Question],
        catalog: Catalog,
        cost: str,
    ) -> None:
        self._subjects = subjects
        self._questions = questions
        self._catalog = tuple(row for row in catalog if questions or not isinstance(row, TermRow))
        self._cost = cost
        self._themes = {id(row): theme for theme, rows in every_theme().items() for row in rows}
        self._work: dict[str, Work] = {row.name: Work() for row in catalog}
        self._fired: dict[str, list[Subject | Question]] = {row.name: [] for row in catalog}
        self._counts: dict[Subject | Question, int] = {}
        self._saved: dict[str, int] = {}

    def stats(self, key: str, ablate: str, progress: Progress) -> Stats:
        """The statistics, once everything has been worked out."""
        everything: tuple[Subject | Question, ...] = (*self._subjects, *self._questions)
        progress([(asked.name, partial(self._look, asked)) for asked in everything])
        groups = self._groups(ablate).items()
        progress([(f"without {name}", partial(self._without, name, rows)) for name, rows in groups])
        rows = [self._row(row, self._saved if ablate == "row" else {}) for row in self._catalog]
        by_theme = self._saved if ablate == "theme" else {}
        counts = [
            {asked.name: self._counts[asked] for asked in part}
            for part in (self._subjects, self._questions)
        ]
        return Stats(key, rows, by_theme, *counts)

    def _look(self, asked: Subject | Question) -> None:
        """What the rows do with what is ``asked``, and how much is left of it."""
        self._counts[asked] = self._count(asked, self._catalog)
        for name, work in self._observed(asked).items():
            self._work[name].include(work)
            if work.matches:
                self._fired[name].append(asked)

    def _count(self, asked: Subject | Question, catalog: Catalog) -> int:
        if isinstance(asked, Subject):
            return operations(asked, catalog, self._cost)
        return answered(asked, Rows(_of_simplifier(catalog)))

    def _observed(self, asked: Subject | Question) -> dict[str, Work]:
        if isinstance(asked, Subject):
            derived = _gradients(asked, self._catalog, self._cost).derived
            return observed(derived, self._catalog, MODELS[self._cost])
        rows = TimedRows(_of_simplifier(self._catalog))
        answered(asked, rows)
        return rows.work

    def _groups(self, ablate: str) -> dict[str, list[AnyRow]]:
        """What is left out together, by name."""
        fired = [row for row in self._catalog if self._fired[row.name]]
        groups: dict[str, list[AnyRow]] = {}
        for row in fired if ablate != "none" else ():
            groups.setdefault(row.name if ablate == "row" else self._theme(row), []).append(row)
        return groups

    def _without(self, name: str, left_out: Sequence[AnyRow]) -> None:
        """How much more there is without the rows ``left_out``."""
        names = {row.name for row in left_out}
        rules = tuple(row for row in self._catalog if row.name not in names)
        met = dict.fromkeys(asked for row in left_out for asked in self._fired[row.name])
        self._saved[name] = sum(self._count(asked, rules) - self._counts[asked] for asked in met)

    def _theme(self, row: AnyRow) -> str:
        return self._themes.get(id(row), USER)

    def _row(self, row: AnyRow, saved: Mapping[str, int]) -> RowStats:
        work = self._work[row.name]
        return RowStats(
            row.name,
            self._theme(row),
            describe(row)["kind"],
            work.matches,
            work.applied,
            None if isinstance(row, NO_NODES) else work.nodes,
            work.seconds,
            saved.get(row.name),
        )


def operations(subject: Subject, rules: Catalog, cost: str = "count") -> int:
    """The operations that the gradients of ``subject`` execute as ``rules`` leave them."""
    total = _gradients(subject, rules, cost).report(sizes=subject.sizes).total
    return sum(getattr(total, name) for name in OPERATIONS)


def _gradients(subject: Subject, rules: Catalog, cost: str) -> Gradients:
    rules = tuple(row for row in rules if not isinstance(row, TermRow))
    return differentiate(
        subject.output, list(subject.inputs), subject.head, cost=cost, rules=rules, trusted=True
    )


def answered(question: Question, rows: Rows) -> int:
    """The operators of what the simplifier answers with ``rows``."""
    return operators(Names().tree(simplified(question.expr, rows, question.bounds)))


def _of_simplifier(catalog: Catalog) -> tuple[TermRow, ...]:
    return tuple(row for row in catalog if isinstance(row, TermRow))


def observed(outputs: Sequence[Tensor], catalog: Catalog, cost: CostModel) -> dict[str, Work]:
    """What each row of ``catalog`` does while ``outputs`` are simplified and become loops."""
    clear_caches()
    engine = Engine.of(catalog)
    answering = Answering([row for row in catalog if isinstance(row, Row)])
    watch = _Observer(Reporting([row for row in catalog if isinstance(row, ValueRule)]))
    engine.indices.watch = answering.look
    try:
        program = Simplification(Collection(catalog), cost, Limits(), watch).of(outputs)
        lower(list(program.tensors), simplify=engine.simplify)
    finally:
        engine.indices.watch = None
    found = {**watch.work, **answering.work, **engine.indices.bounds.work()}
    for row in catalog:
        if isinstance(row, DomainRow):
            found[row.name].applied = engine.domains.followed[row.name]
    return found


class _Observer:
    """Grows the e-graph of every value again, row by row."""

    def __init__(self, reporting: Reporting) -> None:
        self.work: dict[str, Work] = {}
        self._reporting = reporting
        self._met: set[tuple[Stage, tuple[Stage, ...]]] = set()

    def became(self, phase: str, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        """Nothing: rows are looked at where values are rewritten, and where indices are asked."""

    def rewrote(self, stage: Stage, problem: Problem, rewritten: Stage | None) -> None:
        """Looks at what the rows do with the value of ``problem``, once."""
        if (asked := (problem.stage, tuple(problem.known))) in self._met:
            return
        self._met.add(asked)
        term, _ = canonical(problem.stage.body)
        equal = tuple(equations(term, problem.known))
        if not is_value(term) or len(postorder(term)) > LARGEST_INPUT:
            return
        if worthwhile(term) or equal:
            self._grow(Stage(problem.stage.name, problem.stage.axes, term), equal)

    def _grow(self, stage: Stage, equal: Iterable[Equation]) -> None:
        try:
            encoded = encode(stage.body, stage.axes, equal)
        except TooLargeError:
            return
        for name, work in self._reporting.work(encoded, Limits()).items():
            self.work.setdefault(name, Work()).include(work)


NUMBERS = ("matches", "applied", "nodes", "ms")
NARROW = 8
"""The least width of a column of names: they are folded, numbers are not."""


def shown(stats: Stats) -> Group:
    """The statistics as tables, what saves most first, and the rows that never matched."""
    counted = (
        (stats.operations, "gradients: {}; operations that they execute: {:,}", False),
        (stats.operators, "questions to the simplifier: {}; operators of its answers: {:,}", True),
    )
    ranked = stats.ranked()
    parts: list[Table | Text] = []
    for counts, title, simplifying in counted:
        rows = [row for row in ranked if (row.kind == "term") is simplifying]
        if counts:
            parts.append(Text(title.format(len(counts), sum(counts.values()))))
            parts.append(_table_of_rows(rows))
            parts += _table_of_themes(stats.saved, {row.theme for row in rows})
    return Group(*parts, Text(f"never matched: {', '.join(stats.idle) or 'none'}"))


def _table_of_rows(rows: Sequence[RowStats]) -> Table:
    known = any(row.saved is not None for row in rows)
    table = Table(Column("row", overflow="fold", min_width=NARROW), Column("theme"))
    for name in (*NUMBERS, "saved") if known else NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        figures = [_figure(number) for number in (row.matches, row.applied, row.nodes)]
        saved = [_figure(row.saved)] if known else []
        table.add_row(row.row, row.theme, *figures, f"{1000 * row.seconds:,.1f}", *saved)
    return table


def _table_of_themes(saved: Mapping[str, int], themes: set[str]) -> list[Table | Text]:
    own = {theme: number for theme, number in saved.items() if theme in themes}
    if not own:
        return []
    table = Table("theme", Column("saved", justify="right"))
    for theme, number in sorted(own.items(), key=lambda item: -item[1]):
        table.add_row(theme, _figure(number))
    return [table]


def _figure(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
