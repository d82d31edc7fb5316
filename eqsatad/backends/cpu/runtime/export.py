"""A compiled program as one C function of arrays and sizes.

The function takes a pointer for every input and output and an ``int64_t`` for every size, in the
order of the kernel, allocates temporaries with ``malloc``, and returns 0, or 1 without memory. It
runs on the calling thread.
"""

from __future__ import annotations

import re

from eqsatad.backends.blocks import buffers_of
from eqsatad.backends.cpu.code.expressions import Expressions
from eqsatad.backends.cpu.code.points import Point
from eqsatad.backends.cpu.code.scalars import BYTES, STORED
from eqsatad.backends.cpu.code.text import Module, Value, Writer, number
from eqsatad.backends.cpu.runtime.workspace import ALIGNMENT
from eqsatad.errors import ArgumentError
from eqsatad.loops.nest import LoopProgram
from eqsatad.terms.nodes import Apply, Const, Expr, Tensor
from eqsatad.terms.ops import MUL
from eqsatad.terms.show import show

C_TYPES = {
    "float64": "double", "float32": "float", "float16": "uint16_t", "bfloat16": "uint16_t",
    "int64": "int64_t", "int32": "int32_t", "bool": "uint8_t",
}  # fmt: skip


def declaration(program: LoopProgram, name: str) -> str:
    """The header of the function ``name``."""
    arrays = [*program.inputs, *program.outputs]
    taken = [
        f"{'const ' if tensor in program.inputs else ''}{C_TYPES[tensor.dtype]} *{spelled}"
        for tensor, spelled in zip(arrays, _names(program), strict=False)
    ]
    sizes = [f"int64_t {spelled}" for spelled in _names(program)[len(arrays) :]]
    shapes = [
        f" * {spelled}: {tensor.dtype}[{', '.join(map(show, tensor.shape))}]"
        for tensor, spelled in zip(arrays, _names(program), strict=False)
    ]
    guard = f"{name.upper()}_H"
    lines = [
        f"#ifndef {guard}", f"#define {guard}", "#include <stdint.h>", "#ifdef __cplusplus",
        'extern "C" {', "#endif",
        "/* Row-major arrays that do not overlap. Returns 0, or 1 without memory.",
        *shapes, " */", f"int {_checked(name)}({', '.join([*taken, *sizes])});",
        "#ifdef __cplusplus", "}", "#endif", "#endif", "",
    ]  # fmt: skip
    return "\n".join(lines)


def exported(text: str, program: LoopProgram, name: str) -> str:
    """The module ``text`` with nothing visible but the function ``name``."""
    module = Module()
    _function(module, program, _checked(name))
    hidden = re.sub(r"^define void @", "define internal void @", text, flags=re.MULTILINE)
    known = set(re.findall(r"^declare .* @([\w.]+)\(", text, flags=re.MULTILINE))
    declared = [line for each, line in sorted(module.declarations.items()) if each not in known]
    return "\n".join([hidden, *declared, *module.functions, ""])


def _checked(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", name, flags=re.ASCII):
        raise ArgumentError(f"the file's name {name!r} is the function's; make it a name of C")
    return name


def _names(program: LoopProgram) -> list[str]:
    """Names of C for the arrays and sizes, made distinct by numbers."""
    found: list[str] = []
    names = [tensor.name for tensor in (*program.inputs, *program.outputs)]
    for name in (*names, *(size.name for size in program.sizes)):
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        spelled = plain if re.match(r"[A-Za-z]", plain) else f"a{plain}"
        while spelled in found:
            spelled = f"{spelled}_{len(found)}"
        found.append(spelled)
    return found


def _function(module: Module, program: LoopProgram, name: str) -> None:
    """``name(arrays, sizes)``: the table of arguments of ``run``, temporaries behind each other."""
    w = Writer(module)
    arrays = [Value(f"%a{n}", "ptr") for n in range(len(program.inputs) + len(program.outputs))]
    sizes = {size.name: f"%s{n}" for n, size in enumerate(program.sizes)}
    expressions = Expressions(w, {}, sizes)
    words = 1 + len(buffers_of(program)) + len(sizes)
    table = w.slot("i64", words)
    with expressions.scope():
        total = number(2 * ALIGNMENT, "i64")
        starts = []
        for tensor in program.temporaries:
            starts.append(total)
            total = w.two("add", total, _room(w, expressions, tensor))
        module.declarations["malloc"] = "declare ptr @malloc(i64)"
        module.declarations["free"] = "declare void @free(ptr)"
        block = w.emit(f"call ptr @malloc({total.typed})", "ptr")
        place = w.convert("ptrtoint", block, "i64")
        odd = w.two("and", place, number(ALIGNMENT - 1, "i64"))
        base = w.two("sub", w.two("add", place, number(ALIGNMENT, "i64")), odd)
        temporaries = [w.two("add", base, start) for start in starts]
    values = [number(0, "i64"), *(w.convert("ptrtoint", array, "i64") for array in arrays)]
    values += [*temporaries, *(Value(spelled, "i64") for spelled in sizes.values())]
    for n, word in enumerate(values):
        w.store(word, w.address(table, "i64", number(n, "i64")), 8)
    none = w.compare("icmp eq", place, number(0, "i64"))
    with w.when(w.two("xor", none, Value("true", "i1"))):
        w.line(f"call void @run(ptr {table})")
    w.line(f"call void @free({block.typed})")
    failed = w.convert("zext", none, "i32")
    parameters = [*(array.typed for array in arrays), *(f"i64 {each}" for each in sizes.values())]
    w.finish(name, parameters, result=failed)


def _room(w: Writer, expressions: Expressions, tensor: Tensor) -> Value:
    """Bytes of ``tensor`` rounded up, and as many as are free behind it."""
    count: Expr = Const(BYTES[STORED[tensor.dtype]], "index")
    for extent in tensor.shape:
        count = Apply(MUL, (count, extent))
    size = w.two("add", expressions.value(count, Point()), number(2 * ALIGNMENT - 1, "i64"))
    return w.two("and", size, number(-ALIGNMENT, "i64"))
