"""Temporal Distance Gated Convolution, and the neighbourhoods it works on.

Nodes are in time order, so "neighbours within a radius" are shifts along T: the pair (i, i + o) is linked or not,
for a few offsets o. There is no edge list.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SLOPE = 0.2  # of every LeakyReLU between layers


@dataclass(frozen=True)
class Neighbours:
    """Who listens to whom: for each offset o = 1 … O, whether nodes i and i + o hear each other, and how far apart they are.

    link      (B, T − o) per offset; 1 where the two are neighbours at different times, else 0
    distance  per offset, () on a uniform clock or (B, T − o); |pᵢ₊ₒ − pᵢ|
    share     (B, T, 1); 1 / number of neighbours, 0 without any. Neighbours at the very same time count here,
              though their sign, and so their message, is zero.
    """

    link: tuple[Tensor, ...]
    distance: tuple[Tensor, ...]
    share: Tensor


def _share(heard: list[Tensor], like: Tensor) -> Tensor:
    """1 / (number of neighbours) of each node, from which pairs are linked."""
    count = torch.zeros_like(like)
    for offset, pair in enumerate(heard, start=1):
        count = count + F.pad(pair, (0, offset)) + F.pad(pair, (offset, 0))
    return torch.where(count > 0, 1 / count.clamp_min(1), count)[..., None]


def uniform_neighbours(group: Tensor, spacing: float, reach: float, dtype: torch.dtype = torch.float32) -> Neighbours:
    """Neighbours closer than `reach` among nodes `spacing` apart; only nodes of the same group hear each other.

    group (B, T) of integers, members adjacent; negative ids are padding.
    """
    length = group.shape[1]
    heard, distance = [], []
    offset = 1
    while offset < length and offset * spacing < reach:
        heard.append(((group[:, offset:] == group[:, :-offset]) & (group[:, offset:] >= 0)).to(dtype))
        distance.append(torch.full((), offset * spacing, dtype=dtype, device=group.device))
        offset += 1
    return Neighbours(tuple(heard), tuple(distance), _share(heard, torch.zeros_like(group, dtype=dtype)))


def timed_neighbours(group: Tensor, times: Tensor, reach: float) -> Neighbours:
    """The same for any times that do not decrease inside a group: exact for gaps, jitter and any reach."""
    heard, link, distance = [], [], []
    for offset in range(1, group.shape[1]):
        gap = times[:, offset:] - times[:, :-offset]
        pair = (group[:, offset:] == group[:, :-offset]) & (group[:, offset:] >= 0) & (gap < reach)
        if not pair.any():  # gaps only grow with the offset, so no later offset can link anything
            break
        heard.append(pair.to(times.dtype))
        link.append((pair & (gap > 0)).to(times.dtype))
        distance.append(torch.where(pair, gap, 0))
    return Neighbours(tuple(link), tuple(distance), _share(heard, torch.zeros_like(times)))


class Gate(nn.Module):
    """How much a node at some distance in time matters, channel by channel: w = tanh(W₂ LeakyReLU(W₁ d + b₁) + b₂)."""

    def __init__(self, size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(1, hidden_size)
        self.out = nn.Linear(hidden_size, size)

    def forward(self, distance: Tensor) -> Tensor:
        """(…) → (…, D)."""
        if distance.ndim:
            hidden = F.leaky_relu(self.hidden(distance[..., None].to(self.hidden.weight.dtype)), 0.01)
            return torch.tanh(self.out(hidden))
        # One distance for all: sums instead of two products with a single row.
        hidden = F.leaky_relu(self.hidden.weight[:, 0] * distance + self.hidden.bias, 0.01)
        return torch.tanh((self.out.weight * hidden).sum(-1) + self.out.bias)


class TDGC(nn.Module):
    """Temporal Distance Gated Convolution: a node listens to its neighbours in time.

        x'ᵢ = Wᵣ xᵢ + bᵣ + meanⱼ sᵢⱼ (wᵢⱼ ⊙ φ(Wₙ xⱼ + bₙ))          (paper, Sec. 3.2)

    The sign sᵢⱼ tells past from future; the gate wᵢⱼ = tanh MLP(|pᵢ − pⱼ|) weighs distance; φ is LeakyReLU(0.2).
    Released weights use sign(pⱼ − pᵢ), the reverse of the paper; we follow the weights.
    `mix` holds both matrices, [Wᵣ; Wₙ], so that one product gives what a node keeps and what it tells.
    """

    def __init__(self, size: int, gate_size: int = 256) -> None:
        super().__init__()
        self.mix = nn.Linear(size, 2 * size)
        self.gate = Gate(size, gate_size)
        nn.init.zeros_(self.mix.bias)
        nn.init.eye_(self.mix.weight.data[size:])  # a node first tells its neighbours just what it is

    def forward(self, x: Tensor, neighbours: Neighbours) -> Tensor:
        """x (B, T, D) → (B, T, D)."""
        mixed = self.mix(x)
        if not neighbours.link:
            return mixed[..., : x.shape[-1]]
        gates = [self.gate(distance).to(mixed.dtype) for distance in neighbours.distance]
        if all(gate.ndim == 1 for gate in gates):
            return _Listen.apply(mixed, torch.stack(gates), neighbours.share.to(mixed.dtype), *neighbours.link)
        kept, told = mixed.chunk(2, dim=-1)
        told = F.leaky_relu(told, SLOPE)
        heard = torch.zeros_like(told)
        for offset, (gate, link) in enumerate(zip(gates, neighbours.link, strict=True), start=1):
            gate = gate * link[..., None].to(gate.dtype)
            heard = heard + F.pad(gate * told[:, offset:], (0, 0, 0, offset))  # from later nodes
            heard = heard - F.pad(gate * told[:, :-offset], (0, 0, offset, 0))  # from earlier nodes
        return kept + heard * neighbours.share.to(heard.dtype)


def refuse_second_derivative() -> None:
    """For gradients that are written out by hand: differentiating them again would silently give a wrong result."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # grad mode is on in backward only with create_graph
        raise RuntimeError("second derivatives are not supported; call backward without create_graph")


class _Listen(torch.autograd.Function):
    """kept + mean of signed, gated messages on a uniform clock, where a gate belongs to an offset, not to a pair.

    mixed (B, T, 2D) holds what nodes keep and tell (before φ), gates (O, D), share (B, T, 1), link O × (B, T − o).
    The same sums as in `TDGC.forward`, with the gradient written out: about half the passes over memory.
    """

    @staticmethod
    def forward(ctx, mixed, gates, share, *link):  # type: ignore[no-untyped-def]
        size = gates.shape[1]
        told = F.leaky_relu(mixed[..., size:], SLOPE)
        out = mixed[..., :size].clone()
        for offset, pair in enumerate(link, start=1):
            message = told.mul_(gates[0]) if len(link) == 1 else told * gates[offset - 1]
            weight = pair[..., None].to(mixed.dtype)
            out[:, :-offset].addcmul_(weight * share[:, :-offset], message[:, offset:])
            out[:, offset:].addcmul_(weight * share[:, offset:], message[:, :-offset], value=-1)
        ctx.save_for_backward(mixed, gates, share, *link)
        return out

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        refuse_second_derivative()
        mixed, gates, share, *link = ctx.saved_tensors
        size = gates.shape[1]
        told = F.leaky_relu(mixed[..., size:], SLOPE)
        to_told, to_gates = None, []
        for offset, pair in enumerate(link, start=1):
            weight = pair[..., None].to(grad.dtype)
            message = torch.zeros_like(grad)
            message[:, offset:].addcmul_(weight * share[:, :-offset], grad[:, :-offset])
            message[:, :-offset].addcmul_(weight * share[:, offset:], grad[:, offset:], value=-1)
            last = offset == len(link)
            to_gates.append((told.mul_(message) if last else told * message).sum((0, 1)))
            message.mul_(gates[offset - 1])
            to_told = message if to_told is None else to_told.add_(message)
        to_told = torch.ops.aten.leaky_relu_backward(to_told, mixed[..., size:], SLOPE, False)
        return torch.cat([grad, to_told], -1), torch.stack(to_gates), None, *([None] * len(link))


class Dropout(nn.Module):
    """Dropout that several processes share: each draws for all videos of the global batch and keeps the part of its own.

    `part` is (rank, number of processes). With one process it is torch's; with several that begin with the same random state,
    every video loses the same values as in one process.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.part = (0, 1)

    def forward(self, x: Tensor) -> Tensor:
        rank, num = self.part
        if num == 1 or not self.training or not self.p:
            return F.dropout(x, self.p, self.training)
        scale = F.dropout(x.new_ones(num * x.shape[0], *x.shape[1:]), self.p)
        return x * scale[rank * x.shape[0] : (rank + 1) * x.shape[0]]


class Stage(nn.Module):
    """Dropout, then TDGC layers with LeakyReLU between them, LayerNorm and LeakyReLU after the last."""

    def __init__(self, size: int, num_layers: int = 3, gate_size: int = 256, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(TDGC(size, gate_size) for _ in range(num_layers))
        self.norm = nn.LayerNorm(size)

    def forward(self, x: Tensor, neighbours: Neighbours) -> Tensor:
        x = self.dropout(x)
        for i, layer in enumerate(self.layers):
            x = layer(F.leaky_relu_(x, SLOPE) if i else x, neighbours)  # in place: x is the last layer's own output
        return F.leaky_relu_(self.norm(x), SLOPE)
