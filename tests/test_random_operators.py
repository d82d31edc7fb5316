"""A part of the random operators whose gradients are counted, and what decides the verdict.

``python -m tests.random_operators --examples 500`` looks longer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Placeholder
from eqsatad.terms.walk import program
from tests.operator_families import FAMILIES, extents, operator
from tests.random_operators import main, misses

EXAMPLES = 96
"""Examples of all families; each row of a parameter is one that once missed."""

MISSED = {
    61: "a product with a sum that is empty at the end of an axis",
    92: "the same where the sum is stored",
    234: "heads whose windows hold nothing",
    237: "bounds that are quotients of an axis",
    349: "sums that are empty at some residues",
    558: "a constant that leaves a sum over parts",
    784: "a factor that conditions kept in a sum",
    806: "elements of a temporary that nobody reads",
    959: "a copy of fewer places than the tensor has",
    1338: "the digits of a padded axis",
    2399: "the digits of a number in another radix",
    5085: "digits that change places",
    5370: "a condition within a product within a condition",
    8423: "a part of a part that is read through a quotient",
}


@pytest.mark.parametrize("seed", MISSED, ids=lambda seed: f"{seed}-{MISSED[seed]}")
def test_example_that_once_missed(seed: int) -> None:
    assert misses(operator(seed)[1]) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_multiply_as_often_as_the_formula_says(family: str) -> None:
    for seed in range(20_000, 20_000 + EXAMPLES // len(FAMILIES)):
        _, made = operator(seed, [family])
        assert misses(made) == [], f"example {seed} of {family}: {made.text}"


@pytest.mark.parametrize("family", ["move", "chain"])
def test_moves_take_the_places_that_are_counted(family: str) -> None:
    for seed in range(40):
        _, made = operator(seed, [family])
        if len(made.products) == 1:
            continue
        given = {
            tensor.name: np.zeros(extents(tensor))
            if tensor.name == "X"
            else 1.0 + np.zeros(extents(tensor))
            for tensor in program([made.output])
            if isinstance(tensor, Placeholder)
        }
        (without,) = evaluate([made.output], given)
        (with_ones,) = evaluate([made.output], given | {"X": given["X"] + 1.0})
        assert (with_ones - without).sum() == made.pairs, made.text


def test_a_wrong_count_and_a_wrong_gradient_are_seen() -> None:
    _, made = operator(5)
    more = replace(made, products={tensor: n + 1 for tensor, n in made.products.items()})
    assert len(misses(more)) == len(made.products)


def test_a_miss_is_an_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--examples", "2", "--families", "sum,move"]) == 0
    monkeypatch.setattr("tests.random_operators.misses", lambda made: ["dX: 2 for 1"])
    assert main(["--examples", "1", "--seed", "7"]) == 1
    assert "example 7" in capsys.readouterr().out
