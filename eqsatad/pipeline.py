"""The stages of eqsatad called in order: the map of the project.

``differentiate`` reads the program through its copies, takes the adjoints, restricts their
domains, optimises their values, and hands the stages to ``lower`` and ``build``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

from eqsatad import backends
from eqsatad.backends.kernel import Kernel
from eqsatad.backends.specialise import specialised
from eqsatad.errors import ArgumentError
from eqsatad.explain import Explanation
from eqsatad.extract.cost import MODELS, CostModel
from eqsatad.extract.program import UNTOUCHED, Saturation, Simplification, Simplified
from eqsatad.extract.recall import Answer, Recall
from eqsatad.extract.report import CostReport, cost_report
from eqsatad.extract.trace import Judge, traced
from eqsatad.grad import Adjoints, reverse
from eqsatad.grad.custom import Manual, Override
from eqsatad.loops.interpret import Execution, count
from eqsatad.loops.lower import lower, own, rewritten
from eqsatad.loops.nest import LoopProgram
from eqsatad.loops.samples import samples
from eqsatad.planning import Plan
from eqsatad.rules.algebra import Growth, Limits
from eqsatad.rules.catalog import Catalog
from eqsatad.rules.engine import Engine, inline_copies
from eqsatad.rules.given import Rules, gathered
from eqsatad.terms.nodes import Size, Tensor
from eqsatad.terms.sized import sized
from eqsatad.terms.walk import postorder

Arrays = Mapping[str, Any]


def simplified(
    outputs: Sequence[Tensor],
    *,
    cost: str | CostModel = "cpu",
    rules: Rules | None = None,
    trusted: bool = False,
    limits: Limits | None = None,
) -> Simplified:
    """``outputs`` as the cheapest program that the rules reach.

    ``cost`` is the name of a cost model (``count``, ``cpu``, ``opencl``) or one of your own.
    ``rules`` is the catalog, by default every row that comes with eqsatad: rows, or paths of
    files or folders of rows, which are added to the rows given or to those of eqsatad. Each is
    checked before it is used unless it is ``trusted``. ``limits`` bounds each e-graph; a limit
    that is reached is named in the report, and the result is still right.
    """
    catalog = gathered(rules, trusted=trusted)
    return Simplification(catalog, model(cost), limits or Limits()).of(outputs)


def model(cost: str | CostModel) -> CostModel:
    """The cost model of that name, or the model itself."""
    if isinstance(cost, CostModel):
        return cost
    if cost not in MODELS:
        raise ArgumentError(f"no cost model {cost!r}; available: {', '.join(sorted(MODELS))}")
    return MODELS[cost]


def lowered(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor] | None, catalog: Catalog
) -> LoopProgram:
    """The loop nests of ``outputs``; what the rows make of their indices is recalled."""

    def work() -> Answer:
        simplify = Engine.of(catalog).simplify
        return Answer(tuple(rewritten(own(outputs), simplify)), Growth())

    return lower(Recall.by(catalog).solve("indices", outputs, work).tensors, inputs)


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
        return lowered(self.results, None, self.rules)

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
        self,
        target: str = "cpu",
        *,
        threads: int | None = None,
        exact: bool = False,
        specialise: bool = False,
    ) -> Kernel:
        """A kernel that computes them; call it with arrays by name or position.

        ``specialise`` is for symbolic sizes: see `build`.
        """
        if specialise and self.loops().sizes:
            make = _maker(self.unsimplified, self.loops(), target, threads, exact, self._options)
            return specialised(self.loops(), target, make)
        return backends.build(self.loops(), target, threads=threads, exact=exact)

    @property
    def unsimplified(self) -> tuple[Tensor, ...]:
        """What the results were simplified from, if that is known."""
        return self.results

    @property
    def _options(self) -> dict[str, Any]:
        """How they were simplified, as `build` takes it."""
        return {"rules": self.rules, "trusted": True, "simplify": bool(self.rules)}

    def plan(self, target: str = "cpu") -> Plan:
        """The loop nests for ``target``, to be changed by hand and then built."""
        loops = self.loops()
        return Plan(loops, target, dict(zip(self.sources, loops.outputs, strict=False)))

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """The tensors that the results belong to, as `plan` finds their nests."""
        return self.results


@dataclass(frozen=True)
class Gradients(Results):
    """The gradients of one output, in the order of the inputs; behaves as that list.

    ``adjoints`` and ``adjoint_summands`` hold the unsimplified stages by source tensor,
    ``derived`` the results before they were simplified for ``cost`` within ``limits``.
    """

    output: Tensor
    inputs: tuple[Tensor, ...]
    head: Tensor | None
    adjoints: dict[Tensor, Tensor]
    adjoint_summands: dict[Tensor, dict[Tensor, Tensor]]
    independent: tuple[Tensor, ...]
    derived: tuple[Tensor, ...] = field(repr=False)
    cost: CostModel = field(repr=False)
    limits: Limits = field(repr=False)

    def explain(self) -> Explanation:
        """The steps from the results as they were derived to these, with the rows of each.

        The simplification is done again, step by step, which takes a few seconds.
        """
        judge = Judge(self.rules, self.limits)
        untouched = self.saturation is UNTOUCHED
        steps = () if untouched else traced(self.derived, self.rules, self.cost, self.limits, judge)
        return Explanation(self.title, self.derived, self.results, steps, judge, self.cost)

    @property
    def unsimplified(self) -> tuple[Tensor, ...]:
        """The results as they were derived."""
        return self.derived

    @property
    def _options(self) -> dict[str, Any]:
        return {**super()._options, "cost": self.cost}

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """The inputs, in the order of their gradients."""
        return self.inputs


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
    rules: Rules | None = None,
    trusted: bool = False,
    limits: Limits | None = None,
) -> Gradients:
    """The gradients of ``output`` with respect to ``inputs`` (all float inputs by default).

    ``head`` is the adjoint of the output, of shape ``prefix + output.shape``; by default a
    placeholder of the output's shape is made, which is then an input of the kernels (see
    ``.head``). ``head="identity"`` gives the Jacobian, of shape ``output.shape + input.shape``.
    ``override={t: (deps, fn)}`` replaces the derivative of everything between ``t`` and ``deps``,
    ``manual={(out, inp): fn}`` that of one edge. ``simplify=False`` keeps the gradient as the
    chain rule writes it. See `simplified` for ``cost``, ``rules``, ``trusted`` and ``limits``.
    """
    catalog = gathered(rules, trusted=trusted)
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
        found = simplified(adjoints.results, cost=cost, rules=catalog, trusted=True, limits=limits)
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
        derived=tuple(adjoints.results),
        cost=model(cost),
        limits=limits or Limits(),
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
    rules: Rules | None = None,
    trusted: bool = False,
    specialise: bool = False,
) -> Kernel:
    """A kernel that computes ``outputs`` from ``inputs`` (by default, all that they read).

    ``specialise`` is for symbolic sizes: the kernel is compiled for the sizes of a call when they
    come for the first time, and is then as fast as one that was built for them.
    """
    given: dict[str, Any] = {
        "simplify": simplify,
        "cost": cost,
        "rules": rules,
        "trusted": trusted,
    }
    planned = plan(outputs, inputs, target, **given)
    if specialise and planned.program.sizes:
        make = _maker(outputs, planned.program, target, threads, exact, given)
        return specialised(planned.program, target, make)
    return planned.build(threads=threads, exact=exact)


def _maker(
    outputs: Sequence[Tensor],
    program: LoopProgram,
    target: str,
    threads: int | None,
    exact: bool,
    given: Mapping[str, Any],
) -> Callable[[Mapping[str, int]], Kernel]:
    """Builds ``outputs`` at known sizes, to take what ``program`` takes."""

    def make(sizes: Mapping[str, int]) -> Kernel:
        known = sized([*outputs, *program.inputs], sizes)
        results, inputs = known[: len(outputs)], known[len(outputs) :]
        return build(results, inputs, target, threads=threads, exact=exact, **given)

    return make


def plan(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None,
    target: str = "cpu",
    *,
    simplify: bool = True,
    cost: str | CostModel | None = None,
    rules: Rules | None = None,
    trusted: bool = False,
) -> Plan:
    """The loop nests that `build` would compile, to be changed by hand first."""
    catalog = gathered(rules, trusted=trusted)
    tensors = list(outputs)
    if simplify:
        chosen = cost or (target if target in MODELS else "count")
        tensors = list(simplified(tensors, cost=chosen, rules=catalog, trusted=True).outputs)
    loops = lowered(tensors, inputs, catalog)
    return Plan(loops, target, dict(zip(outputs, loops.outputs, strict=True)))
