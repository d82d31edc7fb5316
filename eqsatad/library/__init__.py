"""Operators ready to use: forward definitions only, on the same front end as a user's own.

An operator is a function from tensors to a stage. Its gradient is not written anywhere: it comes
out of `differentiate`, and reads like any other.
"""

from eqsatad.library.convolution import conv1d, conv2d, conv2d_transpose, conv3d
from eqsatad.library.extents import extents
from eqsatad.library.linear_algebra import batched_matmul, dense, matmul
from eqsatad.library.normalisation import (
    batch_norm,
    cross_entropy,
    instance_norm,
    layer_norm,
    local_response_norm,
    log_softmax,
    logsumexp,
    relu,
    rms_norm,
    softmax,
)
from eqsatad.library.pooling import adaptive_avg_pool, avg_pool, global_avg_pool, max_pool
from eqsatad.library.rearrange import (
    block_channels,
    channel_shuffle,
    flip,
    pad_edge,
    pad_reflect,
    roll,
    space_to_depth,
    strided_slice,
    take_along_axis,
    tril,
    triu,
    unfold,
    window_partition,
)
from eqsatad.library.reductions import cumsum, max, mean, sum
from eqsatad.library.resize import grid_sample, resize_bilinear, resize_nearest
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
    "adaptive_avg_pool",
    "avg_pool",
    "batch_norm",
    "batched_matmul",
    "block_channels",
    "broadcast_to",
    "channel_shuffle",
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
    "flip",
    "global_avg_pool",
    "grid_sample",
    "instance_norm",
    "layer_norm",
    "local_response_norm",
    "log_softmax",
    "logsumexp",
    "matmul",
    "max",
    "max_pool",
    "mean",
    "pad",
    "pad_edge",
    "pad_reflect",
    "pixel_shuffle",
    "relu",
    "reshape",
    "resize_bilinear",
    "resize_nearest",
    "rms_norm",
    "roll",
    "softmax",
    "space_to_depth",
    "split",
    "strided_slice",
    "sum",
    "take",
    "take_along_axis",
    "transpose",
    "tril",
    "triu",
    "unfold",
    "upsample_bilinear",
    "window_partition",
]
