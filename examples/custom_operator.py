"""An operator of your own: say what an element is, and the gradient follows.

The operator divides each channel by the energy of its two neighbours on either side. No gradient
rule is written for it; the result is checked against finite differences.
"""

import numpy as np

import eqsatad as ea

N, C, REACH = 4, 32, 2

x = ea.placeholder((N, C), name="x", dtype="float64")
k = ea.reduce_axis((-REACH, REACH + 1), name="k")

energy = ea.compute(
    (N, C), lambda n, c: 1.0 + 0.5 * ea.sum(x.get(n, c + k) * x.get(n, c + k), axis=k), "energy"
)
y = ea.compute((N, C), lambda n, c: x[n, c] / ea.sqrt(energy[n, c]), "y")

gradients = ea.differentiate(y, [x])
kernel = gradients.build()


def forward(a: np.ndarray) -> np.ndarray:
    """The operator in numpy."""
    squares = np.pad(a * a, ((0, 0), (REACH, REACH)))
    total = sum(squares[:, s : s + C] for s in range(2 * REACH + 1))
    return a / np.sqrt(1.0 + 0.5 * total)


rng = np.random.default_rng(0)
a, head, towards = (rng.standard_normal((N, C)) for _ in range(3))
(gradient,) = kernel(**{"x": a, gradients.head.name: head})
step = 1e-6
change = (forward(a + step * towards) - forward(a - step * towards)) / (2 * step)
assert np.isclose((gradient * towards).sum(), (head * change).sum())

print(gradients.report())
print("the gradient agrees with finite differences")
