"""Offsets by a position that is data are looked up instead of divided."""

import numpy as np
import pytest

import eqsatad as ea
from eqsatad.backends.cpu.code.tables import ENTRIES, tabled
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Axis, Const
from tests.test_positions import SCATTER, added, arrays, gradient

I = Axis("i", Const(9, "index"))  # noqa: E741
PLACE = ea.cast(ea.placeholder((9,), name="A", dtype="int32")[I], "index")


def test_a_table_has_what_digits_add_to_an_offset_for_every_number():
    form = linear(3 * I + 70 * (PLACE // 5) + PLACE % 5 + 1)
    found = tabled(form, PLACE, 24)
    assert found.entries == tuple(70 * (n // 5) + n % 5 for n in range(25))
    assert found.rest == linear(3 * I + 1)


@pytest.mark.parametrize(
    ("offset", "last"),
    [
        (3 * I + PLACE, 24),
        (3 * (I // 2), 24),
        ((PLACE + I) // 5, 24),
        (PLACE // 5, ENTRIES),
        (2**31 * (PLACE // 5), 24),
    ],
    ids=["no division", "another number", "two numbers", "too long", "too large"],
)
def test_there_is_no_table_without_a_division_by_one_small_number(offset, last):
    assert tabled(linear(offset), PLACE, last) is None


@pytest.mark.parametrize(("kernel", "stride"), [(5, 2), (5, 1), (3, 2), (12, 5)])
def test_a_scatter_by_saved_positions_takes_a_table_where_windows_are_whole(kernel, stride):
    adjoint = gradient(kernel, stride, cost=SCATTER)
    built = ea.build([adjoint], target="cpu")
    lines = built.source.splitlines()
    assert lines[0].startswith("@table0 = private")
    assert not any("div" in line and line.endswith(f", {kernel}") for line in lines)
    given = arrays(adjoint, (-2 * kernel**2, 3 * kernel**2))
    np.testing.assert_allclose(built(**given)[0], added(kernel, stride, **given), atol=1e-12)


def test_steps_share_a_table():
    built = ea.build([gradient(5, 2, pad=2, cost=SCATTER)], target="cpu")
    assert built.source.count("= private") == 1
