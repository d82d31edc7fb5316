"""Sums that several stages have in common.

The gradients of one operator often add up the same elements, each with factors of its own:
``x_bar`` is ``w`` times windows of ``h``, and ``w_bar`` the sum of ``x`` times those windows. The
*core* of some factors of a sum is their own sum, over the axes that no other factor mentions. A
core that several stages have may be a stage that they all read. To find it, a sum is looked at
from each of its factors: where another factor is read at ``o + i - 1``, that position may be an
axis in the place of ``o``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsatad.extract.materialise import Part, normal, tidy
from eqsatad.extract.naming import readable
from eqsatad.extract.safe import tests_data, total
from eqsatad.rules.values import canonical, is_value
from eqsatad.terms.coerce import const
from eqsatad.terms.linear import atom, expression, linear
from eqsatad.terms.nodes import (
    SUM,
    TRUE,
    Apply,
    Axis,
    Const,
    Expr,
    Read,
    Reduce,
    Select,
    Stage,
    Tensor,
)
from eqsatad.terms.ops import GE, LT, MUL
from eqsatad.terms.walk import (
    conjunction,
    conjuncts,
    fresh,
    joined,
    operands,
    postorder,
    reads,
    substitute,
    transform,
)

Restrict = Callable[[Stage], Stage]
Users = dict[Stage, "Core"]
"""The stages that have a core, each with where it has it, in one of its views."""

ZERO = Const(0, "index")


@dataclass(frozen=True)
class Core:
    """The factors ``chosen`` (by place) of ``node``, a sum in ``stage``."""

    stage: Stage
    node: Reduce
    chosen: tuple[int, ...]

    @cached_property
    def factors(self) -> tuple[Expr, ...]:
        """The factors that are added up."""
        every = list(operands(self.node.body, MUL))
        return tuple(every[place] for place in self.chosen)

    @cached_property
    def others(self) -> tuple[Expr, ...]:
        """The factors that are left."""
        every = enumerate(operands(self.node.body, MUL))
        return tuple(factor for place, factor in every if place not in self.chosen)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axes that no other factor mentions."""
        mentioned = frozenset[Axis]().union(*(factor.free for factor in self.others))
        return tuple(axis for axis in self.node.axes if axis not in mentioned)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the factors read: equal for equal cores."""
        return tuple(read.tensor for factor in self.factors for read in reads(factor))

    @cached_property
    def term(self) -> Reduce:
        """The core itself."""
        return Reduce(SUM, self.axes, conjunction(self._conds()[0]), joined(MUL, self.factors))

    @cached_property
    def part(self) -> Part:
        """The core up to names."""
        part, _ = normal(self.term)
        return replace(part, body=transform(part.body, _ordered))

    def stored(self, name: str) -> Stage:
        """The core as a stage."""
        _, indices = normal(self.term)
        _, names = canonical(self.term)
        axes = {
            axis: Axis(f"{_first(index).name}{axis.name}", axis.extent)
            for axis, index in zip(self.part.axes, indices, strict=True)
        }
        body = total(substitute(self.part.body, axes), tested=tests_data(self.stage.body))
        return readable(Stage(name, tuple(axes.values()), body), names)

    def reading(self, stored: Tensor) -> Stage:
        """The stage where ``stored`` holds the core."""
        _, indices = normal(self.term)
        _, conds = self._conds()
        value = joined(MUL, (Read(stored, self.part.places(indices)), *self.others))
        left = tuple(axis for axis in self.node.axes if axis not in self.axes)
        cond = conjunction(conds)
        if left:
            value = Reduce(SUM, left, cond, value)
        elif cond is not TRUE:
            value = Select(cond, value, const(0, value.dtype))
        body = transform(self.stage.body, lambda node: value if node is self.node else node)
        return Stage(self.stage.name, self.stage.axes, body, self.stage.scatters)

    def turned(self, restrict: Restrict) -> Iterator[Core]:
        """The cores of the same tensors in the stage as it is seen from these factors."""
        node = _turned(self.node, self.factors, self.others)
        if node is not self.node:
            body = transform(self.stage.body, lambda part: node if part is self.node else part)
            stage = Stage(self.stage.name, self.stage.axes, body, self.stage.scatters)
            for core in cores(restrict(stage)):
                if core.tensors == self.tensors:
                    yield core

    def _conds(self) -> tuple[list[Expr], list[Expr]]:
        """The conditions inside the core, and those that are left around it."""
        own = frozenset(self.axes)
        conds = list(conjuncts(self.node.cond))
        return [c for c in conds if c.free & own], [c for c in conds if not c.free & own]


def cores(stage: Stage) -> Iterator[Core]:
    """Every factor of every sum in ``stage``, and every whole sum."""
    for node in postorder(stage.body):
        if isinstance(node, Reduce) and node.combiner is SUM and is_value(node):
            places = range(len(list(operands(node.body, MUL))))
            for chosen in dict.fromkeys((*((place,) for place in places), tuple(places))):
                yield Core(stage, node, chosen)


def common(stages: Sequence[Stage], restrict: Restrict) -> Iterator[Users]:
    """The stages that have a core in common; ``restrict`` puts a stage on its smallest domains."""
    alike: dict[tuple[Tensor, ...], list[Core]] = {}
    for stage in stages:
        for core in cores(stage):
            alike.setdefault(core.tensors, []).append(core)
    for candidates in alike.values():
        several = len({core.stage for core in candidates}) > 1
        if several and any(core.axes for core in candidates):
            yield from _matching(candidates, restrict)


def _matching(candidates: Sequence[Core], restrict: Restrict) -> Iterator[Users]:
    users: dict[Part, Users] = {}
    for core in candidates:
        if core.axes:
            users.setdefault(core.part, {}).setdefault(core.stage, core)
    for core in candidates:
        for view in core.turned(restrict):
            if view.axes and view.part in users:
                users[view.part].setdefault(core.stage, view)
    yield from (found for found in users.values() if len(found) > 1)


def _turned(node: Reduce, factors: Sequence[Expr], others: Sequence[Expr]) -> Reduce:
    """``node`` over the positions at which ``others`` are read, where ``factors`` mention them.

    Only a factor that is a read is surely read at every point, and nowhere else.
    """
    own = frozenset[Axis]().union(*(factor.free for factor in factors))
    taken = {part.name for part in postorder(node) if isinstance(part, Axis)}
    for axis in node.axes:
        positions = (
            (index, size)
            for read in others
            if isinstance(read, Read) and axis in own
            for index, size in zip(read.indices, read.tensor.shape, strict=True)
            if index.children and axis in index.free
        )
        for index, size in positions:
            form = linear(index)
            rest = form.without(axis)
            if abs(coefficient := form.coefficient(axis)) == 1 and axis not in rest.free:
                position = fresh(Axis(axis.name, size), taken)
                value = expression((atom(position) - rest).scaled(coefficient))
                others = [_put(other, axis, value) for other in others]
                node = _over(node, axis, position, value)
                break
    return node


def _over(node: Reduce, axis: Axis, position: Axis, value: Expr) -> Reduce:
    """``node`` summed over ``position``, where ``axis`` is ``value``."""
    axes = tuple(position if own is axis else own for own in node.axes)
    inside = (Apply(GE, (value, ZERO)), Apply(LT, (value, axis.extent)))
    cond = conjunction((*conjuncts(_put(node.cond, axis, value)), *inside))
    return Reduce(SUM, axes, cond, _put(node.body, axis, value))


def _put(term: Expr, axis: Axis, value: Expr) -> Expr:
    return transform(substitute(term, {axis: value}), tidy)


def _ordered(node: Expr) -> Expr:
    """``node`` with index expressions and conditions spelled in one way."""
    if isinstance(node, Reduce):
        cond = conjunction(sorted(conjuncts(node.cond), key=lambda part: part.key))
        return Reduce(node.combiner, node.axes, cond, node.body)
    return tidy(node)


def _first(index: Expr) -> Axis:
    return next(part for part in postorder(index) if isinstance(part, Axis))
