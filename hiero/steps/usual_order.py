"""The usual order of activities in several videos, and where a video departs from it.

Each video orders the activities that it has. What is usual for a video follows from the others: the
video itself is left out, so that an unusual one is not its own example.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MIN_SHARE = 0.8  # share of the other videos that must have an activity to report its absence
MIN_VIDEOS = 3  # other videos that must have both activities for their order to count
MIN_MAJORITY = 0.8  # share of these videos that must agree on the order


@dataclass(frozen=True)
class Omission:
    """An activity that most other videos have and this one lacks."""

    video: int
    activity: int
    share: float


@dataclass(frozen=True)
class Displacement:
    """An activity at an unusual position."""

    video: int
    activity: int
    earlier_than: tuple[int, ...]
    later_than: tuple[int, ...]


def precedence(times: np.ndarray) -> np.ndarray:
    """Number of videos in which one activity comes before another, (A, A)."""
    with np.errstate(invalid="ignore"):
        return np.asarray((times[:, :, None] < times[:, None, :]).sum(0))


def usual_order(times: np.ndarray) -> list[int]:
    """Activities in the order with the fewest reversed pairs in the videos (Kemeny).

    The search starts with the order of mean ranks (Borda) and moves one activity at a time while
    that helps.
    """
    before = precedence(times).astype(np.float64)
    both = before + before.T
    borda = (before / np.maximum(both, 1)).sum(1) / np.maximum((both > 0).sum(1), 1)
    places = np.array([np.nanmean(column) if np.isfinite(column).any() else np.inf for column in times.T])
    order = sorted(range(times.shape[1]), key=lambda a: (-borda[a], places[a], a))
    preference = before - before.T  # gain if the row comes before the column
    is_better = True
    while is_better:
        is_better = False
        for position in range(len(order)):
            activity = order[position]
            rest = order[:position] + order[position + 1 :]
            # Cost of each position relative to the first one
            cost = np.concatenate([[0.0], np.cumsum(preference[activity, rest])])
            best = int(cost.argmin())
            if cost[best] < cost[position] - 1e-9:
                rest.insert(best, activity)
                order, is_better = rest, True
    return order


def number_by_place(labels: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Number groups in their usual order, that of their median positions, from their labels (N,)."""
    used, labels = np.unique(labels, return_inverse=True)
    usual_places = [float(np.median(places[labels == label])) for label in range(len(used))]
    rank = np.argsort(np.argsort(usual_places, kind="stable"), kind="stable")
    return np.asarray(rank[labels])


def find_omissions(times: np.ndarray, min_share: float = MIN_SHARE) -> list[Omission]:
    """Activities that are missing in each video."""
    is_present = np.isfinite(times)
    num_others = len(times) - 1
    out = []
    for video, activity in np.argwhere(~is_present).tolist():
        num = int(is_present[:, activity].sum())
        if num >= 2 and num >= min_share * num_others:
            out.append(Omission(video, activity, num / num_others))
    return sorted(out, key=lambda omission: (omission.video, -omission.share, omission.activity))


def find_displacements(
    times: np.ndarray, min_majority: float = MIN_MAJORITY, min_videos: int = MIN_VIDEOS
) -> list[Displacement]:
    """Activities at unusual positions in each video: few activities without which its order is as usual.

    Two activities conflict if their order is the reverse of that in most other videos that have
    both. The activity with the most conflicts is removed until there are none.
    """
    before = precedence(times)
    out = []
    for video, row in enumerate(times):
        with np.errstate(invalid="ignore"):
            here = row[:, None] < row[None, :]
        others = before - here
        both = others + others.T
        # In this video the row comes first, usually the column.
        conflict = here & (both >= min_videos) & (min_majority * both <= others.T)
        open_ = conflict | conflict.T
        while open_.any():
            activity = int(open_.sum(1).argmax())
            earlier = tuple(np.flatnonzero(conflict[activity] & open_[activity]).tolist())
            later = tuple(np.flatnonzero(conflict[:, activity] & open_[activity]).tolist())
            out.append(Displacement(video, activity, earlier, later))
            open_[activity], open_[:, activity] = False, False
    return out
