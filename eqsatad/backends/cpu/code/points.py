"""Where expressions are worked out: points of the loops, which may stand for several neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eqsatad.backends.cpu.code.text import Value, splat
from eqsatad.terms.nodes import Axis

TRUE_LANE = Value("true", "i1")


@dataclass(frozen=True)
class Place:
    """Where an axis is: ``base + delta``, and ``lane`` more from each lane to the next.

    If ``room`` is given, so many values from the base on are inside of the axis.
    """

    base: Value
    delta: int = 0
    lane: int = 0
    room: int | None = None


@dataclass(frozen=True)
class Point:
    """Where expressions are worked out. Axes are ordered from the outermost loop.

    Only the lanes of ``mask`` count. ``tail`` is the mask of those inside of the lane axis, if a
    vector may stick out of it.
    """

    axes: Mapping[Axis, Place] = field(default_factory=dict)
    lanes: int = 0
    mask: Value | None = None
    tail: Value | None = None

    def at(self, axis: Axis, place: Place) -> Point:
        """The point inside a loop over ``axis``."""
        return replace(self, axes={**self.axes, axis: place})

    def by(self, lanes: int) -> Point:
        """The point with vectors of ``lanes``."""
        return replace(self, lanes=lanes)

    def under(self, mask: Value | None) -> Point:
        """The point where only the lanes of ``mask`` count."""
        return replace(self, mask=mask)

    @property
    def on(self) -> Value:
        """The lanes that count."""
        return self.mask or splat(TRUE_LANE, self.lanes)

    @property
    def copy(self) -> tuple[int, ...]:
        """Which of the points of a tile this is."""
        return tuple(place.delta for place in self.axes.values())


@dataclass(frozen=True)
class Address:
    """An element, or one per lane: ``stride`` apart, or at the vector ``offsets``."""

    base: str
    stride: int = 0
    offsets: Value | None = None


@dataclass(frozen=True)
class Local:
    """A local: a slot for each copy, of a tile over some of ``axes``, that has set it."""

    kind: str
    lanes: int
    axes: tuple[Axis, ...]
    slots: dict[tuple[int, ...], str] = field(default_factory=dict)
