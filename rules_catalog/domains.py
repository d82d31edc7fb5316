"""Domains: a summed axis that a guard determines is replaced by what determines it.

Each row re-parametrises a domain exactly: the points of the old one that satisfy the guards are
the values of ``value``, each met once. Substitution happens outside the e-graph, in one
representative: pushed through a class it would carry equalities that held only in the old range.

Left out on purpose
    Solving an axis that also occurs inside the other term, as in ``k + k // 2 == x``: the
    letter ``x`` never matches a term that mentions the axis.
"""

from eqsatad.rules.rule import (
    b,
    c,
    d,
    extent,
    g,
    gcd,
    high,
    inverse,
    k,
    let,
    low,
    m,
    p,
    q,
    restrict,
    s,
    w,
    x,
    y,
    z,
)

DOMAINS = (
    # [k >= p] and [k <= p] for a literal: an axis with fewer values.
    restrict(
        "narrow-below",
        k + x >= 0,
        axis=k,
        value=q - p,
        fresh=(q, extent(k) + p),
        leaves=(),
        when=(let(p, low(x)), high(x).equal(p), p < 0),
        rank=0,
        shorter=True,
    ),
    restrict(
        "narrow-above",
        x - k >= 0,
        axis=k,
        value=q,
        fresh=(q, p + 1),
        leaves=(),
        when=(let(p, low(x)), high(x).equal(p), p >= 0),
        rank=0,
        shorter=True,
    ),
    # A quotient that one equation gives is put into the other: the digits of a number become it.
    restrict(
        "known-quotient",
        ((c * k + x) // m + y).equal(0),
        (d * ((c * k + x) // m) + b * k + z).equal(0),
        axis=k,
        value=k,
        leaves=(((c * k + x) // m + y).equal(0), (b * k + z - d * y).equal(0)),
        when=(m > 0,),
        rank=0,
    ),
    # [k + x == 0]: the axis is known.
    restrict("solve-unit", (k + x).equal(0), axis=k, value=-x, rank=0),
    # [(k + x) // m == y]: one block of m values.
    restrict(
        "solve-floor",
        ((k + x) // m + y).equal(0),
        axis=k,
        value=-m * y - x + q,
        fresh=(q, m),
        leaves=(),
        when=(m > 0,),
        rank=1,
    ),
    # [(c*k + x) // m == y]: a window, which the bounds of a loop or `solve-window` take.
    restrict(
        "solve-floor-scaled",
        ((c * k + x) // m + y).equal(0),
        axis=k,
        value=k,
        leaves=(c * k + x + m * y >= 0, m - 1 - m * y - c * k - x >= 0),
        when=(m > 0, c > 1),
        rank=4,
    ),
    # The same where a whole multiple of the axis has left the quotient.
    restrict(
        "solve-floor-mixed",
        ((c * k + x) // m + d * k + y).equal(0),
        axis=k,
        value=k,
        leaves=((c + m * d) * k + x + m * y >= 0, m - 1 - m * y - (c + m * d) * k - x >= 0),
        when=(m > 0,),
        rank=4,
    ),
    # [c*k + x == 0]: the axis is known where x is a multiple of c.
    restrict(
        "solve-scaled",
        (c * k + x).equal(0),
        axis=k,
        value=(-x) // c,
        leaves=((x % c).equal(0),),
        when=(c > 1,),
        rank=2,
    ),
    # [(c*k + x) % s == 0]: every (s/g)-th value, from a start that x determines.
    restrict(
        "solve-congruence",
        ((c * k + x) % s).equal(0),
        axis=k,
        value=b * q + (-p * (x // g)) % b,
        fresh=(q, (extent(k) + b - 1) // b),
        leaves=((x % g).equal(0),),
        when=(s > 1, let(g, gcd(c, s)), let(b, s // g), let(p, inverse(c // g, b)), b > 1),
        rank=3,
    ),
    # [(c*k + x) % m == y]: a congruence, and y is a digit.
    restrict(
        "solve-digit",
        ((c * k + x) % m + y).equal(0),
        axis=k,
        value=k,
        leaves=(((c * k + x + y) % m).equal(0), -y >= 0, m - 1 + y >= 0),
        when=(m > 0,),
        rank=4,
    ),
    # [c*(k % m) + k // m == y] for k < c*m: the two digits of k are those of y, swapped.
    restrict(
        "solve-swapped-digits",
        (c * k + d * (k // m) + y).equal(0),
        axis=k,
        value=m * (-y % c) + -y // c,
        leaves=(-y >= 0, c * m - 1 + y >= 0),
        when=(c > 0, m > 0, (c * m + d).equal(1), high(k) < c * m),
        rank=3,
    ),
    restrict(
        "solve-swapped-digits-minus",
        (c * k + d * (k // m) + y).equal(0),
        axis=k,
        value=m * (y % b) + y // b,
        leaves=(y >= 0, b * m - 1 - y >= 0),
        when=(let(b, -c), b > 0, m > 0, (c * m + d).equal(-1), high(k) < b * m),
        rank=3,
    ),
    # [(c*k + x) // m >= -y] and [(c*k + x) // m <= y]: bounds of the axis without a quotient.
    restrict(
        "bound-floor-below",
        (c * k + x) // m + y >= 0,
        axis=k,
        value=k,
        leaves=(c * k + x + m * y >= 0,),
        when=(m > 0,),
        rank=4,
    ),
    restrict(
        "bound-floor-above",
        y - (c * k + x) // m >= 0,
        axis=k,
        value=k,
        leaves=(m * y + m - 1 - c * k - x >= 0,),
        when=(m > 0,),
        rank=4,
    ),
    # The same where a whole multiple of the axis has left the quotient.
    restrict(
        "bound-floor-mixed-below",
        (c * k + x) // m + d * k + y >= 0,
        axis=k,
        value=k,
        leaves=((c + m * d) * k + x + m * y >= 0,),
        when=(m > 0,),
        rank=4,
    ),
    restrict(
        "bound-floor-mixed-above",
        y + d * k - (c * k + x) // m >= 0,
        axis=k,
        value=k,
        leaves=((m * d - c) * k + m * y + m - 1 - x >= 0,),
        when=(m > 0,),
        rank=4,
    ),
    # [x - c*k >= 0] and [c*k + y >= 0]: a window of bounded width.
    restrict(
        "solve-window",
        x - c * k >= 0,
        c * k + y >= 0,
        axis=k,
        value=x // c - q,
        fresh=(q, w // c + 1),
        when=(c > 0, let(w, high(x + y)), w >= 0),
        rank=9,
        shorter=True,
    ),
)

KEPT = {
    "solve-swapped-digits": "implied on the small axes that are tried; longer ones need it",
    "solve-swapped-digits-minus": "implied on the small axes that are tried; longer ones need it",
}
"""Rows that others imply, and why they are here all the same."""
