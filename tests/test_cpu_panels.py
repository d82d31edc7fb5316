"""Panels: what the vectors of a row of tiles read, copied for all of them."""

from dataclasses import replace

import numpy as np
import pytest

from eqsatad.backends.cpu.code import driver
from eqsatad.backends.cpu.code.source import Machine, Options, steps_of
from eqsatad.backends.cpu.code.text import Module
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles import panels
from eqsatad.backends.cpu.tiles.strips import sums
from eqsatad.backends.cpu.tiles.tile import Strips
from eqsatad.loops.interpret import run
from eqsatad.terms import builders as ea
from tests.loop_programs import lowered, place, reduced
from tests.test_cpu_strips import arrays_for, compiled, product, values

# With caches so small that nothing that is read again stays in them.
SMALL = Caches(near=1024, far=2048)
MACHINES = [Machine(*cpu, caches=SMALL) for cpu in ((64, 32), (32, 16), (16, 16))]


def batched(batch, n, k, m):
    """Products of matrices, of which the sum begins with the second value."""
    a, b = place(batch, n, k, name="a"), place(batch, k, m, name="b")
    r = ea.reduce_axis((1, k), name="r")
    return ea.compute((batch, n, m), lambda s, i, j: ea.sum(a[s, i, r] * b[s, r, j], r), name="c")


OUTPUTS = {
    "even tiles": product(160, 40, 64),
    "tiles that overlap": product(135, 33, 83),
    "float64": product(150, 21, 101, "float64"),
    "bfloat16": product(140, 20, 48, "bfloat16"),
    "batches": batched(3, 150, 19, 135),
}


def tiles(program, machine):
    options = Options.of(program, machine, exact=False)
    return [step.tile for step in steps_of(program, Module(machine.vector), options)]


def taken(program, machine):
    return [tile.panel for tile in tiles(program, machine) if tile is not None and tile.panel]


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("chunks", ["few", "many"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_panels_change_no_bit_of_a_result(name, chunks, machine, monkeypatch):
    program = lowered(OUTPUTS[name])
    arrays = arrays_for(program)
    if chunks == "many":
        # Chunks of one iteration begin at any tile.
        monkeypatch.setattr(driver, "CHUNK", 1)
        monkeypatch.setattr(driver, "SMALLEST", 1)
    assert taken(program, machine)
    (found,) = compiled(program, machine)(*arrays)
    monkeypatch.setattr(panels, "OFTEN", 10**9)
    assert not taken(program, machine)
    (without,) = compiled(program, machine)(*arrays)
    np.testing.assert_array_equal(found, without)
    given = {each.name: values(array) for each, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = run(program, given).outputs
    # Tens of terms of size one, added up in another order than by the interpreter.
    tolerance = {"float64": 1e-12, "uint16": 2e-2}.get(found.dtype.name, 1e-4)
    np.testing.assert_allclose(values(found), expected, rtol=tolerance, atol=tolerance)


def test_a_panel_is_of_an_input_that_vectors_run_along():
    (panel,) = taken(lowered(OUTPUTS["batches"]), MACHINES[0])
    assert panel.read.tensor.name == "b"
    rows, width = (extent.value for extent in panel.copied.tensor.shape)
    # The sum has one value less than there are rows.
    assert (rows, width % 16) == (18, 0)


def test_a_panel_has_a_name_of_its_own():
    a, b = place(160, 40, name="x_panel_1"), place(40, 64, name="x")
    r = reduced(40, "r")
    program = lowered(ea.compute((160, 64), lambda i, j: ea.sum(a[i, r] * b[r, j], r), name="c"))
    (panel,) = taken(program, MACHINES[0])
    assert (panel.read.tensor.name, panel.copied.tensor.name) == ("x", "x_panel_2")


def unpanelled():
    """Programs without a panel, and why."""
    a, b, r = place(200, 5, 30, name="a"), place(30, 5, 64, name="b"), reduced(30, "r")
    s = reduced(5, "s")
    made = place(64, 40, name="x")
    inner = ea.compute((40, 64), lambda i, j: made[j, i] + 1.0, name="inner")
    k, q = reduced(40, "k"), place(160, 40, name="q")
    yield "few tiles along rows", product(24, 40, 64)
    yield (
        "two sums",
        ea.compute((200, 64), lambda i, j: ea.sum(a[i, s, r] * b[r, s, j], (r, s)), name="c"),
    )
    yield (
        "no input",
        ea.compute((160, 64), lambda i, j: ea.sum(q[i, k] * inner[k, j], k), name="c"),
    )


@pytest.mark.parametrize(("reason", "output"), list(unpanelled()))
def test_other_sums_have_no_panel(reason, output):
    assert not taken(lowered(output), MACHINES[0]), reason


def test_what_stays_in_a_cache_has_no_panel():
    program = lowered(OUTPUTS["even tiles"])
    roomy = [Machine(64, 32, caches=Caches(near=1024, far=kib * 1024)) for kib in (39, 41)]
    # Forty rows of 256 bytes, and a quarter of the cache.
    assert [bool(taken(program, machine)) for machine in roomy] == [True, False]


def test_a_small_panel_makes_room_in_the_nearest_cache():
    program = lowered(product(160, 40, 128))
    found = []
    for kib in (13, 14, 19, 21):
        (tile,) = tiles(program, Machine(64, 32, caches=Caches(near=kib * 1024, far=1 << 20)))
        found.append((tile.step(tile.lane), tile.panel is not None))
    # Forty rows of 512 bytes, half of which are a panel: three quarters of that cache.
    assert found == [(64, False), (64, True), (64, True), (64, False)]


def test_a_panel_is_no_larger_than_a_stack_should_hold(monkeypatch):
    program = lowered(OUTPUTS["even tiles"])
    (panel,) = taken(program, MACHINES[0])
    rows, width = (extent.value for extent in panel.copied.tensor.shape)
    found = []
    for largest in (rows * width * 4, rows * width * 4 - 1):
        monkeypatch.setattr(panels, "LARGEST", largest)
        found.append(bool(taken(program, MACHINES[0])))
    assert found == [True, False]


def test_sums_in_strips_have_no_panel():
    program = lowered(OUTPUTS["even tiles"])
    (tile,) = tiles(program, MACHINES[0])
    bare = replace(tile, panel=None)
    assert panels.panelled(bare, program, MACHINES[0].caches) is bare
    cut = replace(bare, strips=Strips(sums(bare.body), 8))
    assert panels.panelled(cut, program, MACHINES[0].caches) is cut
