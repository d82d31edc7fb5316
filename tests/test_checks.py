"""Intervals, isl, polynomials and the checks of stages: sound on small boxes, and strong enough."""

from __future__ import annotations

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
from eqsatad.terms import builders, presburger
from eqsatad.terms.checks import check
from eqsatad.terms.nodes import SUM, TRUE, Axis, Cast, Const, Reduce, Scatter, Select, Size, Stage
from eqsatad.terms.polynomial import nonnegative
from eqsatad.terms.presburger import empty, equivalent, implied
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import substitute
from tests.index_terms import AXES, I, J, K, conditions, indices

GOLDEN = Path(__file__).parent / "golden" / "errors"
N, M = Size("n"), Size("m")
IN, IM = Axis("p", N), Axis("q", M)
X = ea.placeholder((N,), name="x")
A = ea.placeholder((3, 8), name="a")
IDX = ea.placeholder((5,), name="idx", dtype="int32")
DATA = Cast(IDX[K], "index")


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
        (I, (0, 2)),
        (N, (1, None)),
        (IN, (0, None)),
        (Axis("e", Const(0, "index")), (0, 0)),
        (2 * I - 3 * J + 1, (-8, 5)),
        (I - I, (0, 0)),
        (I * 3 - I * 2, (0, 2)),
        ((I + J) * 2 - 2 * J, (0, 4)),
        (I * J, (0, 6)),
        ((I - 1) * (J - 1), (-2, 2)),
        (-N, (None, -1)),
        (K // 2, (0, 2)),
        ((K - 4) // 3, (-2, 0)),
        (IN // N, (0, None)),
        (IN % N, (0, None)),
        (K % 8, (0, 4)),
        (K % 3, (0, 2)),
        ((I + 3) % 8, (3, 5)),
        (DATA, (None, None)),
        (DATA % 5, (0, 4)),
        (ea.minimum(DATA, 7), (None, 7)),
        (ea.maximum(ea.minimum(DATA, 7), 0), (0, 7)),
        (ea.select(I < 1, J, DATA % 9), (0, 8)),
        (abs(I - 2), (0, 2)),
        (ea.sign(I - 5), (-1, -1)),
        (Cast(I < J, "index"), (0, 1)),
    ],
    ids=str,
)
def test_interval_is(expr, expected):
    assert interval(expr) == expected


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
    assert equivalent(cond, ~~cond)


@pytest.mark.parametrize(
    ("cond", "facts"),
    [
        ((I >= 0) & (I < 3), []),
        (IN < N, []),
        (IN + 1 < N, [IN < N - 1]),
        ((I * 4 + J) // 4 < 3, []),
        ((I * 4 + J).equal(I * 4 + J), []),
        ((I * 4 + J) % 4 < 4, []),
        ((2 * I + J).differs(20), []),
        (I < J, [I + 1 < J]),
        (I.equal(J // 2), [J >= 2 * I, J <= 2 * I + 1]),
        (~(I < J) | (J > I), []),
        (ea.minimum(I, J) <= I, []),
        (abs(I - J) < 4, []),
        (ea.select(I < J, I, J) <= J, []),
        (Select(I < 1, J < 2, J < 3), [J < 2]),
        (IN % M < M, []),
        (IN // M <= IN, []),
        (ea.minimum(ea.maximum(DATA, 0), N - 1) < N, []),
        (DATA < 5, [DATA < 4]),
        (IDX[K] < 5, [IDX[K] < 5]),
        (Cast(I < J, "index") <= 1, []),
        ((I < 1).equal(~(I >= 1)), []),
        (IN * IM >= 0, []),
    ],
    ids=str,
)
def test_isl_proves(cond, facts):
    assert implied(cond, facts)


@pytest.mark.parametrize(
    ("cond", "facts"),
    [
        (I < 2, []),
        (IN < N - 1, []),
        (DATA < 5, []),
        (IDX[K] < 5, [IDX[I] < 5]),
        (IN < M, []),
        (I.equal(J), [I <= J]),
        (IN * IM < N, []),
    ],
    ids=str,
)
def test_isl_does_not_prove(cond, facts):
    assert not implied(cond, facts)


@pytest.mark.parametrize(
    ("conds", "expected"),
    [
        ([I < J, J < I], True),
        ([I < J, J < I + 2], False),
        ([(2 * I).equal(2 * J + 1)], True),
        ([ea.const(False)], True),
        ([], False),
        ([Axis("e", Const(0, "index")) >= 0], True),
    ],
    ids=str,
)
def test_emptiness(conds, expected):
    assert empty(conds) is expected


def test_isl_gives_up_within_its_limit(monkeypatch):
    monkeypatch.setattr(presburger, "WORK_LIMIT", 10)
    big = Axis("limit_test", Const(7, "index"))
    assert not implied((big * 3 + I) // 5 + J % 2 < 100)


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
        lambda: ea.compute((3, 3), lambda i, j: ea.select((i + j < 3) & (A[i + j, 0] > 0), 1.0, 0)),
        lambda: ea.compute((3, 3), lambda i, j: ea.select((i + j > 2) | (A[i + j, 0] > 0), 1.0, 0)),
        lambda: ea.compute((9,), lambda i: ea.sum(A[K - 1, i % 8], axis=K, where=(K > 0) & (K < 4))),
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
        (lambda: ea.compute((3, 3), lambda i, j: ea.select((A[i + j, 0] > 0) & (i + j < 3), 1.0, 0)),
         OutOfBoundsError),
        (lambda: ea.compute((9,), lambda i: ea.sum(A[K - 1, 0], axis=K, where=K < 4)),
         OutOfBoundsError),
        (lambda: ea.compute((3,), lambda i: A[IDX[i + 3], 0]), OutOfBoundsError),
        (lambda: ea.scatter((3,), (5,), lambda s: (s, 1.0)), OutOfBoundsError),
        (lambda: ea.scatter((3,), (5,), lambda s: (0, A[s, 0])), OutOfBoundsError),
        (lambda: ea.compute((3,), lambda i: A[i // (i + 1), 0]), DivisorError),
        (lambda: ea.compute((3,), lambda i: A[i % 0, 0]), DivisorError),
        (lambda: ea.compute((3,), lambda i: A[i // -2, 0]), DivisorError),
        (lambda: ea.compute((N,), lambda i: X[i // (N - 1)]), DivisorError),
        (lambda: ea.compute((3,), lambda i: ea.cast(i * 2**62 * 4, "float32")), IndexRangeError),
        (lambda: check(Stage("y", (I,), Reduce(SUM, (I,), TRUE, A[I, 0]))), UnboundIndexError),
        (lambda: check(Stage("y", (I,), Reduce(SUM, (J,), TRUE, Reduce(SUM, (J,), TRUE, A[I, J])))),
         UnboundIndexError),
        (lambda: Stage("y", (I, I), A[I, 0]), UnboundIndexError),
        (lambda: Stage("y", (I,), A[I, 0], (Scatter((J,), TRUE, (J,), A[K, 0]),)),
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
    "unbound-index-built": lambda: ea.compute((3,), lambda i: A[i, K] * 2, name="y"),
    "index-count": lambda: ea.op("y[i] = sum(a[i,k] * b[k])", a=(4, 5), b=(5, 6)),
    "unknown-tensor": lambda: ea.op("y[i] = q[i] * x[i]", x=(4,)),
    "unknown-function": lambda: ea.op("y[i] = relu(x[i])", x=(4,)),
    "not-notation": lambda: ea.op("y[i] = 2 * x[i", x=(4,)),
    "not-a-statement": lambda: ea.op("y[i] == x[i]", x=(4,)),
    "range-unknown": lambda: ea.op("y[i,j] = x[i]", x=(4,)),
    "range-ambiguous": lambda: ea.op("y[i] = sum(x[i+k])", x=(4,)),
    "window-too-large": lambda: ea.op("y[i] = sum(x[i+k] * v[k])", x=(4,), v=(6,)),
    "nothing-to-reduce": lambda: ea.op("y[i] = sum(x[i])", x=(4,)),
    "bound-twice": lambda: check(Stage("y", (I,), Reduce(SUM, (I,), TRUE, A[I, 0]))),
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
    "branch": lambda: A[0, 0] if I < 2 else A[1, 0],
    "parameters": lambda: ea.compute((3, 4), lambda i: A[i, 0], name="y"),
    "read-outside": lambda: ea.evaluate(
        [Stage("y", (J,), A[J, 0] * 2)], {"a": np.zeros((3, 8))}
    ),
    "array-shape": lambda: ea.evaluate([Stage("y", (I,), A[I, 0])], {"a": np.zeros((3, 7))}),
    "array-missing": lambda: ea.evaluate([Stage("y", (I,), A[I, 0])], {"b": np.zeros((3, 8))}),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_message_is_golden(name):
    with pytest.raises(EqsatadError) as caught:
        MISTAKES[name]()
    found = f"{type(caught.value).__name__}: {caught.value}\n"
    assert found == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_every_golden_message_is_of_a_mistake():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(MISTAKES)
