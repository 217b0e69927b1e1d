"""A video as nested steps. Each level covers the video without gaps, and finer steps lie inside coarser ones."""

from __future__ import annotations

from itertools import count, pairwise

import numpy as np

from hiero.errors import InputError
from hiero.formatting import level_names
from hiero.steps.clustering import cluster, clustering_names
from hiero.steps.segmentation import LENGTH_PRIOR, cut_steps, label_runs, merge_steps
from hiero.types import Clock, Step, link_levels
from hiero.vectors import unit_vectors

STEP_S = 60.0  # default length of a step; CaptainCook4D has one every 65 s
MIN_STEP_S = 2.0  # shortest step, unless many are requested
MIN_FINEST_STEPS = 8  # steps of the finest level, if the video has enough nodes
THREAD_SIMILARITY = 0.6  # cosine of centred means above which two steps belong to one thread
MAX_LINKED_STEPS = 2000  # most steps that are compared with each other for threads


def default_step_counts(duration_s: float, num_nodes: int) -> list[int]:
    """Numbers of steps of three levels, coarse to fine, for a video of some duration."""
    finest = max(1, round(duration_s / STEP_S), min(MIN_FINEST_STEPS, num_nodes // 2))
    return sorted({max(1, round(finest / 4)), max(1, round(finest / 2)), finest})


def build_hierarchy(
    nodes: np.ndarray,
    clock: Clock,
    num_steps: list[int] | None = None,
    *,
    method: str = "contiguous",
    length_prior: float = LENGTH_PRIOR,
) -> list[list[Step]]:
    """Levels of steps, coarse to fine."""
    if nodes.ndim != 2 or not len(nodes):
        raise InputError(f"nodes must be (T, D) with at least one node, got {tuple(nodes.shape)}")
    if method not in clustering_names():
        raise InputError(f"method must be one of {', '.join(clustering_names())}, got {method}")
    counts = sorted(set(num_steps or default_step_counts(len(nodes) * clock.spacing_s, len(nodes))))
    if counts[0] < 1:
        raise InputError(f"a level must have at least one step, got {counts[0]}")
    x = np.asarray(nodes, dtype=np.float32)
    usual_s = len(x) * clock.spacing_s / counts[-1]
    min_nodes = max(1, round(min(MIN_STEP_S, usual_s / 2) / clock.spacing_s))
    if method == "contiguous":
        finest = cut_steps(x, counts[-1], min_nodes=min_nodes, length_prior=length_prior)
    else:
        labels = cluster(x, counts[-1], method)
        finest = merge_short_steps(x, [*label_runs(labels)[:, 0].tolist(), len(x)], min_nodes)
        counts = [max(1, round(count / counts[-1] * (len(finest) - 1))) for count in counts]
    counts = sorted({min(count, len(finest) - 1) for count in counts}, reverse=True)  # equal levels are merged
    levels = merge_steps(x, finest, counts)[::-1]
    threads = match_threads([group_into_threads(x, boundaries) for boundaries in levels], levels)
    named = zip(level_names(len(levels)), levels, threads, strict=True)
    return link_levels([_make_level(*level, clock) for level in named])


def merge_short_steps(x: np.ndarray, boundaries: list[int], min_nodes: int) -> list[int]:
    """Merge every step shorter than `min_nodes`, shortest first, with its more similar neighbour."""
    edges = np.array(boundaries)

    def mean(i: int) -> np.ndarray:
        return unit_vectors(x[edges[i] : edges[i + 1]].mean(0, dtype=np.float64))

    while len(edges) > 2:
        lengths = np.diff(edges)
        shortest = int(lengths.argmin())
        if lengths[shortest] >= min_nodes:
            break
        own = mean(shortest)
        with_before = float(own @ mean(shortest - 1)) if shortest > 0 else -np.inf
        with_after = float(own @ mean(shortest + 1)) if shortest + 1 < len(lengths) else -np.inf
        edges = np.delete(edges, shortest if with_before >= with_after else shortest + 1)
    return edges.tolist()


def group_into_threads(x: np.ndarray, boundaries: list[int]) -> list[int]:
    """Thread of each step, by average linkage of the centred means; numbered by first appearance."""
    num = len(boundaries) - 1
    if num < 2:
        return [0] * num
    if num > MAX_LINKED_STEPS:  # linkage is quadratic: give steps the thread of a larger step
        (larger,) = merge_steps(x, boundaries, [MAX_LINKED_STEPS])
        threads = group_into_threads(x, larger)
        return [threads[i] for i in np.searchsorted(larger, boundaries[:-1], side="right") - 1]
    x = x - x.mean(0)
    means = unit_vectors(np.stack([x[a:b].mean(0) for a, b in pairwise(boundaries)]))
    return join_by_average_linkage(np.clip(1 - means @ means.T, 0, None), 1 - THREAD_SIMILARITY)


def join_by_average_linkage(distances: np.ndarray, max_distance: float) -> list[int]:
    """Average-linkage clustering: join the two nearest clusters while they are near enough.

    scipy has it too, but importing it takes longer than all of this.
    """
    num = len(distances)
    distances = distances.astype(np.float64)
    np.fill_diagonal(distances, np.inf)
    sizes = np.ones(num)
    member_of = np.arange(num)  # row of the cluster of each item
    nearest, least = distances.argmin(1), distances.min(1)
    while least.min() <= max_distance:  # not if it is NaN
        first = int(least.argmin())
        second = int(nearest[first])
        total = sizes[first] * distances[first] + sizes[second] * distances[second]
        sizes[first] += sizes[second]
        distances[first] = distances[:, first] = total / sizes[first]
        distances[second] = distances[:, second] = distances[first, first] = np.inf
        member_of[member_of == second] = first
        nearest[second], least[second] = -1, np.inf
        # The average is at least the nearer of the two, so no other cluster gets a nearer neighbour.
        changed = np.flatnonzero((nearest == first) | (nearest == second))
        nearest[changed] = distances[changed].argmin(1)
        least[changed] = distances[changed, nearest[changed]]
    number = {cluster: i for i, cluster in enumerate(dict.fromkeys(member_of.tolist()))}
    return [number[cluster] for cluster in member_of.tolist()]


def match_threads(threads: list[list[int]], levels: list[list[int]]) -> list[list[int]]:
    """Give the threads of every level the numbers of the finest level, so that a number means the same on all levels.

    A coarser thread gets the number of the finest one that shares most nodes with it, unless a thread that shares
    more has that number. Threads for which none is left are numbered on.
    """
    finest = np.repeat(threads[-1], np.diff(levels[-1]))
    matched = []
    for own, boundaries in zip(threads[:-1], levels[:-1], strict=True):
        shared = np.zeros((max(own) + 1, max(threads[-1]) + 1), dtype=np.int64)
        np.add.at(shared, (np.repeat(own, np.diff(boundaries)), finest), 1)
        numbers: dict[int, int] = {}
        taken = set[int]()
        pairs = np.flatnonzero(shared)
        for pair in pairs[np.argsort(-shared.flat[pairs], kind="stable")].tolist():
            thread, number = divmod(pair, shared.shape[1])
            if thread not in numbers and number not in taken:
                numbers[thread] = number
                taken.add(number)
        spare = count(shared.shape[1])
        for thread in own:
            if thread not in numbers:
                numbers[thread] = next(spare)
        matched.append([numbers[thread] for thread in own])
    return [*matched, threads[-1]]


def _make_level(name: str, boundaries: list[int], threads: list[int], clock: Clock) -> list[Step]:
    return [
        Step(f"{name}-{number}", clock.edge_s(a), clock.edge_s(b), thread)
        for number, ((a, b), thread) in enumerate(zip(pairwise(boundaries), threads, strict=True), start=1)
    ]
