"""The graph U-Net of the paper's Fig. 3: Temporal Encoder, Cut & Match, Function-Aware Decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import ModelConfig
from hiero.errors import InputError
from hiero.model.gated_messages import SLOPE
from hiero.model.normalised_cut import cut_samples
from hiero.model.pooling import MIN_SQUARED_DISTANCE, nearest_sample, pool, resample, upsample, upsample_by_time
from hiero.model.spectral import spectral_cut
from hiero.model.tdgc import TDGC, Neighbours, timed_neighbours, uniform_distances, uniform_neighbours
from hiero.plugins import load_plugin

Operator = Callable[[ModelConfig], nn.Module]
"""The layer of the stages, which plug-ins can replace (docs/guides/plugins.md). `ModelConfig` names it.

An operator is a class built from the configuration, of width D = `hidden_size`. Its forward takes the
nodes of a batch of videos and their neighbours in time,

    forward(x, neighbours):   x (B, T, D), `Neighbours`  →  (B, T, D)

and computes for each node i some function of its own features and those of its neighbours N(i),

    x'ᵢ = f(xᵢ, {(xⱼ, pᵢ − pⱼ) : j ∈ N(i)})

where p is the time in seconds, or the rank inside a thread. Padding (`~neighbours.mask`) may hold
any values, which must not influence other nodes.
"""


class SharedDropout(nn.Module):
    """Dropout that gives several processes the same result as one.

    Each process draws for the whole global batch and keeps its own part. `part` is (rank, number of
    processes). All processes must start with the same random state.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.part = (0, 1)

    def forward(self, x: Tensor) -> Tensor:
        rank, num_processes = self.part
        if num_processes == 1 or not self.training or not self.p:
            return F.dropout(x, self.p, self.training)
        scale = F.dropout(x.new_ones(num_processes * x.shape[0], *x.shape[1:]), self.p)
        return x * scale[rank * x.shape[0] : (rank + 1) * x.shape[0]]


class Stage(nn.Module):
    """Dropout, layers with LeakyReLU between them, then LayerNorm and LeakyReLU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        make_layer: Operator = load_plugin("hiero.operators", config.operator)
        self.dropout = SharedDropout(config.dropout)
        self.layers = nn.ModuleList(make_layer(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.hidden_size)

    @property
    def is_tdgc(self) -> bool:
        """Whether all layers are the operator of the paper, which has faster paths."""
        return all(type(layer) is TDGC for layer in self.layers)

    def forward(self, x: Tensor, neighbours: Neighbours, gates: Sequence[Tensor] | None = None) -> Tensor:
        """x (B, T, D) → (B, T, D). `gates` holds those of each layer, if all are TDGC."""
        x = self.dropout(x)
        for i, layer in enumerate(self.layers):
            if self.is_tdgc:
                x = layer(x, neighbours, None if gates is None else gates[i], activate=i < len(self.layers) - 1)
                continue
            out = layer(F.leaky_relu(x, SLOPE) if i else x, neighbours)
            if out.shape != x.shape:
                operator = type(layer).__name__
                raise InputError(f"operator {operator} must return shape {tuple(x.shape)}, got {tuple(out.shape)}")
            x = out
        return F.leaky_relu_(self.norm(x), SLOPE)


@dataclass(frozen=True)
class Level:
    """The nodes of a batch of videos at one level.

    Attributes:
        features: (B, T, D).
        mask: True on nodes, False on padding, (B, T).
        times: Times in seconds, (B, T).
        spacing_s: Time between nodes; None for irregular times.
        threads: Thread of each node within its video, −1 on padding, (B, T); None without threads.

    Examples:
        >>> import hiero, torch
        >>> model = hiero.HiERO(hiero.ModelConfig(input_size=8, hidden_size=16))
        >>> level = model(torch.randn(1, 40, 8), spacing_s=0.5)[1]
        >>> tuple(level.features.shape), level.spacing_s, tuple(level.threads.shape)
        ((1, 20, 16), 1.0, (1, 20))
    """

    features: Tensor
    mask: Tensor
    times: Tensor
    spacing_s: float | None
    threads: Tensor | None = None


def temporal_neighbours(level: Level, radius_s: float) -> Neighbours:
    """Nodes of a video less than `radius_s` seconds apart."""
    if level.spacing_s is None:
        return timed_neighbours(_video_group(level.mask), level.times, radius_s)
    return uniform_neighbours(_video_group(level.mask), level.spacing_s, radius_s, level.times.dtype)


def _video_group(mask: Tensor) -> Tensor:
    """One group for all nodes of a video: 0 on nodes, −1 on padding."""
    return mask.long() - 1


class TemporalEncoder(nn.Module):
    """Each level halves the frame rate by pooling, then applies a residual stage: x + stage(x)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.stages = nn.ModuleList(Stage(config) for _ in range(config.depth))

    def distances(self, length: int, spacing_s: float) -> list[list[float]]:
        """Distances of the neighbours in each stage, for `length` equally spaced nodes at level 0."""
        return [
            uniform_distances(-(-length // 2**depth), spacing_s * 2**depth, self.config.radius_s * 2**depth)
            for depth in range(1, len(self.stages) + 1)
        ]

    def forward(self, level: Level, gates: Sequence[Sequence[Tensor]] | None = None) -> list[Level]:
        """Level 0 → levels 0 … depth. `gates` holds those of each stage."""
        levels = [level]
        for i, stage in enumerate(self.stages):
            x = pool(level.features, level.mask)
            spacing_s = None if level.spacing_s is None else 2 * level.spacing_s
            level = Level(x, level.mask[:, ::2], level.times[:, ::2], spacing_s)
            neighbours = temporal_neighbours(level, self.config.radius_s * 2 ** (i + 1))
            level = replace(level, features=x + stage(x, neighbours, None if gates is None else gates[i]))
            levels.append(level)
        return levels


class FunctionAwareDecoder(nn.Module):
    """Each level upsamples, adds the encoder's features and applies a stage without a residual.

    Every level except 0 is cut into threads of similar nodes; inside a thread, the rank of a node
    replaces its time. Level 0 works on the temporal neighbours.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.stages = nn.ModuleList(Stage(config) for _ in range(config.depth))

    def distances(self, length: int, spacing_s: float) -> list[list[float]]:
        """Distances of the neighbours in each stage, for `length` equally spaced nodes at level 0."""
        if not self.stages:
            return []
        depths = range(len(self.stages) - 1, 0, -1)
        inside_threads = [uniform_distances(-(-length // 2**depth), 1.0, self.config.thread_radius) for depth in depths]
        return [*inside_threads, uniform_distances(length, spacing_s, self.config.radius_s)]

    def forward(
        self, levels: list[Level], gates: Sequence[Sequence[Tensor]] | None = None, *, cut: bool
    ) -> list[Level]:
        """Levels 0 … depth of the encoder → levels 0 … depth − 1 of the decoder."""
        config = self.config
        if not self.stages:  # depth 0
            return levels
        x = levels[-1].features
        out: list[Level] = []
        for i, stage in enumerate(self.stages):
            depth = len(levels) - 2 - i
            level = levels[depth]
            stage_gates = None if gates is None else gates[i]
            if level.spacing_s is None:
                x = level.features + upsample_by_time(x, level.times, level.mask)
            else:
                x = level.features + upsample(x, level.mask)
            threads: Tensor | None = None
            if depth == 0:
                x = stage(x, temporal_neighbours(level, config.radius_s), stage_gates)
            elif cut:
                threads = cut_threads(x, level.mask, config)
                x = reason_in_threads(stage, x, threads, config, stage_gates)
            else:  # the whole video is one thread
                neighbours = uniform_neighbours(_video_group(level.mask), 1.0, config.thread_radius, x.dtype)
                x = stage(x, neighbours, stage_gates)
            out.append(replace(level, features=x, threads=threads))
        return out[::-1]


# Cut & Match


@torch.no_grad()
def cut_threads(x: Tensor, mask: Tensor, config: ModelConfig) -> Tensor:
    """Cluster a few evenly spread samples into threads; each node gets the label of its nearest sample."""
    num, kappa, random_state = config.num_threads, config.kappa, config.random_state
    with torch.autocast(x.device.type, enabled=False):  # the cut needs single precision
        x = x.float() if x.dtype != torch.float64 else x
        if config.sample_points is None:
            threads = torch.full_like(mask, -1, dtype=torch.long)
            for nodes, used, row in zip(x, mask, threads, strict=True):
                row[used] = spectral_cut(nodes[used], num, kappa=kappa, form="training", random_state=random_state)
            return threads
        labels = cut_samples(resample(x, mask, config.sample_points), num, kappa, random_state)
        nearest = nearest_sample(mask, config.sample_points, rounded=config.behaviour.rounded_samples)
        threads = labels.gather(1, nearest)
        if config.behaviour.truncated_labels:
            threads = _truncate_labels(threads, nearest, mask, config.sample_points)
        return torch.where(mask, threads, -1)


def _truncate_labels(labels: Tensor, nearest: Tensor, mask: Tensor, num_samples: int) -> Tensor:
    """Labels as the release propagates them: multiplied and divided by a weight, then truncated."""
    position = torch.arange(mask.shape[1], device=mask.device) / (mask.sum(1, keepdim=True) - 1).clamp_min(1)
    distance = (nearest / (num_samples - 1)).float() - position.float()
    weight = 1 / distance.square().clamp_min(MIN_SQUARED_DISTANCE)
    return ((labels * weight) / weight).int().long()


def reason_in_threads(
    stage: nn.Module, x: Tensor, threads: Tensor, config: ModelConfig, gates: Sequence[Tensor] | None = None
) -> Tensor:
    """Run a stage inside each thread.

    Sorting makes the members of a thread adjacent, in time order, so that neighbours are shifts
    along the sorted nodes.
    """
    if config.behaviour.mixed_threads:
        group, rank, position = _mixed_groups(threads)
        order = position.argsort(1)
        neighbours = timed_neighbours(group.gather(1, order), rank.gather(1, order).float(), config.thread_radius)
    else:
        position, _ = sort_positions(threads, config.num_threads)
        index = torch.arange(x.shape[1], device=x.device).expand_as(position)
        order = torch.empty_like(position).scatter_(1, position, index)
        neighbours = uniform_neighbours(threads.gather(1, order), 1.0, config.thread_radius, x.dtype)
    return _Permute.apply(stage(_Permute.apply(x, order, position), neighbours, gates), position, order)


def sort_positions(threads: Tensor, num_threads: int) -> tuple[Tensor, Tensor]:
    """Position of each node in a stable sort by thread with padding last, and its rank in the thread."""
    # Counting sort: a thread starts after the members of all earlier threads.
    thread = torch.where(threads < 0, num_threads, threads)
    member = thread[..., None] == torch.arange(num_threads + 1, device=threads.device)
    count = member.cumsum(1)
    rank = (count - 1).gather(2, thread[..., None])[..., 0]
    start = count[:, -1].cumsum(1) - count[:, -1]
    return start.gather(1, thread) + rank, rank


def _mixed_groups(threads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Groups of the release's neighbour search: group, rank, and position sorted by both, (B, T) each.

    The release finds the borders between thread ids by bisection, but the ids are not sorted. Its
    "threads" are therefore stretches of the video in which nodes of any thread with similar ranks
    are neighbours. The borders depend on the whole batch.
    """
    batch, length = threads.shape
    num_threads = int(threads.max()) + 1
    valid = threads >= 0
    video = torch.arange(batch, device=threads.device)[:, None]
    ids = (video * num_threads + threads)[valid]
    borders = torch.searchsorted(ids, torch.arange(batch * num_threads + 1, device=ids.device, dtype=ids.dtype))
    node = torch.arange(len(ids), device=ids.device)
    inside = (node[:, None] >= borders[:-1]) & (node[:, None] < borders[1:])
    group = torch.full_like(threads, -1)
    # A node outside all stretches is a group of its own.
    group[valid] = torch.where(inside.any(1), inside.int().argmax(1), batch * num_threads + node)
    _, rank = sort_positions(threads, num_threads)
    key = torch.where(valid, group * length + rank, torch.iinfo(torch.long).max)
    position = key.argsort(dim=1, stable=True).argsort(1)
    return group, rank, position


class _Permute(torch.autograd.Function):
    """Reorder nodes. The gradient is the inverse reordering: a gather, where autograd would scatter and add."""

    @staticmethod
    def forward(ctx, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(inverse)
        return _gather_rows(x, order)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        (inverse,) = ctx.saved_tensors
        return _gather_rows(grad, inverse), None, None


def _gather_rows(x: Tensor, order: Tensor) -> Tensor:
    """Rows of each video in the given order: (B, T, D), (B, T) → (B, T, D)."""
    start = torch.arange(len(x), device=x.device)[:, None] * x.shape[1]
    return x.flatten(0, 1).index_select(0, (order + start).flatten()).view_as(x)
