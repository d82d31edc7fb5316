"""How a simplified program came from the program as it was derived, step by step.

Every step leaves a whole program, so the chain can be walked again (`replay`): each step is applied
to the program before it, what its rows claim is decided with these rows alone, and the last
program is the chosen one. Each program can also be evaluated (`check`), and has a price (`costs`).
The steps themselves are found in `extract.trace`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsatad.errors import ArgumentError, ExplanationError
from eqsatad.extract.cost import CostModel
from eqsatad.extract.points import Points
from eqsatad.extract.sites import executed
from eqsatad.extract.trace import Judge, Restricted, Step
from eqsatad.loops.samples import samples
from eqsatad.terms.evaluate import Run
from eqsatad.terms.nodes import (
    FLOATS,
    Axis,
    Expr,
    Placeholder,
    Reduce,
    Size,
    Stage,
    Tensor,
)
from eqsatad.terms.show import mark, show
from eqsatad.terms.walk import postorder, program, with_children

Program = tuple[Tensor, ...]
Arrays = Mapping[str, NDArray[Any]]

TOLERANCE = 1e-6
"""Of the largest element: rows hold over the reals, and are evaluated in double precision."""

MOST_POINTS = 100_000_000
"""Points of all loops of a program that `check` evaluates."""

SMALLEST = 4
"""The first of the numbers that symbolic sizes get."""


@dataclass(frozen=True)
class Explanation:
    """The steps from ``naive`` to ``chosen``; behaves as the sequence of its steps."""

    title: str
    naive: Program
    chosen: Program
    steps: tuple[Step, ...]
    _judge: Judge = field(repr=False)
    _cost: CostModel = field(repr=False)

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        """The whole program before the first step and after each."""
        reached = [self.naive]
        for step in self.steps:
            reached.append(step.apply(reached[-1]))
        return tuple(reached)

    @property
    def rows(self) -> Counter[str]:
        """In how many steps each row takes part."""
        return Counter(row for step in self.steps for row in step.rows)

    def replay(self) -> Program:
        """The chosen program, reached again; `ExplanationError` names a step that is not so.

        A step changes the program before it, and its rows alone show what it claims.
        """
        for number, (step, (before, after)) in enumerate(
            zip(self.steps, pairwise(self.programs), strict=True), 1
        ):
            if before == after:
                raise ExplanationError(f"step {number} ({_heading(step)}) changes nothing")
            if step.claim and not self._judge.holds(step.claim, step.rows):
                raise ExplanationError(
                    f"the rows of step {number} ({_heading(step)}) do not show it"
                )
        if self.programs[-1] != self.chosen:
            raise ExplanationError(
                "the last step does not give the chosen program. A search that a limit in time "
                "cut short may end elsewhere when it is done again: raise the limit."
            )
        return self.programs[-1]

    def check(
        self,
        seed: int = 0,
        sizes: Mapping[str, int] | None = None,
        *,
        arrays: Arrays | None = None,
        most: int = MOST_POINTS,
    ) -> tuple[float, ...]:
        """How far the program after each step is from ``naive``, relative to the largest element.

        All are evaluated in double precision on random arrays, or on ``arrays``; symbolic sizes
        are small numbers unless they are in ``sizes``. `ExplanationError` names a step that is
        further off than rounding explains, `ArgumentError` a program of over ``most`` points.
        """
        numbers = _numbers(self.programs, sizes)
        if (points := max(_points(one, numbers) for one in self.programs)) > most:
            raise ArgumentError(
                f"a program of this chain has {points:,} points, more than {most:,}. Explain the "
                "gradient at smaller shapes, or pass most=."
            )
        drawn = _draws(self.programs, numbers, seed) if arrays is None else iter([arrays])
        return tuple(map(max, zip(*(self._errors(given, numbers) for given in drawn), strict=True)))

    def _errors(self, arrays: Arrays, sizes: Mapping[str, int]) -> list[float]:
        evaluation = _Evaluation(self.programs, arrays, sizes)
        expected = evaluation.values(self.naive)
        errors = []
        for number, (step, reached) in enumerate(
            zip(self.steps, self.programs[1:], strict=True), 1
        ):
            errors.append(_difference(expected, evaluation.values(reached)))
            if errors[-1] > TOLERANCE:
                raise ExplanationError(
                    f"the program after step {number} ({_heading(step)}) is {errors[-1]:.1e} off"
                )
        return errors

    @cached_property
    def costs(self) -> tuple[float, ...]:
        """What the program before the first step and after each costs, as it was priced.

        An estimate that takes every stage by itself, at the example sizes of the cost model.
        """
        points = Points(self._cost)
        known: dict[Stage, float] = {}
        for stage in dict.fromkeys(stage for one in self.programs for stage in _stages(one)):
            known[stage] = executed([stage], points)
        return tuple(sum(known[stage] for stage in _stages(one)) for one in self.programs)

    def __str__(self) -> str:
        """The chain for people: what each step takes away (-) and brings (+), and by which rows."""
        lines = [
            f"{self.title}: {len(self)} steps, cost {_rounded(self.costs[0])}",
            "",
            "as derived",
        ]
        lines += [f"    {line}" for one in _stages(self.naive) for line in show(one).split("\n")]
        for number, step in enumerate(self.steps):
            lines += ["", f"{number + 1}. {_heading(step)}"]
            before, after = map(_rounded, self.costs[number : number + 2])
            if before != after:
                lines.append(f"    cost {before} -> {after}")
            lines += _shown(*_texts(step))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The chain as plain values."""
        steps = []
        for number, step in enumerate(self.steps):
            gone, come = _changed_stages(step)
            steps.append(
                {
                    "phase": step.phase,
                    "rows": list(step.rows),
                    "shown_by": _shown_by(step),
                    "before": [show(stage) for stage in gone],
                    "after": [show(stage) for stage in come],
                    "cost": self.costs[number + 1],
                }
            )
        return {
            "title": self.title,
            "derived": [show(stage) for stage in _stages(self.naive)],
            "cost": self.costs[0],
            "steps": steps,
            "rows": dict(self.rows.most_common()),
        }


def _stages(outputs: Program) -> list[Stage]:
    return [tensor for tensor in program(outputs) if isinstance(tensor, Stage)]


HEADINGS = {
    "copies": "{0}: copies are read through",
    "domains": "{0}: a smaller domain",
    "values": "{0}: another value",
    "storing": "{0}: parts are stored",
    "bands": "{0}: only the band is stored that is not 0",
    "joining": "{0}: joined with what only it reads",
    "sharing": "sums that stages have in common",
    "hoisting": "factors moved to where they are multiplied in most cheaply",
    "absorbing": "results in the place of what they copy",
    "fusing": "stages that need no loop of their own",
}


def _heading(step: Step) -> str:
    names = ", ".join(tensor.name for tensor in step.before)
    said = HEADINGS.get(step.phase, step.phase).format(names)
    return f"{said}, by {', '.join(step.rows)}" if step.rows else said


def _shown_by(step: Step) -> str | None:
    """What decides the claim of ``step``; None where it is only put in place and evaluated."""
    if step.claim is None:
        return None
    return "domains" if isinstance(step.claim, Restricted) else "e-graph"


def _rounded(cost: float) -> str:
    return f"{cost:,.0f}"


def _changed_stages(step: Step) -> tuple[list[Stage], list[Stage]]:
    """The stages that a step takes away and brings, those aside that only read others."""
    before, after = (_stages(side) for side in (step.before, step.after))
    texts = {show(stage) for stage in before}
    kept = texts & {show(stage) for stage in after}
    gone, come = ([stage for stage in side if show(stage) not in kept] for side in (before, after))
    return gone, come


def _texts(step: Step) -> tuple[list[str], list[str]]:
    """What is taken away and what comes, with the part that differs marked."""
    gone, come = _changed_stages(step)
    if len(gone) == 1 and len(come) == 1:
        parts = _difference_of(gone[0].body, come[0].body)
        if parts[0] is not gone[0].body and parts[1] is not come[0].body:
            return [mark(gone[0], parts[0])], [mark(come[0], parts[1])]
    return [show(stage) for stage in gone], [show(stage) for stage in come]


def _shown(gone: Sequence[str], come: Sequence[str]) -> list[str]:
    signed = [("-", text) for text in gone] + [("+", text) for text in come]
    return [
        f"    {sign if number == 0 else ' '} {line}"
        for sign, text in signed
        for number, line in enumerate(text.split("\n"))
    ]


def _difference_of(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """The smallest parts of two values around which they are the same."""
    while len(left.children) == len(right.children):
        pairs = [
            pair
            for pair in zip(left.children, right.children, strict=True)
            if pair[0] is not pair[1]
        ]
        if len(pairs) != 1 or with_children(left, right.children) is not right:
            break
        ((left, right),) = pairs
    return left, right


def _inputs(programs: Sequence[Program]) -> list[Placeholder]:
    return [
        tensor
        for tensor in program([output for outputs in programs for output in outputs])
        if isinstance(tensor, Placeholder)
    ]


def _numbers(programs: Sequence[Program], given: Mapping[str, int] | None) -> dict[str, int]:
    """A number for every size, all different unless they are ``given``."""
    roots = [
        root
        for outputs in programs
        for tensor in program(outputs)
        for root in (tensor.roots if isinstance(tensor, Stage) else tensor.shape)
    ]
    axes = [
        axis.extent for node in postorder(*roots) if isinstance(node, Reduce) for axis in node.axes
    ]
    shapes = [extent for tensor in _inputs(programs) for extent in tensor.shape]
    found = [node for node in postorder(*shapes, *roots, *axes) if isinstance(node, Size)]
    names = dict.fromkeys(size.name for size in found)
    return {name: SMALLEST + n for n, name in enumerate(names)} | dict(given or {})


def _points(outputs: Program, sizes: Mapping[str, int]) -> int:
    """The points of all loops when every node is worked out for all axes around it."""
    run = Run(dict(sizes), True)

    def volume(axes: Sequence[Axis]) -> int:
        return math.prod(run.extent(axis.extent) for axis in axes)

    total = 0
    for stage in _stages(outputs):
        inner = [node for node in postorder(*stage.roots) if isinstance(node, Reduce)]
        widest = max((volume([*node.axes, *node.free]) for node in inner), default=1)
        total += max(volume(stage.axes), widest)
    return total


def _draws(programs: Sequence[Program], sizes: Mapping[str, int], seed: int) -> Iterator[Arrays]:
    """Random arrays, of both signs and positive: a logarithm wants the latter."""
    inputs = _inputs(programs)
    stages = _stages(tuple(output for outputs in programs for output in outputs))
    drawn = samples(inputs, stages, sizes, seed)
    yield drawn
    floats = {tensor.name for tensor in inputs if tensor.dtype in FLOATS}
    yield {name: np.abs(array) + 0.1 if name in floats else array for name, array in drawn.items()}


class _Evaluation:
    """Values of programs that share stages, each stage worked out once."""

    def __init__(
        self, programs: Sequence[Program], arrays: Arrays, sizes: Mapping[str, int]
    ) -> None:
        self._run = Run(dict(sizes), True)
        for tensor in _inputs(programs):
            self._run.values[tensor] = self._run.given(tensor, arrays)

    def values(self, outputs: Program) -> list[NDArray[Any]]:
        """The values of ``outputs``."""
        with np.errstate(all="ignore"):
            for tensor in program(outputs):
                if isinstance(tensor, Stage) and tensor not in self._run.values:
                    self._run.values[tensor] = self._run.stage(tensor)
        return [self._run.values[output] for output in outputs]


def _difference(expected: Sequence[NDArray[Any]], found: Sequence[NDArray[Any]]) -> float:
    """The largest difference where ``expected`` is a number, relative to its largest element."""
    worst = 0.0
    for left, right in zip(expected, found, strict=True):
        finite = np.isfinite(left)
        if finite.any():
            scale = max(float(np.abs(left[finite]).max()), 1.0)
            apart = np.abs(left[finite] - right[finite])
            worst = max(worst, float(np.nan_to_num(apart, nan=np.inf).max()) / scale)
    return worst
