"""Short steps given to their neighbours, one at a time, all lengths looked at again after each."""

from __future__ import annotations

import numpy as np


def plain_merge_short_steps(x: np.ndarray, boundaries: list[int], min_nodes: int) -> list[int]:
    """As `merge_short_steps`."""
    boundaries = list(boundaries)

    def mean(i: int) -> np.ndarray:
        value = x[boundaries[i] : boundaries[i + 1]].astype(float).mean(0)
        return value / max(float(np.linalg.norm(value)), 1e-12)

    while len(boundaries) > 2:
        lengths = np.diff(boundaries)
        i = int(lengths.argmin())
        if lengths[i] >= min_nodes:
            break
        before = float(mean(i) @ mean(i - 1)) if i > 0 else -np.inf
        after = float(mean(i) @ mean(i + 1)) if i + 2 < len(boundaries) else -np.inf
        boundaries.pop(i if before >= after else i + 1)
    return boundaries
