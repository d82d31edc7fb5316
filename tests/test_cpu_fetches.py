"""What the sums of a train fetch for the copies around them."""

import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest

from benchmarks.kernel_cases import conv
from eqsatad.backends.cpu.code.source import Machine
from eqsatad.backends.cpu.code.text import Writer
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.backends.cpu.tiles.reuse import LINE
from eqsatad.loops.interpret import run
from tests.loop_programs import arrays_for, conv_input_gradient, conv_weight_gradient, lowered
from tests.test_cpu import compiled, planned

KIB = 1024


def machine(far):
    """One with so many KiB of its second cache."""
    return Machine(64, 32, caches=Caches(32 * KIB, far * KIB))


def strided():
    """The gradient of a strided convolution: sums for each phase, and one copy of all."""
    problem = conv((9, 32, 28, 28), (32, 32, 3, 3), "X", stride=2, pad=1)
    return problem.ours.build("reference").loops


# With second caches that what is touched does not fit, but a block of it does.
PROGRAMS = {
    "a copy before and one behind": (
        lowered(conv_input_gradient(9, 16, 32, 12, 3, 1)),
        machine(256),
    ),
    "few blocks": (lowered(conv_input_gradient(3, 16, 16, 20, 3, 1)), machine(256)),
    "several sums": (strided(), machine(512)),
}


@pytest.fixture
def asked(monkeypatch):
    """The addresses that code asks the second cache for, in order."""
    found = []
    remember = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(found.append)
    llvm.add_symbol("remember", ctypes.cast(remember, ctypes.c_void_p).value)
    monkeypatch.setattr(Writer, "remember", remember, raising=False)

    def prefetch(self, address, *, write=False, near=True):
        if not near:
            self.module.declarations["remember"] = "declare void @remember(ptr)"
            self.line(f"call void @remember(ptr {address})")

    monkeypatch.setattr(Writer, "prefetch", prefetch)
    return found


def lines(addresses, array):
    """The lines of ``array`` that ``addresses`` are in, by their number."""
    begin = array.ctypes.data // LINE
    end = begin - (-array.nbytes // LINE)
    return [each // LINE - begin for each in addresses if begin <= each // LINE < end]


def missing(found, array, first=0):
    """How many lines of ``array`` from row ``first`` on are not ``found``, but for the last."""
    row = array.nbytes // array.shape[0]
    return len(set(range(first * row // LINE + 1, array.nbytes // LINE - 1)) - set(found))


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_of_a_result_is_fetched_and_all_of_an_input_but_its_first_block(name, asked):
    program, cpu = PROGRAMS[name]
    arrays = arrays_for(program)
    (result,) = compiled(program, cpu)(*arrays)
    found = lines(asked, result)
    # Sums that leave out rows of zeros have fewer turns at the border of an image.
    assert missing(found, result) <= 0.02 * result.nbytes / LINE
    # Block by block; sums that fetch parts of a block go back in it.
    rows = [line * LINE * result.shape[0] // result.nbytes for line in found]
    assert rows == sorted(rows)
    if name != "several sums":
        head = next(a for each, a in zip(program.inputs, arrays, strict=True) if each.name == "h")
        assert missing(lines(asked, head), head, first=1) == 0


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_right_and_the_same_for_any_number_of_threads(name, threads):
    program, cpu = PROGRAMS[name]
    arrays = arrays_for(program)
    given = {each.name: array for each, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = run(program, given).outputs
    (found,) = compiled(program, cpu, threads)(*arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_strips_of_several_rows_fetch_the_next_image(asked):
    program = lowered(conv_weight_gradient(9, 24, 48, 14, 3, 1))
    arrays = arrays_for(program)
    kernel = compiled(program, machine(256))
    tiles = [step.tile for step in planned(program, machine(256)) if step.tile is not None]
    (strips,) = (tile.strips for tile in tiles if tile.strips is not None)
    assert (strips.loops[-1].axis.name, strips.size) == ("p", 4)
    kernel(*arrays)
    (head,) = (a for each, a in zip(program.inputs, arrays, strict=True) if each.name == "h")
    found = lines(asked, head)
    # The last strip of an image and those at its border are shorter: they fetch less.
    assert missing(found, head, first=1) <= 0.12 * head.nbytes / LINE
    images = [line * LINE * len(head) // head.nbytes for line in found]
    assert images == sorted(images)


def test_nothing_is_fetched_that_is_near_anyway(asked):
    program, _ = PROGRAMS["few blocks"]
    compiled(program, machine(2048))(*arrays_for(program))
    assert not asked


def test_a_block_is_fetched_in_part_if_it_has_no_room(asked):
    program, _ = PROGRAMS["a copy before and one behind"]
    arrays = arrays_for(program)
    (result,) = compiled(program, machine(64))(*arrays)
    assert missing(lines(asked, result), result) == 0
    # What comes next is first: of sixteen KiB seven are left for the eighteen of a head.
    head = next(a for each, a in zip(program.inputs, arrays, strict=True) if each.name == "h")
    found = set(lines(asked, head))
    assert 0.3 * head.nbytes < len(found) * LINE < 0.5 * head.nbytes
