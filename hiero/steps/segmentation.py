"""Temporal segmentation: the best K contiguous steps of a video, and how they merge into larger ones.

Spectral clustering (the paper) finds threads that may recur. If every step happens once, in
sequence, time helps. A step is good if its nodes are similar. With x the unit vectors of the
centred nodes,

    cost of [a, b) = Σ |xᵢ − mean|² + λ (T/K) (log(b − a) − log(T/K))²

The second term is a weak prior for steps of equal length. Dynamic programming finds the best K steps
exactly. Merging neighbours by Ward's rule, cheapest first, gives coarser levels in which finer steps
nest. Starting from single nodes, it also gives cuts into very many steps, for which dynamic
programming would take minutes.
"""

from __future__ import annotations

import heapq
from itertools import pairwise

import numpy as np

from hiero.errors import InputError
from hiero.vectors import unit_vectors

MIN_NORM = 1e-6  # nodes closer to the mean of the video are treated as equal to it
LENGTH_PRIOR = 0.1  # λ
NODE_LENGTH_PRIOR = 0.01  # λ for the nodes of a trained network, which are very similar inside a step
PART_PRIOR = 1.0  # λ for the parts of a long video, which should have similar lengths
FEW_NODES = 8  # mean length of a step; cuts into shorter steps are found by merging
BLOCK_ROWS = 64  # rows of costs computed at a time
MAX_NODES = 1024  # longer videos are cut into parts first, so that the time is not quadratic


def cut_steps(
    x: np.ndarray, num: int, *, min_nodes: int = 1, length_prior: float = LENGTH_PRIOR, max_nodes: int = MAX_NODES
) -> list[int]:
    """Boundaries of the best contiguous steps."""
    return cut_at_granularities(x, [num], min_nodes=min_nodes, length_prior=length_prior, max_nodes=max_nodes)[0]


def cut_at_granularities(
    x: np.ndarray,
    nums: list[int],
    *,
    min_nodes: int = 1,
    length_prior: float = LENGTH_PRIOR,
    max_nodes: int = MAX_NODES,
) -> list[list[int]]:
    """`cut_steps` for several numbers of steps, with costs that are computed once."""
    for num in nums:
        _check(x, num)
    x = centre_and_normalise(x.astype(np.float64))
    nums = [min(num, max(1, len(x) // min_nodes)) for num in nums]
    num_parts = -(-len(x) // max_nodes)
    by_num = {}
    for num in nums:
        if num_parts > 1 and num * FEW_NODES > len(x):
            (by_num[num],) = merge_steps(x, [*range(0, len(x) - min_nodes + 1, min_nodes), len(x)], [num])
    few = [num for num in nums if num not in by_num]
    if few:
        costs = StepCosts(*_group_nodes(x, max_nodes))
        in_parts = [num for num in few if 1 < num_parts < num]
        by_num |= {num: costs.best_boundaries(num, length_prior, min_nodes) for num in few if num not in in_parts}
        if in_parts:
            parts = costs.best_boundaries(num_parts, PART_PRIOR)
            by_num |= _cut_parts(x, parts, in_parts, length_prior, min_nodes, 4 * max_nodes)
    return [by_num[num] for num in nums]


def _cut_parts(
    x: np.ndarray, parts: list[int], nums: list[int], length_prior: float, min_nodes: int, max_nodes: int
) -> dict[int, list[int]]:
    """Boundaries for each number of steps, which are distributed over the parts of a long video."""
    out = {num: [0] for num in nums}
    shares = {num: _shares(np.diff(parts), num, min_nodes) for num in nums}
    for i, (start, end) in enumerate(pairwise(parts)):
        costs = StepCosts(*_group_nodes(x[start:end], max_nodes))  # one part at a time, because costs are large
        for num in out:
            inside = costs.best_boundaries(shares[num][i], length_prior, min_nodes)
            out[num] += [start + boundary for boundary in inside[1:]]
    return out


def _shares(lengths: np.ndarray, num: int, min_nodes: int) -> list[int]:
    """Distribute `num` steps over parts by their lengths, largest remainders first, at least one each."""
    exact = lengths * num / lengths.sum()
    max_shares = np.maximum(1, lengths // min_nodes)
    shares = np.clip(np.floor(exact).astype(int), 1, max_shares)
    while shares.sum() != np.clip(num, len(lengths), max_shares.sum()):
        change = 1 if shares.sum() < num else -1
        gap = np.where((shares + change >= 1) & (shares + change <= max_shares), (exact - shares) * change, -np.inf)
        shares[int(gap.argmax())] += change
    return shares.tolist()


class StepCosts:
    """Costs of the steps between groups of nodes without the prior, and the best cuts."""

    def __init__(self, sums: np.ndarray, edges: np.ndarray) -> None:
        self.edges = edges
        # A step ends at an edge (row) and starts at an earlier one (column). Unit vectors have
        # Σ|x|² = n. The (N + 1, N + 1) costs are stored in blocks of rows up to the diagonal, above
        # which they are ∞; a block fits into the processor's cache.
        total = np.concatenate([np.zeros((1, sums.shape[1])), np.cumsum(sums, 0)])
        square = np.einsum("nd,nd->n", total, total)
        self.blocks = []
        for rows in _row_blocks(len(edges)):
            length = edges[rows, None] - edges[None, : rows.stop]
            safe_length = np.maximum(length, 1)
            cost = 2 * (total[rows] @ total[: rows.stop].T)
            cost -= square[None, : rows.stop]
            cost -= square[rows, None]
            cost /= safe_length
            cost += safe_length
            cost[length <= 0] = np.inf
            self.blocks.append(cost)

    def best_boundaries(self, num: int, length_prior: float, min_nodes: int = 1) -> list[int]:
        """The best `num` steps by dynamic programming, none shorter than `min_nodes`."""
        edges, num_nodes = self.edges, int(self.edges[-1])
        usual = num_nodes / num
        prior = length_prior * usual * np.log(np.maximum(np.arange(num_nodes + 1), 1) / usual) ** 2
        if num > 1:
            prior[:min_nodes] = np.inf
        # Above the diagonal, lengths are negative and select any prior, but costs are ∞.
        blocks = [
            cost + prior[edges[rows, None] - edges[None, : rows.stop]]
            for rows, cost in zip(_row_blocks(len(edges)), self.blocks, strict=True)
        ]
        best = np.concatenate([cost[:, 0] for cost in blocks])
        back = []
        for _ in range(num - 1):
            pointers, least = [], []
            for cost in blocks:
                total = cost + best[: cost.shape[1]]
                nearest = total.argmin(1)
                pointers.append(nearest)
                least.append(total[np.arange(len(total)), nearest])
            back.append(np.concatenate(pointers))
            best = np.concatenate(least)
        ends = [len(edges) - 1]
        for row in reversed(back):
            ends.append(int(row[ends[-1]]))
        return [0, *(int(edges[i]) for i in reversed(ends))]


def merge_steps(x: np.ndarray, boundaries: list[int], nums: list[int]) -> list[list[int]]:
    """Coarser cuts by merging neighbours, the cheapest pair first."""
    x = centre_and_normalise(x.astype(np.float64))
    total = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, 0)])
    # Boundaries are a linked list, with a queue of the costs of removing each.
    last = len(boundaries) - 1
    before, after = list(range(-1, last)), list(range(1, last + 2))

    def merge_cost(i: int) -> float:
        """Cost of merging the steps on both sides of boundary i, by Ward's rule."""
        a, b, c = boundaries[before[i]], boundaries[i], boundaries[after[i]]
        gap = (total[b] - total[a]) / (b - a) - (total[c] - total[b]) / (c - b)
        return (b - a) * (c - b) / (c - a) * float(gap @ gap)

    costs = {i: merge_cost(i) for i in range(1, last)}
    queue = [(cost, i) for i, cost in costs.items()]
    heapq.heapify(queue)
    out = []
    for num in nums:
        while len(costs) + 1 > max(1, num):
            cost, i = heapq.heappop(queue)
            if costs.get(i) != cost:  # removed, or its cost has changed
                continue
            del costs[i]
            after[before[i]], before[after[i]] = after[i], before[i]
            for j in (before[i], after[i]):
                if 0 < j < last:
                    costs[j] = merge_cost(j)
                    heapq.heappush(queue, (costs[j], j))
        out.append([boundaries[i] for i in (0, *sorted(costs), last)])
    return out


def label_runs(labels: np.ndarray, min_nodes: int = 1) -> np.ndarray:
    """Runs [start, end) of equal labels (T,), (R, 2), without those shorter than `min_nodes` unless all are."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1, [len(labels)]])
    runs = np.stack([edges[:-1], edges[1:]], axis=1)
    long = runs[runs[:, 1] - runs[:, 0] >= min_nodes]
    return long if len(long) else runs


def step_labels(boundaries: list[int]) -> np.ndarray:
    """Step of each node, (T,)."""
    return np.repeat(np.arange(len(boundaries) - 1), np.diff(boundaries))


def _check(x: np.ndarray, num: int) -> None:
    if x.ndim != 2 or not len(x):
        raise InputError(f"x must be (T, D) with at least one node, got {x.shape}")
    if num < 1:
        raise InputError(f"the number of steps must be at least 1, got {num}")
    if not np.isfinite(x).all():
        raise InputError("x must hold finite numbers")


def centre_and_normalise(x: np.ndarray, min_norm: float = 1e-12) -> np.ndarray:
    """Nodes (T, D) minus their mean, as unit vectors unless shorter than `min_norm`.

    The mean is the room and the camera, which say nothing about the steps.
    """
    return unit_vectors(x - x.mean(0), min_norm)


def _group_nodes(x: np.ndarray, max_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of groups of adjacent nodes (N, D), N ≤ max_nodes, and the edges of the groups (N + 1,)."""
    edges = np.linspace(0, len(x), min(len(x), max_nodes) + 1).round().astype(int)
    return np.add.reduceat(x, edges[:-1], axis=0), edges


def _row_blocks(num: int) -> list[slice]:
    return [slice(start, min(start + BLOCK_ROWS, num)) for start in range(0, num, BLOCK_ROWS)]
