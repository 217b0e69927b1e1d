"""Padded batches: (B, T, F) features with a mask and times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from hiero.config import ModelConfig
from hiero.errors import InputError
from hiero.types import Clock


@dataclass(frozen=True)
class Batch:
    """Videos of different lengths, padded to the longest.

    Attributes:
        features: Features (B, T, F), zero in the padding.
        mask: True for nodes, False for padding, (B, T).
        times: The middle of each node's segment in seconds, (B, T).
        spacing_s: Seconds between nodes, or None if the videos differ.
    """

    features: Tensor
    mask: Tensor
    times: Tensor
    spacing_s: float | None


def node_times(num_nodes: int, clock: Clock, device: torch.device | str = "cpu") -> Tensor:
    """The middle of each segment in seconds, (num_nodes,) float32, computed in double precision."""
    index = torch.arange(num_nodes, dtype=torch.float64)
    return (clock.start_s + (index + 0.5) * clock.stride / clock.fps).float().to(device)


def collate(videos: Sequence[Tensor], clocks: Clock | Sequence[Clock]) -> Batch:
    """Pad videos into one batch.

    Args:
        videos: Features of each video, (Tᵢ, F).
        clocks: One clock for all videos, or one for each.

    Returns:
        A batch of B videos and T = max Tᵢ nodes, on the CPU in float32.

    Raises:
        InputError: There are no videos.

    Examples:
        >>> batch = collate([torch.ones(3, 2), torch.ones(1, 2)], Clock(fps=1, stride=1))
        >>> batch.features.shape, batch.mask.sum(1), batch.times[0], batch.spacing_s
        (torch.Size([2, 3, 2]), tensor([3, 1]), tensor([0.5000, 1.5000, 2.5000]), 1.0)
    """
    if not videos:
        raise InputError("videos is empty; a batch needs at least one video")
    clocks = [clocks] * len(videos) if isinstance(clocks, Clock) else list(clocks)
    length = max(len(video) for video in videos)
    times = [node_times(len(video), clock) for video, clock in zip(videos, clocks, strict=True)]
    spacings = {clock.spacing_s for clock in clocks}
    return Batch(
        features=pad(videos, (len(videos), length, videos[0].shape[1])),
        mask=mask_of([len(video) for video in videos], length),
        times=pad(times, (len(videos), length)),
        spacing_s=spacings.pop() if len(spacings) == 1 else None,
    )


def pad(rows: Iterable[Tensor], shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Tensors (Tᵢ, …) with zeros after their rows as one tensor (B, T, …) on the CPU."""
    out = torch.zeros(shape, dtype=dtype)
    for padded, values in zip(out, rows, strict=True):
        padded[: len(values)] = values
    return out


def mask_of(lengths: Sequence[int], length: int) -> Tensor:
    """The mask of `pad`, (B, length)."""
    return torch.arange(length) < torch.tensor(lengths)[:, None]


def check_batch(
    features: Tensor, mask: Tensor | None, times: Tensor | None, config: ModelConfig
) -> tuple[Tensor, Tensor]:
    """Check the input of a model, and return mask and times with their defaults filled in."""
    if features.ndim != 3 or 0 in features.shape[:2]:
        raise InputError(f"features must be (B, T, F) with at least one video and node, got {tuple(features.shape)}")
    if features.shape[2] != config.input_size:
        kind = f" ({config.backbone} features)" if config.backbone else ""
        raise InputError(f"features are {features.shape[2]} wide, but the model takes {config.input_size}{kind}")
    shape = features.shape[:2]
    if mask is None:
        mask = torch.ones(shape, dtype=torch.bool, device=features.device)
    if mask.shape != shape or mask.dtype != torch.bool:
        raise InputError(f"mask must be boolean and {tuple(shape)}, got {mask.dtype} {tuple(mask.shape)}")
    if not mask.any(1).all():
        empty = ", ".join(map(str, (~mask.any(1)).nonzero().flatten().tolist()))
        raise InputError(f"mask leaves no node in video {empty}; drop empty videos before batching")
    if (mask[:, 1:] & ~mask[:, :-1]).any():
        raise InputError("mask must mark a prefix of each video; express gaps in time through times, not through mask")
    if not torch.isfinite(features[mask]).all():
        bad = sorted(set((~torch.isfinite(features).all(-1) & mask).nonzero()[:, 0].tolist()))
        raise InputError(f"features of video {', '.join(map(str, bad))} hold NaN or infinite values")
    if times is None:
        times = node_times(shape[1], config.clock, features.device).expand(shape)
    if times.shape != shape or not times.is_floating_point():
        raise InputError(f"times must be floating point and {tuple(shape)}, got {times.dtype} {tuple(times.shape)}")
    times = times if times.dtype == torch.float64 else times.float()
    node_times_s = times[mask]
    if not torch.isfinite(node_times_s).all() or (node_times_s < 0).any():
        raise InputError("times must be finite and not negative; count seconds from the start of the video")
    if ((times[:, 1:] < times[:, :-1]) & mask[:, 1:]).any():
        raise InputError("times must not decrease; sort the nodes of each video by time")
    return mask, times


def uniform_spacing(times: Tensor, mask: Tensor) -> float | None:
    """The spacing of a uniform clock in seconds, or None if times are irregular.

    Uniform times equal start + i·spacing up to rounding, with one spacing for the whole batch.
    """
    epsilon = torch.finfo(times.dtype).eps
    times, mask = times.detach().double().cpu(), mask.cpu()
    num_nodes = mask.sum(1)
    longest = int(num_nodes.argmax())
    num_gaps = int(num_nodes[longest]) - 1
    if num_gaps < 1:
        return 1.0  # no video has two nodes, so any spacing is right
    first, last = float(times[longest, 0]), float(times[longest, num_gaps])
    spacing, tolerance = (last - first) / num_gaps, epsilon * last / num_gaps
    if spacing <= tolerance:
        return None
    # The simplest fraction within the rounding error: times at 1 Hz give exactly 1 wherever a video
    # starts, so that a strict radius of 1 s does not depend on rounding.
    spacing = float(simplest_between(spacing - tolerance, spacing + tolerance))
    expected = times[:, :1] + spacing * torch.arange(times.shape[1], dtype=torch.float64)
    return spacing if bool((((times - expected).abs() <= 2 * epsilon * times.abs()) | ~mask).all()) else None


def simplest_between(low: float | Fraction, high: float | Fraction) -> Fraction:
    """The fraction with the smallest denominator in [low, high], 0 < low (Stern-Brocot)."""
    low, high = Fraction(low), Fraction(high)
    if math.ceil(low) <= high:
        return Fraction(math.ceil(low))
    whole = math.floor(low)
    return whole + 1 / simplest_between(1 / (high - whole), 1 / (low - whole))
