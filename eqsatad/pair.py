"""An operator as a pair of programs: one that computes it, and one that passes a head back.

Output and gradients are simplified as one program, which is then cut: the forward program also
gives the tensors worth keeping, the backward one takes them and the head. What is kept and what
is worked out again is the cheapest choice of `extract.cut`; both parts are simplified again as
they then stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from eqsatad.errors import ArgumentError
from eqsatad.extract.cost import CostModel
from eqsatad.extract.cut import Cut, Split, searches
from eqsatad.extract.outcome import Simplified
from eqsatad.extract.points import Points
from eqsatad.extract.safe import total
from eqsatad.grad import reverse
from eqsatad.grad.custom import spelled
from eqsatad.grad.scope import Names
from eqsatad.loops.combine import identity
from eqsatad.loops.nest import LoopProgram
from eqsatad.pipeline import Results, lowered, model, simplified
from eqsatad.rules.collection import Collection, collected
from eqsatad.rules.copies import inline, inline_copies, retarget
from eqsatad.rules.given import Rules
from eqsatad.rules.growth import Limits
from eqsatad.terms.nodes import (
    ARGMAX,
    ARGMIN,
    MAXIMUM,
    MINIMUM,
    TRUE,
    Axis,
    Cast,
    Combiner,
    Expr,
    Placeholder,
    Read,
    Reduce,
    Select,
    Stage,
    Tensor,
)
from eqsatad.terms.walk import map_stage, program, substitute, transform

SCATTERED = 8
"""What a read at a position that is data costs, in additions: it is made one by one."""

BEST: dict[Combiner, Combiner] = {MAXIMUM: ARGMAX, MINIMUM: ARGMIN}


@dataclass(frozen=True)
class Half(Results):
    """One program of a pair; ``inputs`` are the arrays it takes, in order.

    ``saved`` are what the forward program gives after its output and the backward one takes.
    """

    inputs: tuple[Tensor, ...]
    saved: tuple[Placeholder, ...]

    @cached_property
    def _loops(self) -> LoopProgram:
        return lowered(self.results, self.inputs, self.rules)


def vjp(
    output: Tensor,
    inputs: Tensor | Sequence[Tensor],
    memory_limit: int | None = None,
    cost: str | CostModel = "cpu",
    *,
    allow_zero: bool = False,
    ties: str = "first",
    rules: Rules | None = None,
    trusted: bool = False,
    limits: Limits | None = None,
) -> tuple[Half, Half]:
    """A forward and a backward program for ``output``.

    The forward one gives the output and the tensors worth saving; the backward one takes inputs,
    saved tensors and the head, in the order of its ``inputs``, and gives the gradients. What is
    saved takes at most ``memory_limit`` bytes, at the example values of symbolic sizes; what is
    not saved is worked out again. For the other options see `differentiate`.
    """
    if memory_limit is not None and memory_limit < 0:
        raise ArgumentError(f"memory_limit is {memory_limit}; give bytes, 0 to save nothing")
    chosen = collected(rules, trusted=trusted)
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    became = inline_copies([output], keep=given)
    output, given = became[output], [became.get(tensor, tensor) for tensor in given]
    adjoints = reverse(output, given, allow_zero=allow_zero, ties=ties)
    head = adjoints.head
    assert head is not None, "a head is made where none is given"
    simplify = partial(simplified, cost=cost, rules=chosen, limits=limits)
    plain = [output, *adjoints.results]
    prices = model(cost)
    for whole in (at_positions(plain, Points(prices)), plain):
        joint = simplify(whole).outputs
        cut = Split(joint[0], joint[1:], head, prices).cut(memory_limit)
        if whole == plain or any(map(searches, cut.kept)):
            break
    saved = _saved(cut.kept, joint, {tensor.name for tensor in program(plain)})
    back = simplify(_backward(joint[1:], cut, saved))
    arrays = _arrays(back.outputs)
    saved = {stage: one for stage, one in saved.items() if one in arrays}
    ahead = simplify(_forward(joint[0], saved))
    kept = tuple(one for stage, one in saved.items() if stage is not joint[0])
    taken = [tensor for tensor in arrays if tensor not in (*saved.values(), head)]
    return (
        _half(f"forward program of {output.name}", ahead, _arrays(ahead.outputs), kept, chosen),
        _half(
            f"backward program of {output.name}",
            back,
            (*taken, *saved.values(), head),
            kept,
            chosen,
        ),
    )


def _half(
    title: str,
    found: Simplified,
    inputs: Iterable[Tensor],
    saved: tuple[Placeholder, ...],
    rules: Collection,
) -> Half:
    return Half(
        results=found.outputs,
        title=title,
        notes=tuple(f"saved: {one.name} {spelled(one.shape)} of {one.dtype}" for one in saved),
        saturation=found.saturation,
        rules=rules,
        inputs=tuple(inputs),
        saved=saved,
    )


def _arrays(outputs: Sequence[Tensor]) -> list[Placeholder]:
    return [tensor for tensor in program(outputs) if isinstance(tensor, Placeholder)]


def _saved(
    kept: Sequence[Stage], joint: Sequence[Tensor], clear: Iterable[str]
) -> dict[Stage, Placeholder]:
    """How the backward program takes each kept stage: under its own name where that is clear.

    A temporary that the simplification made is named after the stage it is a part of.
    """
    names = Names(tensor.name for tensor in program(joint))
    found: dict[Stage, Placeholder] = {}
    for stage in kept:
        whole = max((name for name in clear if stage.name.startswith(name)), key=len, default="")
        name = stage.name if stage.name == whole else names.fresh(f"{whole}_saved".lstrip("_"))
        found[stage] = Placeholder(name, stage.shape, stage.dtype)
    return found


def _forward(output: Tensor, saved: Mapping[Stage, Placeholder]) -> list[Tensor]:
    """The output and the kept stages, under the names they are saved by."""
    wanted = [output, *(stage for stage in saved if stage is not output)]
    replaced: dict[Tensor, Tensor] = {}
    for tensor in program(wanted):
        replaced[tensor] = tensor
        if isinstance(tensor, Stage):
            name = saved[tensor].name if tensor in saved else tensor.name
            stage = retarget(tensor, replaced)
            replaced[tensor] = Stage(name, stage.axes, stage.body, stage.scatters)
    return [replaced[tensor] for tensor in wanted]


def _backward(
    results: Sequence[Tensor], cut: Cut, saved: Mapping[Stage, Placeholder]
) -> list[Tensor]:
    """``results`` from what was saved."""
    replaced: dict[Tensor, Tensor] = {}
    for tensor in program(results):
        replaced[tensor] = tensor
        if isinstance(tensor, Stage):
            kept = saved.get(tensor)
            through = [replaced[stage] for stage in cut.inlined if stage in replaced]
            replaced[tensor] = inline(retarget(tensor, replaced), through) if kept is None else kept
    return [replaced[result] for result in results]


def at_positions(outputs: Sequence[Tensor], points: Points) -> list[Tensor]:
    """``outputs`` with maxima whose positions are worked out too read at those positions.

    The search for a position has found the maximum, so that another search over many points is
    dearer than a read.
    """
    found = {
        (tensor.axes, tensor.body): tensor
        for tensor in program(outputs)
        if isinstance(tensor, Stage) and searches(tensor)
    }

    def read(node: Expr, axes: tuple[Axis, ...]) -> Expr:
        if not isinstance(node, Reduce) or node.combiner not in BEST:
            return node
        search = Reduce(BEST[node.combiner], node.axes, node.cond, node.body)
        own = tuple(axis for axis in axes if axis in search.free)
        stage = found.get((own, search))
        if stage is None or _cheap(node, points):
            return node
        return _element(node, Cast(Read(stage, own), "index"))

    replaced: dict[Tensor, Tensor] = {}
    for tensor in program(outputs):
        replaced[tensor] = tensor
        if isinstance(tensor, Stage) and tensor not in found.values():
            changed = map_stage(tensor, partial(transform, visit=partial(read, axes=tensor.axes)))
            replaced[tensor] = retarget(changed, replaced)
    return [replaced[output] for output in outputs]


def _cheap(node: Reduce, points: Points) -> bool:
    """Whether a search over the points of ``node`` costs less than a read at a position."""
    each = points.model.add + points.model.read
    return points.model.volume(node.axes) * each < SCATTERED * points.model.add


def _element(node: Reduce, position: Expr) -> Expr:
    """The body of ``node`` at one point of its axes; the identity where that does not count."""
    first, *rest = node.axes
    at: dict[Axis, Expr] = {}
    for axis in reversed(rest):
        at[axis] = position % axis.extent
        position = position // axis.extent
    at[first] = position
    body, cond = substitute(node.body, at), substitute(node.cond, at)
    outside = identity(node.combiner, node.dtype)
    return total(body if cond is TRUE else Select(cond, body, outside), tested=False)
