"""Finding where heat came from: descent through steps of a stencil.

A field diffuses for a few steps with nothing outside. From what is left of it, the field at the
start is recovered by following the gradient of the misfit.
"""

import numpy as np

import eqsatad as ea

SIZE, STEPS, RATE = 24, 4, 0.15


def step(u: ea.Tensor, number: int) -> ea.Tensor:
    """The field a moment later."""

    def body(i: ea.Expr, j: ea.Expr) -> ea.Expr:
        around = u.get(i - 1, j) + u.get(i + 1, j) + u.get(i, j - 1) + u.get(i, j + 1)
        return u[i, j] + RATE * (around - 4.0 * u[i, j])

    return ea.compute((SIZE, SIZE), body, f"u{number}")


start = ea.placeholder((SIZE, SIZE), name="start", dtype="float64")
seen = ea.placeholder((SIZE, SIZE), name="seen", dtype="float64")
field: ea.Tensor = start
for number in range(1, STEPS + 1):
    field = step(field, number)

i, j = ea.reduce_axis((0, SIZE), "i"), ea.reduce_axis((0, SIZE), "j")
misfit = ea.compute(
    (),
    lambda: ea.sum((field[i, j] - seen[i, j]) * (field[i, j] - seen[i, j]), axis=(i, j)),
    "misfit",
)
value = ea.build([misfit])
slope = ea.differentiate(misfit, [start], head="identity").build()

truth = np.zeros((SIZE, SIZE))
truth[6:9, 5:9] = truth[15:18, 14:17] = 1.0
(observed,) = ea.build([field])(start=truth)

guess = np.zeros_like(truth)
(first,) = value(start=guess, seen=observed)
for _ in range(100):
    (gradient,) = slope(start=guess, seen=observed)
    guess -= 0.4 * gradient
(last,) = value(start=guess, seen=observed)
assert last < 0.01 * first

print(f"misfit fell from {float(first):.4f} to {float(last):.6f}")
