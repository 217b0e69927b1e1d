"""HiERO on edge lists, node by node and edge by edge, in the style of the release. Slow and easy to check.

It borrows the weights of a model and must agree with it. Videos are concatenated: x (N, D), video (N,), time (N,).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.model.hiero import HiERO
from hiero.model.stage import Stage
from hiero.model.tdgc import TDGC


def radius_edges(position: Tensor, group: Tensor, reach: float) -> Tensor:
    """All ordered pairs (source, target) of one group that are less than `reach` apart. (2, E)"""
    pairs = []
    for g in group.unique():
        members = (group == g).nonzero()[:, 0]
        near = (position[members][:, None] - position[members][None]).abs() < reach
        near.fill_diagonal_(False)
        source, target = near.nonzero(as_tuple=True)
        pairs.append(torch.stack([members[source], members[target]]))
    return torch.cat(pairs, 1)


def gate(layer: TDGC, distance: Tensor) -> Tensor:
    """The gate of each edge, through the plain two-layer MLP."""
    hidden = F.leaky_relu(layer.gate.hidden(distance[:, None]), 0.01)
    return torch.tanh(layer.gate.out(hidden))


def tdgc(layer: TDGC, x: Tensor, edges: Tensor, position: Tensor) -> Tensor:
    size = x.shape[1]
    root, neighbour = layer.mix.weight[:size], layer.mix.weight[size:]
    told = F.leaky_relu(F.linear(x, neighbour, layer.mix.bias[size:]), 0.2)
    source, target = edges
    gap = position[source] - position[target]
    message = torch.sign(gap)[:, None] * gate(layer, gap.abs()) * told[source]
    count = torch.zeros(len(x), dtype=x.dtype, device=x.device).index_add(0, target, torch.ones_like(gap))
    heard = torch.zeros_like(x).index_add(0, target, message) / count.clamp_min(1)[:, None]
    return F.linear(x, root) + layer.mix.bias[:size] + heard


def stage(module: Stage, x: Tensor, edges: Tensor, position: Tensor) -> Tensor:
    x = module.dropout(x)
    for i, layer in enumerate(module.layers):
        x = tdgc(layer, F.leaky_relu(x, 0.2) if i else x, edges, position)
    return F.leaky_relu(module.norm(x), 0.2)


def pool(x: Tensor, video: Tensor, index: Tensor) -> Tensor:
    """Mean over self, self-loop and the nodes next to it; then the even nodes."""
    out = []
    for i in (index % 2 == 0).nonzero()[:, 0].tolist():
        near = [i, i]
        if i > 0 and video[i - 1] == video[i]:
            near.append(i - 1)
        if i + 1 < len(x) and video[i + 1] == video[i]:
            near.append(i + 1)
        out.append(x[near].mean(0))
    return torch.stack(out)


def pool_edges(x: Tensor, video: Tensor, index: Tensor) -> Tensor:
    """The same as `pool` in a handful of calls, for timing."""
    num = len(x)
    after = (video[1:] == video[:-1]).nonzero()[:, 0]
    source = torch.cat([torch.arange(num, device=x.device)] * 2 + [after, after + 1])
    target = torch.cat([torch.arange(num, device=x.device)] * 2 + [after + 1, after])
    count = torch.zeros(num, dtype=x.dtype, device=x.device).index_add(0, target, torch.ones_like(target, dtype=x.dtype))
    mean = torch.zeros_like(x).index_add(0, target, x[source]) / count[:, None]
    return mean[index % 2 == 0]


def upsample(coarse: Tensor, coarse_time: Tensor, coarse_video: Tensor, time: Tensor, video: Tensor) -> Tensor:
    """Each node takes its 2 nearest coarse nodes, weighted by 1/distance² (the earlier first on a tie)."""
    rows = []
    for v in video.unique():
        fine, near = (video == v).nonzero()[:, 0], (coarse_video == v).nonzero()[:, 0]
        distance = (time[fine][:, None] - coarse_time[near][None]).abs()
        nearest, which = distance.sort(dim=1, stable=True)
        nearest, which = nearest[:, :2], which[:, :2]
        weight = 1 / nearest.square().clamp_min(1e-16)
        rows.append((coarse[near[which]] * weight[..., None]).sum(1) / weight.sum(1, keepdim=True))
    return torch.cat(rows)


def ranks(thread: Tensor, video: Tensor) -> tuple[Tensor, Tensor]:
    """Rank of each node among the members of its thread, and an id for each (video, thread)."""
    group = video * (int(thread.max()) + 1) + thread
    rank = torch.zeros_like(group)
    for g in group.unique():
        members = (group == g).nonzero()[:, 0]
        rank[members] = torch.arange(len(members), device=group.device)
    return rank, group


class EdgeListHiERO:
    """Forward pass of `model` on concatenated videos. `cut(x, video, level)` gives threads; None: one a video."""

    def __init__(self, model: HiERO, cut=None, fast_pool: bool = False) -> None:
        self.model, self.cut = model, cut
        self.pool = pool_edges if fast_pool else pool

    def __call__(self, x: Tensor, time: Tensor, video: Tensor) -> list[dict[str, Tensor]]:
        config = self.model.config
        index = torch.cat([torch.arange(int((video == v).sum()), device=x.device) for v in video.unique()])
        x = self.model.project(x)
        levels = [{"x": x, "time": time, "video": video, "index": index}]
        for depth, module in enumerate(self.model.encoder.stages, start=1):
            kept = index % 2 == 0
            x = self.pool(x, video, index)
            time, video, index = time[kept], video[kept], index[kept] // 2
            x = x + stage(module, x, radius_edges(time, video, config.radius_s * 2**depth), time)
            levels.append({"x": x, "time": time, "video": video, "index": index})
        out = []
        below = levels[-1]
        x = below["x"]
        for depth, module in zip(range(len(levels) - 2, -1, -1), self.model.decoder.stages, strict=True):
            level = levels[depth]
            x = level["x"] + upsample(x, below["time"], below["video"], level["time"], level["video"])
            thread = torch.full_like(level["video"], -1)
            if depth == 0:
                x = stage(module, x, radius_edges(level["time"], level["video"], config.radius_s), level["time"])
            else:
                thread = self.cut(x, level["video"], depth) if self.cut else torch.zeros_like(level["video"])
                rank, group = ranks(thread, level["video"])
                x = stage(module, x, radius_edges(rank.to(x.dtype), group, config.thread_radius), rank.to(x.dtype))
            below = level
            out.append({**level, "x": x, "thread": thread})
        return out[::-1]
