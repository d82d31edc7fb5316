"""Rows of the catalog for indices, guards and domains, as values.

A pattern is an ordinary index expression or condition over *letters*. Four kinds of letter:
``x y z u v`` match any index expression, ``b c d m n s`` match integer literals, ``k`` and ``q``
are axes, and ``e f h`` match conditions (in rows of the simplifier). Sums match modulo order and
position: ``c*k + x`` finds the multiple of any axis ``k`` in a linear form and ``x`` is what is
left, ``c*x + y`` splits a form by the multiples of ``c``.

A row says nothing about how it is run: `rules.compile` turns rows into egglog, `rules.bounds`
runs the interval rows, `rules.prove` checks every row by machine.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from eqsatad.terms.nodes import Const, Expr, digest

TERM, LITERAL, AXIS, TRUTH = "term", "literal", "axis", "truth"


@dataclass(frozen=True, eq=False, repr=False)
class Letter(Expr):
    """A pattern letter; ``kind`` is `TERM`, `LITERAL`, `AXIS` or `TRUTH`."""

    name: str
    kind: str
    dtype: str = "index"

    def __post_init__(self) -> None:
        self._settle(free=frozenset(), key=f"letter:{self.name}:{self.kind}")


@dataclass(frozen=True, eq=False, repr=False)
class Known(Expr):
    """An integer that is known about what letters matched, such as ``low(x)``."""

    function: str
    args: tuple[Expr, ...]
    dtype: str = "index"

    def __post_init__(self) -> None:
        self._settle(free=frozenset(), key=digest(self.function, *(arg.key for arg in self.args)))

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args


x, y, z, u, v = (Letter(name, TERM) for name in "xyzuv")
a, b, c, d, g, m, n, p, s, w = (Letter(name, LITERAL) for name in "abcdgmnpsw")
k, q = (Letter(name, AXIS) for name in "kq")
e, f, h = (Letter(name, TRUTH, "bool") for name in "efh")


def low(term: Expr) -> Known:
    """The least value that ``term`` is known to take."""
    return Known("low", (term,))


def high(term: Expr) -> Known:
    """The greatest value that ``term`` is known to take."""
    return Known("high", (term,))


def extent(axis: Expr) -> Known:
    """The number of values of ``axis``."""
    return Known("extent", (axis,))


def gcd(left: Expr, right: Expr) -> Known:
    """The greatest common divisor of two literals."""
    return Known("gcd", (left, right))


def inverse(left: Expr, modulus: Expr) -> Known:
    """The literal ``i`` in ``range(modulus)`` with ``left * i % modulus == 1 % modulus``."""
    return Known("inverse", (left, modulus))


@dataclass(frozen=True)
class Define:
    """A condition that names a known integer: ``letter`` stands for ``value``."""

    letter: Letter
    value: Expr


Condition = Expr | Define


def let(letter: Letter, value: Expr | int) -> Define:
    """The condition that ``letter`` is ``value``; it always holds and names the value."""
    return Define(letter, value if isinstance(value, Expr) else Const(value, "index"))


def divides(divisor: Expr, number: Expr) -> Expr:
    """The condition that the literal ``divisor`` divides the literal ``number``."""
    return (number % divisor).equal(0)


def written_at() -> str:
    """The file and line from which the function that asks was called."""
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def place(origin: str) -> str:
    """``origin`` for messages: below the working directory, as seen from there."""
    path = Path(origin)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else origin


@dataclass(frozen=True, repr=False)
class Row:
    """What all rows have: a name (theme first), conditions, and where it was written.

    The ``origin``, ``file:line``, is no part of what the row says.
    """

    name: str
    when: tuple[Condition, ...]
    origin: str = field(default="", compare=False, kw_only=True)

    def __repr__(self) -> str:
        from eqsatad.rules.describe import in_a_line

        return in_a_line(self)


@dataclass(frozen=True, repr=False)
class IndexRow(Row):
    """``before`` may be replaced by ``after``: two index expressions, or two conditions."""

    before: Expr
    after: Expr


@dataclass(frozen=True, repr=False)
class TermRow(Row):
    """``before`` may be replaced by ``after`` in the simplifier, which proves ``when``."""

    before: Expr
    after: Expr


@dataclass(frozen=True, repr=False)
class IntervalRow(Row):
    """Every value of ``pattern`` lies in ``[low, high]``."""

    pattern: Expr
    low: Expr
    high: Expr


@dataclass(frozen=True, repr=False)
class DomainRow(Row):
    """A summed axis re-parametrised: the points that satisfy ``guards`` are met exactly once.

    ``axis`` becomes ``value`` over the ``fresh`` axis (with its extent), or over no axis. The
    matched guards are replaced by ``leaves``; without it they are substituted into like all
    others. That ``value`` lies in the range of ``axis`` is added as two guards. No letter but
    ``axis`` matches a term that mentions it. ``rank`` orders the rows: only the lowest rank that
    matches a candidate is followed, so that independent guards do not interleave. A row that is
    ``shorter`` is followed only where the fresh axis has fewer values than the axis, or than
    anybody knows.
    """

    guards: tuple[Expr, ...]
    axis: Letter
    value: Expr
    fresh: tuple[Letter, Expr] | None
    leaves: tuple[Expr, ...] | None
    rank: int
    shorter: bool = False


def _expr(value: Expr | int | bool) -> Expr:
    if isinstance(value, Expr):
        return value
    return Const(value, "bool" if isinstance(value, bool) else "index")


def rewrite(name: str, before: Expr, after: Expr | int | bool, *when: Condition) -> IndexRow:
    """The row that ``before`` is ``after`` where all of ``when`` holds."""
    return IndexRow(name, when, before, _expr(after), origin=written_at())


def turn(name: str, before: Expr, after: Expr | int | bool, *when: Condition) -> TermRow:
    """The row of the simplifier that ``before`` is ``after`` where all of ``when`` is proved."""
    return TermRow(name, when, before, _expr(after), origin=written_at())


def interval(
    name: str, pattern: Expr, lowest: Expr | int, highest: Expr | int, *when: Condition
) -> IntervalRow:
    """The row that ``pattern`` lies between ``lowest`` and ``highest``, both included."""
    return IntervalRow(name, when, pattern, _expr(lowest), _expr(highest), origin=written_at())


def restrict(
    name: str,
    *guards: Expr,
    axis: Letter,
    value: Expr,
    fresh: tuple[Letter, Expr] | None = None,
    leaves: tuple[Expr, ...] | None = None,
    when: tuple[Condition, ...] = (),
    rank: int,
    shorter: bool = False,
) -> DomainRow:
    """The row that a summed ``axis`` under ``guards`` is ``value``: see `DomainRow`."""
    return DomainRow(
        name, when, guards, axis, value, fresh, leaves, rank, shorter, origin=written_at()
    )
