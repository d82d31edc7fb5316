"""What was simplified before: in this process, and on disk.

An answer depends on the question (stages up to names, or a whole program), on the catalog, the
cost model and the limits, and on the code and the tools that work it out; the key covers them all,
so nothing has to be thrown away by hand. What a limit in time cut short is not kept: it would not
be the same on another day. Others keep what they make of programs here too, see `Form`.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Generic, TypeVar

from eqsatad import cache
from eqsatad.errors import CacheWarning, StoreError
from eqsatad.extract.cost import CostModel
from eqsatad.rules.collection import Collection
from eqsatad.rules.growth import Growth, Limits
from eqsatad.rules.installed import versions
from eqsatad.terms.nodes import Tensor, digest
from eqsatad.terms.store import dump, load

MOST = 4096
"""Answers that a process remembers."""

LAYERS = ("terms", "rules", "extract", "loops")
"""The packages whose code decides what an answer is."""

TOOLS = ("egglog", "islpy")
"""The packages whose work an answer is, besides ours."""

UNSTEADY = ("time limit", "crash")
"""Why a search stops that would stop elsewhere in another run."""


@dataclass(frozen=True)
class Answer:
    """Tensors that are the same as those asked about, and what it took to find them."""

    tensors: tuple[Tensor, ...]
    report: Growth

    @property
    def steady(self) -> bool:
        """Whether the same question gives the same answer in every run."""
        return not any(reason in self.report.stopped for reason in UNSTEADY)


Found = TypeVar("Found")


@dataclass(frozen=True)
class Form(Generic[Found]):
    """How what was found is kept: ``name`` for its keys, as bytes and back, and if at all."""

    name: str
    dump: Callable[[Found], bytes]
    load: Callable[[bytes], Found]
    steady: Callable[[Found], bool] = lambda found: True


def _dumped(answer: Answer) -> bytes:
    return json.dumps(vars(answer.report)).encode() + b"\n" + dump(answer.tensors)


def _loaded(content: bytes) -> Answer:
    head, _, terms = content.partition(b"\n")
    report = json.loads(head)
    report["matches"] = Counter(report["matches"])
    return Answer(tuple(load(terms)), Growth(**report))


ANSWERS = Form("terms", _dumped, _loaded, lambda answer: answer.steady)

_known: dict[tuple[str, str, tuple[Tensor, ...]], Any] = {}
_lock = Lock()


@dataclass(frozen=True)
class Recall:
    """Answers under one ``context``; without one nothing is remembered."""

    context: str | None

    @staticmethod
    def of(rules: Collection, cost: CostModel, limits: Limits) -> Recall:
        """The answers under these rows, prices and limits."""
        if type(cost) is not CostModel:
            # What a class of somebody else computes is not known from its fields.
            return Recall(None)
        prices = replace(cost, calls={}, sizes={})
        tables = sorted(cost.calls.items()), sorted(cost.sizes.items())
        return Recall(digest(code(), rules.contents, prices, *tables, limits))

    @staticmethod
    def by(rules: Collection) -> Recall:
        """The answers that depend on these rows alone."""
        return Recall(digest(code(), rules.contents))

    def solve(self, kind: str, question: Sequence[Tensor], work: Callable[[], Answer]) -> Answer:
        """The answer to ``question``: remembered, or worked out and remembered."""
        return self.found(ANSWERS, kind, question, work)

    def found(
        self, form: Form[Found], kind: str, question: Sequence[Tensor], work: Callable[[], Found]
    ) -> Found:
        """What ``work`` gives for ``question``, remembered in this form."""
        if self.context is None:
            return work()
        asked = (self.context, kind, tuple(question))
        found: Found | None = _known.get(asked)
        if found is None:
            key = f"{form.name}-{digest(self.context, kind, *(t.key for t in question))}"
            found = _fetched(key, form)
            if found is None:
                found = work()
                if form.steady(found) and cache.directory() is not None:
                    cache.keep(key, form.dump(found))
            if form.steady(found):
                _remember(asked, found)
        return found


def forget() -> None:
    """Forgets what this process remembers; the disk is left."""
    with _lock:
        _known.clear()


def _remember(asked: tuple[str, str, tuple[Tensor, ...]], found: object) -> None:
    with _lock:
        while len(_known) >= MOST:
            del _known[next(iter(_known))]
        _known[asked] = found


def _fetched(key: str, form: Form[Found]) -> Found | None:
    content = cache.fetch(key)
    if content is None:
        return None
    try:
        return form.load(content)
    except (StoreError, ValueError, TypeError, KeyError) as error:
        message = f"the cache entry {key} cannot be read ({error}); it is made again"
        warnings.warn(message, CacheWarning, stacklevel=2)
        return None


def code() -> str:
    """A digest of the versions and of the code that decide what an answer is."""
    return digest(cache.code(*LAYERS), *versions(*TOOLS))
