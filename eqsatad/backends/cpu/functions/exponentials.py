"""Exponentials, logarithms and what is made of them, for scalars and vectors, without branches.

Arguments are reduced to a small interval by exact steps (W. J. Cody and W. Waite, Software Manual
for the Elementary Functions, 1980), results there are polynomials, and near zeros of a function
its argument is added last (J.-M. Muller, Elementary Functions, 2016). Error bounds are in
`functions`.
"""

from __future__ import annotations

from math import log

from eqsatad.backends.cpu.code.text import Value, Writer, number
from eqsatad.backends.cpu.functions.floats import (
    FORMATS,
    at_least,
    at_most,
    avx512,
    fma,
    in_two_steps,
    minus_multiple,
    nearest,
    negated,
    one,
    parts,
    permuted,
    polynomial,
    power_of_two,
    signed,
    size_of,
    split,
    widest,
)
from eqsatad.backends.cpu.functions.floats import LOG2E as LOG2E_EXACT

LOG2E = float(LOG2E_EXACT)
# Beyond it, exp is infinite or zero.
EXP_LIMIT = {"float": 104.0, "double": 746.0}
# Below it tanh is a polynomial, and beyond the other 1 to the last bit.
TANH_BEND = 0.625
TANH_LIMIT = {"float": 9.5, "double": 19.5}
# Below it sinh is a polynomial.
SINH_BEND = 1.0
# erf is a polynomial below the first, 1 - exp(a polynomial) beyond, 1 from the others on.
ERF_BEND = 1.0
ERF_LIMIT = {"float": 4.0, "double": 6.0}
# The lesser size, with the sign of the first operand.
NEARER_TO_ZERO = Value("2", "i32")


def exp(w: Writer, x: Value) -> Value:
    return _quick_exp(w, x, 0)


def _quick_exp(w: Writer, x: Value, less: int) -> Value:
    """`_exp` with an error up to one unit of the last place; with AVX-512 that takes less time.

    There a table as long as a register shortens the polynomial (P. T. P. Tang, Table-driven
    implementation of the exponential function, 1989).
    """
    if not widest(w, x):
        return _exp(w, x, less)
    form, count = FORMATS[x.kind], x.lanes
    big = number(form.big / count, x.kind)
    shifted = fma(w, x, number(LOG2E, x.kind), big)
    whole = w.two("fsub", shifted, big)
    part = _kept_small(w, minus_multiple(w, x, whole, form.ln2))
    power = permuted(w, [2 ** (place / count) for place in range(count)], shifted)
    tail = fma(w, part, polynomial(w, "exp_fine", part), one(x))
    near = fma(w, w.two("fmul", power, part), tail, power)
    return avx512(w, "scalef", near, _less(w, whole, less))


def _exp(w: Writer, x: Value, less: int) -> Value:
    """``exp(x)`` over 2 to the power of ``less``."""
    form, limit = FORMATS[x.kind], EXP_LIMIT[x.kind]
    if not widest(w, x):
        x = at_least(w, at_most(w, x, limit), -limit)
    whole, bits = nearest(w, x, LOG2E, 2 * form.bias - less)
    part = minus_multiple(w, x, whole, form.ln2)
    if widest(w, x):
        near = _near_one(w, _kept_small(w, part))
        return avx512(w, "scalef", near, _less(w, whole, less))
    return in_two_steps(w, _near_one(w, part), bits)


def _kept_small(w: Writer, part: Value) -> Value:
    """``part`` or, where the argument is so far away that it is useless, 1: the exponent decides.

    By AVX-512; NaN is lost here, but not in the exponent.
    """
    return avx512(w, "range", part, one(part), NEARER_TO_ZERO)


def _less(w: Writer, whole: Value, less: int) -> Value:
    return w.two("fsub", whole, number(less, whole.kind)) if less else whole


def _near_one(w: Writer, part: Value) -> Value:
    """``exp(part)`` for half of ln2 or less."""
    tail = fma(w, part, polynomial(w, "exp", part), one(part))
    return fma(w, part, tail, one(part))


def _small_exp(w: Writer, x: Value) -> Value:
    """``exp(x)`` where neither that nor its reciprocal is as large as floats get."""
    if widest(w, x):
        return _quick_exp(w, x, 0)
    form = FORMATS[x.kind]
    whole, bits = nearest(w, x, LOG2E, form.bias)
    near = _near_one(w, minus_multiple(w, x, whole, form.ln2))
    return w.two("fmul", near, power_of_two(w, bits))


def expm1(w: Writer, x: Value) -> Value:
    form = FORMATS[x.kind]
    low, high = -log(2) * (form.mantissa + 3), log(2) * (form.bias + 1.25)
    limited = at_most(w, at_least(w, x, low), high)
    # Half of the power, since at the largest results the power itself is infinite.
    whole, bits = nearest(w, limited, LOG2E, form.bias - 1)
    part = minus_multiple(w, limited, whole, form.ln2)
    near = fma(w, w.two("fmul", part, part), polynomial(w, "exp", part), part)
    power = power_of_two(w, bits)
    half = fma(w, near, power, w.two("fsub", power, number(0.5, x.kind)))
    return signed(w, w.two("fadd", half, half), x)


def sinh(w: Writer, x: Value) -> Value:
    size = size_of(w, x)
    z = w.two("fmul", size, size)
    near = fma(w, w.two("fmul", z, size), polynomial(w, "sinh", z), size)
    half = _exp(w, size, 1)
    far = w.two("fsub", half, w.two("fdiv", number(0.25, x.kind), half))
    beyond = w.compare("fcmp ogt", size, number(SINH_BEND, x.kind))
    return signed(w, w.select(beyond, far, near), x)


def cosh(w: Writer, x: Value) -> Value:
    half = _quick_exp(w, size_of(w, x), 1)
    return w.two("fadd", half, w.two("fdiv", number(0.25, x.kind), half))


def log_(w: Writer, x: Value) -> Value:
    k, m = split(w, x)
    high, low = FORMATS[x.kind].ln2
    f, tail = _log_near_one(w, m)
    small = w.two("fadd", f, fma(w, k, number(low, x.kind), tail))
    return fma(w, k, number(high, x.kind), small)


def log2_(w: Writer, x: Value) -> Value:
    k, m = split(w, x)
    f, tail = _log_near_one(w, m)
    high, low = parts(LOG2E_EXACT, x.kind, 2)
    rest = fma(w, f, number(low, x.kind), w.two("fmul", tail, number(high, x.kind)))
    return w.two("fadd", fma(w, f, number(high, x.kind), k), rest)


def _log_near_one(w: Writer, m: Value) -> tuple[Value, Value]:
    """``f`` and ``t`` with ``log(m) = f + t`` and ``f = m - 1``, from 3/4 to 3/2.

    With ``s = f / (2 + f)``, ``log(m) = 2 atanh(s) = f - (f*f/2 - s*(f*f/2 + rest))``. A short
    polynomial in ``f`` takes less time than the division.
    """
    f = w.two("fsub", m, one(m))
    square = w.two("fmul", f, f)
    if m.kind == "float":
        rest = fma(w, f, polynomial(w, "log", f), number(-0.5, m.kind))
        return f, w.two("fmul", square, rest)
    s = w.two("fdiv", f, w.two("fadd", f, number(2, m.kind)))
    z = w.two("fmul", s, s)
    half = w.two("fmul", square, number(0.5, m.kind))
    rest = fma(w, z, polynomial(w, "atanh", z), half)
    return f, fma(w, s, rest, negated(w, half))


def log1p(w: Writer, x: Value) -> Value:
    """``log(u)`` with ``u = 1 + x``, and what ``u`` lost: that over ``u``."""
    u = w.two("fadd", x, one(x))
    lost = w.two("fsub", x, w.two("fsub", u, one(x)))
    more = w.two("fdiv", lost, u)
    more = w.select(w.compare("fcmp ord", more, more), more, number(0, x.kind))
    same = w.compare("fcmp oeq", u, one(x))
    return w.select(same, x, w.two("fadd", log_(w, u), more))


def tanh(w: Writer, x: Value) -> Value:
    size = size_of(w, x)
    z = w.two("fmul", size, size)
    near = fma(w, w.two("fmul", z, size), polynomial(w, "tanh", z), size)
    size = at_most(w, size, TANH_LIMIT[x.kind])
    power = _small_exp(w, w.two("fadd", size, size))
    share = w.two("fdiv", number(2, x.kind), w.two("fadd", power, one(x)))
    far = w.two("fsub", one(x), share)
    # NaN is not beyond the bend.
    beyond = w.compare("fcmp ogt", size, number(TANH_BEND, x.kind))
    return signed(w, w.select(beyond, far, near), x)


def sigmoid(w: Writer, x: Value) -> Value:
    small = _exp(w, negated(w, size_of(w, x)), 0)
    top = w.select(w.compare("fcmp oge", x, number(0, x.kind)), one(x), small)
    below = w.two("fadd", small, one(x))
    ratio = w.two("fdiv", top, below)
    # What rounding added to the divisor counts most where that is little more than 1.
    added = w.two("fsub", w.two("fsub", below, one(x)), small)
    return fma(w, ratio, added, ratio)


def softplus(w: Writer, x: Value) -> Value:
    zero = number(0, x.kind)
    positive = w.select(w.compare("fcmp olt", x, zero), zero, x)
    return w.two("fadd", positive, log1p(w, _exp(w, negated(w, size_of(w, x)), 0)))


def erf(w: Writer, x: Value) -> Value:
    size = at_most(w, size_of(w, x), ERF_LIMIT[x.kind])
    z = w.two("fmul", size, size)
    near = fma(w, size, polynomial(w, "erf", z), size)
    far = w.two("fsub", one(x), _small_exp(w, polynomial(w, "log_erfc", size)))
    beyond = w.compare("fcmp ogt", size, number(ERF_BEND, x.kind))
    return signed(w, w.select(beyond, far, near), x)
