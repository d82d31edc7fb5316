"""Terms in index notation, and a part of a term marked for a message.

The text is what `terms.text` parses: parentheses only where the structure needs them, a
reduction as ``sum(k, where=k < i) (body)``. Extents and dtypes of constants are left out unless
asked for. Text is put together bottom-up, so deep terms do not recurse out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent

from eqsatad.terms.nodes import (
    INTEGERS,
    MARKER,
    TRUE,
    Apply,
    Axis,
    Cast,
    Combiner,
    Const,
    Expr,
    Placeholder,
    Read,
    Reduce,
    Scatter,
    Select,
    Size,
    Stage,
    Tensor,
    Term,
    Var,
)
from eqsatad.terms.ops import NEG, NOT, POW, Op
from eqsatad.terms.walk import fold

ATOM, POWER, UNARY, COMPARE, INVERT = 9, 8, 7, 4, 3
PRECEDENCE: dict[str, int] = {
    **{"or": 1, "and": 2, "not": INVERT},
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), COMPARE),
    **{"+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6, "**": POWER},
}
# What marks a part while its text is put together; neither occurs in names.
OPEN, CLOSE = "\x02", "\x03"
BRIEF, WIDTH = 200, 100


@dataclass(frozen=True, slots=True)
class Style:
    """What to print: ``extents`` of axes, at most ``limit`` characters, ``part`` marked."""

    extents: bool = False
    limit: int | None = None
    part: Term | None = None


def show(term: Term, *, extents: bool = False) -> str:
    """``term`` in index notation; ``extents`` also prints the range of each axis."""
    return _term(term, Style(extents))


def brief(term: Term) -> str:
    """``term`` in index notation, cut to a length that fits a message."""
    text = _term(term, Style(limit=BRIEF))
    return text if len(text) <= BRIEF else text[: BRIEF - 3] + "..."


def mark(term: Term, part: Term) -> str:
    """``term`` with every occurrence of ``part`` underlined on a second line."""
    lines = _term(term, Style(part=part)).split("\n")
    return "\n".join(line for text in lines for line in underlined(text))


def explained(what: str, term: Term, part: Term, advice: str) -> str:
    """A message: what is wrong, ``term`` with ``part`` underlined, and what to do about it."""
    return f"{what}\n{indent(mark(term, part), '    ')}\n{advice}"


def underlined(text: str) -> list[str]:
    """The line without its marks, cut around the first of them, and the line below it."""
    plain, below, depth = "", "", 0
    for letter in text:
        if letter in (OPEN, CLOSE):
            depth += 1 if letter == OPEN else -1
        else:
            plain, below = plain + letter, below + ("^" if depth else " ")
    if "^" not in below:
        return [plain]
    return [line.rstrip() for line in window(plain, below)]


def window(plain: str, below: str) -> tuple[str, str]:
    """Both lines cut to `WIDTH` around the first mark, with dots where something is left out."""
    if len(plain) <= WIDTH:
        return plain, below
    start = max(0, min(below.index("^") - WIDTH // 4, len(plain) - WIDTH + 8))
    stop = start + WIDTH - 8
    left, right = "... " if start else "", " ..." if stop < len(plain) else ""
    return left + plain[start:stop] + right, " " * len(left) + below[start:stop]


def _term(term: Term, style: Style) -> str:
    match term:
        case Expr():
            return _expr(term, style)
        case Stage():
            return "\n".join(_stage(term, style))
        case Placeholder():
            return f"{term.name}: {term.dtype}[{', '.join(_expr(n, style) for n in term.shape)}]"
        case Scatter():
            return _scatter("", term, style)
        case Combiner():
            return term.name
    raise TypeError(f"{type(term).__name__} is not a term")


def _stage(stage: Stage, style: Style) -> list[str]:
    axes = ", ".join(_binder(axis, style) for axis in stage.axes)
    left = f"{stage.name}[{axes}]" if axes else stage.name
    scatters = [_scatter(stage.name, scatter, style) for scatter in stage.scatters]
    return [f"{left} = {_expr(stage.body, style)}", *scatters]


def _scatter(name: str, scatter: Scatter, style: Style) -> str:
    target = ", ".join(_index(index, _expr(index, style)) for index in scatter.indices)
    axes = ", ".join(_binder(axis, style) for axis in scatter.axes)
    where = "" if scatter.cond is TRUE else f" where {_expr(scatter.cond, style)}"
    return f"{name}[{target}] += {_expr(scatter.value, style)} for {axes}{where}"


def _binder(axis: Axis, style: Style) -> str:
    name = axis.name.partition(MARKER)[0]
    return f"{name} < {_expr(axis.extent, Style())}" if style.extents else name


Piece = tuple[str, int]


def _expr(expr: Expr, style: Style) -> str:
    def visit(node: Expr, children: tuple[Piece, ...]) -> Piece:
        text, strength = WRITERS[type(node)](node, children, style)
        if style.limit and len(text) > style.limit:
            text = text[: style.limit]
        return (f"{OPEN}{text}{CLOSE}", strength) if node is style.part else (text, strength)

    return fold(expr, visit)[0]


def _inner(piece: Piece, least: int) -> str:
    text, strength = piece
    return text if strength >= least else f"({text})"


def _named(node: Size | Axis | Var, children: tuple[Piece, ...], style: Style) -> Piece:
    return node.name.partition(MARKER)[0], ATOM


def _const(node: Const, children: tuple[Piece, ...], style: Style) -> Piece:
    text = repr(node.value)
    return text, UNARY if text.startswith("-") else ATOM


def _apply(node: Apply, children: tuple[Piece, ...], style: Style) -> Piece:
    op = node.op
    if not op.symbol:
        return f"{op.name}({', '.join(text for text, _ in children)})", ATOM
    if op.arity == 1:
        return _unary(op, node, children[0])
    strength = PRECEDENCE[op.symbol]
    # Comparisons do not chain here, and only the power groups to the right.
    loose_left = strength < POWER and strength != COMPARE
    left = _inner(children[0], strength if loose_left else strength + 1)
    right = _inner(children[1], UNARY if op is POW else strength + 1)
    return f"{left} {op.symbol} {right}", strength


def _unary(op: Op, node: Apply, piece: Piece) -> Piece:
    if op is NOT:
        return f"not {_inner(piece, INVERT)}", INVERT
    # `-2.0` is a literal, so the negation of one keeps its parentheses.
    text = f"({piece[0]})" if isinstance(node.args[0], Const) else _inner(piece, UNARY)
    return f"-{text}", UNARY if op is NEG else ATOM


def _cast(node: Cast, children: tuple[Piece, ...], style: Style) -> Piece:
    return f"cast({children[0][0]}, {node.dtype})", ATOM


def _select(node: Select, children: tuple[Piece, ...], style: Style) -> Piece:
    return f"select({', '.join(text for text, _ in children)})", ATOM


def _read(node: Read, children: tuple[Piece, ...], style: Style) -> Piece:
    name = _tensor(node.tensor, style)
    if not children:
        return name, ATOM
    indices = (_index(index, text) for index, (text, _) in zip(node.indices, children, strict=True))
    return f"{name}[{', '.join(indices)}]", ATOM


def _index(index: Expr, text: str) -> str:
    """Integer data becomes an index by being used as one, so that cast goes without saying."""
    bare = isinstance(index, Cast) and index.arg.dtype in INTEGERS
    if bare and text.startswith("cast(") and text.endswith(", index)"):
        return text.removeprefix("cast(").removesuffix(", index)")
    return text


def _tensor(tensor: Tensor, style: Style) -> str:
    return f"{OPEN}{tensor.name}{CLOSE}" if tensor is style.part else tensor.name


def _reduce(node: Reduce, children: tuple[Piece, ...], style: Style) -> Piece:
    (cond, _), (body, _) = children
    binders = ", ".join(_binder(axis, style) for axis in node.axes)
    where = "" if node.cond is TRUE else f", where={cond}"
    return f"{node.combiner.name}({binders}{where}) ({body})", ATOM


WRITERS: dict[type[Expr], Callable[..., Piece]] = {
    **dict.fromkeys((Size, Axis, Var), _named),
    **{Const: _const, Apply: _apply, Cast: _cast, Select: _select, Read: _read, Reduce: _reduce},
}
