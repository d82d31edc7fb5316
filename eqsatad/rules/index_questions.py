"""Conditions over normal forms as questions to isl.

What is not affine is an unknown about which its interval is told, and how it relates to its parts:
a select to its branches, a quotient to its operands, products to what is known of their factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

from eqsatad.rules.index_forms import (
    Cond,
    Form,
    Node,
    factors,
    minus,
    monomial,
    number,
    plus,
    shifted,
    single,
    times,
)
from eqsatad.rules.index_ranges import Interval

PRODUCTS = 10
"""Of how many inequalities the products are told to isl."""
WIDE = 3
"""Of how many factors a question may speak to be asked again with all their products."""


class Question:
    """Conditions as text for isl; every unknown is a dimension."""

    def __init__(self, interval: Callable[[Form], Interval], *, wide: bool = False) -> None:
        self.names: dict[Node, str] = {}
        self._wide = wide
        self._interval = interval
        self._known: list[str] = []
        self._text: dict[Node, str] = {}

    def asked(self, conds: Iterable[Cond], also: str = "") -> str:
        """The set of all unknowns where ``conds`` hold; with ``also``, its constraints alone."""
        held = tuple(conds)
        written = [self.cond(cond) for cond in held]
        if any(node[0] == "mul" for node in self.names):
            self._products(held)
        body = " and ".join([*self._known, *written, *([also] if also else [])]) or "true"
        return body if also else f"{{ [{', '.join(self.names.values())}] : {body} }}"

    def _products(self, conds: tuple[Cond, ...]) -> None:
        """What isl does not see in products: of two numbers that are at least 0, and squares.

        Only products that the question speaks of already are added, or, in a ``wide`` question,
        all of two of its factors.
        """
        flat = [part for cond in conds for part in (cond[1] if cond[0] == "and" else (cond,))]
        least = [part[1] for part in flat if part[0] == "ge"]
        zero = [part[1] for part in flat if part[0] == "eq"]
        used = dict.fromkeys(part for node in self.names for part in factors(node))
        pairs = list(combinations(used, 2))
        if self._wide:
            for pair in (*pairs, *((part, part) for part in used)):
                self._atom(monomial(pair))
        for part in used:
            low, high = self._interval(single(part))
            least += [shifted(single(part), -low)] if low is not None else []
            least += [minus(number(high), single(part))] if high is not None else []
        least = list(dict.fromkeys(least))[:PRODUCTS]
        for place, left in enumerate(least):
            for right in least[place:]:
                self._add(times(left, right), ">=")
        for form in zero:
            for part in used:
                self._add(times(form, single(part)), "=")
        for node in list(self.names):
            parts = factors(node)
            if len(parts) % 2 == 0 and parts[::2] == parts[1::2]:
                self._add(single(node), ">=")
        for one, other in pairs:
            for sign in (1, -1):
                root = plus(single(one), single(other), sign)
                self._add(times(root, root), ">=")

    def _add(self, form: Form, relation: str) -> None:
        if any(atom[0] == "mul" for atom, _ in form[2]) and all(
            atom in self._text for atom, _ in form[2]
        ):
            self._known.append(f"{self.form(form)} {relation} 0")

    @property
    def widens(self) -> bool:
        """Whether the question is worth asking again with more products."""
        products = [node for node in self.names if node[0] == "mul"]
        used = {part for node in products for part in factors(node)}
        return 0 < len(used) <= WIDE and any(len(factors(node)) == 2 for node in products)

    def cond(self, cond: Cond) -> str:
        """``cond`` in isl's notation."""
        match cond[0]:
            case "true" | "false":
                return str(cond[0])
            case "b":
                return f"({self._unknown(cond)} = 1)"
            case "ge":
                return f"({self.form(cond[1])} >= 0)"
            case "eq":
                return f"({self.form(cond[1])} = 0)"
            case "not":
                return f"(not {self.cond(cond[1])})"
        return f"({f' {cond[0]} '.join(map(self.cond, cond[1]))})"

    def form(self, form: Form) -> str:
        """``form`` in isl's notation."""
        terms = [f"{coef}*{self._atom(atom)}" for atom, coef in form[2]]
        return f"({' + '.join([*terms, str(form[1])])})"

    def _atom(self, atom: Node) -> str:
        if atom not in self._text:
            self._text[atom] = self._written(atom)
        return self._text[atom]

    def _written(self, atom: Node) -> str:
        match atom[0]:
            case "floor":
                return f"floor({self.form(atom[1])}/{atom[2]})"
            case "min":
                return f"min({', '.join(map(self.form, atom[1]))})"
        name = self._unknown(atom)
        self._text[atom] = name
        self._describe(atom, name)
        return name

    def _unknown(self, node: Node) -> str:
        return self.names.setdefault(node, f"v{len(self.names)}")

    def _quotient(self, product: Form, top: Form, under: Form, unless: str = "") -> None:
        """``q * d <= x < q * d + d`` where the divisor is positive, the opposite where negative."""
        rest, by = self.form(minus(top, product)), self.form(under)
        self._known.append(f"({unless}{by} <= 0 or (0 <= {rest} and {rest} < {by}))")
        if not unless:
            self._known.append(f"({by} >= 0 or ({by} < {rest} and {rest} <= 0))")

    def _describe(self, atom: Node, name: str) -> None:
        """What is known about an unknown."""
        low, high = self._interval(("+", 0, ((atom, 1),)))
        self._known += [f"{name} >= {low}"] if low is not None else []
        self._known += [f"{name} <= {high}"] if high is not None else []
        match atom:
            case ("mul", parts):
                for part in parts:
                    self._atom(part)
            case ("sel", cond, then, other):
                test = self.cond(cond)
                self._known.append(
                    f"(({test} and {name} = {self.form(then)}) or "
                    f"((not {test}) and {name} = {self.form(other)}))"
                )
            case ("tdiv", top, under) if not under[2] and under[1] > 0:
                up, size = self.form(top), under[1]
                self._known.append(
                    f"(({up} >= 0 and {name} = floor({up}/{size})) or "
                    f"({up} < 0 and {name} = -1*floor((-1*{up})/{size})))"
                )
            case ("fdiv", top, under):
                self._quotient(times(single(atom), under), top, under)
            case ("tdiv", top, under):
                self._quotient(times(single(atom), under), top, under, f"{self.form(top)} < 0 or ")
            case ("emod", _, under):
                by = self.form(under)
                self._known.append(
                    f"({name} >= 0 and ({by} = 0 or {name} < {by} or {name} < -1*{by}))"
                )
