"""Cost reports: totals, bytes, text and the JSON schema, on counts written by hand."""

from dataclasses import dataclass, fields

import pytest

from eqsatad.errors import ArgumentError
from eqsatad.extract.report import (
    COLUMNS,
    Cost,
    CostReport,
    Counts,
    compare,
    cost_report,
)
from eqsatad.terms.nodes import (
    MAXIMUM,
    TRUE,
    Apply,
    Axis,
    Const,
    Placeholder,
    Read,
    Reduce,
    Size,
    Stage,
)
from eqsatad.terms.ops import ADD, MOD


@dataclass
class Counted:
    """Counts as an interpreter would give them."""

    iterations: int = 0
    multiplications: int = 0
    additions: int = 0
    comparisons: int = 0
    index_divisions: int = 0
    inner_conditions: int = 0
    bound_divisions: int = 0
    memory: int = 0


def number(value: int) -> Const:
    return Const(value, "index")


def row_maxima(columns: int, dtype: str = "float32") -> Stage:
    """``y[i] = max(k) x[i, k]`` over 5 rows."""
    x = Placeholder("x", (number(5), number(columns)), dtype)
    i, k = Axis("i", number(5)), Axis("k", number(columns))
    return Stage("y", (i,), Reduce(MAXIMUM, (k,), TRUE, Read(x, (i, k))))


@pytest.fixture
def report() -> CostReport:
    counts: dict[str, Counts] = {
        "h": Counted(iterations=20, multiplications=20, memory=20),
        "y": Counted(iterations=20, comparisons=20, memory=5),
    }
    return cost_report("rows", counts, sizes={"n": 4})


def test_columns_are_the_numbers_of_a_cost():
    names = {field.name for field in fields(Cost)}
    assert names == {column.name for column in COLUMNS} | {"seconds"}


def test_total_is_the_sum_of_the_stages(report):
    total = report.total
    assert (total.iterations, total.multiplications, total.comparisons) == (40, 20, 20)
    assert total.memory == 25


def test_stages_keep_their_order(report):
    assert list(report.stages) == ["h", "y"]


def test_seconds_of_the_run_are_the_total(report):
    assert report.total.seconds is None
    assert cost_report("timed", dict(report.stages), seconds=0.5).total.seconds == 0.5


def test_costs_add_their_measured_seconds():
    assert (Cost(seconds=1.0) + Cost() + Cost(seconds=0.5)).seconds == 1.5


@pytest.mark.parametrize(
    ("dtype", "read", "written"),
    [("float64", 5 * 4 * 8, 40), ("float32", 5 * 4 * 4, 20), ("float16", 40, 10), ("bool", 20, 5)],
)
def test_bytes_are_elements_times_their_width(dtype, read, written):
    stage = row_maxima(4, dtype)
    cost = cost_report("r", {"y": Counted(memory=5)}, [stage], outputs=[stage]).total
    assert (cost.bytes_read, cost.bytes_written) == (read, written)


def test_bytes_read_are_no_more_than_the_points_read():
    x = Placeholder("x", (number(100),), "float32")
    i = Axis("i", number(3))
    stage = Stage("y", (i,), Read(x, (i,)))
    assert cost_report("r", {"y": Counted(memory=3)}, [stage]).total.bytes_read == 12


def test_bytes_read_are_no_more_than_the_tensor():
    x = Placeholder("x", (number(2),), "float32")
    i = Axis("i", number(50))
    stage = Stage(
        "y", (i,), Apply(ADD, (Read(x, (number(0),)), Read(x, (Apply(MOD, (i, number(2))),))))
    )
    assert cost_report("r", {"y": Counted(memory=50)}, [stage]).total.bytes_read == 8


def test_temporaries_are_the_stages_that_are_not_outputs():
    stage = row_maxima(4)
    counts = {"y": Counted(memory=5)}
    assert cost_report("kept", counts, [stage], outputs=[stage]).total.temporaries == 0
    assert cost_report("temporary", counts, [stage]).total.temporaries == 5


def test_symbolic_sizes_take_the_given_numbers():
    n = Size("n")
    x = Placeholder("x", (n,), "float32")
    i = Axis("i", n)
    stage = Stage("y", (i,), Read(x, (i,)))
    counts = {"y": Counted(memory=7)}
    assert cost_report("r", counts, [stage], sizes={"n": 7}).total.bytes_read == 28
    with pytest.raises(ArgumentError, match="size n"):
        cost_report("r", counts, [stage])


def test_intensity_is_operations_per_byte():
    assert Cost(multiplications=30, additions=10, bytes_read=20).intensity == 2
    assert Cost(multiplications=30).intensity is None


def test_json_round_trip(report):
    text = report.to_json()
    assert CostReport.from_json(text) == report
    assert CostReport.from_json(text).to_json() == text


def test_json_states_schema_sizes_and_estimates(report):
    record = report.to_dict()
    assert (record["schema"], record["version"]) == ("eqsatad.cost-report", 1)
    assert record["sizes"] == {"n": 4}
    assert record["estimates"] == ["bytes_read", "bytes_written"]
    assert record["total"]["iterations"] == 40
    assert [stage["name"] for stage in record["stages"]] == ["h", "y"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("not json", "expected the JSON of a cost report"),
        ("[]", "expected a cost report"),
        ('{"schema": "other", "version": 1}', "found schema 'other'"),
        ('{"schema": "eqsatad.cost-report", "version": 2}', "version 2"),
    ],
)
def test_json_of_something_else_is_refused(text, complaint):
    with pytest.raises(ArgumentError, match=complaint):
        CostReport.from_json(text)


def test_text_has_stages_total_and_only_columns_with_something_in_them(report):
    lines = report.render().splitlines()
    assert "rows at n=4" in lines[0]
    assert [line.split()[1] for line in lines if line.startswith("│")] == ["h", "y", "total"]
    assert "multiplications" in report.render()
    assert "index divisions" not in report.render()


def test_table_has_seconds_only_when_they_were_measured(report):
    assert "seconds" not in [str(column.header) for column in report.table().columns]
    timed = cost_report("timed", dict(report.stages), seconds=0.25)
    assert str(timed.table().columns[-1].header) == "seconds"
    assert list(timed.table().columns[-1].cells) == ["", "", "0.25"]


def test_estimates_are_labelled_in_the_text():
    stage = row_maxima(4)
    text = cost_report("r", {"y": Counted(memory=5)}, [stage]).table().columns
    titles = [str(column.header) for column in text]
    assert "bytes read (estimate)" in titles


def test_notes_are_printed(report):
    noted = CostReport(report.name, report.stages, notes=("copied x",))
    assert noted.render().splitlines()[-1] == "note: copied x"


def test_comparison_ratios_say_how_many_times_less():
    naive = CostReport("naive", {"y": Cost(iterations=100, multiplications=50, comparisons=3)})
    lean = CostReport("lean", {"y": Cost(iterations=10, multiplications=50)})
    both = compare(naive, lean)
    assert both.ratio("iterations", lean) == 10
    assert both.ratio("multiplications", lean) == 1
    assert both.ratio("memory", lean) == 1
    assert both.ratio("comparisons", lean) is None
    assert both.to_dict()["ratios"][0]["iterations"] == 10


def test_comparison_text_has_a_line_per_quantity():
    naive = CostReport("naive", {"y": Cost(iterations=1_000, multiplications=50)}, seconds=2.0)
    lean = CostReport("lean", {"y": Cost(iterations=100, multiplications=0)}, seconds=1.0)
    text = compare(naive, lean).render()
    rows = {
        line.split("│")[1].strip(): line.split("│")[2:-1]
        for line in text.splitlines()
        if line.startswith("│")
    }
    assert [cell.strip() for cell in rows["iterations"]] == ["1,000", "100", "10.00"]
    assert [cell.strip() for cell in rows["multiplications"]] == ["50", "0", "all"]
    assert [cell.strip() for cell in rows["seconds"]] == ["2", "1", "2.00"]


def test_comparison_takes_two_reports_or_more(report):
    with pytest.raises(ArgumentError, match="two cost reports or more, got 1"):
        compare(report)
