"""Rows that duplicate, imply or undo others are found; those of the catalog say why they stay."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eqsatad.rules import redundant
from eqsatad.rules.catalog import AnyRow, every_row, kept, load
from eqsatad.rules.redundant import DUPLICATES, IMPLIED, UNDOES, Remark, remarks
from eqsatad.rules.rule import extent, high, interval, k, low, m, n, q, restrict, turn, u, x, y, z
from eqsatad.rules.rule import rewrite as index_rewrite
from eqsatad.rules.value_rule import (
    S,
    T,
    absent,
    call,
    equal,
    g,
    guard,
    nonzero,
    rewrite,
    sum_over,
)
from eqsatad.rules.value_rule import c as number
from eqsatad.rules.value_rule import x as v
from eqsatad.rules.value_rule import y as w
from eqsatad.terms.builders import maximum, minimum

CATALOG = load()


def found(row: AnyRow, among: Sequence[AnyRow] = CATALOG) -> dict[str, tuple[str, ...]]:
    """What is remarked on ``row`` beside ``among``."""
    return {remark.what: remark.others for remark in remarks([row], [*among, row])}


# A row under other names, and the row of the catalog that it repeats.
COPIES: dict[str, tuple[AnyRow, str]] = {
    "value": (rewrite("mine", w * 1, w), "times-one"),
    "axes": (
        rewrite("mine", sum_over(S, v) + sum_over(S, w), sum_over(S, v + w)),
        "sum-plus-sum",
    ),
    "both ways": (equal("mine", w + w, 2 * w), "twice"),
    "index": (index_rewrite("mine", (n * y + x) // n, y + x // n, n > 0), "floor-multiple"),
    "interval": (interval("mine", y // n, low(y) // n, high(y) // n, n > 0), "interval-floor"),
    "domain": (restrict("mine", (q + y).equal(0), axis=q, value=-y, rank=7), "solve-unit"),
}


@pytest.mark.parametrize("what", COPIES, ids=str)
def test_copy_is_a_duplicate(what: str) -> None:
    row, name = COPIES[what]
    assert found(row)[DUPLICATES] == (name,)


def test_copy_under_other_conditions_is_no_duplicate() -> None:
    one = index_rewrite("one", x.equal(0), False, low(x) > 0)
    assert DUPLICATES not in found(index_rewrite("other", x.equal(0), False, high(x) < 0), [one])


# A row that others imply, and which of them do.
IMPLIED_ROWS: dict[str, tuple[AnyRow, set[str]]] = {
    "by two rows": (rewrite("mine", (v * 1) + 0, v), {"times-one", "plus-zero"}),
    "by a special case": (
        rewrite("mine", sum_over(T, guard(g, v)), guard(g, sum_over(T, v)), absent(T, g)),
        {"guard-leaves-axes"},
    ),
    "by constants": (
        rewrite("mine", v / number, v * (1 / number), nonzero(number)),
        {"constant-over", "over-as-times"},
    ),
    "of functions": (
        rewrite("mine", call("exp", v) * (call("exp", w) * 1), call("exp", v + w)),
        {"times-one", "exp-times"},
    ),
}


@pytest.mark.parametrize("what", IMPLIED_ROWS, ids=str)
def test_row_that_others_imply_names_them(what: str) -> None:
    row, names = IMPLIED_ROWS[what]
    assert set(found(row)[IMPLIED]) == names


# Rows over indices that the catalog does without.
REACHED: dict[str, AnyRow] = {
    "quotient": index_rewrite("mine", (2 * m * x + y) // m, 2 * x + y // m, m > 0, low(y) >= 0),
    "guard": index_rewrite("mine", x >= 0, True, low(x) >= 3),
    "interval": interval("mine", 2 * k + y, low(y), high(2 * (extent(k) - 1) + y) + 5),
    "domain": restrict(
        "mine", (2 * k + x).equal(0), axis=k, value=(-x) // 2, leaves=((x % 2).equal(0),), rank=2
    ),
}


@pytest.mark.parametrize("what", REACHED, ids=str)
def test_row_over_indices_that_is_reached_without_is_implied(what: str) -> None:
    assert IMPLIED in found(REACHED[what])


# Rows that do what nothing in the catalog does.
NEEDED: dict[str, AnyRow] = {
    "value": rewrite("mine", call("sin", v) * call("sin", v) + call("cos", v) * call("cos", v), 1),
    "index": index_rewrite("mine", x // m >= 0, x >= 0, m > 0),
}


@pytest.mark.parametrize("what", NEEDED)
def test_row_that_does_something_new_is_not_implied(what: str) -> None:
    assert found(NEEDED[what]) == {}


@pytest.mark.parametrize("name", ["floor-multiple", "solve-congruence", "interval-digit", "factor"])
def test_row_of_the_catalog_is_not_implied_by_the_rest(name: str) -> None:
    (row,) = (row for row in CATALOG if row.name == name)
    assert remarks([row], CATALOG) == []


def test_rows_that_undo_each_other_are_told() -> None:
    inward = turn("inward", minimum(maximum(x, y), z), maximum(minimum(x, z), y), y <= z)
    outward = turn("outward", maximum(minimum(u, z), x), minimum(maximum(u, x), z), x <= z)
    assert found(outward, [inward]) == {UNDOES: ("inward",)}


def test_row_that_undoes_itself_only_reorders() -> None:
    assert found(rewrite("swap", v + w, w + v), []) == {}


def test_remarks_are_kept_by_what_the_rows_say(monkeypatch: pytest.MonkeyPatch) -> None:
    row = IMPLIED_ROWS["by two rows"][0]
    first = remarks([row], CATALOG)
    monkeypatch.setattr(redundant, "_remarks", None)
    assert remarks([row], CATALOG) == first


def test_remark_reads_as_a_sentence() -> None:
    assert str(Remark("mine", IMPLIED, ("a", "b"), 3)) == "mine is implied by a, b in 3 rounds"
    assert str(Remark("mine", UNDOES, ("a",))) == "mine undoes a"


def test_every_redundant_row_of_the_catalog_says_why_it_stays_and_no_other_does() -> None:
    rows = every_row()
    assert {remark.row for remark in remarks(rows, rows)} == set(kept())
