"""Slow, obviously right versions of what heads compute: one span, one moment, one pair at a time."""

from __future__ import annotations

import math

import numpy as np
import torch


def attend_locally(query, key, value, mask, reach):
    """Each moment by itself."""
    out = torch.zeros_like(value)
    batch, heads, length, size = query.shape
    for b in range(batch):
        for h in range(heads):
            for i in range(length):
                near = [j for j in range(max(0, i - reach), min(length, i + reach + 1)) if mask[b, j]]
                if near:
                    scores = torch.stack([query[b, h, i] @ key[b, h, j] / math.sqrt(size) for j in near]).softmax(0)
                    out[b, h, i] = sum(s * value[b, h, j] for s, j in zip(scores, near, strict=True))
    return out


def soft_nms(spans, scores, labels, sigma, min_score, max_spans):
    """The best span of a class, then lower scores for the others, and again."""
    selected = []
    for label in sorted(set(labels.tolist())):
        rows = zip(spans, scores, labels, strict=True)
        remaining = [[*map(float, span), float(score)] for span, score, row_label in rows if row_label == label]
        while remaining:
            best = max(remaining, key=lambda row: row[2])
            if best[2] < min_score:
                break
            remaining.remove(best)
            selected.append((*best, label))
            for row in remaining:
                intersection = max(0.0, min(row[1], best[1]) - max(row[0], best[0]))
                union = (row[1] - row[0]) + (best[1] - best[0]) - intersection
                row[2] *= math.exp(-((intersection / max(union, 1e-9)) ** 2) / sigma)
    return sorted(selected, key=lambda row: -row[2])[:max_spans]


def assign_targets(points, spans, labels, config):
    """For each moment, one at a time, the step that it belongs to."""
    num_levels = config.num_levels
    class_targets = np.zeros((len(spans), len(points), config.num_classes))
    distances = np.zeros((len(spans), len(points), 2))
    for b in range(len(spans)):
        for m, (position, stride) in enumerate(points.tolist()):
            level = int(math.log2(stride))
            low = 0.0 if level == 0 else 2 * stride
            high = math.inf if level == num_levels - 1 else 4 * stride
            best = math.inf
            for (start, end), label in zip(spans[b].tolist(), labels[b].tolist(), strict=True):
                centre = (start + end) / 2
                radius = config.centre_radius * stride
                near_centre = max(centre - radius, start) < position < min(centre + radius, end)
                fits_level = low <= max(position - start, end - position) <= high
                if label >= 0 and near_centre and fits_level and end - start < best:
                    best = end - start
                    class_targets[b, m] = 0
                    class_targets[b, m, label] = 1
                    distances[b, m] = position - start, end - position
    return class_targets, distances


def diou(predicted, target):
    """1 − IoU + (distance of centres / hull)² of two spans around 0, given by their distances to it."""
    a, b = (-predicted[0], predicted[1]), (-target[0], target[1])
    intersection = max(0.0, min(a[1], b[1]) - max(a[0], b[0]))
    union = (a[1] - a[0]) + (b[1] - b[0]) - intersection
    hull = max(a[1], b[1]) - min(a[0], b[0])
    return 1 - intersection / union + (((a[0] + a[1]) / 2 - (b[0] + b[1]) / 2) / hull) ** 2


def focal(logit, positive, alpha=0.25, gamma=2.0):
    """−α_t (1 − p_t)^γ log p_t of one class."""
    p = 1 / (1 + math.exp(-logit))
    p_t, a_t = (p, alpha) if positive else (1 - p, 1 - alpha)
    return -a_t * (1 - p_t) ** gamma * math.log(p_t)


def top_spans(start, end, num_spans):
    """(probability, first, last) of all pairs, sorted."""
    p, q = torch.softmax(start, 0).tolist(), torch.softmax(end, 0).tolist()
    pairs = [(p[i] * q[j], i, j) for i in range(len(p)) for j in range(i, len(q))]
    return sorted(pairs, key=lambda pair: -pair[0])[:num_spans]
