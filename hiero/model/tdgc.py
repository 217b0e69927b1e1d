"""Temporal Distance Gated Convolution (TDGC), the operator of the paper, and the neighbours of a node.

Nodes are in time order, so neighbours within a radius are shifts along T: the pair (i, i + o) is
linked or not, for a few offsets o. There is no edge list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import ModelConfig
from hiero.model import gates_triton
from hiero.model.gated_messages import SLOPE, sum_messages, sum_messages_uniform
from hiero.model.gated_messages_triton import is_available, sum_messages_triton


@dataclass(frozen=True)
class Neighbours:
    """For each offset o = 1 … O, whether nodes i and i + o are neighbours, and how far apart they are.

    Attributes:
        linked: For each offset, 1 if nodes i and i + o are neighbours, else 0, (B, T − o).
        distance: For each offset, the distance between the two nodes: a scalar if it is the same
            for all nodes, otherwise (B, T − o).
        inverse_degree: One over the number of neighbours of each node, 0 without neighbours, (B, T, 1).
        group: The video or thread of each node; only nodes of one group can be neighbours. −1 on
            padding, (B, T).
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
        """Whether all pairs of each offset are equally far apart."""
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
    """Distances of the offsets 1 … O that are below the radius."""
    return [offset * spacing for offset in range(1, length) if offset * spacing < radius]


def timed_neighbours(group: Tensor, times: Tensor, radius: float) -> Neighbours:
    """Neighbours closer than `radius` for any times (B, T) that do not decrease inside a group."""
    paired, linked, distance = [], [], []
    for offset in range(1, group.shape[1]):
        gap = times[:, offset:] - times[:, :-offset]
        pair = (group[:, offset:] == group[:, :-offset]) & (group[:, offset:] >= 0) & (gap < radius)
        if not pair.any():  # gaps grow with the offset
            break
        paired.append(pair.to(times.dtype))
        linked.append((pair & (gap > 0)).to(times.dtype))
        distance.append(torch.where(pair, gap, 0))
    return Neighbours(tuple(linked), tuple(distance), _inverse_degree(paired, torch.zeros_like(times)), group)


def _inverse_degree(paired: list[Tensor], degree: Tensor) -> Tensor:
    for offset, pair in enumerate(paired, start=1):
        degree = degree + F.pad(pair, (0, offset)) + F.pad(pair, (offset, 0))
    return torch.where(degree > 0, 1 / degree.clamp_min(1), degree)[..., None]


GATE_SLOPE = 0.01  # slope of the LeakyReLU inside the gate


class Gate(nn.Module):
    """Weight of a node at distance d in time, for each channel: w = tanh(W₂ LeakyReLU(W₁ d + b₁) + b₂)."""

    def __init__(self, size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(1, hidden_size)
        self.out = nn.Linear(hidden_size, size)

    def forward(self, distance: Tensor) -> Tensor:
        """(…) → (…, D)."""
        hidden = F.leaky_relu(self.hidden(distance[..., None].to(self.hidden.weight.dtype)), GATE_SLOPE)
        return torch.tanh(self.out(hidden))

    def for_offsets(self, distances: Sequence[Tensor]) -> Tensor:
        """`forward` for a few scalars, (O, D), by sums instead of products with a single row."""
        hidden = torch.stack(tuple(distances))[:, None] * self.hidden.weight.flatten() + self.hidden.bias
        hidden = F.leaky_relu(hidden, GATE_SLOPE)  # (O, H)
        return torch.tanh((self.out.weight * hidden[:, None]).sum(-1) + self.out.bias)


def layer_gates(layers: Sequence[TDGC], distances: Sequence[Sequence[float]]) -> Tensor | None:
    """Gates of several layers by one kernel, for a few distances each; None if the kernel is not available."""
    parameters = [parameter for layer in layers for parameter in layer.gate.parameters()]
    if not distances or not distances[0] or not gates_triton.is_available(parameters):
        return None
    return gates_triton.uniform_gates_triton(parameters, distances, GATE_SLOPE)


class TDGC(nn.Module):
    """Temporal Distance Gated Convolution: each node aggregates its neighbours in time.

        x'ᵢ = Wᵣ xᵢ + bᵣ + meanⱼ sᵢⱼ (wᵢⱼ ⊙ φ(Wₙ xⱼ + bₙ))          (paper, Sec. 3.2)

    The sign sᵢⱼ distinguishes past from future, the gate wᵢⱼ = tanh MLP(|pᵢ − pⱼ|) weighs the
    distance, and φ is LeakyReLU(0.2). The sign is sign(pⱼ − pᵢ) as in the released weights, the
    reverse of the paper.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.mix = nn.Linear(size, 2 * size)  # [Wᵣ; Wₙ] in one product
        self.gate = Gate(size, config.gate_size)
        nn.init.zeros_(self.mix.bias)
        nn.init.eye_(self.mix.weight.data[size:])  # Wₙ starts as the identity

    def forward(
        self, x: Tensor, neighbours: Neighbours, gates: Tensor | None = None, *, activate: bool = False
    ) -> Tensor:
        """x (B, T, D) → (B, T, D)."""
        if neighbours.linked and neighbours.is_uniform:
            gates = self.gate.for_offsets(neighbours.distance) if gates is None else gates
            if is_available(x):
                product = F.linear(x, self.mix.weight)
                return sum_messages_triton(
                    product, self.mix.bias, gates, neighbours.inverse_degree, neighbours.linked, activate=activate
                )
        mixed = self.mix(x)
        if not neighbours.linked:
            out = mixed[..., : x.shape[-1]]
        elif gates is not None:
            out = sum_messages_uniform(mixed, gates.to(mixed.dtype), neighbours.inverse_degree, neighbours.linked)
        else:
            timed_gates = [self.gate(distance).to(mixed.dtype) for distance in neighbours.distance]
            out = sum_messages(mixed, timed_gates, neighbours.inverse_degree, neighbours.linked)
        return F.leaky_relu_(out, SLOPE) if activate else out
