"""What was simplified before: in this process, and on disk.

An answer depends on the question (stages up to names, or a whole program), on the catalog, the
cost model and the limits, and on the code that works it out; the key covers them all, so nothing
has to be thrown away by hand. What a limit in time cut short is not kept: it would not be the
same on another day.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from eqsatad import cache
from eqsatad.errors import CacheWarning, StoreError
from eqsatad.extract.cost import CostModel
from eqsatad.rules.algebra import Growth, Limits
from eqsatad.rules.catalog import Catalog, contents
from eqsatad.terms.nodes import Tensor, digest
from eqsatad.terms.store import dump, load

MOST = 4096
"""Answers that a process remembers."""

LAYERS = ("terms", "rules", "extract", "loops")
"""The packages whose code decides what an answer is."""

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


Work = Callable[[], Answer]
_known: dict[tuple[str, str, tuple[Tensor, ...]], Answer] = {}
_lock = Lock()


@dataclass(frozen=True)
class Recall:
    """Answers under one ``context``; without one nothing is remembered."""

    context: str | None

    @staticmethod
    def of(catalog: Catalog, cost: CostModel, limits: Limits) -> Recall:
        """The answers under these rows, prices and limits."""
        if type(cost) is not CostModel:
            # What a class of somebody else computes is not known from its fields.
            return Recall(None)
        prices = replace(cost, calls={}, sizes={})
        tables = sorted(cost.calls.items()), sorted(cost.sizes.items())
        return Recall(digest(code(), contents(catalog), prices, *tables, limits))

    @staticmethod
    def by(catalog: Catalog) -> Recall:
        """The answers that depend on these rows alone."""
        return Recall(digest(code(), contents(catalog)))

    def solve(self, kind: str, question: Sequence[Tensor], work: Work) -> Answer:
        """The answer to ``question``: remembered, or worked out and remembered."""
        if self.context is None:
            return work()
        asked = (self.context, kind, tuple(question))
        if (found := _known.get(asked)) is None:
            key = f"terms-{digest(self.context, kind, *(tensor.key for tensor in question))}"
            found = _fetched(key)
            if found is None:
                found = work()
                if found.steady:
                    _keep(key, found)
            if found.steady:
                _remember(asked, found)
        return found


def forget() -> None:
    """Forgets what this process remembers; the disk is left."""
    with _lock:
        _known.clear()


def _remember(asked: tuple[str, str, tuple[Tensor, ...]], answer: Answer) -> None:
    with _lock:
        while len(_known) >= MOST:
            del _known[next(iter(_known))]
        _known[asked] = answer


def _fetched(key: str) -> Answer | None:
    content = cache.fetch(key)
    if content is None:
        return None
    head, _, terms = content.partition(b"\n")
    try:
        report = json.loads(head)
        report["matches"] = Counter(report["matches"])
        return Answer(tuple(load(terms)), Growth(**report))
    except (StoreError, ValueError, TypeError, KeyError) as error:
        message = f"the cache entry {key} cannot be read ({error}); it is made again"
        warnings.warn(message, CacheWarning, stacklevel=2)
        return None


def _keep(key: str, answer: Answer) -> None:
    if cache.directory() is None:
        return
    head = json.dumps(vars(answer.report))
    cache.keep(key, head.encode() + b"\n" + dump(answer.tensors))


def code() -> str:
    """A digest of the version and of the code that decides what an answer is."""
    return cache.code(*LAYERS)
