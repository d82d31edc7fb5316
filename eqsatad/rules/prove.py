"""Machine checks of rows: a counterexample, or a proof and how far it goes.

Every row becomes one claim about integers: whatever the letters are, where the conditions hold,
so does the conclusion. Small values are tried first, which gives the smallest counterexample.
Then Z3 proves the claim for all integers with the literals symbolic; where it cannot, for all
integers with each choice of literals in 1..16. Without Z3 the trial is all there is, and the
proof says so. Value rows are checked over arrays, see `rules.prove_values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from eqsatad.errors import RuleError
from eqsatad.rules.catalog import AnyRow
from eqsatad.rules.compile import compile_domain, compile_index
from eqsatad.rules.literals import ARITHMETIC, OPERATIONS
from eqsatad.rules.prove_values import check_value_rule
from eqsatad.rules.rule import (
    LITERAL,
    TERM,
    Define,
    DomainRow,
    IndexRow,
    IntervalRow,
    Known,
    Letter,
)
from eqsatad.rules.value_rule import ValueRule
from eqsatad.terms.nodes import TRUE, Apply, Const, Expr
from eqsatad.terms.show import show
from eqsatad.terms.walk import postorder, substitute

TRIALS = 6_000
TIMEOUT = 2_000
"""Milliseconds for one question to Z3."""
LITERALS = range(1, 17)
SMALL_TERMS = (0, 1, -1, 2, -2, 3, 5, -4, 7)
SMALL_LITERALS = (1, 2, 3, -1, 4, -2, 6)


@dataclass(frozen=True)
class Proof:
    """That a row holds, and by what: ``symbolic``, ``literals 1..16``, ``trials`` or ``arrays``."""

    name: str
    method: str
    cases: int


@dataclass(frozen=True)
class Claim:
    """``hypotheses`` imply ``conclusions``, for integers; divisors are positive."""

    row: IndexRow | IntervalRow | DomainRow
    hypotheses: tuple[Expr, ...]
    conclusions: tuple[Expr, ...]

    @property
    def letters(self) -> list[Letter]:
        """The free letters, literals first, in order of first use."""
        nodes = postorder(*self.hypotheses, *self.conclusions)
        found = [node for node in nodes if isinstance(node, Letter)]
        return sorted(found, key=lambda letter: letter.kind != LITERAL)


def check(row: AnyRow) -> Proof:
    """The proof of ``row``; `RuleError` with the smallest counterexample found if it is wrong."""
    if isinstance(row, ValueRule):
        check_value_rule(row)
        return Proof(row.name, "arrays", 0)
    assert isinstance(row, IndexRow | IntervalRow | DomainRow)
    _well_formed(row)
    claim = CLAIMS[type(row)](row)
    tried = _try(claim)
    try:
        import z3
    except ImportError:
        return Proof(row.name, "trials", tried)
    return _proved(claim, z3, tried)


def _well_formed(row: IndexRow | IntervalRow | DomainRow) -> None:
    """Raises the error that compiling the row gives: an unbound letter, a wrong kind."""
    if isinstance(row, IndexRow):
        compile_index(row)
    elif isinstance(row, DomainRow):
        compile_domain(row)


# What a row claims -----------------------------------------------------------------------------


def _conditions(row: IndexRow | IntervalRow | DomainRow) -> list[Expr]:
    """The conditions of a row as hypotheses, a `Define` as an equation."""
    return [c.letter.equal(c.value) if isinstance(c, Define) else c for c in row.when]


def _index_claim(row: IndexRow) -> Claim:
    if row.before.dtype == "bool":
        same = (row.before & row.after) | (~row.before & ~row.after)
        return Claim(row, tuple(_conditions(row)), (same,))
    return Claim(row, tuple(_conditions(row)), (row.before.equal(row.after),))


def _interval_claim(row: IntervalRow) -> Claim:
    ends = (row.low <= row.pattern, row.pattern <= row.high)
    return Claim(row, tuple(_conditions(row)), ends)


def _domain_claim(row: DomainRow) -> Claim:
    """Both directions at once: every old point has its new point, every new point its old one."""
    if row.value is row.axis:
        before, after = conjoined(row.guards), conjoined(row.leaves or ())
        return Claim(row, tuple(_conditions(row)), ((before & after) | (~before & ~after),))
    leaves = row.leaves if row.leaves is not None else _put(row.guards, row, row.value)
    forth = conjoined((*leaves, *_in_range(row)))
    back = conjoined((*_put(row.guards, row, row.value), *_in_range(row)))
    new_to_old = ~forth | back
    old = conjoined((*row.guards, row.axis >= 0, row.axis < Known("extent", (row.axis,))))
    witness = _witness(row)
    found = [_at(leaf, row, witness) for leaf in leaves]
    found.append(_at(row.value, row, witness).equal(row.axis))
    if row.fresh:
        found += [witness >= 0, witness < row.fresh[1], _step(row).differs(0)]
    old_to_new = ~old | conjoined(found)
    return Claim(row, (*_conditions(row), *_fresh_range(row)), (new_to_old, old_to_new))


def conjoined(conds: Sequence[Expr]) -> Expr:
    """All of ``conds`` at once."""
    result: Expr = TRUE
    for cond in conds:
        result = cond if result is TRUE else result & cond
    return result


def _put(exprs: Sequence[Expr], row: DomainRow, value: Expr) -> tuple[Expr, ...]:
    return tuple(substitute(expr, {row.axis: value}) for expr in exprs)


def _in_range(row: DomainRow) -> tuple[Expr, Expr]:
    return row.value >= 0, row.value < Known("extent", (row.axis,))


def _fresh_range(row: DomainRow) -> list[Expr]:
    if row.fresh is None:
        return []
    axis, size = row.fresh
    return [axis >= 0, axis < size]


def _at(expr: Expr, row: DomainRow, value: Expr) -> Expr:
    return substitute(expr, {row.fresh[0]: value}) if row.fresh else expr


def _step(row: DomainRow) -> Expr:
    """How far ``value`` moves when the fresh axis moves by one."""
    zero, one = Const(0, "index"), Const(1, "index")
    return _at(row.value, row, one) - _at(row.value, row, zero)


def _witness(row: DomainRow) -> Expr:
    """The value of the fresh axis at which ``value`` is the old axis; ``value`` is linear in it."""
    zero = Const(0, "index")
    if row.fresh is None:
        return zero
    distance = row.axis - _at(row.value, row, zero)
    step = _step(row)
    # The step is a literal of either sign; Z3 and Python agree on division by positive numbers.
    return Known("exactly", (distance, step))


CLAIMS: dict[type, Callable[[Any], Claim]] = {
    IndexRow: _index_claim,
    IntervalRow: _interval_claim,
    DomainRow: _domain_claim,
}


# Small values ----------------------------------------------------------------------------------


def _try(claim: Claim) -> int:
    """The number of small fillings tried that meet the conditions; raises on a counterexample."""
    tried = 0
    for filling in islice(_fillings(claim), TRIALS):
        value = _evaluator(filling)
        if not all(value(condition) for condition in claim.hypotheses):
            continue
        tried += 1
        for conclusion in claim.conclusions:
            if value(conclusion) is False:
                raise RuleError(_counterexample(claim, filling, value))
    if not tried:
        raise RuleError(
            f"rule {claim.row.name}: its conditions are never met by small values. "
            "Loosen them, or take the rule out."
        )
    return tried


def _fillings(claim: Claim) -> Iterator[dict[Letter | Known, int]]:
    """Small values for all letters, the smallest sums first; intervals just wide enough."""
    letters = claim.letters
    defined = {c.letter for c in claim.row.when if isinstance(c, Define)}
    free = [letter for letter in letters if letter not in defined]
    pools = [SMALL_LITERALS if letter.kind == LITERAL else SMALL_TERMS for letter in free]
    ranked = sorted(product(*(range(len(pool)) for pool in pools)), key=sum)
    for width in (0, 1, 3):
        for places in ranked:
            yield {
                **{letter: pool[at] for letter, pool, at in zip(free, pools, places, strict=True)},
                Letter("width", TERM): width,
            }


def _evaluator(filling: Mapping[Any, int]) -> Callable[[Expr], Any]:
    values: dict[Any, Any] = dict(filling)
    width = filling[Letter("width", TERM)]

    def value(expr: Expr) -> Any:
        match expr:
            case Const(constant, _):
                return constant
            case Letter():
                return values.get(expr)
            case Known("low" | "high", (arg,)):
                inner = value(arg)
                return None if inner is None else inner + (width if expr.function == "high" else -width)
            case Known("extent", (axis,)):
                inner = values.get(axis)
                return None if inner is None else (inner + 1 + width if inner >= 0 else 1)
            case Known("exactly", (distance, step)):
                far, by = value(distance), value(step)
                return far // by if by and far % by == 0 else -1
            case Known(function, args):
                parts = [value(arg) for arg in args]
                return None if None in parts else ARITHMETIC[function](*parts)
            case Apply(op, (Letter() as letter, right)) if op.name == "eq" and letter not in values:
                values[letter] = value(right)
                return values[letter] is not None
            case Apply(op, args):
                parts = [value(arg) for arg in args]
                return None if None in parts else OPERATIONS[op.name](*parts)
        return None

    return value


def _counterexample(
    claim: Claim, filling: Mapping[Any, int], value: Callable[[Expr], Any]
) -> str:
    row = claim.row
    named = [f"{letter.name} = {value(letter)}" for letter in claim.letters]
    lines = [f"rule {row.name} is wrong: with {', '.join(named)}"]
    sides = {
        IndexRow: lambda: [("before", row.before), ("after", row.after)],  # type: ignore[union-attr]
        IntervalRow: lambda: [("pattern", row.pattern), ("low", row.low), ("high", row.high)],  # type: ignore[union-attr]
        DomainRow: lambda: [
            ("axis", row.axis),  # type: ignore[union-attr]
            ("value", row.value),  # type: ignore[union-attr]
            *((f"guard {n}", guard) for n, guard in enumerate(row.guards, 1)),  # type: ignore[union-attr]
        ],
    }
    for label, side in sides[type(row)]():
        lines.append(f"  {label}: {spelled(side)} is {value(side)}")
    return "\n".join(lines)


def spelled(expr: Expr) -> str:
    """A pattern in index notation."""
    return show(expr)


# Z3 --------------------------------------------------------------------------------------------


def _proved(claim: Claim, z3: Any, tried: int) -> Proof:
    defined = {c.letter for c in claim.row.when if isinstance(c, Define)}
    literals = [x for x in claim.letters if x.kind == LITERAL and x not in defined]
    arithmetic = any(
        isinstance(node, Known) and node.function in ARITHMETIC
        for node in postorder(*claim.hypotheses, *claim.conclusions)
    )
    if not arithmetic and _holds(claim, z3, {}) == z3.unsat:
        return Proof(claim.row.name, "symbolic", 1)
    cases = 0
    for signs in product((1, -1), repeat=len(literals)):
        for numbers in product(LITERALS, repeat=len(literals)):
            chosen = dict(zip(literals, (s * n for s, n in zip(signs, numbers, strict=True)), strict=True))
            answer = _holds(claim, z3, chosen)
            if answer == z3.unknown:
                return Proof(claim.row.name, "trials", tried)
            if answer == z3.sat:
                named = ", ".join(f"{letter.name} = {value}" for letter, value in chosen.items())
                raise RuleError(f"rule {claim.row.name} is wrong: Z3 finds a case with {named}")
            cases += 1
    return Proof(claim.row.name, "literals 1..16", cases)


def _holds(claim: Claim, z3: Any, chosen: Mapping[Letter, int]) -> Any:
    """Z3's answer to: is there a case in which the claim fails?"""
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT)
    translate = _Translation(z3, chosen)
    try:
        for condition in claim.row.when:
            if isinstance(condition, Define):
                translate.define(condition)
        facts = [translate(condition) for condition in claim.hypotheses]
        ends = [translate(conclusion) for conclusion in claim.conclusions]
    except _ImpossibleError:
        return z3.unsat
    solver.add(*facts, *translate.facts, z3.Not(z3.And(*ends)))
    return solver.check()


class _ImpossibleError(Exception):
    """The conditions of a row cannot hold with the chosen literals."""


class _Translation:
    """Expressions to Z3; ``facts`` collects what is known about intervals and divisors."""

    def __init__(self, z3: Any, chosen: Mapping[Letter, int]) -> None:
        self._z3 = z3
        self._chosen = dict(chosen)
        self._made: dict[Expr, Any] = {}
        self.facts: list[Any] = []

    def __call__(self, expr: Expr) -> Any:
        for node in postorder(expr):
            if node not in self._made:
                self._made[node] = self._node(node)
        return self._made[expr]

    def define(self, condition: Define) -> None:
        """Takes a named value as a number where it is one."""
        value = self._z3.simplify(self(condition.value))
        if self._z3.is_int_value(value):
            self._chosen[condition.letter] = value.as_long()

    def _node(self, node: Expr) -> Any:
        z3 = self._z3
        match node:
            case Const(value, dtype):
                return z3.BoolVal(value) if dtype == "bool" else z3.IntVal(value)
            case Letter(name, kind, _):
                if node in self._chosen:
                    return z3.IntVal(self._chosen[node])
                return z3.Int(f"{name}_{kind}")
            case Known(function, args):
                return self._known(function, node, [self._made[arg] for arg in args])
            case Apply(op, args):
                parts = [self._made[arg] for arg in args]
                if op.name in ("floordiv", "mod"):
                    self.facts.append(parts[1] > 0)
                return self._apply(op.name, parts)
        raise AssertionError(f"no pattern node: {node}")

    def _apply(self, name: str, parts: list[Any]) -> Any:
        z3 = self._z3
        table: dict[str, Callable[..., Any]] = {
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
            "mul": lambda a, b: a * b,
            "neg": lambda a: -a,
            "floordiv": lambda a, b: a / b,
            "mod": lambda a, b: a % b,
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
        return table[name](*parts)

    def _known(self, function: str, node: Expr, parts: list[Any]) -> Any:
        z3 = self._z3
        fresh = z3.Int(f"{function}_{node.key}")
        if function == "low":
            self.facts.append(fresh <= parts[0])
        elif function == "high":
            self.facts.append(fresh >= parts[0])
        elif function == "extent":
            self.facts += [fresh >= 1, parts[0] < fresh, parts[0] >= 0]
        elif function == "exactly":
            # The quotient where there is one; where the step does not divide, any number.
            self.facts.append(
                z3.Implies(z3.And(parts[1] != 0, z3.Exists([q := z3.Int("q!")], parts[0] == q * parts[1])),
                           parts[0] == fresh * parts[1])
            )
        else:
            numbers = [z3.simplify(part) for part in parts]
            if not all(z3.is_int_value(number) for number in numbers):
                raise AssertionError(f"{function} of something that is no literal")
            value = ARITHMETIC[function](*(number.as_long() for number in numbers))
            if value is None:
                raise _ImpossibleError
            return z3.IntVal(value)
        return fresh

