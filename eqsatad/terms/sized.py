"""A program at known sizes: the same stages, with numbers in place of symbolic sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsatad.errors import ArgumentError
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Axis, Const, Placeholder, Size, Tensor, Term
from eqsatad.terms.store import contents, needed


def sized(tensors: Sequence[Tensor], sizes: Mapping[str, int]) -> list[Tensor]:
    """``tensors`` with each size that ``sizes`` names as that number."""
    became: dict[Term, Any] = {}
    for term in needed(tensors):
        became[term] = _at(term, sizes, became)
    return [became[tensor] for tensor in tensors]


def _at(term: Term, sizes: Mapping[str, int], became: Mapping[Term, Any]) -> Term:
    if isinstance(term, Size) and term.name in sizes:
        if (objection := term.objection(sizes[term.name])) is not None:
            raise ArgumentError(objection)
        return Const(sizes[term.name], "index")
    values = [_now(value, became) for _, value in contents(term)]
    if isinstance(term, Axis):
        return Axis(term.name, normal(values[1]))
    if isinstance(term, Placeholder):
        return Placeholder(term.name, tuple(map(normal, values[1])), term.dtype)
    made: Term = type(term)(*values)
    return made


def _now(value: Any, became: Mapping[Term, Any]) -> Any:
    """A field with the parts that it has now."""
    if isinstance(value, tuple):
        return tuple(_now(part, became) for part in value)
    return became[value] if isinstance(value, Term) else value
