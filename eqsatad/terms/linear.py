"""The one normalisation that happens outside the rules: linear arithmetic over integers.

An index expression is a constant plus integer multiples of *atoms*: axes, sizes, floor
quotients, minima, selects, reads, products of two of those. Two index expressions are equal as
linear forms exactly when they are the same `Linear`. ``x % m`` is ``x - m*(x // m)``, so a
remainder is never an atom when ``m`` is a literal. A size that is a multiple of ``m`` counts in
*units*, ``n == m * (n // m)``, so that its quotients and remainders by divisors of ``m`` are
exact. A quotient whose dividend starts with a negative coefficient is spelled
``-((m - 1 - x) // m)``, so that floor and ceiling of one term share an atom. Otherwise quotients
are simplified by rules only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from eqsatad.terms.nodes import Apply, Axis, Cast, Const, Expr, Size
from eqsatad.terms.ops import ADD, FLOORDIV, MOD, MUL, NEG, SUB
from eqsatad.terms.walk import postorder


@dataclass(frozen=True)
class Linear:
    """``const + sum(coef * atom)``; atoms are distinct, coefficients not 0, ordered by key."""

    const: int
    terms: tuple[tuple[int, Expr], ...]

    @staticmethod
    def build(const: int, terms: Iterable[tuple[int, Expr]]) -> Linear:
        """The form with equal atoms collected and zero coefficients dropped."""
        total: dict[Expr, int] = {}
        for coef, atom in terms:
            total[atom] = total.get(atom, 0) + coef
        kept = ((coef, atom) for atom, coef in total.items() if coef)
        return Linear(const, tuple(sorted(kept, key=lambda term: atom_order(term[1]))))

    def __add__(self, other: Linear) -> Linear:
        return Linear.build(self.const + other.const, (*self.terms, *other.terms))

    def __sub__(self, other: Linear) -> Linear:
        return self + other.scaled(-1)

    def scaled(self, factor: int) -> Linear:
        """``factor`` times this form."""
        if factor == 0:
            return Linear(0, ())
        return Linear(self.const * factor, tuple((c * factor, atom) for c, atom in self.terms))

    def coefficient(self, atom: Expr) -> int:
        """The coefficient of ``atom``, 0 when it does not occur."""
        return next((coef for coef, other in self.terms if other is atom), 0)

    def without(self, atom: Expr) -> Linear:
        """This form less its multiple of ``atom``."""
        return Linear(self.const, tuple(term for term in self.terms if term[1] is not atom))

    @cached_property
    def free(self) -> frozenset[Axis]:
        """The axes that occur anywhere in the form."""
        return frozenset[Axis]().union(*(atom.free for _, atom in self.terms))

    @property
    def affine(self) -> bool:
        """Whether every atom is an axis, a size or the unit of a size."""
        return all(not atom.children or is_unit(atom) for _, atom in self.terms)


def atom_order(atom: Expr) -> tuple[bool, str]:
    """Axes and sizes by name first, then compound atoms: the order in which sums print."""
    return (bool(atom.children), getattr(atom, "name", atom.key))


@lru_cache(maxsize=65536)
def linear(expr: Expr) -> Linear:
    """The linear form of an index expression."""
    results: dict[Expr, Linear] = {}
    for node in postorder(expr):
        if node.dtype == "index":
            results[node] = _form(node, results)
    return results[expr]


def _form(node: Expr, known: dict[Expr, Linear]) -> Linear:
    match node:
        case Size(_, _, multiple) if multiple > 1:
            return Linear(0, ((multiple, _unit(node)),))
        case Const(value, _) | Cast(Const(value, "int64" | "int32"), "index"):
            return Linear(value, ())
        case Apply(op, (a, b)) if op is ADD:
            return known[a] + known[b]
        case Apply(op, (a, b)) if op is SUB:
            return known[a] - known[b]
        case Apply(op, (a,)) if op is NEG:
            return known[a].scaled(-1)
        case Apply(op, (a, b)) if op is MUL:
            return _product(known[a], known[b])
        case Apply(op, (a, b)) if op in (FLOORDIV, MOD) and not known[b].terms:
            divisor = known[b].const
            floor = quotient(known[a], divisor)
            return floor if op is FLOORDIV else known[a] - floor.scaled(divisor)
        case Apply(op, args):
            return atom(
                Apply(op, tuple(expression(known[arg]) if arg in known else arg for arg in args))
            )
    return atom(node)


def atom(expr: Expr) -> Linear:
    """The form ``1 * expr``."""
    return Linear(0, ((1, expr),))


def _unit(size: Size) -> Expr:
    return Apply(FLOORDIV, (size, Const(size.multiple_of, "index")))


def is_unit(node: Expr) -> bool:
    """Whether ``node`` is ``n // m`` for a size ``n`` that is promised to be a multiple of m."""
    match node:
        case Apply(op, (Size(_, _, multiple), Const(divisor, _))) if op is FLOORDIV:
            return bool(multiple == divisor and multiple > 1)
    return False


def quotient(form: Linear, divisor: int) -> Linear:
    """The form of ``form // divisor`` for a literal divisor."""
    if divisor == 1:
        return form
    if whole := [term for term in form.terms if term[0] % divisor == 0 and is_unit(term[1])]:
        rest = Linear(form.const, tuple(term for term in form.terms if term not in whole))
        exact = [(coef // divisor, node) for coef, node in whole]
        return Linear.build(0, exact) + quotient(rest, divisor)
    if not form.terms:
        return Linear(form.const // divisor, ())
    if divisor > 1 and form.terms[0][0] < 0:
        flipped = Linear(divisor - 1, ()) - form
        return atom(Apply(FLOORDIV, (expression(flipped), Const(divisor, "index")))).scaled(-1)
    return atom(Apply(FLOORDIV, (expression(form), Const(divisor, "index"))))


def _product(a: Linear, b: Linear) -> Linear:
    if not a.terms or not b.terms:
        return b.scaled(a.const) if not a.terms else a.scaled(b.const)
    cross = [
        (ca * cb, Apply(MUL, tuple(sorted((x, y), key=atom_order))))
        for ca, x in a.terms
        for cb, y in b.terms
    ]
    singles = [*b.scaled(a.const).terms, *a.scaled(b.const).terms]
    return Linear.build(a.const * b.const, [*cross, *singles])


@lru_cache(maxsize=65536)
def expression(form: Linear) -> Expr:
    """The index expression that spells ``form``: positive terms first, no `NEG` unless alone."""
    result: Expr | None = None
    terms = map(_spelled, form.terms)
    ordered = sorted(terms, key=lambda term: (term[0] < 0, atom_order(term[1])))
    for coef, node in ordered:
        size = abs(coef)
        scaled = node if size == 1 else Apply(MUL, (Const(size, "index"), node))
        if result is None:
            result = scaled if coef > 0 else Apply(MUL, (Const(coef, "index"), node))
        else:
            result = Apply(ADD if coef > 0 else SUB, (result, scaled))
    if result is None:
        return Const(form.const, "index")
    if form.const:
        sign = ADD if form.const > 0 else SUB
        result = Apply(sign, (result, Const(abs(form.const), "index")))
    return result


def _spelled(term: tuple[int, Expr]) -> tuple[int, Expr]:
    """``term`` over the size itself where it is that many times a unit."""
    coef, node = term
    if is_unit(node) and isinstance(node, Apply) and isinstance(size := node.args[0], Size):
        whole, rest = divmod(coef, size.multiple_of)
        return term if rest else (whole, size)
    return term


def normal(expr: Expr) -> Expr:
    """``expr`` spelled in its linear normal form."""
    return expression(linear(expr))
