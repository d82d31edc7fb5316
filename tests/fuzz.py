"""A longer look than the tests take: ``python -m tests.fuzz --examples 5000 [--seed 0]``.

Every example has a number, and ``--seed N --examples 1`` repeats example N alone. The summary
counts what was checked, what was skipped and why, and the failures by their first line.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence

from tests.oracles import Kink, check_forward, check_jacobian, check_simplified, check_slopes
from tests.programs import Program, from_seed


def check_values(program: Program, targets: Sequence[str]) -> None:
    """The value of the program is the same on each of ``targets``."""
    for target in targets:
        check_forward(program, target)


CHECKS: dict[str, Callable[[Program, Sequence[str]], None]] = {
    "forward": check_values,
    "slopes": lambda program, targets: check_slopes(program),
    "simplified": check_simplified,
    "jacobian": lambda program, targets: check_jacobian(program),
}


def examine(seed: int, checks: Sequence[str], targets: Sequence[str], seen: Counter[str]) -> None:
    """Runs ``checks`` on the program of ``seed`` and counts what comes of each."""
    dtype = "float32" if "opencl" in targets or seed % 4 == 3 else "float64"
    program = from_seed(seed, dtype, symbolic=seed % 3 == 2)
    for name in checks:
        if name == "slopes" and dtype != "float64":
            continue
        try:
            CHECKS[name](program, targets)
            seen[f"{name}: agrees"] += 1
        except Kink:
            seen[f"{name}: skipped, at a kink"] += 1
        except Exception as error:
            line = str(error).splitlines()[0] if str(error) else ""
            seen[f"{name}: FAILED, {type(error).__name__}"] += 1
            print(f"\nexample {seed}, {name}: {type(error).__name__}: {line}\n{program}")
            if not isinstance(error, AssertionError):
                traceback.print_exception(error, limit=-4)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the examples and prints the summary; 1 when something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first example")
    parser.add_argument("--checks", default=",".join(CHECKS), help="which, comma between them")
    parser.add_argument("--targets", default="reference,cpu", help="comma between them")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    options = parser.parse_args(arguments)

    seen: Counter[str] = Counter()
    start, done = time.perf_counter(), 0
    for seed in range(options.seed, options.seed + options.examples):
        if time.perf_counter() - start > options.seconds:
            break
        examine(seed, options.checks.split(","), options.targets.split(","), seen)
        done += 1
    print(f"\n{done} programs from seed {options.seed}, {time.perf_counter() - start:.0f} s")
    for what, count in sorted(seen.items()):
        print(f"{count:8}  {what}")
    return int(any("FAILED" in what for what in seen))


if __name__ == "__main__":
    sys.exit(main())
