"""Sums that leave out borders of zeros: which terms they have, and what comes out of them."""

from dataclasses import replace

import numpy as np
import pytest

from eqsatad.backends.cpu import Launcher, prepare
from eqsatad.backends.cpu.code import source
from eqsatad.backends.cpu.code.source import Machine, Module, Options, steps_of, write
from eqsatad.backends.cpu.runtime.machine import load
from eqsatad.backends.cpu.tiles.choice import plan
from eqsatad.backends.cpu.tiles.strips import sums
from eqsatad.backends.cpu.tiles.tile import Strips
from eqsatad.backends.cpu.tiles.zeros import filled
from eqsatad.backends.kernel import Kernel
from eqsatad.loops.interpret import run
from eqsatad.loops.nest import For, If, Nest, Store, reads_of, statements
from eqsatad.terms import builders as ea
from eqsatad.terms.linear import linear, normal
from eqsatad.terms.nodes import Axis, Const, Placeholder
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import substitute
from tests.loop_programs import (
    arrays_for,
    conv_input_gradient,
    conv_weight_gradient,
    index,
    lowered,
    place,
    reduced,
)

MACHINE = Machine(64, 32)


def dilated(n, c, f, s, k, pad, by):
    """The gradient of a convolution with gaps between its taps, with respect to the image."""
    o = s + 2 * pad - by * (k - 1)
    h, w = place(n, f, o, o, name="h"), place(f, c, k, k, name="w")
    axes = reduced(f, "f"), reduced(k, "u"), reduced(k, "v")

    def body(b, ch, y, x):
        g, u, v = axes
        p, q = y + pad - by * u, x + pad - by * v
        inside = (p >= 0) & (p < o) & (q >= 0) & (q < o)
        return ea.sum(h[b, g, p, q] * w[g, ch, u, v], axis=axes, where=inside)

    return ea.compute((n, c, s, s), body, name="x_bar")


OUTPUTS = {
    "image": conv_input_gradient(2, 32, 16, 20, 3, 1),
    "image without padding": conv_input_gradient(2, 32, 16, 20, 5, 0),
    "weights": conv_weight_gradient(4, 16, 32, 14, 3, 2),
    "taps with gaps": dilated(2, 32, 16, 18, 3, 2, 2),
    "taps with large gaps": dilated(2, 16, 16, 12, 3, 0, 3),
}


def test_joined_loops_that_run_through_several_rows_go_on_behind_the_first():
    # The results are rounded up to whole vectors, so that there are zeros in the copy of `h`.
    program = lowered(conv_weight_gradient(2, 68, 44, 13, 1, 0))
    arrays = arrays_for(program)
    assert filled(prepare(program, MACHINE))
    given = {each.name: array for each, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = run(program, given).outputs
    # Hundreds of terms of size one, added up in another order than by the interpreter.
    np.testing.assert_allclose(called(program, arrays), expected, rtol=2e-4, atol=2e-4)


def called(program, arrays, threads=1):
    prepared = prepare(program, MACHINE)
    made = write(prepared, MACHINE)
    buffers = replace(prepared, temporaries=made.temporaries)
    launch = Launcher(buffers, load(made.text, made.outside), threads)
    return Kernel(program, target="cpu", source=made.text, launch=launch)(*arrays)[0]


def narrowed(program):
    """The tiles of ``program`` with sums whose bounds depend on where they are."""
    options = Options(MACHINE, False, filled=filled(program))
    tiles = [step.tile for step in steps_of(program, Module(MACHINE.vector), options)]
    return [tile for tile in tiles if tile is not None and any(narrow(tile))]


def narrow(tile):
    loops = (each for each in statements(tile.body) if isinstance(each, For))
    return [loop for loop in loops if loop.start.free or loop.stop.free]


@pytest.mark.parametrize("name", OUTPUTS)
def test_leaving_out_zeros_changes_no_bit_of_a_result(name, monkeypatch):
    program = lowered(OUTPUTS[name])
    arrays = arrays_for(program)
    assert narrowed(prepare(program, MACHINE))
    found = [called(program, arrays, threads) for threads in (1, 2)]
    monkeypatch.setattr(source, "without_zeros", lambda tile, borders: tile)
    for result in found:
        np.testing.assert_array_equal(result, called(program, arrays))


@pytest.mark.parametrize("name", OUTPUTS)
def test_exactly_the_borders_are_left_out(name):
    program = prepare(lowered(OUTPUTS[name]), MACHINE)
    borders = filled(program)
    for tile in narrowed(program):
        for loop in narrow(tile):
            (form,) = [
                (linear(index), span)
                for read in reads_of((loop,))
                if read.tensor in borders
                for index, span in zip(read.indices, borders[read.tensor], strict=True)
                if loop.axis in index.free
            ]
            assert_exact(loop, *form)


def assert_exact(loop, form, span):
    (row,) = form.free - {loop.axis}
    for here in range(row.extent.value):
        ends = (substitute(end, {row: index(here)}) for end in (loop.start, loop.stop))
        bounds = [interval(normal(end))[0] for end in ends]
        rest = form.const + form.coefficient(row) * here
        wanted = [
            term
            for term in range(loop.axis.extent.value)
            if span[0] <= rest + form.coefficient(loop.axis) * term < span[1]
        ]
        assert list(range(*bounds)) == wanted


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_is_no_number_comes_out_where_the_source_says(name):
    program = lowered(OUTPUTS[name])
    rng = np.random.default_rng(7)
    arrays = arrays_for(program)
    for array in arrays:
        array.reshape(-1)[rng.integers(0, array.size, 3)] = [np.inf, -np.inf, np.nan]
    given = {each.name: array for each, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = run(program, given).outputs
    # Hundreds of terms of size one, added up in another order than by the interpreter.
    np.testing.assert_allclose(called(program, arrays), expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["image", "weights"])
def test_sums_of_points_in_several_rows_have_what_any_of_them_needs(name, monkeypatch):
    program = lowered(OUTPUTS[name])
    arrays = arrays_for(program)

    def planned(*given, **named):
        tile = plan(*given, **named)
        if tile is None or tile.inner or not tile.lanes:
            return tile
        others = [loop.axis for loop in tile.loops if loop.axis is not tile.lane]
        return replace(tile, counts={tile.lane: 1, **dict.fromkeys(others[-2:], 2)}, strips=None)

    monkeypatch.setattr(source, "plan", planned)
    for tile in narrowed(prepare(program, MACHINE)):
        for loop in narrow(tile):
            assert all(tile.step(axis) == 1 for axis in loop.start.free | loop.stop.free)
    found = called(program, arrays)
    monkeypatch.setattr(source, "without_zeros", lambda tile, borders: tile)
    np.testing.assert_array_equal(found, called(program, arrays))


@pytest.mark.parametrize(("depth", "size"), [(1, 1), (1, 3), (2, 1), (2, 5)])
def test_strips_are_cut_from_sums_without_zeros(depth, size, monkeypatch):
    program = lowered(OUTPUTS["weights"])
    arrays = arrays_for(program)
    whole = called(program, arrays)

    def planned(*given, **named):
        tile = plan(*given, **named)
        loops = () if tile is None or tile.inner else sums(tile.body)
        return replace(tile, strips=Strips(loops[:depth], size)) if loops else tile

    monkeypatch.setattr(source, "plan", planned)
    assert narrowed(prepare(program, MACHINE))
    np.testing.assert_array_equal(called(program, arrays), whole)


def with_stores(*stores):
    """A program whose only temporary, of 6 x 8 elements, is set by loops over all of `stores`."""
    t = Placeholder("t", (index(6), index(8)), "float32")
    program = lowered(conv_input_gradient(1, 16, 4, 6, 3, 1))
    nests = []
    for rows, columns, value in stores:
        i, j = (
            Axis(name, index(high - low)) for name, (low, high) in (("i", rows), ("j", columns))
        )
        places = (normal(i + rows[0]), normal(j + columns[0]))
        body = (Store(t, places, value),)
        for axis in (j, i):
            body = (For(axis, index(0), axis.extent, body, True),)
        nests.append(Nest(t, body))
    return t, replace(program, temporaries=(t,), nests=tuple(nests))


def test_zeros_under_a_condition_or_along_a_diagonal_are_no_border():
    t, program = with_stores(((0, 2), (0, 8), ZERO))
    (nest,) = program.nests
    (outer,) = nest.body
    (inner,) = outer.body
    some = replace(inner, body=(If(inner.axis >= 3, inner.body, ()),))
    condition = Nest(t, (replace(outer, body=(some,)),))
    assert t not in filled(replace(program, nests=(condition,)))
    k = Axis("k", index(6))
    diagonal = For(k, index(0), k.extent, (Store(t, (k, k), ZERO),), True)
    assert t not in filled(replace(program, nests=(Nest(t, (diagonal,)),)))


ZERO = Const(0.0, "float32")
ONE = Const(1.0, "float32")


@pytest.mark.parametrize(
    ("stores", "expected"),
    [
        ([((0, 2), (0, 8), ZERO)], ((2, 6), (0, 8))),
        ([((5, 6), (0, 8), ZERO), ((0, 5), (0, 8), ONE)], ((0, 5), (0, 8))),
        ([((0, 6), (0, 1), ZERO), ((0, 1), (0, 8), ZERO)], ((1, 6), (1, 8))),
        ([((0, 2), (0, 8), ZERO), ((1, 2), (3, 4), ONE)], None),
        ([((0, 2), (0, 7), ZERO)], None),
        ([((2, 3), (0, 8), ZERO)], None),
        ([((0, 2), (0, 8), ONE)], None),
    ],
    ids=["first rows", "last row", "two sides", "written again", "part of rows", "middle", "ones"],
)
def test_only_whole_borders_of_zeros_are_known(stores, expected):
    t, program = with_stores(*stores)
    assert filled(program).get(t) == expected
