"""Domain restriction: summed axes and guards to an equal domain with fewer points.

A `Domain` is a set of summed axes under guards; outer axes are its parameters. The rows propose,
for one guard at a time, what an axis is equal to; substitution happens here, in the one linear
normal form, and each candidate is equal to the domain it came from, so the best so far is always
usable. Independent parts are solved apart, and equal parts (up to names) once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from eqsatad.rules.indices import ATLEAST, ZERO, Guard, Indices, conditions, form_of
from eqsatad.rules.views import Facts, quotient_parts
from eqsatad.terms.linear import Linear, atom, expression, linear
from eqsatad.terms.nodes import Axis, Const, Expr
from eqsatad.terms.walk import constant, fresh, postorder, substitute

EXAMPLE_SIZE = 64
"""What a symbolic extent counts when candidates are compared."""


@dataclass(frozen=True)
class Domain:
    """The points of ``axes`` that satisfy ``guards``; ``solved`` gives the axes that left."""

    axes: tuple[Axis, ...]
    guards: tuple[Guard, ...]
    solved: tuple[tuple[Axis, Linear], ...] = ()

    @property
    def volume(self) -> int:
        """The points of the box around the domain."""
        total = 1
        for axis in self.axes:
            total *= constant(axis.extent) or EXAMPLE_SIZE
        return total

    @property
    def substitution(self) -> dict[Expr, Expr]:
        """What to put for the axes that left."""
        return {axis: expression(form) for axis, form in self.solved}


@dataclass(frozen=True)
class Limits:
    """Budgets of one search; a search that reaches one is reported and stays correct."""

    candidates: int = 48
    rounds: int = 16


class Domains:
    """Restricts domains with the rows of one catalog."""

    def __init__(self, indices: Indices, limits: Limits | None = None) -> None:
        self._indices = indices
        self._limits = limits or Limits()
        self._solved: dict[tuple[Any, ...], list[Domain] | None] = {}

    def solve(self, domain: Domain, taken: set[str]) -> Domain | None:
        """The candidate with the fewest points, the simplest one among equals; None if empty.

        ``taken`` holds the names of axes in scope; names of new axes are added.
        """
        ranked = self.candidates(domain, taken)
        return ranked[0] if ranked else None

    def candidates(self, domain: Domain, taken: set[str], most: int = 1) -> list[Domain]:
        """The best candidates of ``domain``, best first; none if no point satisfies it.

        ``most`` bounds how many are kept of each independent part.
        """
        domain = _without_single(domain)
        guards = self._indices.guards(domain.guards)
        if guards is None:
            return []
        choices = []
        for part in _independent(domain.axes, guards):
            solved = self._part(part, taken)
            if not solved:
                return []
            choices.append(solved[:most])
        own = Domain((), (), domain.solved)
        return [_joined((own, *choice)) for choice in product(*choices)]

    def _part(self, part: Domain, taken: set[str]) -> list[Domain]:
        if not part.axes:
            return [part]
        renaming = _canonical_names(part)
        named = _renamed(part, renaming)
        key = (named.axes, named.guards)
        if key not in self._solved:
            self._solved[key] = self._search(named)
        found = self._solved[key]
        back = {new: old for old, new in renaming.items()}
        return [_restored(candidate, part, back, taken) for candidate in found or ()]

    def _search(self, start: Domain) -> list[Domain] | None:
        """Every candidate that no row carries further, best first; None if empty."""
        final: dict[tuple[Any, ...], Domain] = {}
        seen = {(start.axes, start.guards)}
        frontier = [start]
        for _ in range(self._limits.rounds):
            successors: list[Domain] = []
            for candidate, found in zip(frontier, self._proposals(frontier), strict=True):
                reached = [self._apply(candidate, proposal) for proposal in found]
                if any(result is None for result in reached):
                    return None
                new = [r for r in reached if r and (r.axes, r.guards) not in seen]
                seen.update((r.axes, r.guards) for r in new)
                successors += new
                if not reached or not new:
                    final[candidate.axes, candidate.guards] = candidate
            if not successors:
                break
            if len(seen) > self._limits.candidates:
                self._stop(f"candidate limit {self._limits.candidates}")
                final.update({(s.axes, s.guards): s for s in successors})
                break
            frontier = successors
        else:
            self._stop(f"round limit {self._limits.rounds}")
            final.update({(s.axes, s.guards): s for s in frontier})
        return sorted(final.values(), key=_preference)

    def _stop(self, reason: str) -> None:
        tally = self._indices.tally
        tally.stops = (*tally.stops, f"domain {reason}")

    def _proposals(self, frontier: Sequence[Domain]) -> list[list[_Proposal]]:
        """What the rows say about each candidate: the best rank of one guard."""
        facts = Facts(self._indices.bounds)
        for number, candidate in enumerate(frontier):
            _state(facts, number, candidate)
        (rows,) = self._indices.ask(facts, "domains", "solution")
        found: list[list[_Proposal]] = [[] for _ in frontier]
        for name, number, first, second, axis, value, size, leaves, _ in rows:
            rank = self._indices.rank(name)
            proposal = _Proposal(
                rank, first, second, name, axis, value, size, leaves, tuple(facts.forms)
            )
            found[number].append(proposal)
        return [_one_guard(candidate, ps) for candidate, ps in zip(frontier, found, strict=True)]

    def _apply(self, candidate: Domain, proposal: _Proposal) -> Domain | None:
        """``candidate`` with the proposal carried out; None if it turns out empty."""
        forms = proposal.forms
        ((_, axis),) = form_of(proposal.axis, forms, None).terms
        assert isinstance(axis, Axis)
        new = _new_axis(candidate, axis, proposal.size)
        running = atom(new) if new is not None else Linear(0, ())
        (value,) = self._indices.forms([form_of(proposal.value, forms, running)])
        keeps = value == atom(axis)
        mapping: dict[Expr, Expr] = {} if keeps else {axis: expression(value)}
        guards = self._indices.guards(
            [
                *_leaves(proposal, running),
                *_kept(candidate, proposal, mapping),
                *([] if keeps else _in_range(axis, value)),
            ]
        )
        if guards is None:
            return None
        if keeps:
            return Domain(candidate.axes, tuple(guards), candidate.solved)
        solved = self._indices.forms([_put(form, mapping) for _, form in candidate.solved])
        names = [old for old, _ in candidate.solved]
        axes = tuple(other for other in candidate.axes if other is not axis)
        return Domain(
            axes if new is None else (*axes, new),
            tuple(guards),
            (*zip(names, solved, strict=True), (axis, value)),
        )


def _new_axis(candidate: Domain, axis: Axis, size: int) -> Axis | None:
    """The fresh axis of a solution; none where it would have a single value."""
    if size <= 1:
        return None
    outer = {node.name for _, form in candidate.guards for node in form.free}
    taken = outer | {other.name for other in candidate.axes}
    return fresh(Axis(axis.name, Const(size, "index")), taken)


def _leaves(proposal: _Proposal, running: Linear) -> tuple[Guard, ...]:
    """The guards that replace the matched ones; a row never replaces them by falsehood."""
    if proposal.leaves == ("Substituted",):
        return ()
    leaves = conditions(proposal.leaves, proposal.forms, running)
    assert leaves is not None
    return leaves


def _kept(candidate: Domain, proposal: _Proposal, mapping: dict[Expr, Expr]) -> list[Guard]:
    replaced = proposal.leaves != ("Substituted",)
    used = {proposal.first, proposal.second} if replaced else set[int]()
    return [
        (kind, _put(form, mapping))
        for slot, (kind, form) in enumerate(candidate.guards)
        if slot not in used
    ]


def _in_range(axis: Axis, value: Linear) -> list[Guard]:
    last = linear(axis.extent) - Linear(1, ())
    return [(ATLEAST, value), (ATLEAST, last - value)]


def _put(form: Linear, mapping: Mapping[Expr, Expr]) -> Linear:
    return linear(substitute(expression(form), mapping)) if mapping else form


@dataclass(frozen=True)
class _Proposal:
    """One line of the ``solution`` table."""

    rank: int
    first: int
    second: int
    row: str
    axis: Any
    value: Any
    size: int
    leaves: Any
    forms: tuple[Linear, ...]


def _state(facts: Facts, number: int, candidate: Domain) -> None:
    """The facts of one candidate."""
    for axis in candidate.axes:
        facts.add("summed", number, facts.name(atom(axis)))
        size = constant(axis.extent)
        if size is not None:
            facts.add("extent", facts.name(atom(axis)), size)
    at_least = []
    for slot, (kind, form) in enumerate(candidate.guards):
        if not form.free & frozenset(candidate.axes):
            continue
        # An equation is the same guard with the opposite sign, so rows see both.
        for side in (form, form.scaled(-1)) if kind == ZERO else (form,):
            facts.axes(side, candidate.axes)
            facts.add(kind, number, slot, facts.name(side))
        if kind == ATLEAST:
            at_least.append(form)
    for axis in candidate.axes:
        _totals(facts, axis, at_least)


def _totals(facts: Facts, axis: Axis, forms: Sequence[Linear]) -> None:
    """The sums of guards in which ``axis`` cancels, which bound the width of a window."""
    uppers = [form for form in forms if form.coefficient(axis) < 0]
    lowers = [form for form in forms if form.coefficient(axis) > 0]
    for upper, lower in product(uppers, lowers):
        if upper.coefficient(axis) + lower.coefficient(axis) == 0:
            left, right = upper.without(axis), lower.without(axis)
            facts.add("total", facts.name(left), facts.name(right), facts.name(left + right))


def _one_guard(candidate: Domain, proposals: list[_Proposal]) -> list[_Proposal]:
    """The proposals of the lowest rank for one guard: the one without opaque parts, first."""
    if not proposals:
        return []
    rank = min(proposal.rank for proposal in proposals)
    lowest = [proposal for proposal in proposals if proposal.rank == rank]
    first = min((_opaque(candidate.guards[p.first][1]), p.first) for p in lowest)[1]
    chosen = [proposal for proposal in lowest if proposal.first == first]
    return sorted(chosen, key=lambda p: (p.row, p.second, str(p.axis), str(p.value)))


def _opaque(form: Linear) -> int:
    return sum(
        1
        for node in postorder(expression(form))
        if node.children and node.dtype != "index" or type(node).__name__ == "Cast"
    )


def _preference(candidate: Domain) -> tuple[Any, ...]:
    """Fewest points; then fewest guards that stay inside, fewest quotients, least spelling."""
    summed = frozenset(candidate.axes)
    inner = sum(1 for _, form in candidate.guards if form.free & summed)
    forms = [form for _, form in (*candidate.guards, *candidate.solved)]
    quotients = sum(_quotient_count(form) for form in forms)
    spelled = "".join(expression(form).key for form in forms)
    return (candidate.volume, len(candidate.axes), quotients, inner, len(spelled), spelled)


def _quotient_count(form: Linear) -> int:
    return sum(1 for node in postorder(expression(form)) if quotient_parts(node))


def _without_single(domain: Domain) -> Domain:
    """``domain`` without its axes of one value, which are 0."""
    single = [axis for axis in domain.axes if constant(axis.extent) == 1]
    mapping: dict[Expr, Expr] = {axis: Const(0, "index") for axis in single}
    return Domain(
        tuple(axis for axis in domain.axes if axis not in mapping),
        tuple((kind, _put(form, mapping)) for kind, form in domain.guards),
        tuple((axis, Linear(0, ())) for axis in single),
    )


def _independent(axes: Sequence[Axis], guards: Sequence[Guard]) -> list[Domain]:
    """The parts of a domain that share no summed axis, in order; first the guards without any."""
    summed = frozenset(axes)
    group = {axis: axis for axis in axes}

    def leader(axis: Axis) -> Axis:
        while group[axis] is not axis:
            axis = group[axis]
        return axis

    for _, form in guards:
        mentioned = [axis for axis in axes if axis in form.free]
        for other in mentioned[1:]:
            group[leader(other)] = leader(mentioned[0])
    parts = [Domain((), tuple(g for g in guards if not g[1].free & summed))]
    for lead in axes:
        members = tuple(axis for axis in axes if leader(axis) is lead)
        if leader(lead) is lead and members:
            own = frozenset(members)
            parts.append(Domain(members, tuple(g for g in guards if g[1].free & own)))
    return parts


def _joined(parts: Iterable[Domain]) -> Domain:
    """The domain whose points are combinations of points of ``parts``."""
    parts = tuple(parts)
    return Domain(
        tuple(axis for part in parts for axis in part.axes),
        tuple(guard for part in parts for guard in part.guards),
        tuple(pair for part in parts for pair in part.solved),
    )


def _canonical_names(part: Domain) -> dict[Axis, Axis]:
    """The axes of a part under names that depend on their order alone."""
    outer = sorted(
        {axis for _, form in part.guards for axis in form.free} - frozenset(part.axes),
        key=lambda axis: axis.key,
    )
    named = {axis: Axis(f"s{n}", axis.extent) for n, axis in enumerate(part.axes)}
    return named | {axis: Axis(f"p{n}", axis.extent) for n, axis in enumerate(outer)}


def _renamed(part: Domain, renaming: Mapping[Axis, Axis]) -> Domain:
    mapping: dict[Expr, Expr] = dict(renaming)
    axes = tuple(renaming[axis] for axis in part.axes)
    guards = tuple(
        (kind, linear(substitute(expression(form), mapping))) for kind, form in part.guards
    )
    return Domain(axes, guards, part.solved)


def _restored(
    candidate: Domain, part: Domain, back: Mapping[Axis, Axis], taken: set[str]
) -> Domain:
    """``candidate`` under the names of ``part``; fresh axes are named after the part's."""
    names = {axis: axis.name.split("_")[0] for axis in candidate.axes if axis not in back}
    origin = {f"s{n}": axis for n, axis in enumerate(part.axes)}
    mapping: dict[Expr, Expr] = dict(back)
    for axis, stem in names.items():
        mapping[axis] = fresh(Axis(origin[stem].name, axis.extent), taken)
    axes = tuple(mapping[axis] for axis in candidate.axes)

    def restore(form: Linear) -> Linear:
        return linear(substitute(expression(form), mapping))

    guards = tuple((kind, restore(form)) for kind, form in candidate.guards)
    solved = tuple((back[axis], restore(form)) for axis, form in candidate.solved if axis in back)
    return Domain(axes, guards, solved)  # type: ignore[arg-type]
