"""The kernels of the speed benchmark at small sizes, on every backend, against numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from benchmarks import busy, first_call, overhead, random_kernels, symbolic_kernels
from benchmarks.kernel_cases import CASES
from benchmarks.kernel_rows import called, our_call
from benchmarks.peers import error

DATA = Path(benchmarks.__file__).parent / "data" / "kernels.json"

# Sums of at most a few hundred float32 products, relative to the largest element.
TOLERANCE = 1e-5
# The same for thousands of products.
LONG = 2e-4


def test_every_row_has_a_definition() -> None:
    assert [kernel["id"] for kernel in json.loads(DATA.read_text())["kernels"]] == list(CASES)


@pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
@pytest.mark.parametrize("name", CASES)
def test_kernel_agrees_with_numpy(name: str, target: str) -> None:
    case = CASES[name]
    problem = case.make(**case.small)
    assert error(problem, our_call(problem, target)()) <= TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_full_size_is_that_of_the_table(name: str) -> None:
    rows = {kernel["id"]: kernel for kernel in json.loads(DATA.read_text())["kernels"]}
    problem = CASES[name].make(**CASES[name].full)
    stated = rows[name]["shapes"].replace(" ", "")
    for wrt in problem.wrt:
        shape = ",".join(map(str, problem.arrays[wrt].shape))
        assert f"({shape})" in stated


@pytest.mark.parametrize("number", range(20))
def test_kernel_drawn_at_random_agrees_with_numpy(number: int, monkeypatch: Any) -> None:
    """Two of each family, small enough for a test."""
    monkeypatch.setattr(random_kernels, "LEAST", 2_000)
    monkeypatch.setattr(random_kernels, "MOST", 20_000_000)
    name, case = list(random_kernels.drawn_cases(1, 20).items())[number]
    problem = case.make()
    assert error(problem, our_call(problem, "cpu")()) <= LONG, name


def test_drawn_kernels_are_the_same_each_time() -> None:
    first, again = (random_kernels.drawn_cases(5, 3) for _ in range(2))
    longer = random_kernels.drawn_cases(5, 30)
    for name, case in first.items():
        for other in (again[name], longer[name]):
            assert (case.make.args, case.make.keywords) == (other.make.args, other.make.keywords)


@pytest.mark.parametrize("specialise", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_kernel_for_all_sizes_agrees_with_numpy(name: str, specialise: bool) -> None:
    case = CASES[name]
    problem, definition = case.make(**case.small), symbolic_kernels.symbolic(case)
    if definition is None:
        pytest.skip("its definition needs numbers")
    kernel = definition.build("cpu", specialise=specialise)
    sizes = symbolic_kernels.values(definition, problem.arrays)
    call = called(kernel, problem, {name: sizes[name] for name in kernel.sizes})
    assert error(problem, call()) <= TOLERANCE


def test_first_gradient_is_timed_stage_by_stage() -> None:
    found = first_call.run("ours", "W1dX", {}, "--small")
    assert set(first_call.STAGES) == set(found)
    assert all(seconds >= 0 for seconds in found.values())


def test_busy_core_is_let_go() -> None:
    with busy.busy_core():
        pass


def test_overheads_are_those_of_calls() -> None:
    assert 0 < overhead.overheads()["prepared"] < overhead.overheads()["with out="]
