"""Every small convolution: kernels, strides, dilations of 1 to 3 and paddings of 0 to 2.

``T(N, K, s, d, p)`` is how often a tap lies inside the input along one axis; the products of it
over the axes are the multiplications that neither gradient can do without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import eqsatad as ea
from eqsatad import library as nn
from eqsatad.terms.nodes import Stage, Tensor

CHANNELS, FILTERS, SIZE = 2, 3, (9, 8)


@dataclass(frozen=True)
class Convolution:
    """One convolution of (1, 2, 9, 8); depthwise keeps the channels apart."""

    kernel: int
    stride: int
    dilation: int
    pad: int
    depthwise: bool

    @property
    def id(self) -> str:
        """The name of the case."""
        kind = "depthwise" if self.depthwise else "conv"
        return f"{kind}-k{self.kernel}-s{self.stride}-d{self.dilation}-p{self.pad}"

    def outputs(self, size: int) -> int:
        """How many outputs an axis of ``size`` has; not positive when the kernel does not fit."""
        return (size + 2 * self.pad - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    def taps(self, size: int) -> int:
        """``T(N, K, s, d, p)``: the pairs of an output and a tap that read an element."""
        outputs = self.outputs(size)
        return taps(size, outputs, self.kernel, self.stride, self.dilation, self.pad)

    @property
    def multiplications(self) -> int:
        """What the gradient with respect to one operand needs."""
        pairs = CHANNELS if self.depthwise else CHANNELS * FILTERS
        return pairs * self.taps(SIZE[0]) * self.taps(SIZE[1])

    def build(self) -> tuple[Stage, Tensor, Tensor]:
        """The output, the input and the weights."""
        x = ea.placeholder((1, CHANNELS, *SIZE), name="X", dtype="float64")
        shape = (CHANNELS, 1) if self.depthwise else (FILTERS, CHANNELS)
        w = ea.placeholder((*shape, self.kernel, self.kernel), name="W", dtype="float64")
        y = nn.conv2d(
            x,
            w,
            stride=self.stride,
            dilation=self.dilation,
            pad=self.pad,
            groups=CHANNELS if self.depthwise else 1,
        )
        return y, x, w


def taps(size: int, outputs: int, kernel: int, stride: int, dilation: int, before: int) -> int:
    """The pairs of an output ``o`` and a tap ``k`` with ``0 <= o*stride + k*dilation - before``
    below ``size``."""
    total = 0
    for k in range(kernel):
        shift = before - k * dilation
        last = min(outputs - 1, (size - 1 + shift) // stride)
        total += max(0, last - max(0, -(-shift // stride)) + 1)
    return total


def convolutions() -> Iterator[Convolution]:
    """All cases whose output is not empty."""
    ranges = ((1, 2, 3), (1, 2, 3), (1, 2, 3), (0, 1, 2), (False, True))
    for options in product(*ranges):
        case = Convolution(*options)
        if min(map(case.outputs, SIZE)) > 0:
            yield case
