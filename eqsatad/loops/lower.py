"""Stages to loop nests: the one place that knows the order of everything.

Each stage becomes one nest. A stage with running values is walked along them; any other is cut
into pieces, and each piece is loops around one value. `pieces` and `emit` are there for backends
that want another order of loops or code of their own for a piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsatad.errors import ShapeError
from eqsatad.loops.emit import Emitter, emit
from eqsatad.loops.nest import Block, LoopProgram, Nest, Statement
from eqsatad.loops.pieces import Piece, Simplify, pieces, simplified
from eqsatad.loops.scans import running, scan
from eqsatad.terms.nodes import Axis, Expr, Placeholder, Read, Reduce, Size, Stage, Tensor
from eqsatad.terms.walk import map_stage, postorder, program, transform

# For a piece, the order of its loops as for `emit`; None adds sums up in locals.
Order = Callable[[Piece], Sequence[Axis] | None]


def lower(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None,
    simplify: Simplify | None = None,
    *,
    order: Order | None = None,
) -> LoopProgram:
    """The loop program that computes ``outputs``.

    ``inputs`` are the arrays a call gives, in order (by default those that are read, in order of
    use). ``simplify`` rewrites index expressions before quotients are cut.
    """
    outputs = own(outputs)
    if simplify is not None:
        outputs = rewritten(outputs, simplify)
    tensors = program(outputs)
    stages = [tensor for tensor in tensors if isinstance(tensor, Stage)]
    read = [tensor for tensor in tensors if isinstance(tensor, Placeholder)]
    given = tuple(read if inputs is None else inputs)
    return LoopProgram(
        inputs=given,
        outputs=tuple(outputs),
        temporaries=tuple(stage for stage in stages if stage not in outputs),
        sizes=sizes((*given, *tensors)),
        nests=tuple(Nest(stage, nest(stage, order=order)) for stage in stages),
    )


def nest(stage: Stage, *, order: Order | None = None) -> Block:
    """The statements that compute ``stage``."""
    emitter = Emitter()
    statements: list[Statement] = []
    found = pieces(stage)
    if along := running(stage):
        statements.extend(scan(stage, along[0].axis, emitter))
        found = [piece for piece in found if piece.adds]
    for piece in found:
        chosen = order(piece) if order is not None and piece.reduction is not None else None
        statements.extend(emit(piece, chosen, emitter))
    return tuple(statements)


def rewritten(outputs: Sequence[Tensor], simplify: Simplify) -> list[Tensor]:
    """``outputs`` with every stage below them simplified, and read as it is then."""
    became: dict[Tensor, Tensor] = {}

    def now(node: Expr) -> Expr:
        return Read(became[node.tensor], node.indices) if isinstance(node, Read) else node

    for tensor in program(outputs):
        became[tensor] = tensor
        if isinstance(tensor, Stage):
            stage = map_stage(tensor, lambda root: transform(root, now))
            became[tensor] = simplified(stage, simplify)
    return [became[tensor] for tensor in outputs]


def own(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``outputs`` with a copy for each that is an input or comes twice: arrays are not shared."""
    found: list[Tensor] = []
    for number, tensor in enumerate(outputs):
        if isinstance(tensor, Placeholder) or tensor in found:
            axes = tuple(Axis(f"i{place}", extent) for place, extent in enumerate(tensor.shape))
            tensor = Stage(f"{tensor.name}_copy{number}", axes, Read(tensor, axes))
        found.append(tensor)
    return found


def sizes(tensors: Sequence[Tensor]) -> tuple[Size, ...]:
    """Every symbolic size in the shapes, bodies and loops of ``tensors``, by name."""
    roots = [extent for tensor in tensors for extent in tensor.shape]
    axes: list[Axis] = []
    for tensor in tensors:
        if isinstance(tensor, Stage):
            roots.extend(tensor.roots)
            axes.extend(axis for scatter in tensor.scatters for axis in scatter.axes)
    for node in postorder(*roots):
        axes.extend(node.axes if isinstance(node, Reduce) else node.free)
    extents = [axis.extent for axis in axes]
    found = {node for node in postorder(*roots, *extents) if isinstance(node, Size)}
    by_name: dict[str, Size] = {}
    for size in sorted(found, key=lambda size: size.key):
        if by_name.setdefault(size.name, size) is not size:
            raise ShapeError(
                f"two sizes are called {size.name} and promise different things. Build the size "
                "once and use it everywhere, or give one of them another name."
            )
    return tuple(by_name[name] for name in sorted(by_name))


__all__ = ["Order", "Piece", "Simplify", "emit", "lower", "nest", "pieces"]
