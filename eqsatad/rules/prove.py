"""Machine checks of rows: a counterexample, or a proof and how far it goes.

Small values are tried first, which gives the smallest counterexample. Then Z3 proves the claim for
all integers: with the literals symbolic, with quotients as unknowns between their bounds, or for
each choice of one or two literals up to 16. A claim that takes longer than its time, or that is
checked where Z3 is not installed, has been tried on small values only, and the proof says so.
Value rows are checked over arrays. Proofs are kept on disk by what a row says, so that a row which
was checked once costs nothing more.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from eqsatad import cache
from eqsatad.errors import RefutedRuleError, RuleError
from eqsatad.rules.catalog import AnyRow, fingerprint
from eqsatad.rules.installed import versions
from eqsatad.rules.prove_claims import claim
from eqsatad.rules.prove_trials import trial
from eqsatad.rules.prove_values import check_value_rule
from eqsatad.rules.rule import DomainRow, IndexRow, IntervalRow, TermRow, place
from eqsatad.rules.suggest import missing_condition
from eqsatad.rules.value_rule import ValueRule
from eqsatad.rules.wellformed_values import well_formed_value
from eqsatad.terms.nodes import digest

SECONDS = 60.0
"""How long Z3 may take over one row."""

LARGEST = 16
"""The literals that are run through where Z3 cannot keep them symbolic."""

LAYERS = ("terms", "rules")
TOOLS = ("z3-solver", "hypothesis")
"""What a proof depends on besides the row: code of these packages, and the tools that are there."""

ANYWHERE = ("symbolic", "quotient witness")
"""Methods that need no number of cases."""


@dataclass(frozen=True)
class Proof:
    """That a row holds, and by what.

    ``method`` is ``symbolic`` or ``quotient witness`` (all integers), ``literals m, n to 16`` (all
    integers, for these values of the literals), ``trials`` (small values only) or ``arrays`` (a
    value row, on small arrays); ``cases`` is how many questions or fillings that took. Of a value
    row, ``drawn`` fillings more came from Hypothesis, and ``bits`` says that both sides were
    the same bits in float32.
    """

    name: str
    method: str
    cases: int
    drawn: int = 0
    bits: bool = False

    def __str__(self) -> str:
        parts = [self.method]
        if self.method not in ANYWHERE:
            parts.append(f"{self.cases:,} cases")
        if self.drawn:
            parts.append(f"{self.drawn} drawn")
        if self.bits:
            parts.append("float32 bit for bit")
        return ", ".join(parts)


def check(row: AnyRow, *, seconds: float = SECONDS, largest: int = LARGEST) -> Proof:
    """The proof of ``row``; `RuleError` with the smallest counterexample found if it is wrong.

    A row that could not be run, such as one with a letter that nothing binds, is refused too.
    """
    known = cache.code(*LAYERS), *versions(*TOOLS)
    key = f"proof-{digest(*known, seconds, largest, fingerprint(row))}"
    if (kept := cache.fetch(key)) is not None:
        return Proof(**json.loads(kept))
    try:
        proof = _value_proof(row) if isinstance(row, ValueRule) else _proof(row, seconds, largest)
    except RefutedRuleError as error:
        raise RefutedRuleError(f"{error}{_hint(row)}{_where(row)}") from None
    except RuleError as error:
        raise RuleError(f"{error}{_where(row)}") from None
    cache.keep(key, json.dumps(asdict(proof)).encode())
    return proof


def _value_proof(row: ValueRule) -> Proof:
    well_formed_value(row)
    tried = check_value_rule(row)
    return Proof(row.name, "arrays", tried.fillings, tried.drawn, row.exact)


def _proof(row: AnyRow, seconds: float, largest: int) -> Proof:
    assert isinstance(row, IndexRow | TermRow | IntervalRow | DomainRow)
    stated = claim(row)
    tried = trial(stated)
    try:
        import z3
    except ImportError:
        return Proof(row.name, "trials", tried)
    from eqsatad.rules.prove_symbolic import prove

    found = prove(stated, z3, seconds, largest)
    return Proof(row.name, found.method or "trials", found.cases or tried)


def _hint(row: AnyRow) -> str:
    missing = missing_condition(row)
    return f"\nOn small values it holds with {missing}." if missing else ""


def _where(row: AnyRow) -> str:
    """The row, and the line on which it was written if that is known."""
    return f"\n  at {place(row.origin)}: {row!r}" if row.origin else f"\n  in {row!r}"
