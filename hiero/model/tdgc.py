"""Temporal Distance Gated Convolution, the operator of the paper."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import ModelConfig
from hiero.kernels import gates_triton
from hiero.kernels.gated_messages import SLOPE, sum_messages, sum_messages_uniform
from hiero.kernels.gated_messages_triton import is_available, sum_messages_triton
from hiero.model.neighbours import Neighbours

GATE_SLOPE = 0.01  # of the LeakyReLU inside the gate


class Gate(nn.Module):
    """How much a node at some distance in time matters, channel by channel: w = tanh(W₂
    LeakyReLU(W₁ d + b₁) + b₂).
    """

    def __init__(self, size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(1, hidden_size)
        self.out = nn.Linear(hidden_size, size)

    def forward(self, distance: Tensor) -> Tensor:
        """(…) → (…, D)."""
        hidden = F.leaky_relu(self.hidden(distance[..., None].to(self.hidden.weight.dtype)), GATE_SLOPE)
        return torch.tanh(self.out(hidden))


def gates_of_layers(layers: Sequence[TDGC], distances: Sequence[Sequence[float]]) -> Tensor | None:
    """Gates of several layers by one kernel, each for a few distances that are the same for all nodes."""
    parameters = [parameter for layer in layers for parameter in layer.gate.parameters()]
    if not distances or not distances[0] or not gates_triton.is_available(parameters):
        return None
    return gates_triton.uniform_gates_triton(parameters, distances, GATE_SLOPE)


def uniform_gates(gates: Sequence[Gate], distances: Sequence[Tensor]) -> Tensor:
    """Several gates at once, for a few distances that are the same for all nodes: sums instead of
    products with a single row.
    """
    distance = torch.stack(tuple(distances))[:, None]
    weight, bias = (
        torch.stack([getattr(gate.hidden, name).flatten() for gate in gates]) for name in ("weight", "bias")
    )
    hidden = F.leaky_relu(weight[:, None] * distance + bias[:, None], GATE_SLOPE)  # (L, O, H)
    weight, bias = (torch.stack([getattr(gate.out, name) for gate in gates]) for name in ("weight", "bias"))
    return torch.tanh((weight[:, None] * hidden[:, :, None]).sum(-1) + bias[:, None])


class TDGC(nn.Module):
    """Temporal Distance Gated Convolution: a node listens to its neighbours in time.

        x'ᵢ = Wᵣ xᵢ + bᵣ + meanⱼ sᵢⱼ (wᵢⱼ ⊙ φ(Wₙ xⱼ + bₙ))          (paper, Sec. 3.2)

    The sign sᵢⱼ tells past from future; the gate wᵢⱼ = tanh MLP(|pᵢ − pⱼ|) weighs distance; φ is LeakyReLU(0.2).
    Released weights use sign(pⱼ − pᵢ), the reverse of the paper; we follow the weights.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.mix = nn.Linear(size, 2 * size)  # [Wᵣ; Wₙ]: one product gives what a node keeps and what it sends
        self.gate = Gate(size, config.gate_size)
        nn.init.zeros_(self.mix.bias)
        nn.init.eye_(self.mix.weight.data[size:])  # at first a node sends its neighbours just what it is

    def forward(
        self, x: Tensor, neighbours: Neighbours, gates: Tensor | None = None, *, activate: bool = False
    ) -> Tensor:
        """x (B, T, D) → (B, T, D)."""
        if neighbours.linked and neighbours.is_uniform:
            gates = uniform_gates([self.gate], neighbours.distance)[0] if gates is None else gates
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
        return F.leaky_relu_(out, SLOPE) if activate else out  # in place: nothing else needs what was there
