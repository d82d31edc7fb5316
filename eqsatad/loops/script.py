"""Python source of a nest, with counters: what `interpret` executes.

Where both sides of a condition count alike, it is counted without asking; a loop whose counts do
not depend on its axis is counted once and multiplied. What a shared sub-term costs is counted
once per place where it is computed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from eqsatad.errors import ArgumentError
from eqsatad.loops.nest import (
    Accumulate,
    Assign,
    Block,
    For,
    If,
    Statement,
    Store,
    groups,
    has_loop,
    stores_in_loop,
)
from eqsatad.loops.scalars import CASTS, COSTS, literal, template
from eqsatad.terms import ops
from eqsatad.terms.evaluate import extents
from eqsatad.terms.nodes import (
    FLOATS,
    INTEGERS,
    Apply,
    Axis,
    Cast,
    Const,
    Expr,
    Read,
    Select,
    Size,
    Tensor,
    Var,
)
from eqsatad.terms.ops import Op
from eqsatad.terms.walk import conjuncts, postorder

COUNTED = (
    "iterations",
    "multiplications",
    "additions",
    "comparisons",
    "index_divisions",
    "inner_conditions",
    "bound_divisions",
    "data_conditions",
)
# Elements stored, kept with the other costs of a statement until its body is finished.
STORED = "stored"
Tally = Counter[str]

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

    @contextmanager
    def aside(self) -> Iterator[list[str]]:
        """A list that gets the lines written meanwhile, one level in."""
        lines: list[str] = []
        mark = len(self.lines)
        self._indent += 1
        yield lines
        self._indent -= 1
        lines.extend(self.lines[mark:])
        del self.lines[mark:]

    def branches(self, test: str, then: list[str], other: list[str]) -> None:
        """A condition with lines that are one level in."""
        self.write(f"if {test}:")
        self.lines.extend(then or ["    " * (self._indent + 1) + "pass"])
        if other:
            self.write("else:")
            self.lines.extend(other)

    def added(self, lines: list[str], tally: Tally, stored: str | None) -> list[str]:
        """``lines`` and then what adds ``tally`` to the counters."""
        with self.aside() as more:
            self._flush(tally, stored=stored)
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
        for group in groups(block):
            if stores_in_loop(group):
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
        inside = self._nested if has_loop(loop.body) else self._innermost
        inside(loop, head, f"{last} - {first}")
        return tally + more

    def _nested(self, loop: For, head: str, trips: str) -> None:
        with self.aside() as lines:
            self._flush(self._body(loop.body))
        self._loop(head, lines, loop.axis, trips)

    def _innermost(self, loop: For, head: str, trips: str) -> None:
        """A loop without loops in it: counted after it, if every iteration counts alike."""
        stored, before = self.local(), self.counters
        cost: Tally = Counter()
        with self.aside() as lines:
            for statement in loop.body:
                cost += self._statement(statement, True, stored)
        if self.counters > before:
            with self.aside() as first:
                self.write(f"{stored} = 0")
            with self.aside() as last:
                self._flush(cost, stored=stored)
                self.write(f"iterations += max(1, {stored})")
            self._loop(head, [*first, *lines, *last], loop.axis, trips)
            return
        if lines:
            self.write(head)
            self.lines.extend(lines)
        cost["iterations"] += max(1, cost[STORED])
        with self.aside() as counted:
            self._flush(cost, f"*({trips})")
        self.branches(f"{trips} > 0", counted, [])

    def _loop(self, head: str, lines: list[str], axis: Axis, trips: str) -> None:
        """A loop whose body counts; once and multiplied if the body does not see the axis."""
        if self.computes or any(re.search(rf"\b{self.name(axis)}\b", line) for line in lines):
            self.write(head)
            self.lines.extend(lines or ["    " * (self._indent + 1) + "pass"])
            return
        saved = {name: self.local() for name in COUNTED}
        with self.aside() as keep:
            self.write(f"{', '.join(saved.values())} = {', '.join(COUNTED)}")
        with self.aside() as multiply:
            for name, old in saved.items():
                self.write(f"{name} += ({name} - {old})*({trips} - 1)")
        self.branches(f"{trips} > 0", [*keep, *lines, *multiply], [])

    def _if(self, statement: If, inner: bool, stored: str | None) -> Tally:
        text, tally = self._value(statement.cond, inner)
        tally["inner_conditions"] += inner
        tally["data_conditions"] += inner and on_data(statement.cond)
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
        tally: Tally = Counter()
        with self.aside() as lines:
            if stored is None:
                tally += self._body(block)
            else:
                for part in block:
                    tally += self._statement(part, inner, stored)
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
                return literal(value, dtype), 0
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
                self.tally["data_conditions"] += self.inner and on_data(cond)
                return self._lazy(self.known[cond][0], cond, then, other), DEPTH
            case Apply(op, (left, right)) if op is ops.AND:
                return self._lazy(self.known[left][0], None, right, node.args[0]), DEPTH
            case Apply(op, (left, right)) if op is ops.OR:
                return self._lazy(self.known[left][0], None, node.args[0], right), DEPTH
            case Apply(op, args):
                self._count(op, args[0].dtype)
                depth = max(self.known[arg][1] for arg in args) + 1
                return template(op, args[0].dtype).format(*(self.known[a][0] for a in args)), depth
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
        elif op in COSTS and (dtype in FLOATS or (op.kind == "compare" and dtype in INTEGERS)):
            self.tally[COSTS[op]] += 1

    def _lazy(self, test: str, cond: Expr | None, then: Expr, other: Expr) -> str:
        """``then if test else other``; only the chosen side is computed."""
        script = self.script
        before = script.counters
        sides = []
        for side in (then, other):
            branch = Writer(script, side, self.inner, Counter(), self)
            with script.aside() as lines:
                text = branch.text(side)
            sides.append((lines, text, branch.tally))
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
        blocks = []
        for (lines, text, _), cost in zip(sides, (then_cost, other_cost), strict=True):
            with script.aside() as last:
                script.write(f"{local} = {text}")
            blocks.append(script.added([*lines, *last], cost, None))
        script.branches(test, *blocks)
        return local


def on_data(cond: Expr) -> bool:
    """Whether every part of ``cond`` depends on data, so that no bound of a loop can stand for it.

    A local of another dtype than an index holds data.
    """
    return all(any(map(_is_data, postorder(part))) for part in conjuncts(cond))


def _is_data(node: Expr) -> bool:
    return isinstance(node, Read) or (isinstance(node, Var) and node.dtype not in ("index", "bool"))


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
        lazy = isinstance(node, Select) or (
            isinstance(node, Apply) and node.op in (ops.AND, ops.OR)
        )
        children = node.children[:1] if lazy else node.children
        stack.extend((child, False) for child in reversed(children))
