"""Steps in order, by trying every assignment."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import numpy as np

from hiero.steps import recipes


def score(gain, nodes, spacing_s, spans, usual_s):
    """What `align_in_order` maximises, for one assignment of spans (None for a line that is left out)."""
    total, last = 0.0, 0
    for row, span, usual in zip(gain, spans, usual_s, strict=True):
        if span is None:
            total -= recipes.SKIP_COST
            continue
        start, end = span
        inside = nodes[start:end]
        total += spacing_s * row[start:end].sum()
        total -= recipes.COST_WEIGHT * spacing_s * ((inside - inside.mean(0)) ** 2).sum()
        total -= recipes.LENGTH_WEIGHT / 2 * np.log((end - start) * spacing_s / usual) ** 2
        total -= gap_cost((start - last) * spacing_s)
        last = end
    return total - gap_cost((gain.shape[1] - last) * spacing_s)


def gap_cost(length_s):
    return recipes.GAP_START_COST + recipes.GAP_COST * length_s if length_s > 0 else 0.0


def best_score(gain, nodes, spacing_s, usual_s, is_optional):
    """The highest score of all assignments."""
    num, length = gain.shape
    best = -np.inf
    for kept in product([True, False], repeat=num) if is_optional else [(True,) * num]:
        for edges in combinations_with_replacement(range(length + 1), 2 * sum(kept)):
            pairs = iter(zip(edges[::2], edges[1::2], strict=True))
            spans = [next(pairs) if each else None for each in kept]
            if all(span is None or span[0] < span[1] for span in spans):
                best = max(best, score(gain, nodes, spacing_s, spans, usual_s))
    return best
