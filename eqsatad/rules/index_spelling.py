"""From normal forms to the shortest way to write them, and the measure of that.

A *tree* is nested tuples ``(operator, operand, ...)`` over names and integers. `operators` counts
a tree as `docs/simplifier.md` defines it: sums flat, signs free, n-ary minima and connectives n-1.
`spelled` turns multiples of a floor back into remainders, takes common factors out, and moves
terms into minima, selects and floors where that takes fewer operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from eqsatad.rules.index_forms import (
    FORMS,
    ZERO,
    Cond,
    Form,
    Node,
    both,
    exact_part,
    factors,
    is_cond,
    make,
    minus,
    monomial,
    negation,
    number,
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


def _remainders(form: Form) -> list[list[tuple[Node, int]]]:
    """``form`` as it is, and with multiples of quotients as remainders."""
    plain = [*form[2], (number(form[1]), 1)]
    results = [plain]
    current, taken = form, list[tuple[Node, int]]()
    for atom, coef in form[2]:
        if (found := _as_remainder(current, atom, coef)) is not None:
            current, piece = found
            taken.append(piece)
    if taken:
        results.append([*current[2], (number(current[1]), 1), *taken])
    return results


def _as_remainder(form: Form, atom: Node, coef: int) -> tuple[Form, tuple[Node, int]] | None:
    """``-d*k * (x // d)`` as ``k * (x % d) - k*x``, where the rest of the form becomes shorter."""
    name, dividend, divisor, times_it = _division(atom)
    if not name:
        return None
    mine = dict(form[2])
    product = times(single(times_it), divisor) if divisor[2] else single(times_it, divisor[1])
    lead = product[2][0]
    if mine.get(lead[0], 0) % lead[1] or not mine.get(lead[0], 0):
        return None
    k = -(mine[lead[0]] // lead[1])
    rest = plus(plus(form, product, k), dividend, -k)
    if len(rest[2]) + bool(rest[1]) > len(form[2]) + bool(form[1]):
        return None
    best = (rest, (("mod", name, dividend, divisor), k))
    # A constant in the dividend may leave it for the rest: (x + 2) % 4 - 2.
    return best


def _division(atom: Node) -> tuple[str, Form, Form, Node]:
    """The kind of remainder, dividend and divisor of a quotient among the factors of ``atom``."""
    for part in factors(atom):
        if part[0] == "floor":
            return "mod", part[1], number(part[2]), part
        if part[0] in ("fdiv", "tdiv"):
            return {"fdiv": "mod", "tdiv": "tmod"}[part[0]], part[1], part[2], part
    return "", ZERO, ZERO, atom


def _plain(pieces: list[tuple[Node, int]]) -> Iterator[Term]:
    """Signed terms, those with one coefficient under one factor."""
    groups: dict[int, list[Term]] = {}
    const = 0
    monomials: dict[int, list[tuple[Node, int]]] = {}
    for node, coef in pieces:
        if node[0] == "+" and not node[2]:
            const += coef * node[1]
        elif coef and node[0] == "mul":
            monomials.setdefault(abs(coef), []).append((node, 1 if coef > 0 else -1))
        elif coef:
            groups.setdefault(abs(coef), []).append((1 if coef > 0 else -1, _piece(node)))
    for size, found in monomials.items():
        groups.setdefault(size, []).extend(_products(found))
    for size, terms in groups.items():
        if size == 1:
            yield from terms
        elif len(terms) == 1:
            yield terms[0][0], ("*", terms[0][1], size)
        else:
            # A constant that is a multiple joins the terms under their factor.
            sign = 1 if any(s > 0 for s, _ in terms) else -1
            yield sign, ("*", _sum([(sign * s, tree) for s, tree in terms]), size)
    if const:
        yield (1 if const > 0 else -1), abs(const)


def _products(found: list[tuple[Node, int]]) -> Iterator[Term]:
    """Monomials, a factor that two of them share taken out."""
    left = list(found)
    while left:
        counts: dict[Node, int] = {}
        for atom, _ in left:
            for part in dict.fromkeys(factors(atom)):
                counts[part] = counts.get(part, 0) + 1
        shared = max(counts, key=lambda part: counts[part])
        group = [(a, s) for a, s in left if shared in factors(a)] if counts[shared] > 1 else left[:1]
        left = [item for item in left if item not in group]
        if len(group) == 1:
            yield group[0][1], _atom(group[0][0])
            continue
        whole, _ = exact_part(make(0, dict(group)), single(shared))
        yield 1, ("*", spelled(whole), spelled(single(shared)))


def _piece(node: Node) -> Tree:
    if node[0] == "mod" and len(node) == 4:
        return (node[1], spelled(node[2]), spelled(node[3]))
    return spelled(node)


def _atom(node: Node) -> Tree:
    match node[0]:
        case "v":
            return node[1]
        case "min":
            return _minimum(node[1])
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


def _minimum(args: tuple[Form, ...]) -> Tree:
    """A minimum, or a negated maximum where that has fewer signs to write."""
    trees = _nary("min", [spelled(arg) for arg in args])
    turned = ("neg", _nary("max", [spelled(scaled(arg, -1)) for arg in args]))
    factored = _common_quotient(args)
    return min([trees, turned, *factored], key=operators)


def _common_quotient(args: tuple[Form, ...]) -> Iterator[Tree]:
    """``min(x // m, y // m + c)`` as ``min(x, y + c*m) // m``: division is monotone."""
    divisors = {atom[2] for arg in args for atom, _ in arg[2] if atom[0] == "floor"}
    for divisor in sorted(divisors):
        inner = [_multiplied(arg, divisor) for arg in args]
        if all(one is not None for one in inner):
            forms = [one for one in inner if one is not None]
            yield ("div", _nary("min", [spelled(one) for one in forms]), divisor)


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
