"""What elementary functions are made of: formats, polynomials, powers of two, splitting.

Written for scalars and vectors alike. None of the arithmetic here may be reassociated: rounding
to an integer is ``(x + big) - big``. `exact_fma` rounds once everywhere, `fma` where that is
fast: on a CPU without such an instruction LLVM calls the C library for the former.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, nan

from eqsatad.backends.cpu.code.text import FLOAT_BITS, Value, Writer, number
from eqsatad.backends.cpu.functions.polynomials import POLYNOMIALS

HALF_PI = Fraction("1.570796326794896619231321691639751442098584699687552910487472296153908203")
LN2 = Fraction("0.693147180559945309417232121458176568075500134360255254120680009493393621970")
LOG2E = 1 / LN2
# Numbers are split into powers of two and what is at least this and below twice this.
LEAST = 0.75
# The most coefficients of polynomials that are added one after the other, and how many first
# ones always are.
CHAIN, EXACT = 8, 4
ALL_LANES, AS_USUAL = "-1", Value("4", "i32")


@dataclass(frozen=True)
class Format:
    """What the functions need to know of a float type.

    ``big`` added to a small number leaves its nearest integer in the last bits; ``tiny`` is the
    least number that is not subnormal; the first of ``ln2`` times an exponent is exact.
    """

    integer: str
    mantissa: int
    bias: int
    big: float
    tiny: float
    ln2: tuple[float, float]


_LN2_HIGH = 45426 / 65536
_LN2 = (_LN2_HIGH, float(LN2 - Fraction(_LN2_HIGH)))
FORMATS = {
    "float": Format("i32", 23, 127, 1.5 * 2.0**23, 2.0**-126, _LN2),
    "double": Format("i64", 52, 1023, 1.5 * 2.0**52, 2.0**-1022, _LN2),
}


def parts(value: Fraction, kind: str, count: int) -> tuple[float, ...]:
    """``count`` floats of ``kind`` that add up to ``value`` as nearly as possible."""
    found: list[float] = []
    for _ in range(count):
        found.append(rounded(float(value), kind))
        value -= Fraction(found[-1])
    return tuple(found)


def rounded(value: float, kind: str) -> float:
    """``value`` as a float of ``kind``."""
    code = "<f" if kind == "float" else "<d"
    return float(struct.unpack(code, struct.pack(code, value))[0])


def one(x: Value) -> Value:
    return number(1, x.kind)


def size_of(w: Writer, x: Value) -> Value:
    return w.intrinsic("fabs", x)


def negated(w: Writer, x: Value) -> Value:
    return w.emit(f"fneg {x.typed}", x.kind, x.lanes)


def signed(w: Writer, size: Value, x: Value) -> Value:
    """``size`` with the sign of ``x``."""
    return w.intrinsic("copysign", size, x)


def fma(w: Writer, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c``, rounded once or twice."""
    return w.intrinsic("fmuladd", a, b, c)


def exact_fma(w: Writer, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c``, rounded once."""
    return w.intrinsic("fma", a, b, c)


def horner(w: Writer, x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial with ``coefficients``, lowest first.

    The rest of a long one is ``even(x*x) + x * odd(x*x)``, so that more is under way at once
    (G. Estrin, 1960); its beginning is not, where rounding would count.
    """
    if len(coefficients) <= CHAIN:
        *lower, highest = coefficients
        result = number(highest, x.kind)
    else:
        lower, rest = list(coefficients[:EXACT]), coefficients[EXACT:]
        square = w.two("fmul", x, x)
        even, odd = (horner(w, square, rest[first::2]) for first in (0, 1))
        result = fma(w, odd, x, even)
    for coefficient in reversed(lower):
        result = fma(w, result, x, number(coefficient, x.kind))
    return result


def polynomial(w: Writer, name: str, x: Value) -> Value:
    """The polynomial ``name`` for the kind of ``x``."""
    return horner(w, x, POLYNOMIALS[x.kind][name])


def at_most(w: Writer, x: Value, limit: float) -> Value:
    """``x``, or ``limit`` if that is less; NaN stays NaN."""
    bound = number(limit, x.kind)
    return w.select(w.compare("fcmp olt", bound, x), bound, x)


def at_least(w: Writer, x: Value, limit: float) -> Value:
    """``x``, or ``limit`` if that is more; NaN stays NaN."""
    bound = number(limit, x.kind)
    return w.select(w.compare("fcmp ogt", bound, x), bound, x)


def nearest(w: Writer, x: Value, scale: float, offset: int = 0) -> tuple[Value, Value]:
    """The integer nearest to ``x * scale``, and bits that end in it plus ``offset``."""
    form = FORMATS[x.kind]
    big = number(form.big + offset, x.kind)
    shifted = fma(w, x, number(scale, x.kind), big)
    return w.two("fsub", shifted, big), w.convert("bitcast", shifted, form.integer)


def minus_multiple(w: Writer, x: Value, whole: Value, shares: Sequence[float]) -> Value:
    """``x`` minus ``whole`` times the sum of ``shares``, one after the other."""
    for share in shares:
        x = fma(w, whole, number(-share, x.kind), x)
    return x


def bits_of(value: Value) -> Value:
    """The bits of a float literal as an integer."""
    pattern = int(value.text, 16)
    if value.kind == "double":
        return Value(str(pattern), "i64")
    # float literals are spelled with the bits of the equal double
    exponent = (pattern >> 52 & 0x7FF) - 1023 + 127
    return Value(str(exponent << 23 | pattern >> 29 & 0x7FFFFF), "i32")


def power_of_two(w: Writer, biased: Value) -> Value:
    """The power of 2 whose exponent, with the bias, is in the last bits of ``biased``."""
    kind = "float" if biased.kind == "i32" else "double"
    form = FORMATS[kind]
    return w.convert("bitcast", w.two("shl", biased, number(form.mantissa, form.integer)), kind)


def widest(w: Writer, x: Value) -> bool:
    """Whether ``x`` fills a register of a CPU with AVX-512."""
    return w.module.vector == 64 and x.lanes * FLOAT_BITS[x.kind] == 512


def avx512(w: Writer, name: str, x: Value, *args: Value) -> Value:
    """An AVX-512 operation on all lanes, rounded as usual."""
    suffix = {"float": "ps", "double": "pd"}[x.kind]
    wide = (w.wide(arg, x.lanes) if arg.kind == x.kind else arg for arg in args)
    values = (x, *wide, x, Value(ALL_LANES, f"i{x.lanes}"), AS_USUAL)
    return w.call(f"llvm.x86.avx512.mask.{name}.{suffix}.512", values, x.kind, x.lanes)


def permuted(w: Writer, table: Sequence[float], x: Value) -> Value:
    """The number of ``table``, one for each lane, that the last bits of ``x`` say; AVX-512."""
    integer = FORMATS[x.kind].integer
    entries = ", ".join(number(each, x.kind).typed for each in table)
    values = (Value(f"<{entries}>", x.kind, x.lanes), w.convert("bitcast", x, integer))
    suffix = {"float": "sf", "double": "df"}[x.kind]
    return w.call(f"llvm.x86.avx512.permvar.{suffix}.512", values, x.kind, x.lanes)


def split(w: Writer, x: Value) -> tuple[Value, Value]:
    """``k`` and ``m`` with ``x = 2**k * m`` and ``m`` from 3/4 to below 3/2.

    ``k`` is infinite where x is 0 or infinite, and one of both is NaN where x is that or negative.
    """
    if widest(w, x):
        # From 3/4 to 3/2; the sign of zero is dropped, other negative numbers give NaN.
        mantissa = avx512(w, "getmant", x, Value("15", "i32"))
        below = avx512(w, "getexp", mantissa)
        return w.two("fsub", avx512(w, "getexp", x), below), mantissa
    form = FORMATS[x.kind]
    lift = form.mantissa + 2
    subnormal = w.compare("fcmp olt", x, number(form.tiny, x.kind))
    raised = w.select(subnormal, w.two("fmul", x, number(2.0**lift, x.kind)), x)
    bits = w.convert("bitcast", raised, form.integer)
    places = number(form.mantissa, form.integer)
    exponent = w.two("ashr", w.two("sub", bits, bits_of(number(LEAST, x.kind))), places)
    mantissa = w.convert("bitcast", w.two("sub", bits, w.two("shl", exponent, places)), x.kind)
    k = w.convert("sitofp", w.convert("trunc", exponent, "i32"), x.kind)
    k = w.select(subnormal, w.two("fsub", k, number(lift, x.kind)), k)
    zero, infinity = number(0, x.kind), number(inf, x.kind)
    k = w.select(w.compare("fcmp oeq", x, infinity), infinity, k)
    k = w.select(w.compare("fcmp oeq", x, zero), number(-inf, x.kind), k)
    valid = w.compare("fcmp oge", x, zero)
    return w.select(valid, k, number(nan, x.kind)), mantissa


def scaled(w: Writer, x: Value, whole: Value, bits: Value) -> Value:
    """``x`` times 2 to ``whole``; ``bits`` end in that plus twice the bias."""
    return avx512(w, "scalef", x, whole) if widest(w, x) else in_two_steps(w, x, bits)


def in_two_steps(w: Writer, x: Value, bits: Value) -> Value:
    """``x`` times the power of 2 whose exponent, plus twice the bias, is at the end of ``bits``.

    In two steps, because the power alone may be infinite or zero.
    """
    half = w.two("ashr", bits, number(1, bits.kind))
    for exponent in (half, w.two("sub", bits, half)):
        x = w.two("fmul", x, power_of_two(w, exponent))
    return x
