"""Operations on typed values: one row per `Op` and kind of operand, and conversions.

float16 and bfloat16 are stored narrow and computed in float32. Every operation is defined for
every operand, so that a value may be worked out where it is not needed: an integer division by
zero gives zero, a float without an integer the nearest one, NaN gives zero.
"""

from __future__ import annotations

import numpy as np

from eqsatad.backends.cpu.code.text import FLOAT_BITS, Value, Writer, number
from eqsatad.backends.cpu.functions.table import FUNCTIONS, Emit
from eqsatad.backends.storage import from_bits, to_bits
from eqsatad.terms import ops
from eqsatad.terms.ops import Op

# What a dtype is computed in, and what it is stored as.
COMPUTED = {
    "float64": "double", "float32": "float", "float16": "float", "bfloat16": "float",
    "int64": "i64", "int32": "i32", "bool": "i1", "index": "i64",
}  # fmt: skip
STORED = COMPUTED | {"float16": "half", "bfloat16": "i16", "bool": "i8"}
BYTES = {"double": 8, "float": 4, "half": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1}


def constant(value: object, dtype: str) -> Value:
    """A literal of ``dtype``, rounded to it."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            value = float(np.float16(value))  # type: ignore[arg-type]  # a literal is a number
    if dtype == "bfloat16":
        value = _bfloat16(float(value))  # type: ignore[arg-type]  # a literal is a number
    return number(value, COMPUTED[dtype])  # type: ignore[arg-type]  # a literal is a number


def _bfloat16(value: float) -> float:
    return float(from_bits(to_bits(np.array([value], "float32")))[0])


def widened(w: Writer, value: Value, dtype: str) -> Value:
    """A stored value as it is computed with."""
    if dtype == "bfloat16":
        bits = w.two("shl", w.convert("zext", value, "i32"), number(16, "i32"))
        return w.convert("bitcast", bits, "float")
    if dtype == "float16":
        return w.convert("fpext", value, "float") if w.module.half else _from_half(w, value)
    if dtype == "bool":
        return w.compare("icmp ne", value, number(0, "i8"))
    return value


def narrowed(w: Writer, value: Value, dtype: str) -> Value:
    """A computed value as it is stored."""
    if dtype == "bfloat16":
        return _rounded_bits(w, value)
    if dtype == "float16":
        return w.convert("fptrunc", value, "half") if w.module.half else _to_half(w, value)
    if dtype == "bool":
        return w.convert("zext", value, "i8")
    return value


def _rounded_bits(w: Writer, value: Value) -> Value:
    """The upper half of a float, rounded to the nearest, ties to even; NaN stays NaN."""
    bits = w.convert("bitcast", value, "i32")
    sixteen = number(16, "i32")
    upper = w.two("lshr", bits, sixteen)
    tie = w.two("add", w.two("and", upper, number(1, "i32")), number(0x7FFF, "i32"))
    rounded = w.two("lshr", w.two("add", bits, tie), sixteen)
    quiet = w.two("or", upper, number(0x40, "i32"))
    nan = w.compare("fcmp uno", value, value)
    return w.convert("trunc", w.select(nan, quiet, rounded), "i16")


def _from_half(w: Writer, value: Value) -> Value:
    """A half float as a float by integers: its exponent has another bias."""
    bits = w.convert("zext", w.convert("bitcast", value, "i16"), "i32")
    size = w.two("shl", w.two("and", bits, number(0x7FFF, "i32")), number(13, "i32"))
    sign = w.two("shl", w.two("and", bits, number(0x8000, "i32")), number(16, "i32"))
    moved = w.two("fmul", w.convert("bitcast", size, "float"), number(2.0**112, "float"))
    # Infinity and NaN have the largest exponent in both.
    special = w.compare("icmp uge", size, number(0x7C00 << 13, "i32"))
    largest = w.two("or", size, number(0x7F800000, "i32"))
    magnitude = w.select(special, largest, w.convert("bitcast", moved, "i32"))
    return w.convert("bitcast", w.two("or", magnitude, sign), "float")


def _to_half(w: Writer, value: Value) -> Value:
    """A float as a half float by integers, rounded to the nearest, ties to even."""
    bits = w.convert("bitcast", value, "i32")
    size = w.two("and", bits, number(0x7FFFFFFF, "i32"))
    sign = w.two("and", w.two("lshr", bits, number(16, "i32")), number(0x8000, "i32"))
    # What is subnormal as a half float is rounded where 0.5 has its last bits.
    half = number(0.5, "float")
    small = w.two("fadd", w.convert("bitcast", size, "float"), half)
    small = w.two("sub", w.convert("bitcast", small, "i32"), number(0x3F000000, "i32"))
    odd = w.two("and", w.two("lshr", size, number(13, "i32")), number(1, "i32"))
    tie = w.two("add", odd, number(0xFFF - (112 << 23), "i32"))
    normal = w.two("lshr", w.two("add", size, tie), number(13, "i32"))
    result = w.select(w.compare("icmp ult", size, number(113 << 23, "i32")), small, normal)
    huge = w.compare("icmp uge", size, number(143 << 23, "i32"))
    result = w.select(huge, number(0x7C00, "i32"), result)
    quiet = w.two("or", w.two("and", w.two("lshr", size, number(13, "i32")),
                              number(0x3FF, "i32")), number(0x7E00, "i32"))  # fmt: skip
    result = w.select(w.compare("fcmp uno", value, value), quiet, result)
    return w.convert("bitcast", w.convert("trunc", w.two("or", result, sign), "i16"), "half")


def cast(w: Writer, value: Value, source: str, target: str) -> Value:
    """``value`` of dtype ``source`` converted to ``target``."""
    kind, wanted = COMPUTED[source], COMPUTED[target]
    if wanted in FLOAT_BITS:
        result = _to_float(w, value, wanted)
        narrow = target in ("float16", "bfloat16") and source != target
        return widened(w, narrowed(w, result, target), target) if narrow else result
    if wanted == "i1":
        compare = "fcmp une" if kind in FLOAT_BITS else "icmp ne"
        return value if kind == "i1" else w.compare(compare, value, number(0, kind))
    if kind in FLOAT_BITS:
        return _to_integer(w, value, wanted)
    if kind == "i1":
        return w.convert("zext", value, wanted)
    return w.convert("trunc" if wanted == "i32" else "sext", value, wanted)


def _to_float(w: Writer, value: Value, wanted: str) -> Value:
    if value.kind in FLOAT_BITS:
        return w.convert("fpext" if wanted == "double" else "fptrunc", value, wanted)
    return w.convert("uitofp" if value.kind == "i1" else "sitofp", value, wanted)


def _to_integer(w: Writer, value: Value, wanted: str) -> Value:
    vector = f"v{value.lanes}" if value.lanes else ""
    source = {"float": "f32", "double": "f64"}[value.kind]
    name = f"llvm.fptosi.sat.{vector}{wanted}.{vector}{source}"
    return w.call(name, [value], wanted, value.lanes)


def _float(code: str) -> Emit:
    return lambda w, a, b: w.arithmetic(code, a, b)


def _integer(code: str) -> Emit:
    return lambda w, a, b: w.two(code, a, b)


def _intrinsic(name: str) -> Emit:
    return lambda w, *args: w.intrinsic(name, *args)


def _negated(w: Writer, a: Value) -> Value:
    return w.emit(f"fneg {a.typed}", a.kind, a.lanes)


def _float_sign(w: Writer, a: Value) -> Value:
    zero = number(0, a.kind)
    below = w.select(w.compare("fcmp olt", a, zero), number(-1, a.kind), a)
    return w.select(w.compare("fcmp ogt", a, zero), number(1, a.kind), below)


def _integer_sign(w: Writer, a: Value) -> Value:
    zero = number(0, a.kind)
    below = w.select(w.compare("icmp slt", a, zero), number(-1, a.kind), zero)
    return w.select(w.compare("icmp sgt", a, zero), number(1, a.kind), below)


def _integer_abs(w: Writer, a: Value) -> Value:
    zero = number(0, a.kind)
    return w.select(w.compare("icmp slt", a, zero), w.two("sub", zero, a), a)


def _rsqrt(w: Writer, a: Value) -> Value:
    return w.two("fdiv", number(1, a.kind), w.intrinsic("sqrt", a))


def _checked_division(w: Writer, a: Value, b: Value) -> tuple[Value, Value]:
    """Floor quotient and remainder; a zero divisor gives zeros, like numpy."""
    zero, one = number(0, a.kind), number(1, a.kind)
    none = w.compare("icmp eq", b, zero)
    # The least integer by -1 would trap: that quotient is the negation.
    flip = w.compare("icmp eq", b, number(-1, a.kind))
    divisor = w.select(w.two("or", none, flip), one, b)
    quotient, rest = _floored(w, a, divisor)
    quotient = w.select(flip, w.two("sub", zero, a), quotient)
    return w.select(none, zero, quotient), w.select(w.two("or", none, flip), zero, rest)


def _floored(w: Writer, a: Value, b: Value) -> tuple[Value, Value]:
    quotient, rest = w.two("sdiv", a, b), w.two("srem", a, b)
    zero = number(0, a.kind)
    differ = w.compare("icmp slt", w.two("xor", rest, b), zero)
    off = w.two("and", differ, w.compare("icmp ne", rest, zero))
    quotient = w.two("sub", quotient, w.convert("zext", off, a.kind))
    return quotient, w.two("add", rest, w.select(off, b, zero))


def floor_divide(w: Writer, a: Value, b: Value) -> Value:
    return _checked_division(w, a, b)[0]


def modulo(w: Writer, a: Value, b: Value) -> Value:
    return _checked_division(w, a, b)[1]


def positive_division(w: Writer, op: Op, a: Value, b: Value, natural: bool) -> Value:
    """Floor quotient or remainder for a divisor of at least 1; ``natural`` says a >= 0."""
    quotient = op is ops.FLOORDIV
    if b.text.isdigit() and (divisor := int(b.text)) & (divisor - 1) == 0:
        if quotient:
            return w.two("ashr", a, number(divisor.bit_length() - 1, a.kind))
        return w.two("and", a, number(divisor - 1, a.kind))
    if natural:
        return w.two("udiv" if quotient else "urem", a, b)
    rest = w.two("srem", a, b)
    below = w.two("ashr", rest, number(63, a.kind))
    if quotient:
        return w.two("add", w.two("sdiv", a, b), below)
    return w.two("add", rest, w.two("and", below, b))


FLOAT_OPS: dict[Op, Emit] = {
    ops.ADD: _float("fadd"),
    ops.SUB: _float("fsub"),
    ops.MUL: _float("fmul"),
    ops.DIV: _float("fdiv"),
    ops.NEG: _negated,
    ops.MIN: _intrinsic("minimum"),
    ops.MAX: _intrinsic("maximum"),
    ops.ABS: _intrinsic("fabs"),
    ops.SIGN: _float_sign,
    ops.SQRT: _intrinsic("sqrt"),
    ops.RSQRT: _rsqrt,
    ops.FLOOR: _intrinsic("floor"),
    ops.CEIL: _intrinsic("ceil"),
    ops.ROUND: _intrinsic("roundeven"),
    ops.TRUNC: _intrinsic("trunc"),
    **{op: row.emit for op, row in FUNCTIONS.items()},
}
INTEGER_OPS: dict[Op, Emit] = {
    ops.ADD: _integer("add"),
    ops.SUB: _integer("sub"),
    ops.MUL: _integer("mul"),
    ops.NEG: lambda w, a: w.two("sub", number(0, a.kind), a),
    ops.MIN: _intrinsic("smin"),
    ops.MAX: _intrinsic("smax"),
    ops.ABS: _integer_abs,
    ops.SIGN: _integer_sign,
    ops.FLOORDIV: floor_divide,
    ops.MOD: modulo,
}
# Index arithmetic was checked to fit 64 bits; saying so lets LLVM follow addresses.
INDEX_OPS = INTEGER_OPS | {
    ops.ADD: _integer("add nsw"),
    ops.SUB: _integer("sub nsw"),
    ops.MUL: _integer("mul nsw"),
}
LOGIC_OPS: dict[Op, Emit] = {
    ops.AND: _integer("and"),
    ops.OR: _integer("or"),
    ops.NOT: lambda w, a: w.two("xor", a, Value("true", "i1")),
    ops.MIN: _integer("and"),
    ops.MAX: _integer("or"),
}
_PREDICATES = {
    ops.EQ: ("oeq", "eq", "eq"),
    ops.NE: ("une", "ne", "ne"),
    ops.LT: ("olt", "slt", "ult"),
    ops.LE: ("ole", "sle", "ule"),
    ops.GT: ("ogt", "sgt", "ugt"),
    ops.GE: ("oge", "sge", "uge"),
}


def _compare(place: int, op: Op) -> Emit:
    code = f"{'fcmp' if place == 0 else 'icmp'} {_PREDICATES[op][place]}"
    return lambda w, a, b: w.compare(code, a, b)


_ARITHMETIC = {
    "double": FLOAT_OPS, "float": FLOAT_OPS, "i64": INTEGER_OPS, "i32": INTEGER_OPS,
    "i1": LOGIC_OPS, "index": INDEX_OPS,
}  # fmt: skip
OPERATIONS: dict[str, dict[Op, Emit]] = {
    kind: rows | {op: _compare(0 if kind in FLOAT_BITS else 2 if kind == "i1" else 1, op)
                  for op in _PREDICATES}
    for kind, rows in _ARITHMETIC.items()
}  # fmt: skip


def operation(op: Op, dtype: str) -> Emit:
    """What emits ``op`` on operands of ``dtype``."""
    return OPERATIONS["index" if dtype == "index" else COMPUTED[dtype]][op]


def whole_power(w: Writer, base: Value, exponent: int) -> Value:
    """``base`` to a small integer power by multiplications."""
    if exponent == 0:
        return number(1, base.kind)
    result = base
    for _ in range(abs(exponent) - 1):
        result = w.two("fmul", result, base)
    return w.two("fdiv", number(1, base.kind), result) if exponent < 0 else result
