"""Factors that leave the stages they are in; where each is multiplied in is a minimum cut.

``head * p[n]``, of which another stage adds up elements, is ``head`` times what that stage adds
up. A stage is *linear* in a factor that every one of its terms has, itself or through a linear
stage that it reads. A linear temporary may be stored *bare*, without the factor, which readers
then multiply in; a linear reader does so once for each of its own elements, or is bare as well.
Factors have no axes: they are numbers, and elements at fixed positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsatad.extract.cost import CostModel
from eqsatad.extract.flow import Network
from eqsatad.rules.copies import retarget
from eqsatad.rules.summands import is_zero
from eqsatad.rules.values import is_value
from eqsatad.terms.coerce import const
from eqsatad.terms.nodes import SUM, Apply, Const, Expr, Read, Reduce, Select, Stage, Tensor
from eqsatad.terms.ops import ADD, DIV, MUL, NEG, SUB
from eqsatad.terms.walk import fold, map_stage, postorder, program, sources, with_children

Optimise = Callable[[Stage], Stage]
Named = Callable[[Stage], str]
Bare = Mapping[Tensor, Tensor]
SOURCE, SINK = 0, 1


@dataclass(frozen=True)
class Quotient:
    """A value over bare tensors; ``divided`` is it without the factor, taken out of ``through``.

    What the factor is taken out of is bare tensors, and the factor itself.
    """

    whole: Expr
    divided: Expr | None = None
    through: frozenset[Tensor | Expr] = frozenset()


def factors(outputs: Sequence[Tensor]) -> list[Expr]:
    """What might leave the temporaries below ``outputs``: factors without axes."""
    found: dict[Expr, None] = {}
    for tensor in program(outputs):
        if isinstance(tensor, Stage) and tensor not in outputs:
            found.update(dict.fromkeys(_factors(tensor.body)))
    return list(found)


def _factors(body: Expr) -> Iterator[Expr]:
    for node in postorder(body):
        if isinstance(node, Apply) and _is_product(node) and is_value(node):
            for part in node.args:
                if isinstance(part, Const | Read) and not part.free and not is_zero(part):
                    yield part


def _is_product(node: Expr) -> bool:
    return isinstance(node, Apply) and node.op is MUL


def quotient(body: Expr, factor: Expr, bare: Bare) -> Quotient:
    """``body`` with and without ``factor``, reading the tensors in ``bare`` as they say."""

    def visit(node: Expr, below: tuple[Quotient, ...]) -> Quotient:
        if node is factor:
            return Quotient(node, const(1, node.dtype), frozenset((factor,)))
        whole = with_children(node, tuple(part.whole for part in below))
        if isinstance(whole, Read) and whole.tensor in bare:
            read = Read(bare[whole.tensor], whole.indices)
            return Quotient(times(factor, read), read, frozenset((whole.tensor,)))
        taken = _taken(node, below)
        if not taken:
            return Quotient(whole)
        parts = tuple(
            part.whole if part.divided is None or n not in taken else part.divided
            for n, part in enumerate(below)
        )
        divided = times(*parts) if _is_product(node) else with_children(whole, parts)
        through = frozenset[Tensor | Expr]().union(*(below[n].through for n in taken))
        return Quotient(whole, divided, through)

    return fold(body, visit)


def _taken(node: Expr, below: tuple[Quotient, ...]) -> tuple[int, ...]:
    """The parts of ``node`` that are divided where it is; none where it cannot be."""
    able = tuple(n for n, part in enumerate(below) if part.divided is not None)
    match node:
        case Apply() if _is_product(node):
            return able[:1]
        case Apply(op, _) if op is DIV:
            return (0,) if 0 in able else ()
        case Apply(op, _) if op in (ADD, SUB, NEG):
            return able if len(able) == len(below) else ()
        case Select(_, _, other) if is_zero(other):
            return (1,) if 1 in able else ()
        case Select():
            return (1, 2) if able == (1, 2) else ()
        case Reduce(combiner, _, _, _) if combiner is SUM:
            return (1,) if 1 in able else ()
    return ()


def times(left: Expr, right: Expr) -> Expr:
    """The product, without a factor of 1."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Const) and one.value == 1:
            return other
    return Apply(MUL, (left, right))


@dataclass(frozen=True)
class Hoist:
    """The program of ``outputs``, and one ``factor`` that may leave its temporaries."""

    outputs: tuple[Tensor, ...]
    factor: Expr
    model: CostModel

    @cached_property
    def stages(self) -> list[Stage]:
        """The stages of the program, sources first."""
        return [tensor for tensor in program(self.outputs) if isinstance(tensor, Stage)]

    @cached_property
    def linear(self) -> dict[Tensor, frozenset[Tensor | Expr]]:
        """The linear stages, each with what it has the factor through."""
        found: dict[Tensor, frozenset[Tensor | Expr]] = {}
        bare: dict[Tensor, Tensor] = {}
        for stage in self.stages:
            touched = self.factor in postorder(stage.body) or not bare.keys().isdisjoint(
                sources(stage)
            )
            if touched and not stage.scatters and stage.dtype == self.factor.dtype:
                taken = quotient(stage.body, self.factor, bare)
                if taken.divided is not None:
                    found[stage] = taken.through
                    if stage not in self.outputs:
                        bare[stage] = stage
        return found

    def bare(self) -> frozenset[Tensor]:
        """The temporaries that are stored without the factor where fewest products are left."""
        network = Network()
        temporary = self.linear.keys() - set(self.outputs)
        for stage in self.stages:
            through = self.linear.get(stage, frozenset())
            own = network.number(stage) if stage in temporary else SINK
            inside, apart = (network.number((place, stage)) for place in ("inside", "apart"))
            for source in temporary & set(sources(stage)):
                network.join(network.number(source), inside if source in through else apart, None)
                if source in through and stage in temporary:
                    network.join(own, network.number(source), None)
            if self.factor in through:
                network.join(SOURCE, inside, None)
            volume = self.model.volume(stage.axes)
            network.join(inside, own, volume)
            network.join(apart, SINK, volume)
        return frozenset(temporary & network.source_side())

    def results(self, optimise: Optimise, named: Named) -> list[Tensor]:
        """The outputs over bare temporaries; ``optimise`` is for stages that changed."""
        chosen = self.bare()
        if not chosen:
            return list(self.outputs)
        bare: dict[Tensor, Tensor] = {}
        replaced: dict[Tensor, Tensor] = {}
        for stage in self.stages:
            if stage in chosen:
                body = quotient(stage.body, self.factor, bare).divided
                assert body is not None, "what is bare is linear"
                without = Stage(named(stage), stage.axes, body)
                bare[stage] = optimise(retarget(without, replaced))
            elif bare.keys().isdisjoint(sources(stage)):
                replaced[stage] = retarget(stage, replaced)
            else:
                replaced[stage] = optimise(retarget(self._multiplied(stage, bare), replaced))
        return [replaced.get(output, output) for output in self.outputs]

    def _multiplied(self, stage: Stage, bare: Bare) -> Stage:
        """``stage`` over bare tensors: the factor once for an element where that is possible."""
        taken = quotient(stage.body, self.factor, bare)
        if taken.divided is not None and not bare.keys().isdisjoint(taken.through):
            body = times(self.factor, taken.divided)
            return Stage(stage.name, stage.axes, body, stage.scatters)
        return map_stage(stage, lambda root: quotient(root, self.factor, bare).whole)
