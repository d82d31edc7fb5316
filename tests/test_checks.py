"""Intervals, isl, polynomials and the checks of stages: sound on small boxes, and strong enough."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import eqsatad as ea
from eqsatad.errors import (
    DivisorError,
    EqsatadError,
    IndexRangeError,
    OutOfBoundsError,
    UnboundIndexError,
)
from eqsatad.terms import presburger
from eqsatad.terms.checks import check
from eqsatad.terms.nodes import SUM, TRUE, Axis, Cast, Const, Reduce, Scatter, Select, Size, Stage
from eqsatad.terms.polynomial import nonnegative
from eqsatad.terms.presburger import empty, equivalent, implied
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import substitute
from tests.index_terms import AXES, conditions, indices

GOLDEN = Path(__file__).parent / "golden" / "errors"
i, j, k = AXES
N, M = Size("n"), Size("m")
IN, IM = Axis("p", N), Axis("q", M)
X = ea.placeholder((N,), name="x")
A = ea.placeholder((3, 8), name="a")
IDX = ea.placeholder((5,), name="idx", dtype="int32")
DATA = Cast(IDX[k], "index")


def both(fn):
    """A stage over two axes of extent 3."""
    return ea.compute((3, 3), fn)


def grid(expr):
    """Every value of ``expr`` over the box of `AXES`."""
    return ea.evaluate([Stage("t", AXES, Cast(expr, "int64"))], {})[0]


def holds(cond):
    """Where ``cond`` holds in the box of `AXES`."""
    return ea.evaluate([Stage("t", AXES, cond)], {})[0]


@given(indices())
def test_interval_holds_every_value(expr):
    low, high = interval(expr)
    assert low is not None
    assert high is not None
    values = grid(expr)
    assert low <= values.min()
    assert values.max() <= high


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (i, (0, 2)),
        (N, (1, None)),
        (IN, (0, None)),
        (Axis("e", Const(0, "index")), (0, 0)),
        (2 * i - 3 * j + 1, (-8, 5)),
        (i - i, (0, 0)),
        (i * 3 - i * 2, (0, 2)),
        ((i + j) * 2 - 2 * j, (0, 4)),
        (i * j, (0, 6)),
        ((i - 1) * (j - 1), (-2, 2)),
        (-N, (None, -1)),
        (k // 2, (0, 2)),
        ((k - 4) // 3, (-2, 0)),
        (IN // N, (0, None)),
        (IN % N, (0, None)),
        (k % 8, (0, 4)),
        (k % 3, (0, 2)),
        ((i + 3) % 8, (3, 5)),
        (DATA, (None, None)),
        (DATA % 5, (0, 4)),
        (ea.minimum(DATA, 7), (None, 7)),
        (ea.maximum(ea.minimum(DATA, 7), 0), (0, 7)),
        (ea.select(i < 1, j, DATA % 9), (0, 8)),
        (abs(i - 2), (0, 2)),
        (ea.sign(i - 5), (-1, -1)),
        (Cast(i < j, "index"), (0, 1)),
    ],
    ids=str,
)
def test_interval_is(expr, expected):
    assert interval(expr) == expected


def test_position_of_a_maximum_lies_within_its_axes():
    x = ea.placeholder((4, 3, 5), name="x")
    u, v = ea.reduce_axis((0, 3)), ea.reduce_axis((0, 5))
    best = ea.argmax(x[i, u, v], axis=(u, v))
    first = ea.compute((4,), lambda n: ea.argmax(x[n, u, v], axis=(u, v)), name="first")
    assert interval(ea.cast(best, "index")) == (0, 14)
    assert interval(ea.cast(first[i], "index")) == (0, 14)
    assert interval(ea.cast(first[i], "index") // 5) == (0, 2)


def test_position_of_a_maximum_over_an_unknown_size_has_no_upper_bound():
    x = ea.placeholder((N,), name="x")
    u = ea.reduce_axis((0, N))
    assert interval(ea.cast(ea.argmax(x[u], axis=u), "index")) == (0, None)


@settings(max_examples=150, deadline=None)
@given(conditions(), conditions())
def test_what_isl_implies_holds_everywhere(given_, cond):
    inside = holds(given_)
    if implied(cond, [given_]):
        assert holds(cond)[inside].all()
    if empty([given_, cond]):
        assert not (holds(given_) & holds(cond)).any()


@settings(max_examples=100, deadline=None)
@given(conditions())
def test_condition_is_equivalent_to_its_double_negation(cond):
    # Products of axes, of which isl knows nothing, may take it ten times as long as is usual.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presburger, "WORK_LIMIT", 100 * presburger.WORK_LIMIT)
        assert equivalent(cond, ~~cond)


@pytest.mark.parametrize(
    ("cond", "facts"),
    [
        ((i >= 0) & (i < 3), []),
        (IN < N, []),
        (IN + 1 < N, [IN < N - 1]),
        ((i * 4 + j) // 4 < 3, []),
        ((i * 4 + j).equal(i * 4 + j), []),
        ((i * 4 + j) % 4 < 4, []),
        ((2 * i + j).differs(20), []),
        (i < j, [i + 1 < j]),
        (i.equal(j // 2), [j >= 2 * i, j <= 2 * i + 1]),
        (~(i < j) | (j > i), []),
        (ea.minimum(i, j) <= i, []),
        (abs(i - j) < 4, []),
        (ea.select(i < j, i, j) <= j, []),
        (Select(i < 1, j < 2, j < 3), [j < 2]),
        (IN % M < M, []),
        (IN // M <= IN, []),
        (ea.minimum(ea.maximum(DATA, 0), N - 1) < N, []),
        (DATA < 5, [DATA < 4]),
        (IDX[k] < 5, [IDX[k] < 5]),
        (Cast(i < j, "index") <= 1, []),
        ((i < 1).equal(~(i >= 1)), []),
        (IN * IM >= 0, []),
    ],
    ids=str,
)
def test_isl_proves(cond, facts):
    assert implied(cond, facts)


@pytest.mark.parametrize(
    ("cond", "facts"),
    [
        (i < 2, []),
        (IN < N - 1, []),
        (DATA < 5, []),
        (IDX[k] < 5, [IDX[i] < 5]),
        (IN < M, []),
        (i.equal(j), [i <= j]),
        (IN * IM < N, []),
    ],
    ids=str,
)
def test_isl_does_not_prove(cond, facts):
    assert not implied(cond, facts)


@pytest.mark.parametrize(
    ("conds", "expected"),
    [
        ([i < j, j < i], True),
        ([i < j, j < i + 2], False),
        ([(2 * i).equal(2 * j + 1)], True),
        ([ea.const(False)], True),
        ([], False),
        ([Axis("e", Const(0, "index")) >= 0], True),
    ],
    ids=str,
)
def test_emptiness(conds, expected):
    assert empty(conds) is expected


def test_nothing_follows_from_inside_a_reduction():
    none = Axis("none", Const(0, "index"))
    inside = ea.any(ea.equal(none, 0), axis=none)
    assert not implied(i < 2, [inside])
    assert not implied(i < 2, [Cast(ea.max(none + i, axis=none), "index") >= 0])


def test_isl_gives_up_within_its_limit(monkeypatch):
    monkeypatch.setattr(presburger, "WORK_LIMIT", 10)
    big = Axis("limit_test", Const(7, "index"))
    assert not implied((big * 3 + i) // 5 + j % 2 < 100)


def evaluated(expr, sizes, points):
    """The value of a symbolic expression with numbers for its sizes and axes."""
    mapping = {node: ea.const(value) for node, value in {**sizes, **points}.items()}
    return int(grid(substitute(expr, mapping)).flat[0])


POLYNOMIALS = [
    (N * M - (IN * M + IM) - 1, True),
    (N - 1 - (IN * M + IM) // M, True),
    ((IN * M + IM) // M, True),
    (M - 1 - (IN * M + IM) % M, True),
    (N * N - IN * IN - 1, False),
    (N * M - N - M + 1, True),
    (N * M - N - M, False),
    (N * M - (IN * M + IM) - 2, False),
    (M - 1 - IN * M // N, True),
    (IN - 1, False),
    (N - 1 - IN, True),
    (M - IN * IM, False),
]


@pytest.mark.parametrize(("expr", "expected"), POLYNOMIALS, ids=lambda v: str(v))
def test_polynomial_proof(expr, expected):
    assert nonnegative(expr) is expected


@pytest.mark.parametrize("expr", [e for e, proved in POLYNOMIALS if proved], ids=str)
def test_what_polynomials_prove_holds(expr):
    for n, m in product((1, 2, 3, 5), repeat=2):
        for p, q in product(range(n), range(m)):
            assert evaluated(expr, {N: n, M: m}, {IN: p, IM: q}) >= 0


@pytest.mark.parametrize(
    "build",
    [
        lambda: ea.compute((N,), lambda i: X[N - 1 - i]),
        lambda: ea.compute((N,), lambda i: ea.select(i > 0, X[i - 1], 0)),
        lambda: ea.compute((N,), lambda i: ea.select(i < 1, 0.0, X[i - 1])),
        lambda: ea.compute((N + 1,), lambda i: X.get(i)),
        lambda: ea.compute((N,), lambda i: X[IDX[0]]),
        lambda: ea.compute((N,), lambda i: X[ea.minimum(i + 3, N - 1)]),
        lambda: ea.compute((2 * N,), lambda i: X[i // 2]),
        lambda: ea.compute((N * M,), lambda i: X[i // M]),
        lambda: ea.compute((M,), lambda i: X[i * N // M]),
        lambda: both(lambda i, j: ea.select((i + j < 3) & (A[i + j, 0] > 0), 1.0, 0.0)),
        lambda: both(lambda i, j: ea.select((i + j > 2) | (A[i + j, 0] > 0), 1.0, 0)),
        lambda: ea.compute(
            (9,), lambda i: ea.sum(A[k - 1, i % 8], axis=k, where=(k > 0) & (k < 4))
        ),
        lambda: ea.scatter((3,), (5,), lambda s: (s // 2, 1.0)),
        lambda: ea.scatter((3,), (5,), lambda s: (s, 1.0), where=lambda s: s < 3),
    ],
)
def test_read_in_range_passes(build):
    check(build())


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: ea.compute((N + 1,), lambda i: X[i]), OutOfBoundsError),
        (lambda: ea.compute((N,), lambda i: X[i - 1]), OutOfBoundsError),
        (lambda: ea.compute((N,), lambda i: ea.select(X[i + 1] > 0, 1.0, 0)), OutOfBoundsError),
        (lambda: ea.compute((N,), lambda i: X[i + 1] * ea.select(i < N - 1, X[i + 1], 0)),
         OutOfBoundsError),
        (lambda: ea.compute((M,), lambda i: X[i]), OutOfBoundsError),
        (lambda: both(lambda i, j: ea.select((A[i + j, 0] > 0) & (i + j < 3), 1.0, 0)),
         OutOfBoundsError),
        (lambda: ea.compute((9,), lambda i: ea.sum(A[k - 1, 0], axis=k, where=k < 4)),
         OutOfBoundsError),
        (lambda: ea.compute((3,), lambda i: A[IDX[i + 3], 0]), OutOfBoundsError),
        (lambda: ea.scatter((3,), (5,), lambda s: (s, 1.0)), OutOfBoundsError),
        (lambda: ea.scatter((3,), (5,), lambda s: (0, A[s, 0])), OutOfBoundsError),
        (lambda: ea.compute((3,), lambda i: A[i // (i + 1), 0]), DivisorError),
        (lambda: ea.compute((3,), lambda i: A[i % 0, 0]), DivisorError),
        (lambda: ea.compute((3,), lambda i: A[i // -2, 0]), DivisorError),
        (lambda: ea.compute((N,), lambda i: X[i // (N - 1)]), DivisorError),
        (lambda: ea.compute((3,), lambda i: ea.cast(i * 2**62 * 4, "float32")), IndexRangeError),
        (lambda: check(Stage("y", (i,), Reduce(SUM, (i,), TRUE, A[i, 0]))), UnboundIndexError),
        (lambda: check(Stage("y", (i,), Reduce(SUM, (j,), TRUE, Reduce(SUM, (j,), TRUE, A[i, j])))),
         UnboundIndexError),
        (lambda: Stage("y", (i, i), A[i, 0]), UnboundIndexError),
        (lambda: Stage("y", (i,), A[i, 0], (Scatter((j,), TRUE, (j,), A[k, 0]),)),
         UnboundIndexError),
    ],
)  # fmt: skip
def test_wrong_stage_is_refused(build, error):
    with pytest.raises(error):
        build()


def test_check_of_shared_terms_takes_no_time():
    shared = A[0, 0]
    for n in range(60):
        shared = ea.select(A[0, n % 8] > 0, shared, shared + 1)
    check(ea.compute((3,), lambda i: shared * A[i, 0]))


def test_every_guarded_occurrence_is_checked_on_its_own():
    guarded = ea.compute((3,), lambda i: ea.select(i < 2, A[i + 1, 0], 0) * 2)
    assert np.isfinite(ea.evaluate([guarded], {"a": np.ones((3, 8))})[0]).all()


W = ea.placeholder((4,), name="w", dtype="float64")
MISTAKES = {
    "unbound-index": lambda: ea.op("y[i,j] = a[i,k] * b[k,j]", a=(4, 5), b=(5, 6)),
    "unbound-index-built": lambda: ea.compute((3,), lambda i: A[i, k] * 2, name="y"),
    "index-count": lambda: ea.op("y[i] = sum(a[i,k] * b[k])", a=(4, 5), b=(5, 6)),
    "unknown-tensor": lambda: ea.op("y[i] = q[i] * x[i]", x=(4,)),
    "unknown-function": lambda: ea.op("y[i] = relu(x[i])", x=(4,)),
    "not-notation": lambda: ea.op("y[i] = 2 * x[i", x=(4,)),
    "not-a-statement": lambda: ea.op("y[i] == x[i]", x=(4,)),
    "range-unknown": lambda: ea.op("y[i,j] = x[i]", x=(4,)),
    "range-ambiguous": lambda: ea.op("y[i] = sum(x[i+k])", x=(4,)),
    "window-too-large": lambda: ea.op("y[i] = sum(x[i+k] * v[k])", x=(4,), v=(6,)),
    "nothing-to-reduce": lambda: ea.op("y[i] = sum(x[i])", x=(4,)),
    "bound-twice": lambda: check(Stage("y", (i,), Reduce(SUM, (i,), TRUE, A[i, 0]))),
    "out-of-bounds": lambda: ea.compute((3, 8), lambda i, j: A[i, 2 * j] + 1, name="y"),
    "out-of-bounds-guarded": lambda: ea.compute(
        (3,), lambda i: ea.select(i < 2, A[i + 2, 0], 0), name="y"
    ),
    "out-of-bounds-constant": lambda: A[3, 0],
    "out-of-bounds-scatter": lambda: ea.scatter((3,), (5,), lambda s: (s, A[0, s]), name="y"),
    "divisor": lambda: ea.compute((3,), lambda i: A[i // (i + 1), 0], name="y"),
    "index-range": lambda: ea.compute((3,), lambda i: ea.cast(i * 2**62 * 3, "float32")),
    "dtypes": lambda: ea.compute((3,), lambda i: A[i, 0] * W[i]),
    "index-division": lambda: ea.op("y[i] = x[i/2]", x=(4,)),
    "float-index": lambda: A[A[0, 0], 0],
    "branch": lambda: A[0, 0] if i < 2 else A[1, 0],
    "parameters": lambda: ea.compute((3, 4), lambda i: A[i, 0], name="y"),
    "read-outside": lambda: ea.evaluate([Stage("y", (j,), A[j, 0] * 2)], {"a": np.zeros((3, 8))}),
    "array-shape": lambda: ea.evaluate([Stage("y", (i,), A[i, 0])], {"a": np.zeros((3, 7))}),
    "array-missing": lambda: ea.evaluate([Stage("y", (i,), A[i, 0])], {"b": np.zeros((3, 8))}),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_message_is_golden(name):
    with pytest.raises(EqsatadError) as caught:
        MISTAKES[name]()
    found = f"{type(caught.value).__name__}: {caught.value}\n"
    # A line of this file moves with every edit above it.
    found = re.sub(r"\(built at test_checks\.py:\d+\)", "(built at test_checks.py:LINE)", found)
    assert found == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_every_golden_message_is_of_a_mistake():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(MISTAKES)
