"""Convolutions over channels-first tensors, each one stage: padding is a border value of the read.

Only forward definitions. ``x`` is (batch, channels, *space), ``w`` (filters, channels per
group, *kernel). Nothing is padded into a copy, so a gradient visits only taps inside ``x``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsatad.errors import ShapeError
from eqsatad.library.extents import Extent, agree, extents, per_axis, written
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Axis, Expr, Stage, Tensor

Pads = int | Sequence[int | tuple[int, int]]


@dataclass(frozen=True)
class Window:
    """How one spatial axis is visited: position ``o * stride + tap * dilation - before``."""

    size: Extent
    taps: Extent
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def outputs(self) -> Extent:
        """How many positions the window takes."""
        span = self.dilation * (self.taps - 1) + 1
        count = (self.size + self.before + self.after - span) // self.stride + 1
        if isinstance(count, int) and count < 1:
            raise ShapeError(
                f"a window that spans {written(span)} does not fit {written(self.size)} elements "
                f"padded by {self.before} and {self.after}. Pad more, or use a smaller window."
            )
        return count

    def position(self, output: Expr, tap: Expr) -> Expr:
        """The index that ``tap`` reads for ``output``."""
        return output * self.stride + tap * self.dilation - self.before

    @property
    def padded(self) -> bool:
        """Whether a position may lie outside."""
        return self.before > 0 or self.after > 0


def windows(
    size: Sequence[Extent],
    taps: Sequence[Extent],
    *,
    stride: int | Sequence[int],
    pad: Pads,
    dilation: int | Sequence[int] = 1,
) -> tuple[Window, ...]:
    """One window per spatial axis."""
    rank = len(size)
    strides = per_axis("stride", stride, rank)
    dilations = per_axis("dilation", dilation, rank)
    return tuple(map(Window, size, taps, strides, dilations, *zip(*_pads(pad, rank), strict=True)))


def _pads(pad: Pads, rank: int) -> list[tuple[int, int]]:
    if isinstance(pad, int):
        pad = (pad,) * rank
    pairs = [(p, p) if isinstance(p, int) else tuple(p) for p in pad]
    if len(pairs) != rank or any(len(pair) != 2 or min(pair) < 0 for pair in pairs):
        raise ShapeError(
            f"pad must be one integer of at least 0, or {rank} integers or (before, after) pairs; "
            f"found {pad}."
        )
    return [(before, after) for before, after in pairs]


def conv1d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    stride: int | Sequence[int] = 1,
    pad: Pads = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    name: str = "conv1d",
) -> Stage:
    """``y[n,f,o] = sum(x[n, c, o*stride + i*dilation - pad] * w[f,c,i]) + bias[f]``."""
    return _conv(x, w, bias, 1, Options(stride, pad, dilation, groups, name))


def conv2d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    stride: int | Sequence[int] = 1,
    pad: Pads = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    name: str = "conv2d",
) -> Stage:
    """The convolution of `conv1d` over two spatial axes."""
    return _conv(x, w, bias, 2, Options(stride, pad, dilation, groups, name))


def conv3d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    stride: int | Sequence[int] = 1,
    pad: Pads = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    name: str = "conv3d",
) -> Stage:
    """The convolution of `conv1d` over three spatial axes."""
    return _conv(x, w, bias, 3, Options(stride, pad, dilation, groups, name))


@dataclass(frozen=True)
class Options:
    """What the convolutions of every rank take."""

    stride: int | Sequence[int]
    pad: Pads
    dilation: int | Sequence[int]
    groups: int
    name: str


def _conv(x: Tensor, w: Tensor, bias: Tensor | None, rank: int, options: Options) -> Stage:
    batch, channels, *size = extents(x, rank + 2)
    filters, depth, *taps = extents(w, rank + 2)
    if options.groups == 1:
        agree("the channels", channels, depth, x, w)
    if bias is not None:
        agree("the filters and the bias", filters, extents(bias, 1)[0], w, bias)
    over = windows(size, taps, stride=options.stride, pad=options.pad, dilation=options.dilation)
    shared = _filters_per_group(x, w, options.groups)
    c = ea.reduce_axis((0, depth), name="c")
    at = [ea.reduce_axis((0, k), name=name) for k, name in zip(taps, "ijk", strict=False)]

    def body(n: Axis, f: Axis, *out: Axis) -> Expr:
        channel = c if shared is None else f // shared * depth + c
        where = [window.position(o, i) for window, o, i in zip(over, out, at, strict=True)]
        total = ea.sum(read(x, (n, channel), where, over) * w[f, c, *at], axis=(c, *at))
        return total if bias is None else total + bias[f]

    return ea.compute((batch, filters, *(v.outputs for v in over)), body, name=options.name)


def read(x: Tensor, fixed: Sequence[Expr], where: Sequence[Expr], over: Sequence[Window]) -> Expr:
    """``x`` at ``fixed`` and ``where``; 0 outside where a window is padded."""
    value = x[*fixed, *where]
    if not any(window.padded for window in over):
        return value
    return ea.select(in_range(where, over), value, 0.0)


def in_range(where: Sequence[Expr], over: Sequence[Window]) -> Expr:
    """The condition that positions lie inside, stated for padded windows only."""
    return ea.all_of(
        *(
            cond
            for position, window in zip(where, over, strict=True)
            if window.padded
            for cond in (position >= 0, position < window.size)
        )
    )


def _filters_per_group(x: Tensor, w: Tensor, groups: int) -> Extent | None:
    """How many filters share their channels; None when all do."""
    if groups == 1:
        return None
    channels, (filters, depth) = extents(x)[1], extents(w)[:2]
    if not all(isinstance(n, int) for n in (channels, filters, depth)):
        raise ShapeError("grouped convolutions need known numbers of channels and filters.")
    if groups < 1 or channels != groups * depth or filters % groups:
        raise ShapeError(
            f"{groups} groups of {depth} channels must make the {channels} channels of {x.name} "
            f"and divide the {filters} filters of {w.name}."
        )
    return filters // groups


def conv2d_transpose(
    x: Tensor,
    w: Tensor,
    *,
    stride: int | Sequence[int] = 1,
    pad: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    output_pad: int | Sequence[int] = 0,
    name: str = "conv2d_transpose",
) -> Stage:
    """The adjoint of `conv2d` as an operator: ``w`` is (channels of x, filters, *kernel).

    ``y[n,f,u,v] = sum(x[n,c,o,q] * w[c,f,i,j])`` over ``o*stride + i*dilation - pad == u`` and
    likewise for ``q``, ``j`` and ``v``.
    """
    batch, channels, *size = extents(x, 4)
    depth, filters, *taps = extents(w, 4)
    agree("the channels", channels, depth, x, w)
    options = (
        per_axis("stride", stride, 2),
        per_axis("dilation", dilation, 2),
        per_axis("pad", pad, 2, least=0),
        per_axis("output_pad", output_pad, 2, least=0),
    )
    axes = list(zip(size, taps, *options, strict=True))
    shape = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + more for n, k, s, d, p, more in axes]
    c = ea.reduce_axis((0, channels), name="c")
    at = [ea.reduce_axis((0, k), name=name) for k, name in zip(taps, "ij", strict=True)]

    def body(n: Axis, f: Axis, *out: Axis) -> Expr:
        conds: list[Expr] = []
        where: list[Expr] = []
        for u, i, (limit, _, s, d, p, _) in zip(out, at, axes, strict=True):
            offset = u + p - i * d
            where.append(offset // s)
            conds += [(offset % s).equal(0), offset >= 0, offset // s < limit]
        value = ea.select(ea.all_of(*conds), x[n, c, *where], 0.0)
        return ea.sum(value * w[c, f, *at], axis=(c, *at))

    return ea.compute((batch, filters, *shape), body, name=name)
