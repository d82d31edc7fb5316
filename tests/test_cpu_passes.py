"""Nests over the same rows as one nest, and sums down the columns made on the way."""

import numpy as np
import pytest

from eqsatad import plan
from eqsatad.backends.cpu import build, prepare
from eqsatad.backends.cpu.code.source import Machine
from eqsatad.backends.cpu.rewrites import columns, layouts, passes, rows, streams
from eqsatad.backends.cpu.rewrites.columns import accumulated
from eqsatad.backends.cpu.rewrites.joining import rowwise
from eqsatad.backends.cpu.rewrites.passes import settled
from eqsatad.backends.cpu.runtime.caches import Caches
from eqsatad.loops.interpret import run
from eqsatad.loops.lower import lower
from eqsatad.loops.nest import Accumulate, For, expressions_of, scheduled, statements
from eqsatad.terms import builders as ea
from eqsatad.terms.nodes import Read
from eqsatad.terms.walk import postorder

MACHINE = Machine(64, 32)
SHAPES = [(1, 64), (7, 129), (33, 80), (300, 65), (5, 1), (6, 7), (1, 17), (40, 17)]


def place(name, *shape, dtype="float32"):
    return ea.placeholder(shape, name=name, dtype=dtype)


def layer_norm(rows, columns, dtype="float32"):
    """The three gradients of a layer norm whose forward pass saved mean and scale."""
    x, h = (place(name, rows, columns, dtype=dtype) for name in "XH")
    gamma = place("G", columns, dtype=dtype)
    mean, scale = (place(name, rows, dtype=dtype) for name in "MR")
    k, r = ea.reduce_axis((0, columns), name="k"), ea.reduce_axis((0, rows), name="r")

    def unit(i, j):
        return (x[i, j] - mean[i]) * scale[i]

    share = 1.0 / columns
    first = ea.compute((rows,), lambda i: ea.sum(h[i, k] * gamma[k], axis=k) * share, name="first")
    second = ea.compute(
        (rows,), lambda i: ea.sum(h[i, k] * gamma[k] * unit(i, k), axis=k) * share, name="second"
    )

    def row(i, j):
        return scale[i] * (h[i, j] * gamma[j] - first[i] - unit(i, j) * second[i])

    dx = ea.compute((rows, columns), row, name="dX")
    dg = ea.compute((columns,), lambda j: ea.sum(h[r, j] * unit(r, j), axis=r), name="dG")
    db = ea.compute((columns,), lambda j: ea.sum(h[r, j], axis=r), name="dB")
    return [dx, dg, db]


def layer_norm_by_hand(a):
    x, h, g, m, r = (a[name].astype("float64") for name in "XHGMR")
    unit = (x - m[:, None]) * r[:, None]
    first, second = (h * g).mean(1), (h * g * unit).mean(1)
    dx = r[:, None] * (h * g - first[:, None] - unit * second[:, None])
    return [dx, (h * unit).sum(0), h.sum(0)]


def bias_behind_relu(rows, columns, dtype="float32"):
    """The gradients of ``max(x + b, 0)``: the second one is the sum of what the first stores."""
    y, h = (place(name, rows, columns, dtype=dtype) for name in "YH")
    r = ea.reduce_axis((0, rows), name="r")
    dx = ea.compute((rows, columns), lambda i, j: ea.select(y[i, j] > 0.0, h[i, j], 0.0), name="dX")
    return [dx, ea.compute((columns,), lambda j: ea.sum(dx[r, j], axis=r), name="dB")]


def relu_by_hand(a):
    dx = np.where(a["Y"] > 0, a["H"], 0).astype("float64")
    return [dx, dx.sum(0)]


def bias_under_condition(rows, columns, dtype="float32"):
    """The same with the sum written without the rows, so that it adds under a condition."""
    y, h = (place(name, rows, columns, dtype=dtype) for name in "YH")
    r = ea.reduce_axis((0, rows), name="r")
    dx = ea.compute((rows, columns), lambda i, j: ea.select(y[i, j] > 0.0, h[i, j], 0.0), name="dX")
    db = ea.compute((columns,), lambda j: ea.sum(h[r, j], axis=r, where=y[r, j] > 0.0), name="dB")
    return [dx, db]


def columns_first(rows, columns, dtype="float32"):
    """Column sums that are an output before the rows are stored."""
    y, h = (place(name, rows, columns, dtype=dtype) for name in "YH")
    r = ea.reduce_axis((0, rows), name="r")
    db = ea.compute((columns,), lambda j: 2.0 * ea.sum(h[r, j] * y[r, j], axis=r), name="dB")
    dx = ea.compute((rows, columns), lambda i, j: ea.tanh(y[i, j]) * h[i, j], name="dX")
    return [db, dx]


def first_by_hand(a):
    y, h = a["Y"].astype("float64"), a["H"].astype("float64")
    return [2 * (h * y).sum(0), np.tanh(y) * h]


def centred(rows, columns, dtype="float32"):
    """Rows that need the sums down the columns first, which are not to be made beside them."""
    y = place("Y", rows, columns, dtype=dtype)
    r, k = ea.reduce_axis((0, rows), name="r"), ea.reduce_axis((0, columns), name="k")
    mean = ea.compute((columns,), lambda j: ea.sum(y[r, j], axis=r) / float(rows), name="mean")
    less = ea.compute((rows, columns), lambda i, j: y[i, j] - mean[j], name="less")
    most = ea.compute((rows,), lambda i: ea.max(less[i, k], axis=k), name="most")
    total = ea.compute(
        (rows,), lambda i: ea.sum(ea.exp(less[i, k] - most[i]), axis=k), name="total"
    )
    return [mean, less, most, total]


def centred_by_hand(a):
    y = a["Y"].astype("float64")
    less = y - y.mean(0)
    most = less.max(1)
    return [y.mean(0), less, most, np.exp(less - most[:, None]).sum(1)]


FAMILIES = {
    "layer norm": (layer_norm, layer_norm_by_hand),
    "bias": (bias_behind_relu, relu_by_hand),
    "bias under condition": (bias_under_condition, relu_by_hand),
    "columns first": (columns_first, first_by_hand),
    "centred": (centred, centred_by_hand),
}


def drawn(program, seed=0):
    rng = np.random.default_rng(seed)
    return {
        tensor.name: rng.standard_normal([extent.value for extent in tensor.shape]).astype(
            tensor.dtype
        )
        for tensor in program.inputs
    }


@pytest.fixture(autouse=True)
def crowded(monkeypatch):
    """The last cache of this CPU is taken to have no room."""
    monkeypatch.setattr(streams, "SHARE", 0.0)


@pytest.fixture
def anything(monkeypatch):
    """Rows of any length are walked in passes, and blocks are small."""
    monkeypatch.setattr(rows, "LONG", 1)
    monkeypatch.setattr(columns, "BLOCK", 1 << 10)


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """An empty cache, as what is patched is no part of its keys."""
    monkeypatch.setenv("EQSATAD_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_right(family, shape, dtype, anything, fresh):
    make, by_hand = FAMILIES[family]
    program = lower(make(*shape, dtype))
    arrays = drawn(program)
    # Sums of at most 300 terms: a few roundings more than the terms have.
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    for got, expected in zip(build(program, threads=1)(**arrays), by_hand(arrays), strict=True):
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("family", FAMILIES)
def test_joined_program_means_the_same(family, anything):
    program = lower(FAMILIES[family][0](5, 13))
    arrays = drawn(program)
    expected = run(program, arrays).outputs
    got = run(prepare(program, MACHINE), arrays).outputs
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_results_do_not_depend_on_threads(family, anything, fresh, monkeypatch):
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.ALONE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.AWAKE", 0)
    monkeypatch.setattr("eqsatad.backends.cpu.code.driver.CHUNK", 2_000_000)
    program = lower(FAMILIES[family][0](301, 67))
    arrays = drawn(program)
    first, *others = (build(program, threads=threads)(**arrays) for threads in (1, 2, 5))
    for other in others:
        for one, two in zip(first, other, strict=True):
            assert np.array_equal(one.view("uint8"), two.view("uint8"))


def test_rows_of_a_layer_norm_are_walked_twice():
    program = accumulated(rowwise(lower(layer_norm(300, 128))))
    reading = [nest for nest in program.nests if _times_read(nest, "H")]
    assert len(reading) == 1
    loops = [
        each
        for each in statements(reading[0].body)
        if isinstance(each, For) and any(_reads(inner, "X") for inner in each.body)
    ]
    assert len(loops) == 2


@pytest.mark.parametrize("family", ["bias", "bias under condition", "columns first"])
def test_columns_are_added_up_while_rows_are_stored(family):
    program = accumulated(rowwise(lower(FAMILIES[family][0](300, 128))))
    assert sum(_times_read(nest, "H") > 0 for nest in program.nests) == 1


def test_equal_sums_are_made_once():
    x, k = place("x", 40, 100), ea.reduce_axis((0, 100), name="k")
    a = ea.compute((40,), lambda i: ea.sum(x[i, k], axis=k), name="a")
    b = ea.compute((40,), lambda i: ea.sum(x[i, k], axis=k) * a[i], name="b")
    (nest,) = settled(rowwise(lower([b])), Caches()).nests
    assert _times_read(nest, "x") == 1
    assert not rowwise(lower([b])).temporaries


def test_values_of_a_row_that_are_read_elsewhere_are_stored():
    x, k = place("x", 40, 100), ea.reduce_axis((0, 100), name="k")
    a = ea.compute((40,), lambda i: ea.sum(x[i, k], axis=k), name="a")
    y = ea.compute((40, 100), lambda i, j: x[i, j] - a[i], name="y")
    z = ea.compute((40,), lambda i: a[39 - i], name="z")
    program = lower([y, z])
    joined = rowwise(program)
    assert len(joined.nests) == 2
    assert [tensor.name for tensor in joined.temporaries] == ["a"]
    arrays = drawn(program)
    pairs = zip(run(joined, arrays).outputs, run(program, arrays).outputs, strict=True)
    for got, expected in pairs:
        # A value that is not stored between is not rounded between.
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kept", [False, True], ids=["temporary", "output"])
def test_values_of_a_row_are_rounded_as_they_are_stored(kept, fresh):
    """A sum of 2049 is 2048 in half precision, also for what is made of it in the same row."""
    x, k = place("x", 40, 128, dtype="float16"), ea.reduce_axis((0, 128), name="k")
    a = ea.compute((40,), lambda i: ea.sum(x[i, k], axis=k), name="a")
    y = ea.compute((40, 128), lambda i, j: x[i, j] - a[i], name="y")
    program = lower([a, y] if kept else [y])
    assert len(rowwise(program).nests) == 1
    array = np.full((40, 128), 16, "float16")
    array[:, 0] = 17
    (*_, found) = build(program)(array)
    np.testing.assert_array_equal(found, array - np.float16(2048))


def test_rows_that_need_their_neighbours_stay_apart():
    x, k = place("x", 40, 100), ea.reduce_axis((0, 100), name="k")
    a = ea.compute((40,), lambda i: ea.sum(x[i, k], axis=k), name="a")
    y = ea.compute((40, 100), lambda i, j: x[i, j] - a[39 - i], name="y")
    program = lower([y])
    assert len(rowwise(program).nests) == 2


def test_short_rows_are_left_to_tiles():
    program = lower(layer_norm(300, 7))
    stored = [nest for nest in accumulated(rowwise(program)).nests if nest.stage.name == "dX"]
    assert not any(isinstance(each, Accumulate) for each in statements(stored[0].body))


@pytest.mark.parametrize(("inputs", "past"), [(1, False), (2, True)])
def test_result_is_stored_past_the_caches_where_all_arrays_do_not_fit_them(
    inputs, past, monkeypatch
):
    monkeypatch.setattr(streams, "LARGE", 40 * 70 * 4)
    terms = [place(name, 40, 70) for name in "xyz"[:inputs]]
    total = ea.compute((40, 70), lambda i, j: sum(x[i, j] for x in terms), name="total")
    program = lower([total])
    assert streams.large(program, Caches()) == frozenset(program.outputs if past else ())


@pytest.mark.parametrize(
    ("near", "last", "past"),
    [
        # Five rows of 4000 bytes, and an element of each of two columns.
        (19_000, 64 << 20, True),
        (21_000, 64 << 20, False),
        # Of which a quarter has no room for all arrays, and which nobody knows.
        (21_000, 4 << 20, True),
        (21_000, 0, True),
    ],
)
def test_in_a_roomy_last_cache_only_rows_that_crowd_the_nearest_are_stored_past_it(
    near, last, past, monkeypatch
):
    monkeypatch.setattr(streams, "LARGE", 1 << 19)
    monkeypatch.setattr(streams, "SHARE", 0.25)
    x, y = place("x", 300, 1000), place("y", 300, 1000)
    a, b, k = place("a", 1000), place("b", 1000), ea.reduce_axis((0, 1000), name="k")
    total = ea.compute((300,), lambda i: ea.sum(x[i, k] * y[i, k], axis=k), name="total")
    z = ea.compute((300, 1000), lambda i, j: x[i, j] * a[j] + b[j] * y[i, j] + total[i], name="z")
    program = rowwise(lower([z]))
    assert len(program.nests) == 1
    found = streams.large(program, Caches(near, 1 << 20, last))
    assert found == frozenset(program.outputs if past else ())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(5, 17), (40, 70)], ids=str)
@pytest.mark.parametrize("offset", [0, 5])
@pytest.mark.parametrize("family", ["layer norm", "bias", "columns first"])
def test_results_past_the_caches_are_the_same(
    family, offset, shape, dtype, anything, fresh, monkeypatch
):
    program = lower(FAMILIES[family][0](*shape, dtype))
    arrays = drawn(program)
    expected = build(program)(**arrays)
    monkeypatch.setattr(streams, "LARGE", 1)
    monkeypatch.setenv("EQSATAD_CACHE_DIR", "")
    kernel = build(program)
    assert "nontemporal" in kernel.source
    # Where an array begins says which vectors are whole lines. Products may be fused into sums
    # in one place and not in another.
    tolerance = 1e-6 if dtype == "float32" else 1e-14
    out = [shifted(each, offset) for each in expected]
    for got, wanted in zip(kernel(**arrays, out=out), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def stencil(rows, columns, dtype):
    x = place("X", rows, columns, dtype=dtype)

    def body(i, j):
        return x[i, j] * 2.0 - x.get(i - 1, j) - x.get(i + 1, j) - x.get(i, j - 1)

    return [ea.compute((rows, columns), body, name="Y")]


def halves(rows, columns, dtype):
    """Two parts of each row side by side: the second one may begin anywhere in a line."""
    x = place("X", rows, columns, dtype=dtype)

    def body(i, j):
        return ea.select(j < columns, x.get(i, j), 3.0 * x.get(i, j - columns))

    return [ea.compute((rows, 2 * columns), body, name="Y")]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(7, 50), (9, 64), (6, 83)], ids=str)
@pytest.mark.parametrize("offset", [0, 5])
@pytest.mark.parametrize("family", [stencil, halves])
def test_rows_that_are_only_stored_go_past_the_caches(
    family, offset, shape, dtype, anything, fresh, monkeypatch
):
    program = lower(family(*shape, dtype))
    arrays = drawn(program)
    expected = build(program)(**arrays)
    monkeypatch.setattr(streams, "LARGE", 1)
    monkeypatch.setattr(passes, "APART", 16)
    monkeypatch.setattr(passes, "STENCIL", 16)
    monkeypatch.setenv("EQSATAD_CACHE_DIR", "")
    kernel = build(program)
    assert "nontemporal" in kernel.source
    assert "llvm.prefetch" in kernel.source
    tolerance = 1e-6 if dtype == "float32" else 1e-14
    out = [shifted(each, offset) for each in expected]
    for got, wanted in zip(kernel(**arrays, out=out), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("columns", "past"), [(50, False), (64, True), (83, False)])
def test_rows_that_are_stored_together_go_past_the_caches_if_they_begin_alike(
    columns, past, monkeypatch
):
    monkeypatch.setattr(streams, "LARGE", 1)
    monkeypatch.setenv("EQSATAD_CACHE_DIR", "")
    x = place("X", 8, columns)
    y = ea.compute((8, columns), lambda i, j: x[i, j] * 2.0, name="Y")
    by_hand = plan([y])
    by_hand[y].split("i", 2).unroll("i_inner").vectorize("j")
    kernel = by_hand.build()
    assert ("nontemporal" in kernel.source) == past
    array = np.random.default_rng(0).standard_normal((8, columns)).astype("float32")
    np.testing.assert_array_equal(kernel(array)[0], array * 2)


@pytest.mark.parametrize("size", [4096, 10_000, 3 * 4096 + 1])
@pytest.mark.parametrize("offset", [0, 5])
def test_one_long_row_is_cut_and_goes_past_the_caches(size, offset, fresh, monkeypatch):
    monkeypatch.setattr(streams, "LARGE", 1)
    x, z = place("X", size), place("Z", size)
    program = lower([ea.compute((size,), lambda i: x[i] * 2.0 - z[i], name="Y")])
    kernel = build(program)
    assert "nontemporal" in kernel.source
    arrays = drawn(program)
    out = shifted(np.empty(size, "float32"), offset)
    kernel(**arrays, out=[out])
    np.testing.assert_array_equal(out, arrays["X"] * 2 - arrays["Z"])


def test_rows_that_read_much_elsewhere_are_left_to_tiles(monkeypatch):
    monkeypatch.setattr(streams, "LARGE", 1)
    monkeypatch.setattr(passes, "APART", 16)
    x = place("X", 9, 152)
    y = ea.compute((7, 150), lambda i, j: x[i, j] + x[i + 1, j + 1] + x[i + 2, j], name="Y")
    for few in (4, 3):
        monkeypatch.setattr(passes, "FEW", few)
        prepared = prepare(lower([y]), Machine(64, 32))
        assert any(scheduled(nest.body) for nest in prepared.nests) == (few == 4)


def shifted(array, offset):
    """An array of this shape that begins ``offset`` elements after a multiple of 64 bytes."""
    room = np.empty(array.size + 64, array.dtype)
    start = -room.ctypes.data % 64 // array.itemsize + offset
    return room[start : start + array.size].reshape(array.shape)


def test_results_that_are_read_again_are_not_stored_past_the_caches(monkeypatch):
    monkeypatch.setattr(streams, "LARGE", 1)
    dx, db = bias_behind_relu(40, 70)
    program = lower([dx, db])
    assert [tensor.name for tensor in streams.large(program, Caches())] == ["dB"]


def test_not_a_number_stays_in_its_row_and_its_column(anything, fresh):
    program = lower(layer_norm(70, 90))
    arrays = drawn(program)
    arrays["H"][3, 5], arrays["X"][60, 80] = np.nan, np.inf
    got = build(program)(**arrays)
    with np.errstate(invalid="ignore"):
        expected = layer_norm_by_hand(arrays)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_what_stays_in_a_register_does_not_say_how_temporaries_lie():
    """A scale per channel is read at every pixel, but moves on with the channel only."""
    x, scale, shift = place("x", 8, 16, 28, 28), place("s", 16), place("t", 16)
    n, h, w = (
        ea.reduce_axis((0, extent), name=name)
        for name, extent in zip("nhw", (8, 28, 28), strict=True)
    )
    y = ea.compute(
        (8, 16, 28, 28), lambda b, c, i, j: x[b, c, i, j] * scale[c] + shift[c], name="y"
    )
    z = ea.compute((16,), lambda c: ea.sum(y[n, c, h, w] * y[n, c, h, w], axis=(n, h, w)), name="z")
    v = ea.compute((8, 16, 28, 28), lambda b, c, i, j: y[b, c, i, j] * z[c], name="v")
    (temporary,) = (t for t in layouts.arranged(lower([z, v])).temporaries if len(t.shape) > 1)
    assert temporary.shape[-1] is x.shape[-1]


def test_programs_with_exact_sums_are_not_joined(fresh):
    program = lower(layer_norm(65, 70))
    assert len(prepare(program, MACHINE, exact=True).nests) == len(program.nests)


def _reads(statement, name):
    nodes = postorder(*expressions_of(statement))
    return any(isinstance(node, Read) and node.tensor.name == name for node in nodes)


def _times_read(nest, name):
    """How many statements of ``nest`` read the tensor called ``name``."""
    return sum(_reads(each, name) for each in statements(nest.body))
