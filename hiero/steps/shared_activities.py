"""Activities that several videos share: steps of all of them, grouped by what they are like and by when they come.

Two steps are as far apart as their vectors (1 − cosine), plus a share of the difference of their
places in their videos. How large that share is follows from the videos themselves: where steps that
are alike come at the same place, as in recordings of one recipe, the place says a lot; in a folder
of anything it says nothing.
"""

from __future__ import annotations

import numpy as np

from hiero.errors import InputError
from hiero.vectors import cosine_similarity, unit_vectors

PLACE_WEIGHT = 2.5  # of the difference of places, times the agreement of places; at most MAX_PLACE_WEIGHT
MAX_PLACE_WEIGHT = 1.0
MAX_ACTIVITIES = 3  # times the usual number of steps of a video
MAX_STEPS = 4000  # of all videos; the distances take the square of their number
OTHERS = 0.95  # quantile of the similarity of all other steps with an activity, that a member of it must exceed
MIN_NORM = 1e-9


def shared_activities(
    vectors: np.ndarray, places: np.ndarray, videos: np.ndarray, num: int | None = None
) -> np.ndarray:
    """Group the steps of all videos into activities."""
    from scipy.cluster.hierarchy import fcluster, linkage

    if not len(vectors):
        raise InputError("there are no steps to compare")
    if len(vectors) > MAX_STEPS:
        raise InputError(
            f"{len(vectors)} steps are more than the {MAX_STEPS} that are compared; take coarser ones (--level 0)"
        )
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
    usual_places = [float(np.median(places[labels == label])) for label in range(labels.max() + 1)]
    rank = np.argsort(np.argsort(usual_places, kind="stable"), kind="stable")
    return np.asarray(rank[labels])


def return_displaced(vectors: np.ndarray, videos: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Give steps back to the activity that they show, where their place alone has kept them from it.

    A step goes over to an activity that several other videos have and its own has not, if by its
    vector it is more like its members than like what else there is, and more like them than like
    those of its own activity.
    """
    labels = labels.copy()
    x = unit_vectors(np.asarray(vectors, dtype=np.float64))
    sums = np.zeros((labels.max() + 1, x.shape[1]))
    np.add.at(sums, labels, x)
    means = unit_vectors(sums)
    cosines = x @ means.T
    num_videos = np.array([len(np.unique(videos[labels == label])) for label in range(len(means))])
    rest = sums[labels] - x  # of a step's own activity without the step itself
    own = (x * unit_vectors(rest)).sum(1)
    members = [np.median(own[labels == label]) for label in range(len(means))]
    others = [np.quantile(cosines[labels != label, label], OTHERS, method="lower") for label in range(len(means))]
    least = (np.array(members) + np.array(others)) / 2
    allowed = (cosines >= least) & (cosines > own[:, None]) & (num_videos >= 2)
    for step in np.argsort(
        -np.where(allowed, cosines, -np.inf).max(1), kind="stable"
    ):  # the surest first: an activity once a video
        missing = ~np.isin(np.arange(len(means)), labels[videos == videos[step]])
        if (open_ := allowed[step] & missing).any():
            labels[step] = int(np.where(open_, cosines[step], -np.inf).argmax())
    return np.asarray(np.unique(labels, return_inverse=True)[1])


def step_distances(vectors: np.ndarray, places: np.ndarray, place_weight: float) -> np.ndarray:
    """Distances of all pairs of steps, (N, N): 1 − cosine, plus the weighted difference of their places."""
    x = np.asarray(vectors, dtype=np.float64)
    distances = np.clip(1 - cosine_similarity(x, x), 0, None) + place_weight * np.abs(places[:, None] - places)
    np.fill_diagonal(distances, 0.0)
    return np.asarray(distances)


def place_agreement(vectors: np.ndarray, places: np.ndarray, videos: np.ndarray) -> float:
    """How much nearer in place the most similar steps of two videos are than any two: 0 not at all, 1
    always at the same place.
    """
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
    """How much nearer a member is to its own group than to the next one, (b − a) / max(a, b), on
    average. A single member has 0.
    """
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
