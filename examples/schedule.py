"""A loop nest scheduled by hand: the gradient of a product with a transposed matrix.

The gradient reads two matrices along their columns. Row by row, each element comes from another
cache line; block by block, a line that was loaded is used up before it is lost.
"""

from time import perf_counter

import numpy as np

import eqsatad as ea

SIZE, ROWS, COLUMNS, REPEATS = 1536, 64, 16, 7

x = ea.placeholder((SIZE, SIZE), name="x")
scale = ea.placeholder((SIZE, SIZE), name="scale")
y = ea.compute((SIZE, SIZE), lambda i, j: x[j, i] * scale[i, j], "y")
gradient = ea.differentiate(y, [x])

plan = gradient.plan("cpu")
print(plan[x].show())
i, j = plan[x].axes
plan[x].split(i, ROWS).split(j, COLUMNS)
plan[x].reorder(f"{i}_outer", f"{j}_outer", f"{i}_inner", f"{j}_inner")
print(plan[x].show())

random = np.random.default_rng(0)
kernels = [gradient.build(threads=1), plan.build(threads=1)]
arrays = {
    name: random.standard_normal((SIZE, SIZE)).astype("float32") for name in kernels[0].inputs
}
assert np.array_equal(*(kernel(**arrays)[0] for kernel in kernels))


def seconds(kernel: ea.backends.kernel.Kernel) -> float:
    """The time of one call."""
    start = perf_counter()
    kernel(**arrays)
    return perf_counter() - start


times = [[seconds(kernel) for kernel in kernels] for _ in range(REPEATS)]
default, scheduled = map(min, zip(*times, strict=True))
print(f"default {1e3 * default:.1f} ms, in blocks {1e3 * scheduled:.1f} ms")
print(f"in blocks it is {default / scheduled:.1f} times as fast")
