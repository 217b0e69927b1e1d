"""HiERO-StepG, the extension of the method for step grounding (2026): all texts of a video in their order.

similarity on two levels ─► one node for each text, in order ─► further peaks ─► windows around the peaks

Numbers are those of its authors' code. In the files of the benchmark, the order of the texts is that of the steps.
"""

from __future__ import annotations

import numpy as np

from hiero.evaluation.cases import Case, TextEmbeddings
from hiero.steps.grounding import nms, thread_runs
from hiero.vectors import unit_vectors

FINE_WEIGHT = 0.7  # of the nodes of level 0; the rest is that of the runs of level 2
NUM_THREADS = 16
MIN_RUN_NODES = 2
NO_RUN = -1.0  # similarity of nodes outside of all runs
SLACK_S = 1.0  # by which a text may come before the previous one
NUM_PEAKS, PEAK_DISTANCE, BOUND_MARGIN = 15, 5, 2  # distances in nodes
WINDOW_SHARES = (0.5, 0.6, 0.4)  # of the similarity of the peak, down to which a window grows
MAX_THRESHOLD = 0.4
PATIENCE = 3  # nodes below the threshold that a window may contain in a row
REACH = 150  # nodes on each side of a peak
MIN_WINDOW_S = 2.0
NUM_WINDOWS, MAX_IOU = 5, 0.65


def ground_all_in_order(case: Case, embeddings: TextEmbeddings, random_state: int = 0) -> list[np.ndarray]:
    """Up to five spans in seconds for each text of a case; the first ones are in the order of the true steps."""
    order = np.argsort(case.spans_s[:, 0], kind="stable")
    texts = embeddings([case.texts[i] for i in order])[1]
    spacing_s = case.video.clock.spacing_s
    fine = texts @ unit_vectors(case.projected).T
    fused = fuse_levels(fine, texts, case.deep_projected, random_state)
    path = monotone_path(fused, int(SLACK_S / spacing_s))
    bounds = [0, *path, fused.shape[1] - 1]
    out: list[np.ndarray] = [np.zeros((0, 2))] * len(order)
    for i, peak in enumerate(path):
        between = max(0, bounds[i] - BOUND_MARGIN), bounds[i + 2] + BOUND_MARGIN + 1
        peaks = find_peaks(fused[i], peak, between)
        windows = np.array([grow_window(fine[i], each, share) for each in peaks for share in WINDOW_SHARES])
        lengths = windows[:, 1] - windows[:, 0]
        windows += np.maximum(MIN_WINDOW_S / spacing_s - lengths, 0.0)[:, None] / 2 * [-1, 1]
        windows[:, 0] = np.maximum(windows[:, 0], 0.0)
        chosen, _ = nms(windows, -np.arange(len(windows), dtype=float), NUM_WINDOWS, MAX_IOU)
        out[order[i]] = case.to_seconds(windows[chosen])
    return out


def fuse_levels(fine: np.ndarray, texts: np.ndarray, deep: np.ndarray, random_state: int = 0) -> np.ndarray:
    """Similarity of texts with nodes (Q, T) and with the runs of threads of a coarser level (T', E), as (Q, T)."""
    runs = thread_runs(deep, NUM_THREADS, min_nodes=MIN_RUN_NODES, random_state=random_state)
    if not len(runs):
        return fine
    coarse, scale = np.full_like(fine, NO_RUN), fine.shape[1] / len(deep)
    for start, end in runs:
        coarse[:, int(start * scale) : int(end * scale)] = (texts @ unit_vectors(deep[start:end].mean(0)))[:, None]
    return FINE_WEIGHT * fine + (1 - FINE_WEIGHT) * coarse


def monotone_path(similarity: np.ndarray, slack: int) -> list[int]:
    """One node for each row of (Q, T), at most `slack` nodes before that of the row above, with the largest sum."""
    nodes = np.arange(similarity.shape[1])
    reach = np.minimum(nodes + slack, len(nodes) - 1)
    best, origins = similarity[0], []
    for row in similarity[1:]:
        is_highest = best >= np.maximum.accumulate(best)
        origin = np.maximum.accumulate(np.where(is_highest, nodes, 0))[reach]
        origins.append(origin)
        best = row + best[origin]
    path = [int(best.argmax())]
    for origin in reversed(origins):
        path.append(int(origin[path[-1]]))
    return path[::-1]


def find_peaks(row: np.ndarray, first: int, bounds: tuple[int, int]) -> list[int]:
    """Nodes with high similarity: the first one, others between its neighbours, then those of the whole video."""
    peaks = [first]
    for start, end in (bounds, (0, len(row))):
        part = row[start:end].copy()
        for _ in range(NUM_PEAKS):
            if not np.isfinite(part).any():
                break
            best = int(part.argmax())
            part[max(0, best - PEAK_DISTANCE) : best + PEAK_DISTANCE + 1] = -np.inf
            if all(abs(start + best - peak) > PEAK_DISTANCE for peak in peaks):
                peaks.append(start + best)
    return peaks


def grow_window(row: np.ndarray, peak: int, share: float) -> tuple[float, float]:
    """The window [start, end) of nodes around a peak that are at least as similar as a share of it."""
    is_similar = row >= max(min(share * row[peak], MAX_THRESHOLD), 0.0)
    before = _num_grown(is_similar[max(0, peak - REACH) : peak][::-1])
    return float(peak - before), float(peak + 1 + _num_grown(is_similar[peak + 1 : peak + 1 + REACH]))


def _num_grown(is_similar: np.ndarray) -> int:
    """The number of nodes up to the last similar one, before too many others in a row."""
    end = 0
    for i in np.flatnonzero(is_similar):
        if i - end > PATIENCE:
            break
        end = int(i) + 1
    return end
