"""The losses as sums over dense matrices with masks: slow versions of hiero.model.losses."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.config import LossConfig


def alignment(nodes, node_time, node_video, texts, text_time, text_video, config: LossConfig, level=0) -> Tensor:
    """L_vna of nodes (N, E) and texts (M, E), each with a time and the video that it belongs to."""
    scale = 2.0 ** torch.as_tensor(level, dtype=nodes.dtype, device=nodes.device).expand(len(nodes))
    distance = (node_time[:, None] - text_time[None]).abs()
    same = node_video[:, None] == text_video[None]
    positive = same & (distance <= (scale / config.alpha)[:, None])
    candidate = torch.ones_like(same)
    if config.beta > 0:
        candidate = ~same | positive | (distance <= (scale * config.beta / config.alpha)[:, None])
    rows, columns = positive.any(1), positive.any(0)
    if not rows.any():
        return (nodes.sum() + texts.sum()) * 0
    similarity = F.normalize(nodes, dim=1) @ F.normalize(texts, dim=1).T / config.temperature
    mass = similarity.exp()[rows][:, columns]
    positive, candidate = positive[rows][:, columns], candidate[rows][:, columns]
    same = same[rows][:, columns]

    def share_loss(candidate: Tensor) -> Tensor:
        v2t = -((mass * positive).sum(1) / (mass * candidate).sum(1)).log().mean()
        t2v = -((mass * positive).sum(0) / (mass * candidate).sum(0)).log().mean()
        return {"v2t": v2t, "t2v": t2v, "sym": v2t + t2v}[config.mode]

    return (1 - config.inside) * share_loss(candidate) + config.inside * share_loss(candidate & same)


def threads(x, video, level, thread, temperature: float) -> Tensor:
    """L_ft of nodes (N, D), each with its video, level and thread; those with thread < 0 take no part."""
    used = thread >= 0
    if not used.any():
        return x.sum() * 0
    x, video, level, thread = x[used], video[used], level[used], thread[used]
    x = F.normalize(x, dim=1)
    mass = (x @ x.T / temperature).exp()
    candidate = (video[:, None] == video[None]) & (level[:, None] == level[None])
    positive = candidate & (thread[:, None] == thread[None])
    return -((mass * positive).sum(1) / (mass * candidate).sum(1)).log().mean()
