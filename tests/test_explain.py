"""Explanations: every step replays with its rows alone, and every program on the way is right."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import eqsatad as ea
from benchmarks.legacy_cases import CASES
from eqsatad import library as nn
from eqsatad.cli import main
from eqsatad.errors import ArgumentError, ExplanationError
from eqsatad.explain import Explanation
from eqsatad.extract.trace import Restricted, Step, United
from eqsatad.rules.catalog import load
from eqsatad.rules.value_rule import call, rewrite
from eqsatad.rules.value_rule import x as x_
from eqsatad.terms.nodes import Stage, Tensor
from eqsatad.terms.walk import program

PAGE = Path(__file__).parent.parent / "docs" / "explain.md"


def made(operator: Callable[..., Tensor], *shapes: Sequence[int]) -> Tensor:
    """The operator on placeholders of these shapes."""
    return operator(*(ea.placeholder(shape, name=f"x{n}") for n, shape in enumerate(shapes)))


IMAGE = (1, 2, 5, 5)

PROGRAMS: Mapping[str, Callable[[], Tensor]] = {
    "matmul": lambda: made(nn.matmul, (3, 4), (4, 2)),
    "convolution": lambda: made(lambda x, w: nn.conv2d(x, w, pad=1), IMAGE, (2, 2, 3, 3)),
    "strided convolution": lambda: made(
        lambda x, w: nn.conv1d(x, w, stride=2, dilation=3, pad=1), (1, 2, 9), (2, 2, 2)
    ),
    "max pooling": lambda: made(lambda x: nn.max_pool(x, 2), (1, 1, 4, 4)),
    "average pooling": lambda: made(lambda x: nn.avg_pool(x, 2), (1, 1, 4, 4)),
    "softmax": lambda: made(nn.softmax, (3, 4)),
    "log softmax": lambda: made(nn.log_softmax, (3, 4)),
    "layer norm": lambda: made(nn.layer_norm, (3, 4), (4,), (4,)),
    "transpose": lambda: ea.op("y[i,j] = x[j,i] * x[i,j]", x=(3, 3)),
    "three operands": lambda: ea.op(
        "y[i,l] = sum(a[i,j]*b[j,k]*c[k,l])", a=(2, 3), b=(3, 4), c=(4, 2)
    ),
    "cumulative sum": lambda: ea.op("y[i < 6] = sum(k, where=k <= i)(x[k])", x=(6,)),
    "reshape": lambda: made(lambda x: nn.reshape(x, (4, 6)), (2, 3, 4)),
    "diagonal": lambda: ea.op("y[i] = a[i,i] * exp(a[i,i])", a=(5, 5)),
    "embedding": lambda: nn.take(
        ea.placeholder((5, 3), name="table"), ea.placeholder((4,), "which", "int32")
    ),
    "quotient": lambda: ea.op("y[i] = x[i] / sum(j)(x[j] * x[j])", x=(5,)),
    "two stages": lambda: ea.op(
        "h[i] = tanh(sum(a[i,k]*x[k])); y = sum(h[i]*h[i])", a=(4, 3), x=(3,)
    ),
    "guarded": lambda: ea.op(
        "y[i] = sum(k)(select(m[i] > 0, a[i,k] * a[i,k], 0.0))", a=(4, 4), m=(4,)
    ),
    "symbolic": lambda: ea.op("y[i] = sum(a[i,k]*exp(x[k]))", a=("n", "m"), x=("m",)),
}


def jacobian() -> ea.Gradients:
    """The Jacobian of two stages of windows, which is stored along its band."""
    y = ea.op("h[i] = sum(k < 3)(x[i+k]*w[k]); y[j] = sum(k < 3)(h[j+k]*h[j+k])", x=(9,), w=(3,))
    (x,) = [tensor for tensor in program([y]) if tensor.name == "x"]
    return ea.differentiate(y, [x], "identity", cost="count")


def suite(name: str) -> ea.Gradients:
    """The gradients of a row of the legacy suite."""
    case = CASES[name]()
    return ea.differentiate(case.output, list(case.inputs), cost="count")


# Programs that take the phases which the others do not.
SPECIAL: Mapping[str, Callable[[], ea.Gradients]] = {
    "bands": jacobian,
    "sharing": lambda: suite("conv-broadcast-weight"),
    "hoisting": lambda: suite("reverse-tensordot"),
}


def differentiated(name: str) -> ea.Gradients:
    """The gradients of one of the programs."""
    return SPECIAL[name]() if name in SPECIAL else ea.differentiate(PROGRAMS[name](), cost="count")


@pytest.fixture(scope="module", params=[*PROGRAMS, *SPECIAL])
def explained(request: pytest.FixtureRequest) -> tuple[ea.Gradients, Explanation]:
    """The gradients of a program, and how they came about."""
    gradients = differentiated(request.param)
    return gradients, gradients.explain()


def test_explanation_replays_to_the_gradients(explained) -> None:
    gradients, explanation = explained
    assert explanation.replay() == tuple(gradients)
    assert explanation.programs[0] == gradients.derived


def test_program_after_each_step_is_the_naive_one_in_value(explained) -> None:
    _, explanation = explained
    assert len(explanation.check(seed=3)) == len(explanation)


def test_step_of_rows_says_what_its_rows_show(explained) -> None:
    _, explanation = explained
    for step in explanation:
        assert bool(step.rows) <= (step.claim is not None), step


def test_steps_do_not_end_dearer_than_they_began(explained) -> None:
    _, explanation = explained
    assert explanation.costs[-1] <= explanation.costs[0]


def one(name: str) -> Explanation:
    """The explanation of one of the programs."""
    return differentiated(name).explain()


@pytest.mark.parametrize("phase", SPECIAL)
def test_phase_is_told(phase: str) -> None:
    assert phase in {step.phase for step in one(phase)}


def test_rows_are_those_that_the_program_is_known_to_need() -> None:
    assert {"solve-unit", "sum-factor"} <= set(one("symbolic").rows)
    assert "solve-congruence" in one("strided convolution").rows


def test_no_row_of_a_step_can_be_left_out() -> None:
    explanation = one("quotient")
    for number, step in enumerate(explanation.steps):
        for row in step.rows:
            fewer = tuple(name for name in step.rows if name != row)
            with pytest.raises(ExplanationError, match=f"step {number + 1} "):
                changed(explanation, number, rows=fewer).replay()


def changed(explanation: Explanation, number: int, **fields: object) -> Explanation:
    """``explanation`` with one step made otherwise."""
    steps = list(explanation.steps)
    steps[number] = replace(steps[number], **fields)
    return replace(explanation, steps=tuple(steps))


def place(explanation: Explanation, kind: type) -> int:
    """The first step with a claim of ``kind``."""
    return next(n for n, step in enumerate(explanation) if isinstance(step.claim, kind))


@pytest.mark.parametrize("kind", [Restricted, United])
def test_step_to_something_else_is_refused(kind: type) -> None:
    explanation = one("symbolic")
    number = place(explanation, kind)
    (stage,) = explanation.steps[number].after
    assert isinstance(stage, Stage)
    wrong = Stage(stage.name, stage.axes, stage.body * 2.0)
    broken = changed(explanation, number, after=(wrong,))
    with pytest.raises(ExplanationError, match=r"changes nothing|does not give"):
        broken.replay()
    with pytest.raises(ExplanationError, match=rf"after step {number + 1} .* off"):
        broken.check()


def test_step_that_is_missing_is_noticed() -> None:
    explanation = one("matmul")
    with pytest.raises(ExplanationError):
        replace(explanation, steps=explanation.steps[:-1]).replay()


def test_step_applies_to_readers_too() -> None:
    x = ea.placeholder((3,), name="x")
    old = ea.compute((3,), lambda i: x[i] + x[i], "old")
    new = ea.compute((3,), lambda i: 2.0 * x[i], "old")
    reader = ea.compute((3,), lambda i: old[i] * x[i], "reader")
    (found,) = Step("values", (old,), (new,)).apply([reader])
    assert isinstance(found, Stage)
    assert ea.evaluate([found], {"x": [1.0, 2.0, 3.0]})[0].tolist() == [2.0, 8.0, 18.0]
    assert "old" in str(found)


def test_gradient_that_was_not_simplified_has_no_steps() -> None:
    explanation = ea.differentiate(PROGRAMS["matmul"](), simplify=False).explain()
    assert list(explanation) == []
    assert explanation.replay() == explanation.naive


def test_row_of_a_user_is_named() -> None:
    pythagoras = rewrite(
        "pythagoras", call("sin", x_) * call("sin", x_) + call("cos", x_) * call("cos", x_), 1
    )
    y = ea.op("y[i] = a[i] * (sin(b[i])*sin(b[i]) + cos(b[i])*cos(b[i]))", a=(10,), b=(10,))
    rules = (*load(), pythagoras)
    gradients = ea.differentiate(y, cost="count", rules=rules)
    explanation = gradients.explain()
    assert explanation.replay() == tuple(gradients)
    assert "pythagoras" in explanation.rows


def test_program_too_large_to_be_evaluated_is_refused() -> None:
    with pytest.raises(ArgumentError, match="points, more than 10"):
        one("matmul").check(most=10)


def test_explanation_as_plain_values() -> None:
    explanation = one("symbolic")
    plain = json.loads(json.dumps(explanation.to_dict()))
    assert len(plain["steps"]) == len(explanation)
    (value,) = [step for step in plain["steps"] if "sum-factor" in step["rows"]]
    assert value["shown_by"] == "e-graph"
    assert value["before"] == ["x_bar[i0] = sum(i) (head[i] * a[i, i0] * exp(x[i0]))"]
    assert value["after"] == ["x_bar[i0] = exp(x[i0]) * sum(i) (head[i] * a[i, i0])"]
    assert value["cost"] < plain["cost"]


EXAMPLE = ["grad", "y[i] = sum(a[i,k]*exp(x[k]))", "--shape", "a=4x5", "--shape", "x=5"]


def test_example_of_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*EXAMPLE, "--show", "explain"])
    assert end.value.code == 0
    assert f"```\n{capsys.readouterr().out}```" in PAGE.read_text(encoding="utf-8")
