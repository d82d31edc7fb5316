"""Loop programs as bytes: what was lowered once need not be lowered again.

A line of JSON with the statements, in which a term is its place among the terms that follow, as
`terms.store` writes them. Reading builds everything through constructors, so foreign data runs no
code, and what it is made of is checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from eqsatad.errors import StoreError
from eqsatad.loops.nest import Accumulate, Assign, For, If, LoopProgram, Mark, Nest, Store
from eqsatad.terms import store
from eqsatad.terms.nodes import Axis, Expr, Size, Tensor, Term, Var

Part = For | If | Assign | Store | Accumulate | Nest | LoopProgram

# What each field holds: a term of a class, several of them, further parts, or something plain.
AXIS, VAR, EXPR, TENSOR, EXPRS, TENSORS, SIZES, BLOCK, FLAG, MARK, TEXTS = (
    "axis", "var", "expr", "tensor", "exprs", "tensors", "sizes", "block", "flag", "mark", "texts",
)  # fmt: skip
FIELDS: dict[type[Part], tuple[str, ...]] = {
    For: (AXIS, EXPR, EXPR, BLOCK, FLAG, MARK),
    If: (EXPR, BLOCK, BLOCK),
    Assign: (VAR, EXPR),
    Store: (TENSOR, EXPRS, EXPR),
    Accumulate: (TENSOR, EXPRS, EXPR),
    Nest: (TENSOR, BLOCK),
    LoopProgram: (TENSORS, TENSORS, TENSORS, SIZES, BLOCK, TEXTS),
}
CLASSES: dict[str, type[Any]] = {cls.__name__: cls for cls in FIELDS}
ONE: dict[str, type[Term]] = {AXIS: Axis, VAR: Var, EXPR: Expr, TENSOR: Tensor}
SEVERAL: dict[str, type[Term]] = {EXPRS: Expr, TENSORS: Tensor, SIZES: Size}


def dump(program: LoopProgram) -> bytes:
    """``program`` as bytes for `load`."""
    places: dict[Term, int] = {}
    line = json.dumps(_written(program, places), separators=(",", ":"))
    return line.encode() + b"\n" + store.dump(list(places))


def load(data: bytes) -> LoopProgram:
    """The program that `dump` wrote."""
    line, _, terms = data.partition(b"\n")
    try:
        program = _read(json.loads(line), store.load_terms(terms))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise StoreError(
            f"stored loops do not make a program ({type(error).__name__}: {error}). "
            "Give bytes that dump returned."
        ) from error
    if not isinstance(program, LoopProgram):
        raise StoreError(f"expected a loop program, found a {type(program).__name__}.")
    return program


def _written(part: Part, places: dict[Term, int]) -> list[object]:
    """``part`` as JSON; terms that it mentions first get the next places."""

    def place(term: Term) -> int:
        return places.setdefault(term, len(places))

    def written(kind: str, value: Any) -> object:
        if kind in ONE:
            return place(value)
        if kind in SEVERAL:
            return [place(term) for term in value]
        if kind == BLOCK:
            return [_written(inner, places) for inner in value]
        return value.name if isinstance(value, Mark) else value

    kinds = zip(FIELDS[type(part)], fields(part), strict=True)
    return [type(part).__name__, *(written(kind, getattr(part, f.name)) for kind, f in kinds)]


def _read(stored: list[Any], terms: Sequence[Term]) -> Part:
    """The part that `_written` wrote."""
    name, *values = stored
    cls = CLASSES[name]
    kinds = zip(FIELDS[cls], values, strict=True)
    part: Part = cls(*(_value(kind, value, terms) for kind, value in kinds))
    return part


def _value(kind: str, value: Any, terms: Sequence[Term]) -> object:
    if kind in ONE:
        return _term(value, terms, ONE[kind])
    if kind in SEVERAL:
        return tuple(_term(place, terms, SEVERAL[kind]) for place in value)
    if kind == BLOCK:
        return tuple(_read(inner, terms) for inner in value)
    return PLAIN[kind](value)


def _term(place: object, terms: Sequence[Term], cls: type[Term]) -> Term:
    if type(place) is not int or place < 0:
        raise ValueError(f"{place!r} is not the place of a term")
    if not isinstance(terms[place], cls):
        raise ValueError(f"expected {cls.__name__}, found {type(terms[place]).__name__}")
    return terms[place]


PLAIN: dict[str, Callable[[Any], object]] = {
    FLAG: bool,
    MARK: lambda name: None if name is None else Mark[name],
    TEXTS: lambda texts: tuple(map(str, texts)),
}
