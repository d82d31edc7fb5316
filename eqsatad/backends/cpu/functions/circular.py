"""Sine, cosine, tangent and their inverses, for scalars and vectors.

A multiple of pi/2 in three parts is taken from the argument with fused operations, so that the
first difference is exact (W. J. Cody and W. Waite, 1980; J.-M. Muller, Elementary Functions,
chapter 11). Where an argument is beyond `FAR`, which is tested once for all lanes, the C library
is called for those lanes. Error bounds are in `functions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsatad.backends.cpu.code.text import FLOAT_BITS, Value, Writer, number
from eqsatad.backends.cpu.functions.floats import (
    FORMATS,
    HALF_PI,
    exact_fma,
    fma,
    nearest,
    one,
    parts,
    polynomial,
    signed,
    size_of,
)

# Larger arguments are reduced by the C library: here the third part of pi/2 would be too short.
FAR = {"float": 2.0**15, "double": 2.0**20}


def sin(w: Writer, x: Value) -> Value:
    turn, sine, cosine = _reduced(w, x)
    result = w.select(_odd(w, turn), cosine, sine)
    result = _flipped(w, result, _second_bit(w, turn), x)
    return _unless_far(w, "sin", x, result)


def cos(w: Writer, x: Value) -> Value:
    turn, sine, cosine = _reduced(w, x)
    result = w.select(_odd(w, turn), sine, cosine)
    following = w.two("add", turn, number(1, turn.kind))
    result = _flipped(w, result, _second_bit(w, following))
    return _unless_far(w, "cos", x, result)


def tan(w: Writer, x: Value) -> Value:
    turn, sine, cosine = _reduced(w, x)
    odd = _odd(w, turn)
    ratio = w.two("fdiv", w.select(odd, cosine, sine), w.select(odd, sine, cosine))
    result = _flipped(w, ratio, _sign_bit(w, turn), x)
    return _unless_far(w, "tan", x, result)


def _reduced(w: Writer, x: Value) -> tuple[Value, Value, Value]:
    """``n``, and sine and cosine of ``r``, with ``|x| = n*pi/2 + r`` and the least such ``r``."""
    size = size_of(w, x)
    whole, turn = nearest(w, size, 1 / float(HALF_PI))
    r = size
    for share in parts(HALF_PI, x.kind, 3):
        r = exact_fma(w, whole, number(-share, x.kind), r)
    z = w.two("fmul", r, r)
    sine = fma(w, w.two("fmul", z, r), polynomial(w, "sin", z), r)
    rest = fma(w, z, polynomial(w, "cos", z), number(-0.5, x.kind))
    return turn, sine, fma(w, z, rest, one(x))


def _odd(w: Writer, turn: Value) -> Value:
    last = w.two("and", turn, number(1, turn.kind))
    return w.compare("icmp ne", last, number(0, turn.kind))


def _sign_bit(w: Writer, turn: Value) -> Value:
    """The last bit of ``turn`` where floats have their sign."""
    return w.two("shl", turn, number(_width(turn) - 1, turn.kind))


def _second_bit(w: Writer, turn: Value) -> Value:
    """The second to last bit of ``turn`` where floats have their sign."""
    moved = w.two("shl", turn, number(_width(turn) - 2, turn.kind))
    return w.two("and", moved, number(-(2 ** (_width(turn) - 1)), turn.kind))


def _width(integer: Value) -> int:
    return int(integer.kind[1:])


def _flipped(w: Writer, value: Value, *signs: Value) -> Value:
    """``value`` with its sign changed by each of ``signs``, floats or bits, that is set."""
    integer = FORMATS[value.kind].integer
    bits = _bits(w, value)
    for sign in signs:
        if sign.kind != integer:
            sign = _bits(w, sign)
            sign = w.two("and", sign, number(-(2 ** (FLOAT_BITS[value.kind] - 1)), integer))
        bits = w.two("xor", bits, sign)
    return w.convert("bitcast", bits, value.kind)


def _unless_far(w: Writer, name: str, x: Value, result: Value) -> Value:
    """``result``, or in lanes where ``x`` is far what the C library gives."""
    far = w.compare("fcmp ogt", size_of(w, x), number(FAR[x.kind], x.kind))
    here, there, done = w.label, w.fresh("far"), w.fresh("near")
    w.branch(w.over_lanes("or", far), there, done)
    w.begin(there)
    operands = ", ".join(each.typed for each in (x, result, far))
    # Out of line, so that the registers of the loop are only saved where this is run.
    call = f"call {x.type} @{_helper(w, name, x)}({operands}) noinline cold"
    exact = w.emit(call, x.kind, x.lanes)
    w.jump(done)
    w.begin(done)
    return w.choose([(here, result), (there, exact)])


def _helper(w: Writer, name: str, x: Value) -> str:
    """The function of ``x``, a result and which lanes are far, that corrects the result there."""
    full = f"far.{name}.{x.kind}.{x.lanes}"
    if full not in w.module.helpers:
        w.module.helpers.add(full)
        x, near = (Value(text, x.kind, x.lanes) for text in ("%x", "%near"))
        far = Value("%far", "i1", x.lanes)
        inner = Writer(w.module)
        result = inner.select(far, libm(inner, name, [x]), near)
        inner.finish(full, [x.typed, near.typed, far.typed], "internal ", result)
    return full


def atan(w: Writer, x: Value) -> Value:
    size = size_of(w, x)
    steep = w.compare("fcmp ogt", size, one(x))
    low, high = w.select(steep, one(x), size), w.select(steep, size, one(x))
    return signed(w, _angle(w, w.two("fdiv", low, high), steep), x)


def atan2(w: Writer, y: Value, x: Value) -> Value:
    (y, x), _ = w.level(y, x)
    up, wide = size_of(w, y), size_of(w, x)
    steep = w.compare("fcmp ogt", up, wide)
    low, high = w.select(steep, wide, up), w.select(steep, up, wide)
    # Of two zeros the slope is 0, of two infinite numbers 1.
    none = w.compare("fcmp oeq", high, number(0, x.kind))
    same = w.select(none, high, one(x))
    slope = w.select(w.compare("fcmp oeq", low, high), same, w.two("fdiv", low, high))
    angle = _angle(w, slope, steep)
    # By the sign, not by comparing with 0: the angle of a negative zero is pi.
    left = w.compare("icmp slt", _bits(w, x), number(0, FORMATS[x.kind].integer))
    return signed(w, w.select(left, _minus(w, 2, angle), angle), y)


def _angle(w: Writer, slope: Value, steep: Value) -> Value:
    """The arctangent of ``slope``, which is 1 or less, or where it is steep of 1 over that."""
    z = w.two("fmul", slope, slope)
    angle = fma(w, w.two("fmul", z, slope), polynomial(w, "atan", z), slope)
    return w.select(steep, _minus(w, 1, angle), angle)


def _minus(w: Writer, quarters: int, angle: Value) -> Value:
    """That many times pi/2 minus ``angle``."""
    high, low = parts(quarters * HALF_PI, angle.kind, 2)
    rest = w.two("fsub", angle, number(low, angle.kind))
    return w.two("fsub", number(high, angle.kind), rest)


def asin(w: Writer, x: Value) -> Value:
    far, sine, rest = _half_arcsine(w, size_of(w, x))
    angle = w.select(far, _minus_twice(w, 1, sine, rest), w.two("fadd", sine, rest))
    return signed(w, angle, x)


def acos(w: Writer, x: Value) -> Value:
    far, sine, rest = _half_arcsine(w, size_of(w, x))
    near = w.two("fadd", sine, rest)
    left = w.compare("fcmp olt", x, number(0, x.kind))
    far_angle = w.select(left, _minus_twice(w, 2, sine, rest), w.two("fadd", near, near))
    return w.select(far, far_angle, _minus(w, 1, signed(w, near, x)))


def _half_arcsine(w: Writer, size: Value) -> tuple[Value, Value, Value]:
    """Where ``size`` is over 1/2, and there half its arccosine, elsewhere its arcsine.

    As a sum of two numbers, of which the second is smaller.
    """
    half = number(0.5, size.kind)
    far = w.compare("fcmp ogt", size, half)
    share = fma(w, size, number(-0.5, size.kind), half)
    z = w.select(far, share, w.two("fmul", size, size))
    sine = w.select(far, w.intrinsic("sqrt", share), size)
    return far, sine, w.two("fmul", w.two("fmul", z, sine), polynomial(w, "asin", z))


def _minus_twice(w: Writer, quarters: int, large: Value, small: Value) -> Value:
    """That many times pi/2 minus twice ``large + small``."""
    high, low = parts(quarters * HALF_PI, large.kind, 2)
    two = number(-2, large.kind)
    rest = fma(w, small, two, number(low, large.kind))
    return w.two("fadd", fma(w, large, two, number(high, large.kind)), rest)


def _bits(w: Writer, x: Value) -> Value:
    return w.convert("bitcast", x, FORMATS[x.kind].integer)


def libm(w: Writer, name: str, args: Sequence[Value]) -> Value:
    """The function of the C library; it has no effect but its result."""
    full = name + ("f" if args[0].kind == "float" else "")
    return w.by_lane(full, args, " nounwind readnone willreturn")
