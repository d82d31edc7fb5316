"""Domain restriction: summed axes and guards to an equal domain with fewer points.

A `Domain` is a set of summed axes under guards; outer axes are its parameters. The rows propose,
for one guard at a time, what an axis is equal to; substitution happens here, in the one linear
normal form, and each candidate is equal to the domain it came from, so the best so far is always
usable. Independent parts are solved apart, and equal parts (up to names) once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from eqsatad.rules.compile import DOMAINS
from eqsatad.rules.digits import compared
from eqsatad.rules.domain import (
    Domain,
    canonical_names,
    independent,
    joined,
    put,
    renamed,
    restored,
    without_single,
)
from eqsatad.rules.indices import ATLEAST, ZERO, Guard, Indices, conditions, form_of
from eqsatad.rules.views import Facts, quotient_parts
from eqsatad.terms.linear import Linear, atom, expression, linear
from eqsatad.terms.nodes import Axis, Const
from eqsatad.terms.walk import constant, fresh, postorder


@dataclass(frozen=True)
class Limits:
    """Budgets of one search; a search that reaches one is reported and stays correct.

    ``seconds`` are processor time, looked at between questions to the e-graph, for each part of
    a domain that is independent of the others. ``moves`` is how many rows are followed on the way
    to a candidate: it is for looking at the way.
    """

    candidates: int = 48
    rounds: int = 16
    seconds: float = 1.5
    moves: int | None = None


class Domains:
    """Restricts domains with the rows of one catalog."""

    def __init__(self, indices: Indices, limits: Limits | None = None) -> None:
        self._indices = indices
        self._limits = limits or Limits()
        self._solved: dict[tuple[Any, ...], tuple[list[Domain], dict[str, int]]] = {}
        # By name: how often what a row proposed was carried out.
        self.followed: Counter[str] = Counter()

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
        domain = without_single(domain)
        guards = self._indices.guards(domain.guards)
        if guards is not None:
            guards = self._indices.guards(compared(guards))
        if guards is None:
            return []
        choices = []
        for part in independent(domain.axes, guards):
            solved = self._part(part, taken)
            if not solved:
                return []
            choices.append(solved[:most])
        own = Domain((), (), domain.solved)
        return [joined((own, *choice)) for choice in product(*choices)]

    def _part(self, part: Domain, taken: set[str]) -> list[Domain]:
        if not part.axes:
            return [part]
        renaming = canonical_names(part)
        named = renamed(part, renaming)
        tally = self._indices.tally
        if named.key in self._solved:
            # What led to an answer is reported also where the answer was known.
            tally.count(self._solved[named.key][1])
        else:
            before = tally.snapshot()
            found = self._search(named)
            self._solved[named.key] = found, tally.since(before).matches
        back = {new: old for old, new in renaming.items()}
        candidates, _ = self._solved[named.key]
        return [restored(candidate, part, back, taken) for candidate in candidates]

    def _search(self, start: Domain) -> list[Domain]:
        """Every candidate that no row carries further, best first; none if there is no point."""
        final: dict[tuple[Any, ...], Domain] = {}
        seen = {start.key}
        frontier = [start]
        came: dict[tuple[Any, ...], Domain] = {}
        deadline = time.thread_time() + self._limits.seconds
        for number in range(self._limits.rounds + 1):
            if stop := self._reached(number, len(seen), deadline):
                self._stop(stop)
                final.update({candidate.key: candidate for candidate in frontier})
                break
            successors: list[Domain] = []
            for candidate, reached in zip(frontier, self._successors(frontier), strict=True):
                if None in reached:
                    return []
                new = {r.key: r for r in reached if r is not None and r.key not in seen}
                seen.update(new)
                came |= dict.fromkeys(new, candidate)
                successors += new.values()
                if not new:
                    final[candidate.key] = candidate
            if not successors:
                break
            frontier = successors
        ranked = sorted(final.values(), key=_preference)
        return [_followed(candidate, came, self._limits.moves) for candidate in ranked]

    def _reached(self, rounds: int, candidates: int, deadline: float) -> str:
        """The limit that ends a search, in words."""
        limits = self._limits
        if rounds >= limits.rounds:
            return f"round limit {limits.rounds}"
        if candidates > limits.candidates:
            return f"candidate limit {limits.candidates}"
        return f"time limit {limits.seconds:g} s" if time.thread_time() > deadline else ""

    def _stop(self, reason: str) -> None:
        tally = self._indices.tally
        tally.stops = (*tally.stops, f"domain {reason}")

    def _successors(self, frontier: Sequence[Domain]) -> list[list[Domain | None]]:
        """What the rows make of each candidate; None where it turns out to be empty."""
        steps = [
            (candidate, proposal)
            for candidate, found in zip(frontier, self._proposals(frontier), strict=True)
            for proposal in found
        ]
        results: list[list[Domain | None]] = [[] for _ in frontier]
        places = {candidate.key: number for number, candidate in enumerate(frontier)}
        for (candidate, _), result in zip(steps, self._applied(steps), strict=True):
            results[places[candidate.key]].append(result)
        return results

    def _proposals(self, frontier: Sequence[Domain]) -> list[list[_Proposal]]:
        """What the rows say about each candidate: the best rank of one guard."""
        found: list[list[_Proposal]] = [[] for _ in frontier]
        if not any(map(_guarded, frontier)):
            return found
        facts = self._indices.facts(DOMAINS)
        for number, candidate in enumerate(frontier):
            _state(facts, number, candidate)
        rows = self._indices.ask(facts, DOMAINS, "solution")
        for name, number, first, second, axis, value, size, leaves, _ in rows:
            rank, forms = self._indices.rank(name), facts.forms
            proposal = _Proposal(rank, name, first, second, axis, value, size, leaves, forms)
            if not self._indices.shorter(name) or proposal.shortens:
                found[number].append(proposal)
        return [_one_guard(candidate, ps) for candidate, ps in zip(frontier, found, strict=True)]

    def _applied(self, steps: Sequence[tuple[Domain, _Proposal]]) -> list[Domain | None]:
        """Each candidate with its proposal carried out; None where it turns out to be empty.

        What the e-graph has to be asked about all of them is asked at once.
        """
        self.followed.update(proposal.row for _, proposal in steps)
        moves = [_move(candidate, proposal) for candidate, proposal in steps]
        values = self._indices.forms([move.value for move in moves])
        moves = [replace(move, value=value) for move, value in zip(moves, values, strict=True)]
        self._indices.prepare(guard for move in moves for guard in move.guards)
        return [self._moved(move) for move in moves]

    def _moved(self, move: _Move) -> Domain | None:
        guards = self._indices.guards(move.guards)
        if guards is None:
            return None
        old = move.candidate
        if move.keeps:
            return Domain(old.axes, tuple(guards), old.solved)
        solved = self._indices.forms([put(form, move.mapping) for _, form in old.solved])
        names = [axis for axis, _ in old.solved]
        axes = tuple(axis for axis in old.axes if axis is not move.axis)
        return Domain(
            axes if move.new is None else (*axes, move.new),
            tuple(guards),
            (*zip(names, solved, strict=True), (move.axis, move.value)),
        )


@dataclass(frozen=True)
class _Proposal:
    """One line of the ``solution`` table."""

    rank: int
    row: str
    first: int
    second: int
    axis: int
    value: Any
    size: int
    leaves: Any
    forms: Sequence[Linear]

    @property
    def solves(self) -> Axis:
        """The axis that the proposal is about."""
        ((_, axis),) = self.forms[self.axis].terms
        assert isinstance(axis, Axis), "rows solve for axes"
        return axis

    @property
    def shortens(self) -> bool:
        """Whether the fresh axis has fewer values than the axis; a symbolic extent has many."""
        known = constant(self.solves.extent)
        return known is None or self.size < known


@dataclass(frozen=True)
class _Move:
    """A proposal on its way: ``axis`` of ``candidate`` becomes ``value`` over the axis ``new``."""

    candidate: Domain
    proposal: _Proposal
    axis: Axis
    new: Axis | None
    value: Linear

    @property
    def running(self) -> Linear:
        """What stands for the new axis."""
        return Linear(0, ()) if self.new is None else atom(self.new)

    @property
    def keeps(self) -> bool:
        """Whether the axis stays and only guards are replaced."""
        return self.value == atom(self.axis)

    @cached_property
    def mapping(self) -> dict[Axis, Linear]:
        """What to put for the axis."""
        return {} if self.keeps else {self.axis: self.value}

    @cached_property
    def guards(self) -> list[Guard]:
        """The guards of the new candidate, before ranges decide any."""
        guards = [*_leaves(self.proposal, self.running), *_kept(self.candidate, self.proposal)]
        moved = [(kind, put(form, self.mapping)) for kind, form in guards]
        return moved if self.keeps else [*moved, *_in_range(self.axis, self.value)]


def _move(candidate: Domain, proposal: _Proposal) -> _Move:
    axis = proposal.solves
    new = _new_axis(candidate, axis, proposal.size)
    running = Linear(0, ()) if new is None else atom(new)
    return _Move(candidate, proposal, axis, new, form_of(proposal.value, proposal.forms, running))


def _followed(end: Domain, came: Mapping[tuple[Any, ...], Domain], moves: int | None) -> Domain:
    """The domain that is ``moves`` steps on the way to ``end``; ``came`` has the one before."""
    if moves is None:
        return end
    way = [end]
    while way[-1].key in came:
        way.append(came[way[-1].key])
    return way[max(0, len(way) - 1 - moves)]


def _guarded(candidate: Domain) -> bool:
    """Whether a guard speaks of a summed axis: if none does, no row has anything to say."""
    summed = frozenset(candidate.axes)
    return any(form.free & summed for _, form in candidate.guards)


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


def _kept(candidate: Domain, proposal: _Proposal) -> list[Guard]:
    """The guards that a proposal does not replace."""
    replaced = proposal.leaves != ("Substituted",)
    used = {proposal.first, proposal.second} if replaced else set[int]()
    return [guard for slot, guard in enumerate(candidate.guards) if slot not in used]


def _in_range(axis: Axis, value: Linear) -> list[Guard]:
    last = linear(axis.extent) - Linear(1, ())
    return [(ATLEAST, value), (ATLEAST, last - value)]


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
    """The proposals of the lowest rank for one guard: the one without opaque parts, first.

    Of guards that one row narrows an axis by, one that leaves a single value goes before others.
    """
    if not proposals:
        return []
    rank = min(proposal.rank for proposal in proposals)
    lowest = [proposal for proposal in proposals if proposal.rank == rank]

    def order(proposal: _Proposal) -> tuple[int, int]:
        return _opaque(candidate.guards[proposal.first][1]), proposal.first

    row = min(lowest, key=order).row
    alike = [proposal for proposal in lowest if proposal.row == row]
    first = min(alike, key=lambda proposal: (proposal.size > 1, *order(proposal))).first
    chosen = [proposal for proposal in lowest if proposal.first == first]
    return sorted(chosen, key=lambda p: (p.row, p.second, str(p.axis), str(p.value)))


def _opaque(form: Linear) -> int:
    return sum(
        1
        for node in postorder(expression(form))
        if (node.children and node.dtype != "index") or type(node).__name__ == "Cast"
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
