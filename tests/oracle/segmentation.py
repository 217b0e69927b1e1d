"""What the best steps minimise, written out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hiero.steps.segmentation import LENGTH_PRIOR, centre_and_normalise


def segmentation_cost(x: np.ndarray, boundaries: list[int], length_prior: float = LENGTH_PRIOR) -> float:
    """Squared distances of nodes (T, D) from the mean of their step, and the prior on the lengths of steps."""
    x = centre_and_normalise(x.astype(np.float64))
    usual = len(x) / (len(boundaries) - 1)
    return sum(
        float(((x[a:b] - x[a:b].mean(0)) ** 2).sum()) + length_prior * usual * float(np.log((b - a) / usual) ** 2)
        for a, b in pairwise(boundaries)
    )
