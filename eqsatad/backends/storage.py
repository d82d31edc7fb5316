"""How the elements of arrays lie in memory.

NumPy has no bfloat16. Such an array is float32 (rounded on the way in) or holds the 16 bits as
uint16 or as an extension type named bfloat16; results are float32 unless ``out=`` holds bits.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.generic]

# How a buffer of each dtype lies in memory. bfloat16 is its upper 16 bits.
STORAGE: dict[str, np.dtype[np.generic]] = {
    name: np.dtype("uint16" if name == "bfloat16" else name)
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "bool")
}


def to_bits(array: Array) -> Array:
    """The upper 16 bits of float32 values, rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(array).view("uint32").reshape(array.shape)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(array), (bits >> 16) | 0x40, rounded).astype("uint16")


def from_bits(bits: Array) -> Array:
    """The float32 values whose upper 16 bits are ``bits``."""
    wide = bits.astype("uint32") << np.uint32(16)
    return wide.view("float32").reshape(bits.shape)
