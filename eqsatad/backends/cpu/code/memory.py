"""Vector loads and stores that are masked, strided or scattered: LLVM's masked intrinsics."""

from __future__ import annotations

from collections.abc import Sequence

from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.code.text import Value, Writer, number, spell

# For the bytes of a lane: how the permutation of a whole vector is called, and its integers.
PERMUTED = {4: ("si", "i32"), 8: ("di", "i64")}

# What the permutation of two vectors is called instead.
PAIRED = {"si": "d", "di": "q"}


def masked(w: Writer, dtype: str, lanes: int, address: str, mask: Value) -> Value:
    """A load of consecutive elements where ``mask`` holds; zero elsewhere."""
    kind = STORED[dtype]
    vector, suffix = spell(kind, lanes), _suffix(kind, lanes)
    name = f"llvm.masked.load.{suffix}.p0"
    w.module.declarations[name] = (
        f"declare {vector} @{name}(ptr, i32 immarg, {mask.type}, {vector})"
    )
    return w.emit(
        f"call {vector} @{name}(ptr {address}, i32 {BYTES[kind]}, {mask.typed}, "
        f"{vector} zeroinitializer)",
        kind,
        lanes,
    )


def masked_store(w: Writer, value: Value, address: str, mask: Value) -> None:
    """A store of consecutive elements where ``mask`` holds."""
    name = f"llvm.masked.store.{_suffix(value.kind, value.lanes)}.p0"
    w.module.declarations[name] = (
        f"declare void @{name}({value.type}, ptr, i32 immarg, {mask.type})"
    )
    w.line(
        f"call void @{name}({value.typed}, ptr {address}, i32 {BYTES[value.kind]}, {mask.typed})"
    )


def picked(w: Writer, dtype: str, lanes: int, address: str, stride: int) -> Value:
    """Every ``stride``-th element from ``address`` on, out of whole vectors.

    The last vector ends with the last element that is wanted, so nothing beyond it is loaded.
    """
    kind = STORED[dtype]
    last = stride * (lanes - 1) - (lanes - 1)
    result, done = Value("poison", kind, lanes), 0
    for start in [*range(0, last, lanes), last]:
        place = w.address(address, kind, number(start, "i64"))
        vector = w.load(kind, lanes, place, BYTES[kind])
        reached = min(lanes, (start + lanes - 1) // stride + 1)
        fresh = [lanes + stride * lane - start for lane in range(done, reached)]
        chosen = [*range(done), *fresh, *[None] * (lanes - reached)]
        result, done = shuffled(w, result, vector, chosen), reached
    return result


def repeated(w: Writer, dtype: str, lanes: int, address: str, before: Value, times: int) -> Value:
    """Elements from ``address`` on, each ``times`` times, without the first ``before`` of these.

    Out of one vector, of which only what is wanted is loaded.
    """
    kind = STORED[dtype]
    suffix, integer = PERMUTED[BYTES[kind]]
    places = w.convert("trunc", w.counting(lanes), integer)
    shifted = w.two("add", places, w.convert("trunc", before, integer))
    chosen = w.two("udiv", shifted, number(times, integer))
    wanted = w.compare("icmp ule", places, w.lane(chosen, lanes - 1))
    raw = w.convert("bitcast", masked(w, dtype, lanes, address, wanted), integer)
    name = f"llvm.x86.avx512.permvar.{suffix}.512"
    return w.convert("bitcast", w.call(name, (raw, chosen), integer, lanes), kind)


def permuted(w: Writer, vectors: Sequence[Value], chosen: Value) -> Value:
    """The lanes of ``vectors``, one after the other, that ``chosen`` counts from the first."""
    kind, lanes = vectors[0].kind, vectors[0].lanes
    suffix, integer = PERMUTED[BYTES[kind]]
    raw = [w.convert("bitcast", vector, integer) for vector in vectors]
    if len(raw) == 1:
        name = f"llvm.x86.avx512.permvar.{suffix}.512"
        return w.convert("bitcast", w.call(name, (raw[0], chosen), integer, lanes), kind)
    name = f"llvm.x86.avx512.vpermi2var.{PAIRED[suffix]}.512"
    raw += raw[-1:] * (len(raw) % 2)
    pairs = zip(raw[::2], raw[1::2], strict=True)
    halves = [w.call(name, (a, chosen, b), integer, lanes) for a, b in pairs]
    result = halves[0]
    for turn, half in enumerate(halves[1:], 1):
        beyond = w.compare("icmp uge", chosen, number(2 * turn * lanes, integer))
        result = w.select(beyond, half, result)
    return w.convert("bitcast", result, kind)


def alternating_store(w: Writer, even: Value, odd: Value, address: str) -> None:
    """The lanes of ``even`` and ``odd`` in turn, as two whole vectors."""
    lanes, kind = even.lanes, even.kind
    for half in (0, 1):
        first = half * lanes // 2
        chosen = [
            lane + side * lanes for lane in range(first, first + lanes // 2) for side in (0, 1)
        ]
        place = w.address(address, kind, number(half * lanes, "i64"))
        w.store(shuffled(w, even, odd, chosen), place, BYTES[kind])


def shuffled(w: Writer, a: Value, b: Value, chosen: Sequence[int | None]) -> Value:
    """The ``chosen`` lanes of ``a`` followed by ``b``; None is any value."""
    lanes = ", ".join("i32 poison" if lane is None else f"i32 {lane}" for lane in chosen)
    mask = f"<{len(chosen)} x i32> <{lanes}>"
    return w.emit(f"shufflevector {a.typed}, {b.typed}, {mask}", a.kind, len(chosen))


def gather(w: Writer, dtype: str, base: str, offsets: Value, mask: Value) -> Value:
    """The elements at ``offsets`` from ``base`` where ``mask`` holds; zero elsewhere."""
    kind, lanes = STORED[dtype], offsets.lanes
    vector, suffix = spell(kind, lanes), _suffix(kind, lanes)
    places = _places(w, kind, base, offsets)
    name = f"llvm.masked.gather.{suffix}.v{lanes}p0"
    w.module.declarations[name] = (
        f"declare {vector} @{name}({places.type}, i32 immarg, {mask.type}, {vector})"
    )
    return w.emit(
        f"call {vector} @{name}({places.typed}, i32 {BYTES[kind]}, {mask.typed}, "
        f"{vector} zeroinitializer)",
        kind,
        lanes,
    )


def scatter(w: Writer, value: Value, base: str, offsets: Value, mask: Value) -> None:
    """Stores lanes at ``offsets`` from ``base`` where ``mask`` holds."""
    places = _places(w, value.kind, base, offsets)
    name = f"llvm.masked.scatter.{_suffix(value.kind, value.lanes)}.v{value.lanes}p0"
    w.module.declarations[name] = (
        f"declare void @{name}({value.type}, {places.type}, i32 immarg, {mask.type})"
    )
    w.line(
        f"call void @{name}({value.typed}, {places.typed}, i32 {BYTES[value.kind]}, {mask.typed})"
    )


def _places(w: Writer, kind: str, base: str, offsets: Value) -> Value:
    return w.emit(f"getelementptr {kind}, ptr {base}, {offsets.typed}", "ptr", offsets.lanes)


def _suffix(kind: str, lanes: int) -> str:
    return f"v{lanes}" + {"half": "f16", "float": "f32", "double": "f64"}.get(kind, kind)
