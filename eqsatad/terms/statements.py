"""One statement of the text front end: Python's syntax tree to a stage.

Indices get axes whose ranges are not known at first; when the body is built, `extents.solve`
finds the ranges and the axes are replaced. A mistake found on the way, here or in a constructor,
is raised once, with the smallest part of the text it is about underlined.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import count
from textwrap import indent
from typing import Any, NoReturn, cast

from eqsatad.errors import (
    ArityError,
    DivisorError,
    ShapeError,
    SyntaxTermError,
    TermError,
    UnboundIndexError,
)
from eqsatad.terms import builders
from eqsatad.terms import ops as table
from eqsatad.terms.coerce import Operand, all_of, any_of, apply, as_index, lift
from eqsatad.terms.extents import solve
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import COMBINERS, DTYPES, MARKER, Axis, Expr, Size, Stage, Tensor
from eqsatad.terms.ops import Op
from eqsatad.terms.scopes import replace_all, stem
from eqsatad.terms.walk import postorder

OPERATORS: dict[type[ast.AST], tuple[Op, Callable[[Any, Any], Any]]] = {
    ast.Add: (table.ADD, operator.add),
    ast.Sub: (table.SUB, operator.sub),
    ast.Mult: (table.MUL, operator.mul),
    ast.Div: (table.DIV, operator.truediv),
    ast.FloorDiv: (table.FLOORDIV, operator.floordiv),
    ast.Mod: (table.MOD, operator.mod),
    ast.Pow: (table.POW, operator.pow),
    ast.Lt: (table.LT, operator.lt),
    ast.LtE: (table.LE, operator.le),
    ast.Gt: (table.GT, operator.gt),
    ast.GtE: (table.GE, operator.ge),
    ast.Eq: (table.EQ, operator.eq),
    ast.NotEq: (table.NE, operator.ne),
}
FUNCTIONS: dict[str, Callable[..., Expr]] = {
    **{
        op.name: getattr(builders, op.name)
        for op in table.OPS.values()
        if op.kind == "function" and op is not table.DIV
    },
    **{"abs": builders.abs, "sign": builders.sign, "select": builders.select},
    **{"min": builders.minimum, "max": builders.maximum},
    **{"minimum": builders.minimum, "maximum": builders.maximum},
}
NUMBERS = {"inf": math.inf, "nan": math.nan, "pi": math.pi}


@dataclass
class Reader:
    """One text: what its names mean so far."""

    text: str
    tensors: dict[str, Tensor]
    used: set[str] = field(default_factory=set)
    sizes: dict[str, Size] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shapes = [extent for tensor in self.tensors.values() for extent in tensor.shape]
        found = (node for node in postorder(*shapes) if isinstance(node, Size))
        self.sizes = {size.name: size for size in found}

    def at(self, node: ast.AST, message: str) -> str:
        """``message`` around the line of ``node``, with the node underlined."""
        lines = self.text.split("\n")
        line, end = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        start = _letters(lines[line - 1], node.col_offset)  # type: ignore[attr-defined]
        stop = len(lines[line - 1])
        if line == end:
            stop = _letters(lines[line - 1], node.end_col_offset)  # type: ignore[attr-defined]
        return self.located((line, start, stop), message)

    def located(self, place: tuple[int, int, int], message: str) -> str:
        """What is wrong, the line underlined from one column to another, and what to do."""
        line, start, stop = place
        what, _, advice = message.partition("\n")
        shown = self.text.split("\n")[line - 1]
        marked = f"{shown}\n{' ' * start}{'^' * max(1, stop - start)}"
        return "\n".join([what, indent(marked, "    "), *([advice] if advice else [])])


def _letters(line: str, offset: int) -> int:
    """How many letters the first ``offset`` bytes of ``line`` are."""
    return len(line.encode()[:offset].decode())


@dataclass(frozen=True)
class Call:
    """A reduction as it is written: ``sum(body, bounds, where=, init=)``."""

    name: str
    body: ast.expr
    bounds: list[ast.expr]
    where: ast.expr | None
    init: ast.expr | None
    # `sum(k) (body)` names its axes; otherwise they are found.
    exclusive: bool

    @property
    def parts(self) -> list[ast.expr]:
        """Everything that is inside the scope of the reduction."""
        return [self.body, *self.bounds, *([self.where] if self.where else [])]


Names = Mapping[str, Expr]


class Statement:
    """One statement: its axes, and which of them have a range yet."""

    def __init__(self, reader: Reader, target: ast.expr) -> None:
        self.reader = reader
        self.target = target
        self.unknown: dict[Axis, ast.AST] = {}
        self.numbers = count(1)
        self.located = False
        match target:
            case ast.Name(id=name):
                self.name, self.left = name, []
            case ast.Subscript(value=ast.Name(id=name), slice=inside):
                self.name = name
                self.left = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            case _:
                self.fail(target, "expected a tensor and its indices:\nWrite y[i, j] = ...")

    def fail(
        self, node: ast.AST, message: str, error: type[TermError] = SyntaxTermError
    ) -> NoReturn:
        """Raises ``error`` with ``node`` underlined."""
        self.located = True
        raise error(self.reader.at(node, message))

    def assigned(self, value: ast.expr) -> Stage:
        """The stage of ``y[i, j] = value``."""
        if self.name in self.reader.tensors:
            self.fail(self.target, f"{self.name} is already defined:\nUse another name.")
        names: dict[str, Expr] = {}
        for node in self.left:
            names |= self._output(node, names)
        axes = [axis for axis in names.values() if isinstance(axis, Axis)]
        body = lift(self.build(value, names))
        known = self._ranges([body], axes)
        outer = tuple(known.get(axis, axis) for axis in axes)
        return builders.finished(self.name, outer, replace_all(body, known))

    def added(self, value: ast.expr) -> Stage:
        """The stage of ``y[p[i]] += value``: what ``y`` holds so far and the scatter."""
        base = self.reader.tensors.get(self.name)
        self.reader.used.add(self.name)
        if base is None:
            self.fail(self.target, f"{self.name} is not known:\nGive its shape, {self.name}=(...).")
        names = {
            name: self._axis(name, node) for name, node in self._direct([*self.left, value]).items()
        }
        indices = [as_index(self.build(node, names), self.name) for node in self.left]
        body = lift(self.build(value, names), base.dtype)
        known = self._ranges([*indices, body], list(names.values()))
        axes = tuple(known.get(axis, axis) for axis in names.values())
        return builders.accumulated(
            base, axes, tuple(replace_all(x, known) for x in indices), replace_all(body, known)
        )

    def _output(self, node: ast.expr, before: Names) -> dict[str, Expr]:
        if isinstance(node, ast.Name):
            name, axis = node.id, self._axis(node.id, node)
        else:
            found = self._range(node)
            if found is None or found[1] != 0:
                self.fail(node, "expected an index of the result:\nWrite i or i < 5.")
            name, _, extent = found
            axis = Axis(name, self._extent(extent, name))
        if name in before:
            self.fail(node, f"index {name} is used twice on the left:", UnboundIndexError)
        if not self._is_index(name):
            self.fail(node, f"{name} is already a tensor, a size or a function:\nUse another name.")
        return {name: axis}

    @staticmethod
    def _extent(value: Operand, name: str) -> Expr:
        return builders.extents([cast(builders.Extent, value)], name)[0]

    def _axis(self, name: str, node: ast.AST) -> Axis:
        """An axis whose range is not known yet."""
        number = next(self.numbers)
        axis = Axis(f"{name}{MARKER}{number}", Size(f"{name}?{number}"))
        self.unknown[axis] = node
        return axis

    def _ranges(self, bodies: list[Expr], outer: list[Axis]) -> dict[Axis, Axis]:
        """Each axis without a range, with the one that the reads allow."""
        try:
            found = solve(bodies, self.unknown)
        except ShapeError as error:
            self.fail(self.target, str(error), ShapeError)
        for axis, node in self.unknown.items():
            if axis not in found:
                left = (
                    f"{self.name}[{axis!r} < ...]" if axis in outer else f"sum(..., {axis!r} < ...)"
                )
                self.fail(
                    node,
                    f"the range of {axis!r} does not follow from what is read:\nGive it: {left}.",
                    UnboundIndexError,
                )
        return {
            axis: Axis(stem(axis) if axis in outer else axis.name, extent)
            for axis, extent in found.items()
        }

    def _is_index(self, name: str) -> bool:
        known = (self.reader.tensors, self.reader.sizes, FUNCTIONS, COMBINERS, NUMBERS, DTYPES)
        return not any(name in names for names in known)

    def _direct(self, nodes: Sequence[ast.AST]) -> dict[str, ast.AST]:
        """The indices in ``nodes`` outside of reductions, each where it occurs first."""
        found: dict[str, ast.AST] = {}
        stack = list(reversed(nodes))
        while stack:
            node = stack.pop()
            inside: Iterable[ast.AST] = ast.iter_child_nodes(node)
            if isinstance(node, ast.Name) and self._is_index(node.id):
                found.setdefault(node.id, node)
            elif isinstance(node, ast.Call):
                call = self._reduction(node)
                inside = [*node.args, *(word.value for word in node.keywords)]
                if call is not None:
                    inside = [call.init] if call.init else []
            stack.extend(reversed(list(inside)))
        return found

    def _reduction(self, node: ast.Call) -> Call | None:
        match node.func:
            case ast.Name(id=name) if name in COMBINERS and node.args:
                body, *bounds = node.args
                if name in FUNCTIONS and not all(isinstance(b, ast.Compare) for b in bounds):
                    return None
                words = node.keywords
            case ast.Call(func=ast.Name(id=name), args=bounds, keywords=words) if (
                name in COMBINERS and len(node.args) == 1
            ):
                body = node.args[0]
            case _:
                return None
        given = {word.arg: word.value for word in words}
        if strange := [word for word in words if word.arg not in ("where", "init")]:
            self.fail(strange[0], f"{name} takes where= and init=, nothing else:")
        exclusive = isinstance(node.func, ast.Call)
        return Call(name, body, bounds, given.get("where"), given.get("init"), exclusive)

    def _range(self, node: ast.expr) -> tuple[str, Operand, Operand] | None:
        """``(k, low, extent)`` when ``node`` reads ``low <= k < high`` with bounds of sizes."""
        if not isinstance(node, ast.Compare) or not all(
            isinstance(test, ast.Lt | ast.LtE) for test in node.ops
        ):
            return None
        names = [node.left, *node.comparators]
        if len(names) == 2:
            names.insert(0, ast.Constant(0))
        tests = [ast.LtE(), *node.ops][-2:]
        index = names[1]
        if len(names) != 3 or not isinstance(index, ast.Name) or not self._is_index(index.id):
            return None
        if self._direct([names[0], names[2]]):
            return None
        low, high = (self.build(bound, {}) for bound in (names[0], names[2]))
        low = low + 1 if isinstance(tests[0], ast.Lt) else low
        high = high + 1 if isinstance(tests[1], ast.LtE) else high
        extent = high - low
        return index.id, low, normal(extent) if isinstance(extent, Expr) else extent

    def build(self, node: ast.expr, names: Names) -> Operand:
        """The meaning of ``node``; a mistake found on the way is raised with its place."""
        try:
            return self._built(node, names)
        except (TermError, ZeroDivisionError) as error:
            if self.located:
                raise
            kind = type(error) if isinstance(error, TermError) else DivisorError
            self.fail(node, str(error), kind)

    def _built(self, node: ast.expr, names: Names) -> Operand:
        def of(part: ast.expr) -> Operand:
            return self.build(part, names)

        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return value
            case ast.Name(id=name):
                return self._named(node, name, names)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -of(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return of(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return apply(table.NOT, of(operand))
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
                return _operated(sign, of(left), of(right))
            case ast.BoolOp(op=word, values=values):
                return (all_of if isinstance(word, ast.And) else any_of)(*map(of, values))
            case ast.Compare(left=left, ops=signs, comparators=others):
                if all(type(sign) in OPERATORS for sign in signs):
                    return _compared(signs, [of(part) for part in (left, *others)])
            case ast.IfExp(test=test, body=then, orelse=other):
                return builders.select(of(test), of(then), of(other))
            case ast.Subscript(value=ast.Name(id=name), slice=inside):
                parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
                return self._known(node.value, name)[tuple(map(of, parts))]
            case ast.Call():
                return self._called(node, names)
        self.fail(node, "this has no meaning in index notation:")

    def _named(self, node: ast.Name, name: str, names: Names) -> Operand:
        if name in names:
            return names[name]
        if name in self.reader.sizes:
            return self.reader.sizes[name]
        if name in NUMBERS:
            return NUMBERS[name]
        if name in self.reader.tensors:
            return self._known(node, name)[()]
        if name in FUNCTIONS or name in COMBINERS or name in DTYPES:
            self.fail(node, f"{name} is a function:\nCall it, or use another name.")
        bound = ", ".join(names) or "none"
        self.fail(
            node,
            f"index {name} is used but bound neither by the left side nor by a reduction:\n"
            f"Bound here: {bound}. Reduce over it with sum(...), max(...) or another reduction "
            "around the products it occurs in, or use a bound index.",
            UnboundIndexError,
        )

    def _known(self, node: ast.expr, name: str) -> Tensor:
        if name not in self.reader.tensors:
            known = ", ".join(self.reader.tensors) or "none"
            self.fail(node, f"{name} is not a tensor:\nKnown are {known}.")
        self.reader.used.add(name)
        return self.reader.tensors[name]

    def _called(self, node: ast.Call, names: Names) -> Operand:
        if (call := self._reduction(node)) is not None:
            return self._reduced(node, call, names)
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name) as tensor, attr="get")):
                words = {word.arg: self.build(word.value, names) for word in node.keywords}
                if set(words) - {"outside"}:
                    self.fail(node, "get takes indices and outside=, nothing else:")
                indices = [self.build(part, names) for part in node.args]
                return self._known(tensor, name).get(*indices, outside=words.get("outside", 0.0))
            case ast.Call(func=ast.Name(id="cast"), args=[value, dtype], keywords=[]):
                wanted = dtype.id if isinstance(dtype, ast.Name) else getattr(dtype, "value", "")
                return builders.cast(self.build(value, names), str(wanted))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
                return self._function(node, name, [self.build(part, names) for part in args])
        known = ", ".join(sorted({*FUNCTIONS, *COMBINERS, "cast"}))
        self.fail(node.func, f"this is not a function:\nKnown are {known}, and x.get(...).")

    def _function(self, node: ast.Call, name: str, args: list[Operand]) -> Expr:
        wanted = len(signature(FUNCTIONS[name]).parameters)
        if len(args) != wanted:
            self.fail(node, f"{name} takes {wanted} operands, found {len(args)}:", ArityError)
        return FUNCTIONS[name](*args)

    def _reduced(self, node: ast.Call, call: Call, names: Names) -> Expr:
        ranges = {found[0]: found[1:] for found in map(self._range, call.bounds) if found}
        wanted = self._binders(call, names, ranges)
        if not wanted:
            self.fail(
                node,
                f"{call.name} reduces over nothing:\nEvery index in it is bound around it "
                f"({', '.join(names) or 'none'}). Use an index that is not.",
                UnboundIndexError,
            )
        if twice := [name for name in wanted if name in names]:
            self.fail(node, f"index {twice[0]} is already bound around this:", UnboundIndexError)
        axes = {name: self._bound(name, place, ranges) for name, place in wanted.items()}
        shifted = {
            name: axis + ranges[name][0] if ranges.get(name, (0,))[0] != 0 else axis
            for name, axis in axes.items()
        }
        inner = {**names, **shifted}
        conds = [
            part
            for part in (*call.bounds, *([call.where] if call.where else []))
            if not isinstance(part, ast.Name) and (part is call.where or not self._range(part))
        ]
        where = all_of(*(self.build(part, inner) for part in conds))
        body = self.build(call.body, inner)
        init = None if call.init is None else self.build(call.init, names)
        reduction: builders.Reduction = getattr(builders, call.name)
        return reduction(body, tuple(axes.values()), where=where, init=init)

    def _binders(
        self, call: Call, names: Names, ranges: Mapping[str, object]
    ) -> dict[str, ast.AST]:
        """The names of the axes of ``call``, each with the place that a message points at."""
        if call.exclusive:
            named = {part.id: part for part in call.bounds if isinstance(part, ast.Name)}
            return {**named, **{name: call.body for name in ranges if name not in named}}
        explicit = [part.id for part in call.bounds if isinstance(part, ast.Name)]
        inside = self._direct(call.parts)
        return {
            name: place
            for name, place in inside.items()
            if name not in names or name in ranges or name in explicit
        }

    def _bound(
        self, name: str, place: ast.AST, ranges: Mapping[str, tuple[Operand, Operand]]
    ) -> Axis:
        if name not in ranges:
            return self._axis(name, place)
        extent = self._extent(ranges[name][1], name)
        return Axis(f"{name}{MARKER}{next(self.numbers)}", extent)


def _operated(sign: ast.AST, a: Operand, b: Operand) -> Operand:
    meaning, plain = OPERATORS[type(sign)]
    if isinstance(a, Expr) or isinstance(b, Expr):
        return apply(meaning, a, b)
    result: Operand = plain(a, b)
    return result


def _compared(signs: Sequence[ast.AST], values: Sequence[Operand]) -> Operand:
    pairs = zip(signs, values, values[1:], strict=False)
    tests = [_operated(sign, a, b) for sign, a, b in pairs]
    return tests[0] if len(tests) == 1 else all_of(*tests)
