"""The machine check of value rows: both sides evaluated over small fillings.

All fillings over one and two axes that meet the conditions are tried, a sample over three, and
where Hypothesis is installed what it draws. Wherever ``before`` is a finite number, ``after`` must
be the same number up to rounding. A row that says `exact` is tried in float32 as well, where the
sides must be the same bits. A counterexample is made as simple as it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.random import default_rng

from eqsatad.errors import RefutedRuleError, RuleError
from eqsatad.rules.describe import spelled
from eqsatad.rules.prove_fillings import (
    FLOAT32,
    Array,
    Filling,
    admitted,
    constants_fit,
    fillings,
    letters,
    meaning,
    shape,
    totals,
)
from eqsatad.rules.value_rule import CONDITION, CONSTANT, VALUE, Pattern, ValueRule, directions

TOLERANCE = 1e-9
"""Relative to the magnitude of the sides: a few roundings of double precision."""

EXAMPLES = 50
"""What Hypothesis draws for each direction of a row."""

SIMPLE = (0.0, 1.0, -1.0, 2.0, 0.5, 3.0)
"""The values of a counterexample, the preferred ones first."""

INTEGERS = {"float64": np.uint64, "float32": np.uint32}


@dataclass(frozen=True)
class Tried:
    """How many ``fillings`` a row was evaluated on, and how many ``drawn`` by Hypothesis."""

    fillings: int
    drawn: int


def check_value_rule(row: ValueRule, seed: int = 0, examples: int = EXAMPLES) -> Tried:
    """On what both sides of ``row`` agree; a RuleError with the counterexample if they do not."""
    tried = drawn = 0
    for name, before, after in directions(row):
        sides = _Sides(row, name, before, after)
        tried += sides.enumerated(seed)
        drawn += sides.drawn(examples)
    return Tried(tried, drawn)


@dataclass(frozen=True)
class _Sides:
    """One direction of a row."""

    row: ValueRule
    name: str
    before: Pattern
    after: Pattern

    @property
    def dtypes(self) -> tuple[str, ...]:
        return ("float64", "float32") if self.row.exact else ("float64",)

    def enumerated(self, seed: int) -> int:
        """The number of small fillings on which the sides agree where there is a number."""
        rng = default_rng(seed)
        tried = 0
        for dtype in self.dtypes:
            for filling in fillings(self.row, self.before, rng, dtype):
                tried += self.compared(filling)
        if not tried:
            raise RuleError(
                f"rule {self.name}: no small filling meets its conditions with a finite value, so "
                "it was never tested. Weaken the conditions or split the row."
            )
        return tried

    def drawn(self, examples: int) -> int:
        """The number of fillings that Hypothesis drew; 0 where it is not installed."""
        if not examples:
            return 0
        try:
            from hypothesis import HealthCheck, given, settings
            from hypothesis import strategies as st
        except ImportError:
            return 0
        drawn = 0

        @settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.data())
        def agree(data: Any) -> None:
            nonlocal drawn
            filling = _draw(self, data.draw, st)
            if filling is not None:
                drawn += 1
                self.compared(filling)

        agree()
        return drawn

    def compared(self, filling: Filling) -> bool:
        """Whether there is a number to compare; the counterexample if the sides differ."""
        left, _, wrong = self.difference(filling)
        if wrong.any():
            raise RefutedRuleError(self.counterexample(self.simplest(filling)))
        return bool(np.isfinite(left).any())

    def difference(self, filling: Filling) -> tuple[Array, Array, Array]:
        """Both sides over the box, and where ``after`` is not what ``before`` is."""
        with np.errstate(all="ignore"):
            left, right = np.broadcast_arrays(
                meaning(self.before, filling), meaning(self.after, filling)
            )
            if self.row.exact:
                agree = _bits(left) == _bits(right)
            else:
                agree = np.abs(left - right) <= TOLERANCE * np.maximum(1.0, np.abs(left))
            return left, right, np.isfinite(left) & ~agree

    def simplest(self, filling: Filling) -> Filling:
        """``filling`` with values as simple as they can be while the sides differ."""
        for ways in (_smaller, _simpler, _simpler):
            for simpler in ways(self.row, filling):
                trial = simpler(filling)
                if self.difference(trial)[2].any():
                    filling = trial
        return filling

    def counterexample(self, filling: Filling) -> str:
        """The message that the sides differ on ``filling``."""
        left, right, wrong = self.difference(filling)
        at = tuple(int(n) for n in np.argwhere(wrong)[0])
        how = f" in {filling.dtype}" if self.row.exact else ""
        shown = str if self.row.exact else "{:g}".format
        point = ", ".join(f"i{axis} = {n}" for axis, n in enumerate(at))
        return (
            f"rule {self.name} is wrong: before is not after{how}, with {filling}\n"
            f"  before: {spelled(self.before)}, which is {shown(left[at])} at {point}\n"
            f"  after: {spelled(self.after)}, which is {shown(right[at])}\n"
            "State the condition that excludes this, or take the row out."
        )


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(INTEGERS[str(array.dtype)])


def _smaller(_: ValueRule, filling: Filling) -> Iterator[Callable[[Filling], Filling]]:
    """Ways to leave one point of an axis."""
    for axis, size in enumerate(filling.extents):
        yield from (partial(_sliced, axis, place) for place in range(size))


def _sliced(axis: int, place: int, filling: Filling) -> Filling:
    extents = tuple(1 if n == axis else size for n, size in enumerate(filling.extents))
    arrays = {
        name: array.take([min(place, array.shape[axis] - 1)], axis)
        for name, array in filling.arrays.items()
    }
    return replace(filling, extents=extents, arrays=arrays)


def _simpler(row: ValueRule, filling: Filling) -> Iterator[Callable[[Filling], Filling]]:
    """Ways to make one value of ``filling`` simpler, each tried on what the others left."""
    for name, number in filling.constants.items():
        for value in _before(number):
            if constants_fit(row, {**filling.constants, name: value}):
                yield partial(_with_constant, name, value)
    for name, array in filling.arrays.items():
        choices = (True, False) if array.dtype == bool else SIMPLE
        yield from (partial(_with_value, name, ..., value) for value in reversed(choices))
        for place in np.ndindex(array.shape):
            simple = choices if array.dtype == bool else _before(float(array[place]))
            yield from (partial(_with_value, name, place, value) for value in reversed(simple))


def _before(value: float) -> tuple[float, ...]:
    """The values that are simpler than ``value``."""
    return SIMPLE[: SIMPLE.index(value)] if value in SIMPLE else SIMPLE


def _with_constant(name: str, value: float, filling: Filling) -> Filling:
    return replace(filling, constants={**filling.constants, name: value})


def _with_value(name: str, place: Any, value: float, filling: Filling) -> Filling:
    array = filling.arrays[name].copy()
    array[place] = value
    return replace(filling, arrays={**filling.arrays, name: array})


def _draw(sides: _Sides, draw: Callable[[Any], Any], st: Any) -> Filling | None:
    """A filling that Hypothesis draws; None where the conditions are not met."""
    extents = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)))
    if not (choices := admitted(sides.row, sides.before, len(extents))):
        return None
    axes, dtype = draw(st.sampled_from(choices)), draw(st.sampled_from(sides.dtypes))
    eighths = st.integers(-256, 256).map(lambda n: n / 8)
    numbers = eighths
    if sides.row.exact:
        single = st.floats(width=32, allow_nan=False, allow_infinity=False)
        numbers = st.one_of(eighths, single, st.sampled_from(FLOAT32))
    total = totals(sides.row)
    found = letters(sides.before)
    constants = {name: draw(eighths) for name, letter in found.items() if letter.op == CONSTANT}
    arrays = {}
    for name, letter in found.items():
        if letter.op not in (VALUE, CONDITION):
            continue
        values = numbers if name in total else st.one_of(numbers, st.just(float("nan")))
        if letter.op == CONDITION:
            values = st.booleans()
        size = shape(extents, axes[name])
        count = int(np.prod(size))
        listed = draw(st.lists(values, min_size=count, max_size=count))
        arrays[name] = np.array(listed, bool if letter.op == CONDITION else dtype).reshape(size)
    if not constants_fit(sides.row, constants):
        return None
    return Filling(extents, axes, arrays, constants, dtype)
