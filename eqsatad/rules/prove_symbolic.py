"""Claims proved by Z3: for all integers, with as many literals symbolic as it takes.

First every literal is symbolic. Where that leaves Z3 without an answer, each quotient becomes an
unknown between the bounds that define it, its *witness*, and quotients of one dividend are
related. Where that is not enough either, one or two literals take every small value of either sign
that their conditions allow, divisors first, since division by a number is what Z3 decides.
Questions are limited in steps of Z3, which are the same on every machine, and a claim as a whole
in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from eqsatad.errors import RefutedRuleError
from eqsatad.rules.literals import ARITHMETIC, evaluate_literal
from eqsatad.rules.prove_claims import Claim, Conclusion, divisors
from eqsatad.rules.prove_trials import counterexample
from eqsatad.rules.rule import LITERAL, Condition, Define, Known, Letter
from eqsatad.terms.nodes import Const, Expr, Select
from eqsatad.terms.walk import postorder

STEPS = 2_000_000
"""Steps of Z3 for one question."""
MOST_LITERALS = 2
PROBES = (3, 8)
"""Values with which a choice of literals is tried before all their values are."""


@dataclass(frozen=True)
class Found:
    """``method`` is one of ``symbolic`` and ``quotient witness``, names the literals that were run
    through, or is empty.
    """

    method: str
    cases: int


def prove(claim: Claim, z3: Any, seconds: float, largest: int) -> Found:
    """How ``claim`` was proved; `RefutedRuleError` with a counterexample if Z3 finds one.

    Literals that are run through are at most ``largest``, of either sign.
    """
    prover = _Prover(claim, z3, time.perf_counter() + seconds)
    for method, witnesses in (("symbolic", False), ("quotient witness", True)):
        if prover.run_through((), largest, witnesses=witnesses):
            return Found(method, 1)
    for chosen in _choices(claim):
        if cases := prover.run_through(chosen, largest):
            names = ", ".join(letter.name for letter in chosen)
            return Found(f"literals {names} to {largest}", cases)
    return Found("", 0)


def _choices(claim: Claim) -> Iterator[tuple[Letter, ...]]:
    """The literals to run through: one, then two, divisors before others."""
    literals = [letter for letter in claim.letters if letter.kind == LITERAL]
    under = {node for divisor in divisors(*claim.exprs) for node in postorder(divisor)}
    literals.sort(key=lambda letter: letter not in under)
    for size in range(1, min(MOST_LITERALS, len(literals)) + 1):
        yield from combinations(literals, size)


class _OutOfTimeError(Exception):
    """The seconds for a claim are over."""


class _Prover:
    """One claim, its questions to Z3 and the time there is for them."""

    def __init__(self, claim: Claim, z3: Any, deadline: float) -> None:
        self._claim = claim
        self._z3 = z3
        self._deadline = deadline

    def run_through(
        self, letters: tuple[Letter, ...], largest: int, *, witnesses: bool = False
    ) -> int:
        """The number of cases proved, one for each value of ``letters``; 0 where one was not."""
        probes = [dict.fromkeys(letters, value) for value in PROBES] if letters else []
        try:
            if not all(self._case(probe, witnesses) for probe in probes):
                return 0
            cases = [case for case in _values(letters, largest) if self._allowed(case)]
            return len(cases) if all(self._case(case, witnesses) for case in cases) else 0
        except _OutOfTimeError:
            return 0

    def _allowed(self, case: Mapping[Letter, int]) -> bool:
        """Whether no condition fails whatever the other letters are."""
        values: dict[Letter, int] = dict(case)
        for condition in self._claim.conditions:
            if isinstance(condition, Define):
                value = evaluate_literal(condition.value, _nothing, values)
                if value is not None:
                    values[condition.letter] = value
            elif evaluate_literal(condition, _nothing, values) is False:
                return False
        return True

    def _case(self, case: Mapping[Letter, int], witnesses: bool) -> bool:
        """Whether the claim is proved where the literals have the values of ``case``."""
        if time.perf_counter() > self._deadline:
            raise _OutOfTimeError
        translation = _Translation(self._z3, case, witnesses)
        try:
            given = [fact for c in self._claim.conditions for fact in translation.assumed(c)]
            return all(
                self._follows(given, translation, conclusion)
                for conclusion in self._claim.conclusions
            )
        except _NotLiteralError:
            return False
        except _NeverError:
            return True

    def _follows(self, given: list[Any], translation: _Translation, conclusion: Conclusion) -> bool:
        solver = self._z3.Solver()
        solver.set("rlimit", STEPS)
        solver.add(self._z3.Not(translation(conclusion.holds)), *given, *translation.facts)
        answer = solver.check()
        if answer == self._z3.sat:
            values, known = translation.read(solver.model(), self._claim)
            raise RefutedRuleError(counterexample(self._claim, conclusion.otherwise, values, known))
        return bool(answer == self._z3.unsat)


def _values(letters: tuple[Letter, ...], largest: int) -> Iterator[dict[Letter, int]]:
    numbers = [sign * size for size in range(1, largest + 1) for sign in (1, -1)]
    for chosen in product(numbers, repeat=len(letters)):
        yield dict(zip(letters, chosen, strict=True))


def _nothing(_: Known) -> None:
    """What is known where terms have no values."""


class _NeverError(Exception):
    """The conditions of a claim cannot hold with the chosen literals."""


class _NotLiteralError(Exception):
    """An inverse or a common divisor of something whose value is open."""


class _Translation:
    """Expressions to Z3; ``facts`` collects what is known about intervals and quotients."""

    def __init__(self, z3: Any, chosen: Mapping[Letter, int], witnesses: bool) -> None:
        self._z3 = z3
        self._witnesses = witnesses
        self._quotients: list[tuple[Any, Any, Any]] = []
        self._made: dict[Expr, Any] = {letter: z3.IntVal(value) for letter, value in chosen.items()}
        self._assuming = False
        self.facts: list[Any] = []

    def __call__(self, expr: Expr) -> Any:
        for node in postorder(expr):
            if node not in self._made:
                self._made[node] = self._node(node)
        return self._made[expr]

    def assumed(self, condition: Condition) -> list[Any]:
        """A condition with the facts it brings; a row whose condition divides by 0 never fires."""
        self._assuming = True
        before = len(self.facts)
        if isinstance(condition, Define):
            value = self._z3.simplify(self(condition.value))
            holds = [] if self._z3.is_int_value(value) else [self(condition.letter) == value]
            if not holds:
                self._made[condition.letter] = value
        else:
            holds = [self(condition)]
        self._assuming = False
        return [*holds, *self.facts[before:]]

    def _node(self, node: Expr) -> Any:
        parts = [self._made[child] for child in node.children]
        match node:
            case Const(value, dtype):
                return self._z3.BoolVal(value) if dtype == "bool" else self._z3.IntVal(value)
            case Letter(name, kind, dtype):
                sort = self._z3.Bool if dtype == "bool" else self._z3.Int
                return sort(f"{name}:{kind}")
            case Select():
                return self._z3.If(*parts)
            case Known(function, _) if function in ARITHMETIC:
                return self._arithmetic(function, parts)
            case Known(function, _):
                return self._known(function, node, parts[0])
        return self._operations()[node.op.name](*parts)  # type: ignore[attr-defined]  # an Apply

    def _operations(self) -> dict[str, Callable[..., Any]]:
        z3 = self._z3
        return {
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
            "mul": lambda a, b: a * b,
            "neg": lambda a: -a,
            "floordiv": self._floor,
            "mod": lambda a, b: a - b * self._floor(a, b),
            "abs": z3.Abs,
            "min": lambda a, b: z3.If(a < b, a, b),
            "max": lambda a, b: z3.If(a < b, b, a),
            "eq": lambda a, b: a == b,
            "ne": lambda a, b: a != b,
            "lt": lambda a, b: a < b,
            "le": lambda a, b: a <= b,
            "gt": lambda a, b: a > b,
            "ge": lambda a, b: a >= b,
            "and": z3.And,
            "or": z3.Or,
            "not": z3.Not,
        }

    def _floor(self, dividend: Any, divisor: Any) -> Any:
        """Floor division; Z3 rounds like it for positive divisors only."""
        divisor = self._z3.simplify(divisor)
        if self._z3.is_int_value(divisor) and divisor.as_long() > 0:
            return dividend / divisor
        if self._assuming:
            self.facts.append(divisor != 0)
        if self._witnesses:
            return self._witness(dividend, divisor)
        return self._z3.If(divisor > 0, dividend / divisor, -dividend / -divisor)

    def _witness(self, dividend: Any, divisor: Any) -> Any:
        """A quotient as an unknown that is what it should be."""
        for above, below, known in self._quotients:
            if above.eq(dividend) and below.eq(divisor):
                return known
        z3, quotient = self._z3, self._z3.FreshInt("quotient")
        below_zero = z3.And(divisor * quotient >= dividend, dividend > divisor * (quotient + 1))
        self.facts.append(z3.Implies(divisor < 0, below_zero))
        self.facts.append(self._rounds_down(quotient, dividend, divisor))
        for above, below, known in self._quotients:
            if above.eq(dividend):
                self._nests(known, below, quotient, divisor)
                self._nests(quotient, divisor, known, below)
        self._quotients.append((dividend, divisor, quotient))
        return quotient

    def _rounds_down(self, quotient: Any, dividend: Any, divisor: Any) -> Any:
        """That ``quotient`` is the floor of a division by a positive divisor."""
        whole = divisor * quotient
        inside = self._z3.And(whole <= dividend, dividend < whole + divisor)
        return self._z3.Implies(divisor > 0, inside)

    def _nests(self, inner: Any, divisor: Any, outer: Any, product: Any) -> None:
        """Notes that ``x // (m * n)`` is ``(x // m) // n`` for positive m and n."""
        if (factor := self._other_factor(product, divisor)) is not None:
            nested = self._rounds_down(outer, inner, factor)
            self.facts.append(self._z3.Implies(divisor > 0, nested))

    def _other_factor(self, product: Any, factor: Any) -> Any:
        """What ``product`` multiplies ``factor`` by, if it is a product of the two."""
        parts = product.children() if self._z3.is_mul(product) else []
        for place, part in enumerate(parts):
            if part.eq(factor) and len(parts) == 2:
                return parts[1 - place]
        return None

    def _known(self, function: str, node: Expr, value: Any) -> Any:
        number = self._z3.Int(f"{function}:{node.key}")
        limits = {"low": number <= value, "high": number >= value, "extent": number >= 1}
        self.facts.append(limits[function])
        return number

    def _arithmetic(self, function: str, parts: list[Any]) -> Any:
        numbers = [self._z3.simplify(part) for part in parts]
        if not all(map(self._z3.is_int_value, numbers)):
            raise _NotLiteralError
        value = ARITHMETIC[function](*(number.as_long() for number in numbers))
        if value is None:
            raise _NeverError
        return self._z3.IntVal(value)

    def read(
        self, model: Any, claim: Claim
    ) -> tuple[dict[Letter, int], Callable[[Known], int | None]]:
        """The values of the letters in ``model``, and of what is known about them."""

        def number(node: Expr) -> int:
            value = model.eval(self(node), model_completion=True)
            return bool(value) if node.dtype == "bool" else int(value.as_long())

        nodes = postorder(*claim.exprs)
        named = [c.letter for c in claim.conditions if isinstance(c, Define)]
        letters = [node for node in nodes if isinstance(node, Letter)]
        return {letter: number(letter) for letter in (*letters, *named)}, number
