"""The OpenCL backend: source without a device, and results on whatever device there is."""

import threading

import numpy as np
import pytest

from eqsatad.backends import build, opencl
from eqsatad.errors import BackendError, MissingExtraError
from eqsatad.loops.nest import LoopProgram
from eqsatad.terms import ops
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.meaning import MEANING
from eqsatad.terms.nodes import Apply, Cast, Const, Read, Select
from tests.loop_programs import CASES, SPECIAL, arrays_for, lowered, mapped

pyopencl = pytest.importorskip("pyopencl")


def joined(programs):
    """The programs as one, so that they are compiled together; inputs are shared by name."""
    nests, outputs = [], []
    for program in programs:
        nests.extend(program.nests)
        outputs.extend(program.outputs)
    first = programs[0]
    return LoopProgram(first.inputs, tuple(outputs), (), first.sizes, tuple(nests))


def renamed(program, name):
    """``program`` with its one output called ``name``."""
    (nest,), (output,) = program.nests, program.outputs
    (loop,) = nest.body
    (store,) = loop.body
    new = type(output)(name, output.axes, output.body)
    inner = type(store)(new, store.indices, store.value)
    outer = type(loop)(loop.axis, loop.start, loop.stop, (inner,), True)
    return LoopProgram(program.inputs, (new,), (), program.sizes, (type(nest)(new, (outer,)),))


def results(formulas, *arrays, dtypes=None):
    dtypes = dtypes or [array.dtype.name for array in arrays]
    programs = [
        renamed(mapped(formula, *dtypes), f"y{place}") for place, formula in enumerate(formulas)
    ]
    return build(joined(programs), "opencl")(*arrays)


def applied(op):
    return lambda *args: Apply(op, args)


@pytest.mark.opencl
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_every_function_of_a_float(dtype):
    table = [op for op in ops.OPS.values() if op.arity == 1 and op.kind in ("arith", "function")]
    with np.errstate(over="ignore"):
        x = np.array([*SPECIAL, *np.linspace(-9, 9, 73)], dtype)
    for op, got in zip(table, results([applied(op) for op in table], x), strict=True):
        with np.errstate(all="ignore"):
            expected = MEANING[op](x.astype("float64")).astype(dtype)
        rtol = {"float64": 2e-14, "float32": 4e-6, "float16": 1e-3}[dtype]
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=1e-30, err_msg=op.name)


@pytest.mark.opencl
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_operation_on_two_floats(dtype):
    table = [
        op
        for op in ops.OPS.values()
        if op.arity == 2 and op.kind in ("arith", "function", "compare")
    ]
    values = np.array([*SPECIAL, *np.linspace(-3, 3, 7)], dtype)
    a, b = (array.ravel().copy() for array in np.meshgrid(values, values))
    for op, got in zip(table, results([applied(op) for op in table], a, b), strict=True):
        with np.errstate(all="ignore"):
            expected = MEANING[op](a.astype("float64"), b.astype("float64")).astype(got.dtype)
        rtol = 1e-14 if dtype == "float64" else 4e-6
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=1e-30, err_msg=op.name)


@pytest.mark.opencl
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_every_operation_on_integers(dtype):
    table = [op for op in ops.OPS.values() if op.arity == 2 and op.kind in ("integer", "compare")]
    table += [ops.ADD, ops.SUB, ops.MUL, ops.MIN, ops.MAX]
    limits = np.iinfo(dtype)
    values = np.array([limits.min, limits.max, -7, -2, -1, 0, 1, 2, 3, 8], dtype)
    a, b = (array.ravel().copy() for array in np.meshgrid(values, values))
    for op, got in zip(table, results([applied(op) for op in table], a, b), strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, MEANING[op](a, b), err_msg=op.name)


@pytest.mark.opencl
def test_logic():
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    both, either, different = results([applied(ops.AND), applied(ops.OR), applied(ops.NE)], a, b)
    assert np.array_equal(both, a & b)
    assert np.array_equal(either, a | b)
    assert np.array_equal(different, a != b)


@pytest.mark.opencl
def test_casts():
    wanted = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "bool"]
    x = np.array([0.0, 1.0, -2.75, 100.3], "float32")
    found = results([lambda a, dtype=dtype: Cast(a, dtype) for dtype in wanted], x)
    for dtype, got in zip(wanted, found, strict=True):
        if dtype != "bfloat16":
            np.testing.assert_array_equal(got, x.astype(dtype))
    np.testing.assert_array_equal(found[3], np.array([0.0, 1.0, -2.75, 100.5], "float32"))


@pytest.mark.opencl
@pytest.mark.parametrize("name", CASES)
def test_program_agrees_with_the_meaning_of_its_stages(name):
    output = CASES[name]
    program = lowered(output)
    arrays = arrays_for(program)
    given = {tensor.name: array for tensor, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = evaluate([output], given)
    (got,) = build(program, "opencl")(*arrays)
    rtol = 2e-3 if output.dtype == "float16" else 2e-5
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)


def test_additions_that_meet_are_made_in_order_and_apart():
    source = opencl.render(lowered(CASES["scattered"]))
    (step,) = [step for step in opencl.steps(lowered(CASES["scattered"])) if step.name == "step1"]
    assert [loop.axis.name for loop in step.loops] == ["e"]
    assert "kernel void step1" in source


def test_source_needs_no_device(monkeypatch):
    monkeypatch.setattr(opencl, "import_pyopencl", lambda: pytest.fail("a device was asked for"))
    assert "kernel void step0" in opencl.render(lowered(CASES["matmul"]))


@pytest.mark.opencl
def test_calls_from_several_threads_do_not_mix():
    program = lowered(CASES["matmul odd"])
    kernel = build(program, "opencl")
    inputs = [arrays_for(program, seed) for seed in range(4)]
    expected = [kernel(*arrays)[0] for arrays in inputs]
    wrong = []

    def work(place):
        for _ in range(5):
            if not np.array_equal(kernel(*inputs[place])[0], expected[place]):
                wrong.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.opencl
def test_empty_array():
    program = mapped(applied(ops.EXP), "float32", length=0)
    assert build(program, "opencl")(np.zeros(0, "float32"))[0].shape == (0,)


def test_device_without_float64_is_refused_by_name(monkeypatch):
    class Device:
        name = "a small device"
        extensions = "cl_khr_fp16"

    class Context:
        devices = (Device,)

    monkeypatch.setattr(opencl, "context", Context)
    with pytest.raises(BackendError, match="float64, which a small device cannot; use float32"):
        build(lowered(CASES["matmul float64"]), "opencl")


class Refusing:
    """A driver of two devices, of which the first knows no CPU like this one."""

    Error = RuntimeError
    device_type = type("device_type", (), {"GPU": 4})

    def __init__(self, *works):
        self.devices = [
            type("Device", (), {"name": f"device {place}", "version": "OpenCL 3.0", "type": 2})
            for place in range(len(works))
        ]
        self.works = dict(zip(self.devices, works, strict=True))

    def get_platforms(self):
        return [type("Platform", (), {"get_devices": lambda _: self.devices})()]

    def Context(self, devices):
        return type("Context", (), {"devices": devices})

    def Program(self, context, _):
        works = self.works[context.devices[0]]

        def build():
            if not works:
                raise RuntimeError("failed\n\nerror: unknown target CPU 'generic'\nmore")

        return type("Program", (), {"build": staticmethod(build)})


def test_device_that_cannot_compile_is_passed_over(monkeypatch):
    driver = Refusing(False, True)
    monkeypatch.setattr(opencl, "import_pyopencl", lambda: driver)
    (device,) = opencl.context.__wrapped__().devices
    assert device.name == "device 1"


def test_devices_that_cannot_compile_are_named(monkeypatch):
    monkeypatch.setattr(opencl, "import_pyopencl", lambda: Refusing(False, False))
    with pytest.raises(BackendError) as caught:
        opencl.context.__wrapped__()
    assert str(caught.value) == (
        "no OpenCL device can compile a kernel; a newer driver may know this machine\n"
        "  device 0 (OpenCL 3.0): error: unknown target CPU 'generic'\n"
        "  device 1 (OpenCL 3.0): error: unknown target CPU 'generic'"
    )


@pytest.mark.opencl
def test_code_that_the_compiler_refuses_is_a_backend_error():
    program = mapped(applied(ops.EXP), "float32")
    with pytest.raises(BackendError, match="The compiler says"):
        opencl.load(program, "kernel void step0() { nonsense }")


def test_absent_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyopencl", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'eqsatad\[opencl\]'"):
        build(mapped(applied(ops.EXP), "float32"), "opencl")


@pytest.mark.opencl
def test_side_that_is_not_chosen_is_not_read():
    def formula(a):
        far = Read(a.tensor, (Cast(Read(a.tensor, a.indices), "index"),))
        return Select(Apply(ops.GE, (a, Const(0.0, "float32"))), far, Const(-5.0, "float32"))

    x = np.array([1.0, -(2.0**40), 0.0], "float32")
    assert results([formula], x)[0].tolist() == [-(2.0**40), -5.0, 1.0]
