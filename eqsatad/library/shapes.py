"""Operators that move elements: reshape, transpose, concatenate, take, pad, upsample and kin.

Only forward definitions, written as index maps with ``//`` and ``%`` where the mathematics has
them; taking those out of loops is the business of the rules. Nothing here copies by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from eqsatad.errors import ShapeError
from eqsatad.library.extents import (
    Extent,
    agree,
    axis_number,
    extents,
    per_axis,
    spelled,
    written,
)
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Expr, Stage, Tensor


def reshape(
    x: Tensor, shape: Sequence[Extent], *, truncate: bool = False, name: str = "reshape"
) -> Stage:
    """The elements of ``x`` in row-major order under another shape.

    With ``truncate`` the new shape may hold fewer elements; the first ones are taken.
    """
    old, new = extents(x), tuple(shape)
    have, want = total(old), total(new)
    if isinstance(have, int) and isinstance(want, int):
        fits = want <= have if truncate else want == have
        if not fits:
            raise ShapeError(
                f"{x.name} {spelled(x)} has {have} elements and cannot become "
                f"({', '.join(map(written, new))}), which has {want}."
            )
    return ea.compute(new, lambda *i: x[unflatten(flat_index(i, new), old)], name=name)


def flatten(x: Tensor, name: str = "flatten") -> Stage:
    """``x`` as (first extent, all the others)."""
    first, *rest = extents(x)
    return reshape(x, (first, total(rest)), name=name)


def total(shape: Sequence[Extent]) -> Extent:
    """How many elements ``shape`` has."""
    count: Extent = 1
    for size in shape:
        count = count * size
    return count


def flat_index(index: Sequence[Expr], shape: Sequence[Extent]) -> Expr:
    """The row-major position of ``index``."""
    position: Expr = ea.const(0)
    for i, size in zip(index, shape, strict=True):
        position = position * size + i
    return position


def unflatten(position: Expr, shape: Sequence[Extent]) -> tuple[Expr, ...]:
    """The index of the row-major ``position``; the first one is not wrapped."""
    index: list[Expr] = []
    for size in reversed(shape[1:]):
        index.append(position % size)
        position = position // size
    return (position, *reversed(index)) if shape else ()


def transpose(x: Tensor, axes: Sequence[int] | None = None, name: str = "transpose") -> Stage:
    """``x`` with its axes in the order ``axes``; reversed when not given."""
    shape = extents(x)
    order = tuple(reversed(range(len(shape)))) if axes is None else tuple(axes)
    if sorted(order) != list(range(len(shape))):
        raise ShapeError(f"axes must name each axis of {x.name} {spelled(x)} once, found {order}.")
    place = [order.index(n) for n in range(len(shape))]
    return ea.compute(
        [shape[n] for n in order], lambda *i: x[tuple(i[p] for p in place)], name=name
    )


def concatenate(tensors: Sequence[Tensor], axis: int = 0, name: str = "concatenate") -> Stage:
    """The tensors one after the other along ``axis``."""
    if not tensors:
        raise ShapeError("concatenate takes at least one tensor.")
    axis = axis_number(tensors[0], axis)
    shapes = [extents(x, len(tensors[0].shape)) for x in tensors]
    for x, shape in zip(tensors[1:], shapes[1:], strict=True):
        for n, (a, b) in enumerate(zip(shapes[0], shape, strict=True)):
            if n != axis:
                agree(f"the extents of axis {n}", a, b, tensors[0], x)
    ends = list(accumulate((shape[axis] for shape in shapes), lambda a, b: a + b))

    def body(*i: Axis) -> Expr:
        value = _along(tensors[-1], i, axis, ends[-2] if len(ends) > 1 else 0)
        for x, end, size in reversed(list(zip(tensors, ends, shapes, strict=True))[:-1]):
            value = ea.select(i[axis] < end, _along(x, i, axis, end - size[axis]), value)
        return value

    return ea.compute(
        [ends[-1] if n == axis else size for n, size in enumerate(shapes[0])], body, name=name
    )


def split(x: Tensor, parts: int | Sequence[int], axis: int = 0, name: str = "split") -> list[Stage]:
    """``x`` cut along ``axis`` into ``parts`` equal pieces, or into pieces of given extents."""
    axis = axis_number(x, axis)
    size = extents(x)[axis]
    if not isinstance(size, int):
        raise ShapeError(f"split needs a known extent, found {written(size)} in {spelled(x)}.")
    pieces = [size // parts] * parts if isinstance(parts, int) else list(parts)
    if sum(pieces) != size or min(pieces) < 1:
        raise ShapeError(f"axis {axis} of {x.name} {spelled(x)} cannot be cut into {parts}.")
    starts = [0, *accumulate(pieces)]

    def piece(number: int) -> Stage:
        shape = [pieces[number] if n == axis else s for n, s in enumerate(extents(x))]
        return ea.compute(
            shape, lambda *i: _along(x, i, axis, -starts[number]), name=f"{name}_{number}"
        )

    return [piece(number) for number in range(len(pieces))]


def _along(x: Tensor, index: Sequence[Expr], axis: int, back: Extent) -> Expr:
    """``x`` at ``index``, moved ``back`` along ``axis``."""
    return x[tuple(i - back if n == axis else i for n, i in enumerate(index))]


def broadcast_to(x: Tensor, shape: Sequence[Extent], name: str = "broadcast_to") -> Stage:
    """``x`` repeated to ``shape``, matched from the last axis; extents of 1 are repeated."""
    old, new = extents(x), tuple(shape)
    lead = len(new) - len(old)
    if lead < 0:
        raise ShapeError(
            f"{x.name} {spelled(x)} has more dimensions than the {len(new)} asked for."
        )
    for have, want in zip(old, new[lead:], strict=True):
        if have != 1:
            agree("repeated extents", have, want, x)

    def body(*i: Axis) -> Expr:
        return x[tuple(ea.const(0) if size == 1 else i[lead + n] for n, size in enumerate(old))]

    return ea.compute(new, body, name=name)


def pad(
    x: Tensor, widths: Sequence[tuple[int, int]], value: float = 0.0, name: str = "pad"
) -> Stage:
    """``x`` with (before, after) elements of ``value`` around it, one pair per axis."""
    shape = extents(x)
    if len(widths) != len(shape) or any(min(pair) < 0 for pair in widths):
        raise ShapeError(
            f"expected one (before, after) pair per axis of {x.name} {spelled(x)}, found {widths}."
        )
    return ea.compute(
        [before + n + after for n, (before, after) in zip(shape, widths, strict=True)],
        lambda *i: x.get(
            *(j - before for j, (before, _) in zip(i, widths, strict=True)), outside=value
        ),
        name=name,
    )


def take(x: Tensor, indices: Tensor, axis: int = 0, name: str = "take") -> Stage:
    """The slices of ``x`` along ``axis`` at the integer ``indices``, which must be in range."""
    axis = axis_number(x, axis)
    shape, places = extents(x), extents(indices)

    def body(*i: Axis) -> Expr:
        here = ea.cast(indices[i[axis : axis + len(places)]], "index")
        return x[(*i[:axis], here, *i[axis + len(places) :])]

    return ea.compute((*shape[:axis], *places, *shape[axis + 1 :]), body, name=name)


def embedding(table: Tensor, indices: Tensor, name: str = "embedding") -> Stage:
    """The rows of ``table`` at the integer ``indices``."""
    extents(table, 2)
    return take(table, indices, axis=0, name=name)


def pixel_shuffle(x: Tensor, factor: int, name: str = "pixel_shuffle") -> Stage:
    """Blocks of ``factor * factor`` channels laid out as squares of pixels."""
    batch, channels, height, width = extents(x, 4)
    block = factor * factor
    if isinstance(channels, int) and channels % block:
        raise ShapeError(f"the {channels} channels of {x.name} are not a multiple of {block}.")

    def body(n: Axis, c: Axis, u: Axis, v: Axis) -> Expr:
        place = c * block + u % factor * factor + v % factor
        return x[n, place, u // factor, v // factor]

    return ea.compute((batch, channels // block, height * factor, width * factor), body, name=name)


def upsample_bilinear(x: Tensor, factor: int = 2, name: str = "upsample_bilinear") -> Stage:
    """Bilinear interpolation to ``factor`` times the size: half-pixel centres, clamped edges."""
    extents(x, 4)
    (factor,) = per_axis("factor", factor, 1)
    return _stretch(_stretch(x, 2, factor, f"{name}_rows"), 3, factor, name)


def _stretch(x: Tensor, axis: int, factor: int, name: str) -> Stage:
    """Linear interpolation along one axis, which is cheaper than along two at once."""
    shape = extents(x)
    last = shape[axis] - 1

    def at(index: Sequence[Expr], position: Expr | int) -> Expr:
        return x[(*index[:axis], position, *index[axis + 1 :])]

    def at_residue(index: Sequence[Expr], residue: int) -> Expr:
        """The elements that lie ``residue`` after a multiple of the factor."""
        low = index[axis] // factor
        # In units of 1/(2 factor), the centre of the output past that of the input below it.
        offset = 2 * residue + 1 - factor
        if offset == 0:
            return at(index, low)
        near, inside = (low + 1, low < last) if offset > 0 else (low - 1, low > 0)
        slope = ea.select(inside, at(index, near) - at(index, low), 0.0)
        return at(index, low) + abs(offset) / (2 * factor) * slope

    def body(*i: Axis) -> Expr:
        value: Expr = ea.const(0.0, x.dtype)
        for residue in range(factor):
            here = (i[axis] % factor).equal(residue)
            value = value + ea.select(here, at_residue(i, residue), 0.0)
        return value

    return ea.compute(
        [size * factor if n == axis else size for n, size in enumerate(shape)], body, name=name
    )
