"""The demonstration: a strided, dilated, padded convolution, relu and max pooling, differentiated.

Each step is one function from values to values, `run` calls them in order and prints. Nothing is
known about this network in advance: every number is measured when it is printed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from eqsatad import library
from eqsatad.counting import report
from eqsatad.errors import BackendError, MissingExtraError
from eqsatad.extract.report import Comparison, compare
from eqsatad.loops.render import render
from eqsatad.pipeline import Gradients, build, differentiate
from eqsatad.terms.builders import placeholder
from eqsatad.terms.evaluate import evaluate, extents
from eqsatad.terms.nodes import Stage, Tensor
from eqsatad.terms.show import show
from eqsatad.terms.walk import program

Arrays = dict[str, NDArray[Any]]
TOLERANCE = 1e-4  # float32 kernels against central differences in float64
STEP = 1e-6
DIRECTIONS = 4


@dataclass(frozen=True)
class Network:
    """The forward program and the tensors that are asked about."""

    x: Tensor
    w: Tensor
    conv: Stage
    output: Stage


@dataclass(frozen=True)
class Check:
    """One target: its largest relative error, and the seconds to build and to call it."""

    target: str
    error: float
    build_seconds: float
    call_seconds: float

    @property
    def passed(self) -> bool:
        """Whether the gradients agree with finite differences."""
        return self.error < TOLERANCE


@dataclass(frozen=True)
class Outcome:
    """All that the demonstration found out."""

    products: dict[str, int]
    costs: Comparison
    checks: tuple[Check, ...]
    skipped: dict[str, str]

    @property
    def passed(self) -> bool:
        """Whether every number is right and no gradient multiplies more than the forward."""
        return len(set(self.products.values())) == 1 and all(c.passed for c in self.checks)


def network() -> Network:
    """``max_pool(relu(conv(x, w)))`` with stride 2, padding 2 and dilation 2."""
    x = placeholder((1, 2, 12, 12), name="x")
    w = placeholder((3, 2, 3, 3), name="w")
    conv = library.conv2d(x, w, stride=2, pad=2, dilation=2)
    return Network(x, w, conv, library.max_pool(library.relu(conv), 2))


def multiplications(net: Network) -> dict[str, int]:
    """Executed multiplications of the convolution and of each of its gradients, alone."""
    forward = report(build([net.conv], target="reference").loops)
    counted = {"conv": forward.total.multiplications}
    for tensor in (net.x, net.w):
        gradient = differentiate(net.conv, [tensor], cost="count")
        counted[f"{tensor.name}_bar"] = gradient.report().total.multiplications
    return counted


def costs(naive: Gradients, simplified: Gradients) -> Comparison:
    """The cost of the gradients as they are derived, beside that of the simplified ones."""
    return compare(
        replace(naive.report(), name="as derived"), replace(simplified.report(), name="simplified")
    )


def arrays(net: Network, head: Tensor, seed: int) -> Arrays:
    """Random arrays for the inputs and the head."""
    random = np.random.default_rng(seed)
    return {
        tensor.name: random.standard_normal(extents(tensor.shape, {})).astype(tensor.dtype)
        for tensor in (net.x, net.w, head)
    }


def slopes(net: Network, head: Tensor, given: Arrays, seed: int) -> Iterator[tuple[Arrays, float]]:
    """Random directions, and the central difference of ``sum(head * output)`` along each."""
    random = np.random.default_rng(seed + 1)

    def value(point: Arrays) -> float:
        (output,) = evaluate([net.output], point, dtype="float64")
        return float((output * given[head.name]).sum())

    exact = {name: array.astype("float64") for name, array in given.items()}
    for _ in range(DIRECTIONS):
        way = {t.name: random.standard_normal(extents(t.shape, {})) for t in (net.x, net.w)}
        ahead, behind = (
            {**exact, **{name: exact[name] + step * way[name] for name in way}}
            for step in (STEP, -STEP)
        )
        yield way, (value(ahead) - value(behind)) / (2 * STEP)


def check(
    gradients: Gradients, target: str, given: Arrays, expected: Sequence[tuple[Arrays, float]]
) -> Check:
    """Builds and calls the kernel for ``target`` and compares its gradients with ``expected``."""
    start = time.perf_counter()
    kernel = gradients.build(target=target)
    built = time.perf_counter() - start
    found = kernel(**given)
    error = 0.0
    for way, slope in expected:
        along = sum(
            float((bar.astype("float64") * part).sum())
            for bar, part in zip(found, way.values(), strict=True)
        )
        error = max(error, abs(along - slope) / max(1.0, abs(slope)))
    return Check(target, error, built, _seconds(lambda: kernel(**given)))


def checks(
    gradients: Gradients, net: Network, seed: int
) -> tuple[tuple[Check, ...], dict[str, str]]:
    """A `Check` of every target that is there, and why the others are not."""
    assert gradients.head is not None, "no head was given, so one was made"
    given = arrays(net, gradients.head, seed)
    expected = list(slopes(net, gradients.head, given, seed))
    done, skipped = [], {}
    for target in ("cpu", "opencl"):
        try:
            done.append(check(gradients, target, given, expected))
        except (MissingExtraError, BackendError) as error:
            skipped[target] = str(error)
    return tuple(done), skipped


def _seconds(call: Callable[[], object], tries: int = 20) -> float:
    best = float("inf")
    for _ in range(tries):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def run(*, seed: int = 0, as_json: bool = False) -> Outcome:
    """Runs the demonstration and prints it; the outcome says whether all of it was right."""
    start = time.perf_counter()
    screen = Console(quiet=as_json, highlight=False)
    net = network()
    inputs = [net.x, net.w]
    naive = differentiate(net.output, inputs, simplify=False)
    simplified = differentiate(net.output, inputs)

    _heading(screen, "The program")
    for stage in program([net.output]):
        _text(screen, show(stage))
    _heading(screen, "Its gradients as they are derived")
    _text(screen, render(naive.loops()))
    _heading(screen, f"After simplification ({simplified.saturation.seconds:.2f} s)")
    _text(screen, render(simplified.loops()))
    _heading(screen, "Rules that fired")
    screen.print(_rules(simplified))

    outcome = Outcome(
        multiplications(net), costs(naive, simplified), *checks(simplified, net, seed)
    )
    _heading(screen, "Cost, counted by execution")
    screen.print(outcome.costs)
    _heading(screen, "Multiplications of the convolution, and of each of its gradients alone")
    screen.print(_products(outcome.products))
    if len(set(outcome.products.values())) == 1:
        screen.print("Each gradient multiplies exactly as often as the convolution does.")
    _heading(screen, f"Against central differences (seed {seed})")
    screen.print(_checks(outcome))
    verdict = "all of it is right" if outcome.passed else "SOMETHING IS WRONG"
    screen.print(f"\n{verdict}; {time.perf_counter() - start:.1f} s in all")
    if as_json:
        print(json.dumps(record(outcome), indent=2))
    return outcome


def record(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain values."""
    return {
        "passed": outcome.passed,
        "multiplications": outcome.products,
        "costs": outcome.costs.to_dict(),
        "checks": [{**asdict(check), "passed": check.passed} for check in outcome.checks],
        "skipped": outcome.skipped,
    }


def _heading(screen: Console, text: str) -> None:
    screen.print(f"\n[bold]{text}[/bold]")


def _text(screen: Console, text: str) -> None:
    """Text as it stands: its square brackets are indices, not markup."""
    screen.print(text, markup=False, soft_wrap=True)


def _rules(gradients: Gradients) -> Table:
    table = Table("rule", "matches")
    fired = gradients.saturation.rules
    for name, matches in sorted(fired.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(name, f"{matches:,}")
    return table


def _products(products: dict[str, int]) -> Table:
    table = Table("stage", "multiplications")
    for name, count in products.items():
        table.add_row(name, f"{count:,}")
    return table


def _checks(outcome: Outcome) -> Table:
    table = Table("target", "largest relative error", "verdict", "build", "call")
    for check in outcome.checks:
        verdict = "agrees" if check.passed else "WRONG"
        times = (f"{check.build_seconds:.2f} s", f"{1e6 * check.call_seconds:,.0f} us")
        table.add_row(check.target, f"{check.error:.1e}", verdict, *times)
    for target, reason in outcome.skipped.items():
        table.add_row(target, "", escape(f"skipped: {reason}"))
    return table
