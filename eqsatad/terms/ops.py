"""The operations of the term language, one row each.

An `Op` is a name with an arity and a kind; its meaning is its row in `terms.evaluate`, its
derivative its row in `grad`, its code its row in each backend. Nothing else knows operations.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Op:
    """A scalar operation: ``kind`` is ``arith``, ``integer``, ``function``, ``compare``, ``logic``.

    ``arith`` takes any number type, ``integer`` only indices and integer data, ``function`` only
    floats, ``compare`` two numbers of one type (gives ``bool``), ``logic`` only ``bool``.
    ``symbol`` is how it prints between its operands; empty means it prints as a call.
    """

    name: str
    arity: int
    kind: str
    symbol: str = ""

    def __reduce__(self) -> tuple[object, ...]:
        # Operations are compared with ``is``, so a pickle is the name of the row.
        return _named, (self.name,)


def _named(name: str) -> Op:
    return OPS[name]


ADD = Op("add", 2, "arith", "+")
SUB = Op("sub", 2, "arith", "-")
MUL = Op("mul", 2, "arith", "*")
NEG = Op("neg", 1, "arith", "-")
MIN = Op("min", 2, "arith")
MAX = Op("max", 2, "arith")
ABS = Op("abs", 1, "arith")
SIGN = Op("sign", 1, "arith")
DIV = Op("div", 2, "function", "/")
FLOORDIV = Op("floordiv", 2, "integer", "//")
MOD = Op("mod", 2, "integer", "%")
POW = Op("pow", 2, "function", "**")
ATAN2 = Op("atan2", 2, "function")
SQRT, RSQRT, EXP, EXPM1, LOG, LOG1P, LOG2 = (
    Op(name, 1, "function") for name in ("sqrt", "rsqrt", "exp", "expm1", "log", "log1p", "log2")
)
SIN, COS, TAN, ASIN, ACOS, ATAN, SINH, COSH, TANH = (
    Op(name, 1, "function")
    for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
)
SIGMOID, SOFTPLUS, ERF, FLOOR, CEIL, ROUND, TRUNC = (
    Op(name, 1, "function")
    for name in ("sigmoid", "softplus", "erf", "floor", "ceil", "round", "trunc")
)
EQ = Op("eq", 2, "compare", "==")
NE = Op("ne", 2, "compare", "!=")
LT = Op("lt", 2, "compare", "<")
LE = Op("le", 2, "compare", "<=")
GT = Op("gt", 2, "compare", ">")
GE = Op("ge", 2, "compare", ">=")
AND = Op("and", 2, "logic", "and")
OR = Op("or", 2, "logic", "or")
NOT = Op("not", 1, "logic", "not")

OPS: dict[str, Op] = {
    op.name: op
    for op in (
        *(ADD, SUB, MUL, NEG, MIN, MAX, ABS, SIGN, DIV, FLOORDIV, MOD, POW, ATAN2),
        *(SQRT, RSQRT, EXP, EXPM1, LOG, LOG1P, LOG2, SIN, COS, TAN, ASIN, ACOS, ATAN),
        *(SINH, COSH, TANH, SIGMOID, SOFTPLUS, ERF, FLOOR, CEIL, ROUND, TRUNC),
        *(EQ, NE, LT, LE, GT, GE, AND, OR, NOT),
    )
}
