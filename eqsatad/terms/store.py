"""Programs as bytes, so that they travel between processes and lie in files.

A header line with the version and a checksum, then one JSON list per node, parts before what
holds them, in the order of the fields. Reading builds the nodes through their constructors: the
result is interned, and foreign data runs no code. Literals are spelled out, so that every float
comes back bit for bit. The same terms give the same bytes in every run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from eqsatad.errors import StoreError
from eqsatad.terms.nodes import (
    Apply,
    Axis,
    Cast,
    Combiner,
    Const,
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
    digest,
)
from eqsatad.terms.ops import OPS, Op

MAGIC = "eqsatad-terms"
VERSION = 2

# What each field of a node holds: a part, several, perhaps one, or something without parts.
PART, PARTS, MAYBE, TEXT, OP, LITERAL = "part", "parts", "maybe", "text", "op", "literal"
FIELDS: dict[type[Term], tuple[str, ...]] = {
    Const: (LITERAL, TEXT),
    Size: (TEXT, LITERAL, LITERAL),
    Axis: (TEXT, PART),
    Var: (TEXT, TEXT),
    Apply: (OP, PARTS),
    Cast: (PART, TEXT),
    Select: (PART, PART, PART),
    Read: (PART, PARTS),
    Combiner: (TEXT, MAYBE, MAYBE, MAYBE, MAYBE),
    Reduce: (PART, PARTS, PART, PART),
    Placeholder: (TEXT, PARTS, TEXT),
    Scatter: (PARTS, PART, PARTS, PART),
    Stage: (TEXT, PARTS, PART, PARTS),
}
CLASSES = {cls.__name__: cls for cls in FIELDS}


def dump(terms: Sequence[Term]) -> bytes:
    """``terms`` and everything that they need, as bytes for `load` or `load_terms`."""
    order = needed(terms)
    places = {term: place for place, term in enumerate(order)}
    nodes = [[type(term).__name__, *_written(term, places)] for term in order]
    roots = [places[term] for term in terms]
    body = json.dumps({"nodes": nodes, "roots": roots}, separators=(",", ":"))
    return f"{MAGIC} {VERSION} {digest(body)}\n{body}".encode()


def load(data: bytes) -> list[Tensor]:
    """The tensors that `dump` wrote: the live ones with the same contents, if there are any."""
    return [_tensor(term) for term in load_terms(data)]


def load_terms(data: bytes) -> list[Term]:
    """The terms of any kind that `dump` wrote, in the same sense."""
    body = _checked(data)
    try:
        stored = json.loads(body)
        nodes, roots = stored["nodes"], stored["roots"]
        built: list[Term] = []
        for name, *values in nodes:
            cls = CLASSES[name]
            kinds = zip(FIELDS[cls], values, strict=True)
            built.append(cls(*(READERS[kind](value, built) for kind, value in kinds)))
        return [_part(root, built) for root in roots]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"stored terms do not make a program ({type(error).__name__}: {error}). "
            "Give bytes that dump returned."
        ) from error


def _checked(data: bytes) -> str:
    """The part after the header, if the header is right."""
    header, _, body = data.partition(b"\n")
    words = header.decode("ascii", "replace").split(" ")
    if len(words) != 3 or words[0] != MAGIC:
        raise StoreError(
            f"expected stored terms, which begin with {MAGIC!r}; found {data[:24]!r}. "
            "Give bytes that dump returned."
        )
    if words[1] != str(VERSION):
        raise StoreError(
            f"terms stored in format {words[1]} cannot be read: this version of eqsatad reads "
            f"format {VERSION}. Store them again."
        )
    text = body.decode("ascii", "replace")
    if digest(text) != words[2]:
        raise StoreError(
            f"stored terms are damaged: the checksum is {words[2]}, and the contents have "
            f"{digest(text)}. Store them again."
        )
    return text


def needed(roots: Sequence[Term]) -> list[Term]:
    """Every distinct term that ``roots`` need, parts before what holds them."""
    order: list[Term] = []
    seen: set[Term] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        term, ready = stack.pop()
        if ready:
            order.append(term)
        elif term not in seen:
            seen.add(term)
            stack.append((term, True))
            stack.extend((part, False) for part in reversed(list(_parts(term))))
    return order


def contents(term: Term) -> Iterator[tuple[str, Any]]:
    """The fields of ``term``: what each holds, and its value."""
    if type(term) not in FIELDS:
        raise StoreError(f"a {type(term).__name__} is no part of a program and cannot be stored.")
    names = (field.name for field in fields(term))  # type: ignore[arg-type]  # all are dataclasses
    for kind, name in zip(FIELDS[type(term)], names, strict=True):
        yield kind, getattr(term, name)


def _parts(term: Term) -> Iterator[Term]:
    for kind, value in contents(term):
        if kind == PARTS:
            yield from value
        elif kind in (PART, MAYBE) and value is not None:
            yield value


def _written(term: Term, places: dict[Term, int]) -> Iterator[object]:
    """The fields of ``term`` as JSON: a part as the place of its node."""
    for kind, value in contents(term):
        yield WRITERS[kind](value, places)


def _optional_place(value: Term | None, places: dict[Term, int]) -> int | None:
    return None if value is None else places[value]


WRITERS: dict[str, Callable[[Any, dict[Term, int]], object]] = {
    PART: lambda value, places: places[value],
    PARTS: lambda value, places: [places[part] for part in value],
    MAYBE: _optional_place,
    TEXT: lambda value, places: value,
    OP: lambda value, places: value.name,
    LITERAL: lambda value, places: [type(value).__name__, repr(value)],
}


def _part(place: object, built: Sequence[Term]) -> Term:
    if type(place) is not int or not 0 <= place < len(built):
        raise ValueError(f"{place!r} is not the place of one of the {len(built)} nodes before it")
    return built[place]


def _several(places: object, built: Sequence[Term]) -> tuple[Term, ...]:
    if not isinstance(places, list):
        raise ValueError(f"expected a list of places, found {places!r}")
    return tuple(_part(place, built) for place in places)


def _maybe(place: object, built: Sequence[Term]) -> Term | None:
    return None if place is None else _part(place, built)


def _text(value: object, built: Sequence[Term]) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r}")
    return value


def _op(name: object, built: Sequence[Term]) -> Op:
    if name not in OPS:
        raise ValueError(f"there is no operation {name!r}")
    return OPS[str(name)]


LITERALS: dict[str, Callable[[str], float | int | bool]] = {
    "float": float,
    "int": int,
    "bool": {"True": True, "False": False}.__getitem__,
}


def _literal(value: object, built: Sequence[Term]) -> float | int | bool:
    match value:
        case [str(kind), str(text)]:
            return LITERALS[kind](text)
    raise ValueError(f"expected a literal, found {value!r}")


READERS: dict[str, Callable[[object, Sequence[Term]], object]] = {
    PART: _part,
    PARTS: _several,
    MAYBE: _maybe,
    TEXT: _text,
    OP: _op,
    LITERAL: _literal,
}


def _tensor(term: Term) -> Tensor:
    if not isinstance(term, Tensor):
        raise StoreError(
            f"expected a tensor, found {term!r}. Give bytes that dump made of tensors."
        )
    return term
