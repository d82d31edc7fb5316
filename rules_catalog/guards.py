"""Guards: conditions ``x == 0`` and ``x >= 0`` that ranges decide, and common factors.

A guard that always holds leaves its domain; one that never holds makes the domain empty.
"""

from eqsatad.rules.rule import c, high, low, m, rewrite, x

GUARDS = (
    rewrite("range-holds", x >= 0, True, low(x) >= 0),
    rewrite("range-fails", x >= 0, False, high(x) < 0),
    rewrite("range-is-zero", x.equal(0), True, low(x).equal(0), high(x).equal(0)),
    rewrite("range-positive", x.equal(0), False, low(x) > 0),
    rewrite("range-negative", x.equal(0), False, high(x) < 0),
    # What a quotient reaches, without the quotient.
    rewrite("floor-at-least", x // m + c >= 0, x + m * c >= 0, m > 0),
    rewrite("floor-at-most", c - x // m >= 0, m * c + m - 1 - x >= 0, m > 0),
)
