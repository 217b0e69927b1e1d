"""A stage of the U-Net: a few layers of the operator, and the dropout before them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import ModelConfig
from hiero.kernels.gated_messages import SLOPE
from hiero.model.neighbours import Neighbours
from hiero.model.parts import check_shape, find_operator
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
    """Dropout, then layers with LeakyReLU between them, LayerNorm and LeakyReLU after the last."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        make_layer = find_operator(config.operator)
        self.dropout = SharedDropout(config.dropout)
        self.layers = nn.ModuleList(make_layer(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.hidden_size)

    @property
    def is_tdgc(self) -> bool:
        """Whether all layers are the paper's operator, which has faster paths than other layers."""
        return all(type(layer) is TDGC for layer in self.layers)

    def forward(self, x: Tensor, neighbours: Neighbours, gates: Sequence[Tensor] | None = None) -> Tensor:
        """x (B, T, D) → (B, T, D). `gates`: those of each layer, where all are TDGC."""
        x = self.dropout(x)
        if self.is_tdgc:
            x = self._run_tdgc(x, neighbours, gates)
        else:
            for i, layer in enumerate(self.layers):
                shape = x.shape
                x = layer(F.leaky_relu(x, SLOPE) if i else x, neighbours)
                check_shape(f"operator {type(layer).__name__}", x, shape)
        return F.leaky_relu_(self.norm(x), SLOPE)

    def _run_tdgc(self, x: Tensor, neighbours: Neighbours, gates: Sequence[Tensor] | None) -> Tensor:
        # those of all layers at once: a third of the kernels
        if gates is None and neighbours.linked and neighbours.is_uniform:
            gates = uniform_gates([layer.gate for layer in self.layers], neighbours.distance).unbind()  # type: ignore[misc]
        for i, layer in enumerate(self.layers):
            x = layer(x, neighbours, None if gates is None else gates[i], activate=i < len(self.layers) - 1)
        return x
