"""The cut inside the network as one GPU kernel: 32 samples of a video in, their threads out.

A program works on one video, with everything in registers: cosines, normalised similarity, eigendecomposition, K-Means. As a chain
of torch operations the same takes some 250 kernels and, for eigh, a wait for the host, which a captured CUDA graph cannot do.
The plain version is in `normalised_cut.cut_samples`; both draw the same random numbers.

Eigenvectors come from the classical parallel Jacobi method (Brent and Luk 1985): 16 disjoint rotations a round, 31 rounds a sweep.
Between rounds columns are permuted as in a round-robin tournament, so that each pair is rotated once a sweep.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hiero.kernels.kmeans import num_seeding_trials, uniform_hash

SIZE = 32  # samples of a video
MAX_THREADS = 16
MAX_SWEEPS = 6
TOLERANCE = 1e-10  # of the squares off the diagonal, as a share of all; then rounding is reached
CHANNEL_CHUNK = 64  # channels of the features that are read at once

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch has no triton
    triton = None

HAS_TRITON = triton is not None


def is_available(x: Tensor, num_threads: int) -> bool:
    """Whether the kernel can run: a GPU with Triton, 32 samples in single precision, and few enough threads."""
    return HAS_TRITON and x.is_cuda and x.shape[1] == SIZE and x.dtype == torch.float32 and num_threads <= MAX_THREADS


def cut_samples_triton(
    x: Tensor, num_threads: int, kappa: float, random_state: int, num_restarts: int, num_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised cut of samples, in its `training` form.

    Args:
        x: (B, 32, D).
        num_threads: K.
        kappa: Temperature of the similarity.
        random_state: Seed of K-Means.
        num_restarts: Of K-Means.
        num_iterations: Of K-Means.

    Returns:
        Threads (B, 32), numbered by first appearance; and, for tests, the eigenvalues (B, 32) in no order and the leading
        eigenvectors (B, 32, K).
    """
    num_trials = num_seeding_trials(num_threads)
    numbers = uniform_hash(num_threads, num_restarts, num_trials, random_state=random_state, device=x.device)
    return _cut(x.contiguous(), numbers, kappa, num_iterations)


@torch.library.custom_op("hiero::cut", mutates_args=())
def _cut(x: Tensor, numbers: Tensor, kappa: float, num_iterations: int) -> tuple[Tensor, Tensor, Tensor]:
    labels, values, vectors = _empty_outputs(x, numbers)
    num_threads, num_restarts, num_trials = numbers.shape
    _kernel[(len(x),)](
        x, numbers, labels, values, vectors, kappa, x.shape[2], SIZE, CHANNEL_CHUNK,
        num_threads, max(2, triton.next_power_of_2(num_threads)), num_restarts, triton.next_power_of_2(num_restarts), num_trials,
        triton.next_power_of_2(num_trials), num_iterations, MAX_SWEEPS, TOLERANCE, num_warps=4,  # 2, 8 and 16 are slower
    )  # fmt: skip
    return labels, values, vectors


@_cut.register_fake
def _empty_outputs(x: Tensor, numbers: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    labels = torch.empty(x.shape[:2], dtype=torch.long, device=x.device)
    return labels, torch.empty_like(x[..., 0]), x.new_empty(len(x), SIZE, len(numbers))


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _similarity(x, kappa, WIDTH: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
        """M = D^−½ S D^−½ with S = exp((cos − 1)/κ), in logs."""
        row, col = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
        product = tl.zeros((N, N), dtype=tl.float32)
        start = tl.program_id(0) * N * WIDTH
        for first in range(0, WIDTH, CHUNK):
            channel = first + tl.arange(0, CHUNK)[None, :]
            part = tl.load(x + start + tl.arange(0, N)[:, None] * WIDTH + channel, mask=channel < WIDTH, other=0.0)
            product = tl.dot(part, tl.trans(part), product, input_precision="ieee")
        # Triton cannot transpose a vector: what is needed by row and by column is reduced from a diagonal along each axis.
        square = tl.where(row == col, product, 0.0)
        row_square, col_square = tl.sum(square, axis=1)[:, None], tl.sum(square, axis=0)[None, :]
        cosine = product / tl.maximum(tl.sqrt(row_square), 1e-12) / tl.maximum(tl.sqrt(col_square), 1e-12)
        log_s = (cosine - 1.0) / kappa
        highest = tl.max(log_s, axis=1)
        log_degree = highest + tl.log(tl.sum(tl.exp(log_s - highest[:, None]), axis=1))
        col_log_degree = tl.sum(tl.where(row == col, log_degree[:, None], 0.0), axis=0)
        return tl.exp(log_s - 0.5 * log_degree[:, None] - 0.5 * col_log_degree[None, :])

    @triton.jit  # type: ignore[untyped-decorator]
    def _decompose(a, N: tl.constexpr, MAX_SWEEPS: tl.constexpr, TOLERANCE: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
        """Parallel Jacobi: eigenvalues on the diagonal of the first result, eigenvectors in the columns of the second.

        In every round, column c is rotated with its partner c ± N/2.
        """
        half: tl.constexpr = N // 2
        row, col = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
        v = tl.where(row == col, 1.0, 0.0)
        # Round robin: after its rotation, the column `source` moves to the column `col` (0 stays; the others go round).
        source = tl.where(
            col == 0, 0, tl.where(col == 1, half, tl.where(col < half, col - 1, tl.where(col < N - 1, col + 1, half - 1)))
        )
        from_self, from_partner = source == row, source == (row ^ half)
        diagonal, partner = row == col, col == (row ^ half)
        total_square = tl.sum(a * a)
        off_square = tl.sum(tl.where(diagonal, 0.0, a * a))
        sweep = 0
        while (sweep < MAX_SWEEPS) & (off_square > TOLERANCE * total_square):
            for _ in range(N - 1):
                col_diagonal = tl.sum(tl.where(diagonal, a, 0.0), axis=0)[None, :]  # a_pp, by column
                row_diagonal = tl.sum(tl.where(diagonal, a, 0.0), axis=1)[:, None]  # a_pp, by row
                partner_diagonal = tl.sum(tl.where(partner, col_diagonal, 0.0), axis=1)[:, None]  # a_qq of the partner, by row
                # Rounding lets a_pq and a_qp drift apart; partners must use the same number, or the rotation is none: their mean.
                transposed = tl.sum(tl.where(partner, a, 0.0), axis=0)[None, :]
                cross = 0.5 * tl.sum(tl.where(partner, a, 0.0) + tl.where(diagonal, transposed, 0.0), axis=1)[:, None]
                gap = partner_diagonal - row_diagonal
                sign = tl.where(gap > 0, 1.0, tl.where(gap < 0, -1.0, tl.where(row < half, 1.0, -1.0)))
                # tan of the angle: 2a_pq / (|gap| + √(gap² + 4a_pq²)), safe when both vanish
                root = tl.sqrt(gap * gap + 4.0 * cross * cross)
                tangent = sign * 2.0 * cross / tl.maximum(tl.abs(gap) + root, 1e-30)
                cosine = 1.0 / tl.sqrt(1.0 + tangent * tangent)
                sine = tangent * cosine
                q = tl.where(from_self, cosine, 0.0) + tl.where(from_partner, sine, 0.0)  # rotation and permutation in one
                a = tl.dot(tl.trans(q), tl.dot(a, q, input_precision="ieee"), input_precision="ieee")
                v = tl.dot(v, q, input_precision="ieee")
            off_square = tl.sum(tl.where(diagonal, 0.0, a * a))
            sweep += 1
        return a, v

    @triton.jit
    def _squared_distances(points, square, centres):  # type: ignore[no-untyped-def]
        """points (N, C), square (N,), centres (R, K, C) → (R, N, K)."""
        cross = tl.sum(points[None, :, None, :] * centres[:, None, :, :], axis=3)
        return tl.maximum(square[None, :, None] - 2.0 * cross + tl.sum(centres * centres, axis=2)[:, None, :], 0.0)

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        x, numbers, labels, values, vectors, kappa,
        WIDTH: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, R: tl.constexpr,  # noqa: N803
        RP: tl.constexpr, T: tl.constexpr, TP: tl.constexpr, ITERATIONS: tl.constexpr, MAX_SWEEPS: tl.constexpr,  # noqa: N803
        TOLERANCE: tl.constexpr,  # noqa: N803
    ):  # fmt: skip
        """One video a program: K clusters, R restarts and T trials; KP, RP and TP are the same, padded to powers of 2."""
        video = tl.program_id(0)
        row, col = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
        node, cluster, restart, trial = tl.arange(0, N), tl.arange(0, KP), tl.arange(0, RP), tl.arange(0, TP)
        a, v = _decompose(_similarity(x, kappa, WIDTH, N, CHUNK), N, MAX_SWEEPS, TOLERANCE)
        value = tl.sum(tl.where(row == col, a, 0.0), axis=0)
        tl.store(values + video * N + node, value)

        # The K leading eigenvectors are the points: column c goes to the rank of its eigenvalue among all.
        row_value = tl.sum(tl.where(row == col, a, 0.0), axis=1)[:, None]
        above = (row_value > value[None, :]) | ((row_value == value[None, :]) & (row < col))
        rank = tl.sum(above.to(tl.int32), axis=0)  # by column
        chosen = (rank[:, None] == cluster[None, :]) & (cluster[None, :] < K)
        points = tl.sum(v[:, :, None] * tl.where(chosen, 1.0, 0.0)[None, :, :], axis=1)  # (N, KP), zeros beyond K
        tl.store(vectors + (video * N + node[:, None]) * K + cluster[None, :], points, mask=cluster[None, :] < K)
        square = tl.sum(points * points, axis=1)

        # Greedy k-means++, all restarts at once: of a few points drawn by squared distance, the one that lowers the inertia most.
        centres = tl.zeros((RP, KP, KP), dtype=tl.float32)
        nearest = tl.full((RP, N), float("inf"), dtype=tl.float32)  # squared distance to the nearest centre
        weight = tl.full((RP, N), 1.0, dtype=tl.float32)
        valid = (restart[:, None] < R) & (trial[None, :] < T)
        for k in tl.static_range(K):
            cumulative = tl.cumsum(weight, axis=1)
            total = tl.sum(tl.where(node[None, :] == N - 1, cumulative, 0.0), axis=1)
            target = tl.load(numbers + (k * R + restart[:, None]) * T + trial[None, :], mask=valid, other=0.0) * total[:, None]
            index = tl.minimum(tl.sum((cumulative[:, :, None] <= target[:, None, :]).to(tl.int32), axis=1), N - 1)  # (R, T)
            drawn = tl.where(node[None, :, None] == index[:, None, :], 1.0, 0.0)  # (R, N, T)
            candidate = tl.sum(drawn[:, :, :, None] * points[None, :, None, :], axis=1)  # (R, T, C)
            updated = tl.minimum(nearest[:, :, None], _squared_distances(points, square, candidate))
            inertia = tl.where(trial[None, :] < T, tl.sum(updated, axis=1), float("inf"))
            best = tl.argmin(inertia, axis=1)
            is_best = tl.where(trial[None, :] == best[:, None], 1.0, 0.0)  # (R, T)
            nearest = tl.sum(tl.where(is_best[:, None, :] > 0, updated, 0.0), axis=2)
            weight = nearest
            centre = tl.sum(candidate * is_best[:, :, None], axis=1)  # (R, C)
            centres = tl.where(cluster[None, :, None] == k, centre[:, None, :], centres)

        # Lloyd's algorithm.
        restart_inertia = tl.zeros((RP,), dtype=tl.float32)
        label = tl.zeros((RP, N), dtype=tl.int32)
        for iteration in range(ITERATIONS + 1):
            distance = tl.where(cluster[None, None, :] < K, _squared_distances(points, square, centres), float("inf"))
            label = tl.argmin(distance, axis=2)  # (R, N)
            restart_inertia = tl.sum(tl.min(distance, axis=2), axis=1)
            if iteration < ITERATIONS:
                member = tl.where(label[:, :, None] == cluster[None, None, :], 1.0, 0.0)  # (R, N, K)
                count = tl.sum(member, axis=1)[:, :, None]
                mean = tl.sum(member[:, :, :, None] * points[None, :, None, :], axis=1) / tl.maximum(count, 1.0)
                centres = tl.where(count > 0, mean, centres)
        best_restart = tl.argmin(tl.where(restart < R, restart_inertia, float("inf")), axis=0)
        label = tl.sum(tl.where(restart[:, None] == best_restart, label, 0), axis=0)  # (N,)

        # Number clusters by first appearance.
        member = label[:, None] == cluster[None, :]
        first = tl.min(tl.where(member, node[:, None], N), axis=0)  # (K,)
        node_first = tl.sum(tl.where(member, first[None, :], 0), axis=1)  # first appearance of a node's cluster
        num_earlier = tl.sum((first[None, :] < node_first[:, None]).to(tl.int64), axis=1)
        tl.store(labels + video * N + node, num_earlier)
