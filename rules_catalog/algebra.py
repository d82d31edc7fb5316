"""Algebra: products, sums of two, quotients and constants over the reals.

Constants of ``after`` are worked out, so ``constant-plus`` is a row that reads like an identity:
before the arrow it matches an addition, after it there is one number.

Left out on purpose
    ``x * (y + z)`` to ``x*y + x*z`` everywhere: with associativity every sum of products doubles
    at every step. The rows of `sums` distribute where a sum then loses an axis.
    ``x / x`` to 1: at x = 0 it is not a number. `functions` has the quotient of exponentials,
    which are never 0.
    ``x + 0`` from ``x``: every class would hold its own sum.
    ``x / c`` to ``x * (1/c)`` and ``(-x) / y`` to ``-(x / y)``: `over-as-times` with
    `constant-over`, and `times-over`, give them in the same round with as many terms.
"""

from eqsatad.rules.value_rule import c, d, equal, nonzero, rewrite, x, y, z

ALGEBRA = (
    rewrite("plus-commutes", x + y, y + x, exact=True),
    rewrite("times-commutes", x * y, y * x, exact=True),
    rewrite("plus-associates", (x + y) + z, x + (y + z)),
    rewrite("times-associates", (x * y) * z, x * (y * z)),
    rewrite("plus-zero", x + 0, x),  # -0 + 0 is 0, so the sign of a zero may change
    rewrite("times-one", x * 1, x, exact=True),
    rewrite("times-zero", x * 0, 0),
    rewrite("over-one", x / 1, x, exact=True),
    rewrite("zero-over", 0 / x, 0),
    rewrite("constant-plus", c + d, c + d),
    rewrite("constant-times", c * d, c * d),
    rewrite("constant-over", c / d, c / d, nonzero(d)),
    equal("twice", x + x, 2 * x, exact=True),
    # Common factors leave a sum; a term without one has the factor 1.
    rewrite("factor", x * y + x * z, x * (y + z)),
    rewrite("factor-one", x + x * y, x * (1 + y)),
    rewrite("minus-plus", -(x + y), -x + -y),
    # A quotient moves through products, so that a divisor with few axes is divided by once.
    equal("over-as-times", x / y, x * (1 / y)),
    equal("times-over", x * (y / z), (x * y) / z),
    rewrite("over-over", (x / y) / z, x / (y * z)),
    rewrite("plus-over", x / z + y / z, (x + y) / z),
)

KEPT = {
    "over-one": "collapses before the first round; the others take rounds",
    "zero-over": "collapses before the first round; the others take rounds",
    "times-over": "one round; a quotient moves through every product of a gradient",
    "plus-over": "one round",
}
"""Rows that others imply, and why they are here all the same."""
