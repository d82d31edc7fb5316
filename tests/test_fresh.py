"""Where results begin in memory, and memory that is used again."""

import numpy as np
import pytest

import eqsatad as ea
from eqsatad.backends import fresh
from eqsatad.backends.alike import inputs_alike
from eqsatad.backends.fresh import BEFORE, LINE, PAGE, Memory, beside, maker

F32 = np.dtype("float32")


@pytest.fixture(autouse=True)
def nothing_kept():
    Memory.free.clear()
    yield
    Memory.free.clear()


def begin(array):
    return array.ctypes.data


@pytest.mark.parametrize(("elements", "large"), [(100, False), (1 << 18, True)])
def test_the_size_says_where_a_result_begins(elements, large):
    made = maker((elements,), F32, alike=(1,))
    if large:
        assert (made.func, made.keywords) == (beside, {"alike": (1,)})
    else:
        assert made is fresh.anywhere


@pytest.mark.parametrize("offset", [0, 1, 3, 17, 1000])
def test_large_ones_begin_a_little_before_an_input_gone_through_alike(offset):
    room = np.zeros(5000, "float32")
    like = room[offset : offset + 35].reshape(5, 7)
    found = beside((7, 5), F32, [np.zeros((7, 5), "float32"), like], alike=(1,))
    assert (begin(like) - begin(found)) % PAGE == BEFORE
    assert found.shape == (7, 5)
    assert found.flags.writeable


@pytest.mark.parametrize("offset", [1, 2, 5])
def test_elements_of_a_result_are_aligned_beside_an_input_of_smaller_ones(offset):
    room = np.zeros(4 * 35 + 8, "bool")
    found = beside((5, 7), F32, [room[offset : offset + 4 * 35]], alike=(0,))
    assert found.flags.aligned


@pytest.mark.parametrize("sizes", [(), (3,), (3, 100)])
def test_without_such_an_input_they_begin_with_a_line_before_the_largest(sizes):
    inputs = [np.zeros(size) for size in sizes]
    found = beside((5, 7), F32, inputs)
    assert begin(found) % LINE == 0
    if inputs:
        assert 0 <= (begin(inputs[-1]) - begin(found)) % PAGE - BEFORE < LINE


@pytest.mark.parametrize("offset", [0, 1, 17, 1000])
def test_others_begin_with_a_line_before_an_input_of_their_size(offset):
    same = np.zeros(5000, "float32")[offset : offset + 35]
    found = beside((5, 7), F32, [np.zeros(100), same])
    assert begin(found) % LINE == 0
    assert 0 <= (begin(same) - begin(found)) % PAGE - BEFORE < LINE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y[i,j] = a[i,j] * b[i,j]", (0, 1)),
        ("y[i<6,j<6] = a.get(i,j-1) + a.get(i,j+1)", (0,)),
        ("y[i,j] = exp(a[i,j]) / sum(exp(a[i,k]))", (0,)),
        ("y[i,j] = a[j,i]", ()),
        ("y[i,j] = sum(a[i,k] * b[k,j])", ()),
        ("y[i,j<6] = sum(a[i,k], where=k <= j)", ()),
    ],
)
def test_inputs_that_are_gone_through_as_a_result(text, expected):
    tensors = {name: ea.placeholder((6, 6), name=name) for name in "ab"[: 1 + ("b[" in text)]}
    kernel = ea.build([ea.op(text, **tensors)], list(tensors.values()), target="reference")
    assert inputs_alike(kernel.loops) == [expected]


def test_memory_is_used_again_when_no_array_is_in_it():
    first = beside((40, 50), F32, [])
    view, place = first[3:], begin(first)
    del first
    other = beside((40, 50), F32, [])
    assert not np.shares_memory(view, other)
    del view
    assert begin(beside((40, 50), F32, [])) == place


def test_memory_of_another_size_is_not_used():
    del_me = beside((40, 50), F32, [])
    del del_me
    others = [beside((40, columns), F32, []) for columns in (51, 49)]
    assert [each.nbytes for each in others] == [40 * 51 * 4, 40 * 49 * 4]
    assert [block.nbytes for block, _ in Memory.free] == [40 * 50 * 4 + PAGE]


def test_no_more_is_kept_than_said(monkeypatch):
    monkeypatch.setattr(fresh, "KEPT", 3 * PAGE)
    arrays = [beside((100,), F32, []) for _ in range(5)]
    arrays.clear()
    assert 0 < sum(block.nbytes for block, _ in Memory.free) <= 3 * PAGE


def test_results_of_a_kernel_are_its_own():
    x = ea.placeholder((600, 700), name="X")
    y = ea.compute((600, 700), lambda i, j: x[i, j] + 1.0, name="Y")
    kernel = ea.build([y], [x])
    one, two = (np.full((600, 700), value, "float32") for value in (1.0, 5.0))
    (first,) = kernel(one)
    kept = first.copy()
    (second,) = kernel(two)
    np.testing.assert_array_equal(first, kept)
    assert not np.shares_memory(first, second)
