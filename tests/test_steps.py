"""What a kernel says of its steps."""

import json

import pytest

import eqsatad as ea
from eqsatad.backends.cpu.tiles.kinds import TESTS, Kind
from eqsatad.cli import main
from eqsatad.errors import BackendError


def place(name, *shape):
    return ea.placeholder(shape, name=name)


def over(extent, name="k"):
    return ea.reduce_axis((0, extent), name=name)


def product():
    a, b, k = place("A", 64, 96), place("B", 96, 80), over(96)
    return ea.compute((64, 80), lambda i, j: ea.sum(a[i, k] * b[k, j], axis=k), name="C")


def row_sums():
    a, k = place("A", 64, 96), over(96)
    return ea.compute((64,), lambda i: ea.sum(a[i, k] * a[i, k], axis=k), name="S")


def scaled():
    a = place("A", 64, 96)
    return ea.compute((64, 96), lambda i, j: a[i, j] * 2.0, name="Y")


def neighbours():
    a = place("A", 64, 98)
    return ea.compute((64, 96), lambda i, j: a[i, j] + a[i, j + 1] - a[i, j + 2], name="Y")


def long_rows():
    a = place("A", 9, 1000)
    return ea.compute(
        (9, 1000), lambda i, j: a.get(i, j) + a.get(i - 1, j) - a.get(i, j + 1), name="Y"
    )


def transposed():
    a = place("A", 64, 96)
    return ea.compute((96, 64), lambda i, j: a[j, i], name="Y")


def running():
    a = place("A", 64, 96)
    k = over(96)
    return ea.compute((64, 96), lambda i, j: ea.sum(a[i, k], axis=k, where=k <= j), name="Y")


def single():
    a = place("A", 4)
    return ea.compute((1,), lambda i: a[i + 1] * a[i + 2], name="Y")


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (product, Kind.CONTRACTION, "serves several results"),
        (row_sums, Kind.REDUCTION, "serves one result"),
        (scaled, Kind.MAP, "no sums"),
        (neighbours, Kind.STENCIL, "A is read in 3 places"),
        (long_rows, Kind.STENCIL, "A is read in 3 places"),
        (transposed, Kind.COPY, "but stored along"),
        (running, Kind.SCAN, "needs the one before it"),
        (single, Kind.REST, "independent"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_kind_and_reason(make, kind, words):
    report = ea.build([make()]).report()
    found = {step.kind: step.reason for step in report.steps}
    assert words in found[kind]


def test_scatter():
    rows, places = place("E", 50, 16), ea.placeholder((200,), name="I", dtype="int64")
    y = ea.compute((200, 16), lambda i, j: rows[places[i], j], name="Y")
    (gradient,) = ea.differentiate(y, [rows], head=place("H", 200, 16))
    assert Kind.SCATTER in {step.kind for step in ea.build([gradient]).report().steps}


def test_rows():
    x, k, m = place("X", 40, 100), over(100), over(100, "m")
    top = ea.compute((40,), lambda i: ea.max(x[i, m], axis=m), name="top")
    total = ea.compute((40,), lambda i: ea.sum(ea.exp(x[i, k] - top[i]), axis=k), name="total")
    y = ea.compute((40, 100), lambda i, j: ea.exp(x[i, j] - top[i]) / total[i], name="Y")
    (step,) = ea.build([y]).report().steps
    assert step.kind == Kind.ROWS
    assert "3 passes" in step.reason


def test_every_kind_has_a_test():
    assert list(TESTS) == list(Kind)


def test_a_tile_is_spelled_out():
    (step,) = (step for step in ea.build([product()]).report().steps if step.writes == ("C",))
    assert "lanes" in step.run
    assert step.sizes == ""


def test_steps_for_some_sizes_say_which():
    n = ea.size("n")
    a, b, k = place("A", n, n), place("B", n, n), over(n)
    c = ea.compute((n, n), lambda i, j: ea.sum(a[i, k] * b[k, j], axis=k), name="C")
    report = ea.build([c]).report()
    assert any("n" in step.sizes for step in report.steps)
    assert "sizes" in str(report)


def test_equal_steps_are_one_line():
    report = ea.build([single()]).report()
    twice = type(report)(report.cpu, report.steps * 2, ("said",))
    assert "(2 steps)" in str(twice)
    assert str(twice).endswith("note: said")


def test_plain_values():
    record = json.loads(ea.build([scaled()]).report().to_json())
    assert record["schema"] == "eqsatad.kernel-report"
    assert record["steps"][0]["writes"] == ["Y"]


def test_only_kernels_with_loops_for_the_cpu_are_reported(tmp_path):
    with pytest.raises(BackendError, match="only cpu kernels can be reported"):
        ea.build([scaled()], target="reference").report()
    kernel = ea.build([scaled()])
    kernel.save(tmp_path / "k.kernel")
    with pytest.raises(BackendError, match="no loops to report"):
        ea.load_kernel(tmp_path / "k.kernel").report()


def test_command_line_shows_steps(capsys):
    shapes = ["--shape", "a=64x64", "--shape", "x=64"]
    arguments = ["grad", "y[i] = sum(a[i,k]*x[k])", *shapes, "--wrt", "x", "--show", "steps"]
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            main([*arguments, *more])
        assert not ended.value.code
    table, record = capsys.readouterr().out.split("{", 1)
    assert "steps on" in table
    assert json.loads("{" + record)["steps"]["steps"]
