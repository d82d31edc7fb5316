"""What the command line shows of a gradient, each view as plain values and as text or a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eqsatad.terminal import table

if TYPE_CHECKING:
    from eqsatad.pipeline import Gradients
    from eqsatad.terms.nodes import Tensor


@dataclass(frozen=True)
class Request:
    """What the views of `grad` are made from."""

    output: Tensor
    inputs: list[Tensor]
    gradients: Gradients
    target: str
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class View:
    """One part of an answer: as plain values, and as text or a table."""

    value: Any
    shown: Any


def _view_gradient(request: Request) -> View:
    from eqsatad.terms.nodes import Stage
    from eqsatad.terms.show import show
    from eqsatad.terms.walk import program

    reached = program(request.gradients)
    lines = [show(tensor) for tensor in reached if isinstance(tensor, Stage)]
    return View(lines, "\n".join(lines))


def _view_loops(request: Request) -> View:
    from eqsatad.loops.render import render

    text = render(request.gradients.loops())
    return View(text, text)


def _naive(request: Request) -> Gradients:
    from eqsatad.pipeline import differentiate

    return differentiate(request.output, request.inputs, simplify=False)


def _view_naive(request: Request) -> View:
    from eqsatad.loops.render import render

    text = render(_naive(request).loops())
    return View(text, text)


def _view_source(request: Request) -> View:
    source = request.gradients.build(target=request.target).source
    return View(source, source)


def _view_steps(request: Request) -> View:
    report = request.gradients.build(target=request.target).report()
    return View(report.to_dict(), report)


def _view_report(request: Request) -> View:
    report = request.gradients.report(sizes=request.sizes)
    return View(report.to_dict(), report)


def _view_compare(request: Request) -> View:
    from eqsatad.extract.report import compare as side_by_side

    naive = _naive(request).report(sizes=request.sizes)
    simplified = request.gradients.report(sizes=request.sizes)
    both = side_by_side(replace(naive, name="as derived"), replace(simplified, name="simplified"))
    return View(both.to_dict(), both)


def _view_rules(request: Request) -> View:
    saturation = request.gradients.saturation
    fired = sorted(saturation.rules.items(), key=lambda item: (-item[1], item[0]))
    record = {
        "stop_reason": saturation.stop_reason,
        "seconds": saturation.seconds,
        "nodes": saturation.nodes,
        "matches": dict(fired),
    }
    title = f"stopped: {saturation.stop_reason}; {saturation.nodes:,} nodes"
    return View(record, table(title, ("rule", "matches"), [(n, f"{m:,}") for n, m in fired]))


def _view_explain(request: Request) -> View:
    explanation = request.gradients.explain()
    return View(explanation.to_dict(), str(explanation))


VIEWS: dict[str, Callable[[Request], View]] = {
    "gradient": _view_gradient,
    "loops": _view_loops,
    "naive": _view_naive,
    "source": _view_source,
    "steps": _view_steps,
    "report": _view_report,
    "compare": _view_compare,
    "rules": _view_rules,
    "explain": _view_explain,
}
