"""What keeps reads in range when a part of a value is stored."""

import numpy as np

import eqsatad as ea
from eqsatad.extract.safe import total
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Apply, Const, Select, Stage
from eqsatad.terms.ops import ADD, AND

PLACE = ea.placeholder((2,), "place", "int64")
X = ea.placeholder((3,), "x", "float64")
ARRAYS = {"place": np.array([1, 0]), "x": np.array([1.0, 2.0, 4.0])}


def stage_of(*conds):
    """``x[i]``, and 10 more where all of ``conds`` hold."""
    row = ea.compute((3,), lambda i: X[i], "row")
    (i,) = row.axes
    cond = Apply(AND, tuple(each(i) for each in conds))
    more = Select(cond, Const(10.0, "float64"), Const(0.0, "float64"))
    return Stage("y", row.axes, Apply(ADD, (row.body, more)))


def chosen(i):
    return ea.cast(PLACE[i], "index").equal(1)


def inside(i):
    return i < 2


def test_a_read_that_a_later_condition_keeps_in_range_guards_nothing_else():
    for conds in ((inside, chosen), (chosen, inside)):
        stage = stage_of(*conds)
        safe = Stage("y", stage.axes, total(stage.body, tested=False))
        np.testing.assert_array_equal(evaluate([safe], ARRAYS)[0], [11.0, 2.0, 4.0])


def test_a_read_that_nothing_guards_guards_all():
    (i,) = stage_of(inside, chosen).axes
    body = Apply(ADD, (ea.cast(PLACE[i], "float64"), X[i]))
    safe = Stage("y", (i,), total(body, tested=False))
    np.testing.assert_array_equal(evaluate([safe], ARRAYS)[0], [2.0, 2.0, 0.0])
