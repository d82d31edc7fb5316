"""Every row of the catalog holds; rows that are wrong or say nothing are refused with a reason."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import pytest

from eqsatad import cache
from eqsatad.errors import RefutedRuleError, RuleError
from eqsatad.rules import prove
from eqsatad.rules import value_rule as values
from eqsatad.rules.catalog import AnyRow, load
from eqsatad.rules.prove import check
from eqsatad.rules.prove_values import check_value_rule
from eqsatad.rules.rule import (
    Row,
    b,
    c,
    divides,
    extent,
    g,
    gcd,
    high,
    interval,
    inverse,
    k,
    let,
    low,
    m,
    n,
    p,
    place,
    q,
    restrict,
    rewrite,
    s,
    turn,
    w,
    x,
    y,
    z,
)
from eqsatad.rules.value_rule import ValueRule
from eqsatad.terms.builders import minimum
from eqsatad.terms.nodes import Expr

CATALOG = load()
SMALL = 8
"""`eqsatad rules check` goes on to 16, which takes four times as long."""
INTEGER_ROWS = [row for row in CATALOG if isinstance(row, Row)]


@pytest.mark.parametrize("row", CATALOG, ids=lambda row: row.name)
def test_row_of_the_catalog_holds(row: AnyRow) -> None:
    proof = check(row, largest=SMALL)
    assert proof.method == "arrays" if isinstance(row, ValueRule) else proof.method != "trials"


def _window(width: Callable[[Expr, Expr], Expr]) -> Row:
    return restrict(
        "window",
        x - c * k >= 0,
        c * k + y >= 0,
        axis=k,
        value=x // c - q,
        fresh=(q, width(w, c)),
        when=(c > 0, let(w, high(x + y)), w >= 0),
        rank=0,
    )


def _congruence(size: Expr, leaves: tuple[Expr, ...], start: Expr) -> Row:
    return restrict(
        "congruence",
        ((c * k + x) % s).equal(0),
        axis=k,
        value=b * q + start,
        fresh=(q, size),
        leaves=leaves,
        when=(s > 1, let(g, gcd(c, s)), let(b, s // g), let(p, inverse(c // g, b)), b > 1),
        rank=0,
    )


START = (-p * (x // g)) % b

# What is wrong with each row is its key; what its message has to say is its second entry.
WRONG: dict[str, tuple[Row, str]] = {
    "no range for what is dropped": (
        rewrite("floor", (g * x + y) // m, x // (m // g), g > 1, divides(g, m), m > 0),
        "before is not after",
    ),
    "the factor does not divide": (
        rewrite("floor", (g * x) // m, x // (m // g), g > 0, m > 0),
        "it divides by m // g, which is not above 0",
    ),
    "the divisor may be negative": (
        rewrite("floor", x // m, -((-x) // m), m > 0),
        "before is not after",
    ),
    "an equation without its congruence": (
        restrict("scaled", (c * k + x).equal(0), axis=k, value=(-x) // c, leaves=(),
                 when=(c > 1,), rank=0),
        "a new point breaks a guard",
    ),
    "the wrong sign": (
        restrict("unit", (k + x).equal(0), axis=k, value=x, rank=0),
        "no new point gives this value of the axis",
    ),
    "a window that is one too narrow": (
        _window(lambda w, c: w // c),
        "the new axis is too short for an old point",
    ),
    "an interval that is one too narrow": (
        interval("axis", c * k + y, low(y), high(c * (extent(k) - 2) + y), c > 0),
        "the pattern is above its upper end",
    ),
    "an interval for one sign used for both": (
        interval("axis", c * k + y, low(y), high(c * (extent(k) - 1) + y)),
        "the pattern is below its lower end",
    ),
    "a digit that is one too large": (
        interval("digit", x // m - n * (x // (m * n)) + y, low(y), (n - 2) + high(y), m > 0, n > 0),
        "the pattern is above its upper end",
    ),
    "points met twice": (
        restrict("twice", ((k + x) // m + y).equal(0), axis=k, value=-m * y - x + q % m,
                 fresh=(q, 2 * m), leaves=(), when=(m > 1,), rank=0),
        "the value does not move in equal steps with q",
    ),
    "one point met many times": (
        restrict("many", (k + x).equal(0), axis=k, value=-x + 0 * q, fresh=(q, extent(k)), rank=0),
        "the value does not move with q",
    ),
    "a congruence that starts at the wrong place": (
        _congruence((extent(k) + b - 1) // b, ((x % g).equal(0),), (p * (x // g)) % b),
        "a new point breaks a guard",
    ),
    "a congruence that stops too early": (
        _congruence(extent(k) // b, ((x % g).equal(0),), START),
        "the new axis is too short for an old point",
    ),
    "a congruence that forgets the common factor": (
        _congruence((extent(k) + b - 1) // b, (), START),
        "a new point breaks a guard",
    ),
    "a digit without its range": (
        restrict("digit", ((c * k + x) % m + y).equal(0), axis=k, value=k,
                 leaves=(((c * k + x + y) % m).equal(0), -y >= 0), when=(m > 0,), rank=0),
        "the leaves hold and the guards do not",
    ),
    "a condition that ranges do not decide": (
        rewrite("holds", x >= 0, True, high(x) >= 0),
        "after holds and before does not",
    ),
    "a condition dropped where it may hold": (
        rewrite("fails", x >= 0, False, low(x) < 0),
        "before holds and after does not",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG, ids=str)
def test_wrong_row_is_refused_with_a_counterexample(what: str) -> None:
    row, why = WRONG[what]
    with pytest.raises(RuleError) as refusal:
        check(row)
    message = str(refusal.value)
    assert message.startswith(f"rule {row.name} is wrong: {why}, with ")
    assert ", which is " in message


@pytest.mark.parametrize("what", WRONG, ids=str)
def test_counterexample_is_small(what: str) -> None:
    with pytest.raises(RuleError) as refusal:
        check(WRONG[what][0])
    facts = str(refusal.value).splitlines()[0].split(", with ")[1].split(", ")
    assert all(abs(int(fact.split(" = ")[1])) <= 8 for fact in facts)


def test_counterexample_names_letters_and_both_sides_and_the_row_with_its_line() -> None:
    row = rewrite("halves", (2 * x + y) // m, x + y // m, m > 0)
    with pytest.raises(RuleError) as refusal:
        check(row)
    assert str(refusal.value) == GOLDEN.format(place(row.origin))
    assert re.fullmatch(r".*test_prove\.py:\d+", row.origin)


GOLDEN = """\
rule halves is wrong: before is not after, with x = 1, y = 0, m = 1
  before: (2 * x + y) // m, which is 2
  after: x + y // m, which is 1
State the condition that excludes this, or take the row out.
  at {}: halves: (2 * x + y) // m => x + y // m  if m > 0"""

# Rows that make no claim, and what is said about them.
MALFORMED: dict[str, tuple[Row, str]] = {
    "a letter that the right side alone has": (
        rewrite("floor", (m * x) // m, x + y, m > 0),
        "letter y of x + y is bound by nothing",
    ),
    "a letter that a condition alone has": (
        rewrite("floor", x // m, 0, n > 0),
        "letter n of n > 0 is bound by nothing",
    ),
    "an end of an interval that nothing binds": (
        interval("floor", x // m, 0, n),
        "letter n of n is bound by nothing",
    ),
    "a name that is used before it is given": (
        rewrite("floor", x // m, p, (high(x) // m).equal(p), let(p, low(x) // m)),
        "letter p of high(x) // m == p is bound by nothing",
    ),
    "a name that is taken": (
        rewrite("floor", x // m, 0, let(m, low(x))),
        "m = low(x) names a letter that is bound already",
    ),
    "a name for what is no integer": (
        rewrite("floor", x // m, 0, let(p, x)),
        "let names integers that are known",
    ),
    "a sum that can be shared out in many ways": (
        rewrite("floor", (x + y) // m, x // m + y // m),
        "in x + y it is open what x and y are",
    ),
    "a condition that becomes an index": (
        rewrite("floor", x >= 0, x, low(x) >= 0),
        "x >= 0 is a condition and x is an index",
    ),
    "a left side that no question asks": (
        rewrite("sum", c * x + y, y + c * x),
        "The left side is a quotient by a literal, or a comparison",
    ),
    "a product of two terms": (
        rewrite("product", (x * y) // m, x * (y // m)),
        "A pattern is a sum of letters, quotients and remainders",
    ),
    "a guard that does not mention the axis": (
        restrict("unit", (c * x + z).equal(0), axis=k, value=-z, rank=0),
        "axis k is not in the guard c * x + z == 0",
    ),
    "two multiples of letters": (
        rewrite("multiples", (b * x + c * y) // m, 0),
        "it is open which multiples are which",
    ),
    "a range of a difference": (
        rewrite("range", (m * x + y) // m, x, m > 0, low(x - y) >= 0),
        "low(x - y) is not known",
    ),
    "a common divisor in a quotient": (
        rewrite("divisor", (c * x + y) // m, x, gcd(c, m) > 1),
        "gcd(c, m) is not known here",
    ),
    "an axis where any term may be": (
        rewrite("axis", (c * k + x) // m, 0),
        "index rows have no axes, and k is one",
    ),
    "a remainder where quotients are asked": (
        rewrite("remainder", (x % n) // m, 0),
        "remainders are matched in guards of domain rows only",
    ),
    "more guards than are tried together": (
        restrict("three", k + x >= 0, y - k >= 0, z - k >= 0, axis=k, value=-x, rank=0),
        "it matches 3 guards",
    ),
    "a guard that is no comparison with an order": (
        restrict("differs", (k + x).differs(0), axis=k, value=-x, rank=0),
        "a guard of a rule cannot be ne",
    ),
    "conditions that cannot hold": (
        rewrite("never", x // m, 0, m > 0, m < 0),
        "no small values meet its conditions",
    ),
}


@pytest.mark.parametrize("what", MALFORMED, ids=str)
def test_malformed_row_is_refused_by_name(what: str) -> None:
    row, why = MALFORMED[what]
    with pytest.raises(RuleError) as refusal:
        check(row)
    assert str(refusal.value).startswith(f"rule {row.name}: ")
    assert why in str(refusal.value)


# Value rows that make no claim, and what is said about them.
MALFORMED_VALUES: dict[str, tuple[ValueRule, str]] = {
    "a letter that the right side alone has": (
        values.rewrite("lost", values.x * values.y, values.x * values.z),
        "letter z stands after the arrow and is not matched before it",
    ),
    "a letter that is lost on the way back": (
        values.equal("lost", values.x * 0, values.pattern(0)),
        "0 is no operation, and only operations are matched",
    ),
    "a letter that matches everything": (
        values.rewrite("all", values.x, values.x + 0),
        "x is no operation",
    ),
    "a value where axes are wanted": (
        values.rewrite("axes", values.sum_over(values.x, values.y), values.y),
        "x in sum(x, y) is a value, and a set of axes is wanted there",
    ),
    "a value where a condition is wanted": (
        values.rewrite("guard", values.guard(values.x, values.y), values.y),
        "x in guard(x, y) is a value, and a condition is wanted there",
    ),
    "a condition on the wrong kind of letter": (
        values.rewrite("zero", values.x * values.c, values.x, values.nonzero(values.x)),
        "nonzero(x) is about a constant letter",
    ),
    "a condition on a letter that is nowhere": (
        values.rewrite("axes", values.x * 1, values.x, values.absent(values.T, values.x)),
        "letter T of absent(T, x) is bound by nothing",
    ),
    "an extent of several axes": (
        values.rewrite(
            "extent",
            values.sum_over(values.S | values.T, values.x),
            values.extent(values.T) * values.sum_over(values.S, values.x),
            values.absent(values.T, values.x),
        ),
        "extent(T) needs the condition single(T)",
    ),
    "one axis of a sum that is not split": (
        values.rewrite(
            "single", values.sum_over(values.T, values.x), values.x, values.single(values.T)
        ),
        "single(T) chooses from the axes of a sum; match the sum over S | T",
    ),
    "a function that there is not": (
        values.rewrite("function", values.call("root", values.x), values.x),
        "no function root takes 1 values",
    ),
    "a function of another number of values": (
        values.rewrite("function", values.call("pow", values.x), values.x),
        "no function pow takes 1 values",
    ),
    "conditions that cannot hold": (
        values.rewrite(
            "never",
            values.sum_over(values.S | values.T, values.guard(values.g, values.x)),
            values.x,
            values.absent(values.T, values.g),
            values.absent(values.S, values.g),
            values.lacks(values.x, values.g),
            values.absent(values.T, values.x),
            values.disjoint(values.T, values.T),
        ),
        "it was never tested",
    ),
}


@pytest.mark.parametrize("what", MALFORMED_VALUES, ids=str)
def test_malformed_value_row_is_refused_by_name(what: str) -> None:
    row, why = MALFORMED_VALUES[what]
    with pytest.raises(RuleError) as refusal:
        check(row)
    assert str(refusal.value).startswith(f"rule {row.name}: ")
    assert why in str(refusal.value)
    assert f"{place(row.origin)}: {row!r}" in str(refusal.value)


def test_row_of_the_simplifier_that_replaces_nothing_is_refused() -> None:
    with pytest.raises(RuleError, match="x is nothing that rows replace"):
        check(turn("all", x, x + 0))


# A row that lacks a condition, and the condition.
LACKING: dict[str, tuple[AnyRow, str]] = {
    "a positive literal": (interval("up", c * k + y, low(y), high(c * (extent(k) - 1) + y)),
                           "c > 0"),
    "a range": (rewrite("gone", x // m, 0, m > 0), "low(x) >= 0 and high(x) < m"),
    "an order": (turn("least", minimum(x, y), x), "x <= y"),
    "a factor": (rewrite("floor", (g * x) // m, x // (m // g), g > 0, m > 0), "m % g == 0"),
    "an axis that is absent": (
        values.rewrite("out", values.sum_over(values.T, values.x * values.y),
                       values.y * values.sum_over(values.T, values.x)),
        "absent(T, y)",
    ),
    "a value that is total": (
        values.rewrite("spares", values.guard(values.g, values.x * values.y),
                       values.y * values.guard(values.g, values.x)),
        "total(y)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LACKING, ids=str)
def test_refusal_names_the_condition_that_is_missing(what: str) -> None:
    row, missing = LACKING[what]
    with pytest.raises(RefutedRuleError) as refusal:
        check(row)
    assert f"On small values it holds with {missing}." in str(refusal.value)


def test_refusal_offers_no_condition_where_none_helps() -> None:
    with pytest.raises(RefutedRuleError) as refusal:
        check(values.rewrite("both", values.x + values.y, values.x * values.y))
    assert "it holds with" not in str(refusal.value)


def test_value_row_is_refused_with_the_simplest_values_and_both_sides() -> None:
    row = values.rewrite("squares", values.x * values.x, values.x)
    with pytest.raises(RefutedRuleError) as refusal:
        check(row)
    assert str(refusal.value).splitlines()[:3] == [
        "rule squares is wrong: before is not after, with extents (1,): x over {} = -1",
        "  before: x * x, which is 1 at i0 = 0",
        "  after: x, which is -1",
    ]


EXACT = {
    "an order of additions": values.rewrite(
        "order", (values.x + values.y) + values.z, values.x + (values.y + values.z), exact=True
    ),
    "the sign of a zero": values.rewrite("zero", values.x + 0, values.x, exact=True),
}


def test_row_that_only_float32_tells_apart_is_no_exact_one() -> None:
    """Through float64 the root of a square of float32 is the number itself; not so in float32."""
    square = values.call("sqrt", values.x * values.x)
    assert check(values.rewrite("root", square, values.call("abs", values.x))).method == "arrays"
    with pytest.raises(RefutedRuleError, match="before is not after in float"):
        check(values.rewrite("root", square, values.call("abs", values.x), exact=True))


@pytest.mark.parametrize("what", EXACT, ids=str)
def test_exactness_is_tested_bit_for_bit(what: str) -> None:
    row = EXACT[what]
    assert check(replace(row, exact=False)).bits is False
    with pytest.raises(RefutedRuleError, match=r"before is not after in float\d\d"):
        check(row)


def test_proof_says_how_it_was_found() -> None:
    (row,) = (row for row in CATALOG if row.name == "times-one")
    assert re.fullmatch(r"arrays, \d+ cases, \d+ drawn, float32 bit for bit", str(check(row)))
    (row,) = (row for row in CATALOG if row.name == "interval-digit")
    assert str(check(row)) == "quotient witness"
    (row,) = (row for row in CATALOG if row.name == "solve-congruence")
    assert re.fullmatch(r"literals \w, \w to 8, \d+ cases", str(check(row, largest=SMALL)))


def test_without_hypothesis_no_filling_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    tried = check_value_rule(values.rewrite("one", values.x * 1, values.x))
    assert (tried.fillings > 10, tried.drawn) == (True, 0)


def test_hypothesis_finds_what_the_small_numbers_do_not() -> None:
    """The sides differ above 12 only, where no filling of the enumeration is."""
    row = values.rewrite("clipped", values.call("min", values.x, 12), values.x * 1)
    assert check_value_rule(row, examples=0).drawn == 0
    with pytest.raises(RefutedRuleError, match="rule clipped is wrong"):
        check_value_rule(row)


def test_row_with_many_letters_is_checked_on_a_sample() -> None:
    letters = [values.Pattern(values.VALUE, name=f"x{n}") for n in range(12)]
    row = values.rewrite("many", reduce(add, letters), reduce(add, reversed(letters)))
    assert check(row).cases > 100


def test_proof_is_found_in_the_cache_by_what_the_row_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    first = check(rewrite("small", x // m, 0, m > 0, low(x) >= 0, high(x) < m))
    monkeypatch.setattr(prove, "trial", None)
    again = check(rewrite("small", x // m, 0, m > 0, low(x) >= 0, high(x) < m))
    assert again == first
    with pytest.raises(TypeError):
        check(rewrite("small", x // m, 0, m > 1, low(x) >= 0, high(x) < m))


def test_z3_finds_what_small_values_do_not() -> None:
    far = rewrite("far", x >= 0, True, low(x) > -1_000_000_000, low(x) < -999_999_990)
    with pytest.raises(RuleError, match=r"(?s)rule far is wrong: after holds and before does not"):
        check(far)


def test_without_z3_the_proof_says_that_it_is_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: object) -> object:
        if name == "z3":
            raise ImportError(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", absent)
    proof = check(rewrite("holds", x >= 0, True, low(x) >= 0))
    assert (proof.method, proof.cases > 10) == ("trials", True)


def test_row_that_takes_too_long_says_that_it_is_trials() -> None:
    (row,) = (row for row in INTEGER_ROWS if row.name == "solve-congruence")
    assert check(row, seconds=0).method == "trials"
