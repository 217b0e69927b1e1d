"""TW-FINCH's last step, with every mean computed anew after each merge."""

from __future__ import annotations

import numpy as np


def merge_closest(x: np.ndarray, labels: np.ndarray, num: int) -> np.ndarray:
    """Labels (T,) of nodes x (T, D) after merging the closest pair of clusters until `num` are left."""
    times = np.arange(1, len(x) + 1) / len(x)
    while len(set(labels.tolist())) > num:
        clusters = list(dict.fromkeys(labels.tolist()))
        means = [x[labels == c].astype(np.float64).sum(0) / (labels == c).sum() for c in clusters]
        unit = np.array([(mean / max(np.linalg.norm(mean), 1e-12)) for mean in means])
        when = np.array([times[labels == c].mean() for c in clusters])
        distance = np.clip(1 - unit @ unit.T, 0, 2) * np.abs(when[:, None] - when[None])
        np.fill_diagonal(distance, np.inf)
        a, b = np.unravel_index(distance.argmin(), distance.shape)
        labels = np.where(labels == clusters[b], clusters[a], labels)
    return labels
