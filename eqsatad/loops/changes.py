"""Changing the loops of a nest: where loops are, what takes their place, and how to refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from eqsatad.errors import ScheduleError
from eqsatad.loops.nest import Assign, Block, For, If, Mark, Statement, expressions_of, statements
from eqsatad.loops.render import render_block
from eqsatad.terms.nodes import Var
from eqsatad.terms.walk import postorder

# Lines of a nest that an error shows.
SHOWN = 60

# What takes the place of a loop: pieces that may be in loops of their own; None is no change.
Pieces = Iterable[Block]
Change = Callable[[For], Pieces | None]


def axes_of(block: Block) -> list[str]:
    """The names of the loops in ``block``, outermost first."""
    return list(dict.fromkeys(loop.axis.name for loop in loops_in(block)))


def chain(statement: Statement) -> tuple[list[For], Block]:
    """The loops that ``statement`` is, each alone in the one around it, and what is inside."""
    loops: list[For] = []
    body: Block = (statement,)
    while len(body) == 1 and isinstance(loop := body[0], For):
        loops.append(loop)
        body = loop.body
    return loops, body


def refused(why: str, block: Block, name: str) -> ScheduleError:
    """An error that shows the piece of ``block`` with a loop over ``name``, marked."""
    piece = next(each for each in block if name in axes_of((each,)))
    lines: list[str] = []
    for line in render_block((piece,)):
        lines.append(line)
        head, found, _ = line.partition(f"for {name} in ")
        if found:
            lines.append(" " * (len(head) + len("for ")) + "^" * len(name))
    return ScheduleError("\n".join([f"{name} {why}:", *_cut(lines), _available(block)]))


def known(block: Block, name: str) -> None:
    """An error unless ``block`` has a loop over ``name``."""
    if name not in axes_of(block):
        lines = _cut(render_block(block))
        raise ScheduleError("\n".join([f"there is no loop {name} in", *lines, _available(block)]))


def _cut(lines: list[str]) -> list[str]:
    more = len(lines) - SHOWN
    return lines if more <= 0 else [*lines[:SHOWN], f"    ... and {more:,} more lines"]


def _available(block: Block) -> str:
    return f"loops here: {', '.join(axes_of(block)) or 'none'}"


def loops_in(block: Block) -> Iterator[For]:
    return (each for each in statements(block) if isinstance(each, For))


def changed(block: Block, change: Change) -> Block:
    """``block`` with what ``change`` makes of its loops; None leaves a loop and looks inside."""
    return marked(block, everywhere(block, change))


def marked(before: Block, after: Block) -> Block:
    """``after`` with a mark on the outermost loops of every statement that ``before`` lacks."""
    return tuple(each if each in before else _mark(each) for each in after)


def _mark(statement: Statement) -> Statement:
    match statement:
        case For(mark=None):
            return replace(statement, mark=Mark.PLAIN)
        case If(cond, then, other):
            return If(cond, tuple(map(_mark, then)), tuple(map(_mark, other)))
    return statement


def everywhere(block: Block, change: Change) -> Block:
    """``block`` with the pieces that ``change`` makes of its loops, outermost first."""
    return tuple(each for statement in block for piece in _pieces(statement, change)
                 for each in piece)  # fmt: skip


def _pieces(statement: Statement, change: Change) -> Iterator[Block]:
    """``statement`` changed; loops whose iterations are independent go around each piece."""
    match statement:
        case For(body=body, parallel=parallel):
            if (made := change(statement)) is not None:
                yield from made
                return
            apart = parallel and len(body) == 1
            inner = _pieces(body[0], change) if apart else (everywhere(body, change),)
            for piece in inner:
                yield (replace(statement, body=piece),)
        case If(cond, then, other):
            yield (If(cond, everywhere(then, change), everywhere(other, change)),)
        case _:
            yield (statement,)


def nested(loops: Sequence[For], body: Block) -> For:
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    (result,) = body
    assert isinstance(result, For), "there is a loop at least"
    return result


def variables(block: Block, without: For | None = None) -> Iterator[Var]:
    """The locals that occur in ``block``, but for what is only inside ``without``."""
    for statement in block:
        if statement is without:
            continue
        own = [statement.var] if isinstance(statement, Assign) else []
        yield from own
        yield from (node for node in postorder(*expressions_of(statement))
                    if isinstance(node, Var))  # fmt: skip
        match statement:
            case For(body=body):
                yield from variables(body, without)
            case If(_, then, other):
                yield from variables((*then, *other), without)
