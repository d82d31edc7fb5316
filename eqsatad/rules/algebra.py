"""Values in the e-graph: the program of constructors, facts and rows, and growing it in rounds.

Facts per class, each the strongest that any of its terms has: ``free``, the axes it depends on;
``need``, the guards it must be under to be in range (`PARTIAL` where it may be no finite number).
A round is one step of the rows that reorder and one of the others; after each, facts and the rows
that collapse run until nothing changes, and the size is checked: a step cannot be interrupted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Sequence

from eqsatad.rules.growth import Growth, Limits
from eqsatad.rules.session import Session
from eqsatad.rules.value_rule import ValueRule, compile_row, directions
from eqsatad.rules.values import Encoded
from eqsatad.rules.wellformed_values import well_formed_value
from eqsatad.terms.ops import OPS

PARTIAL = 1 << 62
"""The bit of ``need`` that no guard takes away."""

EVERYWHERE = (
    "abs", "sign", "sin", "cos", "tanh", "atan", "sigmoid", "softplus", "erf",
    "floor", "ceil", "round", "trunc", "min", "max", "atan2",
)  # fmt: skip
"""Functions whose value is finite wherever their operands are."""

CONSTRUCTORS = """
(datatype V
  (Num f64) (Leaf i64) (Add V V) (Mul V V) (Div V V) (Sum i64 V) (If i64 V) (Pick i64 V V)
  (Call String V) (Call2 String V V) (Fold String i64 i64 V))
(constructor TheRoot (V) V)
(function free (V) i64 :merge (& old new))
(function need (V) i64 :merge (& old new))
(function touched (i64) i64 :merge (& old new))
(function extent (i64) V :merge old)
(function gap (String) i64 :merge (& old new))
(ruleset input) (ruleset facts) (ruleset collapse) (ruleset order) (ruleset algebra)
"""

# One line per constructor: its pattern, its free axes, what it needs, and what those read.
FACTS = (
    ("(Num c)", "0", "0", ""),
    ("(Add x y)", "(| fx fy)", "(| nx ny)", "xy"),
    ("(Mul x y)", "(| fx fy)", "(| nx ny)", "xy"),
    ("(Div x y)", "(| fx fy)", f"(| {PARTIAL} (| nx ny))", "xy"),
    ("(Sum s x)", "(& fx (^ -1 s))", "nx", "x"),
    ("(If g x)", "(| fx (touched g))", "(& nx (^ -1 g))", "x"),
    ("(Pick g x y)", "(| (touched g) (| fx fy))", "(| (& nx (^ -1 g)) ny)", "xy"),
    ("(Call f x)", "fx", "(| nx (gap f))", "x"),
    ("(Call2 f x y)", "(| fx fy)", "(| (gap f) (| nx ny))", "xy"),
)


def _fact_rules() -> Iterator[str]:
    for pattern, free, need, parts in FACTS:
        lookups = [f"(= f{part} (free {part})) (= n{part} (need {part}))" for part in parts]
        for call in ("(touched g)", "(gap f)"):
            name = call.strip("()").replace(" ", "_")
            if call in free + need:
                lookups.append(f"(= {name} {call})")
                free, need = free.replace(call, name), need.replace(call, name)
        body = " ".join((f"(= v {pattern})", *lookups))
        yield f"(rule ({body}) ((set (free v) {free}) (set (need v) {need})) :ruleset facts)"
    # No point gives the identity of the combiner, which may be infinite.
    yield f"""(rule ((= v (Fold f s 0 x)) (= fx (free x)))
        ((set (free v) (& fx (^ -1 s))) (set (need v) {PARTIAL})) :ruleset facts)"""
    yield f"""(rule ((= v (Fold f s g x)) (!= g 0) (= fx (free x)) (= t (touched g)))
        ((set (free v) (& (| t fx) (^ -1 s))) (set (need v) {PARTIAL})) :ruleset facts)"""
    yield "(rewrite (Sum 0 x) x :ruleset facts)"


def _gaps() -> str:
    names = (op.name for op in OPS.values() if op.kind in ("arith", "function", "integer"))
    gaps = ((name, 0 if name in EVERYWHERE else PARTIAL) for name in names)
    return " ".join(f'(set (gap "{name}") {gap})' for name, gap in gaps)


def prelude() -> list[str]:
    """What every e-graph of values starts with: constructors, and the rules of the facts."""
    return [CONSTRUCTORS, *_fact_rules(), _gaps()]


_sessions = threading.local()


def session(rules: Sequence[ValueRule]) -> Session:
    """The session of this thread that holds ``rules``, made on first use."""
    known: dict[tuple[ValueRule, ...], Session] = _sessions.__dict__.setdefault("known", {})
    key = tuple(rules)
    if key not in known:
        for row in rules:
            well_formed_value(row)
        rows = [text for row in rules for text in compile_row(row)]
        known[key] = Session([*prelude(), *rows])
    return known[key]


def grow(
    encoded: Encoded, rules: Sequence[ValueRule], limits: Limits, growth: Growth
) -> Generator[Session]:
    """The e-graph of ``encoded`` after every round; the reader stops when it has enough."""
    start = time.perf_counter()
    graph = session(rules)
    names = {name for row in rules for name, _, _ in directions(row)}
    with graph.scope():
        graph.execute(encoded.text)
        graph.step("input")
        graph.schedule(SETTLE)
        growth.nodes = terms(graph)
        yield graph
        while (reason := _exhausted(growth, limits, start)) is None:
            changed, before = False, growth.nodes
            for ruleset in ("order", "algebra"):
                for step in (graph.step(ruleset), graph.schedule(SETTLE)):
                    changed |= step.changed
                    growth.matches.update({n: step.matches[n] for n in names & set(step.matches)})
                growth.nodes = terms(graph)
                if growth.nodes > limits.nodes:
                    break
            growth.rounds += 1
            growth.seconds = time.perf_counter() - start
            yield graph
            if not changed:
                reason = "saturated"
                break
            if growth.nodes * growth.nodes > OVERSHOOT * limits.nodes * max(before, 1):
                reason = f"node limit {limits.nodes}: the next round would pass it"
                break
        growth.stopped = reason


OVERSHOOT = 2
"""How far past the node limit a round may be expected to go, growing as the last one did."""

SETTLE = "(saturate (seq (run facts) (run collapse)))"


def terms(graph: Session) -> int:
    """The number of terms in the e-graph, facts aside."""
    return sum(size for name, size in graph.sizes().items() if name[0].isupper())


def _exhausted(growth: Growth, limits: Limits, start: float) -> str | None:
    """Which limit has been reached, if any."""
    if growth.nodes > limits.nodes:
        return f"node limit {limits.nodes}"
    if growth.rounds >= limits.rounds:
        return f"round limit {limits.rounds}"
    if time.perf_counter() - start > limits.seconds:
        return f"time limit {limits.seconds} s"
    return None
