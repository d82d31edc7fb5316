"""The kernels of the benchmark in tinygrad: the same forward functions as torch, its own gradients.

`functions` has what those forward functions call, under torch's names, in terms of tinygrad.
The backward pass is one `TinyJit`. A tensor of tinygrad that was computed is no longer something
to take a gradient through, so what a gradient needs of the forward pass is worked out again in
each call; of linear operators it needs nothing.

tinygrad compiles with the program that ``CC`` names, which must take what clang takes: that is
clang, or the one that the package ziglang brings.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.kernel_cases import Problem

# Has another word for a machine without a system than clang; all else it takes as it is.
ZIG = """#!/bin/sh
for option; do
    shift
    case $option in
        --target=*-none-unknown-elf) option=${{option%-none-unknown-elf}}-freestanding-none ;;
    esac
    set -- "$@" "$option"
done
exec "{zig}" cc "$@" -g0
"""


def tinygrad_call(problem: Problem) -> Callable[[], Any]:
    """A call of the compiled backward pass."""
    # Read once, when it compiles for the first time.
    os.environ["CC"] = compiler()
    tinygrad = import_module("tinygrad")
    tensors = {name: tinygrad.Tensor(array).realize() for name, array in problem.arrays.items()}
    result = problem.torch(functions(tinygrad.Tensor), tensors)
    wrt = [tensors[name] for name in problem.wrt]
    device = tinygrad.Device[tinygrad.Device.DEFAULT]

    def gradient(head: Any) -> Any:
        found = result.gradient(*wrt, gradient=head)
        tinygrad.Tensor.realize(*found)
        return found

    backward = tinygrad.TinyJit(gradient)

    def call() -> Any:
        found = backward(tensors["H"])
        device.synchronize()
        return found

    # The first call of a `TinyJit` runs as it is, the second records what the others repeat.
    call()
    call()
    return call


def compiler() -> str:
    """The program that tinygrad is to compile with."""
    if named := os.environ.get("CC"):
        return named
    if clang := shutil.which("clang"):
        return clang
    found = find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        raise NotImplementedError("no C compiler: it takes clang, or the package ziglang, or CC")
    folder = tempfile.mkdtemp(prefix="zig-as-clang-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = Path(folder) / "clang"
    script.write_text(ZIG.format(zig=Path(found.submodule_search_locations[0]) / "zig"))
    script.chmod(0o755)
    return str(script)


def functions(tensor: Any) -> SimpleNamespace:
    """The functions of torch that the forward functions call, for the class ``tensor``."""
    functional = {
        "conv2d": _conv,
        "conv3d": _conv,
        "pixel_shuffle": _pixel_shuffle,
        "max_pool2d": lambda x, kernel, stride, pad: x.max_pool2d((kernel,) * 2, stride, 1, pad),
        "avg_pool2d": lambda x, kernel: x.avg_pool2d((kernel,) * 2),
        "layer_norm": lambda x, shape, weight, bias: x.layernorm() * weight + bias,
        "interpolate": _interpolate,
        "pad": lambda x, widths: x.pad(widths),
        "embedding": lambda places, table: table[places],
    }
    return SimpleNamespace(
        nn=SimpleNamespace(functional=SimpleNamespace(**functional)),
        softmax=lambda x, axis: x.softmax(axis),
        logsumexp=lambda x, axis: x.logsumexp(axis),
        cumsum=lambda x, axis: x.cumsum(axis),
        stack=lambda parts, dim: tensor.stack(*parts, dim=dim),
        einsum=tensor.einsum,
    )


def _conv(x: Any, w: Any, *, stride: int = 1, padding: int = 0, **options: int) -> Any:
    return x.conv2d(w, stride=stride, padding=padding, **options)


def _pixel_shuffle(x: Any, factor: int) -> Any:
    n, c, height, width = x.shape
    blocks = x.reshape(n, c // factor**2, factor, factor, height, width).permute(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, c // factor**2, height * factor, width * factor)


def _interpolate(
    x: Any,
    size: Sequence[int] | None = None,
    scale_factor: int = 1,
    mode: str = "nearest",
    align_corners: bool = False,
) -> Any:
    wanted = tuple(size or (scale_factor * side for side in x.shape[2:]))
    return x.interpolate(wanted, {"bilinear": "linear"}.get(mode, mode), align_corners)
