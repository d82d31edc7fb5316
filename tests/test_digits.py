"""Digits of numbers whose bases are sizes: equations about them say what the numbers are."""

import pytest

from eqsatad import differentiate
from eqsatad import library as nn
from eqsatad.loops.nest import Accumulate, statements
from eqsatad.rules.digits import compared
from eqsatad.rules.indices import ATLEAST, ZERO
from eqsatad.terms import builders as ea
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Axis

C, H, W = (ea.size(name) for name in "chw")
ROW, COLUMN = Axis("i", H), Axis("j", W)
PLACE, IMAGE = Axis("k", H * W), Axis("n", C)


def equation(left, right):
    return ZERO, linear(left - right)


def test_a_quotient_and_its_remainder_are_what_was_divided():
    found = compared([equation(PLACE // W, ROW), equation(COLUMN, PLACE % W)])
    assert found == [
        equation(PLACE, ROW * W + COLUMN),
        (ATLEAST, linear(COLUMN)),
        (ATLEAST, linear(W - 1 - COLUMN)),
    ]


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param([equation(PLACE // H, ROW), equation(COLUMN, PLACE % W)], id="of other sizes"),
        pytest.param(
            [equation(2 * (PLACE // W), ROW), equation(COLUMN, PLACE % W)], id="of a multiple"
        ),
        pytest.param(
            [equation(PLACE // W, ROW), (ATLEAST, linear(COLUMN - PLACE % W))], id="a bound"
        ),
    ],
)
def test_other_pairs_are_left_alone(pair):
    assert compared(pair) == pair


def test_numbers_below_a_power_of_the_base_are_compared_digit_by_digit():
    other, batch = Axis("m", H * W), Axis("b", C)
    found = compared([equation(IMAGE * H * W + PLACE, batch * H * W + other)])
    assert set(found) == {equation(IMAGE, batch), equation(PLACE, other)}


def test_digits_that_may_be_as_large_as_the_base_are_not_compared():
    longer, batch = Axis("m", H * W + 1), Axis("b", C)
    guards = [equation(IMAGE * H * W + PLACE, batch * H * W + longer)]
    assert compared(guards) == guards


@pytest.mark.parametrize("wrt", [0, 1])
def test_gradient_of_a_flattened_image_of_any_size_scatters_nothing(wrt):
    batch, out = ea.size("n"), ea.size("o")
    x = ea.placeholder((batch, C, H, W), name="X")
    flat = nn.flatten(x)
    weights = ea.placeholder((out, flat.shape[1]), name="V")
    program = differentiate(nn.dense(flat, weights), [(x, weights)[wrt]]).loops()
    found = statements(tuple(each for nest in program.nests for each in nest.body))
    assert not any(isinstance(each, Accumulate) for each in found)
