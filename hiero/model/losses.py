"""The two losses of the paper (Sec. 3.2): align nodes with narrations, tighten threads.

Both are −log of a share of softmax mass, log Σ_all − log Σ_positive. The large similarity matrix between all nodes and all
narrations of a batch is walked in row blocks (`paired_logsumexp`); unless one block holds it all, none is kept for the gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from hiero.config import LossConfig
from hiero.kernels.paired_logsumexp import BLOCK, paired_logsumexp, to_single


def alignment_loss(
    nodes: Tensor,
    node_times: Tensor,
    node_mask: Tensor,
    texts: Tensor,
    text_times: Tensor,
    text_mask: Tensor,
    config: LossConfig,
    level: int | Tensor = 0,
) -> Tensor:
    """L_vna: a node's narrations are those of its video within w = 2^level/α seconds; all others push it away.

        v2t = mean over nodes of −log( Σ_{n ∈ P} e^{v·n/τ} / Σ_{n ∈ P ∪ N} e^{v·n/τ} ),   t2v the same over narrations

    nodes (B, T, E), texts (B, M, E): h_v and h_t outputs, normalised here; times and masks (B, T), (B, M);
    level: one for all, or (B, T). Nodes and narrations without a positive take no part, not even as negatives.
    With β > 0 a same-video negative must lie within 2^level·β/α seconds. `sym` is the sum of both directions.
    `inside` is the share of the same loss with each video alone: the steps of one recording are told apart, which is what
    grounding asks for, while negatives from other videos are told apart by their rooms.
    A batch without positives gives 0.
    """
    scale = 2.0 ** torch.as_tensor(level, device=nodes.device)
    window = (scale / config.alpha).to(node_times).expand_as(node_times)
    gap = (node_times[:, :, None] - text_times[:, None, :]).abs()  # (B, T, M)
    positive = (gap <= window[..., None]) & node_mask[:, :, None] & text_mask[:, None, :]
    node_used, text_used = positive.any(2), positive.any(1)

    nodes = F.normalize(to_single(nodes), dim=-1)
    texts = F.normalize(texts.to(nodes.dtype), dim=-1)
    own = to_single(nodes @ texts.mT) / config.temperature  # (B, T, M), a video with its own narrations
    positive_only = own.masked_fill(~positive, -torch.inf)
    excluded = None
    if config.beta > 0:
        excluded = (gap > (window * config.beta)[..., None]) & ~positive
    kind = nodes.device.type
    precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else nodes.dtype
    per_node, per_text = paired_logsumexp(
        nodes.to(precision), texts.to(precision), config.temperature, node_used, text_used, excluded
    )

    best_node, best_text = _safe_logsumexp(positive_only, 2, node_used), _safe_logsumexp(positive_only, 1, text_used)
    loss = _both_ways(per_node - best_node, node_used, per_text - best_text, text_used, config.mode)
    if config.inside > 0:
        candidate = node_used[:, :, None] & text_used[:, None, :]
        if excluded is not None:
            candidate = candidate & ~excluded
        alone = own.masked_fill(~candidate, -torch.inf)
        per_node, per_text = _safe_logsumexp(alone, 2, node_used), _safe_logsumexp(alone, 1, text_used)
        own_loss = _both_ways(per_node - best_node, node_used, per_text - best_text, text_used, config.mode)
        loss = (1 - config.inside) * loss + config.inside * own_loss
    return loss


def gather_reachable(
    features: Tensor, times: Tensor, mask: Tensor, text_times: Tensor, text_mask: Tensor, config: LossConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Only the level-0 nodes that have a positive, moved together: the others take no part in L_vna, so h_v can skip them.

    (B, T, D), (B, T), (B, T) → the same with T cut to the most that any video has. Its size depends on the data.
    """
    near = (times[:, :, None] - text_times[:, None, :]).abs() <= 1 / config.alpha
    used = (near & text_mask[:, None, :]).any(2) & mask
    order = (~used).int().argsort(dim=1, stable=True)[:, : max(1, int(used.sum(1).max()))]
    return features.gather(1, order[..., None].expand(-1, -1, features.shape[2])), times.gather(1, order), used.gather(1, order)


def _safe_logsumexp(x: Tensor, dim: int, used: Tensor) -> Tensor:
    """log Σ exp along `dim`, 0 with zero gradient where nothing is `used` (there every entry is −∞)."""
    x = torch.where(used.unsqueeze(dim), x, 0.0)
    return torch.where(used, x.logsumexp(dim), 0.0)


def _both_ways(node_gap: Tensor, node_used: Tensor, text_gap: Tensor, text_used: Tensor, mode: str) -> Tensor:
    """Mean over used nodes (v2t), over used narrations (t2v), or the sum of both."""
    loss = node_gap.new_zeros(())
    if mode in ("v2t", "sym"):
        loss = loss + torch.where(node_used, node_gap, 0.0).sum() / node_used.sum().clamp_min(1)
    if mode in ("t2v", "sym"):
        loss = loss + torch.where(text_used, text_gap, 0.0).sum() / text_used.sum().clamp_min(1)
    return loss


def thread_loss(levels: list[tuple[Tensor, Tensor]], temperature: float = 0.05) -> Tensor:
    """L_ft: a node's similarity should lie with the nodes of its own thread.

        mean over nodes i of −log( Σ_{j: cⱼ = cᵢ} e^{xᵢ·xⱼ/τ} / Σⱼ e^{xᵢ·xⱼ/τ} ),   j in the same video and level, i included

    levels: pairs of features (B, T, D), normalised here, and threads (B, T), negative where a node takes no part.
    One mean over the nodes of all levels. Without any node it gives 0.
    """
    total: Tensor | None = None
    count: Tensor | None = None
    for x, threads in levels:
        x = F.normalize(to_single(x), dim=-1)
        step = max(1, BLOCK // max(1, x.shape[0] * x.shape[1]))
        for rows in range(0, x.shape[1], step):
            part = _thread_rows(x[:, rows : rows + step], threads[:, rows : rows + step], x, threads, temperature, step)
            total = part if total is None else total + part
        num = (threads >= 0).sum()
        count = num if count is None else count + num
    if total is None or count is None:
        raise ValueError("thread_loss needs at least one level")
    return total / count.clamp_min(1)


def _thread_rows(rows: Tensor, own: Tensor, x: Tensor, threads: Tensor, temperature: float, step: int) -> Tensor:
    if x.shape[1] > step:  # long videos: compute each block again for the gradient instead of keeping it
        return checkpoint(_thread_gap, rows, own, x, threads, temperature, use_reentrant=False)
    return _thread_gap(rows, own, x, threads, temperature)


def _thread_gap(rows: Tensor, own: Tensor, x: Tensor, threads: Tensor, temperature: float) -> Tensor:
    """Sum over the given rows of log Σ_all − log Σ_own thread."""
    logits = to_single(rows @ x.mT) / temperature
    used = own >= 0
    # A row that takes no part sees everything, itself included, so that no sum is empty; it is dropped below.
    every = logits.masked_fill((threads < 0)[:, None, :] & used[..., None], -torch.inf)
    same = logits.masked_fill((threads[:, None, :] != own[..., None]) & used[..., None], -torch.inf)
    return torch.where(used, every.logsumexp(-1) - same.logsumexp(-1), 0.0).sum()
