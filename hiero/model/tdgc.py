"""Temporal Distance Gated Convolution, the operator of the paper."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.kernels.gated_messages import sum_messages, sum_messages_uniform
from hiero.model.neighbours import Neighbours

GATE_SLOPE = 0.01  # of the LeakyReLU inside the gate


class Gate(nn.Module):
    """How much a node at some distance in time matters, channel by channel: w = tanh(W₂ LeakyReLU(W₁ d + b₁) + b₂)."""

    def __init__(self, size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(1, hidden_size)
        self.out = nn.Linear(hidden_size, size)

    def forward(self, distance: Tensor) -> Tensor:
        """(…) → (…, D)."""
        if distance.ndim:
            hidden = F.leaky_relu(self.hidden(distance[..., None].to(self.hidden.weight.dtype)), GATE_SLOPE)
            return torch.tanh(self.out(hidden))
        # One distance for all: sums instead of two products with a single row.
        hidden = F.leaky_relu(self.hidden.weight[:, 0] * distance + self.hidden.bias, GATE_SLOPE)
        return torch.tanh((self.out.weight * hidden).sum(-1) + self.out.bias)


class TDGC(nn.Module):
    """Temporal Distance Gated Convolution: a node listens to its neighbours in time.

        x'ᵢ = Wᵣ xᵢ + bᵣ + meanⱼ sᵢⱼ (wᵢⱼ ⊙ φ(Wₙ xⱼ + bₙ))          (paper, Sec. 3.2)

    The sign sᵢⱼ tells past from future; the gate wᵢⱼ = tanh MLP(|pᵢ − pⱼ|) weighs distance; φ is LeakyReLU(0.2).
    Released weights use sign(pⱼ − pᵢ), the reverse of the paper; we follow the weights.

    Args:
        size: Width D of the nodes.
        gate_size: Hidden width of the gate.
    """

    def __init__(self, size: int, gate_size: int = 256) -> None:
        super().__init__()
        self.mix = nn.Linear(size, 2 * size)  # [Wᵣ; Wₙ]: one product gives what a node keeps and what it sends
        self.gate = Gate(size, gate_size)
        nn.init.zeros_(self.mix.bias)
        nn.init.eye_(self.mix.weight.data[size:])  # at first a node sends its neighbours just what it is

    def forward(self, x: Tensor, neighbours: Neighbours) -> Tensor:
        """x (B, T, D) → (B, T, D)."""
        mixed = self.mix(x)
        if not neighbours.linked:
            return mixed[..., : x.shape[-1]]
        gates = [self.gate(distance).to(mixed.dtype) for distance in neighbours.distance]
        if all(gate.ndim == 1 for gate in gates):
            return sum_messages_uniform(mixed, torch.stack(gates), neighbours.inverse_degree, neighbours.linked)
        return sum_messages(mixed, gates, neighbours.inverse_degree, neighbours.linked)
