"""The machine check of value rows: both sides evaluated over small fillings.

A filling gives every letter a meaning over a box of two or three axes: a value letter an array
over one of the subsets of the axes, a condition a mask, a set letter a set of axes, a constant
one of a few numbers. All fillings over two axes that meet the conditions are tried, and a sample
over three.

Letters that are not `total` also take values that are no numbers, as a read out of range or a
division by 0 would. Wherever ``before`` is a finite number, ``after`` must be the same number;
the same bits if the row says `exact`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from eqsatad.errors import RuleError
from eqsatad.rules.value_rule import (
    AXES,
    CONDITION,
    CONSTANT,
    VALUE,
    Condition,
    Pattern,
    ValueRule,
    directions,
)
from eqsatad.terms.meaning import MEANING
from eqsatad.terms.ops import OPS

Array = NDArray[Any]
AxisSet = frozenset[int]

BOXES = ((2, 3), (1, 2), (3, 1))
SAMPLED_BOX = (2, 3, 2)
SAMPLES = 60
NUMBERS = (-2.0, -1.0, 0.0, 0.5, 3.0)
TOLERANCE = 1e-9
"""Relative to the magnitude of the sides: a few roundings of double precision."""


@dataclass(frozen=True)
class Filling:
    """What each letter stands for, over a box with ``extents``."""

    extents: tuple[int, ...]
    axes: Mapping[str, AxisSet]
    arrays: Mapping[str, Array]
    constants: Mapping[str, float]

    def __str__(self) -> str:
        def spelled(axes: AxisSet) -> str:
            return "{" + ", ".join(f"i{axis}" for axis in sorted(axes)) + "}"

        sets = [f"{name} over {spelled(axes)}" for name, axes in self.axes.items()]
        numbers = [f"{name} = {value:g}" for name, value in self.constants.items()]
        return f"extents {self.extents}; " + ", ".join((*sets, *numbers))


def check_value_rule(row: ValueRule, seed: int = 0) -> None:
    """Nothing if both sides of ``row`` agree; else a RuleError with the counterexample."""
    rng = default_rng(seed)
    for name, before, after in directions(row):
        compared = 0
        for filling in fillings(row, before, rng):
            compared += _compare(row, before, after, filling)
        if not compared:
            raise RuleError(
                f"{row}\nrow {name}: no small filling meets its conditions with a finite value, "
                "so it was never tested. Weaken the conditions or split the row."
            )


def fillings(row: ValueRule, before: Pattern, rng: Generator) -> Iterator[Filling]:
    """The fillings of the letters of ``before`` that meet the conditions of ``row``."""
    letters = {part.name: part for part in before.walk() if part.op in KINDS}
    for extents in BOXES:
        for axes in product(_subsets(len(extents)), repeat=_sets(letters)):
            yield from _filled(row, before, letters, extents, axes, rng)
    many = list(_subsets(len(SAMPLED_BOX)))
    for _ in range(SAMPLES):
        axes = tuple(many[n] for n in rng.integers(len(many), size=_sets(letters)))
        yield from _filled(row, before, letters, SAMPLED_BOX, axes, rng)


KINDS = (VALUE, CONDITION, AXES, CONSTANT)


def _subsets(count: int) -> Iterator[AxisSet]:
    sizes = range(count + 1)
    chosen = chain.from_iterable(combinations(range(count), size) for size in sizes)
    return map(frozenset, chosen)


def _sets(letters: Mapping[str, Pattern]) -> int:
    """How many letters have an axis set: all but constants."""
    return sum(letter.op != CONSTANT for letter in letters.values())


def _filled(
    row: ValueRule,
    before: Pattern,
    letters: Mapping[str, Pattern],
    extents: tuple[int, ...],
    chosen: Sequence[AxisSet],
    rng: Generator,
) -> Iterator[Filling]:
    named = [name for name, letter in letters.items() if letter.op != CONSTANT]
    axes = dict(zip(named, chosen, strict=True))
    if not _splits_well(before, axes):
        return
    if not all(
        HOLDS[condition.kind](condition, axes) for condition in row.when if condition.kind in HOLDS
    ):
        return
    constants = [name for name, letter in letters.items() if letter.op == CONSTANT]
    for numbers in product(NUMBERS, repeat=len(constants)):
        values = dict(zip(constants, numbers, strict=True))
        if all(values[c.letters[0].name] for c in row.when if c.kind == "nonzero"):
            yield Filling(extents, axes, _arrays(row, letters, extents, axes, rng), values)


def _splits_well(before: Pattern, axes: Mapping[str, AxisSet]) -> bool:
    """Whether every ``S | T`` is a split: disjoint, and T not empty."""
    for part in before.walk():
        if part.op == "union":
            left, right = (axes[letter.name] for letter in part.parts)
            if left & right or not right:
                return False
    return True


def _pair(condition: Condition, axes: Mapping[str, AxisSet]) -> tuple[AxisSet, AxisSet]:
    first, second = (axes[letter.name] for letter in condition.letters)
    return first, second


def _apart(condition: Condition, axes: Mapping[str, AxisSet]) -> bool:
    first, second = _pair(condition, axes)
    return not first & second


def _lacks(condition: Condition, axes: Mapping[str, AxisSet]) -> bool:
    term, guard = _pair(condition, axes)
    return bool(guard - term)


def _single(condition: Condition, axes: Mapping[str, AxisSet]) -> bool:
    return len(axes[condition.letters[0].name]) == 1


HOLDS = {"absent": _apart, "disjoint": _apart, "lacks": _lacks, "single": _single}


def _arrays(
    row: ValueRule,
    letters: Mapping[str, Pattern],
    extents: tuple[int, ...],
    axes: Mapping[str, AxisSet],
    rng: Generator,
) -> dict[str, Array]:
    """Random meanings of the value and condition letters."""
    total = {condition.letters[0].name for condition in row.when if condition.kind == "total"}
    result: dict[str, Array] = {}
    for name, letter in letters.items():
        if letter.op not in (VALUE, CONDITION):
            continue
        shape = tuple(size if n in axes[name] else 1 for n, size in enumerate(extents))
        if letter.op == CONDITION:
            result[name] = rng.random(shape) < 0.5
            continue
        values = np.round(rng.normal(size=shape) * 2, 2)
        if name not in total:
            values = np.where(rng.random(shape) < 0.1, np.nan, values)
        result[name] = values
    return result


def meaning(part: Pattern, filling: Filling) -> Array:
    """The value of ``part``, an array over the box with size 1 where an axis is absent."""
    if part.op in (VALUE, CONDITION):
        return filling.arrays[part.name]
    if part.op in (CONSTANT, "number"):
        value = filling.constants[part.name] if part.op == CONSTANT else part.number
        return np.full((1,) * len(filling.extents), value)
    if part.op == "sum":
        return _summed(_axes(part.parts[0], filling), meaning(part.parts[1], filling), filling)
    if part.op == "extent":
        sizes = (filling.extents[axis] for axis in _axes(part.parts[0], filling))
        return np.full((1,) * len(filling.extents), float(np.prod(list(sizes))))
    values = [meaning(inner, filling) for inner in part.parts]
    match part.op:
        case "guard":
            return np.where(values[0], values[1], 0.0)
        case "pick":
            return np.where(values[0], values[1], values[2])
    op = OPS[part.name] if part.op == "call" else OPS[part.op]
    return np.asarray(MEANING[op](*values))


def _axes(part: Pattern, filling: Filling) -> AxisSet:
    if part.op == "union":
        return _axes(part.parts[0], filling) | _axes(part.parts[1], filling)
    return filling.axes[part.name]


def _summed(axes: AxisSet, body: Array, filling: Filling) -> Array:
    shape = tuple(size if n in axes else body.shape[n] for n, size in enumerate(filling.extents))
    return np.asarray(np.broadcast_to(body, shape).sum(axis=tuple(sorted(axes)), keepdims=True))


def _compare(row: ValueRule, before: Pattern, after: Pattern, filling: Filling) -> int:
    """The number of points compared; a RuleError where the sides differ."""
    with np.errstate(all="ignore"):
        left, right = np.broadcast_arrays(meaning(before, filling), meaning(after, filling))
        finite = np.isfinite(left)
        scale = np.maximum(1.0, np.abs(left))
        tolerance = 0.0 if row.exact else TOLERANCE
        agree = np.abs(left - right) <= tolerance * scale
    wrong = finite & ~agree
    if wrong.any():
        at = tuple(int(n) for n in np.argwhere(wrong)[0])
        raise RuleError(
            f"{row}\nis wrong: {before} is {left[at]:g} and {after} is {right[at]:g} at {at}\n"
            f"with {filling}.\nState the condition that excludes this, or drop the row."
        )
    return int(finite.sum())
