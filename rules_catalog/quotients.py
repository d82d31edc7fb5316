"""Quotients: floor division of linear forms by positive literals.

A remainder ``x % m`` is spelled ``x - m*(x // m)`` before any row sees it, so that
``(x // 5)*5 + x % 5`` is ``x`` by arithmetic and these rows need only speak of quotients.
Division is floor division, and the divisor is a positive literal.

Left out on purpose
    ``(c*x) // (c*m)`` to ``x // m`` is `floor-common-factor` with nothing left over.
    ``x // m + y // m`` to ``(x + y) // m`` is wrong: 1 // 2 + 1 // 2 is 0, 2 // 2 is 1.
    ``(c*x + y) // (c*m)`` to ``x // m`` without a range for ``y`` is wrong: y = c*m, x = 0.
    ``-(x // m)`` to ``(m - 1 - x) // m`` in both directions gives one index two normal forms,
    and every sum that holds them doubles; `floor-sign` goes one way only.
"""

from eqsatad.rules.rule import b, c, divides, g, high, let, low, m, p, rewrite, x, y

QUOTIENTS = (
    # x is m*x' + y: the multiples of the divisor leave.
    rewrite("floor-multiple", (m * x + y) // m, x + y // m, m > 0),
    # Digits that cannot carry are dropped, the common factor is divided out.
    rewrite(
        "floor-common-factor",
        (g * x + y) // m,
        (x + p) // (m // g),
        g > 1,
        divides(g, m),
        let(p, low(y) // g),
        (high(y) // g).equal(p),
    ),
    rewrite("floor-constant", x // m, p, m > 0, let(p, low(x) // m), (high(x) // m).equal(p)),
    rewrite("floor-floor", (x // b + c) // m, (x + b * c) // (b * m), b > 0, m > 0),
)
