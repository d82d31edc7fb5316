"""OpenCL C for expressions and statements: pure text.

A node that is used once is written where it is used, any other gets a name. A `Select` becomes
``?:`` if both of its sides may be worked out anywhere, else an ``if``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager

from eqsatad.backends.access import flat, harmless, natural
from eqsatad.loops.nest import Accumulate, Assign, Block, For, If, Statement, Store
from eqsatad.terms import ops
from eqsatad.terms.linear import expression
from eqsatad.terms.nodes import Apply, Axis, Cast, Const, Expr, Read, Select, Size, Tensor, Var
from eqsatad.terms.ops import Op
from eqsatad.terms.walk import postorder

# What a dtype is computed in and what it is stored as.
COMPUTED = {
    "float64": "double", "float32": "float", "float16": "float", "bfloat16": "float",
    "int64": "long", "int32": "int", "bool": "bool", "index": "long",
}  # fmt: skip
STORED = COMPUTED | {"float16": "half", "bfloat16": "ushort", "bool": "uchar"}
# Deeper expressions are cut by names: compilers limit nested brackets.
DEPTH = 24

# {} are the operands, @ is the type that they are computed in.
FLOAT_OPS: dict[Op, str] = {
    ops.ADD: "({} + {})",
    ops.SUB: "({} - {})",
    ops.MUL: "({} * {})",
    ops.DIV: "({} / {})",
    ops.NEG: "(-{})",
    ops.MIN: "min_@({}, {})",
    ops.MAX: "max_@({}, {})",
    ops.SIGN: "sign_@({})",
    ops.RSQRT: "(1 / sqrt({}))",
    ops.SIGMOID: "sigmoid_@({})",
    ops.SOFTPLUS: "softplus_@({})",
    ops.ABS: "fabs({})",
    ops.ROUND: "rint({})",
    **{
        op: f"{op.name}({{}})"
        for op in (
            *(ops.SQRT, ops.EXP, ops.EXPM1, ops.LOG, ops.LOG1P, ops.LOG2, ops.SIN, ops.COS),
            *(ops.TAN, ops.ASIN, ops.ACOS, ops.ATAN, ops.SINH, ops.COSH, ops.TANH, ops.ERF),
            *(ops.FLOOR, ops.CEIL, ops.TRUNC),
        )
    },
    ops.POW: "pow({}, {})",
    ops.ATAN2: "atan2({}, {})",
}
INTEGER_OPS: dict[Op, str] = {
    ops.ADD: "(@)((u@){} + (u@){})",
    ops.SUB: "(@)((u@){} - (u@){})",
    ops.MUL: "(@)((u@){} * (u@){})",
    ops.NEG: "(@)(-(u@){})",
    ops.MIN: "min({}, {})",
    ops.MAX: "max({}, {})",
    ops.ABS: "abs_@({})",
    ops.SIGN: "sign_@({})",
    ops.FLOORDIV: "floordiv_@({}, {})",
    ops.MOD: "mod_@({}, {})",
}
# Data wraps, which C promises of unsigned numbers only; indices were checked to fit.
INDEX_OPS = INTEGER_OPS | {
    ops.ADD: "({} + {})",
    ops.SUB: "({} - {})",
    ops.MUL: "({} * {})",
    ops.NEG: "(-{})",
}
# For a natural dividend; the divisor of an index is positive.
PLAIN_DIVISIONS: dict[Op, str] = {ops.FLOORDIV: "({} / {})", ops.MOD: "({} % {})"}
LOGIC_OPS: dict[Op, str] = {
    ops.AND: "({} && {})",
    ops.OR: "({} || {})",
    ops.NOT: "(!{})",
    ops.MIN: "({} && {})",
    ops.MAX: "({} || {})",
}
COMPARE_OPS: dict[Op, str] = {
    op: f"({{}} {op.symbol} {{}})" for op in (ops.EQ, ops.NE, ops.LT, ops.LE, ops.GT, ops.GE)
}
KINDS = {
    **dict.fromkeys(("float64", "float32", "float16", "bfloat16"), FLOAT_OPS),
    **dict.fromkeys(("int64", "int32"), INTEGER_OPS),
    "index": INDEX_OPS,
    "bool": LOGIC_OPS,
}

FLOAT_PRELUDE = """
inline @ min_@(@ a, @ b) { return a < b || a != a ? a : b; }
inline @ max_@(@ a, @ b) { return a > b || a != a ? a : b; }
inline @ sign_@(@ a) { return a > 0 ? (@)1 : a < 0 ? (@)-1 : a; }
inline @ sigmoid_@(@ a) { @ e = exp(-fabs(a)); return (a >= 0 ? (@)1 : e) / (1 + e); }
inline @ softplus_@(@ a) { return (a > 0 ? a : (@)0) + log1p(exp(-fabs(a))); }
"""
# The quotient by -1 is taken by hand: that of the least integer would trap on some devices.
INTEGER_PRELUDE = """
inline @ abs_@(@ a) { return a < 0 ? (@)(-(u@)a) : a; }
inline @ sign_@(@ a) { return (@)(a > 0) - (@)(a < 0); }
inline @ mod_@(@ a, @ b) {
  if (b == 0 || b == -1) return 0;
  @ r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
inline @ floordiv_@(@ a, @ b) {
  if (b == 0) return 0;
  if (b == -1) return (@)(-(u@)a);
  @ q = a / b, r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
}
"""
BFLOAT16_PRELUDE = """
inline float load_bfloat16(ushort a) { return as_float((uint)a << 16); }
inline ushort store_bfloat16(float a) {
  uint bits = as_uint(a);
  return a != a ? bits >> 16 | 0x40 : (bits + (0x7fff + (bits >> 16 & 1))) >> 16;
}
"""
HALF_PRELUDE = """
inline float round_half(float a) {
  ushort bits;
  vstore_half(a, 0, (half *)&bits);
  return vload_half(0, (const half *)&bits);
}
"""


def c_type(dtype: str) -> str:
    """The type of an element of a buffer."""
    return STORED[dtype]


def prelude(dtypes: Set[str]) -> str:
    """The functions that expressions over ``dtypes`` may call."""
    parts = [INTEGER_PRELUDE.replace("@", "long"), INTEGER_PRELUDE.replace("@", "int")]
    if "float64" in dtypes:
        parts = ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable", *parts]
        parts.append(FLOAT_PRELUDE.replace("@", "double"))
    parts.append(FLOAT_PRELUDE.replace("@", "float"))
    if "bfloat16" in dtypes:
        parts.append(BFLOAT16_PRELUDE)
    if "float16" in dtypes:
        parts.append(HALF_PRELUDE)
    return "".join(parts)


class Writer:
    """Writes the lines of one kernel."""

    def __init__(self, buffers: Mapping[Tensor, str]) -> None:
        self.lines: list[str] = []
        self._buffers = buffers
        self._names: dict[Expr, str] = {}
        self._count = 0
        self._indent = 1

    def line(self, text: str) -> None:
        self.lines.append("  " * self._indent + text)

    def size(self, name: str) -> str:
        return f"size_{name}"

    def bind(self, axis: Axis) -> str:
        """A name for a loop variable."""
        self._names[axis] = name = self._fresh(axis.name)
        return name

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """A block of C after ``head``."""
        self.line(f"{head} {{")
        self._indent += 1
        yield
        self._indent -= 1
        self.line("}")

    def block(self, block: Block) -> None:
        for statement in block:
            self._declare(statement)
        for statement in block:
            self._statement(statement)

    def value(self, root: Expr) -> str:
        """``root`` in C, after the lines that it needs."""
        uses = _uses(root)
        texts: dict[Expr, str] = {}
        depths: dict[Expr, int] = {}
        for node in _reached(root):
            text = self._node(node, texts)
            depth = 1 + max((depths.get(child, 0) for child in node.children), default=0)
            if node.children and node is not root and (uses[node] > 1 or depth > DEPTH):
                name = self._fresh("t")
                self.line(f"{COMPUTED[node.dtype]} {name} = {text};")
                text, depth = name, 0
            texts[node] = text
            depths[node] = depth
        return texts[root]

    def _fresh(self, stem: str) -> str:
        self._count += 1
        return f"{''.join(c if c.isalnum() and c.isascii() else '_' for c in stem)}_{self._count}"

    def _declare(self, statement: Statement) -> None:
        """Locals that ``statement`` sets and that live on after it."""
        match statement:
            case Assign(var, _) if var not in self._names:
                self._names[var] = name = self._fresh(var.name)
                self.line(f"{COMPUTED[var.dtype]} {name};")
            case If(_, then, other):
                for each in (*then, *other):
                    self._declare(each)

    def _statement(self, statement: Statement) -> None:
        match statement:
            case For(axis, start, stop, body):
                first, last = self.value(start), self.value(stop)
                name, end = self.bind(axis), self._fresh("end")
                self.line(f"long {end} = {last};")
                with self.braces(f"for (long {name} = {first}; {name} < {end}; ++{name})"):
                    self.block(body)
            case If(cond, then, other):
                with self.braces(f"if ({self.value(cond)})"):
                    self.block(then)
                if other:
                    with self.braces("else"):
                        self.block(other)
            case Assign(var, value):
                self.line(f"{self._names[var]} = {self.value(value)};")
            case Store(buffer, indices, value):
                self._store(buffer, indices, self.value(value))
            case Accumulate(buffer, indices, value):
                before = self._load(buffer, indices)
                self._store(buffer, indices, f"{before} + {self.value(value)}")

    def _offset(self, tensor: Tensor, indices: tuple[Expr, ...]) -> str:
        return self.value(expression(flat(tensor, indices)))

    def _load(self, tensor: Tensor, indices: tuple[Expr, ...]) -> str:
        offset, name = self._offset(tensor, indices), self._buffers[tensor]
        return {
            "float16": f"vload_half({offset}, {name})",
            "bfloat16": f"load_bfloat16({name}[{offset}])",
            "bool": f"({name}[{offset}] != 0)",
        }.get(tensor.dtype, f"{name}[{offset}]")

    def _store(self, tensor: Tensor, indices: tuple[Expr, ...], text: str) -> None:
        offset, name = self._offset(tensor, indices), self._buffers[tensor]
        if tensor.dtype == "float16":
            self.line(f"vstore_half({text}, {offset}, {name});")
        elif tensor.dtype == "bfloat16":
            self.line(f"{name}[{offset}] = store_bfloat16({text});")
        else:
            self.line(f"{name}[{offset}] = {text};")

    def _node(self, node: Expr, texts: Mapping[Expr, str]) -> str:
        match node:
            case Const(value, dtype):
                return literal(value, dtype)
            case Size(name):
                return self.size(name)
            case Axis() | Var():
                return self._names[node]
            case Read(tensor, indices):
                return self._load(tensor, indices)
            case Cast(arg, dtype):
                return converted(texts[arg], arg.dtype, dtype)
            case Select(cond, then, other):
                return self._select(node.dtype, texts[cond], then, other, texts)
        assert isinstance(node, Apply), "no Reduce is left in a loop program"
        return self._apply(node, texts)

    def _apply(self, node: Apply, texts: Mapping[Expr, str]) -> str:
        op, args = node.op, node.args
        if op is ops.AND and args[1] not in texts:
            return self._select("bool", texts[args[0]], args[1], Const(False, "bool"), texts)
        if op is ops.OR and args[1] not in texts:
            return self._select("bool", texts[args[0]], Const(True, "bool"), args[1], texts)
        given = [texts[arg] for arg in args]
        if op in PLAIN_DIVISIONS and node.dtype == "index" and natural(*args):
            return PLAIN_DIVISIONS[op].format(*given)
        rows = COMPARE_OPS if op.kind == "compare" else KINDS[args[0].dtype]
        return rows[op].replace("@", COMPUTED[args[0].dtype]).format(*given)

    def _select(
        self, dtype: str, cond: str, then: Expr, other: Expr, texts: Mapping[Expr, str]
    ) -> str:
        if then in texts and other in texts:
            return f"({cond} ? {texts[then]} : {texts[other]})"
        name = self._fresh("chosen")
        self.line(f"{COMPUTED[dtype]} {name};")
        for head, side in ((f"if ({cond})", then), ("else", other)):
            with self.braces(head):
                self.line(f"{name} = {self.value(side)};")
        return name


def _first(node: Expr) -> tuple[Expr, ...]:
    """The children that are written before ``node``; the others may have to stay undone."""
    match node:
        case Read():
            return ()
        case Select(cond, then, other) if not (harmless(then) and harmless(other)):
            return (cond,)
        case Apply(op, (left, right)) if op in (ops.AND, ops.OR) and not harmless(right):
            return (left,)
    return node.children


def _reached(root: Expr) -> list[Expr]:
    """The nodes that are written for ``root``, children before parents."""
    order: list[Expr] = []
    seen: set[Expr] = set()
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(_first(node)))
    return order


def _uses(root: Expr) -> dict[Expr, int]:
    """How many parents each node has."""
    uses = dict.fromkeys(postorder(root), 0)
    for node in uses:
        for child in node.children:
            uses[child] += 1
    return uses


def literal(value: object, dtype: str) -> str:
    """A literal of ``dtype``."""
    if dtype == "bool":
        return "true" if value else "false"
    assert isinstance(value, int | float), "literals are numbers"
    if COMPUTED[dtype] in ("float", "double"):
        return _float_literal(float(value), dtype)
    suffix, least = ("", -(2**31)) if dtype == "int32" else ("L", -(2**63))
    if value == least:
        return f"({int(value) + 1}{suffix} - 1)"
    return f"{int(value)}{suffix}" if value >= 0 else f"({int(value)}{suffix})"


def _float_literal(value: float, dtype: str) -> str:
    kind = COMPUTED[dtype]
    if math.isnan(value):
        return f"(({kind})NAN)"
    if math.isinf(value):
        return f"(({kind}){'-' * (value < 0)}INFINITY)"
    text = float.hex(value) + ("f" if kind == "float" else "")
    text = f"({text})" if text.startswith("-") else text
    return _rounded(text, dtype)


def _rounded(text: str, dtype: str) -> str:
    """A float rounded to a narrow dtype, still as a float."""
    if dtype == "float16":
        return f"round_half({text})"
    if dtype == "bfloat16":
        return f"load_bfloat16(store_bfloat16({text}))"
    return text


def converted(text: str, source: str, target: str) -> str:
    """``text`` of dtype ``source`` converted to ``target``."""
    if source == target:
        return text
    kind, wanted = COMPUTED[source], COMPUTED[target]
    if wanted == "bool":
        return f"({text} != 0)"
    if wanted in ("int", "long") and kind in ("float", "double"):
        return f"convert_{wanted}_sat({text})"
    return _rounded(text if kind == wanted else f"(({wanted}){text})", target)
