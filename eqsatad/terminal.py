"""What the command line prints: text, tables and JSON, and how far work that takes long has come.

Results go to the standard output, progress to the standard error and only where that is a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

from rich.console import Console, Group
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

# The width that is enough for every table.
WIDEST = 1000


def counted(number: int, what: str, many: str = "") -> str:
    """``1 rule``, ``2 rules``; ``many`` is a plural that takes more than an s."""
    return f"{number:,} {what if number == 1 else many or f'{what}s'}"


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Group:
    """A table of text, with its title above."""
    cells = Table()
    for head in heads:
        justify: Literal["left", "right"] = "right" if head in ("matches", "bytes") else "left"
        # What other columns say is wrapped before names are.
        cells.add_column(head, justify=justify, overflow="fold", no_wrap=head == heads[0])
    for row in rows:
        cells.add_row(*map(Text, row))
    return Group(Text(title), cells)


def say(shown: Any) -> None:
    """Text as it stands (square brackets are indices, not markup), anything else through rich."""
    if isinstance(shown, str):
        print(shown)
        return
    console = Console()
    if not console.is_terminal:  # A file takes lines of any length, so that no word is cut.
        wide = console.options.update(width=WIDEST)
        console.width = max(console.width, console.measure(shown, options=wide).minimum)
    console.print(shown)


def say_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


@contextmanager
def bar(text: str, steps: int) -> Iterator[Callable[[], None]]:
    """A progress bar on the standard error, gone when it is done; gives what moves it on."""
    with _shown_progress() as progress:
        task = progress.add_task(text, total=steps)
        yield lambda: progress.advance(task)


def _shown_progress() -> Progress:
    """Progress on the standard error, shown only when that is a terminal."""
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def waiting(text: str) -> AbstractContextManager[Any]:
    """A spinner on the standard error, shown only when that is a terminal."""
    return Console(stderr=True).status(text)


def in_turn(work: Sequence[tuple[str, Callable[[], None]]]) -> None:
    """Runs ``work`` behind a bar that names what is being looked at."""
    with _shown_progress() as progress:
        task = progress.add_task("", total=len(work))
        for name, run in work:
            progress.update(task, description=escape(name))
            run()
            progress.advance(task)
