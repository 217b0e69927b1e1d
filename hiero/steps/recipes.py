"""Recipes: where are the steps of a list that happen in its order?

A recipe says what is done and in which order; a video shows when. Each line gets one span of nodes, the
spans are in order, and they cover the video except for gaps where no line fits. Dynamic programming finds
the best assignment exactly:

    maximise  Σ_q [ Σ_{i ∈ span q} (gain_qi − μ |xᵢ − mean of span q|²) − k/2 log²(length of span q / usual length) ]
              − β · (length of all gaps) − γ · (number of gaps) − ω · (number of lines left out)

with gain = log (p_qi T), p = softmax(similarity / τ) of a line over the T nodes: 0 is chance. The second
term wants nodes of one step to be alike, so that steps end where `segmentation` would cut. The third is a
prior for steps of equal length, or of the length that a line says ("boil the pasta 8 min"), because a text
that the model does not understand says little. All lengths are in seconds.

The settings were chosen on folds 0 to 2 of `python -m benchmarks.cross_validation table` and on the part `dev` of
`python -m benchmarks.egtea order`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hiero.steps.grounding import TEMPERATURE

LENGTH_WEIGHT = 10.0  # k
COST_WEIGHT = 1.0  # μ
GAP_COST, GAP_START_COST = 3.0, 5.0  # β a second, γ
SKIP_COST = 10.0  # ω
MAX_EDGES = 512  # times at which steps may begin and end
SECONDS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
DURATION = re.compile(r"(?P<text>.*\S)[\s,(]+(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z]+?)s?\.?\)?\s*", re.I)


@dataclass(frozen=True)
class RecipeLine:
    """A line of a recipe: what is done, and how long it takes if the line says so."""

    text: str
    duration_s: float | None = None

    @classmethod
    def parse(cls, line: str) -> RecipeLine:
        """Read a line such as "boil the pasta, 8 min" or "stir (30 seconds)"."""
        found = DURATION.fullmatch(line)
        unit = found and SECONDS.get(found["unit"].lower())
        if not found or not unit or not float(found["number"]):
            return cls(line.strip())
        return cls(found["text"].rstrip(" ,("), float(found["number"]) * unit)


def log_lift(similarity: np.ndarray, temperature: float = TEMPERATURE) -> np.ndarray:
    """log (p T): log-ratio of the probability of each text at each node to chance, (Q, T)."""
    logits = (similarity - similarity.max(1, keepdims=True)) / temperature
    return logits - np.log(np.exp(logits).mean(1, keepdims=True))


def align_in_order(
    gain: np.ndarray,
    nodes: np.ndarray,
    spacing_s: float,
    *,
    lengths_s: Sequence[float | None] = (),
    is_optional: bool = False,
) -> list[tuple[int, int] | None]:
    """The best span of nodes [start, end) for each line, in order and without overlap.

    Spans begin and end at any node, or in long videos at one of MAX_EDGES. `gain` (Q, T) says how well
    each line fits each node, such as `log_lift`. Lines of unknown length share the video equally. If they
    are optional, lines that do not fit get None. Raises ValueError if lines outnumber nodes and are not.
    """
    num, length = gain.shape
    if num > length and not is_optional:
        raise ValueError(f"{num} steps do not fit in order into {length} nodes")
    edges = np.unique(np.linspace(0, length, min(length, max(MAX_EDGES, 2 * num)) + 1).round().astype(int))
    spans_s = (edges[None, :] - edges[:, None]) * spacing_s  # from an edge (row) to a later one (column)
    costs = COST_WEIGHT * spacing_s * _spreads(nodes, edges)
    costs[spans_s <= 0] = np.inf
    logs = np.log(np.maximum(spans_s, spacing_s))
    total = np.zeros((num, length + 1))
    np.cumsum(spacing_s * gain, axis=1, out=total[:, 1:])
    best = np.where(edges == 0, 0.0, -np.inf)  # of the lines so far, the last of which ends at an edge
    steps = []
    for row, usual_s in zip(total[:, edges], _usual_lengths(num, length * spacing_s, lengths_s), strict=True):
        ready, ends = _wait(best, edges * spacing_s)
        scores = (ready - row)[:, None] + row - LENGTH_WEIGHT / 2 * (logs - np.log(usual_s)) ** 2 - costs
        starts = scores.argmax(0)
        ending = scores[starts, np.arange(len(edges))]
        is_skipped = is_optional & (best - SKIP_COST > ending)
        best = np.where(is_skipped, best - SKIP_COST, ending)
        steps.append((starts, ends, is_skipped))
    edge = int(_wait(best, edges * spacing_s)[1][-1])
    spans: list[tuple[int, int] | None] = []
    for starts, ends, is_skipped in reversed(steps):
        if is_skipped[edge]:
            spans.append(None)
        else:
            start = int(starts[edge])
            spans.append((int(edges[start]), int(edges[edge])))
            edge = int(ends[start])
    return spans[::-1]


def _spreads(nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Σ |x − mean|² of the unit vectors between two edges, (E, E)."""
    total = np.concatenate([np.zeros((1, nodes.shape[1])), np.cumsum(nodes.astype(np.float64), 0)])[edges]
    squares = np.concatenate([[0.0], np.cumsum(np.einsum("td,td->t", nodes, nodes, dtype=np.float64))])[edges]
    norms = np.einsum("ed,ed->e", total, total)
    lengths = np.maximum(edges[None, :] - edges[:, None], 1)
    return np.asarray(squares[None] - squares[:, None] - (norms[None] + norms[:, None] - 2 * total @ total.T) / lengths)


def _usual_lengths(num: int, duration_s: float, lengths_s: Sequence[float | None]) -> list[float]:
    """The usual length of each line: what it says, or an equal share of the time that the others leave."""
    given = [length_s for length_s in lengths_s if length_s]
    left_s = max(duration_s - sum(given), 0.1 * duration_s)
    share_s = left_s / max(1, num - len(given))
    return [length_s or share_s for length_s in (lengths_s or [None] * num)]


def _wait(best: np.ndarray, edges_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores after a gap or none, and the edge at which the gap begins."""
    earlier = best + GAP_COST * edges_s
    first = np.maximum.accumulate(earlier)
    begins = np.maximum.accumulate(np.where(earlier >= first, np.arange(len(earlier)), 0))
    waited = first - GAP_COST * edges_s - GAP_START_COST
    is_gap = waited > best
    return np.where(is_gap, waited, best), np.where(is_gap, begins, np.arange(len(best)))
