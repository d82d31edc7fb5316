"""OpenCL backend: one kernel for each independent statement of a nest.

Work-items run over the outer parallel loops, the innermost of them fastest, so that neighbours
read neighbours; everything inside is a loop of one work-item. Additions that may meet in one
element stay in the order of the program: work-items run only over axes that keep apart.
`render` is pure text and needs no device; `load` is the only function that talks to pyopencl.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock
from typing import Any

import numpy as np

from eqsatad.backends.blocks import buffers_of, groups, touched
from eqsatad.backends.clcode import Writer, c_type, prelude
from eqsatad.backends.extents import value
from eqsatad.backends.kernel import Kernel
from eqsatad.backends.storage import STORAGE, Array
from eqsatad.errors import BackendError, MissingExtraError
from eqsatad.loops.nest import Accumulate, Block, For, LoopProgram, scheduled, statements
from eqsatad.terms.linear import linear, normal
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Read, Tensor
from eqsatad.terms.ops import MAX, MUL, SUB
from eqsatad.terms.walk import postorder

# Work-items of one group, unless the device or the kernel allows fewer.
GROUP = 64
IGNORED = "opencl runs the loops of a schedule in their order, and ignores vector and shared marks"
ONE = Const(1, "index")
# What a device must compile to be used: drivers refuse every kernel on CPUs that they do not know.
PROBE = "kernel void nothing() {}"


@dataclass(frozen=True)
class Step:
    """One kernel: its loops over work-items, what each does, and the buffers it uses."""

    name: str
    loops: tuple[For, ...]
    body: Block
    buffers: tuple[Tensor, ...]

    @property
    def count(self) -> Expr:
        """The number of work-items."""
        total: Expr = ONE
        for loop in self.loops:
            total = Apply(MUL, (total, trips(loop)))
        return normal(total)


def trips(loop: For) -> Expr:
    """How often ``loop`` runs."""
    return Apply(MAX, (normal(Apply(SUB, (loop.stop, loop.start))), Const(0, "index")))


def steps(program: LoopProgram) -> list[Step]:
    """The kernels of ``program``, in order."""
    found = []
    for place, block in enumerate(groups(program)):
        loops, body = _work_items(block)
        used = touched(block)
        buffers = tuple(tensor for tensor in buffers_of(program) if tensor in used)
        found.append(Step(f"step{place}", loops, body, buffers))
    return found


def render(program: LoopProgram, *, exact: bool = False) -> str:
    """The OpenCL C source of ``program``."""
    lines = [
        f"// {spelled} is {tensor.name}: {tensor.dtype}{list(tensor.shape)}"
        for tensor, spelled in names(program).items()
    ]
    lines.append(prelude(dtypes(program)))
    if exact:
        lines.append("#pragma OPENCL FP_CONTRACT OFF")
    lines.extend(_kernel(program, step) for step in steps(program))
    return "\n".join(lines) + "\n"


def names(program: LoopProgram) -> dict[Tensor, str]:
    """How every buffer is called in the source."""
    return {tensor: f"b{place}" for place, tensor in enumerate(buffers_of(program))}


def dtypes(program: LoopProgram) -> set[str]:
    """Every dtype that ``program`` stores or computes."""
    found = {tensor.dtype for tensor in buffers_of(program)}
    for nest in program.nests:
        for statement in statements(nest.body):
            roots = (
                child
                for name in ("value", "cond")
                if isinstance(child := getattr(statement, name, None), Expr)
            )
            found |= {node.dtype for node in postorder(*roots)}
    return found


def _work_items(block: Block) -> tuple[tuple[For, ...], Block]:
    """The loops that become work-items, and what is left inside."""
    loops: list[For] = []
    body = block
    while len(body) == 1 and isinstance(loop := body[0], For) and loop.parallel:
        if loop.start.free or loop.stop.free:
            break
        loops.append(loop)
        body = loop.body
    return (tuple(loops), body) if loops else _apart(block)


def _apart(block: Block) -> tuple[tuple[For, ...], Block]:
    """For nested loops around an addition: those that reach elements of their own, outermost."""
    nest: list[For] = []
    body = block
    while len(body) == 1 and isinstance(loop := body[0], For):
        nest.append(loop)
        body = loop.body
    if len(body) != 1 or not isinstance(adding := body[0], Accumulate):
        return (), block
    if any(loop.start.free or loop.stop.free for loop in nest):
        return (), block
    if any(isinstance(n, Read) and n.tensor is adding.buffer for n in postorder(adding.value)):
        return (), block
    outer = tuple(loop for loop in nest if _own_dimension(loop.axis, adding))
    inner: Block = body
    for loop in reversed(nest):
        if loop not in outer:
            inner = (For(loop.axis, loop.start, loop.stop, inner),)
    return outer, inner


def _own_dimension(axis: Axis, adding: Accumulate) -> bool:
    """Whether different values of ``axis`` always reach different elements."""
    forms = [linear(index) for index in adding.indices]
    return any(len(form.terms) == 1 and form.coefficient(axis) for form in forms)


def _kernel(program: LoopProgram, step: Step) -> str:
    used = touched(step.body)
    spelled = names(program)
    writer = Writer(spelled)
    parameters = [
        f"global {'' if used.get(tensor) else 'const '}{c_type(tensor.dtype)} *restrict "
        f"{spelled[tensor]}"
        for tensor in step.buffers
    ]
    parameters += [f"long {writer.size(size.name)}" for size in program.sizes]
    writer.line("long item = get_global_id(0);")
    writer.line(f"if (item >= {writer.value(step.count)}) return;")
    for loop in reversed(step.loops):
        first, count = writer.value(loop.start), writer.value(trips(loop))
        name = writer.bind(loop.axis)
        writer.line(f"long {name} = {first} + item % {count};")
        writer.line(f"item /= {count};")
    writer.block(step.body)
    body = "\n".join(writer.lines)
    return f"kernel void {step.name}({', '.join(parameters)}) {{\n{body}\n}}"


def build(program: LoopProgram, *, exact: bool = False) -> Kernel:
    """``program`` built for the first device, a GPU if there is one."""
    source = render(program, exact=exact)
    launch = load(program, source)
    if any(scheduled(nest.body) for nest in program.nests):
        program = replace(program, notes=(*program.notes, IGNORED))
    return Kernel(program, target="opencl", source=source, launch=launch)


def load(program: LoopProgram, source: str) -> Launcher:
    """``source``, which `render` made of ``program``, built for the first device."""
    import_pyopencl()
    return Launcher(program, source)


def import_pyopencl() -> Any:
    """The module, or an error that says how to get it."""
    try:
        import pyopencl
    except ImportError as cause:
        raise MissingExtraError(
            "target 'opencl' needs pyopencl; install it with: pip install 'eqsatad[opencl]'"
        ) from cause
    return pyopencl


@cache
def context() -> Any:
    """A context of the first device that can compile, GPUs before others."""
    cl = import_pyopencl()
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as cause:
        raise BackendError(f"no OpenCL platform can be used: {cause}") from cause
    if not devices:
        raise BackendError("there is no OpenCL device; install a driver, or pip install pocl")
    refused = []
    for device in sorted(devices, key=lambda device: not device.type & cl.device_type.GPU):
        made = cl.Context([device])
        try:
            cl.Program(made, PROBE).build()
        except cl.Error as cause:
            refused.append(f"{device.name} ({device.version.strip()}): {_said(str(cause))}")
        else:
            return made
    raise BackendError(
        "no OpenCL device can compile a kernel; a newer driver may know this machine\n  "
        + "\n  ".join(refused)
    )


def _said(message: str) -> str:
    """The first line of a compiler's message that names an error, or else the first."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("error")), lines[0] if lines else "")


class Launcher:
    """Runs the kernels of a program; calls of several threads run one after the other."""

    def __init__(self, program: LoopProgram, source: str) -> None:
        self._cl = import_pyopencl()
        self._context = context()
        self._device = self._context.devices[0]
        self._check_float64(program)
        self._program = program
        self._steps = steps(program)
        self._lock = Lock()
        try:
            built = self._cl.Program(self._context, source).build()
            self._kernels = [getattr(built, step.name) for step in self._steps]
            self._queue = self._cl.CommandQueue(self._context)
        except self._cl.Error as cause:
            raise BackendError(
                "the OpenCL compiler refused the code of a kernel, which is a fault of eqsatad; "
                f"please report it with the kernel's source. The compiler says: {cause}"
            ) from cause

    def __call__(
        self, inputs: Sequence[Array], outputs: Sequence[Array], sizes: Sequence[int]
    ) -> None:
        with self._lock:
            try:
                self._run(inputs, outputs, sizes)
            except self._cl.Error as cause:
                raise BackendError(
                    f"{self._device.name} could not run the kernel: {cause}"
                ) from cause

    def _check_float64(self, program: LoopProgram) -> None:
        if "float64" in dtypes(program) and "cl_khr_fp64" not in self._device.extensions:
            raise BackendError(
                f"the program computes in float64, which {self._device.name} cannot; "
                "use float32, or another target"
            )

    def _run(self, inputs: Sequence[Array], outputs: Sequence[Array], sizes: Sequence[int]) -> None:
        cl, program = self._cl, self._program
        flags = cl.mem_flags
        known = {size.name: number for size, number in zip(program.sizes, sizes, strict=True)}
        held: dict[Tensor, Any] = {}
        for tensor, array in zip(program.inputs, inputs, strict=True):
            held[tensor] = self._buffer(array, flags.READ_ONLY)
        for tensor in (*program.outputs, *program.temporaries):
            shape = [value(extent, known) for extent in tensor.shape]
            size = int(np.prod(shape, dtype=np.int64)) * STORAGE[tensor.dtype].itemsize
            held[tensor] = cl.Buffer(self._context, flags.READ_WRITE, max(1, size))
        numbers = [np.int64(number) for number in sizes]
        for step, kernel in zip(self._steps, self._kernels, strict=True):
            if count := value(step.count, known):
                group = self._group(kernel, count)
                kernel.set_args(*(held[tensor] for tensor in step.buffers), *numbers)
                total = -(-count // group) * group
                cl.enqueue_nd_range_kernel(self._queue, kernel, (total,), (group,))
        for tensor, array in zip(program.outputs, outputs, strict=True):
            if array.size:
                cl.enqueue_copy(self._queue, array, held[tensor])
        self._queue.finish()

    def _buffer(self, array: Array, access: int) -> Any:
        cl = self._cl
        if not array.size:
            return cl.Buffer(self._context, access, 1)
        return cl.Buffer(self._context, access | cl.mem_flags.COPY_HOST_PTR, hostbuf=array)

    def _group(self, kernel: Any, count: int) -> int:
        """Work-items of one group: what the device and the kernel allow, and no more than asked."""
        info = self._cl.kernel_work_group_info.WORK_GROUP_SIZE
        limit = kernel.get_work_group_info(info, self._device)
        return max(1, min(GROUP, int(limit), count))
