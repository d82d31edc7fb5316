"""The command line: gradients, cost reports, rules and the cache, without writing Python.

Every command prints text for people, or JSON with ``--json``. Results go to the standard output;
progress and errors go to the standard error. Exit codes: 0 it worked, 1 the input was wrong (one
message, a traceback only with ``--debug``), 2 the command line was wrong.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsatad.arguments import (
    Inputs,
    Json,
    RuleFiles,
    Shapes,
    Sizes,
    Trusted,
    choices,
    close_to,
    content,
    inputs_of,
    shapes_of,
    sizes_of,
)
from eqsatad.errors import ArgumentError, EqsatadError
from eqsatad.terminal import bar, counted, in_turn, say, say_json, table, waiting
from eqsatad.version import VERSION
from eqsatad.views import VIEWS, Request

if TYPE_CHECKING:
    from eqsatad.extract.report import CostReport
    from eqsatad.rules.catalog import AnyRow, Catalog
    from eqsatad.rules.redundant import Remark

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
    wrt: Inputs = None,
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

    parts = choices(show, VIEWS, "--show")
    output = op(program, **shapes_of(shape))
    inputs = inputs_of(output, wrt)
    with waiting("differentiating and simplifying"):
        gradients = differentiate(
            output, inputs, cost=cost or _model(target), rules=rules, trusted=trusted
        )
    request = Request(output, inputs, gradients, target, sizes_of(size))
    with waiting("counting and compiling"):
        views = {part: VIEWS[part](request) for part in parts}
    if as_json:
        say_json({name: view.value for name, view in views.items()})
        return
    for view in views.values():
        say(view.shown)


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

    with waiting("counting"):
        catalog = gathered(rules, trusted=trusted)
        reports = [_report(item, shape, size, catalog) for item in items]
    both = side_by_side(*reports)
    if as_json:
        say_json(both.to_dict())
    else:
        say(both)


def _report(
    item: str, shape: list[str] | None, size: list[str] | None, rules: Catalog
) -> CostReport:
    from eqsatad.counting import report
    from eqsatad.extract.report import CostReport
    from eqsatad.pipeline import build
    from eqsatad.terms.text import op

    if item.endswith(".json"):
        return CostReport.from_json(content(Path(item)))
    shapes = {n: s for n, s in shapes_of(shape).items() if re.search(rf"\b{n}\b", item)}
    kernel = build([op(item, **shapes)], target="reference", rules=rules, trusted=True)
    return report(kernel.loops, sizes_of(size), name=item)


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
            f"{close_to(theme, every_theme())} Themes: {', '.join(every_theme())}."
        )
    if as_json:
        say_json(chosen)
        return
    cells = [(row["name"], row["before"], row["after"]) for row in chosen]
    say(table(counted(len(chosen), "rule"), ("name", "before", "after"), cells))


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
            f"no rule is called {name!r}{close_to(name, rows)} `eqsatad rules list` has all."
        )
    if as_json:
        say_json(rows[name])
        return
    say("\n".join(f"{key:>9}  {value}" for key, value in rows[name].items() if value))


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
    with bar(f"checking {counted(len(rows), 'rule')}", 2 * len(rows)) as step:
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
        say_json(verdicts)
        return
    wrong = [verdict for verdict in verdicts if not verdict["holds"]]
    cells = [
        (v["name"], "holds" if v["holds"] else "WRONG", v["detail"] if v["holds"] else "see below")
        for v in verdicts
    ]
    title = f"{counted(len(verdicts), 'rule')}, {len(wrong)} refused"
    say(table(title, ("name", "verdict", "how"), cells))
    for verdict in wrong:
        say(verdict["detail"])
    for line in (line for verdict in verdicts for line in verdict["remarks"]):
        say(line)


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
    wrt: Inputs = None,
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

    choices(ablate, ABLATIONS, "--ablate")
    catalog = given.gathered(rules, trusted=trusted, default=every_row)
    asked = list(questions()) if program is None else []
    if program is None:
        if shape or wrt or size:
            raise typer.BadParameter("--shape, --wrt and --size belong to a program")
        subjects = list(operators())
    else:
        output = op(program, **shapes_of(shape))
        subjects = [Subject(output.name, output, tuple(inputs_of(output, wrt)), sizes_of(size))]
    found = gathered(
        subjects, catalog, questions=asked, ablate=ablate, progress=in_turn, saved=save
    )
    if as_json:
        say_json(asdict(found))
    else:
        say(shown(found))


@cache_app.command("show")
def show_cache(as_json: Json = False) -> None:
    """List the entries of the cache with their sizes."""
    from eqsatad import cache

    entries = cache.entries()
    if as_json:
        say_json([{"key": key, "bytes": size} for key, size in entries])
        return
    total = sum(size for _, size in entries)
    title = f"{counted(len(entries), 'entry', 'entries')}, {counted(total, 'byte')}"
    say(table(title, ("key", "bytes"), [(key, f"{size:,}") for key, size in entries]))


@cache_app.command("clear")
def clear_cache(as_json: Json = False) -> None:
    """Delete every entry of the cache."""
    from eqsatad import cache

    removed = cache.clear()
    if as_json:
        say_json({"removed": removed})
    else:
        say(f"removed {counted(removed, 'entry', 'entries')}")


@cache_app.command("path")
def cache_path(as_json: Json = False) -> None:
    """Print the directory of the cache."""
    from eqsatad import cache

    path = cache.directory()
    if as_json:
        say_json({"path": None if path is None else str(path)})
    else:
        print("the cache is off" if path is None else path)


def _model(target: str) -> str:
    """The cost model of ``target``."""
    from eqsatad.backends import known

    return "cpu" if known(target) == "reference" else target
