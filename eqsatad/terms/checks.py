"""What a stage must satisfy before anything else sees it.

Every read is proved to stay inside its tensor under the selects, reduction conditions and left
operands of ``and``/``or`` around it: by intervals, then by isl, then as a polynomial in sizes. A
position that depends on data cannot be proved: keeping it in range is the caller's duty, and
`evaluate` and the checked kernels raise where it is not. Divisors of indices are positive, every
axis has one binder, and index expressions fit 64 bits wherever their range is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from eqsatad.errors import (
    DivisorError,
    IndexRangeError,
    OutOfBoundsError,
    TermError,
    UnboundIndexError,
)
from eqsatad.terms.nodes import Apply, Axis, Const, Expr, Read, Reduce, Select, Stage, Tensor
from eqsatad.terms.ops import AND, FLOORDIV, GE, LT, MOD, NOT, OR
from eqsatad.terms.polynomial import nonnegative
from eqsatad.terms.presburger import implied
from eqsatad.terms.ranges import Interval, interval, rough
from eqsatad.terms.show import brief, explained
from eqsatad.terms.walk import conjuncts, postorder

INT64 = (-(2**63), 2**63 - 1)
ZERO = Const(0, "index")

Guards = tuple[Expr, ...]


def check(stage: Stage) -> None:
    """Raises the first thing that is wrong with ``stage``."""
    try:
        _check(stage)
    except TermError as error:
        raise type(error)(f"{error}\nFound in {stage.name}{stage.where_built}.") from None


def _check(stage: Stage) -> None:
    for root in stage.roots:
        for node in postorder(root):
            _check_divisor(root, node)
        for node, span in rough(root).items():
            if not _fits(span) and not _fits(interval(node)):
                raise IndexRangeError(_too_wide(root, node))
    _check_binders(stage)
    for root, guards in _roots(stage):
        _check_reads(root, guards)
    for scatter in stage.scatters:
        guards = tuple(conjuncts(scatter.cond))
        for place, index in enumerate(scatter.indices):
            if not within(index, stage.shape[place], guards):
                raise OutOfBoundsError(
                    f"{_place(stage, place, index)}:\n    {stage.name}{brief(scatter)}\n"
                    "Give the scatter a condition that keeps its indices in range."
                )


def _roots(stage: Stage) -> Iterator[tuple[Expr, Guards]]:
    yield stage.body, ()
    for scatter in stage.scatters:
        yield scatter.cond, ()
        for root in (*scatter.indices, scatter.value):
            yield root, tuple(conjuncts(scatter.cond))


def _check_divisor(root: Expr, node: Expr) -> None:
    if not isinstance(node, Apply) or node.op not in (FLOORDIV, MOD) or node.dtype != "index":
        return
    divisor = node.args[1]
    if divisor.free or depends_on_data(divisor) or (interval(divisor)[0] or 0) < 1:
        raise DivisorError(
            explained(
                f"an index is divided by {brief(divisor)}, which is not known to be positive:",
                root,
                node,
                "Divide by a positive number or a size.",
            )
        )


def _fits(span: Interval) -> bool:
    """Whether what is known of a range is within 64 bits."""
    low, high = span
    return (low is None or low >= INT64[0]) and (high is None or high <= INT64[1])


def _too_wide(root: Expr, node: Expr) -> str:
    return explained(
        f"an index ranges over {spelled(node)}, which does not fit 64 bits:",
        root,
        node,
        "Reduce the sizes or the coefficients.",
    )


def _check_binders(stage: Stage) -> None:
    outer = [(stage.body, stage.axes)]
    outer += [(root, scatter.axes) for scatter in stage.scatters for root in scatter.children]
    for root, axes in outer:
        for node, scope in _binders(root, axes):
            if twice := [axis for axis in node.axes if axis in scope]:
                raise UnboundIndexError(
                    explained(
                        f"index {twice[0]!r} is bound by a reduction and already bound around it:",
                        root,
                        node,
                        "Reduce over another axis.",
                    )
                )


def _binders(root: Expr, axes: Iterable[Axis]) -> Iterator[tuple[Reduce, frozenset[Axis]]]:
    """Every reduction under ``root`` with the axes that are in scope around it."""
    reducing = _above(root, lambda node: isinstance(node, Reduce))
    stack = [(root, frozenset(axes))]
    seen: set[tuple[Expr, frozenset[Axis]]] = set()
    while stack:
        node, scope = stack.pop()
        if node not in reducing or (node, scope) in seen:
            continue
        seen.add((node, scope))
        if isinstance(node, Reduce):
            yield node, scope
            scope |= frozenset(node.axes)
        stack.extend((child, scope) for child in reversed(node.children))


def _check_reads(root: Expr, guards: Guards) -> None:
    suspects = {
        node
        for node in postorder(root)
        if isinstance(node, Read) and not all(map(surely_inside, node.indices, node.tensor.shape))
    }
    if not suspects:
        return
    for read, around in guarded(root, guards, suspects):
        for place, index in enumerate(read.indices):
            if not within(index, read.tensor.shape[place], around):
                raise OutOfBoundsError(_outside(root, read, place, around))


def guarded(root: Expr, guards: Guards, wanted: set[Read]) -> Iterator[tuple[Read, Guards]]:
    """Each of ``wanted`` with the conditions around it, once for every way it is reached."""
    above = _above(root, lambda node: node in wanted)
    stack = [(root, guards)]
    seen: set[tuple[Expr, Guards]] = set()
    while stack:
        node, around = stack.pop()
        if node not in above or (node, around) in seen:
            continue
        seen.add((node, around))
        if isinstance(node, Read) and node in wanted:
            yield node, around
        stack.extend(reversed([(child, (*around, *more)) for child, more in _under(node)]))


def _under(node: Expr) -> list[tuple[Expr, Guards]]:
    """The children of ``node`` with the conditions that it puts around each."""
    match node:
        case Select(cond, then, other):
            return [
                (cond, ()),
                (then, tuple(conjuncts(cond))),
                (other, (Apply(NOT, (cond,)),)),
            ]
        case Reduce(_, _, cond, body):
            return [(cond, ()), (body, tuple(conjuncts(cond)))]
        case Apply(op, (a, b)) if op is AND:
            return [(a, ()), (b, tuple(conjuncts(a)))]
        case Apply(op, (a, b)) if op is OR:
            return [(a, ()), (b, (Apply(NOT, (a,)),))]
    return [(child, ()) for child in node.children]


def _above(root: Expr, wanted: Callable[[Expr], bool]) -> set[Expr]:
    """The nodes under ``root`` that are wanted or have a wanted node below them."""
    found: set[Expr] = set()
    for node in postorder(root):
        if wanted(node) or any(child in found for child in node.children):
            found.add(node)
    return found


def depends_on_data(expr: Expr) -> bool:
    """Whether the value of ``expr`` depends on the contents of an array."""
    return any(isinstance(node, Read) for node in postorder(expr))


def surely_inside(index: Expr, extent: Expr) -> bool:
    """What intervals alone prove."""
    low, high = interval(index)
    least = interval(extent)[0]
    return low is not None and low >= 0 and high is not None and high < (least or 0)


def within(index: Expr, extent: Expr, guards: Guards) -> bool:
    """Whether ``index`` is proved to be below ``extent`` under ``guards``, or is data."""
    if depends_on_data(index) or surely_inside(index, extent):
        return True
    low = interval(index)[0]
    negative = low is None or low < 0
    if negative and not (implied(Apply(GE, (index, ZERO)), guards) or nonnegative(index)):
        return False
    return implied(Apply(LT, (index, extent)), guards) or nonnegative(extent - index - 1)


def spelled(expr: Expr) -> str:
    """The range of ``expr`` as it is written in messages."""
    low, high = ("?" if end is None else str(end) for end in interval(expr))
    return f"{low} .. {high}"


def _place(tensor: Tensor, place: int, index: Expr) -> str:
    return (
        f"index {brief(index)} of {tensor.name}{tensor.where_built} ranges over {spelled(index)}, "
        f"and dimension {place} has extent {brief(tensor.shape[place])}"
    )


def _outside(root: Expr, read: Read, place: int, guards: Guards) -> str:
    around = f" where {' and '.join(map(brief, guards))}" if guards else ""
    return explained(
        f"{_place(read.tensor, place, read.indices[place])}{around}:",
        root,
        read,
        f"Guard the read with select, or read {read.tensor.name}.get(..., outside=0.0).",
    )
