"""Gradient kernels drawn at random: other shapes and parameters than those that were tuned for.

``drawn_cases(seed, count)`` gives as many `Case` entries, each of a family in turn. An entry
depends on the seed and its own number alone, so that one can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import count as numbers
from math import prod
from operator import add
from random import Random
from typing import Any

import numpy as np

import eqsatad as ea
from benchmarks import kernel_cases as known
from benchmarks.kernel_cases import Array, Arrays, Case, Gradient, Problem, drawn, placeholder
from eqsatad import library as nn
from eqsatad.terms.nodes import Expr

# Products of a kernel, so that one call takes between a tenth and some tens of milliseconds.
LEAST, MOST = 2_000_000, 300_000_000

Make = Callable[[], Problem]


def drawn_cases(seed: int, count: int) -> dict[str, Case]:
    """``count`` kernels by name, the families in turn."""
    names = list(FAMILIES)
    found: dict[str, Case] = {}
    for number in range(count):
        family = names[number % len(names)]
        make = FAMILIES[family](Random(f"{seed}:{number}"))
        found[f"R{number} {family}"] = Case(make, {}, {})
    return found


def fitting(draw: Callable[[], Any], products: Callable[[Any], int]) -> Any:
    """The first of what is drawn whose number of products is in the range."""
    for _ in numbers():
        found = draw()
        if LEAST <= products(found) <= MOST:
            return found


def convolution(dice: Random) -> Make:
    """Either gradient of a convolution in two dimensions."""
    shape = dice.choice([(1, 1, 0), (3, 1, 1), (3, 2, 1), (5, 1, 2), (3, 1, 0), (2, 2, 0)])
    kernel, stride, pad = shape
    dilation = dice.choice([1, 1, 2]) if kernel > 1 else 1
    least = (kernel - 1) * dilation + 1

    def draw() -> tuple[tuple[int, ...], tuple[int, ...]]:
        channels, filters = dice.randint(3, 96), dice.randint(3, 96)
        image = (dice.randint(1, 8), channels, dice.randint(least, 64), dice.randint(least, 64))
        return image, (filters, channels, kernel, kernel)

    def products(found: tuple[tuple[int, ...], tuple[int, ...]]) -> int:
        return prod(found[0]) * found[1][0] * kernel**2 // stride**2

    x, w = fitting(draw, products)
    wrt = dice.choice("XW")
    return partial(known.conv, x, w, wrt, stride=stride, pad=pad, dilation=dilation)


def images(dice: Random, of: int = 1) -> tuple[int, ...]:
    """The shape of a batch of images whose sides are multiples of ``of``."""

    def draw() -> tuple[int, ...]:
        sides = (of * dice.randint(8 // of, 120 // of) for _ in range(2))
        return (dice.randint(1, 8), dice.randint(3, 96), *sides)

    shape: tuple[int, ...] = fitting(draw, lambda shape: 8 * prod(shape))
    return shape


def max_pooling(dice: Random) -> Make:
    """Max pooling whose forward pass saved the positions."""
    kernel = dice.choice([2, 3, 5])
    stride, pad = dice.choice([1, 2, kernel]), dice.choice([0, kernel // 2])
    return partial(known.max_pool, images(dice), kernel=kernel, stride=stride, pad=pad)


def average_pooling(dice: Random) -> Make:
    """Average pooling of disjoint windows."""
    kernel = dice.choice([2, 3, 4])
    return partial(known.avg_pool, images(dice, kernel), kernel=kernel)


def rows(make: Callable[..., Problem], dice: Random) -> Make:
    """An operator on rows."""
    return partial(make, (dice.randint(100, 2000), dice.randint(50, 3000)))


def contraction(dice: Random) -> Make:
    """Every gradient of a sum of products of two to four operands."""
    return partial(einsum, *fitting(partial(_contraction, dice), _products))


def _contraction(dice: Random) -> tuple[list[str], str, dict[str, int]]:
    """The indices of each operand and of the result, and the extent of each index."""
    operands = dice.randint(2, 4)
    letters = "abcdef"[: operands + dice.randint(1, 2)]
    kept = "".join(dice.sample(letters, dice.randint(1, 3)))
    terms = ["" for _ in range(operands)]
    for letter in letters:
        # What is summed over is in two operands at least, or its gradient would be a broadcast.
        for place in dice.sample(range(operands), 1 if letter in kept else 2):
            terms[place] += letter
    sizes = {letter: dice.randint(8, 160) for letter in letters}
    return ["".join(dice.sample(term, len(term))) for term in terms], kept, sizes


def _products(found: tuple[list[str], str, dict[str, int]]) -> int:
    terms, kept, sizes = found
    if not all(terms) or any(len(term) > 4 for term in terms):
        return 0
    largest = max(prod(sizes[letter] for letter in term) for term in (*terms, kept))
    return prod(sizes.values()) if largest < 4_000_000 else 0


def einsum(terms: Sequence[str], kept: str, sizes: dict[str, int]) -> Problem:
    """``einsum`` of operands called A, B and so on."""
    names = "ABCD"[: len(terms)]
    shapes = {name: [sizes[x] for x in term] for name, term in zip(names, terms, strict=True)}
    tensors = {name: placeholder(name, *shape) for name, shape in shapes.items()}
    summed = [letter for letter in sizes if letter not in kept]
    over = {letter: ea.reduce_axis((0, sizes[letter]), letter) for letter in summed}

    def body(*out: Expr) -> Expr:
        at: dict[str, Expr] = {**over, **dict(zip(kept, out, strict=True))}
        factors = [
            tensors[name][tuple(at[letter] for letter in term)]
            for name, term in zip(names, terms, strict=True)
        ]
        value = reduce(lambda a, b: a * b, factors)
        return ea.sum(value, axis=tuple(over.values())) if over else value

    y = ea.compute([sizes[letter] for letter in kept], body, "Y")
    formula = f"{','.join(terms)}->{kept}"

    def numpy(a: Arrays) -> list[Array]:
        found = []
        for place, term in enumerate(terms):
            others = [other for number, other in enumerate(terms) if number != place]
            arrays = [a[name] for number, name in enumerate(names) if number != place]
            back = f"{','.join((kept, *others))}->{term}"
            found.append(np.einsum(back, a["H"], *arrays, optimize=True))
        return found

    return Problem(
        Gradient(y, tuple(tensors.values())),
        drawn(**shapes, H=[sizes[letter] for letter in kept]),
        tuple(names),
        numpy,
        lambda torch, a: torch.einsum(formula, *(a[name] for name in names)),
        lambda jax, a: jax.numpy.einsum(formula, *(a[name] for name in names)),
    )


def stencil(dice: Random) -> Make:
    """A weighted sum of neighbours up to two away, zero outside."""
    around = [(i, j) for i in range(-2, 3) for j in range(-2, 3)]
    taps = dice.sample(around, dice.randint(4, 9))
    weights = {tap: round(dice.uniform(-1, 1), 2) for tap in taps}
    return partial(neighbours, (dice.randint(300, 1500), dice.randint(300, 1500)), weights)


def neighbours(shape: Sequence[int], weights: dict[tuple[int, int], float]) -> Problem:
    """The stencil of ``weights`` by offset."""
    xs = placeholder("X", *shape)
    height, width = shape

    def body(i: Expr, j: Expr) -> Expr:
        parts = [weight * xs.get(i + u, j + v) for (u, v), weight in weights.items()]
        return reduce(add, parts)

    def shifted(p: Any, sign: int) -> Any:
        return reduce(add, (
            weight * p[2 + sign * u : 2 + sign * u + height, 2 + sign * v : 2 + sign * v + width]
            for (u, v), weight in weights.items()
        ))  # fmt: skip

    return Problem(
        Gradient(ea.compute(shape, body, name="Y"), (xs,)),
        drawn(X=shape, H=shape),
        ("X",),
        lambda a: [shifted(np.pad(a["H"], 2), -1).astype(a["H"].dtype, copy=False)],
        lambda torch, a: shifted(torch.nn.functional.pad(a["X"], (2, 2, 2, 2)), 1),
        lambda jax, a: shifted(jax.numpy.pad(a["X"], 2), 1),
    )


def resize(dice: Random) -> Make:
    """Interpolation between pixels with the corners aligned, or the nearest pixel."""
    x = images(dice)
    size = [max(2, int(side * dice.uniform(0.4, 2.5))) for side in x[2:]]
    return partial(resized, x, size, linear=dice.random() < 0.6)


def resized(x: Sequence[int], size: Sequence[int], *, linear: bool) -> Problem:
    """A batch of images at another ``size``."""
    xs = placeholder("X", *x)
    y = nn.resize_bilinear(xs, size) if linear else nn.resize_nearest(xs, size)
    plans = [_weights(old, new, linear) for old, new in zip(x[2:], size, strict=True)]

    def numpy(a: Arrays) -> list[Array]:
        tall, wide = (matrix.astype(a["H"].dtype) for matrix in map(_matrix, plans, x[2:]))
        return [np.ascontiguousarray(tall.T @ (a["H"] @ wide))]

    def torch(torch: Any, a: Any) -> Any:
        how = {"mode": "bilinear", "align_corners": True} if linear else {"mode": "nearest"}
        return torch.nn.functional.interpolate(a["X"], size=tuple(size), **how)

    def jax(jax: Any, a: Any) -> Any:
        result = a["X"]
        for axis, (low, high, share) in enumerate(plans, 2):
            weight = share.reshape([-1 if n == axis else 1 for n in range(4)])
            left, right = (jax.numpy.take(result, place, axis=axis) for place in (low, high))
            result = left + weight * (right - left) if linear else left
        return result

    shape = (*x[:2], *size)
    return Problem(Gradient(y, (xs,)), drawn(X=x, H=shape), ("X",), numpy, torch, jax)


def _weights(old: int, new: int, linear: bool) -> tuple[Array, Array, Array]:
    """For each new place the two old ones between which it lies, and the share of the second."""
    place = np.arange(new)
    if not linear:
        low = place * old // new
        return low, low, np.zeros(new, np.float32)
    low, share = divmod(place * (old - 1), new - 1)
    return low, np.minimum(low + 1, old - 1), (share / (new - 1)).astype(np.float32)


def _matrix(plan: tuple[Array, Array, Array], old: int) -> Array:
    """The same as a matrix of new places by old ones."""
    low, high, share = plan
    matrix = np.zeros((len(low), old))
    np.add.at(matrix, (np.arange(len(low)), low), 1.0 - share)
    np.add.at(matrix, (np.arange(len(low)), high), share)
    return matrix


FAMILIES: dict[str, Callable[[Random], Make]] = {
    "conv": convolution,
    "max pool": max_pooling,
    "contraction": contraction,
    "stencil": stencil,
    "softmax": partial(rows, known.softmax),
    "resize": resize,
    "average pool": average_pooling,
    "layer norm": partial(rows, known.layer_norm),
    "logsumexp": partial(rows, known.logsumexp),
    "running sum": partial(rows, known.cumsum),
}
