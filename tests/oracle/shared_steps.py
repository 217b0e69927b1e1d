"""Shared steps by trying every assignment of the steps of each recording."""

from __future__ import annotations

import itertools
import statistics

import numpy as np


def share_steps(vectors, places, num, place_weight):
    """Labels of the steps of each recording, in the usual order; starts from every recording."""
    vectors = [[row / np.linalg.norm(row) for row in rows] for rows in vectors]
    order = sorted(range(len(vectors)), key=lambda i: -len(vectors[i]))
    results = [_from_start(vectors, places, i, num, place_weight) for i in order]
    labels, _ = min(results, key=lambda result: result[1])
    used = sorted({label for row in labels for label in row})
    usual = {
        k: statistics.median(
            p for row, ps in zip(labels, places, strict=True) for label, p in zip(row, ps, strict=True) if label == k
        )
        for k in used
    }
    ranked = sorted(used, key=lambda k: usual[k])
    return [[ranked.index(label) for label in row] for row in labels]


def _from_start(vectors, places, start, num, place_weight):
    steps = [(x, p) for rows, ps in zip(vectors, places, strict=True) for x, p in zip(rows, ps, strict=True)]
    shared = list(zip(vectors[start], places[start], strict=True))
    while len(shared) < min(num, len(steps)):
        free = [s for s in steps if not any(s[0] is other[0] for other in shared)]
        shared.append(min(free, key=lambda s: max(float(s[0] @ x) for x, _ in shared)))
    labels = None
    for _ in range(20):
        new, total = [], 0.0
        for rows, ps in zip(vectors, places, strict=True):
            cost = [
                [1 - float(x @ y) + place_weight * abs(p - q) for y, q in shared] for x, p in zip(rows, ps, strict=True)
            ]
            options = itertools.permutations(range(len(shared)), len(rows))
            best = min(options, key=lambda option: sum(row[k] for row, k in zip(cost, option, strict=True)))
            new.append(list(best))
            total += sum(row[k] for row, k in zip(cost, best, strict=True))
        if new == labels:
            break
        labels = new
        for k in {label for row in labels for label in row}:
            members = [s for s, label in zip(steps, itertools.chain(*labels), strict=True) if label == k]
            mean = sum(x for x, _ in members)
            shared[k] = mean / np.linalg.norm(mean), statistics.median(p for _, p in members)
    return labels, total
