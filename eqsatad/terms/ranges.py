"""Interval analysis of index expressions: between which integers every value lies.

None is unbounded. An axis lies in ``0 .. extent - 1`` and a size is at least 1; a position that
argmax finds lies within its axes, other data anywhere unless something bounds it. The interval
of an expression is sound, not tight: each node is taken for itself, except that linear parts are
brought to linear normal form first, so ``i - i`` is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf, prod

from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import (
    ARGMAX,
    ARGMIN,
    Apply,
    Axis,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Select,
    Size,
    Stage,
)
from eqsatad.terms.ops import ABS, ADD, FLOORDIV, MAX, MIN, MOD, MUL, NEG, SIGN, SUB, Op
from eqsatad.terms.walk import postorder

Interval = tuple[int | None, int | None]

ANYTHING: Interval = (None, None)


@lru_cache(maxsize=65536)
def interval(expr: Expr) -> Interval:
    """The least and the greatest value that ``expr`` can have, as far as known."""
    order = postorder(expr)
    # The terms of a sum are taken together, so only the whole sum needs its normal form.
    whole = {child for node in order if not _is_linear(node) for child in node.children}
    known: dict[Expr, Interval] = {}
    for node in order:
        if node.dtype == "index":
            known[node] = _node(node, known)
            if node is expr or node in whole:
                known[node] = both(known[node], _linear(node, known))
    return known.get(expr, ANYTHING)


def rough(root: Expr) -> dict[Expr, Interval]:
    """An interval for every index expression under ``root``, each node taken for itself."""
    known: dict[Expr, Interval] = {}
    for node in postorder(root):
        if node.dtype == "index":
            known[node] = _node(node, known)
    return known


def both(a: Interval, b: Interval) -> Interval:
    """What lies in both."""
    lows = [low for low in (a[0], b[0]) if low is not None]
    highs = [high for high in (a[1], b[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)


def hull(a: Interval, b: Interval) -> Interval:
    """The smallest interval around both."""
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    high = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return low, high


def _is_linear(node: Expr) -> bool:
    return isinstance(node, Apply) and node.op in (ADD, SUB, MUL, NEG, MOD)


def _linear(node: Expr, known: dict[Expr, Interval]) -> Interval:
    if not _is_linear(node):
        return ANYTHING
    form = linear(node)
    if form.terms == ((1, node),):
        return ANYTHING
    total: Interval = (form.const, form.const)
    for coef, atom in form.terms:
        # An atom that the normal form made is not a node of the expression itself.
        span = known[atom] if atom in known else interval(atom)
        total = _add(total, _mul((coef, coef), span))
    return total


def _node(node: Expr, known: dict[Expr, Interval]) -> Interval:
    match node:
        case Const(value, _):
            return value, value
        case Size(_, minimum, multiple):
            return -(-minimum // multiple) * multiple, None
        case Axis(_, extent):
            high = interval(extent)[1]
            return 0, None if high is None else max(0, high - 1)
        case Select(_, then, other):
            return hull(known[then], known[other])
        case Cast(arg, _) if arg.dtype == "bool":
            return 0, 1
        case Cast(arg, _):
            return _position(arg)
        case Apply(op, args) if op in INTERVALS:
            return INTERVALS[op](*(known[arg] for arg in args))
    return ANYTHING


def _position(arg: Expr) -> Interval:
    """Where an argmax or argmin lies, which may be read from the stage that works it out."""
    if isinstance(arg, Read) and isinstance(arg.tensor, Stage) and not arg.tensor.scatters:
        arg = arg.tensor.body
    if not isinstance(arg, Reduce) or arg.combiner not in (ARGMAX, ARGMIN):
        return ANYTHING
    highs = [interval(axis.extent)[1] for axis in arg.axes]
    known = [max(1, high) for high in highs if high is not None]
    return 0, prod(known) - 1 if len(known) == len(highs) else None


def _add(a: Interval, b: Interval) -> Interval:
    low = None if a[0] is None or b[0] is None else a[0] + b[0]
    high = None if a[1] is None or b[1] is None else a[1] + b[1]
    return low, high


def _neg(a: Interval) -> Interval:
    return None if a[1] is None else -a[1], None if a[0] is None else -a[0]


def _sub(a: Interval, b: Interval) -> Interval:
    return _add(a, _neg(b))


def _mul(a: Interval, b: Interval) -> Interval:
    corners = [_times(x, y) for x in _ends(a) for y in _ends(b)]
    low, high = min(corners), max(corners)
    return None if low == -inf else int(low), None if high == inf else int(high)


def _ends(a: Interval) -> tuple[int | float, int | float]:
    return -inf if a[0] is None else a[0], inf if a[1] is None else a[1]


def _times(x: int | float, y: int | float) -> int | float:
    return 0 if 0 in (x, y) else x * y


def _min(a: Interval, b: Interval) -> Interval:
    return hull(a, b)[0], both(a, b)[1]


def _max(a: Interval, b: Interval) -> Interval:
    return both(a, b)[0], hull(a, b)[1]


def _abs(a: Interval) -> Interval:
    return _max(a, _neg(a)) if a[0] is None or a[0] < 0 else a


def _sign(a: Interval) -> Interval:
    low, high = _ends(a)
    return (low > 0) - (low < 0), (high > 0) - (high < 0)


def _floordiv(a: Interval, b: Interval) -> Interval:
    least, most = b
    if least is None or least < 1:
        return ANYTHING
    low, high = a
    if low is not None and low >= 0:
        low = 0 if most is None else low // most
    elif low is not None:
        low = low // least
    if high is not None and high < 0:
        high = -1 if most is None else high // most
    elif high is not None:
        high = high // least
    return low, high


def _mod(a: Interval, b: Interval) -> Interval:
    least, most = b
    if least is None or least < 1:
        return ANYTHING
    low, high = a
    if low is not None and high is not None:
        if least == most and low // least == high // least:
            return low % least, high % least
        if low >= 0 and high < least:
            return a
    remainder: Interval = (0, None if most is None else most - 1)
    return both(remainder, (None, high)) if low is not None and low >= 0 else remainder


INTERVALS: dict[Op, Callable[..., Interval]] = {
    **{ADD: _add, SUB: _sub, MUL: _mul, NEG: _neg, MIN: _min, MAX: _max, ABS: _abs},
    **{SIGN: _sign, FLOORDIV: _floordiv, MOD: _mod},
}
