"""Plans: the loop nests of a program, changed by hand and then built.

``plan = grads.plan()``, or ``plan = ea.plan(outputs)``; ``plan[x]`` is the nest of the gradient
with respect to ``x``, and ``plan["name"]`` that of any stage. What changes a nest gives it back, so
that changes can be chained: ``plan[x].split("i", 64).reorder("i_outer", "k").vectorize("k")``.

A change is refused where the nest does not show that results stay the same. `Plan.build` also
compares what the nests execute with what they executed before, counted exactly; programs that are
small enough are run both ways on random data as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from eqsatad import backends
from eqsatad.backends.kernel import Kernel
from eqsatad.errors import ArgumentError, ScheduleError
from eqsatad.loops import schedule
from eqsatad.loops.changes import axes_of
from eqsatad.loops.interpret import Counts, count, run
from eqsatad.loops.iterations import Names
from eqsatad.loops.nest import Block, LoopProgram, Nest
from eqsatad.loops.render import render, render_nest
from eqsatad.loops.samples import samples
from eqsatad.loops.staging import staged
from eqsatad.terms.evaluate import extents
from eqsatad.terms.nodes import Axis, Size, Tensor

# Elements of arrays up to which both programs are run, and the value of a size for it.
SMALL = 10_000
EXAMPLE = 5
# Of the largest element: sums of float32 that are added up in another order.
TOLERANCE = 1e-4


class Plan:
    """The loop nests of a program for ``target``; see the module."""

    def __init__(
        self, program: LoopProgram, target: str, results: Mapping[Tensor, Tensor] | None = None
    ) -> None:
        self.program = program
        self.target = target
        self._given = program
        self._results = dict(results or {})
        self._recomputes = False

    def __getitem__(self, what: Tensor | str) -> Stages:
        """The nests of a stage, by name; of a tensor, those of its gradient or its own."""
        stage = self._results.get(what) if isinstance(what, Tensor) else None
        name = what if isinstance(what, str) else (stage or what).name
        if name not in self._names():
            raise ScheduleError(f"there is no nest of {name}; stages: {', '.join(self._names())}")
        return Stages(self, name)

    def show(self) -> str:
        """All nests as pseudo-code."""
        return render(self.program)

    def build(self, *, threads: int | None = None, exact: bool = False) -> Kernel:
        """The kernel, after a check that the nests compute what they did before."""
        self.check()
        return backends.build(self.program, self.target, threads=threads, exact=exact)

    def check(self) -> None:
        """Compares counts, and results where that is quick; an error says what differs."""
        if self.program is self._given:
            return
        sizes = {size.name: _example(size) for size in self.program.sizes}
        arrays = samples(self._given.inputs, [nest.stage for nest in self._given.nests], sizes)
        if self._elements(sizes) <= SMALL:
            before, after = (run(each, arrays, sizes) for each in (self._given, self.program))
            for tensor, old, new in zip(
                self._given.outputs, before.outputs, after.outputs, strict=True
            ):
                _same_values(tensor, old, new)
        else:
            try:
                before, after = (count(each, sizes) for each in (self._given, self.program))
            except ArgumentError:  # what is executed depends on data
                return
        if not self._recomputes:
            _same_counts(before.total, after.total)

    def change(self, name: str, body: Block) -> None:
        """Puts ``body`` in place of the nest of the stage called ``name``."""
        nests = tuple(
            Nest(nest.stage, body) if nest.stage.name == name else nest
            for nest in self.program.nests
        )
        self.program = replace(self.program, nests=nests)

    def stage(self, name: str, at: str) -> None:
        """Works the stage called ``name`` out in the loops ``at`` of those that read it."""
        self.program = staged(self.program, self.nest(name).stage, at)
        self._recomputes = True

    def nest(self, name: str) -> Nest:
        """The nest of the stage called ``name``, as it is now."""
        for nest in self.program.nests:
            if nest.stage.name == name:
                return nest
        raise ScheduleError(
            f"{name} has no nest of its own any more; stages: {', '.join(self._names())}"
        )

    def _names(self) -> list[str]:
        return [nest.stage.name for nest in self.program.nests]

    def _elements(self, sizes: Mapping[str, int]) -> int:
        tensors = (*self._given.inputs, *(nest.stage for nest in self._given.nests))
        return sum(prod(extents(tensor.shape, sizes)) for tensor in tensors)


class Stages:
    """The nests of one stage in a `Plan`. Each method changes them and gives them back.

    A loop is named by its axis. A change is made in all pieces that have such a loop.
    """

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan = plan
        self.name = name

    def __repr__(self) -> str:
        return f"<nests of {self.name}: {', '.join(self.axes)}>"

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the loops."""
        return tuple(axes_of(self._body))

    def show(self) -> str:
        """The nests as pseudo-code."""
        return render_nest(self.plan.nest(self.name))

    def split(self, axis: str | Axis, factor: int, names: Sequence[str] | None = None) -> Stages:
        """A loop as one over blocks of ``factor`` iterations and one inside each block.

        They are called ``axis_outer`` and ``axis_inner``, or by ``names``. What is left over is a
        nest of its own, without the outer loop.
        """
        name = _name(axis)
        outer, inner = names or (f"{name}_outer", f"{name}_inner")
        return self._changed(schedule.split(self._body, name, factor, Names(outer, inner)))

    def reorder(self, *axes: str | Axis) -> Stages:
        """The loops over ``axes`` in this order, the outermost first; others stay in place.

        Where a sum comes to be outside of a loop over results, it is added up in memory.
        """
        return self._changed(schedule.reorder(self._body, [_name(axis) for axis in axes]))

    def unroll(self, axis: str | Axis, count: int | None = None) -> Stages:
        """``count`` iterations (all by default) side by side; independent ones run together."""
        return self._changed(schedule.unroll(self._body, _name(axis), count))

    def vectorize(self, axis: str | Axis) -> Stages:
        """The loop along the lanes of vectors; up to four vectors of a short loop at once."""
        return self._changed(schedule.vectorize(self._body, _name(axis)))

    def parallel(self, axis: str | Axis) -> Stages:
        """The loop, together with those around it, divided among threads."""
        return self._changed(schedule.parallel(self._body, _name(axis)))

    def stage(self, *, at: str | Axis) -> Stages:
        """The stage worked out where it is read, in the loop ``at`` of its readers."""
        self.plan.stage(self.name, _name(at))
        return self

    @property
    def _body(self) -> Block:
        return self.plan.nest(self.name).body

    def _changed(self, body: Block) -> Stages:
        self.plan.change(self.name, body)
        return self


def _name(axis: str | Axis) -> str:
    return axis.name if isinstance(axis, Axis) else axis


def _example(size: Size) -> int:
    """A small value that ``size`` may have."""
    least = max(EXAMPLE, size.minimum)
    return -(-least // size.multiple_of) * size.multiple_of


def _same_counts(before: Counts, after: Counts) -> None:
    for what in ("multiplications", "additions", "comparisons"):
        old, new = getattr(before, what), getattr(after, what)
        if old != new:
            raise ScheduleError(
                f"the schedule makes {new:,} {what} of {old:,}, which is a fault of eqsatad; "
                "please report it with the program and the schedule"
            )


def _same_values(tensor: Tensor, old: np.ndarray, new: np.ndarray) -> None:
    scale = float(np.abs(old.astype(np.float64)).max(initial=1.0))
    if not np.allclose(old, new, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True):
        raise ScheduleError(
            f"the schedule changes {tensor.name}, which is a fault of eqsatad; "
            "please report it with the program and the schedule"
        )
