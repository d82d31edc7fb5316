"""Sums in strips, and what decides on them: caches, and how many lines a tile walks through."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from eqsatad.backends.cpu import Launcher, prepare
from eqsatad.backends.cpu.code import driver, source
from eqsatad.backends.cpu.code.source import Machine, Options, steps_of, write
from eqsatad.backends.cpu.code.text import Module
from eqsatad.backends.cpu.runtime import pool
from eqsatad.backends.cpu.runtime.caches import Caches, described
from eqsatad.backends.cpu.runtime.workspace import Workspaces
from eqsatad.backends.cpu.tiles.choice import plan
from eqsatad.backends.cpu.tiles.reuse import LINE, Loop, footprint, room, sources
from eqsatad.backends.cpu.tiles.strips import SHORTEST, carried, put_away, sums
from eqsatad.backends.cpu.tiles.tile import Strips
from eqsatad.backends.kernel import Kernel
from eqsatad.backends.storage import from_bits, to_bits
from eqsatad.loops.interpret import run
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import has_loop
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Read
from eqsatad.terms.ranges import interval
from tests.loop_programs import conv_weight_gradient, index, lowered, place, reduced
from tests.machine_code import runnable

MACHINES = [Machine(64, 32), Machine(16, 16)]
KIB = 1024


def product(n, k, m, dtype="float32", scale=1.0):
    """The product of two matrices, times ``scale`` when all is added up."""
    a, b, r = (
        place(k, n, name="a", dtype=dtype),
        place(k, m, name="b", dtype=dtype),
        reduced(k, "r"),
    )
    return ea.compute((n, m), lambda i, j: scale * ea.sum(a[r, i] * b[r, j], r), name="c")


OUTPUTS = {
    "even tiles": product(32, 200, 64),
    "tiles that overlap": product(19, 203, 83),
    "what is done to the sum": product(24, 192, 48, scale=0.25),
    "float64": product(13, 210, 37, "float64"),
    "bfloat16": product(16, 200, 48, "bfloat16"),
    "narrower than a vector": product(40, 300, 3),
    "two loops": conv_weight_gradient(4, 16, 32, 14, 3, 0),
}


def compiled(program, machine, threads=1, exact=False):
    made = write(program, machine, exact=exact)
    buffers = replace(program, temporaries=made.temporaries)
    launch = Launcher(buffers, runnable(made), threads)
    return Kernel(program, target="cpu", source=made.text, launch=launch)


def arrays_for(program):
    rng = np.random.default_rng(0)
    found = []
    for tensor in program.inputs:
        array = rng.standard_normal([extent.value for extent in tensor.shape]).astype("float32")
        found.append(to_bits(array) if tensor.dtype == "bfloat16" else array.astype(tensor.dtype))
    return found


def cut(monkeypatch, depth, size):
    """Every tile of a sum gets strips of its first ``depth`` loops, ``size`` of the last one."""

    def planned(*given, **named):
        tile = plan(*given, **named)
        loops = () if tile is None or tile.inner else sums(tile.body)
        return replace(tile, strips=Strips(loops[:depth], size)) if loops else tile

    monkeypatch.setattr(source, "plan", planned)


def values(array):
    return from_bits(array) if array.dtype == "uint16" else array


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("size", [1, 7, 50])
@pytest.mark.parametrize("name", OUTPUTS)
def test_strips_change_no_bit_of_a_result(name, size, machine, monkeypatch):
    program = lowered(OUTPUTS[name])
    arrays = arrays_for(program)
    (whole,) = compiled(program, machine)(*arrays)
    cut(monkeypatch, 1, size)
    for threads in (1, 2):
        (found,) = compiled(program, machine, threads)(*arrays)
        np.testing.assert_array_equal(found, whole)
    given = {each.name: values(array) for each, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = run(program, given).outputs
    # Hundreds of terms of size one, added up in another order than by the interpreter.
    tolerance = {"float64": 1e-12, "uint16": 2e-2}.get(found.dtype.name, 2e-4)
    np.testing.assert_allclose(values(found), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("depth", [1, 2])
def test_strips_go_through_several_loops(depth, monkeypatch):
    program = lowered(conv_weight_gradient(4, 16, 32, 14, 3, 0))
    arrays = arrays_for(program)
    machine = MACHINES[0]
    (whole,) = compiled(program, machine, exact=True)(*arrays)
    cut(monkeypatch, depth, 3)
    for exact in (True, False):
        (found,) = compiled(program, machine, exact=exact)(*arrays)
        np.testing.assert_allclose(found, whole, rtol=1e-4, atol=1e-4)
        if exact:
            np.testing.assert_array_equal(found, whole)


def test_what_is_no_number_goes_through_strips(monkeypatch):
    program = lowered(OUTPUTS["tiles that overlap"])
    a, b = arrays_for(program)
    a[3, 5], a[101, 7], b[17, 2], b[202, 80] = np.nan, np.inf, -np.inf, np.nan
    (whole,) = compiled(program, MACHINES[0])(a, b)
    cut(monkeypatch, 1, 20)
    (found,) = compiled(program, MACHINES[0])(a, b)
    assert np.isnan(found).any()
    np.testing.assert_array_equal(found, whole)


def handed_out(program, threads):
    """How often the code of ``program`` asks a team of so many threads to share a step."""
    made = write(program, MACHINES[0])
    code = runnable(made)
    asked = []
    kinds = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3 + [ctypes.c_bool]
    share = ctypes.CFUNCTYPE(None, *kinds)(lambda *given: asked.append(given))
    limit = ctypes.c_int64(threads)
    function = ctypes.cast(share, ctypes.c_void_p).value
    team = pool.Words(function, ctypes.addressof(limit), pool.pool().willing)
    workspace = Workspaces(replace(program, temporaries=made.temporaries)).made([])
    shapes = [[extent.value for extent in each.shape] for each in program.outputs]
    arrays = [*arrays_for(program), *(np.zeros(shape, "float32") for shape in shapes)]
    given = [array.ctypes.data for array in arrays]
    table = [ctypes.addressof(team), *given, *workspace.addresses]
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("run"))
    run((ctypes.c_int64 * len(table))(*table))
    return len(asked)


def test_one_thread_goes_through_all_strips_at_once(monkeypatch):
    program = lowered(product(512, 64, 512))
    assert handed_out(program, 1) == handed_out(program, 2) == 1
    cut(monkeypatch, 1, 16)
    assert handed_out(program, 1) == 0
    assert handed_out(program, 2) == 1


def test_several_threads_make_one_round_of_strips_after_the_other(monkeypatch):
    """What a strip reads is then read by each thread once, not for each of its chunks."""
    program = lowered(product(512, 64, 512))
    cut(monkeypatch, 1, 4)
    (step,) = steps_of(program, Module(64), Options.of(program, MACHINES[0], exact=False))
    work, _ = interval(step.share.effort)
    monkeypatch.setattr(driver, "ALONE", 0)
    for rounds in (1, 3, 16):
        monkeypatch.setattr(source, "ROUND", work // rounds)
        assert handed_out(program, 2) == rounds
        assert handed_out(program, 1) == 0


@pytest.mark.parametrize("name", ["tiles that overlap", "what is done to the sum", "two loops"])
def test_rounds_and_threads_change_no_bit_of_a_result(name, monkeypatch):
    program = lowered(OUTPUTS[name])
    arrays = arrays_for(program)
    cut(monkeypatch, 1, 3)
    monkeypatch.setattr(driver, "ALONE", 0)
    found = []
    for least in (10**12, 1):
        monkeypatch.setattr(source, "ROUND", least)
        found += [compiled(program, MACHINES[0], threads)(*arrays)[0] for threads in (1, 2, 5)]
    for one in found[1:]:
        np.testing.assert_array_equal(one, found[0])


def test_a_sum_that_reads_much_takes_as_long_as_reading_it():
    """So that threads are woken for it; what is in a cache comes sooner."""

    def effort(output, far):
        program = lowered(output)
        machine = Machine(64, 32, caches=Caches(32 * KIB, far * KIB))
        (step,) = steps_of(program, Module(64), Options.of(program, machine, exact=False))
        return interval(step.share.effort)

    few, many = product(2, 1000, 1000), product(64, 1000, 1000)
    read = source.BYTE * 4 * 1000 * 1000
    assert effort(few, 64 * KIB)[0] < read / 4
    assert read <= effort(few, 512)[0] < 1.1 * read
    assert effort(many, 512) == effort(many, 64 * KIB)


def test_accumulators_are_kept_for_every_tile():
    program = lowered(OUTPUTS["tiles that overlap"])
    tile = plan(program.nests[0].body[0], 64, 32, False)
    assert put_away("kept", tile) is None
    kept = put_away("kept", replace(tile, strips=Strips(sums(tile.body)[:1], 50)))
    tiles, accumulators, lanes = (extent.value for extent in kept.shape)
    assert tiles * accumulators * lanes >= 19 * 83
    assert lanes == 16


def tile_of(output, caches):
    (nest,) = lower([output]).nests
    return plan(nest.body[0], 64, 32, False, caches)


def test_long_sums_are_cut_so_that_a_strip_fits_the_second_cache():
    caches = Caches(32 * KIB, 512 * KIB)
    tile = tile_of(product(16, 16384, 1000), caches)
    assert tile.strips is not None
    # All of the first operand that a strip reads, and what a tile reads of the second one.
    assert tile.strips.size * (16 + tile.step(tile.lane)) * 4 <= caches.far
    assert tile_of(product(16, 256, 1000), caches).strips is None


def test_larger_caches_need_fewer_strips():
    output = product(16, 16384, 1000)
    small, large = (tile_of(output, Caches(32 * KIB, far * KIB)) for far in (256, 1024))
    assert small.strips.number > large.strips.number


def strips_of(output, machine):
    """The strips of the sums of a whole program, with what it packs."""
    prepared = prepare(lowered(output), machine, exact=False)
    found = steps_of(prepared, Module(machine.vector), Options.of(prepared, machine, exact=False))
    return [step.tile.strips for step in found if step.tile and has_loop(step.tile.body)]


def test_windows_are_cut_so_that_a_strip_fits_the_nearest_cache():
    """All is in the second cache, but shifted rows come again and again for each tap."""
    machine = Machine(64, 32, caches=Caches(32 * KIB, 4096 * KIB))
    (strips,) = strips_of(conv_weight_gradient(9, 64, 64, 28, 3, 1), machine)
    assert [loop.axis.name for loop in strips.loops] == ["n", "p"]
    # What all tiles of one shift read of the head.
    assert 8 * KIB < strips.size * 28 * 64 * 4 < 24 * KIB
    # Where nothing overlaps, the CPU finds what comes next by itself.
    assert strips_of(conv_weight_gradient(9, 64, 64, 28, 1, 0), machine) == [None]


def test_rows_a_page_apart_make_strips_as_short_as_they_may_be():
    caches = Caches(32 * KIB, 512 * KIB)
    even, odd = (tile_of(product(16, 16384, width), caches) for width in (1024, 1000))
    assert SHORTEST <= even.strips.size < odd.strips.size


def test_sums_around_stores_are_not_cut():
    x, r = place(64, 64, name="x"), reduced(64, "r")
    output = ea.compute((64,), lambda i: ea.exp(ea.sum(x[r, i], r)), name="y")
    (nest,) = lowered(output).nests
    (outer,) = nest.body
    assert carried(outer.body)
    assert not carried((outer,))


ROW, COLUMN, SUM = (Axis(name, index(100)) for name in "ijk")


@pytest.mark.parametrize(
    ("place_of", "extents", "expected"),
    [
        ((ROW, COLUMN), {COLUMN: 100}, 448),
        ((ROW, COLUMN), {ROW: 10}, 10 * LINE),
        ((COLUMN, ROW), {ROW: 16, COLUMN: 4}, 4 * LINE),
        ((ROW, COLUMN), {ROW: 100, COLUMN: 100}, 40000),
        ((SUM, ROW + COLUMN), {ROW: 3, COLUMN: 14}, LINE),
    ],
    ids=["a row", "a column", "a block", "all", "a window"],
)
def test_footprint_counts_lines(place_of, extents, expected):
    read = Read(place(100, 100, name="a"), place_of)
    assert footprint(read, extents) == pytest.approx(expected, abs=LINE)


@pytest.mark.parametrize(
    ("width", "columns", "expected"),
    [(128, 16, 8), (128, 128, 1), (48, 16, 1), (160, 16, 2), (1024, 32, 32)],
    ids=["one line of eight", "whole rows", "an odd number of lines", "two lines", "a page apart"],
)
def test_lines_between_pieces_a_power_of_two_apart_stay_free(width, columns, expected):
    read = Read(place(100, width, name="a"), (ROW, COLUMN))
    extents = {ROW: 100, COLUMN: columns}
    assert room(read, extents) == pytest.approx(expected * footprint(read, extents))


def test_what_a_loop_does_not_tell_apart_is_read_again_soon():
    a, b = place(100, 96, name="a"), place(100, 96, name="b")
    reads = [Read(a, (SUM, ROW)), Read(b, (SUM, COLUMN))]
    inside = {ROW: 16, COLUMN: 16, SUM: 100}
    loops = [Loop(ROW, 6, 16), Loop(COLUMN, 3, 32)]
    one = sum(room(read, inside) for read in reads)
    every = room(reads[0], inside) + room(reads[1], {**inside, COLUMN: 96})
    # Along the inner loop the lines of `a` stay; all of `b` is read before it starts again.
    assert [between for _, between in sources(reads[0], reads, inside, loops)] == [one, None]
    assert [between for _, between in sources(reads[1], reads, inside, loops)] == [every, None]


def test_parts_of_what_a_tile_reads_are_all_of_it():
    a, b = place(100, 96, name="a"), place(100, 96, name="b")
    reads = [Read(a, (SUM, ROW)), Read(b, (SUM, COLUMN))]
    inside = {ROW: 4, COLUMN: 16, SUM: 100}
    loops = [Loop(COLUMN, 6, 16), Loop(ROW, 24, 4)]
    parts = list(sources(reads[0], reads, inside, loops))
    assert sum(size for size, _ in parts) == pytest.approx(footprint(reads[0], inside))
    # Four rows share a line, so three of four tiles find it where the one before has put it.
    near, further, fresh = (size for size, _ in parts)
    assert near == pytest.approx(3 * (further + fresh))


def described_as(folder, *caches):
    for number, (level, kind, size) in enumerate(caches):
        each = folder / f"index{number}"
        each.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (each / name).write_text(f"{text}\n")
    return described(folder)


def test_caches_are_read_where_linux_describes_them(tmp_path):
    found = described_as(
        tmp_path,
        ("1", "Data", "48K"),
        ("1", "Instruction", "32K"),
        ("2", "Unified", "2048K"),
        ("3", "Unified", "32768K"),
    )
    assert found == Caches(48 * KIB, 2048 * KIB, 32768 * KIB)


def test_caches_that_are_not_described_are_the_usual_ones(tmp_path):
    assert described(tmp_path / "nowhere") == Caches()
    assert described_as(tmp_path, ("2", "Unified", "large")) == Caches()
