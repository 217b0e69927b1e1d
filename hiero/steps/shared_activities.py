"""Activities that several videos share: their steps, grouped by appearance and by position, and their usual order.

The distance of two steps is 1 − cosine of their vectors plus the weighted difference of their
positions. The weight follows from the videos: in recordings of one recipe, similar steps have
similar positions, which then say a lot; in an arbitrary folder they say nothing.
"""

from __future__ import annotations

import numpy as np

from hiero.errors import InputError
from hiero.vectors import cosine_similarity, unit_vectors

PLACE_WEIGHT = 2.5  # weight of the difference of positions, multiplied by their agreement
MAX_PLACE_WEIGHT = 1.0
MAX_ACTIVITIES = 3  # most activities, as a multiple of the median number of steps of a video
MAX_STEPS = 4000  # most steps of all videos; the distances are quadratic in their number
OTHERS = 0.95  # quantile of the similarity of all other steps with an activity
MIN_NORM = 1e-9


def shared_activities(
    vectors: np.ndarray, places: np.ndarray, videos: np.ndarray, num: int | None = None
) -> np.ndarray:
    """Group the steps of all videos into activities."""
    from scipy.cluster.hierarchy import fcluster, linkage

    if not len(vectors):
        raise InputError("there are no steps to compare")
    if len(vectors) > MAX_STEPS:
        raise InputError(f"at most {MAX_STEPS} steps can be compared, got {len(vectors)}; use coarser ones (--level 0)")
    if len(vectors) == 1:
        return np.zeros(1, dtype=int)
    weight = min(MAX_PLACE_WEIGHT, PLACE_WEIGHT * place_agreement(vectors, places, videos))
    distances = step_distances(vectors, places, weight)
    tree = linkage(distances[np.triu_indices(len(vectors), 1)], "average")
    usual = round(float(np.median(np.unique(videos, return_counts=True)[1])))
    if num is None:
        counts = range(min(usual, len(vectors)), min(MAX_ACTIVITIES * usual, len(vectors) - 1) + 1)
        cuts = {count: fcluster(tree, count, "maxclust") for count in counts}
        num = max(cuts, key=lambda count: (silhouette(distances, cuts[count]), -count), default=usual)
    labels = fcluster(tree, max(1, num), "maxclust")
    _, labels = np.unique(labels, return_inverse=True)
    if weight > 0 and labels.max() > 0:
        labels = return_displaced(vectors, videos, labels)
    return number_by_place(labels, places)


def return_displaced(vectors: np.ndarray, videos: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Reassign steps that only their position separated from the activity that they show.

    A step moves to an activity that several other videos have and its own video does not, if its
    vector is clearly similar to the activity and more similar than to its current one.
    """
    labels = labels.copy()
    x = unit_vectors(np.asarray(vectors, dtype=np.float64))
    sums = np.zeros((labels.max() + 1, x.shape[1]))
    np.add.at(sums, labels, x)
    means = unit_vectors(sums)
    cosines = x @ means.T
    num_videos = np.array([len(np.unique(videos[labels == label])) for label in range(len(means))])
    rest = sums[labels] - x  # the activity without the step itself
    own = (x * unit_vectors(rest)).sum(1)
    members = [np.median(own[labels == label]) for label in range(len(means))]
    others = [np.quantile(cosines[labels != label, label], OTHERS, method="lower") for label in range(len(means))]
    least = (np.array(members) + np.array(others)) / 2
    allowed = (cosines >= least) & (cosines > own[:, None]) & (num_videos >= 2)
    # Most similar first: each video has an activity only once.
    for step in np.argsort(-np.where(allowed, cosines, -np.inf).max(1), kind="stable"):
        missing = ~np.isin(np.arange(len(means)), labels[videos == videos[step]])
        if (open_ := allowed[step] & missing).any():
            labels[step] = int(np.where(open_, cosines[step], -np.inf).argmax())
    return labels


def step_distances(vectors: np.ndarray, places: np.ndarray, place_weight: float) -> np.ndarray:
    """Distances of all pairs of steps, (N, N): 1 − cosine plus the weighted difference of their positions."""
    x = np.asarray(vectors, dtype=np.float64)
    distances = np.clip(1 - cosine_similarity(x, x), 0, None) + place_weight * np.abs(places[:, None] - places)
    np.fill_diagonal(distances, 0.0)
    return np.asarray(distances)


def place_agreement(vectors: np.ndarray, places: np.ndarray, videos: np.ndarray) -> float:
    """How much closer in position the most similar steps of two videos are than any two, from 0 to 1."""
    cosines = 1 - step_distances(vectors, places, 0.0)
    nearest, any_two = [], []
    for video in np.unique(videos):
        members = np.flatnonzero(videos == video)
        others = np.flatnonzero(videos != video)
        if not len(others):
            return 0.0
        best = members[cosines[np.ix_(others, members)].argmax(1)]
        nearest.append(np.abs(places[others] - places[best]))
        any_two.append(np.abs(places[others][:, None] - places[members]).mean(1))
    expected = float(np.concatenate(any_two).mean())
    return 0.0 if expected < MIN_NORM else max(0.0, 1 - float(np.concatenate(nearest).mean()) / expected)


def silhouette(distances: np.ndarray, labels: np.ndarray) -> float:
    """Mean of (b − a) / max(a, b) with the distances a to the own and b to the next group; 0 for single members."""
    _, labels = np.unique(labels, return_inverse=True)
    sizes = np.bincount(labels)
    if len(sizes) < 2:
        return 0.0
    sums = distances @ np.eye(len(sizes))[labels]
    rows = np.arange(len(labels))
    own = sums[rows, labels] / np.maximum(sizes[labels] - 1, 1)
    means = sums / sizes
    means[rows, labels] = np.inf
    other = means.min(1)
    values = np.where(sizes[labels] > 1, (other - own) / np.maximum(np.maximum(own, other), MIN_NORM), 0.0)
    return float(values.mean())


def usual_order(times: np.ndarray) -> list[int]:
    """Activities in the order with the fewest reversed pairs in the videos (Kemeny), from their times (V, A).

    The search starts with the order of mean ranks (Borda) and moves one activity at a time while
    that helps.
    """
    with np.errstate(invalid="ignore"):  # NaN: an activity that a video does not have
        before = (
            (times[:, :, None] < times[:, None, :]).sum(0).astype(np.float64)
        )  # videos in which row is before column
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
