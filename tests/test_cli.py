"""The command line: what each command prints as text and as JSON, and how it fails."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eqsatad.cli import main
from eqsatad.extract.report import Cost, CostReport

DENSE = ["y[i] = sum(a[i,k]*x[k])", "--shape", "a=6x5", "--shape", "x=5"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EQSATAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture
def call(capsys):
    """Runs a command line; gives its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def call_json(call):
    """Runs a command line with ``--json`` that works; gives what it printed."""

    def run(*arguments: str):
        code, out, err = call(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return run


def test_version_is_that_of_the_package(call):
    code, out, _ = call("--version")
    assert code == 0
    assert out.startswith("eqsatad 0.")


@pytest.mark.parametrize(
    "command",
    [[], ["demo"], ["grad"], ["compare"], ["rules", "list"], ["rules", "show"], ["rules", "check"],
     ["rules", "stats"],
     ["cache", "show"], ["cache", "clear"], ["cache", "path"]],
    ids=" ".join,
)  # fmt: skip
def test_help_tells_the_json_option(call, command):
    code, out, _ = call(*command, "--help")
    assert code == 0
    assert "--debug" in out if not command else "--json" in out


@pytest.mark.parametrize(
    "command",
    [
        ["nonsense"],
        ["grad"],
        ["grad", *DENSE, "--nonsense"],
        ["grad", *DENSE, "--show", "nonsense"],
        ["grad", *DENSE, "--wrt", "b"],
        ["grad", "y[i] = a[i]", "--shape", "a"],
        ["grad", "y[i] = a[i]", "--shape", "a=3", "--size", "n"],
        ["rules", "show"],
    ],
    ids=" ".join,
)
def test_wrong_command_line_is_code_2(call, command):
    code, out, err = call(*command)
    assert code == 2
    assert out == ""
    assert "Usage" in err or "Invalid value" in err


def test_unknown_view_is_answered_with_the_known_ones(call):
    _, _, err = call("grad", *DENSE, "--show", "lops")
    assert "lops is not one of" in err
    assert "loops" in err


def test_wrong_input_is_code_1_and_one_message(call):
    code, out, err = call("grad", "y[i] = a[i,k]", "--shape", "a=3x4")
    assert code == 1
    assert out == ""
    assert "Error: " in err
    assert "Traceback" not in err


def test_debug_gives_the_traceback():
    command = [sys.executable, "-m", "eqsatad", "--debug", "compare", "missing.json", "b.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "cannot read missing.json" in done.stderr


def test_mistake_of_our_own_is_called_one(call, monkeypatch):
    monkeypatch.setattr("eqsatad.cli._report", lambda *_: 1 / 0)
    code, _, err = call("compare", "a.json", "b.json")
    assert code == 1
    assert "internal error, ZeroDivisionError" in err
    assert "Traceback" not in err


# demo


def test_demo_finds_everything_right(call_json):
    record = call_json("demo", "--seed", "3")
    assert record["passed"] is True
    assert "cpu" in [check["target"] for check in record["checks"]]
    counts = record["multiplications"]
    assert counts["conv"] == counts["x_bar"] == counts["w_bar"] > 0
    naive, simplified = (report["total"] for report in record["costs"]["reports"])
    assert simplified["multiplications"] < naive["multiplications"]


def test_demo_shows_nests_rules_and_costs():
    command = [sys.executable, "-m", "eqsatad", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for part in ("as they are derived", "After simplification", "solve-", "times less", "agrees"):
        assert part in done.stdout


# compare


def saved(folder: Path, name: str, iterations: int) -> str:
    path = folder / f"{name}.json"
    report = CostReport(name, {"y": Cost(iterations=iterations, memory=4)})
    path.write_text(report.to_json(), encoding="utf-8")
    return str(path)


def test_compare_prints_saved_reports_side_by_side(call, tmp_path):
    code, out, _ = call("compare", saved(tmp_path, "naive", 100), saved(tmp_path, "lean", 25))
    assert code == 0
    assert "naive" in out
    assert "lean" in out
    assert "4.00" in out


def test_compare_as_json_has_the_ratios(call_json, tmp_path):
    paths = [saved(tmp_path, "naive", 100), saved(tmp_path, "lean", 25)]
    record = call_json("compare", *paths)
    assert record["ratios"][0]["iterations"] == 4
    assert [report["name"] for report in record["reports"]] == ["naive", "lean"]


def test_compare_counts_programs(call_json):
    dense = "y[i] = sum(a[i,k]*x[k])"
    record = call_json("compare", dense, "z[i] = a[i,0]", *DENSE[1:])
    assert record["reports"][0]["total"]["multiplications"] == 30
    assert record["reports"][1]["total"]["multiplications"] == 0


def test_compare_of_one_report_is_refused(call, tmp_path):
    code, _, err = call("compare", saved(tmp_path, "lonely", 1))
    assert code == 1
    assert "two cost reports or more" in err


# grad


def test_grad_prints_what_is_asked_for(call):
    code, out, err = call("grad", *DENSE, "--show", "gradient,loops,report")
    assert code == 0, err
    assert "a_bar" in out
    assert "x_bar" in out
    assert "for " in out
    assert "multiplications" in out


def test_grad_with_respect_to_some_inputs(call):
    _, out, _ = call("grad", *DENSE, "--wrt", "x", "--show", "gradient")
    assert "x_bar" in out
    assert "a_bar" not in out


def test_grad_report_counts_the_gradient(call_json):
    record = call_json("grad", *DENSE, "--show", "report")
    # a_bar is an outer product and x_bar a matrix-vector product: 6*5 multiplications each.
    assert record["report"]["total"]["multiplications"] == 60


def test_grad_compare_is_never_worse_than_the_derived_program(call_json):
    program = ["y[i] = sum(x[2*i+u]*w[u])", "--shape", "x=21", "--shape", "w=3"]
    reports = call_json("grad", *program, "--show", "compare")["compare"]["reports"]
    assert [report["name"] for report in reports] == ["as derived", "simplified"]
    naive, simplified = (report["total"] for report in reports)
    assert all(naive[name] >= simplified[name] for name in ("iterations", "multiplications"))
    assert naive["iterations"] > simplified["iterations"]


def test_grad_source_is_that_of_the_target(call):
    _, out, _ = call("grad", *DENSE, "--show", "source", "--target", "cpu")
    assert "define " in out


@pytest.mark.parametrize(("shown", "meant"), [("comparee", "compare"), ("loop", "loops")])
def test_grad_of_an_unknown_view_offers_close_ones(call, shown, meant):
    code, _, err = call("grad", *DENSE, "--show", shown)
    assert code == 2
    assert f"did you mean {meant}?" in " ".join(err.replace("│", "").split())


def test_grad_names_targets_where_none_is_known_by_that_name(call):
    code, _, err = call("grad", *DENSE, "--target", "tpu")
    assert code == 1
    assert "no target 'tpu'" in err


def test_grad_with_an_unknown_target(call):
    code, _, err = call("grad", *DENSE, "--show", "source", "--target", "tpu")
    assert code == 1
    assert "cpu" in err


def test_grad_rules_says_what_fired_and_why_it_stopped(call_json):
    program = ["y[i] = sum(x[3*i+u]*w[u])", "--shape", "x=31", "--shape", "w=5"]
    record = call_json("grad", *program, "--show", "rules")["rules"]
    assert record["stop_reason"]
    assert record["seconds"] >= 0
    assert sum(record["matches"].values()) > 0


def test_grad_at_a_symbolic_size(call_json):
    record = call_json(
        "grad", "y[i] = x[i]*x[i]", "--shape", "x=n,", "--size", "n=7", "--show", "report"
    )
    assert record["report"]["sizes"] == {"n": 7}
    assert record["report"]["total"]["memory"] == 7


def test_grad_in_another_dtype(call):
    _, out, _ = call("grad", "y[i] = x[i]*x[i]", "--shape", "x=3:float64", "--show", "source")
    assert "double" in out


# rules


def test_rules_list_has_every_theme(call_json):
    names = [row["name"] for row in call_json("rules", "list")]
    assert len(names) == len(set(names))
    assert {"solve-unit", "sum-factor"} <= set(names)


def test_rules_list_of_one_theme(call_json):
    names = [row["name"] for row in call_json("rules", "list", "--theme", "solve-")]
    assert "solve-unit" in names
    assert all(name.startswith("solve-") for name in names)


def test_rules_list_takes_a_theme_by_its_name(call_json):
    names = [row["name"] for row in call_json("rules", "list", "--theme", "guards")]
    assert "range-holds" in names
    assert {row["theme"] for row in call_json("rules", "list", "--theme", "guards")} == {"guards"}


def test_tables_in_files_cut_no_name(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    _, out, _ = call("rules", "list", "--theme", "algebra")
    assert "plus-commutes" in out


def test_rules_list_of_an_unknown_theme_offers_close_ones(call):
    code, out, err = call("rules", "list", "--theme", "domain")
    assert (code, out) == (1, "")
    assert "did you mean domains?" in err


def test_rules_show_prints_both_sides(call):
    code, out, _ = call("rules", "show", "solve-unit")
    assert code == 0
    assert "k + x == 0" in out
    assert "k = -x" in out


def test_rules_show_of_an_unknown_name_offers_close_ones(call):
    code, _, err = call("rules", "show", "solve-unitt")
    assert code == 1
    assert "solve-unit" in err


WRONG_ROWS = '''"""Rows for a test."""

from eqsatad.rules.rule import m, rewrite, x

ROWS = (rewrite("floor-dropped", x // m, x, m > 1),)
'''


def test_rules_check_refuses_a_wrong_row_with_a_counterexample(call, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(WRONG_ROWS, encoding="utf-8")
    code, out, _ = call("rules", "check", str(path))
    assert code == 1
    assert out.startswith("1 rule, 1 refused")
    assert "floor-dropped" in out
    assert "WRONG" in out


def test_rules_check_prints_the_counterexample_as_it_is_on_narrow_terminals(
    call, tmp_path, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "40")
    path = tmp_path / "mine.py"
    path.write_text(WRONG_ROWS, encoding="utf-8")
    _, out, _ = call("rules", "check", str(path))
    assert "\n  before: x // m, which is " in out


def test_rules_check_passes_a_right_row(call_json, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(WRONG_ROWS.replace("x, m > 1", "x // m, m > 1"), encoding="utf-8")
    (verdict,) = call_json("rules", "check", str(path))
    assert verdict["name"] == "floor-dropped"
    assert verdict["holds"] is True


# cache


def test_cache_is_filled_shown_and_cleared(call, call_json, tmp_path):
    assert call_json("cache", "path") == {"path": str(tmp_path / "cache")}
    assert call_json("cache", "show") == []
    assert call("grad", *DENSE, "--show", "source")[0] == 0
    entries = call_json("cache", "show")
    assert entries
    assert all(entry["bytes"] > 0 for entry in entries)
    assert call_json("cache", "clear") == {"removed": len(entries)}
    assert call_json("cache", "show") == []
