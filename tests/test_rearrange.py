"""The operators that rearrange, resize and normalise against numpy, and their errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eqsatad import library as nn
from eqsatad.errors import ShapeError
from eqsatad.terms import builders as ea
from eqsatad.terms.evaluate import evaluate
from tests.test_library import IMAGE, Row, operands, p

Array = NDArray[Any]


def space_to_depth(x: Array, factor: int) -> Array:
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // factor, factor, w // factor, factor)
    return parts.transpose(0, 1, 3, 5, 2, 4).reshape(n, -1, h // factor, w // factor)


def windows(x: Array, size: int, shift: int) -> Array:
    n, h, w, c = x.shape
    x = np.roll(x, (-shift, -shift), axis=(1, 2))
    parts = x.reshape(n, h // size, size, w // size, size, c).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(-1, size * size, c)


def unfold(x: Array, taps: int, stride: int, pad: int) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    found = np.lib.stride_tricks.sliding_window_view(x, (taps, taps), axis=(2, 3))
    return found[:, :, ::stride, ::stride].transpose(0, 1, 4, 5, 2, 3)


def resize_line(x: Array, size: int, axis: int) -> Array:
    at = np.linspace(0, x.shape[axis] - 1, size)
    return np.apply_along_axis(lambda line: np.interp(at, range(len(line)), line), axis, x)


def adaptive_line(x: Array, size: int, axis: int) -> Array:
    n = x.shape[axis]
    bounds = [(i * n // size, -(-(i + 1) * n // size)) for i in range(size)]
    return np.stack(
        [x.take(range(lo, hi), axis=axis).mean(axis=axis) for lo, hi in bounds], axis=axis
    )


def both(line: Callable[[Array, int, int], Array], size: tuple[int, int]) -> Callable[..., Array]:
    """``line`` along both spatial axes."""
    return lambda x: line(line(x, size[0], 2), size[1], 3)


def standard(x: Array, axes: tuple[int, ...]) -> Array:
    centred = x - x.mean(axis=axes, keepdims=True)
    result: Array = centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + 1e-5)
    return result


def local_response(x: Array, size: int) -> Array:
    squares = np.pad(x**2, ((0, 0), (size // 2, size // 2), (0, 0), (0, 0)))
    total = sum(squares[:, r : r + x.shape[1]] for r in range(size))
    result: Array = x / (2.0 + 1e-4 / size * total) ** 0.75
    return result


ROWS = (
    Row("roll", lambda x: nn.roll(x, 2), lambda x: np.roll(x, 2, -1), ((3, 5),)),
    Row("roll-back", lambda x: nn.roll(x, -7, 0), lambda x: np.roll(x, -7, 0), ((3, 5),)),
    Row("flip", lambda x: nn.flip(x, 0), lambda x: x[::-1], ((3, 5),)),
    Row("slice", lambda x: nn.strided_slice(x, 1, -1, 2), lambda x: x[1:-1:2], ((8, 2),)),
    Row(
        "slice-backwards",
        lambda x: nn.strided_slice(x, None, 1, -3, axis=1),
        lambda x: x[:, :1:-3],
        ((2, 9),),
    ),
    Row("tril", lambda x: nn.tril(x, 1), lambda x: np.tril(x, 1), ((2, 4, 5),)),
    Row("triu", nn.triu, np.triu, ((5, 4),)),
    Row(
        "take_along_axis",
        nn.take_along_axis,
        lambda x, i: np.take_along_axis(x, i, -1),
        ((3, 5), (3, 2)),
        {1: 5},
    ),
    Row(
        "space_to_depth",
        lambda x: nn.space_to_depth(x, 2),
        partial(space_to_depth, factor=2),
        ((2, 3, 4, 6),),
    ),
    Row(
        "channel_shuffle",
        lambda x: nn.channel_shuffle(x, 3),
        lambda x: x.reshape(2, 3, 2, 4).swapaxes(1, 2).reshape(2, 6, 4),
        ((2, 6, 4),),
    ),
    Row(
        "block_channels",
        lambda x: nn.block_channels(x, 2),
        lambda x: x.reshape(2, 3, 2, 4).transpose(0, 1, 3, 2),
        ((2, 6, 4),),
    ),
    *(
        Row(
            f"window_partition-{shift}",
            partial(nn.window_partition, window=2, shift=shift),
            partial(windows, size=2, shift=shift),
            ((2, 4, 6, 3),),
        )
        for shift in (0, 1)
    ),
    Row("unfold", lambda x: nn.unfold(x, 3, 2, 1), lambda x: unfold(x, 3, 2, 1), (IMAGE,)),
    Row(
        "pad_edge",
        lambda x: nn.pad_edge(x, 3, 0),
        lambda x: np.pad(x, ((3, 3), (0, 0)), "edge"),
        ((2, 3),),
    ),
    Row(
        "pad_reflect",
        lambda x: nn.pad_reflect(x, 2),
        lambda x: np.pad(x, ((0, 0), (2, 2)), "reflect"),
        ((2, 3),),
    ),
    Row(
        "resize_nearest",
        lambda x: nn.resize_nearest(x, (7, 3)),
        lambda x: x[:, :, np.arange(7) * 5 // 7][..., np.arange(3) * 6 // 3],
        ((2, 3, 5, 6),),
    ),
    *(
        Row(
            f"resize_bilinear-{size[0]}",
            lambda x, size=size: nn.resize_bilinear(x, size),
            both(resize_line, size),
            ((1, 2, 7, 5),),
        )
        for size in ((12, 10), (4, 3))
    ),
    *(
        Row(
            f"adaptive_avg_pool-{size[0]}",
            lambda x, size=size: nn.adaptive_avg_pool(x, size),
            both(adaptive_line, size),
            ((1, 2, 7, 5),),
        )
        for size in ((3, 2), (7, 4))
    ),
    Row(
        "rms_norm",
        nn.rms_norm,
        lambda x, g: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * g,
        ((3, 4), (4,)),
    ),
    Row(
        "batch_norm",
        nn.batch_norm,
        lambda x, g, b: standard(x, (0, 2)) * g[:, None] + b[:, None],
        ((2, 3, 5), (3,), (3,)),
    ),
    Row("instance_norm", nn.instance_norm, lambda x: standard(x, (2, 3)), ((2, 3, 4, 5),)),
    Row(
        "local_response_norm",
        lambda x: nn.local_response_norm(x, 3),
        partial(local_response, size=3),
        ((2, 5, 2, 2),),
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_operator_agrees_with_numpy(row: Row) -> None:
    tensors, arrays = operands(row)
    named = {t.name: array for t, array in zip(tensors, arrays, strict=True)}
    (found,) = evaluate([row.ours(*tensors)], named)
    # Both sides are double precision and add up fewer than a hundred terms.
    np.testing.assert_allclose(found, row.numpy(*arrays), rtol=1e-11, atol=1e-12)


def test_grid_sample_interpolates_between_four_pixels() -> None:
    x = ea.placeholder((2, 4, 5), name="x", dtype="float64")
    places = ea.placeholder((6, 2), name="places", dtype="float64")
    rng = np.random.default_rng(0)
    image, at = rng.normal(size=(2, 4, 5)), rng.uniform(0, 3, (6, 2))
    expected = np.zeros((6, 2))
    for n, (i, j) in product(range(6), product((0, 1), repeat=2)):
        row, column = np.floor(at[n]).astype(int) + np.array((i, j))
        weight = np.prod(1 - np.abs(at[n] - (row, column)))
        expected[n] += weight * image[:, row, column]
    (found,) = evaluate([nn.grid_sample(x, places)], {"x": image, "places": at})
    np.testing.assert_allclose(found, expected, rtol=1e-12)


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "step": (lambda: nn.strided_slice(p(4, 5), step=0), "must not be 0"),
    "symbolic": (lambda: nn.strided_slice(ea.placeholder((ea.size("n"),), "x")), "known extent"),
    "triangle": (lambda: nn.tril(p(4)), "two axes"),
    "along": (lambda: nn.take_along_axis(p(4, 5), p(3, 2, dtype="int32")), "4 and 3"),
    "blocks": (lambda: nn.space_to_depth(p(1, 2, 5, 4), 2), "does not divide"),
    "groups": (lambda: nn.channel_shuffle(p(1, 4, 2), 3), "does not divide"),
    "reflection": (lambda: nn.pad_reflect(p(4, 3), 3), "cannot be reflected"),
    "border": (lambda: nn.pad_edge(p(4, 3), -1), "at least 0"),
    "one-row": (lambda: nn.resize_bilinear(p(1, 1, 1, 4), (2, 2)), "at least 2"),
    "places": (lambda: nn.grid_sample(p(1, 4, 4), p(5, 3)), "3 and 2"),
    "channels": (lambda: nn.batch_norm(p(2, 3, 4), p(4), p(3)), "3 and 4"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_shapes_that_disagree_are_named(mistake: str) -> None:
    build, message = MISTAKES[mistake]
    with pytest.raises(ShapeError, match=message):
        build()
