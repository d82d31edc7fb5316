"""Extents: index expressions of symbolic sizes, and what array shapes tell about the sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eqsatad.errors import ArgumentError
from eqsatad.loops.nest import LoopProgram
from eqsatad.terms.linear import is_unit, linear
from eqsatad.terms.nodes import Apply, Const, Expr, Select, Size
from eqsatad.terms.ops import (
    ADD,
    AND,
    EQ,
    FLOORDIV,
    GE,
    GT,
    LE,
    LT,
    MAX,
    MIN,
    MOD,
    MUL,
    NE,
    NEG,
    NOT,
    OR,
    SUB,
    Op,
)
from eqsatad.terms.walk import fold, postorder

INTEGER_OPS: dict[Op, Callable[..., int]] = {
    ADD: lambda a, b: a + b,
    SUB: lambda a, b: a - b,
    MUL: lambda a, b: a * b,
    NEG: lambda a: -a,
    FLOORDIV: lambda a, b: a // b,
    MOD: lambda a, b: a % b,
    MIN: min,
    MAX: max,
    EQ: lambda a, b: a == b,
    NE: lambda a, b: a != b,
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
    AND: lambda a, b: a and b,
    OR: lambda a, b: a or b,
    NOT: lambda a: not a,
}


def value(extent: Expr, sizes: Mapping[str, int]) -> int:
    """The value of an index expression of sizes."""

    def visit(node: Expr, children: tuple[int, ...]) -> int:
        match node:
            case Const(number, _):
                return int(number)
            case Size(name):
                return sizes[name]
            case Apply(op, _):
                return INTEGER_OPS[op](*children)
            case Select():
                return children[1] if children[0] else children[2]
        raise AssertionError(f"an extent holds constants and sizes, not {type(node).__name__}")

    return fold(extent, visit)


def deduce(
    program: LoopProgram, shapes: Sequence[tuple[int, ...]], given: Mapping[str, int]
) -> dict[str, int]:
    """The sizes of ``program``, from the shapes of its inputs and the sizes that were given."""
    if not program.sizes:
        return {}
    sizes = dict(given)
    pending = [
        (extent, found)
        for tensor, shape in zip(program.inputs, shapes, strict=True)
        if len(tensor.shape) == len(shape)
        for extent, found in zip(tensor.shape, shape, strict=True)
    ]
    solved = True
    while solved:
        solved = False
        for extent, found in pending:
            if (answer := _solve(extent, found, sizes)) is not None:
                sizes.update((answer,))
                solved = True
    _check(program, sizes)
    return sizes


def _solve(extent: Expr, found: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """The one size that ``extent == found`` determines, if it is the only unknown."""
    form = linear(extent)
    rest = found - form.const
    unknown: list[tuple[int, Expr]] = []
    for coef, atom in form.terms:
        if all(size.name in sizes for size in _sizes(atom)):
            rest -= coef * value(atom, sizes)
        else:
            unknown.append((coef, atom))
    match unknown:
        case [(coef, Size(name))]:
            # A remainder means that the array does not fit; comparing the shapes reports it.
            return name, rest // coef
        case [(coef, Apply(_, (Size(name, _, multiple), _)) as atom)] if is_unit(atom):
            # So many units as make a whole size tell it even where it breaks its promise.
            whole, left = divmod(coef, multiple)
            return name, rest // coef * multiple if left else rest // whole
    return None


def _sizes(extent: Expr) -> list[Size]:
    return [node for node in postorder(extent) if isinstance(node, Size)]


def _check(program: LoopProgram, sizes: Mapping[str, int]) -> None:
    if missing := [size.name for size in program.sizes if size.name not in sizes]:
        raise ArgumentError(
            f"the shapes of the arrays do not tell {', '.join(missing)}; "
            f"pass {', '.join(f'{name}=...' for name in missing)}"
        )
    for size in program.sizes:
        if (objection := size.objection(sizes[size.name])) is not None:
            raise ArgumentError(f"{objection}. Pass other arrays, or build without the promise.")
