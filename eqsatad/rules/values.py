"""A value as text for the e-graph, and what is needed to read it back.

Reads are leaves, conditions are guards, axes are bits of a mask. A bound axis gets the smallest
name per extent that captures nothing, so that reductions which differ in names only are one
node. A guarded value is a node of its own, not a product with 0 or 1.

A read that is in range only under some guards *needs* them: `Encoded.needs` says which, so that
rules and decoding never evaluate it elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from eqsatad.terms.nodes import (
    MAXIMUM,
    MINIMUM,
    PROD,
    SUM,
    TRUE,
    Apply,
    Axis,
    Cast,
    Combiner,
    Const,
    Expr,
    Reduce,
    Select,
)
from eqsatad.terms.ops import ADD, AND, DIV, GE, LT, MUL, NEG, SUB
from eqsatad.terms.presburger import implied
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import conjuncts, constant, postorder, reads, substitute, transform

UNORDERED = (SUM, PROD, MAXIMUM, MINIMUM)
BITS = 60
"""Axes and guards a term may have: masks are 64-bit integers."""

LARGEST_EXACT = 2**53


class TooLargeError(Exception):
    """A term has more axes or guards than a mask has bits; it is left as it is."""


@dataclass(frozen=True)
class Folding:
    """A reduction other than a sum: what the node leaves out."""

    combiner: Combiner
    axes: tuple[Axis, ...]
    dtype: str


@dataclass
class Encoded:
    """The text of a term, and its tables: position in the table is the number in the text."""

    text: str = ""
    axes: list[Axis] = field(default_factory=list)
    leaves: list[Expr] = field(default_factory=list)
    needs: list[int] = field(default_factory=list)
    guards: list[tuple[Expr, ...]] = field(default_factory=list)
    foldings: dict[str, Folding] = field(default_factory=dict)

    def mask(self, axes: frozenset[Axis]) -> int:
        """The bits of ``axes``."""
        return sum(1 << n for n, axis in enumerate(self.axes) if axis in axes)

    def unmask(self, mask: int) -> tuple[Axis, ...]:
        """The axes of ``mask``, in table order."""
        return tuple(axis for n, axis in enumerate(self.axes) if mask >> n & 1)

    def conditions(self, mask: int) -> Iterator[Expr]:
        """The conjuncts of the guards in ``mask``."""
        for n, conds in enumerate(self.guards):
            if mask >> n & 1:
                yield from conds

    def touched(self, mask: int) -> int:
        """The axes that the guards in ``mask`` mention."""
        free = frozenset[Axis]().union(*(cond.free for cond in self.conditions(mask)))
        return self.mask(free)

    def clear(self, guards: int, axes: int) -> int:
        """The guards of a context that still speak of the same axes below a binder of ``axes``."""
        kept = (1 << n for n in range(len(self.guards)) if guards >> n & 1)
        return sum(bit for bit in kept if not self.touched(bit) & axes)


def is_value(expr: Expr) -> bool:
    """Whether ``expr`` is data rather than an index or a condition."""
    return expr.dtype not in ("index", "bool")


def canonical(root: Expr) -> tuple[Expr, dict[str, str]]:
    """``root`` with bound axes named by extent, and the names they had."""
    names: dict[str, str] = {}

    def visit(node: Expr) -> Expr:
        if not isinstance(node, Reduce):
            return node
        axes = node.axes
        if node.combiner in UNORDERED:
            axes = tuple(sorted(axes, key=_first_use(node).__getitem__))
        fresh: dict[Expr, Axis] = {}
        for axis in axes:
            fresh[axis] = _canonical_axis(node, axis, fresh)
            names.setdefault(fresh[axis].name, axis.name)
        cond, body = (substitute(child, dict(fresh)) for child in node.children)
        return Reduce(node.combiner, tuple(fresh[axis] for axis in axes), cond, body)

    return transform(root, visit), names


def _first_use(node: Reduce) -> dict[Axis, int]:
    """When each axis of ``node`` is met first: an order that does not depend on names."""
    order = {axis: len(node.axes) for axis in node.axes}
    met = [part for part in postorder(*reversed(node.children)) if part in order]
    return {axis: met.index(axis) if axis in met else order[axis] for axis in node.axes}


def _canonical_axis(node: Reduce, axis: Axis, taken: dict[Expr, Axis]) -> Axis:
    """The first axis of the series of ``axis``'s extent that captures nothing in ``node``."""
    avoid = set(node.free) | set(taken.values())
    for inner in postorder(*node.children):
        if isinstance(inner, Reduce) and axis in inner.free:
            avoid |= set(inner.axes)
    number = 0
    while (found := Axis(f"#{axis.extent.key}.{number}", axis.extent)) in avoid:
        number += 1
    return found


def encode(term: Expr, axes: tuple[Axis, ...], equal: Iterable[tuple[Expr, Expr]] = ()) -> Encoded:
    """``term``, a value over ``axes`` with canonical bound names, for the e-graph.

    ``equal`` are pairs of values without conditions, over axes of ``term``, which are one class.
    """
    return _Encoder(term, axes, equal).encoded


class _Encoder:
    """Collects the tables, then spells every node once per set of guards above it."""

    def __init__(
        self, term: Expr, axes: tuple[Axis, ...], equal: Iterable[tuple[Expr, Expr]]
    ) -> None:
        self.encoded = Encoded()
        self.lines: dict[str, str] = {}
        self.facts: dict[str, None] = {}
        self.leaf_numbers: dict[tuple[Expr, int], int] = {}
        bound = [axis for node in postorder(term) if isinstance(node, Reduce) for axis in node.axes]
        self.encoded.axes = list(dict.fromkeys((*axes, *bound)))
        self.bound = frozenset(bound)
        self.wholes: dict[Expr, int] = {}
        self.groups = self.group_guards(term)
        if max(len(self.encoded.axes), len(self.encoded.guards)) > BITS:
            raise TooLargeError
        top = self.spell_all(term)
        unions = [f"(union {self.spell_all(a)} {self.spell_all(b)})" for a, b in equal]
        for n, axis in enumerate(self.encoded.axes):
            self.facts[f"(set (extent {1 << n}) {self.extent(axis)})"] = None
        for n in range(len(self.encoded.guards)):
            self.facts[f"(set (touched {1 << n}) {self.encoded.touched(1 << n)})"] = None
        lets = (f"(let {name} {text})" for text, name in self.lines.items())
        actions = "\n".join((*lets, *unions, *self.facts, f"(TheRoot {top})"))
        self.encoded.text = f"(rule () ({actions}) :ruleset input)"

    def group_guards(self, term: Expr) -> dict[Expr, int]:
        """A guard bit per condition; conditions that always occur together share one."""
        places: dict[Expr, list[int]] = {}
        whole: dict[Expr, None] = {}
        for number, node in enumerate(postorder(term)):
            cond = _guarding(node)
            if cond is not None and _splits(node):
                for part in conjuncts(cond):
                    places.setdefault(part, []).append(number)
            elif cond is not None and cond is not TRUE:
                whole[cond] = None
        together: dict[object, list[Expr]] = {}
        for part, where in places.items():
            together.setdefault((tuple(where), part.free & self.bound), []).append(part)
        groups: dict[Expr, int] = {}
        for parts in together.values():
            groups |= dict.fromkeys(parts, 1 << len(self.encoded.guards))
            self.encoded.guards.append(tuple(parts))
        for cond in whole:
            self.wholes[cond] = 1 << len(self.encoded.guards)
            self.encoded.guards.append((cond,))
        return groups

    def guards_of(self, cond: Expr) -> list[int]:
        """The guard bits that make up ``cond``, each once."""
        return list(dict.fromkeys(self.groups[part] for part in conjuncts(cond)))

    def spell_all(self, term: Expr) -> str:
        """The name of ``term``, after everything below it has been spelled."""
        done: dict[tuple[Expr, int], str] = {}
        stack = [((term, 0), False)]
        while stack:
            item, ready = stack.pop()
            if item in done:
                continue
            parts = self.parts(*item)
            if ready:
                done[item] = self.spell(*item, [done[part] for part in parts])
            else:
                stack.append((item, True))
                stack.extend((part, False) for part in reversed(parts))
        return done[term, 0]

    def parts(self, node: Expr, context: int) -> list[tuple[Expr, int]]:
        """The values directly below ``node``, each with the guards that cover it."""
        match node:
            case Apply(_, args) if is_value(node):
                return [(arg, context) for arg in args]
            case Cast(arg, _) if is_value(node) and is_value(arg):
                return [(arg, context)]
            case Select(cond, then, other) if is_value(node):
                if _zero(other):
                    return [(then, context | sum(self.guards_of(cond)))]
                return [(then, context | self.wholes[cond]), (other, context)]
            case Reduce(combiner, axes, cond, body) if is_value(body) and is_value(node):
                mask = self.encoded.mask(frozenset(axes))
                below = self.encoded.clear(context, mask)
                inner = self.guards_of(cond) if combiner is SUM else self.fold_guards(cond)
                return [(body, below | sum(inner))]
        return []

    def fold_guards(self, cond: Expr) -> list[int]:
        return [] if cond is TRUE else [self.wholes[cond]]

    def spell(self, node: Expr, context: int, parts: list[str]) -> str:
        """The name of ``node`` over the names of its parts."""
        if not parts:
            return self.atom(node, context)
        match node:
            case Apply(op, _) if op is SUB:
                return self.let(f"(Add {parts[0]} {self.let(f'(Mul {MINUS_ONE} {parts[1]})')})")
            case Apply(op, _) if op is NEG:
                return self.let(f"(Mul {MINUS_ONE} {parts[0]})")
            case Apply(op, _) if op in STRUCTURAL:
                return self.let(f"({STRUCTURAL[op]} {' '.join(parts)})")
            case Apply(op, _):
                constructor = "Call" if op.arity == 1 else "Call2"
                return self.let(f'({constructor} "{op.name}" {" ".join(parts)})')
            case Cast(arg, dtype):
                name = f"cast:{arg.dtype}:{dtype}"
                self.facts[f'(set (gap "{name}") 0)'] = None
                return self.let(f'(Call "{name}" {parts[0]})')
            case Select(cond, _, other) if _zero(other):
                return self.guarded(self.guards_of(cond), parts[0])
            case Select(cond, _, _):
                return self.let(f"(Pick {self.wholes[cond]} {parts[0]} {parts[1]})")
            case Reduce(combiner, axes, cond, _) if combiner is SUM:
                body = self.guarded(self.guards_of(cond), parts[0])
                return self.let(f"(Sum {self.encoded.mask(frozenset(axes))} {body})")
            case Reduce(combiner, axes, cond, body):
                name = f"{combiner.key}:{body.dtype}:{','.join(axis.name for axis in axes)}"
                self.encoded.foldings[name] = Folding(combiner, axes, body.dtype)
                mask = self.encoded.mask(frozenset(axes))
                guard = sum(self.fold_guards(cond))
                return self.let(f'(Fold "{name}" {mask} {guard} {parts[0]})')
        raise AssertionError(f"no spelling for {node!r}")

    def guarded(self, guards: list[int], body: str) -> str:
        for guard in reversed(guards):
            body = self.let(f"(If {guard} {body})")
        return body

    def atom(self, node: Expr, context: int) -> str:
        """A constant, or an opaque leaf with its axes and the guards that it needs."""
        literal = node.arg if isinstance(node, Cast) and node.arg.dtype == "index" else node
        if isinstance(literal, Const) and is_value(node) and _exact_number(literal.value):
            return self.let(f"(Num {float(literal.value)!r})")
        need = self.needed(node, context)
        number = self.leaf_numbers.setdefault((node, need), len(self.encoded.leaves))
        if number == len(self.encoded.leaves):
            self.encoded.leaves.append(node)
            self.encoded.needs.append(need)
            self.facts[f"(set (free (Leaf {number})) {self.encoded.mask(node.free)})"] = None
            self.facts[f"(set (need (Leaf {number})) {need})"] = None
        return self.let(f"(Leaf {number})")

    def needed(self, node: Expr, context: int) -> int:
        """The fewest guards of ``context`` under which all reads of ``node`` are in range."""
        indexing = [
            pair
            for read in reads(node)
            for pair in zip(read.indices, read.tensor.shape, strict=True)
            if not _always_in_range(*pair)
        ]
        for bit in [1 << n for n in range(len(self.encoded.guards)) if context >> n & 1]:
            given = tuple(self.encoded.conditions(context & ~bit))
            if all(_in_range(index, size, given) for index, size in indexing):
                context &= ~bit
        return context

    def extent(self, axis: Axis) -> str:
        if isinstance(axis.extent, Const):
            return f"(Num {float(axis.extent.value)!r})"
        return self.atom(axis.extent, 0)

    def let(self, text: str) -> str:
        return self.lines.setdefault(text, f"v{len(self.lines)}")


STRUCTURAL = {ADD: "Add", MUL: "Mul", DIV: "Div"}
MINUS_ONE = "(Num -1.0)"


def _guarding(node: Expr) -> Expr | None:
    """The condition that ``node`` puts on its parts."""
    if not is_value(node):
        return None
    match node:
        case Select(cond, _, _):
            return cond
        case Reduce(_, _, cond, body) if is_value(body):
            return cond
    return None


def _splits(node: Expr) -> bool:
    """Whether the conjuncts of the condition of ``node`` are guards of their own."""
    return (isinstance(node, Select) and _zero(node.other)) or (
        isinstance(node, Reduce) and node.combiner is SUM
    )


def _zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value == 0


def _exact_number(value: float) -> bool:
    """Whether the e-graph, which computes in double precision, may hold ``value``."""
    return math.isfinite(value) and (isinstance(value, float) or abs(value) < LARGEST_EXACT)


def _always_in_range(index: Expr, size: Expr) -> bool:
    """Whether intervals alone show that ``index`` lies in ``range(size)``."""
    low, high = interval(index)
    limit = constant(size)
    if low is None or high is None or limit is None:
        return False
    return low >= 0 and high < limit


def _in_range(index: Expr, size: Expr, given: tuple[Expr, ...]) -> bool:
    """Whether ``index`` is proved to lie in ``range(size)`` where ``given`` holds."""
    low, high = Apply(GE, (index, Const(0, "index"))), Apply(LT, (index, size))
    return implied(Apply(AND, (low, high)), given)
