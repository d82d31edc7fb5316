"""Nodes, their operators, their printing, and the names that builders give."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given

import eqsatad as ea
from eqsatad.errors import (
    ArityError,
    DtypeError,
    IndexCountError,
    OutOfBoundsError,
    ShapeError,
    UnboundIndexError,
)
from eqsatad.terms import ops
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import MAXIMUM, SUM, TRUE, Apply, Axis, Cast, Const, Reduce, Size, Stage
from eqsatad.terms.show import brief, mark, show
from eqsatad.terms.walk import postorder
from tests.index_terms import AXES, indices, values

i, j, k = AXES
N = Size("n")
A = ea.placeholder((3, 5), name="a")
B = ea.placeholder((5,), name="b")
IDX = ea.placeholder((5,), name="idx", dtype="int32")
LONG = ea.placeholder((5,), name="long", dtype="int64")
D = ea.placeholder((5,), name="d", dtype="float64")


def table(expr, name="t"):
    """The values of an index expression over `AXES`."""
    stage = Stage(name, AXES, Cast(expr, "int64"))
    return ea.evaluate([stage], {})[0]


def test_equal_terms_are_one_object():
    assert i + 1 is i + 1
    assert A[i, k] * 2 is A[i, k] * 2.0


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Const(1, "index"), Const(1.0, "float32")),
        (Const(True, "bool"), Const(1, "int32")),
        (Const(0.0, "float32"), Const(-0.0, "float32")),
        (Const(1.0, "float32"), Const(1.0, "float64")),
    ],
)
def test_constants_of_other_type_are_other_nodes(a, b):
    assert a is not b


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
def test_copies_stay_interned(copied):
    stage = ea.compute((3,), lambda i: ea.sum(A[i, k] * B[k], axis=k))
    assert copied(stage) is stage


def test_operators_never_simplify():
    assert show(i + 0) == "i + 0"
    assert show(A[i, k] * 1) == "a[i, k] * 1.0"


@pytest.mark.parametrize(
    ("expr", "op", "dtype"),
    [
        (i + 1, ops.ADD, "index"),
        (1 - i, ops.SUB, "index"),
        (B[k] + 1, ops.ADD, "float32"),
        (2 / B[k], ops.DIV, "float32"),
        (B[k] ** 2, ops.POW, "float32"),
        (2 ** B[k], ops.POW, "float32"),
        (B[k] * i, ops.MUL, "float32"),
        (i * B[k], ops.MUL, "float32"),
        (i + 0.5, ops.ADD, "float32"),
        (IDX[k] + i, ops.ADD, "index"),
        (IDX[k] + 1, ops.ADD, "int32"),
        (IDX[k] * LONG[k], ops.MUL, "int64"),
        (7 // (IDX[k]), ops.FLOORDIV, "int32"),
        (7 % (i + 1), ops.MOD, "index"),
        (-i, ops.NEG, "index"),
        (abs(B[k]), ops.ABS, "float32"),
        (i < 3, ops.LT, "bool"),
        (B[k] >= 0, ops.GE, "bool"),
        (i.equal(2), ops.EQ, "bool"),
        (i.differs(j), ops.NE, "bool"),
        ((i < 3) & (j > 1), ops.AND, "bool"),
        ((i < 3) | True, ops.OR, "bool"),
        (~(i < 3), ops.NOT, "bool"),
        (ea.sqrt(2), ops.SQRT, "float32"),
        (ea.maximum(B[k], 0), ops.MAX, "float32"),
        (D[k] + i, ops.ADD, "float64"),
    ],
    ids=str,
)
def test_operator_builds_its_operation_in_one_dtype(expr, op, dtype):
    assert (expr.op, expr.dtype) == (op, dtype)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: i / 2, "Use //"),
        (lambda: B[k] // 2, "floor(a / b)"),
        (lambda: B[k] + D[k], "Cast one of them"),
        (lambda: B[k] + IDX[k], "Cast one of them"),
        (lambda: IDX[k] + 0.5, "not a value of dtype int32"),
        (lambda: ea.exp(i), "cast(i, 'float32')"),
        (lambda: A[B[k], 0], "must be an integer"),
        (lambda: bool(i < 3), "cannot branch"),
        (lambda: 0 <= i < 3, "cannot branch"),
        (lambda: list(B[k]), "cannot be iterated"),
        (lambda: list(B), "cannot be iterated"),
        (lambda: ea.select(i, 1.0, 2.0), "condition"),
        (lambda: ea.sum(i < 3, axis=i), "cast it first"),
        (lambda: ea.any(B[k], axis=k), "compare it with 0"),
        (lambda: ea.const("x"), "expected a number"),
        (lambda: ea.placeholder((3,), dtype="float8"), "cannot have dtype"),
    ],
)
def test_dtype_mistake_is_explained(build, words):
    with pytest.raises(DtypeError) as caught:
        build()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: A[i], IndexCountError),
        (lambda: A[i, j, k], IndexCountError),
        (lambda: A.get(i), IndexCountError),
        (lambda: A[3, 0], OutOfBoundsError),
        (lambda: A[-1, 0], OutOfBoundsError),
        (lambda: Apply(ops.ADD, (i,)), ArityError),
        (lambda: ea.argmax(B[k], axis=k, init=0), ArityError),
        (lambda: ea.placeholder((-1,)), ShapeError),
        (lambda: ea.placeholder((i,)), ShapeError),
        (lambda: ea.placeholder((2.0,)), ShapeError),
        (lambda: ea.compute((3, 4), lambda i: B[i]), IndexCountError),
        (lambda: ea.compute((3,), lambda i: A[i, k]), UnboundIndexError),
        (lambda: ea.sum(B[k], axis=(k, k)), UnboundIndexError),
        (lambda: ea.sum(B[k], axis=i + j), UnboundIndexError),
    ],
)
def test_malformed_term_is_refused(build, error):
    with pytest.raises(error):
        build()


def test_get_reads_only_inside():
    assert show(B.get(i - 1, outside=2)) == "select(i - 1 >= 0 and i - 1 < 5, b[i - 1], 2.0)"


def test_free_axes_are_those_not_bound():
    assert Reduce(SUM, (k,), k < i, A[i, k]).free == {i}


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (i - (j - k), "i - (j - k)"),
        (i - j - k, "i - j - k"),
        ((i + j) * k, "(i + j) * k"),
        (i + j * k, "i + j * k"),
        ((i * j) // k, "i * j // k"),
        (i * (j // 2), "i * (j // 2)"),
        (-(i + j), "-(i + j)"),
        (-i * j, "-i * j"),
        ((-B[k]) ** 2, "(-b[k]) ** 2.0"),
        (-(B[k] ** 2), "-b[k] ** 2.0"),
        (B[k] ** (B[k] ** 2), "b[k] ** b[k] ** 2.0"),
        ((B[k] ** 2) ** B[k], "(b[k] ** 2.0) ** b[k]"),
        (~(i < j) & (j < k), "not i < j and j < k"),
        ((i < 1) | (j < 1) & (k < 1), "i < 1 or j < 1 and k < 1"),
        (((i < 1) | (j < 1)) & (k < 1), "(i < 1 or j < 1) and k < 1"),
        ((i < 1).equal(j < 1), "(i < 1) == (j < 1)"),
        (ea.exp(B[k] + 1), "exp(b[k] + 1.0)"),
        (ea.select(i < 1, B[k], 0), "select(i < 1, b[k], 0.0)"),
        (B[IDX[k]], "b[idx[k]]"),
        (B[IDX[k] % 5], "b[idx[k] % 5]"),
        (B[IDX[k] + i], "b[cast(idx[k], index) + i]"),
        (Reduce(SUM, (k,), TRUE, A[i, k] * B[k]), "sum(k) (a[i, k] * b[k])"),
        (Reduce(MAXIMUM, (j, k), k < j, B[k]), "max(j, k, where=k < j) (b[k])"),
        (ea.const(-2.0) * B[k], "-2.0 * b[k]"),
    ],
)
def test_show_prints_index_notation(expr, text):
    assert show(expr) == text


def test_show_prints_stages_with_extents():
    stage = ea.compute((3, N), lambda i, j: ea.sum(A[i, k] * j, axis=k, where=i >= k), name="y")
    assert show(stage) == "y[i, j] = sum(k, where=i >= k) (a[i, k] * cast(j, float32))"
    assert show(stage, extents=True).startswith("y[i < 3, j < n] = sum(k < 5, where=")


def test_repr_is_index_notation():
    assert repr(A) == "a: float32[3, 5]"
    assert f"{i + 1!r}" == "i + 1"


def test_mark_underlines_every_occurrence():
    assert mark(A[i, k] + B[k] * A[i, k], A[i, k]) == (
        "a[i, k] + b[k] * a[i, k]\n^^^^^^^          ^^^^^^^"
    )


def test_mark_cuts_a_long_term_around_the_part():
    expr = B[k]
    for n in range(60):
        expr = expr + B[n % 5] if n != 40 else expr + A[i, 4]
    text, below = mark(expr, A[i, 4]).split("\n")
    assert text[below.index("^") : below.rindex("^") + 1] == "a[i, 4]"
    assert len(text) <= 100


def test_deep_and_shared_terms_print_and_hash_without_recursion():
    deep = B[0]
    for _ in range(5000):
        deep = deep + B[1]
    shared = B[0]
    for _ in range(200):
        shared = shared * shared
    assert len(show(deep)) > 20000
    assert len(brief(deep)) <= 200
    assert len(brief(shared)) <= 200


@given(indices())
def test_normal_form_has_the_same_value(expr):
    assert (table(expr) == table(normal(expr))).all()


def test_reduce_axis_is_another_axis_each_time():
    x = ea.placeholder((3, 3), name="x")
    u, v = ea.reduce_axis((0, 3), name="u"), ea.reduce_axis((0, 3), name="u")
    stage = ea.compute((), lambda: ea.sum(x[u, v], axis=(u, v)), name="y")
    assert show(stage) == "y = sum(u, u_1) (x[u, u_1])"


def test_names_do_not_depend_on_what_was_built_before():
    def build():
        u, v = ea.reduce_axis((0, 3)), ea.reduce_axis((0, 5))
        return ea.compute((3,), lambda i: ea.sum(A[u, v] * A[i, v], axis=(u, v)))

    assert build() is build()


def test_reduction_never_shares_a_name_with_an_axis_in_scope():
    i = ea.reduce_axis((0, 3), name="i")
    stage = ea.compute((3,), lambda i_: A[i_, 0] + ea.sum(A[i, 1] * A[i_, 2], axis=i), name="y")
    outer = ea.compute((3,), lambda i: stage[i] * 1, name="z")
    plain = Axis("i", Const(3, "index"))
    same = ea.compute((3,), lambda i: A[i, 0] + ea.sum(A[plain, 1], axis=plain), name="y")
    assert outer.axes[0].name == "i"
    for term in (stage, same):
        for node in postorder(term.body):
            if isinstance(node, Reduce):
                assert not {a.name for a in node.axes} & {a.name for a in term.axes}


def test_nested_reductions_over_one_axis_stay_apart():
    u = ea.reduce_axis((0, 5), name="u")
    stage = ea.compute((), lambda: ea.sum(B[u] * ea.sum(B[u] * 2, axis=u), axis=u), name="y")
    b = np.arange(5.0)
    assert ea.evaluate([stage], {"b": b})[0] == b.sum() * 2 * b.sum()


def test_equal_sibling_reductions_are_one_node():
    def total():
        u = ea.reduce_axis((0, 5), name="u")
        return ea.sum(B[u], axis=u)

    stage = ea.compute((), lambda: total() * total())
    left, right = stage.body.children
    assert left is right


def test_lower_bound_of_an_axis_is_an_offset():
    u = ea.reduce_axis((2, 5), name="u")
    stage = ea.compute((), lambda: ea.sum(B[u], axis=u), name="y")
    assert show(stage, extents=True) == "y = sum(u < 3) (b[u + 2])"


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (lambda i, j: A[i, j], ["i", "j"]),
        (lambda row, *rest: A[(row, *rest)], ["row", "rest"]),
        (lambda *i: A[i], ["i0", "i1"]),
    ],
)
def test_axes_are_named_like_the_parameters(fn, names):
    assert [axis.name for axis in ea.compute((3, 5), fn).axes] == names


def test_index_valued_body_is_stored_as_int64():
    assert ea.compute((3,), lambda i: i * 2).dtype == "int64"


@given(values([B]))
def test_every_value_pickles_to_itself(expr):
    assert pickle.loads(pickle.dumps(expr)) is expr
