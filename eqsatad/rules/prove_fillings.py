"""Small fillings of value rows: what each letter of a pattern may stand for.

A filling gives every letter a meaning over a box of one or two axes: a value letter an array over
one of the subsets of the axes, a condition a mask, a set letter a set of axes, a constant one of a
few numbers. Letters that are not `total` also take values that are no numbers, as a read out of
range or a division by 0 would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, product
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from eqsatad.rules.value_rule import AXES, CONDITION, CONSTANT, VALUE, Condition, Pattern, ValueRule
from eqsatad.terms.meaning import MEANING
from eqsatad.terms.ops import OPS

Array = NDArray[Any]
AxisSet = frozenset[int]
AxisSets = Mapping[str, AxisSet]
Box = tuple[int, ...]

BOXES: tuple[Box, ...] = ((2,), (2, 3), (1, 2), (3, 1))
SAMPLED_BOX = (2, 3, 2)
SAMPLES = 60
MOST = 4096
"""Ways to give letters a meaning that are all tried; of more than these there is a sample."""
NUMBERS = (-2.0, -1.0, 0.0, 0.5, 3.0)
FLOAT32 = (0.0, -0.0, 1.0, -1.0, 0.1, 1 / 3, -2.5, 1e-45, -1e-38, 1.5e38, 3e38, 3.1415927)
"""Where float32 rounds, runs over or under, or has two zeros."""
UNKNOWN = 0.1
"""How many of the values of a letter that is not total are no numbers."""


@dataclass(frozen=True)
class Filling:
    """What each letter stands for, over a box with ``extents``."""

    extents: Box
    axes: AxisSets
    arrays: Mapping[str, Array]
    constants: Mapping[str, float]
    dtype: str = "float64"

    def __str__(self) -> str:
        sets = [f"{name} = {_set(axes)}" for name, axes in self.axes.items()]
        sets = [text for text, name in zip(sets, self.axes, strict=True) if name not in self.arrays]
        numbers = [f"{name} = {value:g}" for name, value in self.constants.items()]
        arrays = [
            f"{name} over {_set(self.axes[name])} = {_text(array)}"
            for name, array in self.arrays.items()
        ]
        return f"extents {self.extents}: " + ", ".join((*sets, *numbers, *arrays))


def _set(axes: AxisSet) -> str:
    return "{" + ", ".join(f"i{axis}" for axis in sorted(axes)) + "}"


def _text(array: Array) -> str:
    squeezed = array.squeeze()
    if squeezed.ndim == 0:
        return str(squeezed) if squeezed.dtype == bool else f"{squeezed:g}"
    return np.array2string(squeezed, separator=", ").replace("\n", "")


def letters(before: Pattern) -> dict[str, Pattern]:
    """The letters of ``before`` by name."""
    return {part.name: part for part in before.walk() if part.op in KINDS}


KINDS = (VALUE, CONDITION, AXES, CONSTANT)


def fillings(
    row: ValueRule, before: Pattern, rng: Generator, dtype: str = "float64"
) -> Iterator[Filling]:
    """All fillings of ``before`` over one and two axes that meet the conditions, and some more."""
    for extents in BOXES:
        for axes in admitted(row, before, len(extents)):
            yield from filled(row, before, extents, axes, rng, dtype)
    many = list(_subsets(len(SAMPLED_BOX)))
    sets = _with_axes(before)
    for _ in range(SAMPLES):
        axes = {name: many[rng.integers(len(many))] for name in sets}
        if _meets(row, before, axes):
            yield from filled(row, before, SAMPLED_BOX, axes, rng, dtype)


@lru_cache(maxsize=64)
def admitted(row: ValueRule, before: Pattern, count: int) -> list[AxisSets]:
    """The choices of axes for the letters of ``before`` that the conditions of ``row`` admit."""
    sets = _with_axes(before)
    chosen = _choices(list(_subsets(count)), len(sets))
    found = (dict(zip(sets, choice, strict=True)) for choice in chosen)
    return [axes for axes in found if _meets(row, before, axes)]


def _choices(values: Sequence[Any], count: int) -> Iterable[Sequence[Any]]:
    """All ways to give ``count`` letters one of ``values``, or a sample where there are many."""
    if len(values) ** count <= MOST:
        return product(values, repeat=count)
    drawn = default_rng(0).integers(len(values), size=(MOST // 8, count))
    return [[values[n] for n in places] for places in drawn]


def filled(
    row: ValueRule, before: Pattern, extents: Box, axes: AxisSets, rng: Generator, dtype: str
) -> Iterator[Filling]:
    """Fillings over these axes with random arrays, one for each choice of constants."""
    names = [name for name, letter in letters(before).items() if letter.op == CONSTANT]
    for numbers in _choices(NUMBERS, len(names)):
        values = dict(zip(names, numbers, strict=True))
        if constants_fit(row, values):
            yield Filling(extents, axes, _arrays(row, before, extents, axes, rng, dtype), values,
                          dtype)  # fmt: skip


def constants_fit(row: ValueRule, values: Mapping[str, float]) -> bool:
    """Whether the constants are what the conditions of ``row`` ask for."""
    return all(values[c.letters[0].name] for c in row.when if c.kind == "nonzero")


def totals(row: ValueRule) -> set[str]:
    """The letters that have a finite value everywhere."""
    return {condition.letters[0].name for condition in row.when if condition.kind == "total"}


def shape(extents: Box, axes: AxisSet) -> Box:
    """The shape of an array over ``axes`` of a box."""
    return tuple(size if n in axes else 1 for n, size in enumerate(extents))


def _subsets(count: int) -> Iterator[AxisSet]:
    sizes = range(count + 1)
    chosen = chain.from_iterable(combinations(range(count), size) for size in sizes)
    return map(frozenset, chosen)


def _with_axes(before: Pattern) -> list[str]:
    """The letters that have an axis set: all but constants."""
    return [name for name, letter in letters(before).items() if letter.op != CONSTANT]


def _meets(row: ValueRule, before: Pattern, axes: AxisSets) -> bool:
    return _splits_well(before, axes) and all(
        HOLDS[condition.kind](condition, axes) for condition in row.when if condition.kind in HOLDS
    )


def _splits_well(before: Pattern, axes: AxisSets) -> bool:
    """Whether every ``S | T`` is a split: disjoint, and T not empty."""
    for part in before.walk():
        if part.op == "union":
            left, right = (axes[letter.name] for letter in part.parts)
            if left & right or not right:
                return False
    return True


def _pair(condition: Condition, axes: AxisSets) -> tuple[AxisSet, AxisSet]:
    first, second = (axes[letter.name] for letter in condition.letters)
    return first, second


def _apart(condition: Condition, axes: AxisSets) -> bool:
    first, second = _pair(condition, axes)
    return not first & second


def _lacks(condition: Condition, axes: AxisSets) -> bool:
    term, guard = _pair(condition, axes)
    return bool(guard - term)


def _single(condition: Condition, axes: AxisSets) -> bool:
    return len(axes[condition.letters[0].name]) == 1


HOLDS = {"absent": _apart, "disjoint": _apart, "lacks": _lacks, "single": _single}


def _arrays(
    row: ValueRule, before: Pattern, extents: Box, axes: AxisSets, rng: Generator, dtype: str
) -> dict[str, Array]:
    """Random meanings of the value and condition letters."""
    total = totals(row)
    result: dict[str, Array] = {}
    for name, letter in letters(before).items():
        if letter.op not in (VALUE, CONDITION):
            continue
        size = shape(extents, axes[name])
        if letter.op == CONDITION:
            result[name] = rng.random(size) < 0.5
            continue
        values = np.round(rng.normal(size=size) * 2, 2)
        if dtype == "float32":
            values = np.where(rng.random(size) < 0.5, rng.choice(FLOAT32, size), values)
        if name not in total:
            values = np.where(rng.random(size) < UNKNOWN, np.nan, values)
        result[name] = values.astype(dtype)
    return result


def meaning(part: Pattern, filling: Filling) -> Array:
    """The value of ``part``, an array over the box with size 1 where an axis is absent."""
    if part.op in (VALUE, CONDITION):
        return filling.arrays[part.name]
    if part.op in (CONSTANT, "number"):
        value = filling.constants[part.name] if part.op == CONSTANT else part.number
        return _constant(value, filling)
    if part.op == "sum":
        return _summed(_axes(part.parts[0], filling), meaning(part.parts[1], filling), filling)
    if part.op == "extent":
        sizes = (filling.extents[axis] for axis in _axes(part.parts[0], filling))
        return _constant(float(np.prod(list(sizes))), filling)
    values = [meaning(inner, filling) for inner in part.parts]
    if part.op == "guard":
        values.append(_constant(0.0, filling))
    if part.op in ("guard", "pick"):
        return np.where(*values)
    op = OPS[part.name] if part.op == "call" else OPS[part.op]
    return np.asarray(MEANING[op](*values)).astype(filling.dtype, copy=False)


def _constant(value: float, filling: Filling) -> Array:
    return np.full((1,) * len(filling.extents), value, filling.dtype)


def _axes(part: Pattern, filling: Filling) -> AxisSet:
    if part.op == "union":
        return _axes(part.parts[0], filling) | _axes(part.parts[1], filling)
    return filling.axes[part.name]


def _summed(axes: AxisSet, body: Array, filling: Filling) -> Array:
    whole = tuple(size if n in axes else body.shape[n] for n, size in enumerate(filling.extents))
    # A copy, so that numpy adds in the same order whatever the array was made of.
    terms = np.ascontiguousarray(np.broadcast_to(body, whole))
    return np.asarray(terms.sum(axis=tuple(sorted(axes)), keepdims=True))
