"""Intervals: what range an index expression takes, from the ranges of its axes.

An axis is eliminated in favour of its range even where its extent is a symbolic size, so that
``n - 1 - k`` is seen to be at least 0. The last rows see correlation, which plain interval
arithmetic misses: ``x - m*(x // m)`` is the remainder, and two floors of one term differ by a
digit. Without them no guard of a phase or of a mixed-radix split would ever be seen to hold.

All intervals that apply are intersected. An end that is not known stays open.
"""

from eqsatad.rules.rule import c, d, divides, extent, high, interval, k, low, m, n, x, y

INTERVALS = (
    interval("interval-axis-up", c * k + y, low(y), high(c * (extent(k) - 1) + y), c > 0),
    interval("interval-axis-down", c * k + y, low(c * (extent(k) - 1) + y), high(y), c < 0),
    interval("interval-sum", c * x + y, c * low(x) + low(y), c * high(x) + high(y), c > 0),
    interval("interval-difference", c * x + y, c * high(x) + low(y), c * low(x) + high(y), c < 0),
    interval("interval-floor", x // m, low(x) // m, high(x) // m, m > 0),
    # c*(x // m) is (c/m) * (x - x % m), and x % m lies in [0, m - 1].
    interval(
        "interval-floor-slack",
        c * (x // m) + y,
        low((c // m) * x + y) - (c // m) * (m - 1),
        high((c // m) * x + y),
        m > 0,
        c > 0,
        divides(m, c),
    ),
    interval(
        "interval-floor-slack-negative",
        c * (x // m) + y,
        low((c // m) * x + y),
        high((c // m) * x + y) - (c // m) * (m - 1),
        m > 0,
        c < 0,
        divides(m, c),
    ),
    # x // m - n*(x // (m*n)) is the digit (x // m) % n.
    interval(
        "interval-digit",
        c * (x // m) + d * (x // (m * n)) + y,
        low(y),
        c * (n - 1) + high(y),
        m > 0,
        n > 0,
        c > 0,
        (d + c * n).equal(0),
    ),
    interval(
        "interval-digit-negative",
        c * (x // m) + d * (x // (m * n)) + y,
        c * (n - 1) + low(y),
        high(y),
        m > 0,
        n > 0,
        c < 0,
        (d + c * n).equal(0),
    ),
    # c*k + d*(k // m) is c*(k % m) and a multiple of k // m.
    interval(
        "interval-last-digit",
        c * k + d * (k // m) + y,
        low((d + c * m) * (k // m) + y),
        c * (m - 1) + high((d + c * m) * (k // m) + y),
        c > 0,
        m > 0,
    ),
    interval(
        "interval-last-digit-negative",
        c * k + d * (k // m) + y,
        c * (m - 1) + low((d + c * m) * (k // m) + y),
        high((d + c * m) * (k // m) + y),
        c < 0,
        m > 0,
    ),
)
