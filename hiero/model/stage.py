"""A stage of the U-Net: a few TDGC layers, and the dropout before them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from hiero.kernels.gated_messages import SLOPE
from hiero.model.neighbours import Neighbours
from hiero.model.tdgc import TDGC, uniform_gates


class SharedDropout(nn.Module):
    """Dropout that several processes share: each draws for all videos of the global batch and keeps
    the part of its own.

    `part` is (rank, number of processes). With one process it is torch's; with several that begin
    with the same random state, every video loses the same values as in one process.
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
    """Dropout, then TDGC layers with LeakyReLU between them, LayerNorm and LeakyReLU after the last."""

    def __init__(self, size: int, num_layers: int = 3, gate_size: int = 256, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = SharedDropout(dropout)
        self.layers = nn.ModuleList(TDGC(size, gate_size) for _ in range(num_layers))
        self.norm = nn.LayerNorm(size)

    def forward(self, x: Tensor, neighbours: Neighbours, gates: Sequence[Tensor] | None = None) -> Tensor:
        """x (B, T, D) → (B, T, D)."""
        x = self.dropout(x)
        # those of all layers at once: a third of the kernels
        if gates is None and neighbours.linked and neighbours.is_uniform:
            gates = uniform_gates([layer.gate for layer in self.layers], neighbours.distance).unbind()  # type: ignore[misc]
        for i, layer in enumerate(self.layers):
            x = layer(x, neighbours, None if gates is None else gates[i], activate=i < len(self.layers) - 1)
        return F.leaky_relu_(self.norm(x), SLOPE)
