"""Names: the names that people gave to steps, as evidence for answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hiero.networks.minilm import encode_minilm
from hiero.steps import calibration
from hiero.types import Match, Step

MIN_NAME_PROBABILITY = 0.3  # of a name that is shown as the reason for an answer


@dataclass(frozen=True)
class ComparedNames:
    """The names of steps compared with queries: cosines (Q, K) at the spans of the steps (K, 2)."""

    steps: Sequence[Step]
    cosines: np.ndarray
    spans: np.ndarray
    similarities: tuple[tuple[np.ndarray, float], ...] = ()  # names say nothing about single nodes

    @classmethod
    def compare(cls, steps: Sequence[Step], spans: np.ndarray, queries: Sequence[str]) -> ComparedNames:
        cosines = encode_minilm(list(queries)) @ encode_minilm([step.label or "" for step in steps]).T
        return cls(steps, cosines, spans)

    def probability(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probability that the name at each span means each query, (Q, N); twice, because it is that of its moment."""
        out = np.zeros((len(self.cosines), len(spans)))
        for k, j in enumerate(self._positions(spans)):
            out[:, j] = np.maximum(out[:, j], calibration.spoken(self.cosines[:, k]))
        return out, out

    def certain(self, spans: np.ndarray) -> np.ndarray:
        """Whether a name makes each span an answer to each query whatever else is known, (Q, N)."""
        return np.asarray(self.probability(spans)[0] > MIN_NAME_PROBABILITY)

    def explain(self, match: Match, query: int, span: np.ndarray, shown: tuple[float, float]) -> Match | None:
        """The match with the name as its reason, if that is the strongest; `shown` is what pictures tell of it."""
        here = np.flatnonzero((self.spans == span).all(1))
        if not len(here):
            return None
        probability = calibration.spoken(self.cosines[query, here].max())
        if probability <= max(MIN_NAME_PROBABILITY, shown[1]):
            return None
        return replace(match, rests_on="name", quote=self.steps[here[self.cosines[query, here].argmax()]].label)

    def _positions(self, spans: np.ndarray) -> np.ndarray:
        return np.asarray((spans == self.spans[:, None]).all(2).argmax(1))
