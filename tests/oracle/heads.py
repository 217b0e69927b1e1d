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


def soft_nms(spans, scores, labels, sigma, min_score, most):
    kept = []
    for label in sorted(set(labels.tolist())):
        left = [[*map(float, span), float(score)] for span, score, own in zip(spans, scores, labels, strict=True) if own == label]
        while left:
            best = max(left, key=lambda row: row[2])
            if best[2] < min_score:
                break
            left.remove(best)
            kept.append((*best, label))
            for row in left:
                inter = max(0.0, min(row[1], best[1]) - max(row[0], best[0]))
                union = (row[1] - row[0]) + (best[1] - best[0]) - inter
                row[2] *= math.exp(-((inter / max(union, 1e-9)) ** 2) / sigma)
    return sorted(kept, key=lambda row: -row[2])[:most]


def assign(places, spans, labels, config):
    """For each moment, one at a time, the step that it stands for."""
    num_levels = config.num_levels
    truth = np.zeros((len(spans), len(places), config.num_classes))
    wanted = np.zeros((len(spans), len(places), 2))
    for b in range(len(spans)):
        for m, (at, stride) in enumerate(places.tolist()):
            level = int(math.log2(stride))
            low = 0.0 if level == 0 else 2 * stride
            high = math.inf if level == num_levels - 1 else 4 * stride
            best = math.inf
            for (start, end), label in zip(spans[b].tolist(), labels[b].tolist(), strict=True):
                centre = (start + end) / 2
                inside = max(centre - config.centre_radius * stride, start) < at < min(centre + config.centre_radius * stride, end)
                if label >= 0 and inside and low <= max(at - start, end - at) <= high and end - start < best:
                    best = end - start
                    truth[b, m] = 0
                    truth[b, m, label] = 1
                    wanted[b, m] = at - start, end - at
    return truth, wanted


def diou(found, wanted):
    """1 − IoU + (distance of centres / hull)² of two spans around 0, given by their distances to it."""
    a, b = (-found[0], found[1]), (-wanted[0], wanted[1])
    inter = max(0.0, min(a[1], b[1]) - max(a[0], b[0]))
    union = (a[1] - a[0]) + (b[1] - b[0]) - inter
    hull = max(a[1], b[1]) - min(a[0], b[0])
    return 1 - inter / union + (((a[0] + a[1]) / 2 - (b[0] + b[1]) / 2) / hull) ** 2


def focal(logit, truth, alpha=0.25, gamma=2.0):
    p = 1 / (1 + math.exp(-logit))
    p_t, a_t = (p, alpha) if truth else (1 - p, 1 - alpha)
    return -a_t * (1 - p_t) ** gamma * math.log(p_t)


def best_spans(start, end, num):
    p, q = torch.softmax(start, 0).tolist(), torch.softmax(end, 0).tolist()
    pairs = [(p[i] * q[j], i, j) for i in range(len(p)) for j in range(i, len(q))]
    return sorted(pairs, key=lambda pair: -pair[0])[:num]
