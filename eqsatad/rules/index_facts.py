"""What is known where an expression is simplified: bounds, assumptions, conditions around it.

A question is asked in three steps, the cheap ones first: the interval of a form, the values at a
fixed sample of points (one counterexample settles it), and isl, whose yes is a proof. What is not
affine is an unknown to isl. Nothing is decided by sampling but "no proof will be found".
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsatad.rules.index_forms import (
    FALSE,
    TRUE,
    Cond,
    Form,
    Node,
    both,
    factors,
    inside,
    is_zero,
    minus,
    negation,
    number,
    order,
    parts,
    plus,
    scaled,
    shifted,
    single,
    times,
)
from eqsatad.terms.presburger import empty_set, extremes

Interval = tuple[int | None, int | None]
Array = NDArray[Any]

POINTS = 160
"""Points at which questions are tried first."""
PRODUCTS = 10
"""Of how many inequalities the products are told to isl."""
DRAWS = 4000
"""Points that are drawn to find those that meet the assumptions."""


@dataclass
class Budget:
    """What one simplification may still spend: questions to isl, and proposals."""

    questions: int = 300
    proposals: int = 4000
    stopped: list[str] = field(default_factory=list)

    def ask(self) -> bool:
        """Whether one more question is allowed."""
        self.questions -= 1
        if self.questions == 0:
            self.stopped.append("questions")
        return self.questions > 0


class Facts:
    """Variables with bounds, and conditions that hold."""

    def __init__(
        self,
        bounds: Mapping[str, Interval],
        conds: tuple[Cond, ...],
        points: Points,
        budget: Budget,
    ) -> None:
        self.bounds = bounds
        self.conds = conds
        self.points = points
        self.budget = budget
        self._intervals: dict[Node, Interval] = {}
        self._decided: dict[Cond, bool | None] = {}
        self._under: dict[Cond, Facts] = {}

    @staticmethod
    def of(bounds: Mapping[str, Interval], assumed: Iterable[Cond], nodes: list[Node]) -> Facts:
        """The facts for simplifying ``nodes``."""
        conds: dict[Cond, None] = {}
        for cond in assumed:
            conds.update(dict.fromkeys(cond[1] if cond[0] == "and" else (cond,)))
        conds.pop(TRUE, None)
        # A quotient is taken where it is defined.
        conds.update(dict.fromkeys(part for node in nodes for part in _defined(node)))
        given = tuple(sorted(conds, key=order))
        known = dict(bounds)
        for cond in given:
            _tighten(known, cond)
        points = Points.drawn(known, given, [*nodes, *given])
        return Facts(known, given, points, Budget())

    def under(self, cond: Cond) -> Facts:
        """These facts where ``cond`` holds too."""
        if cond not in self._under:
            new = cond[1] if cond[0] == "and" else (cond,)
            new = tuple(part for part in new if part not in self.conds and part != TRUE)
            if not new:
                return self
            known = dict(self.bounds)
            for part in new:
                _tighten(known, part)
            points = self.points.where(cond)
            self._under[cond] = Facts(known, (*self.conds, *new), points, self.budget)
        return self._under[cond]

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
            if atom[0] == "mul" and (left := self._remainder(form, atom, coef)) is not None:
                return left
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
        limits = {0} if atom[0] == "ediv" else set[int]()
        if None in under:
            limits |= {0, -1} if atom[0] != "tdiv" else {0}
        limits |= {ROUNDED[atom[0]](x, d) for x in (low, high) for d in ends}
        limits |= {0} if low < 0 < high else set()
        return (min(limits), max(limits)) if limits else (None, None)

    def _corners(self, form: Form) -> Interval | None:
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

    def decide(self, cond: Cond) -> bool | None:
        """Whether ``cond`` always holds, never holds, or neither is known."""
        if cond in (TRUE, FALSE):
            return cond == TRUE
        if cond not in self._decided:
            self._decided[cond] = self._decide(cond)
        return self._decided[cond]

    def _decide(self, cond: Cond) -> bool | None:
        if cond in self.conds:
            return True
        if negation(cond) in self.conds:
            return False
        if (quick := self._by_interval(cond)) is not None:
            return quick
        values = self.points.value(cond)
        if values.all() and self.empty(negation(cond)):
            return True
        return False if not values.any() and self.empty(cond) else None

    def holds(self, cond: Cond) -> bool:
        """Whether ``cond`` is proved to hold."""
        if cond in (TRUE, FALSE):
            return cond == TRUE
        if self.points.refutes(cond):
            return False
        return self.decide(cond) is True

    def _by_interval(self, cond: Cond) -> bool | None:
        if cond[0] not in ("ge", "eq"):
            return None
        low, high = self.interval(cond[1])
        if cond[0] == "eq":
            if low == high == 0:
                return True
            return False if (low or 0) > 0 or (high or 0) < 0 else None
        if low is not None and low >= 0:
            return True
        return False if high is not None and high < 0 else None

    def same(self, left: Node, right: Node) -> bool:
        """Whether two forms, or two conditions, are proved to be equal."""
        if left == right:
            return True
        if left[0] == "+":
            return self.holds(is_zero(minus(left, right)))
        if not self.points.agree(left, right):
            return False
        return self.empty(both(left, negation(right))) and self.empty(both(negation(left), right))

    def empty(self, cond: Cond) -> bool:
        """Whether isl proves that ``cond`` never holds here."""
        if cond in (TRUE, FALSE):
            return cond == FALSE
        if not self.budget.ask():
            return False
        return empty_set(Question(self).asked((*self.conds, cond)))

    def extremes(self, form: Form) -> Interval:
        """The least and greatest value, by interval arithmetic and by isl."""
        low, high = self._corners(form) or self.interval(form)
        question = Question(self)
        value = question.form(form)
        text = question.asked(self.conds, f"value = {value}")
        dims = ", ".join(question.names.values())
        exists = f"exists ({dims} : {text})" if dims else text
        exact = extremes(f"{{ [value] : {exists} }}")
        lows = [end for end in (low, exact[0]) if end is not None]
        highs = [end for end in (high, exact[1]) if end is not None]
        return max(lows, default=None), min(highs, default=None)


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


def _defined(root: Node) -> Iterator[Cond]:
    """What must hold for ``root`` to have a value, apart from what is under a condition."""
    if root[0] in ("fdiv", "tdiv") and root[2][2]:
        yield negation(is_zero(root[2]))
    if root[0] not in ("and", "or"):
        for part in parts(root)[: 1 if root[0] == "sel" else None]:
            yield from _defined(part)


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


def _tighten(bounds: dict[str, Interval], cond: Cond) -> None:
    """Narrows the bounds of a variable by a comparison of it with a number."""
    if cond[0] not in ("ge", "eq") or len(cond[1][2]) != 1:
        return
    _, const, ((atom, coef),) = cond[1]
    if atom[0] != "v" or abs(coef) != 1:
        return
    low, high = bounds.get(atom[1], (None, None))
    if cond[0] == "eq" or coef == 1:
        low = -const * coef if low is None else max(low, -const * coef)
    if cond[0] == "eq" or coef == -1:
        end = const if coef == -1 else -const
        high = end if high is None else min(high, end)
    bounds[atom[1]] = low, high


class Question:
    """Conditions as text for isl; every unknown is a dimension."""

    def __init__(self, facts: Facts) -> None:
        self.names: dict[Node, str] = {}
        self._facts = facts
        self._known: list[str] = []
        self._text: dict[Node, str] = {}

    def asked(self, conds: Iterable[Cond], also: str = "") -> str:
        """The set of all unknowns where ``conds`` hold; with ``also``, its constraints alone."""
        held = tuple(conds)
        written = [self.cond(cond) for cond in held]
        if any(node[0] == "mul" for node in self.names):
            self._products(held)
        body = " and ".join([*self._known, *written, *([also] if also else [])]) or "true"
        return body if also else f"{{ [{', '.join(self.names.values())}] : {body} }}"

    def _products(self, conds: tuple[Cond, ...]) -> None:
        """What isl does not see in products: of two numbers that are at least 0, and squares.

        Only products of terms that the question speaks of already are added.
        """
        flat = [part for cond in conds for part in (cond[1] if cond[0] == "and" else (cond,))]
        least = [part[1] for part in flat if part[0] == "ge"]
        zero = [part[1] for part in flat if part[0] == "eq"]
        used = dict.fromkeys(part for node in self.names for part in factors(node))
        for part in used:
            low, high = self._facts.interval(single(part))
            least += [shifted(single(part), -low)] if low is not None else []
            least += [minus(number(high), single(part))] if high is not None else []
        least = list(dict.fromkeys(least))[:PRODUCTS]
        for place, left in enumerate(least):
            for right in least[place:]:
                self._add(times(left, right), ">=")
        for form in zero:
            for part in used:
                self._add(times(form, single(part)), "=")
        for node in list(self.names):
            parts = factors(node)
            if len(parts) % 2 == 0 and parts[::2] == parts[1::2]:
                self._add(single(node), ">=")

    def _add(self, form: Form, relation: str) -> None:
        if any(atom[0] == "mul" for atom, _ in form[2]) and all(
            atom in self._text for atom, _ in form[2]
        ):
            self._known.append(f"{self.form(form)} {relation} 0")

    def cond(self, cond: Cond) -> str:
        """``cond`` in isl's notation."""
        match cond[0]:
            case "true" | "false":
                return str(cond[0])
            case "b":
                return f"({self._unknown(cond)} = 1)"
            case "ge":
                return f"({self.form(cond[1])} >= 0)"
            case "eq":
                return f"({self.form(cond[1])} = 0)"
            case "not":
                return f"(not {self.cond(cond[1])})"
        return f"({f' {cond[0]} '.join(map(self.cond, cond[1]))})"

    def form(self, form: Form) -> str:
        """``form`` in isl's notation."""
        terms = [f"{coef}*{self._atom(atom)}" for atom, coef in form[2]]
        return f"({' + '.join([*terms, str(form[1])])})"

    def _atom(self, atom: Node) -> str:
        if atom not in self._text:
            self._text[atom] = self._written(atom)
        return self._text[atom]

    def _written(self, atom: Node) -> str:
        match atom[0]:
            case "floor":
                return f"floor({self.form(atom[1])}/{atom[2]})"
            case "min":
                return f"min({', '.join(map(self.form, atom[1]))})"
        name = self._unknown(atom)
        self._text[atom] = name
        self._describe(atom, name)
        return name

    def _unknown(self, node: Node) -> str:
        return self.names.setdefault(node, f"v{len(self.names)}")

    def _quotient(self, product: Form, top: Form, under: Form, unless: str = "") -> None:
        """``q * d <= x < q * d + d`` where the divisor is positive, the opposite where negative."""
        rest, by = self.form(minus(top, product)), self.form(under)
        self._known.append(f"({unless}{by} <= 0 or (0 <= {rest} and {rest} < {by}))")
        if not unless:
            self._known.append(f"({by} >= 0 or ({by} < {rest} and {rest} <= 0))")

    def _describe(self, atom: Node, name: str) -> None:
        """What is known about an unknown."""
        low, high = self._facts.interval(("+", 0, ((atom, 1),)))
        self._known += [f"{name} >= {low}"] if low is not None else []
        self._known += [f"{name} <= {high}"] if high is not None else []
        match atom:
            case ("sel", cond, then, other):
                test = self.cond(cond)
                self._known.append(
                    f"(({test} and {name} = {self.form(then)}) or "
                    f"((not {test}) and {name} = {self.form(other)}))"
                )
            case ("tdiv", top, under) if not under[2] and under[1] > 0:
                up, size = self.form(top), under[1]
                self._known.append(
                    f"(({up} >= 0 and {name} = floor({up}/{size})) or "
                    f"({up} < 0 and {name} = -1*floor((-1*{up})/{size})))"
                )
            case ("fdiv", top, under):
                self._quotient(times(single(atom), under), top, under)
            case ("tdiv", top, under):
                self._quotient(times(single(atom), under), top, under, f"{self.form(top)} < 0 or ")
            case ("emod", _, under):
                by = self.form(under)
                self._known.append(
                    f"({name} >= 0 and ({by} = 0 or {name} < {by} or {name} < -1*{by}))"
                )


class Points:
    """Values of the variables at points that meet the assumptions; nodes are evaluated once."""

    def __init__(self, values: dict[Node, Array], count: int) -> None:
        self.count = count
        self._values = values

    @staticmethod
    def drawn(
        bounds: Mapping[str, Interval], conds: tuple[Cond, ...], nodes: list[Node]
    ) -> Points:
        """A fixed sample, the same for the same question."""
        found = [node for root in nodes for node in inside(root)]
        names = dict.fromkeys(node for node in found if node[0] in ("v", "b"))
        source = random.Random(7)
        special = sorted({c for node in found for c in _literals(node)})[:24]
        draws = DRAWS if conds else POINTS
        columns = {
            node: np.array(
                [source.random() < 0.5 for _ in range(draws)]
                if node[0] == "b"
                else _column(source, bounds.get(node[1], (None, None)), special, draws)
            )
            for node in names
        }
        points = Points(dict(columns), draws)
        for cond in conds:
            points = points.where(cond)
        if points.count > POINTS:
            kept = {node: column[:POINTS] for node, column in points._values.items()
                    if node in names}
            points = Points(kept, POINTS)
        return points

    def where(self, cond: Cond) -> Points:
        """The points at which ``cond`` holds."""
        mask = self.value(cond)
        columns = {
            node: column[mask] for node, column in self._values.items() if node[0] in ("v", "b")
        }
        return Points(columns, int(mask.sum()) if self.count else 0)

    def value(self, node: Node) -> Array:
        """The values of ``node`` at all points."""
        if (found := self._values.get(node)) is None:
            self._values[node] = found = self._evaluate(node)
        return found

    def _evaluate(self, node: Node) -> Array:
        match node[0]:
            case "+":
                total = np.full(self.count, node[1], dtype=np.int64)
                for atom, coef in node[2]:
                    total = total + coef * self.value(atom)
                return total
            case "floor":
                return self.value(node[1]) // node[2]
            case "min":
                result = self.value(node[1][0])
                for arg in node[1][1:]:
                    result = np.minimum(result, self.value(arg))
                return result
            case "mul":
                result = self.value(node[1][0])
                for arg in node[1][1:]:
                    result = result * self.value(arg)
                return result
            case "sel":
                return np.where(*map(self.value, node[1:]))
            case "ge":
                return self.value(node[1]) >= 0
            case "eq":
                return self.value(node[1]) == 0
            case "not":
                return ~self.value(node[1])
            case "and":
                return np.logical_and.reduce([self.value(arg) for arg in node[1]])
            case "or":
                return np.logical_or.reduce([self.value(arg) for arg in node[1]])
            case "true" | "false":
                return np.full(self.count, node[0] == "true")
        return DIVISIONS[node[0]](self.value(node[1]), self.value(node[2]))

    def refutes(self, cond: Cond) -> bool:
        """Whether ``cond`` fails at a point."""
        return not self.value(cond).all()

    def agree(self, left: Node, right: Node) -> bool:
        """Whether two nodes have the same value at all points."""
        return bool(np.array_equal(self.value(left), self.value(right)))


def _euclid(top: Array, under: Array) -> Array:
    size = np.abs(under)
    safe = np.where(size == 0, 1, size)
    return np.where(under == 0, 0, np.sign(under) * (top // safe))


def _floor_divide(top: Array, under: Array) -> Array:
    return top // np.where(under == 0, 1, under)


def _truncate(top: Array, under: Array) -> Array:
    size = np.where(under == 0, 1, np.abs(under))
    sign = np.sign(top) * np.where(under < 0, -1, 1)
    return sign * (np.abs(top) // size)


def _euclid_rest(top: Array, under: Array) -> Array:
    return np.where(under == 0, 0, top - under * _euclid(top, under))


ROUNDED = {
    "fdiv": lambda x, d: x // d,
    "tdiv": lambda x, d: abs(x) // abs(d) * (1 if (x < 0) == (d < 0) else -1),
    "ediv": lambda x, d: x // d if d > 0 else -(x // -d),
}
"""Quotients of numbers, the divisor not 0."""

DIVISIONS = {
    "fdiv": _floor_divide,
    "tdiv": _truncate,
    "ediv": _euclid,
    "emod": _euclid_rest,
}


def _literals(node: Node) -> list[int]:
    """Numbers around which the value of ``node`` may change."""
    if node[0] in ("+",):
        return [node[1], -node[1], node[1] + 1, -node[1] - 1]
    return [node[2], -node[2]] if node[0] == "floor" else []


def _column(
    source: random.Random, bounds: Interval, special: list[int], count: int
) -> list[int]:
    low, high = bounds
    reach = 1 << 12
    if low is None:
        low = -reach if high is None else high - reach
    if high is None:
        high = low + 2 * reach
    if high < low:
        return [low] * count
    near = [value for value in special if low <= value <= high] or [low, high]
    column = []
    for place in range(count):
        kind = place % 8 if place > 1 else 8
        if kind == 8:
            value = low if place else high
        elif kind < 3:
            value = source.randint(max(low, min(-6, high)), min(high, max(9, low)))
        elif kind < 5:
            value = source.choice(near) + source.randint(-2, 2)
        elif kind == 5:
            value = source.randint(max(low, min(-60, high)), min(high, max(100, low)))
        else:
            value = source.randint(low, high)
        column.append(min(max(value, low), high))
    return column

