"""One kernel for all sizes: right at every size, in tiles where the sizes of a call allow it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kernel_cases import CASES
from benchmarks.symbolic_kernels import symbolic, values
from eqsatad import cache
from eqsatad.backends import build, cpu
from eqsatad.backends.access import flat
from eqsatad.backends.cpu.code.source import Machine, write
from eqsatad.backends.cpu.rewrites.decided import decided
from eqsatad.backends.cpu.rewrites.margins import with_margins
from eqsatad.backends.cpu.runtime.machine import load
from eqsatad.backends.cpu.runtime.workspace import Workspaces
from eqsatad.backends.cpu.tiles.choice import plan
from eqsatad.backends.cpu.tiles.fusion import fused
from eqsatad.backends.cpu.tiles.tile import chain
from eqsatad.backends.cpu.tiles.turns import turn
from eqsatad.backends.extents import value
from eqsatad.backends.kernel import Kernel
from eqsatad.loops.interpret import run
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import For, If, Store, statements
from eqsatad.terms import builders as ea
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Axis
from eqsatad.terms.polynomial import polynomial
from eqsatad.terms.show import show

MACHINES = [Machine(64, 32), Machine(32, 16), Machine(16, 16)]


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(tmp_path_factory.mktemp("objects")))
        yield


def product(dtype="float32"):
    n, k, m = ea.size("n"), ea.size("k"), ea.size("m")
    a = ea.placeholder((n, k), name="a", dtype=dtype)
    b = ea.placeholder((k, m), name="b", dtype=dtype)
    r = ea.reduce_axis((0, k), name="r")
    return lower([ea.compute((n, m), lambda i, j: ea.sum(a[i, r] * b[r, j], axis=r), name="c")])


def made(program, machine):
    prepared = cpu.prepare(program, machine)
    source = write(prepared, machine)
    launch = cpu.Launcher(prepared, load(source.text, source.outside), 1)
    return Kernel(program, target="cpu", source=source.text, launch=launch)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 140)] * 3),
    machine=st.sampled_from(MACHINES),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_product_of_matrices_is_right_at_every_size(sizes, machine, dtype):
    rng = np.random.default_rng(0)
    n, k, m = sizes
    a = rng.standard_normal((n, k)).astype(dtype)
    b = rng.standard_normal((k, m)).astype(dtype)
    kernel = made(product(dtype), machine)
    # Sums of up to 140 products of size one.
    np.testing.assert_allclose(kernel(a, b)[0], a @ b, rtol=1e-4, atol=1e-4)


def test_threads_change_nothing():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((259, 131)).astype("float32")
    b = rng.standard_normal((131, 389)).astype("float32")
    one, two = (build(product(), "cpu", threads=count)(a, b)[0] for count in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_sizes_of_a_call_choose_among_tiles():
    source = made(product(), MACHINES[0]).source
    functions = source.split("define internal void @")[1:]
    bodies = [text for text in functions if text.startswith("step")]
    assert [body.split(".body")[0] for body in bodies] == ["step0", "step0.1", "step0.2", "step0.3"]
    # The last ones are for rows shorter than a vector.
    assert ["llvm.masked.store" in body for body in bodies] == [False, False, True, True]


@pytest.mark.parametrize("name", [name for name in CASES if symbolic(CASES[name]) is not None])
def test_gradient_means_the_same_with_and_without_known_sizes(name):
    case = CASES[name]
    problem = case.make(**case.small)
    definition = symbolic(case)
    kernel = definition.build("cpu")
    sizes = values(definition, problem.arrays)
    arrays = {each: problem.arrays[each] for each in kernel.inputs}
    named = {each: sizes[each] for each in kernel.sizes}
    known = problem.ours.build("reference")
    expected = known(**{each: problem.arrays[each] for each in known.inputs})
    for found, wanted in zip(kernel(**arrays, **named), expected, strict=True):
        # Sums in another order: a few roundings of float32.
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["W1dW", "W1dX", "W2dW", "W2dX", "W20dX"])
def test_zeros_around_a_copy_make_no_nan_of_an_infinity(name):
    case = CASES[name]
    problem = case.make(**case.small)
    definition = symbolic(case)
    kernel = definition.build("cpu")
    exact = build(kernel.loops, "cpu", exact=True)
    sizes = values(definition, problem.arrays)
    random = np.random.default_rng(0)
    arrays = {each: problem.arrays[each].copy() for each in kernel.inputs}
    for array in arrays.values():
        for place in random.integers(array.size, size=2):
            array.reshape(-1)[place] = random.choice([np.inf, -np.inf, np.nan])
    named = {each: sizes[each] for each in kernel.sizes}
    for found, expected in zip(kernel(**arrays, **named), exact(**arrays, **named), strict=True):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))


IMAGES = {
    name: symbolic(CASES[name])
    for name in ("W1dX", "W1dW", "W2dX", "W2dW", "W3dW", "W5dX", "W5dW", "W6dX", "W8dX")
}
BUILT: dict[str, Kernel] = {}


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(IMAGES)),
    channels=st.tuples(*[st.integers(1, 20) | st.sampled_from([32, 64, 66])] * 2),
    image=st.tuples(*[st.integers(1, 37)] * 2),
    threads=st.sampled_from([1, 2]),
)
def test_gradient_of_images_is_right_at_every_size(name, channels, image, threads):
    if name not in BUILT:
        BUILT[name] = IMAGES[name].build("cpu")
    kernel = build(BUILT[name].loops, "cpu", threads=threads)
    sizes = dict(zip("ncfhwo", (2, *channels, *image, channels[1]), strict=True))
    rng = np.random.default_rng(0)
    arrays = {
        tensor.name: rng.integers(0, 9, [value(extent, sizes) for extent in tensor.shape], "int32")
        if tensor.dtype == "int32"
        else rng.standard_normal([value(extent, sizes) for extent in tensor.shape], "float32")
        for tensor in kernel.loops.inputs
    }
    named = {each: sizes[each] for each in kernel.sizes}
    exact = build(kernel.loops, "cpu", exact=True)(**arrays, **named)
    for found, expected in zip(kernel(**arrays, **named), exact, strict=True):
        # Sums of up to 2738 products of size one, in another order.
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-3)


def prepared(name):
    return cpu.prepare(symbolic(CASES[name]).build("reference").loops, MACHINES[0])


def test_operands_of_any_size_are_copied_with_the_axis_of_vectors_innermost():
    program = prepared("W1dW")
    copy, results = program.temporaries
    assert show(copy.shape[-1]) == show(results.shape[-1]) == "c"
    (copying, *_) = [nest.body[-1] for nest in program.nests if nest.stage is copy]
    tile = turn(copying, MACHINES[0].vector, vectors=8)
    assert tile is not None
    assert show(tile.needs) == "w >= 16 and c >= 16"
    smaller = turn(copying, MACHINES[0].vector, vectors=1)
    assert smaller is not None
    assert show(smaller.needs) == "w >= 8 and c >= 8"


def test_copies_that_differ_in_their_margins_are_one():
    program = prepared("W2dX")
    sources = [tensor.name for tensor in program.temporaries if "roomy" in tensor.name]
    assert sorted(sources) == ["H_roomy_1", "W_roomy_1"]


def joined_stores(program):
    """How many elements each nest stores at a point."""
    stores = (
        [each for each in chain(statement)[1] if isinstance(each, Store)]
        for nest in program.nests
        for statement in nest.body
    )
    return [len(found) for found in stores]


@pytest.mark.parametrize("name", ["W2dX", "W5dX", "W6dX"])
def test_phases_of_images_of_any_size_are_one_nest(name):
    assert 4 in joined_stores(prepared(name))


def test_rows_whose_neighbours_are_all_there_have_sums_of_known_bounds():
    first, last = prepared("W6dX").nests[0].body[:2]
    known = [
        sum(not each.start.free for each in statements(chain(nest)[1]) if isinstance(each, For))
        for nest in (first, last)
    ]
    assert known[0] > known[1]


def test_loops_of_any_length_are_one_where_nothing_jumps():
    c, h, w = (ea.size(name) for name in "chw")
    x = ea.placeholder((c, h, w), name="x")
    y = ea.compute((c, h, w), lambda i, j, k: x[i, j, k] * 2.0, name="y")
    z = ea.compute((c, h, w), lambda i, j, k: x[i, j, w - 1 - k] * 2.0, name="z")
    loops = [fused(*chain(lower([each]).nests[0].body[0]))[0] for each in (y, z)]
    assert [len(found) for found in loops] == [1, 2]
    assert polynomial(loops[0][0].stop) == polynomial(c * h * w)


def test_tiles_of_unknown_loops_ask_for_few_neighbours_along_inner_ones():
    program = prepared("W20dX")
    (sums,) = (nest.body[0] for nest in program.nests if "kept" in nest.stage.name)
    needs = [show(plan(sums, 64, 32, False, vectors=count).needs) for count in (8, 1, 0)]
    assert needs == [
        "c >= 64 and d >= 5",
        "c >= 16 and w >= 4 and d >= 4",
        "w >= 3 and d >= 3",
    ]


def test_no_place_is_found_by_division_inside_of_a_loop():
    c, h, w = (ea.size(name) for name in "chw")
    x = ea.placeholder((c, h, w), name="x")
    y = ea.compute((c, h, w), lambda i, j, k: x[i, j, w - 1 - k] * 2.0, name="y")
    bodies = made(lower([y]), MACHINES[0]).source.split("define internal void @step")[1:]
    for body in bodies:
        _, _, inside = body.split("\n}", 1)[0].partition("\nloop")
        assert "udiv" not in inside


def test_bounds_of_a_convolution_of_any_size_become_zeros_of_a_copy():
    definition = symbolic(CASES["W1dX"])
    assert definition is not None
    *_, nest = with_margins(definition.build("reference").loops, 64).nests
    sums = [each for each in statements(nest.body[:1]) if isinstance(each, For)]
    assert not any(bound.free for each in sums for bound in (each.start, each.stop))


def test_conditions_that_loops_decide_are_gone():
    definition = symbolic(CASES["W2dX"])
    assert definition is not None
    program = decided(definition.build("reference").loops)
    found = [each for nest in program.nests for each in statements(nest.body)]
    assert not any(isinstance(each, If) for each in found)


def test_conditions_that_loops_leave_open_stay():
    n = ea.size("n")
    x = ea.placeholder((n,), name="x")
    y = ea.compute((n,), lambda i: ea.select((i < 7) & (i >= 0), x.get(i - 1), -1.0), name="y")
    program = lower([y])
    given = {"x": np.arange(9, dtype="float32")}
    for outputs in (run(each, given, {"n": 9}).outputs for each in (program, decided(program))):
        np.testing.assert_array_equal(outputs[0], [0, 0, 1, 2, 3, 4, 5, -1, -1])


def test_quotients_and_remainders_of_a_place_are_the_place():
    c, h, w = (ea.size(name) for name in "chw")
    x = ea.placeholder((c, h, w), name="x")
    place = Axis("k", c * h * w)
    row = place // w
    form = flat(x, (row // h, row % h, place % w))
    assert form == linear(place)
    other = flat(x, (row // h, (place + 1) // w % h, place % w))
    assert other != linear(place)


def test_memory_of_temporaries_is_kept_for_the_same_sizes():
    spaces = Workspaces(IMAGES["W1dX"].build("cpu").launch.program)
    sizes = [2, 3, 4, 5, 6]
    first = spaces.take(sizes)
    spaces.give_back(first)
    assert spaces.take(sizes) is first
    spaces.give_back(first)
    assert spaces.take([2, 3, 4, 7, 8]) is not first
