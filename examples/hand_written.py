"""Is the automatic gradient as good as the one you would write? Ask for both costs.

The forward operator is softmax over rows. The gradient by hand is ``y * (h - sum(h * y))``.
"""

import eqsatad as ea
from eqsatad import library

ROWS, COLUMNS = 16, 100

x = ea.placeholder((ROWS, COLUMNS), name="x")
h = ea.placeholder((ROWS, COLUMNS), name="h")
y = library.softmax(x)

automatic = ea.differentiate(y, [x], head=h)

k = ea.reduce_axis((0, COLUMNS), "k")
inner = ea.compute((ROWS,), lambda i: ea.sum(h[i, k] * y[i, k], axis=k), "inner")
by_hand = ea.compute((ROWS, COLUMNS), lambda i, j: y[i, j] * (h[i, j] - inner[i]), "dx")

ours, theirs = automatic.report(), ea.report([by_hand])
print(ea.compare(theirs, ours))
assert ours.total.multiplications <= theirs.total.multiplications
print("the automatic gradient multiplies no more than the one by hand")
