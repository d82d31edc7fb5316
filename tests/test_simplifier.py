"""The simplifier by itself: short answers, nothing wrong, and "unknown" where it does not know.

Random expressions are compared with brute force over a small box. Their number is their seed, and
it is in the message of a failure.
"""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import eqsatad as ea
from benchmarks import simplifier as benchmark
from benchmarks.corpora import DEFAULT, value
from eqsatad.errors import ArgumentError, DtypeError
from eqsatad.rules.catalog import simplifier_themes, themes
from eqsatad.rules.index_exchange import Names
from eqsatad.rules.index_trees import operators
from eqsatad.rules.prove import check
from eqsatad.terms.nodes import Const, Expr, Var

x, y, z = (Var(name, "index") for name in "xyz")
p, q = (Var(name, "bool") for name in "pq")
n = ea.size("n")
Bounds = dict[Expr, tuple[int | None, int | None]]

SMALL: Bounds = {x: (0, 7), y: (0, 3), z: (-5, 5)}

SHORTER: dict[str, tuple[Expr, Expr | int | bool]] = {
    "terms that cancel": (x + y - x, y),
    "a digit and the rest": ((x // 5) * 5 + x % 5, x),
    "a mixed radix": ((x * 4 + y) // 4, x),
    "a remainder of a mixed radix": ((x * 4 + y) % 4, y),
    "nested quotients": (x // 2 // 3, x // 6),
    "a quotient within its digit": (y // 4, 0),
    "the low digits of a product": ((x * 6) % 3, 0),
    "a minimum with a constant apart": (ea.minimum(x, x + 3), x),
    "a minimum by ranges": (ea.minimum(y, x + 4), y),
    "a minimum and a maximum": (ea.minimum(x, y) + ea.maximum(x, y), x + y),
    "a maximum of minima": (
        ea.maximum(ea.minimum(x, y), ea.minimum(x, z)),
        ea.minimum(x, ea.maximum(y, z)),
    ),
    "an absolute value of a count": (ea.abs(x), x),
    "a select that is a minimum": (ea.select(z < x, z, x), ea.minimum(z, x)),
    "a select inside its own branch": (
        ea.select(z < 2, ea.select(z < 3, x, y), x),
        x,
    ),
    "a branch under its condition": (ea.select(z.equal(2), z, 2), 2),
    "two selects under one condition": (
        ea.select(p, x, 1) + ea.select(p, 1, y),
        ea.select(p, x, y) + 1,
    ),
    "a condition that always holds": ((x < 8) & p, p),
    "a comparison of quotients": (x // 2 < 3, x < 6),
    "a comparison of multiples": (x * 3 < 7, x < 3),
    "an interval that is a point": ((z <= 2) & (z >= 2), z.equal(2)),
    "two half-lines": ((z < 3) | (z >= 3), True),
    "a part that another implies": ((z < 3) & (z < 5), z < 3),
    "a common part of a disjunction": ((p & q) | (p & (z < 1)), p & (q | (z < 1))),
    "an absorbed part": (p | (p & q), p),
    "a double negation": (~~p, p),
    "a window of a quotient": ((y * 5 <= x) & (x < y * 5 + 5), (x // 5).equal(y)),
    "a truncated quotient of a count": (ea.truncated_div(x, 3), x // 3),
    "a truncated quotient and rest": (ea.truncated_div(z, 3) * 3 + ea.truncated_mod(z, 3), z),
    "a comparison of a truncated quotient": (ea.truncated_div(z, 2) >= 0, z >= -1),
    "a Euclidean remainder": (ea.euclidean_mod(z * 4, 4), 0),
    "a quotient by itself": ((x * n) // n, x),
    "a quotient of a flattened index": ((x * n + n) // n, x + 1),
    "a remainder by a size": ((x * n) % n, 0),
    "a factor taken out": (x * y + x * z, x * (y + z)),
}


@pytest.mark.parametrize("case", SHORTER)
def test_simplify_is_as_short_as_expected(case: str) -> None:
    expr, wanted = SHORTER[case]
    found = ea.simplify(expr, SMALL)
    limit = wanted if isinstance(wanted, Expr) else const(wanted)
    assert count(found) <= count(limit), f"{expr!r} became {found!r}"
    assert_equal_everywhere(expr, found)


def const(number: int | bool) -> Expr:
    return Const(number, "bool" if isinstance(number, bool) else "index")


def count(expr: Expr) -> int:
    return operators(Names().tree(expr))


def points() -> Iterator[dict[str, Any]]:
    """Points in the ranges of `SMALL`, with both truth values."""
    source = random.Random(5)
    for _ in range(400):
        yield {
            "x": source.randint(0, 7),
            "y": source.randint(0, 3),
            "z": source.randint(-5, 5),
            "n": source.randint(1, 9),
            "p": source.random() < 0.5,
            "q": source.random() < 0.5,
        }


def assert_equal_everywhere(expr: Expr, found: Expr) -> None:
    before, after = Names().tree(expr), Names().tree(found)
    for point in points():
        assert value(before, point) == value(after, point), f"{expr!r} is not {found!r} at {point}"


def test_assumptions_are_used() -> None:
    assert ea.simplify((x + 3) // 3 * 3, assume=[(x % 3).equal(0)]) is ea.simplify(x + 3)
    assert ea.simplify(ea.minimum(x, y), assume=[x <= y]) is x
    assert ea.simplify(ea.select(x < y, x, z), assume=[y <= x]) is z


def test_axes_and_sizes_bring_their_ranges() -> None:
    axis = ea.reduce_axis((0, n), "k")
    assert ea.simplify(ea.minimum(axis, n)) is axis
    assert ea.prove((axis + 1 <= n) & (axis >= 0)) is True
    tiled = ea.size("tiled", minimum=16, multiple_of=8)
    assert ea.simplify(tiled // 8 * 8) is tiled
    assert ea.prove(tiled >= 16) is True


def test_what_is_not_shorter_stays_as_it_was() -> None:
    expr = (y + x) // 2
    assert ea.simplify(expr) is expr


def test_a_guarded_quotient_may_have_no_value_elsewhere() -> None:
    """Nothing about the divisor is learnt from a quotient that is only evaluated under it."""
    expr = ea.select(z.equal(0), 1, 7 // z)
    found = ea.simplify(expr, {z: (-3, 3)})
    for number in range(-3, 4):
        assert value(Names().tree(found), {"z": number}) == (7 // number if number else 1)


PROVED: dict[str, tuple[Expr, bool | None]] = {
    "an axis below its bound": (x < 8, True),
    "an axis beyond its bound": (x > 9, False),
    "what depends on the point": (x < 5, None),
    "a fused index in its range": (x * 4 + y < 32, True),
    "a remainder in its range": ((z % 4 >= 0) & (z % 4 < 4), True),
    "a square": (z * z >= 0, True),
    "products of ordered numbers": (~((z < x) & (y > 0)) | (z * y < x * y), True),
    "a quotient times its divisor": (~(n > 0) | ((z // n) * n <= z), True),
    "a fused index of sizes": (~((x < n) & (y >= 0)) | (x + y * n < n + y * n), True),
    "a false claim about products": (z * y <= x * y, None),
}


@pytest.mark.parametrize("case", PROVED)
def test_prove_decides_what_it_can(case: str) -> None:
    cond, expected = PROVED[case]
    assert ea.prove(cond, SMALL) is expected


def test_bounds_are_those_of_the_values() -> None:
    assert ea.bounds(x * 4 + y, SMALL) == (0, 31)
    assert ea.bounds(x - x // 2, SMALL) == (0, 4)
    assert ea.bounds(x * z, SMALL) == (-35, 35)
    assert ea.bounds(z % 3, assume=[z >= 0]) == (0, 2)
    assert ea.bounds(x + 1) == (None, None)
    assert ea.bounds(ea.minimum(x, n), assume=[x >= 2]) == (1, None)


@pytest.mark.parametrize("seed", range(150))
def test_random_expressions_keep_their_values(seed: int) -> None:
    source = random.Random(seed)
    expr = arbitrary(source, 3)
    assume = [truth(source, 1)] if seed % 3 == 0 else []
    box: Bounds = {x: (-3, 4), y: (0, 5), z: (-4, -1)}
    found = ea.simplify(expr, box, assume)
    before, after, *given = (Names().tree(one) for one in (expr, found, *assume))
    assert operators(after) <= operators(before)
    for place in product(range(-3, 5), range(6), range(-4, 0)):
        for flags in product((False, True), repeat=2) if "p" in str(before) else [(True, False)]:
            point = {**dict(zip("xyz", place, strict=True)), **dict(zip("pq", flags, strict=True))}
            if all(value(cond, point) for cond in given):
                assert value(before, point) == value(after, point), f"seed {seed} at {point}"


@pytest.mark.parametrize("seed", range(60))
def test_random_conditions_are_never_wrongly_decided(seed: int) -> None:
    source = random.Random(1000 + seed)
    cond = truth(source, 3)
    box: Bounds = {x: (-3, 4), y: (0, 5), z: (-4, -1)}
    answer = ea.prove(cond, box)
    tree = Names().tree(cond)
    found = {
        bool(value(tree, dict(zip("xyzpq", (*place, *flags), strict=True))))
        for place in product(range(-3, 5), range(6), range(-4, 0))
        for flags in product((False, True), repeat=2)
    }
    assert answer is None or found == {answer}, f"seed {seed}: {cond!r}"


BINARY: list[Callable[[Expr, Expr], Expr]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    ea.minimum,
    ea.maximum,
]
BY_LITERAL: list[Callable[[Expr, int], Expr]] = [
    lambda a, c: a // c,
    lambda a, c: a % c,
    lambda a, c: a * c,
    ea.truncated_div,
    ea.truncated_mod,
    lambda a, c: ea.euclidean_div(a, -c),
    ea.euclidean_mod,
]


def arbitrary(source: random.Random, depth: int) -> Expr:
    """A random index expression."""
    kind = source.random()
    if depth == 0 or kind < 0.15:
        return source.choice([x, y, z, x, y, Const(source.randint(-4, 6), "index")])
    if kind < 0.5:
        return source.choice(BINARY)(arbitrary(source, depth - 1), arbitrary(source, depth - 1))
    if kind < 0.85:
        return source.choice(BY_LITERAL)(arbitrary(source, depth - 1), source.randint(2, 5))
    return ea.select(
        truth(source, depth - 1), arbitrary(source, depth - 1), arbitrary(source, depth - 1)
    )


def truth(source: random.Random, depth: int) -> Expr:
    """A random condition."""
    kind = source.random()
    if depth == 0 or kind < 0.55:
        a, b = (arbitrary(source, max(0, depth - 1)) for _ in range(2))
        return source.choice([a < b, a <= b, a.equal(b), a.differs(b), a >= b])
    if kind < 0.65:
        return source.choice([p, q])
    if kind < 0.75:
        return ~truth(source, depth - 1)
    a, b = truth(source, depth - 1), truth(source, depth - 1)
    return a & b if kind < 0.88 else a | b


def test_results_do_not_divide_by_negative_numbers() -> None:
    found = ea.simplify(ea.maximum(x * 6, y) // 2)
    tree = str(Names().tree(found))
    assert "-2" not in tree
    assert count(found) <= 3


def test_results_are_the_same_under_every_hash_seed() -> None:
    script = (
        "from tests.test_simplifier import SHORTER, SMALL; import eqsatad as ea; "
        "print([repr(ea.simplify(e, SMALL)) for e, _ in SHORTER.values()])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent.parent)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    "row", [row for rows in simplifier_themes().values() for row in rows], ids=lambda row: row.name
)
def test_every_row_is_proved(row: Any) -> None:
    pytest.importorskip("z3")
    assert check(row).method == "symbolic"


def test_the_rows_are_apart_from_those_of_gradients() -> None:
    assert not set(simplifier_themes()) & set(themes())


def test_derived_divisions_round_as_they_say() -> None:
    names = ("truncated_div", "truncated_mod", "euclidean_div", "euclidean_mod")
    short = dict(zip(names, ("tdiv", "tmod", "ediv", "emod"), strict=True))
    for name, divisor in product(names, (-3, -1, 2, 5)):
        tree = Names().tree(getattr(ea, name)(x, divisor))
        for number in range(-9, 10):
            expected = value((short[name], "x", divisor), {"x": number})
            assert value(tree, {"x": number}) == expected, (name, number, divisor)


def test_a_budget_that_runs_out_is_reported_and_the_answer_still_right() -> None:
    expr = ea.maximum(ea.minimum(x, y), ea.minimum(x, z)) + ea.minimum(x, z // 2)
    budget = ea.Budget(questions=1, proposals=5, expansions=1)
    found = ea.simplify(expr, SMALL, budget=budget)
    assert "proposals" in budget.stopped
    assert_equal_everywhere(expr, found)
    unspent = ea.Budget()
    ea.simplify(x + y - x, SMALL, budget=unspent)
    assert not unspent.stopped


def test_data_is_refused_with_what_to_do() -> None:
    data = ea.placeholder((4,), name="data")
    with pytest.raises(DtypeError, match="Cast integer data"):
        ea.simplify(data[0] + 1.0)
    with pytest.raises(ArgumentError, match="takes a condition"):
        ea.prove(x + 1)
    with pytest.raises(ArgumentError, match="takes an index expression"):
        ea.bounds(x < 1)


@pytest.mark.skipif(not DEFAULT.is_dir(), reason=f"no corpora in {DEFAULT}")
def test_no_answer_on_the_corpora_is_wrong() -> None:
    assert benchmark.main(["--limit", "60"]) == 0


@pytest.mark.skipif(not DEFAULT.is_dir(), reason=f"no corpora in {DEFAULT}")
def test_the_measure_is_that_of_the_corpora() -> None:
    from benchmarks.corpora import load, parse

    for cases in load(DEFAULT).values():
        for case in cases:
            if "b2i" not in case.record["lhs"]:
                assert operators(parse(case.record["lhs"])) == case.record["lhs_nops"]
