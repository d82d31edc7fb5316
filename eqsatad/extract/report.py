"""Cost reports: what a program costs, stage by stage, and two programs side by side.

Counts come from executing the loop nests (`loops.interpret`), so they are exact; the bytes are an
estimate (each array an operand is read from is read once) and carry that word everywhere. This
module takes plain numbers: it neither lowers nor runs anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from io import StringIO
from math import prod
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from eqsatad.errors import ArgumentError
from eqsatad.terms.evaluate import extents
from eqsatad.terms.nodes import Expr, Stage, Tensor
from eqsatad.terms.walk import reads

SCHEMA = "eqsatad.cost-report"
COMPARISON_SCHEMA = "eqsatad.cost-comparison"
VERSION = 1
ITEM_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2}


class Counts(Protocol):
    """What one stage executed, as `loops.interpret` counts it."""

    @property
    def iterations(self) -> int: ...
    @property
    def multiplications(self) -> int: ...
    @property
    def additions(self) -> int: ...
    @property
    def comparisons(self) -> int: ...
    @property
    def index_divisions(self) -> int: ...
    @property
    def inner_conditions(self) -> int: ...
    @property
    def bound_divisions(self) -> int: ...
    @property
    def memory(self) -> int: ...


@dataclass(frozen=True)
class Column:
    """One quantity of a report: the attribute of `Cost`, its heading and what it counts."""

    name: str
    title: str
    meaning: str
    estimate: bool = False


COLUMNS = (
    Column("iterations", "iterations", "innermost loop bodies run; one per element at least"),
    Column("multiplications", "multiplications", "float * / ** and function calls"),
    Column("additions", "additions", "float + and -, accumulations included"),
    Column("comparisons", "comparisons", "comparisons, minima and maxima of values"),
    Column("index_divisions", "index divisions", "// and % run by innermost bodies"),
    Column("inner_conditions", "inner conditions", "conditions run by innermost bodies"),
    Column("bound_divisions", "bound divisions", "// and % run outside innermost bodies"),
    Column("memory", "elements stored", "elements of every stage, outputs included"),
    Column("temporaries", "temporaries", "elements of the stages that are not outputs"),
    Column("bytes_read", "bytes read (estimate)", "each source once, no more than read", True),
    Column("bytes_written", "bytes written (estimate)", "each element stored once", True),
)
COUNTED = tuple(field.name for field in COLUMNS[:8])


@dataclass(frozen=True)
class Cost:
    """What one stage, or a whole program, costs; ``seconds`` is None unless it was measured."""

    iterations: int = 0
    multiplications: int = 0
    additions: int = 0
    comparisons: int = 0
    index_divisions: int = 0
    inner_conditions: int = 0
    bound_divisions: int = 0
    memory: int = 0
    temporaries: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float | None = None

    def __add__(self, other: Cost) -> Cost:
        summed = {c.name: getattr(self, c.name) + getattr(other, c.name) for c in COLUMNS}
        known = [cost.seconds for cost in (self, other) if cost.seconds is not None]
        return replace(Cost(**summed), seconds=sum(known) if known else None)

    @property
    def intensity(self) -> float | None:
        """Arithmetic operations per byte moved (an estimate), None when no byte is moved."""
        moved = self.bytes_read + self.bytes_written
        return (self.multiplications + self.additions) / moved if moved else None


@dataclass(frozen=True)
class CostReport:
    """The cost of a program at given sizes: one `Cost` per stage in order, and their total."""

    name: str
    stages: Mapping[str, Cost]
    sizes: Mapping[str, int] = field(default_factory=dict)
    seconds: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> Cost:
        """The sum of the stages; its ``seconds`` are those of the whole run when measured."""
        total = reduce(Cost.__add__, self.stages.values(), Cost())
        return total if self.seconds is None else replace(total, seconds=self.seconds)

    def to_json(self) -> str:
        """The report in its versioned schema; the same report gives the same text."""
        return json.dumps(self.to_dict(), indent=2)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, the content of `to_json`."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "name": self.name,
            "sizes": dict(sorted(self.sizes.items())),
            "estimates": [column.name for column in COLUMNS if column.estimate],
            "stages": [{"name": name, **_values(cost)} for name, cost in self.stages.items()],
            "total": _values(self.total),
            "seconds": self.seconds,
            "notes": list(self.notes),
        }

    @staticmethod
    def from_json(text: str) -> CostReport:
        """The report that ``text`` was made from."""
        try:
            record = json.loads(text)
        except json.JSONDecodeError as error:
            raise ArgumentError(f"expected the JSON of a cost report: {error}") from error
        if not isinstance(record, dict):
            raise ArgumentError(f"expected a cost report, found a JSON {type(record).__name__}")
        return CostReport.from_dict(record)

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> CostReport:
        """The report with the content of ``record``, as `to_dict` gives it."""
        found = (record.get("schema"), record.get("version"))
        if found != (SCHEMA, VERSION):
            raise ArgumentError(
                f"expected a cost report ({SCHEMA} version {VERSION}), found schema {found[0]!r} "
                f"version {found[1]!r}; write it again with this version of eqsatad"
            )
        stages = {
            row["name"]: Cost(**{name: row[name] for name in _values(Cost())})
            for row in record["stages"]
        }
        return CostReport(
            record["name"], stages, record["sizes"], record["seconds"], tuple(record["notes"])
        )

    def table(self) -> Table:
        """The report as a table: one line per stage, the total last, zero columns left out."""
        total = self.total
        shown = [column for column in COLUMNS if getattr(total, column.name)]
        table = Table(title=_title(self), title_justify="left")
        table.add_column("stage", no_wrap=True)
        for column in shown:
            table.add_column(column.title, justify="right", overflow="fold")
        if total.seconds is not None:
            table.add_column("seconds", justify="right")
        for name, cost in (*self.stages.items(), ("total", total)):
            cells = [_number(getattr(cost, column.name)) for column in shown]
            timed = [_seconds(cost.seconds)] if total.seconds is not None else []
            table.add_row(name, *cells, *timed, end_section=len(table.rows) + 1 == len(self.stages))
        return table

    def render(self) -> str:
        """The report as text."""
        lines = [_text(self.table()), *(f"note: {note}" for note in self.notes)]
        return "\n".join(lines)

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        return self.render()


@dataclass(frozen=True)
class Comparison:
    """Reports side by side; ratios say how many times less than the first a report costs."""

    reports: tuple[CostReport, ...]

    def ratio(self, column: str, report: CostReport) -> float | None:
        """The first report's total over that of ``report``; None when only the latter is 0."""
        first, this = (getattr(r.total, column) or 0 for r in (self.reports[0], report))
        if first == this:
            return 1.0
        return first / this if this else None

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values, the content of `to_json`."""
        names = [column.name for column in COLUMNS]
        return {
            "schema": COMPARISON_SCHEMA,
            "version": VERSION,
            "reports": [report.to_dict() for report in self.reports],
            "ratios": [
                {name: self.ratio(name, report) for name in names} for report in self.reports[1:]
            ],
        }

    def to_json(self) -> str:
        """The reports and, for each but the first, its ratios."""
        return json.dumps(self.to_dict(), indent=2)

    def table(self) -> Table:
        """One line per quantity: its total in each report, and the ratio to the first."""
        first, *others = self.reports
        table = Table(title="total cost", title_justify="left")
        table.add_column("", no_wrap=True)
        table.add_column(first.name, justify="right")
        for report in others:
            table.add_column(report.name, justify="right")
            table.add_column("times less", justify="right")
        totals = [report.total for report in self.reports]
        for column in COLUMNS:
            if any(getattr(total, column.name) for total in totals):
                table.add_row(column.title, *self._cells(column.name))
        if all(total.seconds is not None for total in totals):
            table.add_row("seconds", *self._cells("seconds"))
        return table

    def _cells(self, name: str) -> list[str]:
        show = _seconds if name == "seconds" else _number
        cells = [show(getattr(self.reports[0].total, name))]
        for report in self.reports[1:]:
            cells += [show(getattr(report.total, name)), _ratio(self.ratio(name, report))]
        return cells

    def render(self) -> str:
        """The comparison as text."""
        return _text(self.table())

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        return self.render()


def compare(*reports: CostReport) -> Comparison:
    """The reports side by side, ratios against the first."""
    if len(reports) < 2:
        raise ArgumentError(f"compare takes two cost reports or more, got {len(reports)}")
    return Comparison(reports)


def cost_report(
    name: str,
    counts: Mapping[str, Counts],
    tensors: Iterable[Tensor] = (),
    *,
    outputs: Sequence[Tensor] = (),
    sizes: Mapping[str, int] | None = None,
    seconds: float | None = None,
    notes: Sequence[str] = (),
) -> CostReport:
    """The report of a program that executed ``counts``.

    ``tensors`` are its stages: bytes and temporaries are worked out from them, at ``sizes``.
    """
    given = dict(sizes or {})
    staged = {tensor.name: tensor for tensor in tensors if isinstance(tensor, Stage)}
    kept = {tensor.name for tensor in outputs}
    rows = {
        stage: _cost(count, staged.get(stage), stage not in kept, given)
        for stage, count in counts.items()
    }
    return CostReport(name, rows, given, seconds, tuple(notes))


def _cost(counts: Counts, stage: Stage | None, temporary: bool, sizes: Mapping[str, int]) -> Cost:
    counted = {name: getattr(counts, name) for name in COUNTED}
    if stage is None:
        return Cost(**counted)
    return Cost(
        **counted,
        temporaries=counts.memory if temporary else 0,
        bytes_read=bytes_read(stage, sizes),
        bytes_written=counts.memory * ITEM_BYTES.get(stage.dtype, 1),
    )


def bytes_read(stage: Stage, sizes: Mapping[str, int]) -> int:
    """An estimate: each tensor once, or the points it is read at if those are fewer."""
    points: dict[Tensor, int] = {}
    for read in reads(*stage.roots):
        visited = _volume((axis.extent for axis in read.free), sizes)
        points[read.tensor] = points.get(read.tensor, 0) + visited
    return sum(
        min(count, _volume(tensor.shape, sizes)) * ITEM_BYTES.get(tensor.dtype, 1)
        for tensor, count in points.items()
    )


def _volume(shape: Iterable[Expr], sizes: Mapping[str, int]) -> int:
    return prod(extents(shape, sizes))


def _values(cost: Cost) -> dict[str, int | float | None]:
    return {field.name: getattr(cost, field.name) for field in fields(cost)}


def _title(report: CostReport) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in sorted(report.sizes.items()))
    return f"{report.name} at {sizes}" if sizes else report.name


def _number(value: float) -> str:
    return f"{value:,}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    return "all" if value is None else f"{value:,.2f}"


def _text(table: Table, width: int = 160) -> str:
    stream = StringIO()
    Console(file=stream, width=width, color_system=None, force_terminal=False).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip().splitlines())
