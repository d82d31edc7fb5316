"""Comparisons: with minima, selects, quotients and multiples on one side.

``x <= y`` is ``y - x >= 0``, so every row also speaks of the negation, and of both sides moved.

Left out on purpose
    ``x*z <= y*z`` to ``x <= y`` needs z > 0: x = 1, y = 0, z = -1. With a literal it is arithmetic.
    ``x <= y*c`` to ``x // c <= y`` is wrong upwards: x = 1, c = 2, y = 0.
"""

from eqsatad.rules.rule import c, e, m, turn, x, y, z
from eqsatad.terms.builders import maximum, minimum, select

COMPARISONS = (
    turn("below-min", x <= minimum(y, z), (x <= y) & (x <= z)),
    turn("below-max", x <= maximum(y, z), (x <= y) | (x <= z)),
    turn("all-below", (x <= y) & (x <= z), x <= minimum(y, z)),
    turn("any-below", (x <= y) | (x <= z), x <= maximum(y, z)),
    turn("all-above", (y <= x) & (z <= x), maximum(y, z) <= x),
    turn("any-above", (y <= x) | (z <= x), minimum(y, z) <= x),
    turn("below-select", x <= select(e, y, z), (e & (x <= y)) | (~e & (x <= z))),
    turn("equals-select", x.equal(select(e, y, z)), (e & x.equal(y)) | (~e & x.equal(z))),
    turn("equals-min", x.equal(minimum(x, y)), x <= y),
    turn("equals-max", x.equal(maximum(x, y)), y <= x),
    turn("floor-is", (x // m).equal(c), (c * m <= x) & (x < c * m + m), m > 0),
    turn("between-multiples", (m * y <= x) & (x <= m * y + (m - 1)), (x // m).equal(y), m > 1),
    turn("multiple-below", x <= m * (x // m), (x % m).equal(0), m > 0),
)

SHORTER = "rows propose, and of all that is found the shortest is kept"
KEPT = dict.fromkeys(("below-min", "below-max", "all-below", "any-below"), SHORTER)
"""Rows that undo each other, and why both are here."""
