"""Stored loop programs come back as they were, and nothing else is taken for one."""

from __future__ import annotations

import json

import pytest

import eqsatad as ea
from eqsatad.errors import StoreError
from eqsatad.loops.nest import LoopProgram
from eqsatad.loops.store import dump, load
from tests.loop_programs import CASES, lowered


def scheduled() -> LoopProgram:
    """A program with marked loops, a remark and a symbolic size."""
    n = ea.size("n")
    x = ea.placeholder((n, 64), name="x")
    k = ea.reduce_axis((0, n), name="k")
    y = ea.compute((64,), lambda i: ea.sum(x[k, i], axis=k), name="y")
    plan = ea.plan([y])
    plan["y"].split("i", 16).vectorize("i_inner").parallel("i_outer")
    program = plan.program
    return LoopProgram(**{**vars(program), "notes": ("said",)})


@pytest.mark.parametrize("name", CASES)
def test_a_program_comes_back(name: str) -> None:
    program = lowered(CASES[name])
    assert load(dump(program)) == program


def test_marks_notes_and_sizes_come_back() -> None:
    program = scheduled()
    found = load(dump(program))
    assert found == program
    assert (found.notes, [size.name for size in found.sizes]) == (("said",), ["n"])


def test_the_same_program_gives_the_same_bytes() -> None:
    program = lowered(CASES["softmax"])
    assert dump(load(dump(program))) == dump(program)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"For"', '"Four"'),
        ('["For",', '["For",true,'),
        ('["Nest",', '["Nest",-'),
        ('["Nest",', '["Nest",9'),
        ('"LoopProgram"', '"Nest"'),
        ("[", ""),
    ],
)
def test_what_is_no_program_is_refused(before: str, after: str) -> None:
    line, _, terms = dump(lowered(CASES["matmul"])).partition(b"\n")
    changed = line.replace(before.encode(), after.encode(), 1)
    assert changed != line
    with pytest.raises(StoreError):
        load(changed + b"\n" + terms)


def test_a_term_of_another_class_is_refused() -> None:
    line, _, terms = dump(lowered(CASES["matmul"])).partition(b"\n")
    program = json.loads(line)
    program[1], program[2] = [program[5][0][2][0][1]], []  # an axis in the place of the inputs
    with pytest.raises(StoreError, match="expected Tensor, found Axis"):
        load(json.dumps(program).encode() + b"\n" + terms)
