"""Index, guard and domain rows to egglog text.

Rows are matched against a *relational view* of linear forms, inserted by `rules.views`: a form is
an opaque number, and relations say how it decomposes. So a sum in a pattern matches
modulo order and position without associativity or commutativity in the e-graph, and every run
ends: right-hand sides are built from constructors that no left-hand side matches.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsatad.errors import RuleError
from eqsatad.rules.bounds import is_literal, shape
from eqsatad.rules.rule import (
    AXIS,
    TERM,
    Condition,
    Define,
    DomainRow,
    IndexRow,
    Known,
    Letter,
    Row,
)
from eqsatad.terms.nodes import FALSE, TRUE, Apply, Const, Expr
from eqsatad.terms.ops import ADD, AND, EQ, FLOORDIV, GE, GT, LE, LT, MOD, MUL, NEG, SUB

INDICES, DOMAINS = "indices", "domains"
"""The rulesets of index and guard rows, and of domain rows."""

PRELUDE = (
    "(sort Ix)",
    "(sort Cond)",
    # Terms of right-hand sides; the costs make extraction take what has the fewest quotients.
    # Forms are numbers: a fact about forms is then a row of numbers, which is quick to insert.
    "(constructor F (i64) Ix :cost 1)",
    "(constructor Num (i64) Ix :cost 1)",
    "(constructor Plus (Ix Ix) Ix :cost 1)",
    "(constructor Times (i64 Ix) Ix :cost 1)",
    "(constructor Floor (Ix i64) Ix :cost 20)",
    "(constructor Mod (Ix i64) Ix :cost 21)",
    "(constructor Fresh () Ix :cost 1)",
    "(constructor Always () Cond :cost 1)",
    "(constructor Never () Cond :cost 1)",
    "(constructor IsZero (Ix) Cond :cost 5)",
    "(constructor IsNotNegative (Ix) Cond :cost 5)",
    "(constructor Both (Cond Cond) Cond :cost 1)",
    "(constructor Substituted () Cond :cost 1)",
    # Questions: what a row may replace. Dear, so that any answer is taken instead.
    "(constructor Quotient (i64 i64) Ix :cost 100000)",
    "(constructor Zero (i64) Cond :cost 100000)",
    "(constructor NotNegative (i64) Cond :cost 100000)",
    "(relation quotient-answer (i64 Ix))",
    "(relation guard-answer (i64 Cond))",
    # The view of linear forms.
    "(relation term (i64 i64 i64 i64))",
    "(relation split (i64 i64 i64 i64))",
    "(relation residue (i64 i64 i64 i64))",
    "(relation floored (i64 i64 i64))",
    "(relation constant (i64 i64))",
    "(relation low (i64 i64))",
    "(relation high (i64 i64))",
    "(relation total (i64 i64 i64))",
    "(relation absent (i64 i64))",
    "(relation extent (i64 i64))",
    "(relation gcd (i64 i64 i64))",
    "(relation inverse (i64 i64 i64))",
    # Candidates of domain restriction, and what the rows say about them.
    "(relation summed (i64 i64))",
    "(relation zero (i64 i64 i64))",
    "(relation atleast (i64 i64 i64))",
    "(relation solution (String i64 i64 i64 i64 Ix i64 Cond))",
    f"(ruleset {INDICES})",
    f"(ruleset {DOMAINS})",
)

CANDIDATE = "candidate"
"""The variable for the candidate that the guards of a domain row belong to."""

COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!="}
FLOOR = "(/ (- {0} (% (+ (% {0} {1}) {1}) {1})) {1})"
LITERAL_OPS = {
    "add": "(+ {0} {1})",
    "sub": "(- {0} {1})",
    "mul": "(* {0} {1})",
    "neg": "(- 0 {0})",
    "floordiv": FLOOR,
    "mod": "(% (+ (% {0} {1}) {1}) {1})",
    "min": "(min {0} {1})",
    "max": "(max {0} {1})",
}


ENDS = ("low", "high")
Column = tuple[str, int, str]
"""A relation, one of its columns, and the end of the forms in it that rows want to know."""


@dataclass(frozen=True)
class Compiled:
    """One egglog rule, and which forms have to come with their range for it to fire."""

    text: str
    intervals: frozenset[Column]


class _Query:
    """The left-hand side of one rule, while it is being written."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.question: tuple[str, ...] = ()
        self.names: dict[Letter, str] = {}
        self.fresh: Letter | None = None
        self._facts: list[tuple[str, ...]] = []
        self._pending: list[tuple[Expr, str]] = []
        self._count = 0

    def fact(self, *words: str) -> None:
        """One more atom of the left-hand side."""
        self._facts.append(words)

    def compiled(self, action: str, ruleset: str) -> Compiled:
        """The rule that does ``action`` where all of the facts hold."""
        question = [("=", "root", f"({' '.join(self.question)})")] if self.question else []
        left = " ".join(f"({' '.join(fact)})" for fact in (*question, *self._facts))
        return Compiled(
            f'(rule ({left}) ({action}) :ruleset {ruleset} :name "{self.row.name}")',
            self._intervals(),
        )

    def _intervals(self) -> frozenset[Column]:
        """The columns that hold the forms whose ends the row wants to know."""
        wanted = [(fact[1], fact[0]) for fact in self._facts if fact[0] in ENDS]
        places = [
            (variable, head, column)
            for head, *variables in filter(None, (self.question, *self._facts))
            if head not in (*ENDS, "absent", "=", "!=")
            for column, variable in enumerate(variables)
        ]
        return frozenset(
            (head, column, end)
            for name, end in wanted
            for variable, head, column in places
            if variable == name
        )

    def variable(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def refuse(self, why: str) -> RuleError:
        return RuleError(f"rule {self.row.name}: {why}")

    def form(self, pattern: Expr, var: str) -> None:
        """Facts that the form ``var`` is an instance of ``pattern``."""
        whole = shape(pattern)
        for coef, core in whole.parts:
            var = self._addend(coef, core, var)
        self._whole(Const(0, "index") if whole.rest is None else whole.rest, var)

    def _same(self, letter: Letter, var: str) -> None:
        """Notes that ``letter`` matched ``var``, also where it matched something before."""
        if letter in self.names:
            self.fact("=", self.names[letter], var)
        self.names.setdefault(letter, var)

    def _whole(self, core: Expr, var: str) -> None:
        if isinstance(core, Letter) and core.kind == TERM:
            self._same(core, var)
        else:
            value = self.variable()
            self.fact("constant", var, value)
            self.literal(core, value)

    def _addend(self, coef: Expr, core: Expr, var: str) -> str:
        factor, node, rest = self.variable(), self.variable(), self.variable()
        if isinstance(core, Apply) and core.op is MOD:
            self.fact("residue", var, node, factor, rest)
            self.form(core.args[0], node)
            self.literal(core.args[1], factor)
            if not (isinstance(coef, Const) and coef.value == 1):
                raise self.refuse("a remainder in a pattern has coefficient 1")
            return rest
        relation = "split" if isinstance(core, Letter) and core.kind == TERM else "term"
        self.fact(relation, var, factor, node, rest)
        self.literal(coef, factor)
        if isinstance(core, Apply) and core.op is FLOORDIV:
            inner, modulus = self.variable(), self.variable()
            self.fact("floored", node, inner, modulus)
            self.form(core.args[0], inner)
            self.literal(core.args[1], modulus)
        else:
            assert isinstance(core, Letter), "rules.wellformed let this pattern through"
            if core.kind == AXIS:
                self.fact("summed", CANDIDATE, node)
            self._same(core, node)
        return rest

    def literal(self, pattern: Expr, var: str) -> None:
        """Notes that the literal ``pattern`` has the value ``var``."""
        if isinstance(pattern, Letter) and pattern not in self.names:
            self.names[pattern] = var
        else:
            self._pending.append((pattern, var))

    def settle(self) -> None:
        """Writes the equations between literals, solving ``b*c == v`` for one unknown letter."""
        for pattern, var in self._pending:
            if isinstance(pattern, Apply) and pattern.op is MUL:
                known, unknown = pattern.args
                if isinstance(unknown, Letter) and unknown not in self.names:
                    name = self.variable()
                    factor = self.value(known)
                    self.fact("!=", factor, "0")
                    self.fact("=", name, f"(/ {var} {factor})")
                    self.names[unknown] = name
            self.fact("=", var, self.value(pattern))
        self._pending = []

    def value(self, expr: Expr) -> str:
        """A literal expression in egglog; asks for the facts that it needs."""
        match expr:
            case Const(value, _):
                return str(value)
            case Letter():
                if expr not in self.names:
                    raise self.refuse(f"letter {expr.name} is not bound by the left side")
                return self.names[expr]
            case Known(function, args):
                return self._known(function, args)
            case Apply(op, args):
                return LITERAL_OPS[op.name].format(*map(self.value, args))
        raise self.refuse("a literal is made of letters, numbers and + - * // %")

    def _known(self, function: str, args: tuple[Expr, ...]) -> str:
        result = self.variable()
        if function in ("low", "high") and isinstance(args[0], Apply):
            total = self.variable()
            left, right = (self.value(part) for part in args[0].args)
            self.fact("total", left, right, total)
            self.fact(function, total, result)
            return result
        names = []
        for arg in args:
            text = self.value(arg)
            if text.startswith("("):
                name = self.variable()
                self.fact("=", name, text)
                text = name
            names.append(text)
        self.fact(function, *names, result)
        return result

    def condition(self, condition: Condition) -> None:
        """The facts of one condition of the row."""
        if isinstance(condition, Define):
            name = self.variable()
            self.fact("=", name, self.value(condition.value))
            self.names[condition.letter] = name
        elif isinstance(condition, Apply) and condition.op is AND:
            for part in condition.args:
                self.condition(part)
        elif isinstance(condition, Apply) and condition.op.name in COMPARISONS:
            left, right = map(self.value, condition.args)
            self.fact(COMPARISONS[condition.op.name], left, right)
        else:
            raise self.refuse("a condition compares literals")

    def index(self, expr: Expr) -> str:
        """An index expression of the right-hand side."""
        if is_literal(expr):
            return f"(Num {self.value(expr)})"
        match expr:
            case Letter() if expr is self.fresh:
                return "(Fresh)"
            case Letter():
                return f"(F {self.value(expr)})"
            case Apply(op, (left, right)) if op is ADD:
                return f"(Plus {self.index(left)} {self.index(right)})"
            case Apply(op, (left, right)) if op is SUB:
                return f"(Plus {self.index(left)} (Times -1 {self.index(right)}))"
            case Apply(op, (inner,)) if op is NEG:
                return f"(Times -1 {self.index(inner)})"
            case Apply(op, (left, right)) if op is MUL and is_literal(left):
                return f"(Times {self.value(left)} {self.index(right)})"
            case Apply(op, (left, right)) if op in (FLOORDIV, MOD) and is_literal(right):
                head = "Floor" if op is FLOORDIV else "Mod"
                return f"({head} {self.index(left)} {self.value(right)})"
        raise self.refuse("the right side is made of letters and + - * // % by literals")

    def cond(self, expr: Expr) -> str:
        """A condition of the right-hand side."""
        if expr in (TRUE, FALSE):
            return "(Always)" if expr is TRUE else "(Never)"
        if isinstance(expr, Apply) and expr.op is AND:
            return f"(Both {self.cond(expr.args[0])} {self.cond(expr.args[1])})"
        head, difference = guard_parts(expr)
        return f"({'IsZero' if head == 'zero' else 'IsNotNegative'} {self.index(difference)})"


def guard_parts(guard: Expr) -> tuple[str, Expr]:
    """A comparison as ``("zero", e)`` for ``e == 0`` or ``("atleast", e)`` for ``e >= 0``."""
    if not isinstance(guard, Apply):
        raise RuleError("a guard of a rule is a comparison")
    left, right = guard.args
    zero = isinstance(right, Const) and right.value == 0
    one = Const(1, "index")
    forms: dict[object, Expr] = {
        EQ: left if zero else left - right,
        GE: left if zero else left - right,
        GT: left - right - one,
        LE: right - left,
        LT: right - left - one,
    }
    if guard.op not in forms:
        raise RuleError(f"a guard of a rule cannot be {guard.op.name}")
    return "zero" if guard.op is EQ else "atleast", forms[guard.op]


def compile_index(row: IndexRow, ruleset: str = INDICES) -> Compiled:
    """The egglog rule of an index or guard row: it unites a question with an answer."""
    query = _Query(row)
    before = row.before
    if isinstance(before, Apply) and before.op is FLOORDIV:
        dividend, divisor = query.variable(), query.variable()
        query.question = ("Quotient", dividend, divisor)
        query.literal(before.args[1], divisor)
        query.form(before.args[0], dividend)
        answer = query.index
    else:
        kind, difference = guard_parts(before)
        form = query.variable()
        query.question = ("Zero" if kind == "zero" else "NotNegative", form)
        query.form(difference, form)
        answer = query.cond
    query.settle()
    for condition in row.when:
        query.condition(condition)
    return query.compiled(f"(union root {answer(row.after)})", ruleset)


def compile_domain(row: DomainRow, ruleset: str = DOMAINS) -> Compiled:
    """The egglog rule of a domain row: it writes a line into ``solution``."""
    query = _Query(row)
    slots: list[str] = []
    for guard in row.guards:
        kind, difference = guard_parts(guard)
        slot, form = query.variable(), query.variable()
        slots.append(slot)
        query.fact(kind, CANDIDATE, slot, form)
        query.form(difference, form)
    axis = query.names[row.axis]
    query.settle()
    for letter, name in query.names.items():
        if letter.kind == TERM:
            query.fact("absent", name, axis)
        elif letter.kind == AXIS and letter is not row.axis:
            query.fact("!=", name, axis)
    for condition in row.when:
        query.condition(condition)
    size = query.value(row.fresh[1]) if row.fresh else "0"
    query.fresh = row.fresh[0] if row.fresh else None
    leaves = "(Substituted)" if row.leaves is None else "(Always)"
    for leaf in row.leaves or ():
        leaves = f"(Both {leaves} {query.cond(leaf)})"
    guards = " ".join((*slots, "-1")[:2])
    value = query.index(row.value)
    line = f'"{row.name}" {CANDIDATE} {guards} {axis} {value} {size} {leaves}'
    return query.compiled(f"(solution {line})", ruleset)
