"""Elementary functions as branch-free LLVM IR, for scalars and vectors alike.

Branch-free, so that LLVM vectorises loops over them; from series whose remainder is below the
rounding error, with the argument reduced by exact steps. Errors against the exact value, in units
of the last place (tests/test_cpu.py): exp, expm1, log, log1p, log2, sigmoid 2.5; tanh, softplus 4.
Infinities, NaN and subnormal numbers come out as they should. Everything else calls libm.

None of the arithmetic here may be reassociated: rounding to an integer is ``(x + big) - big``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial, log, sqrt

from numpy.polynomial import Polynomial
from numpy.polynomial.chebyshev import chebpts1

from eqsatad.backends.cpu.text import FLOAT_BITS, Value, Writer, number


@dataclass(frozen=True)
class Format:
    """What the functions need to know of a float type.

    ``big`` added to a small number leaves its nearest integer in the last bits. ``ln2`` is split
    so that the first part times an exponent is exact. ``exp`` beyond ``exp_limit`` is infinite or
    zero, and ``exp_series`` is what it is made of near 0, see `_exponential`.
    """

    integer: str
    mantissa: int
    bias: int
    big: float
    ln2: tuple[float, float]
    exp_limit: float
    exp_series: tuple[float, ...]
    log_terms: int
    tiny: float


def _exponential(degree: int) -> tuple[float, ...]:
    """The polynomial of ``degree`` nearest to ``(exp(r) - 1 - r) / r**2`` for half of ln2 or less.

    Nearest but for a constant factor: it agrees with the series at Chebyshev's points.
    """
    places = log(2) / 2 * chebpts1(degree + 1)
    series = Polynomial([1 / factorial(term + 2) for term in range(degree + 10)])
    return tuple(map(float, Polynomial.fit(places, series(places), degree).convert().coef))


FORMATS = {
    "float": Format(
        integer="i32", mantissa=23, bias=127, big=1.5 * 2.0**23,
        ln2=(0.693359375, log(2) - 0.693359375), exp_limit=104.0, exp_series=_exponential(4),
        log_terms=6, tiny=2.0**-126,
    ),
    "double": Format(
        integer="i64", mantissa=52, bias=1023, big=1.5 * 2.0**52,
        ln2=(45426 / 65536, 1.42860682030941723212e-6), exp_limit=746.0,
        exp_series=_exponential(10), log_terms=12, tiny=2.0**-1022,
    ),
}  # fmt: skip


def exp(w: Writer, x: Value) -> Value:
    form = FORMATS[x.kind]
    limit = number(form.exp_limit, x.kind)
    size = w.intrinsic("fabs", x)
    size = w.select(w.compare("fcmp ogt", size, limit), limit, size)
    whole, bits, part = _reduced(w, w.intrinsic("copysign", size, x))
    tail = _fma(w, part, _horner(w, part, form.exp_series), _one(x))
    near = _fma(w, part, tail, _one(x))
    if (scaled := _scaled(w, near, whole)) is not None:
        return scaled
    # In two steps, because 2**exponent alone may be infinite or zero.
    half = w.two("ashr", bits, number(1, form.integer))
    for exponent in (half, w.two("sub", bits, half)):
        near = w.two("fmul", near, _power(w, exponent))
    return near


def _scaled(w: Writer, x: Value, exponent: Value) -> Value | None:
    """``x`` times 2 to the power of a whole float, where the CPU has an instruction for it."""
    suffix = {"float": "ps", "double": "pd"}[x.kind]
    if w.module.vector != 64 or x.lanes * FLOAT_BITS[x.kind] != 512:
        return None
    mask = Value("-1", f"i{x.lanes}")
    # All lanes count, rounded as usual.
    args = (x, exponent, x, mask, number(4, "i32"))
    return w.call(f"llvm.x86.avx512.mask.scalef.{suffix}.512", args, x.kind, x.lanes)


def expm1(w: Writer, x: Value) -> Value:
    form = FORMATS[x.kind]
    low, high = -log(2) * (form.mantissa + 3), log(2) * (form.bias + 1.25)
    _, bits, part = _reduced(w, _clamped(w, x, low, high))
    square = w.two("fmul", part, part)
    near = _fma(w, square, _horner(w, part, form.exp_series), part)
    # Half of the power, since at the largest results the power itself is infinite.
    power = _power(w, w.two("sub", bits, number(form.bias + 1, form.integer)))
    less = w.two("fsub", power, number(0.5, x.kind))
    half = _fma(w, near, power, less)
    return w.two("fmul", half, number(2, x.kind))


def log_(w: Writer, x: Value) -> Value:
    exponent, tail, lead = _logarithm(w, x)
    high, low = FORMATS[x.kind].ln2
    small = w.two("fsub", tail, w.two("fmul", exponent, number(low, x.kind)))
    result = w.two("fsub", _fma(w, exponent, number(high, x.kind), lead), small)
    return _log_edges(w, x, result)


def log2_(w: Writer, x: Value) -> Value:
    exponent, tail, lead = _logarithm(w, x)
    natural = w.two("fsub", lead, tail)
    scale = 1 / log(2)
    coarse = _rounded(scale, x.kind)
    fraction = _fma(
        w, natural, number(coarse, x.kind),
        w.two("fmul", natural, number(scale - coarse, x.kind)),
    )  # fmt: skip
    return _log_edges(w, x, w.two("fadd", exponent, fraction))


def log1p(w: Writer, x: Value) -> Value:
    """``log(u) * x / (u - 1)`` with ``u = 1 + x``: the two roundings of u cancel."""
    one = _one(x)
    u = w.two("fadd", x, one)
    ratio = w.two("fdiv", x, w.two("fsub", u, one))
    result = w.two("fmul", log_(w, u), ratio)
    same = w.compare("fcmp oeq", u, one)
    infinite = w.compare("fcmp oeq", x, number(float("inf"), x.kind))
    return w.select(w.two("or", same, infinite), x, result)


def tanh(w: Writer, x: Value) -> Value:
    size = w.intrinsic("fabs", x)
    # Beyond the limit the result is 1 to the last bit.
    limit = 0.5 * log(2) * (FORMATS[x.kind].mantissa + 3)
    beyond = w.compare("fcmp ogt", size, number(limit, x.kind))
    size = w.select(beyond, number(limit, x.kind), size)
    grown = expm1(w, w.two("fadd", size, size))
    result = w.two("fdiv", grown, w.two("fadd", grown, number(2, x.kind)))
    return w.intrinsic("copysign", w.select(beyond, _one(x), result), x)


def sigmoid(w: Writer, x: Value) -> Value:
    small = exp(w, _minus_size(w, x))
    top = w.select(w.compare("fcmp oge", x, number(0, x.kind)), _one(x), small)
    return w.two("fdiv", top, w.two("fadd", small, _one(x)))


def softplus(w: Writer, x: Value) -> Value:
    zero = number(0, x.kind)
    positive = w.select(w.compare("fcmp ogt", x, zero), x, zero)
    return w.two("fadd", positive, log1p(w, exp(w, _minus_size(w, x))))


def libm(w: Writer, name: str, args: Sequence[Value]) -> Value:
    """The function of the C library; it has no effect but its result."""
    full = name + ("f" if args[0].kind == "float" else "")
    return w.by_lane(full, args, " nounwind readnone willreturn")


def _minus_size(w: Writer, x: Value) -> Value:
    size = w.intrinsic("fabs", x)
    return w.emit(f"fneg {size.typed}", size.kind, size.lanes)


def _one(x: Value) -> Value:
    return number(1, x.kind)


def _rounded(value: float, kind: str) -> float:
    """The leading bits of ``value``: as many as leave a product with it nearly exact."""
    scale = 2.0 ** (11 if kind == "float" else 26)
    return round(value * scale) / scale


def _fma(w: Writer, a: Value, b: Value, c: Value) -> Value:
    return w.intrinsic("fmuladd", a, b, c)


def _clamped(w: Writer, x: Value, low: float, high: float) -> Value:
    """``x`` within limits; NaN stays NaN."""
    for code, limit in (("fcmp olt", number(low, x.kind)), ("fcmp ogt", number(high, x.kind))):
        x = w.select(w.compare(code, x, limit), limit, x)
    return x


def _reduced(w: Writer, x: Value) -> tuple[Value, Value, Value]:
    """``n``, an integer with ``n`` plus twice the bias in its last bits, and ``x - n*ln2``."""
    form = FORMATS[x.kind]
    big = number(form.big + 2 * form.bias, x.kind)
    shifted = _fma(w, x, number(1 / log(2), x.kind), big)
    whole = w.two("fsub", shifted, big)
    part = x
    for share in form.ln2:
        part = _fma(w, whole, number(-share, x.kind), part)
    return whole, w.convert("bitcast", shifted, form.integer), part


def _horner(w: Writer, x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial with ``coefficients``, lowest first."""
    *lower, highest = coefficients
    result = number(highest, x.kind)
    for coefficient in reversed(lower):
        result = _fma(w, result, x, number(coefficient, x.kind))
    return result


def _bits(literal: Value) -> Value:
    """The bits of a float literal as an integer."""
    pattern = int(literal.text, 16)
    if literal.kind == "double":
        return Value(str(pattern), "i64")
    # float literals are spelled with the bits of the equal double
    exponent = (pattern >> 52 & 0x7FF) - 1023 + 127
    return Value(str(exponent << 23 | pattern >> 29 & 0x7FFFFF), "i32")


def _power(w: Writer, biased: Value) -> Value:
    """The power of 2 whose exponent, with the bias, is in the last bits of ``biased``."""
    kind = "float" if biased.kind == "i32" else "double"
    form = FORMATS[kind]
    return w.convert("bitcast", w.two("shl", biased, number(form.mantissa, form.integer)), kind)


def _logarithm(w: Writer, x: Value) -> tuple[Value, Value, Value]:
    """``k``, ``t``, ``f`` with ``log(x) = k*ln2 + f - t``, where ``1 + f`` is x / 2**k near 1.

    With ``s = f / (2 + f)``, ``log(1 + f) = 2 atanh(s) = f - (f*f/2 - s*(f*f/2 + R))`` and R is
    the series ``2/3 s**2 + 2/5 s**4 + ...``.
    """
    form = FORMATS[x.kind]
    subnormal = w.compare("fcmp olt", x, number(form.tiny, x.kind))
    lift = form.mantissa + 2
    scaled = w.select(subnormal, w.two("fmul", x, number(2.0**lift, x.kind)), x)
    bits = w.convert("bitcast", scaled, form.integer)
    root = _bits(number(sqrt(0.5), x.kind))
    shifted = w.two("sub", bits, root)
    places = number(form.mantissa, form.integer)
    exponent = w.two("ashr", shifted, places)
    mantissa = w.two("sub", bits, w.two("shl", exponent, places))
    f = w.two("fsub", w.convert("bitcast", mantissa, x.kind), _one(x))
    k = w.convert("sitofp", w.convert("trunc", exponent, "i32"), x.kind)
    k = w.select(subnormal, w.two("fsub", k, number(lift, x.kind)), k)
    s = w.two("fdiv", f, w.two("fadd", f, number(2, x.kind)))
    z = w.two("fmul", s, s)
    series = [2 / (2 * term + 1) for term in range(1, form.log_terms)]
    rest = w.two("fmul", z, _horner(w, z, series))
    half = w.two("fmul", w.two("fmul", f, f), number(0.5, x.kind))
    return k, w.two("fsub", half, w.two("fmul", s, w.two("fadd", half, rest))), f


def _log_edges(w: Writer, x: Value, result: Value) -> Value:
    zero, infinity = number(0, x.kind), number(float("inf"), x.kind)
    result = w.select(w.compare("fcmp oeq", x, infinity), x, result)
    result = w.select(w.compare("fcmp oeq", x, zero), number(float("-inf"), x.kind), result)
    # Negative and NaN alike: the comparison is false for both.
    valid = w.compare("fcmp oge", x, zero)
    return w.select(valid, result, number(float("nan"), x.kind))
