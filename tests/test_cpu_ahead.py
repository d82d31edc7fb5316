"""Lines that tiles ask memory for: which they are, and that results do not change by it."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from eqsatad.backends.access import flat
from eqsatad.backends.cpu import Launcher, prepare
from eqsatad.backends.cpu.code import source, tilewriter, train
from eqsatad.backends.cpu.code.source import Machine, Module, Options, Step, groups, write
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.ahead import FURTHER, PIECES
from eqsatad.backends.cpu.tiles.reuse import LINE
from eqsatad.backends.cpu.tiles.tile import length
from eqsatad.backends.kernel import Kernel
from eqsatad.loops.nest import For, If, has_loop, reads_of, statements
from eqsatad.terms import builders as ea
from tests.loop_programs import (
    arrays_for,
    conv_input_gradient,
    conv_weight_gradient,
    lowered,
    place,
    reduced,
)
from tests.machine_code import runnable

KIB = 1024
# Caches that what the tests read does not fit, so that small sizes will do.
SMALL = Machine(64, 32, caches=Caches(4 * KIB, 128 * KIB))


def tall(n, k, m):
    """The product of two matrices, of which the first lies transposed."""
    a, b, r = place(k, n, name="a"), place(k, m, name="b"), reduced(k, "r")
    return ea.compute((n, m), lambda i, j: ea.sum(a[r, i] * b[r, j], r), name="c")


def moved(rows, width):
    """Planes with the first two dimensions changed, each row of ``width``."""
    x = place(rows, 40, width, name="x")
    return ea.compute((40, rows, width), lambda i, j, k: x[j, i, k], name="y")


def turned(count, rows, width):
    """Short rows of ``width`` as columns."""
    x = place(count, rows, width, name="x")
    return ea.compute((count, width, rows), lambda i, j, k: x[i, k, j], name="y")


def convolved(n, c, f, s, k):
    """A convolution, without anything around the image."""
    o = s - k + 1
    x, w = place(n, c, s, s, name="x"), place(f, c, k, k, name="w")
    axes = reduced(c, "c"), reduced(k, "u"), reduced(k, "v")

    def body(b, g, y, z):
        ch, u, v = axes
        return ea.sum(x[b, ch, y + u, z + v] * w[g, ch, u, v], axis=axes)

    return ea.compute((n, f, o, o), body, name="y")


OUTPUTS = {
    "rows of an image": conv_input_gradient(4, 64, 32, 20, 3, 1),
    "sums over an image": conv_weight_gradient(4, 64, 32, 20, 3, 0),
    "columns of a matrix": tall(1200, 128, 64),
    "pieces in turns": moved(64, 48),
    "short rows that are turned": turned(16, 64, 9),
}


def steps(program, machine=SMALL):
    module = Module(machine.vector)
    options = Options(machine, False)
    return [
        Step(module, program, f"s{number}", group, options)
        for number, group in enumerate(groups(program))
    ]


def asked(program, machine=SMALL):
    return [each for step in steps(program, machine) if step.tile for each in step.tile.asked]


def called(program, arrays, threads):
    prepared = prepare(program, SMALL)
    made = write(prepared, SMALL)
    buffers = replace(prepared, temporaries=made.temporaries)
    launch = Launcher(buffers, runnable(made), threads)
    return Kernel(program, target="cpu", source=made.text, launch=launch)(*arrays), made.text


@pytest.mark.parametrize("name", OUTPUTS)
def test_asking_changes_no_bit_of_a_result(name, monkeypatch):
    program = lowered(OUTPUTS[name])
    arrays = arrays_for(program)
    assert asked(prepare(program, SMALL))
    found = {threads: called(program, arrays, threads) for threads in (1, 2)}
    monkeypatch.setattr(source, "foreseen", lambda tile, caches: tile)
    monkeypatch.setattr(train, "fetching", lambda steps, *_: [tile for tile, _ in steps])
    (plain,), text = called(program, arrays, 1)
    assert "llvm.prefetch" not in text
    for (result,), text in found.values():
        assert "llvm.prefetch" in text
        np.testing.assert_array_equal(result, plain)


def test_a_copy_of_short_rows_asks_along_all_of_them():
    (step,) = steps(lowered(OUTPUTS["short rows that are turned"]))
    (asks,) = step.tile.asked
    everywhere = {loop.axis: range(length(loop)) for loop in step.tile.loops}
    (offset,) = asks.offsets
    there = lines(asks.read, everywhere, asks.offsets)
    assert there >= {line for line in lines(asks.read, everywhere) if line * LINE >= offset}
    large = replace(SMALL, caches=Caches(4 * KIB, 1024 * KIB))
    assert not asked(lowered(OUTPUTS["short rows that are turned"]), large)


def test_a_large_copy_that_is_turned_asks_for_what_it_stores_to():
    program = lowered(OUTPUTS["short rows that are turned"])
    (step,) = steps(program)
    assert step.tile.claimed > 0
    (step,) = steps(program, replace(SMALL, caches=Caches(4 * KIB, 1024 * KIB)))
    assert step.tile.claimed == 0
    rows = lowered(OUTPUTS["rows of an image"])
    assert not any(step.tile.claimed for step in steps(rows) if step.tile)


def branching(block):
    """``block`` with a condition around what its innermost loops do, the same on both sides."""
    return tuple(
        replace(each, body=branching(each.body))
        if isinstance(each, For) and has_loop(each.body)
        else replace(each, body=(If(each.axis >= 3, each.body, each.body),))
        if isinstance(each, For)
        else each
        for each in block
    )


def test_a_condition_inside_a_sum_does_not_ask_again(monkeypatch):
    # Two turns of a sum in a row ask once each.
    monkeypatch.setattr(tilewriter, "TURNS", 1)
    plain = lowered(OUTPUTS["columns of a matrix"])
    (nest,) = plain.nests
    program = replace(plain, nests=(replace(nest, body=branching(nest.body)),))
    requests = [
        write(each, SMALL).text.count("call void @llvm.prefetch") for each in (plain, program)
    ]
    assert asked(plain)
    assert asked(program) == asked(plain)
    assert requests[0] == requests[1] > 0


def lines(read, values, offsets=(0,)):
    """The lines that ``read`` is on for all ``values`` of its axes, so many bytes further."""
    form = flat(read.tensor, read.indices)
    axes = [axis for axis in values if axis in read.free]
    places = (
        4
        * (form.const + sum(form.coefficient(axis) * n for axis, n in zip(axes, here, strict=True)))
        for here in product(*(values[axis] for axis in axes))
    )
    return {(place + offset) // LINE for place in places for offset in offsets}


@pytest.mark.parametrize(
    ("output", "place"),
    [(OUTPUTS["rows of an image"], 1), (convolved(4, 32, 64, 20, 3), 2)],
    ids=["gradient", "convolution"],
)
def test_what_is_asked_for_is_what_the_next_row_of_an_image_reads(output, place):
    """The window moves on by a row at one end of it or at the other."""
    program = prepare(lowered(output), SMALL)
    tile = next(step.tile for step in steps(program) if step.tile and has_loop(step.tile.body))
    (asks,) = tile.asked
    (read,) = [r for r in reads_of(tile.body) if r.tensor is asks.read.tensor]
    sums = {
        loop.axis: range(length(loop)) for loop in statements(tile.body) if isinstance(loop, For)
    }
    image, row = (next(a for a in read.indices[n].free if a not in sums) for n in (0, place))
    rest = {loop.axis: range(tile.step(loop.axis)) for loop in tile.loops}

    def at(number):
        return lines(read, {**sums, **rest, image: [1], row: [number]})

    for number in range(3, 10):
        before = set().union(*(at(each) for each in range(number + 1)))
        first = {axis: [0] for axis in rest}
        there = lines(asks.read, {**sums, **first, image: [1], row: [number]}, asks.offsets)
        new = at(number + 1) - before
        assert new
        assert new <= there
        assert len(there) <= 2 * len(new)


@pytest.mark.parametrize(
    "output",
    [OUTPUTS["rows of an image"], convolved(4, 32, 128, 20, 3)],
    ids=["gradient", "forward"],
)
def test_only_the_first_of_the_tiles_that_read_the_same_asks(output):
    program = prepare(lowered(output), SMALL)
    tile = next(step.tile for step in steps(program) if step.tile and has_loop(step.tile.body))
    (asks,) = tile.asked
    same = [loop for loop in tile.loops if loop.axis not in asks.read.free]
    assert same
    assert list(asks.first) == same


@pytest.mark.parametrize("width", [24, 48])
def test_copies_of_many_pieces_ask_for_lines_further_on_in_each(width):
    (asks,) = asked(prepare(lowered(moved(64, width)), SMALL))
    assert asks.inside is None
    assert min(asks.offsets) >= FURTHER
    # A CPU follows a few pieces by itself, however long they are.
    assert not asked(prepare(lowered(moved(PIECES // 2, 2000)), SMALL))


def test_what_fits_the_second_cache_is_not_asked_for():
    machine = Machine(64, 32, caches=Caches(48 * KIB, 64 * KIB * KIB))
    for output in OUTPUTS.values():
        assert not asked(prepare(lowered(output), machine), machine)
