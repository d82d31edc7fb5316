"""Sums: how a reduction meets products, addition, guards and other sums.

``S | T`` splits the axes of a sum: ``T`` is what the conditions allow, ``S`` the rest. The rows
of `HOISTING` take conditions out of sums; without them a condition stays where it was written.

Left out on purpose
    ``sum-factor`` without ``absent``: sum over k of a[k]*b[k] is not b[k] times a sum.
    Dropping an axis that nothing mentions: the sum is its extent times as much (`sum-unused`).
    ``sum_over(T, guard(g, x))`` to ``guard(g, sum_over(T, x))`` is `guard-leaves-axes` with no axis
    left, and as many terms.
    ``guard(g, x*y)`` to ``guard(g, x) * y`` for any ``y``: where ``g`` does not hold, ``y`` may
    read out of range or divide by 0, and 0 times that is not 0. `guard-spares` asks for `total`.
"""

from eqsatad.rules.value_rule import (
    S,
    T,
    absent,
    disjoint,
    extent,
    g,
    guard,
    h,
    lacks,
    pattern,
    pick,
    rewrite,
    single,
    sum_over,
    total,
    x,
    y,
    z,
)

SUMS = (
    rewrite("sum-of-sum", sum_over(S, sum_over(T, x)), sum_over(S | T, x), disjoint(S, T)),
    # A factor leaves the axes that it does not mention, and comes back to change the order.
    rewrite("sum-factor", sum_over(S | T, x * y), sum_over(S, y * sum_over(T, x)), absent(T, y)),
    rewrite("times-sum", x * sum_over(T, y), sum_over(T, x * y), absent(T, x)),
    rewrite("sum-divisor", sum_over(S | T, x / y), sum_over(S, sum_over(T, x) / y), absent(T, y)),
    rewrite("sum-dividend", sum_over(S | T, x / y), sum_over(S, x * sum_over(T, 1 / y)),
            absent(T, x)),
    rewrite("sum-unused", sum_over(S | T, x), extent(T) * sum_over(S, x), absent(T, x), single(T)),
    rewrite("sum-of-zero", sum_over(S, pattern(0)), 0, exact=True),
    rewrite("sum-plus-sum", sum_over(S, x) + sum_over(S, y), sum_over(S, x + y)),
    # Distribution pays where one of the parts then loses an axis.
    rewrite("sum-of-plus", sum_over(S | T, x + y), sum_over(S | T, x) + sum_over(S | T, y),
            absent(T, x)),
    rewrite("sum-of-plus-times", sum_over(S | T, (x + y) * z),
            sum_over(S | T, x * z) + sum_over(S | T, y * z), absent(T, x)),
)  # fmt: skip

HOISTING = (
    rewrite("guard-leaves-axes", sum_over(S | T, guard(g, x)),
            sum_over(S, guard(g, sum_over(T, x))), absent(T, g)),
)  # fmt: skip

GUARDED = (
    rewrite("guard-twice", guard(g, guard(g, x)), guard(g, x), exact=True),
    rewrite("guard-swap", guard(g, guard(h, x)), guard(h, guard(g, x)), exact=True),
    # Outward a guard covers more, which is always safe; inward only what is total is let out.
    rewrite("guard-times", guard(g, x) * y, guard(g, x * y)),
    rewrite("guard-over", guard(g, x) / y, guard(g, x / y)),
    rewrite("guard-spares", guard(g, x * y), y * guard(g, x), total(y), lacks(y, g)),
    rewrite("guard-plus", guard(g, x) + guard(g, y), guard(g, x + y), exact=True),
    rewrite("guard-zero", guard(g, 0), 0, exact=True),
    rewrite("pick-same", pick(g, x, x), x, exact=True),
    rewrite("pick-zero", pick(g, x, 0), guard(g, x), exact=True),
)

KEPT = {
    "sum-divisor": "one round",
    "sum-dividend": "one round",
    "sum-of-zero": "collapses before the first round; the others take rounds",
    "guard-over": "one round",
}
"""Rows that others imply, and why they are here all the same."""
