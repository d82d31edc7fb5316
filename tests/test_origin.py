"""The line of the user's code that built a tensor: in messages, and in nothing else."""

from __future__ import annotations

import inspect
import re
from functools import cached_property
from itertools import count

import numpy as np
import pytest

import eqsatad as ea
from eqsatad.cli import main
from eqsatad.errors import EqsatadError
from eqsatad.terms.nodes import Axis, Const, Placeholder, Stage
from eqsatad.terms.origin import built_at
from eqsatad.terms.show import show
from eqsatad.terms.store import dump, load
from eqsatad.terms.walk import map_stage

HERE = "test_origin.py"


def line():
    """The line from which this is called, as messages spell it."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{HERE}:{frame.f_back.f_lineno}"


NUMBERS = count()


def fresh():
    """A name that no other tensor has: equal tensors are one, built at the first line."""
    return f"t{next(NUMBERS)}"


def through_the_standard_library(name):
    class Lazy:
        @cached_property
        def tensor(self):
            return ea.placeholder((3,), name=name)

    return Lazy()


def test_placeholder_is_built_here():
    x, here = ea.placeholder((3,), name=fresh()), line()
    assert x.built == here


def test_stage_is_built_here():
    x = ea.placeholder((3,), name=fresh())
    y, here = ea.compute((3,), lambda i: x[i] * 2, name=fresh()), line()
    assert y.built == here


def test_text_is_built_here():
    name = fresh()
    y, here = ea.op(f"{name}[i] = 2 * x{name}[i]", **{f"x{name}": (3,)}), line()
    assert y.built == here


def test_frames_of_the_standard_library_are_not_the_user():
    lazy = through_the_standard_library(fresh())
    where = lazy.tensor.built
    assert re.fullmatch(rf"{HERE}:\d+", where)


def test_first_of_equal_tensors_gives_the_line():
    name = fresh()
    x, here = ea.placeholder((3,), name=name), line()
    again = ea.placeholder((3,), name=name)
    assert again is x
    assert x.built == here


def test_derived_stage_keeps_the_line():
    x = ea.placeholder((3,), name=fresh())
    y, here = ea.compute((3,), lambda i: x[i] * 2, name=fresh()), line()
    changed = map_stage(y, lambda root: root + 1.0)
    assert changed is not y
    assert changed.built == here


def test_given_line_ends_with_its_context():
    with built_at("model.py:3"):
        inside = Placeholder(fresh(), (), "float32")
    outside, here = Placeholder(fresh(), (), "float32"), line()
    assert (inside.built, outside.built) == ("model.py:3", here)
    assert inside.where_built == " (built at model.py:3)"


def test_nothing_is_said_where_the_line_is_not_known():
    with built_at(""):
        assert Placeholder(fresh(), (), "float32").where_built == ""


def same_at(first, second):
    """One tensor after the other, built at two lines, as far as they outlive this."""
    name, axis = "same_at", Axis("i", Const(3, "index"))
    for where in (first, second):
        with built_at(where):
            x = Placeholder(f"{name}_x", (axis.extent,), "float32")
            stage = Stage(name, (axis,), x[axis] * 2.0)
            assert stage.built == where
            yield stage.key, show(stage, extents=True), dump([stage])
            del x, stage


def test_line_is_no_part_of_key_text_or_stored_form():
    one, other = same_at("a.py:1", "b.py:2")
    assert one == other


def test_loaded_tensor_is_the_live_one_with_its_line():
    x, here = ea.placeholder((3,), name=fresh()), line()
    assert load(dump([x]))[0].built == here


def kernel_of(x):
    return ea.build([ea.compute((3,), lambda i: x[i] * 2, name=fresh())], target="reference")


IDX = ea.placeholder((3,), name="origin_idx", dtype="int64")
X = ea.placeholder((3,), name="origin_x")
Y = ea.compute((3,), lambda i: ea.cast(ea.cast(X[i], "int64"), "float32"), name="origin_y")
LINES = {name: tensor.built for name, tensor in (("x", X), ("y", Y), ("idx", IDX))}

MISTAKES = {
    "read outside": ("x", lambda: ea.compute((4,), lambda i: X[i], name="z")),
    "constant read": ("x", lambda: X[3]),
    "index count": ("x", lambda: X[0, 0]),
    "integer input": ("idx", lambda: ea.differentiate(Y, [IDX])),
    "through integers": ("y", lambda: ea.differentiate(Y, [X])),
    "head shape": ("x", lambda: ea.differentiate(ea.compute((5,), lambda i: X[0] * i), [X], X)),
    "array missing": ("x", lambda: kernel_of(X)()),
    "array shape": ("x", lambda: kernel_of(X)(np.zeros(4, "float32"))),
    "array dtype": ("x", lambda: kernel_of(X)(np.zeros(3))),
    "no array": ("x", lambda: kernel_of(X)([1.0, 2.0, 3.0])),
    "evaluation": ("x", lambda: ea.evaluate([X], {})),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_message_names_the_line(name):
    tensor, make = MISTAKES[name]
    with pytest.raises(EqsatadError) as caught:
        make()
    assert f"(built at {LINES[tensor]})" in str(caught.value)


def test_command_line_names_no_line(capsys):
    # Equal placeholders are one, and keep the line that built them first.
    text = ["y[i] = sum(a[i,k] * typed[i,k])", "--shape", "a=4x3", "--shape", "typed=3"]
    with pytest.raises(SystemExit):
        main(["grad", *text])
    message = capsys.readouterr().err
    assert "typed has 1 dimensions" in message
    assert "built at" not in message
