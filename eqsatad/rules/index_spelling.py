"""From normal forms to the shortest way to write them, and the measure of that.

A *tree* is nested tuples ``(operator, operand, ...)`` over names and integers. `operators` counts
a tree as `docs/simplifier.md` defines it: sums flat, signs free, n-ary minima and connectives n-1.
`spelled` turns multiples of a floor back into remainders, takes common factors out, and moves
terms into minima, selects and floors where that takes fewer operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from eqsatad.rules.index_forms import (
    FORMS,
    ZERO,
    Cond,
    Form,
    Node,
    both,
    divided,
    exact_part,
    factors,
    is_cond,
    minus,
    negation,
    number,
    order,
    plus,
    scaled,
    shifted,
    single,
    times,
)

Tree = Any
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
Term = tuple[int, Tree]
"""A sign and what is added with it."""


@lru_cache(maxsize=1 << 16)
def operators(tree: Tree) -> int:
    """The number of operators of ``tree``: see the measure in `docs/simplifier.md`."""
    if not isinstance(tree, tuple):
        return 0
    name, *args = tree
    if name in ("+", "-", "neg") or (name == "*" and -1 in args):
        terms = list(_terms(tree, 1))
        negative = not any(sign > 0 for sign, _ in terms)
        return len(terms) - 1 + negative + sum(operators(part) for _, part in terms)
    if name == "not" and isinstance(args[0], tuple) and args[0][0] in COMPARISONS:
        return operators(args[0])
    own = 0 if name == "b2i" else 1
    return own + sum(map(operators, args))


def _terms(tree: Tree, sign: int) -> Iterator[Term]:
    match tree:
        case ("+", left, right):
            yield from _terms(left, sign)
            yield from _terms(right, sign)
        case ("-", left, right):
            yield from _terms(left, sign)
            yield from _terms(right, -sign)
        case ("neg", inner) | ("*", inner, -1) | ("*", -1, inner):
            yield from _terms(inner, -sign)
        case ("*", _, int(factor)) | ("*", int(factor), _) if factor < 0:
            yield -sign, tree
        case int() if tree < 0:
            yield -sign, tree
        case _:
            yield sign, tree


def cost(node: Node) -> int:
    """The operators of the shortest spelling that was found."""
    return operators(spelled(node))


@lru_cache(maxsize=1 << 16)
def spelled(node: Node) -> Tree:
    """The tree of a form, an atom or a condition."""
    return _cond(node) if is_cond(node) else _sum(_sides(node)) if node[0] == "+" else _atom(node)


def _sum(terms: list[Term]) -> Tree:
    """The tree of signed terms, a positive one first."""
    ordered = sorted(terms, key=lambda term: term[0] < 0)
    if not ordered:
        return 0
    sign, result = ordered[0]
    if sign < 0:
        result = -result if isinstance(result, int) else _negated(result)
    for sign, part in ordered[1:]:
        if isinstance(part, int):
            result = ("+", result, sign * part)
        else:
            result = ("+" if sign > 0 else "-", result, part)
    return result


def _negated(tree: Tree) -> Tree:
    match tree:
        case ("*", inner, int(factor)):
            return ("*", inner, -factor)
    return ("neg", tree)


@lru_cache(maxsize=1 << 16)
def _best(form: Form) -> tuple[Term, ...]:
    """The signed terms of the spelling of ``form`` with the fewest operators."""
    return min((tuple(_plain(f)) for f in _variants(form)), key=_terms_cost)


def _sides(form: Form) -> list[Term]:
    return list(_best(form))


def _terms_cost(terms: tuple[Term, ...]) -> int:
    if not terms:
        return 0
    negative = not any(sign > 0 for sign, _ in terms)
    if len(terms) == 1:
        negative = negative and isinstance(terms[0][1], tuple) and terms[0][1][0] != "*"
    return len(terms) - 1 + negative + sum(operators(tree) for _, tree in terms)


VARIANTS = 12
"""How many ways to share a form out among its atoms are compared."""


def _variants(form: Form) -> list[list[tuple[Node, int]]]:
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
    if abs(coef) != 1 or atom[0] not in ("min", "sel", "floor"):
        return
    rest = minus(form, single(atom, coef))
    if rest == ZERO or any(a == atom for a, _ in rest[2]):
        return
    moves = [single(a, c) for a, c in rest[2]]
    moves += [number(rest[1])] if rest[1] else []
    moves += [rest] if len(moves) > 1 else []
    for move in moves:
        left = minus(rest, move)
        # The moved part is raw: the constructors would take it out again.
        raw = _into(atom, scaled(move, coef))
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
            piece = ("times", divided(whole, size), single(part))
            for pieces in _remainders(rest):
                yield [*pieces, (piece, size)]


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


def _plain(pieces: list[tuple[Node, int]]) -> Iterator[Term]:
    """Signed terms, those with one coefficient under one factor, a positive one if it is free."""
    groups: dict[int, list[Term]] = {}
    choices: list[list[Term]] = []
    const = 0
    for node, coef in pieces:
        sign = 1 if coef > 0 else -1
        if node[0] == "+" and not node[2]:
            const += coef * node[1]
        elif abs(coef) == 1:
            choices.append(_options(sign, node))
        elif coef:
            groups.setdefault(abs(coef), []).append(_options(sign, node)[0])
    for size, terms in groups.items():
        choices.append([_grouped(size, terms)])
    if const:
        choices.append([(1 if const > 0 else -1, abs(const))])
    yield from _signed(choices)


def _grouped(size: int, terms: list[Term]) -> Term:
    """The sum of ``terms`` under the factor ``size``."""
    if len(terms) == 1:
        return terms[0][0], ("*", terms[0][1], size)
    sign = 1 if any(s > 0 for s, _ in terms) else -1
    return sign, ("*", _sum([(sign * s, tree) for s, tree in terms]), size)


def _signed(choices: list[list[Term]]) -> list[Term]:
    """One way to write each term: the shortest, with a positive one among them if that is free."""
    taken = [options[0] for options in choices]
    if any(sign > 0 for sign, _ in taken):
        return taken
    for place, options in enumerate(choices):
        for sign, tree in options[1:]:
            if sign > 0 and operators(tree) <= operators(taken[place][1]) + 1:
                return [*taken[:place], (sign, tree), *taken[place + 1 :]]
    return taken


def _options(sign: int, node: Node) -> list[Term]:
    """Ways to write ``sign * node``, the shortest first."""
    found = [(sign, _piece(node))]
    match node[0]:
        case "min":
            found = [(sign, _extreme("min", node[1])),
                     (-sign, _extreme("max", [scaled(arg, -1) for arg in node[1]]))]
        case "sel":
            _, cond, then, other = node
            turned = ("sel", cond, scaled(then, -1), scaled(other, -1))
            found.append((-sign, _select(turned)))
        case "floor":
            _, inner, divisor = node
            found.append((-sign, ("div", spelled(shifted(inner, 1 - divisor)), -divisor)))
    return sorted(found, key=lambda term: (operators(term[1]), term[0] < 0))


def _piece(node: Node) -> Tree:
    if node[0] == "mod":
        return (node[1], spelled(node[2]), spelled(node[3]))
    if node[0] == "times":
        return ("*", spelled(node[1]), spelled(node[2]))
    return spelled(node)


def _atom(node: Node) -> Tree:
    match node[0]:
        case "v":
            return node[1]
        case "min":
            return _extreme("min", node[1])
        case "floor":
            return _floored(node)
        case "fdiv":
            return ("div", spelled(node[1]), spelled(node[2]))
        case "sel":
            return _select(node)
        case "mul":
            result = spelled(node[1][0])
            for part in node[1][1:]:
                result = ("*", result, spelled(part))
            return result
    assert node[0] in FORMS, f"no atom: {node}"
    return (node[0], spelled(node[1]), spelled(node[2]))


def _floored(node: Node) -> Tree:
    """A quotient; one whose dividend has a common factor with a remainder, divided through."""
    return ("div", spelled(node[1]), node[2])


def _select(node: Node) -> Tree:
    """A select, whichever way its condition is shorter."""
    _, cond, then, other = node
    here = ("select", spelled(cond), spelled(then), spelled(other))
    turned = ("select", spelled(negation(cond)), spelled(other), spelled(then))
    return min(here, turned, key=operators)


def _extreme(name: str, args: Sequence[Form]) -> Tree:
    """A minimum or a maximum of ``args``."""
    whole = _nary(name, [spelled(arg) for arg in args])
    return min([whole, *_common_quotient(name, args)], key=operators)


def _common_quotient(name: str, args: Sequence[Form]) -> Iterator[Tree]:
    """``min(x // m, y // m + c)`` as ``min(x, y + c*m) // m``: division is monotone."""
    divisors = {atom[2] for arg in args for atom, _ in arg[2] if atom[0] == "floor"}
    for divisor in sorted(divisors):
        inner = [_multiplied(arg, divisor) for arg in args]
        if all(one is not None for one in inner):
            forms = [one for one in inner if one is not None]
            yield ("div", _nary(name, [spelled(one) for one in forms]), divisor)
    atoms = [arg[2][0] if len(arg[2]) == 1 and not arg[1] else ((), 0) for arg in args]
    (first, coef), *_ = atoms
    if first and first[0] == "tdiv" and not first[2][2] and abs(coef) == 1:
        if all(a and a[0] == "tdiv" and a[2] == first[2] and c == coef for a, c in atoms):
            forms = [scaled(a[1], coef) for a, _ in atoms]
            yield ("tdiv", _nary(name, [spelled(one) for one in forms]), first[2][1])


def _multiplied(form: Form, divisor: int) -> Form | None:
    """``x`` with ``form == x // divisor``: one quotient and whatever is whole."""
    found = [(a, c) for a, c in form[2] if a[0] == "floor" and a[2] == divisor and abs(c) == 1]
    if not found:
        return scaled(form, divisor) if not form[2] else None
    atom, coef = found[0]
    rest = minus(form, single(atom, coef))
    inner = atom[1] if coef == 1 else minus(number(divisor - 1), atom[1])
    return plus(inner, rest, divisor)


def _nary(name: str, trees: list[Tree]) -> Tree:
    ordered = sorted(trees, key=lambda tree: (isinstance(tree, int), repr(tree)))
    result = ordered[0]
    for tree in ordered[1:]:
        result = (name, result, tree)
    return result


def _cond(cond: Cond) -> Tree:
    match cond:
        case ("true",) | ("false",):
            return cond[0]
        case ("b", name):
            return name
        case ("ge", form):
            return min(_inequalities(form), key=operators)
        case ("eq", form):
            return min(_compared("==", form), key=operators)
        case ("not", ("eq", form)):
            return min(_compared("!=", form), key=operators)
        case ("not", inner):
            return ("not", spelled(inner))
    name, args = cond
    here = _nary(name, [spelled(arg) for arg in args])
    opposite = {"and": "or", "or": "and"}[name]
    turned = ("not", _nary(opposite, [spelled(negation(arg)) for arg in args]))
    shared = _distributed(name, opposite, args)
    return min([here, turned, *shared], key=operators)


def _distributed(name: str, opposite: str, args: tuple[Cond, ...]) -> Iterator[Tree]:
    """``(a and b) or (a and c)`` as ``a and (b or c)``."""
    inner = [set(arg[1]) if arg[0] == opposite else {arg} for arg in args]
    common = set.intersection(*inner)
    if not common:
        return
    joined = both if opposite == "and" else _either
    left = [joined(*sorted(one - common)) for one in inner]
    outer = joined(*left) if name == opposite else (_either if name == "or" else both)(*left)
    trees = [spelled(one) for one in sorted(common, key=repr)]
    yield _nary(opposite, [*trees, spelled(outer)])


def _either(*conds: Cond) -> Cond:
    from eqsatad.rules.index_forms import either

    return either(*conds)


def _inequalities(form: Form) -> Iterator[Tree]:
    """``form >= 0`` as ``right <= left`` or ``right < left + 1``; also with a smaller constant."""
    yield from _compared("<=", form)
    yield from _compared("<", shifted(form, 1))


def _compared(name: str, form: Form) -> Iterator[Tree]:
    """The terms of ``form`` on the side where they are positive: ``right name left``."""
    for variant in _variants(form):
        terms = list(_plain(variant))
        left = _sum([(1, tree) for sign, tree in terms if sign > 0])
        right = _sum([(1, tree) for sign, tree in terms if sign < 0])
        yield (name, right, left)
        if any(isinstance(tree, int) for _, tree in terms) and len(terms) > 1:
            # The constant on the other side, negated: it may stand alone there.
            const = next(sign * tree for sign, tree in terms if isinstance(tree, int))
            rest = [(sign, tree) for sign, tree in terms if not isinstance(tree, int)]
            left = _sum([(1, tree) for sign, tree in rest if sign > 0])
            right = _sum([(1, tree) for sign, tree in rest if sign < 0])
            if const > 0:
                yield (name, ("+", right, -const) if right != 0 else -const, left)
            else:
                yield (name, right, ("+", left, const) if left != 0 else const)
    common = math.gcd(*(coef for _, coef in form[2])) if form[2] else 1
    assert common == 1 or name == "<" or form[2], "conditions are divided through"
