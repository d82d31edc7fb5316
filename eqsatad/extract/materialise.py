"""Which parts of a value become stages of their own.

A part that is worked out more often than it has values (inside loops it does not depend on, or in
several places) is stored when that is cheaper than working it out again. Parts that differ only
in the names of their axes are one stage: ``sum(j) H[m, j]`` and ``sum(j) H[n, j]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eqsatad.extract.cost import COUNT, CostModel, extent
from eqsatad.extract.live import Cut, values_of
from eqsatad.extract.points import Points
from eqsatad.extract.safe import tests_data, total
from eqsatad.extract.sites import executed, parts, price, sites, values
from eqsatad.rules.values import canonical
from eqsatad.terms.linear import Linear, expression, linear, quotient
from eqsatad.terms.linear import normal as linear_normal
from eqsatad.terms.nodes import (
    SUM,
    Apply,
    Axis,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Select,
    Stage,
    digest,
)
from eqsatad.terms.ops import FLOORDIV
from eqsatad.terms.walk import (
    conjunction,
    conjuncts,
    fold,
    fresh,
    postorder,
    reads,
    substitute,
    transform,
    with_children,
)

Naming = Callable[[], str]


@dataclass(frozen=True)
class Part:
    """A value up to the names of what it depends on: ``body`` over positional axes.

    ``cuts`` are the values of what each axis stands for.
    """

    body: Expr
    axes: tuple[Axis, ...]
    cuts: tuple[Cut, ...]

    def places(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Where an element is, of what is wanted at ``indices``."""
        return tuple(cut.place(index) for cut, index in zip(self.cuts, indices, strict=True))


def normal(node: Expr, model: CostModel = COUNT) -> tuple[Part, tuple[Expr, ...]]:
    """``node`` over positional axes, and the indices at which it is wanted, in the same order.

    Where it depends on some axes through one index expression only, as a sum over f of
    ``H[f, y - u + 1]`` does on y and u, that expression is the index, unless it may have more
    values than the axes have points. A condition inside that
    mentions them forbids it: there the expression may leave the range that it is read in.
    """
    chosen = _indices(node, model)
    order = _reading_order(node, chosen)
    axes = tuple(Axis(f"@{n}", chosen[part].count) for n, part in enumerate(order))
    cuts = tuple(chosen[part] for part in order)
    positions = {p: cut.position(axis) for p, cut, axis in zip(order, cuts, axes, strict=True)}
    body, _ = canonical(respelled(node, positions))
    return Part(body, axes, cuts), order


def _reading_order(node: Expr, chosen: Mapping[Expr, object]) -> tuple[Expr, ...]:
    """``chosen`` as the reads of ``node`` have them, then as its conditions do."""
    through_reads = (part for read in reads(node) for part in postorder(*read.indices))
    met = dict.fromkeys(part for part in (*through_reads, *postorder(node)) if part in chosen)
    return tuple(met)


def _indices(node: Expr, model: CostModel) -> dict[Expr, Cut]:
    """What ``node`` depends on, each with its values: index expressions of reads, else axes."""
    found: dict[Expr, Expr] = {}
    tested = frozenset[Axis]().union(*(cond.free for cond in _conditions(node)))
    for read in reads(node):
        for index, size in zip(read.indices, read.tensor.shape, strict=True):
            if index.children and index.free and index.free <= node.free - tested:
                values = extent(values_of(index, size).count, model.sizes)
                if values < model.volume(index.free):
                    found.setdefault(index, size)
    while found:
        positions = {index: Axis(f"@{n}", found[index]) for n, index in enumerate(found)}
        body = respelled(node, positions)
        clashing = [index for index in found if index.free & body.free]
        if not clashing and _consistent(node, found):
            break
        for index in clashing or list(found):
            del found[index]
    through = frozenset[Axis]().union(*(index.free for index in found))
    cuts = {index: values_of(index, size) for index, size in found.items()}
    return cuts | {axis: Cut(0, 1, axis.extent) for axis in node.free - through}


def respelled(node: Expr, positions: Mapping[Expr, Expr]) -> Expr:
    """``node`` over ``positions``, each the value of an index expression.

    What mentions an axis of such an expression in another form is spelled through the position:
    where ``y - k`` is ``p``, ``2*y - 2*k + 1`` is ``2*p + 1``.
    """
    body = substitute(node, positions)
    for index, position in positions.items():
        if index.children and index.free & body.free:
            body = transform(substitute(body, _solved(index, position)), tidy)
    return body


def _solved(index: Expr, position: Expr) -> dict[Expr, Expr]:
    """An axis of ``index``, else a quotient, in terms of ``position`` and the others."""
    form = linear(index)
    for coef, atom in sorted(form.terms, key=lambda term: not isinstance(term[1], Axis)):
        rest = form.without(atom)
        if abs(coef) == 1 and not atom.free & rest.free:
            return {atom: expression((linear(position) - rest).scaled(coef))}
    return {}


def tidy(node: Expr) -> Expr:
    """``node`` in its linear normal form if it is an index, whole multiples out of quotients."""
    match node:
        case Apply(op, (dividend, Const(divisor, "index"))) if op is FLOORDIV and divisor > 0:
            form = linear(dividend)
            whole = [(coef // divisor, part) for coef, part in form.terms if coef % divisor == 0]
            rest = Linear(form.const, tuple(term for term in form.terms if term[0] % divisor))
            return expression(Linear.build(0, whole) + quotient(rest, divisor))
    return linear_normal(node) if isinstance(node, Apply) and node.dtype == "index" else node


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

    def __init__(self, stage: Stage, points: Points, naming: Naming) -> None:
        self.stage, self.points, self.naming = stage, points, naming
        self.model = points.model
        self.normal: dict[Expr, tuple[Part, tuple[Expr, ...]]] = {}
        self.names: dict[Part, str] = {}
        self.tested = tests_data(stage.body)

    def candidates(self) -> list[Part]:
        """The parts that are worked out more often than they have values, largest first."""
        shapes: dict[Expr, str] = {}
        met: dict[str, list[tuple[Expr, float]]] = {}
        for site in sites(self.stage.body, self.stage.axes):
            if self.storable(site.node):
                shape = _shape(site.node, shapes)
                met.setdefault(shape, []).append((site.node, values(site, self.points)))
        times_run: dict[Part, float] = {}
        for places in met.values():
            total = sum(times for _, times in places)
            for node, times in places:
                if total > self.fewest(node):
                    self.normal[node] = normal(node, self.model)
                    part = self.normal[node][0]
                    times_run[part] = times_run.get(part, 0.0) + times
        often = [part for part, times in times_run.items() if times > self.model.volume(part.axes)]
        return sorted(often, key=lambda part: -len(postorder(part.body)))

    def storable(self, node: Expr) -> bool:
        """Whether storing ``node`` could save anything: not for reads, signs and literals."""
        if not parts(node):
            return False
        return not isinstance(node, Apply | Cast) or price(node, self.model) > self.model.negate

    def fewest(self, node: Expr) -> int:
        """A bound from below on the values that ``node`` has."""
        for read in reads(node):
            for index, size in zip(read.indices, read.tensor.shape, strict=True):
                fewer = extent(values_of(index, size).count, self.model.sizes)
                if index.children and fewer < self.model.volume(index.free & node.free):
                    return 0
        return self.model.volume(node.free)

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
                axes = tuple(map(self.own_axis, indices, part.axes))
                cuts = zip(part.cuts, axes, strict=True)
                positions = [cut.position(axis) for cut, axis in cuts]
                spelled = dict(zip(indices, positions, strict=True))
                body, _ = canonical(respelled(rebuilt, spelled))
                if body.free - frozenset(axes):
                    # A part inside is read through axes of which this one knows only a position.
                    body, _ = canonical(respelled(node, spelled))
                body = transform(total(body, tested=self.tested), merged)
                made[part] = Stage(self.name(part), axes, body)
            return Read(made[part], part.places(indices))

        body, _ = canonical(transform(fold(self.stage.body, visit), merged))
        last = Stage(self.stage.name, self.stage.axes, body, self.stage.scatters)
        return [*made.values(), last]

    def name(self, part: Part) -> str:
        """The name of the stage of ``part``, the same in every trial."""
        if part not in self.names:
            self.names[part] = self.naming()
        return self.names[part]

    def own_axis(self, index: Expr, axis: Axis) -> Axis:
        """The axis of a stored part for ``index``, named after it."""
        first = next(part for part in postorder(index) if isinstance(part, Axis))
        return Axis(f"{first.name}{axis.name}", axis.extent)


def merged(node: Expr) -> Expr:
    """A sum of sums as one sum, if no inner sum is the same for several points of the outer one."""
    match node:
        case Reduce(outer, axes, cond, Reduce(inner, more, below, body)) if outer is inner is SUM:
            if frozenset(axes) <= body.free - frozenset(more):
                # An axis of the same name that the outer condition mentions is another one.
                taken = {axis.name for axis in (*axes, *more, *cond.free, *body.free, *below.free)}
                same: dict[Expr, Axis] = {
                    axis: fresh(axis, taken) for axis in more if axis in cond.free
                }
                below, body = (substitute(part, dict(same)) for part in (below, body))
                axes = (*axes, *(same.get(axis, axis) for axis in more))
                return Reduce(SUM, axes, conjunction((*conjuncts(cond), *conjuncts(below))), body)
    return node


def _shape(node: Expr, known: dict[Expr, str]) -> str:
    """A text that equal parts have in common, whatever their axes and indices."""
    for part in postorder(node):
        if part not in known:
            below = (known[child] for child in parts(part))
            match part:
                case Apply(op, _):
                    label = op.name
                case Reduce(combiner, axes, _, _):
                    label = f"{combiner.key} {len(axes)}"
                case Read(tensor, _):
                    label = tensor.key
                case Const():
                    label = part.key
                case _:
                    label = type(part).__name__
            known[part] = digest(label, *below)
    return known[node]


def materialise(stage: Stage, points: Points, naming: Naming) -> list[Stage]:
    """``stage`` after the temporaries that make it cheapest."""
    program = Program(stage, points, naming)
    candidates = program.candidates()
    stored: frozenset[Part] = frozenset()
    best = executed(program.build(stored), points)
    for part in (*candidates, *reversed(candidates)):
        trial = stored ^ {part}
        cost = executed(program.build(trial), points)
        if cost < best * (1 - EPSILON):
            stored, best = trial, cost
    return program.build(stored)


EPSILON = 1e-12
