"""What a row did, of whichever kind it is: the one record that all runners of rows fill in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Work:
    """Matches, those of them that led to something, e-nodes that were made, seconds.

    ``applied``, ``nodes`` and ``seconds`` are those of the row alone, on what all rows had made
    before: a node that two rows make counts for both.
    """

    matches: int = 0
    applied: int = 0
    nodes: int = 0
    seconds: float = 0.0

    def include(self, other: Work) -> None:
        """Adds what was done elsewhere."""
        self.matches += other.matches
        self.applied += other.applied
        self.nodes += other.nodes
        self.seconds += other.seconds
