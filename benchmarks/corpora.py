"""The simplification corpora: cases as trees, as expressions, and their values.

A case is one line of a ``.jsonl`` file: see the README beside the files. They are found in a
folder ``shared/corpora`` beside the repository, or where ``--corpora`` says.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import eqsatad as ea
from eqsatad.rules.index_exchange import EXPRS
from eqsatad.terms.nodes import Const, Expr, Var

HERE = Path(__file__).resolve().parent
DEFAULT = HERE.parent.parent / "shared" / "corpora"
CORPORA = ("tvm", "tinygrad", "halide", "halide_rule_instances")
TRIES, WANTED = 3000, 200

Tree = Any


class NotExpressibleError(Exception):
    """A case with an operation on bits, which index expressions do not have."""


@dataclass(frozen=True)
class Case:
    """One case; ``record`` is its line."""

    record: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.record["kind"])

    @cached_property
    def tree(self) -> Tree:
        return parse(self.record["lhs"])

    @cached_property
    def assumed(self) -> list[Tree]:
        return [parse(text) for text in self.record["assume"]]

    @cached_property
    def variables(self) -> dict[str, Expr]:
        types = self.record.get("types") or {}
        return {
            name: Var(name, "bool" if types.get(name) == "bool" else "index")
            for name in self.record["vars"]
        }

    def expr(self, tree: Tree) -> Expr:
        """``tree`` over the variables of the case."""
        if isinstance(tree, int):
            return Const(tree, "index")
        if isinstance(tree, str):
            if tree in ("true", "false"):
                return Const(tree == "true", "bool")
            return self.variables[tree]
        name, *args = tree
        return build(name, [self.expr(arg) for arg in args])

    @property
    def bounds(self) -> dict[Expr, tuple[int | None, int | None]]:
        ranges = self.record["vars"].items()
        return {
            self.variables[name]: (low, high)
            for name, (low, high) in ranges
            if self.variables[name].dtype == "index"
        }

    def points(self, seed: int) -> Iterator[dict[str, int]]:
        """Random points within bounds and assumptions."""
        source = random.Random(seed)
        literals = sorted(
            {
                int(text)
                for text in re.findall(
                    r"-?\d+", json.dumps([self.record["lhs"], *self.record["assume"]])
                )
            }
        )
        if any(None not in span and span[0] > span[1] for span in self.record["vars"].values()):
            return
        found = 0
        for number in range(TRIES):
            point = {
                name: _draw(source, low, high, literals, number)
                for name, (low, high) in self.record["vars"].items()
            }
            for name, variable in self.variables.items():
                if variable.dtype == "bool":
                    point[name] = source.random() < 0.5
            try:
                if all(value(tree, point) for tree in self.assumed):
                    found += 1
                    yield point
            except ZeroDivisionError:
                continue
            if found >= WANTED:
                return


def _draw(
    source: random.Random, low: int | None, high: int | None, literals: list[int], number: int
) -> int:
    reach = (8, 40, 300, 100_000)[number % 4]
    if number % 5 == 0 and literals:
        chosen = source.choice(literals) + source.randint(-2, 2)
    elif low is not None and high is not None:
        chosen = source.randint(low, high)
    else:
        start = low if low is not None else high - reach if high is not None else -reach
        chosen = source.randint(start, start + 2 * reach)
    chosen = chosen if low is None else max(low, chosen)
    return chosen if high is None else min(high, chosen)


def build(name: str, args: list[Expr]) -> Expr:
    """The operation of the corpora called ``name``; shifts and masks by literals are arithmetic."""
    second = args[1].value if len(args) > 1 and isinstance(args[1], Const) else None
    match name, second:
        case "abs", _:
            return ea.abs(args[0])
        case "b2i", _:
            return ea.select(args[0], 1, 0)
        case "i2b", _:
            return args[0].differs(0)
        case "bnot", _:
            return -args[0] - 1
        case "<<", int(bits):
            return args[0] * (1 << bits)
        case ">>", int(bits):
            return args[0] // (1 << bits)
        case "band", int(mask) if mask >= 0 and mask & (mask + 1) == 0:
            return args[0] % (mask + 1)
        case "bor" | "bxor", 0:
            return args[0]
    logic = name in ("and", "or", "not")
    if logic or (name in ("==", "!=") and "bool" in [arg.dtype for arg in args]):
        args = [Const(bool(arg.value), "bool") if isinstance(arg, Const) else arg for arg in args]
    if name not in EXPRS:
        raise NotExpressibleError(name)
    return EXPRS[name](*args)


def parse(text: str) -> Tree:
    """An S-expression as nested tuples."""
    stack: list[list[Tree]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = tuple(stack.pop())
            stack[-1].append(done)
        else:
            stack[-1].append(int(token) if re.fullmatch(r"-?\d+", token) else token)
    return stack[0][0]


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _euclidean(a: int, b: int) -> int:
    return 0 if b == 0 else a // b if b > 0 else -(a // -b)


MEANING: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "neg": lambda a: -a,
    "min": min,
    "max": max,
    "abs": abs,
    "div": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "tdiv": _truncated,
    "tmod": lambda a, b: a - b * _truncated(a, b),
    "ediv": _euclidean,
    "emod": lambda a, b: a - b * _euclidean(a, b) if b else 0,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "not": lambda a: not a,
    "<<": lambda a, b: a << b if b >= 0 else a,
    ">>": lambda a, b: a >> b if b >= 0 else a,
    "band": lambda a, b: a & b,
    "bor": lambda a, b: a | b,
    "bxor": lambda a, b: a ^ b,
    "bnot": lambda a: ~a,
    "b2i": int,
    "i2b": bool,
}


def value(tree: Tree, point: Mapping[str, Any]) -> Any:
    """The value of ``tree``; selects and connectives evaluate what they need only."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return tree == "true" if tree in ("true", "false") else point[tree]
    name, *args = tree
    match name:
        case "select":
            return value(args[1] if value(args[0], point) else args[2], point)
        case "and":
            return value(args[0], point) and value(args[1], point)
        case "or":
            return value(args[0], point) or value(args[1], point)
    return MEANING[name](*(value(arg, point) for arg in args))


def load(folder: Path, only: str | None = None) -> dict[str, list[Case]]:
    """The cases of each corpus in ``folder``, in the order of the files."""
    found = {}
    for name in CORPORA if only is None else (only,):
        lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        found[name] = [Case(json.loads(line)) for line in lines]
    return found
