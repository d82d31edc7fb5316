"""What is the same for all backends: targets, and how a kernel takes and gives arrays."""

import numpy as np
import pytest

from eqsatad.backends import TARGETS, build
from eqsatad.backends.storage import from_bits, to_bits
from eqsatad.errors import ArgumentError, UnknownTargetError
from eqsatad.loops.lower import lower
from eqsatad.terms import builders as ea
from eqsatad.terms import ops
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.nodes import Apply
from tests.loop_programs import CASES, arrays_for, lowered, mapped, place


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EQSATAD_CACHE_DIR", str(tmp_path_factory.mktemp("objects")))
        yield


def added(**options):
    """A kernel of ``y = a + b`` for two vectors of one symbolic length."""
    return build(mapped(lambda a, b: Apply(ops.ADD, (a, b)), "float32", "float32"), **options)


def vectors(length=6):
    return np.arange(length, dtype="float32"), np.full(length, 0.5, "float32")


def refused(call, *parts):
    with pytest.raises(ArgumentError) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


def test_unknown_target_lists_those_that_exist():
    with pytest.raises(UnknownTargetError) as caught:
        added(target="cuda")
    assert str(caught.value) == ("there is no target 'cuda'; available: cpu, opencl, reference")


@pytest.mark.parametrize(
    "target",
    [pytest.param(each, marks=getattr(pytest.mark, each)) if each == "opencl" else each
     for each in TARGETS],
)  # fmt: skip
def test_every_target_gives_the_same(target):
    kernel = added(target=target)
    a, b = vectors()
    assert kernel.target == target
    assert kernel.source
    assert np.array_equal(kernel(a, b)[0], a + b)


@pytest.mark.parametrize("name", CASES)
def test_reference_agrees_with_the_meaning_of_its_stages(name):
    program = lowered(CASES[name])
    arrays = arrays_for(program)
    given = {tensor.name: array for tensor, array in zip(program.inputs, arrays, strict=True)}
    (expected,) = evaluate([CASES[name]], given)
    (got,) = build(program, "reference")(*arrays)
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_kernel_names_what_it_takes_and_gives():
    kernel = added()
    assert (kernel.inputs, kernel.outputs, kernel.sizes) == (("a", "b"), ("y",), ("n",))
    assert repr(kernel) == "<Kernel cpu: a, b, n -> y>"
    assert kernel.loops.outputs[0].name == "y"


def test_arrays_by_name_in_any_order():
    a, b = vectors()
    assert np.array_equal(added()(b=b, a=a)[0], a + b)
    assert np.array_equal(added()(a, b=b)[0], a + b)


def test_wrong_names_and_numbers_are_refused():
    a, b = vectors()
    kernel = added()
    refused(lambda: kernel(a), "no array for b", "expected 2 arrays (a, b) and sizes (n)")
    refused(lambda: kernel(a, b, a), "got 3 arrays, expected 2 arrays (a, b)")
    refused(lambda: kernel(a, b, c=a), "no input named 'c'", "(a, b)")
    refused(lambda: kernel(a, b, a=a), "a was given twice")


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        ([1.0, 2.0], ("b is a list", "numpy.asarray(b, 'float32')")),
        (3.0, ("b is a float", "pass an array of dtype float32")),
        (np.zeros(6), ("b has dtype float64, expected float32", "b.astype('float32')")),
        (np.zeros(6, ">f4"), ("in foreign byte order", "b.astype('float32')")),
        (np.zeros(5, "float32"), ("b has shape (5,), expected (6,) (with n = 6)",)),
        (np.zeros((6, 1), "float32"), ("b has shape (6, 1), expected (6,)",)),
    ],
    ids=["list", "number", "dtype", "byte order", "length", "rank"],
)
def test_array_that_does_not_fit_is_refused(wrong, parts):
    refused(lambda: added()(vectors()[0], wrong), *parts)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: np.repeat(x, 2)[::2],
        lambda x: x[::-1].copy()[::-1],
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: np.frombuffer(b"\0" + x.tobytes(), "uint8")[1:].view("float32"),
        lambda x: np.stack([x, x], 1)[:, 0],
    ],
    ids=["every second", "backwards", "broadcast", "unaligned", "column"],
)
def test_any_strides_are_taken_and_noted(view):
    a, b = vectors()
    kernel = added()
    assert np.array_equal(kernel(a, view(b))[0], a + view(b))
    assert kernel.notes == ("b was copied because it is not contiguous",)


def test_contiguous_arrays_are_not_copied():
    kernel = added()
    kernel(*vectors())
    assert kernel.notes == ()


def test_read_only_input_is_taken():
    a, b = vectors()
    a.flags.writeable = False
    assert np.array_equal(added()(a, b)[0], a + b)


def test_out_is_filled_and_returned():
    a, b = vectors()
    out = np.zeros(6, "float32")
    (result,) = added()(a, b, out=out)
    assert result is out
    assert np.array_equal(out, a + b)
    (result,) = added()(a, b, out=[out])
    assert result is out


def test_out_with_strides_is_filled():
    a, b = vectors()
    whole = np.zeros(12, "float32")
    added()(a, b, out=whole[::-2])
    assert np.array_equal(whole[::-2], a + b)
    assert not whole[::2].any()


@pytest.mark.parametrize("times", [1, 2])
def test_large_result_begins_like_its_input_within_a_line_of_the_caches(times):
    a, b = vectors(300_001)
    kernel = added()
    for _ in range(times):
        (result,) = kernel(a, b)
    (prepared,) = kernel.prepare(a, b).outputs
    assert (result.ctypes.data - a.ctypes.data) % 64 == 0
    assert (prepared.ctypes.data - a.ctypes.data) % 64 == 0
    assert result.flags.writeable
    assert np.array_equal(result, a + b)


def test_out_that_does_not_fit_is_refused():
    a, b = vectors()
    kernel = added()
    refused(lambda: kernel(a, b, out=np.zeros(5, "float32")), "out for y has shape (5,)", "(6,)")
    refused(lambda: kernel(a, b, out=np.zeros(6)), "y has dtype float64, expected float32")
    refused(lambda: kernel(a, b, out=[]), "out has 0 arrays, expected 1 (y)")
    refused(lambda: kernel(a, b, out=[[0.0] * 6]), "out for y is a list")
    fixed = np.zeros(6, "float32")
    fixed.flags.writeable = False
    refused(lambda: kernel(a, b, out=fixed), "out for y is read-only")


def test_out_must_not_overlap_an_input_or_another_out():
    a, b = vectors()
    kernel = added()
    refused(lambda: kernel(a, b, out=a), "out for y overlaps a in memory")
    both = np.zeros(9, "float32")
    refused(lambda: kernel(both[:6], b, out=both[3:]), "overlaps a")
    x = place(4, name="x")
    twice = lower([ea.compute((4,), lambda i: x[i], name=name) for name in ("y", "z")])
    out = np.zeros(4, "float32")
    refused(lambda: build(twice)(np.ones(4, "float32"), out=[out, out]), "overlaps out for y")


def test_out_beside_an_input_in_one_array_is_fine():
    pairs = np.zeros((6, 2), "float32")
    pairs[:, 0] = np.arange(6)
    added()(pairs[:, 0], np.ones(6, "float32"), out=pairs[:, 1])
    assert pairs[:, 1].tolist() == [1, 2, 3, 4, 5, 6]


def test_dlpack_object_is_taken():
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    a, b = vectors()
    assert np.array_equal(added()(Foreign(a), b)[0], a + b)


def test_dlpack_object_on_another_device_is_refused():
    class Far:
        def __dlpack__(self, **options):
            raise BufferError("the array is on device 2")

        def __dlpack_device__(self):
            return (2, 0)

    refused(lambda: added()(vectors()[0], Far()), "b offers DLPack but cannot be read by the CPU")


def test_scalar_arrays():
    x = place(name="x")
    kernel = build(lower([ea.compute((), lambda: x[()] * 2.0, name="y")]))
    (result,) = kernel(np.array(3.0, "float32"))
    assert result.shape == ()
    assert result == 6.0
    assert kernel(np.float32(4.0))[0] == 8.0
    refused(lambda: kernel(3.0), "x is a float")


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_array_without_elements(target):
    kernel = build(mapped(lambda a: Apply(ops.EXP, (a,)), "float32", length=0), target)
    (result,) = kernel(np.zeros(0, "float32"))
    assert (result.shape, result.dtype) == ((0,), np.float32)


def test_symbolic_size_is_at_least_one():
    empty = np.zeros(0, "float32")
    refused(lambda: added()(empty, empty), "size n is 0, but a symbolic size is at least 1")


def repeated():
    """A kernel whose output length ``m`` is told by no input."""
    n, m = ea.size("n"), ea.size("m")
    x = ea.placeholder((n,), name="x")
    return build(lower([ea.compute((n, m), lambda i, j: x[i], name="y")]))


def test_size_that_no_array_tells_is_given_by_name():
    x = np.arange(3, dtype="float32")
    assert np.array_equal(repeated()(x, m=2)[0], np.stack([x, x], 1))
    refused(lambda: repeated()(x), "do not tell m; pass m=...")
    refused(lambda: repeated()(x, m=0), "size m is 0")
    refused(lambda: repeated()(x, m=2.0), "size m is 2.0; give an integer")
    refused(lambda: repeated()(x, m=2, n=4), "x has shape (3,), expected (4,)", "n = 4")


def test_size_is_found_in_an_expression():
    n = ea.size("n")
    x = ea.placeholder((2 * n + 1,), name="x")
    kernel = build(lower([ea.compute((n,), lambda i: x[2 * i], name="y")]))
    assert kernel(np.arange(7, dtype="float32"))[0].tolist() == [0, 2, 4]
    refused(lambda: kernel(np.arange(6, dtype="float32")), "x has shape (6,), expected (5,)")


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_bfloat16_is_taken_and_given_as_float32_or_as_bits(target):
    kernel = build(mapped(lambda a, b: Apply(ops.ADD, (a, b)), "bfloat16", "bfloat16"), target)
    a = np.array([1.0, 3.14159, 1e-3], "float32")
    b = np.array([2.0**-9, 1.0, 2e-3], "float32")
    exact = from_bits(to_bits(a)) + from_bits(to_bits(b))
    expected = from_bits(to_bits(exact))
    (wide,) = kernel(a, b)
    assert wide.dtype == np.float32
    assert np.array_equal(wide, expected)
    assert "a was rounded from float32 to bfloat16" in kernel.notes
    bits = np.zeros(3, "uint16")
    kernel(to_bits(a), to_bits(b), out=bits)
    assert np.array_equal(from_bits(bits), expected)


def test_rounding_to_bfloat16_is_to_the_nearest_even():
    x = np.array([1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, np.nan, np.inf, 3.4e38], "float32")
    expected = np.array([1.0, 1.0 + 2.0**-6, np.nan, np.inf, np.inf], "float32")
    np.testing.assert_array_equal(from_bits(to_bits(x)), expected)


def test_time_is_that_of_one_call():
    assert 0 < added().time(*vectors(), repeat=3) < 1
