"""Simplification comes from the rows of the catalog: without them a gradient is right, but dear."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import eqsatad as ea
from benchmarks.legacy import TOLERANCE, gradient_error
from benchmarks.legacy_cases import CASES, Case, square
from eqsatad import library
from eqsatad.counting import report
from eqsatad.rules.catalog import Catalog, load, themes
from eqsatad.rules.prove import check
from eqsatad.rules.value_rule import call, rewrite
from eqsatad.rules.value_rule import x as x_
from eqsatad.terms.nodes import Apply
from eqsatad.terms.ops import FLOORDIV
from eqsatad.terms.walk import postorder, program


def two_exponentials() -> Case:
    """A product of exponentials, which is one exponential."""
    a = square()
    y = ea.compute((10, 10), lambda i, j: ea.exp(a[i, j]) * ea.exp(-a[i, j] * a[i, j]), "B")
    return Case(y, (a,))


def one_weight() -> Case:
    """The convolution whose weights are all one number, by that number."""
    case = CASES["conv-broadcast-weight"]()
    return Case(case.output, case.inputs[1:])


# For each theme of the catalog a gradient that costs more without its rows.
NEEDED_BY: dict[str, Callable[[], Case]] = {
    "algebra": CASES["mul-transpose"],
    "domains": CASES["mul-transpose"],
    "functions": two_exponentials,
    "guarded": one_weight,
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


def convolution() -> tuple[ea.Stage, ea.Placeholder]:
    """A strided convolution and its input."""
    x = ea.placeholder((1, 2, 9, 9), name="x")
    w = ea.placeholder((2, 2, 3, 3), name="w")
    return library.conv2d(x, w, stride=2), x


def test_strided_convolution_keeps_its_dense_loops_without_the_domain_rows() -> None:
    y, x = convolution()
    dense = ea.differentiate(y, [x], cost="count", rules=load(without=["domains"])).report().total
    exact = ea.differentiate(y, [x], cost="count").report().total
    # Every input element against every output element, channel and tap that reaches it.
    assert dense.iterations >= 2 * 9 * 9 * 2 * 4 * 4 * 3 * 3
    assert dense.inner_conditions > 0
    assert exact.iterations == exact.multiplications == 2 * 2 * (3 * 4) ** 2
    assert exact.inner_conditions == 0


def quotients(gradient: ea.Tensor) -> int:
    """The divisions left in the term of a gradient."""
    assert isinstance(gradient, ea.Stage)
    nodes = postorder(*gradient.roots)
    return sum(isinstance(node, Apply) and node.op is FLOORDIV for node in nodes)


def test_flatten_keeps_its_divisions_without_the_quotient_rows() -> None:
    x = ea.placeholder((3, 4, 5, 6), name="x")
    y = library.flatten(x)
    (divided,) = ea.differentiate(y, [x], rules=load(without=["quotients"]))
    (copied,) = ea.differentiate(y, [x])
    assert quotients(divided) > 0
    assert quotients(copied) == 0


def test_condition_on_data_stays_inside_the_sum_without_the_hoisting_rows() -> None:
    y = ea.op("y[i] = sum(select(m[i] > 0, a[i,k], 0.0))", a=(8, 8), m=(8,))

    def inner_conditions(rules: Catalog) -> int:
        loops = ea.build([y], target="reference", rules=rules).loops
        return report(loops).total.inner_conditions

    assert inner_conditions(load(without=["hoisting"])) == 8 * 8
    assert inner_conditions(load()) == 0


def test_row_of_a_user_improves_a_result() -> None:
    pythagoras = rewrite(
        "pythagoras",
        call("sin", x_) * call("sin", x_) + call("cos", x_) * call("cos", x_),
        1,
    )
    check(pythagoras)
    y = ea.op("y[i] = a[i] * (sin(b[i])*sin(b[i]) + cos(b[i])*cos(b[i]))", a=(10,), b=(10,))
    (a,) = [tensor for tensor in program([y]) if tensor.name == "a"]
    before = ea.differentiate(y, [a], cost="count").report().total
    after = ea.differentiate(y, [a], cost="count", rules=(*load(), pythagoras)).report().total
    assert before.multiplications > 10
    assert after.multiplications == 0
