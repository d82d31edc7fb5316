"""The command line: gradients, cost reports, rules and the cache, without writing Python.

Every command prints text for people, or JSON with ``--json``. Results go to the standard output;
progress and errors go to the standard error. Exit codes: 0 it worked, 1 the input was wrong (one
message, a traceback only with ``--debug``), 2 the command line was wrong.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console, Group
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from eqsatad.errors import ArgumentError, EqsatadError
from eqsatad.version import VERSION

if TYPE_CHECKING:
    from eqsatad.extract.report import CostReport
    from eqsatad.pipeline import Gradients
    from eqsatad.rules.catalog import AnyRow, Catalog
    from eqsatad.rules.redundant import Remark
    from eqsatad.terms.nodes import Tensor

app = typer.Typer(
    name="eqsatad",
    help="Automatic differentiation of tensor operators, simplified through an e-graph.",
    epilog="Exit codes: 0 it worked, 1 the input was wrong, 2 the command line was wrong.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
rules_app = typer.Typer(help="The rules: what there is, one in full, machine checks.")
cache_app = typer.Typer(help="The cache of compiled kernels: show it, empty it, where it is.")
app.add_typer(rules_app, name="rules", no_args_is_help=True)
app.add_typer(cache_app, name="cache", no_args_is_help=True)


@dataclass
class Options:
    """What holds for every command."""

    debug: bool = False


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its code."""
    options = Options()
    try:
        app(args=None if arguments is None else list(arguments), obj=options)
    except EqsatadError as error:
        _fail(error, options, f"{type(error).__name__}: {error}")
    except Exception as error:
        _fail(
            error,
            options,
            f"internal error, {type(error).__name__}: {error}\n"
            "This is a mistake in eqsatad. --debug before the command prints the traceback.",
        )


def _fail(error: Exception, options: Options, message: str) -> None:
    if options.debug:
        raise error
    print(message, file=sys.stderr)
    raise SystemExit(1) from error


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eqsatad {VERSION}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks with errors.")] = False,
) -> None:
    """Automatic differentiation of tensor operators, simplified through an e-graph."""
    context.obj.debug = debug


Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SHAPE",
        help="Shape of an input: a=64x32, a=n,32 with a symbolic size, a=64x32:float64 "
        "with a dtype (float32 otherwise), s= for a scalar.",
    ),
]
RuleFiles = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="FILE", help="A file or folder of rules, besides the catalog."),
]
Trusted = Annotated[bool, typer.Option("--trusted", help="Use rules without checking them.")]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--size", metavar="NAME=N", help="The number to count and report a size at."),
]


@app.command()
def demo(
    as_json: Json = False,
    seed: Annotated[int, typer.Option(help="Seed of the arrays.")] = 0,
) -> None:
    """Differentiate a strided, dilated, padded convolution with relu and max pooling.

    Shows the loop nests before and after, the rules that fired, the cost, and checks the numbers.
    """
    from eqsatad.demo import run

    if not run(seed=seed, as_json=as_json).passed:
        raise typer.Exit(1)


@app.command()
def grad(
    program: Annotated[str, typer.Argument(help="Statements in index notation, ; between them.")],
    shape: Shapes = None,
    wrt: Annotated[
        str | None, typer.Option(help="Inputs, comma between them; all of them otherwise.")
    ] = None,
    target: Annotated[str, typer.Option(help="cpu, opencl or reference.")] = "cpu",
    cost: Annotated[str | None, typer.Option(help="Cost model; that of the target.")] = None,
    show: Annotated[
        str,
        typer.Option(
            help="Any of gradient, loops, naive, source, steps, report, compare, rules, explain."
        ),
    ] = "gradient,report",
    rules: RuleFiles = None,
    trusted: Trusted = False,
    size: Sizes = None,
    as_json: Json = False,
) -> None:
    """Differentiate a program and show what comes out.

    Example: eqsatad grad "y\\[i] = sum(a\\[i,k]*x\\[k])" --shape a=64x64 --shape x=64
    --wrt a,x --show loops,report
    """
    from eqsatad.pipeline import differentiate
    from eqsatad.terms.text import op

    parts = _choices(show, VIEWS, "--show")
    output = op(program, **_shapes(shape))
    inputs = _inputs(output, wrt)
    with _progress("differentiating and simplifying"):
        gradients = differentiate(
            output, inputs, cost=cost or _model(target), rules=rules, trusted=trusted
        )
    request = Request(output, inputs, gradients, target, _sizes(size))
    with _progress("counting and compiling"):
        views = {part: VIEWS[part](request) for part in parts}
    _print_views(views, as_json)


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
    return View(record, _table(title, ("rule", "matches"), [(n, f"{m:,}") for n, m in fired]))


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


def _print_views(views: Mapping[str, View], as_json: bool) -> None:
    if as_json:
        _print_json({name: view.value for name, view in views.items()})
        return
    for view in views.values():
        _print(view.shown)


@app.command()
def compare(
    items: Annotated[
        list[str],
        typer.Argument(help="Report files (.json), or programs in index notation; two or more."),
    ],
    shape: Shapes = None,
    rules: RuleFiles = None,
    trusted: Trusted = False,
    size: Sizes = None,
    as_json: Json = False,
) -> None:
    """Put cost reports side by side, with ratios against the first.

    Example: eqsatad compare naive.json simplified.json
    """
    from eqsatad.extract.report import compare as side_by_side
    from eqsatad.rules.given import gathered

    with _progress("counting"):
        catalog = gathered(rules, trusted=trusted)
        reports = [_report(item, shape, size, catalog) for item in items]
    both = side_by_side(*reports)
    if as_json:
        _print_json(both.to_dict())
    else:
        _print(both)


def _report(
    item: str, shape: list[str] | None, size: list[str] | None, rules: Catalog
) -> CostReport:
    from eqsatad.counting import report
    from eqsatad.extract.report import CostReport
    from eqsatad.pipeline import build
    from eqsatad.terms.text import op

    if item.endswith(".json"):
        return CostReport.from_json(_read(Path(item)))
    shapes = {n: s for n, s in _shapes(shape).items() if re.search(rf"\b{n}\b", item)}
    kernel = build([op(item, **shapes)], target="reference", rules=rules, trusted=True)
    return report(kernel.loops, _sizes(size), name=item)


@rules_app.command("list")
def list_rules(
    theme: Annotated[str, typer.Option(help="Only this theme, or only names that start so.")] = "",
    as_json: Json = False,
) -> None:
    """List the rules of the catalog by name."""
    from eqsatad.rules.catalog import every_theme

    rows = _described().values()
    chosen = [row for row in rows if theme == row["theme"] or row["name"].startswith(theme)]
    if not chosen:
        raise ArgumentError(
            f"there is no theme {theme!r}, and no rule whose name starts so"
            f"{_close(theme, every_theme())} Themes: {', '.join(every_theme())}."
        )
    if as_json:
        _print_json(chosen)
        return
    cells = [(row["name"], row["before"], row["after"]) for row in chosen]
    _print(_table(_counted(len(chosen), "rule"), ("name", "before", "after"), cells))


def _described() -> dict[str, dict[str, str]]:
    """Every rule as text, by name."""
    from eqsatad.rules.catalog import every_theme
    from eqsatad.rules.describe import describe

    return {
        row.name: {**describe(row), "theme": theme}
        for theme, rows in every_theme().items()
        for row in rows
    }


@rules_app.command("show")
def show_rule(
    name: Annotated[str, typer.Argument(help="A name that `eqsatad rules list` prints.")],
    as_json: Json = False,
) -> None:
    """Show one rule with its conditions."""
    rows = _described()
    if name not in rows:
        raise ArgumentError(
            f"no rule is called {name!r}{_close(name, rows)} `eqsatad rules list` has all."
        )
    if as_json:
        _print_json(rows[name])
        return
    _print("\n".join(f"{key:>9}  {value}" for key, value in rows[name].items() if value))


@rules_app.command("check")
def check_rules(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Files or folders of rules; the whole catalog otherwise."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check rules by machine; a wrong one is printed with a counterexample, and the code is 1.

    Says how each one was proved, and which are redundant or undo each other. Example: eqsatad rules
    check my_rows.py
    """
    from eqsatad.rules.catalog import check_names, every_row, kept, load_file
    from eqsatad.rules.redundant import remarks

    shipped = every_row()
    rows = check_names(row for path in files for row in load_file(path)) if files else shipped
    named = {row.name for row in rows}
    among = (*rows, *(row for row in shipped if row.name not in named))
    with _bar(f"checking {_counted(len(rows), 'rule')}", 2 * len(rows)) as step:
        verdicts = [_verdict(row, step) for row in rows]
        held = [row for row, verdict in zip(rows, verdicts, strict=True) if verdict["holds"]]
        found = remarks(held, among, step)
    for verdict in verdicts:
        said = [remark for remark in found if remark.row == verdict["name"]]
        verdict["remarks"] = [_remark(remark, kept()) for remark in said]
    _print_verdicts(verdicts, as_json)
    if not all(verdict["holds"] for verdict in verdicts):
        raise typer.Exit(1)


def _verdict(row: AnyRow, step: Callable[[], None]) -> dict[str, Any]:
    """Whether ``row`` holds, and how that was proved or why not."""
    from eqsatad.rules.prove import check

    try:
        proof = check(row)
    except EqsatadError as error:
        return {"name": row.name, "holds": False, "detail": str(error), "method": None}
    finally:
        step()
    return {"name": row.name, "holds": True, "detail": str(proof), "method": proof.method}


def _remark(remark: Remark, reasons: Mapping[str, str]) -> str:
    """What is remarkable about a row, with the reason that its file gives for keeping it."""
    reason = reasons.get(remark.row)
    return f"{remark}; kept: {reason}" if reason else str(remark)


def _print_verdicts(verdicts: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    if as_json:
        _print_json(verdicts)
        return
    wrong = [verdict for verdict in verdicts if not verdict["holds"]]
    cells = [
        (v["name"], "holds" if v["holds"] else "WRONG", v["detail"] if v["holds"] else "see below")
        for v in verdicts
    ]
    title = f"{_counted(len(verdicts), 'rule')}, {len(wrong)} refused"
    _print(_table(title, ("name", "verdict", "how"), cells))
    for verdict in wrong:
        _print(verdict["detail"])
    for line in (line for verdict in verdicts for line in verdict["remarks"]):
        _print(line)


@rules_app.command("stats")
def rule_statistics(
    program: Annotated[
        str | None,
        typer.Argument(
            help="Statements in index notation; otherwise operators of the library, and questions "
            "to the simplifier."
        ),
    ] = None,
    shape: Shapes = None,
    wrt: Annotated[
        str | None, typer.Option(help="Inputs, comma between them; all of them otherwise.")
    ] = None,
    rules: RuleFiles = None,
    trusted: Trusted = False,
    size: Sizes = None,
    ablate: Annotated[
        str, typer.Option(help="What to leave out in turn: none, theme or row.")
    ] = "theme",
    save: Annotated[
        Path | None, typer.Option(help="File to keep the answer in; used again if it still fits.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what each rule does in gradients: matches, applications, time, and operations saved.

    Example: eqsatad rules stats "y\\[i] = sum(a\\[i,k]*exp(x\\[k]))" --shape a=64x64 --shape x=64
    --ablate row
    """
    from eqsatad.rules import given
    from eqsatad.rules.catalog import every_row
    from eqsatad.stats import ABLATIONS, gathered, shown
    from eqsatad.subjects import Subject, operators, questions
    from eqsatad.terms.text import op

    _choices(ablate, ABLATIONS, "--ablate")
    catalog = given.gathered(rules, trusted=trusted, default=every_row)
    asked = list(questions()) if program is None else []
    if program is None:
        if shape or wrt or size:
            raise typer.BadParameter("--shape, --wrt and --size belong to a program")
        subjects = list(operators())
    else:
        output = op(program, **_shapes(shape))
        subjects = [Subject(output.name, output, tuple(_inputs(output, wrt)), _sizes(size))]
    found = gathered(
        subjects, catalog, questions=asked, ablate=ablate, progress=_in_turn, saved=save
    )
    if as_json:
        _print_json(asdict(found))
    else:
        _print(shown(found))


def _in_turn(work: Sequence[tuple[str, Callable[[], None]]]) -> None:
    """Runs ``work`` behind a bar that names what is being looked at."""
    with _shown_progress() as progress:
        task = progress.add_task("", total=len(work))
        for name, run in work:
            progress.update(task, description=escape(name))
            run()
            progress.advance(task)


@cache_app.command("show")
def show_cache(as_json: Json = False) -> None:
    """List the entries of the cache with their sizes."""
    from eqsatad import cache

    entries = cache.entries()
    if as_json:
        _print_json([{"key": key, "bytes": size} for key, size in entries])
        return
    total = sum(size for _, size in entries)
    title = f"{_counted(len(entries), 'entry', 'entries')}, {_counted(total, 'byte')}"
    _print(_table(title, ("key", "bytes"), [(key, f"{size:,}") for key, size in entries]))


@cache_app.command("clear")
def clear_cache(as_json: Json = False) -> None:
    """Delete every entry of the cache."""
    from eqsatad import cache

    removed = cache.clear()
    if as_json:
        _print_json({"removed": removed})
    else:
        _print(f"removed {_counted(removed, 'entry', 'entries')}")


@cache_app.command("path")
def cache_path(as_json: Json = False) -> None:
    """Print the directory of the cache."""
    from eqsatad import cache

    path = cache.directory()
    if as_json:
        _print_json({"path": None if path is None else str(path)})
    else:
        print("the cache is off" if path is None else path)


def _inputs(output: Tensor, wrt: str | None) -> list[Tensor]:
    from eqsatad.terms.nodes import FLOATS, Placeholder
    from eqsatad.terms.walk import program

    reached = {tensor.name: tensor for tensor in program([output]) if tensor is not output}
    if wrt is None:
        return [
            tensor
            for tensor in reached.values()
            if isinstance(tensor, Placeholder) and tensor.dtype in FLOATS
        ]
    return [reached[name] for name in _choices(wrt, reached, "--wrt")]


def _choices(text: str, known: Iterable[str], option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in list(known)]:
        raise typer.BadParameter(
            f"{', '.join(unknown)} is not one of {', '.join(known)}{_close(unknown[0], known)}",
            param_hint=option,
        )
    return names


def _close(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name, with those that it may be meant for."""
    close = get_close_matches(name.lower(), known)
    return f"; did you mean {' or '.join(close)}?" if close else "."


def _counted(number: int, what: str, many: str = "") -> str:
    """``1 rule``, ``2 rules``; ``many`` is a plural that takes more than an s."""
    return f"{number:,} {what if number == 1 else many or f'{what}s'}"


def _model(target: str) -> str:
    """The cost model of ``target``."""
    from eqsatad.backends import known

    return "cpu" if known(target) == "reference" else target


SHAPE = re.compile(r"(?P<name>\w+)=(?P<shape>[\w,]*)(?::(?P<dtype>\w+))?")


def _shapes(texts: Sequence[str] | None) -> dict[str, Any]:
    """``NAME=4x5`` and ``NAME=n,5:float64`` as the shapes that `ea.op` takes."""
    shapes: dict[str, Any] = {}
    for text in texts or ():
        if not (match := SHAPE.fullmatch(text.replace(" ", ""))):
            raise typer.BadParameter(
                f"expected NAME=SHAPE as in a=64x32, found {text!r}", param_hint="--shape"
            )
        shape = _extents(match["shape"])
        shapes[match["name"]] = (shape, match["dtype"]) if match["dtype"] else shape
    return shapes


def _extents(text: str) -> tuple[int | str, ...]:
    separator = "x" if re.fullmatch(r"\d+(x\d+)*", text) else ","
    parts = [part for part in text.split(separator) if part]
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _sizes(texts: Sequence[str] | None) -> dict[str, int]:
    sizes = {}
    for text in texts or ():
        name, equals, number = text.partition("=")
        if not equals or not number.isdigit():
            raise typer.BadParameter(
                f"expected NAME=N as in n=64, found {text!r}", param_hint="--size"
            )
        sizes[name] = int(number)
    return sizes


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror}") from error


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Group:
    table = Table()
    for head in heads:
        justify: Literal["left", "right"] = "right" if head in ("matches", "bytes") else "left"
        # What other columns say is wrapped before names are.
        table.add_column(head, justify=justify, overflow="fold", no_wrap=head == heads[0])
    for row in rows:
        table.add_row(*map(Text, row))
    return Group(Text(title), table)


WIDEST = 1000
"""The width that is enough for every table."""


def _print(shown: Any) -> None:
    """Text as it stands (square brackets are indices, not markup), anything else through rich."""
    if isinstance(shown, str):
        print(shown)
        return
    console = Console()
    if not console.is_terminal:  # A file takes lines of any length, so that no word is cut.
        wide = console.options.update(width=WIDEST)
        console.width = max(console.width, console.measure(shown, options=wide).minimum)
    console.print(shown)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


@contextmanager
def _bar(text: str, steps: int) -> Iterator[Callable[[], None]]:
    """A progress bar on the standard error, gone when it is done; gives what moves it on."""
    with _shown_progress() as progress:
        task = progress.add_task(text, total=steps)
        yield lambda: progress.advance(task)


def _shown_progress() -> Progress:
    """Progress on the standard error, shown only when that is a terminal."""
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def _progress(text: str) -> AbstractContextManager[Any]:
    """A spinner on the standard error, shown only when that is a terminal."""
    return Console(stderr=True).status(text)
