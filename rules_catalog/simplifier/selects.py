"""Selects: common parts taken out, branches under one condition joined.

A condition and its negation with the branches exchanged are one select. What a branch may know
about its condition is not a row: each branch is simplified under it.

Left out on purpose
    ``select(e, x, y) * z`` to ``select(e, x*z, y*z)`` doubles z, and goes the other way here.
    ``select(e, x // z, y // z)`` to ``select(e, x, y) // z``, which holds for every quotient and
    remainder, is no row: the simplifier does it for all of them at once.
"""

from eqsatad.rules.rule import c, d, e, f, turn, u, v, x, y, z
from eqsatad.terms.builders import maximum, minimum, select

SELECTS = (
    turn("select-min", select(e, minimum(x, y), minimum(x, z)), minimum(x, select(e, y, z))),
    turn("select-max", select(e, maximum(x, y), maximum(x, z)), maximum(x, select(e, y, z))),
    turn("select-min-one", select(e, minimum(x, y), x), minimum(x, select(e, y, x))),
    turn("select-max-one", select(e, maximum(x, y), x), maximum(x, select(e, y, x))),
    turn("select-mul", select(e, x * y, x * z), x * select(e, y, z)),
    turn("select-mul-zero", select(e, x * y, 0), x * select(e, y, 0)),
    turn("select-multiples", select(e, c * x, d * x), x * select(e, c, d)),
    turn("select-more", c * select(e, x, 0) + d * x + v, x * select(e, c + d, d) + v),
    # With literals in both branches the factor is not doubled.
    turn("mul-select-literals", x * select(e, c, d), select(e, c * x, d * x)),
    turn("select-and", select(e, select(f, x, y), y), select(e & f, x, y)),
    turn("select-or", select(e, x, select(f, x, y)), select(e | f, x, y)),
    turn("selects-add", select(e, x, y) + select(e, z, u) + v, select(e, x + z, y + u) + v),
    turn(
        "selects-min",
        minimum(select(e, x, y), select(e, z, u) + v),
        select(e, minimum(x, z + v), minimum(y, u + v)),
    ),
    turn(
        "selects-max",
        maximum(select(e, x, y), select(e, z, u) + v),
        select(e, maximum(x, z + v), maximum(y, u + v)),
    ),
)

SHORTER = "rows propose, and of all that is found the shortest is kept"
KEPT = dict.fromkeys(("select-multiples", "mul-select-literals"), SHORTER)
"""Rows that undo each other, and why both are here."""
