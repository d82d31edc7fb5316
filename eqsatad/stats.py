"""What each row of a catalog does on a set of gradients: how often, at what price, to what use.

Matches, applications, e-nodes and seconds are looked at while the gradients are simplified once
more, without anything that is remembered from before. What rows are good for is found by leaving
them out: the operations that the gradients execute without them, less those with them. Without a
row that matched nowhere in a gradient the gradient is the same, so it is not tried.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from eqsatad.errors import ArgumentError
from eqsatad.extract.cost import MODELS, CostModel
from eqsatad.extract.known import Equation, equations
from eqsatad.extract.optimise import LARGEST_INPUT, worthwhile
from eqsatad.extract.problem import Problem
from eqsatad.extract.program import Simplification
from eqsatad.extract.recall import code
from eqsatad.loops.lower import lower
from eqsatad.pipeline import Gradients, differentiate
from eqsatad.rules.algebra import Limits
from eqsatad.rules.catalog import AnyRow, Catalog, contents, themes
from eqsatad.rules.engine import Engine, clear_caches
from eqsatad.rules.rule import IndexRow
from eqsatad.rules.singly import Reporting, Work
from eqsatad.rules.value_rule import ValueRule
from eqsatad.rules.values import TooLargeError, canonical, encode, is_value
from eqsatad.terms.nodes import Stage, Tensor, digest
from eqsatad.terms.walk import postorder

OPERATIONS = (
    "multiplications", "additions", "comparisons", "index_divisions", "inner_conditions",
)  # fmt: skip
"""What is counted as an executed operation."""

ABLATIONS = ("none", "theme", "row")
USER = "other"
"""The theme of rows that do not come with eqsatad."""


@dataclass(frozen=True)
class Subject:
    """A gradient of the set; ``sizes`` are numbers for symbolic extents."""

    name: str
    output: Tensor
    inputs: tuple[Tensor, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    head: str | None = None


@dataclass
class RowStats:
    """What one row did in all gradients, and what is executed more without it.

    ``applied`` counts the matches of a value row that joined two classes, the domains that a
    domain row led to, and the ends that an interval row narrowed. What is None was not looked at:
    rows for indices and domains make no e-nodes, and ``saved`` is known where a row was left out.
    """

    row: str
    theme: str
    matches: int = 0
    applied: int | None = None
    nodes: int | None = None
    seconds: float | None = None
    saved: int | None = None


@dataclass
class Stats:
    """What the rows did; ``saved`` is by theme, ``operations`` with all rows by subject."""

    key: str
    rows: list[RowStats]
    saved: dict[str, int]
    operations: dict[str, int]

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
                f"{path} holds no statistics of rules ({error}). Remove it."
            ) from error

    def save(self, path: Path) -> None:
        """Writes the statistics to ``path``."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


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
    cost: str = "count",
    ablate: str = "theme",
    progress: Progress = quietly,
    saved: Path | None = None,
) -> Stats:
    """What the rows of ``catalog`` do in the gradients ``subjects``.

    ``ablate`` is what is left out in turn: every ``theme``, every ``row``, or ``none``. What is
    in the file ``saved`` is taken from there if it answers the same question, else written there.
    """
    if ablate not in ABLATIONS:
        raise ArgumentError(f"no ablation {ablate!r}; there are {', '.join(ABLATIONS)}")
    asked = [
        (s.name, s.head, s.output.key, *(t.key for t in s.inputs), sorted(s.sizes.items()))
        for s in subjects
    ]
    key = digest(code(), contents(catalog), cost, ablate, *map(str, asked))
    if saved and saved.exists() and (known := Stats.load(saved)).key == key:
        return known
    found = _Gathering(subjects, catalog, cost).stats(key, ablate, progress)
    if saved:
        found.save(saved)
    return found


def shown(stats: Stats) -> Group:
    """The statistics as tables, what saves most first, and the rows that never matched."""
    rows = Table()
    for name in ("row", "theme", *FIGURES, "ms", "saved"):
        rows.add_column(name, justify="left" if name in ("row", "theme") else "right")
    for row in stats.ranked():
        figures = (_figure(getattr(row, name)) for name in FIGURES)
        spent = "-" if row.seconds is None else f"{1000 * row.seconds:.1f}"
        rows.add_row(row.row, row.theme, *figures, spent, _figure(row.saved))
    total = sum(stats.operations.values())
    parts: list[Table | Text] = [
        Text(f"{len(stats.operations)} gradients, {total:,} operations executed"),
        rows,
    ]
    if stats.saved:
        saved = Table("theme", Column("saved", justify="right"))
        for theme, number in sorted(stats.saved.items(), key=lambda item: -item[1]):
            saved.add_row(theme, _figure(number))
        parts.append(saved)
    return Group(*parts, Text(f"never matched: {', '.join(stats.idle) or 'none'}"))


FIGURES = ("matches", "applied", "nodes")


def _figure(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


class _Gathering:
    """One run over all subjects."""

    def __init__(self, subjects: Sequence[Subject], catalog: Catalog, cost: str) -> None:
        self._subjects = subjects
        self._catalog = catalog
        self._cost = cost
        self._themes = {id(row): theme for theme, rows in themes().items() for row in rows}
        self._work: dict[str, Work] = {row.name: Work() for row in catalog}
        self._fired: dict[str, list[Subject]] = {row.name: [] for row in catalog}
        self._operations: dict[str, int] = {}
        self._saved: dict[str, int] = {}

    def stats(self, key: str, ablate: str, progress: Progress) -> Stats:
        """The statistics, once everything has been worked out."""
        progress([(subject.name, partial(self._look, subject)) for subject in self._subjects])
        groups = self._groups(ablate)
        progress([(name, partial(self._without, name, groups[name])) for name in groups])
        rows = [self._row(row, self._saved if ablate == "row" else {}) for row in self._catalog]
        by_theme = self._saved if ablate == "theme" else {}
        return Stats(key, rows, by_theme, self._operations)

    def _look(self, subject: Subject) -> None:
        """What the rows do in the gradients of ``subject``, and what these execute."""
        gradients = _gradients(subject, self._catalog, self._cost)
        self._operations[subject.name] = _executed(subject, gradients)
        for name, work in observed(gradients.derived, self._catalog, MODELS[self._cost]).items():
            self._work[name].include(work)
            if work.matches:
                self._fired[name].append(subject)

    def _groups(self, ablate: str) -> dict[str, list[AnyRow]]:
        """What is left out together, by name."""
        fired = [row for row in self._catalog if self._fired[row.name]]
        groups: dict[str, list[AnyRow]] = {}
        for row in fired if ablate != "none" else ():
            groups.setdefault(row.name if ablate == "row" else self._theme(row), []).append(row)
        return groups

    def _without(self, name: str, left_out: Sequence[AnyRow]) -> None:
        """What is executed more without the rows ``left_out``."""
        names = {row.name for row in left_out}
        rules = tuple(row for row in self._catalog if row.name not in names)
        met = {s.name: s for row in left_out for s in self._fired[row.name]}
        self._saved[name] = sum(
            operations(subject, rules, self._cost) - self._operations[subject.name]
            for subject in met.values()
        )

    def _theme(self, row: AnyRow) -> str:
        return self._themes.get(id(row), USER)

    def _row(self, row: AnyRow, saved: Mapping[str, int]) -> RowStats:
        work = self._work[row.name]
        found = RowStats(row.name, self._theme(row), work.matches, saved=saved.get(row.name))
        if not isinstance(row, IndexRow):
            found.applied = work.applied
        if isinstance(row, ValueRule):
            found.nodes, found.seconds = work.nodes, work.seconds
        return found


def operations(subject: Subject, rules: Catalog, cost: str = "count") -> int:
    """The operations that the gradients of ``subject`` execute as ``rules`` leave them."""
    return _executed(subject, _gradients(subject, rules, cost))


def _gradients(subject: Subject, rules: Catalog, cost: str) -> Gradients:
    return differentiate(
        subject.output, list(subject.inputs), subject.head, cost=cost, rules=rules, trusted=True
    )


def _executed(subject: Subject, gradients: Gradients) -> int:
    total = gradients.report(sizes=subject.sizes).total
    return sum(getattr(total, name) for name in OPERATIONS)


def observed(outputs: Sequence[Tensor], catalog: Catalog, cost: CostModel) -> dict[str, Work]:
    """What each row of ``catalog`` does while ``outputs`` are simplified and become loops."""
    clear_caches()
    engine = Engine.of(catalog)
    values = tuple(row for row in catalog if isinstance(row, ValueRule))
    watch = _Observer(Reporting(values))
    found_outputs = Simplification(catalog, cost, Limits(), watch).of(outputs).outputs
    lower(list(found_outputs), simplify=engine.simplify)
    found = {row.name: watch.work.get(row.name, Work()) for row in catalog}
    bounds = engine.indices.bounds
    for counts, applied in (
        (engine.tally.matches, engine.domains.followed),
        (bounds.matches, bounds.narrowed),
    ):
        for name, number in counts.items():
            found[name].include(Work(number, applied[name]))
    return found


class _Observer:
    """Grows the e-graph of every value again, row by row."""

    def __init__(self, reporting: Reporting) -> None:
        self.work: dict[str, Work] = {}
        self._reporting = reporting
        self._met: set[tuple[Stage, tuple[Stage, ...]]] = set()

    def became(self, phase: str, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        """Nothing: rows are looked at where values are rewritten, and in the engine's tally."""

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


def operators() -> Iterator[Subject]:
    """Gradients of operators of the library, small enough to be counted many times."""
    from eqsatad import library as nn
    from eqsatad.terms.builders import placeholder

    image, rows = (1, 2, 6, 6), (3, 5)
    makers: Sequence[tuple[str, Callable[..., Tensor], Sequence[Sequence[int]]]] = (
        ("matmul", nn.matmul, ((3, 4), (4, 2))),
        ("dense", nn.dense, ((3, 4), (2, 4), (2,))),
        ("convolution", lambda x, w: nn.conv2d(x, w, pad=1), (image, (2, 2, 3, 3))),
        ("strided convolution", lambda x, w: nn.conv2d(x, w, stride=2), (image, (2, 2, 3, 3))),
        (
            "dilated convolution",
            lambda x, w: nn.conv1d(x, w, stride=3, dilation=2),
            ((1, 2, 13), (2, 2, 3)),
        ),
        ("transposed convolution", lambda x, w: nn.conv2d_transpose(x, w, stride=2),
         ((1, 2, 3, 3), (2, 2, 2, 2))),
        ("max pooling", lambda x: nn.max_pool(x, 2), (image,)),
        ("average pooling", lambda x: nn.avg_pool(x, 3, stride=2, pad=1), ((1, 1, 7, 7),)),
        ("adaptive pooling", lambda x: nn.adaptive_avg_pool(x, (2, 3)), ((1, 1, 5, 7),)),
        ("softmax", nn.softmax, (rows,)),
        ("log softmax", nn.log_softmax, (rows,)),
        ("layer norm", nn.layer_norm, (rows, (5,), (5,))),
        ("rms norm", nn.rms_norm, (rows, (5,))),
        ("batch norm", nn.batch_norm, ((3, 2, 2, 2), (2,), (2,))),
        ("response norm", nn.local_response_norm, ((1, 5, 2, 2),)),
        ("cumulative sum", nn.cumsum, ((8,),)),
        ("maximum", lambda x: nn.max(x, 1), (rows,)),
        ("mean", lambda x: nn.mean(x, 0), (rows,)),
        ("reshape", lambda x: nn.reshape(x, (4, 6)), ((2, 3, 4),)),
        ("concatenate", lambda x, y: nn.concatenate([x, y]), ((2, 3), (4, 3))),
        ("reflection", lambda x: nn.pad_reflect(x, 2), (rows,)),
        ("strided slice", lambda x: nn.strided_slice(x, 7, 0, -2), ((8,),)),
        ("windows", lambda x: nn.unfold(x, 3), ((1, 1, 5, 5),)),
        ("pixel shuffle", lambda x: nn.pixel_shuffle(x, 2), ((1, 4, 2, 3),)),
        ("resize", lambda x: nn.resize_bilinear(x, (5, 4)), ((1, 1, 3, 3),)),
    )  # fmt: skip
    for name, make, shapes in makers:
        inputs = tuple(placeholder(shape, name=f"x{n}") for n, shape in enumerate(shapes))
        yield Subject(name, make(*inputs), inputs)
