"""The order in which activities usually come, from videos that all have some of them; and where a
video departs from it.

A video says of two activities which came first. What is usual for a video is what the others say:
it is left out itself, so that an odd one is not its own example.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MIN_SHARE = 0.8  # of the other videos that have an activity, from which on its absence is worth a word
MIN_VIDEOS = 3  # others that must have both of two activities before their order counts
MIN_MAJORITY = 0.8  # of these that agree on the order


@dataclass(frozen=True)
class Omission:
    """An activity that most other videos have and this one does not."""

    video: int
    activity: int
    share: float


@dataclass(frozen=True)
class Displacement:
    """An activity that comes at another place than usual."""

    video: int
    activity: int
    earlier_than: tuple[int, ...]
    later_than: tuple[int, ...]


def precedence(times: np.ndarray) -> np.ndarray:
    """In how many videos one activity comes before another, (A, A)."""
    with np.errstate(invalid="ignore"):
        return np.asarray((times[:, :, None] < times[:, None, :]).sum(0))


def usual_order(times: np.ndarray) -> list[int]:
    """Activities in the order that fits the videos best: few pairs of it are the other way round in
    a video (Kemeny).

    It begins with the order of mean places among the pairs (Borda), and moves one activity at a
    time as long as that helps.
    """
    before = precedence(times).astype(np.float64)
    both = before + before.T
    borda = (before / np.maximum(both, 1)).sum(1) / np.maximum((both > 0).sum(1), 1)
    places = np.array([np.nanmean(column) if np.isfinite(column).any() else np.inf for column in times.T])
    order = sorted(range(times.shape[1]), key=lambda a: (-borda[a], places[a], a))
    preference = before - before.T  # what is gained where a row comes before a column
    is_better = True
    while is_better:
        is_better = False
        for position in range(len(order)):
            activity = order[position]
            rest = order[:position] + order[position + 1 :]
            # What putting the activity at each place costs, against the first: it then comes after
            # those before that place.
            cost = np.concatenate([[0.0], np.cumsum(preference[activity, rest])])
            best = int(cost.argmin())
            if cost[best] < cost[position] - 1e-9:
                rest.insert(best, activity)
                order, is_better = rest, True
    return order


def find_omissions(times: np.ndarray, min_share: float = MIN_SHARE) -> list[Omission]:
    """What is left out in each video."""
    is_there = np.isfinite(times)
    num_others = len(times) - 1
    out = []
    for video, activity in np.argwhere(~is_there).tolist():
        num = int(is_there[:, activity].sum())
        if num >= 2 and num >= min_share * num_others:
            out.append(Omission(video, activity, num / num_others))
    return sorted(out, key=lambda omission: (omission.video, -omission.share, omission.activity))


def find_displacements(
    times: np.ndarray, min_majority: float = MIN_MAJORITY, min_videos: int = MIN_VIDEOS
) -> list[Displacement]:
    """What comes at an unusual place in each video: the fewest activities without which its order is as usual.

    Two activities are in conflict where they come the other way round than in most other videos
    that have both. The activity with the most conflicts is taken out, until there are none.
    """
    before = precedence(times)
    out = []
    for video, row in enumerate(times):
        with np.errstate(invalid="ignore"):
            here = row[:, None] < row[None, :]
        others = before - here
        both = others + others.T
        # here the row first, usually the column
        conflict = here & (both >= min_videos) & (min_majority * both <= others.T)
        open_ = conflict | conflict.T
        while open_.any():
            activity = int(open_.sum(1).argmax())
            earlier = tuple(np.flatnonzero(conflict[activity] & open_[activity]).tolist())
            later = tuple(np.flatnonzero(conflict[:, activity] & open_[activity]).tolist())
            out.append(Displacement(video, activity, earlier, later))
            open_[activity], open_[:, activity] = False, False
    return out
