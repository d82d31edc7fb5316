"""Offsets that depend on a small whole number, as a position that was saved, out of a table.

The digits of such a number, a quotient and a remainder, take a dozen instructions to tell and to
multiply; what they come to for each number is known before anything runs.
"""

from __future__ import annotations

from typing import NamedTuple

from eqsatad.terms.linear import Linear
from eqsatad.terms.nodes import Apply, Const, Expr
from eqsatad.terms.ops import FLOORDIV, MOD
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import postorder, substitute

# The most entries of a table, and the largest number in one.
ENTRIES = 256
LARGEST = 2**31 - 1


class Tabled(NamedTuple):
    """A table of what a number from 0 on adds to an offset, and what remains beside it."""

    entries: tuple[int, ...]
    rest: Linear


def tabled(form: Linear, place: Expr, last: int) -> Tabled | None:
    """``form`` with a table for what depends on ``place``, which lies between 0 and ``last``.

    None where that takes no division, or depends on something else as well.
    """
    found = {atom: coef for coef, atom in form.terms if place in postorder(atom)}
    if last >= ENTRIES or not any(map(_divides, found)):
        return None
    entries: list[int] = []
    for number in range(last + 1):
        here = {place: Const(number, "index")}
        known = {atom: interval(substitute(atom, here)) for atom in found}
        if any(low is None or low != high for low, high in known.values()):
            return None
        entries.append(sum(found[atom] * (low or 0) for atom, (low, _) in known.items()))
    if max(map(abs, entries)) > LARGEST:
        return None
    rest = tuple((coef, atom) for coef, atom in form.terms if atom not in found)
    return Tabled(tuple(entries), Linear(form.const, rest))


def _divides(atom: Expr) -> bool:
    return any(isinstance(node, Apply) and node.op in (FLOORDIV, MOD) for node in postorder(atom))
