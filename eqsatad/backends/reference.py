"""The reference backend: the loop program interpreted, slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsatad.backends.kernel import Kernel, Launch
from eqsatad.backends.storage import STORAGE, Array, from_bits, to_bits
from eqsatad.loops.interpret import run
from eqsatad.loops.nest import LoopProgram
from eqsatad.loops.render import render


def build(program: LoopProgram) -> Kernel:
    """``program`` interpreted."""
    return Kernel(program, target="reference", source=render(program), launch=_launcher(program))


def _launcher(program: LoopProgram) -> Launch:
    def launch(inputs: Sequence[Array], outputs: Sequence[Array], sizes: Sequence[int]) -> None:
        arrays = {
            tensor.name: from_bits(array) if tensor.dtype == "bfloat16" else array
            for tensor, array in zip(program.inputs, inputs, strict=True)
        }
        known = {size.name: number for size, number in zip(program.sizes, sizes, strict=True)}
        results = run(program, arrays, known).outputs
        for tensor, target, result in zip(program.outputs, outputs, results, strict=True):
            narrow = tensor.dtype == "bfloat16"
            stored = to_bits(np.asarray(result, "float32")) if narrow else result
            target[...] = stored.astype(STORAGE[tensor.dtype], copy=False)

    return launch
