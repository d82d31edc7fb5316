"""The text front end: statements such as ``y[i,j] = sum(a[i,k] * b[k,j])`` as stages.

The text is Python's own expression grammar, read with `ast`. A name that is neither a tensor,
nor a size, nor a function is an index. Indices on the left are the output axes. A reduction
binds the indices that occur in it outside of inner reductions and are not bound around it.
Ranges are the largest that keep every read in range (`terms.extents`) unless they are given:
``y[i < 5]``, ``sum(..., u < 3)``, ``sum(..., 1 <= u < 4)``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from textwrap import dedent, indent
from typing import cast

from eqsatad.errors import SyntaxTermError
from eqsatad.terms import builders
from eqsatad.terms.nodes import Expr, Size, Stage, Tensor
from eqsatad.terms.statements import Reader, Statement

Shape = Sequence[int | str | Expr]
Given = Tensor | Shape | tuple[Shape, str]


def op(text: str, /, **tensors: Given) -> Stage:
    """The stage that the last statement of ``text`` defines.

    Each tensor that it reads is given by name: a shape, ``(shape, dtype)``, or a tensor. A
    string in a shape is a symbolic size, which the text may use.
    """
    return list(ops(text, **tensors).values())[-1]


def ops(text: str, /, **tensors: Given) -> dict[str, Stage]:
    """Every stage that ``text`` defines, by name, in order; see `op`."""
    given = {name: _tensor(name, tensor) for name, tensor in tensors.items()}
    reader = Reader(dedent(text).strip(), given)
    stages = {stage.name: stage for stage in _stages(reader)}
    if unused := sorted(set(given) - reader.used):
        raise SyntaxTermError(
            f"the text reads no {', '.join(unused)}:\n{indent(reader.text, '    ')}\n"
            "Remove what is not read, or correct the spelling."
        )
    return stages


def _tensor(name: str, given: Given) -> Tensor:
    if isinstance(given, Tensor):
        return given
    shape, dtype = _shape(given)
    entries = [Size(entry) if isinstance(entry, str) else entry for entry in shape]
    return builders.placeholder(entries, name, dtype)


def _shape(given: Shape | tuple[Shape, str]) -> tuple[Shape, str]:
    match given:
        case (list() | tuple() as shape, str(dtype)):
            return shape, dtype
    return cast(Shape, given), "float32"


def _stages(reader: Reader) -> Iterator[Stage]:
    """The stages of the statements, in order; each can be read by those after it."""
    try:
        statements = ast.parse(reader.text).body
    except SyntaxError as error:
        line, column = error.lineno or 1, (error.offset or 1) - 1
        message = f"this is not index notation: {error.msg}:"
        raise SyntaxTermError(reader.located((line, column, column + 1), message)) from None
    if not statements:
        raise SyntaxTermError("the text has no statement. Write one such as y[i] = 2 * x[i].")
    for statement in statements:
        stage = _stage(reader, statement)
        reader.tensors[stage.name] = stage
        reader.used.add(stage.name)
        yield stage


def _stage(reader: Reader, statement: ast.stmt) -> Stage:
    match statement:
        case ast.Assign(targets=[target], value=value):
            return Statement(reader, target).assigned(value)
        case ast.AugAssign(target=target, op=ast.Add(), value=value):
            return Statement(reader, target).added(value)
    raise SyntaxTermError(
        reader.at(statement, "expected a statement:\nWrite y[i] = 2 * x[i], or y[p[i]] += x[i].")
    )
