"""Which steps are run in turns over the same rows: see `trains`."""

import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.kernel_cases import conv
from eqsatad.backends import build
from eqsatad.backends.cpu.code.source import Machine
from eqsatad.backends.cpu.code.tilewriter import spread
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.kinds import Kind, decision
from eqsatad.backends.cpu.tiles.tile import Tile
from eqsatad.backends.cpu.tiles.trains import coupled, enough, passing, rows_of
from eqsatad.loops.interpret import run
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import For, Store
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Placeholder, Read
from tests.loop_programs import (
    arrays_for,
    conv_input_gradient,
    conv_weight_gradient,
    index,
    lowered,
    place,
    reduced,
)
from tests.test_cpu import compiled, planned

A, B, C, D = (Placeholder(name, (index(65), index(32)), "float32") for name in "ABCD")


def copy(to, source, further=0, start=0):
    """A loop in which row ``i`` of ``to`` becomes row ``i + further`` of ``source``."""
    i, j = Axis("i", index(64)), Axis("j", index(32))
    body = (Store(to, (i, j), Read(source, (i + further, j))),)
    return For(i, index(start), i.extent, (For(j, index(0), j.extent, body, True),), True)


def rows(to, source, further=0):
    return rows_of((copy(to, source, further),), None)


@pytest.mark.parametrize(
    ("train", "after", "expected"),
    [
        ([rows(B, A)], rows(C, B), True),
        ([rows(B, A)], rows(C, B, further=1), False),
        ([rows(B, A)], rows(A, C), True),
        ([rows(B, A, further=1)], rows(A, B), False),
        ([rows(B, A, further=1), rows(C, B)], rows(A, C), False),
        ([rows(B, A)], rows(D, C), False),
    ],
    ids=[
        "reads what was written",
        "reads the next row",
        "writes what was read",
        "writes what is read later",
        "writes what the first reads later",
        "nothing in common",
    ],
)
def test_rows_are_coupled_that_meet_and_touch_no_other_row_that_is_written(train, after, expected):
    assert coupled(train, after) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"unit": 2}, {"unit": 4}, True),
        ({"unit": 3}, {"unit": 4}, False),
        ({"extent": 64}, {"extent": 63}, False),
        # Blocks of what is whole in both, if there are many.
        ({"unit": 6, "extent": 3136}, {"unit": 16, "extent": 3136}, True),
        ({"unit": 6, "extent": 3000}, {"unit": 16, "extent": 3000}, False),
    ],
    ids=str,
)
def test_blocks_of_rows_are_whole_in_each_step(first, second, expected):
    assert coupled([replace(rows(B, A), **first)], replace(rows(C, B), **second)) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"unit": 2}, {"unit": 4}, True),
        # Four blocks are no fewer pieces of work than the four iterations, but than sixteen.
        ({}, {"unit": 16}, True),
        ({}, {"unit": 16, "turns": 4}, False),
        ({}, {"ordered": True}, False),
    ],
    ids=str,
)
def test_several_threads_need_blocks_enough_in_any_order(first, second, expected):
    assert enough([replace(rows(B, A), **first), replace(rows(C, B), **second)]) == expected


def test_iterations_of_a_tile_are_as_many_as_are_shared():
    outer = copy(B, A)
    (inner,) = outer.body
    tile = Tile((outer, inner), inner.body, inner.axis, 16, False, {inner.axis: 1, outer.axis: 4})
    found = rows_of((outer,), tile)
    assert (found.unit, found.turns) == (4, 2)
    assert found.iterations == spread(tile)[1].value


def test_loops_that_begin_elsewhere_have_no_rows():
    assert rows_of((copy(B, A, start=1),), None) is None


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ([rows(B, A), rows(C, B)], {B: 128, A: 128, C: 128}),
        ([rows(B, A, further=1), rows(C, B)], {B: 128, C: 128}),
        ([rows(B, A), rows(C, B, further=1)], {A: 128, C: 128}),
        ([replace(rows(B, A), unit=3), rows(C, B)], {}),
        ([replace(rows(B, A), unit=64), replace(rows(C, B), unit=64)], {}),
        ([rows(B, A)], {A: 128, B: 128}),
    ],
    ids=["same row", "next row", "what comes", "blocks overlap", "one block", "unused"],
)
def test_rows_pass_by_where_no_step_touches_another(train, expected):
    assert passing(train, [A, B, C, D]) == expected


def test_one_thread_keeps_what_only_a_train_uses_in_one_place():
    program = lowered(conv_input_gradient(8, 16, 32, 12, 3, 1))
    arrays = arrays_for(program)
    alone, several = (build(program, "cpu", threads=threads) for threads in (1, 3))
    assert re.search(r"call void @step\d+\.train\(ptr %slot", alone.source)
    expected = build(program, "reference")(*arrays)[0]
    np.testing.assert_allclose(alone(*arrays)[0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(several(*arrays)[0], alone(*arrays)[0])


def test_step_between_those_of_a_train_goes_before_it_if_it_has_nothing_to_do_with_it():
    program = lowered(conv_input_gradient(8, 16, 32, 12, 3, 1))
    source = build(program, "cpu").source
    (train,) = re.findall(r"define void @step\d+\.train.*?\n}", source, flags=re.DOTALL)
    inside = [int(each) for each in re.findall(r"call void @step(\d+)\(", train)]
    assert inside == sorted(inside)
    assert set(range(max(inside))) - set(inside)


def test_step_that_reads_other_rows_than_the_one_before_last_wrote_waits():
    x = ea.placeholder((64, 64), name="x")
    k = ea.reduce_axis((0, 64), name="k")
    total = ea.compute((64,), lambda i: ea.sum(x[i, k] * x[i, k], axis=k), name="total")
    y = ea.compute((64, 64), lambda i, j: x[i, j] * total[i], name="y")
    z = ea.compute((64, 64), lambda i, j: y[i, j] + total[63 - i], name="z")
    array = np.random.default_rng(0).standard_normal((64, 64)).astype("float32")
    sums = (array * array).sum(1, keepdims=True)
    found = build(lower([y, z]), "cpu")(array)
    np.testing.assert_allclose(found[0], array * sums, rtol=1e-5)
    # Sums of about 64, which may cancel.
    np.testing.assert_allclose(found[1], array * sums + sums[::-1], rtol=1e-5, atol=1e-4)


def made(source):
    """The steps that each function of ``source`` calls, by its name."""
    functions = re.findall(r"define void @(\S+?)\((.*?)\n}", source, flags=re.DOTALL)
    return {name: re.findall(r"call void @(step\S+?)\(", body) for name, body in functions}


def test_few_images_are_a_train_for_one_thread_alone():
    problem = conv((2, 32, 24, 24), (48, 32, 1, 1), "X", stride=2)
    program = problem.ours.build("reference").loops
    arrays = arrays_for(program)
    kernels = [build(program, "cpu", threads=threads) for threads in (1, 3)]
    (alone,) = {name for name in made(kernels[0].source) if name.endswith(".alone")}
    assert not any(name.endswith(".train") for name in made(kernels[0].source))
    assert len(made(kernels[0].source)[alone]) > 1
    expected = build(program, "reference")(*arrays)[0]
    found = [kernel(*arrays)[0] for kernel in kernels]
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found[1], found[0])


@pytest.mark.parametrize(("images", "kib"), [(2, 96), (9, 256)])
def test_strips_of_a_sum_over_images_follow_the_copy_of_each(images, kib):
    """One thread goes from image to image, several from one part of the results to the next."""
    program = lowered(conv_weight_gradient(images, 24, 48, 14, 3, 1))
    arrays = arrays_for(program)
    machine = Machine(64, 32, caches=Caches(4 << 10, kib << 10))
    kernels = [compiled(program, machine, threads) for threads in (1, 3)]
    (train,) = [calls for name, calls in made(kernels[0].source).items() if "alone" in name]
    assert any(call.endswith(".strips") for call in train)
    assert len(train) > 1
    given = {each.name: array for each, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = run(program, given).outputs
    found = [kernel(*arrays)[0] for kernel in kernels]
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found[1], found[0])


def test_a_copy_goes_through_what_sums_give_as_these_do():
    """By rows of pixels, not of the images that it stores to; too long sums for panels."""
    h, w, k = place(64, 400, name="h"), place(400, 3100, name="w"), reduced(400, "k")
    program = lowered(ea.compute((64, 3100), lambda n, p: ea.sum(h[n, k] * w[k, p], k), name="y"))
    arrays = arrays_for(program)
    machine = Machine(64, 32, caches=Caches(48 << 10, 2 << 20))
    kernels = [compiled(program, machine, threads) for threads in (1, 3)]
    found = [kernel(*arrays)[0] for kernel in kernels]
    np.testing.assert_allclose(found[0], arrays[0] @ arrays[1], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found[1], found[0])
    kinds = [decision(step.body, step.tile).kind for step in planned(program, machine)]
    assert kinds == [Kind.COPY, Kind.CONTRACTION, Kind.COPY]
    assert made(kernels[0].source)["step1.train"] == ["step1", "step2"]
