"""The stages of eqsatad called in order: the map of the project.

``differentiate`` reads the program through its copies, takes the adjoints, restricts their
domains, optimises their values, and hands the stages to ``lower`` and ``build``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from eqsatad import backends
from eqsatad.backends.kernel import Kernel
from eqsatad.backends.specialise import specialised
from eqsatad.errors import ArgumentError
from eqsatad.extract.cost import MODELS, CostModel
from eqsatad.extract.outcome import UNTOUCHED, Saturation, Simplified, simplest
from eqsatad.extract.recall import Form, Recall
from eqsatad.grad import Adjoints, reverse
from eqsatad.grad.custom import Manual, Override
from eqsatad.loops import store
from eqsatad.loops.nest import LoopProgram
from eqsatad.rules.collection import NO_ROWS, Collection, collected
from eqsatad.rules.copies import inline_copies
from eqsatad.rules.growth import Limits
from eqsatad.terms.nodes import Tensor
from eqsatad.terms.sized import sized

if TYPE_CHECKING:
    from eqsatad.counting import Arrays
    from eqsatad.explain import Explanation
    from eqsatad.extract.report import CostReport
    from eqsatad.planning import Plan
    from eqsatad.rules.given import Rules


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
    chosen = collected(rules, trusted=trusted)
    return simplest(outputs, chosen, model(cost), limits or Limits())


def model(cost: str | CostModel) -> CostModel:
    """The cost model of that name, or the model itself."""
    if isinstance(cost, CostModel):
        return cost
    if cost not in MODELS:
        raise ArgumentError(f"no cost model {cost!r}; available: {', '.join(sorted(MODELS))}")
    return MODELS[cost]


def lowered(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor] | None, rules: Collection
) -> LoopProgram:
    """The loop nests of ``outputs``, remembered; the rows simplify their indices."""

    def work() -> LoopProgram:
        from eqsatad.loops.lower import lower
        from eqsatad.rules.engine import Engine

        return lower(outputs, inputs, Engine.of(rules.rows).simplify)

    # Inputs that are given decide the signature, so they are part of the question.
    kind = "by use" if inputs is None else f"{len(inputs)} given"
    return Recall.by(rules).found(LOOPS, kind, [*outputs, *(inputs or ())], work)


LOOPS = Form("loops", store.dump, store.load)


@dataclass(frozen=True)
class Results(Sequence[Tensor]):
    """Tensors that were worked out, in order; behaves as that list, and counts and builds them.

    ``title`` and ``notes`` are for the report, ``rules`` simplify the indices of the loops.
    """

    results: tuple[Tensor, ...]
    title: str
    notes: tuple[str, ...]
    saturation: Saturation
    rules: Collection = field(repr=False)

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
        from eqsatad.counting import report

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
        return {"rules": self.rules, "simplify": self.rules != NO_ROWS}

    def plan(self, target: str = "cpu") -> Plan:
        """The loop nests for ``target``, to be changed by hand and then built."""
        from eqsatad.planning import Plan

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
        from eqsatad.explain import Explanation
        from eqsatad.extract.trace import Judge, traced

        rows, untouched = self.rules.rows, self.saturation is UNTOUCHED
        judge = Judge(rows, self.limits, self.cost.scatter)
        steps = () if untouched else traced(self.derived, rows, self.cost, self.limits, judge)
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
    chosen = collected(rules, trusted=trusted)
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
        found = simplified(adjoints.results, cost=cost, rules=chosen, limits=limits)
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
        rules=chosen if simplify else NO_ROWS,
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
    loops = _nests(outputs, inputs, target, **given)
    if specialise and loops.sizes:
        make = _maker(outputs, loops, target, threads, exact, given)
        return specialised(loops, target, make)
    return backends.build(loops, target, threads=threads, exact=exact)


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
    from eqsatad.planning import Plan

    loops = _nests(outputs, inputs, target, simplify, cost, rules, trusted)
    return Plan(loops, target, dict(zip(outputs, loops.outputs, strict=True)))


def _nests(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor] | None,
    target: str,
    simplify: bool,
    cost: str | CostModel | None,
    rules: Rules | None,
    trusted: bool,
) -> LoopProgram:
    """The loop nests of ``outputs`` for ``target``, simplified if that is asked for."""
    chosen = collected(rules, trusted=trusted)
    tensors = list(outputs)
    if simplify:
        prices = cost or (target if target in MODELS else "count")
        tensors = list(simplified(tensors, cost=prices, rules=chosen).outputs)
    return lowered(tensors, inputs, chosen)
