"""The graph U-Net of the paper's Fig. 3: Temporal Encoder, Cut & Match, Function-Aware Decoder."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from hiero.config import ModelConfig
from hiero.kernels.normalised_cut import cut_samples
from hiero.model.neighbours import Neighbours, timed_neighbours, uniform_neighbours
from hiero.model.pooling import nearest_sample, pool, resample, upsample, upsample_by_time
from hiero.model.spectral import spectral_cut
from hiero.model.stage import Stage


@dataclass(frozen=True)
class Level:
    """The nodes of a batch of videos at one level.

    features (B, T, D), mask (B, T), times (B, T) in seconds; spacing_s between nodes when it is the same everywhere.
    threads (B, T): thread of each node within its video, −1 on padding; None where nothing was cut.
    """

    features: Tensor
    mask: Tensor
    times: Tensor
    spacing_s: float | None
    threads: Tensor | None = None


def temporal_neighbours(level: Level, reach_s: float) -> Neighbours:
    """Nodes of a video less than `reach_s` seconds apart."""
    group = level.mask.long() - 1  # 0 in the video, −1 on padding
    if level.spacing_s is None:
        return timed_neighbours(group, level.times, reach_s)
    return uniform_neighbours(group, level.spacing_s, reach_s, level.times.dtype)


class TemporalEncoder(nn.Module):
    """Context grows level by level: pool to half the rate, then listen to the neighbours: x + stage(x)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.radius_s = config.radius_s
        self.stages = _stages(config)

    def forward(self, level: Level) -> list[Level]:
        """Level 0 → levels 0 … depth."""
        levels = [level]
        for depth, stage in enumerate(self.stages, start=1):
            level = Level(
                features=pool(level.features, level.mask),
                mask=level.mask[:, ::2],
                times=level.times[:, ::2],
                spacing_s=None if level.spacing_s is None else 2 * level.spacing_s,
            )
            neighbours = temporal_neighbours(level, self.radius_s * 2**depth)
            level = replace(level, features=level.features + stage(level.features, neighbours))
            levels.append(level)
        return levels


class FunctionAwareDecoder(nn.Module):
    """Back to full rate, reasoning inside threads on the way: stage(encoder + upsampled), no residual.

    Every level but 0 is cut into threads of similar nodes; inside a thread, time is the rank among its members.
    Level 0 works on the plain temporal chain.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.stages = _stages(config)

    def forward(self, levels: list[Level], *, cut: bool) -> list[Level]:
        """Levels 0 … depth of the encoder → levels 0 … depth − 1 of the decoder. `cut`: find threads, or take one a video."""
        config = self.config
        if not self.stages:  # depth 0: no graph
            return levels
        feature = levels[-1].features
        out: list[Level] = []
        for depth, stage in zip(range(len(levels) - 2, -1, -1), self.stages, strict=True):
            level = levels[depth]
            if level.spacing_s is None:
                feature = level.features + upsample_by_time(feature, level.times, level.mask)
            else:
                feature = level.features + upsample(feature, level.mask)
            threads: Tensor | None = None
            if depth == 0:
                feature = stage(feature, temporal_neighbours(level, config.radius_s))
            elif cut:
                threads = cut_threads(feature, level.mask, config)
                feature = reason_in_threads(stage, feature, threads, config)
            else:
                group = level.mask.long() - 1
                feature = stage(feature, uniform_neighbours(group, 1.0, config.thread_radius, feature.dtype))
            out.append(replace(level, features=feature, threads=threads))
        return out[::-1]


def _stages(config: ModelConfig) -> nn.ModuleList:
    return nn.ModuleList(
        Stage(config.hidden_size, config.num_layers, config.gate_size, config.dropout) for _ in range(config.depth)
    )


# Cut & Match


@torch.no_grad()
def cut_threads(x: Tensor, mask: Tensor, config: ModelConfig) -> Tensor:
    """Thread of each node (B, T), −1 on padding: cut a few evenly spread samples, give every node its nearest one's label."""
    with torch.autocast(x.device.type, enabled=False):  # the cut needs single precision
        x = x.float() if x.dtype != torch.float64 else x
        if config.sample_points is None:  # all nodes, video by video
            threads = torch.full_like(mask, -1, dtype=torch.long)
            for i, num in enumerate(mask.sum(1).tolist()):
                threads[i, :num] = spectral_cut(
                    x[i, :num], config.num_threads, kappa=config.kappa, form="training", random_state=config.random_state
                )
            return threads
        samples = resample(x, mask, config.sample_points)
        labels = cut_samples(samples, config.num_threads, config.kappa, config.random_state)
        nearest = nearest_sample(mask, config.sample_points)
        threads = labels.gather(1, nearest)
        if config.behaviour.truncated_labels:
            threads = _truncate(threads, nearest, mask, config.sample_points)
        return torch.where(mask, threads, -1)


def _truncate(labels: Tensor, nearest: Tensor, mask: Tensor, num: int) -> Tensor:
    """The release's way to carry a label: weight, divide by the weight, cut off the fraction."""
    place = torch.arange(mask.shape[1], device=mask.device) / (mask.sum(1, keepdim=True) - 1).clamp_min(1)
    weight = 1 / ((nearest / (num - 1)).float() - place.float()).square().clamp_min(1e-16)
    return ((labels * weight) / weight).int().long()


def reason_in_threads(stage: nn.Module, x: Tensor, threads: Tensor, config: ModelConfig) -> Tensor:
    """Run a stage inside each thread: sort members together (in time order), shift along the sorted nodes, sort back."""
    if config.behaviour.mixed_threads:
        group, rank, position = _mixed_groups(threads)
        order = position.argsort(1)
        neighbours = timed_neighbours(group.gather(1, order), rank.gather(1, order).float(), config.thread_radius)
    else:
        position, _ = sort_positions(threads, config.num_threads)
        order = torch.empty_like(position).scatter_(1, position, torch.arange(x.shape[1], device=x.device).expand_as(position))
        neighbours = uniform_neighbours(threads.gather(1, order), 1.0, config.thread_radius, x.dtype)
    return _Permute.apply(stage(_Permute.apply(x, order, position), neighbours), position, order)


def sort_positions(threads: Tensor, num_threads: int) -> tuple[Tensor, Tensor]:
    """Where each node goes when nodes are sorted by thread (stable; padding last), and its rank in its thread. (B, T) each."""
    thread = torch.where(threads < 0, num_threads, threads)
    member = thread[..., None] == torch.arange(num_threads + 1, device=threads.device)
    before = member.cumsum(1)
    rank = (before - 1).gather(2, thread[..., None])[..., 0]
    start = before[:, -1].cumsum(1) - before[:, -1]
    return start.gather(1, thread) + rank, rank


def _mixed_groups(threads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the release's neighbour search makes of unsorted thread ids: (group, rank, position when sorted by both).

    It finds the borders between ids by binary search over ids that are not sorted, so a "thread" becomes a stretch of the
    video in which nodes of any thread hear each other when their ranks are close. Borders depend on the whole batch.
    """
    batch, length = threads.shape
    num = int(threads.max()) + 1
    valid = threads >= 0
    video = torch.arange(batch, device=threads.device)[:, None]
    ids = (video * num + threads)[valid]
    border = torch.searchsorted(ids, torch.arange(batch * num + 1, device=ids.device, dtype=ids.dtype))
    node = torch.arange(len(ids), device=ids.device)
    inside = (node[:, None] >= border[:-1]) & (node[:, None] < border[1:])
    group = torch.full_like(threads, -1)
    group[valid] = torch.where(inside.any(1), inside.int().argmax(1), batch * num + node)  # in no stretch: alone
    _, rank = sort_positions(threads, num)
    key = torch.where(valid, group * length + rank, torch.iinfo(torch.long).max)
    position = key.argsort(dim=1, stable=True).argsort(1)
    return group, rank, position


class _Permute(torch.autograd.Function):
    """Reorder nodes; the gradient is the inverse reordering (a gather, where autograd would scatter-add)."""

    @staticmethod
    def forward(ctx, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(inverse)
        return _take(x, order)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        (inverse,) = ctx.saved_tensors
        return _take(grad, inverse), None, None


def _take(x: Tensor, order: Tensor) -> Tensor:
    """Rows of each video in the given order, copied row by row. (B, T, D), (B, T) → (B, T, D)"""
    start = torch.arange(len(x), device=x.device)[:, None] * x.shape[1]
    return x.flatten(0, 1).index_select(0, (order + start).flatten()).view_as(x)
