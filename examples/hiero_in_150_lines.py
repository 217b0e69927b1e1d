"""The method of the paper (https://arxiv.org/abs/2505.12911), as plainly as possible: graphs are lists of edges.

python -m examples.hiero_in_150_lines hiero_egovlp.pth features.pt

Several videos are one graph: x (N, D) are the features of all nodes, time_s (N,) says when they happen, and video (N,)
which video they belong to. The nodes of a video are adjacent and in time order. Equations are those of Sec. 3.
"""

from __future__ import annotations

import sys
from collections import namedtuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.config import ModelConfig
from hiero.model.released import read_released

Weights = dict[str, Tensor]
Level = namedtuple("Level", "x time_s video thread", defaults=[None])


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


# The graph, and message passing on its edges. A group is a video, or a thread inside a video.
def radius_edges(position: Tensor, group: Tensor, radius: float) -> Tensor:
    """All pairs (source, target) of different nodes of a group less than `radius` apart, (2, E)."""
    is_near = ((position[:, None] - position).abs() < radius) & (group[:, None] == group)
    return is_near.fill_diagonal_(False).nonzero().T


def mean_over_edges(message: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """The mean message that each node receives; 0 for a node without neighbours."""
    total = message.new_zeros(num_nodes, message.shape[1]).index_add(0, target, message)
    return total / target.bincount(minlength=num_nodes).clamp_min(1)[:, None]


def tdgc(weights: Weights, name: str, x: Tensor, edges: Tensor, position: Tensor) -> Tensor:
    """Temporal Distance Gated Convolution: x_i ← W_r x_i + b_r + mean_j s_ij (w_ij ⊙ φ(W_n x_j + b_n)) (Eqs. 2, 3)."""
    source, target = edges
    gap = position[source] - position[target]  # Eq. 4; the released weights need this sign, the paper has the reverse
    hidden = F.leaky_relu(linear(weights, f"{name}gate.hidden", gap.abs()[:, None]), 0.01)
    gate = torch.tanh(linear(weights, f"{name}gate.out", hidden))
    own, sent = linear(weights, f"{name}mix", x).chunk(2, dim=1)  # W_r and W_n are stored as one matrix
    return own + mean_over_edges(gap.sign()[:, None] * gate * F.leaky_relu(sent, 0.2)[source], target, len(x))


def stage(weights: Weights, name: str, num_layers: int, x: Tensor, edges: Tensor, position: Tensor) -> Tensor:
    """A few layers with LeakyReLU between them, then LayerNorm."""
    for i in range(num_layers):
        x = tdgc(weights, f"{name}layers.{i}.", F.leaky_relu(x, 0.2) if i else x, edges, position)
    return F.leaky_relu(F.layer_norm(x, x.shape[1:], weights[f"{name}norm.weight"], weights[f"{name}norm.bias"]), 0.2)


# From level to level
def index_in_group(group: Tensor) -> Tensor:
    """How many earlier nodes each node has in its group."""
    return (group[:, None] == group).tril(-1).sum(1)


def pool(x: Tensor, video: Tensor) -> Tensor:
    """Every second node becomes the mean of itself, counted twice, and its two neighbours."""
    index, itself = index_in_group(video), torch.arange(len(x), device=x.device).expand(2, -1)
    source, target = torch.cat([itself, itself, radius_edges(index, video, 1.5)], 1)
    return mean_over_edges(x[source], target, len(x))[index % 2 == 0]


def interpolate(x: Tensor, position: Tensor, at: Tensor, num_nearest: int) -> Tensor:
    """The mean of the nodes nearest to each position in `at`, weighted by 1/distance²."""
    distance, nearest = (each[:, :num_nearest] for each in (at[:, None] - position).abs().sort(dim=1, stable=True))
    weight = 1 / distance.square().clamp_min(1e-16)
    return (x[nearest] * (weight / weight.sum(1, keepdim=True))[..., None].to(x.dtype)).sum(1)


# Cut & Match: spectral clustering of a video into functional threads (Sec. 3.1)
def kmeans(points: Tensor, num_clusters: int) -> Tensor:
    """Lloyd's algorithm from k-means++ seeds; of 20 attempts, the labels with the least inertia."""
    generator, best = torch.Generator().manual_seed(0), (float("inf"), torch.empty(0))
    for _ in range(20):
        centres = points[:1]
        while len(centres) < num_clusters:
            weight = torch.cdist(points, centres).square().amin(1) + 1e-12
            centres = torch.cat([centres, points[torch.multinomial(weight, 1, generator=generator)]])
        for _ in range(20):
            distance, label = torch.cdist(points, centres).min(1)
            member = F.one_hot(label, num_clusters).to(points.dtype).T  # (K, N)
            centres = torch.where(member.any(1, keepdim=True), member @ points / member.sum(1, keepdim=True), centres)
        best = min(best, (float(distance.square().sum()), label), key=lambda result: result[0])
    return best[1]


def cut(x: Tensor, config: ModelConfig) -> Tensor:
    """The thread of each node of one video. A few even samples are clustered; a node takes the nearest one's label."""
    num_samples, last = config.sample_points or len(x), max(1, len(x) - 1)
    node = torch.arange(len(x), device=x.device)
    samples = F.normalize(interpolate(x, node / last, torch.linspace(0, 1, num_samples, device=x.device), 3), dim=1)
    similarity = ((samples @ samples.T - 1) / config.kappa).exp()  # S; the factor exp(-1/κ) cancels out below
    scale = similarity.sum(1).rsqrt()
    _, vectors = torch.linalg.eigh(scale[:, None] * similarity * scale)  # D^-1/2 S D^-1/2, the largest eigenvalue last
    label = kmeans(vectors[:, -config.num_threads :], config.num_threads)
    return label[(node * (num_samples - 1) / last - 0.5).ceil().long()]


def encode(weights: Weights, config: ModelConfig, level: Level) -> list[Level]:
    """Temporal Encoder (Eq. 1): each level has half the rate of the one before, and twice the radius: x + stage(x)."""
    levels = [level._replace(x=linear(weights, "project", level.x))]
    for i in range(config.depth):
        is_kept = index_in_group(levels[-1].video) % 2 == 0
        x, time_s, video = pool(levels[-1].x, levels[-1].video), levels[-1].time_s[is_kept], levels[-1].video[is_kept]
        edges = radius_edges(time_s, video, config.radius_s * 2 ** (i + 1))
        change = stage(weights, f"encoder.stages.{i}.", config.num_layers, x, edges, time_s)
        levels.append(Level(x + change, time_s, video))
    return levels


def decode(weights: Weights, config: ModelConfig, levels: list[Level], cut=cut) -> list[Level]:
    """Function-Aware Decoder, finest level first. Above level 0, nodes reason inside threads (without `cut`, one)."""
    decoded = [levels[-1]]
    for i, level in enumerate(levels[-2::-1]):
        videos = [(decoded[0].video == v, level.video == v) for v in level.video.unique()]
        upsampled = [interpolate(decoded[0].x[a], decoded[0].time_s[a], level.time_s[b], 2) for a, b in videos]
        level = level._replace(x=level.x + torch.cat(upsampled))
        group, position, radius = level.video, level.time_s, config.radius_s
        if i < config.depth - 1:  # the rank inside a thread replaces the time
            threads = [cut(level.x[b], config) if cut else torch.zeros_like(level.video[b]) for _, b in videos]
            level = level._replace(thread=torch.cat(threads))
            group = level.video * config.num_threads + level.thread
            position, radius = index_in_group(group).to(level.x.dtype), config.thread_radius
        edges = radius_edges(position, group, radius)
        x = stage(weights, f"decoder.stages.{i}.", config.num_layers, level.x, edges, position)
        decoded.insert(0, level._replace(x=x))
    return decoded[:-1]


def project(weights: Weights, x: Tensor) -> Tensor:
    """h_v of Eq. 5, without its normalisation: nodes in the space that they share with narrations."""
    x = linear(weights, "video_head.0", x)
    x = F.layer_norm(x, x.shape[1:], weights["video_head.1.weight"], weights["video_head.1.bias"])
    return linear(weights, "video_head.3", F.relu(x))


if __name__ == "__main__":
    released, x = read_released(sys.argv[1]), torch.load(sys.argv[2], weights_only=True)
    nodes = Level(x, (torch.arange(len(x)) + 0.5) * released.config.clock.spacing_s, torch.zeros(len(x)).long())
    for level in decode(released.state, released.config, encode(released.state, released.config, nodes)):
        print(tuple(level.x.shape), "projected to", tuple(project(released.state, level.x).shape))
