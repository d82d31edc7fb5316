"""What a wrong row may have forgotten: a condition with which it holds on small values.

Candidates are the usual conditions on the letters of the row, one at a time and then in pairs.
That a row holds on small values proves nothing; the answer is a hint in a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice, permutations, product
from typing import Any

from eqsatad.errors import RuleError
from eqsatad.rules.catalog import AnyRow
from eqsatad.rules.describe import spelled
from eqsatad.rules.prove_claims import claim
from eqsatad.rules.prove_fillings import letters
from eqsatad.rules.prove_trials import trial
from eqsatad.rules.prove_values import check_value_rule
from eqsatad.rules.rule import LITERAL, TERM, TermRow, divides, high, low
from eqsatad.rules.value_rule import (
    AXES,
    CONDITION,
    CONSTANT,
    VALUE,
    ValueRule,
    absent,
    nonzero,
    total,
)
from eqsatad.terms.nodes import Expr

STEPS = 4_000
"""Values given to letters for each candidate, at most."""

ENOUGH = 10
"""How many fillings have to meet a condition for it to be worth a hint."""

CANDIDATES = 60
"""Conditions and pairs of conditions that are tried, at most."""


def missing_condition(row: AnyRow) -> str:
    """The condition that makes ``row`` hold on small values, as it is written; else empty."""
    single = list(_of_values(row) if isinstance(row, ValueRule) else _of_indices(row))
    tried = chain(((one,) for one in single), combinations(single, 2))
    for extra in islice(tried, CANDIDATES):
        if _holds(replace(row, when=(*row.when, *extra))):  # type: ignore[arg-type]  # of its kind
            return " and ".join(map(spelled, extra))
    return ""


def _holds(row: AnyRow) -> bool:
    try:
        if isinstance(row, ValueRule):
            return check_value_rule(row, examples=0).fillings >= ENOUGH
        return trial(claim(row), STEPS) >= ENOUGH  # type: ignore[arg-type]  # one of these rows
    except RuleError:
        return False


def _of_values(row: ValueRule) -> Iterator[Any]:
    found = letters(row.before).values()
    of = {kind: [letter for letter in found if letter.op == kind] for kind in KINDS}
    yield from (nonzero(constant) for constant in of[CONSTANT])
    chosen = [part.parts[1] for part in row.before.walk() if part.op == "union"] or of[AXES]
    yield from (absent(*pair) for pair in product(chosen, (*of[VALUE], *of[CONDITION])))
    yield from (total(value) for value in of[VALUE])


KINDS = (VALUE, CONDITION, AXES, CONSTANT)


def _of_indices(row: AnyRow) -> Iterator[Expr]:
    found = claim(row).letters  # type: ignore[arg-type]  # one of these rows
    literals = [letter for letter in found if letter.kind == LITERAL]
    terms: Sequence[Expr] = [letter for letter in found if letter.kind == TERM]
    yield from (literal > 0 for literal in literals)
    yield from (literal > 1 for literal in literals)
    yield from (divides(*pair) for pair in permutations(literals, 2))
    proved = isinstance(row, TermRow)
    for term in terms:
        yield (term if proved else low(term)) >= 0
        yield from ((term if proved else high(term)) < literal for literal in literals)
    if proved:
        yield from (left <= right for left, right in permutations(terms, 2))
