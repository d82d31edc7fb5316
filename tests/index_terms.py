"""Random index expressions, conditions and values over a few small axes, for property tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from hypothesis import strategies as st

from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Const, Expr, Tensor

AXES = tuple(Axis(name, Const(extent, "index")) for name, extent in (("i", 3), ("j", 4), ("k", 5)))


@cache
def indices(axes: tuple[Axis, ...] = AXES, leaves: int = 8) -> st.SearchStrategy[Expr]:
    """Index expressions over ``axes``."""
    atoms = st.one_of(st.sampled_from(axes), st.integers(-6, 6).map(ea.const))

    def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        divisor = st.integers(1, 5)
        return st.one_of(
            st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
            st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
            st.tuples(inner, st.integers(-3, 3)).map(lambda p: p[0] * p[1]),
            st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
            st.tuples(inner, divisor).map(lambda p: p[0] // p[1]),
            st.tuples(inner, divisor).map(lambda p: p[0] % p[1]),
            st.tuples(inner, inner).map(lambda p: ea.minimum(*p)),
            st.tuples(inner, inner).map(lambda p: ea.maximum(*p)),
            st.tuples(inner, inner, inner).map(lambda p: ea.select(p[0] < p[1], p[1], p[2])),
            inner.map(lambda e: -e),
            inner.map(abs),
        )

    return st.recursive(atoms, grown, max_leaves=leaves)


@cache
def conditions(axes: tuple[Axis, ...] = AXES) -> st.SearchStrategy[Expr]:
    """Conditions on indices over ``axes``."""
    pairs = st.tuples(indices(axes, 4), indices(axes, 4))
    compare = st.one_of(
        pairs.map(lambda p: p[0] < p[1]),
        pairs.map(lambda p: p[0] >= p[1]),
        pairs.map(lambda p: p[0].equal(p[1])),
        pairs.map(lambda p: p[0].differs(p[1])),
    )
    return st.recursive(
        compare,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda p: p[0] & p[1]),
            st.tuples(inner, inner).map(lambda p: p[0] | p[1]),
            inner.map(lambda c: ~c),
        ),
        max_leaves=3,
    )


def values(tensors: Sequence[Tensor], leaves: int = 8) -> st.SearchStrategy[Expr]:
    """Values of float32 over `AXES`; one-dimensional ``tensors`` are read anywhere inside."""

    def reading(tensor: Tensor) -> st.SearchStrategy[Expr]:
        return indices(leaves=3).map(lambda index: tensor[index % tensor.shape[0]])

    atoms = st.one_of(
        *map(reading, tensors),
        st.floats(-4, 4, width=16, allow_nan=False).map(lambda v: ea.const(float(v))),
    )

    def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        pair = st.tuples(inner, inner)
        return st.one_of(
            pair.map(lambda p: p[0] + p[1]),
            pair.map(lambda p: p[0] - p[1]),
            pair.map(lambda p: p[0] * p[1]),
            pair.map(lambda p: ea.maximum(*p)),
            inner.map(ea.tanh),
            inner.map(lambda e: -e),
            st.tuples(conditions(), inner, inner).map(lambda p: ea.select(*p)),
            pair.map(lambda p: ea.select(p[0] < p[1], *p)),
        )

    return st.recursive(atoms, grown, max_leaves=leaves)
