"""The stages of eqsatad called in order: the map of the project.

``differentiate`` reads the program through its copies, takes the adjoints, restricts their
domains, optimises their values, and hands the stages to ``lower`` and ``build``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

from eqsatad import backends
from eqsatad.backends.kernel import Kernel
from eqsatad.errors import ArgumentError
from eqsatad.extract.cost import MODELS, CostModel
from eqsatad.extract.program import UNTOUCHED, Saturation, Simplification, Simplified
from eqsatad.extract.report import CostReport, cost_report
from eqsatad.grad import Adjoints, reverse
from eqsatad.grad.custom import Manual, Override
from eqsatad.loops.interpret import Execution, count
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import LoopProgram
from eqsatad.loops.samples import samples
from eqsatad.rules.algebra import Limits
from eqsatad.rules.catalog import Catalog, load
from eqsatad.rules.engine import Engine, inline_copies
from eqsatad.terms.nodes import Size, Tensor
from eqsatad.terms.walk import postorder

Arrays = Mapping[str, Any]


def simplified(
    outputs: Sequence[Tensor],
    *,
    cost: str | CostModel = "cpu",
    rules: Catalog | None = None,
    limits: Limits | None = None,
) -> Simplified:
    """``outputs`` as the cheapest program that the rules reach.

    ``cost`` is the name of a cost model (``count``, ``cpu``, ``opencl``) or one of your own.
    ``rules`` is the catalog, by default every row that comes with eqsatad. ``limits`` bounds
    each e-graph; a limit that is reached is named in the report, and the result is still right.
    """
    catalog = load() if rules is None else tuple(rules)
    return Simplification(catalog, model(cost), limits or Limits()).of(outputs)


def model(cost: str | CostModel) -> CostModel:
    """The cost model of that name, or the model itself."""
    if isinstance(cost, CostModel):
        return cost
    if cost not in MODELS:
        raise ArgumentError(f"no cost model {cost!r}; available: {', '.join(sorted(MODELS))}")
    return MODELS[cost]


@dataclass(frozen=True)
class Results(Sequence[Tensor]):
    """Tensors that were worked out, in order; behaves as that list, and counts and builds them.

    ``title`` and ``notes`` are for the report, ``rules`` simplify the indices of the loops.
    """

    results: tuple[Tensor, ...]
    title: str
    notes: tuple[str, ...]
    saturation: Saturation
    rules: Catalog = field(repr=False)

    def __len__(self) -> int:
        return len(self.results)

    @overload
    def __getitem__(self, place: int) -> Tensor: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Tensor]: ...

    def __getitem__(self, place: int | slice) -> Tensor | Sequence[Tensor]:
        return self.results[place]

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.results)

    def loops(self) -> LoopProgram:
        """The loop nests that compute them, as they are counted."""
        return self._loops

    @cached_property
    def _loops(self) -> LoopProgram:
        return lower(list(self.results), simplify=Engine.of(self.rules).simplify)

    def report(
        self,
        sizes: Mapping[str, int] | None = None,
        *,
        kernel: Kernel | None = None,
        arrays: Arrays | None = None,
    ) -> CostReport:
        """Exact counts of one call, at ``sizes`` for symbolic extents; see `report`."""
        what = self.loops() if kernel is None else kernel
        return report(what, sizes, arrays=arrays, name=self.title, notes=self.notes)

    def build(
        self, target: str = "cpu", *, threads: int | None = None, exact: bool = False
    ) -> Kernel:
        """A kernel that computes them; call it with arrays by name or position."""
        return backends.build(self.loops(), target, threads=threads, exact=exact)


@dataclass(frozen=True)
class Gradients(Results):
    """The gradients of one output, in the order of the inputs; behaves as that list.

    ``adjoints`` and ``adjoint_summands`` hold the unsimplified stages by source tensor.
    """

    output: Tensor
    inputs: tuple[Tensor, ...]
    head: Tensor | None
    adjoints: dict[Tensor, Tensor]
    adjoint_summands: dict[Tensor, dict[Tensor, Tensor]]
    independent: tuple[Tensor, ...]


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


def differentiate(
    output: Tensor,
    inputs: Sequence[Tensor] | None = None,
    head: Tensor | str | None = None,
    *,
    override: Override | None = None,
    manual: Manual | None = None,
    allow_zero: bool = False,
    ties: str = "first",
    simplify: bool = True,
    cost: str | CostModel = "cpu",
    rules: Catalog | None = None,
    limits: Limits | None = None,
) -> Gradients:
    """The gradients of ``output`` with respect to ``inputs`` (all float inputs by default).

    ``head`` is the adjoint of the output, of shape ``prefix + output.shape``; by default a
    placeholder of the output's shape is made, which is then an input of the kernels (see
    ``.head``). ``head="identity"`` gives the Jacobian, of shape ``output.shape + input.shape``.
    ``override={t: (deps, fn)}`` replaces the derivative of everything between ``t`` and ``deps``,
    ``manual={(out, inp): fn}`` that of one edge. ``simplify=False`` keeps the gradient as the
    chain rule writes it. See `simplified` for ``cost``, ``rules`` and ``limits``.
    """
    catalog = load() if rules is None else tuple(rules)
    wanted = None if inputs is None else list(inputs)
    special = {*(override or {}), *(t for pair in manual or {} for t in pair if t is not None)}
    if simplify and not special:
        became = inline_copies([output], keep=wanted or ())
        output = became[output]
        wanted = None if wanted is None else [became.get(tensor, tensor) for tensor in wanted]
    adjoints = reverse(
        output, wanted, head, override=override, manual=manual, allow_zero=allow_zero, ties=ties
    )
    given = _inputs(adjoints, wanted)
    if simplify:
        found = simplified(adjoints.results, cost=cost, rules=catalog, limits=limits)
    else:
        found = Simplified(tuple(adjoints.results), UNTOUCHED)
    return Gradients(
        results=found.outputs,
        title=f"gradient of {output.name}",
        notes=tuple(
            f"{output.name} does not depend on {tensor.name}: its gradient is zero"
            for tensor in adjoints.independent
        ),
        saturation=found.saturation,
        rules=catalog if simplify else (),
        output=output,
        inputs=given,
        head=adjoints.head,
        adjoints=adjoints.adjoints,
        adjoint_summands=adjoints.summands,
        independent=adjoints.independent,
    )


def _inputs(adjoints: Adjoints, wanted: list[Tensor] | None) -> tuple[Tensor, ...]:
    if wanted is not None:
        return tuple(wanted)
    by_adjoint = {adjoint: tensor for tensor, adjoint in adjoints.adjoints.items()}
    return tuple(by_adjoint[result] for result in adjoints.results)


def build(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None,
    target: str = "cpu",
    *,
    simplify: bool = True,
    cost: str | CostModel | None = None,
    threads: int | None = None,
    exact: bool = False,
    rules: Catalog | None = None,
) -> Kernel:
    """A kernel that computes ``outputs`` from ``inputs`` (by default, all that they read)."""
    catalog = load() if rules is None else tuple(rules)
    tensors = list(outputs)
    if simplify:
        chosen = cost or (target if target in MODELS else "count")
        tensors = list(simplified(tensors, cost=chosen, rules=catalog).outputs)
    loops = lower(tensors, inputs, Engine.of(catalog).simplify)
    return backends.build(loops, target, threads=threads, exact=exact)
