"""Proofs that a polynomial in axes and sizes is not negative, which isl cannot take.

A flattened index such as ``i*n + j`` stays in ``m*n`` elements because the extreme of an axis is
at one of its ends, and because ``n >= 1``. An axis in which the polynomial is linear is replaced
by the end at which it is least; a quotient that stands alone is multiplied out; what is left has
only sizes, and holds when all coefficients are at least 0 after ``n`` is written as ``1 + n'``.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Apply, Axis, Expr, Size
from eqsatad.terms.ops import FLOORDIV, MOD, MUL
from eqsatad.terms.ranges import interval

# A polynomial: the coefficient of every product of atoms, the atoms in order of their keys.
Polynomial = dict[tuple[Expr, ...], int]

# Eliminations in one proof.
STEPS = 32


@lru_cache(maxsize=4096)
def nonnegative(expr: Expr) -> bool:
    """Whether ``expr`` is proved to be at least 0 for all values of its axes and sizes."""
    form = polynomial(expr)
    for _ in range(STEPS):
        if all(isinstance(atom, Size) for atoms in form for atom in atoms):
            return _sizes_nonnegative(form)
        if (smaller := _eliminated(form)) is None:
            return False
        form = smaller
    return False


def polynomial(expr: Expr) -> Polynomial:
    """``expr`` multiplied out."""
    form = linear(expr)
    result: Polynomial = {(): form.const}
    for coef, atom in form.terms:
        result = _plus(result, {_factors(atom): coef})
    return result


def _factors(atom: Expr) -> tuple[Expr, ...]:
    if isinstance(atom, Apply) and atom.op is MUL:
        return _ordered((*_factors(atom.args[0]), *_factors(atom.args[1])))
    return (atom,)


def _ordered(atoms: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return tuple(sorted(atoms, key=lambda atom: atom.key))


def _plus(a: Polynomial, b: Polynomial) -> Polynomial:
    total = {atoms: a.get(atoms, 0) + b.get(atoms, 0) for atoms in (*a, *b)}
    return {atoms: coef for atoms, coef in total.items() if coef}


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    """The product of ``a`` and ``b``."""
    result: Polynomial = {}
    for (x, c), (y, d) in product(a.items(), b.items()):
        result = _plus(result, {_ordered((*x, *y)): c * d})
    return result


def _split(form: Polynomial, atom: Expr) -> tuple[Polynomial, Polynomial] | None:
    """``(a, b)`` with ``form = a * atom + b`` and ``atom`` in neither, None when there are none."""
    with_atom: Polynomial = {}
    without: Polynomial = {}
    for atoms, coef in form.items():
        if atoms.count(atom) > 1:
            return None
        if atom in atoms:
            with_atom[tuple(other for other in atoms if other is not atom)] = coef
        elif any(atom in _inside(other) for other in atoms):
            return None
        else:
            without[atoms] = coef
    return with_atom, without


def _inside(atom: Expr) -> frozenset[Expr]:
    return frozenset() if isinstance(atom, Axis | Size) else frozenset[Expr](atom.free)


def _eliminated(form: Polynomial) -> Polynomial | None:
    """A polynomial with one atom fewer that is at least 0 only if ``form`` is, None if stuck."""
    atoms = {atom for product_ in form for atom in product_ if not isinstance(atom, Size)}
    for atom in sorted(atoms, key=lambda atom: atom.key):
        if (parts := _split(form, atom)) is None:
            continue
        factor, rest = parts
        if any(not isinstance(other, Size) for others in factor for other in others):
            continue
        if (smaller := _at_worst(atom, factor, rest)) is not None:
            return smaller
    return None


def _at_worst(atom: Expr, factor: Polynomial, rest: Polynomial) -> Polynomial | None:
    match atom:
        case Axis(_, extent):
            span = _plus(polynomial(extent), {(): -1})
        case Apply(op, (a, b)) if op is MOD and (interval(b)[0] or 0) > 0:
            span = _plus(polynomial(b), {(): -1})
        case Apply(op, (a, b)) if op is FLOORDIV and (interval(b)[0] or 0) > 0:
            return _multiplied_out(polynomial(a), polynomial(b), factor, rest)
        case _:
            return None
    if _sizes_nonnegative(factor):
        return rest
    if _sizes_nonnegative({atoms: -coef for atoms, coef in factor.items()}):
        return _plus(rest, times(factor, span))
    return None


def _multiplied_out(
    top: Polynomial, divisor: Polynomial, factor: Polynomial, rest: Polynomial
) -> Polynomial | None:
    """``rest + q >= 0`` is ``top + rest*divisor >= 0``, ``rest - q >= 0`` the other inequality."""
    if factor == {(): 1}:
        return _plus(top, times(rest, divisor))
    if factor == {(): -1}:
        least = _plus(times(_plus(rest, {(): 1}), divisor), {(): -1})
        return _plus(least, times({(): -1}, top))
    return None


def _sizes_nonnegative(form: Polynomial) -> bool:
    shifted: Polynomial = {}
    for atoms, coef in form.items():
        # The product of (1 + n') is the sum over all ways of taking some of its n'.
        for chosen in product((False, True), repeat=len(atoms)):
            kept = tuple(atom for atom, keep in zip(atoms, chosen, strict=True) if keep)
            shifted = _plus(shifted, {kept: coef})
    return all(coef >= 0 for coef in shifted.values())
