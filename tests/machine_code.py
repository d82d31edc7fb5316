"""Code for CPUs that may be others than this one, which the tests run where it can be run."""

import pytest

from eqsatad.backends.cpu.runtime.machine import host, load

# Bytes of a vector of AVX-512, and how its instructions are called in a module.
WIDEST, NAMED = 64, "llvm.x86.avx512"


def runnable(source):
    """The code of ``source``; skips the test where this CPU lacks instructions that it names."""
    if NAMED in source.text and host().vector < WIDEST:
        pytest.skip("this CPU has no AVX-512, of which this code names instructions")
    return load(source.text, source.outside)
