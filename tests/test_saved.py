"""Kernels in files, prepared calls, the number of threads."""

import ctypes
import subprocess
import zipfile
from shutil import which

import numpy as np
import pytest

import eqsatad as ea
from eqsatad.backends import build as build_loops
from eqsatad.backends import saved, threads
from eqsatad.errors import ArgumentError, BackendError, StoreError
from eqsatad.loops.lower import lower

needs_compiler = pytest.mark.skipif(which("cc") is None, reason="no C compiler is installed")


def product():
    """A matrix product of symbolic sizes, with a temporary that stays."""
    n, m = ea.size("n"), ea.size("m")
    a, x = ea.placeholder((n, m), name="a"), ea.placeholder((m,), name="x")
    k = ea.reduce_axis((0, m), name="k")
    grown = ea.compute((m,), lambda j: ea.exp(x[j]), name="grown")
    y = ea.compute((n,), lambda i: ea.sum(a[i, k] * grown[k], axis=k), name="y")
    return build_loops(lower([y]), "cpu")


def arrays():
    rng = np.random.default_rng(0)
    return rng.standard_normal((7, 5)).astype("float32"), rng.standard_normal(5).astype("float32")


def test_loaded_kernel_gives_the_same(tmp_path):
    kernel = product()
    kernel.save(tmp_path / "product.kernel")
    loaded = ea.load_kernel(tmp_path / "product.kernel")
    np.testing.assert_array_equal(loaded(*arrays())[0], kernel(*arrays())[0])
    assert (loaded.inputs, loaded.outputs, loaded.sizes) == (
        kernel.inputs,
        kernel.outputs,
        kernel.sizes,
    )
    assert "cannot be counted" in loaded.notes[0]


def test_kernel_of_another_cpu_is_compiled_again(tmp_path, monkeypatch):
    kernel = product()
    kernel.save(tmp_path / "product.kernel")
    monkeypatch.setattr(saved, "identity", lambda: "another")
    monkeypatch.delattr(saved, "linked")
    loaded = ea.load_kernel(tmp_path / "product.kernel")
    np.testing.assert_array_equal(loaded(*arrays())[0], kernel(*arrays())[0])


def test_file_that_is_no_kernel_is_refused(tmp_path):
    (tmp_path / "empty").write_bytes(b"nothing")
    with pytest.raises(StoreError, match="holds no saved kernel"):
        ea.load_kernel(tmp_path / "empty")
    with zipfile.ZipFile(tmp_path / "other", "w") as archive:
        archive.writestr("readme", "text")
    with pytest.raises(StoreError, match="holds no saved kernel"):
        ea.load_kernel(tmp_path / "other")


def test_only_cpu_kernels_are_saved(tmp_path):
    x = ea.placeholder((3,), name="x")
    kernel = ea.build([ea.compute((3,), lambda i: x[i] + 1.0, name="y")], target="reference")
    with pytest.raises(BackendError, match="only cpu kernels can be saved"):
        kernel.save(tmp_path / "kernel")


@needs_compiler
def test_shared_library_computes_the_same(tmp_path):
    kernel = product()
    kernel.save(tmp_path / "product.so")
    a, x = arrays()
    y = np.empty(7, "float32")
    function = ctypes.CDLL(tmp_path / "product.so").product
    sizes = [ctypes.c_int64({"n": 7, "m": 5}[name]) for name in kernel.sizes]
    status = function(
        *(ctypes.c_void_p(each.ctypes.data) for each in (*_in_order(kernel, a, x), y)), *sizes
    )
    assert status == 0
    np.testing.assert_array_equal(y, kernel(a=a, x=x)[0])


def _in_order(kernel, a, x):
    return [{"a": a, "x": x}[name] for name in kernel.inputs]


PROGRAM = """
#include <stdio.h>
#include "scale.h"
int main(void) {
    float x[4] = {1, 2, 3, 4}, y[4];
    if (scale(x, y)) return 1;
    printf("%g %g %g %g", y[0], y[1], y[2], y[3]);
    return 0;
}
"""


@needs_compiler
def test_c_program_calls_a_kernel(tmp_path):
    x = ea.placeholder((4,), name="x")
    kernel = ea.build([ea.compute((4,), lambda i: x[i] * 3.0, name="y")])
    kernel.save(tmp_path / "scale.o", header=tmp_path / "scale.h")
    (tmp_path / "main.c").write_text(PROGRAM)
    command = ["cc", "-o", "main", "main.c", "scale.o", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    assert done.stdout == "3 6 9 12"


def test_name_of_a_library_is_a_name_of_c(tmp_path):
    with pytest.raises(ArgumentError, match="make it a name of C"):
        product().save(tmp_path / "my-kernel.o")


def test_prepared_call_sees_what_arrays_hold_now():
    kernel = product()
    a, x = arrays()
    call = kernel.prepare(a=a, x=x)
    np.testing.assert_array_equal(call()[0], kernel(a=a, x=x)[0])
    a *= 2
    out = np.empty(7, "float32")
    np.testing.assert_array_equal(call()[0], kernel(a=a, x=x, out=out)[0])
    assert call.outputs is call()


def test_prepared_call_refuses_what_it_would_copy():
    a, x = arrays()
    with pytest.raises(ArgumentError, match="a would be copied"):
        product().prepare(a=np.asfortranarray(a), x=x)


def test_number_of_threads_is_chosen(monkeypatch):
    monkeypatch.setenv(threads.VARIABLE, "3")
    assert threads.num_threads() == 3
    ea.set_num_threads(2)
    try:
        assert threads.num_threads() == 2
    finally:
        ea.set_num_threads(None)
    monkeypatch.delenv(threads.VARIABLE)
    assert threads.num_threads() == threads.available()


@pytest.mark.parametrize("text", ["0", "many", "-1"])
def test_number_of_threads_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv(threads.VARIABLE, text)
    with pytest.raises(ArgumentError, match=f"EQSATAD_NUM_THREADS is '{text}'"):
        threads.num_threads()
    with pytest.raises(ArgumentError, match="give at least 1"):
        ea.set_num_threads(0)


def test_loaded_kernel_places_results_as_before(tmp_path):
    x = ea.placeholder((9, 8), name="x")
    doubled = ea.compute((9, 8), lambda i, j: x[i, j] * 2.0, name="doubled")
    turned = ea.compute((8, 9), lambda i, j: x[j, i], name="turned")
    kernel = build_loops(lower([doubled, turned]), "cpu")
    kernel.save(tmp_path / "two.kernel")
    loaded = ea.load_kernel(tmp_path / "two.kernel")
    assert [tuple(places) for places in loaded.alike] == kernel.alike == [(0,), ()]
