"""Domains, guards, index expressions and ranges: everything the rows say, against brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from eqsatad.rules.catalog import load
from eqsatad.rules.domain import Domain
from eqsatad.rules.domains import Domains, Limits
from eqsatad.rules.engine import Engine
from eqsatad.rules.indices import ATLEAST, ZERO, Guard, Indices
from eqsatad.rules.rule import Row
from eqsatad.terms.linear import Linear, atom, expression, linear
from eqsatad.terms.nodes import Axis, Cast, Const, Expr, Placeholder, Read, Size
from eqsatad.terms.walk import postorder
from rules_catalog.domains import DOMAINS
from tests.fuzz_domains import (
    Example,
    candidates,
    check,
    compare,
    described,
    drawn,
    example,
    index,
    value,
)

EXAMPLES, CHUNK = 300, 25
ROWS = tuple(row for row in load() if isinstance(row, Row))
ENGINE = Engine.of(ROWS)
N = Size("n")
TABLE = np.zeros(8, dtype=np.int64)


def axis(name: str, extent: int | Expr) -> Axis:
    return Axis(name, Const(extent, "index") if isinstance(extent, int) else extent)


def zero(expr: Expr) -> Guard:
    return ZERO, linear(expr)


def at_least(expr: Expr) -> Guard:
    return ATLEAST, linear(expr)


@pytest.mark.parametrize("first", range(0, EXAMPLES, CHUNK))
def test_candidates_meet_every_point_once_and_are_found_in_time(first: int) -> None:
    for seed in range(first, first + CHUNK):
        check(example(seed), ENGINE)


def test_random_domains_have_guards_of_every_kind() -> None:
    kinds = Counter(kind for seed in range(EXAMPLES) for kind in drawn(example(seed).domain))
    wanted = ("==", "<=", "floordiv", "mod", "min", "max", "size", "table")
    assert all(kinds[kind] >= EXAMPLES // 20 for kind in wanted), kinds
    axes, guards = zip(
        *((len(e.domain.axes), len(e.domain.guards)) for e in map(example, range(EXAMPLES))),
        strict=True,
    )
    assert {*axes} == {*guards} == {1, 2, 3, 4}


def test_wrong_and_slow_candidates_are_told() -> None:
    case = example(0)
    with pytest.raises(AssertionError, match="is not"):
        compare(case, [replace(case.domain, guards=())])
    with pytest.raises(AssertionError, match=r"took \d"):
        check(case, ENGINE, slow=-1.0)


def test_random_domains_use_every_domain_row() -> None:
    domains = Domains(indices := Indices(ROWS))
    for domain in (*(example(seed).domain for seed in range(120)), DIGITS, *SWAPPED):
        domains.candidates(domain, set())
    assert {row.name for row in DOMAINS} <= set(indices.tally.matches)


A, B, C = axis("a", 7), axis("b", 5), axis("c", 6)
O1, O2 = axis("o1", 5), axis("o2", 6)
SCALED = 5 * axis("a", 12) // 3
P, Q = axis("p", 21), axis("q", 5)
DIGITS = Domain((P, Q), (zero((5 * P + Q) // 7 - O1), zero((5 * P + Q) % 7 - O2)))
# The digits of an index in the other order, with the equation written either way.
SWAPPED = tuple(Domain((C,), (zero(sign * (3 * (C % 2) + C // 2 - O2)),)) for sign in (1, -1))

# What a domain becomes: the extents that are left, and the best candidate on one line.
SOLVED: dict[str, tuple[Domain, str]] = {
    "an equation gives its axis": (
        Domain((A,), (zero(A + 1 - O1),)),
        "over nothing where o1 - 1 >= 0; a = o1 - 1",
    ),
    "swapped digits give their index": (
        SWAPPED[0],
        "over nothing where true; c = 2 * o2 - 5 * (o2 // 3)",
    ),
    "a multiple leaves its congruence": (
        Domain((A,), (zero(3 * A - O2),)),
        "over nothing where o2 - 3 * ((o2 + 2) // 3) == 0; a = o2 // 3",
    ),
    "a quotient leaves one block": (
        Domain((axis("a", 12),), (zero(axis("a", 12) // 2 - O2),)),
        "over a_1 < 2 where true; a = a_1 + 2 * o2",
    ),
    "a remainder leaves every second value": (
        Domain((axis("a", 12),), (zero((axis("a", 12) + O1) % 2),)),
        "over a_1 < 6 where true; a = 2 * a_1 + 2 * ((o1 + 1) // 2) - o1",
    ),
    "two bounds leave a window": (
        Domain((axis("a", 64),), (at_least(axis("a", 64) - O1), at_least(O1 + 2 - axis("a", 64)))),
        "over a_1 < 3 where true; a = o1 - a_1 + 2",
    ),
    "a bound from below leaves the values above it": (
        Domain((A,), (at_least(A - 2),)),
        "over a_1 < 5 where true; a = a_1 + 2",
    ),
    "a bound from above leaves the values below it": (
        Domain((A,), (at_least(3 - A),)),
        "over a_1 < 4 where true; a = a_1",
    ),
    "the digits of a number are those of another radix": (
        DIGITS,
        "over nothing where true; q = 2 * o1 + o2 - 5 * ((2 * o1 + o2) // 5)"
        ", p = o1 + (2 * o1 + o2) // 5",
    ),
    "bounds of a quotient are bounds of its axis": (
        Domain((axis("a", 12),), (at_least(SCALED - O1), at_least(O1 + 1 - SCALED))),
        "over a_1 < 2 where 2 * o1 - 5 * a_1 - 5 * ((2 * o1 + 4) // 5) + 5 >= 0 and o1 - a_1 - "
        "(2 * o1 + 4) // 5 + 1 >= 0; a = o1 - a_1 - (2 * o1 + 4) // 5 + 1",
    ),
    "an axis of one value is 0": (
        Domain((axis("a", 1), B), (zero(axis("a", 1) + B - O1),)),
        "over nothing where true; a = 0, b = o1",
    ),
    "a strided window of an output": (
        Domain((axis("o", 6), axis("k", 3)), (zero(2 * axis("o", 6) + axis("k", 3) - 1 - A),)),
        "over o_1 < 2 where 2 * ((a + 1) // 2) - a - 2 * o_1 + 1 >= 0 and (a + 1) // 2 - o_1 >= 0"
        "; k = a + 2 * o_1 - 2 * ((a + 1) // 2) + 1, o = (a + 1) // 2 - o_1",
    ),
    "nothing to solve": (Domain((A, B), ()), "over a < 7, b < 5 where true; "),
}


@pytest.mark.parametrize("what", SOLVED, ids=str)
def test_domain_is_solved(what: str) -> None:
    domain, expected = SOLVED[what]
    found = ENGINE.domains.solve(domain, {"a", "b", "o", "k", "o1", "o2"})
    assert found is not None
    assert described(found) == expected


@pytest.mark.parametrize(
    "guards",
    [
        (zero(A - 9),),
        (at_least(O1 - 5),),
        (zero(2 * A - 3 * B + 30),),
        (zero(A + O1 + 1), at_least(B)),
    ],
    ids=["beyond the axis", "beyond the outer axis", "below the sum", "one of two"],
)
def test_domain_without_points_is_none(guards: tuple[Guard, ...]) -> None:
    assert ENGINE.domains.solve(Domain((A, B), guards), set()) is None


def test_two_coupled_equations_are_solved_in_time() -> None:
    guards = (zero(4 * A + 3 * B + 4 * C - 1 - O1 + O2), zero(4 * A + 3 * B - O2))
    case = Example(Domain((A, B, C), guards), (O1, O2), (1,), TABLE)
    engine = Engine(indices := Indices(ROWS), Domains(indices))
    found, _ = check(case, engine)
    assert found[0].volume <= 2
    assert indices.tally.stops == ()


def test_maximum_position_is_solved_by_the_position_of_the_output() -> None:
    o, k, j = axis("o", 6), axis("k", 3), axis("j", 13)
    best = Placeholder("best", (o.extent,), "int64")
    position = Cast(Read(best, (o,)), "index")
    found = ENGINE.domains.solve(
        Domain((o, k), (zero(k - position), zero(2 * o + k - 1 - j))), set()
    )
    assert found is not None
    assert found.volume == 2
    assert {solved.name for solved, _ in found.solved} == {"o", "k"}


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (Limits(candidates=1), "domain candidate limit 1"),
        (Limits(rounds=1), "domain round limit 1"),
        (Limits(seconds=0.0), "domain time limit 0 s"),
    ],
    ids=["candidates", "rounds", "seconds"],
)
def test_limit_is_reported_and_the_result_is_right(limits: Limits, stop: str) -> None:
    engine = Engine(indices := Indices(ROWS), Domains(indices, limits))
    for seed in range(40):
        case = example(seed)
        compare(case, candidates(case, engine))
    assert stop in indices.tally.stops


def test_results_do_not_depend_on_what_was_asked_before() -> None:
    taken = {"a", "b", "c", "d", "o1", "o2"}
    for seed in range(0, 60, 3):
        case = example(seed)
        alone = Domains(Indices(ROWS)).candidates(case.domain, set(taken))
        warm = ENGINE.domains.candidates(case.domain, set(taken))
        assert list(map(described, warm)) == list(map(described, alone))


def test_new_axes_take_names_that_are_free() -> None:
    taken = {"a", "a_1", "o1"}
    long = axis("a", 12)
    found = ENGINE.domains.solve(Domain((long,), (zero(long // 2 - O1),)), taken)
    assert found is not None
    assert [new.name for new in found.axes] == ["a_2"]
    assert "a_2" in taken


def grid(*axes: Axis) -> dict[Expr, np.ndarray]:
    shape = tuple(one.extent.value for one in axes if isinstance(one.extent, Const))
    return dict(zip(axes, np.indices(shape).reshape(len(shape), -1), strict=True))


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_simplified_index_has_the_same_values(seed: int) -> None:
    points = grid(A, B, O1, O2)
    for number in range(seed, seed + 20):
        expr = expression(index(Random(number), (A, B, O1, O2), 3, 2))
        (simple,) = ENGINE.simplify([expr])
        np.testing.assert_array_equal(value(simple, points, TABLE), value(expr, points, TABLE))
        assert quotients(simple) <= quotients(expr)


def quotients(expr: Expr) -> int:
    return sum(node.op.name == "floordiv" for node in postorder(expr) if hasattr(node, "op"))


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_range_holds_every_value(seed: int) -> None:
    points = grid(A, B, O1, O2)
    for number in range(seed, seed + 20):
        form = index(Random(number), (A, B, O1, O2), 3, 2)
        lowest, highest = ENGINE.indices.bounds.of(form)
        assert lowest is not None
        assert highest is not None
        found = value(expression(form), points, TABLE)
        assert lowest <= found.min() <= found.max() <= highest


X, K, M = axis("x", 60), axis("k", N), Size("m")

# Index expressions and their ranges.
RANGES: dict[str, tuple[Expr, int | None, int | None]] = {
    "a remainder": (X - 4 * (X // 4), 0, 3),
    "a remainder of a sum": ((3 * X + A) % 5, 0, 4),
    "a digit": (X // 4 - 3 * (X // 12), 0, 2),
    "a scaled digit": (2 * (X // 4) - 6 * (X // 12) + A, 0, 10),
    "a digit counted down": (6 * (X // 12) - 2 * (X // 4) + A, -4, 6),
    "an axis of symbolic length": (K, 0, None),
    "below a symbolic length": (N - 1 - K, 0, None),
    "beyond a symbolic length": (K - N, None, -1),
    "a multiple below a symbolic length": (3 * N - 3 * K, 3, None),
    "a size": (N, 1, None),
    "a difference of sizes": (N - M, None, None),
    "a number": (Const(5, "index"), 5, 5),
}


@pytest.mark.parametrize("what", RANGES, ids=str)
def test_range_is_the_best_there_is(what: str) -> None:
    expr, lowest, highest = RANGES[what]
    assert ENGINE.indices.bounds.of(linear(expr)) == (lowest, highest)


def test_many_quotients_have_a_range_in_time() -> None:
    form = linear(sum(((k + 1) * A + B + k) // (k + 2) * (k % 3 - 1) for k in range(9)) + 4 * A)
    lowest, highest = ENGINE.indices.bounds.of(form)
    assert lowest is not None
    assert highest is not None
    assert lowest <= highest


# Index expressions that the rows are to simplify.
SIMPLE: dict[str, tuple[Expr, Expr]] = {
    "a flat index and back": ((4 * A + axis("r", 4)) // 4, A),
    "a flat remainder and back": ((4 * A + axis("r", 4)) % 4, axis("r", 4)),
    "digits put together": (5 * (X // 5) + X % 5, X),
    "a quotient of a quotient": (X // 3 // 4, X // 12),
    "a common factor": ((6 * A + 2) // 4, A + (A + 1) // 2),
    "a common factor with a digit": ((6 * A + axis("r", 2)) // 4, A + A // 2),
    "a quotient that cannot be 1": (A // 7, Const(0, "index")),
    "two digits of three": ((12 * A + X % 12) // 4 % 3, X // 4 - 3 * (X // 12)),
    "a symbolic length": ((4 * K + axis("r", 4)) // 4, K),
}


@pytest.mark.parametrize("what", SIMPLE, ids=str)
def test_index_is_simplified(what: str) -> None:
    expr, expected = SIMPLE[what]
    (found,) = ENGINE.simplify([expr])
    assert linear(found) == linear(expected)


# Guards: what holds everywhere leaves, what holds nowhere makes the domain empty.
DECIDED: dict[str, tuple[Guard, list[Guard] | None]] = {
    "below a symbolic length": (at_least(N - 1 - K), []),
    "a size": (at_least(N - 1), []),
    "a size that may be 1": (at_least(N - 2), [at_least(N - 2)]),
    "beyond a symbolic length": (at_least(K - N), None),
    "an equation that holds": (zero(X % 4 - X + 4 * (X // 4)), []),
    "an equation beyond the range": (zero(A + B - 11), None),
    "an equation below the range": (zero(A + B + 1), None),
    "an open guard": (at_least(A - B), [at_least(A - B)]),
    "a common factor": (at_least(2 * A - 2 * B + 1), [at_least(A - B)]),
    "an equation with a sign": (zero(B - A), [zero(A - B)]),
}


@pytest.mark.parametrize("what", DECIDED, ids=str)
def test_guard_is_decided(what: str) -> None:
    guard, expected = DECIDED[what]
    assert ENGINE.indices.guards([guard]) == expected


def test_forms_without_quotients_ask_nothing() -> None:
    indices = Indices(ROWS)
    assert indices.forms([atom(A) + Linear(2, ())]) == [atom(A) + Linear(2, ())]
    assert indices.tally.rounds == 0
