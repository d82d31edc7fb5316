"""Arguments of the command line: how they are declared, and the values that they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsatad.errors import ArgumentError

if TYPE_CHECKING:
    from eqsatad.terms.nodes import Tensor

Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SHAPE",
        help="Shape of an input: a=64x32, a=n,32 with a symbolic size, a=64x32:float64 "
        "with a dtype (float32 otherwise), s= for a scalar.",
    ),
]
Inputs = Annotated[
    str | None, typer.Option("--wrt", help="Inputs, comma between them; all of them otherwise.")
]
RuleFiles = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="FILE", help="A file or folder of rules, besides the catalog."),
]
Trusted = Annotated[bool, typer.Option("--trusted", help="Use rules without checking them.")]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--size", metavar="NAME=N", help="The number to count and report a size at."),
]


def inputs_of(output: Tensor, wrt: str | None) -> list[Tensor]:
    """The tensors that ``output`` is made of and ``wrt`` names; all inputs of floats otherwise."""
    from eqsatad.terms.nodes import FLOATS, Placeholder
    from eqsatad.terms.walk import program

    reached = {tensor.name: tensor for tensor in program([output]) if tensor is not output}
    if wrt is None:
        return [
            tensor
            for tensor in reached.values()
            if isinstance(tensor, Placeholder) and tensor.dtype in FLOATS
        ]
    return [reached[name] for name in choices(wrt, reached, "--wrt")]


def choices(text: str, known: Iterable[str], option: str) -> list[str]:
    """The names in ``text``, all of which are ``known``."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in list(known)]:
        raise typer.BadParameter(
            f"{', '.join(unknown)} is not one of {', '.join(known)}{close_to(unknown[0], known)}",
            param_hint=option,
        )
    return names


def close_to(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name, with those that it may be meant for."""
    close = get_close_matches(name.lower(), known)
    return f"; did you mean {' or '.join(close)}?" if close else "."


SHAPE = re.compile(r"(?P<name>\w+)=(?P<shape>[\w,]*)(?::(?P<dtype>\w+))?")


def shapes_of(texts: Sequence[str] | None) -> dict[str, Any]:
    """``NAME=4x5`` and ``NAME=n,5:float64`` as the shapes that `ea.op` takes."""
    shapes: dict[str, Any] = {}
    for text in texts or ():
        if not (match := SHAPE.fullmatch(text.replace(" ", ""))):
            raise typer.BadParameter(
                f"expected NAME=SHAPE as in a=64x32, found {text!r}", param_hint="--shape"
            )
        shape = _extents(match["shape"])
        shapes[match["name"]] = (shape, match["dtype"]) if match["dtype"] else shape
    return shapes


def _extents(text: str) -> tuple[int | str, ...]:
    separator = "x" if re.fullmatch(r"\d+(x\d+)*", text) else ","
    parts = [part for part in text.split(separator) if part]
    return tuple(int(part) if part.isdigit() else part for part in parts)


def sizes_of(texts: Sequence[str] | None) -> dict[str, int]:
    """``NAME=N`` as the number of each size."""
    sizes = {}
    for text in texts or ():
        name, equals, number = text.partition("=")
        if not equals or not number.isdigit():
            raise typer.BadParameter(
                f"expected NAME=N as in n=64, found {text!r}", param_hint="--size"
            )
        sizes[name] = int(number)
    return sizes


def content(path: Path) -> str:
    """What is written in a file that was named on the command line."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror}") from error
