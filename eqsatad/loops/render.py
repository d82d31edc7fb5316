"""A loop program as indented pseudo-code for people.

Loops are written ``for i in 0 .. n`` with the end excluded; the outermost loops that may run in
any order say ``parallel``. Marks of a schedule come first.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsatad.loops.nest import Accumulate, Assign, Block, For, If, LoopProgram, Mark, Nest, Store
from eqsatad.terms.nodes import Expr, Tensor
from eqsatad.terms.show import show

INDENT = "    "
MARKS: dict[Mark | None, str] = {Mark.VECTOR: "vector ", Mark.SHARED: "shared "}


def render(program: LoopProgram) -> str:
    """``program`` as text: its arrays, then one nest per stage."""
    lines = [
        f"{role} {_declared(tensor)}"
        for role, tensors in (
            ("input", program.inputs),
            ("output", program.outputs),
            ("temporary", program.temporaries),
        )
        for tensor in tensors
    ]
    for nest in program.nests:
        lines.extend(("", render_nest(nest)))
    lines.extend(f"# {note}" for note in program.notes)
    return "\n".join(lines)


def render_nest(nest: Nest) -> str:
    """One nest as text."""
    return "\n".join([f"{nest.stage.name}:", *_block(nest.body, INDENT)])


def render_block(block: Block) -> list[str]:
    """The lines of some statements."""
    return list(_block(block, INDENT))


def _declared(tensor: Tensor) -> str:
    shape = ", ".join(map(show, tensor.shape))
    return f"{tensor.name}: {tensor.dtype}[{shape}]"


def _block(block: Block, indent: str) -> Iterator[str]:
    for statement in block:
        match statement:
            case For(axis, start, stop, body, parallel, mark):
                words = MARKS.get(mark, "") + ("parallel " if parallel else "")
                yield f"{indent}{words}for {axis.name} in {show(start)} .. {show(stop)}:"
                yield from _block(body, indent + INDENT)
            case If(cond, then, other):
                yield f"{indent}if {show(cond)}:"
                yield from _block(then, indent + INDENT)
                if other:
                    yield f"{indent}else:"
                    yield from _block(other, indent + INDENT)
            case Assign(var, value):
                yield f"{indent}{var.name} = {show(value)}"
            case Store(buffer, indices, value):
                yield f"{indent}{_element(buffer, indices)} = {show(value)}"
            case Accumulate(buffer, indices, value):
                yield f"{indent}{_element(buffer, indices)} += {show(value)}"


def _element(buffer: Tensor, indices: tuple[Expr, ...]) -> str:
    return f"{buffer.name}[{', '.join(map(show, indices))}]" if indices else buffer.name
