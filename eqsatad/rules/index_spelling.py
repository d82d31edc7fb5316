"""From normal forms to the shortest way to write them, and the measure of that.

A *tree* is nested tuples ``(operator, operand, ...)`` over names and integers. `operators` counts
a tree as `docs/simplifier.md` defines it: sums flat, signs free, n-ary minima and connectives n-1.
`spelled` turns multiples of a floor back into remainders, takes common factors out, and moves
terms into minima, selects and floors where that takes fewer operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce
from itertools import combinations, permutations

from eqsatad.rules.index_conditions import FORMS, both, either, is_cond, maximum, minimum, negation
from eqsatad.rules.index_forms import (
    Cond,
    Form,
    Node,
    minus,
    number,
    order,
    plus,
    scaled,
    shifted,
    single,
)
from eqsatad.rules.index_sharing import variants
from eqsatad.rules.index_trees import Term, Tree, added, dear, nary, operators, terms_dear


def cost(node: Node) -> int:
    """The operators of the shortest spelling that was found."""
    return operators(spelled(node))


@lru_cache(maxsize=1 << 16)
def spelled(node: Node) -> Tree:
    """The tree of a form, an atom or a condition."""
    return _cond(node) if is_cond(node) else added(_sides(node)) if node[0] == "+" else _atom(node)


@lru_cache(maxsize=1 << 16)
def _best(form: Form) -> tuple[Term, ...]:
    """The signed terms of the spelling of ``form`` with the fewest operators."""
    return min((tuple(_plain(pieces)) for pieces in variants(form)), key=terms_dear)


def _sides(form: Form) -> list[Term]:
    return list(_best(form))


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
    return sign, ("*", added([(sign * s, tree) for s, tree in terms]), size)


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
            found = [
                (sign, _extreme("min", node[1])),
                (-sign, _extreme("max", [scaled(arg, -1) for arg in node[1]])),
            ]
        case "sel":
            _, cond, then, other = node
            turned = ("sel", cond, scaled(then, -1), scaled(other, -1))
            found.append((-sign, _select(turned)))
        case "mul":
            for place, part in enumerate(node[1]):
                if part[0] in ("sel", "min"):
                    others = [_atom(other) for at, other in enumerate(node[1]) if at != place]
                    found += [
                        (other_sign, reduce(_product, others, tree))
                        for other_sign, tree in _options(sign, part)
                    ]
        case "floor":
            _, inner, divisor = node
            found.append((-sign, ("div", spelled(shifted(inner, 1 - divisor)), -divisor)))
            below = ("div", spelled(minus(number(divisor - 1), inner)), divisor)
            # Which side of a comparison a quotient is on is free, so this is for shorter ones.
            if dear(below) < dear(found[0][1]):
                found.append((-sign, below))
    # -(x // m) is the Euclidean quotient by -m.
    found += [
        (-s, (OPPOSITE[tree[0]], tree[1], -tree[2]))
        for s, tree in found
        if isinstance(tree, tuple)
        and tree[0] in OPPOSITE
        and isinstance(tree[2], int)
        and tree[2] > 0
    ]
    return sorted(found, key=lambda term: (dear(term[1]), term[0] < 0, term[1][0] == "ediv"))


OPPOSITE = {"div": "ediv", "tdiv": "tdiv"}
"""Quotients by a positive literal, and what their negations are by its negative."""


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
            return ("div", spelled(node[1]), node[2])
        case "fdiv":
            return ("div", spelled(node[1]), spelled(node[2]))
        case "sel":
            return _select(node)
        case "mul":
            return reduce(_product, map(spelled, node[1]))
    assert node[0] in FORMS, f"no atom: {node}"
    return (node[0], spelled(node[1]), spelled(node[2]))


def _product(left: Tree, right: Tree) -> Tree:
    return ("*", left, right)


def _select(node: Node) -> Tree:
    """A select, whichever way its condition is shorter."""
    _, cond, then, other = node
    here = ("select", spelled(cond), spelled(then), spelled(other))
    turned = ("select", spelled(negation(cond)), spelled(other), spelled(then))
    return min(here, turned, key=dear)


def _extreme(name: str, args: Sequence[Form]) -> Tree:
    """A minimum or a maximum of ``args``."""
    if len(args) == 2 and name == "max" and args[0] == scaled(args[1], -1):
        return ("abs", spelled(min(args, key=lambda arg: dear(spelled(arg)))))
    whole = nary(name, [spelled(arg) for arg in args])
    paired = _paired(name, args) if len(args) > 2 else ()
    return min([whole, *_common_quotient(name, args), *paired], key=dear)


def _paired(name: str, args: Sequence[Form]) -> Iterator[Tree]:
    """Three or more operands with what two of them have in common outside."""
    build = minimum if name == "min" else maximum
    for pair in combinations(args, 2):
        rest = [spelled(arg) for arg in args if arg not in pair]
        yield nary(name, [spelled(build(*pair)), *rest])


def _common_quotient(name: str, args: Sequence[Form]) -> Iterator[Tree]:
    """``min(x // m, y // m + c)`` as ``min(x, y + c*m) // m``: division is monotone."""
    divisors = {atom[2] for arg in args for atom, _ in arg[2] if atom[0] == "floor"}
    for divisor in sorted(divisors):
        inner = [_multiplied(arg, divisor) for arg in args]
        if all(one is not None for one in inner):
            forms = [one for one in inner if one is not None]
            yield ("div", nary(name, [spelled(one) for one in forms]), divisor)
    alone = [arg[2][0] for arg in args if len(arg[2]) == 1 and not arg[1]]
    divided_by = {(atom[2], coef) for atom, coef in alone if atom[0] == "tdiv"}
    if len(alone) == len(args) and len(divided_by) == 1:
        ((under, sign),) = divided_by
        if all(atom[0] == "tdiv" for atom, _ in alone) and not under[2] and abs(sign) == 1:
            trees = [spelled(scaled(atom[1], sign)) for atom, _ in alone]
            yield ("tdiv", nary(name, trees), under[1])


def _multiplied(form: Form, divisor: int) -> Form | None:
    """``x`` with ``form == x // divisor``: one quotient and whatever is whole."""
    found = [(a, c) for a, c in form[2] if a[0] == "floor" and a[2] == divisor and abs(c) == 1]
    if not found:
        return scaled(form, divisor) if not form[2] else None
    atom, coef = found[0]
    rest = minus(form, single(atom, coef))
    inner = atom[1] if coef == 1 else minus(number(divisor - 1), atom[1])
    return plus(inner, rest, divisor)


def _cond(cond: Cond) -> Tree:
    match cond:
        case ("true",) | ("false",):
            return cond[0]
        case ("b", name):
            return name
        case ("ge", form):
            return min(_inequalities(form), key=dear)
        case ("eq", form):
            return min([*_remainder_is("==", form), *_compared("==", form)], key=dear)
        case ("not", ("eq", form)):
            return min([*_remainder_is("!=", form), *_compared("!=", form)], key=dear)
        case ("not", inner):
            return ("not", spelled(inner))
    name, args = cond
    here = nary(name, [spelled(arg) for arg in args])
    opposite = {"and": "or", "or": "and"}[name]
    turned = ("not", nary(opposite, [spelled(negation(arg)) for arg in args]))
    ways = [*_distributed(name, opposite, args), *_chosen(name, opposite, args)]
    return min([here, turned, *ways, *_refusals(name, opposite, args)], key=dear)


def _chosen(name: str, opposite: str, args: tuple[Cond, ...]) -> Iterator[Tree]:
    """``(e and f) or (not e and h)``, or ``(not e or f) and (e or h)``, as a select."""
    if len(args) != 2 or any(arg[0] != opposite for arg in args):
        return
    first, second = (arg[1] for arg in args)
    joined = both if opposite == "and" else either
    for cond in first:
        if negation(cond) in second:
            here = joined(*(part for part in first if part != cond))
            there = joined(*(part for part in second if part != negation(cond)))
            test = cond if name == "or" else negation(cond)
            yield ("select", spelled(test), spelled(here), spelled(there))
            yield ("select", spelled(negation(test)), spelled(there), spelled(here))


def _refusals(name: str, opposite: str, args: tuple[Cond, ...]) -> Iterator[Tree]:
    """``e and not f and not h`` as ``e and not (f or h)``."""
    refused = [arg[1] for arg in args if arg[0] == "not" and arg[1][0] == "b"]
    if 1 < len(refused) < len(args):
        rest = [spelled(arg) for arg in args if arg[0] != "not" or arg[1][0] != "b"]
        yield nary(name, [*rest, ("not", nary(opposite, [spelled(one) for one in refused]))])


def _distributed(name: str, opposite: str, args: tuple[Cond, ...]) -> Iterator[Tree]:
    """``(a and b) or (a and c)`` as ``a and (b or c)``."""
    inner = [set(arg[1]) if arg[0] == opposite else {arg} for arg in args]
    common = set.intersection(*inner)
    if not common:
        return
    outer, joined = (either, both) if name == "or" else (both, either)
    left = outer(*(joined(*sorted(one - common, key=order)) for one in inner))
    trees = [spelled(one) for one in sorted(common, key=order)]
    yield nary(opposite, [*trees, spelled(left)])


def _inequalities(form: Form) -> Iterator[Tree]:
    """``form >= 0`` as ``right <= left`` or ``right < left + 1``; also with a smaller constant."""
    yield from _compared("<=", form)
    yield from _compared("<", shifted(form, 1))


def _remainder_is(name: str, form: Form) -> Iterator[Tree]:
    """``(x + c) % m == 0`` as ``x % m == -c % m``."""
    for atom, coef in form[2]:
        rest = minus(form, single(atom, coef))
        signed = rest if coef < 0 else scaled(rest, -1)
        if atom[0] == "floor" and abs(coef) == atom[2] and signed == atom[1]:
            _, inner, divisor = atom
            plain = shifted(inner, -inner[1])
            yield (name, ("mod", spelled(plain), divisor), -inner[1] % divisor)


def _across(name: str, terms: list[Term]) -> Iterator[Tree]:
    """``x < y * -2`` for two terms of one sign: a literal factor takes the other."""
    if len(terms) != 2 or terms[0][0] != terms[1][0]:
        return
    for (sign, tree), (_, other) in permutations(terms):
        match other:
            case ("*", inner, int(factor)):
                moved = ("*", inner, -factor)
                yield (name, moved, tree) if sign > 0 else (name, tree, moved)


def _compared(name: str, form: Form) -> Iterator[Tree]:
    """The terms of ``form`` on the side where they are positive: ``right name left``."""
    for variant in variants(form):
        terms = list(_plain(variant))
        left = added([(1, tree) for sign, tree in terms if sign > 0])
        right = added([(1, tree) for sign, tree in terms if sign < 0])
        yield (name, right, left)
        yield from _across(name, terms)
        if any(isinstance(tree, int) for _, tree in terms) and len(terms) > 1:
            # The constant on the other side, negated: it may stand alone there.
            const = next(sign * tree for sign, tree in terms if isinstance(tree, int))
            rest = [(sign, tree) for sign, tree in terms if not isinstance(tree, int)]
            left = added([(1, tree) for sign, tree in rest if sign > 0])
            right = added([(1, tree) for sign, tree in rest if sign < 0])
            if const > 0:
                yield (name, ("+", right, -const) if right != 0 else -const, left)
            else:
                yield (name, right, ("+", left, const) if left != 0 else const)
