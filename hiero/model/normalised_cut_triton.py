"""The cut inside the network as one GPU kernel: from 32 samples of a video to their threads.

A program is one warp and works on one video and one restart of K-Means, with everything in
registers: normalised similarity, eigendecomposition, K-Means. Each restart computes the
eigenvectors again, which costs nothing, because other processors are idle. As torch operations the
same takes some 250 kernels and, for eigh, a wait for the host, which a CUDA graph cannot capture.
The plain version is `normalised_cut.cut_samples`; both draw the same random numbers.

Eigenvectors come from the one-sided Jacobi method (Hestenes 1958), which rotates pairs of columns
until all are orthogonal. The columns are then the eigenvectors, each times its eigenvalue. In round
r column c meets column c xor r, so 31 rounds of 16 disjoint pairs are a sweep. A thread holds a
column, so that norms need no exchange, and meeting the other column is a shuffle inside the warp.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hiero.model.kmeans import num_seeding_trials, uniform_hash
from hiero.model.triton_support import HAS_TRITON, constexpr, jit, tl, triton

SIZE = 32  # samples per video
MAX_THREADS = 16
MAX_SWEEPS = 8
TOLERANCE = 1e-9  # squared cosine between columns; the next sweep squares it, which is below rounding


def is_available(x: Tensor, num_threads: int) -> bool:
    """Whether the kernel can run: on a GPU with Triton, for 32 samples in single precision and few threads."""
    return HAS_TRITON and x.is_cuda and x.shape[1] == SIZE and x.dtype == torch.float32 and num_threads <= MAX_THREADS


def cut_samples_triton(
    x: Tensor, num_threads: int, kappa: float, random_state: int, num_restarts: int, num_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised cut of samples in its `training` form: threads, eigenvalues, eigenvectors."""
    num_trials = num_seeding_trials(num_threads)
    numbers = uniform_hash(num_threads, num_restarts, num_trials, random_state=random_state, device=x.device)
    labels, inertia, values, vectors = _cut(x @ x.mT, numbers, kappa, num_iterations)
    best = inertia.argmin(1)[:, None, None].expand(-1, 1, SIZE)
    return labels.gather(1, best)[:, 0], values, vectors


@torch.library.custom_op("hiero::cut", mutates_args=())
def _cut(product: Tensor, numbers: Tensor, kappa: float, num_iterations: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inner products (B, 32, 32) → labels (B, R, 32) and inertia (B, R), eigenvalues, leading eigenvectors."""
    outputs = _empty_outputs(product, numbers)
    num_threads, num_restarts, num_trials = numbers.shape
    clusters = num_threads, max(2, triton.next_power_of_2(num_threads))
    trials = num_trials, triton.next_power_of_2(num_trials)
    settings = kappa, *clusters, *trials, num_iterations
    _kernel[(len(product), num_restarts)](product.contiguous(), numbers, *outputs, *settings, num_warps=1)
    return outputs


@_cut.register_fake
def _empty_outputs(product: Tensor, numbers: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    num_videos, num_threads, num_restarts = len(product), *numbers.shape[:2]
    return (
        product.new_empty(num_videos, num_restarts, SIZE, dtype=torch.long),
        product.new_empty(num_videos, num_restarts),
        product.new_empty(num_videos, SIZE),
        product.new_empty(num_videos, SIZE, num_threads),
    )


# The kernel

N, NUM_SWEEPS, LIMIT = map(constexpr, (SIZE, MAX_SWEEPS, TOLERANCE))


@jit
def _normalise(product, kappa):  # type: ignore[no-untyped-def]
    """M = D^−½ S D^−½ with S = exp((cos − 1)/κ), in logs."""
    row, col = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    # Triton cannot transpose a vector, so both directions are reduced from a diagonal.
    square = tl.where(row == col, product, 0.0)
    row_square, col_square = tl.sum(square, axis=1)[:, None], tl.sum(square, axis=0)[None, :]
    cosine = product / tl.maximum(tl.sqrt(row_square), 1e-12) / tl.maximum(tl.sqrt(col_square), 1e-12)
    log_s = (cosine - 1.0) / kappa
    highest = tl.max(log_s, axis=0)  # S is symmetric, so columns and rows have the same degrees
    log_degree = highest + tl.log(tl.sum(tl.exp(log_s - highest[None, :]), axis=0))
    row_log_degree = tl.sum(tl.where(row == col, log_degree[None, :], 0.0), axis=1)
    return tl.exp(log_s - 0.5 * log_degree[None, :] - 0.5 * row_log_degree[:, None])


@jit
def _decompose(m):  # type: ignore[no-untyped-def]
    """Unordered eigenvalues (N,) of M and eigenvectors in columns (N, N), by one-sided Jacobi on M + I.

    M has no eigenvalue below 0, so that I keeps every column away from zero.
    """
    row, col = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    column = tl.arange(0, N)
    g = m + tl.where(row == col, 1.0, 0.0)
    largest = 1.0
    sweep = 0
    while (sweep < NUM_SWEEPS) & (largest > LIMIT):
        cosines = tl.zeros((N,), dtype=tl.float32)
        for r in range(1, N):
            partner = tl.gather(g, tl.broadcast_to(col ^ r, (N, N)), axis=1)
            # Both columns of a pair compute the same three numbers in the same order, so that rotations match.
            square, partner_square = tl.sum(g * g, axis=0), tl.sum(partner * partner, axis=0)
            cross = tl.sum(g * partner, axis=0)
            cosines = tl.maximum(cosines, cross * cross / (square * partner_square))
            gap = partner_square - square
            sign = tl.where(gap > 0, 1.0, tl.where(gap < 0, -1.0, tl.where(column < (column ^ r), 1.0, -1.0)))
            # tan of the angle: 2 g·p / (|gap| + √(gap² + 4 (g·p)²)), safe when both vanish
            root = tl.sqrt(gap * gap + 4.0 * cross * cross)
            tangent = sign * 2.0 * cross / tl.maximum(tl.abs(gap) + root, 1e-30)
            cosine = 1.0 / tl.sqrt(1.0 + tangent * tangent)
            g = cosine[None, :] * (g - tangent[None, :] * partner)
        largest = tl.max(cosines, axis=0)
        sweep += 1
    norm = tl.sqrt(tl.sum(g * g, axis=0))
    return norm - 1.0, g / norm[None, :]


@jit
def _squared_distances(points, square, centres):  # type: ignore[no-untyped-def]
    """points (N, C), square (N,), centres (K, C) → (N, K)."""
    cross = tl.sum(points[:, None, :] * centres[None, :, :], axis=2)
    return tl.maximum(square[:, None] - 2.0 * cross + tl.sum(centres * centres, axis=1)[None, :], 0.0)


@jit  # type: ignore[untyped-decorator]
def _leading_points(value, v, K: tl.constexpr, KP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Points (N, KP) from the K leading eigenvectors: the column of rank c becomes coordinate c."""
    row, col = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    node, cluster = tl.arange(0, N), tl.arange(0, KP)
    row_value = tl.sum(tl.where(row == col, value[None, :], 0.0), axis=1)[:, None]
    above = (row_value > value[None, :]) | ((row_value == value[None, :]) & (row < col))
    rank = tl.sum(above.to(tl.int32), axis=0)  # by column
    leading = tl.sum(tl.where(rank[:, None] == cluster[None, :], node[:, None], 0), axis=0)  # (KP,)
    points = tl.gather(v, tl.broadcast_to(leading[None, :], (N, KP)), axis=1)
    return tl.where(cluster[None, :] < K, points, 0.0)


@jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    product,
    numbers,
    labels,
    inertia,
    values,
    vectors,
    kappa,
    K: tl.constexpr,
    KP: tl.constexpr,
    T: tl.constexpr,
    TP: tl.constexpr,
    ITERATIONS: tl.constexpr,
):
    """One video and one restart, with K clusters and T trials, which KP and TP pad to powers of 2."""
    video, restart, num_restarts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    row, col = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    node, cluster, trial = tl.arange(0, N), tl.arange(0, KP), tl.arange(0, TP)
    m = _normalise(tl.load(product + (video * N + row) * N + col), kappa)
    value, v = _decompose(m)

    points = _leading_points(value, v, K, KP)
    square = tl.sum(points * points, axis=1)
    if restart == 0:
        tl.store(values + video * N + node, value)
        tl.store(vectors + (video * N + node[:, None]) * K + cluster[None, :], points, mask=cluster[None, :] < K)

    # Greedy k-means++: of a few points drawn by squared distance, the one with the least inertia.
    centres = tl.zeros((KP, KP), dtype=tl.float32)
    nearest = tl.full((N,), float("inf"), dtype=tl.float32)  # squared distance to the nearest centre
    weight = tl.full((N,), 1.0, dtype=tl.float32)
    for k in range(K):
        cumulative = tl.cumsum(weight, axis=0)
        total = tl.sum(tl.where(node == N - 1, cumulative, 0.0), axis=0)
        target = tl.load(numbers + (k * num_restarts + restart) * T + trial, mask=trial < T, other=0.0) * total
        index = tl.minimum(tl.sum((cumulative[:, None] <= target[None, :]).to(tl.int32), axis=0), N - 1)  # (T,)
        drawn = tl.where(node[:, None] == index[None, :], 1.0, 0.0)  # (N, T)
        candidate = tl.sum(drawn[:, :, None] * points[:, None, :], axis=0)  # (T, C)
        updated = tl.minimum(nearest[:, None], _squared_distances(points, square, candidate))  # (N, T)
        best = tl.argmin(tl.where(trial < T, tl.sum(updated, axis=0), float("inf")), axis=0)
        nearest = tl.sum(tl.where(trial[None, :] == best, updated, 0.0), axis=1)
        weight = nearest
        centre = tl.sum(tl.where(trial[:, None] == best, candidate, 0.0), axis=0)  # (C,)
        centres = tl.where(cluster[:, None] == k, centre[None, :], centres)

    # Lloyd's algorithm.
    total_distance = 0.0
    label = tl.zeros((N,), dtype=tl.int32)
    for iteration in range(ITERATIONS + 1):
        distance = tl.where(cluster[None, :] < K, _squared_distances(points, square, centres), float("inf"))
        label = tl.argmin(distance, axis=1)
        total_distance = tl.sum(tl.min(distance, axis=1), axis=0)
        if iteration < ITERATIONS:
            member = tl.where(label[:, None] == cluster[None, :], 1.0, 0.0)  # (N, K)
            count = tl.sum(member, axis=0)[:, None]
            mean = tl.sum(member[:, :, None] * points[:, None, :], axis=0) / tl.maximum(count, 1.0)
            centres = tl.where(count > 0, mean, centres)
    tl.store(inertia + video * num_restarts + restart, total_distance)

    # Number clusters by first appearance.
    member = label[:, None] == cluster[None, :]
    first = tl.min(tl.where(member, node[:, None], N), axis=0)  # (K,)
    node_first = tl.sum(tl.where(member, first[None, :], 0), axis=1)  # first appearance of a node's cluster
    num_earlier = tl.sum((first[None, :] < node_first[:, None]).to(tl.int64), axis=1)
    tl.store(labels + (video * num_restarts + restart) * N + node, num_earlier)
