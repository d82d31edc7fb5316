"""Sums whose innermost loop is the one along which rows of a tile share what they load."""

import numpy as np
import pytest

from eqsatad.backends.cpu import prepare
from eqsatad.backends.cpu.code.source import Machine, Options, steps_of
from eqsatad.backends.cpu.code.text import Module
from eqsatad.backends.cpu.tiles.strips import carried, tower
from eqsatad.backends.cpu.tiles.tile import length
from eqsatad.loops.interpret import run
from eqsatad.terms import builders as ea
from tests.loop_programs import conv_input_gradient, lowered, place, reduced
from tests.test_cpu import planned
from tests.test_cpu_strips import arrays_for, compiled, values

MACHINE = Machine(64, 32)


def volume(channels, side, taps, *, gap=1):
    """A convolution of a volume whose taps along its depth are ``gap`` places apart."""
    deep, high = side + gap * (taps - 1), side + 1
    x = place(channels, deep, high, 16 + taps - 1, name="x")
    w = place(8, channels, taps, 2, taps, name="w")
    extents = {"c": channels, "i": taps, "j": 2, "k": taps}
    c, i, j, k = (reduced(extent, name) for name, extent in extents.items())

    def body(f, z, y, q):
        return ea.sum(x[c, z + gap * i, y + j, q + k] * w[f, c, i, j, k], (c, i, j, k))

    return ea.compute((8, side, side, 16), body, name="y")


def orders(output, *, exact=False):
    """The loops of each sum, outermost first."""
    program = prepare(lowered(output), MACHINE, exact=exact)
    steps = steps_of(program, Module(MACHINE.vector), Options.of(program, MACHINE, exact=exact))
    bodies = [step.tile.body for step in steps if step.tile is not None]
    return ["".join(loop.axis.name for loop in tower(body)) for body in bodies if carried(body)]


def test_taps_that_rows_share_go_innermost():
    # Of eight places along the depth a tile takes several, each of which reads three.
    assert orders(volume(4, 8, 3)) == ["cjki"]
    # So far apart they share nothing, but the two taps along the height do.
    assert orders(volume(4, 8, 3, gap=9)) == ["cikj"]


def test_exact_sums_keep_their_order():
    assert orders(volume(4, 8, 3), exact=True) == ["cijk"]


def test_long_sums_stay_innermost():
    # Nothing that is too long to be written out is loaded once for all of it.
    assert orders(volume(4, 8, 6)) == ["cijk"]


@pytest.mark.parametrize("gap", [1, 9])
def test_results_are_those_of_the_interpreter(gap):
    program = lowered(volume(4, 8, 3, gap=gap))
    arrays = arrays_for(program)
    given = {each.name: values(array) for each, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = run(program, given).outputs
    (found,) = compiled(program, MACHINE)(*arrays)
    # Tens of terms of size one, added up in another order.
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


FEW = Machine(32, 16)


def apart(program):
    """The only tile of ``program`` that keeps the turns of a sum apart."""
    tiles = (step.tile for step in planned(program, FEW) if step.tile is not None)
    (tile,) = (tile for tile in tiles if tile.apart is not None)
    return tile


def test_turns_that_registers_have_no_room_for_are_apart():
    """Pixels that three taps of a row share would take registers from what is added up."""
    program = lowered(conv_input_gradient(2, 16, 16, 12, 3, 1))
    tile = apart(program)
    assert tile.apart is tower(tile.body)[-1].axis
    arrays = arrays_for(program)
    given = {each.name: values(array) for each, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = run(program, given).outputs
    (found,) = compiled(prepare(program, FEW), FEW)(*arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("width", "uneven"), [(12, False), (28, True)])
def test_rows_that_tiles_do_not_divide_are_dealt_out(width, uneven):
    """Of 28 pixels some tiles take six and some five, of 12 all of them six."""
    tile = apart(lowered(conv_input_gradient(2, 64, 64, width, 3, 1)))
    assert (tile.dealt is not None) == uneven
    for loop in tile.loops:
        assert tile.covered(loop.axis, length(loop)) == length(loop)
