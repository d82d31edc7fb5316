"""Is the automatic gradient as good as the one you would write? Ask for both costs.

The forward operator is softmax over rows. The gradient by hand is ``y * (h - sum(h * y))``, built
without any simplification; the automatic one starts from the forward definition alone.
"""

import eqsatad as ea
from eqsatad import library

ROWS, COLUMNS = 16, 100

x = ea.placeholder((ROWS, COLUMNS), name="x")
h = ea.placeholder((ROWS, COLUMNS), name="h")
y = library.softmax(x)

automatic = ea.differentiate(y, [x], head=h, cost="count").report()

k = ea.reduce_axis((0, COLUMNS), "k")
inner = ea.compute((ROWS,), lambda i: ea.sum(h[i, k] * y[i, k], axis=k), "inner")
dx = ea.compute((ROWS, COLUMNS), lambda i, j: y[i, j] * (h[i, j] - inner[i]), "dx")
by_hand = ea.report([dx], name="by hand")

print(ea.compare(by_hand, automatic))
assert automatic.total.multiplications <= 1.01 * by_hand.total.multiplications
print("the automatic gradient multiplies as often as the one by hand, to one per cent")
