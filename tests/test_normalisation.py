"""The page about what happens outside the rules says what is done."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from eqsatad.rules.conditions import Conditions, as_condition, pieces
from eqsatad.terms.builders import maximum, minimum
from eqsatad.terms.evaluate import evaluate
from eqsatad.terms.linear import normal
from eqsatad.terms.nodes import Axis, Cast, Const, Expr, Stage
from eqsatad.terms.show import show

PAGE = Path(__file__).parent.parent / "docs" / "normalisation.md"
LINE = re.compile(r"^\| (`.+`) \| (`.+`) \|$", re.MULTILINE)
AXES = tuple(Axis(name, Const(12, "index")) for name in "ijk")
NAMES = {**dict(zip("ijk", AXES, strict=True)), "minimum": minimum, "maximum": maximum}


def table(title: str) -> list[tuple[str, str]]:
    """The lines of the table under a heading of the page."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    lines = LINE.findall(section.partition("\n## ")[0])
    assert lines, title
    return [(written.replace("\\|", "|").strip("`"), after) for written, after in lines]


def values(term: Expr) -> np.ndarray:
    """``term`` at every point of the three axes."""
    (found,) = evaluate([Stage("t", AXES, Cast(term, "int64"))], {})
    return np.asarray(found)


@pytest.mark.parametrize(("written", "after"), table("Index expressions"))
def test_index_has_the_normal_form_of_the_page(written: str, after: str) -> None:
    term = eval(written, dict(NAMES))
    assert f"`{show(normal(term))}`" == after
    np.testing.assert_array_equal(values(term), values(normal(term)))


@pytest.mark.parametrize(("written", "after"), table("Conditions"))
def test_condition_becomes_the_guards_of_the_page(written: str, after: str) -> None:
    cond = eval(written, dict(NAMES))
    parts = [
        [as_condition(guard) for guard in Conditions.of(piece).guards]
        for piece in pieces([cond], frozenset(AXES))
    ]
    assert "; ".join(f"`{' and '.join(map(show, part))}`" for part in parts) == after
    held = [np.logical_and.reduce([values(cond) for cond in part]) for part in parts]
    np.testing.assert_array_equal(values(cond), np.add.reduce(held, dtype="int64"))
    for one, other in itertools.combinations(held, 2):
        assert not (one & other).any()
