"""A list of steps that happen in sequence: the best moments for all of them together, in order.

Steps that a recipe or a manual lists come in that order in the video. Each gets a span; spans
follow each other, and what is between them belongs to none. Dynamic programming over the nodes
finds the best such assignment exactly:

    maximise Σ_q Σ_{i ∈ span q} log (pᵩᵢ T),   p = softmax(similarity / τ) over the T nodes, spans in order and not empty

A node counts for a step if it fits it better than chance, 1/T; so spans end by themselves.
"""

from __future__ import annotations

import numpy as np

from hiero.steps.grounding import TEMPERATURE


def align_in_order(similarity: np.ndarray, temperature: float = TEMPERATURE) -> list[tuple[int, int]]:
    """The best span for each text, in order and without overlap."""
    return best_ordered_spans(log_lift(similarity, temperature))


def log_lift(similarity: np.ndarray, temperature: float) -> np.ndarray:
    """log (p T): how much more likely than by chance each text is at each node, (Q, T)."""
    logits = (similarity - similarity.max(1, keepdims=True)) / temperature
    return logits - np.log(np.exp(logits).mean(1, keepdims=True))


def best_ordered_spans(gain: np.ndarray) -> list[tuple[int, int]]:
    """The spans in order that maximise the sum of gains (Q, T) inside them. Raises ValueError if Q > T."""
    num, length = gain.shape
    if num > length:
        raise ValueError(f"{num} steps do not fit in order into {length} nodes")
    # State 2q: before step q (after step q − 1); 2q + 1: inside step q. One node in time a row.
    num_states = 2 * num + 1
    best = np.full(num_states, -np.inf)
    best[0] = 0.0
    jumps = np.zeros((length, num_states), dtype=np.int8)  # how many states back the best path was, a node earlier
    inside = np.arange(1, num_states, 2)
    for i in range(length):
        stay, one, two = best, _shift(best, 1), _shift(best, 2)
        two = np.where(np.arange(num_states) % 2 == 1, two, -np.inf)  # from inside q − 1 straight to inside q
        options = np.stack([stay, one, two])
        jumps[i] = options.argmax(0)
        best = options.max(0)
        best[inside] += gain[:, i]
    state = num_states - 1 if best[-1] > best[-2] else num_states - 2
    path = np.empty(length, dtype=int)
    for i in range(length - 1, -1, -1):
        path[i] = state
        state -= int(jumps[i, state])
    members = (np.flatnonzero(path == 2 * q + 1) for q in range(num))
    return [(int(nodes[0]), int(nodes[-1]) + 1) for nodes in members]


def _shift(row: np.ndarray, by: int) -> np.ndarray:
    return np.concatenate([np.full(by, -np.inf), row[:-by]])
