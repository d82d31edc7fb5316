"""Every row of the catalog holds; rows that are wrong or say nothing are refused with a reason."""

from __future__ import annotations

import builtins
from collections.abc import Callable

import pytest

from eqsatad.errors import RuleError
from eqsatad.rules.catalog import AnyRow, load
from eqsatad.rules.prove import check
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
    q,
    restrict,
    rewrite,
    s,
    w,
    x,
    y,
    z,
)
from eqsatad.rules.value_rule import ValueRule
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


def test_counterexample_names_letters_and_both_sides() -> None:
    with pytest.raises(RuleError) as refusal:
        check(rewrite("halves", (2 * x + y) // m, x + y // m, m > 0))
    assert str(refusal.value) == GOLDEN


GOLDEN = """\
rule halves is wrong: before is not after, with x = 1, y = 0, m = 1
  before: (2 * x + y) // m, which is 2
  after: x + y // m, which is 1
State the condition that excludes this, or take the row out."""

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
