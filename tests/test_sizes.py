"""Symbolic sizes: one simplification and one kernel for all of them, and what sizes promise."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.backends import specialise
from eqsatad.backends.kernel import Kernel
from eqsatad.errors import ArgumentError, BackendError, ShapeError
from eqsatad.rules.catalog import load
from eqsatad.rules.engine import Engine
from eqsatad.terms.builders import Extent
from eqsatad.terms.linear import linear, normal
from eqsatad.terms.nodes import Axis, Const, Expr, Size, Stage, Tensor
from eqsatad.terms.presburger import implied
from eqsatad.terms.ranges import interval
from eqsatad.terms.store import dump
from eqsatad.terms.store import load as read
from eqsatad.terms.walk import substitute

Build = Callable[..., tuple[Stage, list[Tensor]]]


def placeholder(name: str, *shape: Extent) -> Tensor:
    return ea.placeholder(shape, name=name, dtype="float64")


def conv(n: Extent, h: Extent, w: Extent) -> tuple[Stage, list[Tensor]]:
    x, k = placeholder("x", n, 2, h, w), placeholder("k", 3, 2, 3, 3)
    return nn.conv2d(x, k, pad=1), [x, k]


def strided(n: Extent, h: Extent, w: Extent) -> tuple[Stage, list[Tensor]]:
    x, k = placeholder("x", n, 2, h, w), placeholder("k", 3, 2, 2, 2)
    return nn.conv2d(x, k, stride=2), [x, k]


def average(n: Extent, h: Extent, w: Extent) -> tuple[Stage, list[Tensor]]:
    x = placeholder("x", n, 2, h, w)
    return nn.avg_pool(x, 2), [x]


def maximum(n: Extent, h: Extent, w: Extent) -> tuple[Stage, list[Tensor]]:
    x = placeholder("x", n, 2, h, w)
    return nn.max_pool(x, 2), [x]


def product(n: Extent, h: Extent, w: Extent) -> tuple[Stage, list[Tensor]]:
    a, b = placeholder("a", n, h), placeholder("b", h, w)
    return nn.matmul(a, b), [a, b]


def softmax(n: Extent, h: Extent, w: Extent) -> tuple[Stage, list[Tensor]]:
    x = placeholder("x", n, h)
    return nn.softmax(x), [x]


def flattened(n: Extent, h: Extent, w: Extent) -> tuple[Stage, list[Tensor]]:
    x = placeholder("x", n, 2, 3)
    y = nn.reshape(x, (n, 6))
    return ea.compute((n, 6), lambda i, j: y[i, j] * y[i, j], name="squares"), [x]


def transposed(n: Extent, h: Extent, w: Extent) -> tuple[Stage, list[Tensor]]:
    x = placeholder("x", h, w)
    return ea.compute((w, h), lambda i, j: x[j, i] * x[j, i], name="squares"), [x]


BUILDS = (conv, strided, average, maximum, product, softmax, flattened, transposed)
SIZES = ((1, 4, 6), (2, 8, 4), (3, 6, 10))


def symbols() -> tuple[Extent, Extent, Extent]:
    n = ea.size("n")
    h, w = (ea.size(name, minimum=4, multiple_of=2) for name in "hw")
    return n, h, w


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_one_kernel_serves_all_sizes_at_the_counts_of_each(build: Build) -> None:
    rng = np.random.default_rng(7)
    output, inputs = build(*symbols())
    general = ea.differentiate(output, inputs)
    kernel = general.build("cpu")
    for sizes in SIZES:
        output, inputs = build(*sizes)
        fixed = ea.differentiate(output, inputs)
        own = fixed.build("reference")
        shapes = {t.name: [e.value for e in t.shape] for t in (*inputs, fixed.head)}
        arrays = {name: rng.uniform(-1, 1, shapes[name]) for name in own.inputs}
        told = dict(zip("nhw", sizes, strict=True))
        more = {name: told[name] for name in kernel.sizes}
        for ours, theirs in zip(kernel(**arrays, **more), own(**arrays), strict=True):
            # Sums may be taken in another order.
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
        ours_total, their_total = general.report(told).total, fixed.report().total
        # Sums of one element are dearer to know in advance than to run.
        assert ours_total.multiplications <= their_total.multiplications


N = ea.size("n", minimum=6, multiple_of=4)
PLAIN = ea.size("m")
i = Axis("i", Const(4, "index"))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (N % 4, "0"),
        (N % 2, "0"),
        ((N + i) % 4, "i"),
        ((N + i) // 4, "n // 4"),
        (N // 2 * 2, "n"),
        (N // 4 * 4 - N, "0"),
        (3 * N // 2 * 2, "3 * n"),
        ((4 * i + N) // 4 - N // 4, "i"),
    ],
)
def test_a_multiple_divides(expr, expected):
    (found,) = Engine.of(load()).simplify([expr])
    assert ea.show(found) == expected


@pytest.mark.parametrize("expr", [N // 8, N % 8, PLAIN // 2 * 2, (PLAIN + i) % 4])
def test_only_what_is_promised_divides(expr):
    for value in range(8, 65, 4):
        known = {"n": value, "m": value + 1}
        for point in range(4):
            assert number(normal(expr), known, point) == number(expr, known, point)
    assert linear(expr).terms


def number(expr: Expr, sizes: dict[str, int], point: int) -> int:
    """The value of ``expr`` at one value of ``i``."""
    whole = ea.compute((4,), lambda j: ea.cast(substitute(expr, {i: j}), "int64"), name="whole")
    return int(ea.evaluate([whole], {}, sizes)[0][point])


def test_a_minimum_is_a_bound():
    assert interval(N) == (8, None)
    assert interval(ea.size("k", minimum=5)) == (5, None)
    assert implied(ea.size("k", minimum=5) >= 5)
    assert not implied(ea.size("k", minimum=5) >= 6)


def test_conditions_use_the_promise():
    assert implied((N % 4).equal(0))
    assert implied((N // 4 * 4).equal(N))
    assert not implied((N % 8).equal(0))
    assert not implied((PLAIN % 2).equal(0))


def blocks(size: Extent) -> tuple[Stage, Tensor]:
    """Sums of four neighbours; the last block may be cut off."""
    x = placeholder("x", size)
    k = ea.reduce_axis((0, 4), name="k")
    return (
        ea.compute(
            ((size + 3) // 4,), lambda o: ea.sum(x.get(4 * o + k, outside=0.0), axis=k), name="y"
        ),
        x,
    )


def test_a_promise_takes_conditions_out_of_the_loops():
    def tests(size: Size) -> bool:
        (found,) = ea.simplified([blocks(size)[0]]).outputs
        return "n - " in ea.show(found) or "select" in ea.show(found)

    assert tests(ea.size("n"))
    assert not tests(ea.size("n", multiple_of=4))


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (4, "size n is 4, but it is promised to be at least 6"),
        (10, "size n is 10, but it is promised to be a multiple of 4"),
    ],
)
def test_a_broken_promise_is_an_error_of_the_call(number, message):
    x = placeholder("x", N)
    y = ea.compute((N,), lambda j: 2 * x[j], name="y")
    kernel = ea.build([y])
    assert kernel(np.ones(8))[0].tolist() == [2.0] * 8
    with pytest.raises(ArgumentError, match=message):
        kernel(np.ones(number))


def test_a_multiple_is_deduced_from_compound_extents():
    x = placeholder("x", N // 2 + 3)
    y = ea.compute((N,), lambda j: x[j // 2], name="y")
    assert len(ea.build([y])(np.ones(7))[0]) == 8


def test_two_promises_for_one_name_are_refused():
    a, b = placeholder("a", N), placeholder("b", ea.size("n"))
    outputs = [ea.compute(t.shape, lambda j, t=t: t[j], name=f"{t.name}2") for t in (a, b)]
    with pytest.raises(ShapeError, match="two sizes are called n"):
        ea.build(outputs)


@pytest.mark.parametrize("promise", [{"minimum": 0}, {"multiple_of": 0}, {"multiple_of": -4}])
def test_a_promise_that_cannot_be_kept_is_refused(promise):
    with pytest.raises(ShapeError, match="size n must be"):
        ea.size("n", **promise)


def test_promises_are_stored():
    y = ea.compute((N,), lambda j: 1.0, name="y")
    assert read(dump([y])) == [y]


def _product(**options: Any) -> Kernel:
    n, k, m = (ea.size(name) for name in "nkm")
    a, b = ea.placeholder((n, k), name="a"), ea.placeholder((k, m), name="b")
    return ea.build([nn.matmul(a, b)], [a, b], **options)


def _ones(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


@pytest.mark.parametrize("specialise", [False, True])
def test_call_with_shapes_seen_before_is_checked_as_well(specialise: bool) -> None:
    kernel = _product(specialise=specialise)
    for rows in (3, 5, 3):
        (found,) = kernel(_ones(rows, 4), _ones(4, 2))
        assert found.shape == (rows, 2)
        assert (found == 4).all()
    with pytest.raises(ArgumentError, match="b has shape"):
        kernel(_ones(3, 4), _ones(5, 2))
    with pytest.raises(ArgumentError, match="out for"):
        kernel(_ones(3, 4), _ones(4, 2), out=_ones(5, 2))
    with pytest.raises(ArgumentError, match="give an integer"):
        kernel(_ones(3, 4), _ones(4, 2), n=[3])


def test_specialised_kernel_is_that_for_the_sizes_of_the_call(monkeypatch: Any) -> None:
    monkeypatch.setattr(specialise, "KEPT", 2)
    kernel = _product(specialise=True)
    built: list[object] = []
    make = kernel.launch._make
    kernel.launch._make = lambda sizes: built.append(dict(sizes)) or make(sizes)
    for rows in (3, 5, 3, 6, 3, 5):
        kernel(_ones(rows, 4), _ones(4, 2))
    assert [sizes["n"] for sizes in built] == [3, 5, 6, 5]  # the one used least lately goes
    call = kernel.prepare(_ones(5, 4), _ones(4, 2))
    assert (call()[0] == 4).all()
    with pytest.raises(BackendError, match="compiled for the sizes of each call"):
        kernel.save("kernel")


def test_gradients_are_specialised_from_what_was_derived() -> None:
    n, k = ea.size("n"), ea.size("k", minimum=4)
    x = ea.placeholder((n, k), name="x")
    gradients = ea.differentiate(nn.softmax(x), [x])
    data = np.random.default_rng(0).standard_normal((2, 5, 9)).astype("float32")
    arrays = {"x": data[0], "head": data[1]}
    (general,) = gradients.build()(**arrays)
    (special,) = gradients.build(specialise=True)(**arrays)
    np.testing.assert_allclose(special, general, rtol=1e-5, atol=1e-6)
    with pytest.raises(ArgumentError, match="at least 4"):
        gradients.build(specialise=True)(x=_ones(5, 3), head=_ones(5, 3))
