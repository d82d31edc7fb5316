"""What each rule of the catalog does on the gradients of the benchmarks.

``python -m benchmarks.rules [--set legacy|workloads] [--only NAME] [--ablate none|theme|row]``.
Matches, applications, e-nodes and seconds of each row, and the operations that are executed more
without it or its theme; ``--save FILE`` keeps the answer and uses it again while it fits. Leaving
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

from benchmarks.legacy_cases import CASES
from benchmarks.workload_cases import WORKLOADS
from eqsatad.rules.catalog import load
from eqsatad.stats import ABLATIONS, Subject, gathered, shown

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


SETS: dict[str, Callable[[], Iterator[Subject]]] = {"legacy": legacy, "workloads": workloads}


def followed(work: Sequence[tuple[str, Callable[[], None]]]) -> None:
    """Runs ``work`` behind a bar."""
    for _, run in track(work, "looking at rules", console=Console(stderr=True)):
        run()


def main(arguments: list[str] | None = None) -> int:
    """Gathers the statistics, prints them and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=SETS, action="append", help="both of them otherwise")
    parser.add_argument("--only", metavar="NAME", action="append", help="only this gradient")
    parser.add_argument("--ablate", choices=ABLATIONS, default="theme")
    parser.add_argument("--save", type=Path, metavar="FILE", help="kept here, and used again")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(arguments)
    subjects = [
        subject
        for name in options.set or SETS
        for subject in SETS[name]()
        if options.only is None or subject.name in options.only
    ]
    if not subjects:
        parser.error("no such gradient")
    found = gathered(subjects, load(), ablate=options.ablate, progress=followed, saved=options.save)
    if options.json:
        print(json.dumps(asdict(found), indent=1))
    else:
        console = Console(width=max(WIDTH, Console().width))
        console.print(shown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
