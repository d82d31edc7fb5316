"""Reverse mode over the scalar DAG of one stage: from adjoints of its roots to summands.

Every node has its whole adjoint, one value per `Context`, before it is passed on, so nothing is
worked out twice within a stage. What arrives at a read becomes a summand: one per read and
context, never one sum over a disjunction.

An adjoint that costs something and is wanted by several reads becomes a stage over the axes of
its node, summed over the others. It stays in place where that would keep a later sum from
moving a factor out: ``sum over k of a[i, k] * b[k, j] * c[k]`` needs no stage over i, j, k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from eqsatad.errors import NotDifferentiableError
from eqsatad.grad.derivatives import partials
from eqsatad.grad.reductions import REDUCTIONS, Inner, combined
from eqsatad.grad.scope import (
    Anywhere,
    Context,
    Names,
    covers,
    factors,
    finished,
    may_leave,
    summed,
    works,
)
from eqsatad.terms import ops
from eqsatad.terms.coerce import const
from eqsatad.terms.nodes import (
    FALSE,
    FLOATS,
    Apply,
    Axis,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Select,
    Stage,
    Tensor,
)
from eqsatad.terms.show import mark
from eqsatad.terms.walk import conjunction, conjuncts, constant, postorder

# The opposite of a comparison of integers; of floats it would be wrong for NaN.
OPPOSITES = {ops.LT: ops.GE, ops.GE: ops.LT, ops.LE: ops.GT, ops.GT: ops.LE}
OPPOSITES |= {ops.EQ: ops.NE, ops.NE: ops.EQ}

# What passes an adjoint of 0 on as 0, whatever the data.
LINEAR = (ops.ADD, ops.SUB, ops.NEG)


@dataclass(frozen=True, slots=True)
class Summand:
    """What one read adds to the adjoint of its tensor: ``value``, over ``context``."""

    read: Read
    context: Context
    value: Expr


@dataclass(frozen=True, slots=True)
class Options:
    """How to treat what has no derivative, and equal elements of a maximum."""

    allow_zero: bool = False
    ties: str = "first"


class Walk:
    """The reverse walk over one stage; ``flows`` says which tensors an adjoint is wanted for."""

    def __init__(
        self, stage: Stage, flows: Callable[[Tensor], bool], names: Names, options: Options
    ) -> None:
        self.stage, self.names, self.options = stage, names, options
        self.outer: tuple[Axis, ...] = ()
        self.heavy, self.unsafe = Anywhere(works), Anywhere(may_leave)
        self.bent = Anywhere(lambda node: node in self.wanted and not _linear(node))
        self.wanted = wanted(stage, flows)
        self.arrived: dict[Expr, dict[Context, Expr]] = {}
        self.answered: set[tuple[Expr, Context]] = set()
        self.made: dict[tuple[str, Expr], Read] = {}

    def summands(
        self, seeds: Iterable[tuple[Expr, Context, Expr]], outer: tuple[Axis, ...]
    ) -> list[Summand]:
        """The summands for ``seeds``: roots of the stage, each with its context and adjoint."""
        self.outer = outer
        for root, context, adjoint in seeds:
            if root is self.stage.body and not self.stage.scatters:
                self.answered.add((root, context))
            self.add(root, context, adjoint)
        found: list[Summand] = []
        for node in reversed(postorder(*values(self.stage))):
            for context, adjoint in self.arrived.pop(node, {}).items():
                if isinstance(node, Read):
                    found.append(Summand(node, context, adjoint))
                else:
                    self._pass_on(node, *self._shared(node, context, adjoint))
        return found[::-1]

    def add(self, node: Expr, context: Context, adjoint: Expr) -> None:
        """Adds ``adjoint`` to that of ``node``, if anything below wants it."""
        if node in self.wanted:
            arrived = self.arrived.setdefault(node, {})
            arrived[context] = arrived[context] + adjoint if context in arrived else adjoint

    def held(self, purpose: str, expr: Expr, context: Context, otherwise: Expr) -> Read:
        """``expr`` as a stage over the axes it depends on, read at them.

        Where ``expr`` is only in range under the guards, the stage has ``otherwise`` elsewhere.
        """
        guards = self._protecting(expr, context)
        body = Select(conjunction(guards), expr, otherwise) if guards else expr
        if (read := self.made.get((purpose, body))) is None:
            axes = self._ordered(body.free, context)
            read = Read(finished(self._name(purpose), axes, body), axes)
            self.made[purpose, body] = read
        return read

    def light(self, cond: Expr, node: Expr, context: Context) -> list[Expr]:
        """The conjuncts of ``cond``; those that take work and are wanted often become stages."""
        found: list[Expr] = []
        for part in conjuncts(cond):
            if self.heavy(part) and self.wanted[node].several:
                part = self.held("cond", part, context.within((), found), FALSE)
            found.append(part)
        return found

    def answer(self, node: Expr, context: Context) -> Expr:
        """The value of ``node``: read from the stage where that stores it."""
        if (node, context) in self.answered:
            return Read(self.stage, self.stage.axes)
        return node

    def _pass_on(self, node: Expr, context: Context, adjoint: Expr) -> None:
        match node:
            case Apply(_, args):
                parts = partials(node, self.answer(node, context), adjoint)
                for arg, part in zip(args, parts, strict=True):
                    if part is not None:
                        self.add(arg, context, part)
            case Select():
                self._choose(node, context, adjoint)
            case Cast(arg, _) if arg.dtype in FLOATS:
                self.add(arg, context, Cast(adjoint, arg.dtype))
            case Cast():
                self.broken(node)
            case Reduce(combiner, axes, _, _):
                conds = self.light(node.cond, node, context.within(axes, ()))
                inner = Inner(self, node, context, context.within(node.axes, conds))
                REDUCTIONS.get(combiner, combined)(inner, adjoint)

    def _choose(self, node: Select, context: Context, adjoint: Expr) -> None:
        conds = self.light(node.cond, node, context)
        sides = ((node.then, conds), (node.other, [opposite(conjunction(conds))]))
        for side, guards in sides:
            inner = context.within((), guards)
            if (node, context) in self.answered:
                self.answered.add((side, inner))
            self.add(side, inner, adjoint)

    def broken(self, node: Cast) -> None:
        """Raises where a value passes through integers, unless that is taken as zero."""
        if self.options.allow_zero:
            return
        raise NotDifferentiableError(
            f"expected a path of floats from {self.stage.name}{self.stage.where_built} to the "
            f"inputs; found a value that passes through {node.arg.dtype}:\n"
            f"{mark(self.stage, node)}\n"
            "Ask with allow_zero=True to take its derivative as zero, or leave the input out."
        )

    def _shared(self, node: Expr, context: Context, adjoint: Expr) -> tuple[Context, Expr]:
        """The adjoint of ``node`` read from a stage of its own, where that pays."""
        outer = [axis for axis in context.scope if axis not in node.free]
        unchanged = context, adjoint
        if not self.heavy(adjoint) or not self.wanted[node].several:
            return unchanged
        apart = [guard for guard in context.guards if guard.free & frozenset(outer)]
        kept = [guard for guard in context.guards if guard not in apart]
        protecting = self._protecting(adjoint, context)
        # Where such a guard keeps a point out the stage holds 0, which must stay 0 below.
        if apart and (self.bent(node) or self.unsafe(node)):
            return unchanged
        inside = [guard for guard in context.guards if guard in apart or guard in protecting]
        body = summed(outer, inside, adjoint)
        known = body.free - frozenset(self.outer)
        if not self._pays(adjoint, known, node) or self._scales(adjoint, known, node):
            return unchanged
        spared = [guard for guard in kept if guard not in inside and self._spares(guard, body)]
        if spared:
            body = Select(conjunction(spared), body, const(0.0, body.dtype))
        axes = self._ordered(body.free, context)
        stage = finished(self._name("adj"), axes, body)
        scope = tuple(axis for axis in context.scope if axis not in outer)
        return Context(scope, tuple(kept)), Read(stage, axes)

    def _scales(self, adjoint: Expr, axes: frozenset[Axis], node: Expr) -> bool:
        """Whether ``adjoint`` only scales more elements than those it adds up to below ``node``.

        A literal factor leaves every sum, and is then paid for each of the latter.
        """
        rest = [factor for factor in factors(adjoint) if not isinstance(factor, Const)]
        if len(rest) > 1 or any(map(self.heavy, rest)):
            return False
        sizes = [elements(read.tensor.shape) for read in self.wanted[node].reads]
        made = elements(axis.extent for axis in axes)
        return made is not None and all(size is not None and size < made for size in sizes)

    def _spares(self, guard: Expr, body: Expr) -> bool:
        """Whether ``body`` need not be worked out where ``guard``, a matter of indices, fails."""
        known = body.free - frozenset(self.outer)
        return guard.free <= known and not any(isinstance(n, Read) for n in postorder(guard))

    def _pays(self, adjoint: Expr, axes: frozenset[Axis], node: Expr) -> bool:
        """Whether no sum made below ``node`` could leave the work of ``adjoint`` outside."""
        if any(free >= axes for free in self.wanted[node].frees):
            return True
        core = [factor for factor in factors(adjoint) if covers(factor, axes)]
        return len(core) > 1 or any(map(self.heavy, core))

    def _protecting(self, expr: Expr, context: Context) -> list[Expr]:
        """The guards that ``expr`` may not be worked out without.

        Those of the head's extra dimensions choose among heads and protect nothing.
        """
        if not self.unsafe(expr):
            return []
        return [guard for guard in context.guards if not guard.free & frozenset(self.outer)]

    def _ordered(self, free: frozenset[Axis], context: Context) -> tuple[Axis, ...]:
        return tuple(axis for axis in (*self.outer, *context.scope) if axis in free)

    def _name(self, purpose: str) -> str:
        return self.names.fresh(f"{self.stage.name}_{purpose}")


def values(stage: Stage) -> tuple[Expr, ...]:
    """The expressions whose values make up the stage's elements."""
    return (stage.body, *(scatter.value for scatter in stage.scatters))


def elements(shape: Iterable[Expr]) -> int | None:
    """How many elements ``shape`` has; None where that depends on a size."""
    sizes = [constant(size) for size in shape]
    return None if None in sizes else prod(size for size in sizes if size is not None)


def _linear(node: Expr) -> bool:
    return isinstance(node, Read) or (isinstance(node, Apply) and node.op in LINEAR)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The reads below a node that an adjoint is wanted for: two at most, and all their axes."""

    reads: frozenset[Read]
    frees: frozenset[frozenset[Axis]]

    @property
    def several(self) -> bool:
        return len(self.reads) > 1


def wanted(stage: Stage, flows: Callable[[Tensor], bool]) -> dict[Expr, Wanted]:
    """The nodes whose value depends, not only by conditions, on a tensor that flows."""
    found: dict[Expr, Wanted] = {}
    for node in postorder(*values(stage)):
        below = [found[child] for child in _operands(node) if child in found]
        if isinstance(node, Read) and flows(node.tensor):
            found[node] = Wanted(frozenset((node,)), frozenset((node.free,)))
        elif below:
            found[node] = _joined(below)
    return found


def depends(stage: Stage, flows: Callable[[Tensor], bool]) -> bool:
    """Whether the stage's value depends, not only by conditions, on a tensor that flows."""
    found = wanted(stage, flows)
    return any(value in found for value in values(stage))


def _joined(below: Sequence[Wanted]) -> Wanted:
    several = next((one.reads for one in below if one.several), None)
    reads = several or frozenset[Read]().union(*(one.reads for one in below))
    return Wanted(reads, frozenset[frozenset[Axis]]().union(*(one.frees for one in below)))


def _operands(node: Expr) -> tuple[Expr, ...]:
    """The children that a value passes through: no conditions, no indices."""
    match node:
        case Select(_, then, other):
            return then, other
        case Reduce(_, _, _, body):
            return (body,)
        case Read():
            return ()
    return node.children


def opposite(cond: Expr) -> Expr:
    """The condition that ``cond`` does not hold."""
    if isinstance(cond, Apply) and cond.op in OPPOSITES and cond.args[0].dtype not in FLOATS:
        return Apply(OPPOSITES[cond.op], cond.args)
    return (
        cond.args[0] if isinstance(cond, Apply) and cond.op is ops.NOT else Apply(ops.NOT, (cond,))
    )
