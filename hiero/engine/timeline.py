"""Timeline: the nodes of a video and its seconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hiero.types import Clock, Match, Step


class Timeline:
    """The nodes of a video on a clock. The last one ends with the video."""

    def __init__(self, clock: Clock, num_nodes: int, duration_s: float) -> None:
        self.clock, self.num_nodes, self.duration_s = clock, num_nodes, duration_s

    def level_spans(self, level: Sequence[Step]) -> np.ndarray:
        """The nodes [start, end) of each step of a level, (N, 2)."""
        spans = [self.clock.span(step.start_s, step.end_s, self.num_nodes) for step in level]
        return np.array(spans, dtype=int).reshape(-1, 2)

    def make_match(self, span: np.ndarray, probability: float) -> Match:
        """Convert a span of nodes [start, end) to a match in seconds."""
        start, end = (int(i) for i in span)
        start_s = self.clock.edge_s(start)
        end_s = self.duration_s if end == self.num_nodes else self.clock.edge_s(end)
        return Match(start_s, max(end_s, start_s), probability)
