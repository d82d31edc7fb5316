"""What is live of a stage: what somebody reads, and what no empty sum makes zero.

A temporary becomes as long along each axis as the positions that are read of it, and takes every
second or third where those lie on a grid. A product with a sum that has no point at the first or
last elements of an axis is made under a condition, which lowering turns into a shorter loop. Both
leave every value that is wanted as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, lcm

from eqsatad.rules.summands import is_zero
from eqsatad.terms.checks import depends_on_data, guarded
from eqsatad.terms.coerce import const
from eqsatad.terms.linear import Linear, expression, linear, quotient
from eqsatad.terms.nodes import SUM, Apply, Axis, Const, Expr, Read, Reduce, Select, Stage, Tensor
from eqsatad.terms.ops import ADD, DIV, EQ, FLOORDIV, GE, LE, MUL, NE, NEG, OR, SUB
from eqsatad.terms.origin import built_at
from eqsatad.terms.presburger import span
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import (
    conjunction,
    conjuncts,
    constant,
    map_stage,
    postorder,
    program,
    reads,
    sources,
    substitute,
    transform,
    with_children,
)

Simplify = Callable[[Sequence[Expr]], Sequence[Expr]]
Conds = tuple[Expr, ...]
Place = tuple[Read, Conds]
"""A read, and the conditions around it."""

RESIDUES = 16
"""The most residues of an axis that are looked at one by one."""


def live(outputs: Sequence[Tensor], simplify: Simplify) -> list[Tensor]:
    """``outputs`` over temporaries of which only what is live is worked out.

    ``simplify`` is for the indices of stages that became shorter.
    """
    order = program(outputs)
    places: dict[Tensor, list[Place]] = {}
    kept: dict[Tensor, tuple[Cut, ...]] = {}
    replaced = nonzero(order)
    for tensor in reversed(order):
        stage = replaced[tensor]
        if not (isinstance(tensor, Stage) and isinstance(stage, Stage)):
            continue
        cuts = whole(stage)
        if tensor not in outputs and not stage.scatters:
            near = places.get(tensor, ())
            cuts = tuple(_cut(tensor, number, near) for number in range(len(cuts)))
        kept[tensor] = cuts
        replaced[tensor] = stage = _shortened(stage, cuts, simplify)
        for place in _places(stage):
            places.setdefault(place[0].tensor, []).append(place)
    for tensor in order:
        stage = replaced[tensor]
        if isinstance(stage, Stage):
            replaced[tensor] = _reading(stage, replaced, kept)
    return [replaced[tensor] for tensor in outputs]


@dataclass(frozen=True)
class Cut:
    """``count`` positions of an axis, ``step`` apart, from ``low`` on."""

    low: int
    step: int
    count: Expr

    def position(self, axis: Axis) -> Expr:
        """Where the positions of the shorter ``axis`` lie."""
        if (self.low, self.step) == (0, 1):
            return axis
        return expression(linear(axis).scaled(self.step) + Linear(self.low, ()))

    def place(self, position: Expr) -> Expr:
        """Which of the positions ``position`` is."""
        if (self.low, self.step) == (0, 1):
            return position
        form = linear(position) - Linear(self.low, ())
        terms = tuple((coef // self.step, atom) for coef, atom in form.terms)
        return expression(Linear(form.const // self.step, terms))


def values_of(index: Expr, size: Expr) -> Cut:
    """The values that ``index``, which is below ``size``, may have for all that ranges tell."""
    low, high = interval(index)
    extent, form = constant(size), linear(index)
    if extent is None or not form.terms:
        return Cut(0, 1, size)
    step = gcd(*(coef for coef, _ in form.terms))
    first = 0 if low is None else max(0, low)
    first += (form.const - first) % step
    last = extent - 1 if high is None else min(high, extent - 1)
    return Cut(first, step, Const(max(1, (last - first) // step + 1), "index"))


def whole(stage: Stage) -> tuple[Cut, ...]:
    """Every position of every axis."""
    return tuple(Cut(0, 1, axis.extent) for axis in stage.axes)


def _cut(stage: Stage, number: int, places: Sequence[Place]) -> Cut:
    """The positions of one axis of ``stage`` that are read, at ``places`` under conditions."""
    axis = stage.axes[number]
    every = Cut(0, 1, axis.extent)
    extent = constant(axis.extent)
    if extent is None or not places:
        return every
    found = [
        (read.indices[number], _connected(read.indices[number], conds)) for read, conds in places
    ]
    if any(not near and isinstance(at, Axis) and at.extent is axis.extent for at, near in found):
        return every
    low, high, forms = extent - 1, 0, list[Linear]()
    for index, near in found:
        first, last = span(index, near)
        low = min(low, 0 if first is None else max(first, 0))
        high = max(high, extent - 1 if last is None else min(last, extent - 1))
        forms.append(linear(index))
    coefs = [coef for form in forms for coef, _ in form.terms]
    step = gcd(*coefs, *(form.const - low for form in forms)) or 1
    if (low, step) != (0, 1) and _carries(stage, axis):
        return every
    return Cut(low, step, Const((high - low) // step + 1, "index"))


def _places(stage: Stage) -> Iterator[Place]:
    """Where ``stage`` reads other stages."""
    for root, around in _roots(stage):
        wanted = {read for read in reads(root) if isinstance(read.tensor, Stage)}
        yield from guarded(root, around, wanted) if wanted else ()


def _roots(stage: Stage) -> Iterator[tuple[Expr, tuple[Expr, ...]]]:
    yield stage.body, ()
    for scatter in stage.scatters:
        conds = tuple(conjuncts(scatter.cond))
        yield scatter.cond, ()
        yield from ((root, conds) for root in (*scatter.indices, scatter.value))


def _connected(index: Expr, conds: Iterable[Expr]) -> tuple[Expr, ...]:
    """Those of ``conds`` on indices that say something about the axes of ``index``."""
    left, free, found = list(conds), index.free, list[Expr]()
    while near := [cond for cond in left if cond.free & free and not depends_on_data(cond)]:
        left = [cond for cond in left if cond not in near]
        free = free.union(*(cond.free for cond in near))
        found += near
    return tuple(found)


def _carries(stage: Stage, axis: Axis) -> bool:
    """Whether a sum of ``stage`` grows with ``axis``, so that it may be carried on along it."""
    return any(
        isinstance(node, Reduce) and axis in node.cond.free - node.body.free
        for node in postorder(stage.body)
    )


def _shortened(stage: Stage, cuts: Sequence[Cut], simplify: Simplify) -> Stage:
    """``stage`` at the positions of ``cuts`` only."""
    if cuts == whole(stage):
        return stage
    axes = tuple(Axis(axis.name, cut.count) for axis, cut in zip(stage.axes, cuts, strict=True))
    moved = [cut.position(axis) for cut, axis in zip(cuts, axes, strict=True)]
    body = substitute(stage.body, dict(zip(stage.axes, moved, strict=True)))
    with built_at(stage.built):
        return Stage(stage.name, axes, simplify([body])[0])


def _reading(
    stage: Stage, replaced: Mapping[Tensor, Tensor], kept: Mapping[Tensor, tuple[Cut, ...]]
) -> Stage:
    """``stage`` reading what its sources became."""
    if all(replaced[source] is source for source in sources(stage)):
        return stage

    def visit(node: Expr) -> Expr:
        if not isinstance(node, Read) or replaced[node.tensor] is node.tensor:
            return node
        places = zip(kept[node.tensor], node.indices, strict=True)
        return Read(replaced[node.tensor], tuple(cut.place(index) for cut, index in places))

    return map_stage(stage, lambda root: transform(root, visit))


def nonzero(order: Iterable[Tensor]) -> dict[Tensor, Tensor]:
    """Each of ``order`` with its products made only where the sums in them have points."""
    found: dict[Tensor, Tensor] = {}
    ends: dict[Tensor, Conds] = {}
    for tensor in order:
        found[tensor] = tensor
        if isinstance(tensor, Stage) and not tensor.scatters:
            walk = _Products(frozenset(tensor.axes), ends)
            body, ends[tensor] = walk.guarded(tensor.body)
            if body is not tensor.body:
                with built_at(tensor.built):
                    found[tensor] = Stage(tensor.name, tensor.axes, body)
    return found


@dataclass(frozen=True)
class _Products:
    """The products in the body of a stage over ``axes``.

    ``ends`` are the conditions, on their own axes, outside of which stages hold zeros.
    """

    axes: frozenset[Axis]
    ends: Mapping[Tensor, Conds]

    def guarded(self, node: Expr) -> tuple[Expr, Conds]:
        """``node`` with its products under conditions, and outside of which it is zero."""
        match node:
            case Apply(op, (inner,)) if op is NEG:
                body, conds = self.guarded(inner)
                return with_children(node, (body,)), conds
            case Apply(op, (left, right)) if op in (ADD, SUB):
                (a, first), (b, second) = self.guarded(left), self.guarded(right)
                return with_children(node, (a, b)), first if first == second else ()
            case Select(cond, then, other) if is_zero(other):
                body, conds = self.guarded(then)
                return with_children(node, (cond, body, other)), conds
            case Apply(op) if op in (MUL, DIV):
                conds = tuple(within(tuple(self.factors(node)), self.axes))
                zero = const(0, node.dtype)
                return Select(conjunction(conds), node, zero) if conds else node, conds
        return node, tuple(within(tuple(self.factors(node)), self.axes))

    def factors(self, node: Expr) -> Iterator[Expr]:
        """Conditions outside of which ``node`` is zero, on axes that are free in it."""
        match node:
            case Reduce(combiner, _, cond, body) if combiner is SUM:
                yield from within((*conjuncts(cond), *self.factors(body)), node.free)
            case Read(tensor, indices) if self.ends.get(tensor):
                assert isinstance(tensor, Stage), "only stages are known to hold zeros"
                put = dict(zip(tensor.axes, indices, strict=True))
                yield from (substitute(cond, put) for cond in self.ends[tensor])
            case Apply(op, (a, b)) if op is MUL:
                yield from self.factors(a)
                yield from self.factors(b)
            case Apply(op, (a, *_)) if op in (DIV, NEG):
                yield from self.factors(a)
            case Select(_, then, other) if is_zero(other):
                yield from self.factors(then)


def within(conds: Conds, axes: frozenset[Axis]) -> Iterator[Expr]:
    """The conditions that leave out elements at either end of ``axes`` that ``conds`` rule out.

    Under quotients of an axis each residue has ends of its own.
    """
    mentioned = frozenset[Axis]().union(*(cond.free for cond in conds))
    for axis in sorted(mentioned & axes, key=lambda axis: axis.key):
        near = _connected(axis, conds)
        low, high = _ends(axis, near, ())
        if low > 0:
            yield Apply(GE, (axis, Const(low, "index")))
        if high is not None:
            yield Apply(LE, (axis, Const(high, "index")))
        yield from _residue_ends(axis, near, low, high)


def _residue_ends(axis: Axis, conds: Conds, low: int, high: int | None) -> Iterator[Expr]:
    """The ends of residues that are not those of the axis."""
    count = _modulus(axis, conds)
    turn = quotient(linear(axis), count)
    digit = expression(linear(axis) - turn.scaled(count))
    for residue in range(count) if 1 < count <= RESIDUES else ():
        here, other = (Apply(op, (digit, Const(residue, "index"))) for op in (EQ, NE))
        first, last = _ends(expression(turn), conds, (here,))
        if first * count + residue >= low + count:
            yield Apply(OR, (other, Apply(GE, (expression(turn), Const(first, "index")))))
        if last is not None and (high is None or last * count + residue <= high - count):
            yield Apply(OR, (other, Apply(LE, (expression(turn), Const(last, "index")))))


def _ends(value: Expr, conds: Conds, given: Conds) -> tuple[int, int | None]:
    """The least ``value``, and the greatest unless it is that without ``conds``."""
    low, high = span(value, (*conds, *given))
    at_end = span(value, given)[1]
    return max(low or 0, 0), None if high is None or at_end is None or high >= at_end else high


def _modulus(axis: Axis, conds: Conds) -> int:
    """The period of the quotients of ``axis`` in ``conds``."""
    return lcm(
        *(
            node.args[1].value
            for node in postorder(*conds)
            if isinstance(node, Apply)
            and node.op is FLOORDIV
            and axis in node.args[0].free
            and isinstance(node.args[1], Const)
        )
    )
