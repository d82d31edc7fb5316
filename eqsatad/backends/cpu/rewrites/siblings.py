"""Nests side by side as one nest, and its borders cut off.

The phases of a strided gradient are nests over the same loops that write every other element.
As one nest they read their operands once and write whole cache lines; zeros over a longer loop are
taken apart to go with them. Where a bound of a short sum is an extremum that depends on a loop
around it, that loop is cut where the other side takes over, so that all but the borders have
constant bounds. A border along the innermost loop is widened to a whole vector, which works some of
its neighbours out again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import gcd, prod

from eqsatad.backends.blocks import touched
from eqsatad.backends.cpu.code.scalars import BYTES, COMPUTED
from eqsatad.backends.cpu.tiles.effort import index
from eqsatad.backends.cpu.tiles.tile import chain, length, typical
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    LoopProgram,
    Nest,
    Statement,
    Store,
    replaced,
    scheduled,
    statements,
)
from eqsatad.terms.linear import Linear, expression, linear, normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Var
from eqsatad.terms.ops import MAX, MIN, SUB, Op
from eqsatad.terms.presburger import span
from eqsatad.terms.ranges import interval

# The longest sum at a point, and the most pieces that a nest is cut into.
SHORT = 16
PIECES = 9
# The most parts that a loop which stores constants is taken apart into.
STEPS = 4


def joined(program: LoopProgram, vector: int) -> LoopProgram:
    """``program`` with siblings joined and borders cut off; ``vector`` bytes are one vector."""
    nests = tuple(Nest(nest.stage, tuple(_joined(nest.body, vector))) for nest in program.nests)
    return replace(program, nests=nests)


def _joined(body: Block, vector: int) -> Iterator[Statement]:
    run: list[Statement] = []
    for statement in body:
        fitting = [] if scheduled((*run, statement)) else _fitting(run, statement)
        if run and not fitting:
            yield from _merged(run, vector)
            run = []
        run.extend(fitting or [statement])
    if run:
        yield from _merged(run, vector)


def _fitting(run: Sequence[Statement], statement: Statement) -> list[Statement]:
    """``statement``, perhaps in several parts, if it can be one nest with ``run``."""
    if not run:
        return []
    for parts in ([statement], _phases(run[0], statement)):
        if parts and all(alike([*run, *parts[:n]], part) for n, part in enumerate(parts)):
            return parts
    return []


def _phases(pattern: Statement, statement: Statement) -> list[Statement]:
    """Stores of constants over a longer innermost loop in parts over that of ``pattern``."""
    (loops, body), (others, _) = chain(statement), chain(pattern)
    if not loops or not others or not all(map(stores_constant, body)):
        return []
    loop, other = loops[-1], others[-1]
    extent, count = length(loop), length(other)
    if not extent or not count or linear(loop.start).const or linear(other.start).const:
        return []
    if extent % count or not 1 < extent // count <= STEPS:
        return []
    step = extent // count
    return [_phase(loops[:-1], body, loop, other, (step, turn)) for turn in range(step)]


def _phase(
    loops: Sequence[For], body: Block, loop: For, other: For, place: tuple[int, int]
) -> Statement:
    """The nest with every so many values of ``loop``, which are counted by ``other``."""
    step, turn = place
    moved = expression(Linear.build(turn, ((step, other.axis),)))
    block = replaced(body, {loop.axis: moved})
    for each in (replace(other, body=()), *reversed(loops)):
        block = (replace(each, body=block),)
    (statement,) = block
    return statement


def stores_constant(statement: Statement) -> bool:
    return isinstance(statement, Store) and isinstance(statement.value, Const)


def _merged(run: Sequence[Statement], vector: int) -> Iterator[Statement]:
    if len(run) == 1:
        yield run[0]
        return
    loops, _ = chain(run[0])
    bodies = [chain(statement)[1] for statement in run]
    first = [each for body in bodies for each in body if not isinstance(each, Store)]
    last = [each for body in bodies for each in body if isinstance(each, Store)]
    whole = (*first, *last)
    # Truth values are stored one by one.
    widths = [BYTES.get(COMPUTED[store.buffer.dtype], vector) for store in _stored(whole)]
    lanes = vector // max(widths)
    yield from _cut(loops, whole, lanes)


def alike(run: Sequence[Statement], statement: Statement) -> bool:
    """Whether ``statement`` goes over the same points as ``run`` and stores elsewhere."""
    loops, body = chain(statement)
    # Loops that carry a value from one iteration to the next stay in their order.
    if not loops or not all(loop.parallel for loop in loops) or not _short(body):
        return False
    for other in run:
        others, theirs = chain(other)
        same = list(map(_range, loops)) == list(map(_range, others))
        if not same or not _short(theirs) or _variables(body).keys() & _variables(theirs):
            return False
        if not all(apart(a, b) for a in _stored(body) for b in _stored(theirs)):
            return False
    return True


def _range(loop: For) -> tuple[Axis, Expr, Expr, bool]:
    return loop.axis, loop.start, loop.stop, loop.parallel


def _short(body: Block) -> bool:
    """Whether ``body`` is short sums, then stores of what is read elsewhere."""
    if not all(isinstance(each, Store | Assign | For) for each in body) or not _stored(body):
        return False
    stores = [isinstance(each, Store) for each in body]
    if stores != sorted(stores):
        return False
    inside = [each for top in body if isinstance(top, For) for each in statements((top,))]
    if any(isinstance(each, Store | Accumulate) for each in inside):
        return False
    sums = [each for each in statements(body) if isinstance(each, For)]
    used = touched(body)
    written = {store.buffer for store in _stored(body)}
    reads = {tensor for tensor, writes in used.items() if not writes}
    return prod(typical(loop) for loop in sums) <= SHORT and not written & reads


def _stored(body: Block) -> list[Store]:
    return [each for each in body if isinstance(each, Store)]


def _variables(body: Block) -> dict[Var, None]:
    """The locals that ``body`` assigns, in order."""
    return dict.fromkeys(each.var for each in statements(body) if isinstance(each, Assign))


def apart(a: Store, b: Store) -> bool:
    """Whether no two points, not even different ones, make ``a`` and ``b`` store in one place."""
    if a.buffer is not b.buffer:
        return True
    for left, right in zip(a.indices, b.indices, strict=True):
        one, two = linear(left), linear(right)
        step = gcd(*(coef for form in (one, two) for coef, _ in form.terms))
        if (one.const - two.const) % step if step else one.const != two.const:
            return True
        (low, high), (least, most) = interval(left), interval(right)
        if high is not None and least is not None and high < least:
            return True
        if most is not None and low is not None and most < low:
            return True
    return False


def _cut(loops: Sequence[For], body: Block, lanes: int) -> Iterator[Statement]:
    """The nest of ``loops`` in pieces within which no bound changes sides."""
    wide = [lanes if loop is loops[-1] else 1 for loop in loops]
    ranges = [_pieces(loop, body, least) for loop, least in zip(loops, wide, strict=True)]
    if prod(map(len, ranges)) > PIECES:
        ranges = [[(loop.start, loop.stop)] for loop in loops]
    for number, bounds in enumerate(product(*ranges)):
        # Locals belong to the loops they are assigned in, so no two pieces share one.
        own: dict[Expr, Expr] = {
            var: Var(f"{var.name}_{number}", var.dtype) for var in _variables(body)
        }
        yield _piece(loops, bounds, replaced(body, own))


def _pieces(loop: For, body: Block, least: int) -> list[tuple[Expr, Expr]]:
    """The range of ``loop``, cut where a bound in ``body`` changes sides; see `_widened`."""
    cuts = {
        place for each in statements(body) if isinstance(each, For) for place in _sides(each, loop)
    }
    start, extent = linear(loop.start), length(loop)
    if start.terms or extent is None:
        return _open_ended(loop, cuts) if least == 1 else [(loop.start, loop.stop)]
    low, high = start.const, start.const + extent
    known = (cut.const for cut in cuts if not cut.terms)
    inside = [low, *sorted(cut for cut in known if low < cut < high), high]
    return [(index(a), index(b)) for a, b in _widened(inside, least)]


def _open_ended(loop: For, cuts: Collection[Linear]) -> list[tuple[Expr, Expr]]:
    """The range of a loop of unknown length, cut at the only place if that is within it."""
    edges = [loop.start, *map(expression, cuts), loop.stop]
    steps = [span(normal(Apply(SUB, (b, a))))[0] for a, b in pairwise(edges)]
    if len(cuts) > 1 or not all(least is not None and least >= 0 for least in steps):
        return [(loop.start, loop.stop)]
    return list(pairwise(edges))


def _widened(edges: Sequence[int], least: int) -> Iterator[tuple[int, int]]:
    """The pieces between ``edges``; those at the ends are no shorter than ``least`` if they can."""
    low, high = edges[0], edges[-1]
    final = max(low, high - least)
    begin = low
    for stop in edges[1:-1]:
        if begin == low:
            stop = max(stop, min(low + least, high))
        if stop > final:
            # Whole vectors up to the last piece, which may work some points out again.
            stop = min(stop, begin + -(-(final - begin) // least) * least)
        if begin < stop:
            yield begin, stop
            begin = stop
    yield min(begin, final), high


def _sides(inner: For, loop: For) -> Iterator[Linear]:
    """The first values of the axis of ``loop`` at which a bound of ``inner`` changes sides."""
    for bound, op in ((inner.start, MAX), (inner.stop, MIN)):
        match bound:
            case Apply(found, (left, right)) if found is op:
                form = linear(left) - linear(right)
                if form.free == {loop.axis} and form.coefficient(loop.axis):
                    yield from _turn(form, loop.axis)


def _turn(form: Linear, axis: Axis) -> Iterator[Linear]:
    """The first value of ``axis`` at which ``form`` has another sign than before, if known."""
    slope = form.coefficient(axis)
    rest = form.without(axis)
    # Where the form is 0 both sides are the same, so either belongs to either piece.
    if not rest.terms:
        yield Linear(-(rest.const // slope) if slope > 0 else rest.const // -slope + 1, ())
    elif abs(slope) == 1:
        yield rest.scaled(-1) if slope > 0 else rest + Linear(1, ())


def _piece(loops: Sequence[For], bounds: Sequence[tuple[Expr, Expr]], body: Block) -> Statement:
    """The nest over a part of the ranges, with bounds and indices worked out for it."""
    axes: list[Axis] = []
    places: dict[Expr, Expr] = {}
    for loop, (start, stop) in zip(loops, bounds, strict=True):
        low, high = linear(start), linear(stop)
        whole = (start, stop) == (loop.start, loop.stop)
        place = "end" if low.terms else low.const
        name = loop.axis.name if whole else f"{loop.axis.name}_{place}"
        axes.append(Axis(name, expression(high - low)))
        places[loop.axis] = expression(low + Linear.build(0, ((1, axes[-1]),)))
    result = _settled(replaced(body, places))
    for axis in reversed(axes):
        result = (For(axis, index(0), axis.extent, result, True),)
    (statement,) = result
    return statement


def _settled(block: Block) -> Block:
    """``block`` with extrema of bounds replaced by the side that they always are."""
    return tuple(
        replace(
            each,
            start=_side(each.start, MAX),
            stop=_side(each.stop, MIN),
            body=_settled(each.body),
        )
        if isinstance(each, For)
        else each
        for each in block
    )


def _side(bound: Expr, op: Op) -> Expr:
    match bound:
        case Apply(found, (left, right)) if found is op:
            difference = Apply(SUB, (left, right))
            low, high = interval(difference)
            if low is None and high is None:
                low, high = span(normal(difference))
            if low is not None and low >= 0:
                return left if op is MAX else right
            if high is not None and high <= 0:
                return right if op is MAX else left
    return bound
