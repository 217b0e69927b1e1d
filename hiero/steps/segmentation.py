"""Temporal segmentation: the best K contiguous steps of a video, and how they merge into larger ones.

Spectral clustering (the paper) finds threads that may come back; where every step happens once, in
sequence, it pays to use time. A step is as good as its nodes are alike. With x the unit vectors of
the centred nodes,

    cost of [a, b) = Σ |xᵢ − mean|² + λ (T/K) (log(b − a) − log(T/K))²

The second term is a weak belief that steps are about equally long. Dynamic programming finds the
best K steps exactly. Merging neighbours by Ward's rule, cheapest first, gives coarser levels in
which finer steps nest; from single nodes on, it also gives cuts into very many steps, which dynamic
programming would take minutes for.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from hiero.errors import InputError
from hiero.vectors import unit_vectors

MIN_NORM = 1e-6  # a node that differs from the mean of its video by less does not differ
LENGTH_PRIOR = 0.1  # λ
NODE_LENGTH_PRIOR = (
    0.01  # λ for the nodes of a trained network: inside a step they are much alike, so what they say counts for more
)
PART_PRIOR = 1.0  # λ of the parts of a long video: a strong belief, so that no part is much longer than the others
FEW_NODES = 8  # of a step, on average: for more and shorter steps neighbours are merged
BLOCK_ROWS = 64  # of costs that are computed at a time
# longer videos are first cut into parts of about this length, so that time grows with the length,
# not its square
MAX_NODES = 1024


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
    """`cut_steps` into each of several numbers of steps: costs that the cuts share are computed once.
    Other arguments are its.
    """
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
    """Boundaries inside the parts of a long video for each number of steps, of which each part gets its share."""
    out = {num: [0] for num in nums}
    shares = {num: _shares(np.diff(parts), num, min_nodes) for num in nums}
    for i, (start, end) in enumerate(pairwise(parts)):
        costs = StepCosts(*_group_nodes(x[start:end], max_nodes))  # of one part at a time: they are large
        for num in out:
            inside = costs.best_boundaries(shares[num][i], length_prior, min_nodes)
            out[num] += [start + boundary for boundary in inside[1:]]
    return out


def _shares(lengths: np.ndarray, num: int, min_nodes: int) -> list[int]:
    """Share `num` among parts by their length, at least one each and as many as fit; largest remainders first."""
    exact = lengths * num / lengths.sum()
    max_shares = np.maximum(1, lengths // min_nodes)
    shares = np.clip(np.floor(exact).astype(int), 1, max_shares)
    while shares.sum() != np.clip(num, len(lengths), max_shares.sum()):
        change = 1 if shares.sum() < num else -1
        gap = np.where((shares + change >= 1) & (shares + change <= max_shares), (exact - shares) * change, -np.inf)
        shares[int(gap.argmax())] += change
    return shares.tolist()


class StepCosts:
    """What steps between groups of nodes cost, but for the prior, and the best cuts by it."""

    def __init__(self, sums: np.ndarray, edges: np.ndarray) -> None:
        self.edges = edges
        self.is_uniform = bool(edges[-1] == len(sums))  # each group is one node
        # A step ends at an edge (row) and begins at an earlier one (column); ∞ where there is none.
        # Unit vectors have Σ|x|² = n. The (N + 1, N + 1) costs come in blocks of rows up to the
        # diagonal: what lies above is ∞, and a block stays in the processor's cache while it is
        # computed.
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
        """Dynamic programming: the best `num` steps, none shorter than `min_nodes`. Arguments as of `cut_steps`."""
        edges = self.edges
        blocks = [cost + prior for cost, prior in zip(self.blocks, self._priors(num, length_prior), strict=True)]
        if num > 1 and min_nodes > 1:
            for block, cost in zip(_row_blocks(len(edges)), blocks, strict=True):
                cost[edges[block, None] - edges[None, : block.stop] < min_nodes] = np.inf
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

    def _priors(self, num: int, length_prior: float) -> Iterator[np.ndarray]:
        """What the prior adds to each block of costs; above the diagonal anything that is finite."""
        edges, num_nodes = self.edges, int(self.edges[-1])
        usual = num_nodes / num
        # of every length, once
        prior = length_prior * usual * np.log(np.maximum(np.arange(num_nodes + 1), 1) / usual) ** 2
        # Of single nodes, a row is the one before shifted by one: windows of the prior from the
        # longest length to the shortest.
        falling = np.concatenate([prior[:0:-1], np.zeros(BLOCK_ROWS)])
        for rows in _row_blocks(len(edges)):
            if self.is_uniform:
                yield np.lib.stride_tricks.sliding_window_view(falling, rows.stop)[
                    num_nodes - np.arange(rows.start, rows.stop)
                ]
            else:
                yield prior[np.maximum(edges[rows, None] - edges[None, : rows.stop], 1)]


def merge_steps(x: np.ndarray, boundaries: list[int], nums: list[int]) -> list[list[int]]:
    """Coarser cuts by merging neighbours, the cheapest pair first."""
    x = centre_and_normalise(x.astype(np.float64))
    total = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, 0)])
    # Boundaries as a linked list: those before and after each, and a queue of what it costs to take one out.
    last = len(boundaries) - 1
    before, after = list(range(-1, last)), list(range(1, last + 2))

    def merge_cost(i: int) -> float:
        """Ward: what it costs to merge the steps on both sides of boundary i."""
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
            if costs.get(i) != cost:  # it was taken out, or costs something else by now
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
    """Runs [start, end) of equal labels (T,), (R, 2); those shorter than `min_nodes` are left out, unless all are."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1, [len(labels)]])
    runs = np.stack([edges[:-1], edges[1:]], axis=1)
    long = runs[runs[:, 1] - runs[:, 0] >= min_nodes]
    return long if len(long) else runs


def similarity_matrix(x: np.ndarray, size: int) -> np.ndarray:
    """Cosines of the centred nodes (T, D) with each other, (n, n) with n ≤ size: the picture in which
    steps are squares.
    """
    edges = np.linspace(0, len(x), min(size, len(x)) + 1).round().astype(int)
    y = centre_and_normalise(np.add.reduceat(x, edges[:-1], axis=0), MIN_NORM)
    return np.asarray(y @ y.T)


def to_grey(similarity: np.ndarray) -> np.ndarray:
    """Cosines as bytes for a picture: alike is bright."""
    return np.clip(255 * (similarity + 0.2) / 1.2, 0, 255).astype(np.uint8)


def step_labels(boundaries: list[int]) -> np.ndarray:
    """Number of the step that each node is in, (T,)."""
    return np.repeat(np.arange(len(boundaries) - 1), np.diff(boundaries))


def _check(x: np.ndarray, num: int) -> None:
    if x.ndim != 2 or not len(x):
        raise InputError(f"x must be (T, D) with at least one node, got {x.shape}")
    if num < 1:
        raise InputError(f"the number of pieces must be at least 1, got {num}")
    if not np.isfinite(x).all():
        raise InputError("x must hold finite numbers")


def centre_and_normalise(x: np.ndarray, min_norm: float = 1e-12) -> np.ndarray:
    """Nodes (T, D) minus their mean, then of length 1 unless shorter than `min_norm`.

    What all nodes of a video share, the room and the camera, says nothing about its steps.
    """
    return unit_vectors(x - x.mean(0), min_norm)


def _group_nodes(x: np.ndarray, max_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of small groups of neighbours (N, D), N ≤ max_nodes, and where the groups begin and end (N + 1,)."""
    edges = np.linspace(0, len(x), min(len(x), max_nodes) + 1).round().astype(int)
    return np.add.reduceat(x, edges[:-1], axis=0), edges


def _row_blocks(num: int) -> list[slice]:
    """Rows of a large matrix, a few at a time."""
    return [slice(start, min(start + BLOCK_ROWS, num)) for start in range(0, num, BLOCK_ROWS)]
