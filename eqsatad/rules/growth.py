"""When an e-graph stops growing, and what happened until then: plain values, quick to import."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """When to stop growing; reaching one is reported and the best so far is used.

    ``isolate`` says whether the search runs in a process that can be killed, which is the only
    way to keep ``seconds`` when one step runs away. By default it does for rows that do not come
    with eqsatad, for higher limits than these, and for large terms.
    """

    nodes: int = 6_000
    rounds: int = 6
    seconds: float = 2.0
    isolate: bool | None = None


@dataclass
class Growth:
    """What happened while an e-graph grew."""

    nodes: int = 0
    rounds: int = 0
    seconds: float = 0.0
    stopped: str = "nothing to gain"
    matches: Counter[str] = field(default_factory=Counter)

    def include(self, other: Growth) -> None:
        """Adds what happened in another e-graph."""
        self.nodes = max(self.nodes, other.nodes)
        self.rounds = max(self.rounds, other.rounds)
        self.seconds += other.seconds
        self.matches.update(other.matches)
        if "limit" not in self.stopped:
            self.stopped = other.stopped
        elif "limit" in other.stopped and other.stopped not in self.stopped:
            self.stopped = f"{self.stopped}; {other.stopped}"
