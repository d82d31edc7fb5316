"""The one adapter to egglog: programs as text in, outputs, tables and snapshots out.

Everything that differs between versions of egglog is here. Chunks are parsed one by one, because
parsing one long text is quadratic in some versions. A session belongs to the thread that made
it. A step cannot be interrupted, so callers take small steps and look at `Session.size` between.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

from eqsatad.errors import RuleError

SExpr = str | int | float | bool | tuple[Any, ...]
"""A literal, or ``(constructor, *arguments)``."""

EVERY_ROW = 1_000_000_000


def _compiled() -> Any:
    """The compiled part of egglog alone: its Python front end takes longer to import than we do."""
    name = "egglog.bindings"
    if name not in sys.modules:
        package = find_spec("egglog")
        found = PathFinder.find_spec(name, package.submodule_search_locations if package else None)
        if found is None or found.loader is None:
            raise ImportError("egglog is not installed; install it with: pip install egglog")
        sys.modules[name] = module_from_spec(found)
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]


if TYPE_CHECKING:
    from egglog import bindings
else:
    bindings = _compiled()


@dataclass(frozen=True)
class Step:
    """What one run of a ruleset did; ``matches`` counts per rule name."""

    changed: bool
    matches: dict[str, int]
    seconds: float


class Session:
    """An e-graph with a fixed program, to which terms are added and which can be rolled back."""

    def __init__(self, chunks: Sequence[str]) -> None:
        """Runs ``chunks`` in order, each a piece of egglog text with whole commands."""
        self._graph = bindings.EGraph()
        for chunk in chunks:
            self.execute(chunk)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A context whose end undoes everything that was executed in it."""
        self.execute("(push)")
        try:
            yield
        finally:
            self.execute("(pop)")

    def execute(self, text: str) -> list[Any]:
        """The outputs of the commands in ``text``."""
        try:
            return list(self._graph.run_program(*self._graph.parse_program(text)))
        except bindings.EggSmolError as error:
            raise RuleError(f"egglog refused this text: {error}\n{_clip(text)}") from error

    def step(self, ruleset: str, rounds: int = 1) -> Step:
        """Runs ``ruleset`` ``rounds`` times."""
        return self.schedule(f"(repeat {rounds} (run {ruleset}))")

    def schedule(self, schedule: str) -> Step:
        """Runs a schedule such as ``(saturate (run analysis))``."""
        start = time.perf_counter()
        report = self.execute(f"(run-schedule {schedule})")[0].report
        matches = {name: count for name, count in report.num_matches_per_rule.items() if count}
        return Step(report.updated, matches, time.perf_counter() - start)

    def sizes(self) -> dict[str, int]:
        """Rows per function."""
        return dict(self.execute("(print-size)")[0].sizes)

    @property
    def size(self) -> int:
        """Rows of all functions together."""
        return sum(self.sizes().values())

    def table(self, function: str) -> list[tuple[SExpr, ...]]:
        """The rows of ``function``: its arguments, then its value (``()`` of a relation).

        A value of a term sort is some smallest term of its class. Equal sub-terms are one object.
        """
        output = self.execute(f"(print-function {function} {EVERY_ROW})")[0]
        known: dict[int, SExpr] = {}
        return [
            (*_decode(output.termdag, call, known)[1:], _decode(output.termdag, value, known))
            for call, value in output.terms
        ]

    def freeze(self) -> Frozen:
        """The rows of every function, with opaque, hashable values: the whole e-graph."""
        functions = self._graph.freeze().functions
        return Frozen(
            self._graph,
            {
                name: [(*row.inputs, row.output) for row in function.rows if not row.subsumed]
                for name, function in functions.items()
            },
        )


@dataclass(frozen=True)
class Frozen:
    """A snapshot of an e-graph: ``rows[function]`` holds ``(*arguments, value)``."""

    _graph: bindings.EGraph
    rows: dict[str, list[tuple[bindings.Value, ...]]]

    def integer(self, value: bindings.Value) -> int:
        """The number behind a value of sort ``i64``."""
        return int(self._graph.value_to_i64(value))

    def string(self, value: bindings.Value) -> str:
        """The text behind a value of sort ``String``."""
        return str(self._graph.value_to_string(value))

    def number(self, value: bindings.Value) -> float:
        """The number behind a value of sort ``f64``."""
        return float(self._graph.value_to_f64(value))


def _decode(dag: bindings.TermDag, root: int, known: dict[int, SExpr]) -> Any:
    """The term ``root``, without recursion: terms can be deep."""
    stack = [root]
    while stack:
        name = stack[-1]
        term = dag.get(name)
        children = term.args if isinstance(term, bindings.TermApp) else ()
        missing = [child for child in children if child not in known]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        known[name] = _leaf(term, known)
    return known[root]


def _leaf(term: Any, known: dict[int, SExpr]) -> SExpr:
    if isinstance(term, bindings.TermApp):
        return (term.name, *(known[child] for child in term.args))
    if isinstance(term, bindings.TermVar):
        return str(term.name)
    literal = term.value
    return () if isinstance(literal, bindings.Unit) else literal.value


def _clip(text: str, limit: int = 2000) -> str:
    return text if len(text) <= limit else f"{text[:limit]} ... ({len(text)} characters)"
