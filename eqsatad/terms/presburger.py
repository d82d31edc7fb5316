"""isl as the decision procedure for conditions over indices: what it answers yes to is proved.

Axis ranges and ``size >= 1`` are facts. What is not affine (a product of two unknowns, a read, a
comparison of data) stands for itself as an unknown about which only its interval is known, so
nothing wrong can be proved from it. No answer within the work limit counts as "not proved".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import TRUE, Apply, Axis, Cast, Const, Expr, Select, Size
from eqsatad.terms.ops import (
    ABS,
    AND,
    EQ,
    FLOORDIV,
    GE,
    GT,
    LE,
    LT,
    MAX,
    MIN,
    MOD,
    NE,
    NOT,
    OR,
    Op,
)
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import conjuncts

if TYPE_CHECKING:
    import islpy as isl

Answer = TypeVar("Answer")

# Elementary operations of isl that one question may take (about 0.1 s), and the longest question.
WORK_LIMIT = 200_000
TEXT_LIMIT = 20_000

COMPARISONS: dict[Op, str] = {LT: "<", LE: "<=", GT: ">", GE: ">=", EQ: "=", NE: "!="}

# isl contexts must not be used by two threads at once.
_lock = Lock()


@cache
def _context() -> isl.Context:
    """Where isl works: made when it is needed, since intervals alone tell most of what is asked."""
    import islpy as isl

    context = isl.Context()
    context.set_max_operations(0)
    return context


def implied(cond: Expr, given: Iterable[Expr] = ()) -> bool:
    """Whether ``cond`` is proved to hold wherever all of ``given`` hold."""
    facts = tuple(dict.fromkeys(part for fact in given for part in conjuncts(fact)))
    return all(part in facts or _refuted((*facts, Apply(NOT, (part,)))) for part in conjuncts(cond))


def empty(conds: Iterable[Expr]) -> bool:
    """Whether it is proved that ``conds`` never hold together."""
    return _refuted(tuple(dict.fromkeys(part for cond in conds for part in conjuncts(cond))))


def equivalent(a: Expr, b: Expr, given: Iterable[Expr] = ()) -> bool:
    """Whether ``a`` and ``b`` are proved to hold at the same points of ``given``."""
    facts = tuple(given)
    return implied(a, (*facts, b)) and implied(b, (*facts, a))


@lru_cache(maxsize=65536)
def _refuted(conds: tuple[Expr, ...]) -> bool:
    question = Question()
    return empty_set(question.asked(conds), WORK_LIMIT) is True


def empty_set(text: str, work: int = WORK_LIMIT) -> bool | None:
    """Whether the set that ``text`` spells in isl's notation is empty; None is too much work."""
    if len(text) > TEXT_LIMIT:
        return False
    return _found(text, work, lambda found: bool(found.is_empty()))


def _found(text: str, work: int, ask: Callable[[isl.Set], Answer]) -> Answer | None:
    """What ``ask`` says of the set ``text``; None is too much work."""
    import islpy as isl

    with _lock:
        context = _context()
        context.reset_operations()
        context.set_max_operations(work)
        try:
            return ask(isl.Set.read_from_str(context, text))
        except isl.Error:
            return None
        finally:
            context.set_max_operations(0)


@lru_cache(maxsize=65536)
def span(expr: Expr, given: tuple[Expr, ...] = ()) -> tuple[int | None, int | None]:
    """The least and the greatest value of an index where ``given`` holds, as far as proved."""
    question = Question()
    conds = [question.write(part) for cond in given for part in conjuncts(cond)]
    value = question.write(expr)
    body = " and ".join([*dict.fromkeys(question.facts), *conds, f"value = {value}"])
    unknowns = f"exists {', '.join(question.names.values())} : " if question.names else ""
    text = f"{{ [value] : {unknowns}{body} }}"
    return extremes(text) if len(text) <= TEXT_LIMIT else (None, None)


def extremes(text: str, work: int = WORK_LIMIT) -> tuple[int | None, int | None]:
    """The least and the greatest number of the one-dimensional set ``text``, as far as proved."""
    found = _found(text, work, lambda s: (_whole(s.dim_min_val(0)), _whole(s.dim_max_val(0))))
    return found or (None, None)


def _whole(value: isl.Val) -> int | None:
    return int(value.to_python()) if value.is_int() else None


def _parts(node: Expr) -> tuple[Expr, ...]:
    """What a condition is written in terms of; whatever else it holds is part of an unknown.

    Nothing may be learnt from inside an unknown: an axis that a reduction binds is not an axis
    of the question, and its range may be empty.
    """
    if node.dtype != "bool" or not isinstance(node, Apply | Select):
        return ()
    known = all(part.dtype in ("bool", "index") for part in node.children)
    return node.children if known else ()


class Question:
    """Conditions as the text of an isl set; every unknown is a dimension of it."""

    def __init__(self) -> None:
        self.names: dict[Expr, str] = {}
        self.facts: list[str] = []
        self.written: dict[Expr, str] = {TRUE: "true"}

    def asked(self, conds: Iterable[Expr]) -> str:
        """The set of all unknowns at which ``conds`` hold."""
        parts = [self.write(cond) for cond in conds]
        body = " and ".join([*dict.fromkeys(self.facts), *parts]) or "true"
        return f"{{ [{', '.join(self.names.values())}] : {body} }}"

    def write(self, root: Expr) -> str:
        """``root``, a condition or an index expression, in isl's notation."""
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in self.written:
                continue
            if ready:
                self.written[node] = self._cond(node) if node.dtype == "bool" else self._sum(node)
                continue
            stack.append((node, True))
            stack.extend((part, False) for part in reversed(_parts(node)))
        return self.written[root]

    def _unknown(self, node: Expr) -> str:
        self.names[node] = name = f"v{len(self.names)}"
        return name

    def _cond(self, node: Expr) -> str:
        match node:
            case Const(value, _):
                return "true" if value else "false"
            case Apply(op, (a, b)) if op in COMPARISONS and a.dtype == "index":
                return f"({self.written[a]} {COMPARISONS[op]} {self.written[b]})"
            case Apply(op, (a, b)) if op in (EQ, NE) and a.dtype == "bool":
                same = self._choice(self.written[a], self.written[b], f"not {self.written[b]}")
                return same if op is EQ else f"(not {same})"
            case Apply(op, (a, b)) if op in (AND, OR):
                return f"({self.written[a]} {op.symbol} {self.written[b]})"
            case Apply(op, (a,)) if op is NOT:
                return f"(not {self.written[a]})"
            case Select(cond, then, other):
                return self._choice(*(self.written[part] for part in (cond, then, other)))
        return f"({self._unknown(node)} = 1)"

    @staticmethod
    def _choice(cond: str, then: str, other: str) -> str:
        return f"(({cond} and {then}) or ((not {cond}) and {other}))"

    def _sum(self, node: Expr) -> str:
        if isinstance(node, Size):
            return self._atom(node)
        form = linear(node)
        if not form.terms:
            return f"({form.const})"
        if form.const == 0 and form.terms == ((1, node),):
            return self._atom(node)
        terms = " + ".join(f"{coef}*{self.write(atom)}" for coef, atom in form.terms)
        return f"({terms} + {form.const})"

    def _atom(self, node: Expr) -> str:
        match node:
            case Apply(op, (a, b)) if op is FLOORDIV and isinstance(b, Const) and b.value > 0:
                return f"floor({self.write(a)}/{b.value})"
            case Apply(op, args) if op in (MIN, MAX):
                return f"{op.name}({', '.join(map(self.write, args))})"
            case Apply(op, (a,)) if op is ABS:
                return f"max({self.write(a)}, -1*{self.write(a)})"
        name = self._unknown(node)
        self.written[node] = name
        self._known(node, name)
        return name

    def _known(self, node: Expr, name: str) -> None:
        """Adds what is known about an unknown."""
        low, high = interval(node)
        self.facts += [f"{name} >= {low}"] if low is not None else []
        self.facts += [f"{name} <= {high}"] if high is not None else []
        match node:
            case Axis(_, extent):
                self.facts.append(f"{name} < {self.write(extent)}")
            case Size(_, _, multiple):
                self.facts += [f"{name} mod {multiple} = 0"] if multiple > 1 else []
            case Apply(op, (a, b)) if op is MOD and (interval(b)[0] or 0) > 0:
                self.facts.append(f"0 <= {name} < {self.write(b)}")
            case Apply(op, (a, b)) if op is FLOORDIV and (interval(b)[0] or 0) > 0:
                top = self.write(a)
                self.facts.append(f"({top} < 0 or 0 <= {name} <= {top})")
            case Select(cond, then, other):
                chosen = [f"({name} = {self.write(part)})" for part in (then, other)]
                self.facts.append(self._choice(self.write(cond), *chosen))
            case Cast(arg, _) if arg.dtype == "bool":
                self.facts.append(self._choice(self.write(arg), f"({name} = 1)", f"({name} = 0)"))
