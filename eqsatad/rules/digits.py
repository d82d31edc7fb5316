"""Equations between digits of numbers whose bases are sizes: what rows say only of literal bases.

A quotient and the remainder that goes with it, both known, are one equation about what was divided.
An equation between two numbers of two digits, such as ``n*s + k == i*s + j`` with k and j below s,
holds where the digits are the same. Both leave an axis by itself, which the rows solve for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from eqsatad.rules.indices import ATLEAST, ZERO, Guard
from eqsatad.terms.linear import Linear, expression, linear
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Size
from eqsatad.terms.ops import FLOORDIV, MOD, MUL
from eqsatad.terms.polynomial import Polynomial, nonnegative, polynomial
from eqsatad.terms.ranges import interval


def compared(guards: Sequence[Guard]) -> list[Guard]:
    """Guards that hold where ``guards`` do, without the digits of what they are about."""
    left = list(guards)
    while (pair := next(_pairs(left), None)) is not None:
        whole, rest, above, below = pair
        left = [guard for guard in left if guard is not whole and guard is not rest]
        left += _number(above, _value(whole[1], above), _value(rest[1], below))
    return list(chain.from_iterable(map(_by_digits, left)))


def _pairs(guards: Sequence[Guard]) -> Iterator[tuple[Guard, Guard, Apply, Apply]]:
    """Equations that say a quotient by a size and its remainder, and what they say."""
    equations = [guard for guard in guards if guard[0] == ZERO]
    for rest in equations:
        for coef, below in rest[1].terms:
            match below:
                case Apply(op, (top, base)) if op is MOD and abs(coef) == 1 and _certain(base):
                    above = Apply(FLOORDIV, (top, base))
                    for whole in equations:
                        if whole is not rest and abs(whole[1].coefficient(above)) == 1:
                            yield whole, rest, above, below


def _certain(base: Expr) -> bool:
    """Whether ``base`` is a divisor everywhere."""
    return not isinstance(base, Const) and (interval(base)[0] or 0) > 0


def _value(form: Linear, atom: Expr) -> Linear:
    """What ``atom`` is where ``form`` is 0."""
    return form.without(atom).scaled(-form.coefficient(atom))


def _number(quotient: Apply, whole: Linear, rest: Linear) -> list[Guard]:
    """That the dividend of ``quotient`` has these digits."""
    top, base = map(linear, quotient.args)
    value = linear(Apply(MUL, (expression(whole), expression(base)))) + rest
    return [(ZERO, top - value), (ATLEAST, rest), (ATLEAST, base - Linear(1, ()) - rest)]


def _by_digits(guard: Guard) -> list[Guard]:
    """``guard`` as one equation for each digit; by itself if it has no two."""
    kind, form = guard
    if kind != ZERO or not any(isinstance(atom, Apply) for _, atom in form.terms):
        return [guard]
    terms = polynomial(expression(form))
    for base in _bases(terms):
        high = {atoms: left for atoms in terms if (left := _without(base, atoms)) is not None}
        above = _linear({left: terms[atoms] for atoms, left in high.items()})
        below = _linear({atoms: coef for atoms, coef in terms.items() if atoms not in high})
        last = _linear({base: 1}) - Linear(1, ())
        if all(nonnegative(expression(last + side)) for side in (below, below.scaled(-1))):
            found = ((ZERO, part) for part in (above, below) if part.terms or part.const)
            return list(chain.from_iterable(map(_by_digits, found)))
    return [guard]


def _bases(terms: Polynomial) -> list[tuple[Expr, ...]]:
    """The products of sizes that axes are multiplied with, those of most sizes first."""
    found = {
        tuple(atom for atom in atoms if isinstance(atom, Size)): None
        for atoms in terms
        if any(isinstance(atom, Axis) for atom in atoms)
    }
    return sorted(filter(None, found), key=len, reverse=True)


def _without(base: tuple[Expr, ...], atoms: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """What is left of a product without the factors ``base``; None if it does not have them."""
    left = list(atoms)
    for factor in base:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def _linear(terms: Polynomial) -> Linear:
    """The sum of ``terms`` as a linear form."""
    return sum(map(_term, terms.items()), Linear(0, ()))


def _term(term: tuple[tuple[Expr, ...], int]) -> Linear:
    atoms, coef = term
    product: Expr = Const(1, "index")
    for atom in atoms:
        product = Apply(MUL, (product, atom))
    return linear(product).scaled(coef)
