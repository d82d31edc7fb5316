"""What simplification may cost: counts, recorded in the repository, that no change may double.

``python -m benchmarks.budgets [--only PREFIX] [--update] [--corpora DIR]``. Gradients (the legacy
rows, all small convolutions, the workloads) are counted by the rows of their e-graphs, rounds and
matches; cases of the simplifier by what they spend of a `Budget`; the corpora, where they are, by
the sum over a corpus and by the case that spends most. None of it depends on a clock: each program
starts cold, with an empty cache. The exit code is 0 when everything is below twice what
``benchmarks/data/budgets.json`` says; ``--update`` writes that file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

import eqsatad as ea
from benchmarks import simplification, simplifier, workloads
from benchmarks.corpora import DEFAULT
from benchmarks.index_cases import BOUNDED, PROVED, SHORTER, SMALL
from benchmarks.workload_cases import WORKLOADS
from eqsatad import cache
from eqsatad.extract.outcome import Saturation
from eqsatad.extract.recall import forget
from eqsatad.rules.engine import clear_caches
from eqsatad.rules.given import Rules

DATA = Path(__file__).parent / "data" / "budgets.json"
SPENT = ("questions", "proposals", "expansions", "rewritings")
LEAST = {"nodes": 200, "matches": 50, "rounds": 4, "questions": 8, "proposals": 50}
LEAST |= {"expansions": 4, "rewritings": 20}
"""What may be spent whatever is recorded: half of it is too little to tell a doubling by."""
FACTOR = 2
SHOWN = 12

Counts = dict[str, int]
Recorded = Mapping[str, Counts]


@dataclass(frozen=True)
class Excess:
    """A count that has reached twice what is recorded; nothing is recorded for a new program."""

    program: str
    count: str
    recorded: int | None
    found: int

    def __str__(self) -> str:
        was = "nothing recorded" if self.recorded is None else f"{self.recorded:,} recorded"
        return f"{self.program}: {self.found:,} {self.count}, {was}"


def programs(rules: Rules | None = None) -> dict[str, Callable[[], Counts]]:
    """Everything that is counted, by name, but the corpora; ``rules`` in place of the catalog's."""
    found: dict[str, Callable[[], Counts]] = {}
    for name, build in simplification.programs():
        found[f"gradient/{name}"] = partial(_gradient, build, rules)
    for name, workload in WORKLOADS.items():
        for label, case in workload.make(**workload.at[0]).items():
            if rules is None:
                found[f"workload/{name} {label}"] = partial(_workload, case)
    for kind, ask, table in (
        ("shorter", ea.simplify, SHORTER),
        ("proved", ea.prove, PROVED),
        ("bounded", ea.bounds, BOUNDED),
    ):
        for name, (expr, _) in table.items():
            found[f"simplifier/{kind}: {name}"] = partial(_case, ask, expr, rules)
    return found


def _cold() -> None:
    clear_caches()
    forget()


def _gradient(build: simplification.Build, rules: Rules | None) -> Counts:
    _cold()
    output, inputs = build()
    found = ea.differentiate(output, inputs, cost="count", rules=rules, trusted=True)
    return _counts(found.saturation)


def _workload(case: Any) -> Counts:
    _cold()
    return _counts(workloads.gradients_of(case).saturation)


def _counts(found: Saturation) -> Counts:
    return {
        "nodes": found.nodes,
        "matches": sum(found.rules.values()),
        "rounds": found.rounds,
    }


def _case(ask: Callable[..., object], expr: ea.Expr, rules: Rules | None) -> Counts:
    budget = ea.Budget()
    ask(expr, SMALL, budget=budget, rules=rules, trusted=True)
    return spent(budget)


def spent(budget: ea.Budget) -> Counts:
    """What a budget had and has no more."""
    full = {field.name: field.default for field in fields(ea.Budget)}
    return {name: full[name] - getattr(budget, name) for name in SPENT}  # type: ignore[operator]


def of_corpora(folder: Path, only: str | None = None) -> dict[str, Counts]:
    """The counts of each corpus in ``folder``: of all its cases, and the most of one case."""
    found = {}
    for name, results in simplifier.outcomes(folder, only).items():
        counts = [spent(result.budget) for result in results]
        found[f"corpus/{name}"] = {what: sum(one[what] for one in counts) for what in SPENT}
        found[f"corpus/{name}, a case"] = {what: max(one[what] for one in counts) for what in SPENT}
    return found


def recorded() -> dict[str, Counts]:
    """What the repository says."""
    found: dict[str, Counts] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


def excesses(found: Recorded, known: Recorded) -> Iterator[Excess]:
    """What of ``found``, or of a kind of program together, has reached twice what is ``known``."""
    known = {**known, **together(known, found)}
    for program, counts in {**found, **together(found, found)}.items():
        was = known.get(program, {})
        for name, number in counts.items():
            limit = FACTOR * max(was.get(name, 0), LEAST[name] // FACTOR)
            if not was or number >= limit > was[name]:
                yield Excess(program, name, was.get(name), number)


def together(counts: Recorded, programs: Iterable[str]) -> dict[str, Counts]:
    """The sums over each kind among ``programs`` of which something is known."""
    sums: dict[str, Counts] = {}
    for program in programs:
        total = sums.setdefault(f"{program.split('/')[0]}, together", {})
        for name, number in counts.get(program, {}).items():
            total[name] = total.get(name, 0) + number
    return sums


def written(found: Recorded) -> str:
    """The file of the counts: a line for each program."""
    lines = (f" {json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def table(found: Recorded) -> Table:
    """The programs that cost most, by each count."""
    result = Table("count", "together", "most", "program", title=f"{len(found)} programs")
    for name in LEAST:
        having = {program: counts[name] for program, counts in found.items() if name in counts}
        if having:
            most = max(having, key=having.__getitem__)
            single = sum(number for program, number in having.items() if "corpus/" not in program)
            result.add_row(name, f"{single:,}", f"{having[most]:,}", most)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Counts, prints and compares, or writes the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budgets", description=__doc__)
    parser.add_argument("--only", metavar="PREFIX", default="", help="programs that begin so")
    parser.add_argument("--update", action="store_true", help="write what was counted to the file")
    parser.add_argument("--corpora", type=Path, default=DEFAULT)
    options = parser.parse_args(arguments)
    os.environ[cache.VARIABLE] = ""  # nothing is known from before
    chosen = {name: run for name, run in programs().items() if name.startswith(options.only)}
    console = Console(stderr=True)
    found = {name: run() for name, run in track(chosen.items(), "counting", console=console)}
    if options.corpora.is_dir() and "corpus/".startswith(options.only[:7]):
        found |= of_corpora(options.corpora)
    if options.update:
        DATA.write_text(written({**(recorded() if options.only else {}), **found}), "utf-8")
    Console(width=120).print(table(found))
    failed = list(excesses(found, recorded()))
    for excess in failed[:SHOWN]:
        print(f"doubled: {excess}")
    if len(failed) > SHOWN:
        print(f"and {len(failed) - SHOWN} more")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
