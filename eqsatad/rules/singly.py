"""Rows one by one: which unite two terms, and what each of them does.

The search runs all rows of a round at once, which is quick and tells nothing about single rows.
Here every row is a ruleset of its own, so that any choice of rows can be run on one e-graph, and
so that what a row would do can be looked at in a scope that is then undone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from eqsatad.rules.algebra import SETTLE, prelude, terms
from eqsatad.rules.compile import DOMAINS, INDICES, PRELUDE, Compiled, compile_domain, compile_index
from eqsatad.rules.growth import Limits
from eqsatad.rules.index_facts import Facts
from eqsatad.rules.index_forms import Node
from eqsatad.rules.index_match import Rows
from eqsatad.rules.indices import Asked
from eqsatad.rules.rule import DomainRow, IndexRow, Row, TermRow
from eqsatad.rules.session import Session
from eqsatad.rules.value_rule import ValueRule, compiled
from eqsatad.rules.values import Encoded
from eqsatad.rules.work import Work

PAIR = "atan2"
"""What holds two terms in one e-graph: a function that no row speaks of."""

GOAL = f"""
(ruleset goal) (relation united ())
(rule ((TheRoot (Call2 "{PAIR}" x x))) ((united)) :ruleset goal)
"""

ROUND = ("order", "algebra")
"""The rulesets of a round, in order; what collapses is run to the end after each."""


class Choice:
    """An e-graph in which any choice of ``rows`` can be run."""

    def __init__(self, rows: Sequence[ValueRule]) -> None:
        self._rulesets: dict[tuple[str, str], list[str]] = {}
        texts: list[str] = []
        for row in rows:
            for one in compiled(row):
                ruleset = f"row{len(texts) // 2}"
                self._rulesets.setdefault((row.name, one.ruleset), []).append(ruleset)
                texts += [f"(ruleset {ruleset})", one.rule(ruleset)]
        self._graph = Session([*prelude(), GOAL, *texts])

    def grow(self, encoded: Encoded, rows: Sequence[str], limits: Limits) -> Generator[Session]:
        """The e-graph of ``encoded`` after every round of the rows of these names."""
        graph = self._graph
        settle = f"(saturate (seq (run facts) {self._running(rows, 'collapse')}))"
        steps = [
            text for group in ROUND for text in (f"(seq {self._running(rows, group)})", settle)
        ]
        with graph.scope():
            graph.execute(encoded.text)
            graph.step("input")
            graph.schedule(settle)
            yield graph
            for _ in range(limits.rounds):
                changed = [graph.schedule(step).changed for step in steps]
                yield graph
                if not any(changed) or terms(graph) > limits.nodes:
                    break

    def unites(self, pair: Encoded, rows: Sequence[str], limits: Limits) -> int | None:
        """After how many rounds of ``rows`` both terms of a `PAIR` are the same; None if never."""
        with closing(self.grow(pair, rows, limits)) as rounds:
            found = (number for number, graph in enumerate(rounds) if graph.step("goal").changed)
            return next(found, None)

    def _running(self, rows: Iterable[str], group: str) -> str:
        """The schedule that runs those of ``rows`` that are in ``group``."""
        own = (self._rulesets.get((name, group), ()) for name in rows)
        return " ".join(f"(run {ruleset})" for rulesets in own for ruleset in rulesets)


REPORTING = """
(relation joins (V V)) (relation apart (V V)) (ruleset compare)
(rule ((joins a b) (!= a b)) ((apart a b)) :ruleset compare)
"""


class Reporting:
    """An e-graph that grows as in a search, and tells what each row did."""

    def __init__(self, rows: Sequence[ValueRule]) -> None:
        texts = [*prelude(), REPORTING]
        self._owners: dict[str, str] = {}
        self._rows: dict[str, list[tuple[str, str]]] = {}
        for row in rows:
            for one in compiled(row):
                own = f"only{len(self._owners)}"
                self._owners[one.name] = row.name
                self._rows.setdefault(one.ruleset, []).append((one.name, own))
                # The same match, which only notes what it would unite.
                noted = f"(rule ({one.facts}) ((joins root {one.after})) :ruleset {own})"
                texts += [one.rule(one.ruleset), f"(ruleset {own})", noted]
        self._graph = Session(texts)

    def work(self, encoded: Encoded, limits: Limits) -> dict[str, Work]:
        """What each row did while the e-graph of ``encoded`` grew within ``limits``."""
        found = {name: Work() for name in self._owners.values()}
        graph = self._graph
        late = time.perf_counter() + SLOWER * limits.seconds
        with graph.scope():
            graph.execute(encoded.text)
            graph.step("input")
            self._settle(found)
            for _ in range(limits.rounds):
                changed = [
                    step
                    for group in ROUND
                    for step in (self._run(group, found), self._settle(found))
                ]
                if not any(changed) or terms(graph) > limits.nodes or time.perf_counter() > late:
                    break
        return found

    def _settle(self, found: dict[str, Work]) -> bool:
        """Runs facts and what collapses until nothing changes."""
        self._graph.schedule("(saturate (run facts))")
        changed = self._run("collapse", found)
        return self._graph.schedule(SETTLE).changed or changed

    def _run(self, ruleset: str, found: dict[str, Work]) -> bool:
        """One step of ``ruleset``, looked at row by row before it is done."""
        graph = self._graph
        with graph.scope():
            matches = graph.step(ruleset).matches
        for name, own in self._rows.get(ruleset, ()):
            work = found[self._owners[name]]
            work.matches += matches.get(name, 0)
            if name in matches:
                self._look(own, work)
            else:
                work.seconds += graph.step(own).seconds
        return graph.step(ruleset).changed

    def _look(self, own: str, work: Work) -> None:
        graph = self._graph
        with graph.scope():
            before = terms(graph)
            work.seconds += graph.step(own).seconds
            work.nodes += terms(graph) - before
            graph.step("compare")
            work.applied += graph.sizes()["apart"]


SLOWER = 20
"""How much longer than a search it may take to look at its rows."""


OPEN = ("Quotient", "Zero", "NotNegative")
"""What an answer begins with that is the question itself."""


class Answering:
    """E-graphs that are asked what the search asks, one row of indices or domains at a time."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.work = {row.name: Work() for row in rows if isinstance(row, IndexRow | DomainRow)}
        self._rows: dict[str, dict[str, str]] = {}
        self._graphs: dict[str, Session] = {}
        for ruleset, kind, compiled_as in KINDS:
            own = {row: f"only{n}" for n, row in enumerate(rows) if isinstance(row, kind)}
            texts = [f"(ruleset {one})" for one in own.values()]
            texts += [compiled_as(row, one).text for row, one in own.items()]
            self._rows[ruleset] = {row.name: one for row, one in own.items()}
            self._graphs[ruleset] = Session([*PRELUDE, *texts])

    def look(self, asked: Asked) -> None:
        """Looks at what every row by itself has to say to a question."""
        graph = self._graphs[asked.ruleset]
        with graph.scope():
            graph.execute(asked.facts)
            for name, own in self._rows[asked.ruleset].items():
                if name in asked.matches:
                    self.work[name].include(_said(graph, own, asked, asked.matches[name]))
                else:
                    self.work[name].seconds += graph.step(own).seconds


KINDS: tuple[tuple[str, type[Row], Callable[..., Compiled]], ...] = (
    (INDICES, IndexRow, compile_index),
    (DOMAINS, DomainRow, compile_domain),
)


def _said(graph: Session, own: str, asked: Asked, matches: int) -> Work:
    """What the row whose ruleset is ``own`` does; lines of the answer that it gives are applied."""
    with graph.scope():
        before = terms(graph)
        seconds = graph.step(own).seconds
        applied = sum(line in asked.found for line in graph.table(asked.table) if not _open(line))
        return Work(matches, applied, terms(graph) - before, seconds)


def _open(line: Sequence[Any]) -> bool:
    """Whether a line of answers says no more than what was asked."""
    return isinstance(line[1], tuple) and line[1][0] in OPEN


class TimedRows(Rows):
    """Rows of the simplifier that tell what each of them did."""

    def __init__(self, rows: Sequence[TermRow]) -> None:
        super().__init__(rows)
        self.work = {row.name: Work() for row in rows}

    def made(self, row: TermRow, node: Node, facts: Facts) -> Iterator[Node]:
        """What ``row`` makes of ``node``, noted."""
        start = time.perf_counter()
        found = list(super().made(row, node, facts))
        seconds = time.perf_counter() - start
        applied = len({new for new in found if new != node})
        self.work[row.name].include(Work(len(found), applied, 0, seconds))
        return iter(found)
