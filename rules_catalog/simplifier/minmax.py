"""Minima and maxima: lattice laws, and how they meet sums, quotients and each other.

Operands are in any order, and more than two are allowed. That one operand is never the least is
not a row: the simplifier drops it when it proves the comparison.

Left out on purpose
    ``min(x, y) * z`` to ``min(x*z, y*z)`` is wrong for z < 0: x = 1, y = 2, z = -1.
    ``min(x, y) // m`` to ``min(x // m, y // m)`` is how quotients of minima are split where one
    operand is a multiple (`min-floor`); both ways it would double every minimum.
"""

from eqsatad.rules.rule import c, d, m, turn, v, x, y, z
from eqsatad.terms.builders import maximum, minimum

MINMAX = (
    turn("max-of-mins", maximum(minimum(x, y), minimum(x, z)), minimum(x, maximum(y, z))),
    turn("min-of-maxes", minimum(maximum(x, y), maximum(x, z)), maximum(x, minimum(y, z))),
    turn("min-plus-max", minimum(x, y) + maximum(x, y) + z, x + y + z),
    turn("min-times-max", minimum(x, y) * maximum(x, y), x * y),
    turn("min-floor", minimum(x, y) // m, minimum(x // m, y // m), m > 0),
    turn("max-floor", maximum(x, y) // m, maximum(x // m, y // m), m > 0),
    # Two minima that move alike differ by a clamp.
    turn(
        "min-minus-min",
        minimum(x, y + c) - minimum(x, y + d) + v,
        maximum(minimum(y + c - x, 0), c - d) + v,
        c <= d,
    ),
    turn(
        "min-minus-min-down",
        minimum(x, y + c) - minimum(x, y + d) + v,
        maximum(minimum(x - y - c, 0), d - c) + c - d + v,
        d <= c,
    ),
    # Two minima with an operand that moves alike, where it is known which of them gives way first.
    turn(
        "min-minus-min-later",
        minimum(x + c, y) - minimum(x + d, z) + v,
        maximum(minimum(x + c, y) - z, c - d) + v,
        z + c <= y + d,
    ),
    turn(
        "min-minus-min-earlier",
        minimum(x + c, y) - minimum(x + d, z) + v,
        minimum(y - minimum(x + d, z), c - d) + v,
        y + d <= z + c,
    ),
    # A clamp is the same in either order where its ends are.
    turn("max-of-min-literal", maximum(minimum(x, c), y), minimum(maximum(x, y), c), y <= c),
    turn("min-of-max-literal", minimum(maximum(x, c), y), maximum(minimum(x, y), c), c <= y),
    turn("min-of-max", minimum(maximum(x, y), z), maximum(minimum(x, z), y), y <= z),
    turn("max-of-min", maximum(minimum(x, y), z), minimum(maximum(x, z), y), z <= y),
)

SHORTER = "rows propose, and of all that is found the shortest is kept"
KEPT = dict.fromkeys(("min-of-max", "max-of-min"), SHORTER)
"""Rows that undo each other, and why both are here."""
