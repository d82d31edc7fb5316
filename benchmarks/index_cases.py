"""Cases of the simplifier: what becomes as short as what, what is proved, and what bounds are.

The variables have the ranges of `SMALL`. Tests ask for the answers, `benchmarks.budgets` for what
they cost.
"""

from __future__ import annotations

import eqsatad as ea
from eqsatad.terms.nodes import Expr, Var

x, y, z = (Var(name, "index") for name in "xyz")
p, q = (Var(name, "bool") for name in "pq")
n = ea.size("n")
Bounds = dict[Expr, tuple[int | None, int | None]]

SMALL: Bounds = {x: (0, 7), y: (0, 3), z: (-5, 5)}

SHORTER: dict[str, tuple[Expr, Expr | int | bool]] = {
    "terms that cancel": (x + y - x, y),
    "a digit and the rest": ((x // 5) * 5 + x % 5, x),
    "a mixed radix": ((x * 4 + y) // 4, x),
    "a remainder of a mixed radix": ((x * 4 + y) % 4, y),
    "nested quotients": (x // 2 // 3, x // 6),
    "a quotient within its digit": (y // 4, 0),
    "the low digits of a product": ((x * 6) % 3, 0),
    "a minimum with a constant apart": (ea.minimum(x, x + 3), x),
    "a minimum by ranges": (ea.minimum(y, x + 4), y),
    "a minimum and a maximum": (ea.minimum(x, y) + ea.maximum(x, y), x + y),
    "a maximum of minima": (
        ea.maximum(ea.minimum(x, y), ea.minimum(x, z)),
        ea.minimum(x, ea.maximum(y, z)),
    ),
    "an absolute value of a count": (ea.abs(x), x),
    "a select that is a minimum": (ea.select(z < x, z, x), ea.minimum(z, x)),
    "a select inside its own branch": (
        ea.select(z < 2, ea.select(z < 3, x, y), x),
        x,
    ),
    "a branch under its condition": (ea.select(z.equal(2), z, 2), 2),
    "two selects under one condition": (
        ea.select(p, x, 1) + ea.select(p, 1, y),
        ea.select(p, x, y) + 1,
    ),
    "a condition that always holds": ((x < 8) & p, p),
    "a comparison of quotients": (x // 2 < 3, x < 6),
    "a comparison of multiples": (x * 3 < 7, x < 3),
    "an interval that is a point": ((z <= 2) & (z >= 2), z.equal(2)),
    "two half-lines": ((z < 3) | (z >= 3), True),
    "a part that another implies": ((z < 3) & (z < 5), z < 3),
    "a common part of a disjunction": ((p & q) | (p & (z < 1)), p & (q | (z < 1))),
    "an absorbed part": (p | (p & q), p),
    "a double negation": (~~p, p),
    "a window of a quotient": ((y * 5 <= x) & (x < y * 5 + 5), (x // 5).equal(y)),
    "a truncated quotient of a count": (ea.truncated_div(x, 3), x // 3),
    "a truncated quotient and rest": (ea.truncated_div(z, 3) * 3 + ea.truncated_mod(z, 3), z),
    "a comparison of a truncated quotient": (ea.truncated_div(z, 2) >= 0, z >= -1),
    "a Euclidean remainder": (ea.euclidean_mod(z * 4, 4), 0),
    "a quotient by itself": ((x * n) // n, x),
    "a quotient of a flattened index": ((x * n + n) // n, x + 1),
    "a remainder by a size": ((x * n) % n, 0),
    "a factor taken out": (x * y + x * z, x * (y + z)),
    "a multiple of a sum": ((x + y) * 3 + x * 3, (x * 2 + y) * 3),
    "an absolute value of a negation": (ea.abs(-z), ea.abs(z)),
    "an absolute value of an absolute value": (ea.abs(ea.abs(z)), ea.abs(z)),
    "an absolute value as a maximum": (ea.maximum(z - 1, 1 - z), ea.abs(z - 1)),
    "an absolute value as a select": (ea.select(z < 0, -z, z), ea.abs(z)),
    "a factor of some terms": (x - y * n - z * n, x - (y + z) * n),
    "a factor across an equation": ((y * n).equal(z * n + x), ((y - z) * n).equal(x)),
    "a product under a condition": (ea.select(z < 0, z * n, 0), ea.minimum(z, 0) * n),
    "opposite multiples": (ea.select(p, z * 2, z * -3), z * ea.select(p, 2, -3)),
    "a product with a truth value": (n * ea.select(p, 1, 0), ea.select(p, n, 0)),
    "quotients by one divisor": (ea.select(p, x // n, y // n), ea.select(p, x, y) // n),
    "a minimum that its condition hides": (
        ea.select(x > 0, ea.minimum(x * 3, 3), x * 3),
        ea.minimum(x * 3, 3),
    ),
    "a value by its digits": ((z // 3).equal(1) & (z % 3).equal(1), z.equal(4)),
    "a remainder of a multiple": (ea.euclidean_mod(z * n + x * n, n), 0),
    "a Euclidean quotient and rest": (
        ea.euclidean_div(x, z) * z + ea.euclidean_mod(x, z),
        ea.select(z.equal(0), 0, x),
    ),
    "nothing by a number": (ea.euclidean_div(0, z), 0),
    "multiples of opposite sign": (z * 3 < y * -6, z < y * -2),
    "a quotient of minus one": (ea.select(n > 0, (n * 4 - 1) // n, x), 3),
    "a digit below a digit": (x % 6 // 3 * 3 + x % 3, x % 6),
    "a chain of comparisons": ((x < y) & (y < z) & (x < z), (x < y) & (y < z)),
    "what its negation leaves": (p | (~p & q), p | q),
    "a literal beyond 64 bits": (z * 2**40 * 2**40, z * 2**80),
}

PROVED: dict[str, tuple[Expr, bool | None]] = {
    "an axis below its bound": (x < 8, True),
    "an axis beyond its bound": (x > 9, False),
    "what depends on the point": (x < 5, None),
    "a fused index in its range": (x * 4 + y < 32, True),
    "a remainder in its range": ((z % 4 >= 0) & (z % 4 < 4), True),
    "a square": (z * z >= 0, True),
    "products of ordered numbers": (~((z < x) & (y > 0)) | (z * y < x * y), True),
    "a quotient times its divisor": (~(n > 0) | ((z // n) * n <= z), True),
    "a fused index of sizes": (~((x < n) & (y >= 0)) | (x + y * n < n + y * n), True),
    "a false claim about products": (z * y <= x * y, None),
    "a remainder by a number in a range": (~(n > 0) | (z % n < n), True),
    "a square of a sum": ((z + y) * (z + y) >= 0, True),
    "products of equal numbers": (~z.equal(y) | (z * z).equal(y * y), True),
    "squares of ordered counts": (~(x <= n) | (x * x <= n * n), True),
    "a product of bounded factors": (x * n <= 7 * n, True),
    "an even number that is odd": ((x * 2 + z * 4).equal(7), False),
    "what no assumption is needed for": (p | ~p, True),
    "an unknown truth value": (p, None),
}

BOUNDED: dict[str, tuple[Expr, tuple[int | None, int | None]]] = {
    "a fused index": (x * 4 + y, (0, 31)),
    "what a half leaves": (x - x // 2, (0, 4)),
    "a product of signs": (x * z, (-35, 35)),
    "an absolute value": (ea.abs(z), (0, 5)),
    "a remainder": (z % 3, (0, 2)),
    "a quotient by a size": (x // n, (0, 7)),
    "a truncated quotient": (ea.truncated_div(z, 2), (-2, 2)),
    "a Euclidean remainder": (ea.euclidean_mod(z, -4), (0, 3)),
    "a clamp": (ea.minimum(ea.maximum(z, 0), 3), (0, 3)),
    "a select under its condition": (ea.select(x < 5, x, 0), (0, 4)),
    "no bound": (n + x, (1, None)),
}
