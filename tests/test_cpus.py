"""Kernels made for other CPUs than this one: older ones are run, those of ARM are read."""

import re

import numpy as np
import pytest

import eqsatad as ea
from benchmarks.kernel_cases import CASES as KERNELS
from eqsatad import cache
from eqsatad.backends import build
from eqsatad.backends.cpu.functions.table import FUNCTIONS
from eqsatad.backends.cpu.runtime import machine
from eqsatad.backends.storage import from_bits, to_bits
from eqsatad.errors import BackendError
from eqsatad.terms import ops
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Apply, Cast
from tests.loop_programs import CASES, INF, NAN, SPECIAL, arrays_for, lowered, mapped, matmul
from tests.test_cpu import UNARY, ulps

OLDER = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
# float16 has about 3 digits; sums of tens of terms lose a few roundings of the others.
TOLERANCES = {"float16": 2e-3, "float64": 1e-13}


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(tmp_path_factory.mktemp("objects")))
        yield


@pytest.fixture
def chosen(request, monkeypatch):
    """The CPU that the test names, if this one can do what it does."""
    monkeypatch.setenv(machine.VARIABLE, request.param)
    try:
        return machine.host()
    except BackendError as cause:
        pytest.skip(str(cause))


def on(*names):
    return pytest.mark.parametrize("chosen", names, indirect=True)


@on(*OLDER)
@pytest.mark.parametrize("name", CASES)
def test_program_means_the_same_on_every_cpu(name, chosen):
    output = CASES[name]
    program = lowered(output)
    arrays = arrays_for(program)
    given = {tensor.name: array for tensor, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = evaluate([output], given)
    tolerance = TOLERANCES.get(output.dtype, 1e-5)
    (found,) = build(program, "cpu")(*arrays)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@on("x86-64", "x86-64-v3")
@pytest.mark.parametrize("name", ["W2dX", "W4dW", "W6dX", "W7dX", "W10", "W13", "W16", "W17"])
def test_gradient_means_the_same_on_every_cpu(name, chosen):
    problem = KERNELS[name].make(**KERNELS[name].small)
    kernel = problem.ours.build("cpu")
    arrays = [problem.arrays[each] for each in kernel.inputs]
    for found, expected in zip(
        kernel(*arrays), build(kernel.loops, "reference")(*arrays), strict=True
    ):
        # Sums in another order: a few roundings of float32.
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@on("x86-64", "x86-64-v3")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_hold_their_bounds_on_every_cpu(dtype, chosen):
    x = np.array([*SPECIAL, *np.linspace(-20, 20, 501), *np.geomspace(1e-12, 1e12, 201)], dtype)
    for op, row in FUNCTIONS.items():
        if op in UNARY:
            with np.errstate(all="ignore"):
                expected = UNARY[op][0](x.astype(np.longdouble))
            (found,) = build(mapped(lambda a, op=op: Apply(op, (a,)), dtype), "cpu")(x)
            assert ulps(found, expected, dtype) <= getattr(row, dtype), op.name


@on("x86-64", "x86-64-v3")
@pytest.mark.parametrize("op", [ops.FLOOR, ops.CEIL, ops.ROUND, ops.TRUNC, ops.SQRT])
def test_rounding_is_exact_on_every_cpu(op, chosen):
    x = np.array([*SPECIAL, *np.linspace(-20, 20, 501)], "float32")
    with np.errstate(all="ignore"):
        expected = UNARY[op][0](x)
    (found,) = build(mapped(lambda a: Apply(op, (a,)), "float32"), "cpu")(x)
    np.testing.assert_array_equal(found, expected)


def halves_and_neighbours():
    """Numbers that are half floats, that lie between two, and those next to either."""
    whole = np.arange(0x10000, dtype="uint16").view("float16").astype("float32")
    ordered = np.sort(whole[np.isfinite(whole)])
    between = (ordered[1:] + ordered[:-1]) / 2
    more = np.array([65519, 65520, 65535, 65536, 1e30, 1e-30, -1e-30], "float32")
    found = np.concatenate([whole, between, more])
    with np.errstate(invalid="ignore"):
        sides = [np.nextafter(found, np.float32(end)) for end in (-INF, INF)]
    return np.concatenate([found, *sides]).astype("float32")


@on("x86-64", "x86-64-v3")
def test_half_floats_are_converted_as_numpy_does(chosen):
    bits = np.arange(0x10000, dtype="uint16")
    (wide,) = build(mapped(lambda a: Cast(a, "float32"), "float16"), "cpu")(bits.view("float16"))
    np.testing.assert_array_equal(wide, bits.view("float16").astype("float32"))
    x = halves_and_neighbours()
    (narrow,) = build(mapped(lambda a: Cast(a, "float16"), "float32"), "cpu")(x)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(narrow, x.astype("float16"))
    signs = np.signbit(narrow) == np.signbit(x)
    assert np.all(signs | np.isnan(x))


@on("x86-64", "x86-64-v3")
def test_bfloat16_is_stored_as_on_any_cpu(chosen):
    x = from_bits(to_bits(np.array([NAN, INF, -INF, 0, 1, -1.5, 3, 1e30, 1e-30] * 5, "float32")))
    kernel = build(mapped(lambda a: Apply(ops.MUL, (a, a)), "bfloat16"), "cpu")
    with np.errstate(all="ignore"):
        expected = from_bits(to_bits((x * x).astype("float32")))
    np.testing.assert_array_equal(kernel(to_bits(x))[0], expected)


def test_unknown_cpu_is_refused_with_those_that_are_known(monkeypatch):
    monkeypatch.setenv(machine.VARIABLE, "i386")
    with pytest.raises(BackendError, match=r"no CPU 'i386'; available: generic, .*x86-64-v3"):
        build(lowered(matmul(2, 3, 4)), "cpu")


def test_cpu_that_has_more_than_this_one_is_refused(monkeypatch):
    found = {**machine._found(), "avx2": False}
    monkeypatch.setattr(machine, "_found", lambda: found)
    monkeypatch.setenv(machine.VARIABLE, "x86-64-v3")
    machine._runnable.cache_clear()
    with pytest.raises(BackendError, match=r"cannot run: it (has no|is no)"):
        machine.host()


def test_another_cpu_is_another_entry_of_the_cache(monkeypatch):
    keys = set()
    for name in ("", "generic"):
        monkeypatch.setenv(machine.VARIABLE, name)
        keys.add(machine.identity())
    assert len(keys) == 2


def inner_loops(text):
    """The bodies of innermost loops in assembly language, without comments and directives."""
    lines = [re.split(r"//|#", line)[0].strip() for line in text.splitlines()]
    lines = [line for line in lines if line and (line[0] != "." or line.endswith(":"))]
    labels = {line[:-1]: place for place, line in enumerate(lines) if line.endswith(":")}
    for place, line in enumerate(lines):
        jump = re.fullmatch(r"(?:b\.\w+|cbn?z|tbn?z|j\w+)\s.*?(\.L\w+)", line)
        start = labels.get(jump.group(1), place) if jump else place
        body = lines[start + 1 : place]
        if start < place and not any(each.endswith(":") for each in body):
            yield body


# How products are added to vectors, and how the stack is named.
WORDS = {
    "aarch64": (r"fmla\s+v\d+\.4s", r"\[sp"),
    "x86-64-v3": (r"vfmadd\w+ps\s.*%ymm", r"\(%r[sb]p\)"),
    "x86-64-v4": (r"vfmadd\w+ps\s.*%zmm", r"\(%r[sb]p\)"),
}


@pytest.mark.parametrize("cpu", WORDS)
def test_product_of_matrices_keeps_its_sums_in_registers(cpu):
    product, stack = WORDS[cpu]
    text = build(lowered(matmul(240, 256, 192)), "cpu").assembly(cpu)
    body = max(inner_loops(text), key=lambda lines: len(re.findall(product, "\n".join(lines))))
    found = "\n".join(body)
    assert len(re.findall(product, found)) >= 12
    assert not re.search(stack, found)
    assert not re.search(r"^(bl|call)", found, flags=re.MULTILINE)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_vectors_of_arm_are_used_for_other_floats(dtype):
    text = build(lowered(matmul(24, 32, 48, dtype)), "cpu").assembly("aarch64")
    loops = ["\n".join(lines) for lines in inner_loops(text)]
    lanes = {"float64": "2d", "float16": "4s"}[dtype]
    assert any(re.search(rf"fmla\s+v\d+\.{lanes}", body) for body in loops)
    assert not re.search(r"\bbl\s+(?!step)\w", text.replace("step0.body", "step"))


def test_assembly_is_of_this_cpu_where_no_other_is_named():
    kernel = build(lowered(CASES["border"]), "cpu")
    assert kernel.assembly() == machine.assembly(kernel.source, machine.host())


def test_object_file_is_for_the_cpu_that_is_named(tmp_path):
    kernel = build(lowered(matmul(9, 8, 7)), "cpu")
    kernel.save(tmp_path / "product.o", cpu="aarch64")
    content = (tmp_path / "product.o").read_bytes()
    # The machine in the header of ELF.
    assert content[:4] == b"\x7fELF"
    assert int.from_bytes(content[18:20], "little") == 183


@pytest.mark.parametrize(
    ("name", "message"),
    [("k.so", "needs a linker for"), ("k.kernel", "is for this CPU"), ("k.o", "no CPU 'vax'")],
)
def test_file_that_cannot_be_for_another_cpu_says_why(tmp_path, name, message):
    kernel = build(lowered(matmul(9, 8, 7)), "cpu")
    cpu = "vax" if name == "k.o" else "apple-m1"
    with pytest.raises(BackendError, match=message):
        kernel.save(tmp_path / name, cpu=cpu)


def test_kernel_without_loops_is_for_one_cpu(tmp_path):
    build(lowered(matmul(9, 8, 7)), "cpu").save(tmp_path / "product.kernel")
    loaded = ea.load_kernel(tmp_path / "product.kernel")
    with pytest.raises(BackendError, match="build it again"):
        loaded.assembly("x86-64-v3")


def test_only_cpu_kernels_have_assembly():
    with pytest.raises(BackendError, match="only cpu kernels can be shown"):
        build(lowered(matmul(2, 3, 4)), "reference").assembly()
