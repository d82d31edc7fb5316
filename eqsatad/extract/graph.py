"""The e-graph as a priced graph of choices, and a choice as a term again.

Only nodes whose axes are among those of their class are choices: a class may hold a term that
mentions an axis it does not depend on, and outside its binder that term would be wrong.
Guards come back as the condition of a `Select` or of a `Reduce`, outermost in each product, never
as arithmetic; a read that needs a guard which is not around it gets it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from eqsatad.extract.cover import Cover
from eqsatad.extract.dag import Choice, Class, Graph, Node
from eqsatad.extract.paths import Paths
from eqsatad.extract.points import Points
from eqsatad.rules.session import Session
from eqsatad.rules.values import Encoded
from eqsatad.terms.nodes import SUM, Apply, Cast, Const, Expr, Reduce, Select
from eqsatad.terms.ops import ADD, DIV, MUL, NEG, OPS, SUB
from eqsatad.terms.walk import conjunction

# How the arguments before the children of a constructor are read.
LITERALS = {
    "Num": ("number",),
    "Leaf": ("integer",),
    "Add": (),
    "Mul": (),
    "Div": (),
    "Sum": ("integer",),
    "If": ("integer",),
    "Pick": ("integer",),
    "Call": ("string",),
    "Call2": ("string",),
    "Fold": ("string", "integer", "integer"),
}


def snapshot(session: Session, encoded: Encoded, points: Points) -> Graph:
    """The choices that the e-graph offers now, with the prices of the model of ``points``."""
    frozen = session.freeze()
    numbers: dict[object, Class] = {}
    rows: list[Node] = []
    for op, readers in LITERALS.items():
        read = [getattr(frozen, reader) for reader in readers]
        for row in frozen.rows.get(op, ()):
            data = tuple([reader(value) for reader, value in zip(read, row, strict=False)])
            *children, own = [numbers.setdefault(v, len(numbers)) for v in row[len(read) :]]
            rows.append(Node(own, op, data, tuple(children), 0.0))
    free = [0] * len(numbers)
    for value, mask in frozen.rows["free"]:
        if value in numbers:
            free[numbers[value]] = frozen.integer(mask)
    root = numbers[frozen.rows["TheRoot"][0][0]]
    return _Pricing(encoded, points, free).graph(rows, root)


class _Pricing:
    """Prices of nodes, given the axes of every class."""

    def __init__(self, encoded: Encoded, points: Points, free: list[int]) -> None:
        self.encoded, self.points, self.free = encoded, points, free
        self.model = points.model
        self.touched = lru_cache(maxsize=None)(encoded.touched)
        self.volume = lru_cache(maxsize=None)(self._volume)

    def _volume(self, mask: int, guards: int) -> float:
        """The points of the axes of ``mask`` at which those of ``guards`` hold that test them."""
        axes = self.encoded.unmask(mask)
        conds = self.encoded.conditions(guards)
        return self.points.count(axes, (cond for cond in conds if cond.free <= {*axes}))

    def graph(self, rows: list[Node], root: Class) -> Graph:
        """The rows that may be chosen, priced."""
        self.paths = Paths(self.encoded, self.model, self.free, rows)
        self.cover = Cover(self.encoded, len(self.free), root, rows)
        self.minus = {node.owner for node in rows if node.op == "Num" and node.data[0] == -1.0}
        nodes = []
        for node in rows:
            mentioned, points = self.extent(node)
            if not mentioned & ~self.free[node.owner]:
                times = min(self.volume(points, self.cover.of(node)), self.paths.points(node))
                nodes.append(node._replace(cost=self.price(node) * times))
        return Graph(nodes, len(self.free), root)

    def extent(self, node: Node) -> tuple[int, int]:
        """The axes that ``node`` mentions outside its binder, and those it is worked out for."""
        below = 0
        for child in node.children:
            below |= self.free[child]
        match node.op, node.data:
            case "Leaf", (int(number),):
                below = self.encoded.mask(self.encoded.leaves[number].free)
            case "Sum", (int(axes),):
                return below & ~axes, below | axes
            case "Fold", (_, int(axes), int(guard)):
                below |= self.touched(guard)
                return below & ~axes, below | axes
            case (("If" | "Pick"), (int(guard),)):
                below |= self.touched(guard)
        return below, below

    def price(self, node: Node) -> float:
        """The cost of one evaluation of ``node``."""
        model = self.model
        match node.op:
            case "Num":
                return 0.0
            case "Leaf":
                return model.read
            case "Add" | "Sum" | "Fold":
                return model.add
            case "Mul":
                return model.negate if self.minus & set(node.children) else model.multiply
            case "Div":
                return model.divide
            case "If" | "Pick":
                return model.guard
        return model.function(str(node.data[0]))


@dataclass
class Decoder:
    """Turns a choice into a term; ``dtype`` is that of the value wanted."""

    encoded: Encoded
    choice: Choice

    def __post_init__(self) -> None:
        self._outer: dict[Class, int] = {}
        self._terms: dict[tuple[Class, str, int], Expr] = {}

    def decode(self, root: Class, dtype: str) -> Expr:
        """The term of ``root``, guards included."""
        return self._full(root, dtype, 0)

    def _full(self, number: Class, dtype: str, covered: int) -> Expr:
        """The term where the guards in ``covered`` are known to hold."""
        guards = self._guards(number) & ~covered
        term = self._bare(number, dtype, covered | guards)
        return self._select(guards, term)

    def _select(self, guards: int, term: Expr) -> Expr:
        if not guards:
            return term
        return Select(self._cond(guards), term, zero(term.dtype))

    def _cond(self, guards: int) -> Expr:
        return conjunction(self.encoded.conditions(guards))

    def _guards(self, number: Class) -> int:
        """The guards around the whole of a class, the ones that may stand outermost."""
        if number not in self._outer:
            node = self.choice.nodes[number]
            parts = [self._guards(child) for child in node.children]
            match node.op:
                case "If":
                    found = int(str(node.data[0])) | parts[0]
                case "Mul":
                    found = parts[0] | parts[1]
                case "Div":
                    found = parts[0]
                case "Add":
                    found = parts[0] & parts[1]
                case _:
                    found = 0
            self._outer[number] = found
        return self._outer[number]

    def _bare(self, number: Class, dtype: str, covered: int) -> Expr:
        """The term without its outermost guards, all of which are in ``covered``."""
        key = (number, dtype, covered)
        if key not in self._terms:
            self._terms[key] = self._build(self.choice.nodes[number], dtype, covered)
        return self._terms[key]

    def _build(self, node: Node, dtype: str, covered: int) -> Expr:
        match node.op, node.data:
            case "Num", (float(value),):
                return number(value, dtype)
            case "Leaf", (int(leaf),):
                term = self.encoded.leaves[leaf]
                term = term if term.dtype == dtype else Cast(term, dtype)
                return self._select(self.encoded.needs[leaf] & ~covered, term)
            case "Add", _:
                return self._add(node, dtype, covered)
            case "Mul", _:
                return self._multiply(node, dtype, covered)
            case "Div", _:
                above = self._bare(node.children[0], dtype, covered)
                return Apply(DIV, (above, self._full(node.children[1], dtype, covered)))
            case "If", _:
                return self._bare(node.children[0], dtype, covered)
            case "Pick", (int(guard),):
                then = self._full(node.children[0], dtype, covered | guard)
                other = self._full(node.children[1], dtype, covered)
                return Select(self._cond(guard), then, other)
            case "Sum", (int(axes),):
                return self._sum(node, axes, dtype, covered)
            case "Fold", (str(name), int(axes), int(guard)):
                folding = self.encoded.foldings[name]
                below = self.encoded.clear(covered, axes) | guard
                body = self._full(node.children[0], folding.dtype, below)
                return Reduce(folding.combiner, folding.axes, self._cond(guard), body)
        return self._call(node, dtype, covered)

    def _sum(self, node: Node, axes: int, dtype: str, covered: int) -> Expr:
        below = self.encoded.clear(covered, axes)
        guards = self._guards(node.children[0]) & ~below
        body = self._bare(node.children[0], dtype, below | guards)
        return Reduce(SUM, self.encoded.unmask(axes), self._cond(guards), body)

    def _add(self, node: Node, dtype: str, covered: int) -> Expr:
        left, right = (self._full(child, dtype, covered) for child in node.children)
        if (positive := negated(right)) is not None:
            return Apply(SUB, (left, positive))
        if (positive := negated(left)) is not None:
            return Apply(SUB, (right, positive))
        return Apply(ADD, (left, right))

    def _multiply(self, node: Node, dtype: str, covered: int) -> Expr:
        left, right = (self._bare(child, dtype, covered) for child in node.children)
        for factor, other in ((left, right), (right, left)):
            if isinstance(factor, Const) and factor.value == -1:
                return Apply(NEG, (other,))
        if (positive := negated(left)) is not None:
            return Apply(NEG, (Apply(MUL, (positive, right)),))
        if (positive := negated(right)) is not None:
            return Apply(NEG, (Apply(MUL, (left, positive)),))
        return Apply(MUL, (left, right))

    def _call(self, node: Node, dtype: str, covered: int) -> Expr:
        name = str(node.data[0])
        if name.startswith("cast:"):
            _, source, target = name.split(":")
            return Cast(self._full(node.children[0], source, covered), target)
        args = tuple(self._full(child, dtype, covered) for child in node.children)
        return Apply(OPS[name], args)


def negated(term: Expr) -> Expr | None:
    """What ``term`` is the negative of, where that is how it is written."""
    return term.args[0] if isinstance(term, Apply) and term.op is NEG else None


def number(value: float, dtype: str) -> Const:
    """The literal ``value`` of ``dtype``."""
    return Const(int(value) if dtype in ("int32", "int64") else value, dtype)


def zero(dtype: str) -> Const:
    """The literal 0 of ``dtype``."""
    return number(0.0, dtype)
