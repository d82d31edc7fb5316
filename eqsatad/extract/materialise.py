"""Which parts of a value become stages of their own.

A part that is worked out more often than it has values (inside loops it does not depend on, or in
several places) is stored when that is cheaper than working it out again. Parts that differ only
in the names of their axes are one stage: ``sum(j) H[m, j]`` and ``sum(j) H[n, j]``.

What a program executes is counted as loops run: everything at the innermost loop around it,
except that a reduction is worked out once for the leading loops it depends on, and that equal
parts under the same loops are worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from eqsatad.extract.cost import CostModel
from eqsatad.rules.values import canonical, is_value
from eqsatad.terms.nodes import (
    Apply,
    Axis,
    Cast,
    Expr,
    Read,
    Reduce,
    Select,
    Stage,
)
from eqsatad.terms.ops import DIV, MUL, NEG
from eqsatad.terms.walk import conjuncts, fold, postorder, reads, substitute, with_children

Loops = tuple[Axis, ...]
Naming = Callable[[], str]


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


def sites(body: Expr, axes: Loops) -> Iterator[tuple[Expr, Loops]]:
    """Every part of a stage that is executed, with the loops around it, each once."""
    seen: set[tuple[Expr, Loops]] = set()
    stack: list[tuple[Expr, Loops]] = [(body, axes)]
    while stack:
        node, loops = stack.pop()
        if isinstance(node, Reduce):
            loops = leading(loops, node.free)
        if (node, loops) in seen:
            continue
        seen.add((node, loops))
        yield node, loops
        inner = (*loops, *node.axes) if isinstance(node, Reduce) else loops
        stack.extend((part, inner) for part in parts(node))


def leading(loops: Loops, free: frozenset[Axis]) -> Loops:
    """The shortest start of ``loops`` that binds all of ``free``."""
    last = max((n for n, axis in enumerate(loops) if axis in free), default=-1)
    return loops[: last + 1]


def executed(stages: Sequence[Stage], model: CostModel) -> float:
    """The cost of running ``stages`` once."""
    total = 0.0
    for stage in stages:
        looping = False
        for node, loops in sites(stage.body, stage.axes):
            if isinstance(node, Reduce):
                looping = True
                loops = (*loops, *node.axes)
            total += price(node, model) * model.volume(loops)
        written = model.store + (0.0 if looping else model.add)
        total += written * model.volume(stage.axes)
    return total


@dataclass(frozen=True)
class Part:
    """A value up to the names of what it depends on: ``body`` over positional axes."""

    body: Expr
    axes: Loops


def normal(node: Expr) -> tuple[Part, tuple[Expr, ...]]:
    """``node`` over positional axes, and the indices at which it is wanted, in the same order.

    Where it depends on some axes through one index expression only, as a sum over f of
    ``H[f, y - u + 1]`` does on y and u, that expression is the index. A condition inside that
    mentions them forbids it: there the expression may leave the range that it is read in.
    """
    chosen = _indices(node)
    order = _reading_order(node, chosen)
    renamed = {part: Axis(f"@{n}", chosen[part]) for n, part in enumerate(order)}
    body, _ = canonical(substitute(node, renamed))
    return Part(body, tuple(renamed[part] for part in order)), order


def _reading_order(node: Expr, chosen: dict[Expr, Expr]) -> tuple[Expr, ...]:
    """``chosen`` as the reads of ``node`` have them, then as its conditions do."""
    through_reads = (part for read in reads(node) for part in postorder(*read.indices))
    met = dict.fromkeys(part for part in (*through_reads, *postorder(node)) if part in chosen)
    return tuple(met)


def _indices(node: Expr) -> dict[Expr, Expr]:
    """What ``node`` depends on, each with its extent: index expressions of reads, else axes."""
    found: dict[Expr, Expr] = {}
    tested = frozenset[Axis]().union(*(cond.free for cond in _conditions(node)))
    for read in reads(node):
        for index, size in zip(read.indices, read.tensor.shape, strict=True):
            if index.children and index.free and index.free <= node.free - tested:
                found.setdefault(index, size)
    while found:
        positions = {index: Axis(f"@{n}", found[index]) for n, index in enumerate(found)}
        body = substitute(node, positions)
        clashing = [index for index in found if index.free & body.free]
        if not clashing and _consistent(node, found):
            break
        for index in clashing or list(found):
            del found[index]
    through = frozenset[Axis]().union(*(index.free for index in found))
    return found | {axis: axis.extent for axis in node.free - through}


def _conditions(node: Expr) -> list[Expr]:
    return [part.cond for part in postorder(node) if isinstance(part, Reduce | Select)]


def _consistent(node: Expr, found: dict[Expr, Expr]) -> bool:
    """Whether each index stands only where its extent is that of the dimension."""
    return all(
        found.get(index, size) is size
        for read in reads(node)
        for index, size in zip(read.indices, read.tensor.shape, strict=True)
    )


class Program:
    """A stage, and its parts that may be stored."""

    def __init__(self, stage: Stage, model: CostModel, naming: Naming) -> None:
        self.stage, self.model, self.naming = stage, model, naming
        self.normal: dict[Expr, tuple[Part, tuple[Expr, ...]]] = {}
        self.names: dict[Part, str] = {}

    def candidates(self) -> list[Part]:
        """The parts that are worked out more often than they have values, largest first."""
        runs: dict[Part, float] = {}
        for node, loops in sites(self.stage.body, self.stage.axes):
            if isinstance(node, Read) or not parts(node):
                continue
            if price(node, self.model) <= self.model.negate and isinstance(node, Apply | Cast):
                continue
            self.normal[node] = normal(node)
            part = self.normal[node][0]
            runs[part] = runs.get(part, 0.0) + self.model.volume(loops)
        often = [part for part, count in runs.items() if count > self.model.volume(part.axes)]
        return sorted(often, key=lambda part: -len(postorder(part.body)))

    def build(self, stored: frozenset[Part]) -> list[Stage]:
        """The stages when ``stored`` parts are stages of their own."""
        made: dict[Part, Stage] = {}

        def visit(node: Expr, children: tuple[Expr, ...]) -> Expr:
            rebuilt = with_children(node, children)
            found = self.normal.get(node)
            if found is None or found[0] not in stored:
                return rebuilt
            part, indices = found
            if part not in made:
                axes = dict(zip(indices, map(self.own_axis, indices, part.axes), strict=True))
                body, _ = canonical(substitute(rebuilt, axes))
                made[part] = Stage(self.name(part), tuple(axes.values()), body)
            return Read(made[part], indices)

        body, _ = canonical(fold(self.stage.body, visit))
        last = Stage(self.stage.name, self.stage.axes, body, self.stage.scatters)
        return [*made.values(), last]

    def name(self, part: Part) -> str:
        """The name of the stage of ``part``, the same in every trial."""
        if part not in self.names:
            self.names[part] = self.naming()
        return self.names[part]

    def own_axis(self, index: Expr, axis: Axis) -> Axis:
        """The axis of a stored part for ``index``: the axis itself, or one named after it."""
        if isinstance(index, Axis):
            return index
        first = next(part for part in postorder(index) if isinstance(part, Axis))
        return Axis(f"{first.name}{axis.name}", axis.extent)


def materialise(stage: Stage, model: CostModel, naming: Naming) -> list[Stage]:
    """``stage`` after the temporaries that make it cheapest."""
    program = Program(stage, model, naming)
    candidates = program.candidates()
    stored: frozenset[Part] = frozenset()
    best = executed(program.build(stored), model)
    for part in (*candidates, *reversed(candidates)):
        trial = stored ^ {part}
        cost = executed(program.build(trial), model)
        if cost < best * (1 - EPSILON):
            stored, best = trial, cost
    return program.build(stored)


EPSILON = 1e-12


def needed(stages: Sequence[Stage]) -> list[Stage]:
    """The stages that the last one reads, directly or not."""
    used = {stages[-1].name}
    for stage in reversed(stages):
        if stage.name in used:
            used |= {node.tensor.name for node in postorder(stage.body) if isinstance(node, Read)}
    return [stage for stage in stages if stage.name in used]


def readable(stage: Stage, names: dict[str, str]) -> Stage:
    """``stage`` with axes under the names they had, distinct in every scope."""
    own: dict[Expr, Expr] = {}
    taken: set[str] = set()
    for axis in stage.axes:
        own[axis] = named(axis, names, taken)

    def visit(node: Expr, children: tuple[Expr, ...]) -> Expr:
        node = with_children(node, children)
        if not isinstance(node, Reduce):
            return node
        avoid = taken | {
            axis.name
            for inner in postorder(*node.children)
            for axis in (inner.axes if isinstance(inner, Reduce) else inner.free)
        }
        renamed: dict[Expr, Expr] = {axis: named(axis, names, avoid) for axis in node.axes}
        cond, body = (substitute(child, renamed) for child in node.children)
        return Reduce(node.combiner, _axes(renamed), cond, body)

    body = fold(stage.body, visit)
    return Stage(stage.name, _axes(own), substitute(body, own), stage.scatters)


def _axes(renamed: dict[Expr, Expr]) -> Loops:
    return tuple(axis for axis in renamed.values() if isinstance(axis, Axis))


def named(axis: Axis, names: dict[str, str], avoid: set[str]) -> Axis:
    """``axis`` under its source name, numbered if that is in ``avoid``, to which it is added."""
    stem = axis.name.split("@")[0]
    while stem not in names and (shorter := stem.rpartition("_"))[2].isdigit():
        stem = shorter[0]
    stem = name = names.get(stem, stem)
    number = 0
    while name in avoid:
        number += 1
        name = f"{stem}_{number}"
    avoid.add(name)
    return Axis(name, axis.extent)
