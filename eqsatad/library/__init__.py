"""Operators ready to use: forward definitions only, on the same front end as a user's own.

An operator is a function from tensors to a stage. Its gradient is not written anywhere: it comes
out of `differentiate`, and reads like any other.
"""

from eqsatad.library.convolution import conv1d, conv2d, conv2d_transpose, conv3d
from eqsatad.library.extents import extents
from eqsatad.library.linear_algebra import batched_matmul, dense, matmul
from eqsatad.library.normalisation import (
    cross_entropy,
    layer_norm,
    log_softmax,
    logsumexp,
    relu,
    softmax,
)
from eqsatad.library.pooling import avg_pool, global_avg_pool, max_pool
from eqsatad.library.reductions import cumsum, max, mean, sum
from eqsatad.library.shapes import (
    broadcast_to,
    concatenate,
    embedding,
    flatten,
    pad,
    pixel_shuffle,
    reshape,
    split,
    take,
    transpose,
    upsample_bilinear,
)

__all__ = [
    "avg_pool",
    "batched_matmul",
    "broadcast_to",
    "concatenate",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "cross_entropy",
    "cumsum",
    "dense",
    "embedding",
    "extents",
    "flatten",
    "global_avg_pool",
    "layer_norm",
    "log_softmax",
    "logsumexp",
    "matmul",
    "max",
    "max_pool",
    "mean",
    "pad",
    "pixel_shuffle",
    "relu",
    "reshape",
    "softmax",
    "split",
    "sum",
    "take",
    "transpose",
    "upsample_bilinear",
]
