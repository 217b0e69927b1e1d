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


def same_moments(span: tuple[int, int], steps: list[tuple[int, int]]) -> list[bool]:
    """One node at a time: steps mostly inside the span, and the shortest that contains most of it."""
    nodes = set(range(*span))
    common = [len(nodes & set(range(*step))) for step in steps]
    lengths = [end - start for start, end in steps]
    shortest = min((length for length, c in zip(lengths, common, strict=True) if 2 * c >= len(nodes)), default=0)
    return [
        (2 * c >= length <= len(nodes)) or (2 * c >= len(nodes) and length == shortest)
        for length, c in zip(lengths, common, strict=True)
    ]
