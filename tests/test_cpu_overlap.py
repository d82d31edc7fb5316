"""Rows of a tile that read, at other steps of a sum, what their neighbours read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kernel_cases import conv, correlation
from eqsatad.backends import build
from eqsatad.backends.cpu import planned
from eqsatad.backends.cpu.runtime.machine import named
from eqsatad.backends.cpu.tiles import choice, overlap
from eqsatad.backends.cpu.tiles.overlap import overlaps
from eqsatad.backends.cpu.tiles.tile import Overlap
from eqsatad.loops.interpret import run
from eqsatad.loops.nest import For
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Const, Read
from tests.loop_programs import arrays_for, lowered, place, reduced
from tests.pages import CLOSED, between_pages
from tests.test_cpu import MACHINES, compiled

# One that may not be here: programs are only planned for it.
CPU = named("x86-64-v4")


def filtered(rows, width, taps, channels, *, step=1, spread=1, back=False, dtype="float32"):
    """Each pixel of a row with weights of its own for its neighbours, in all channels.

    Results are ``step`` pixels apart and neighbours ``spread``; ``back`` goes through these from
    the right to the left.
    """
    pixels = step * (width - 1) + spread * (taps - 1) + 1
    h, x = place(rows, taps, width, name="h", dtype=dtype), place(rows, pixels, channels, name="x",
                                                                  dtype=dtype)  # fmt: skip
    t = reduced(taps, "t")
    tap = taps - 1 - t if back else t

    def body(r, w, c):
        return ea.sum(h[r, t, w] * x[r, step * w + spread * tap, c], t)

    return ea.compute((rows, width, channels), body, name="y")


def overlapping(program):
    """How the rows of the tiles of ``program`` overlap."""
    steps = planned(program, CPU, False)
    return [step.tile.overlap for step in steps if step.tile is not None and step.tile.overlap]


def index(value):
    return Const(value, "index")


def test_taps_of_all_rows_are_written_out_in_the_order_of_what_they_read():
    (found,) = overlapping(lowered(filtered(3, 40, 7, 32)))
    assert (found.row.name, found.tap.name, found.taps) == ("w", "t", range(7))
    pairs = [(row, tap) for row in range(4) for tap in range(7)]
    places = [row + tap for row, tap in sorted(pairs, key=lambda pair: found.order(*pair))]
    assert places == sorted(places)


def test_each_row_goes_up_the_taps_where_what_is_read_goes_down():
    (found,) = overlapping(lowered(filtered(3, 40, 7, 32, back=True)))
    orders = [found.order(2, tap) for tap in found.taps]
    assert orders == sorted(orders)
    assert found.order(1, 3) == found.order(2, 4)


def image_gradient(width, taps, filters=32):
    """The gradient of a convolution for its image, which has 32 channels."""
    image, kernel = (2, 32, width, width), (filters, 32, taps, taps)
    return conv(image, kernel, "X", pad=taps // 2).ours.build("reference").loops


def test_weights_that_serve_all_rows_are_held_for_all_taps():
    (found,) = overlapping(image_gradient(28, 3))
    assert (found.row.name, found.tap.name, len(found.taps)) == ("i3", "j", 3)


def test_weights_of_many_taps_are_not_held():
    assert not overlapping(image_gradient(28, 7))


@pytest.mark.parametrize("width", [14, 28, 31])
def test_gradients_for_images_are_those_of_the_interpreter(width):
    program = image_gradient(width, 3, filters=4)
    arrays = arrays_for(program)
    given = {each.name: array for each, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = run(program, given).outputs
    (found,) = compiled(program, MACHINES[0])(*arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_both_gradients_of_a_correlation_run_along_the_channels():
    program = correlation((2, 32, 24, 40), reach=3).ours.build("reference").loops
    assert [(each.row.name, len(each.taps)) for each in overlapping(program)] == [("i3", 7)] * 2


def test_the_report_says_what_is_written_out():
    steps = build(lowered(filtered(3, 40, 7, 32)), "cpu").report().steps
    assert any("t: 7 written out" in step.run for step in steps)


@pytest.mark.parametrize(
    ("step", "spread", "parts"),
    # Of 4 rows and 3 taps: 6, 9 and 8 places; taps two apart meet those of every other row.
    [(1, 1, 6 / 12), (2, 1, 9 / 12), (1, 2, 8 / 12), (5, 1, 1.0)],
)
def test_what_is_read_once_for_several_rows(step, spread, parts):
    row, tap = Axis("r", index(4)), Axis("t", index(3))
    x = ea.placeholder((100,), name="x", dtype="float32")
    read = Read(x, (step * row + spread * tap,))
    way = Overlap(row, tap, range(3), (step, spread))
    assert way.part(read, 4) == parts
    loops = [For(row, index(0), index(4), ())]
    found = overlaps(loops, For(tap, index(0), index(3), ()), [read])
    assert bool(found) == (parts < 1)


@CLOSED
@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 3),
    width=st.integers(1, 45),
    taps=st.integers(1, 10),
    channels=st.integers(1, 70),
    step=st.integers(1, 3),
    spread=st.integers(1, 3),
    back=st.booleans(),
    dtype=st.sampled_from(["float32", "float64"]),
    machine=st.sampled_from(MACHINES),
    exact=st.booleans(),
    at_end=st.booleans(),
)
def test_at_every_size_results_are_right_and_nothing_else_is_read(
    rows, width, taps, channels, step, spread, back, dtype, machine, exact, at_end
):
    output = filtered(rows, width, taps, channels, step=step, spread=spread, back=back, dtype=dtype)
    program = lowered(output)
    arrays = arrays_for(program)
    given = {each.name: array for each, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = run(program, given).outputs
    placed = [between_pages(array, at_end) for array in arrays]
    (found,) = compiled(program, machine, exact=exact)(*placed)
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_the_order_of_a_sum_stays(monkeypatch):
    program = lowered(filtered(3, 40, 7, 32, back=True))
    arrays = arrays_for(program)
    assert overlapping(program)
    (found,) = build(program, "cpu", exact=True)(*arrays)
    monkeypatch.setattr(choice, "overlapping", lambda *_: ())
    assert not overlapping(program)
    (without,) = build(program, "cpu", exact=True)(*arrays)
    np.testing.assert_array_equal(found, without)


def test_few_products_are_written_out(monkeypatch):
    program = lowered(filtered(3, 40, 7, 32))
    monkeypatch.setattr(overlap, "PRODUCTS", 13)
    assert not overlapping(program)
