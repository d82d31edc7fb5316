"""The simplifier by itself: short answers, nothing wrong, and "unknown" where it does not know.

Random expressions are compared with brute force over a small box. Their number is their seed, and
it is in the message of a failure.
"""

import dataclasses
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsatad as ea
from benchmarks import simplifier as benchmark
from benchmarks.corpora import DEFAULT, value
from benchmarks.index_cases import BOUNDED, PROVED, SHORTER, SMALL, Bounds, n, p, q, x, y, z
from eqsatad.errors import ArgumentError, DtypeError
from eqsatad.rules import index_facts
from eqsatad.rules.catalog import simplifier_themes, themes
from eqsatad.rules.growth import Limits
from eqsatad.rules.index_exchange import Names
from eqsatad.rules.index_trees import operators
from eqsatad.rules.prove import check
from eqsatad.terms.nodes import Const, Expr

ROOT = Path(__file__).resolve().parent.parent


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


@pytest.mark.parametrize("case", PROVED)
def test_prove_decides_what_it_can(case: str) -> None:
    cond, expected = PROVED[case]
    assert ea.prove(cond, SMALL) is expected


@pytest.mark.parametrize("case", BOUNDED)
def test_bounds_are_those_of_the_values(case: str) -> None:
    expr, expected = BOUNDED[case]
    assert ea.bounds(expr, SMALL) == expected


def test_bounds_use_assumptions() -> None:
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
        "from benchmarks.index_cases import SHORTER, SMALL; import eqsatad as ea; "
        "print([repr(ea.simplify(e, SMALL)) for e, _ in SHORTER.values()])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
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


def test_what_the_page_says_of_its_examples_is_so() -> None:
    page = (ROOT / "docs" / "simplifier.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    scope: dict[str, object] = {}
    answers = 0
    for line in example.splitlines():
        code, _, answer = line.partition("  # ")
        if answer:
            assert repr(eval(code, scope)) == answer, code
            answers += 1
        else:
            exec(code, scope)
    assert answers >= 10


def test_the_page_says_the_limits() -> None:
    page = (ROOT / "docs" / "budgets.md").read_text(encoding="utf-8")
    for name, limit in dataclasses.asdict(ea.Budget()).items():
        assert name == "stopped" or f"| {limit:,} | `budget=Budget({name}=)`" in page
    for name in ("nodes", "rounds", "seconds"):
        assert f"| {getattr(Limits(), name):,g} | `limits=Limits({name}=)`" in page


def test_data_is_refused_with_what_to_do() -> None:
    data = ea.placeholder((4,), name="data")
    with pytest.raises(DtypeError, match="Cast integer data"):
        ea.simplify(data[0] + 1.0)
    with pytest.raises(ArgumentError, match="takes a condition"):
        ea.prove(x + 1)
    with pytest.raises(ArgumentError, match="takes an index expression"):
        ea.bounds(x < 1)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "an index as an assumption": (lambda: ea.simplify(x, assume=[x]), "Compare it"),
    "text as an expression": (lambda: ea.simplify("x"), "found str"),
    "a float": (lambda: ea.simplify(1.5), "found float"),
    "bounds that are no mapping": (lambda: ea.simplify(x, [(x, (0, 3))]), "variable: "),
    "bounds of a name": (lambda: ea.simplify(x, {"x": (0, 3)}), "bounds of variables"),
    "bounds of a sum": (lambda: ea.prove(x < 3, {x + 1: (0, 3)}), "bounds of variables"),
    "bounds of a condition": (lambda: ea.prove(p, {p: (0, 1)}), "use assume="),
    "a bound that is no pair": (lambda: ea.bounds(x, {x: 3}), "pair"),
    "a range as bounds": (lambda: ea.bounds(x, {x: range(3)}), "pair"),
    "a float as a bound": (lambda: ea.bounds(x, {x: (0.5, 3)}), "pair"),
    "bounds in the wrong order": (lambda: ea.bounds(x, {x: (5, 2)}), "leave no value"),
    "a number as a budget": (lambda: ea.simplify(x, budget=5), "takes a Budget"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_refused_with_what_to_do(case: str) -> None:
    mistake, message = REFUSED[case]
    with pytest.raises((ArgumentError, DtypeError), match=message):
        mistake()


def test_numbers_and_single_conditions_are_taken_as_they_are() -> None:
    assert ea.simplify(3) is const(3)
    assert ea.prove(True) is True
    assert ea.bounds(7) == (7, 7)
    assert ea.prove(x < y, assume=x < y) is True
    assert ea.prove(x < 3, assume=[True]) is None
    assert ea.bounds(x, {x: (np.int64(1), None)}, assume=x <= 4) == (1, 4)


def test_numbers_are_written_on_the_right() -> None:
    assert repr(ea.simplify((x + 1 > 1) & (x < 3) & (x < 5), {x: (-9, 9)})) == "x <= 2 and x >= 1"


def test_bounds_spend_a_budget_too() -> None:
    budget = ea.Budget(questions=0)
    assert ea.bounds(z - y, assume=z <= y, budget=budget) == (None, None)
    assert budget.stopped == ["questions"]
    assert ea.bounds(z - y, assume=z <= y) == (None, 0)


def test_a_question_that_isl_gives_up_counts_for_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_facts, "empty_set", lambda *_: None)
    budget = ea.Budget()
    assert ea.prove(z * y <= z * y * y, {z: (0, 9), y: (1, 9)}, budget=budget) is None
    asked, rest = divmod(300 - budget.questions, 1 + index_facts.TOO_MUCH)
    assert asked >= 1
    assert rest == 0


def test_large_numbers_lose_proofs_and_nothing_else() -> None:
    assert ea.simplify(z // 2**40 // 2**40) is ea.simplify(z // 2**80)
    assert ea.bounds(x * 2**80, SMALL) == (0, 7 * 2**80)
    assert ea.prove(z < 2**70, {z: (2**71, None)}) is not True


CORPUS = [
    {"kind": "simplify", "vars": {"a": [0, 3]}, "lhs": "(+ a 0)", "rhs": "a", "rhs_nops": 0},
    {"kind": "prove", "vars": {"a": [0, 3]}, "lhs": "(< a 4)", "rhs": "true"},
    {"kind": "prove-fails", "vars": {"a": [0, 3]}, "lhs": "(< a 3)", "status": "refuted"},
    {"kind": "prove-fails", "vars": {"a": [0, 3]}, "lhs": "(<= a 3)", "rhs": "true"},
    {"kind": "bound", "vars": {"a": [0, 3]}, "lhs": "(* a 2)", "bound": [0, 6]},
    {"kind": "congruence", "vars": {"a": [0, 3]}, "lhs": "(* a 4)", "modulus": 4, "residue": 0},
]


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    """A folder with a small corpus under each name."""
    defaults = {"assume": [], "scores": {}, "status": "upstream-incomplete"}
    defaults |= {"lhs_nops": 1, "lhs_divs": 0}
    records = [
        {**defaults, "id": f"case-{number}", **record} for number, record in enumerate(CORPUS)
    ]
    for name in benchmark.WANTED:
        lines = (json.dumps(record) for record in records)
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_the_benchmark_counts_what_upstream_does_not_prove_apart(corpora: Path) -> None:
    (results,) = benchmark.outcomes(corpora, only="tvm").values()
    assert [result.outcome for result in results] == [
        "simplified", "proved", "refused", "extra", "proved", "proved",
    ]  # fmt: skip
    assert benchmark.share(results) == 1.0
    assert benchmark.main(["--corpora", str(corpora)]) == 0


BROKEN: dict[str, tuple[str, Callable[..., object], str]] = {
    "a refuted condition that is proved": ("prove", lambda *_: True, "wrong"),
    "a wrong answer": ("simplify", lambda *_: const(9), "wrong"),
    "a wrong bound": ("bounds", lambda *_: (0, 5), "wrong"),
    "too little solved": ("prove", lambda *_: None, "solved"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_the_benchmark_fails_when_a_clause_is_broken(
    case: str, corpora: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, answer, message = BROKEN[case]
    monkeypatch.setattr(ea, name, answer)
    assert benchmark.main(["--corpora", str(corpora)]) == 1
    assert message in capsys.readouterr().out.split("broken: ")[1]


def test_the_benchmark_fails_when_another_system_solves_as_much(
    corpora: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = corpora / "tvm.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines[0]["scores"] = {"tvm": {"ops": 0}}
    lines[0]["lhs"] = "(+ (* a a) 1)"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert benchmark.main(["--corpora", str(corpora), "--only", "tvm"]) == 1
    assert "cases that tvm expresses" in capsys.readouterr().out


def test_the_benchmark_fails_when_a_case_takes_long(
    corpora: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(benchmark.LIMITS, "median", 0.0)
    assert benchmark.main(["--corpora", str(corpora)]) == 1
    assert "median of" in capsys.readouterr().out


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
