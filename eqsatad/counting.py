"""Exact counts of programs: what one run executes, at given sizes, as a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsatad.backends.kernel import Kernel
from eqsatad.errors import ArgumentError
from eqsatad.extract.report import CostReport, cost_report
from eqsatad.loops.interpret import Execution, count
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import LoopProgram
from eqsatad.loops.samples import samples
from eqsatad.terms.nodes import Size, Tensor
from eqsatad.terms.walk import postorder

Arrays = Mapping[str, Any]


def report(
    what: Kernel | LoopProgram | Sequence[Tensor],
    sizes: Mapping[str, int] | None = None,
    *,
    arrays: Arrays | None = None,
    name: str = "program",
    notes: Sequence[str] = (),
) -> CostReport:
    """Exact counts of one run of a program, at ``sizes`` for symbolic extents.

    Tensors are counted as they stand, without simplification. A kernel is also timed (seconds,
    the least of five calls). ``arrays`` by input name are used for the time and for counts that
    depend on data; without them random ones are, with a note in the report.
    """
    loops = _loops_of(what)
    given = dict(sizes or {})
    execution, more = counted(loops, given, arrays)
    seconds = None
    if isinstance(what, Kernel):
        used = drawn(loops, given) if arrays is None else arrays
        seconds = what.time(**used, **{size.name: given[size.name] for size in unseen(loops)})
    return cost_report(
        name,
        execution.counts,
        [nest.stage for nest in loops.nests],
        outputs=loops.outputs,
        sizes=sizes,
        seconds=seconds,
        notes=[*more, *notes],
    )


def _loops_of(what: Kernel | LoopProgram | Sequence[Tensor]) -> LoopProgram:
    if isinstance(what, Kernel):
        return what.loops
    return what if isinstance(what, LoopProgram) else lower(list(what))


def counted(
    loops: LoopProgram, sizes: Mapping[str, int], arrays: Arrays | None = None
) -> tuple[Execution, list[str]]:
    """The counts of ``loops``; on example arrays, with a note, where they depend on data."""
    if arrays is not None:
        return count(loops, sizes, arrays), []
    try:
        return count(loops, sizes), []
    except ArgumentError:
        note = "counts depend on data: taken on random arrays"
        return count(loops, sizes, drawn(loops, sizes)), [note]


def drawn(loops: LoopProgram, sizes: Mapping[str, int]) -> Arrays:
    """Random arrays for the inputs of ``loops``."""
    return samples(loops.inputs, [nest.stage for nest in loops.nests], sizes)


def unseen(loops: LoopProgram) -> list[Size]:
    """The sizes that no input's shape tells."""
    told = {node for tensor in loops.inputs for node in postorder(*tensor.shape)}
    return [size for size in loops.sizes if size not in told]
