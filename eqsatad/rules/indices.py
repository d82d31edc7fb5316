"""Index expressions and guards through the e-graph: quotients simplified, guards decided.

Quotients are asked innermost first, so that what the e-graph sees is final; an answer may hold
new quotients, which are asked in the next round. Answers are kept: a quotient of one form by one
literal is simplified once per catalog.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eqsatad.rules.bounds import Bounds
from eqsatad.rules.compile import DOMAINS, INDICES, PRELUDE, compile_domain, compile_index
from eqsatad.rules.rule import DomainRow, IndexRow, IntervalRow, Row
from eqsatad.rules.session import Session
from eqsatad.rules.views import Facts, quotient_parts
from eqsatad.rules.wellformed import well_formed
from eqsatad.terms.linear import Linear, atom, expression, linear, quotient
from eqsatad.terms.nodes import Apply, Const, Expr, Size
from eqsatad.terms.ops import EQ, GE
from eqsatad.terms.polynomial import nonnegative
from eqsatad.terms.presburger import empty, implied
from eqsatad.terms.walk import postorder, substitute, with_children

ROUNDS = 40

ZERO, ATLEAST = "zero", "atleast"
Guard = tuple[str, Linear]
"""``(ZERO, e)`` is ``e == 0`` and ``(ATLEAST, e)`` is ``e >= 0``."""


@dataclass
class Tally:
    """What the e-graph did so far, for the report."""

    matches: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    rounds: int = 0
    nodes: int = 0

    stops: tuple[str, ...] = ()

    def snapshot(self) -> Tally:
        """A copy, to measure from with `since`."""
        return replace(self, matches=dict(self.matches))

    def since(self, before: Tally) -> Tally:
        """What was added after ``before`` was taken."""
        matches = {
            name: number - before.matches.get(name, 0) for name, number in self.matches.items()
        }
        return Tally(
            {name: number for name, number in matches.items() if number},
            self.seconds - before.seconds,
            self.rounds - before.rounds,
            self.nodes - before.nodes,
            self.stops[len(before.stops) :],
        )

    def count(self, matches: dict[str, int]) -> None:
        """Adds the matches of one run."""
        for name, number in matches.items():
            self.matches[name] = self.matches.get(name, 0) + number


@dataclass(frozen=True)
class Asked:
    """One question to the e-graph: what it was told, which rows matched, and its answer."""

    ruleset: str
    facts: str
    table: str
    matches: dict[str, int]
    found: list[tuple[Any, ...]]


class Indices:
    """Simplifies index expressions and decides guards with the rows of one catalog."""

    def __init__(self, rows: Sequence[Row]) -> None:
        for row in rows:
            well_formed(row)
        self.bounds = Bounds([row for row in rows if isinstance(row, IntervalRow)])
        self.tally = Tally()
        # Who wants to see every question.
        self.watch: Callable[[Asked], None] | None = None
        self._ranks = {row.name: row.rank for row in rows if isinstance(row, DomainRow)}
        # One graph for each ruleset, since a scope copies the whole of a graph.
        self._rules = {
            INDICES: [compile_index(row) for row in rows if isinstance(row, IndexRow)],
            DOMAINS: [compile_domain(row) for row in rows if isinstance(row, DomainRow)],
        }
        self._sessions = {
            ruleset: Session([*PRELUDE, *(rule.text for rule in rules)])
            for ruleset, rules in self._rules.items()
        }
        self._shorter = {row.name for row in rows if isinstance(row, DomainRow) and row.shorter}
        self._quotients: dict[tuple[Linear, int], Linear] = {}
        self._guards: dict[Guard, tuple[Guard, ...] | None] = {}

    def rank(self, row: str) -> int:
        """The rank of the domain row of that name."""
        return self._ranks[row]

    def shorter(self, row: str) -> bool:
        """Whether the domain row of that name is followed only where it leaves fewer points."""
        return row in self._shorter

    def facts(self, ruleset: str) -> Facts:
        """Facts to be inserted for the rows of ``ruleset``."""
        rules = self._rules[ruleset]
        return Facts(self.bounds, (column for rule in rules for column in rule.intervals))

    def ask(self, facts: Facts, ruleset: str, table: str) -> list[tuple[Any, ...]]:
        """The rows of ``table`` once ``ruleset`` has run on ``facts``."""
        start = time.perf_counter()
        session, text = self._sessions[ruleset], facts.text()
        with session.scope():
            session.execute(text)
            matches = session.step(ruleset).matches
            found = session.table(table)
        self.tally.count(matches)
        self.tally.nodes += len(facts.lines)
        self.tally.rounds += 1
        self.tally.seconds += time.perf_counter() - start
        if self.watch is not None:
            self.watch(Asked(ruleset, text, table, matches, found))
        return found

    def simplify(self, exprs: Sequence[Expr]) -> list[Expr]:
        """``exprs`` with every index expression in its simplest form."""
        roots = [node for expr in exprs for node in _index_roots(expr)]
        forms = dict(zip(roots, self.forms([linear(root) for root in roots]), strict=True))
        table = {root: expression(form) for root, form in forms.items()}
        return [_replaced(expr, table) for expr in exprs]

    def forms(self, forms: Sequence[Linear]) -> list[Linear]:
        """``forms`` with their quotients simplified."""
        for _ in range(ROUNDS):
            pending: dict[tuple[Linear, int], None] = {}
            done = [self._known_form(form, pending) for form in forms]
            if not pending:
                break
            self._answer(list(pending))
        return done

    def _known_form(
        self, form: Linear, pending: dict[tuple[Linear, int], None], depth: int = 0
    ) -> Linear:
        """``form`` over known answers; quotients that have to be asked go to ``pending``."""
        result = Linear(form.const, ())
        for coef, node in form.terms:
            result = result + self._known_atom(node, pending, depth).scaled(coef)
        return result

    def _known_atom(
        self, node: Expr, pending: dict[tuple[Linear, int], None], depth: int
    ) -> Linear:
        parts = quotient_parts(node)
        if parts is None or depth > ROUNDS:
            return atom(node)
        before = len(pending)
        dividend = self._known_form(parts[0], pending, depth + 1)
        whole = quotient(dividend, parts[1])
        if len(pending) > before or not any(quotient_parts(a) for _, a in whole.terms):
            return whole
        ((sign, spelled),) = whole.terms
        question = quotient_parts(spelled)
        assert question is not None
        answer = self._quotients.get(question)
        if answer is None:
            pending[question] = None
            return whole
        if answer == atom(spelled):
            return whole
        return self._known_form(answer, pending, depth + 1).scaled(sign)

    def _answer(self, questions: list[tuple[Linear, int]]) -> None:
        facts = self.facts(INDICES)
        for number, (form, divisor) in enumerate(questions):
            facts.add("quotient-answer", number, facts.quotient(form, divisor))
        rows = self.ask(facts, INDICES, "quotient-answer")
        for number, term, _ in rows:
            form, divisor = questions[number]
            self._quotients[form, divisor] = form_of(term, facts.forms, None)

    def prepare(self, guards: Iterable[Guard]) -> list[Guard]:
        """``guards`` in canonical spelling, once the e-graph has been asked about all of them."""
        wanted = list(dict.fromkeys(guards))
        forms = self.forms([form for _, form in wanted])
        spelled = [canonical(kind, form) for (kind, _), form in zip(wanted, forms, strict=True)]
        self._decide([guard for guard in dict.fromkeys(spelled) if guard not in self._guards])
        return spelled

    def guards(self, guards: Iterable[Guard]) -> list[Guard] | None:
        """The guards that ranges do not decide, simplified; None when one never holds."""
        result: dict[Guard, None] = {}
        for guard in self.prepare(guards):
            answer = self._guards[guard]
            if answer is None:
                return None
            inner = answer if answer == (guard,) else self.guards(answer)
            if inner is None:
                return None
            result.update(dict.fromkeys(inner))
        return list(result)

    def _decide(self, guards: list[Guard]) -> None:
        if not guards:
            return
        facts = self.facts(INDICES)
        for number, (kind, form) in enumerate(guards):
            head = "Zero" if kind == ZERO else "NotNegative"
            facts.add("guard-answer", number, facts.question(head, facts.name(form)))
            facts.quotients(form)
        rows = self.ask(facts, INDICES, "guard-answer")
        for number, term, _ in rows:
            self._guards[guards[number]] = conditions(term, facts.forms, None)
        for guard in guards:
            if self._guards[guard] == (guard,) and _sized(guard[1]):
                self._guards[guard] = _between_sizes(guard)


def _sized(form: Linear) -> bool:
    return any(isinstance(node, Size) for _, part in form.terms for node in postorder(part))


def _between_sizes(guard: Guard) -> tuple[Guard, ...] | None:
    """``guard`` where ranges of single terms say too little: how sizes compare decides it."""
    kind, form = guard
    if kind == ATLEAST and nonnegative(expression(form)):
        return ()
    cond = Apply(EQ if kind == ZERO else GE, (expression(form), Const(0, "index")))
    if implied(cond):
        return ()
    return None if empty((cond,)) else (guard,)


def canonical(kind: str, form: Linear) -> Guard:
    """A guard with a positive leading coefficient if it is an equation, and no common factor."""
    common = math.gcd(*(coef for coef, _ in form.terms)) if form.terms else 0
    if common > 1 and (kind == ATLEAST or form.const % common == 0):
        form = Linear(form.const // common, tuple((c // common, node) for c, node in form.terms))
    if kind == ZERO and form.terms and form.terms[0][0] < 0:
        form = form.scaled(-1)
    return kind, form


def form_of(term: Any, forms: Sequence[Linear], fresh: Linear | None) -> Linear:
    """The linear form of a right-hand side as egglog spells it."""
    match term:
        case ("F", int(number)):
            return forms[number]
        case ("Num", value):
            return Linear(value, ())
        case ("Plus", left, right):
            return form_of(left, forms, fresh) + form_of(right, forms, fresh)
        case ("Times", factor, inner):
            return form_of(inner, forms, fresh).scaled(factor)
        case ("Quotient", int(number), divisor):
            return quotient(forms[number], divisor)
        case ("Floor", inner, divisor):
            return quotient(form_of(inner, forms, fresh), divisor)
        case ("Mod", inner, divisor):
            form = form_of(inner, forms, fresh)
            return form - quotient(form, divisor).scaled(divisor)
        case ("Fresh",) if fresh is not None:
            return fresh
    raise AssertionError(f"no index term: {term}")


def conditions(
    term: Any, forms: Sequence[Linear], fresh: Linear | None
) -> tuple[Guard, ...] | None:
    """The guards that a right-hand side spells; None for the condition that never holds."""
    match term:
        case ("Always",):
            return ()
        case ("Never",):
            return None
        case ("Zero", int(number)):
            return (canonical(ZERO, forms[number]),)
        case ("NotNegative", int(number)):
            return (canonical(ATLEAST, forms[number]),)
        case ("IsZero", inner):
            return (canonical(ZERO, form_of(inner, forms, fresh)),)
        case ("IsNotNegative", inner):
            return (canonical(ATLEAST, form_of(inner, forms, fresh)),)
        case ("Both", left, right):
            first, second = conditions(left, forms, fresh), conditions(right, forms, fresh)
            return None if first is None or second is None else (*first, *second)
    raise AssertionError(f"no condition: {term}")


def _index_roots(expr: Expr) -> list[Expr]:
    """The largest index expressions inside ``expr``, in order."""
    roots: dict[Expr, None] = {}
    stack, seen = [expr], set[Expr]()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.dtype == "index":
            roots[node] = None
            for _, inner in linear(node).terms:
                stack.extend(child for child in inner.children if quotient_parts(inner) is None)
        else:
            stack.extend(node.children)
    return list(roots)


def _replaced(expr: Expr, table: dict[Expr, Expr]) -> Expr:
    """``expr`` with the nodes in ``table`` replaced, also inside what replaces them."""
    results: dict[Expr, Expr] = {}
    for node in postorder(expr):
        if node in table:
            opaque = {part: results[part] for part in postorder(table[node]) if part in results}
            opaque.pop(node, None)
            changed = {part: new for part, new in opaque.items() if new is not part}
            results[node] = substitute(table[node], changed)
        else:
            results[node] = with_children(node, tuple(results[c] for c in node.children))
    return results[expr]
