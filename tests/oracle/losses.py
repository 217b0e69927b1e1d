"""The losses as sums over dense matrices with masks, in double precision when asked: slow twins of hiero.model.losses."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.config import LossConfig


def alignment(nodes, node_time, node_video, texts, text_time, text_video, config: LossConfig, level=0) -> Tensor:
    """nodes (N, E), texts (M, E), each with a time and the video it belongs to."""
    scale = 2.0 ** torch.as_tensor(level, dtype=nodes.dtype, device=nodes.device).expand(len(nodes))
    gap = (node_time[:, None] - text_time[None]).abs()
    same = node_video[:, None] == text_video[None]
    positive = same & (gap <= (scale / config.alpha)[:, None])
    candidate = torch.ones_like(same)
    if config.beta > 0:
        candidate = ~same | positive | (gap <= (scale * config.beta / config.alpha)[:, None])
    rows, columns = positive.any(1), positive.any(0)
    if not rows.any():
        return (nodes.sum() + texts.sum()) * 0
    similarity = F.normalize(nodes, dim=1) @ F.normalize(texts, dim=1).T / config.temperature
    mass = similarity.exp()[rows][:, columns]
    positive, candidate = positive[rows][:, columns], candidate[rows][:, columns]
    same = same[rows][:, columns]

    def both(candidate: Tensor) -> Tensor:
        v2t = -((mass * positive).sum(1) / (mass * candidate).sum(1)).log().mean()
        t2v = -((mass * positive).sum(0) / (mass * candidate).sum(0)).log().mean()
        return {"v2t": v2t, "t2v": t2v, "sym": v2t + t2v}[config.mode]

    return (1 - config.inside) * both(candidate) + config.inside * both(candidate & same)


def threads(x, video, level, thread, temperature: float) -> Tensor:
    """x (N, D); nodes with thread < 0 take no part."""
    kept = thread >= 0
    if not kept.any():
        return x.sum() * 0
    x, video, level, thread = x[kept], video[kept], level[kept], thread[kept]
    x = F.normalize(x, dim=1)
    mass = (x @ x.T / temperature).exp()
    near = (video[:, None] == video[None]) & (level[:, None] == level[None])
    own = near & (thread[:, None] == thread[None])
    return -((mass * own).sum(1) / (mass * near).sum(1)).log().mean()
