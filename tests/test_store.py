"""Stored terms come back as themselves, and nothing else is taken for stored terms."""

from __future__ import annotations

import copy
import json
import math
import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings

import eqsatad as ea
from eqsatad.errors import EqsatadError, StoreError
from eqsatad.terms.nodes import Apply, Axis, Const, Read, Size, Stage, digest
from eqsatad.terms.ops import ADD, OPS
from eqsatad.terms.show import show
from eqsatad.terms.store import MAGIC, VERSION, dump, load
from tests.programs import Program, programs

N = Size("n")
A = ea.placeholder((3, N), name="a")
IDX = ea.placeholder((5,), name="idx", dtype="int64")
B = ea.placeholder((5,), name="b", dtype="bfloat16")
MASK = ea.placeholder((5,), name="mask", dtype="bool")
LOG_ADD = ea.comm_reducer(lambda x, y: ea.log(ea.exp(x) + ea.exp(y)), -math.inf, name="log_add")


def reduced(reduction):
    k = ea.reduce_axis((0, N))
    return ea.compute((3,), lambda i: reduction(A[i, k], axis=k, where=k > i), name="y")


STAGES = {
    "placeholder": A,
    "sum": reduced(ea.sum),
    "argmax": ea.compute((3,), lambda i: ea.argmax(A[i, 0], axis=ea.reduce_axis((0, 2)))),
    "combiner": reduced(LOG_ADD),
    "select": ea.compute((5,), lambda i: ea.select(MASK[i] & (i < 3), ea.sin(B[i]), 0.5)),
    "gather": ea.compute((5,), lambda i: ea.cast(B[IDX[i]], "float64") ** 2.0),
    "scatter": ea.scatter((7,), (5,), lambda s: (IDX[s], B[s] * 2), where=lambda s: s // 2 < 2),
    "no-axes": ea.compute((), lambda: A[0, 0] - 1),
    "index-arithmetic": ea.compute((4 * N,), lambda i: A[0, i // 4] + ea.cast(i % 3, "float32")),
    "names": ea.compute((3,), lambda i: A[i, 0], name='quoted "é\n\\'),
}


@pytest.mark.parametrize("name", STAGES)
def test_load_gives_the_same_object(name):
    assert load(dump([STAGES[name]]))[0] is STAGES[name]


def test_load_keeps_order_and_repetition():
    given = [STAGES["sum"], A, STAGES["select"], A]
    found = load(dump(given))
    assert len(found) == 4
    assert all(one is other for one, other in zip(found, given, strict=True))


def test_nothing_is_a_program_too():
    assert load(dump([])) == []


@settings(max_examples=40, deadline=None)
@given(programs())
def test_every_program_comes_back(program: Program):
    found = load(dump([program.output]))[0]
    assert found is program.output


@pytest.mark.parametrize("name", OPS)
def test_every_operation_comes_back(name):
    op = OPS[name]
    dtype = {"logic": "bool", "integer": "int64"}.get(op.kind, "float64")
    x = ea.placeholder((), name="x", dtype=dtype)
    stage = Stage("y", (), Apply(op, (Read(x, ()),) * op.arity))
    assert load(dump([stage]))[0] is stage


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        *((number, "float64") for number in (0.0, -0.0, math.inf, -math.inf, math.nan)),
        *((number, "float64") for number in (0.1, 5e-324, 1.7976931348623157e308, 1 / 3)),
        (1.0, "float32"),
        (1, "int32"),
        (True, "bool"),
        (-(2**63), "int64"),
    ],
)
def test_literal_comes_back_exactly(value, dtype):
    stage = Stage("y", (), Const(value, dtype))
    assert load(dump([stage]))[0] is stage


def test_ten_thousand_stages_come_back():
    stage = ea.compute((3,), lambda i: A[i, 0], name="s")
    for number in range(10_000):
        stage = ea.compute((3,), lambda i, before=stage: before[i] + 1.0, name=f"s{number}")
    assert load(dump([stage]))[0] is stage


def test_ten_thousand_operations_in_one_another_come_back():
    i = Axis("i", Const(3, "index"))
    body = A[i, 0]
    for number in range(10_000):
        body = Apply(ADD, (body, Const(float(number), "float32")))
    stage = Stage("deep", (i,), body)
    assert load(dump([stage]))[0] is stage


PROBE = """
import sys
import eqsatad as ea
from eqsatad.terms.store import dump, load
sent = sys.stdin.buffer.read()
found = load(sent)
print([ea.show(t) for t in found], dump(found) == sent, len({id(t) for t in load(sent)}))
"""


def test_another_process_reads_the_same_program():
    given = [STAGES["combiner"], STAGES["scatter"]]
    done = subprocess.run([sys.executable, "-c", PROBE], input=dump(given), capture_output=True)
    expected = f"{[show(tensor) for tensor in given]} True 2"
    assert (done.stdout.decode().strip(), done.returncode) == (expected, 0)


def spoiled(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_every_damaged_byte_is_noticed():
    data = dump([STAGES["sum"]])
    for place in range(len(data)):
        with pytest.raises(StoreError):
            load(spoiled(data, place))


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
def test_part_of_the_bytes_is_refused(kept):
    with pytest.raises(StoreError):
        load(dump([A])[:kept])


def test_other_format_version_is_refused():
    later = dump([A]).replace(f"{MAGIC} {VERSION} ".encode(), f"{MAGIC} {VERSION + 1} ".encode())
    with pytest.raises(StoreError, match=f"format {VERSION + 1} cannot be read.*format {VERSION}"):
        load(later)


def foreign(**content: object) -> bytes:
    body = json.dumps(content)
    return f"{MAGIC} {VERSION} {digest(body)}\n{body}".encode()


SIZE, ONE = ["Size", "n", ["int", "1"], ["int", "1"]], ["Const", ["int", "1"], "index"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04\x95 a pickle",
        foreign(nodes=[]),
        foreign(nodes=[SIZE], roots=[0]),
        foreign(nodes=[SIZE], roots=[1]),
        foreign(nodes=[SIZE], roots=[-1]),
        foreign(nodes=[["Letter", "x", "term", "index"]], roots=[]),
        foreign(nodes=[["Size"]], roots=[]),
        foreign(nodes=[["Size", 3, *SIZE[2:]]], roots=[]),
        foreign(nodes=[SIZE, ["Axis", "i", 1]], roots=[]),
        foreign(nodes=[SIZE, ["Axis", "i", True]], roots=[]),
        foreign(nodes=[["Const", ["float", "x"], "float64"]], roots=[]),
        foreign(nodes=[["Const", ["eval", "1"], "float64"]], roots=[]),
        foreign(nodes=[ONE, ["Apply", "system", [0]]], roots=[]),
        foreign(nodes=[ONE, ["Apply", "neg", 0]], roots=[]),
        foreign(nodes=[ONE, ["Apply", "add", [0]]], roots=[]),
        foreign(nodes=[["Combiner", "c", None, None, None, None], ["Cast", 0, "int32"]], roots=[]),
    ],
)
def test_foreign_data_is_refused(data):
    with pytest.raises(StoreError):
        load(data)


def test_foreign_data_that_makes_a_program_is_read():
    stage = ["Stage", "y", [], 1, []]
    assert load(foreign(nodes=[SIZE, ["Const", ["float", "1.5"], "float64"], stage], roots=[2]))


def test_nesting_in_foreign_data_is_refused():
    body = "[" * 100_000
    with pytest.raises(StoreError):
        load(f"{MAGIC} {VERSION} {digest(body)}\n{body}".encode())


def test_pattern_letters_are_no_program():
    from eqsatad.rules.rule import x

    y = ea.placeholder((5,), name="y")
    with pytest.raises(EqsatadError, match="Letter is no part of a program"):
        dump([Stage("bad", (), Read(y, (x,)))])


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy])
def test_copy_of_a_deep_term_is_the_term(again):
    i = Axis("i", Const(3, "index"))
    body = A[i, 0]
    for _ in range(5_000):
        body = body + 1.0
    assert again(body) is body


PICKLED = """
import pickle, sys
from eqsatad.terms.ops import ADD
stage = pickle.loads(sys.stdin.buffer.read())
print(stage.body.op is ADD)
"""


def test_pickled_operation_is_the_operation_of_the_other_process():
    stage = ea.compute((3,), lambda i: A[i, 0] + 1.0)
    done = subprocess.run(
        [sys.executable, "-c", PICKLED], input=pickle.dumps(stage), capture_output=True
    )
    assert done.stdout.decode().strip() == "True"
