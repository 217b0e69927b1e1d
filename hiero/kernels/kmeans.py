"""K-Means for many small problems at once, the same on every device for a given seed.

Every video in a batch uses the same few random numbers, so it gets the same clusters alone or in a
batch. Restarts run side by side. Without `early_stop` nothing waits for the host, which lets a CUDA
graph capture it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.kernels.kmeans_cpu import kmeans_of_points

MIN_POINTS_ALONE = 256  # of a video on a CPU, from which on it is clustered by itself (`kmeans_cpu`)


def uniform_hash(*shape: int, random_state: int, device: torch.device) -> Tensor:
    """Numbers in [0, 1): an integer hash of index and seed, so that any device draws the same, also
    while captured.
    """
    x = torch.arange(math.prod(shape), device=device) + (random_state * 0x9E3779B9 & 0xFFFFFFFF)
    for _ in range(2):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    # rounding to single precision could give 1
    return ((x ^ (x >> 16)).float() / 2**32).clamp_max(1 - 2**-24).view(shape)


def num_seeding_trials(num_clusters: int) -> int:
    """How many points greedy k-means++ draws for each centre; as in scikit-learn."""
    return 2 + int(math.log(num_clusters))


def kmeans(
    points: Tensor,
    num_clusters: int,
    *,
    random_state: int = 0,
    num_restarts: int = 8,
    mask: Tensor | None = None,
    num_iterations: int = 50,
    early_stop: bool = True,
) -> Tensor:
    """Cluster of each point: the best of several restarts of Lloyd's algorithm from k-means++ seeds."""
    on_cpu = points.dtype == torch.float32 and points.device.type == "cpu" and not torch.compiler.is_compiling()
    if on_cpu and early_stop and points.shape[1] >= MIN_POINTS_ALONE:
        labels = _kmeans_alone(points, num_clusters, random_state, num_restarts, mask, num_iterations)
        return renumber(labels, num_clusters, mask)
    valid = (
        torch.ones(points.shape[:2], dtype=points.dtype, device=points.device)
        if mask is None
        else mask.to(points.dtype)
    )
    points = points * valid[..., None]
    square = points.square().sum(-1)[:, None, :, None]

    def squared_distances(centres: Tensor) -> Tensor:
        """(B, R, k, C) → (B, R, N, k), 0 where masked."""
        cross = torch.einsum("bnc,brkc->brnk", points, centres)
        return (square - 2 * cross + centres.square().sum(-1)[:, :, None]).clamp_min(0) * valid[:, None, :, None]

    centres = _seed_centres(points, valid, squared_distances, num_clusters, num_restarts, random_state)
    labels = squared_distances(centres).argmin(-1)  # (B, R, N)
    for _ in range(num_iterations):
        member = F.one_hot(labels, num_clusters).to(points.dtype) * valid[:, None, :, None]
        count = member.sum(2)[..., None]
        mean = torch.einsum("brnk,bnc->brkc", member, points) / count.clamp_min(1)
        centres = torch.where(count > 0, mean, centres)  # an empty cluster stays where it is
        updated = squared_distances(centres).argmin(-1)
        if early_stop and torch.equal(updated, labels):
            break
        labels = updated
    inertia = squared_distances(centres).amin(-1).sum(-1)  # (B, R)
    best = inertia.argmin(1)[:, None, None].expand(-1, 1, labels.shape[-1])
    return renumber(labels.gather(1, best)[:, 0], num_clusters, mask)


def _kmeans_alone(
    points: Tensor, num_clusters: int, random_state: int, num_restarts: int, mask: Tensor | None, num_iterations: int
) -> Tensor:
    """Labels of each video (B, N), by `kmeans_cpu`: the same clusters, without computing again what
    did not change.
    """
    shape = num_clusters, num_restarts, num_seeding_trials(num_clusters)
    numbers = uniform_hash(*shape, random_state=random_state, device=points.device).numpy()
    labels = torch.zeros(points.shape[:2], dtype=torch.long)
    for i, video in enumerate(points.detach()):
        used = slice(None) if mask is None else mask[i]
        arguments = video[used].numpy(), num_clusters, numbers, num_iterations
        labels[i, used] = torch.from_numpy(kmeans_of_points(*arguments, num_workers=torch.get_num_threads()))
    return labels


def _seed_centres(
    points: Tensor,
    valid: Tensor,
    squared_distances: Callable[[Tensor], Tensor],
    num_clusters: int,
    num_restarts: int,
    random_state: int,
) -> Tensor:
    """Greedy k-means++ (B, R, K, C): of a few points drawn by squared distance, the one that lowers
    the inertia most.
    """
    numbers = uniform_hash(
        num_clusters, num_restarts, num_seeding_trials(num_clusters), random_state=random_state, device=points.device
    ).to(points.dtype)
    centres: list[Tensor] = []
    weight = valid[:, None].expand(-1, num_restarts, -1)  # (B, R, N): uniform for the first centre
    nearest = torch.full_like(weight, torch.inf)  # squared distance to the nearest centre
    for k in range(num_clusters):
        # Draw points with probability proportional to their weight, by inverting the cumulative sum.
        cumulative = weight.cumsum(-1)
        target = numbers[k] * cumulative[..., -1:]  # (B, R, trials)
        index = torch.searchsorted(cumulative, target, right=True).clamp_max(points.shape[1] - 1)
        trial = (
            points[:, None]
            .expand(-1, num_restarts, -1, -1)
            .gather(2, index[..., None].expand(*index.shape, points.shape[2]))
        )
        updated = torch.minimum(nearest[..., None], squared_distances(trial))  # (B, R, N, trials)
        best = updated.sum(2).argmin(-1)[..., None, None]  # (B, R, 1, 1)
        nearest = weight = updated.gather(3, best.expand(*updated.shape[:3], 1))[..., 0]
        centres.append(trial.gather(2, best.expand(*best.shape[:3], points.shape[2]))[:, :, 0])
    return torch.stack(centres, dim=2)


def renumber(labels: Tensor, num_clusters: int, mask: Tensor | None = None) -> Tensor:
    """Number clusters by when they first appear, so that thread 0 is the one that the video begins
    with. (B, N) → (B, N).
    """
    index = torch.arange(labels.shape[1], device=labels.device)
    member = labels[..., None] == torch.arange(num_clusters, device=labels.device)
    if mask is not None:
        member = member & mask[..., None]
    first = torch.where(member, index[:, None], labels.shape[1]).amin(1)  # (B, K)
    num_earlier = (first[:, None] < first[..., None]).sum(-1)  # ties exist only among empty clusters
    labels = num_earlier.gather(1, labels)
    return labels if mask is None else torch.where(mask, labels, -1)
