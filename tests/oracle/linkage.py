"""Average linkage as the textbook has it: the mean of all distances between the members of two
clusters, again for each join.
"""

from __future__ import annotations

import itertools

import numpy as np


def plain_average_linkage(distances: np.ndarray, max_distance: float) -> list[int]:
    """The cluster of each item, numbered by first appearance; arguments as of `join_by_average_linkage`."""
    clusters = [[i] for i in range(len(distances))]
    while len(clusters) > 1:
        pairs = itertools.combinations(range(len(clusters)), 2)
        least, a, b = min((distances[np.ix_(clusters[a], clusters[b])].mean(), a, b) for a, b in pairs)
        if least > max_distance:
            break
        clusters[a] += clusters.pop(b)
    number = {item: i for i, cluster in enumerate(sorted(clusters, key=min)) for item in cluster}
    return [number[i] for i in range(len(distances))]
