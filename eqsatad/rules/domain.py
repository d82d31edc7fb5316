"""Domains as values: summed axes under guards, taken apart, renamed and put together again.

Nothing here decides anything about a domain; `rules.domains` searches for smaller ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsatad.rules.indices import Guard
from eqsatad.terms.linear import Linear, atom, expression, linear
from eqsatad.terms.nodes import Axis, Expr
from eqsatad.terms.walk import constant, fresh, substitute

EXAMPLE_SIZE = 64
"""What a symbolic extent counts when candidates are compared."""


@dataclass(frozen=True)
class Domain:
    """The points of ``axes`` that satisfy ``guards``; ``solved`` gives the axes that left."""

    axes: tuple[Axis, ...]
    guards: tuple[Guard, ...]
    solved: tuple[tuple[Axis, Linear], ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two candidates the same: where an axis went follows from the rest."""
        return self.axes, self.guards

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


def put(form: Linear, mapping: Mapping[Axis, Linear]) -> Linear:
    """``form`` with other forms in place of axes, also inside its atoms."""
    keys = frozenset(mapping)
    if form.free.isdisjoint(keys):
        return form
    const, terms = form.const, list[tuple[int, Expr]]()
    spelled: dict[Expr, Expr] = {}
    for coef, node in form.terms:
        if node.free.isdisjoint(keys):
            terms.append((coef, node))
            continue
        if isinstance(node, Axis):
            inner = mapping[node]
        else:
            spelled = spelled or {axis: expression(value) for axis, value in mapping.items()}
            inner = linear(substitute(node, spelled))
        const += coef * inner.const
        terms.extend((coef * factor, part) for factor, part in inner.terms)
    return Linear.build(const, terms)


def without_single(domain: Domain) -> Domain:
    """``domain`` without its axes of one value, which are 0."""
    single = [axis for axis in domain.axes if constant(axis.extent) == 1]
    mapping = dict.fromkeys(single, Linear(0, ()))
    return Domain(
        tuple(axis for axis in domain.axes if axis not in mapping),
        tuple((kind, put(form, mapping)) for kind, form in domain.guards),
        tuple(mapping.items()),
    )


def independent(axes: Sequence[Axis], guards: Sequence[Guard]) -> list[Domain]:
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


def joined(parts: Iterable[Domain]) -> Domain:
    """The domain whose points are combinations of points of ``parts``."""
    parts = tuple(parts)
    return Domain(
        tuple(axis for part in parts for axis in part.axes),
        tuple(guard for part in parts for guard in part.guards),
        tuple(pair for part in parts for pair in part.solved),
    )


def canonical_names(part: Domain) -> dict[Axis, Axis]:
    """The axes of a part under names that depend on their order alone."""
    outer = sorted(
        {axis for _, form in part.guards for axis in form.free} - frozenset(part.axes),
        key=lambda axis: axis.key,
    )
    named = {axis: Axis(f"s{n}", axis.extent) for n, axis in enumerate(part.axes)}
    return named | {axis: Axis(f"p{n}", axis.extent) for n, axis in enumerate(outer)}


def renamed(part: Domain, renaming: Mapping[Axis, Axis]) -> Domain:
    mapping = {old: atom(new) for old, new in renaming.items()}
    axes = tuple(renaming[axis] for axis in part.axes)
    guards = tuple((kind, put(form, mapping)) for kind, form in part.guards)
    return Domain(axes, guards, part.solved)


def restored(candidate: Domain, part: Domain, back: Mapping[Axis, Axis], taken: set[str]) -> Domain:
    """``candidate`` under the names of ``part``; fresh axes are named after the part's."""
    origin = {f"s{n}": axis for n, axis in enumerate(part.axes)}
    names = dict(back)
    for axis in candidate.axes:
        if axis not in names:
            stem = origin[axis.name.split("_")[0]].name
            names[axis] = fresh(Axis(stem, axis.extent), taken)
    mapping = {old: atom(new) for old, new in names.items()}
    return Domain(
        tuple(names[axis] for axis in candidate.axes),
        tuple((kind, put(form, mapping)) for kind, form in candidate.guards),
        tuple((back[axis], put(form, mapping)) for axis, form in candidate.solved if axis in back),
    )
