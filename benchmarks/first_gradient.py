"""One gradient from nothing, timed stage by stage: what `benchmarks.first_call` runs.

``python -m benchmarks.first_gradient ours|jax ROW STARTED [--small]`` prints the seconds of each
stage as JSON; STARTED is the time at which the process was started. Making the data is not counted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any


class Stages:
    """The seconds between one call and the next, by name."""

    def __init__(self, started: float) -> None:
        self.seconds: dict[str, float] = {"start": time.time() - started}
        self._last = time.perf_counter()

    def done(self, name: str) -> None:
        """What happened since the last call was the stage called ``name``."""
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now

    def skip(self) -> None:
        """What happened since the last call does not count."""
        self._last = time.perf_counter()


def problem_of(row: str, small: bool) -> Any:
    """The problem of a row of the kernel benchmarks."""
    case = import_module("benchmarks.kernel_cases").CASES[row]
    return case.make(**(case.small if small else case.full))


def ours(stages: Stages, row: str, small: bool) -> None:
    """Differentiate, simplify, lower, compile, call."""
    ea = import_module("eqsatad")
    import_module("eqsatad.backends.cpu")
    stages.done("import")
    problem = problem_of(row, small)
    stages.skip()
    if hasattr(problem.ours, "outputs"):
        found = ea.simplified(problem.ours.outputs, cost="cpu")
        stages.done("simplify")
        rows = import_module("eqsatad.rules.collection").Collection()
        loops = import_module("eqsatad.pipeline").lowered(found.outputs, None, rows)
    else:
        head = ea.placeholder(problem.ours.output.shape, name="H")
        wrt = list(problem.ours.wrt)
        gradients = ea.differentiate(problem.ours.output, wrt, head=head)
        stages.done("simplify")
        # The sweep is made again, to be timed: what the first one has to load counts once, above.
        ea.differentiate(problem.ours.output, wrt, head=head, simplify=False)
        stages.done("differentiate")
        stages.seconds["simplify"] -= stages.seconds["differentiate"]
        loops = gradients.loops()
    stages.done("lower")
    kernel = import_module("eqsatad.backends").build(loops)
    stages.done("compile")
    kernel(**{name: problem.arrays[name] for name in kernel.inputs})
    stages.done("call")


def jax(stages: Stages, row: str, small: bool) -> None:
    """Trace and compile the gradient, and call it."""
    jax = import_module("jax")
    stages.done("import")
    problem = problem_of(row, small)
    arrays = {name: jax.numpy.asarray(array) for name, array in problem.arrays.items()}
    stages.skip()

    def gradient(given: Any, head: Any) -> Any:
        def forward(*values: Any) -> Any:
            function = problem.at_will or problem.jax
            return function(jax, {**given, **dict(zip(problem.wrt, values, strict=True))})

        _, backward = jax.vjp(forward, *(given[name] for name in problem.wrt))
        return backward(head)

    compiled = jax.jit(gradient).lower(arrays, arrays["H"]).compile()
    stages.done("compile")
    jax.block_until_ready(compiled(arrays, arrays["H"]))
    stages.done("call")


WAYS: dict[str, Callable[[Stages, str, bool], None]] = {"ours": ours, "jax": jax}


def main(way: str, row: str, started: str, *flags: str) -> None:
    """Prints the seconds of each stage."""
    stages = Stages(float(started))
    import_module("numpy")
    stages.done("numpy")
    WAYS[way](stages, row, "--small" in flags)
    print(json.dumps(stages.seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
