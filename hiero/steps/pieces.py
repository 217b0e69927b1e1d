"""Steps that follow each other: the best K contiguous pieces of a video, and how they join into larger ones.

Spectral clustering (the paper) finds threads that may come back; where every step happens once, in sequence, it pays to use time.
A piece is as good as its nodes are alike. With x the unit vectors of the centred nodes,

    cost of [a, b) = Σ |xᵢ − mean|² + λ (T/K) (log(b − a) − log(T/K))²

The second term is a weak belief that pieces are about equally long. Dynamic programming finds the best K pieces exactly.
Joining neighbours by Ward's rule, cheapest first, gives coarser levels in which finer pieces nest.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hiero.errors import InputError

STILL = 1e-6  # a node that differs from the mean of its video by less does not differ

LENGTH_PRIOR = 0.1
MAX_NODES = 1024  # longer videos are first cut into parts of about this length, so that time grows with the length, not its square


def cut_pieces(
    x: np.ndarray, num: int, *, min_nodes: int = 1, length_prior: float = LENGTH_PRIOR, max_nodes: int = MAX_NODES
) -> list[int]:
    """Bounds 0 = b₀ < b₁ < … < b_K = T of the best `num` pieces of x (T, D); as many as there are nodes if these are fewer.

    No piece is shorter than `min_nodes`, if the video is that long; so there may be fewer. The best up to `max_nodes`. A longer
    video is cut into parts, seen in small groups of nodes, and each part into its share.
    """
    _check(x, num)
    x, num = unit(x.astype(np.float64)), min(num, max(1, len(x) // min_nodes))
    parts = -(-len(x) // max_nodes)
    if parts == 1 or num <= parts:
        return _best_cut(*_thin(x, max_nodes), num, length_prior, min_nodes)
    bounds = _best_cut(*_thin(x, max_nodes), parts, 1.0)  # a strong belief, so that no part is much longer than the others
    out = [0]
    for (start, end), share in zip(pairwise(bounds), _shares(np.diff(bounds), num, min_nodes), strict=True):
        out += [start + b for b in _best_cut(*_thin(x[start:end], 4 * max_nodes), share, length_prior, min_nodes)[1:]]
    return out


def _shares(lengths: np.ndarray, num: int, min_nodes: int) -> list[int]:
    """Share `num` among parts by their length, at least one each and as many as fit; largest remainders first."""
    exact = lengths * num / lengths.sum()
    most = np.maximum(1, lengths // min_nodes)
    shares = np.clip(np.floor(exact).astype(int), 1, most)
    while shares.sum() != np.clip(num, len(lengths), most.sum()):
        step = 1 if shares.sum() < num else -1
        gap = np.where((shares + step >= 1) & (shares + step <= most), (exact - shares) * step, -np.inf)
        shares[int(gap.argmax())] += step
    return shares.tolist()


def _best_cut(rows: np.ndarray, bounds: np.ndarray, num: int, length_prior: float, min_nodes: int = 1) -> list[int]:
    cost = _costs(rows, np.diff(bounds), num, length_prior)
    if num > 1 and min_nodes > 1:
        cost = np.where(bounds[None, :] - bounds[:, None] >= min_nodes, cost, np.inf)
    best = cost[0]
    back = []
    for _ in range(num - 1):
        total = best[:, None] + cost
        back.append(total.argmin(0))
        best = np.take_along_axis(total, back[-1][None], 0)[0]
    ends = [len(rows)]
    for step in reversed(back):
        ends.append(int(step[ends[-1]]))
    return [0, *(int(bounds[i]) for i in reversed(ends))]


def join_pieces(x: np.ndarray, bounds: list[int], nums: list[int]) -> list[list[int]]:
    """Coarser cuts by joining neighbours, the cheapest join first. nums descending → bounds for each, each a part of the last."""
    x = unit(x.astype(np.float64))
    total = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, 0)])

    def price(i: int) -> float:
        """Ward: what it costs to join the pieces on both sides of bound i."""
        a, b, c = bounds[i - 1 : i + 2]
        gap = (total[b] - total[a]) / (b - a) - (total[c] - total[b]) / (c - b)
        return (b - a) * (c - b) / (c - a) * float(gap @ gap)

    bounds, out = list(bounds), []
    prices = [price(i) for i in range(1, len(bounds) - 1)]
    for num in nums:
        while len(bounds) - 1 > max(1, num):
            i = int(np.argmin(prices)) + 1
            bounds.pop(i)
            prices.pop(i - 1)
            for j in (i - 1, i):  # the bounds on either side of the joined piece
                if 0 < j < len(bounds) - 1:
                    prices[j - 1] = price(j)
        out.append(list(bounds))
    return out


def runs(labels: np.ndarray, min_nodes: int = 1) -> np.ndarray:
    """Runs [a, b) of equal labels (R, 2), those shorter than `min_nodes` left out; if none is that long, all of them."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1, [len(labels)]])
    found = np.stack([edges[:-1], edges[1:]], axis=1)
    long = found[found[:, 1] - found[:, 0] >= min_nodes]
    return long if len(long) else found


def similarity_matrix(x: np.ndarray, size: int) -> np.ndarray:
    """Cosines of the centred nodes (T, D) with each other, (n, n) with n ≤ size: the picture in which steps are squares."""
    edges = np.linspace(0, len(x), min(size, len(x)) + 1).round().astype(int)
    y = unit(np.add.reduceat(x, edges[:-1], axis=0), STILL)
    return np.asarray(y @ y.T)


def in_grey(similarity: np.ndarray) -> np.ndarray:
    """Cosines as bytes for a picture: alike is bright."""
    return np.clip(255 * (similarity + 0.2) / 1.2, 0, 255).astype(np.uint8)


def piece_labels(bounds: list[int]) -> np.ndarray:
    """Number of the piece that each node is in."""
    return np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))


def piece_cost(x: np.ndarray, bounds: list[int], length_prior: float = LENGTH_PRIOR) -> float:
    """What `cut_pieces` minimises, written out."""
    x = unit(x.astype(np.float64))
    usual = len(x) / (len(bounds) - 1)
    return sum(
        float(((x[a:b] - x[a:b].mean(0)) ** 2).sum()) + length_prior * usual * float(np.log((b - a) / usual) ** 2)
        for a, b in pairwise(bounds)
    )


def _check(x: np.ndarray, num: int) -> None:
    if x.ndim != 2 or not len(x):
        raise InputError(f"x must be (T, D) with at least one node, got {x.shape}")
    if num < 1:
        raise InputError(f"the number of pieces must be at least 1, got {num}")
    if not np.isfinite(x).all():
        raise InputError("x must hold finite numbers")


def unit(x: np.ndarray, least: float = 1e-12) -> np.ndarray:
    """Centred over the video, then of length 1 unless shorter than `least`: what all nodes share says nothing about steps."""
    x = x - x.mean(0)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), least)


def _thin(x: np.ndarray, max_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of small groups of neighbours, and where the groups begin and end."""
    bounds = np.linspace(0, len(x), min(len(x), max_nodes) + 1).round().astype(int)
    return np.add.reduceat(x, bounds[:-1], axis=0), bounds


def _costs(sums: np.ndarray, sizes: np.ndarray, num: int, length_prior: float) -> np.ndarray:
    """Cost of a piece from each bound to each later one, (N + 1, N + 1), ∞ where there is none. Unit vectors have Σ|x|² = n."""
    total = np.concatenate([np.zeros((1, sums.shape[1])), np.cumsum(sums, 0)])
    at = np.concatenate([[0], np.cumsum(sizes)]).astype(float)
    products = total @ total.T
    square = np.diag(products)
    length = at[None, :] - at[:, None]
    safe = np.maximum(length, 1.0)
    cost = safe - (square[None, :] + square[:, None] - 2 * products) / safe
    usual = at[-1] / num
    if length_prior:
        cost += length_prior * usual * np.log(safe / usual) ** 2
    return np.where(length > 0, cost, np.inf)
