"""What a CPU kernel does step by step: the kind of each nest, how it is run, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from io import StringIO
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from eqsatad.backends.blocks import touched
from eqsatad.backends.cpu import planned
from eqsatad.backends.cpu.runtime.machine import host
from eqsatad.backends.cpu.tiles.kinds import decision
from eqsatad.backends.saved import launcher_of
from eqsatad.errors import BackendError
from eqsatad.terms.nodes import TRUE
from eqsatad.terms.show import show

if TYPE_CHECKING:
    from eqsatad.backends.cpu.code.source import Step
    from eqsatad.backends.cpu.tiles.tile import Tile
    from eqsatad.backends.kernel import Kernel

SCHEMA = "eqsatad.kernel-report"
VERSION = 1
# Columns of a report as text.
WIDTH = 160


@dataclass(frozen=True)
class StepReport:
    """One step: what it writes, its kind and why it is of it, how it is run, and for which sizes.

    ``run`` names the axes of a tile with the neighbours along each that are run together.
    """

    writes: tuple[str, ...]
    kind: str
    reason: str
    run: str
    sizes: str


@dataclass(frozen=True)
class KernelReport:
    """The steps of a kernel in order; prints as a table."""

    cpu: str
    steps: tuple[StepReport, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, the content of `to_json`."""
        return {"schema": SCHEMA, "version": VERSION, **asdict(self)}

    def to_json(self) -> str:
        """The report in a stable form, with its schema and version."""
        return json.dumps(self.to_dict(), indent=2)

    def table(self) -> Table:
        """One line per step; steps that are equal but for their place are one line."""
        sized = any(step.sizes for step in self.steps)
        columns = ("writes", "kind", "run", "why", *(("sizes",) if sized else ()))
        table = Table(*columns, title=f"steps on {self.cpu}", title_justify="left")
        for step, equal in groupby(self.steps):
            number = len(list(equal))
            writes = f"{', '.join(step.writes)}{f' ({number} steps)' if number > 1 else ''}"
            table.add_row(*(writes, step.kind, step.run, step.reason, step.sizes)[: len(columns)])
        return table

    def render(self) -> str:
        """The report as text."""
        text = StringIO()
        Console(file=text, width=WIDTH).print(self.table())
        return "\n".join([text.getvalue().rstrip("\n"), *(f"note: {note}" for note in self.notes)])

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        return self.render()


def report(kernel: Kernel) -> KernelReport:
    """See `Kernel.report`."""
    launch = launcher_of(kernel, "reported step by step")
    if not kernel.loops.nests:
        raise BackendError("a kernel loaded from a file has no loops to report; build it again")
    steps = planned(kernel.loops, host(), launch.exact)
    return KernelReport(host().name, tuple(map(_step, steps)), kernel.notes)


def _step(step: Step) -> StepReport:
    found = decision(step.body, step.tile)
    writes = tuple(sorted(tensor.name for tensor, stored in touched(step.body).items() if stored))
    run = "" if step.tile is None else ", ".join(_run(step.tile))
    sizes = "" if step.guard is TRUE else show(step.guard)
    return StepReport(writes, str(found.kind), found.reason, run, sizes)


def _run(tile: Tile) -> Iterator[str]:
    """How ``tile`` is run: neighbours along each axis, vectors, and strips of a long sum."""
    for axis, count in tile.counts.items():
        if axis is not tile.lane and count > 1:
            few = f"{count - 1} or " if axis is tile.dealt else ""
            yield f"{axis.name}: {few}{count}"
    if tile.lane is not None and tile.lanes:
        count = tile.counts.get(tile.lane, 1)
        yield f"{tile.lane.name}: {f'{count} x ' if count > 1 else ''}{tile.lanes} lanes"
    if tile.overlap is not None:
        yield f"{tile.overlap.tap.name}: {len(tile.overlap.taps)} written out"
    if tile.strips is not None:
        yield f"strips of {tile.strips.size} along {tile.strips.loops[-1].axis.name}"
    if tile.slices is not None:
        yield f"slices along {' and '.join(loop.axis.name for loop in tile.slices.loops)}"
