"""Operators drawn at random, each with the multiplications that its gradients cannot do without.

A family draws parameters and builds the operator. Its formulas count pairs of an output and an
input element that meet: nothing is multiplied by a zero of a border. Along one spatial axis

* a window has ``T`` pairs of an output ``o`` and a tap ``k`` with ``0 <= o*s + k*d - p < N``; a tap
  meets the outputs from ``ceil((p - k*d)/s)`` to ``(N - 1 + p - k*d) // s`` inside ``[0, O)``;
* *reached* elements are those that some window meets, *live* outputs those whose window meets one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import gcd, prod
from random import Random

import numpy as np

import eqsatad as ea
from benchmarks.convolution_cases import taps
from eqsatad import library as nn
from eqsatad.extract.cost import COUNT, CostModel
from eqsatad.library.rearrange import at
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Axis, Expr, Placeholder, Stage, Tensor
from eqsatad.terms.walk import constant, program

PRODUCTS = CostModel(
    "products", multiply=1, divide=1, call=1, add=1e-4, negate=1e-6, guard=1e-7, read=1e-9,
    store=1e-7, visit=0,
)  # fmt: skip
"""Multiplications alone: a scaled copy costs what it multiplies, and nothing for its loop."""

LARGEST, KERNELS, STRIDES, DILATIONS = 40, 7, 5, 4
MOST_PAIRS = 400_000

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operator:
    """An operator, in words, and the multiplications of its gradients by input.

    Where ``least`` is given, a gradient may take fewer than that number, but no fewer than these.

    ``step`` is that of central differences: any for what is linear or quadratic. ``divisions`` are
    those of indices that innermost loops may make, ``conditions`` their tests of indices; None is
    any number.
    """

    text: str
    output: Stage
    products: Mapping[Tensor, int]
    pairs: int
    cost: CostModel = COUNT
    step: float = 1.0
    divisions: int | None = 0
    conditions: int | None = 0
    least: int | None = None


def array(name: str, *shape: int) -> Tensor:
    """An input of double precision."""
    return ea.placeholder(shape, name=name, dtype="float64")


@dataclass(frozen=True)
class Line:
    """How windows lie along one axis: output ``o`` and tap ``k`` meet ``o*s + k*d - before``."""

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def outputs(self) -> int:
        """How many windows there are; not positive where none fits."""
        span = self.dilation * (self.kernel - 1) + 1
        return (self.size + self.before + self.after - span) // self.stride + 1

    @property
    def pairs(self) -> int:
        """``T``: the sum over the taps of how many outputs they meet."""
        return taps(self.size, self.outputs, self.kernel, self.stride, self.dilation, self.before)

    def met(self) -> list[tuple[int, int]]:
        """Each output with each element it meets."""
        places = (
            (o, o * self.stride + k * self.dilation - self.before)
            for o in range(self.outputs)
            for k in range(self.kernel)
        )
        return [(o, i) for o, i in places if 0 <= i < self.size]

    @property
    def reached(self) -> int:
        """How many elements lie in a window."""
        return len({i for _, i in self.met()})

    @property
    def live(self) -> int:
        """How many windows hold an element."""
        return len({o for o, _ in self.met()})

    @property
    def grid(self) -> int:
        """How many places lie from the first element met to the last, at the steps taken."""
        places = [i for _, i in self.met()]
        steps = (
            self.stride if self.outputs > 1 else 0,
            self.dilation if self.kernel > 1 else 0,
        )
        return (max(places) - min(places)) // (gcd(*steps) or 1) + 1 if places else 0

    @property
    def fewer(self) -> int:
        """The smaller of what is reached and what is live."""
        return min(self.reached, self.live)

    @property
    def stored(self) -> int:
        """The smaller of what is paired and what a copy of what is met holds."""
        return min(self.pairs, self.grid)

    def __str__(self) -> str:
        return (
            f"N={self.size} K={self.kernel} s={self.stride} d={self.dilation} "
            f"p=({self.before}, {self.after})"
        )


def line(rng: Random, largest: int, *, kernel: int = KERNELS, padded: bool = True) -> Line:
    """A drawn axis whose windows fit."""
    while True:
        before, after = (rng.choice((0, rng.randint(0, kernel))) for _ in range(2))
        found = Line(
            rng.randint(1, largest),
            rng.randint(1, kernel),
            rng.randint(1, STRIDES),
            rng.choice((1, rng.randint(1, DILATIONS))),
            before if padded else 0,
            after if padded else 0,
        )
        if found.outputs > 0:
            return found


def lines(rng: Random) -> list[Line]:
    """One to three drawn axes of a size that can be run."""
    rank = rng.choice((1, 1, 2, 2, 2, 3))
    while True:
        found = [line(rng, (LARGEST, LARGEST, 14)[rank - 1]) for _ in range(rank)]
        if prod(axis.pairs for axis in found) <= MOST_PAIRS:
            return found


def total(what: str, over: Sequence[Line]) -> int:
    """The product over the axes of one of their counts."""
    return prod(getattr(axis, what) for axis in over)


# Convolutions: each pair of a head element and a weight, or an input element, that meet is one
# product, and no two products share both factors: batch * groups * (filters and channels of a
# group) * prod(T), for either gradient.


def convolution(rng: Random) -> Operator:
    """A convolution with groups; its border is a value of the read or a stage of its own."""
    over = lines(rng)
    batch, groups, filters, channels = (rng.randint(1, 3) for _ in range(4))
    x = array("X", batch, groups * channels, *(axis.size for axis in over))
    w = array("W", groups * filters, channels, *(axis.kernel for axis in over))
    pads = [(axis.before, axis.after) for axis in over]
    apart = rng.random() < 0.3
    conv = (nn.conv1d, nn.conv2d, nn.conv3d)[len(over) - 1]
    output = conv(
        nn.pad(x, [(0, 0), (0, 0), *pads]) if apart else x,
        w,
        stride=[axis.stride for axis in over],
        dilation=[axis.dilation for axis in over],
        pad=0 if apart else pads,
        groups=groups,
    )
    pairs = batch * groups * filters * channels * total("pairs", over)
    text = f"convolution, batch {batch}, {groups} groups of {channels} channels and {filters} "
    text += f"filters{', padded apart' if apart else ''}: {'; '.join(map(str, over))}"
    return Operator(text, output, {x: pairs, w: pairs}, pairs)


def transposed(rng: Random) -> Operator:
    """The adjoint of a convolution: element ``o`` of the input meets output ``o*s + k*d - p``."""
    over = lines(rng)
    batch, filters, channels = (rng.randint(1, 3) for _ in range(3))
    x = array("X", batch, channels, *(axis.outputs for axis in over))
    w = array("W", channels, filters, *(axis.kernel for axis in over))
    c = ea.reduce_axis((0, channels), name="c")
    at_taps = [ea.reduce_axis((0, axis.kernel), name=f"k{n}") for n, axis in enumerate(over)]
    moved = [ea.reduce_axis((0, axis.outputs), name=f"o{n}") for n, axis in enumerate(over)]
    equation = rng.random() < 0.5

    def summed(n: Axis, f: Axis, *out: Axis) -> Expr:
        meets = [
            (o * axis.stride + k * axis.dilation - axis.before).equal(u)
            for axis, o, k, u in zip(over, moved, at_taps, out, strict=True)
        ]
        value = x[n, c, *moved] * w[c, f, *at_taps]
        return ea.sum(value, axis=(c, *moved, *at_taps), where=ea.all_of(*meets))

    def divided(n: Axis, f: Axis, *out: Axis) -> Expr:
        offsets = [
            u + axis.before - k * axis.dilation
            for axis, k, u in zip(over, at_taps, out, strict=True)
        ]
        where = [offset // axis.stride for axis, offset in zip(over, offsets, strict=True)]
        inside = [
            cond
            for axis, offset, o in zip(over, offsets, where, strict=True)
            for cond in ((offset % axis.stride).equal(0), o >= 0, o < axis.outputs)
        ]
        value = ea.select(ea.all_of(*inside), x[n, c, *where], 0.0)
        return ea.sum(value * w[c, f, *at_taps], axis=(c, *at_taps))

    shape = (batch, filters, *(axis.size for axis in over))
    output = ea.compute(shape, summed if equation else divided, name="Y")
    pairs = batch * filters * channels * total("pairs", over)
    text = f"transposed convolution by {'an equation' if equation else 'a quotient'}, batch {batch}"
    text += f", {channels} channels, {filters} filters: {'; '.join(map(str, over))}"
    return Operator(text, output, {x: pairs, w: pairs}, pairs)


# Pooling. A sum multiplies nothing. A mean scales by one constant: each reached element or each
# output, whichever are fewer, at most. Sums over windows are made one axis after the other, and the
# constant may come between them: min(reached, live) along each axis, at least. Where borders are
# not counted divisors differ, and each live output is divided by its own. The squares of a sum of
# squares give 2*x times a sum of heads: one product for each reached element, since 2*h is h + h,
# or for each pair where those are fewer than the elements, of which some may not be reached.
# Its root needs the sum again: a product for each pair, or for each place of a copy, whichever are
# fewer along an axis; and it scales each live head by the inverse root, which is a call and a
# product more. The maximum moves heads to where it was found: no product.


def summing(rng: Random) -> Operator:
    """The sum over each window."""
    over = lines(rng)
    return _pooled(rng, "sum", over, lambda out, total: total, 0)


def averaging(rng: Random) -> Operator:
    """The mean over each window, zeros of the border counted."""
    over = lines(rng)
    size = prod(axis.kernel for axis in over)
    most = min(total("reached", over), total("outputs", over)) if size > 1 else 0
    least = total("fewer", over) if size > 1 else 0
    return _pooled(rng, "mean", over, lambda out, total: total / float(size), most, least)


def averaging_inside(rng: Random) -> Operator:
    """The mean over what each window holds."""
    while True:
        over = [replace(axis, dilation=1) for axis in lines(rng)]
        if all(max(axis.before, axis.after) < axis.kernel for axis in over) and _full(over):
            break

    def held(out: Sequence[Axis], total: Expr) -> Expr:
        starts = [o * axis.stride - axis.before for o, axis in zip(out, over, strict=True)]
        counts = [
            ea.minimum(start + axis.kernel, axis.size) - ea.maximum(start, 0)
            for start, axis in zip(starts, over, strict=True)
        ]
        return total / ea.cast(prod(counts[1:], start=counts[0]), "float64")

    return _pooled(rng, "mean of those inside", over, held, total("live", over))


def squares(rng: Random) -> Operator:
    """The sum of squares over each window."""
    over = lines(rng)
    reached, elements = total("reached", over), total("size", over)
    most = max(reached, min(total("pairs", over), elements))
    return _pooled(rng, "squares", over, lambda out, total: total, most, reached)


def norms(rng: Random) -> Operator:
    """The root of the sum of squares over each window."""
    over = _draw(rng, _full)
    each = total("stored", over) + 2 * total("live", over)
    reached, elements = total("reached", over), total("size", over)
    most = each + max(reached, min(total("pairs", over), elements))
    found = _pooled(
        rng, "root of squares", over, lambda out, total: ea.sqrt(total), most, each + reached
    )
    return replace(found, step=1e-5)


def maximum(rng: Random) -> Operator:
    """The largest element of each window."""
    over = _draw(rng, _full)
    return replace(
        _pooled(rng, "max", over, lambda out, total: total, 0), step=1e-7, divisions=None
    )


def _full(over: Sequence[Line]) -> bool:
    """Whether every window holds an element."""
    return all(axis.live == axis.outputs for axis in over)


def _draw(rng: Random, wanted: Callable[[Sequence[Line]], bool]) -> list[Line]:
    while not wanted(over := lines(rng)):
        pass
    return over


def _pooled(
    rng: Random,
    kind: str,
    over: Sequence[Line],
    finish: Callable[[Sequence[Axis], Expr], Expr],
    most: int,
    least: int | None = None,
) -> Operator:
    """What ``finish`` makes of the reduction over each window; a plane takes ``most`` products."""
    batch = rng.randint(1, 3)
    x = array("X", batch, *(axis.size for axis in over))
    at_taps = [ea.reduce_axis((0, axis.kernel), name=f"k{n}") for n, axis in enumerate(over)]

    def body(n: Axis, *out: Axis) -> Expr:
        where = [
            o * axis.stride + k * axis.dilation - axis.before
            for axis, o, k in zip(over, out, at_taps, strict=True)
        ]
        conds = [
            cond
            for axis, place in zip(over, where, strict=True)
            for cond in (place >= 0, place < axis.size)
        ]
        inside, value = ea.all_of(*conds), x[n, *where]
        if kind == "max":
            return finish(out, ea.max(value, axis=at_taps, where=inside))
        value = value * value if "squares" in kind else value
        return finish(out, ea.sum(ea.select(inside, value, 0.0), axis=at_taps))

    output = ea.compute((batch, *(axis.outputs for axis in over)), body, name="Y")
    return Operator(
        f"{kind} over windows, batch {batch}: {'; '.join(map(str, over))}",
        output,
        {x: batch * most},
        batch * total("pairs", over),
        PRODUCTS,
        least=None if least is None else batch * least,
    )


# Windows from floor(i*n/m) to ceil((i+1)*n/m): their sum multiplies nothing, their mean divides
# each of the m heads once; where all hold r elements the other way is to scale the n sums of heads.


def adaptive(rng: Random) -> Operator:
    """The sum or the mean over windows that cover an axis, of which each meets at most two."""
    rows, n, m = rng.randint(1, 4), rng.randint(1, LARGEST), rng.randint(1, LARGEST)
    averaged = rng.random() < 0.5
    starts, ends = [i * n // m for i in range(m)], [-(-(i + 1) * n // m) for i in range(m)]
    held = [end - start for start, end in zip(starts, ends, strict=True)]
    x = array("X", rows, n)
    k = ea.reduce_axis((0, max(held)), name="k")

    def body(row: Axis, i: Axis) -> Expr:
        start, end = i * n // m, (i * n + n + m - 1) // m
        found = ea.sum(x[row, start + k], axis=k, where=start + k < end)
        return found / ea.cast(end - start, "float64") if averaged else found

    products = 0 if not averaged or set(held) == {1} else min(n, m) if len(set(held)) == 1 else m
    # More than 16 divisors in turn are not unrolled: each head works its own out, of two quotients.
    divisions = 2 * rows * m if averaged and len(set(held)) > 1 and m // gcd(n, m) > 16 else 0
    text = f"{'mean' if averaged else 'sum'} over {m} windows of ({rows}, {n})"
    output = ea.compute((rows, m), body, name="Y")
    return Operator(text, output, {x: rows * products}, rows * sum(held), PRODUCTS, 1.0, divisions)


# Elements moved. A factor on the result is multiplied by each head that arrives: as many products
# as the result has elements of the input (``arriving``). A factor on the input, or a constant, is
# multiplied once for each element that is moved anywhere (``moved``), after the heads are summed.


@dataclass(frozen=True)
class Move:
    """An operator that moves elements: how many, and to how many places.

    ``beside`` are the places that elements of other tensors take, ``digits`` says that positions
    are taken apart as numbers are into digits, ``ragged`` that too many digits are out of step to
    be unrolled.
    """

    text: str
    shape: Shape
    apply: Callable[[Tensor], Stage]
    moved: int
    arriving: int
    beside: int = 0
    digits: bool = False
    ragged: bool = False


def any_shape(rng: Random) -> Shape:
    """One to four extents."""
    rank = rng.randint(1, 4)
    return tuple(rng.randint(1, (LARGEST, LARGEST, 14, 7)[rank - 1]) for _ in range(rank))


def one_to_one(text: str, apply: Callable[[Tensor], Stage], shape: Shape) -> Move:
    """A move of every element to one place."""
    return Move(text, shape, apply, prod(shape), prod(shape))


def sliced(rng: Random, shape: Shape) -> Move:
    """A slice of steps up to 5 in either direction: as many elements as Python's slice has."""
    axis = rng.randrange(len(shape))
    while True:
        start, stop = (rng.choice((None, rng.randint(-shape[axis], shape[axis]))) for _ in "ab")
        step = rng.choice((-1, 1)) * rng.randint(1, STRIDES)
        if count := len(range(shape[axis])[start:stop:step]):
            break
    number = prod(shape) // shape[axis] * count
    return Move(
        f"slice [{start}:{stop}:{step}] of axis {axis}",
        shape,
        lambda x: nn.strided_slice(x, start, stop, step, axis),
        number,
        number,
    )


def concatenated(rng: Random, shape: Shape) -> Move:
    """Before, between or after other tensors."""
    axis = rng.randrange(len(shape))
    sizes = [rng.randint(1, 9) for _ in range(rng.randint(1, 2))]
    shapes = [tuple(size if a == axis else n for a, n in enumerate(shape)) for size in sizes]
    others = [array(f"Z{n}_{'x'.join(map(str, new))}", *new) for n, new in enumerate(shapes)]
    place = rng.randint(0, len(others))

    def apply(x: Tensor) -> Stage:
        return nn.concatenate([*others[:place], x, *others[place:]], axis)

    text = f"concatenation {place} with {sizes} along {axis}"
    beside = prod(shape) // shape[axis] * sum(sizes)
    return replace(one_to_one(text, apply, shape), beside=beside)


def padded(rng: Random, shape: Shape) -> Move:
    """Zeros around every axis, which move nowhere."""
    widths = [(rng.randint(0, KERNELS), rng.choice((0, rng.randint(0, KERNELS)))) for _ in shape]
    return one_to_one(f"pad {widths}", lambda x: nn.pad(x, widths), shape)


def bordered(rng: Random, shape: Shape) -> Move:
    """A border of mirrored, repeated or wrapped elements: every place of the result is one's."""
    axis = rng.randrange(len(shape))
    size = shape[axis]
    kind = rng.choice(("reflect", "edge", "wrap"))
    width = rng.randint(0, {"reflect": size - 1, "edge": KERNELS, "wrap": size}[kind])

    def wrapped(x: Tensor) -> Stage:
        new = [n + 2 * width if a == axis else n for a, n in enumerate(shape)]
        return ea.compute(new, lambda *i: x[at(i, axis, (i[axis] - width) % size)], name="wrapped")

    applied: dict[str, Callable[[Tensor], Stage]] = {
        "reflect": lambda x: nn.pad_reflect(x, width, axis),
        "edge": lambda x: nn.pad_edge(x, width, axis),
        "wrap": wrapped,
    }
    arriving = prod(shape) // size * (size + 2 * width)
    return Move(f"{kind} {width} of axis {axis}", shape, applied[kind], prod(shape), arriving)


def reshaped(rng: Random, shape: Shape) -> Move:
    """The same elements under another shape."""
    new = [1] * rng.randint(1, 4)
    for factor in factors(prod(shape)):
        new[rng.randrange(len(new))] *= factor
    move = one_to_one(f"reshape to {new}", lambda x: nn.reshape(x, new), shape)
    return replace(move, digits=True, ragged=ragged(shape, new))


def ragged(old: Sequence[int], new: Sequence[int]) -> bool:
    """Whether rows of two shapes end at different places, and some are longer than 16."""
    ends = sorted({prod(shape[n:]) for shape in (old, new) for n in range(1, len(shape))})
    out_of_step = any(b % a for a, b in pairwise(ends))
    return out_of_step and max((*old[1:], *new[1:])) > 16


def factors(number: int) -> list[int]:
    """The prime factors of ``number``."""
    found = []
    for prime in range(2, number + 1):
        while number % prime == 0:
            found.append(prime)
            number //= prime
    return found


def transposed_axes(rng: Random, shape: Shape) -> Move:
    """The axes in another order."""
    order = rng.sample(range(len(shape)), len(shape))
    return one_to_one(f"transpose {order}", lambda x: nn.transpose(x, order), shape)


def flipped(rng: Random, shape: Shape) -> Move:
    """An axis backwards."""
    axis = rng.randrange(len(shape))
    return one_to_one(f"flip axis {axis}", lambda x: nn.flip(x, axis), shape)


def rolled(rng: Random, shape: Shape) -> Move:
    """An axis turned."""
    axis, shift = rng.randrange(len(shape)), rng.randint(-LARGEST, LARGEST)
    return one_to_one(f"roll axis {axis} by {shift}", lambda x: nn.roll(x, shift, axis), shape)


def repeated(rng: Random, shape: Shape) -> Move:
    """The tensor, or each element, several times along an axis: each time is an arrival."""
    axis, times, whole = rng.randrange(len(shape)), rng.randint(1, 4), rng.random() < 0.5
    size = shape[axis]
    new = [n * times if a == axis else n for a, n in enumerate(shape)]

    def apply(x: Tensor) -> Stage:
        return ea.compute(
            new,
            lambda *i: x[at(i, axis, i[axis] % size if whole else i[axis] // times)],
            name="repeated",
        )

    text = f"{'tile' if whole else 'repeat'} axis {axis} {times} times"
    return Move(text, shape, apply, prod(shape), prod(new))


def shuffled(rng: Random, shape: Shape) -> Move:
    """Squares of pixels to channels and back, and channels of groups taken in turn."""
    kind, factor = rng.choice(sorted(SHUFFLES)), rng.randint(2, 3)
    grown = SHUFFLES[kind](factor, *(rng.randint(1, 4) for _ in range(4)))
    apply: Callable[[Tensor], Stage] = partial(getattr(nn, kind), **{KEYWORD[kind]: factor})
    return replace(one_to_one(f"{kind} by {factor}", apply, grown), digits=True)


SHUFFLES: dict[str, Callable[[int, int, int, int, int], Shape]] = {
    "pixel_shuffle": lambda by, n, c, h, w: (n, c * by**2, h, w),
    "space_to_depth": lambda by, n, c, h, w: (n, c, h * by, w * by),
    "channel_shuffle": lambda by, n, c, h, w: (n, c * by, h, w),
}
KEYWORD = {"pixel_shuffle": "factor", "space_to_depth": "factor", "channel_shuffle": "groups"}

MOVES: dict[str, Callable[[Random, Shape], Move]] = {
    "slice": sliced,
    "concatenate": concatenated,
    "pad": padded,
    "border": bordered,
    "reshape": reshaped,
    "transpose": transposed_axes,
    "flip": flipped,
    "roll": rolled,
    "repeat": repeated,
    "shuffle": shuffled,
}


def moving(rng: Random) -> Operator:
    """One move and a factor."""
    move = MOVES[rng.choice(sorted(MOVES))](rng, any_shape(rng))
    made = _scaled(rng, move)
    return replace(made, divisions=None, conditions=None) if move.ragged else made


def chain(rng: Random) -> Operator:
    """Two moves one after the other and a factor; the elements are followed to be counted.

    Digits that another move cuts may cost divisions and tests, so none are asked about then. A
    constant may be multiplied where elements arrive: heads that are scattered are not summed first.
    """
    first = MOVES[rng.choice(sorted(MOVES))](rng, any_shape(rng))
    between = first.apply(array("X", *first.shape))
    shape = extents(between)
    while (second := MOVES[rng.choice(sorted(MOVES))](rng, shape)).shape != shape:
        pass
    both = Move(
        f"{first.text}, then {second.text}",
        first.shape,
        lambda x: second.apply(first.apply(x)),
        *followed(second.apply(between)),
    )
    made = _scaled(rng, both)
    if both.arriving > both.moved and made.cost is PRODUCTS:
        made = replace(made, products=dict.fromkeys(made.products, both.arriving), least=both.moved)
    return replace(made, divisions=None, conditions=None) if first.digits or second.digits else made


def followed(output: Stage) -> tuple[int, int, int]:
    """How many elements of ``X`` are in ``output``, how many places they take, and others."""
    given = {
        tensor.name: np.full(extents(tensor), -1.0)
        for tensor in program([output])
        if isinstance(tensor, Placeholder)
    }
    given["X"] = 1.0 + np.arange(given["X"].size).reshape(given["X"].shape)
    (found,) = evaluate([output], given)
    numbers = found[found > 0]
    return len(np.unique(numbers)), len(numbers), int((found < 0).sum())


def _scaled(rng: Random, move: Move) -> Operator:
    x = array("X", *move.shape)
    place = rng.choice(("after", "before", "constant"))
    text = f"{move.text} of {move.shape}, factor {place}"
    if place == "constant":
        moved = move.apply(x)
        output = ea.compute(extents(moved), lambda *i: moved[i] * 1.5, name="Y")
        return Operator(text, output, {x: move.moved}, move.arriving, PRODUCTS)
    if place == "before":
        c = array("C", *move.shape)
        output = move.apply(ea.compute(move.shape, lambda *i: x[i] * c[i], name="scaled"))
        return Operator(text, output, {x: move.moved, c: move.moved}, move.arriving)
    moved = move.apply(x)
    c = array("C", *extents(moved))
    output = ea.compute(extents(moved), lambda *i: moved[i] * c[i], name="Y")
    return Operator(text, output, {x: move.arriving, c: move.arriving + move.beside}, move.arriving)


def extents(tensor: Tensor) -> Shape:
    """The shape of ``tensor`` as numbers."""
    return tuple(int(size) for size in map(constant, tensor.shape) if size is not None)


FAMILIES: dict[str, Callable[[Random], Operator]] = {
    "convolution": convolution,
    "transposed": transposed,
    "sum": summing,
    "mean": averaging,
    "mean-inside": averaging_inside,
    "squares": squares,
    "norm": norms,
    "max": maximum,
    "adaptive": adaptive,
    "move": moving,
    "chain": chain,
}
WEIGHTS = (4, 2, 1, 1, 1, 1, 1, 2, 1, 5, 3)


def operator(seed: int, families: Sequence[str] = tuple(FAMILIES)) -> tuple[str, Operator]:
    """The operator of that number, and the name of its family."""
    rng = Random(seed)
    weights = [WEIGHTS[list(FAMILIES).index(name)] for name in families]
    (name,) = rng.choices(families, weights)
    return name, FAMILIES[name](rng)
