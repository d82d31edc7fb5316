"""The one-way order of imports in docs/architecture.md, and where outside packages may enter.

Imports inside functions count as well: a cycle hidden in a function is still a cycle.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDER = (
    "errors",
    "cache",
    "terms",
    "grad",
    "rules",
    "extract",
    "loops",
    "backends",
    "counting",
    "planning",
    "explain",
    "pipeline",
)
BESIDE = ("derivatives", "pair")  # made of what the pipeline offers
LEAVES = ("version",)  # import nothing, anybody may import them
TOP = (
    "library", "interop", "demo", "subjects", "stats", "terminal", "arguments", "views", "cli",
    "__main__", "__init__",
)  # fmt: skip
LAYERS = {
    **{name: place for place, name in enumerate(ORDER)},
    **dict.fromkeys(LEAVES, 0),
    **dict.fromkeys(BESIDE, len(ORDER)),
    **dict.fromkeys(TOP, len(ORDER) + 1),
}
HOMES = {
    "egglog": ("eqsatad/rules/", "eqsatad/extract/"),
    "llvmlite": ("eqsatad/backends/cpu/",),
    "pyopencl": ("eqsatad/backends/opencl.py", "eqsatad/backends/opencl/"),
    "islpy": ("eqsatad/terms/presburger.py",),
    "z3": ("eqsatad/rules/prove",),
}
OPTIONAL = ("pyopencl", "z3", "torch", "jax", "dask", "scipy")
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in ("eqsatad", "rules_catalog")
    for path in (ROOT / package).rglob("*.py")
)


@dataclass(frozen=True)
class Import:
    """One imported module, and whether importing the file imports it."""

    module: str
    line: int
    at_once: bool


def imports(source: str) -> Iterator[Import]:
    """Every module that ``source`` imports anywhere."""
    stack: list[tuple[ast.AST, bool]] = [(ast.parse(source), True)]
    while stack:
        node, at_once = stack.pop()
        yield from (Import(module, node.lineno, at_once) for module in _modules(node))
        inner = at_once and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        stack.extend((child, inner) for child in ast.iter_child_nodes(node))


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: imports are absolute"
        if node.module == "eqsatad":
            return [f"eqsatad.{alias.name}" for alias in node.names]
        return [node.module or ""]
    return []


def layer(module: str) -> int:
    """The place of a module of eqsatad in the order; the package itself is at the top."""
    name = module.split(".")[1] if "." in module else "__init__"
    return LAYERS.get(name, len(ORDER) + 1)


def violations(path: str, source: str) -> list[str]:
    """What ``source``, at ``path``, imports against the rules."""
    here = layer(path.removesuffix(".py").replace("/", "."))
    catalog = path.startswith("rules_catalog/")
    if catalog:
        here = LAYERS["rules"]
    found = []
    for entry in imports(source):
        package = entry.module.split(".")[0]
        if package == "eqsatad" and layer(entry.module) > here:
            found.append(f"line {entry.line}: {entry.module} is to the right")
        if package in HOMES and not path.startswith(HOMES[package]):
            found.append(f"line {entry.line}: {package} belongs to {', '.join(HOMES[package])}")
        if package in OPTIONAL and entry.at_once:
            found.append(f"line {entry.line}: {package} is optional, import it in a function")
        if package == "rules_catalog" and not catalog and here != LAYERS["rules"]:
            found.append(f"line {entry.line}: the catalog is read through eqsatad.rules")
    return found


@pytest.mark.parametrize("path", SOURCES)
def test_source_imports_nothing_to_the_right(path):
    assert violations(path, (ROOT / path).read_text(encoding="utf-8")) == []


SLOW = (
    "egglog", "islpy", "llvmlite", "rich", "typer", "importlib.metadata",
    "eqsatad.extract.program", "eqsatad.loops.lower", "eqsatad.rules.engine",
)  # fmt: skip
"""What takes long to import, and is not needed where answers are known."""


def test_import_leaves_out_what_takes_long():
    said = f"import sys, numpy, eqsatad; print([m for m in {SLOW} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_front_end_of_egglog_works_beside_its_compiled_part():
    said = (
        "import sys; from eqsatad.rules import session; print('egglog.builtins' in sys.modules); "
        "import egglog; from egglog import bindings; print(bindings is session.bindings)"
    )
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_names_that_are_imported_later_are_there():
    said = (
        "import eqsatad; assert set(eqsatad.__all__) <= set(dir(eqsatad)); "
        "from eqsatad import *; print(vjp.__module__, hasattr(eqsatad, 'no_such_name'))"
    )
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["eqsatad.pair", "False"]


@pytest.mark.parametrize("path", SOURCES)
def test_module_has_a_place_in_the_order(path):
    name = path.removesuffix(".py").split("/")[1]
    assert path.startswith("rules_catalog/") or name in LAYERS


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("eqsatad/terms/a.py", "from eqsatad.grad import reverse", "eqsatad.grad is to the right"),
        ("eqsatad/terms/a.py", "from eqsatad import loops", "eqsatad.loops is to the right"),
        ("eqsatad/terms/a.py", "import eqsatad", "eqsatad is to the right"),
        ("eqsatad/grad.py", "def f():\n    import eqsatad.rules", "line 2: eqsatad.rules"),
        ("eqsatad/loops/a.py", "import egglog.bindings", "egglog belongs to"),
        ("eqsatad/backends/a.py", "import llvmlite.ir as ir", "llvmlite belongs to"),
        ("eqsatad/backends/opencl.py", "import pyopencl", "pyopencl is optional"),
        ("eqsatad/rules/engine.py", "def f():\n    import z3", "z3 belongs to"),
        ("eqsatad/extract/a.py", "import rules_catalog.sums", "through eqsatad.rules"),
        ("rules_catalog/a.py", "from eqsatad.extract import cost", "is to the right"),
    ],
)
def test_wrong_import_is_found(path, source, complaint):
    assert [complaint in found for found in violations(path, source)] == [True]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("eqsatad/grad.py", "from eqsatad.terms.nodes import Expr"),
        ("eqsatad/terms/nodes.py", "def f():\n    from eqsatad.terms.show import show"),
        ("eqsatad/cli.py", "import eqsatad as ea"),
        ("eqsatad/backends/opencl.py", "def load():\n    import pyopencl as cl"),
        ("rules_catalog/sums.py", "from eqsatad.rules.rule import rewrite"),
    ],
)
def test_right_import_passes(path, source):
    assert violations(path, source) == []
