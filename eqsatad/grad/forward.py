"""Forward accumulation over a program: from tangents of the inputs to those of the outputs.

Stages are taken in order. The tangent of a stage is one stage over the same axes, put together
by the same table of derivatives as an adjoint: its rows are linear in what passes through, so
they serve both ways. A reduction is passed as `reductions` passes an adjoint, with the tangent of
its body in place of its adjoint, and what arrives is summed over its points. A value that does
not depend on an input has no tangent, unless it was asked for. Nothing is simplified here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from eqsatad.errors import DtypeError, ShapeError, TermError
from eqsatad.grad.custom import same_shape, spelled
from eqsatad.grad.derivatives import partials, total
from eqsatad.grad.reductions import REDUCTIONS, Inner, combined
from eqsatad.grad.reverse import TIES, own_axes
from eqsatad.grad.scope import Context, Names, finished, hidden
from eqsatad.grad.walk import Options, Walk, depends, opposite
from eqsatad.terms.builders import accumulated
from eqsatad.terms.coerce import const
from eqsatad.terms.nodes import (
    FLOATS,
    SUM,
    Apply,
    Axis,
    Cast,
    Expr,
    Placeholder,
    Read,
    Reduce,
    Scatter,
    Select,
    Stage,
    Tensor,
)
from eqsatad.terms.scopes import replace_free, stem
from eqsatad.terms.walk import conjunction, conjuncts, program

Place = tuple[Expr, Context]


@dataclass(frozen=True)
class Tangents:
    """What `forward` found: the tangents of the inputs, and those of the outputs in order.

    ``independent`` holds the outputs that depend on no input; their tangents are zero.
    """

    given: tuple[Tensor, ...]
    results: list[Tensor]
    independent: tuple[Tensor, ...]


def forward(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    tangents: Sequence[Tensor] | None = None,
    *,
    allow_zero: bool = False,
    ties: str = "first",
    beside: Iterable[Tensor] = (),
) -> Tangents:
    """The tangents of ``outputs`` where ``inputs`` move along ``tangents``.

    A tangent has the shape of its input, with any dimensions in front, the same ones for all;
    placeholders of the inputs' shapes are made when none are given. An input that is computed
    from others moves with them and by its own tangent. The names of tensors that will be
    ``beside`` are not used again. For the rest see `reverse`.
    """
    if ties not in TIES:
        raise TermError(f"ties must be one of {', '.join(TIES)}; found {ties!r}.")
    order = program([*inputs, *outputs])
    names = Names(tensor.name for tensor in (*order, *program(beside)))
    along = _along(inputs, tangents, names)
    sweep = Sweep(names, Options(allow_zero, ties), _prefix(along))
    sweep.run(program(outputs), along)
    results = [sweep.result(output) for output in outputs]
    independent = tuple(output for output in outputs if output not in sweep.tangents)
    return Tangents(tuple(along.values()), results, independent)


def _along(
    inputs: Sequence[Tensor], tangents: Sequence[Tensor] | None, names: Names
) -> dict[Tensor, Tensor]:
    """The tangent of each input, checked against it."""
    for tensor in inputs:
        if tensor.dtype not in FLOATS:
            raise DtypeError(
                f"expected inputs of floats, found {tensor.name}{tensor.where_built} of "
                f"{tensor.dtype}, which cannot move. Leave it out."
            )
    if tangents is None:
        return {t: Placeholder(names.fresh(f"{t.name}_dot"), t.shape, t.dtype) for t in inputs}
    if len(tangents) != len(inputs):
        raise ShapeError(
            f"expected one tangent for each of the {len(inputs)} inputs, found {len(tangents)}."
        )
    along = dict(zip(inputs, tangents, strict=True))
    for tensor, tangent in along.items():
        _fits(tensor, tangent, _extra(*next(iter(along.items()))))
        names.reserve(tangent)
    return along


def _extra(tensor: Tensor, tangent: Tensor) -> tuple[Expr, ...]:
    """The dimensions that ``tangent`` has in front of those of ``tensor``."""
    return tangent.shape[: max(0, len(tangent.shape) - len(tensor.shape))]


def _fits(tensor: Tensor, tangent: Tensor, prefix: tuple[Expr, ...]) -> None:
    if not same_shape(tangent.shape, (*prefix, *tensor.shape)):
        raise ShapeError(
            f"expected a tangent of shape {spelled((*prefix, *tensor.shape))} for {tensor.name}, "
            f"found {tangent.name}{tangent.where_built} of shape {spelled(tangent.shape)}. Give it "
            "the shape of the input, with the same dimensions in front for all inputs."
        )
    if tangent.dtype != tensor.dtype:
        raise DtypeError(
            f"expected a tangent of {tensor.dtype}, as {tensor.name} has it; found "
            f"{tangent.name}{tangent.where_built} of {tangent.dtype}. Cast it."
        )


def _prefix(along: dict[Tensor, Tensor]) -> tuple[Axis, ...]:
    for tensor, tangent in along.items():
        extra = _extra(tensor, tangent)
        return tuple(hidden(f"p{n}", extent, "tangent") for n, extent in enumerate(extra))
    return ()


@dataclass
class Sweep:
    """One forward sweep: the tangents made so far, all with ``prefix`` in front."""

    names: Names
    options: Options
    prefix: tuple[Axis, ...]
    tangents: dict[Tensor, Tensor] = field(default_factory=dict)
    # Integers that depend on an input move too, in steps: they have no tangent.
    moving: set[Tensor] = field(default_factory=set)

    def run(self, order: Iterable[Tensor], along: dict[Tensor, Tensor]) -> None:
        """Gives a tangent to every tensor of floats in ``order`` that moves with an input."""
        for tensor in order:
            given = along.get(tensor)
            moves = isinstance(tensor, Stage) and depends(tensor, self.moving.__contains__)
            if moves or given is not None:
                self.moving.add(tensor)
            if moves and isinstance(tensor, Stage) and tensor.dtype in FLOATS:
                self.tangents[tensor] = self._tangent(tensor, given)
            elif given is not None:
                self.tangents[tensor] = given

    def result(self, output: Tensor) -> Tensor:
        """The tangent of an output, all zeros where nothing moves it."""
        if output.dtype not in FLOATS:
            raise DtypeError(
                f"expected outputs of floats, found {output.name}{output.where_built} of "
                f"{output.dtype}, which has no tangent. Leave it out."
            )
        if output in self.tangents:
            return self.tangents[output]
        axes = (*self.prefix, *own_axes(output))
        return finished(self._name(output), axes, const(0.0, output.dtype))

    def _name(self, tensor: Tensor) -> str:
        return self.names.fresh(f"{tensor.name}_dot")

    def _tangent(self, stage: Stage, given: Tensor | None) -> Stage:
        walk = Walk(stage, self.moving.__contains__, self.names, self.options)
        walk.outer = self.prefix
        pushed = Push(walk, self.tangents)
        whole = Context(stage.axes)
        if not stage.scatters:
            walk.answered.add((stage.body, whole))
        parts = [pushed.tangent(stage.body, whole)]
        if given is not None:
            parts.append(Read(given, (*self.prefix, *stage.axes)))
        body = total(part for part in parts if part is not None)
        zero = const(0.0, stage.dtype)
        axes = (*self.prefix, *stage.axes)
        result = finished(self._name(stage), axes, zero if body is None else body)
        for scatter in stage.scatters:
            context = Context(scatter.axes).within((), conjuncts(scatter.cond))
            value = pushed.tangent(scatter.value, context)
            if value is not None:
                result = self._scattered(result, scatter, value)
        return result

    def _scattered(self, base: Stage, scatter: Scatter, value: Expr) -> Stage:
        """``base`` with the tangent ``value`` added where ``scatter`` adds its value."""
        taken = Names(axis.name for axis in scatter.axes)
        plain = {axis: Axis(taken.fresh(stem(axis)), axis.extent) for axis in self.prefix}
        axes = (*plain.values(), *scatter.axes)
        indices = (*plain.values(), *scatter.indices)
        return accumulated(base, axes, indices, replace_free(value, plain), scatter.cond)


class Push:
    """The tangents of the values inside one stage; ``walk`` knows which values depend on what."""

    def __init__(self, walk: Walk, tangents: dict[Tensor, Tensor]) -> None:
        self.walk, self.tangents = walk, tangents
        self.done: dict[Place, Expr | None] = {}

    def tangent(self, root: Expr, context: Context) -> Expr | None:
        """The tangent of ``root``, None where it does not move."""
        stack: list[Place] = [(root, context)]
        while stack:
            place = stack[-1]
            missing = [below for below in self._below(*place) if below not in self.done]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if place not in self.done:
                parts = [self.done[below] for below in self._below(*place)]
                self.done[place] = self._combined(*place, parts)
        return self.done[root, context]

    def _moves(self, node: Expr) -> bool:
        return node in self.walk.wanted and node.dtype in FLOATS

    def _below(self, node: Expr, context: Context) -> list[Place]:
        """The values whose tangents that of ``node`` is made of, and where they are."""
        if not self._moves(node):
            return []
        match node:
            case Apply(_, args):
                return [(arg, context) for arg in args]
            case Cast(arg, _) if arg.dtype in FLOATS:
                return [(arg, context)]
            case Select():
                return self._sides(node, context)
            case Reduce(_, axes, cond, body):
                return [(body, context.within(axes, conjuncts(cond)))]
        return []

    def _sides(self, node: Select, context: Context) -> list[Place]:
        """Both values of ``node``; where the stage stores its value, the chosen one is stored."""
        guards = (tuple(conjuncts(node.cond)), (opposite(node.cond),))
        then, other = (
            (side, context.within((), g))
            for side, g in zip((node.then, node.other), guards, strict=True)
        )
        if (node, context) in self.walk.answered:
            self.walk.answered.update((then, other))
        return [then, other]

    def _combined(self, node: Expr, context: Context, parts: Sequence[Expr | None]) -> Expr | None:
        match node:
            case _ if not self._moves(node):
                return None
            case Read(tensor, indices):
                return Read(self.tangents[tensor], (*self.walk.outer, *indices))
            case Cast(arg, _) if arg.dtype not in FLOATS:
                self.walk.broken(node)
                return None
        if all(part is None for part in parts):
            return None
        match node:
            case Apply():
                return self._applied(node, context, parts)
            case Cast(_, dtype):
                return None if parts[0] is None else Cast(parts[0], dtype)
            case Select(cond, _, _):
                zero = const(0.0, node.dtype)
                then, other = (zero if part is None else part for part in parts)
                return Select(cond, then, other)
        assert isinstance(node, Reduce), "no other node has operands that a value passes through"
        return self._reduced(node, context, parts[0])

    def _applied(self, node: Apply, context: Context, parts: Sequence[Expr | None]) -> Expr | None:
        answer = self.walk.answer(node, context)
        moved = (
            partials(node, answer, part)[n] for n, part in enumerate(parts) if part is not None
        )
        return total(part for part in moved if part is not None)

    def _reduced(self, node: Reduce, context: Context, tangent: Expr | None) -> Expr | None:
        """The tangent of a reduction whose body has ``tangent``."""
        assert tangent is not None, "a reduction has one operand, and it moves"
        inside = context.within(node.axes, conjuncts(node.cond))
        gathered = Gathered(self.walk, node, inside)
        REDUCTIONS.get(node.combiner, combined)(Inner(gathered, node, context, inside), tangent)
        return total(gathered.parts)


@dataclass
class Gathered:
    """What passes through a reduction, as sums over its points, where `Walk` would pass it on."""

    walk: Walk
    node: Reduce
    inside: Context
    parts: list[Expr] = field(default_factory=list)

    @property
    def options(self) -> Options:
        return self.walk.options

    def held(self, purpose: str, expr: Expr, context: Context, otherwise: Expr) -> Read:
        """See `Walk.held`."""
        return self.walk.held(purpose, expr, context, otherwise)

    def add(self, node: Expr, context: Context, adjoint: Expr) -> None:
        """Adds up ``adjoint`` over the points of the reduction that ``context`` leaves."""
        more = (guard for guard in context.guards if guard not in self.inside.guards)
        cond = conjunction((*conjuncts(self.node.cond), *more))
        self.parts.append(Reduce(SUM, self.node.axes, cond, adjoint))


__all__ = ["Tangents", "forward"]
