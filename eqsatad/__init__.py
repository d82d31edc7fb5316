"""eqsatad: automatic differentiation of tensor operators, simplified through an e-graph.

The public names, each with one import path. ``import eqsatad as ea`` is the customary way;
``sum``, ``max``, ``min``, ``any``, ``all``, ``abs``, ``round`` and ``pow`` are the functions on
expressions. Names in `LATER` are imported when they are asked for: what they need takes long, and
a gradient that was worked out before needs none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from eqsatad.backends import load_kernel
from eqsatad.backends.threads import set_num_threads
from eqsatad.pipeline import Gradients, build, differentiate, plan, simplified
from eqsatad.terms.builders import (
    abs,
    acos,
    all,
    all_of,
    any,
    any_of,
    argmax,
    argmin,
    asin,
    atan,
    atan2,
    cast,
    ceil,
    comm_reducer,
    compute,
    const,
    cos,
    cosh,
    differs,
    equal,
    erf,
    exp,
    expm1,
    floor,
    log,
    log1p,
    log2,
    max,
    maximum,
    min,
    minimum,
    placeholder,
    pow,
    prod,
    reduce_axis,
    round,
    rsqrt,
    scatter,
    select,
    sigmoid,
    sign,
    sin,
    sinh,
    size,
    softplus,
    sqrt,
    sum,
    tan,
    tanh,
    trunc,
)
from eqsatad.terms.checks import check
from eqsatad.terms.division import (
    euclidean_div,
    euclidean_mod,
    truncated_div,
    truncated_mod,
)
from eqsatad.terms.nodes import Axis, Expr, Placeholder, Size, Stage, Tensor
from eqsatad.terms.show import show

if TYPE_CHECKING:
    from eqsatad.counting import report
    from eqsatad.derivatives import Directional, hvp, jacobian, jvp
    from eqsatad.extract.report import CostReport, compare
    from eqsatad.pair import Half, vjp
    from eqsatad.rules.index_facts import Budget
    from eqsatad.rules.simplifier import bounds, prove, simplify
    from eqsatad.rules.solving import Solution, solve
    from eqsatad.terms.evaluate import evaluate
    from eqsatad.terms.text import op, ops

LATER = {
    "report": "eqsatad.counting",
    "Directional": "eqsatad.derivatives",
    "hvp": "eqsatad.derivatives",
    "jacobian": "eqsatad.derivatives",
    "jvp": "eqsatad.derivatives",
    "CostReport": "eqsatad.extract.report",
    "compare": "eqsatad.extract.report",
    "Half": "eqsatad.pair",
    "vjp": "eqsatad.pair",
    "Budget": "eqsatad.rules.index_facts",
    "bounds": "eqsatad.rules.simplifier",
    "prove": "eqsatad.rules.simplifier",
    "simplify": "eqsatad.rules.simplifier",
    "Solution": "eqsatad.rules.solving",
    "solve": "eqsatad.rules.solving",
    "evaluate": "eqsatad.terms.evaluate",
    "op": "eqsatad.terms.text",
    "ops": "eqsatad.terms.text",
}
"""The modules of the names that are imported when they are asked for."""


if not TYPE_CHECKING:  # A checker sees the imports above, and complains of any other name.

    def __getattr__(name: str) -> object:
        if name not in LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(LATER[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})


__all__ = [
    "Axis",
    "Budget",
    "CostReport",
    "Directional",
    "Expr",
    "Gradients",
    "Half",
    "Placeholder",
    "Size",
    "Solution",
    "Stage",
    "Tensor",
    "abs",
    "acos",
    "all",
    "all_of",
    "any",
    "any_of",
    "argmax",
    "argmin",
    "asin",
    "atan",
    "atan2",
    "bounds",
    "build",
    "cast",
    "ceil",
    "check",
    "comm_reducer",
    "compare",
    "compute",
    "const",
    "cos",
    "cosh",
    "differentiate",
    "differs",
    "equal",
    "erf",
    "euclidean_div",
    "euclidean_mod",
    "evaluate",
    "exp",
    "expm1",
    "floor",
    "hvp",
    "jacobian",
    "jvp",
    "load_kernel",
    "log",
    "log1p",
    "log2",
    "max",
    "maximum",
    "min",
    "minimum",
    "op",
    "ops",
    "placeholder",
    "plan",
    "pow",
    "prod",
    "prove",
    "reduce_axis",
    "report",
    "round",
    "rsqrt",
    "scatter",
    "select",
    "set_num_threads",
    "show",
    "sigmoid",
    "sign",
    "simplified",
    "simplify",
    "sin",
    "sinh",
    "size",
    "softplus",
    "solve",
    "sqrt",
    "sum",
    "tan",
    "tanh",
    "trunc",
    "truncated_div",
    "truncated_mod",
    "vjp",
]
