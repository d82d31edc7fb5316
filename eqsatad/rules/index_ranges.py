"""Interval arithmetic on normal forms.

Each atom is taken for itself, except that what is left of a dividend is seen to be a remainder,
and that a form which is linear in each variable has its extremes at corners of their ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product

from eqsatad.rules.index_forms import Form, Node, factors, minus, plus, scaled, single, times

Interval = tuple[int | None, int | None]


class Ranges:
    """Interval arithmetic over variables with bounds."""

    def __init__(self, bounds: Mapping[str, Interval]) -> None:
        self.bounds = bounds
        self._intervals: dict[Node, Interval] = {}

    def interval(self, form: Form) -> Interval:
        """Between which numbers ``form`` lies, by interval arithmetic."""
        if (found := self._intervals.get(form)) is None:
            self._intervals[form] = found = self._interval(form)
        return found

    def _interval(self, form: Form) -> Interval:
        low: int | None = form[1]
        high: int | None = form[1]
        remainders = {a: c for a, c in form[2] if a[0] == "floor" and abs(c) > 1}
        for atom, coef in remainders.items():
            # c*(x // m) with x in the form: x % m lies in 0 .. m - 1.
            k, rest = divmod(-coef, atom[2])
            if rest == 0:
                left = minus(form, _scaled_rest(atom, k))
                if len(left[2]) < len(form[2]) - (len(atom[1][2]) > 0):
                    inner = self.interval(left)
                    span = sorted((0, k * (atom[2] - 1)))
                    return _sum(inner, (span[0], span[1]))
        for atom, coef in form[2]:
            if atom[0] == "mul" and (found := self._remainder(form, atom, coef)) is not None:
                return found
        for atom, coef in form[2]:
            one = self._atom(atom)
            span2 = _times(one, coef)
            low = None if low is None or span2[0] is None else low + span2[0]
            high = None if high is None or span2[1] is None else high + span2[1]
        return low, high

    def _remainder(self, form: Form, atom: Node, coef: int) -> Interval | None:
        """The interval of a form with ``x - d * (x // d)`` in it."""
        for part in atom[1]:
            if part[0] not in ("fdiv", "tdiv"):
                continue
            _, top, under = part
            lead = times(single(part), under)
            scale = dict(lead[2]).get(atom, 0)
            if not scale or coef % scale:
                continue
            k = -(coef // scale)
            rest = minus(plus(form, lead, k), scaled(top, k))
            if len(rest[2]) < len(form[2]) - (len(top[2]) > 0):
                span = self._rest(part[0], self.interval(top), self.interval(under))
                return _sum(self.interval(rest), _times(span, k))
        return None

    @staticmethod
    def _rest(name: str, top: Interval, under: Interval) -> Interval:
        """Between what ``x - d*q`` lies."""
        low, high = under
        if name == "tdiv":
            ends = [abs(end) - 1 for end in under if end is not None]
            size = max(ends) if len(ends) == 2 else None
            down = _least_size(size, None if top[0] is None else max(0, -top[0]))
            up = _least_size(size, None if top[1] is None else max(0, top[1]))
            return None if down is None else -down, up
        least = 0 if low is not None and low >= 0 else None if low is None else low + 1
        most = 0 if high is not None and high <= 0 else None if high is None else high - 1
        if low is not None and low >= 0 and top[0] is not None and top[0] >= 0:
            most = _least_size(most, top[1])
        return least, most

    def _atom(self, atom: Node) -> Interval:
        match atom[0]:
            case "v":
                return self.bounds.get(atom[1], (None, None))
            case "floor":
                low, high = self.interval(atom[1])
                return (
                    None if low is None else low // atom[2],
                    None if high is None else high // atom[2],
                )
            case "min":
                spans = [self.interval(arg) for arg in atom[1]]
                highs = [high for _, high in spans if high is not None]
                lows = [low for low, _ in spans if low is not None]
                return min(lows) if len(lows) == len(spans) else None, min(highs, default=None)
            case "sel":
                return _hull(self.interval(atom[2]), self.interval(atom[3]))
            case "mul":
                span: Interval = (1, 1)
                for part in atom[1]:
                    span = _product(span, self._atom(part))
                return span
            case "fdiv" | "tdiv" | "ediv" | "emod":
                return self._quotient(atom)
        return None, None

    def _quotient(self, atom: Node) -> Interval:
        top, under = self.interval(atom[1]), self.interval(atom[2])
        if atom[0] == "emod":
            ends = [abs(end) for end in under if end is not None]
            return 0, max(ends) if len(ends) == 2 else None
        low, high = top
        if low is None or high is None:
            return None, None
        # On one side of 0 a quotient is monotone in both, so its extremes are at the ends.
        ends = [end for end in under if end]
        ends += [end for end in (-1, 1) if _within(end, under)]
        limits = {0} if atom[0] == "ediv" and _within(0, under) else set[int]()
        for far, sign in zip(under, (-1, 1), strict=True):
            if far is None:
                limits |= {FAR[atom[0]](x, sign) for x in (low, high)}
        limits |= {ROUNDED[atom[0]](x, d) for x in (low, high) for d in ends}
        limits |= {0} if low < 0 < high else set()
        return (min(limits), max(limits)) if limits else (None, None)

    def corners(self, form: Form) -> Interval | None:
        """The extremes of a form that is linear in each variable: they are at corners."""
        spans: dict[Node, Interval] = {}
        for atom, _ in form[2]:
            found = factors(atom)
            if len(set(found)) < len(found) or any(part[0] != "v" for part in found):
                return None
            spans.update({part: self._atom(part) for part in found})
        bounded = all(None not in span for span in spans.values())
        if not bounded or len(spans) > CORNERS:
            return None
        values = list(_corner_values(form, spans))
        return min(values), max(values)


CORNERS = 8
"""Of how many variables every combination of ends is looked at."""


def _corner_values(form: Form, spans: dict[Node, Interval]) -> Iterator[int]:
    for ends in product(*spans.values()):
        at = dict(zip(spans, ends, strict=True))
        total = form[1]
        for atom, coef in form[2]:
            for part in factors(atom):
                coef *= at[part] or 0
            total += coef
        yield total


def _least_size(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else min(left, right)


def _within(value: int, span: Interval) -> bool:
    low, high = span
    return (low is None or low <= value) and (high is None or value <= high)


def _scaled_rest(atom: Node, k: int) -> Form:
    """``k * (x % m)`` written out, for the floor ``x // m``."""
    return plus(scaled(atom[1], k), single(atom, -k * atom[2]))


def _sum(left: Interval, right: Interval) -> Interval:
    return (
        None if left[0] is None or right[0] is None else left[0] + right[0],
        None if left[1] is None or right[1] is None else left[1] + right[1],
    )


def _times(span: Interval, factor: int) -> Interval:
    ends = [None if end is None else end * factor for end in span]
    return (ends[0], ends[1]) if factor >= 0 else (ends[1], ends[0])


def _hull(left: Interval, right: Interval) -> Interval:
    low = None if left[0] is None or right[0] is None else min(left[0], right[0])
    high = None if left[1] is None or right[1] is None else max(left[1], right[1])
    return low, high


def _product(left: Interval, right: Interval) -> Interval:
    if (1, 1) in (left, right):
        return right if left == (1, 1) else left
    if None not in left and None not in right:
        corners = [a * b for a in left for b in right if a is not None and b is not None]
        return min(corners), max(corners)
    if (left[0] or -1) >= 0 and (right[0] or -1) >= 0:
        return 0, None
    return (0, None) if left[0] == 0 == right[0] else (None, None)


FAR: dict[str, Callable[[int, int], int]] = {
    "fdiv": lambda x, sign: -1 if x * sign < 0 else 0,
    "tdiv": lambda x, sign: 0,
    "ediv": lambda x, sign: -sign if x < 0 else 0,
}
"""Quotients of numbers by divisors of a sign that are large enough."""
ROUNDED = {
    "fdiv": lambda x, d: x // d,
    "tdiv": lambda x, d: abs(x) // abs(d) * (1 if (x < 0) == (d < 0) else -1),
    "ediv": lambda x, d: x // d if d > 0 else -(x // -d),
}
"""Quotients of numbers, the divisor not 0."""
