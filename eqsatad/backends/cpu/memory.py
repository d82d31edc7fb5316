"""Vector loads and stores that are masked, strided or scattered: LLVM's masked intrinsics."""

from __future__ import annotations

from eqsatad.backends.cpu.scalars import BYTES, STORED
from eqsatad.backends.cpu.text import Value, Writer, spell


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
