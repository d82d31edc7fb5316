"""Reductions and their domains: a term's conditions to guards, and back.

The normal form of a summand: a reduction whose condition is a conjunction of guards and whose
body holds no condition that could be one. `restrict` puts every reduction of a term on its
smallest domain; it decides nothing itself, the rows do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from eqsatad.rules.conditions import Conditions, as_condition, pieces
from eqsatad.rules.domain import Domain
from eqsatad.rules.domains import Domains
from eqsatad.rules.indices import ZERO, Guard, Indices
from eqsatad.terms.coerce import const
from eqsatad.terms.linear import Linear, expression, linear
from eqsatad.terms.meaning import identity_of
from eqsatad.terms.nodes import (
    ARGMAX,
    ARGMIN,
    FALSE,
    SUM,
    TRUE,
    Apply,
    Axis,
    Const,
    Expr,
    Read,
    Reduce,
    Select,
)
from eqsatad.terms.ops import ADD, DIV, MUL, NEG, SUB
from eqsatad.terms.walk import (
    conjunction,
    conjuncts,
    constant,
    fresh,
    postorder,
    rename,
    substitute,
    transform,
    with_children,
)

Terms = tuple[tuple[int, Expr], ...]


def is_zero(expr: Expr) -> bool:
    """Whether ``expr`` is the literal 0."""
    return isinstance(expr, Const) and expr.value == 0 and expr.dtype != "bool"


def guarded(body: Expr) -> tuple[list[Expr], Expr]:
    """The conditions under which a product is not 0, and the product without them."""
    match body:
        case Select(cond, then, other) if is_zero(other):
            inner, value = guarded(then)
            return [cond, *inner], value
        case Apply(op, (left, right)) if op is MUL:
            first, a = guarded(left)
            second, b = guarded(right)
            return [*first, *second], with_children(body, (a, b))
        case Apply(op, (left, right)) if op is DIV:
            first, a = guarded(left)
            return first, with_children(body, (a, right))
        case Apply(op, (inner,)) if op is NEG:
            found, value = guarded(inner)
            return found, with_children(body, (value,))
        case Reduce(combiner, axes, cond, inner) if combiner is SUM:
            own = frozenset(axes)
            outer = [part for part in conjuncts(cond) if not part.free & own]
            rest = conjunction(part for part in conjuncts(cond) if part.free & own)
            return outer, with_children(body, (rest, inner))
    return [], body


def summands(body: Expr) -> Iterator[Expr]:
    """The terms that ``body`` adds up, differences and negations distributed."""
    match body:
        case Apply(op, (left, right)) if op is ADD:
            yield from summands(left)
            yield from summands(right)
        case Apply(op, (left, right)) if op is SUB:
            yield from summands(left)
            yield from (Apply(NEG, (part,)) for part in summands(right))
        case Apply(op, (inner,)) if op is NEG:
            yield from (Apply(NEG, (part,)) for part in summands(inner))
        case _:
            yield body


class Restriction:
    """Puts the reductions of terms on their smallest domains."""

    def __init__(self, indices: Indices, domains: Domains, taken: set[str]) -> None:
        self._indices = indices
        self._domains = domains
        self._taken = taken

    def term(self, root: Expr) -> Expr:
        """``root`` with every reduction restricted and every decided condition gone."""
        results: dict[Expr, Expr] = {}
        for node in postorder(root):
            over = with_children(node, tuple(results[child] for child in node.children))
            if isinstance(over, Reduce) and over.combiner in (ARGMAX, ARGMIN):
                results[node] = position(over)
            elif isinstance(over, Reduce):
                results[node] = self.reduction(over)
            elif isinstance(over, Select):
                results[node] = self.selection(over)
            else:
                results[node] = over
        (result,) = self._indices.simplify([results[root]])
        return result

    def selection(self, node: Select) -> Expr:
        """A select whose condition ranges decide, or its guards simplified."""
        found = self._settled(Conditions.of([node.cond]))
        if found is None:
            return node.other
        cond = conjunction((*map(as_condition, found.guards), *found.opaque))
        return node.then if cond is TRUE else Select(cond, node.then, node.other)

    def reduction(self, node: Reduce) -> Expr:
        """A reduction on its smallest domain; a sum of guarded terms is split first."""
        if node.combiner is not SUM:
            return self._restricted(node, list(conjuncts(node.cond)), node.body)
        parts = list(summands(node.body))
        if len(parts) > 1 and any(guarded(part)[0] for part in parts):
            pieces = [self._sum(node, part) for part in parts]
            return added(pieces)
        return self._sum(node, node.body)

    def _sum(self, node: Reduce, body: Expr) -> Expr:
        conds, value = guarded(body)
        axes = node.axes
        if isinstance(value, Reduce) and value.combiner is SUM:
            inner = self._apart(value)
            return self.reduction(
                Reduce(
                    SUM,
                    (*axes, *inner.axes),
                    conjunction((*conjuncts(node.cond), *conds, *conjuncts(inner.cond))),
                    inner.body,
                )
            )
        return self._restricted(node, [*conjuncts(node.cond), *conds], value)

    def _apart(self, node: Reduce) -> Reduce:
        """``node`` with axes of its own names."""
        clashing = [axis for axis in node.axes if axis.name in self._taken]
        renamed = {axis: fresh(axis, self._taken) for axis in clashing}
        self._taken.update(axis.name for axis in node.axes)
        return rename(node, renamed)

    def _restricted(self, node: Reduce, conds: Sequence[Expr], body: Expr) -> Expr:
        """``node`` on its smallest domain, in pieces where ``conds`` are a disjunction."""
        parts = _parts(node, conds)
        return added(self._piece(node, part, body) for part in parts) if parts else identity(node)

    def _piece(self, node: Reduce, conds: Sequence[Expr], body: Expr) -> Expr:
        found = Conditions.of(conds)
        if any(cond is FALSE for cond in found.opaque):
            return identity(node)
        body = at_outer(body, node.axes, found.guards)
        domain = self._domains.solve(Domain(node.axes, found.guards), self._taken)
        if domain is None:
            return identity(node)
        result = rebuilt(node, domain, found.opaque, body)
        if isinstance(result, Reduce):
            left = list(conjuncts(result.cond))
            if len(_parts(result, left)) != 1:
                # What was put in by an equation is a disjunction on what is left.
                return self._restricted(result, left, result.body)
        return result

    def _settled(self, conditions: Conditions) -> Conditions | None:
        guards = self._indices.guards(conditions.guards)
        if guards is None or FALSE in conditions.opaque:
            return None
        return Conditions(tuple(guards), conditions.opaque)


def _parts(node: Reduce, conds: Sequence[Expr]) -> list[tuple[Expr, ...]]:
    """``conds`` as conditions of sums that add up to ``node``; other reductions stay whole."""
    return pieces(conds, frozenset(node.axes)) if node.combiner is SUM else [tuple(conds)]


def at_outer(body: Expr, axes: Sequence[Axis], guards: Iterable[Guard]) -> Expr:
    """``body`` reading at an outer axis where an equation says that an index over ``axes`` is one.

    Where ``2*o + k == j``, ``x[2*o + k]`` is ``x[j]``, which does not depend on what is summed.
    """
    summed = frozenset(axes)
    outer = dict(_outer(summed, guards))

    def named(index: Expr) -> Expr:
        form = linear(index)
        known = outer.get(form.terms)
        return index if known is None else expression(known + Linear(form.const, ()))

    def visit(node: Expr) -> Expr:
        if not isinstance(node, Read):
            return node
        outside = Read(node.tensor, tuple(map(named, node.indices)))
        return node if outside.free & summed else outside

    return transform(body, visit) if outer else body


def _outer(summed: frozenset[Axis], guards: Iterable[Guard]) -> Iterator[tuple[Terms, Linear]]:
    """Sums over ``summed`` axes without their constants, each with what equals it outside."""
    for kind, form in guards:
        for coef, axis in form.terms if kind == ZERO else ():
            rest = form.without(axis).scaled(-coef)
            alone = isinstance(axis, Axis) and axis not in summed
            if alone and abs(coef) == 1 and rest.free and rest.free <= summed:
                yield rest.terms, linear(axis) - Linear(rest.const, ())


def position(node: Reduce) -> Expr:
    """A position within one point is 0; any other is left, since it counts its own axes."""
    single = all(constant(axis.extent) == 1 for axis in node.axes)
    return const(0, node.dtype) if single else node


def onto(domain: Domain, opaque: Iterable[Expr], body: Expr) -> tuple[Expr, Expr]:
    """The condition of ``domain`` together with ``opaque``, and ``body``, over its axes."""
    mapping = domain.substitution
    moved = (substitute(cond, mapping) for cond in opaque)
    return conjunction((*map(as_condition, domain.guards), *moved)), substitute(body, mapping)


def rebuilt(node: Reduce, domain: Domain, opaque: Iterable[Expr], body: Expr) -> Expr:
    """The reduction ``node`` over ``domain``."""
    cond, value = onto(domain, opaque, body)
    if domain.axes:
        return Reduce(node.combiner, domain.axes, cond, value)
    return value if cond is TRUE else Select(cond, value, identity(node))


def identity(node: Reduce) -> Expr:
    """What ``node`` gives where no point satisfies its condition."""
    if node.combiner.identity is not None:
        return node.combiner.identity
    return const(identity_of(node.combiner.name, node.dtype), node.dtype)


def added(terms: Iterable[Expr]) -> Expr:
    """The sum of ``terms``, without those that are 0."""
    every = list(terms)
    kept = [term for term in every if not is_zero(term)]
    result = (kept or every)[0]
    for term in kept[1:]:
        result = Apply(ADD, (result, term))
    return result
