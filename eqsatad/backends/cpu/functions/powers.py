"""``x`` to the power of ``y``: two to the power of ``y`` times the logarithm of ``x``.

The product is needed to many more places than the result has. For float32 it is worked out in
double; for double the logarithm is a sum of two numbers, from Dekker's exact products and sums by
fused operations (T. J. Dekker, 1971; J.-M. Muller, Elementary Functions, chapters 4 and 11).
Special cases are those of C99, annex F.9.4.4. Error bounds are in `functions`.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan

from eqsatad.backends.cpu.code.text import Value, Writer, number
from eqsatad.backends.cpu.functions.floats import (
    FORMATS,
    LN2,
    LOG2E,
    at_least,
    at_most,
    exact_fma,
    fma,
    horner,
    nearest,
    negated,
    one,
    parts,
    polynomial,
    power_of_two,
    scaled,
    signed,
    size_of,
    split,
)
from eqsatad.backends.cpu.functions.polynomials import POLYNOMIALS

# Powers of 2 beyond it are infinite or zero.
EXPONENT_LIMIT = {"float": 160.0, "double": 1100.0}


def power(w: Writer, x: Value, y: Value) -> Value:
    (x, y), _ = w.level(x, y)
    size = size_of(w, x)
    result = {"float": _single, "double": _double}[x.kind](w, size, y)
    return _edges(w, x, y, result)


def _edges(w: Writer, x: Value, y: Value, result: Value) -> Value:
    """``result``, right for the size of ``x`` other than 1, made right for all ``x`` and ``y``."""
    zero, unit = number(0, x.kind), one(x)
    # A whole number is odd if its half is none; what is infinite is whole and even.
    whole = _is_whole(w, y)
    odd = w.two("and", whole, _not(w, _is_whole(w, w.two("fmul", y, number(0.5, x.kind)))))
    same = w.compare("fcmp oeq", size_of(w, x), unit)
    result = w.select(w.two("and", same, w.compare("fcmp ord", y, y)), unit, result)
    result = signed(w, result, w.select(odd, x, unit))
    finite = w.compare("fcmp ogt", x, number(-inf, x.kind))
    below = w.two("and", w.compare("fcmp olt", x, zero), finite)
    result = w.select(w.two("and", below, _not(w, whole)), number(nan, x.kind), result)
    certain = w.two("or", w.compare("fcmp oeq", y, zero), w.compare("fcmp oeq", x, unit))
    return w.select(certain, unit, result)


def _is_whole(w: Writer, y: Value) -> Value:
    return w.compare("fcmp oeq", w.intrinsic("floor", y), y)


def _not(w: Writer, test: Value) -> Value:
    return w.two("xor", test, Value("true", "i1"))


def _single(w: Writer, size: Value, y: Value) -> Value:
    """For float32, in double; not for a ``size`` of 1 where ``y`` is infinite."""
    k, m = (w.convert("fpext", each, "double") for each in split(w, size))
    s = w.two("fdiv", w.two("fsub", m, one(m)), w.two("fadd", m, one(m)))
    series = [2.0, *POLYNOMIALS["double"]["atanh_short"]]
    scaled_series = [float(LOG2E) * each for each in series]
    logarithm = fma(w, s, horner(w, w.two("fmul", s, s), scaled_series), k)
    exponent = w.two("fmul", w.convert("fpext", y, "double"), logarithm)
    limit = EXPONENT_LIMIT["float"]
    exponent = at_least(w, at_most(w, exponent, limit), -limit)
    whole, bits = nearest(w, exponent, 1.0, FORMATS["double"].bias)
    part = w.two("fmul", w.two("fsub", exponent, whole), number(float(LN2), "double"))
    tail = fma(w, part, polynomial(w, "exp_short", part), one(part))
    near = fma(w, part, tail, one(part))
    return w.convert("fptrunc", w.two("fmul", near, power_of_two(w, bits)), "float")


def _double(w: Writer, size: Value, y: Value) -> Value:
    """For double; not for a ``size`` of 1 where ``y`` is infinite."""
    high, low = _log2(w, size)
    exponent = w.two("fmul", y, high)
    rest = fma(w, y, low, exact_fma(w, y, high, negated(w, exponent)))
    limit = EXPONENT_LIMIT["double"]
    ordinary = w.compare("fcmp olt", size_of(w, exponent), number(limit, "double"))
    rest = w.select(ordinary, rest, number(0, "double"))
    exponent = at_least(w, at_most(w, exponent, limit), -limit)
    whole, bits = nearest(w, exponent, 1.0, 2 * FORMATS["double"].bias)
    scale, scale_low = (number(each, "double") for each in parts(LN2, "double", 2))
    fraction, lost = _sum(w, w.two("fsub", exponent, whole), rest)
    lost = fma(w, fraction, scale_low, w.two("fmul", lost, scale))
    part, low = _product(w, fraction, scale, lost)
    low = fma(w, w.two("fmul", part, part), polynomial(w, "exp", part), low)
    near, lost = _sum(w, one(part), part)
    return scaled(w, w.two("fadd", near, w.two("fadd", lost, low)), whole, bits)


def _log2(w: Writer, x: Value) -> tuple[Value, Value]:
    """The logarithm to base 2 as a sum of two doubles; the second is 0 where it is infinite.

    ``log(m) = 2*s + s*z*(2/3 + z*rest(z))`` with ``s = (m - 1) / (m + 1)`` and ``z = s*s``.
    """
    k, m = split(w, x)
    s, s_low = _quotient(w, m)
    z, z_low = _product(w, s, s, w.two("fmul", w.two("fadd", s, s), s_low))
    third, third_low = parts(Fraction(2, 3), x.kind, 2)
    rest = w.two("fmul", z, polynomial(w, "atanh_rest", z))
    c, c_low = _sum(w, number(third, x.kind), rest)
    c_low = w.two("fadd", c_low, number(third_low, x.kind))
    c, c_low = _product(w, z, c, fma(w, z, c_low, w.two("fmul", z_low, c)))
    u, u_low = _product(w, s, c, fma(w, s, c_low, w.two("fmul", s_low, c)))
    twice = w.two("fadd", s, s)
    h, h_low = _sum(w, twice, u)
    h_low = w.two("fadd", h_low, fma(w, s_low, number(2, x.kind), u_low))
    scale, scale_low = (number(each, x.kind) for each in parts(LOG2E, x.kind, 2))
    e, e_low = _product(w, h, scale, fma(w, h, scale_low, w.two("fmul", h_low, scale)))
    high, low = _sum(w, k, e)
    return high, w.two("fadd", low, e_low)


def _quotient(w: Writer, m: Value) -> tuple[Value, Value]:
    """``(m - 1) / (m + 1)`` as a sum of two numbers."""
    f, below = w.two("fsub", m, one(m)), w.two("fadd", m, one(m))
    lost = w.two("fsub", m, w.two("fsub", below, one(m)))
    inverse = w.two("fdiv", one(m), below)
    s = w.two("fmul", f, inverse)
    rest = exact_fma(w, negated(w, s), below, f)
    rest = fma(w, negated(w, s), lost, rest)
    return s, w.two("fmul", rest, inverse)


def _product(w: Writer, a: Value, b: Value, more: Value) -> tuple[Value, Value]:
    """``a * b + more`` as a sum of two numbers, where ``more`` is small."""
    high = w.two("fmul", a, b)
    return high, w.two("fadd", exact_fma(w, a, b, negated(w, high)), more)


def _sum(w: Writer, a: Value, b: Value) -> tuple[Value, Value]:
    """``a + b`` as a sum of two numbers, where ``a`` is 0 or the larger one."""
    high = w.two("fadd", a, b)
    return high, w.two("fadd", w.two("fsub", a, high), b)
