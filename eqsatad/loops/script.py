"""Python source of a nest, with counters: what `interpret` executes.

Where both sides of a condition count alike, it is counted without asking; a loop whose counts do
not depend on its axis is counted once and multiplied. What a shared sub-term costs is counted
once per place where it is computed.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from eqsatad.errors import ArgumentError
from eqsatad.loops.nest import Accumulate, Assign, Block, For, If, Statement, Store
from eqsatad.terms import ops
from eqsatad.terms.evaluate import extents
from eqsatad.terms.meaning import MEANING, STORAGE, bfloat16
from eqsatad.terms.nodes import (
    FLOATS, INTEGERS, Apply, Axis, Cast, Const, Expr, Read, Select, Size, Tensor, Var,
)
from eqsatad.terms.ops import Op
from eqsatad.terms.walk import postorder

COUNTED = (
    "iterations", "multiplications", "additions", "comparisons", "index_divisions",
    "inner_conditions", "bound_divisions",
)
# Elements stored, kept with the other costs of a statement until its body is finished.
STORED = "stored"
Tally = Counter[str]
T = TypeVar("T")

# Parentheses deeper than this go through a local: Python's parser has a limit.
DEPTH = 40


class Script:
    """Writes one function; ``buffers`` are its parameters, in order of use.

    Without ``computes`` it only counts: values are left out.
    """

    def __init__(self, sizes: Mapping[str, int], *, computes: bool) -> None:
        self.sizes = sizes
        self.computes = computes
        self.buffers: dict[Tensor, str] = {}
        self.lines: list[str] = []
        self.counters = 0
        self._indent = 1
        self._names: dict[Expr, str] = {}
        self._locals = 0

    def function(self, block: Block) -> str:
        """The source of a function ``nest`` that returns the counters in the order of `COUNTED`."""
        for name in COUNTED:
            self.write(f"{name} = 0")
        self._flush(self._body(block))
        self.write(f"return {', '.join(COUNTED)}")
        parameters = ", ".join(self.buffers.values())
        return "\n".join([f"def nest({parameters}):", *self.lines, ""])

    def write(self, line: str) -> None:
        """One more line."""
        self.lines.append("    " * self._indent + line)

    def local(self) -> str:
        """A local that no other has."""
        self._locals += 1
        return f"t{self._locals}"

    def name(self, node: Expr) -> str:
        """The variable of an axis or a local of the nest."""
        return self._names.setdefault(node, f"x{len(self._names)}")

    def buffer(self, tensor: Tensor) -> str:
        """The parameter that holds ``tensor``."""
        return self.buffers.setdefault(tensor, f"b{len(self.buffers)}")

    def aside(self, written: Callable[[], T]) -> tuple[list[str], T]:
        """The lines that ``written`` writes, one level in, and its result."""
        mark = len(self.lines)
        self._indent += 1
        result = written()
        self._indent -= 1
        lines = self.lines[mark:]
        del self.lines[mark:]
        return lines, result

    def branches(self, test: str, then: list[str], other: list[str]) -> None:
        """A condition with lines that are one level in."""
        self.write(f"if {test}:")
        self.lines.extend(then or ["    " * (self._indent + 1) + "pass"])
        if other:
            self.write("else:")
            self.lines.extend(other)

    def added(self, lines: list[str], tally: Tally, stored: str | None) -> list[str]:
        """``lines`` and then what adds ``tally`` to the counters."""
        more, _ = self.aside(lambda: self._flush(tally, stored=stored))
        return [*lines, *more]

    def _flush(self, tally: Tally, factor: str = "", stored: str | None = None) -> None:
        for name in COUNTED:
            if tally[name]:
                self.counters += 1
                self.write(f"{name} += {tally[name]}{factor}")
        if stored is not None and tally[STORED]:
            self.counters += 1
            self.write(f"{stored} += {tally[STORED]}")

    def _body(self, block: Block) -> Tally:
        """Writes a body with loops in it: groups of statements between loops that store."""
        tally: Tally = Counter()
        for group in _groups(block):
            if _stores_in_loop(group):
                for statement in group:
                    tally += self._statement(statement, False, None)
                continue
            base, stored = self.local(), self.local()
            self.write(f"{base}, {stored} = iterations, 0")
            cost: Tally = Counter()
            for statement in group:
                cost += self._statement(statement, False, stored)
            self._flush(cost, stored=stored)
            self.counters += 1
            self.write(f"iterations = max(iterations, {base} + {stored})")
        return tally

    def _statement(self, statement: Statement, inner: bool, stored: str | None) -> Tally:
        """Writes one statement; what it always costs is returned, the rest counts where it is."""
        mark, before = len(self.lines), self.counters
        tally = self._written(statement, inner, stored)
        if not self.computes and self.counters == before and not isinstance(statement, For):
            del self.lines[mark:]
        return tally

    def _written(self, statement: Statement, inner: bool, stored: str | None) -> Tally:
        match statement:
            case For():
                return self._for(statement)
            case If():
                return self._if(statement, inner, stored)
            case Assign(var, value):
                text, tally = self._value(value, inner)
                if self.computes:
                    self.write(f"{self.name(var)} = {text}")
                return tally
            case Store(buffer, indices, value) | Accumulate(buffer, indices, value):
                adds = isinstance(statement, Accumulate)
                text, tally = self._value(value, inner)
                place, more = self._value(Read(buffer, indices), inner)
                if self.computes:
                    self.write(f"{place} {'+' * adds}= {text}")
                cost = Counter({STORED: 1, "additions": int(adds and buffer.dtype in FLOATS)})
                return tally + more + cost

    def _for(self, loop: For) -> Tally:
        """Writes the loop; what its bounds cost is returned."""
        start, tally = self._value(loop.start, False)
        stop, more = self._value(loop.stop, False)
        self.require_known(loop.start, loop.stop)
        first, last = self.local(), self.local()
        self.write(f"{first}, {last} = {start}, {stop}")
        head = f"for {self.name(loop.axis)} in range({first}, {last}):"
        before = self.counters
        if _has_loop(loop.body):
            lines, cost = self.aside(lambda: self._body(loop.body))
            lines = self.added(lines, cost, None)
            self._loop(head, lines, loop.axis, f"{last} - {first}")
            return tally + more
        stored = self.local()
        lines, cost = self.aside(lambda: self._alike(loop.body, stored))
        if self.counters > before:
            lines = [f"{'    ' * (self._indent + 1)}{stored} = 0", *self.added(lines, cost, stored)]
            most, _ = self.aside(lambda: self.write(f"iterations += max(1, {stored})"))
            self._loop(head, [*lines, *most], loop.axis, f"{last} - {first}")
            return tally + more
        if lines:
            self.write(head)
            self.lines.extend(lines)
        cost["iterations"] += max(1, cost[STORED])
        self.branches(f"{last} > {first}", *self._times(cost, f"{last} - {first}"))
        return tally + more

    def _times(self, cost: Tally, trips: str) -> tuple[list[str], list[str]]:
        lines, _ = self.aside(lambda: self._flush(cost, f"*({trips})"))
        return lines, []

    def _alike(self, block: Block, stored: str) -> Tally:
        tally: Tally = Counter()
        for statement in block:
            tally += self._statement(statement, True, stored)
        return tally

    def _loop(self, head: str, lines: list[str], axis: Axis, trips: str) -> None:
        """A loop whose body counts; once and multiplied if the body does not see the axis."""
        if self.computes or any(re.search(rf"\b{self.name(axis)}\b", line) for line in lines):
            self.write(head)
            self.lines.extend(lines)
            return
        saved = {name: self.local() for name in COUNTED}
        keep, _ = self.aside(
            lambda: self.write(f"{', '.join(saved.values())} = {', '.join(COUNTED)}")
        )
        for name, old in saved.items():
            more, _ = self.aside(
                lambda name=name, old=old: self.write(f"{name} += ({name} - {old})*({trips} - 1)")
            )
            lines.extend(more)
        self.branches(f"{trips} > 0", [*keep, *lines], [])

    def _if(self, statement: If, inner: bool, stored: str | None) -> Tally:
        text, tally = self._value(statement.cond, inner)
        tally["inner_conditions"] += inner
        before = self.counters
        then, then_cost = self._side(statement.then, inner, stored)
        other, other_cost = self._side(statement.other, inner, stored)
        if self.counters == before and then_cost == other_cost:
            if then or other:
                self.branches(text, then, other)
            return tally + then_cost
        self.require_known(statement.cond)
        self.branches(
            text, self.added(then, then_cost, stored), self.added(other, other_cost, stored)
        )
        return tally

    def _side(self, block: Block, inner: bool, stored: str | None) -> tuple[list[str], Tally]:
        """The lines of one side of a condition and what they cost."""
        if stored is None:
            return self.aside(lambda: self._body(block))
        tally: Tally = Counter()
        lines, _ = self.aside(
            lambda: [tally.update(self._statement(part, inner, stored)) for part in block]
        )
        return lines, tally

    def require_known(self, *exprs: Expr) -> None:
        """Without values, what is executed must not depend on them."""
        if self.computes:
            return
        for node in postorder(*exprs):
            if isinstance(node, Read | Var):
                raise ArgumentError(
                    f"what this program executes depends on the data ({node!r}), so counting it "
                    "needs the arrays. Give them: count(program, sizes, arrays)."
                )

    def _value(self, root: Expr, inner: bool) -> tuple[str, Tally]:
        """The source of an expression, after the lines it needs, and what it costs."""
        tally: Tally = Counter()
        return Writer(self, root, inner, tally).text(root), tally


class Writer:
    """Writes one expression: sub-terms used twice or nested deep go through locals."""

    def __init__(
        self, script: Script, root: Expr, inner: bool, tally: Tally, around: Writer | None = None
    ) -> None:
        self.script = script
        self.inner = inner
        self.tally = tally
        if around is None:
            self.uses = Counter(child for node in postorder(root) for child in node.children)
            self.known: dict[Expr, tuple[str, int]] = {}
        else:
            self.uses, self.known = around.uses, dict(around.known)

    def text(self, root: Expr) -> str:
        """The source of ``root``."""
        for node in _strict_postorder(root, self.known):
            text, depth = self._node(node)
            if node.children and (self.uses[node] > 1 or depth > DEPTH):
                local = self.script.local()
                self.script.write(f"{local} = {text}")
                text, depth = local, 0
            self.known[node] = text, depth
        return self.known[root][0]

    def _node(self, node: Expr) -> tuple[str, int]:
        script = self.script
        match node:
            case Const(value, dtype):
                return _literal(value, dtype), 0
            case Size(name):
                return str(script.sizes[name]), 0
            case Read() | Var() if not script.computes:
                return "1", 0
            case Axis() | Var():
                return script.name(node), 0
            case Read(tensor, indices):
                return self._read(tensor, indices)
            case Cast(arg, dtype):
                text, depth = self.known[arg]
                return CASTS[dtype].format(text), depth + 1
            case Select(cond, then, other):
                self.tally["inner_conditions"] += self.inner
                return self._lazy(self.known[cond][0], cond, then, other), DEPTH
            case Apply(op, (left, right)) if op is ops.AND:
                return self._lazy(self.known[left][0], None, right, node.args[0]), DEPTH
            case Apply(op, (left, right)) if op is ops.OR:
                return self._lazy(self.known[left][0], None, node.args[0], right), DEPTH
            case Apply(op, args):
                self._count(op, args[0].dtype)
                depth = max(self.known[arg][1] for arg in args) + 1
                return _template(op, args[0].dtype).format(*(self.known[a][0] for a in args)), depth
        raise AssertionError(f"{node!r} is no expression of a loop nest")

    def _read(self, tensor: Tensor, indices: Sequence[Expr]) -> tuple[str, int]:
        shape = extents(tensor.shape, self.script.sizes)
        parts = []
        for place, index in enumerate(indices):
            step = math.prod(shape[place + 1 :])
            parts.append(self.known[index][0] if step == 1 else f"{step}*{self.known[index][0]}")
        depth = max((self.known[index][1] for index in indices), default=0)
        return f"{self.script.buffer(tensor)}[{' + '.join(parts) or '0'}]", depth + 1

    def _count(self, op: Op, dtype: str) -> None:
        if op in (ops.FLOORDIV, ops.MOD):
            self.tally["index_divisions" if self.inner else "bound_divisions"] += 1
        elif op in COSTS and (dtype in FLOATS or op.kind == "compare" and dtype in INTEGERS):
            self.tally[COSTS[op]] += 1

    def _lazy(self, test: str, cond: Expr | None, then: Expr, other: Expr) -> str:
        """``then if test else other``; only the chosen side is computed."""
        script = self.script
        before = script.counters
        sides = []
        for side in (then, other):
            branch = Writer(script, side, self.inner, Counter(), self)
            sides.append((*script.aside(lambda branch=branch, side=side: branch.text(side)), branch.tally))
        (then_lines, then_text, then_cost), (other_lines, other_text, other_cost) = sides
        if cond is None:
            # Both operands of `and` and `or` count.
            then_cost = other_cost = then_cost + other_cost
        alike = script.counters == before and then_cost == other_cost
        if alike:
            self.tally.update(then_cost)
            then_cost = other_cost = Counter()
            if not then_lines and not other_lines:
                return f"({then_text} if {test} else {other_text})"
        elif cond is not None:
            script.require_known(cond)
        local = script.local()
        lines = []
        for texts, text, cost in ((then_lines, then_text, then_cost), (other_lines, other_text, other_cost)):
            result, _ = script.aside(lambda text=text: script.write(f"{local} = {text}"))
            lines.append(script.added([*texts, *result], cost, None))
        script.branches(test, *lines)
        return local


def _strict_postorder(root: Expr, known: Mapping[Expr, Any]) -> Iterator[Expr]:
    """Nodes under ``root`` that are always computed, children first, less those ``known``."""
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in known:
            continue
        if ready:
            yield node
            continue
        stack.append((node, True))
        lazy = isinstance(node, Select) or (isinstance(node, Apply) and node.op in (ops.AND, ops.OR))
        children = node.children[:1] if lazy else node.children
        stack.extend((child, False) for child in reversed(children))


def _has_loop(block: Block) -> bool:
    return any(isinstance(statement, For) for statement in _all(block))


def _stores_in_loop(block: Block) -> bool:
    return any(
        isinstance(inner, Store | Accumulate)
        for statement in _all(block)
        if isinstance(statement, For)
        for inner in _all(statement.body)
    )


def _all(block: Block) -> Iterator[Statement]:
    """Every statement in ``block``, at any depth."""
    stack = list(reversed(block))
    while stack:
        statement = stack.pop()
        yield statement
        if isinstance(statement, For):
            stack.extend(statement.body)
        elif isinstance(statement, If):
            stack.extend((*statement.then, *statement.other))


def _groups(block: Block) -> Iterator[Block]:
    """``block`` cut at the statements that store inside a loop, each of which is alone."""
    group: list[Statement] = []
    for statement in block:
        if _stores_in_loop((statement,)):
            if group:
                yield tuple(group)
            yield (statement,)
            group = []
        else:
            group.append(statement)
    if group:
        yield tuple(group)


def _literal(value: Any, dtype: str) -> str:
    if dtype in FLOATS:
        rounded = _round(float(value), dtype)
        return repr(rounded) if math.isfinite(rounded) else f"float('{rounded}')"
    return f"({value})" if not isinstance(value, bool) and value < 0 else repr(value)


def _round(value: float, dtype: str) -> float:
    """``value`` as ``dtype`` holds it."""
    if dtype == "float64":
        return value
    if dtype == "bfloat16":
        return float(bfloat16(np.asarray(value)))
    with np.errstate(over="ignore"):
        return float(STORAGE[dtype](value))


def _integer(value: float) -> int:
    """``value`` without its fraction; what is no number gives the least integer."""
    return int(value) if math.isfinite(value) else -(2**63)


def _maximum(a: float, b: float) -> float:
    return a if a > b or a != a else b


def _minimum(a: float, b: float) -> float:
    return a if a < b or a != a else b


def _function(quick: Callable[..., Any], op: Op) -> Callable[..., float]:
    """``quick``; where it refuses, what numpy gives."""

    def call(*args: float) -> float:
        try:
            return float(quick(*args))
        except (ValueError, OverflowError, ZeroDivisionError):
            with np.errstate(all="ignore"):
                return float(MEANING[op](*(np.float64(arg) for arg in args)))

    return call


def _rsqrt(x: float) -> float:
    return 1.0 / math.sqrt(x)


def _sigmoid(x: float) -> float:
    small = math.exp(-abs(x))
    return (1.0 if x >= 0 else small) / (1.0 + small)


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _sign(x: float) -> float:
    return x if x != x else type(x)((x > 0) - (x < 0))


QUICK: dict[Op, Callable[..., Any]] = {
    ops.DIV: operator.truediv, ops.POW: math.pow, ops.ATAN2: math.atan2, ops.SQRT: math.sqrt,
    ops.RSQRT: _rsqrt, ops.EXP: math.exp, ops.EXPM1: math.expm1, ops.LOG: math.log,
    ops.LOG1P: math.log1p, ops.LOG2: math.log2, ops.SIN: math.sin, ops.COS: math.cos,
    ops.TAN: math.tan, ops.ASIN: math.asin, ops.ACOS: math.acos, ops.ATAN: math.atan,
    ops.SINH: math.sinh, ops.COSH: math.cosh, ops.TANH: math.tanh, ops.SIGMOID: _sigmoid,
    ops.SOFTPLUS: _softplus, ops.ERF: math.erf, ops.FLOOR: math.floor, ops.CEIL: math.ceil,
    ops.ROUND: round, ops.TRUNC: math.trunc,
}
FUNCTIONS: dict[str, Any] = {
    **{f"_{op.name}": _function(quick, op) for op, quick in QUICK.items()},
    **{"maximum": _maximum, "minimum": _minimum, "sign": _sign, "integer": _integer},
    "rounded": _round,
}
TEMPLATES: dict[Op, str] = {
    **{op: f"({{}} {op.symbol} {{}})" for op in (ops.ADD, ops.SUB, ops.MUL)},
    **{op: f"({{}} {op.symbol} {{}})" for op in (ops.FLOORDIV, ops.MOD)},
    **{op: f"({{}} {op.symbol} {{}})" for op in (ops.EQ, ops.NE, ops.LT, ops.LE, ops.GT, ops.GE)},
    **{op: f"_{op.name}({', '.join(['{}'] * op.arity)})" for op in QUICK},
    **{ops.NEG: "(-{})", ops.ABS: "abs({})", ops.SIGN: "sign({})", ops.NOT: "(not {})"},
    **{ops.MIN: "min({}, {})", ops.MAX: "max({}, {})"},
}
FLOAT_TEMPLATES: dict[Op, str] = {ops.MIN: "minimum({}, {})", ops.MAX: "maximum({}, {})"}
CASTS: dict[str, str] = {
    **{dtype: f"rounded(float({{}}), '{dtype}')" for dtype in FLOATS},
    "float64": "float({})",
    **dict.fromkeys((*INTEGERS, "index"), "integer({})"),
    "bool": "({} != 0)",
}
COSTS: dict[Op, str] = {
    **dict.fromkeys((ops.MUL, *QUICK), "multiplications"),
    **dict.fromkeys((ops.ADD, ops.SUB), "additions"),
    **dict.fromkeys((ops.MIN, ops.MAX), "comparisons"),
    **dict.fromkeys((ops.EQ, ops.NE, ops.LT, ops.LE, ops.GT, ops.GE), "comparisons"),
}


def _template(op: Op, dtype: str) -> str:
    if dtype in FLOATS and op in FLOAT_TEMPLATES:
        return FLOAT_TEMPLATES[op]
    return TEMPLATES[op]
