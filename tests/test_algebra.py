"""Value rows: each is sound on small fillings, and the engine applies them as they are written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from eqsatad.errors import RuleError
from eqsatad.extract.cost import COUNT
from eqsatad.extract.optimise import optimise
from eqsatad.rules.prove_values import check_value_rule
from eqsatad.rules.value_rule import (
    S,
    T,
    ValueRule,
    absent,
    call,
    compile_row,
    extent,
    g,
    guard,
    lacks,
    rewrite,
    sum_over,
    x,
    y,
    z,
)
from eqsatad.rules.values import canonical
from eqsatad.terms import builders as ea
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Reduce, Select, Stage
from eqsatad.terms.walk import postorder
from rules_catalog.algebra import ALGEBRA
from rules_catalog.functions import FUNCTIONS
from rules_catalog.sums import GUARDED, HOISTING, SUMS

CATALOG = (*ALGEBRA, *SUMS, *HOISTING, *GUARDED, *FUNCTIONS)


@pytest.mark.parametrize("row", CATALOG, ids=lambda row: row.name)
def test_row_is_sound(row: ValueRule) -> None:
    """Both sides agree on every small filling that meets the conditions."""
    check_value_rule(row)


def test_row_names_are_unique() -> None:
    names = [row.name for row in CATALOG]
    assert len(set(names)) == len(names)


BROKEN = (
    rewrite("sum-factor", sum_over(T, x * y), y * sum_over(T, x)),
    rewrite("sum-lost-axis", sum_over(S | T, x), sum_over(S, x), absent(T, x)),
    rewrite("sum-extent", sum_over(S | T, x), sum_over(S, x) * extent(S), absent(T, x)),
    rewrite("guard-let-out", guard(g, x * y), y * guard(g, x), lacks(y, g)),
    rewrite("guard-out-of-sum", sum_over(T, guard(g, x)), guard(g, sum_over(T, x))),
    rewrite("sum-of-product", sum_over(T, x * y), sum_over(T, x) * sum_over(T, y)),
    rewrite("times-sum", x * sum_over(T, y), sum_over(T, x * y)),
    rewrite("over-itself", x / x, 2),
    rewrite("cosine-of-zero", call("cos", guard(g, x)), guard(g, call("cos", x))),
    rewrite("associates-bitwise", (x + y) + z, x + (y + z), exact=True),
)


@pytest.mark.parametrize("row", BROKEN, ids=lambda row: row.name)
def test_broken_row_is_refused(row: ValueRule) -> None:
    """The message shows the row and the filling."""
    with pytest.raises(RuleError, match=rf"(?s){row.name}.*extents"):
        check_value_rule(row)


def test_row_that_never_applies_is_refused() -> None:
    """A row whose conditions no filling meets would be sound by having no instance."""
    row = rewrite("never", sum_over(S | T, guard(g, x)), x, absent(T, g), lacks(x, x))
    with pytest.raises(RuleError, match="never tested"):
        check_value_rule(row)


def test_letter_that_is_not_matched_is_refused() -> None:
    with pytest.raises(RuleError, match="z stands after the arrow"):
        compile_row(rewrite("unbound", x + y, x + z))


def same_values(before: Stage, after: Sequence[Stage], seed: int = 0) -> None:
    """Asserts that both programs compute the same array; sums may be reordered."""
    rng = np.random.default_rng(seed)
    tensors = {
        read.tensor.name: read.tensor for read in postorder(before.body) if hasattr(read, "tensor")
    }
    arrays = {
        name: rng.normal(size=[size.value for size in tensor.shape])
        for name, tensor in tensors.items()
    }
    expected, found = evaluate([before, after[-1]], arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_equal_reductions_have_equal_names() -> None:
    """Sums that differ only in the name of their axis are one node."""
    h = ea.placeholder((4, 5), "h", "float64")
    j, k = ea.reduce_axis((0, 5), "j"), ea.reduce_axis((0, 5), "k")
    stage = ea.compute((4,), lambda i: ea.sum(h[i, j], axis=j) * ea.sum(h[i, k], axis=k))
    term, _ = canonical(stage.body)
    assert term.args[0] is term.args[1]  # type: ignore[attr-defined]


def guarded_sum() -> Stage:
    """A sum whose condition speaks of the output axis only."""
    h = ea.placeholder((4, 5), "h", "float64")
    j = ea.reduce_axis((0, 5), "j")
    return ea.compute((4,), lambda i: ea.sum(h[i, j] * h[i, j], axis=j, where=i < 2))


def test_condition_leaves_the_sum() -> None:
    stage = guarded_sum()
    (only,) = optimise(stage, CATALOG, COUNT).stages
    assert isinstance(only.body, Select)
    assert not list(only.body.then.cond.children)  # type: ignore[attr-defined]
    same_values(stage, [only])


def test_condition_stays_without_the_hoisting_rows() -> None:
    rows = [row for row in CATALOG if row not in HOISTING]
    (only,) = optimise(guarded_sum(), rows, COUNT).stages
    assert isinstance(only.body, Reduce)
    assert only.body.cond.children


def test_unselected_values_do_not_leak() -> None:
    """0 times something that is no number would be no number: a guard is never arithmetic."""
    a = ea.placeholder((4,), "a", "float64")
    b = ea.placeholder((4,), "b", "float64")
    stage = ea.compute((4,), lambda i: b[i] * ea.select(a[i] > 0, b[i] / a[i], 0.0) * 2.0)
    arrays = {"a": np.array([0.0, 1.0, -1.0, 2.0]), "b": np.array([1.0, 2.0, np.nan, 3.0])}
    found = optimise(stage, CATALOG, COUNT).stages
    result = evaluate([found[-1]], arrays)[0]
    expected = np.array([0.0, 8.0, np.nan, 9.0])
    # b is a factor outside the select too, so its own nan is the result of element 2.
    np.testing.assert_array_equal(result[[0, 1, 3]], expected[[0, 1, 3]])


def test_read_stays_under_the_guard_that_keeps_it_in_range() -> None:
    """Factors leave the guard, the read that needs it does not."""
    h = ea.placeholder((4, 6), "h", "float64")
    v = ea.placeholder((6,), "v", "float64")
    k, f = ea.reduce_axis((0, 3), "k"), ea.reduce_axis((0, 4), "f")
    stage = ea.compute(
        (6,),
        lambda i: ea.sum(h[f, i] * v.get(i + k - 1, outside=0.0), axis=(k, f)),
    )
    found = optimise(stage, CATALOG, COUNT)
    assert found.cost_after < found.cost_before
    same_values(stage, found.stages)


def test_exact_rows_change_no_bit() -> None:
    """With the rows that are bit-exact only, the result is the same array."""
    rows = [row for row in CATALOG if row.exact]
    a = ea.placeholder((3, 4), "a", "float64")
    k = ea.reduce_axis((0, 4), "k")
    stage = ea.compute((3,), lambda i: ea.sum(a[i, k] * 1.0 + 0.0, axis=k, where=i < 2) * a[i, 0])
    found = optimise(stage, rows, COUNT)
    arrays = {"a": np.random.default_rng(1).normal(size=(3, 4))}
    before, after = evaluate([stage, found.stages[-1]], arrays)
    np.testing.assert_array_equal(before, after)
