"""Simplification comes from the rows of the catalog: without them a gradient is right, but dear."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import eqsatad as ea
from benchmarks.legacy import TOLERANCE, gradient_error
from benchmarks.legacy_cases import CASES, Case, square
from eqsatad.rules.catalog import Catalog, load, themes


def two_exponentials() -> Case:
    """A product of exponentials, which is one exponential."""
    a = square()
    y = ea.compute((10, 10), lambda i, j: ea.exp(a[i, j]) * ea.exp(-a[i, j] * a[i, j]), "B")
    return Case(y, (a,))


# For each theme of the catalog a gradient that costs more without its rows.
NEEDED_BY: dict[str, Callable[[], Case]] = {
    "algebra": CASES["mul-transpose"],
    "domains": CASES["mul-transpose"],
    "functions": two_exponentials,
    "guarded": CASES["conv-broadcast-weight"],
    "guards": CASES["take-flat"],
    "hoisting": CASES["conv-broadcast-weight"],
    "intervals": CASES["reshape-truncating"],
    "quotients": CASES["reshape-truncating"],
    "sums": CASES["diag-of-square-plus"],
}


def gradients(case: Case, rules: Catalog) -> ea.Gradients:
    """The gradients of ``case`` as those rows leave them."""
    return ea.differentiate(case.output, list(case.inputs), cost="count", rules=rules)


def cost(case: Case, rules: Catalog) -> int:
    """Iterations, multiplications and what innermost bodies decide and divide, together."""
    total = gradients(case, rules).report(sizes=case.sizes).total
    inner = total.inner_conditions + total.index_divisions
    return total.iterations + total.multiplications + inner


def test_every_theme_has_a_program_that_needs_it() -> None:
    assert set(NEEDED_BY) == set(themes())


@pytest.mark.parametrize("theme", NEEDED_BY)
def test_gradient_costs_more_without_the_theme(theme: str) -> None:
    case = NEEDED_BY[theme]()
    assert cost(case, load(without=[theme])) > cost(case, load())


@pytest.mark.parametrize(
    "name", ["conv-p1", "maxpool-k3-s2", "reshape-truncating", "dense-softmax"]
)
def test_gradient_without_any_row_is_right(name: str) -> None:
    case = CASES[name]()
    assert gradient_error(case, gradients(case, ())) <= TOLERANCE


@pytest.mark.parametrize("name", ["mul-transpose", "diag-of-square-plus", "max-product", "reshape"])
def test_gradient_without_any_row_costs_more(name: str) -> None:
    case = CASES[name]()
    assert cost(case, ()) > 1.2 * cost(case, load())
