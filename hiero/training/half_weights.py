"""Half-precision copies of the weights, for a step that is bound by the number of its kernels."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from hiero.model.tdgc import Gate


class HalfWeights:
    """A copy of a module whose linear layers are in half precision; everything else is shared with the original.

    Autocast casts each weight before its product and each gradient after it, one small kernel each.
    Here nothing is cast inside the step; the numbers are the same, but for biases of TDGC layers,
    which kernels otherwise read in single precision.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        # A gate has one row of input: it is computed as a sum, which autocast leaves in single precision.
        gates = {id(layer) for gate in module.modules() if isinstance(gate, Gate) for layer in gate.modules()}
        linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear) and id(layer) not in gates]
        self._weights = {id(p): p for layer in linear for p in layer.parameters()}
        self.copies: dict[int, Tensor] = {
            key: nn.Parameter(p.detach().to(dtype), p.requires_grad) for key, p in self._weights.items()
        }
        shared = {id(x): x for x in (*module.parameters(), *module.buffers())}
        self.module = copy.deepcopy(module, memo={**shared, **self.copies})

    @torch.no_grad()
    def read_weights(self) -> None:
        """Bring the copies up to date with the original."""
        torch._foreach_copy_(list(self.copies.values()), list(self._weights.values()))
