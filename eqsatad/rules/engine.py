"""The rules at work on a program: the phases in order, their limits, their report.

Stage by stage, sources first: copies are read through; every reduction is put on its smallest
domain (`domains`); summands that land on positions that are data become scatters where that is
cheaper. The values are left to `extract.optimise`. Each step keeps the meaning of the
stage, so whatever a limit cuts short is still right.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from eqsatad.rules.domains import Domains
from eqsatad.rules.domains import Limits as DomainLimits
from eqsatad.rules.indices import Indices, Tally
from eqsatad.rules.rule import Row
from eqsatad.rules.scatters import Prices, as_scatter
from eqsatad.rules.summands import Restriction, added, summands
from eqsatad.terms.coerce import const
from eqsatad.terms.nodes import Axis, Expr, Reduce, Scatter, Stage
from eqsatad.terms.walk import postorder

_engines = threading.local()


@dataclass
class Engine:
    """The index and domain phases with the rows of one catalog."""

    indices: Indices
    domains: Domains

    @staticmethod
    def of(rows: Sequence[object], limits: DomainLimits | None = None) -> Engine:
        """The engine of this thread for ``rows``, made on first use."""
        own = tuple(row for row in rows if isinstance(row, Row))
        known: dict[object, Engine] = _engines.__dict__.setdefault("known", {})
        if (own, limits) not in known:
            indices = Indices(own)
            known[own, limits] = Engine(indices, Domains(indices, limits))
        return known[own, limits]

    @property
    def tally(self) -> Tally:
        """What was matched so far."""
        return self.indices.tally

    def simplify(self, exprs: Sequence[Expr]) -> list[Expr]:
        """Index expressions in their simplest form."""
        return self.indices.simplify(exprs)

    def restrict(self, stage: Stage, prices: Prices | None = None) -> Stage:
        """``stage`` with every reduction on its smallest domain, or turned into a scatter."""
        prices = prices or Prices()
        taken = names_in(stage)
        restriction = Restriction(self.indices, self.domains, taken)
        kept: list[Expr] = []
        scatters: list[Scatter] = []
        for term in summands(stage.body):
            gathered = restriction.term(term)
            scatter = as_scatter(term, gathered, stage.axes, self.domains, taken, prices)
            if scatter is None:
                kept.append(gathered)
            else:
                scatters.append(scatter)
        zero = const(0, stage.dtype) if stage.dtype != "bool" else stage.body
        body = added(kept) if kept else zero
        spread = [_restricted_scatter(s, restriction) for s in (*stage.scatters, *scatters)]
        return Stage(stage.name, stage.axes, body, tuple(spread))


def _restricted_scatter(scatter: Scatter, restriction: Restriction) -> Scatter:
    return Scatter(
        scatter.axes,
        restriction.term(scatter.cond),
        tuple(restriction.term(index) for index in scatter.indices),
        restriction.term(scatter.value),
    )


def clear_caches() -> None:
    """Forgets every engine of this thread: the next simplification starts cold."""
    _engines.__dict__.clear()


def names_in(stage: Stage) -> set[str]:
    """The names of every axis that occurs in ``stage``."""
    names = {axis.name for axis in stage.axes}
    for scatter in stage.scatters:
        names.update(axis.name for axis in scatter.axes)
    for node in postorder(*stage.roots):
        if isinstance(node, Axis):
            names.add(node.name)
        elif isinstance(node, Reduce):
            names.update(axis.name for axis in node.axes)
    return names
