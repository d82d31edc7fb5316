"""Reverse accumulation over a program: from one output to the adjoints of its inputs.

Stages are taken in reverse order, so that each adjoint is complete before it is passed on. The
adjoint of a tensor ``T`` is one stage ``T_bar``: a sum of summands, one per read of ``T``, each
``sum over the reader's axes where [guards and j == index] of the adjoint of the read``. Nothing
is simplified here; a tensor that gets nothing has no adjoint, unless it was asked for.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from eqsatad.errors import DtypeError, ShapeError, TermError
from eqsatad.grad.custom import Custom, Manual, Override, fits, same_shape, spelled
from eqsatad.grad.derivatives import total
from eqsatad.grad.scope import Context, Names, finished, hidden, identity, summed
from eqsatad.grad.walk import Options, Summand, Walk, depends
from eqsatad.terms.coerce import const
from eqsatad.terms.nodes import FLOATS, Axis, Expr, Placeholder, Read, Stage, Tensor
from eqsatad.terms.scopes import stem
from eqsatad.terms.walk import conjuncts

TIES = ("first", "split")


@dataclass(frozen=True)
class Adjoints:
    """What `reverse` found; every adjoint has the head's extra dimensions in front.

    ``adjoints`` holds every tensor that an adjoint passed through, ``summands[tensor][consumer]``
    the part of an adjoint that came from one consumer, ``results`` the adjoints of the inputs in
    order, and ``independent`` the inputs that the output is not computed from. ``head`` is None
    for the identity.
    """

    head: Tensor | None
    adjoints: dict[Tensor, Tensor]
    summands: dict[Tensor, dict[Tensor, Tensor]]
    independent: tuple[Tensor, ...]
    results: list[Tensor]


def reverse(
    output: Tensor,
    inputs: Sequence[Tensor] | None = None,
    head: Tensor | str | None = None,
    *,
    override: Override | None = None,
    manual: Manual | None = None,
    allow_zero: bool = False,
    ties: str = "first",
) -> Adjoints:
    """The adjoints of ``inputs`` (of every float tensor below ``output`` when not given).

    ``head`` is the adjoint of the output, with any dimensions in front; a placeholder of the
    output's shape is made when none is given, and ``"identity"`` asks for the whole Jacobian.
    ``allow_zero`` takes derivatives through integers as zero instead of raising. Equal elements
    of a maximum: the ``first`` gets all, or they ``split`` it.
    """
    if ties not in TIES:
        raise TermError(f"ties must be one of {', '.join(TIES)}; found {ties!r}.")
    custom = Custom(override or {}, manual or {})
    order = ordered(output, custom)
    reached = frozenset(order)
    asked = _asked(inputs, order, output)
    names = Names(tensor.name for tensor in order)
    sweep = Sweep(custom, names, Options(allow_zero, ties), Seed.of(output, head, names))
    sweep.run(order, _reaching(order, asked, custom))
    results = [sweep.result(tensor) for tensor in asked]
    custom.warn_of_unused()
    return Adjoints(
        None if sweep.seed.identity else sweep.seed.tensor,
        sweep.adjoints,
        sweep.summands,
        tuple(tensor for tensor in dict.fromkeys(asked) if tensor not in reached),
        results,
    )


def ordered(output: Tensor, custom: Custom) -> list[Tensor]:
    """Every tensor below ``output``, each after those it passes its adjoint on to."""
    order: dict[Tensor, None] = {}
    open_now: set[Tensor] = set()
    stack = [(output, False)]
    while stack:
        tensor, ready = stack.pop()
        if ready:
            open_now.discard(tensor)
            order[tensor] = None
        elif tensor in open_now:
            raise ShapeError(
                f"{tensor.name} is among its own dependencies by an override. Override a tensor "
                "by tensors that it is computed from."
            )
        elif tensor not in order:
            open_now.add(tensor)
            stack.append((tensor, True))
            stack.extend((below, False) for below in reversed(custom.edges(tensor)))
    return list(order)


def _asked(
    inputs: Sequence[Tensor] | None, order: Sequence[Tensor], output: Tensor
) -> list[Tensor]:
    if output.dtype not in FLOATS:
        raise DtypeError(
            f"expected an output of floats, found {output.name}{output.where_built} of "
            f"{output.dtype}. Differentiate what it is computed from."
        )
    if inputs is None:
        return [tensor for tensor in order if tensor.dtype in FLOATS and tensor is not output]
    for tensor in inputs:
        if tensor.dtype not in FLOATS:
            raise DtypeError(
                f"expected inputs of floats, found {tensor.name}{tensor.where_built} of "
                f"{tensor.dtype}, which has no gradient. Leave it out."
            )
    return list(inputs)


def _reaching(
    order: Iterable[Tensor], asked: Iterable[Tensor], custom: Custom
) -> dict[Tensor, None]:
    """The tensors whose values depend on an input that was asked for, itself included."""
    found = dict.fromkeys(asked)
    for tensor in order:
        if tensor in custom.override:
            reaches = any(below in found for below in custom.edges(tensor))
        else:
            reaches = isinstance(tensor, Stage) and depends(tensor, found.__contains__)
        if reaches:
            found[tensor] = None
    return found


@dataclass(frozen=True)
class Seed:
    """The adjoint of the output: ``tensor``, whose first axes are ``prefix``.

    An identity is kept as a condition, not read from its tensor, so that no sum over it is left.
    """

    tensor: Tensor
    prefix: tuple[Axis, ...]
    identity: bool = False

    @staticmethod
    def of(output: Tensor, head: Tensor | str | None, names: Names) -> Seed:
        """The seed that ``head`` asks for, checked against ``output``."""
        if head == "identity":
            whole = identity(names.fresh("head"), output.shape, output.dtype)
            return Seed(whole, _axes("p", output.shape), True)
        if head is None:
            return Seed(Placeholder(names.fresh("head"), output.shape, output.dtype), ())
        if not isinstance(head, Tensor):
            raise ShapeError(f"head must be a tensor, 'identity' or None; found {head!r}.")
        extra = max(0, len(head.shape) - len(output.shape))
        if not same_shape(head.shape[extra:], output.shape):
            raise ShapeError(
                f"expected a head of shape {spelled(output.shape)}, with any dimensions in front, "
                f"as {output.name} has it; found {head.name}{head.where_built} of shape "
                f"{spelled(head.shape)}."
            )
        if head.dtype != output.dtype:
            raise DtypeError(
                f"expected a head of {output.dtype}, as {output.name} has it; found {head.name}"
                f"{head.where_built} of {head.dtype}. Cast it."
            )
        names.reserve(head)
        return Seed(head, _axes("p", head.shape[:extra]))

    def at(self, scope: tuple[Axis, ...], indices: Sequence[Expr]) -> tuple[Context, Expr]:
        """The adjoint of the output's element at ``indices``, with ``scope`` in scope."""
        if not self.identity:
            return Context(scope), Read(self.tensor, (*self.prefix, *indices))
        same = (i.equal(p) for p, i in zip(self.prefix, indices, strict=True))
        return Context(scope).within((), same), const(1.0, self.tensor.dtype)


def _axes(letter: str, shape: Sequence[Expr]) -> tuple[Axis, ...]:
    return tuple(hidden(f"{letter}{n}", extent, "head") for n, extent in enumerate(shape))


@dataclass
class Sweep:
    """One reverse sweep: what has arrived at each tensor, and the adjoints made so far."""

    custom: Custom
    names: Names
    options: Options
    seed: Seed
    adjoints: dict[Tensor, Tensor] = field(default_factory=dict)
    summands: dict[Tensor, dict[Tensor, Tensor]] = field(default_factory=dict)
    parts: dict[Tensor, dict[Tensor, list[Summand | Tensor]]] = field(default_factory=dict)

    def run(self, order: Sequence[Tensor], reaching: Container[Tensor]) -> None:
        """Passes the seed, the adjoint of the last tensor, down to those that are wanted."""
        output = order[-1]
        for tensor in reversed(order):
            if tensor not in reaching or tensor.dtype not in FLOATS:
                continue
            if tensor is output:
                self.adjoints[tensor] = self.seed.tensor
            elif tensor in self.parts:
                self._settle(tensor)
            else:
                continue
            self._pass_on(tensor, output, reaching)

    def result(self, tensor: Tensor) -> Tensor:
        """The adjoint of an input, all zeros where nothing arrived; its shape is checked."""
        if tensor not in self.adjoints:
            axes = (*self.seed.prefix, *own_axes(tensor))
            zeros = finished(self._name(tensor), axes, const(0.0, tensor.dtype))
            self.adjoints[tensor] = zeros
            self.summands[tensor] = {}
        adjoint = self.adjoints[tensor]
        fits(f"the adjoint {adjoint.name}", adjoint, tensor, self._prefix)
        return adjoint

    @property
    def _prefix(self) -> tuple[Expr, ...]:
        return tuple(axis.extent for axis in self.seed.prefix)

    def _name(self, tensor: Tensor) -> str:
        return self.names.fresh(f"{tensor.name}_bar")

    def _settle(self, tensor: Tensor) -> None:
        parts = self.parts.pop(tensor)
        whole = [part for group in parts.values() for part in group]
        adjoint = self._stage(tensor, self._name(tensor), whole)
        self.adjoints[tensor] = adjoint
        self.summands[tensor] = {
            consumer: adjoint
            if len(parts) == 1
            else self._stage(tensor, f"{adjoint.name}_{consumer.name}", group)
            for consumer, group in parts.items()
        }

    def _stage(self, tensor: Tensor, name: str, parts: Sequence[Summand | Tensor]) -> Stage:
        axes = own_axes(tensor)
        body = total(self._term(part, axes) for part in parts)
        assert body is not None, "an adjoint has at least one part"
        return finished(name, (*self.seed.prefix, *axes), body)

    def _term(self, part: Summand | Tensor, axes: tuple[Axis, ...]) -> Expr:
        if isinstance(part, Tensor):
            return Read(part, (*self.seed.prefix, *axes))
        indices = part.read.indices
        here = tuple(index.equal(axis) for index, axis in zip(indices, axes, strict=True))
        return summed(part.context.scope, (*part.context.guards, *here), part.value)

    def _pass_on(self, tensor: Tensor, output: Tensor, reaching: Container[Tensor]) -> None:
        adjoint = self.adjoints[tensor]
        if tensor in self.custom.override:
            for below, part in self.custom.overridden(tensor, adjoint, self._prefix):
                self._arrive(below, tensor, part)
            return
        if not isinstance(tensor, Stage):
            return
        reached = {below: None for below in self.custom.edges(tensor) if below in reaching}
        for below in list(reached):
            if self.custom.edge(tensor, below) and below.dtype in FLOATS:
                del reached[below]
                part = self.custom.along(tensor, below, adjoint, self._prefix)
                self._arrive(below, tensor, part)
        seed = self.seed if tensor is output else Seed(adjoint, self.seed.prefix)
        walk = Walk(tensor, reached.__contains__, self.names, self.options)
        for summand in walk.summands(_seeds(tensor, seed), self.seed.prefix):
            self._arrive(summand.read.tensor, tensor, summand)

    def _arrive(self, tensor: Tensor, consumer: Tensor, part: Summand | Tensor) -> None:
        if isinstance(part, Tensor):
            self.names.reserve(part)
        self.parts.setdefault(tensor, {}).setdefault(consumer, []).append(part)


def own_axes(tensor: Tensor) -> tuple[Axis, ...]:
    """Axes over the elements of ``tensor``, named like its own; `finished` makes them plain."""
    if isinstance(tensor, Stage):
        return tuple(hidden(stem(axis), axis.extent, "own") for axis in tensor.axes)
    return tuple(hidden(f"i{n}", extent, "own") for n, extent in enumerate(tensor.shape))


def _seeds(stage: Stage, seed: Seed) -> Iterator[tuple[Expr, Context, Expr]]:
    """Each root value of ``stage`` with its adjoint: the stage's, where it is added."""
    yield stage.body, *seed.at(stage.axes, stage.axes)
    for scatter in stage.scatters:
        context, adjoint = seed.at(scatter.axes, scatter.indices)
        yield scatter.value, context.within((), conjuncts(scatter.cond)), adjoint
