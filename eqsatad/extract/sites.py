"""What a program executes: which part of a stage is worked out under which loops.

Everything runs in the innermost loop around it, except that a reduction is worked out once for
the leading loops it depends on, and that equal parts in one loop body are worked out once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from eqsatad.extract.cost import CostModel
from eqsatad.extract.points import Points
from eqsatad.rules.values import is_value
from eqsatad.terms.nodes import Apply, Axis, Cast, Expr, Read, Reduce, Select, Stage, Tensor
from eqsatad.terms.ops import DIV, MUL, NEG
from eqsatad.terms.walk import conjuncts, program


class Loop(NamedTuple):
    """An axis and the reduction that runs it; None for the axes of the stage."""

    axis: Axis
    owner: Expr | None


Loops = tuple[Loop, ...]


def parts(node: Expr) -> tuple[Expr, ...]:
    """The values directly below ``node``; what indices and conditions hold is not counted."""
    match node:
        case Select(_, then, other):
            return (then, other)
        case Reduce(_, _, _, body):
            return (body,)
        case Apply() | Cast():
            return tuple(child for child in node.children if is_value(child))
    return ()


def price(node: Expr, model: CostModel) -> float:
    """The cost of evaluating ``node`` once, its parts and repetitions aside."""
    match node:
        case Read():
            return model.read
        case Reduce(_, _, cond, _):
            return model.add + model.guard * sum(1 for _ in conjuncts(cond))
        case Select(cond, _, _):
            return model.guard * sum(1 for _ in conjuncts(cond))
        case Apply(op, _) if op is MUL:
            return model.multiply
        case Apply(op, _) if op is DIV:
            return model.divide
        case Apply(op, _) if op is NEG:
            return model.negate
        case Apply(op, _):
            return model.function(op.name)
    return 0.0


class Site(NamedTuple):
    """A part with the loops around it and the conditions under which it runs."""

    node: Expr
    loops: Loops
    conds: frozenset[Expr]


def sites(body: Expr, axes: Sequence[Axis]) -> Iterator[Site]:
    """Every part of a stage that is executed, once for each place where it is."""
    seen: set[Site] = set()
    stack = [Site(body, tuple(Loop(axis, None) for axis in axes), frozenset())]
    while stack:
        site = stack.pop()
        if isinstance(site.node, Reduce):
            site = _hoisted(site, site.node)
        if site in seen:
            continue
        seen.add(site)
        yield site
        stack.extend(_below(site))


def _hoisted(site: Site, node: Reduce) -> Site:
    """``site`` moved out of the loops that the reduction does not depend on."""
    last = max((n for n, loop in enumerate(site.loops) if loop.axis in node.free), default=-1)
    loops = site.loops[: last + 1]
    around = frozenset(loop.axis for loop in loops)
    return Site(node, loops, frozenset(cond for cond in site.conds if cond.free <= around))


def _below(site: Site) -> Iterator[Site]:
    node, loops, conds = site
    match node:
        case Reduce(_, axes, cond, body):
            inner = (*loops, *(Loop(axis, node) for axis in axes))
            yield Site(body, inner, conds | set(conjuncts(cond)))
        case Select(cond, then, other):
            yield Site(then, loops, conds | set(conjuncts(cond)))
            yield Site(other, loops, conds)
        case _:
            for part in parts(node):
                yield Site(part, loops, conds)


def runs(site: Site, points: Points) -> float:
    """How often a part is executed; a reduction counts the points it adds up."""
    axes = [loop.axis for loop in site.loops]
    if isinstance(site.node, Reduce):
        return points.count((*axes, *site.node.axes), site.conds | set(conjuncts(site.node.cond)))
    return points.count(axes, site.conds)


def values(site: Site, points: Points) -> float:
    """How often a part is wanted: a reduction once for all its points."""
    return points.count((loop.axis for loop in site.loops), site.conds)


def work_sites(stage: Stage) -> Iterator[Site]:
    """Every part of a stage that is executed, what it scatters included."""
    yield from sites(stage.body, stage.axes)
    for scatter in stage.scatters:
        yield from sites(scatter.value, scatter.axes)


def executed(stages: Sequence[Stage], points: Points) -> float:
    """The cost of running ``stages`` once, scatters aside; all but the last are temporaries."""
    return sum(
        _cost(sites(stage.body, stage.axes), stage, points, temporary=stage is not stages[-1])
        for stage in stages
    )


def program_cost(outputs: Sequence[Tensor], points: Points) -> float:
    """The cost of running the program of ``outputs`` once."""
    return sum(
        _cost(work_sites(stage), stage, points, temporary=stage not in outputs)
        for stage in program(outputs)
        if isinstance(stage, Stage)
    )


def _cost(places: Iterable[Site], stage: Stage, points: Points, *, temporary: bool) -> float:
    model = points.model
    looping = False
    total = 0.0
    for site in places:
        looping |= isinstance(site.node, Reduce)
        total += price(site.node, model) * runs(site, points)
    visited = temporary and not looping
    written = model.store + (model.visit if visited else 0.0)
    return total + written * model.volume(stage.axes)
