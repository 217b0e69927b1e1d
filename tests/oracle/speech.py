"""Speech evidence, node by node."""

from __future__ import annotations

import numpy as np


def spread_windows(cosines: np.ndarray, spans: np.ndarray, num_nodes: int, silence: float) -> np.ndarray:
    """Of each text and node the largest value of the windows that hold the node."""
    out = np.empty((len(cosines), num_nodes))
    for q in range(len(cosines)):
        for node in range(num_nodes):
            values = [cosines[q, w] for w, (start, end) in enumerate(spans) if start <= node < end]
            out[q, node] = max([silence, *values])
    return out


def distinct_spans(spans: np.ndarray, scores: np.ndarray, num: int, max_overlap: float) -> list[int]:
    """One after the other, each compared with all that were chosen."""
    chosen: list[int] = []
    for i in sorted(range(len(spans)), key=lambda i: -scores[i]):
        shares = [
            len(set(range(*spans[i])) & set(range(*spans[j]))) / min(len(range(*spans[i])), len(range(*spans[j])))
            for j in chosen
        ]
        if len(chosen) < num and all(share < max_overlap for share in shares):
            chosen.append(i)
    return chosen
