"""LLVM IR as text: typed values and a writer of one function.

Text rather than llvmlite's builder, because vectors of any length, fast-math flags and attributes
are spelled directly and a kernel of thousands of instructions is written in milliseconds. Values
carry their element type and lane count; an operation on a scalar and a vector broadcasts the
scalar. Nothing here knows terms or loops.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

# What says of a loop that it stays a loop, and how many copies of what is inside nested loops
# may become: many more take LLVM seconds, and are no faster.
ROLLED = '!1 = !{!"llvm.loop.unroll.disable"}'
# What says of a loop that LLVM does not vectorise it. A division under a condition, by what does
# not vary in the loop, it would do only where the first lane's condition holds, and use the
# result in all lanes (LLVM 20).
SCALAR = '!2 = !{!"llvm.loop.vectorize.enable", i1 false}'
DIVISIONS = ("udiv", "urem", "sdiv", "srem")
# What says of a store that it bypasses the caches.
PAST = "!0 = !{i32 1}"
UNROLLED = 32
FLOAT_BITS = {"half": 16, "float": 32, "double": 64}


class Value(NamedTuple):
    """An operand: its text, its element type, and its number of lanes (0 is a scalar)."""

    text: str
    kind: str
    lanes: int = 0

    @property
    def type(self) -> str:
        return spell(self.kind, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"


def spell(kind: str, lanes: int) -> str:
    """The type of ``lanes`` elements of ``kind``."""
    return f"<{lanes} x {kind}>" if lanes else kind


def number(value: float, kind: str) -> Value:
    """A literal of a scalar type; floats are rounded to it."""
    if kind not in FLOAT_BITS:
        return Value(str(int(value)), kind)
    if kind == "float":
        value = _single(value)
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return Value(f"0x{bits:016X}", kind)


def _single(value: float) -> float:
    """``value`` rounded to float32; too large becomes infinite."""
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return float(rounded)


# The parameters of a step: the first of the iterations to make, and the first that is not one.
BEGIN, END = Value("%begin", "i64"), Value("%end", "i64")


def splat(value: Value, lanes: int) -> Value:
    """A literal in every lane."""
    return Value(f"<{', '.join([value.typed] * lanes)}>", value.kind, lanes)


@dataclass
class Module:
    """Function texts, and the declarations that they need, for vectors of ``vector`` bytes.

    ``half`` says that the CPU converts half floats; ``helpers`` are the names of those functions
    that others need, each written once. ``tables`` are constants by their contents.
    """

    vector: int = 0
    half: bool = True
    functions: list[str] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    helpers: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    tables: dict[tuple[int, ...], str] = field(default_factory=dict)

    def note(self, *facts: str) -> str:
        """A note for the branch of a loop of which ``facts`` hold, like `ROLLED`."""
        if not facts:
            return ""
        name = f"!{len(self.notes) + 3}"
        said = ", ".join((name, *(fact.split(" ", 1)[0] for fact in facts)))
        self.notes.append(f"{name} = distinct !{{{said}}}")
        return f", !llvm.loop {name}"

    def table(self, entries: tuple[int, ...]) -> str:
        """The address of a constant array of 32-bit integers."""
        return self.tables.setdefault(entries, f"@table{len(self.tables)}")

    def text(self, attributes: Sequence[str]) -> str:
        """The module; every function gets ``attributes``."""
        tables = [
            f"{name} = private unnamed_addr constant [{len(entries)} x i32] "
            f"[{', '.join(f'i32 {entry}' for entry in entries)}]"
            for entries, name in self.tables.items()
        ]
        declared = [self.declarations[name] for name in sorted(self.declarations)]
        known = [f"attributes #0 = {{ {' '.join(attributes)} }}", PAST, ROLLED, SCALAR]
        return "\n".join([*tables, *declared, *self.functions, *known, *self.notes]) + "\n"


@dataclass
class _Loop:
    """A loop that is being written.

    How many copies the loops in it may become, how many conditions are open in it, outside of
    loops in it, and whether it holds a division under a condition.
    """

    copies: int = 0
    conditions: int = 0
    divides: bool = False


class Writer:
    """Writes one function, instruction by instruction.

    ``flags`` are the fast-math flags of ordinary float arithmetic.
    """

    def __init__(self, module: Module, flags: tuple[str, ...] = ()) -> None:
        self.module = module
        self.flags = flags
        self.label = "entry"
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._past = False
        # The function, and the loops around this place.
        self._loops = [_Loop()]

    def finish(
        self,
        name: str,
        parameters: Sequence[str],
        linkage: str = "",
        result: Value | None = None,
    ) -> None:
        """Ends the function and adds it to the module."""
        if self._past:
            # Without it such stores may be seen later than others that come after them.
            self.line("fence seq_cst")
        self.line("ret void" if result is None else f"ret {result.typed}")
        kind = "void" if result is None else result.type
        head = f"define {linkage}{kind} @{name}({', '.join(parameters)}) #0 {{"
        self.module.functions.append("\n".join([head, "entry:", *self._slots, *self._lines, "}"]))

    def line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def fresh(self, stem: str = "v") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def emit(self, text: str, kind: str, lanes: int = 0) -> Value:
        """The result of the instruction ``text``."""
        name = f"%{self.fresh()}"
        self.line(f"{name} = {text}")
        return Value(name, kind, lanes)

    def slot(self, kind: str, lanes: int = 0) -> str:
        """The address of a local of the function."""
        name = f"%{self.fresh('slot')}"
        self._slots.append(f"  {name} = alloca {spell(kind, lanes)}")
        return name

    def room(self, kind: str, elements: int, align: int) -> str:
        """The address of so many elements that are the function's own."""
        name = f"%{self.fresh('room')}"
        self._slots.append(f"  {name} = alloca [{elements} x {kind}], align {align}")
        return name

    def begin(self, label: str) -> None:
        """Starts the block ``label``."""
        self._lines.append(f"{label}:")
        self.label = label

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, cond: Value, yes: str, no: str, note: str = "") -> None:
        self.line(f"br i1 {cond.text}, label %{yes}, label %{no}{note}")

    def wide(self, value: Value, lanes: int) -> Value:
        """``value`` in every lane, if it is a scalar."""
        if not lanes or value.lanes:
            return value
        if not value.text.startswith("%"):
            return splat(value, lanes)
        vector = spell(value.kind, lanes)
        one = self.emit(f"insertelement {vector} poison, {value.typed}, i64 0", value.kind, lanes)
        zeros = splat(Value("0", "i32"), lanes)
        return self.emit(
            f"shufflevector {one.typed}, {vector} poison, {zeros.typed}", value.kind, lanes
        )

    def level(self, *values: Value) -> tuple[list[Value], int]:
        """``values`` with one lane count, and that count."""
        lanes = max(value.lanes for value in values)
        return [self.wide(value, lanes) for value in values], lanes

    def two(self, code: str, a: Value, b: Value) -> Value:
        """``code a, b``; the code includes flags."""
        (a, b), lanes = self.level(a, b)
        if code in DIVISIONS and b.text.startswith("%"):
            self._divides()
        return self.emit(f"{code} {a.typed}, {b.text}", a.kind, lanes)

    def _divides(self) -> None:
        """Tells each loop around this place that has a condition between it and this place."""
        open_conditions = 0
        for loop in reversed(self._loops):
            open_conditions += loop.conditions
            loop.divides = loop.divides or open_conditions > 0

    def arithmetic(self, code: str, a: Value, b: Value) -> Value:
        """Float ``code`` under the function's fast-math flags."""
        return self.two(" ".join((code, *self.flags)), a, b)

    def compare(self, code: str, a: Value, b: Value) -> Value:
        """``icmp`` or ``fcmp`` with its predicate."""
        return self.two(code, a, b)._replace(kind="i1")

    def select(self, cond: Value, a: Value, b: Value) -> Value:
        if not cond.lanes:
            (a, b), lanes = self.level(a, b)
            return self.emit(f"select {cond.typed}, {a.typed}, {b.typed}", a.kind, lanes)
        (cond, a, b), lanes = self.level(cond, a, b)
        return self.emit(f"select {cond.typed}, {a.typed}, {b.typed}", a.kind, lanes)

    def convert(self, code: str, value: Value, kind: str) -> Value:
        """``value`` converted by ``code`` unless it is of that type already."""
        if value.kind == kind:
            return value
        return self.emit(f"{code} {value.typed} to {spell(kind, value.lanes)}", kind, value.lanes)

    def intrinsic(self, name: str, *args: Value) -> Value:
        """``llvm.name`` overloaded on the type of its operands, which are all the same."""
        (args_, lanes) = self.level(*args)
        kind = args_[0].kind
        suffix = {"half": "f16", "float": "f32", "double": "f64"}.get(kind, kind)
        full = f"llvm.{name}.{f'v{lanes}' if lanes else ''}{suffix}"
        return self.call(full, args_, kind, lanes)

    def call(
        self, name: str, args: Sequence[Value], kind: str, lanes: int, note: str = ""
    ) -> Value:
        """The result of the outside function ``name``, which is declared with ``note``."""
        types = ", ".join(arg.type for arg in args)
        result = spell(kind, lanes)
        self.module.declarations[name] = f"declare {result} @{name}({types}){note}"
        return self.emit(
            f"call {result} @{name}({', '.join(arg.typed for arg in args)})", kind, lanes
        )

    def by_lane(self, name: str, args: Sequence[Value], note: str) -> Value:
        """The scalar outside function ``name`` of every lane."""
        args, lanes = self.level(*args)
        kind = args[0].kind
        if not lanes:
            return self.call(name, args, kind, 0, note)
        result = Value("poison", kind, lanes)
        for lane in range(lanes):
            parts = [self.lane(arg, lane) for arg in args]
            one = self.call(name, parts, kind, 0, note)
            result = self.emit(
                f"insertelement {result.typed}, {one.typed}, i64 {lane}", kind, lanes
            )
        return result

    def lane(self, vector: Value, lane: int) -> Value:
        return self.emit(f"extractelement {vector.typed}, i64 {lane}", vector.kind)

    def counting(self, lanes: int, step: int = 1) -> Value:
        """0, 1, 2... times ``step``, one for each lane."""
        steps = ", ".join(f"i64 {step * lane}" for lane in range(lanes))
        return Value(f"<{steps}>", "i64", lanes)

    def over_lanes(self, name: str, value: Value) -> Value:
        """The integer intrinsic ``name`` over all lanes."""
        if not value.lanes:
            return value
        full = f"llvm.vector.reduce.{name}.v{value.lanes}{value.kind}"
        return self.call(full, [value], value.kind, 0)

    def add_up(self, start: Value, vector: Value) -> Value:
        """``start`` plus every lane of a vector of floats, in some order."""
        suffix = f"v{vector.lanes}{'f32' if vector.kind == 'float' else 'f64'}"
        name = f"llvm.vector.reduce.fadd.{suffix}"
        self.module.declarations[name] = (
            f"declare {vector.kind} @{name}({vector.kind}, {vector.type})"
        )
        return self.emit(
            f"call reassoc {vector.kind} @{name}({start.typed}, {vector.typed})", vector.kind
        )

    def store(self, value: Value, address: str, align: int) -> None:
        self.line(f"store {value.typed}, ptr {address}, align {align}")

    def stream(self, value: Value, address: str, align: int) -> None:
        """Stores a whole vector past the caches; ``align`` is its size."""
        self._past = True
        self.line(f"store {value.typed}, ptr {address}, align {align}, !nontemporal !0")

    def load(self, kind: str, lanes: int, address: str, align: int) -> Value:
        return self.emit(f"load {spell(kind, lanes)}, ptr {address}, align {align}", kind, lanes)

    def prefetch(self, address: str, *, write: bool = False, near: bool = True) -> None:
        """Asks for the line of memory at ``address``, whether anything is there or not.

        ``write`` says that part of it will be stored to. Unless ``near`` it goes to the second
        cache.
        """
        name = "llvm.prefetch.p0"
        flags = "i32 immarg"
        self.module.declarations[name] = f"declare void @{name}(ptr, {flags}, {flags}, {flags})"
        self.line(
            f"call void @{name}(ptr {address}, i32 {int(write)}, i32 {3 if near else 2}, i32 1)"
        )

    def barrier(self) -> None:
        """What follows is not loaded before: LLVM would run out of registers for it."""
        self.line('call void asm sideeffect "", "~{memory}"()')

    def hidden(self, address: str) -> str:
        """``address``, of which LLVM is not to know that it has loaded from there before."""
        return self.emit(f'call ptr asm sideeffect "", "=r,0"(ptr {address})', "ptr").text

    def get(self, slot: str, kind: str, lanes: int = 0) -> Value:
        """The value of a local."""
        return self.emit(f"load {spell(kind, lanes)}, ptr {slot}", kind, lanes)

    def set(self, slot: str, value: Value) -> None:
        """Sets a local."""
        self.line(f"store {value.typed}, ptr {slot}")

    def address(self, base: str, kind: str, offset: Value, *, inside: bool = True) -> str:
        """The address of the element of ``kind`` at ``offset`` from ``base``."""
        if offset.text == "0":
            return base
        code = "getelementptr inbounds" if inside else "getelementptr"
        return self.emit(f"{code} {kind}, ptr {base}, {offset.typed}", "ptr").text

    @contextmanager
    def loop(self, start: Value, stop: Value, step: int = 1) -> Iterator[Value]:
        """A block that runs for each value from ``start`` up to below ``stop``."""
        head, done = self.fresh("loop"), self.fresh("done")
        before = self.label
        self.branch(self.compare("icmp slt", start, stop), head, done)
        self.begin(head)
        index = Value(f"%{self.fresh('i')}", "i64")
        following = f"%{self.fresh('n')}"
        place = len(self._lines)
        self._loops.append(_Loop())
        yield index
        note = self._note(self._loops.pop(), start, stop, step)
        phi = f"phi i64 [ {start.text}, %{before} ], [ {following}, %{self.label} ]"
        self._lines.insert(place, f"  {index.text} = {phi}")
        self.line(f"{following} = add nsw i64 {index.text}, {step}")
        self.branch(self.compare("icmp slt", Value(following, "i64"), stop), head, done, note)
        self.begin(done)

    def _note(self, loop: _Loop, start: Value, stop: Value, step: int) -> str:
        """A note for ``loop``, which ends here: what LLVM is not to do with it.

        It stays a loop if it would become too many copies; nothing is gained by copies of a loop
        inside that stays a loop.
        """
        known = not (start.text.startswith("%") or stop.text.startswith("%"))
        trips = -(-(int(stop.text) - int(start.text)) // step) if known else UNROLLED + 1
        copies = max(1, trips) * max(1, loop.copies)
        self._loops[-1].copies += copies
        facts = {ROLLED: loop.copies and copies > UNROLLED, SCALAR: loop.divides}
        return self.module.note(*(fact for fact, holds in facts.items() if holds))

    @contextmanager
    def condition(self) -> Iterator[None]:
        """What is written inside runs only under some condition."""
        loop = self._loops[-1]
        loop.conditions += 1
        yield
        loop.conditions -= 1

    @contextmanager
    def when(self, cond: Value) -> Iterator[None]:
        """A block that runs if ``cond`` holds."""
        yes, done = self.fresh("then"), self.fresh("fi")
        self.branch(cond, yes, done)
        self.begin(yes)
        with self.condition():
            yield
        self.jump(done)
        self.begin(done)

    def choose(self, options: Sequence[tuple[str, Value]]) -> Value:
        """The value that comes from the block that was left."""
        sources = ", ".join(f"[ {value.text}, %{label} ]" for label, value in options)
        first = options[0][1]
        return self.emit(f"phi {first.type} {sources}", first.kind, first.lanes)
