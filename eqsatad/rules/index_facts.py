"""What is known where an expression is simplified: bounds, assumptions, conditions around it.

A question is asked in three steps, the cheap ones first: the interval of a form, the values at a
fixed sample of points (one counterexample settles it), and isl, whose yes is a proof. What is not
affine is an unknown to isl. Nothing is decided by sampling but "no proof will be found".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from eqsatad.rules.index_conditions import both, is_zero, negation, parts
from eqsatad.rules.index_forms import FALSE, TRUE, Cond, Form, Node, minus, order
from eqsatad.rules.index_points import Points
from eqsatad.rules.index_questions import Question
from eqsatad.rules.index_ranges import Interval, Ranges
from eqsatad.terms.presburger import empty_set, extremes

WORK = 50_000
"""Elementary operations of isl that one question may take, some hundredths of a second."""
TOO_MUCH = 10
"""How many more questions one counts for that isl gives up."""


@dataclass
class Budget:
    """What one call may still spend; ``stopped`` names what ran out.

    ``questions`` go to isl, ``proposals`` are compared with the original, ``expansions`` are
    nodes that are rewritten by rows, and ``rewritings`` what rows make of them.
    """

    questions: int = 300
    proposals: int = 4000
    expansions: int = 10
    rewritings: int = 1000
    stopped: list[str] = field(default_factory=list)

    def spend(self, what: str, number: int = 1) -> bool:
        """Whether there was some of ``what`` left, of which ``number`` are then spent."""
        left = getattr(self, what)
        if left <= 0:
            if what not in self.stopped:
                self.stopped.append(what)
            return False
        setattr(self, what, left - number)
        return True


class Facts:
    """Variables with bounds, and conditions that hold."""

    def __init__(
        self,
        bounds: Mapping[str, Interval],
        conds: tuple[Cond, ...],
        points: Points,
        budget: Budget,
    ) -> None:
        self.ranges = Ranges(bounds)
        self.conds = conds
        self.points = points
        self.budget = budget
        self._decided: dict[Cond, bool | None] = {}
        self._under: dict[Cond, Facts] = {}

    @staticmethod
    def of(
        bounds: Mapping[str, Interval],
        assumed: Iterable[Cond],
        nodes: list[Node],
        budget: Budget | None = None,
    ) -> Facts:
        """The facts for simplifying ``nodes``."""
        conds: dict[Cond, None] = {}
        for cond in assumed:
            conds.update(dict.fromkeys(cond[1] if cond[0] == "and" else (cond,)))
        conds.pop(TRUE, None)
        # A quotient is taken where it is defined.
        conds.update(dict.fromkeys(part for node in nodes for part in _defined(node)))
        given = tuple(sorted(conds, key=order))
        known = dict(bounds)
        for cond in given:
            _tighten(known, cond)
        points = Points.drawn(known, given, [*nodes, *given])
        return Facts(known, given, points, Budget() if budget is None else budget)

    def under(self, cond: Cond) -> Facts:
        """These facts where ``cond`` holds too."""
        if cond not in self._under:
            new = cond[1] if cond[0] == "and" else (cond,)
            new = tuple(part for part in new if part not in self.conds and part != TRUE)
            if not new:
                return self
            known = dict(self.ranges.bounds)
            for part in new:
                _tighten(known, part)
            points = self.points.where(cond)
            self._under[cond] = Facts(known, (*self.conds, *new), points, self.budget)
        return self._under[cond]

    def interval(self, form: Form) -> Interval:
        """Between which numbers ``form`` lies, by interval arithmetic."""
        return self.ranges.interval(form)

    def decide(self, cond: Cond) -> bool | None:
        """Whether ``cond`` always holds, never holds, or neither is known."""
        if cond in (TRUE, FALSE):
            return cond == TRUE
        if cond not in self._decided:
            self._decided[cond] = self._decide(cond)
        return self._decided[cond]

    def _decide(self, cond: Cond) -> bool | None:
        if cond in self.conds:
            return True
        if negation(cond) in self.conds:
            return False
        if (quick := self._by_interval(cond)) is not None:
            return quick
        values = self.points.value(cond)
        if values.all() and self.empty(negation(cond)):
            return True
        return False if not values.any() and self.empty(cond) else None

    def holds(self, cond: Cond) -> bool:
        """Whether ``cond`` is proved to hold."""
        if cond in (TRUE, FALSE):
            return cond == TRUE
        if self.points.refutes(cond):
            return False
        return self.decide(cond) is True

    def _by_interval(self, cond: Cond) -> bool | None:
        if cond[0] not in ("ge", "eq"):
            return None
        low, high = self.interval(cond[1])
        if cond[0] == "eq":
            if low == high == 0:
                return True
            return False if (low or 0) > 0 or (high or 0) < 0 else None
        if low is not None and low >= 0:
            return True
        return False if high is not None and high < 0 else None

    def same(self, left: Node, right: Node) -> bool:
        """Whether two forms, or two conditions, are proved to be equal."""
        if left == right:
            return True
        if left[0] == "+":
            return self.holds(is_zero(minus(left, right)))
        if not self.points.agree(left, right):
            return False
        return self.empty(both(left, negation(right))) and self.empty(both(negation(left), right))

    def empty(self, cond: Cond) -> bool:
        """Whether isl proves that ``cond`` never holds here."""
        if cond in (TRUE, FALSE):
            return cond == FALSE
        held = (*self.conds, cond)
        question = Question(self.interval)
        asked = question.asked(held)
        if self._answered(asked):
            return True
        return question.widens and self._answered(Question(self.interval, wide=True).asked(held))

    def _answered(self, text: str) -> bool:
        """What isl says; a question that is too much work for it counts as several."""
        if not self.budget.spend("questions"):
            return False
        answer = empty_set(text, WORK)
        if answer is None:
            self.budget.spend("questions", TOO_MUCH)
        return answer is True

    def extremes(self, form: Form) -> Interval:
        """The least and greatest value, by interval arithmetic and by isl."""
        low, high = self.ranges.corners(form) or self.interval(form)
        if not self.budget.spend("questions"):
            return low, high
        question = Question(self.interval)
        value = question.form(form)
        text = question.asked(self.conds, f"value = {value}")
        dims = ", ".join(question.names.values())
        exists = f"exists ({dims} : {text})" if dims else text
        exact = extremes(f"{{ [value] : {exists} }}")
        lows = [end for end in (low, exact[0]) if end is not None]
        highs = [end for end in (high, exact[1]) if end is not None]
        return max(lows, default=None), min(highs, default=None)


def _defined(root: Node) -> Iterator[Cond]:
    """What must hold for ``root`` to have a value, apart from what is under a condition."""
    if root[0] in ("fdiv", "tdiv") and root[2][2]:
        yield negation(is_zero(root[2]))
    if root[0] not in ("and", "or"):
        for part in parts(root)[: 1 if root[0] == "sel" else None]:
            yield from _defined(part)


def _tighten(bounds: dict[str, Interval], cond: Cond) -> None:
    """Narrows the bounds of a variable by a comparison of it with a number."""
    compared = cond[1] if cond[0] == "not" else cond
    if compared[0] not in ("ge", "eq") or len(compared[1][2]) != 1:
        return
    _, const, ((atom, coef),) = compared[1]
    if atom[0] != "v" or abs(coef) != 1:
        return
    low, high = bounds.get(atom[1], (None, None))
    if cond[0] == "not":
        # An end that is left out is no end.
        low = -const * coef + 1 if low == -const * coef else low
        high = -const * coef - 1 if high == -const * coef else high
        bounds[atom[1]] = low, high
        return
    if cond[0] == "eq" or coef == 1:
        low = -const * coef if low is None else max(low, -const * coef)
    if cond[0] == "eq" or coef == -1:
        end = const if coef == -1 else -const
        high = end if high is None else min(high, end)
    bounds[atom[1]] = low, high
