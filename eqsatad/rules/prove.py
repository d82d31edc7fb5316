"""Machine checks of rows: a counterexample, or a proof and how far it goes.

Small values are tried first, which gives the smallest counterexample. Then Z3 proves the claim for
all integers: with the literals symbolic, or for each choice of one or two literals up to 16. A
claim that takes longer than its time, or that is checked where Z3 is not installed, has been tried
on small values only, and the proof says so. Value rows are checked over arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsatad.rules.catalog import AnyRow
from eqsatad.rules.prove_claims import claim
from eqsatad.rules.prove_trials import trial
from eqsatad.rules.prove_values import check_value_rule
from eqsatad.rules.rule import DomainRow, IndexRow, IntervalRow, TermRow
from eqsatad.rules.value_rule import ValueRule

SECONDS = 60.0
"""How long Z3 may take over one row."""

LARGEST = 16
"""The literals that are run through where Z3 cannot keep them symbolic."""


@dataclass(frozen=True)
class Proof:
    """That a row holds, and by what.

    ``method`` is ``symbolic`` (all integers), ``literals m, n to 16`` (all integers, for these
    values of the literals), ``trials`` (small values only) or ``arrays`` (a value row, on small
    arrays); ``cases`` is how many questions or fillings that took.
    """

    name: str
    method: str
    cases: int

    def __str__(self) -> str:
        cases = "" if self.method in ("symbolic", "arrays") else f", {self.cases} cases"
        return f"{self.method}{cases}"


def check(row: AnyRow, *, seconds: float = SECONDS, largest: int = LARGEST) -> Proof:
    """The proof of ``row``; `RuleError` with the smallest counterexample found if it is wrong.

    A row that could not be run, such as one with a letter that nothing binds, is refused too.
    """
    if isinstance(row, ValueRule):
        check_value_rule(row)
        return Proof(row.name, "arrays", 0)
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
