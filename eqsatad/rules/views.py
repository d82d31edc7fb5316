"""The relational view of linear forms: facts that let rows match sums modulo order.

`Facts` gives each form a number and collects the decompositions that patterns can ask for, with
the interval of every form that occurs. Nothing here decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from eqsatad.rules.bounds import Bounds
from eqsatad.rules.compile import Column
from eqsatad.rules.literals import inverse_modulo
from eqsatad.terms.linear import Linear, atom, is_unit, linear, quotient
from eqsatad.terms.nodes import Apply, Axis, Const, Expr
from eqsatad.terms.ops import FLOORDIV

FACTS_PER_RULE = 12


def quotient_parts(node: Expr) -> tuple[Linear, int] | None:
    """Dividend and divisor of a quotient by a literal; the unit of a size is none."""
    if is_unit(node):
        return None
    if isinstance(node, Apply) and node.op is FLOORDIV and isinstance(node.args[1], Const):
        return linear(node.args[0]), node.args[1].value
    return None


class Facts:
    """Facts about forms, to be inserted into one e-graph at once."""

    def __init__(self, bounds: Bounds, intervals: Iterable[Column]) -> None:
        """``intervals`` names the columns whose forms come with an end of their range."""
        self._bounds = bounds
        self._ends: dict[str, list[tuple[int, str]]] = {}
        for relation, column, end in sorted(intervals):
            self._ends.setdefault(relation, []).append((column, end))
        self._numbers: dict[Linear, int] = {}
        self._viewed: set[tuple[object, ...]] = set()
        self.forms: list[Linear] = []
        self.lines: dict[str, None] = {}

    def name(self, form: Linear) -> int:
        """The number of ``form`` in egglog; states its value if it is a literal."""
        number = self._numbers.get(form)
        if number is None:
            number = self._numbers[form] = len(self.forms)
            self.forms.append(form)
            if not form.terms:
                self.add("constant", number, form.const)
        return number

    def add(self, relation: str, *columns: int | str) -> None:
        """States one row of ``relation``, and the ends that rows want to know of its forms."""
        self.lines[f"({relation} {' '.join(map(str, columns))})"] = None
        self._state_ends(relation, columns)

    def question(self, head: str, *columns: int) -> str:
        """What is asked, as a term."""
        self._state_ends(head, columns)
        return f"({head} {' '.join(map(str, columns))})"

    def _state_ends(self, relation: str, columns: Sequence[int | str]) -> None:
        for column, side in self._ends.get(relation, ()):
            number = columns[column]
            assert isinstance(number, int), "a column of forms"
            end = self._bounds.end(self.forms[number], side)
            if end is not None:
                self.lines[f"({side} {number} {end})"] = None

    def _first(self, *view: object) -> bool:
        seen = view in self._viewed
        self._viewed.add(view)
        return not seen

    def quotient(self, form: Linear, divisor: int) -> str:
        """The question ``form // divisor``, with what rows may want to know about it."""
        name = self.name(form)
        factors = [abs(coef) for coef, _ in form.terms]
        for factor in divisors(divisor):
            if factor == divisor or any(coef % factor == 0 for coef in factors):
                self.split(form, factor)
        self.quotients(form)
        return self.question("Quotient", name, divisor)

    def split(self, form: Linear, factor: int) -> None:
        """``form = factor * x + y`` with the residues of ``y`` symmetric around 0."""
        whole, rest = divided(form, factor)
        if whole.terms or whole.const:
            self.add("split", self.name(form), factor, self.name(whole), self.name(rest))

    def quotients(self, form: Linear) -> None:
        """Each quotient in ``form``, taken out."""
        if not self._first("quotients", form):
            return
        for _, node in form.terms:
            if parts := quotient_parts(node):
                self.term(form, node)
                self.add("floored", self.name(atom(node)), self.name(parts[0]), parts[1])

    def term(self, form: Linear, node: Expr) -> None:
        """``form = c * node + rest``."""
        rest = form.without(node)
        names = self.name(atom(node)), self.name(rest)
        self.add("term", self.name(form), form.coefficient(node), *names)

    def axes(self, form: Linear, summed: Iterable[Axis]) -> None:
        """Each summed axis of ``form``, taken out, also inside quotients and remainders."""
        summed = tuple(summed)
        if not self._first("axes", form, summed):
            return
        for axis in summed:
            if form.coefficient(axis):
                self.term(form, axis)
        self.quotients(form)
        for coef, node in form.terms:
            parts = quotient_parts(node)
            if parts and node.free & frozenset(summed):
                self.axes(parts[0], summed)
                self._mixed(form, node, summed)
                self._remainder(form, coef, parts, summed)
        for axis in summed:
            self._absences(form, axis)

    def _mixed(self, form: Linear, node: Expr, summed: tuple[Axis, ...]) -> None:
        """The axes that ``form`` has both in the quotient ``node`` and outside of it."""
        for axis in summed:
            if axis in node.free and form.coefficient(axis):
                self.term(form.without(node), axis)
                self.quotients(form.without(axis))
                self._absences(form.without(node), axis)

    def _remainder(
        self, form: Linear, coef: int, parts: tuple[Linear, int], summed: tuple[Axis, ...]
    ) -> None:
        """``form = x % m + y`` where ``form`` holds ``-m * (x // m)``."""
        dividend, divisor = parts
        if coef != -divisor:
            return
        rest = form - dividend + quotient(dividend, divisor).scaled(divisor)
        self.add("residue", self.name(form), self.name(dividend), divisor, self.name(rest))
        for axis in summed:
            factor = dividend.coefficient(axis)
            if not factor:
                continue
            common = math.gcd(factor, divisor)
            self.add("gcd", factor, divisor, common)
            left, modulus = factor // common, divisor // common
            if (inverse := inverse_modulo(left, modulus)) is not None:
                self.add("inverse", left, modulus, inverse)
            self.split(dividend.without(axis), common)
            self._absences(rest, axis)

    def _absences(self, form: Linear, axis: Axis) -> None:
        """That ``axis`` is not in ``form``, or not in what is left without one of its terms."""
        holding = [node for _, node in form.terms if axis in node.free]
        if not holding:
            self.add("absent", self.name(form), self.name(atom(axis)))
        elif len(holding) == 1:
            self.add("absent", self.name(form.without(holding[0])), self.name(atom(axis)))

    def text(self) -> str:
        """Rules that insert everything; rules because that is much the fastest way.

        A few facts a rule: what egglog takes to prepare a rule grows with the square of its length.
        """
        lines = list(self.lines)
        chunks = [lines[n : n + FACTS_PER_RULE] for n in range(0, len(lines), FACTS_PER_RULE)]
        rules = (f"(rule () ({' '.join(chunk)}) :ruleset insert)" for chunk in chunks)
        return f"(ruleset insert) {' '.join(rules)} (run insert 1)"


def divisors(number: int) -> list[int]:
    """The divisors of ``number`` above 1."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)} - {1})


def divided(form: Linear, factor: int) -> tuple[Linear, Linear]:
    """``(x, y)`` with ``form = factor*x + y``: coefficients of y in (-factor/2, factor/2]."""
    pairs = [(_symmetric(coef, factor), node) for coef, node in form.terms]
    whole = Linear.build(form.const // factor, [(pair[0], node) for pair, node in pairs])
    rest = Linear.build(form.const % factor, [(pair[1], node) for pair, node in pairs])
    return whole, rest


def _symmetric(number: int, factor: int) -> tuple[int, int]:
    whole, rest = divmod(number, factor)
    return (whole + 1, rest - factor) if 2 * rest > factor else (whole, rest)
