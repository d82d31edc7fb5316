"""The cost report of a loop program: counted by running it, without arrays where possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsatad.extract.report import CostReport, cost_report
from eqsatad.loops.interpret import count
from eqsatad.loops.nest import LoopProgram


def report(
    program: LoopProgram,
    sizes: Mapping[str, int] | None = None,
    *,
    name: str = "program",
    notes: Sequence[str] = (),
) -> CostReport:
    """The exact counts of one run of ``program``, at ``sizes`` for symbolic extents."""
    return cost_report(
        name,
        count(program, sizes).counts,
        [nest.stage for nest in program.nests],
        outputs=program.outputs,
        sizes=sizes,
        notes=notes,
    )
