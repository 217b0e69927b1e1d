"""One training step: forward, both losses, backward, clipping, Adam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from hiero.config import LossConfig
from hiero.data.narrated_windows import TrainingBatch
from hiero.model.hiero import HiERO, Losses, Peers

Tokens = tuple[Tensor, Tensor]


class Objective(nn.Module):
    """What is minimised: a batch in, its losses out. Holds all that learns: the network and, if it is trained, the text tower."""

    def __init__(
        self,
        model: HiERO,
        losses: LossConfig,
        spacing_s: float | None,
        *,
        text: nn.Module | None = None,
        precision: torch.dtype | None = None,
        peers: Peers | None = None,
        noise: float = 0.0,
        jitter: float = 0.0,
        text_noise: float = 0.0,
    ) -> None:
        super().__init__()
        self.model, self.text = model, text
        self.losses, self.spacing_s, self.precision, self.peers = losses, spacing_s, precision, peers
        self.noise, self.jitter, self.text_noise = noise, jitter, text_noise

    def forward(self, x: TrainingBatch, tokens: Tokens | None = None) -> Losses:
        """x.texts: vectors (B, M, E), or with `tokens` (ids and mask of the batch's different texts) places among these."""
        with torch.autocast(x.features.device.type, dtype=self.precision, enabled=self.precision is not None):
            if tokens is not None and self.text is not None:
                x = x.with_vectors(self.text(*tokens))
            levels = self.model.enrich(self._disturb(x.features), x.mask, x.times, self.spacing_s, threads=True)
            texts = x.texts
            if self.text_noise and self.training:
                texts = texts + self.text_noise / texts.shape[-1] ** 0.5 * self._draw(texts.shape, texts.device)
            return self.model.losses(levels, texts, x.text_times, x.text_mask, self.losses, self.peers)

    def _disturb(self, features: Tensor) -> Tensor:
        if not self.training:
            return features
        if self.jitter:
            features = features * (self.jitter * self._draw((len(features), 1, features.shape[2]), features.device)).exp()
        if self.noise:
            scale = self.model.input_scale if self.model.config.standardise else features.new_ones(())
            unit = torch.where(scale > 0, 1 / scale, 0.0)
            features = features + self.noise * unit * self._draw(features.shape, features.device)
        return features

    def _draw(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """Normal numbers. Every process draws for all, so that each video meets the same ones as in one process."""
        rank, num = (self.peers.rank, self.peers.num) if self.peers is not None else (0, 1)
        return torch.randn(num * shape[0], *shape[1:], device=device)[rank * shape[0] : (rank + 1) * shape[0]]


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Weight decay for matrices, none for 1-d parameters."""
    decayed = [p for p in module.parameters() if p.requires_grad and p.ndim > 1]
    free = [p for p in module.parameters() if p.requires_grad and p.ndim <= 1]
    return [{"params": free, "weight_decay": 0.0}, {"params": decayed, "weight_decay": weight_decay}]


def make_adam(module: nn.Module, lr: float = 1e-5, weight_decay: float = 1e-5, kind: str = "adam") -> torch.optim.Adam:
    """The paper's Adam, or AdamW; fused. On a GPU the learning rate is a tensor, so that a captured step follows the schedule."""
    device = next(module.parameters()).device
    cuda = device.type == "cuda"
    rate = torch.tensor(lr, device=device) if cuda else lr
    make = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
    return make(parameter_groups(module, weight_decay), lr=rate, fused=True, capturable=cuda)


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


class TrainStep:
    """The step, readable: what the captured one must agree with. Gradients of several batches are averaged."""

    def __init__(self, objective: nn.Module, optimizer: torch.optim.Optimizer, *, clip: float = 1.0, fabric: Any = None) -> None:
        self.objective, self.optimizer, self.clip, self.fabric = objective, optimizer, clip, fabric
        self.compute: Callable[..., Losses] = objective

    def __call__(self, *batches: TrainingBatch, tokens: list[Tokens | None] | None = None) -> Losses:
        self.optimizer.zero_grad(set_to_none=True)
        for i, batch in enumerate(batches):
            wait = self.fabric is not None and i + 1 < len(batches)  # gradients meet once, at the last one
            with self.fabric.no_backward_sync(self.objective) if wait else nullcontext():
                losses = self.compute(batch, tokens[i]) if tokens is not None else self.compute(batch)
                total = losses.total / len(batches)
                self.fabric.backward(total) if self.fabric is not None else total.backward()
        nn.utils.clip_grad_norm_(self.objective.parameters(), self.clip)
        self.optimizer.step()
        return losses
