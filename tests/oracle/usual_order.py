"""Slow, obviously right versions of the order statistics."""

from __future__ import annotations

import itertools
import math


def precedence(times):
    """By counting, pair by pair and video by video."""
    num = len(times[0])
    return [[sum(1 for row in times if row[a] < row[b]) for b in range(num)] for a in range(num)]


def num_inversions(times, order):
    """Pairs of an order that are the other way round in a video, over all videos."""
    return sum(1 for row in times for a, b in itertools.combinations(order, 2) if row[b] < row[a])


def best_inversions(times):
    """The fewest inversions of any order, by trying all."""
    return min(num_inversions(times, order) for order in itertools.permutations(range(len(times[0]))))


def omissions(times, min_share):
    """(video, activity) that at least two and a share of the other videos have, and this one has not."""
    out = set()
    for video, row in enumerate(times):
        others = [other for i, other in enumerate(times) if i != video]
        for activity, time in enumerate(row):
            num = sum(1 for other in others if not math.isnan(other[activity]))
            if math.isnan(time) and num >= 2 and num >= min_share * len(others):
                out.add((video, activity))
    return out


def conflicts(times, video, min_majority, min_videos):
    """Pairs (a, b) that come in this order here, and the other way round in most other videos that have both."""
    out = set()
    others = [row for i, row in enumerate(times) if i != video]
    for a, b in itertools.permutations(range(len(times[0])), 2):
        if times[video][a] < times[video][b]:
            usual = sum(1 for row in others if row[b] < row[a])
            num = usual + sum(1 for row in others if row[a] < row[b])
            if num >= min_videos and usual >= min_majority * num:
                out.add((a, b))
    return out
