"""What must agree about a random program, each check an assertion with both numbers in it.

`terms.evaluate` judges values, central differences in float64 judge gradients, and gradients that
were not simplified judge those that were. Positions are piecewise constant, so gradients through
them are asked for as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsatad.backends.kernel import Kernel
from eqsatad.derivatives import jacobian
from eqsatad.pipeline import Gradients, build, differentiate
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Tensor
from tests.programs import SIZES, Program, number

Array = NDArray[Any]
Arrays = dict[str, Array]

STEP = 1e-5
# Rounding of sums in another order: a few hundred terms, values up to a few thousand.
TOLERANCE = {"float64": 1e-9, "float32": 2e-4}
SLOPE_TOLERANCE = 1e-5  # of central differences with STEP, in float64


class Kink(Exception):
    """The differences to the left and to the right do not agree, so neither is a derivative."""


def gradients(program: Program, *, simplify: bool = True) -> Gradients:
    """The gradients of the program with respect to its float inputs."""
    return differentiate(program.output, program.floats, simplify=simplify, allow_zero=True)


def with_head(program: Program, head: Tensor) -> Arrays:
    """The arrays of the program and one for the head."""
    shape = tuple(number(extent) for extent in head.shape)
    values = np.random.default_rng(program.seed + 1).uniform(-1, 1, shape)
    return program.arrays() | {head.name: values.astype(head.dtype)}


def check_forward(program: Program, target: str) -> None:
    """The kernel of the program gives what the evaluator gives."""
    arrays = program.arrays()
    expected = evaluate([program.output], arrays, SIZES)
    kernel = build([program.output], target=target)
    agree(run(kernel, arrays), expected, program, f"value on {target}")


def check_slopes(program: Program) -> None:
    """The gradients as derived, evaluated, agree with central differences."""
    derived = gradients(program, simplify=False)
    arrays = with_head(program, derived.head)
    found = evaluate(list(derived), arrays, SIZES, dtype="float64")
    random = np.random.default_rng(program.seed + 2)
    way = {t.name: random.uniform(-1, 1, arrays[t.name].shape) for t in program.floats}
    along = sum(
        float((bar * way[tensor.name]).sum())
        for bar, tensor in zip(found, program.floats, strict=True)
    )
    expected = slope(program, arrays, arrays[derived.head.name], way)
    scale = max(1.0, abs(expected))
    assert abs(along - expected) <= SLOPE_TOLERANCE * scale, (
        f"slope {along} where differences give {expected}\n{program}"
    )


def slope(program: Program, arrays: Arrays, head: Array, way: Arrays) -> float:
    """The central difference of ``sum(head * output)`` along ``way``."""

    def value(step: float) -> float:
        moved = arrays | {name: arrays[name] + step * way[name] for name in way}
        (output,) = evaluate([program.output], moved, SIZES, dtype="float64")
        return float((output * head).sum())

    behind, here, ahead = (value(step) for step in (-STEP, 0.0, STEP))
    left, right = (here - behind) / STEP, (ahead - here) / STEP
    if abs(left - right) > 1e-2 * max(1.0, abs(left)):
        raise Kink(f"{left} to the left and {right} to the right")
    return (ahead - behind) / (2 * STEP)


def check_simplified(program: Program, targets: Sequence[str] = ()) -> None:
    """Simplified gradients equal the derived ones, evaluated and on each of ``targets``."""
    derived = gradients(program, simplify=False)
    simplified = gradients(program)
    arrays = with_head(program, derived.head)
    expected = evaluate(list(derived), arrays, SIZES)
    agree(evaluate(list(simplified), arrays, SIZES), expected, program, "simplified gradient")
    for target in targets:
        found = run(simplified.build(target=target), arrays)
        agree(found, expected, program, f"simplified gradient on {target}")


def check_jacobian(program: Program) -> None:
    """Simplified Jacobians, backwards or forwards, equal the derived ones."""
    derived, simplified = (
        jacobian(program.output, program.floats, allow_zero=True, simplify=simplify)
        for simplify in (False, True)
    )
    expected = evaluate(list(derived), program.arrays(), SIZES)
    agree(evaluate(list(simplified), program.arrays(), SIZES), expected, program, "Jacobian")


def run(kernel: Kernel, arrays: Arrays) -> list[Array]:
    """What ``kernel`` gives for those of ``arrays`` that it reads."""
    given = {name: arrays[name] for name in kernel.inputs if name in arrays}
    return list(kernel(**given, **kernel_sizes(kernel)))


def kernel_sizes(kernel: Kernel) -> dict[str, int]:
    """The sizes that no input of ``kernel`` tells."""
    told = {extent for tensor in kernel.loops.inputs for extent in tensor.shape}
    return {size.name: SIZES[size.name] for size in kernel.loops.sizes if size not in told}


def agree(found: Sequence[Array], expected: Sequence[Array], program: Program, what: str) -> None:
    """Asserts that arrays agree in shape, dtype and, up to rounding, in value."""
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape, f"{what}: {one.shape} for {other.shape}\n{program}"
        assert one.dtype == other.dtype, f"{what}: {one.dtype} for {other.dtype}\n{program}"
        scale = max(1.0, float(np.abs(other).max(initial=0.0)))
        error = float(np.abs(one - other).max(initial=0.0)) / scale
        limit = TOLERANCE[str(other.dtype)]
        assert error <= limit, f"{what}: relative error {error:.1e}\n{program}\n{one}\n{other}"
