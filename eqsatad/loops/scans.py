"""Running values: a triangular reduction that grows by one point from one output to the next.

``sum over k where k <= i + c of x[k]``, whose body does not see ``i``, is computed with ``i``
innermost and ascending, adding one point per step; ``k >= i + c`` likewise, descending. A product
that is multiplied by what does not see ``i`` starts from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsatad.loops.combine import ARGS, combined, identity
from eqsatad.loops.domains import Domain
from eqsatad.loops.emit import Emitter, Leaf
from eqsatad.loops.forms import Guard, guard
from eqsatad.loops.nest import Assign, Block, If, Statement, Store
from eqsatad.loops.phases import parts
from eqsatad.loops.pieces import OUTPUT_PARTS, refined
from eqsatad.loops.settle import known, settled
from eqsatad.terms.linear import Linear, expression, linear
from eqsatad.terms.nodes import PROD, Apply, Axis, Expr, Reduce, Select, Stage, Var
from eqsatad.terms.ops import MUL
from eqsatad.terms.walk import conjunction, conjuncts, fresh, postorder, substitute


@dataclass(frozen=True)
class Running:
    """``node``, which at output ``axis`` has reached the point ``bound = axis + shift``."""

    node: Reduce
    axis: Axis
    bound: Axis
    shift: int
    ascending: bool
    seed: Expr | None = None

    @property
    def whole(self) -> Expr:
        """The value that runs: the reduction, times its seed if it has one."""
        return self.node if self.seed is None else Apply(MUL, (self.seed, self.node))

    @property
    def start(self) -> Expr:
        """What the running value starts from."""
        return identity(self.node.combiner, self.node.dtype)

    def at(self, place: Expr) -> Expr:
        """What is combined with the running value at ``axis = place``."""
        point = linear(place) + Linear(self.shift, ())
        last = linear(self.bound.extent) - Linear(1, ())
        inside = [Guard(point).expr, Guard(last - point).expr]
        others = tuple(axis for axis in self.node.axes if axis is not self.bound)
        conds = conjunction(
            cond for cond in conjuncts(self.node.cond) if self.axis not in cond.free
        )
        here = {self.bound: expression(point)}
        cond, body = substitute(conds, here), substitute(self.node.body, here)
        if others:
            body = Reduce(self.node.combiner, others, cond, body)
        else:
            inside.extend(conjuncts(cond))
        return Select(conjunction(inside), body, self.start)

    def before(self) -> Expr:
        """The value before the first step: the points that even the first output includes."""
        point = linear(self.bound) - Linear(self.shift, ())
        if self.ascending:
            included = Guard(point.scaled(-1) - Linear(1, ()))
        else:
            included = Guard(point - linear(self.axis.extent))
        conds = [cond for cond in conjuncts(self.node.cond) if self.axis not in cond.free]
        node = self.node
        first = Reduce(node.combiner, node.axes, conjunction((included.expr, *conds)), node.body)
        if self.seed is None:
            return first
        none = settled(first) is self.start
        return self.seed if none else Apply(MUL, (self.seed, first))


def running(stage: Stage) -> list[Running]:
    """The reductions of ``stage`` that are running values along one output axis, one way."""
    return running_in(settled(stage.body), stage.axes)


def running_in(value: Expr, axes: Sequence[Axis]) -> list[Running]:
    """The same for a value at every point of ``axes``."""
    found: list[Running] = []
    for node in _unconditional(value):
        one = _running(node, axes)
        if one and (not found or (one.axis, one.ascending) == (found[0].axis, found[0].ascending)):
            found.append(replace(one, seed=_seed(one, value)))
    return found


def _seed(one: Running, value: Expr) -> Expr | None:
    """What the product ``one`` is only ever multiplied by, if it is the same along the axis."""
    users = [node for node in postorder(value) if one.node in node.children]
    match users:
        case [Apply(op, (seed, node))] if op is MUL and node is one.node:
            plain = not any(isinstance(part, Reduce) for part in postorder(seed))
            if one.node.combiner is PROD and plain and one.axis not in seed.free:
                return seed
    return None


def _unconditional(value: Expr) -> list[Reduce]:
    """The outermost reductions that are computed whatever conditions hold."""
    found: dict[Reduce, None] = {}
    seen: set[Expr] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if node in seen or isinstance(node, Select):
            continue
        seen.add(node)
        if isinstance(node, Reduce):
            found[node] = None
        else:
            stack.extend(reversed(node.children))
    return list(found)


def _running(node: Reduce, axes: Sequence[Axis]) -> Running | None:
    if node.combiner in ARGS:
        return None
    for cond in conjuncts(node.cond):
        what = guard(cond)
        if what is None or what.equality or len(what.form.terms) != 2:
            continue
        pair = {atom: coef for coef, atom in what.form.terms}
        for axis in axes:
            rest = [atom for atom in pair if atom in node.axes]
            if axis not in pair or not rest or pair[axis] * pair[rest[0]] != -1:
                continue
            others = (other for other in conjuncts(node.cond) if other is not cond)
            if axis in node.body.free or any(axis in other.free for other in others):
                continue
            (bound,) = rest
            assert isinstance(bound, Axis)
            ascending = pair[axis] > 0
            return Running(node, axis, bound, what.form.const * pair[axis], ascending)
    return None


def scan(stage: Stage, axis: Axis, emitter: Emitter) -> Block:
    """Statements that compute ``stage`` with its running values along ``axis``."""
    others = tuple(other for other in stage.axes if other is not axis)
    statements: list[Statement] = []
    for part in parts(Domain(others, (), (stage.body, *stage.axes)), (), OUTPUT_PARTS):
        line = Line(stage, part, axis, emitter)
        statements.extend(
            emitter.block(part.axes, part.conds, (), line.block, parallel=len(part.axes))
        )
    return tuple(statements)


@dataclass(frozen=True)
class Line:
    """One line of outputs along ``axis``, at a point of the other axes."""

    stage: Stage
    part: Domain
    axis: Axis
    emitter: Emitter

    def block(self, _: tuple[Expr, ...]) -> Block:
        """The statements for the line: a leaf of the loops over the other axes."""
        value, *indices = self.part.exprs
        found = running_in(value, (self.axis,))
        scope = self.part.scope | frozenset(self.part.axes)
        facts = known(self.part.conds)
        totals = {one.whole: self.emitter.local("running", one.node.dtype) for one in found}
        statements: list[Statement] = []
        for one in found:
            first = refined(settled(one.before(), facts), scope, facts)
            statements.extend(self.emitter.assigned(totals[one.whole], first))
        place, step = self._walk(found)
        exprs = (value, *indices, *(one.at(self.axis) for one in found))
        exprs = tuple(substitute(substitute(expr, totals), {self.axis: place}) for expr in exprs)
        line = Domain((step,), (), exprs, scope)
        for segment in parts(line, facts, OUTPUT_PARTS, ordered=True):
            exprs = tuple(refined(e, scope | frozenset(segment.axes), facts) for e in segment.exprs)
            leaf = self._leaf(found, [totals[one.whole] for one in found])
            statements.extend(self.emitter.block(segment.axes, segment.conds, exprs, leaf))
        return tuple(statements)

    def _walk(self, found: Sequence[Running]) -> tuple[Expr, Axis]:
        """The output axis in terms of the loop that walks along it, and that loop."""
        if not found or found[0].ascending:
            return self.axis, self.axis
        step = fresh(self.axis, self.part.names)
        return expression(linear(self.axis.extent) - Linear(1, ()) - linear(step)), step

    def _leaf(self, found: Sequence[Running], totals: Sequence[Var]) -> Leaf:
        """What each step does: first the running values, then the store."""
        rank = len(self.stage.axes)

        def step(values: tuple[Expr, ...]) -> Block:
            value, indices, added = values[0], values[1 : rank + 1], values[rank + 1 :]
            statements: list[Statement] = []
            for one, total, new in zip(found, totals, added, strict=True):
                statements.extend(_advance(one, total, new))
            return (*statements, Store(self.stage, indices, value))

        return step


def _advance(one: Running, total: Var, new: Expr) -> Block:
    """The running value combined with ``new``, in the order of the reduction."""
    if new is one.start:
        return ()
    if isinstance(new, Select) and new.other is one.start:
        return (If(new.cond, _advance(one, total, new.then)),)
    left, right = (total, new) if one.ascending else (new, total)
    return (Assign(total, combined(one.node.combiner, left, right)),)
