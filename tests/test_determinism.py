"""Same input, same catalog, same bytes: across processes, hash seeds, and what was done before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import eqsatad as ea
from benchmarks.legacy_cases import CASES
from eqsatad import cache
from eqsatad.backends.cpu.code.source import Machine, write
from eqsatad.loops.render import render
from eqsatad.terms.store import dump
from eqsatad.terms.walk import program
from tests.programs import from_seed

ROOT = Path(__file__).resolve().parent.parent
HASH_SEEDS = ("0", "4242")
MACHINE = Machine(vector=32, registers=16)
LEGACY = (
    "log-abs-exp",
    "diag-of-square-plus",
    "max-product",
    "clamped-index",
    "product-reduction",
    "conv-relu-conv",
    "conv-broadcast-weight",
    "maxpool-2-2",
    "reshape-truncating",
    "residual-softmax",
    "conv-k3-s2-d2",
    "small-conv-net",
    "sym-avgpool",
)
RANDOM = range(8)


def everything(output, inputs, cost):
    """All that is made of a program: terms, index notation, loops and code, as one text."""
    gradients = ea.differentiate(output, inputs, cost=cost)
    loops = gradients.loops()
    shown = [ea.show(tensor) for tensor in program(gradients.results)]
    stored = dump(gradients.results).decode()
    code = write(loops, MACHINE, exact=False).text
    return "\n".join((*shown, stored, render(loops), code, gradients.saturation.stop_reason))


def legacy(name):
    case = CASES[name]()
    return everything(case.output, list(case.inputs), "count")


def drawn(seed):
    made = from_seed(seed)
    return everything(made.output, None, "cpu")


def texts(order):
    """Every text under its name; the programs are taken in the given order."""
    makers = {name: (legacy, name) for name in LEGACY}
    makers |= {f"random {seed}": (drawn, seed) for seed in RANDOM}
    return {name: makers[name][0](makers[name][1]) for name in order(makers)}


def printed(seed, order):
    code = (
        "import sys\nfrom tests.test_determinism import texts\n"
        f"for name, text in sorted(texts({order}).items()):\n    print('#', name)\n    print(text)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed, cache.VARIABLE: "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        cwd=ROOT,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def first():
    return printed(HASH_SEEDS[0], "list")


@pytest.mark.parametrize("seed", HASH_SEEDS[1:])
def test_hash_seeds_do_not_matter(first, seed):
    assert printed(seed, "list") == first


def test_what_was_done_before_does_not_matter(first):
    assert printed(HASH_SEEDS[0], "lambda names: list(names)[::-1]") == first
