"""The two losses of the paper (Sec. 3.2): align nodes with narrations, tighten threads.

Both are −log of a share of softmax mass, log Σ_all − log Σ_positive. The large similarity matrix
between all nodes and all narrations of a batch is walked in row blocks (`paired_logsumexp`); unless
one block holds it all, none is stored for the gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from hiero.config import LossConfig
from hiero.kernels.paired_logsumexp import BLOCK_SIZE, paired_logsumexp, to_single


class Timed(NamedTuple):
    """Nodes or narrations of a batch: vectors (B, N, D), their times in seconds (B, N), and a mask (B, N)."""

    vectors: Tensor
    times: Tensor
    mask: Tensor


def alignment_loss(node_batch: Timed, text_batch: Timed, config: LossConfig, level: int | Tensor = 0) -> Tensor:
    """L_vna: a node's narrations are those of its video within w = 2^level/α seconds; all others push it away.

        v2t = mean over nodes of −log( Σ_{n ∈ P} e^{v·n/τ} / Σ_{n ∈ P ∪ N} e^{v·n/τ} ),   t2v the same over narrations

    Nodes and narrations without a positive take no part, not even as negatives. With β > 0 a
    same-video negative must lie within 2^level·β/α seconds. `sym` is the sum of both directions.
    `inside` is the share of the same loss with each video alone: its steps are then distinguished
    from each other, which is what grounding needs, while negatives from other videos can be
    distinguished by their rooms.
    """
    nodes, node_times, node_mask = node_batch
    texts, text_times, text_mask = text_batch
    scale = 2.0 ** torch.as_tensor(level, device=nodes.device)
    window = (scale / config.alpha).to(node_times).expand_as(node_times)
    distance = (node_times[:, :, None] - text_times[:, None, :]).abs()  # (B, T, M)
    positive = (distance <= window[..., None]) & node_mask[:, :, None] & text_mask[:, None, :]
    node_used, text_used = positive.any(2), positive.any(1)
    excluded = None
    if config.beta > 0:
        excluded = (distance > (window * config.beta)[..., None]) & ~positive

    nodes = F.normalize(to_single(nodes), dim=-1)
    texts = F.normalize(texts.to(nodes.dtype), dim=-1)
    similarity = to_single(nodes @ texts.mT) / config.temperature  # (B, T, M), of a video with its own narrations
    # Positives must be the same numbers among all candidates as above, so both products have autocast's precision.
    device_type = nodes.device.type
    dtype = torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else nodes.dtype
    node_all, text_all = paired_logsumexp(
        nodes.to(dtype), texts.to(dtype), config.temperature, node_used, text_used, excluded
    )
    positives = similarity.masked_fill(~positive, -torch.inf)
    node_positive, text_positive = _safe_logsumexp(positives, 2, node_used), _safe_logsumexp(positives, 1, text_used)
    loss = _mean_loss(node_all - node_positive, node_used, text_all - text_positive, text_used, config.mode)
    if config.inside > 0:
        candidate = node_used[:, :, None] & text_used[:, None, :]
        if excluded is not None:
            candidate = candidate & ~excluded
        candidates = similarity.masked_fill(~candidate, -torch.inf)
        node_all, text_all = _safe_logsumexp(candidates, 2, node_used), _safe_logsumexp(candidates, 1, text_used)
        inside_loss = _mean_loss(node_all - node_positive, node_used, text_all - text_positive, text_used, config.mode)
        loss = (1 - config.inside) * loss + config.inside * inside_loss
    return loss


def gather_reachable(nodes: Timed, texts: Timed, config: LossConfig) -> Timed:
    """Only the level-0 nodes that have a positive, moved together: the others take no part in L_vna,
    so h_v can skip them.
    """
    near = (nodes.times[:, :, None] - texts.times[:, None, :]).abs() <= 1 / config.alpha
    used = (near & texts.mask[:, None, :]).any(2) & nodes.mask
    order = (~used).int().argsort(dim=1, stable=True)[:, : max(1, int(used.sum(1).max()))]
    vectors = nodes.vectors.gather(1, order[..., None].expand(-1, -1, nodes.vectors.shape[2]))
    return Timed(vectors, nodes.times.gather(1, order), used.gather(1, order))


def _safe_logsumexp(x: Tensor, dim: int, used: Tensor) -> Tensor:
    """log Σ exp along `dim`, 0 with zero gradient where nothing is `used` (where every entry is −∞)."""
    x = torch.where(used.unsqueeze(dim), x, 0.0)
    return torch.where(used, x.logsumexp(dim), 0.0)


def _mean_loss(node_loss: Tensor, node_used: Tensor, text_loss: Tensor, text_used: Tensor, mode: str) -> Tensor:
    """Mean over used nodes (v2t), over used narrations (t2v), or the sum of both."""
    loss = node_loss.new_zeros(())
    if mode in ("v2t", "sym"):
        loss = loss + torch.where(node_used, node_loss, 0.0).sum() / node_used.sum().clamp_min(1)
    if mode in ("t2v", "sym"):
        loss = loss + torch.where(text_used, text_loss, 0.0).sum() / text_used.sum().clamp_min(1)
    return loss


def thread_loss(levels: list[tuple[Tensor, Tensor]], temperature: float = 0.05) -> Tensor:
    """L_ft: a node's similarity should lie with the nodes of its own thread.

        mean over nodes i of −log( Σ_{j: cⱼ = cᵢ} e^{xᵢ·xⱼ/τ} / Σⱼ e^{xᵢ·xⱼ/τ} )

    where j are the nodes of the same video and level, i included.
    """
    total: Tensor | None = None
    count: Tensor | None = None
    for x, threads in levels:
        x = F.normalize(to_single(x), dim=-1)
        num_rows = max(1, BLOCK_SIZE // max(1, x.shape[0] * x.shape[1]))
        for start in range(0, x.shape[1], num_rows):
            rows, row_threads = x[:, start : start + num_rows], threads[:, start : start + num_rows]
            if x.shape[1] > num_rows:  # long videos: compute each block again for the gradient instead of storing it
                part = checkpoint(_thread_loss_sum, rows, row_threads, x, threads, temperature, use_reentrant=False)
            else:
                part = _thread_loss_sum(rows, row_threads, x, threads, temperature)
            total = part if total is None else total + part
        num_used = (threads >= 0).sum()
        count = num_used if count is None else count + num_used
    if total is None or count is None:
        raise ValueError("thread_loss needs at least one level")
    return total / count.clamp_min(1)


def _thread_loss_sum(rows: Tensor, row_threads: Tensor, x: Tensor, threads: Tensor, temperature: float) -> Tensor:
    """Sum over the rows (B, R, D) of log Σ_all − log Σ_own thread."""
    logits = to_single(rows @ x.mT) / temperature
    used = row_threads >= 0
    # A row that takes no part is compared with everything, itself included, so that no sum is
    # empty; it is dropped below.
    candidates = logits.masked_fill((threads < 0)[:, None, :] & used[..., None], -torch.inf)
    positives = logits.masked_fill((threads[:, None, :] != row_threads[..., None]) & used[..., None], -torch.inf)
    return torch.where(used, candidates.logsumexp(-1) - positives.logsumexp(-1), 0.0).sum()
