"""The two losses of the paper (Sec. 3.2): nodes align with narrations, and threads tighten.

Both are −log of a share of softmax mass, log Σ_all − log Σ_positive. The large similarity matrix
between all nodes and all narrations of a batch is processed in blocks of rows
(`paired_logsumexp`), which are not stored for the gradient if there are several.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from hiero.config import LossConfig
from hiero.model.hiero import HiERO
from hiero.model.paired_logsumexp import BLOCK_SIZE, paired_logsumexp, to_single
from hiero.model.process_group import ProcessGroup
from hiero.model.unet import Level

MASKED = -1e30  # similarity of pairs that do not count; unlike −∞, all of a row may have it and the gradient is 0


class Timed(NamedTuple):
    """Nodes or narrations of a batch: vectors (B, N, D), times in seconds (B, N), and a mask (B, N)."""

    vectors: Tensor
    times: Tensor
    mask: Tensor


class Losses(NamedTuple):
    """The losses of a batch, scalars. `TrainStep` returns them.

    Attributes:
        alignment: L_vna, without its weight.
        threads: L_ft, without its weight; 0 if no threads were cut.
        total: The weighted sum, which training minimises.

    Examples:
        >>> import hiero, torch
        >>> losses = hiero.Losses(torch.tensor(2.0), torch.tensor(0.5), torch.tensor(2.5))
        >>> losses.total.item()
        2.5
    """

    alignment: Tensor
    threads: Tensor
    total: Tensor


def compute_losses(
    model: HiERO, levels: list[Level], narrations: Timed, config: LossConfig, peers: ProcessGroup | None = None
) -> Losses:
    """L = L_vna + L_ft of a batch, from the levels of the network and the text encoder's outputs.

    With `peers`, all nodes are compared with the narrations of all processes.
    """
    nodes = Timed(levels[0].features, levels[0].times, levels[0].mask)
    # Reachable nodes are fewer, but their number depends on the data: compiled steps need fixed
    # shapes, and peers need equal ones.
    if peers is None and not torch.compiler.is_compiling():
        nodes = gather_reachable(nodes, narrations, config)
    nodes = nodes._replace(vectors=model.video_head(nodes.vectors))
    texts = torch.where(narrations.mask[..., None], narrations.vectors, 0)  # padding may be NaN
    narrations = narrations._replace(vectors=model.text_head(texts))
    if peers is not None:
        nodes, narrations = (Timed(*map(peers.gather, part)) for part in (nodes, narrations))
    alignment = alignment_loss(nodes, narrations, config)
    tightness = alignment.new_zeros(())
    clustered = [(level.features, level.threads) for level in levels if level.threads is not None]
    if clustered and config.thread_weight:
        if config.projected_threads:
            clustered = [(model.video_head(features), threads) for features, threads in clustered]
        tightness = thread_loss(clustered, config.temperature)
        if peers is not None:
            tightness = tightness * peers.share(sum((threads >= 0).sum() for _, threads in clustered))
    total = config.alignment_weight * alignment + config.thread_weight * tightness
    return Losses(alignment, tightness, total)


def alignment_loss(node_batch: Timed, text_batch: Timed, config: LossConfig, level: int | Tensor = 0) -> Tensor:
    """L_vna: the narrations of a node are those of its video within w = 2^level/α seconds; all others are negatives.

        v2t = mean over nodes of −log( Σ_{n ∈ P} e^{v·n/τ} / Σ_{n ∈ P ∪ N} e^{v·n/τ} ),   t2v the same over narrations

    Nodes and narrations without a positive take no part, not even as negatives. With β > 0, a
    negative of the same video must lie within 2^level·β/α seconds. `sym` is the sum of both
    directions. `inside` is the share of the same loss computed within each video: grounding must
    distinguish the steps of one video, while negatives of other videos differ by their rooms.
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
    similarity = to_single(nodes @ texts.mT) / config.temperature  # (B, T, M), within each video
    # Positives must equal the same entries among all candidates, so both products use the precision of autocast.
    device_type = nodes.device.type
    dtype = torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else nodes.dtype
    node_all, text_all = paired_logsumexp(
        nodes.to(dtype), texts.to(dtype), config.temperature, node_used, text_used, excluded
    )
    positives = similarity.masked_fill(~positive, MASKED)
    node_positive, text_positive = positives.logsumexp(2), positives.logsumexp(1)
    loss = _mean_loss(node_all - node_positive, node_used, text_all - text_positive, text_used, config.mode)
    if config.inside > 0:
        candidate = node_used[:, :, None] & text_used[:, None, :]
        if excluded is not None:
            candidate = candidate & ~excluded
        candidates = similarity.masked_fill(~candidate, MASKED)
        node_all, text_all = candidates.logsumexp(2), candidates.logsumexp(1)
        inside_loss = _mean_loss(node_all - node_positive, node_used, text_all - text_positive, text_used, config.mode)
        loss = (1 - config.inside) * loss + config.inside * inside_loss
    return loss


def gather_reachable(nodes: Timed, texts: Timed, config: LossConfig) -> Timed:
    """The level-0 nodes that have a positive. The others take no part in L_vna, so h_v can skip them."""
    near = (nodes.times[:, :, None] - texts.times[:, None, :]).abs() <= 1 / config.alpha
    used = (near & texts.mask[:, None, :]).any(2) & nodes.mask
    order = (~used).int().argsort(dim=1, stable=True)[:, : max(1, int(used.sum(1).max()))]
    vectors = nodes.vectors.gather(1, order[..., None].expand(-1, -1, nodes.vectors.shape[2]))
    return Timed(vectors, nodes.times.gather(1, order), used.gather(1, order))


def _mean_loss(node_loss: Tensor, node_used: Tensor, text_loss: Tensor, text_used: Tensor, mode: str) -> Tensor:
    """Mean over used nodes (v2t), over used narrations (t2v), or the sum of both."""
    loss = node_loss.new_zeros(())
    if mode in ("v2t", "sym"):
        loss = loss + torch.where(node_used, node_loss, 0.0).sum() / node_used.sum().clamp_min(1)
    if mode in ("t2v", "sym"):
        loss = loss + torch.where(text_used, text_loss, 0.0).sum() / text_used.sum().clamp_min(1)
    return loss


def thread_loss(levels: list[tuple[Tensor, Tensor]], temperature: float = 0.05) -> Tensor:
    """L_ft: a node should be similar to the nodes of its own thread.

        mean over nodes i of −log( Σ_{j: cⱼ = cᵢ} e^{xᵢ·xⱼ/τ} / Σⱼ e^{xᵢ·xⱼ/τ} )

    where j are the nodes of the same video and level, i included.
    """
    parts, counts = [], []
    for x, threads in levels:
        x = F.normalize(to_single(x), dim=-1)
        num_rows = max(1, BLOCK_SIZE // max(1, x.shape[0] * x.shape[1]))
        for start in range(0, x.shape[1], num_rows):
            rows, row_threads = x[:, start : start + num_rows], threads[:, start : start + num_rows]
            if x.shape[1] > num_rows:  # long videos: compute each block again for the gradient instead of storing it
                part = checkpoint(_thread_loss_sum, rows, row_threads, x, threads, temperature, use_reentrant=False)
            else:
                part = _thread_loss_sum(rows, row_threads, x, threads, temperature)
            parts.append(part)
        counts.append((threads >= 0).sum())
    return reduce(operator.add, parts) / reduce(operator.add, counts).clamp_min(1)


def _thread_loss_sum(rows: Tensor, row_threads: Tensor, x: Tensor, threads: Tensor, temperature: float) -> Tensor:
    """Sum over the rows (B, R, D) of log Σ_all − log Σ_own thread."""
    logits = to_single(rows @ x.mT) / temperature
    used = row_threads >= 0
    # Rows of padding are compared with everything, so that no sum is empty, and dropped below.
    candidates = logits.masked_fill((threads < 0)[:, None, :] & used[..., None], -torch.inf)
    positives = logits.masked_fill((threads[:, None, :] != row_threads[..., None]) & used[..., None], -torch.inf)
    return torch.where(used, candidates.logsumexp(-1) - positives.logsumexp(-1), 0.0).sum()
