"""HiERO on edge lists, node by node and edge by edge, in the style of the release. Slow and easy to check.

It borrows the weights of a model and must agree with it. Videos are concatenated: x (N, D), video (N,), time (N,).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.model.hiero import HiERO
from hiero.model.tdgc import TDGC
from hiero.model.unet import Stage


def radius_edges(position: Tensor, group: Tensor, radius: float) -> Tensor:
    """All ordered pairs (source, target) of one group that are less than `radius` apart, (2, E)."""
    pairs = []
    for g in group.unique():
        members = (group == g).nonzero()[:, 0]
        near = (position[members][:, None] - position[members][None]).abs() < radius
        near.fill_diagonal_(False)
        source, target = near.nonzero(as_tuple=True)
        pairs.append(torch.stack([members[source], members[target]]))
    return torch.cat(pairs, 1)


def gate(layer: TDGC, distance: Tensor) -> Tensor:
    """The gate of each edge, through the plain two-layer MLP."""
    hidden = F.leaky_relu(layer.gate.hidden(distance[:, None]), 0.01)
    return torch.tanh(layer.gate.out(hidden))


def tdgc(layer: TDGC, x: Tensor, edges: Tensor, position: Tensor) -> Tensor:
    """One TDGC layer, (N, D) → (N, D)."""
    size = x.shape[1]
    root_weight, neighbour_weight = layer.mix.weight[:size], layer.mix.weight[size:]
    sent = F.leaky_relu(F.linear(x, neighbour_weight, layer.mix.bias[size:]), 0.2)
    source, target = edges
    gap = position[source] - position[target]
    message = torch.sign(gap)[:, None] * gate(layer, gap.abs()) * sent[source]
    degree = torch.zeros(len(x), dtype=x.dtype, device=x.device).index_add(0, target, torch.ones_like(gap))
    received = torch.zeros_like(x).index_add(0, target, message) / degree.clamp_min(1)[:, None]
    return F.linear(x, root_weight) + layer.mix.bias[:size] + received


def stage(module: Stage, x: Tensor, edges: Tensor, position: Tensor) -> Tensor:
    """The layers of a stage, (N, D) → (N, D)."""
    x = module.dropout(x)
    for i, layer in enumerate(module.layers):
        x = tdgc(layer, F.leaky_relu(x, 0.2) if i else x, edges, position)
    return F.leaky_relu(module.norm(x), 0.2)


def pool(x: Tensor, video: Tensor, index: Tensor) -> Tensor:
    """Mean over self, self-loop and the nodes next to it; then the even nodes."""
    out = []
    for i in (index % 2 == 0).nonzero()[:, 0].tolist():
        members = [i, i]
        if i > 0 and video[i - 1] == video[i]:
            members.append(i - 1)
        if i + 1 < len(x) and video[i + 1] == video[i]:
            members.append(i + 1)
        out.append(x[members].mean(0))
    return torch.stack(out)


def pool_edges(x: Tensor, video: Tensor, index: Tensor) -> Tensor:
    """The same as `pool` in a handful of calls, for timing."""
    num_nodes = len(x)
    nodes = torch.arange(num_nodes, device=x.device)
    has_next = (video[1:] == video[:-1]).nonzero()[:, 0]
    source = torch.cat([nodes] * 2 + [has_next, has_next + 1])
    target = torch.cat([nodes] * 2 + [has_next + 1, has_next])
    degree = torch.zeros(num_nodes, dtype=x.dtype, device=x.device).index_add(
        0, target, torch.ones_like(target, dtype=x.dtype)
    )
    mean = torch.zeros_like(x).index_add(0, target, x[source]) / degree[:, None]
    return mean[index % 2 == 0]


def upsample(coarse: Tensor, coarse_time: Tensor, coarse_video: Tensor, time: Tensor, video: Tensor) -> Tensor:
    """Each node takes its 2 nearest coarse nodes, weighted by 1/distance² (the earlier first on a tie)."""
    rows = []
    for v in video.unique():
        fine_nodes, coarse_nodes = (video == v).nonzero()[:, 0], (coarse_video == v).nonzero()[:, 0]
        distance, order = (time[fine_nodes][:, None] - coarse_time[coarse_nodes][None]).abs().sort(dim=1, stable=True)
        weight = 1 / distance[:, :2].square().clamp_min(1e-16)
        rows.append((coarse[coarse_nodes[order[:, :2]]] * weight[..., None]).sum(1) / weight.sum(1, keepdim=True))
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
            even = index % 2 == 0
            x = self.pool(x, video, index)
            time, video, index = time[even], video[even], index[even] // 2
            x = x + stage(module, x, radius_edges(time, video, config.radius_s * 2**depth), time)
            levels.append({"x": x, "time": time, "video": video, "index": index})
        out = []
        coarse = levels[-1]
        x = coarse["x"]
        for depth, module in zip(range(len(levels) - 2, -1, -1), self.model.decoder.stages, strict=True):
            level = levels[depth]
            x = level["x"] + upsample(x, coarse["time"], coarse["video"], level["time"], level["video"])
            thread = torch.full_like(level["video"], -1)
            if depth == 0:
                x = stage(module, x, radius_edges(level["time"], level["video"], config.radius_s), level["time"])
            else:
                thread = self.cut(x, level["video"], depth) if self.cut else torch.zeros_like(level["video"])
                rank, group = ranks(thread, level["video"])
                x = stage(module, x, radius_edges(rank.to(x.dtype), group, config.thread_radius), rank.to(x.dtype))
            coarse = level
            out.append({**level, "x": x, "thread": thread})
        return out[::-1]
