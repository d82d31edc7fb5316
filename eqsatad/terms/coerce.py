"""What the operators of `nodes.Expr` do with operands that are not alike: numbers, indices, data.

A Python number takes the dtype of the other operand. An index that meets data becomes a value
of that dtype; integer data that meets an index becomes an index, since an index is what it is
used as. Everything else that differs is an error: dtypes of data are mixed by `cast` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from eqsatad.errors import DtypeError
from eqsatad.terms.nodes import DTYPES, FLOATS, INTEGERS, TRUE, Apply, Cast, Const, Expr
from eqsatad.terms.ops import AND, DIV, FLOORDIV, MOD, OPS, OR, POW, Op

# How an operand may be given: a term or a number (numpy scalars have `item`).
Operand = Expr | bool | int | float

NUMBER_DTYPES: dict[type, str] = {bool: "bool", int: "index", float: "float32"}


def const(value: Any, dtype: str | None = None) -> Const:
    """The literal ``value``; its dtype is index, float32 or bool unless given."""
    value = value.item() if hasattr(value, "item") else value
    if type(value) not in NUMBER_DTYPES:
        raise DtypeError(f"expected a number, found {value!r} of type {type(value).__name__}")
    dtype = dtype or NUMBER_DTYPES[type(value)]
    if dtype not in DTYPES:
        raise DtypeError(f"unknown dtype {dtype!r}; available: {', '.join(DTYPES)}")
    kind: type = float if dtype in FLOATS else bool if dtype == "bool" else int
    if kind is not float and kind(value) != value:
        raise DtypeError(f"{value!r} is not a value of dtype {dtype}. Cast the other operand.")
    return Const(kind(value), dtype)


def lift(value: Operand, dtype: str | None = None) -> Expr:
    """``value`` as an expression; a number takes ``dtype``."""
    return value if isinstance(value, Expr) else const(value, dtype)


def convert(expr: Expr, dtype: str) -> Expr:
    """``expr`` in ``dtype``, through a `Cast` where it differs."""
    return expr if expr.dtype == dtype else Cast(expr, dtype)


def joined(a: str, b: str) -> str | None:
    """The dtype in which two operands meet, None when one of them must be cast by hand."""
    pair = {a, b}
    if len(pair) == 1:
        return a
    if pair == {"int32", "int64"}:
        return "int64"
    if "index" in pair and "bool" not in pair:
        (other,) = pair - {"index"}
        return "index" if other in INTEGERS else other
    return None


def together(operands: Sequence[Operand], what: str) -> tuple[Expr, ...]:
    """``operands`` in one dtype; ``what`` names the operation in the message."""
    exprs = [operand for operand in operands if isinstance(operand, Expr)]
    numbers = [operand for operand in operands if not isinstance(operand, Expr)]
    dtype = exprs[0].dtype if exprs else _number_dtype(numbers)
    for expr in exprs[1:]:
        if (common := joined(dtype, expr.dtype)) is None:
            raise DtypeError(
                f"{what} got {dtype} and {expr.dtype}:\n{_listed(operands)}\n"
                "Cast one of them, for example "
                f"cast({_text(expr)}, {dtype!r})."
            )
        dtype = common
    if dtype == "index" and any(_is_float(number) for number in numbers):
        dtype = "float32"
    return tuple(
        convert(operand, dtype) if isinstance(operand, Expr) else const(operand, dtype)
        for operand in operands
    )


def _number_dtype(numbers: Sequence[Any]) -> str:
    found = [const(number).dtype for number in numbers]
    return next((dtype for dtype in ("float32", "index") if dtype in found), "bool")


def _is_float(number: Any) -> bool:
    return isinstance(number.item() if hasattr(number, "item") else number, float)


def _text(expr: Expr) -> str:
    from eqsatad.terms.show import brief

    return brief(expr)


def _listed(operands: Sequence[Operand]) -> str:
    return "\n".join(f"    {_text(lift(operand))} : {lift(operand).dtype}" for operand in operands)


def apply(op: Op, *operands: Operand) -> Expr:
    """``op`` on operands brought to one dtype."""
    if op.kind == "function" and not any(isinstance(operand, Expr) for operand in operands):
        operands = tuple(float(cast(float, operand)) for operand in operands)
    args = together(operands, op.name)
    if args[0].dtype in ("index", *INTEGERS) and op.kind == "function":
        raise DtypeError(
            f"{op.name} takes floats; found {args[0].dtype}:\n{_listed(args)}\n{_advice(op, args)}"
        )
    if args[0].dtype in FLOATS and op in (FLOORDIV, MOD):
        raise DtypeError(
            f"{op.symbol} takes indices and integers; found {args[0].dtype}:\n{_listed(args)}\n"
            "Use floor(a / b) for a quotient of floats."
        )
    return cast(Expr, Apply(op, args))


def _advice(op: Op, args: tuple[Expr, ...]) -> str:
    if op is DIV:
        return "Use // for the floor of the quotient, or cast one operand to a float."
    if op is POW:
        return "Write powers of integers as products, or cast the base to a float."
    return f"Cast the operand, for example {op.name}(cast({_text(args[0])}, 'float32'))."


def elementary(name: str, *operands: Operand) -> Expr:
    """The operation called ``name`` in `ops.OPS`."""
    return apply(OPS[name], *operands)


def as_index(value: Operand, of: str) -> Expr:
    """``value`` as an index of the tensor ``of``; integer data is cast."""
    expr = lift(value)
    if expr.dtype not in ("index", *INTEGERS):
        raise DtypeError(
            f"an index of {of} must be an integer; found {expr.dtype}:\n    {_text(expr)}\n"
            "Cast it to 'index' (which truncates), or use select for a condition."
        )
    return convert(expr, "index")


def all_of(*conds: Operand) -> Expr:
    """The condition that all of ``conds`` hold; true for none."""
    return _chain(AND, conds, TRUE)


def any_of(*conds: Operand) -> Expr:
    """The condition that one of ``conds`` holds; false for none."""
    return _chain(OR, conds, const(False))


def _chain(op: Op, conds: Sequence[Operand], empty: Expr) -> Expr:
    result: Expr | None = None
    for cond in conds:
        result = lift(cond) if result is None else apply(op, result, cond)
    return empty if result is None else result
