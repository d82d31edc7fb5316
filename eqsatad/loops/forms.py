"""Integer facts that lowering needs: ranges of linear forms, quotients, guards and their truth.

A guard is ``form >= 0`` or ``form == 0``. Whether one always or never holds is read off ranges
first and asked of isl only when other guards are known to hold, because over a box the range of
an affine form already decides every inequality.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd

from eqsatad.terms.linear import Linear, expression, linear, quotient
from eqsatad.terms.nodes import Apply, Axis, Const, Expr
from eqsatad.terms.ops import EQ, FLOORDIV, GE, GT, LE, LT, MAX, MIN, MOD, NE, NOT, Op
from eqsatad.terms.presburger import implied
from eqsatad.terms.ranges import interval

ZERO = Const(0, "index")
ONE = Const(1, "index")


def span(form: Linear) -> tuple[int | None, int | None]:
    """The least and greatest value of ``form``; None where there is no known limit."""
    low: int | None = form.const
    high: int | None = form.const
    for coef, node in form.terms:
        least, most = interval(node) if coef > 0 else reversed(interval(node))
        low = None if low is None or least is None else low + coef * least
        high = None if high is None or most is None else high + coef * most
    return low, high


def within(form: Linear, given: Sequence[Guard]) -> tuple[int | None, int | None]:
    """The range of ``form`` where the guards over the same terms in ``given`` hold."""
    low, high = span(form)
    opposite = form.scaled(-1)
    for fact in given:
        if fact.form.terms == form.terms and not fact.equality:
            least = form.const - fact.form.const
            low = least if low is None else max(low, least)
        if fact.form.terms == opposite.terms and not fact.equality:
            most = form.const + fact.form.const
            high = most if high is None else min(high, most)
    return low, high


def divide(form: Linear, divisor: int) -> Linear:
    """``form // divisor`` with everything taken out of the quotient that is known to leave it."""
    shared = gcd(divisor, *(coef for coef, _ in form.terms))
    divisor //= shared
    form = Linear(form.const // shared, tuple((c // shared, node) for c, node in form.terms))
    whole = Linear(
        form.const // divisor, tuple((c // divisor, a) for c, a in form.terms if c % divisor == 0)
    )
    rest = Linear(form.const % divisor, tuple(term for term in form.terms if term[0] % divisor))
    low, _ = span(rest)
    if low is not None and never_below(rest.scaled(-1), 1 - divisor * (low // divisor + 1)):
        return whole + Linear(low // divisor, ())
    return whole + quotient(rest, divisor)


def literal_quotient(node: Expr) -> tuple[Linear, int] | None:
    """Dividend and divisor of ``x // m`` or ``x % m`` with a positive literal ``m``."""
    match node:
        case Apply(op, (dividend, Const(divisor, "index"))) if op in (FLOORDIV, MOD):
            return (linear(dividend), divisor) if divisor > 0 else None
    return None


def settled_index(node: Expr, given: Sequence[Guard] = ()) -> Expr:
    """One operation on indices, with the choice made where ranges and ``given`` leave only one."""
    if (found := literal_quotient(node)) is not None:
        form, divisor = found
        floor = divide(form, divisor)
        if floor.terms:
            low, high = within(form, given)
            if low is not None and high is not None and low // divisor == high // divisor:
                floor = Linear(low // divisor, ())
        return expression(floor if node.op is FLOORDIV else form - floor.scaled(divisor))  # type: ignore[attr-defined]
    match node:
        case Apply(op, (a, b)) if op in (MIN, MAX):
            difference = linear(a) - linear(b)
            if never_below(difference):
                return b if op is MIN else a
            if never_below(difference.scaled(-1)):
                return a if op is MIN else b
    return node


def never_below(form: Linear, least: int = 0) -> bool:
    """Whether ``form >= least`` always holds."""
    low, _ = span(form)
    if low is not None and low >= least:
        return True
    return _symbolic(form) and decided(Guard(form - Linear(least, ()))) is True


def _symbolic(form: Linear) -> bool:
    """Whether sizes have a part in ``form``, so that ranges alone do not decide it."""
    return form.affine and any(
        not isinstance(part, Const)
        for _, node in form.terms
        for part in ((node.extent,) if isinstance(node, Axis) else (node,))
    )


def extreme(op: Op, exprs: Iterable[Expr]) -> Expr:
    """The minimum or maximum of ``exprs``, less those that ranges show never to decide."""
    kept: list[Expr] = []
    for expr in dict.fromkeys(exprs):
        rest = [other for other in kept if settled_index(Apply(op, (other, expr))) is not expr]
        if all(settled_index(Apply(op, (other, expr))) is not other for other in rest):
            rest.append(expr)
        kept = rest
    result = kept[0]
    for expr in kept[1:]:
        result = Apply(op, (result, expr))
    return result


@dataclass(frozen=True)
class Guard:
    """``form == 0`` if ``equality``, else ``form >= 0``."""

    form: Linear
    equality: bool = False

    @property
    def expr(self) -> Expr:
        """The guard as a condition."""
        return Apply(EQ if self.equality else GE, (expression(self.form), ZERO))

    def negated(self) -> tuple[Guard, ...]:
        """Disjoint guards that together hold exactly where this one does not."""
        below = Guard(self.form.scaled(-1) - Linear(1, ()))
        return (below, Guard(self.form - Linear(1, ()))) if self.equality else (below,)


def guard(cond: Expr) -> Guard | None:
    """The guard that an index comparison other than ``!=`` spells, in lowest terms."""
    match cond:
        case Apply(op, (a, b)) if op in _FORMS and a.dtype == "index":
            sign, offset = _FORMS[op]
            form = (linear(a) - linear(b)).scaled(sign) - Linear(offset, ())
            return _lowest(form, op is EQ)
    return None


_FORMS: dict[Op, tuple[int, int]] = {GE: (1, 0), GT: (1, 1), LE: (-1, 0), LT: (-1, 1), EQ: (1, 0)}


def _lowest(form: Linear, equality: bool) -> Guard:
    shared = gcd(*(coef for coef, _ in form.terms)) or 1
    if equality and form.const % shared:
        return Guard(Linear(-1, ()))
    terms = tuple((coef // shared, node) for coef, node in form.terms)
    if equality and terms and terms[0][0] < 0:
        return Guard(Linear(form.const // shared, terms).scaled(-1), equality)
    return Guard(Linear(form.const // shared, terms), equality)


def decided(what: Guard, given: Sequence[Guard] = ()) -> bool | None:
    """Whether ``what`` always (True) or never (False) holds where all of ``given`` do."""
    low, high = span(what.form)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return not what.equality and low is not None and low > 0
    if low == 0 and (not what.equality or high == 0):
        return True
    near = [fact for fact in given if fact.form.free & what.form.free]
    if (answer := _compared(what, near)) is not None:
        return answer
    return _proved(what, near) if near or _symbolic(what.form) else None


def _compared(what: Guard, given: Sequence[Guard]) -> bool | None:
    """What a fact over the same terms says at once; complete for the guards of a cut."""
    terms, opposite = what.form.terms, what.form.scaled(-1).terms
    for fact in given:
        slack = what.form.const - fact.form.const
        if fact == what or (fact.form.terms == terms and slack >= 0 and not what.equality):
            return True
        if fact.equality:
            continue
        if fact.form.terms == opposite and fact.form.const + what.form.const < 0:
            return False
        if fact.form.terms == terms and slack > 0 and what.equality:
            return False
    return None


def _proved(what: Guard, given: Sequence[Guard]) -> bool | None:
    if not what.form.affine:
        return None
    facts = [fact.expr for fact in given if fact.form.affine]
    if implied(what.expr, facts):
        return True
    return False if implied(Apply(NOT, (what.expr,)), facts) else None


def settled_condition(node: Expr, given: Sequence[Guard]) -> Expr:
    """An index comparison as a constant where it is decided, else in its normal form."""
    if isinstance(node, Apply) and node.op is NE and node.args[0].dtype == "index":
        same = settled_condition(Apply(EQ, node.args), given)
        return Apply(NOT, (same,)) if isinstance(same, Apply) else Const(not same.value, "bool")  # type: ignore[attr-defined]
    if (what := guard(node)) is None:
        return node
    answer = decided(what, given)
    return what.expr if answer is None else Const(answer, "bool")


def length(axis: Axis) -> int | None:
    """The extent of ``axis`` if it is a literal."""
    form = linear(axis.extent)
    return None if form.terms else form.const
