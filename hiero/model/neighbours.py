"""Which nodes of a video are neighbours in time.

Nodes are in time order, so "neighbours within a radius" are shifts along T: the pair (i, i + o) is
linked or not, for a few offsets o. There is no edge list.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Neighbours:
    """For each offset o = 1 … O, whether nodes i and i + o are neighbours, and how far apart they are.

    Attributes:
        linked: For each offset, 1 where nodes i and i + o are neighbours, else 0, (B, T − o).
        distance: For each offset, the distance between the two: a scalar where it is the same for
            all nodes, otherwise (B, T − o).
        inverse_degree: One over the number of neighbours of each node, 0 without any, (B, T, 1).
        group: The group whose nodes may be neighbours, a video or a thread; −1 on padding, (B, T).
    """

    linked: tuple[Tensor, ...]
    distance: tuple[Tensor, ...]
    inverse_degree: Tensor
    group: Tensor

    @property
    def mask(self) -> Tensor:
        """True on nodes, False on padding, (B, T)."""
        return self.group >= 0

    @property
    def is_uniform(self) -> bool:
        """Whether all pairs of an offset are equally far apart."""
        return all(distance.ndim == 0 for distance in self.distance)


def uniform_neighbours(group: Tensor, spacing: float, radius: float, dtype: torch.dtype = torch.float32) -> Neighbours:
    """Neighbours closer than `radius` among nodes `spacing` apart."""
    distances = uniform_distances(group.shape[1], spacing, radius)
    linked = [
        ((group[:, offset:] == group[:, :-offset]) & (group[:, offset:] >= 0)).to(dtype)
        for offset in range(1, len(distances) + 1)
    ]
    distance = [torch.full((), value, dtype=dtype, device=group.device) for value in distances]
    inverse_degree = _inverse_degree(linked, torch.zeros_like(group, dtype=dtype))
    return Neighbours(tuple(linked), tuple(distance), inverse_degree, group)


def uniform_distances(length: int, spacing: float, radius: float) -> list[float]:
    """Distances of the offsets 1 … O of `uniform_neighbours`."""
    distances: list[float] = []
    while len(distances) + 1 < length and (len(distances) + 1) * spacing < radius:
        distances.append((len(distances) + 1) * spacing)
    return distances


def timed_neighbours(group: Tensor, times: Tensor, radius: float) -> Neighbours:
    """The same for any times (B, T) that do not decrease inside a group: exact for gaps, jitter and any radius."""
    paired, linked, distance = [], [], []
    for offset in range(1, group.shape[1]):
        gap = times[:, offset:] - times[:, :-offset]
        pair = (group[:, offset:] == group[:, :-offset]) & (group[:, offset:] >= 0) & (gap < radius)
        if not pair.any():  # gaps only grow with the offset, so no later offset can link anything
            break
        paired.append(pair.to(times.dtype))
        linked.append((pair & (gap > 0)).to(times.dtype))
        distance.append(torch.where(pair, gap, 0))
    return Neighbours(tuple(linked), tuple(distance), _inverse_degree(paired, torch.zeros_like(times)), group)


def _inverse_degree(paired: list[Tensor], degree: Tensor) -> Tensor:
    for offset, pair in enumerate(paired, start=1):
        degree = degree + F.pad(pair, (0, offset)) + F.pad(pair, (offset, 0))
    return torch.where(degree > 0, 1 / degree.clamp_min(1), degree)[..., None]
