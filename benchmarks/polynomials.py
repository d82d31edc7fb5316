"""Derives the polynomials of the CPU's elementary functions.

Each is the one of its degree whose largest error, weighted so that it is the relative error of
the function, is least: E. Y. Remez's exchange (1934; J.-M. Muller, Elementary Functions, chapter
3) over a grid that is dense at both ends, in decimal arithmetic of 60 digits.
``python -m benchmarks.polynomials`` prints the table of
`eqsatad.backends.cpu.functions.polynomials` with the error of each row; coefficients are rounded
last.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache
from itertools import pairwise
from math import cos, pi
from textwrap import fill, indent

Real = Decimal
Function = Callable[[Real], Real]
NONE, QUARTER, HALF, ONE, TWO = map(Real, ("0", "0.25", "0.5", "1", "2"))
LN2 = Real("0.6931471805599453094172321214581765680755001343602552541206800094933936")
PI = Real("3.1415926535897932384626433832795028841971693993751058209749445923078164")
DIGITS = 60
# Terms of a series below this share of its sum are left out.
NOTHING = Real(10) ** -58
# Points of the grid for each coefficient; exchanges until the error is level.
POINTS, EXCHANGES = 60, 12
FLOAT, DOUBLE = KINDS = ("float", "double")
INDENT = 12 * " "


@dataclass(frozen=True)
class Row:
    """A polynomial of ``degree`` for ``function`` on ``ends``; errors count times ``weight``."""

    degree: int
    function: Function
    weight: Function
    ends: tuple[Real, Real]


def series(first: Real, ratio: Callable[[int], Real]) -> Real:
    """``first`` and terms that are each ``ratio`` times the one before, added up."""
    total = term = first
    step = 1
    while abs(term) > NOTHING * abs(total):
        term *= ratio(step)
        total += term
        step += 1
    return total


def sine_rest(z: Real) -> Real:
    """``(sin(x)/x - 1) / z`` with ``z = x*x``."""
    return series(-ONE / 6, lambda n: -z / ((2 * n + 2) * (2 * n + 3)))


def cosine_rest(z: Real) -> Real:
    """``(cos(x) - 1 + z/2) / z**2``."""
    return series(ONE / 24, lambda n: -z / ((2 * n + 3) * (2 * n + 4)))


def exp_rest(r: Real) -> Real:
    """``(exp(r) - 1 - r) / r**2``."""
    return series(HALF, lambda n: r / (n + 2))


def arctangent_rest(z: Real) -> Real:
    """``(atan(x)/x - 1) / z``; for larger ones by L. Euler's series of positive terms."""
    if z < QUARTER:
        return series(-ONE / 3, lambda n: -z * (2 * n + 1) / (2 * n + 3))
    share = z / (1 + z)
    ratio = series(1 / (1 + z), lambda n: share * 2 * n / (2 * n + 1))
    return (ratio - 1) / z


def logarithm_rest(z: Real) -> Real:
    """``(atanh(s)/s - 1) / z``, times 2: what ``log((1 + s) / (1 - s))`` has beyond ``2*s``."""
    return 2 * series(ONE / 3, lambda n: z * (2 * n + 1) / (2 * n + 3))


def logarithm_far(z: Real) -> Real:
    """``logarithm_rest`` beyond its first term: ``(logarithm_rest(z) - 2/3) / z``."""
    return 2 * series(ONE / 5, lambda n: z * (2 * n + 3) / (2 * n + 5))


def log_rest(f: Real) -> Real:
    """``(log(1 + f) - f + f**2/2) / f**3``."""
    return series(ONE / 3, lambda n: -f * (n + 2) / (n + 3))


def arcsine_rest(z: Real) -> Real:
    """``(asin(x)/x - 1) / z``."""
    return series(ONE / 6, lambda n: z * (2 * n + 1) ** 2 / ((2 * n + 2) * (2 * n + 3)))


def hyperbolic_rest(z: Real) -> Real:
    """``(sinh(x)/x - 1) / z``."""
    return series(ONE / 6, lambda n: z / ((2 * n + 2) * (2 * n + 3)))


def tangent_rest(z: Real) -> Real:
    """``(tanh(x)/x - 1) / z``; by the quotient of two series of positive terms."""
    if not z:
        return -ONE / 3
    sine = series(ONE, lambda n: z / (2 * n * (2 * n + 1)))
    cosine = series(ONE, lambda n: z / ((2 * n - 1) * 2 * n))
    return (sine / cosine - 1) / z


def erf(x: Real) -> Real:
    z = x * x
    total = series(x, lambda n: 2 * z / (2 * n + 1))
    return 2 / PI.sqrt() * (-z).exp() * total


def erf_rest(z: Real) -> Real:
    """``erf(x)/x - 1``."""
    x = z.sqrt() if z else Real("1e-20")
    return erf(x) / x - 1


@cache
def complement(x: Real) -> Real:
    """``1 - erf(x)``."""
    return 1 - erf(x)


def bell_log(x: Real) -> Real:
    """``log(1 - erf(x))``."""
    return complement(x).ln()


# A little more than what the reductions leave.
WIDER = Real("1.002")
HALF_LN2 = LN2 / 2 * WIDER
EIGHTH = (PI / 4 * WIDER) ** 2
# Numbers are split into powers of two times 3/4 up to 3/2: what (m - 1) / (m + 1) squared is.
SPLIT = (WIDER / 5) ** 2
# With a table of powers of two for the lanes of a register of 512 bits.
FINE = {FLOAT: HALF_LN2 / 16, DOUBLE: HALF_LN2 / 8}
# erf(x) is a polynomial below the first, from there on 1 - exp(polynomial), and 1 to the last
# bit from the second.
BENDS = {FLOAT: (ONE, Real(4)), DOUBLE: (ONE, Real(6))}
# Below it tanh(x) is a polynomial.
STRAIGHT = Real("0.625")
# What powers need besides: more than double, and little more than float, in double.
POWERS = {
    "atanh_rest": Row(7, logarithm_far, lambda z: z * z / 2, (NONE, SPLIT)),
    "atanh_short": Row(3, logarithm_rest, lambda z: z / 2, (NONE, SPLIT)),
    "exp_short": Row(4, exp_rest, lambda r: r * r / r.exp(), (-HALF_LN2, HALF_LN2)),
}


def rows(kind: str) -> dict[str, Row]:
    """What the table has for ``kind``; degrees leave about a tenth of a rounding error."""
    bend, end = BENDS[kind]
    table: dict[str, tuple[Function, Function, tuple[Real, Real], int, int]] = {
        "exp": (exp_rest, lambda r: r * r / r.exp(), (-HALF_LN2, HALF_LN2), 4, 9),
        "exp_fine": (exp_rest, lambda r: r * r / r.exp(), (-FINE[kind], FINE[kind]), 1, 5),
        "log": (log_rest, lambda f: f * f, (Real("-0.2501"), Real("0.5001")), 7, 0),
        "atanh": (logarithm_rest, lambda z: z / 2, (NONE, SPLIT), 0, 6),
        "sin": (sine_rest, lambda z: z / (1 + z * sine_rest(z)), (NONE, EIGHTH), 2, 5),
        "cos": (cosine_rest, lambda z: 2 * z * z, (NONE, EIGHTH), 2, 5),
        "atan": (arctangent_rest, lambda z: z, (NONE, ONE), 8, 18),
        "asin": (arcsine_rest, lambda z: z, (NONE, QUARTER), 4, 11),
        "sinh": (hyperbolic_rest, lambda z: z, (NONE, ONE), 3, 6),
        "tanh": (tangent_rest, lambda z: z, (NONE, STRAIGHT**2), 4, 10),
        "erf": (erf_rest, lambda _: ONE, (NONE, bend * bend), 6, 11),
        "log_erfc": (bell_log, complement, (bend, end), 6, 18),
    }
    found = {
        name: Row(short if kind == FLOAT else long, function, weight, ends)
        for name, (function, weight, ends, short, long) in table.items()
    }
    needed = {name: row for name, row in found.items() if row.degree}
    return needed if kind == FLOAT else needed | POWERS


def fitted(row: Row) -> tuple[list[Real], Real]:
    """The coefficients, lowest first, and the largest weighted error."""
    low, high = row.ends
    count = POINTS * (row.degree + 2)
    places = [Real(cos(pi * step / count)) for step in range(count + 1)]
    grid = [(low + high) / 2 - place * (high - low) / 2 for place in places]
    exact = [row.function(x) for x in grid]
    weight = [row.weight(x) for x in grid]
    chosen = [round(step * count / (row.degree + 1)) for step in range(row.degree + 2)]
    for _ in range(EXCHANGES):
        lines, values = [], []
        for sign, at in enumerate(chosen):
            lines.append([*powers(grid[at], row.degree), (-1) ** sign / max(weight[at], NOTHING)])
            values.append(exact[at])
        *found, _level = solved(lines, values)
        errors = [(horner(found, x) - y) * w for x, y, w in zip(grid, exact, weight, strict=True)]
        following = extremes(errors, row.degree + 2)
        if following == chosen:
            break
        chosen = following
    return found, max(map(abs, errors))


def powers(x: Real, degree: int) -> list[Real]:
    found = [ONE]
    for _ in range(degree):
        found.append(found[-1] * x)
    return found


def horner(coefficients: Sequence[Real], x: Real) -> Real:
    total = Real(0)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def solved(lines: list[list[Real]], values: list[Real]) -> list[Real]:
    """The solution of linear equations, by elimination with pivots."""
    rest = [[*line, value] for line, value in zip(lines, values, strict=True)]
    size = len(rest)
    for column in range(size):
        pivot = max(range(column, size), key=lambda place: abs(rest[place][column]))
        rest[column], rest[pivot] = rest[pivot], rest[column]
        for place in range(size):
            if place != column and rest[place][column]:
                share = rest[place][column] / rest[column][column]
                rest[place] = [
                    a - share * b for a, b in zip(rest[place], rest[column], strict=True)
                ]
    return [rest[place][size] / rest[place][place] for place in range(size)]


def extremes(errors: Sequence[Real], wanted: int) -> list[int]:
    """Where errors of alternating signs are largest: ``wanted`` neighbours of all there are."""
    best = [0]
    for place, error in enumerate(errors):
        if (error > 0) == (errors[best[-1]] > 0):
            if abs(error) > abs(errors[best[-1]]):
                best[-1] = place
        else:
            best.append(place)
    while len(best) > wanted:
        best.pop(0 if abs(errors[best[0]]) < abs(errors[best[-1]]) else -1)
    return best if len(best) == wanted else spread(best, wanted, len(errors) - 1)


def spread(places: list[int], wanted: int, last: int) -> list[int]:
    """``places`` with more in their widest gaps."""
    places = sorted({0, last, *places})
    while len(places) < wanted:
        left, right = max(pairwise(places), key=lambda pair: pair[1] - pair[0])
        places = sorted([*places, (left + right) // 2])
    return places[:wanted]


def rounded(value: Real, kind: str) -> float:
    if kind == DOUBLE:
        return float(value)
    return float(struct.unpack("<f", struct.pack("<f", float(value)))[0])


def table() -> dict[str, dict[str, tuple[list[float], float]]]:
    """The rounded coefficients of every row and its error before rounding, by kind and name."""
    with localcontext(prec=DIGITS):
        fits = {kind: {name: fitted(row) for name, row in rows(kind).items()} for kind in KINDS}
    return {
        kind: {
            name: ([rounded(value, kind) for value in found], float(error))
            for name, (found, error) in group.items()
        }
        for kind, group in fits.items()
    }


def main() -> None:
    for kind, group in table().items():
        print(f'    "{kind}": {{')
        for name, (numbers, error) in group.items():
            print(f'        # {error:.1e}\n        "{name}": (')
            lines = fill(", ".join(map(repr, numbers)), 84)
            print(indent(lines, INDENT) + ",\n        ),")
        print("    },")


if __name__ == "__main__":
    main()
