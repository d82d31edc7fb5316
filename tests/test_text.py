"""The text front end: what a statement means, which ranges it gets, how mistakes are shown."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import eqsatad as ea
from eqsatad.errors import (
    ArityError,
    DtypeError,
    IndexCountError,
    OutOfBoundsError,
    ShapeError,
    SyntaxTermError,
    UnboundIndexError,
)
from eqsatad.terms.nodes import Stage
from eqsatad.terms.show import show
from tests.index_terms import AXES, values

RANGES = [
    # text, tensors, what is printed with its extents
    (
        "y[i,j] = sum(a[i,k] * b[k,j])",
        {"a": (4, 5), "b": (5, 6)},
        "y[i < 4, j < 6] = sum(k < 5) (a[i, k] * b[k, j])",
    ),
    (
        "y[b,o,i,j] = sum(x[b,c,2*i+u,2*j+v] * k[o,c,u,v])",
        {"x": (8, 64, 30, 30), "k": (64, 64, 3, 3)},
        "y[b < 8, o < 64, i < 14, j < 14] = sum(c < 64, u < 3, v < 3) "
        "(x[b, c, 2 * i + u, 2 * j + v] * k[o, c, u, v])",
    ),
    ("y[i] = sum(x[i+k], k < 3)", {"x": (5,)}, "y[i < 3] = sum(k < 3) (x[i + k])"),
    ("y[i] = sum(x[i+k], k <= 3)", {"x": (5,)}, "y[i < 2] = sum(k < 4) (x[i + k])"),
    ("y[i] = sum(k < 3) (x[i+k])", {"x": (5,)}, "y[i < 3] = sum(k < 3) (x[i + k])"),
    ("y[i] = sum(x[i+k], 1 <= k < 3)", {"x": (5,)}, "y[i < 3] = sum(k < 2) (x[i + (k + 1)])"),
    ("y[i] = sum(x[i+k], 0 < k < 3)", {"x": (5,)}, "y[i < 3] = sum(k < 2) (x[i + (k + 1)])"),
    ("y[i < 2] = sum(x[i+k])", {"x": (5,)}, "y[i < 2] = sum(k < 4) (x[i + k])"),
    ("y[i] = x[i+1] - x[i]", {"x": (5,)}, "y[i < 4] = x[i + 1] - x[i]"),
    ("y[i] = x[4-i]", {"x": (5,)}, "y[i < 5] = x[4 - i]"),
    ("y[i] = x[n-1-i]", {"x": ("n",)}, "y[i < n] = x[n - 1 - i]"),
    ("y[i] = x[i//m, i%m]", {"x": ("n", "m")}, "y[i < m * n] = x[i // m, i % m]"),
    ("y[i] = x[i//4, i%4]", {"x": (3, 4)}, "y[i < 12] = x[i // 4, i % 4]"),
    ("y[i,j] = x[i//2,j//3]", {"x": (3, 4)}, "y[i < 6, j < 12] = x[i // 2, j // 3]"),
    ("y[i] = sum(x[i//2+u] * w[u])", {"x": (5,), "w": (3,)},
     "y[i < 6] = sum(u < 3) (x[i // 2 + u] * w[u])"),
    ("y[i] = x[5-i//2]", {"x": (6,)}, "y[i < 12] = x[5 - i // 2]"),
    ("y[i] = x[2*i]", {"x": (5,)}, "y[i < 3] = x[2 * i]"),
    ("y = sum(x[i])", {"x": ("n",)}, "y = sum(i < n) (x[i])"),
    ("y[i] = 2 * c * x[i]", {"x": (3,), "c": ()}, "y[i < 3] = 2.0 * c * x[i]"),
    ("y[i] = argmax(x[i,k])", {"x": (3, 4)}, "y[i < 3] = argmax(k < 4) (x[i, k])"),
    ("y[i<5] = sum(x[k], where=k<=i)", {"x": (5,)},
     "y[i < 5] = sum(k < 5, where=k <= i) (x[k])"),
    ("y[i] = sum(x[i,k], k < i)", {"x": (5, 4)},
     "y[i < 5] = sum(k < 4, where=k < i) (x[i, k])"),
    ("y[i] = sum(x[i,k], init=1)", {"x": (5, 4)}, "y[i < 5] = 1.0 + sum(k < 4) (x[i, k])"),
    ("y[i] = select(i > 0, x[i-1], 0)", {"x": (5,)}, "y[i < 6] = select(i > 0, x[i - 1], 0.0)"),
    ("y[i] = select(i < 5, a[i], b[i-5])", {"a": (5,), "b": (7,)},
     "y[i < 12] = select(i < 5, a[i], b[i - 5])"),
    ("y[i] = x[i] if 1 <= i < 3 else -x[i]", {"x": (5,)},
     "y[i < 5] = select(1 <= i and i < 3, x[i], -x[i])"),
    ("y[i,j] = x[i,j] if j <= i and not i == 2 else 0", {"x": (5, 5)},
     "y[i < 5, j < 5] = select(j <= i and not i == 2, x[i, j], 0.0)"),
    ("y[i] = max(x[i], 0)", {"x": (5,)}, "y[i < 5] = max(x[i], 0.0)"),
    ("y[i] = max(x[i,k], k < 2)", {"x": (5, 4)}, "y[i < 5] = max(k < 2) (x[i, k])"),
    ("y[i] = max(exp(x[i,k]) * sum(x[k,l]))", {"x": (5, 5)},
     "y[i < 5] = max(k < 5) (exp(x[i, k]) * sum(l < 5) (x[k, l]))"),
    ("y[i] = sum(x[i,k]) + sum(x[k,i])", {"x": (5, 5)},
     "y[i < 5] = sum(k < 5) (x[i, k]) + sum(k < 5) (x[k, i])"),
    ("y[i] = sum(x[i,k]) + sum(z[i,k])", {"x": (5, 4), "z": (5, 3)},
     "y[i < 5] = sum(k < 4) (x[i, k]) + sum(k_1 < 3) (z[i, k_1])"),
    ("y[i] = x[p[i]] + 0.5", {"x": (5,), "p": ((7,), "int32")}, "y[i < 7] = x[p[i]] + 0.5"),
    ("y[i] = cast(p[i], float32) * pi", {"p": ((7,), "int32")},
     "y[i < 7] = cast(p[i], float32) * 3.141592653589793"),
    ("y[p[i]] += x[i]", {"x": (7,), "p": ((7,), "int32"), "y": (3,)},
     "y[i0 < 3] = 0.0\ny[p[i]] += x[i] for i < 7"),
    ("y[b,i<10] = sum(x.get(b,i+u-1) * w[u])", {"x": ("n", 10), "w": (3,)},
     "y[b < n, i < 10] = sum(u < 3) (select(b >= 0 and b < n and i + u - 1 >= 0 and "
     "i + u - 1 < 10, x[b, i + u - 1], 0.0) * w[u])"),
    ("y[i,j] = x[min(i+j,9), j]", {"x": (10, 10)}, None),
    ("y[i,j] = x[i, j] * 2**-1", {"x": (3, 4)}, "y[i < 3, j < 4] = x[i, j] * 0.5"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "tensors", "expected"),
    [row for row in RANGES if row[2]],
    ids=[row[0] for row in RANGES if row[2]],
)
def test_text_means(text, tensors, expected):
    assert show(ea.op(text, **tensors), extents=True) == expected


def test_clamped_index_bounds_nothing():
    with pytest.raises(UnboundIndexError, match="range of i does not follow"):
        ea.op("y[i,j] = x[min(i+j,9), j]", x=(10, 10))
    stage = ea.op("y[i<7,j] = x[min(i+j,9), j]", x=(10, 10))
    assert [axis.extent.value for axis in stage.axes] == [7, 10]


def test_statements_make_stages():
    stages = ea.ops(
        """
        m[i] = max(x[i,k])
        e[i,j] = exp(x[i,j] - m[i]); y[i,j] = e[i,j] / sum(e[i,k])
        """,
        x=("n", 4),
    )
    assert list(stages) == ["m", "e", "y"]
    x = np.random.default_rng(1).normal(size=(3, 4)).astype("float32")
    e = np.exp(x - x.max(axis=1, keepdims=True))
    found = ea.evaluate([stages["y"]], {"x": x})[0]
    # float64 rounded once to float32 per stage.
    np.testing.assert_allclose(found, e / e.sum(axis=1, keepdims=True), rtol=1e-6)


def test_stage_and_text_give_the_same_term():
    a, b = ea.placeholder((4, 5), name="a"), ea.placeholder((5, 6), name="b")
    k = ea.reduce_axis((0, 5), name="k")
    built = ea.compute((4, 6), lambda i, j: ea.sum(a[i, k] * b[k, j], axis=k), name="y")
    assert ea.op("y[i,j] = sum(a[i,k] * b[k,j])", a=a, b=b) is built


def test_tensors_can_be_given():
    x = ea.compute((3,), lambda i: ea.cast(i, "float32"), name="x")
    assert ea.evaluate([ea.op("y[i] = 2 * x[i]", x=x)], {})[0].tolist() == [0, 2, 4]


def test_added_statement_continues_a_stage():
    stage = ea.op("y[i] = 2 * x[i]\ny[p[s]] += x[s]", x=(3,), p=((3,), "int32"))
    x, p = np.array([1.0, 2, 3]), np.array([0, 0, 2])
    assert ea.evaluate([stage], {"x": x, "p": p})[0].tolist() == [5, 4, 9]


X, Y = ea.placeholder((6,), name="x"), ea.placeholder((6,), name="y")


def assert_reads_back(stage):
    """The text of ``stage`` means the same; what is read from it prints as it is."""
    text = show(stage, extents=True)
    tensors = {name: t for name, t in (("x", X), ("y", Y)) if f"{name}[" in text}
    again = ea.op(text, **tensors)
    rng = np.random.default_rng(2)
    arrays = {name: rng.normal(size=6) for name in "xy"}
    found, expected = (ea.evaluate([s], arrays, dtype="float64")[0] for s in (again, stage))
    # Arithmetic on literals alone is done when the text is read; the rest is the same term.
    np.testing.assert_array_equal(found, expected)
    assert ea.op(show(again, extents=True), **tensors) is again


@settings(max_examples=150, deadline=None)
@given(values([X, Y]))
def test_printed_stage_reads_back(expr):
    assert_reads_back(Stage("out", AXES, expr))


@settings(max_examples=50, deadline=None)
@given(values([X, Y], leaves=4))
def test_printed_reductions_read_back(expr):
    i, j, k = AXES
    body = ea.sum(expr, axis=(k, j), where=k + j > i) + X[i] * ea.max(expr, axis=(j, k))
    assert_reads_back(Stage("out", (i,), body))


@pytest.mark.parametrize(
    ("text", "error", "marked", "words"),
    [
        ("y[i,j] = a[i,k] * b[k,j]", UnboundIndexError, "k", "index k is used but bound neither"),
        ("y[i] = sum(a[i] * b[k,i])", IndexCountError, "a[i]", "2 dimensions"),
        ("y[i] = sum(c[i,k])", SyntaxTermError, "c", "Known are a, b"),
        ("y[i] = sum(a[i,k]))", SyntaxTermError, ")", "unmatched"),
        ("y[i] = a[i,i] / i // 2", DtypeError, "a[i,i] / i // 2", "floor(a / b)"),
        ("y[i] = a[i/2,i]", DtypeError, "i/2", "Use //"),
        ("y[i] = foo(a[i,i])", SyntaxTermError, "foo", "not a function"),
        ("y[i] = exp(a[i,i], 2)", ArityError, "exp(a[i,i], 2)", "takes 1"),
        ("y[i] = exp", SyntaxTermError, "exp", "Call it"),
        ("y[i,i] = a[i,i]", UnboundIndexError, "i", "twice"),
        ("a[i] = b[i,i]", SyntaxTermError, "a[i]", "already defined"),
        ("y[2*i] = a[i,i]", SyntaxTermError, "2*i", "expected an index"),
        ("y[1 <= i < 3] = a[i,i]", SyntaxTermError, "1 <= i < 3", "expected an index"),
        ("y[exp] = a[0,0]", SyntaxTermError, "exp", "another name"),
        ("y[i] = sum(a[i,i])", UnboundIndexError, "sum(a[i,i])", "reduces over nothing"),
        ("y[i] = sum(a[i,k], over=k)", SyntaxTermError, "over=k", "where= and init="),
        ("y[i] = sum(i) (a[i,i])", UnboundIndexError, "sum(i) (a[i,i])", "already bound"),
        ("y[i] = sum(a[i+k,0])", UnboundIndexError, "i", "does not follow"),
        ("y[i,z] = a[i,0]", UnboundIndexError, "z", "Give it: y[z < ...]"),
        ("y[i] = a[i,9]", OutOfBoundsError, "a[i,9]", "extent 5"),
        ("y[i] = [a[i,0]]", SyntaxTermError, "[a[i,0]]", "no meaning"),
        ("y[i] = 'x'", SyntaxTermError, "'x'", "no meaning"),
        ("y[i] = a.get(i, 0, border=1)", SyntaxTermError, "a.get(i, 0, border=1)", "outside="),
        ("y[i] = select(a[i,0], 1, 2)", DtypeError, "select(a[i,0], 1, 2)", "condition"),
        ("for i in a: pass", SyntaxTermError, "for i in a: pass", "expected a statement"),
        ("y[i] -= a[i,0]", SyntaxTermError, "y[i] -= a[i,0]", "expected a statement"),
        ("z[b[i,0]] += a[i,0]", SyntaxTermError, "z[b[i,0]]", "Give its shape"),
        ("y.z = 3", SyntaxTermError, "y.z", "expected a tensor"),
        ("y[i] = a[i,0] * (1 // 0)", ZeroDivisionError, "1 // 0", "zero"),
        ("ä[i] = sum(a[ü,k]) + a[i,j]", UnboundIndexError, "j", "index j"),
    ],
)  # fmt: skip
def test_mistake_is_marked_and_explained(text, error, marked, words):
    with pytest.raises(error) as caught:
        ea.op(text, a=(4, 5), b=(5, 4))
    lines = str(caught.value).split("\n")
    place = lines.index(f"    {text}")
    carets = lines[place + 1]
    assert lines[place][carets.index("^") : len(carets)] == marked
    assert words in "\n".join(lines)


def test_mistake_is_marked_on_its_line():
    with pytest.raises(SyntaxTermError) as caught:
        ea.op("z[i] = x[i]\n  # comment\ny[i] = q[i]", x=(3,))
    assert "\n    y[i] = q[i]\n           ^\n" in str(caught.value)


@pytest.mark.parametrize("text", ["", "  \n", "# nothing"])
def test_empty_text_is_a_mistake(text):
    with pytest.raises(SyntaxTermError, match="no statement"):
        ea.op(text)


def test_tensor_that_is_not_read_is_a_mistake():
    with pytest.raises(SyntaxTermError, match="reads no b"):
        ea.op("y[i] = a[i]", a=(3,), b=(3,))


def test_window_that_does_not_fit_is_a_mistake():
    with pytest.raises(ShapeError, match="no value of i"):
        ea.op("y[i] = sum(x[i+u] * w[u])", x=(3,), w=(5,))


def test_extents_that_cannot_be_compared_are_a_mistake():
    with pytest.raises(ShapeError, match="neither is known to be the smaller"):
        ea.op("y[i] = x[i] + z[i]", x=("n",), z=("m",))
    assert show(ea.op("y[i < n] = x[i]", x=("n",)), extents=True) == "y[i < n] = x[i]"
