"""Ways to share the terms of a form out among what a tree can say.

Terms move into minima, selects and floors; multiples of a quotient become remainders; what
products have in common is taken out. Which way is the shortest is for `index_spelling` to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from eqsatad.rules.index_forms import (
    ZERO,
    Form,
    Node,
    content,
    divided,
    exact_part,
    factors,
    minus,
    number,
    order,
    plus,
    scaled,
    shifted,
    single,
    times,
)

VARIANTS = 12
"""How many ways to share a form out among its atoms are compared."""


def variants(form: Form) -> list[list[tuple[Node, int]]]:
    """Ways to write a form as pieces ``(atom or form, coefficient)``."""
    found = [form]
    for atom, coef in form[2]:
        if len(found) >= VARIANTS:
            break
        for done in list(found):
            found += [other for other in _pushed(done, atom, coef) if other not in found]
    pieces = []
    for one in found[: 2 * VARIANTS]:
        pieces += _remainders(one)
    return pieces


def _pushed(form: Form, atom: Node, coef: int) -> Iterator[Form]:
    """``form`` with one or all other terms moved into a minimum, a select or a floor."""
    if atom[0] == "sel" and not atom[2][2] and not atom[3][2]:
        raw = ("sel", atom[1], scaled(atom[2], coef), scaled(atom[3], coef))
        others = tuple(term for term in form[2] if term[0] != atom)
        form, atom, coef = ("+", form[1], (*others, (raw, 1))), raw, 1
        yield form
    if atom[0] not in ("min", "sel", "floor"):
        return
    rest = minus(form, single(atom, coef))
    if rest == ZERO or any(a == atom for a, _ in rest[2]):
        return
    moves = [single(a, c) for a, c in rest[2]]
    moves += [number(rest[1])] if rest[1] else []
    moves += [rest] if len(moves) > 1 else []
    for move in moves:
        if content(move) % coef or move[1] % coef:
            continue
        left = minus(rest, move)
        # The moved part is raw: the constructors would take it out again.
        raw = _into(atom, divided(move, coef))
        yield ("+", left[1], (*left[2], (raw, coef)))


def _into(atom: Node, move: Form) -> Node:
    match atom[0]:
        case "min":
            return ("min", tuple(plus(arg, move) for arg in atom[1]))
        case "sel":
            return ("sel", atom[1], plus(atom[2], move), plus(atom[3], move))
    return ("floor", plus(atom[1], move, atom[2]), atom[2])


Pieces = list[tuple[Node, int]]


def _remainders(form: Form) -> list[Pieces]:
    """``form`` as it is, with multiples of quotients as remainders, with factors taken out."""
    results = [_pieces(form)]
    current, taken = form, Pieces()
    for atom, coef in form[2]:
        if (found := _as_remainder(current, atom, coef)) is not None:
            current, piece = found
            taken.append(piece)
    if taken:
        results.append([*_pieces(current), *taken])
        results += _turned(current, taken)
    return [*results, *_factored(form)]


def _pieces(form: Form) -> Pieces:
    return [*form[2], (number(form[1]), 1)]


def _turned(form: Form, taken: Pieces) -> Iterator[Pieces]:
    """``m - 1 - x % m`` as ``(-1 - x) % m``, or as minus a remainder by ``-m``."""
    for place, ((_, name, dividend, divisor), k) in enumerate(taken):
        size = divisor[1]
        if name != "mod" or divisor[2] or form[1] != -k * (size - 1):
            continue
        others = [*taken[:place], *taken[place + 1 :], *_pieces(shifted(form, -form[1]))]
        opposite = minus(number(-1), dividend)
        reduced = ("+", opposite[1] % size, opposite[2])
        yield [*others, (("mod", "mod", reduced, divisor), -k)]
        below = shifted(dividend, 1)
        for const in (below[1] % size, below[1] % size - size):
            by = number(-size)
            yield [*others, (("mod", "mod", ("+", const, below[2]), by), k)]


def _factored(form: Form) -> Iterator[Pieces]:
    """``x*y + c*x`` as ``x * (y + c)``, for every factor of a product that others share."""
    shared = {part for atom, _ in form[2] if atom[0] == "mul" for part in atom[1]}
    for part in sorted(shared, key=order):
        whole, rest = exact_part(form, single(part))
        if len(whole[2]) + bool(whole[1]) > 1:
            size = math.gcd(math.gcd(*(coef for _, coef in whole[2])), whole[1])
            for signed in (size, -size):
                piece = ("times", divided(whole, signed), single(part))
                for pieces in _remainders(rest):
                    yield [*pieces, (piece, signed)]


def _as_remainder(form: Form, atom: Node, coef: int) -> tuple[Form, tuple[Node, int]] | None:
    """``-d*k * (x // d)`` as ``k * (x % d) - k*x``, where the rest of the form becomes shorter."""
    name, dividend, divisor, quotient = _division(atom)
    if not name or divisor == ZERO:
        return None
    whole = _exchanged(form, name, dividend, divisor, quotient)
    if whole is not None or atom[0] != "floor":
        return whole
    # (x // b) % m is x // b - m * (x // (b*m)).
    for other, _ in form[2]:
        if other[0] == "floor" and other[1] == dividend and other is not atom:
            size, rest = divmod(atom[2], other[2])
            if rest == 0 and size > 1:
                return _exchanged(form, name, single(other), number(size), atom)
    return None


def _exchanged(
    form: Form, name: str, dividend: Form, divisor: Form, quotient: Node
) -> tuple[Form, tuple[Node, int]] | None:
    mine = dict(form[2])
    product = times(single(quotient), divisor)
    atom, coef = product[2][0]
    if mine.get(atom, 0) % coef or not mine.get(atom, 0):
        return None
    k = -(mine[atom] // coef)
    rest = plus(plus(form, product, k), dividend, -k)
    if len(rest[2]) + bool(rest[1]) > len(form[2]) + bool(form[1]):
        return None
    return rest, (("mod", name, dividend, divisor), k)


def _division(atom: Node) -> tuple[str, Form, Form, Node]:
    """The kind of remainder, dividend and divisor of a quotient among the factors of ``atom``."""
    for part in factors(atom):
        if part[0] == "floor":
            return "mod", part[1], number(part[2]), part
        if part[0] in ("fdiv", "tdiv"):
            return {"fdiv": "mod", "tdiv": "tmod"}[part[0]], part[1], part[2], part
    return "", ZERO, ZERO, atom
