"""Statements for pieces: loops with bounds, reductions into locals, stores.

A reduction is computed in the outermost loop in which its axes are known, provided the loops
between always run: what it reads may be in range only where they do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from eqsatad.loops.bounds import Loop, depth, loops
from eqsatad.loops.combine import ARGS, combined, identity
from eqsatad.loops.nest import Accumulate, Assign, Block, For, If, Statement, Store
from eqsatad.loops.pieces import Piece
from eqsatad.loops.settle import has_reads
from eqsatad.terms.coerce import const
from eqsatad.terms.linear import expression, linear
from eqsatad.terms.nodes import (
    ARGMAX,
    FLOATS,
    SUM,
    TRUE,
    Apply,
    Axis,
    Cast,
    Combiner,
    Const,
    Expr,
    Reduce,
    Select,
    Var,
)
from eqsatad.terms.ops import AND, EQ, FLOORDIV, GE, GT, LE, LT, MOD, MUL, NOT, OR
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import conjunction, conjuncts, postorder, substitute

Leaf = Callable[[tuple[Expr, ...]], Block]


class Emitter:
    """Makes statements; its only state is the number of the next local."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def local(self, name: str, dtype: str) -> Var:
        """A local that no other has."""
        return Var(f"{name}_{next(self._numbers)}", dtype)

    def block(
        self,
        axes: Sequence[Axis],
        conds: Sequence[Expr],
        roots: tuple[Expr, ...],
        leaf: Leaf,
        parallel: int = 0,
        summed: frozenset[Axis] = frozenset(),
    ) -> Block:
        """``leaf`` of the values of ``roots`` at every point of ``axes`` where ``conds`` hold.

        ``parallel`` is how many of the outermost loops may run in any order; ``summed`` are those
        of ``axes`` that a reduction owns.
        """
        if worked := _worked(conds):
            # A test that needs statements is made inside the loops, around all that it guards.
            rest = [cond for cond in conds if cond not in worked]

            def guarded(values: tuple[Expr, ...]) -> Block:
                return (If(values[0], self.block((), (), roots, leaf)),)

            return self.block(axes, rest, (conjunction(worked),), guarded, parallel, summed)
        tests, nest = loops(axes, conds, summed)
        levels: list[list[Statement]] = [[] for _ in range(len(nest) + 1)]
        known: dict[Expr, Expr] = {}
        for node in heavy(roots):
            local, statements = self.value(node)
            levels[_level(node, nest)].extend(statements)
            known[node] = local
        roots = tuple(substitute(root, known) for root in roots)
        roots = self.lifted(roots, nest, levels)
        inner = leaf(roots)
        body: Block = (*levels[-1], *inner)
        for level, loop in reversed(list(enumerate(nest))):
            body = _tested(loop.tests, body)
            body = (For(loop.axis, loop.start, loop.stop, body, level < parallel),)
            body = (*levels[level], *body)
        return _tested(tests, body)

    def lifted(
        self, roots: tuple[Expr, ...], nest: Sequence[Loop], levels: list[list[Statement]]
    ) -> tuple[Expr, ...]:
        """``roots`` with quotients that the innermost loops do not change computed outside them."""
        known: dict[Expr, Expr] = {}
        for node in quotients(roots):
            level = depth([loop.axis for loop in nest], node.free)
            if level < len(nest):
                local = known[node] = self.local("quotient", "index")
                levels[level].append(Assign(local, node))
        return tuple(substitute(root, known) for root in roots)

    def value(self, node: Expr) -> tuple[Var, Block]:
        """A local for ``node``, and the statements that set it."""
        match node:
            case Select():
                # What the condition needs is there whichever side is taken.
                needed = {part: self.value(part) for part in heavy((node.cond,))}
                known = {part: found for part, (found, _) in needed.items()}
                cond, then, other = (substitute(child, known) for child in node.children)
                before = tuple(line for _, lines in needed.values() for line in lines)
                local = self.local("chosen", node.dtype)
                sides = (self.assigned(local, then), self.assigned(local, other))

                def choose(values: tuple[Expr, ...]) -> Block:
                    return (If(values[0], *sides),)

                return local, (*before, *self.block((), (), (cond,), choose))
            case Reduce(combiner, _, _, _) if combiner in ARGS:
                return self.position(node)
            case Reduce(combiner, axes, cond, body):
                local = self.local(combiner.name, node.dtype)

                def add(values: tuple[Expr, ...]) -> Block:
                    return (Assign(local, combined(combiner, local, values[0])),)

                start = Assign(local, identity(combiner, node.dtype))
                inner = self.block(
                    axes, list(conjuncts(cond)), (body,), add, summed=frozenset(axes)
                )
                return local, (start, *inner)
        raise AssertionError(f"{node!r} needs no statements")

    def assigned(self, local: Var, value: Expr) -> Block:
        """Statements that set ``local`` to ``value``."""
        return self.block((), (), (value,), lambda values: (Assign(local, values[0]),))

    def position(self, node: Reduce) -> tuple[Var, Block]:
        """The row-major position of the first best point; 0 if there is no point."""
        best = self.local("best", node.body.dtype)
        place = self.local(node.combiner.name, "int64")
        start: Expr = Const(0, "int64")
        here = Cast(row_major(node.axes), "int64")
        unset = None
        if node.cond is not TRUE:
            # The first point counts even if its value is no better than the identity.
            start, unset = const(-1, "int64"), Apply(LT, (place, Const(0, "int64")))

        def keep(values: tuple[Expr, ...]) -> Block:
            value = self.local("value", node.body.dtype)
            test = _beats(node.combiner, value, best)
            test = test if unset is None else Apply(OR, (unset, test))
            found = (Assign(best, value), Assign(place, here))
            return (Assign(value, values[0]), If(test, found))

        before = (
            Assign(best, identity(node.combiner, node.body.dtype)),
            Assign(place, start),
        )
        loop = self.block(
            node.axes, list(conjuncts(node.cond)), (node.body,), keep, summed=frozenset(node.axes)
        )
        if unset is None:
            return place, (*before, *loop)
        return place, (*before, *loop, If(unset, (Assign(place, Const(0, "int64")),)))


def _beats(combiner: Combiner, value: Expr, best: Expr) -> Expr:
    """Whether ``value`` comes before ``best``; a NaN beats every number, and no NaN is beaten."""
    strict, weak = (GT, LE) if combiner is ARGMAX else (LT, GE)
    if value.dtype not in FLOATS:
        return Apply(strict, (value, best))
    return Apply(AND, (Apply(NOT, (Apply(weak, (value, best)),)), Apply(EQ, (best, best))))


def row_major(axes: Sequence[Axis]) -> Expr:
    """The number of a point among all points of ``axes``."""
    total: Expr = Const(0, "index")
    for axis in axes:
        total = Apply(MUL, (total, axis.extent)) + axis
    return expression(linear(total))


def heavy(roots: Sequence[Expr]) -> list[Expr]:
    """The outermost nodes under ``roots`` that need statements: reductions and choices of them."""
    needs: dict[Expr, bool] = {}
    for node in postorder(*roots):
        needs[node] = isinstance(node, Reduce) or any(needs[child] for child in node.children)
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node in seen or not needs[node]:
            continue
        seen.add(node)
        if isinstance(node, Reduce | Select):
            found[node] = None
        else:
            stack.extend(reversed(node.children))
    return list(found)


def _worked(conds: Sequence[Expr]) -> list[Expr]:
    """The conditions with a reduction in them, and those that read after one and may rely on it."""
    found: list[Expr] = []
    for cond in conds:
        if heavy((cond,)) or (found and has_reads(cond)):
            found.append(cond)
    return found


def quotients(roots: Sequence[Expr]) -> list[Expr]:
    """The outermost quotients under ``roots`` that can be computed where their axes are known."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_safe_quotient(node):
            found[node] = None
        else:
            stack.extend(reversed(node.children))
    return list(found)


def is_safe_quotient(node: Expr) -> bool:
    """Whether ``node`` is an index ``//`` or ``%`` that reads nothing and cannot fail."""
    if not isinstance(node, Apply) or node.op not in (FLOORDIV, MOD) or node.dtype != "index":
        return False
    least, _ = interval(node.args[1])
    return least is not None and least > 0 and not has_reads(node)


def _level(node: Expr, nest: Sequence[Loop]) -> int:
    """The number of loops around the statements that compute ``node``."""
    level = len(nest)
    while level and nest[level - 1].axis not in node.free and nest[level - 1].runs:
        level -= 1
    return level


def _tested(tests: Sequence[Expr], body: Block) -> Block:
    for test in reversed(tests):
        body = (If(test, body),)
    return body


def emit(
    piece: Piece, order: Sequence[Axis] | None = None, emitter: Emitter | None = None
) -> Block:
    """Statements that compute ``piece``.

    ``order`` is any order of its axes and those of its `reduction`: the sum is then added up in
    the stage, which is filled with zeros first. Without it, sums are added up in locals.
    """
    emitter = emitter or Emitter()
    if piece.adds:
        return _added(piece, emitter)
    if order is None:
        return emitter.block(
            piece.axes,
            piece.conds,
            (piece.value, *piece.indices),
            _store(piece),
            parallel=len(piece.axes),
        )
    return _ordered(piece, order, emitter)


def _store(piece: Piece) -> Leaf:
    return lambda values: (Store(piece.stage, values[1:], values[0]),)


def _accumulate(piece: Piece) -> Leaf:
    return lambda values: (Accumulate(piece.stage, values[1:], values[0]),)


def _added(piece: Piece, emitter: Emitter) -> Block:
    """Additions in order; a condition on data around the value decides whether one is made."""
    value, conds = piece.value, list(piece.conds)
    zero = identity(SUM, piece.stage.dtype)
    while isinstance(value, Select) and value.other is zero:
        conds.extend(conjuncts(value.cond))
        value = value.then
    return emitter.block(
        piece.axes, conds, (value, *piece.indices), _accumulate(piece), parallel=_apart(piece)
    )


def _apart(piece: Piece) -> int:
    """How many of the outermost loops reach different elements in different iterations."""
    for number, axis in enumerate(piece.axes):
        forms = map(linear, piece.indices)
        if not any(len(form.terms) == 1 and form.coefficient(axis) for form in forms):
            return number
    return len(piece.axes)


def _ordered(piece: Piece, order: Sequence[Axis], emitter: Emitter) -> Block:
    """The piece as additions to zeros, its loops in ``order``."""
    total = piece.reduction
    assert total is not None, "only a sum can be added up in its stage"
    assert set(order) == {*piece.axes, *total.axes}, "an order names every loop once"
    zero = identity(SUM, piece.stage.dtype)
    fill = emitter.block(
        piece.axes, piece.conds, (zero, *piece.indices), _store(piece), parallel=len(piece.axes)
    )
    outer = next((n for n, axis in enumerate(order) if axis not in piece.axes), len(order))
    conds = (*piece.conds, *conjuncts(total.cond))
    body = (total.body, *piece.indices)
    summed = frozenset(order) - frozenset(piece.axes)
    added = emitter.block(order, conds, body, _accumulate(piece), parallel=outer, summed=summed)
    return (*fill, *added)
