"""Names: the names that people gave to steps, as evidence for answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hiero.engine.answers import Compared
from hiero.networks.minilm import encode_minilm
from hiero.steps import calibration
from hiero.types import Match, Step

MIN_NAME_PROBABILITY = 0.3  # of a name that is shown as the reason for an answer


class ComparedNames(Compared):
    """The names of steps compared with queries: cosines (Q, K) at the spans of the steps (K, 2)."""

    def __init__(self, steps: Sequence[Step], spans: np.ndarray, queries: Sequence[str]) -> None:
        super().__init__(queries, spans)
        self.steps = steps
        self.cosines = encode_minilm(list(queries)) @ encode_minilm([step.label or "" for step in steps]).T

    def probability(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probability that the name at each span means each query, (Q, N); twice, because it is that of its moment."""
        out = np.zeros((len(self.cosines), len(spans)))
        for k, j in enumerate((spans == self.spans[:, None]).all(2).argmax(1)):
            out[:, j] = np.maximum(out[:, j], calibration.probability(self.cosines[:, k], calibration.SPOKEN))
        return out, out

    def certain(self, spans: np.ndarray) -> np.ndarray:
        return np.asarray(self.probability(spans)[0] > MIN_NAME_PROBABILITY)

    def explain(self, match: Match, query: int, span: np.ndarray, shown: tuple[float, float]) -> Match | None:
        here = np.flatnonzero((self.spans == span).all(1))
        if not len(here):
            return None
        best = here[self.cosines[query, here].argmax()]
        probability = calibration.probability(self.cosines[query, best], calibration.SPOKEN)
        if probability <= max(MIN_NAME_PROBABILITY, shown[1]):
            return None
        return replace(match, rests_on="name", quote=self.steps[best].label)
