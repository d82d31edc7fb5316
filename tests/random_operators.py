"""Gradients of random operators against formulas: ``python -m tests.random_operators``.

Draws convolutions, pooling, windows and moves of elements (`operator_families`), and compares the
multiplications that each gradient executes with the formula of its family. In innermost loops
nothing may divide an index and no condition may be tested, but those on data. Gradients are also
compared with differences of the operator's values, where few pairs make that quick.

Every example has a number, and ``--seed N --examples 1`` repeats example N alone. The exit code is
1 when one misses.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.progress import track

from eqsatad.counting import counted
from eqsatad.pipeline import Gradients, differentiate
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Placeholder, Tensor
from eqsatad.terms.walk import program
from tests.operator_families import FAMILIES, Operator, extents, operator

FEW_PAIRS = 20_000
"""Up to so many pairs of elements values are compared too."""
TOLERANCE = 1e-6
"""Of differences of values in double precision, relative to the largest part of a slope."""


def misses(made: Operator) -> list[str]:
    """What is wrong with the gradients of an operator, a line each."""
    found = []
    for tensor, products in made.products.items():
        gradients = differentiate(made.output, [tensor], cost=made.cost)
        found += [f"d{tensor.name}: {miss}" for miss in _counts(made, gradients, products)]
        if made.pairs <= FEW_PAIRS and (error := slope_error(made, tensor, gradients)) > TOLERANCE:
            found.append(f"d{tensor.name}: relative error {error:.1e}")
    return found


def _counts(made: Operator, gradients: Gradients, products: int) -> list[str]:
    total = counted(gradients.loops(), {})[0].total
    found = total.multiplications
    if made.least is not None and made.least <= found <= products:
        found = products
    counts = {
        "multiplications": (found, products),
        "index divisions": (_beyond(total.index_divisions, made.divisions), 0),
        "inner conditions": (
            _beyond(total.inner_conditions - total.data_conditions, made.conditions),
            0,
        ),
    }
    return [f"{got:,} {what} for {want:,}" for what, (got, want) in counts.items() if got != want]


def _beyond(count: int, allowed: int | None) -> int:
    return 0 if allowed is None else max(0, count - allowed)


def slope_error(made: Operator, tensor: Tensor, gradients: Gradients) -> float:
    """How far the gradient is from a difference of values along a random direction."""
    rng = np.random.default_rng(0)
    given = [t for t in program([made.output]) if isinstance(t, Placeholder)]
    arrays = {t.name: rng.normal(size=extents(t)) for t in given}
    head = rng.normal(size=extents(made.output))
    way = made.step * rng.normal(size=extents(tensor))

    def value(moved: float) -> float:
        (found,) = evaluate(
            [made.output], arrays | {tensor.name: arrays[tensor.name] + moved * way}
        )
        return float((found * head).sum())

    assert gradients.head is not None
    known = {**arrays, gradients.head.name: head}
    kernel = gradients.build(target="reference")
    (gradient,) = kernel(**{name: known[name] for name in kernel.inputs})
    expected = (value(1.0) - value(-1.0)) / 2
    parts = gradient * way
    scale = float(np.abs(parts).sum()) + abs(expected) or 1.0
    return abs(float(parts.sum()) - expected) / scale


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the examples and prints the summary; 1 when one missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_operators", description=__doc__)
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="number of the first example")
    parser.add_argument("--families", default=",".join(FAMILIES), help="which, comma between them")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    options = parser.parse_args(arguments)

    console = Console()
    families = options.families.split(",")
    seen: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    start = time.perf_counter()
    numbers = range(options.seed, options.seed + options.examples)
    for seed in track(numbers, "operators", console=console, transient=True):
        if time.perf_counter() - start > options.seconds:
            break
        name, made = operator(seed, families)
        seen[name] += 1
        try:
            found = misses(made)
        except Exception as error:
            found = [f"{type(error).__name__}: {str(error).splitlines()[:1]}"]
        if found:
            missed[name] += 1
            console.print(f"example {seed}, {made.text}", *found, sep="\n    ", markup=False)
    seconds = time.perf_counter() - start
    console.print(f"\n{seen.total()} operators from number {options.seed}, {seconds:.0f} s")
    for name, count in seen.items():
        console.print(f"{count:8}  {name}" + (f", {missed[name]} MISSED" if missed[name] else ""))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
