"""What each rule does on the gradients and the questions to the simplifier of the benchmarks.

``python -m benchmarks.rules [--set legacy|workloads|simplifier] [--only NAME]
[--ablate none|theme|row]``. Matches, applications, e-nodes and seconds of each row, and the
operations that are executed more without it or its theme, or the operators that the simplifier
leaves more; ``--save FILE`` keeps the answer and uses it again while it fits. Leaving
out rows one by one takes many times as long as leaving out themes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks.index_cases import BOUNDED, PROVED, SHORTER, SMALL
from benchmarks.legacy_cases import CASES
from benchmarks.workload_cases import WORKLOADS
from eqsatad.rules.catalog import every_row
from eqsatad.stats import ABLATIONS, gathered, shown
from eqsatad.subjects import Question, Subject

WIDTH = 120


def legacy() -> Iterator[Subject]:
    """The gradients of the legacy suite."""
    for name, make in CASES.items():
        case = make()
        yield Subject(name, case.output, tuple(case.inputs), case.sizes)


def workloads() -> Iterator[Subject]:
    """The gradients of the workloads, at the small shapes at which their values are checked."""
    for name, workload in WORKLOADS.items():
        for label, case in workload.make(**workload.small).items():
            inputs, head = tuple(case.inputs), getattr(case, "head", None)
            yield Subject(f"{name} {label}", case.output, inputs, case.sizes, head)


def simplifier() -> Iterator[Question]:
    """The questions whose answers are tested."""
    for table in (SHORTER, PROVED, BOUNDED):
        for name, (expr, _) in table.items():
            yield Question(name, expr, SMALL)


SETS: dict[str, Callable[[], Iterator[Subject | Question]]] = {
    "legacy": legacy,
    "workloads": workloads,
    "simplifier": simplifier,
}


def followed(work: Sequence[tuple[str, Callable[[], None]]]) -> None:
    """Runs ``work`` behind a bar."""
    for _, run in track(work, "looking at rules", console=Console(stderr=True)):
        run()


def main(arguments: list[str] | None = None) -> int:
    """Gathers the statistics, prints them and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=SETS, action="append", help="all of them otherwise")
    parser.add_argument(
        "--only", metavar="NAME", action="append", help="only this gradient or question"
    )
    parser.add_argument("--ablate", choices=ABLATIONS, default="theme")
    parser.add_argument("--save", type=Path, metavar="FILE", help="kept here, and used again")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(arguments)
    asked = [
        one
        for name in options.set or SETS
        for one in SETS[name]()
        if options.only is None or one.name in options.only
    ]
    if not asked:
        parser.error(f"nothing is called {' or '.join(options.only)}")
    found = gathered(
        [one for one in asked if isinstance(one, Subject)],
        every_row(),
        questions=[one for one in asked if isinstance(one, Question)],
        ablate=options.ablate,
        progress=followed,
        saved=options.save,
    )
    if options.json:
        print(json.dumps(asdict(found), indent=1))
    else:
        console = Console(width=max(WIDTH, Console().width))
        console.print(shown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
