"""The kernels of the speed benchmark at small sizes, on every backend, against numpy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import benchmarks
from benchmarks.kernel_cases import CASES
from benchmarks.kernels import error, our_call

DATA = Path(benchmarks.__file__).parent / "data" / "kernels.json"

# Sums of at most a few hundred float32 products, relative to the largest element.
TOLERANCE = 1e-5


def test_every_row_has_a_definition() -> None:
    assert [kernel["id"] for kernel in json.loads(DATA.read_text())["kernels"]] == list(CASES)


@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize("name", CASES)
def test_kernel_agrees_with_numpy(name: str, target: str) -> None:
    if target == "opencl":
        pytest.importorskip("pyopencl")
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
