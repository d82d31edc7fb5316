"""Problems up to names, and answers that are remembered: in the process, on disk, or not at all."""

import subprocess
import sys
import warnings

import pytest

import eqsatad as ea
from benchmarks.scale import residual
from eqsatad import cache, library
from eqsatad.errors import CacheWarning
from eqsatad.extract import program as simplification
from eqsatad.extract.cost import COUNT, CPU, CostModel
from eqsatad.extract.problem import Problem
from eqsatad.extract.recall import Answer, Recall, forget
from eqsatad.loops import store
from eqsatad.loops.render import render
from eqsatad.pipeline import lowered
from eqsatad.rules.catalog import contents, load
from eqsatad.rules.collection import NO_ROWS, Collection
from eqsatad.rules.engine import Engine
from eqsatad.rules.growth import Growth, Limits
from eqsatad.terms.nodes import Stage
from eqsatad.terms.store import VERSION, dump
from eqsatad.terms.walk import program


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """An empty cache, and a process that remembers nothing."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    forget()
    yield tmp_path
    forget()


@pytest.fixture
def solved(monkeypatch):
    """The stages that are optimised."""
    found = []
    optimise = simplification.optimise

    def counted(stage, *args, **options):
        found.append(stage)
        return optimise(stage, *args, **options)

    monkeypatch.setattr(simplification, "optimise", counted)
    return found


def scaled_sum(tensor, outer, inner, name):
    """``name[outer] = sum(inner) 3 * tensor[outer, inner]`` under these names."""
    x = ea.placeholder((4, 5), name=tensor)
    k = ea.reduce_axis((0, 5), name=inner)
    body = f"lambda {outer}: total({outer})"  # axes are named like the parameters
    return ea.compute((4,), eval(body, {"total": lambda i: ea.sum(3 * x[i, k], k)}), name=name)


def weights(blocks):
    """The gradients of a residual network."""
    output, inputs = residual(blocks, width=2, size=4)
    return ea.differentiate(output, list(inputs))


def test_names_do_not_make_a_problem():
    first = Problem.of(scaled_sum("x", "i", "k", "y"))
    second = Problem.of(scaled_sum("data", "row", "i", "total"))
    assert first.stage is second.stage


def test_shapes_and_dtypes_make_a_problem():
    problems = {
        Problem.of(ea.compute((n,), ea.placeholder((m,), name="x", dtype=dtype).__getitem__)).stage
        for n, m, dtype in [
            (4, 4, "float64"),
            (5, 5, "float64"),
            (4, 5, "float64"),
            (4, 4, "float32"),
        ]
    }
    assert len(problems) == 4


@pytest.mark.parametrize("name", ["y", "scattered"])
def test_a_problem_answers_in_the_names_of_the_asker(name):
    x, p = ea.placeholder((4,), name="x"), ea.placeholder((6,), name="p", dtype="int32")
    stages = {
        "y": scaled_sum("x", "row", "column", "y"),
        "scattered": ea.scatter((4,), (6,), lambda q: (ea.cast(p[q], "index") % 4, x[q // 2]),
                                name="scattered"),
    }  # fmt: skip
    problem = Problem.of(stages[name])
    assert problem.answer([problem.stage], lambda _: name) == [stages[name]]


def test_equal_layers_are_solved_once(kept, solved):
    weights(3)
    few = len(solved)
    forget()
    cache.clear()
    solved.clear()
    weights(9)
    assert few == len(solved)


def test_an_answer_lies_on_disk(kept, solved):
    first = weights(2)
    forget()
    solved.clear()
    second = weights(2)
    assert solved == []
    assert first.results == second.results
    assert first.saturation.rules == second.saturation.rules


def test_parts_of_a_known_program_are_known(kept, solved):
    weights(3)
    forget()
    solved.clear()
    weights(4)
    assert solved == []


def test_a_disabled_cache_keeps_nothing(kept, solved, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, "")
    weights(2)
    forget()
    again = len(solved)
    weights(2)
    assert len(solved) == 2 * again > 0


def test_damaged_entries_are_reported_and_made_again(kept):
    first = weights(2)
    for path in kept.iterdir():
        path.write_bytes(path.read_bytes()[:-3])
    forget()
    with pytest.warns(CacheWarning, match="damaged"):
        second = weights(2)
    assert first.results == second.results
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights(2)


def test_an_entry_of_another_format_is_reported_and_made_again(kept):
    first = weights(2)
    for key, _ in cache.entries():
        content = cache.fetch(key)
        assert content is not None
        cache.keep(key, content.replace(b"eqsatad-terms %d" % VERSION, b"eqsatad-terms 0"))
    forget()
    with pytest.warns(CacheWarning, match="cannot be read"):
        second = weights(2)
    assert first.results == second.results


def test_what_an_answer_depends_on_is_part_of_the_question():
    catalog, limits = load(), Limits()
    dearer = CostModel(**{**vars(CPU), "calls": {**CPU.calls, "sqrt": 6}})
    contexts = {
        Recall.of(Collection(rows), cost, bounds).context
        for rows, cost, bounds in [
            (catalog, CPU, limits),
            (catalog[1:], CPU, limits),
            (catalog, COUNT, limits),
            (catalog, dearer, limits),
            (catalog, CPU, Limits(rounds=1)),
        ]
    }
    assert len(contexts) == 5
    again = Recall.of(Collection(tuple(catalog)), CPU, Limits())
    assert Recall.of(Collection(catalog), CPU, limits) == again


def test_rows_that_say_the_same_have_the_same_contents():
    assert contents(load()) == contents(tuple(load()))
    assert contents(load()) != contents(load()[:-1])


def test_a_cost_model_of_another_class_is_asked_every_time(kept, solved):
    class Mine(CostModel):
        def function(self, name):
            return 7.0

    x = ea.placeholder((4,), name="x")
    y = ea.compute((4,), lambda i: ea.exp(x[i]) * ea.exp(x[i]), name="y")
    for _ in range(2):
        ea.simplified([y], cost=Mine(**vars(CPU)))
    assert len(solved) == 2
    assert cache.entries() == []


@pytest.mark.parametrize("reason", ["time limit 2 s", "memory limit or crash: killed"])
def test_what_was_cut_short_by_the_machine_is_not_kept(kept, monkeypatch, reason):
    optimise = simplification.optimise
    asked = []

    def interrupted(stage, *args, **options):
        asked.append(stage)
        found = optimise(stage, *args, **options)
        vars(found.report).update(vars(Growth(stopped=reason)))
        return found

    monkeypatch.setattr(simplification, "optimise", interrupted)
    x = ea.placeholder((4,), name="x")
    y = ea.compute((4,), lambda i: ea.exp(x[i]) * ea.exp(x[i]), name="y")
    assert reason in ea.simplified([y]).saturation.stop_reason
    once = len(asked)
    ea.simplified([y])
    assert len(asked) == 2 * once


def test_what_is_remembered_does_not_change_the_result(kept):
    """The programs are the same whether their layers were met before or not."""
    alone = dump(weights(3).results)
    forget()
    cache.clear()
    x = ea.placeholder((2, 2, 4, 4), name="image")
    w = ea.placeholder((2, 2, 3, 3), name="kernel")
    ea.differentiate(library.relu(library.conv2d(x, w, pad=1)), [x, w])
    assert dump(weights(3).results) == alone


def test_work_grows_with_the_stages_only():
    """Twice the blocks are twice the stages of the gradient, none of them larger."""
    small, large = (
        [t for t in program(weights(n).results) if isinstance(t, Stage)] for n in (4, 8)
    )
    assert len(large) <= 2 * len(small) + 4


def test_indices_are_simplified_once(kept, monkeypatch):
    x = ea.placeholder((4, 6), name="x")
    y = ea.compute((24,), lambda i: 2 * x[i // 6, i % 6], name="y")
    first = ea.plan([y]).program
    forget()
    monkeypatch.setattr(Engine, "of", lambda *_: pytest.fail("an engine was made"))
    assert ea.plan([y]).program == first


def test_rows_decide_the_loops_that_are_recalled(kept):
    x = ea.placeholder((4, 6), name="x")
    y = ea.compute((24,), lambda i: 2 * x[i // 6, i % 6], name="y")
    given = (Collection(), Collection(load()[1:]), NO_ROWS)
    assert len({Recall.by(rows).context for rows in given}) == 3
    with_rows, without = (lowered([y], None, rows) for rows in (Collection(), NO_ROWS))
    assert render(with_rows) == render(lowered([y], None, Collection(load())))
    assert render(without) == render(lowered([y], None, NO_ROWS))


def test_inputs_that_are_given_decide_the_loops_that_are_recalled(kept):
    x, z = (ea.placeholder((4,), name=name) for name in "xz")
    y = ea.compute((4,), lambda i: 2 * x[i], name="y")
    for _ in range(2):
        signatures = [ea.plan([y], given).program.inputs for given in (None, [x, z], [z, x])]
        assert signatures == [(x,), (x, z), (z, x)]
        forget()


def test_loops_that_cannot_be_read_are_reported_and_made_again(kept):
    x = ea.placeholder((4, 6), name="x")
    y = ea.compute((24,), lambda i: 2 * x[i // 6, i % 6], name="y")
    first = ea.plan([y]).program
    (key,) = [key for key, _ in cache.entries() if key.startswith("loops-")]
    cache.keep(key, store.dump(first).replace(b'"For"', b'"Four"'))
    forget()
    with pytest.warns(CacheWarning, match="cannot be read"):
        assert ea.plan([y]).program == first


def test_a_second_limit_does_not_hide_that_time_ran_out():
    report = Growth(stopped="node limit 6000: the next round would pass it")
    report.include(Growth(stopped="time limit 2.0 s"))
    assert not Answer((), report).steady


FIRST = """
import sys, numpy as np, eqsatad as ea
x = ea.placeholder((8, 8), name="x")
y = ea.compute((8, 8), lambda i, j: ea.exp(x[i, j]) * x[i, j], name="y")
kernel = ea.differentiate(y).build()
(found,) = kernel(**{name: np.ones((8, 8), "float32") for name in kernel.inputs})
assert np.allclose(found, 2 * np.exp(1.0))
slow = ("rules_catalog.domains", "egglog", "islpy", "eqsatad.extract.program",
        "eqsatad.loops.lower", "eqsatad.backends.cpu.code.source", "platformdirs", "subprocess")
print("loaded in vain:", [name for name in slow if name in sys.modules])
"""


def answers():
    """What is kept, but for digests of code, which wait until the code has not changed for long."""
    return [entry for entry in cache.entries() if not entry[0].startswith("code-")]


def test_processes_share_a_cache_and_a_warm_one_loads_nothing_in_vain(kept):
    def started():
        command = [sys.executable, "-W", "error", "-c", FIRST]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    at_once = [started() for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in at_once]
    before = answers()
    said.append(started().communicate(timeout=120)[0])
    assert all(said)
    assert said[-1].strip() == "loaded in vain: []"
    assert answers() == before
    assert not list(kept.glob("*.part"))
